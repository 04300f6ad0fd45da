"""What the cells of a partition cost, and how large they are: what local adjustment decides by.

PS2Stream's definition 3 says L = n_o x n_q, as if every object of a cell were checked against every subscription in it.
An index checks those that are filed in the object's cell under one of its terms; the dispatcher knows how many these
are. So by default L is definition 1's, with the pairs counted so, as the planner `hybrid` has it; `product` gives
definition 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array, Whole, longer
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.homes import home_of
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.placing import filing_terms
from spatialnosql.subscriptions.table import Table

Floats = NDArray[np.float64]


class Touching(NamedTuple):
    """For which cells a partition holds which subscriptions: pairs, by subscription."""

    rows: NDArray[np.int64]
    cells: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CellLoads:
    """Of the cells of one partition: elements are cells of the grid."""

    objects: NDArray[np.int64]
    """n_o: objects of the sample that are sent to the partition from the cell."""
    checks: NDArray[np.int64]
    """The pairs of these objects and what is filed under their terms there."""
    subscriptions: NDArray[np.int64]
    """n_q: subscriptions that the partition holds for the cell."""
    sizes: NDArray[np.int64]
    """S: the bytes of those."""
    touching: Touching

    def loads(self, costs: Costs, product: bool = False) -> Floats:
        """L of every cell in seconds for the sample."""
        pairs = self.objects * self.subscriptions if product else self.checks
        result: Floats = costs.check_s * pairs + costs.object_s * self.objects
        return result


def row_bytes(table: Table) -> NDArray[np.int64]:
    """How many bytes a subscription is when it is sent: id, owner's number, bounds, expiry, clauses and terms."""
    clauses = np.diff(table.clauses)
    terms = np.diff(table.clause_terms[table.clauses])
    return np.asarray(16 + 4 + 32 + 8 + 4 * clauses + 4 * terms, dtype=np.int64)


class CellCounter:
    """Counts the loads of partitions' cells; the table is what was inserted into the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, objects: Objects, table: Table) -> None:
        self._plan, self._table = dispatcher.plan, table
        self._spans = self._plan.grid.spans_of(table.bounds)
        self._filed = filing_terms(table, self._plan.frequencies)
        self.sizes = row_bytes(table)
        """The bytes of every subscription."""
        counts, homes = dispatcher.checks(objects)
        owner = np.repeat(np.arange(len(objects)), np.diff(objects.offsets))
        used = counts > 0
        self._counts, self._homes, self._owner = counts[used], homes[used], owner[used]
        self._cells = self._plan.grid.cells_of(objects)

    def loads_of(self, partition: int) -> CellLoads:
        """Those of a partition's cells."""
        cells = self._plan.grid.cells
        own = self._homes == partition
        owner = self._owner[own]
        pairs = self.touching(partition)
        return CellLoads(
            np.bincount(self._cells[np.unique(owner)], minlength=cells).astype(np.int64),
            np.bincount(self._cells[owner], weights=self._counts[own], minlength=cells).astype(np.int64),
            np.bincount(pairs.cells, minlength=cells).astype(np.int64),
            np.bincount(pairs.cells, weights=self.sizes[pairs.rows], minlength=cells).astype(np.int64),
            pairs,
        )

    def touching(self, partition: int) -> Touching:
        """For which cells a partition holds which subscriptions."""
        plan = self._plan
        rows, cells = _pairs(
            self._spans, plan.grid.columns, plan.leaf_of_cell, self._table.clauses, self._filed,
            plan.leaf_home, plan.leaf_map, plan.homes, plan.new_offsets, plan.new_homes, partition,
        )  # fmt: skip
        return Touching(rows, cells)


@compiled
def _pairs(
    spans: Array,
    columns: int,
    leaf_of_cell: Array,
    clauses: Array,
    filed: Array,
    leaf_home: Array,
    leaf_map: Array,
    homes: Array,
    new_offsets: Array,
    new_homes: Array,
    partition: Whole,
) -> tuple[Array, Array]:
    rows, cells = np.empty(1024, np.int64), np.empty(1024, np.int64)
    used = 0
    for i in range(spans.shape[0]):
        for part in range(2):
            for row in range(spans[i, 2], spans[i, 3] + 1):
                for column in range(spans[i, 4 * part], spans[i, 4 * part + 1] + 1):
                    cell = row * columns + column
                    leaf = leaf_of_cell[cell]
                    own = leaf_home[leaf] == partition
                    if leaf_home[leaf] < 0:
                        for clause in range(clauses[i], clauses[i + 1]):
                            home = home_of(
                                leaf, filed[clause], leaf_home, leaf_map, homes, new_offsets, new_homes
                            )
                            if home == partition:
                                own = True
                                break
                    if own:
                        if used == rows.size:
                            rows, cells = longer(rows, used + 1), longer(cells, used + 1)
                        rows[used], cells[used] = i, cell
                        used += 1
    return rows[:used].copy(), cells[:used].copy()
