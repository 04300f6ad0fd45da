"""PS2Stream's local adjustment (section V.A): from busy partitions to idle ones, in two phases.

I. Of the busiest partition's most loaded cells, one that is whole is parted by text, and one half of it moves, if the
   total load falls; one that is parted by text moves to where the rest of it is, if the total load falls.
II. If the loads still differ too much, cells move: enough load, and as few bytes as possible (see `migration`, and
    `marginal`, which is used).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.cell_loads import CellCounter, CellLoads
from spatialnosql.subscriptions.balancing.marginal import by_marginal_cost
from spatialnosql.subscriptions.balancing.migration import SELECTIONS
from spatialnosql.subscriptions.balancing.plan_edits import move_cells, split_cell_by_text
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.placing import filing_terms
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.routes import take_objects
from spatialnosql.subscriptions.table import Table

SIGMA = 1.2
"""The busiest may take so many times what the idlest takes."""
MARGINAL = "marginal"
LOOKED_AT = 8
"""p: so many of the most loaded cells are looked at in phase I."""
FALLS = 0.99
"""A cell is parted by text if its load falls to this at most: not by rounding."""
UNIT_BYTES = 64
"""The dynamic programme counts sizes in these."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What phase II had to choose from: definition 4."""

    loads: NDArray[np.float64]
    sizes: NDArray[np.int64]
    least: float

    def in_units(self, select: str) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
        """As an algorithm takes it: the dynamic programme's time grows with the sizes."""
        sizes = -(-self.sizes // UNIT_BYTES) if select == "DP" else self.sizes
        return self.loads, sizes, self.least


@dataclass(frozen=True)
class Adjustment:
    """What one adjustment did."""

    source: int
    target: int
    split: tuple[int, ...] = ()
    """Cells parted by text."""
    merged: tuple[int, ...] = ()
    """Cells whose parts are together again."""
    moved: tuple[int, ...] = ()
    """Cells of phase II."""
    moved_bytes: int = 0
    """The sizes of the cells of phase II, each by itself: what was minimised."""
    problem: Problem | None = None


@dataclass(frozen=True)
class LocalRules:
    """What local adjustment goes by."""

    sigma: float = SIGMA
    looked_at: int = LOOKED_AT
    select: str = MARGINAL
    """The algorithm of phase II: this, or one of `SELECTIONS`."""
    product: bool = False
    """Whether loads are definition 3's products."""
    costs: Costs = field(default_factory=Costs)


def adjust_all(
    plan: Plan,
    dispatcher: Dispatcher,
    objects: Objects,
    table: Table,
    busy: NDArray[np.float64],
    rules: LocalRules | None = None,
) -> tuple[Plan, list[Adjustment]]:
    """The plan after the busiest gave to the idlest, the next busiest to the next idlest, and so on while they differ.

    The dispatcher is that of the plan with the table inserted; the objects are recent ones; `busy` is what the
    partitions take for them, in seconds. The paper has one pair; no partition is in two, so each is as it was counted.
    """
    used = rules or LocalRules()
    order = np.argsort(-busy, kind="stable").tolist()
    pairs = [
        (source, target)
        for source, target in zip(order[: busy.size // 2], order[::-1], strict=False)
        if busy[source] > used.sigma * busy[target]
    ]
    counter = CellCounter(dispatcher, objects, table) if pairs else None
    done = []
    for workers in pairs:
        assert counter is not None
        plan, one = _adjust(plan, dispatcher, objects, table, counter, workers, busy, used)
        if one is not None:
            done.append(one)
    return plan, done


def _adjust(
    plan: Plan,
    dispatcher: Dispatcher,
    objects: Objects,
    table: Table,
    counter: CellCounter,
    workers: tuple[int, int],
    busy: NDArray[np.float64],
    rules: LocalRules,
) -> tuple[Plan, Adjustment | None]:
    """The plan after one partition gave to another; the same and None if it has nothing that could be given."""
    source, target = workers
    loads = counter.loads_of(source)
    weights = loads.loads(rules.costs, rules.product)
    whole = float(weights.sum())
    if whole <= 0:
        return plan, None
    # Half of what they differ by, in the unit of the cells' loads.
    least = whole * float(busy[source] - busy[target]) / 2 / float(busy[source])
    plan, split, merged, gone = _phase_one(
        plan, dispatcher, objects, table, counter, loads, weights, workers, rules
    )
    still = weights.copy()
    still[[*split, *merged]] = 0.0
    chosen = np.zeros(0, dtype=np.int64)
    problem = None
    if least - gone > 0:
        still[still > 2 * (least - gone)] = 0.0
        cells = np.flatnonzero(still > 0)
        problem = Problem(still[cells], loads.sizes[cells], least - gone)
        if rules.select == MARGINAL:
            theirs = counter.touching(target)
            chosen = by_marginal_cost(still, least - gone, loads.touching, theirs, counter.sizes)
        else:
            chosen = cells[SELECTIONS[rules.select](*problem.in_units(rules.select))]
        if chosen.size:
            plan = move_cells(plan, chosen, source, target)
    moved = tuple(chosen.tolist())
    if not (split or merged or moved):
        return plan, None
    return plan, Adjustment(source, target, split, merged, moved, int(loads.sizes[chosen].sum()), problem)


def _phase_one(
    plan: Plan,
    dispatcher: Dispatcher,
    objects: Objects,
    table: Table,
    counter: CellCounter,
    loads: CellLoads,
    weights: NDArray[np.float64],
    workers: tuple[int, int],
    rules: LocalRules,
) -> tuple[Plan, tuple[int, ...], tuple[int, ...], float]:
    """The plan with the splits and merges that pay, the cells of both, and the load that left the source."""
    source, target = workers
    heaviest = np.argsort(-weights, kind="stable")[: rules.looked_at]
    heaviest = heaviest[weights[heaviest] > 0]
    before = plan
    theirs: CellLoads | None = None
    split, merged = [], []
    gone = 0.0
    for cell in heaviest.tolist():
        if before.leaf_home[before.leaf_of_cell[cell]] == source:
            found = _text_split(before, dispatcher, objects, table, cell, weights[cell], rules)
            if found is not None:
                moving, load = found
                plan = split_cell_by_text(plan, cell, moving, target)
                split.append(cell)
                gone += load
            continue
        theirs = theirs or counter.loads_of(target)
        if theirs.subscriptions[cell] == 0:
            continue
        there = float(theirs.loads(rules.costs, rules.product)[cell])
        if _together(loads, theirs, cell, dispatcher, objects, workers, rules) < weights[cell] + there:
            plan = move_cells(plan, np.array([cell]), source, target)
            merged.append(cell)
            gone += float(weights[cell])
    return plan, tuple(split), tuple(merged), gone


def _text_split(
    plan: Plan,
    dispatcher: Dispatcher,
    objects: Objects,
    table: Table,
    cell: int,
    load: float,
    rules: LocalRules,
) -> tuple[NDArray[np.bool_], float] | None:
    """Which terms of a whole cell should move, and their load; None if parting it makes the total no smaller."""
    words = _words_of(dispatcher, objects, cell)
    spans = plan.grid.spans_of(table.bounds)
    row, column = divmod(cell, plan.grid.columns)
    inside = (
        (spans[:, 2] <= row)
        & (spans[:, 3] >= row)
        & (
            ((spans[:, 0] <= column) & (spans[:, 1] >= column))
            | ((spans[:, 4] <= column) & (spans[:, 5] >= column))
        )
    )
    clause_rows = np.repeat(np.arange(len(table)), np.diff(table.clauses))
    here = inside[clause_rows]
    filed, holders = filing_terms(table, plan.frequencies)[here], clause_rows[here]
    known = plan.frequencies.size
    part = lightest_first(np.bincount(words.terms, weights=words.counts, minlength=known)[:known], 2)
    totals, sizes = [], []
    for half in range(2):
        # Terms that planning has not seen are hashed between both; hardly any are.
        own_words = (words.terms < known) & (part[np.minimum(words.terms, known - 1)] == half)
        own_clauses = (filed < known) & (part[np.minimum(filed, known - 1)] == half)
        sent = np.unique(words.owners[own_words]).size
        held = np.unique(holders[own_clauses]).size
        pairs = sent * held if rules.product else float(words.counts[own_words].sum())
        totals.append(rules.costs.check_s * pairs + rules.costs.object_s * sent)
        sizes.append(held)
    if sum(totals) >= FALLS * load:
        return None
    moving = int(np.argmin(sizes))
    return part == moving, totals[moving]


def _together(
    ours: CellLoads,
    theirs: CellLoads,
    cell: int,
    dispatcher: Dispatcher,
    objects: Objects,
    workers: tuple[int, int],
    rules: LocalRules,
) -> float:
    """The load of a cell of which two partitions have parts, if one had both."""
    words = _words_of(dispatcher, objects, cell)
    both = np.isin(words.homes, workers)
    sent = np.unique(words.owners[both]).size
    held = int(ours.subscriptions[cell] + theirs.subscriptions[cell])
    pairs = sent * held if rules.product else float(words.counts[both].sum())
    return rules.costs.check_s * pairs + rules.costs.object_s * sent


class _Words(NamedTuple):
    """The filed terms of a cell's objects: the term, its object, how much is filed under it, at which partition."""

    terms: NDArray[np.int64]
    owners: NDArray[np.int64]
    counts: NDArray[np.int64]
    homes: NDArray[np.int64]


def _words_of(dispatcher: Dispatcher, objects: Objects, cell: int) -> _Words:
    inside = np.flatnonzero(dispatcher.plan.grid.cells_of(objects) == cell)
    own = take_objects(objects, inside)
    counts, homes = dispatcher.checks(own)
    used = counts > 0
    owners = np.repeat(inside, np.diff(own.offsets))
    return _Words(own.terms[used].astype(np.int64), owners[used], counts[used], homes[used])
