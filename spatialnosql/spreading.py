"""Where the documents of an ingest go: an empty collection cut and placed, a grown one cut anew where it drifted.

Every shard has one contiguous range of geohashes, in the order of the shards; inside it are chunks of even weight. The
balancer is told to leave the collection alone, and the server not to merge its chunks: the placement is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.geohash import BITS, bound_to_string
from spatialnosql.histogram import Histogram
from spatialnosql.sharding import (
    EVEN,
    Key,
    balance,
    chunks,
    key_bounds,
    patiently,
    split_chunks,
    unevenness,
    weight_of,
)
from spatialnosql.skew import split_points

Documents = Collection[dict[str, Any]]

CHUNK_DOCUMENTS = 250_000
"""The most that a chunk is meant to hold: few enough to be moved in one go."""


@dataclass(frozen=True)
class Layout:
    """Where the 60-bit curve is cut: `cuts[i]` begins the range of shard i + 1; the chunks of each shard within."""

    cuts: tuple[int, ...]
    inner: tuple[tuple[int, ...], ...]  # one for each range, its own bounds not included

    @property
    def bounds(self) -> list[int]:
        """All of them in order: the borders of the chunks."""
        return sorted({*self.cuts, *(cut for inner in self.inner for cut in inner)})


def layout(
    histogram: Histogram, bits: int, shards: int, parts: Callable[[float], int] | None = None
) -> Layout:
    """Cut at cells of the precision into even ranges, one a shard, and each into chunks of even weight.

    `parts` says into how many chunks so many documents are cut; a cell that outweighs a chunk is cut inside.
    """
    number = parts or (lambda documents: -(-int(documents) // CHUNK_DOCUMENTS))
    cuts = split_points(histogram, bits, max(shards, 1))
    starts = histogram.cells << np.uint64(BITS - histogram.bits)
    inner = []
    for low, high in pairwise([0, *cuts, 1 << BITS]):
        inside = (starts >= np.uint64(low)) & (starts < np.uint64(high))
        part = Histogram(histogram.bits, histogram.cells[inside], histogram.counts[inside])
        found = split_points(part, bits, max(number(part.total), 1))
        inner.append(tuple(cut for cut in found if low < cut < high))
    return Layout(tuple(cuts), tuple(inner))


def key_of(gh: str, cut: int) -> Key:
    """A cut as a value of the shard key."""
    return {gh: bound_to_string(cut), "_id": MinKey()}


def place_empty(collection: Documents, gh: str, shards: Sequence[str], plan: Layout) -> None:
    """Give each shard its range of a sharded collection that has no documents yet, and cut the ranges into chunks."""
    admin = collection.database.client.admin
    keep_as_placed(collection)
    split_chunks(collection, [key_of(gh, cut) for cut in plan.cuts])
    lowest, highest = {gh: MinKey(), "_id": MinKey()}, {gh: MaxKey(), "_id": MaxKey()}
    bounds = [lowest, *(key_of(gh, cut) for cut in plan.cuts), highest]
    homes = {str(chunk["min"][gh]): chunk["shard"] for chunk in chunks(collection)}
    for shard, (low, high) in zip(shards, pairwise(bounds), strict=False):
        if homes.get(str(low[gh])) != shard:

            def move(low: Key = low, high: Key = high, home: str = shard) -> None:
                admin.command("moveRange", collection.full_name, min=low, max=high, toShard=home)

            patiently(move)
    # Cut after the moves: a range of one chunk moves in one go.
    split_chunks(collection, [key_of(gh, cut) for cut in plan.bounds])


def keep_as_placed(collection: Documents) -> bool:
    """Tell the balancer not to move this collection's chunks, nor to merge them; False if the user may not."""
    client = collection.database.client
    try:
        client.admin.command("configureCollectionBalancing", collection.full_name, enableAutoMerger=False)
        # What the shell's sh.disableBalancing does: there is no command for it.
        client["config"]["collections"].update_one(
            {"_id": collection.full_name}, {"$set": {"noBalance": True}}
        )
    except OperationFailure as error:
        if error.code != 13:  # not authorized: on a managed cluster the balancer is the operator's
            raise
        return False
    return True


