"""Subscriptions in partitions, all in one process: dispatcher, an index for each partition, merger.

What a cluster does with a plan, without the cluster: the tests compare it with brute force, and the simulator measures
its parts one after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.placing import Placement
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.routes import Routes, merge_matches, take_objects
from spatialnosql.subscriptions.table import Table


class PartitionedIndex:
    """Subscriptions numbered in the order in which they came, each in the partitions its plan says."""

    def __init__(self, plan: Plan, table: Table) -> None:
        self.plan = plan
        self.dispatcher = Dispatcher(plan)
        placement = self.dispatcher.insert(table)
        self._batches: list[tuple[Table, Placement]] = [(table, placement)]
        own = [placement.rows_of(partition) for partition in range(plan.partitions)]
        self.indexes = [Index.build(table.take(rows)) for rows in own]
        self._numbers = own

    def __len__(self) -> int:
        return sum(len(table) for table, _ in self._batches)

    def insert(self, table: Table) -> NDArray[np.int64]:
        """Add subscriptions, none of whose ids is there; returns their numbers."""
        first = len(self)
        placement = self.dispatcher.insert(table)
        self._batches.append((table, placement))
        for partition, index in enumerate(self.indexes):
            rows = placement.rows_of(partition)
            if rows.size:
                index.insert(table.take(rows))
                self._numbers[partition] = np.concatenate([self._numbers[partition], rows + first])
        return np.arange(first, len(self), dtype=np.int64)

    def remove(self, numbers: NDArray[np.int64]) -> None:
        """Remove subscriptions that are there, each once."""
        first = 0
        for table, placement in self._batches:
            own = numbers[(numbers >= first) & (numbers < first + len(table))] - first
            self.dispatcher.remove(table, placement, own)
            first += len(table)
        for partition, index in enumerate(self.indexes):
            index.remove(np.flatnonzero(np.isin(self._numbers[partition], numbers)))

    def match_objects(self, objects: Objects) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct pairs of object and subscription that match, sorted."""
        return self.match_routed(objects, self.dispatcher.route(objects))

    def match_routed(self, objects: Objects, routes: Routes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `match_objects`, of objects that were dispatched before."""
        parts = []
        for partition, index in enumerate(self.indexes):
            rows = routes.rows_of(partition)
            if rows.size:
                found, numbers = index.match_objects(take_objects(objects, rows))
                parts.append((rows[found], self._numbers[partition][numbers]))
        return merge_matches(parts)
