"""Which chunks are hot by operations, and what to move: SWARM's cost model and reduction on the geohash curve.

The load of a cell is N x Q: its documents times the queries that touch it, as an index scan reads them; that of a chunk
or a shard is the sum. From the shard with the highest load to the one with the lowest goes the best subset of chunks
(a greedy subset sum), or a part of one, cut where both are then closest (a binary search); and so on, until they are
even enough. See `subscriptions.balancing.reduction`, which is the same for partitions of subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.geohash import BITS, strings_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.subscriptions.balancing.reduction import find_subset, nearest_cut
from spatialnosql.subscriptions.balancing.statistics import Axis

WORLD = (0, 1 << BITS)
EVEN = 1.2
"""The busiest shard may have so many times the mean."""
ENOUGH = 0.5
"""Chunks are moved whole if they make up for so much of the difference; else one is cut."""
MOST_MOVES = 20


class Range(NamedTuple):
    """A half-open range ``[low, high)`` of 60-bit cells."""

    low: int
    high: int


class ChunkRange(NamedTuple):
    """A chunk: its range of cells, its shard, and its number among those of the collection."""

    low: int
    high: int
    shard: str
    number: int


@dataclass(frozen=True)
class ChunkMove:
    """A range of a chunk that should go to another shard."""

    chunk: ChunkRange
    low: int
    high: int
    target: str
    load: float

    @property
    def whole(self) -> bool:
        """Whether all of the chunk moves."""
        return (self.low, self.high) == (self.chunk.low, self.chunk.high)


@dataclass(frozen=True)
class LoadPlan:
    """What to move, and the loads of the shards before and after."""

    before: dict[str, float]
    after: dict[str, float]
    moves: tuple[ChunkMove, ...]


def unevenness(loads: Mapping[str, float]) -> float:
    """The busiest shard over the mean."""
    total = sum(loads.values())
    return max(loads.values()) * len(loads) / total if total > 0 else 1.0


class CellLoads:
    """N x Q of every cell of a histogram."""

    def __init__(self, histogram: Histogram, queries: Sequence[Sequence[Range]]) -> None:
        shift = np.uint64(BITS - histogram.bits)
        self.starts: NDArray[np.int64] = (histogram.cells << shift).astype(np.int64)
        width = 1 << (BITS - histogram.bits)
        steps = np.zeros(self.starts.size + 1)
        for ranges in queries:
            touched = np.zeros(self.starts.size + 1)
            for low, high in ranges:
                # Cells that the range touches: from the one that ends after its beginning.
                first = int(np.searchsorted(self.starts + width, low, side="right"))
                last = int(np.searchsorted(self.starts, high, side="left"))
                if first < last:
                    touched[first] += 1
                    touched[last] -= 1
            # A query with several ranges in a cell reads it once.
            inside = (np.cumsum(touched) > 0).astype(np.float64)
            steps += np.diff(inside, prepend=0.0)
        self.loads: NDArray[np.float64] = histogram.counts * np.cumsum(steps)[:-1]

    def of(self, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The cells that begin in a range, and their loads."""
        first, last = np.searchsorted(self.starts, [low, high])
        return self.starts[first:last], self.loads[first:last]


def propose(
    chunks: Sequence[ChunkRange],
    shards: Sequence[str],
    cells: CellLoads,
    even: float = EVEN,
    most_moves: int = MOST_MOVES,
) -> LoadPlan:
    """What to move so that the busiest shard has at most `even` times the mean load; as few moves as suffice."""
    now = list(chunks)
    before = _shard_loads(now, shards, cells)
    loads, moves = dict(before), list[ChunkMove]()
    while len(moves) < most_moves and unevenness(loads) > even:
        found = _reduction(now, loads, cells)
        if not found:
            break
        for move in found:
            now = _applied(now, move)
        loads = _shard_loads(now, shards, cells)
        moves += found
    return LoadPlan(before, loads, tuple(moves))


