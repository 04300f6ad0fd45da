"""The load of workers (PS2Stream, definition 1) and what else tells plans apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spatialnosql.subscriptions.objects import Objects
    from spatialnosql.subscriptions.partitioning.plan import Plan
    from spatialnosql.subscriptions.table import Table


@dataclass(frozen=True)
class Costs:
    """The constants of definition 1 in seconds, as measured on one core with this package's index."""

    check_s: float = 11.5e-9
    """c1: one object against one subscription filed in its cell under one of its terms."""
    object_s: float = 0.45e-6
    """c2: one object received and looked up."""
    insert_s: float = 1.7e-6
    """c3: one subscription inserted."""
    delete_s: float = 0.1e-6
    """c4: one subscription removed."""
    inserts_per_object: float = 0.1
    """And as many deletions: five objects for each of either, as in PS2Stream's section VI.A."""

    def change_s(self, objects: float, subscriptions: float) -> float:
        """c3 and c4 for each subscription a worker holds, while so many objects pass and so many are there in all."""
        turnover = self.inserts_per_object * objects / max(subscriptions, 1.0)
        return turnover * (self.insert_s + self.delete_s)

    def load(
        self,
        objects: NDArray[Any],
        subscriptions: NDArray[Any],
        changes: NDArray[Any],
    ) -> NDArray[np.float64]:
        """Definition 1 for workers: c1 |O||Q| + c2 |O| + c3 |Qi| + c4 |Qd|, with as many insertions as deletions.

        The paper's Qi are all that were inserted in the period; here the worker's subscriptions Q are in the product,
        and the changes are apart, since most subscriptions were there before.
        """
        pairs = np.asarray(objects, dtype=np.float64) * subscriptions
        loads: NDArray[np.float64] = (
            self.check_s * pairs + self.object_s * objects + (self.insert_s + self.delete_s) * changes
        )
        return loads


@dataclass(frozen=True, eq=False)
class Report:
    """What a plan does with some objects and subscriptions."""

    loads: NDArray[np.float64]
    """Of the workers, by definition 1."""
    objects: NDArray[np.int64]
    subscriptions: NDArray[np.int64]
    spread: float
    """To how many partitions an object goes on average (S3-TM, equation 2); dropped ones count as 0."""
    replication: float
    """How many copies of a subscription there are on average."""
    dropped: float
    """The share of the objects that the dispatcher drops."""
    planning_s: float

    @property
    def total_load(self) -> float:
        """What PS2Stream's definition 2 minimises."""
        return float(self.loads.sum())

    @property
    def imbalance(self) -> float:
        """The greatest load over the mean (S3-TM, equation 4)."""
        mean = float(self.loads.mean())
        return float(self.loads.max()) / mean if mean > 0 else 1.0

    def to_document(self) -> dict[str, float]:
        """The figures of one line of a table."""
        return {
            "total_load_s": self.total_load,
            "imbalance": self.imbalance,
            "spread": self.spread,
            "replication": self.replication,
            "dropped": self.dropped,
            "planning_s": self.planning_s,
        }


def report(
    plan: Plan, objects: Objects, table: Table, planning_s: float = 0.0, costs: Costs | None = None
) -> Report:
    """What a plan does with these objects and subscriptions, counted by the dispatcher itself."""
    from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher

    dispatcher = Dispatcher(plan)
    placement = dispatcher.insert(table)
    routes = dispatcher.route(objects)
    held = np.bincount(placement.partitions, minlength=plan.partitions)
    used = costs or Costs()
    changes = used.inserts_per_object * len(objects) * held / max(len(table), 1)
    return Report(
        used.load(routes.counts, held, changes),
        routes.counts,
        held,
        routes.rows.size / max(len(objects), 1),
        placement.held / max(len(table), 1),
        routes.dropped / max(len(objects), 1),
        planning_s,
    )
