"""SWARM's rounds (section 4.3): fold the statistics, compare the workers by two numbers each, let some give to others.

>>> state = Swarm.start(columns=256, rows=256, workers=8)
>>> state = state.with_queries(spans).with_points(columns, rows)
>>> state, moves = state.ended_round(spans)

All of it is one value; every step makes the next. In a cluster each worker keeps the statistics of its partitions, and
the coordinator sees the `reports` only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.decision import BETA, Decision, decide
from spatialnosql.subscriptions.balancing.extents import Extent, Spans
from spatialnosql.subscriptions.balancing.layout import Layout, merge_neighbours
from spatialnosql.subscriptions.balancing.reduction import Split, find_split, find_subset
from spatialnosql.subscriptions.balancing.statistics import (
    DECAY,
    Cost,
    Statistics,
    join_statistics,
    part_statistics,
)

ENOUGH = 0.5
"""A subset of partitions is moved if it makes up for so much of the difference; else a partition is split. The paper
tries the split when the subset "does not succeed", and does not say when it does."""
MERGED_EVERY = 40
"""Neighbours are merged every so many rounds (the paper: every five hours of rounds of 15 s)."""
WORTH = 0.2
"""A second pair of workers, or a later one, must differ by this share of the mean cost at least: the paper has one."""


class Report(NamedTuple):
    """What a worker tells the coordinator in a round: two numbers, whatever the size of the grid."""

    cost: float
    """The sum of its partitions' costs; by the product that is the numerator of equation 7."""
    received: float
    """The sum of R (equation 3)."""


class Move(NamedTuple):
    """What went from worker to worker."""

    extent: Extent
    source: int
    target: int


