"""The two collections of the benchmarks `stk` and `stk_growth`: with the native indexes, and sealed with filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymongo import GEOSPHERE
from pymongo.collection import Collection

from benchmarks.deployment import Bench
from benchmarks.frame import Variant
from benchmarks.stk_data import World, moment
from benchmarks.stk_queries import KINDS, Asked
from spatialnosql import SpatialCollection
from spatialnosql.adopt import adopt
from spatialnosql.geohash import cells_to_strings, points_to_strings
from spatialnosql.loading import insert
from spatialnosql.metadata import load_info
from spatialnosql.placement import even_cuts, shard_by_geohash, shard_by_hash
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.filter_store import GRACE_S, add_pieces, begin, publish, read_state
from spatialnosql.stk.keys import keys_by_cube
from spatialnosql.stk.seal_batches import seals_of
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.setup import build_index, guarantee
from spatialnosql.stk.shutting import shut

Documents = Collection[dict[str, Any]]
NATIVE_INDEXES: dict[str, list[tuple[str, Any]]] = {
    "place_time": [("loc", GEOSPHERE), ("at", 1)],
    "words_time": [("words", 1), ("at", 1)],
}
_ROWS = 500_000  # sealed at a time


def cache_gb(count: int, shards: int) -> float:
    """Of each shard, with room for so many documents in both collections, as far as 4 GB go.

    A smaller one would be filled by each variant in turn with what the others do not need.
    """
    return round(min(4.0, max(0.5, 1.5e3 * count / shards / 1e9)), 2)


def native_collection(bench: Bench, name: str) -> Documents:
    """What people have today: hashed shards, and both indexes, of which each variant names its own."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        shard_by_hash(collection)
    return collection


def add_native(collection: Documents, world: World, *, first: int = 0) -> None:
    """Documents, and then the indexes if they are not there."""
    insert(collection, world.documents(first=first), len(world))
    for name, keys in NATIVE_INDEXES.items():
        collection.create_index(keys, name=name)


def sealed_collection(bench: Bench, name: str, world: World) -> Documents:
    """Geohash shards, without documents yet."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        cuts = even_cuts(points_to_strings(world.lng, world.lat), bench.n_shards)
        shard_by_geohash(collection, bench.kind.shards, cuts)
    else:
        collection.create_index({"gh": 1, "_id": 1})
    return collection


def make_ready(collection: Documents, settings: StkSettings, *, grace_s: float = GRACE_S) -> None:
    """Geohashes, index, filters and validators; of documents that are there, or none."""
    begin(collection, settings.digest, grace_s=grace_s, paused=False)
    adopt(collection, "loc")
    build_index(collection, "gh")
    guarantee(collection, "gh", settings)


def shut_all(collection: Documents, world: World) -> None:
    """Let the server refuse fresh documents of all times that are asked about: the world is of the past."""
    info = run_steps(load_info(collection))
    assert info.stk is not None
    longest_ms = max(kind.hours for kind in KINDS) * world.unit_s * 1000
    shut(collection, info, info.stk, moment(int(world.at_ms[-1]) + longest_ms))


def add_sealed(collection: Documents, world: World, settings: StkSettings) -> None:
    """Documents that come sealed, as from ingest, and then what is missing."""
    begin(collection, settings.digest, paused=False)
    insert_sealed(collection, world, settings)
    make_ready(collection, settings)


def insert_sealed(collection: Documents, world: World, settings: StkSettings, *, first: int = 0) -> None:
    """Documents with their seals, their keys published before them."""
    state = run_steps(read_state(collection))
    assert state is not None
    for start in range(0, len(world), _ROWS):
        part = world.part(np.arange(start, min(start + _ROWS, len(world))))
        places, bins = part.cells, settings.bins_of(part.at_ms)
        cells = settings.cells_of(places)
        names, keys = keys_by_cube(settings, bins, cells, part.words.offsets, part.words.hashes())
        add_pieces(collection, state.filters, names.tolist(), keys)
        publish(collection, state.filters, names)
        cubes = settings.data_cubes(bins, cells)
        seals = seals_of(cubes, part.at_ms, places, part.words)
        stk = np.empty(len(part), dtype=object)
        stk[:] = [{"c": c, "s": s} for c, s in zip(cubes.tolist(), seals.tolist(), strict=True)]
        documents = part.documents(first=first + start, gh=cells_to_strings(places), stk=stk)
        insert(collection, documents, len(part))


def spatial_variant(name: str, collection: Documents) -> Variant:
    spatial = SpatialCollection(collection)

    def ask(asked: Asked) -> list[Any]:
        return [document["_id"] for document in spatial.find(asked.filter)]

    return Variant(name, ask, canonical=sorted)
