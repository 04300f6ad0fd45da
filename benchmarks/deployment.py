"""Where a benchmark runs: a cluster of its own, or the deployment of ``--uri``; collections to compare."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo import GEOSPHERE
from pymongo.collection import Collection
from pymongo.database import Database

from benchmarks.cpu import ServerCpu
from benchmarks.data import Points
from benchmarks.options import Options
from spatialnosql.adopt import adopt
from spatialnosql.cluster import Deployment, LocalCluster, connect, describe
from spatialnosql.geohash import points_to_strings
from spatialnosql.loading import insert
from spatialnosql.placement import even_cuts, shard_by_geohash, shard_by_hash
from spatialnosql.uri import redact


@dataclass(frozen=True)
class Bench:
    """A deployment with a database of this run alone, and the CPU of its processes."""

    uri: str
    database: Database[dict[str, Any]]
    kind: Deployment
    cpu: ServerCpu
    load_order: str = "ingest"

    @property
    def n_shards(self) -> int:
        """How many shards there are; 1 for a deployment that is not sharded."""
        return max(1, len(self.kind.shards))


@contextlib.contextmanager
def open_deployment(options: Options, **cluster_options: Any) -> Iterator[Bench]:
    """Start a cluster with such options, or connect to the one given; the database is dropped in the end."""
    with contextlib.ExitStack() as stack:
        if options.uri is None:
            print(f"starting a cluster of {options.shards} shards ...", file=sys.stderr, flush=True)
            cluster = stack.enter_context(LocalCluster(shards=options.shards, **cluster_options))
            uri, cpu = cluster.uri, ServerCpu(cluster.pids)
        else:
            uri, cpu = options.uri, ServerCpu(None)
            print(f"using {redact(uri)}; server CPU is unknown there", file=sys.stderr, flush=True)
        client = stack.enter_context(connect(uri))
        kind = describe(client)
        if kind.note():
            print(kind.note(), file=sys.stderr, flush=True)
        name = f"spatialnosql_bench_{secrets.token_hex(4)}"
        stack.callback(client.drop_database, name)
        yield Bench(uri, client[name], kind, cpu, options.load_order)


def hashed_collection(
    bench: Bench, name: str, batches: Iterable[list[dict[str, Any]]], total: int
) -> Collection[dict[str, Any]]:
    """What people have today: sharded on the hash of ``_id``, with a 2dsphere index on ``loc``."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        shard_by_hash(collection)
    insert(collection, batches, total)
    collection.create_index([("loc", GEOSPHERE)])
    return collection


def geohash_collection(
    bench: Bench, name: str, batches: Iterable[list[dict[str, Any]]], total: int, sample: Any
) -> Collection[dict[str, Any]]:
    """Sharded on ``{gh, _id}`` in even ranges of the sample's geohashes, with both indexes."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        shard_by_geohash(collection, bench.kind.shards, even_cuts(sample, bench.n_shards))
    else:
        collection.create_index({"gh": 1, "_id": 1})
    insert(collection, batches, total)
    collection.create_index([("loc", GEOSPHERE)])
    return collection


def plain_collection(bench: Bench, name: str, points: Points) -> Collection[dict[str, Any]]:
    """The points on hashed shards, stored in the order of the file unless told otherwise."""
    batches = points.to_documents(along_curve=bench.load_order == "curve")
    return hashed_collection(bench, name, batches, len(points))


def adopted_collection(bench: Bench, name: str, points: Points) -> Collection[dict[str, Any]]:
    """What a `SpatialCollection` reads: on geohash shards, with statistics and the validator.

    Stored along the curve, as `spatialnosql ingest` does it, unless told otherwise: then what lies together on the map
    lies together on the disk too.
    """
    hashes = points_to_strings(points.lng, points.lat)
    batches = points.to_documents(extra={"gh": hashes}, along_curve=bench.load_order != "file")
    collection = geohash_collection(bench, name, batches, len(points), hashes)
    adopt(collection, "loc")
    return collection