@dataclass(frozen=True, eq=False)
class Swarm:
    """The layout, the statistics of its partitions, the decision; and how many rounds there were."""

    layout: Layout
    statistics: dict[int, Statistics]
    decision: Decision
    beta: int = BETA
    decay: float = DECAY
    cost: Cost = "product"
    pairs: int = 1
    """So many workers may give in a round, each to another one: the paper has one."""
    rounds: int = 0

    @classmethod
    def start(
        cls,
        columns: int,
        rows: int,
        workers: int,
        beta: int = BETA,
        decay: float = DECAY,
        cost: Cost = "product",
        pairs: int = 1,
    ) -> Swarm:
        """The grid evenly among the workers."""
        layout = Layout.even(columns, rows, workers)
        statistics = {number: Statistics.empty(layout.extent(number)) for number in layout.numbers}
        return cls(layout, statistics, Decision(), beta, decay, cost, pairs)

    def with_points(
        self,
        columns: NDArray[np.int64],
        rows: NDArray[np.int64],
        weight: float = 1.0,
        work: NDArray[np.float64] | None = None,
    ) -> Swarm:
        """With points received, each standing for so many, and the work they took (1 each unless given)."""
        partitions = self.layout.partition_of_cell[rows * self.layout.columns + columns]
        statistics = dict(self.statistics)
        for number in np.unique(partitions).tolist():
            own = partitions == number
            statistics[number] = statistics[number].with_points(
                self.layout.extent(number),
                columns[own],
                rows[own],
                weight,
                None if work is None else work[own],
            )
        return replace(self, statistics=statistics)

    def with_queries(self, spans: Spans) -> Swarm:
        """With queries received."""
        return self._queries(spans, gone=False)

    def without_queries(self, spans: Spans) -> Swarm:
        """Without queries that were received before."""
        return self._queries(spans, gone=True)

    def _queries(self, spans: Spans, gone: bool) -> Swarm:
        queries, partitions = self.layout.overlapping(spans)
        statistics = dict(self.statistics)
        for number in np.unique(partitions).tolist():
            own, extent = spans[queries[partitions == number]], self.layout.extent(number)
            one = statistics[number]
            statistics[number] = one.without_queries(extent, own) if gone else one.with_queries(extent, own)
        return replace(self, statistics=statistics)

    def costs_of(self, worker: int) -> dict[int, float]:
        """The costs of a worker's partitions."""
        return {
            number: self.statistics[number].totals.cost(self.cost) for number in self.layout.of_worker(worker)
        }

    def reports(self) -> list[Report]:
        """What the workers tell the coordinator."""
        found = []
        for worker in range(self.layout.workers):
            received = sum(
                self.statistics[number].totals.received for number in self.layout.of_worker(worker)
            )
            found.append(Report(sum(self.costs_of(worker).values()), received))
        return found

    def ended_round(self, spans: Spans, throughput: float | None = None) -> tuple[Swarm, list[Move]]:
        """The end of a round: statistics folded, and perhaps something moved. `spans` are all queries there are.

        R(S) is what the decision goes by, unless a `throughput` is given that says it better.
        """
        folded = replace(
            self,
            statistics={number: one.folded(self.decay) for number, one in self.statistics.items()},
            rounds=self.rounds + 1,
        )
        if folded.rounds % MERGED_EVERY == 0:
            folded = folded.merged(spans)
        reports = folded.reports()
        received = sum(one.received for one in reports) if throughput is None else throughput
        folded = replace(folded, decision=decide(self.decision, received, self.beta))
        return folded.rebalanced(reports, spans) if folded.decision.rebalance else (folded, [])

    def rebalanced(self, reports: list[Report], spans: Spans) -> tuple[Swarm, list[Move]]:
        """With something moved from the worker of highest cost that can give to the one of lowest (figure 10).

        With several pairs, then from the next highest to the next lowest: no worker gives or takes twice, so that what
        the workers reported holds for all of them.
        """
        order = sorted(range(len(reports)), key=lambda worker: reports[worker].cost)
        least = WORTH * sum(one.cost for one in reports) / len(reports)
        state, done, taken = self, list[Move](), 0
        for place in range(len(order) - 1, 0, -1):
            if taken >= min(self.pairs, place):
                break
            source, target = order[place], order[taken]
            if reports[source].cost - reports[target].cost <= (least if taken else 0.0):
                break
            state, moves = state._given(source, target, reports[target].cost, spans)
            done += moves
            taken += bool(moves)
        return state, done

    def _given(self, source: int, target: int, cost: float, spans: Spans) -> tuple[Swarm, list[Move]]:
        """With some partitions of one worker, or a part of one, at another that has so much cost."""
        costs = self.costs_of(source)
        subset = find_subset(costs, cost)
        if sum(costs[number] for number in subset) >= ENOUGH * (sum(costs.values()) - cost) / 2:
            return self._moved(subset, source, target)
        split = find_split(self.statistics, costs, cost, self.cost)
        if split is not None:
            return self._split(split, spans, source, target)
        return self._moved(subset, source, target)

    def merged(self, spans: Spans) -> Swarm:
        """With neighbours of one worker made one where they form a rectangle."""
        layout, done = merge_neighbours(self.layout)
        statistics, extents = dict(self.statistics), list(layout.extents)
        for number in self.layout.numbers:
            extents[number] = self.layout.extents[number]
        for first, second, number in done:
            near, far = extents[first], extents[second]
            assert near is not None
            assert far is not None
            whole = near.joined(far)
            assert whole is not None
            extents[number] = whole
            statistics[number] = join_statistics(
                (near, statistics.pop(first)), (far, statistics.pop(second)), spans[whole.touched_by(spans)]
            )
        return replace(self, layout=layout, statistics=statistics)

    def _moved(self, numbers: list[int], source: int, target: int) -> tuple[Swarm, list[Move]]:
        moves = [Move(self.layout.extent(number), source, target) for number in numbers]
        return replace(self, layout=self.layout.moved(numbers, target)), moves

    def _split(self, split: Split, spans: Spans, source: int, target: int) -> tuple[Swarm, list[Move]]:
        extent = self.layout.extent(split.partition)
        layout, first, second = self.layout.split(split.partition, split.upright, split.cut)
        statistics = dict(self.statistics)
        own = spans[extent.touched_by(spans)]
        statistics[first], statistics[second] = part_statistics(
            statistics.pop(split.partition), extent, split.upright, split.cut, own
        )
        moving = first if split.moves_first else second
        return replace(self, layout=layout, statistics=statistics)._moved([moving], source, target)
