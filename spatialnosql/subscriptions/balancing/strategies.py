"""Plans in force, perhaps several side by side (PS2Stream, section V.B), and who holds what by them.

Subscriptions are numbered in the order in which they came. Each follows one strategy: the last that began at or before
its number. An object is sent to the partitions that any of the strategies says, so that what was placed by an old plan
is still found until it has moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.routes import Routes
from spatialnosql.subscriptions.table import Table

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Strategy:
    """A plan for the subscriptions from a number on, up to where the next strategy begins."""

    plan: Plan
    first: int = 0


Strategies = tuple[Strategy, ...]


def check(strategies: Strategies) -> None:
    """Refuse strategies that leave subscriptions without a plan, or name different partitions."""
    firsts = [one.first for one in strategies]
    if not strategies or firsts[0] != 0 or sorted(set(firsts)) != firsts:
        raise UsageError(
            f"strategies begin at {firsts}; the first must begin at 0, the others later, in order"
        )
    if len({one.plan.partitions for one in strategies}) > 1:
        counts = [one.plan.partitions for one in strategies]
        raise UsageError(f"strategies of {counts} partitions; they must have as many")


def strategies_differ(before: Strategies | None, now: Strategies) -> bool:
    """Whether any plan is another, or begins elsewhere."""
    return before is None or [(id(one.plan), one.first) for one in before] != [
        (id(one.plan), one.first) for one in now
    ]


def strategy_rows(strategies: Strategies, numbers: Rows) -> list[Rows]:
    """The rows of each strategy; `numbers` are those of all subscriptions, ascending."""
    bounds = np.searchsorted(numbers, [*(one.first for one in strategies), np.iinfo(np.int64).max])
    return [np.arange(low, high) for low, high in pairwise(bounds.tolist())]


@dataclass(frozen=True, eq=False)
class Held:
    """Subscriptions placed by strategies: a dispatcher for each, and the rows of every partition, ascending."""

    dispatchers: tuple[Dispatcher, ...]
    rows: tuple[Rows, ...]

    @property
    def copies(self) -> int:
        """How many subscriptions the partitions hold together."""
        return sum(own.size for own in self.rows)

    def route(self, objects: Objects) -> Routes:
        """The partitions of every object."""
        return route_by(self.dispatchers, objects)


def hold(strategies: Strategies, table: Table, numbers: Rows | None = None) -> Held:
    """Place the subscriptions of a table; `numbers` are theirs, ascending, if not their rows."""
    check(strategies)
    known = np.arange(len(table)) if numbers is None else numbers
    dispatchers = []
    parts: list[list[Rows]] = [[] for _ in range(strategies[0].plan.partitions)]
    for strategy, rows in zip(strategies, strategy_rows(strategies, known), strict=True):
        dispatcher = Dispatcher(strategy.plan)
        own = table if rows.size == len(table) else table.take(rows)
        placement = dispatcher.insert(own)
        dispatchers.append(dispatcher)
        for partition, part in enumerate(parts):
            part.append(rows[placement.rows_of(partition)])
    return Held(tuple(dispatchers), tuple(np.concatenate(part) for part in parts))


def route_by(dispatchers: Sequence[Dispatcher], objects: Objects) -> Routes:
    """The partitions that any dispatcher sends an object to, each once."""
    found = [dispatcher.route(objects) for dispatcher in dispatchers]
    if len(found) == 1:
        return found[0]
    parts = [
        np.unique(np.concatenate([routes.rows_of(partition) for routes in found]))
        for partition in range(found[0].partitions)
    ]
    rows = np.concatenate(parts).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64)
    return Routes(rows, offsets, len(objects) - np.unique(rows).size)
