"""Shard a collection that has documents by ``{gh: 1, _id: 1}``, and spread it evenly in geohash order.

Everything here may be repeated: what is done is seen in the cluster's own metadata and not done again. A client that is
killed leaves at most one command running on the servers; the next run waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.errors import ClusterError
from spatialnosql.geohash import BITS, bound_to_string, strings_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.skew import split_points

Documents = Collection[dict[str, Any]]
Key = dict[str, Any]
T = TypeVar("T")

EVEN = 1.1
"""The fullest shard may hold this many times the mean before it is worth moving documents."""

PIECE_BYTES = 64 * 2**20
"""What one migration moves at most: half of what the server takes for a chunk too big to move."""

BUSY_CODES = frozenset({24, 46, 117, 118, 9000, 338})
"""Locks held, another migration or resharding under way, a range still being deleted: all pass by themselves."""

CHUNK_TOO_BIG = 147
BUSY_TIMEOUT_S = 3600.0


def wanted_key(gh: str) -> Key:
    """The shard key of a spatial collection."""
    return {gh: 1, "_id": 1}


def is_wanted(key: Key | None, gh: str) -> bool:
    """Whether a shard key is that of a spatial collection, in this order."""
    return key is not None and list(key.items()) == list(wanted_key(gh).items())


def _entry(collection: Documents) -> Mapping[str, Any] | None:
    if not collection.database.client.is_mongos:
        return None
    entry = collection.database.client["config"]["collections"].find_one({"_id": collection.full_name})
    # Since 8.0 an unsharded collection may be listed too.
    return None if entry is None or entry.get("unsplittable") else entry


def shard_key(collection: Documents) -> Key | None:
    """The shard key of a collection, or None if it is not sharded (or the deployment has no shards)."""
    entry = _entry(collection)
    return dict(entry["key"]) if entry else None


def chunks(collection: Documents) -> list[dict[str, Any]]:
    """The chunks of a sharded collection, in order."""
    entry = _entry(collection)
    if entry is None:
        return []
    return (
        collection.database.client["config"]["chunks"].find({"uuid": entry["uuid"]}).sort("min", 1).to_list()
    )


def patiently(command: Callable[[], T], timeout_s: float = BUSY_TIMEOUT_S) -> T:
    """Run a command of the cluster again while another one is in its way."""
    end = time.monotonic() + timeout_s
    pause = 0.1
    while True:
        try:
            return command()
        except OperationFailure as error:
            if error.code not in BUSY_CODES or time.monotonic() > end:
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, 2.0)


def shard(collection: Documents, gh: str, shards: Sequence[str]) -> str:
    """Give a collection the shard key ``{gh: 1, _id: 1}``, whatever it had before; says how in words."""
    admin = collection.database.client.admin
    wanted = wanted_key(gh)

    def once() -> str:
        # Looked up anew each time: what we waited for may have been our own command, of a run that was killed.
        current = shard_key(collection)
        if is_wanted(current, gh):
            return f"already sharded by {{{gh}, _id}}"
        if current is None:
            admin.command("shardCollection", collection.full_name, key=wanted)
            return f"sharded by {{{gh}, _id}}"
        if current == {gh: 1}:
            admin.command("refineCollectionShardKey", collection.full_name, key=wanted)
            return f"shard key {{{gh}}} refined to {{{gh}, _id}}"
        # One contiguous range a shard, cut by the server's own sample.
        admin.command(
            "reshardCollection", collection.full_name, key=wanted, numInitialChunks=max(len(shards), 1)
        )
        return f"resharded from {{{', '.join(current)}}} to {{{gh}, _id}}"

    return patiently(once)


# -- where to cut -----------------------------------------------------------------------------------------


def key_bounds(collection: Documents, gh: str, histogram: Histogram, bits: int, parts: int) -> list[Key]:
    """Where to cut a collection into parts of even weight, as values of the shard key.

    At cells of the precision; when those cannot be even (a single place outweighs a part), at documents.
    """
    cuts = split_points(histogram, bits, parts)
    weights = histogram.points_in([0, *cuts], [*cuts, 1 << BITS])
    total = histogram.total
    if not total or float(weights.max()) * parts <= EVEN * total:
        return [{gh: bound_to_string(cut), "_id": MinKey()} for cut in cuts]
    bounds: list[Key] = []
    for number in range(1, parts):
        bound = _document_at(collection, gh, histogram, total * number // parts)
        if bound is not None and bound not in bounds:
            bounds.append(bound)
    return bounds


def _document_at(collection: Documents, gh: str, histogram: Histogram, rank: int) -> Key | None:
    """The shard key of the document of a rank: by the histogram to its cell, then along the index."""
    sums = np.cumsum(histogram.counts)
    at = int(np.searchsorted(sums, rank, side="right"))
    skip = rank - (int(sums[at - 1]) if at else 0)
    shift = BITS - histogram.bits
    low = bound_to_string(int(histogram.cells[at]) << shift)
    high = bound_to_string((int(histogram.cells[at]) + 1) << shift)
    found = (
        collection.find({gh: {"$gte": low, "$lt": high}}, {gh: 1})
        .sort([(gh, 1), ("_id", 1)])
        .hint([(gh, 1), ("_id", 1)])
        .skip(skip)
        .limit(1)
        .to_list()
    )
    return {gh: _value(found[0], gh), "_id": found[0]["_id"]} if found else None


def _value(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# -- moving -----------------------------------------------------------------------------------------------


def unevenness(held: Mapping[str, float]) -> float:
    """The fullest shard over the mean."""
    total = sum(held.values())
    return max(held.values()) * len(held) / total if total > 0 else 1.0


def balance(
    collection: Documents,
    gh: str,
    shards: Sequence[str],
    bounds: list[Key],
    histogram: Histogram,
    moved: Callable[[int], None] = lambda _: None,
) -> int:
    """Cut at the bounds and move each part to one shard, those that hold most of it already; how many points moved.

    `moved` is told of every migration, as it ends.
    """
    parts = split_chunks(collection, bounds)
    held = [dict.fromkeys(shards, 0.0) for _ in parts]
    for number, part in enumerate(parts):
        for chunk in part:
            # A chunk within one geohash weighs nothing by the histogram, but something all the same.
            held[number][chunk["shard"]] += weight_of(chunk["min"], chunk["max"], gh, histogram) + 1e-6
    homes = assign(held)
    average = average_bytes(collection)
    total = 0
    for part, home in zip(parts, homes, strict=True):
        for chunk in part:
            if chunk["shard"] == home:
                continue
            for low, high in pieces_of(chunk["min"], chunk["max"], gh, histogram, average):
                move_range(collection, low, high, home)
                weight = round(weight_of(low, high, gh, histogram))
                total += weight
                moved(weight)
    return total


def assign(held: list[dict[str, float]]) -> list[str]:
    """A shard of its own for each part: the heaviest coincidence first, so that little has to move."""
    free = list(held[0]) if held else []
    homes: list[str | None] = [None] * len(held)
    pairs = sorted((-held[part][name], part, name) for part in range(len(held)) for name in free)
    for _, part, name in pairs:
        if homes[part] is None and name in free:
            homes[part] = name
            free.remove(name)
    return [str(home) for home in homes]


def split_chunks(collection: Documents, bounds: list[Key]) -> list[list[dict[str, Any]]]:
    """Make every bound a border of chunks, and return the chunks of each part."""
    admin = collection.database.client.admin
    for _ in range(10):
        present = [chunk["min"] for chunk in chunks(collection)]
        missing = [bound for bound in bounds if bound not in present]
        for bound in missing:

            def split(middle: Key = bound) -> None:
                admin.command("split", collection.full_name, middle=middle)

            patiently(split)
        parts: list[list[dict[str, Any]]] = [[]]
        # The server sorts them: keys of any type, compared by nobody but it.
        for chunk in chunks(collection):
            if chunk["min"] in bounds:
                parts.append([])
            parts[-1].append(chunk)
        if len(parts) == len(bounds) + 1:
            return parts
        # The server merges neighbouring chunks of one shard when it likes to: cut again.
    raise ClusterError(
        f"the chunks of {collection.full_name} change faster than they can be moved; try again"
    )


def move_range(collection: Documents, low: Key, high: Key, home: str) -> None:
    """Move the documents of a half-open range of the shard key to a shard."""
    admin = collection.database.client.admin

    def move(force: bool = False) -> None:
        options: dict[str, Any] = {"forceJumbo": True} if force else {}
        admin.command("moveRange", collection.full_name, min=low, max=high, toShard=home, **options)

    try:
        patiently(move)
    except OperationFailure as error:
        if error.code != CHUNK_TOO_BIG:
            raise
        # One place with more documents than a chunk may have: moved as a whole, or never.
        patiently(lambda: move(force=True))


def bound_to_cell(value: Any) -> int:
    """The 60-bit cell of a bound; the documents without ``gh`` lie before all of them."""
    if isinstance(value, MaxKey):
        return 1 << BITS
    if not isinstance(value, str):
        return 0
    try:
        return int(strings_to_cells([value[:12]])[0])
    except ValueError:
        return 1 << BITS if value > "z" else 0


def weight_of(low: Key, high: Key, gh: str, histogram: Histogram) -> float:
    """How many points of a histogram lie in the half-open range of two values of the shard key."""
    return float(histogram.points_in([bound_to_cell(low[gh])], [bound_to_cell(high[gh])])[0])


def pieces_of(low: Key, high: Key, gh: str, histogram: Histogram, average: float) -> list[tuple[Key, Key]]:
    """A range in pieces that the server moves without ado."""
    first, last = bound_to_cell(low[gh]), bound_to_cell(high[gh])
    count = int(weight_of(low, high, gh, histogram) * average // PIECE_BYTES) + 1
    starts = histogram.cells << np.uint64(BITS - histogram.bits)
    inside = (starts >= first) & (starts < last)
    part = Histogram(histogram.bits, histogram.cells[inside], histogram.counts[inside])
    cuts = [cut for cut in split_points(part, histogram.bits, count) if first < cut < last]
    bounds = [low, *({gh: bound_to_string(cut), "_id": MinKey()} for cut in cuts), high]
    return list(pairwise(bounds))


def average_bytes(collection: Documents) -> float:
    """How large a document is."""
    stats = collection.aggregate([{"$collStats": {"storageStats": {}}}]).to_list()
    count = sum(int(one["storageStats"].get("count", 0)) for one in stats)
    return sum(float(one["storageStats"].get("size", 0)) for one in stats) / count if count else 0.0
