"""What may change the plans in force, round by round: nothing, SWARM, PS2Stream's local or global adjustment.

A policy is told what a round brought and answers with what it has moved, in words; `strategies` then are those of the
next round. The simulator and the stream job drive the same policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.extents import Spans
from spatialnosql.subscriptions.balancing.local import Adjustment, LocalRules, adjust_all
from spatialnosql.subscriptions.balancing.repartition import GlobalRules, considered, drained, partition_loads
from spatialnosql.subscriptions.balancing.strategies import Held, Strategies, Strategy, hold
from spatialnosql.subscriptions.balancing.swarm import Swarm
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.routes import join_objects, take_objects
from spatialnosql.subscriptions.table import Table

QUICK_BETA = 4
"""SWARM's beta unless another is given. The paper has 20 and says that it matters little; but the throughput of a few
micro-batches is noise, and in real Spark 20 of them passed without a move while one partition had all of a hot spot."""

PERIOD = 5
"""Local adjustment counts the objects of so many rounds."""
FADING = 0.5
"""What is left each round of how long partitions took before."""
RECENT = 20_000
"""Of the objects of a round so many at most are counted."""
REPAID = 10
"""In so many rounds local adjustment must gain what the moving costs."""
WORSE = 1.2
"""If it did not pay, it is tried again at once when the busiest has so many times more of the mean than it had."""


@dataclass(frozen=True, eq=False)
class Round:
    """What a round brought."""

    objects: Objects
    """Some of the objects."""
    weight: float
    """How many each of them stands for."""
    table: Table
    """The subscriptions there are."""
    numbers: NDArray[np.int64]
    """Theirs, ascending."""
    next_number: int
    """That of the next subscription to come."""
    added: NDArray[np.float64]
    """The bounds of subscriptions that came."""
    removed: NDArray[np.float64]
    """And of those that went."""
    busy_s: NDArray[np.float64]
    """What each partition took for all objects of the round."""
    throughput: float
    """Objects a second of the whole, or anything that grows with it."""
    held: Held
    """The subscriptions as they were placed in this round."""


class Policy(Protocol):
    """Decides where subscriptions are held."""

    @property
    def strategies(self) -> Strategies:
        """Those in force."""

    def end_round(self, seen: Round) -> list[str]:
        """Take note of a round, and perhaps change the strategies; what was moved, in words."""


class Static:
    """A plan that stays as it is."""

    def __init__(self, plan: Plan) -> None:
        self.strategies: Strategies = (Strategy(plan),)

    def end_round(self, seen: Round) -> list[str]:
        """Nothing moves."""
        del seen
        return []


class SwarmPolicy:
    """SWARM (see `swarm`): partitions are rectangles of the grid; text does not part them."""

    def __init__(
        self,
        grid: Grid,
        workers: int,
        frequencies: NDArray[np.int64],
        state: Swarm | None = None,
        costs: Costs | None = None,
    ) -> None:
        self._grid, self._frequencies, self._costs = grid, frequencies, costs or Costs()
        self.state = state or Swarm.start(
            grid.columns, grid.rows, workers, QUICK_BETA, cost="work", pairs=max(workers // 2, 1)
        )
        self._plan = self.state.layout.to_plan(grid, frequencies)

    @property
    def strategies(self) -> Strategies:
        """One, that of the layout."""
        return (Strategy(self._plan),)

    def end_round(self, seen: Round) -> list[str]:
        """Count, fold, compare, and perhaps move."""
        placed = self._grid.cells_of(seen.objects)
        there = placed >= 0
        cells: NDArray[np.int64] = placed[there].astype(np.int64)
        state = self.state.with_points(
            cells % self._grid.columns,
            cells // self._grid.columns,
            seen.weight,
            object_work(seen.held, seen.objects, self._costs)[there],
        )
        state = state.with_queries(plain_spans(self._grid, seen.added))
        state = state.without_queries(plain_spans(self._grid, seen.removed))
        self.state, moves = state.ended_round(plain_spans(self._grid, seen.table.bounds), seen.throughput)
        if moves:
            self._plan = self.state.layout.to_plan(self._grid, self._frequencies)
        return [
            f"columns {move.extent.left}-{move.extent.right - 1}, rows {move.extent.bottom}-{move.extent.top - 1} "
            f"from partition {move.source} to {move.target}"
            for move in moves
        ]


class LocalPolicy:
    """Local adjustment (see `local`), by the objects of the last few rounds, and only where it pays.

    Definition 3 counts "a given time period". The objects of one round are few for thousands of cells: those that have
    many by chance would be chosen, and moving them would help little. So loads are those of the last `PERIOD` rounds'
    objects, half as many of each older round, under the plan as it is now; each partition's times what it really took
    for what was counted.

    Cells that move leave subscriptions at both partitions, which costs at every insertion and removal, and moving them
    costs once. A plan is taken only if by all of this the busiest partition has less to do, and if that repays the
    moving; else there is a rest of as many rounds, unless it gets worse. The paper does not ask.
    """

    def __init__(self, plan: Plan, rules: LocalRules | None = None) -> None:
        self._plan = plan
        self._rules = rules or LocalRules()
        self._recent: deque[Objects] = deque(maxlen=PERIOD)
        self._took, self._counted = np.zeros((2, plan.partitions))
        self._changing_s = 0.0
        self._rest, self._refused = 0, 1.0
        self.adjustments: list[Adjustment] = []

    @property
    def strategies(self) -> Strategies:
        """One, that of the plan as it is now."""
        return (Strategy(self._plan),)

    def end_round(self, seen: Round) -> list[str]:
        """Adjust the busiest partition and the idlest, the next busiest and the next idlest, while they differ."""
        self._note(seen)
        uneven = float(seen.busy_s.max() / max(seen.busy_s.mean(), 1e-12))
        if self._rest and uneven < WORSE * self._refused:
            self._rest -= 1
            return []
        objects = join_objects(list(self._recent))
        pace = self._pace()
        busy = pace * self._loads(seen.held, objects)
        plan, done = adjust_all(self._plan, seen.held.dispatchers[0], objects, seen.table, busy, self._rules)
        if not done:
            return []
        held = hold((Strategy(plan),), seen.table)
        after = pace * self._loads(held, objects)
        gained_s = (1 - after.max() / busy.max()) * seen.busy_s.max() * REPAID
        if gained_s <= self._moving_s(seen.held, held):
            self._rest, self._refused = PERIOD, uneven
            return []
        self._rest = 0
        self._plan = plan
        self.adjustments += done
        return [_told(one) for one in done]

    def _note(self, seen: Round) -> None:
        """What came, and what the partitions took for it beside what is counted."""
        costs = self._rules.costs
        changes_s = costs.insert_s * len(seen.added) + costs.delete_s * len(seen.removed)
        # For an object and a subscription that is held: what `_loads` counts.
        now = changes_s / max(len(seen.table), 1) / max(seen.weight * len(seen.objects), 1.0)
        if self._recent:  # at first all of them came
            self._changing_s = FADING * self._changing_s + (1 - FADING) * now
        every = max(-(-len(seen.objects) // RECENT), 1)
        some = _every(seen.objects, every)
        self._recent = deque((_every(older, 2) for older in self._recent), maxlen=PERIOD)
        self._recent.append(some)
        self._took = FADING * self._took + seen.busy_s
        self._counted = FADING * self._counted + every * self._loads(seen.held, some)

    def _moving_s(self, before: Held, after: Held) -> float:
        """What moving to another plan costs the partition that gets most."""
        pairs = zip(before.rows, after.rows, strict=True)
        came = max(np.setdiff1d(now, old, assume_unique=True).size for old, now in pairs)
        return self._rules.costs.insert_s * came

    def _pace(self) -> NDArray[np.float64]:
        """How long each partition took for what was counted; as all of them, for one that had nothing to do."""
        known = (self._took > 0) & (self._counted > 0)
        usual = float(self._took[known].sum() / self._counted[known].sum()) if known.any() else 1.0
        pace = np.full(known.size, usual)
        pace[known] = self._took[known] / self._counted[known]
        return pace

    def _loads(self, held: Held, objects: Objects) -> NDArray[np.float64]:
        """What the partitions do for some objects, and for the subscriptions that come and go meanwhile."""
        copies = np.array([rows.size for rows in held.rows])
        counted = partition_loads(held, objects, self._plan.partitions, self._rules.costs)
        return counted + self._changing_s * len(objects) * copies


def _every(objects: Objects, step: int) -> Objects:
    """Every so many-th of some objects."""
    return take_objects(objects, np.arange(0, len(objects), step))


def _told(done: Adjustment) -> str:
    counts = [("split by text", done.split), ("merged", done.merged), ("moved", done.moved)]
    said = ", ".join(f"{len(cells)} cells {word}" for word, cells in counts if cells)
    return f"{said} from partition {done.source} to {done.target}"


class GlobalPolicy:
    """Global adjustment (see `repartition`)."""

    def __init__(self, plan: Plan, rules: GlobalRules | None = None) -> None:
        self._rules = rules or GlobalRules()
        self.strategies: Strategies = (Strategy(plan),)
        self._rounds = 0

    def end_round(self, seen: Round) -> list[str]:
        """End an old strategy that has drained; now and then look whether a new one would pay."""
        self._rounds += 1
        left = drained(self.strategies, seen.numbers, self._rules)
        if len(left) < len(self.strategies):
            self.strategies = left
            return ["the old strategy has ended: what was left of it moves"]
        if self._rounds % self._rules.every:
            return []
        found = considered(
            self.strategies, seen.held, seen.objects, seen.table, seen.next_number, self._rules
        )
        if found is self.strategies:
            return []
        self.strategies = found
        return ["a new strategy for the subscriptions that come from now on"]


def object_work(held: Held, objects: Objects, costs: Costs) -> NDArray[np.float64]:
    """The seconds that each object takes: received, and checked against what is filed in its cell under its terms."""
    owner = np.repeat(np.arange(len(objects)), np.diff(objects.offsets))
    seconds = np.full(len(objects), costs.object_s)
    for dispatcher in held.dispatchers:
        checks = np.bincount(owner, weights=dispatcher.checks(objects)[0], minlength=len(objects))
        seconds += costs.check_s * checks
    return seconds


def plain_spans(grid: Grid, bounds: NDArray[np.float64]) -> Spans:
    """First and last column and row of boxes; all columns of one across the antimeridian."""
    spans = grid.spans_of(bounds).astype(np.int64)
    across = spans[:, 5] >= 0
    spans[across, 0], spans[across, 1] = 0, grid.columns - 1
    return spans[:, :4]


BALANCES: dict[str, Callable[[Plan], Policy]] = {
    "none": Static,
    "swarm": lambda plan: SwarmPolicy(plan.grid, plan.partitions, plan.frequencies),
    "local": LocalPolicy,
    "global": GlobalPolicy,
}
"""Policies by name, beginning with a plan; SWARM takes only its grid, and begins evenly."""


def make_policy(name: str, plan: Plan) -> Policy:
    """The policy of that name."""
    if name not in BALANCES:
        raise UsageError(f"no balance {name!r}; there are {', '.join(BALANCES)}")
    return BALANCES[name](plan)