def _reduction(chunks: list[ChunkRange], loads: Mapping[str, float], cells: CellLoads) -> list[ChunkMove]:
    """From the shard with the highest load that can give something to the one with the lowest."""
    order = sorted(loads, key=lambda shard: (loads[shard], shard))
    target = order[0]
    for source in reversed(order[1:]):
        own = {i: one for i, one in enumerate(chunks) if one.shard == source}
        costs = {i: float(cells.of(one.low, one.high)[1].sum()) for i, one in own.items()}
        difference = sum(costs.values()) - loads[target]
        if difference <= 0:
            return []
        subset = find_subset(costs, loads[target])
        if sum(costs[i] for i in subset) >= ENOUGH * difference / 2:
            return [ChunkMove(own[i], own[i].low, own[i].high, target, costs[i]) for i in subset]
        split = _split(own, costs, loads[target], target, cells)
        if split is not None:
            return [split]
    return []


def _split(
    own: Mapping[int, ChunkRange],
    costs: Mapping[int, float],
    target_load: float,
    target: str,
    cells: CellLoads,
) -> ChunkMove | None:
    """A part of the costliest chunk that can be cut; None if none would make the loads more even."""
    whole = sum(costs.values())
    for i in sorted(costs, key=lambda one: (-costs[one], one)):
        starts, loads = cells.of(own[i].low, own[i].high)
        if starts.size < 2:
            continue
        axis = replace(Axis.empty(loads.size), w=np.cumsum(loads))
        found = [
            (abs(difference), cut, moves_first)
            for moves_first in (True, False)
            for cut, difference in [nearest_cut(axis, whole - costs[i], target_load, moves_first, "work")]
        ]
        difference, cut, moves_first = min(found)
        at = int(starts[cut])
        low, high = (own[i].low, at) if moves_first else (at, own[i].high)
        load = float(loads[:cut].sum() if moves_first else loads[cut:].sum())
        if difference < whole - target_load and load > 0 and low < high:
            return ChunkMove(own[i], low, high, target, load)
    return None


def _applied(chunks: list[ChunkRange], move: ChunkMove) -> list[ChunkRange]:
    """The chunks after a move."""
    now: list[ChunkRange] = []
    for one in chunks:
        if one != move.chunk:
            now.append(one)
            continue
        if one.low < move.low:
            now.append(one._replace(high=move.low))
        now.append(ChunkRange(move.low, move.high, move.target, one.number))
        if move.high < one.high:
            now.append(one._replace(low=move.high))
    return now


def _shard_loads(chunks: Sequence[ChunkRange], shards: Sequence[str], cells: CellLoads) -> dict[str, float]:
    loads = dict.fromkeys(shards, 0.0)
    for one in chunks:
        loads[one.shard] = loads.get(one.shard, 0.0) + float(cells.of(one.low, one.high)[1].sum())
    return loads


def filter_ranges(query: Mapping[str, Any], gh: str) -> list[Range]:
    """The ranges of ``gh`` that a filter can touch; everything where it says nothing of it."""
    found = [Range(*WORLD)]
    for key, value in query.items():
        if key == gh:
            found = _met(found, _condition_ranges(value))
        elif key == "$and":
            for part in value:
                found = _met(found, filter_ranges(part, gh))
        elif key == "$or":
            found = _met(found, [one for part in value for one in filter_ranges(part, gh)])
    return found


def _condition_ranges(condition: Any) -> list[Range]:
    """The ranges that a condition on ``gh`` allows."""
    if isinstance(condition, str):
        return [_place(condition)]
    if not isinstance(condition, Mapping):
        return [Range(*WORLD)]
    low, high = WORLD
    found = [Range(low, high)]
    for operator, value in condition.items():
        if operator in ("$gte", "$gt") and isinstance(value, str):
            low = max(low, _bound(value))
        elif operator in ("$lt", "$lte") and isinstance(value, str):
            high = min(high, _bound(value) + (operator == "$lte"))
        elif operator == "$eq" and isinstance(value, str):
            found = _met(found, [_place(value)])
        elif operator == "$in":
            found = _met(found, [_place(one) for one in value if isinstance(one, str)])
    return _met(found, [Range(low, high)])


def _place(text: str) -> Range:
    """The one 12-character geohash."""
    low = _bound(text)
    return Range(low, low + 1)


def _bound(text: str) -> int:
    """The 60-bit cell of a bound; a string after all geohashes is the end of the world."""
    try:
        return int(strings_to_cells([text[:12]])[0])
    except ValueError:
        return WORLD[1] if text > "z" else 0


def _met(first: Sequence[Range], second: Sequence[Range]) -> list[Range]:
    """What lies in both."""
    met = (Range(max(a.low, b.low), min(a.high, b.high)) for a in first for b in second)
    return [one for one in met if one.low < one.high]