def predicted(
    collection: Documents, gh: str, shards: Sequence[str], histogram: Histogram
) -> dict[str, float]:
    """How many points of a histogram each shard would own, as the chunks lie now."""
    held = dict.fromkeys(shards, 0.0)
    for chunk in chunks(collection):
        held[chunk["shard"]] = held.get(chunk["shard"], 0.0) + weight_of(
            chunk["min"], chunk["max"], gh, histogram
        )
    return held


def redistribute(
    collection: Documents,
    gh: str,
    shards: Sequence[str],
    present: Histogram,
    expected: Histogram,
    bits: int,
    *,
    reshard: bool = False,
    moved: Callable[[int], None] = lambda _: None,
) -> str:
    """New split points for what is expected, and the documents that are present moved accordingly; says what it did.

    When all that is expected is present already, a place that outweighs a shard is cut between its documents.

    With `reshard` the server writes the collection anew, in one operation, instead of moving ranges one by one.
    """
    plan = layout(expected, bits, len(shards))
    if reshard:
        _reshard(collection, gh, shards, plan)
        keep_as_placed(collection)
        split_chunks(collection, [key_of(gh, cut) for cut in plan.bounds])
        return f"resharded into {len(plan.cuts) + 1} ranges"
    keep_as_placed(collection)
    before = {str(chunk["min"]) for chunk in chunks(collection)}
    bounds = [key_of(gh, cut) for cut in plan.cuts]
    if present is expected and unevenness_of(expected, plan.cuts) > EVEN:
        # A single place outweighs a shard, and its documents are there: cut between them.
        bounds = key_bounds(collection, gh, expected, bits, len(shards))
    documents = balance(collection, gh, shards, bounds, present, moved)
    wanted = bounds + [key for key in (key_of(gh, cut) for cut in plan.bounds) if key not in bounds]
    merged = merge_chunks(collection, wanted)
    split_chunks(collection, wanted)
    new = len({str(chunk["min"]) for chunk in chunks(collection)} - before)
    return f"{new} new split points, {merged} old ones merged, {documents:,} documents moved"


def unevenness_of(histogram: Histogram, cuts: Sequence[int]) -> float:
    """The fullest part over the mean, for parts cut there."""
    weights = histogram.points_in([0, *cuts], [*cuts, 1 << BITS])
    return unevenness({str(number): float(weight) for number, weight in enumerate(weights)})


def merge_chunks(collection: Documents, wanted: Sequence[Key]) -> int:
    """Merge neighbouring chunks of one shard at borders that nobody wants any more; how many borders went."""
    admin = collection.database.client.admin
    keep = {str(bound) for bound in wanted}
    runs: list[list[dict[str, Any]]] = []
    for chunk in chunks(collection):
        joins = runs and runs[-1][-1]["shard"] == chunk["shard"] and str(chunk["min"]) not in keep
        if joins:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    merged = 0
    for run in runs:
        if len(run) > 1:

            def merge(low: Key = run[0]["min"], high: Key = run[-1]["max"]) -> None:
                admin.command("mergeChunks", collection.full_name, bounds=[low, high])

            patiently(merge)
            merged += len(run) - 1
    return merged


def _reshard(collection: Documents, gh: str, shards: Sequence[str], plan: Layout) -> None:
    lowest, highest = {gh: MinKey(), "_id": MinKey()}, {gh: MaxKey(), "_id": MaxKey()}
    bounds = [lowest, *(key_of(gh, cut) for cut in plan.cuts), highest]
    ranges = [
        {"shard": shard, "min": low, "max": high}
        for shard, (low, high) in zip(shards, pairwise(bounds), strict=False)
    ]
    patiently(
        lambda: collection.database.client.admin.command(
            "reshardCollection",
            collection.full_name,
            key={gh: 1, "_id": 1},
            forceRedistribution=True,
            shardDistribution=ranges,
        )
    )
