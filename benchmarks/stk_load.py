"""The two collections of the benchmarks `stk` and `stk_growth`: with the native indexes, and sealed with filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymongo import GEOSPHERE
from pymongo.collection import Collection

from benchmarks.deployment import Bench
from benchmarks.stk_data import World
from spatialnosql.adopt import adopt
from spatialnosql.analyze import analyze
from spatialnosql.geohash import cells_to_strings, points_to_strings
from spatialnosql.loading import insert
from spatialnosql.placement import even_cuts, shard_by_geohash, shard_by_hash
from spatialnosql.stk.filter_store import add_pieces, begin, publish
from spatialnosql.stk.keys import keys_by_cube
from spatialnosql.stk.seal_batches import seals_of
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.setup import build_index, guarantee

Documents = Collection[dict[str, Any]]
NATIVE_INDEXES: dict[str, list[tuple[str, Any]]] = {
    "place_time": [("loc", GEOSPHERE), ("at", 1)],
    "words_time": [("words", 1), ("at", 1)],
}
_ROWS = 500_000  # sealed at a time


def cache_gb(count: int, shards: int) -> float:
    """Of each shard, with room for so many documents in both collections.

    A smaller one would be filled by each variant in turn with what the others do not need.
    """
    return round(max(0.5, 1.5e3 * count / shards / 1e9), 2)


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


def add_sealed(collection: Documents, world: World, settings: StkSettings, *, first: int = 0) -> None:
    """Documents that come sealed, as from ingest: their keys are published before them; then what is missing."""
    state, is_new = begin(collection, settings.digest, paused=False)
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
    if is_new:
        adopt(collection, "loc")
        build_index(collection, "gh")
        guarantee(collection, "gh", settings)
    else:
        analyze(collection)
