"""What the worker with the highest cost gives away (SWARM, section 4.3.2): some partitions, or a part of one.

Costs are those of `Totals.cost`: R(S) divides all of them alike and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spatialnosql.subscriptions.balancing.statistics import Axis, Cost, Statistics


@dataclass(frozen=True)
class Split:
    """A partition to be cut, and the side that is moved."""

    partition: int
    upright: bool
    """Whether the cut is before a column, not a row."""
    cut: int
    moves_first: bool
    """Whether the columns or rows before the cut are moved, not those from it on."""
    difference: float
    """What the costs of both workers then differ by."""


def find_subset(costs: Mapping[int, float], target: float) -> list[int]:
    """The partitions to move to a worker of cost `target`: algorithm 3, a greedy subset sum, the largest first.

    They cost as much as possible, but no more than half of what both workers differ by. Those that cost nothing stay.
    """
    most = (sum(costs.values()) - target) / 2
    chosen: list[int] = []
    total = 0.0
    for number in sorted(costs, key=lambda one: (-costs[one], one)):
        if 0 < costs[number] <= most - total:
            chosen.append(number)
            total += costs[number]
    return chosen


def find_split(
    statistics: Mapping[int, Statistics],
    costs: Mapping[int, float],
    target: float,
    kind: Cost = "product",
) -> Split | None:
    """The cut after which both workers' costs differ least, by four binary searches; None if no cut helps.

    Of the partition that costs most; of the next if that is a single cell, or if nothing would be gained.
    """
    whole = sum(costs.values())
    for number in sorted(costs, key=lambda one: (-costs[one], one)):
        rest = whole - costs[number]
        best: Split | None = None
        for upright in (True, False):
            axis = statistics[number].axis(upright)
            if axis.size < 2:
                continue
            for moves_first in (True, False):
                cut, difference = nearest_cut(axis, rest, target, moves_first, kind)
                if best is None or abs(difference) < abs(best.difference):
                    best = Split(number, upright, cut, moves_first, difference)
        if best is not None and abs(best.difference) < whole - target and _moves(statistics, best, kind):
            return best
    return None


def nearest_cut(
    axis: Axis, rest: float, target: float, moves_first: bool, kind: Cost = "product"
) -> tuple[int, float]:
    """The cut that brings both workers closest, and what they then differ by.

    The giver keeps `rest` and one side, the taker has `target` and gets the other. The further the cut, the more the
    first side costs and the less the second: so the difference is monotone, and is searched by halves.
    """

    def difference(cut: int) -> float:
        first, second = axis.before(cut).cost(kind), axis.after(cut).cost(kind)
        kept, moved = (second, first) if moves_first else (first, second)
        return (rest + kept) - (target + moved)

    falls = moves_first  # what is moved grows with the cut
    low, high = 1, axis.size - 1
    while low < high:
        middle = (low + high) // 2
        if (difference(middle) > 0) == falls:
            low = middle + 1
        else:
            high = middle
    return _closer(difference, low)


def _closer(difference: Callable[[int], float], cut: int) -> tuple[int, float]:
    """The cut at which the sign changes, or the one before."""
    candidates = [(one, difference(one)) for one in (cut - 1, cut) if one >= 1]
    return min(candidates, key=lambda found: abs(found[1]))


def _moves(statistics: Mapping[int, Statistics], split: Split, kind: Cost) -> bool:
    """Whether what is moved costs anything."""
    axis = statistics[split.partition].axis(split.upright)
    moved = axis.before(split.cut) if split.moves_first else axis.after(split.cut)
    return moved.cost(kind) > 0
