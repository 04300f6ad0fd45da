"""What the cells of a partition cost, and how large they are: what local adjustment decides by.

PS2Stream's definition 3 says L = n_o x n_q, as if every object of a cell were checked against every subscription in it.
An index checks those that are filed in the object's cell under one of its terms; the dispatcher knows how many these
are. So by default L is definition 1's, with the pairs counted so, as the planner `hybrid` has it; `product` gives
definition 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array, Whole
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.homes import home_of
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.placing import filing_terms
from spatialnosql.subscriptions.table import Table

Floats = NDArray[np.float64]


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


def cell_loads(dispatcher: Dispatcher, objects: Objects, table: Table, partition: int) -> CellLoads:
    """The loads of a partition's cells; the table is what was inserted into the dispatcher."""
    plan = dispatcher.plan
    counts, homes = dispatcher.checks(objects)
    cells = plan.grid.cells_of(objects)
    owner = np.repeat(np.arange(len(objects)), np.diff(objects.offsets))
    own = (homes == partition) & (counts > 0)
    checks = np.bincount(cells[owner[own]], weights=counts[own], minlength=plan.grid.cells)
    sent = np.unique(owner[own])
    held, sizes = np.zeros((2, plan.grid.cells), dtype=np.int64)
    filed = filing_terms(table, plan.frequencies)
    _held_by_cell(
        plan.grid.spans_of(table.bounds), plan.grid.columns, plan.leaf_of_cell, table.clauses, filed,
        plan.leaf_home, plan.leaf_map, plan.homes, plan.new_offsets, plan.new_homes,
        row_bytes(table), partition, held, sizes,
    )  # fmt: skip
    return CellLoads(
        np.bincount(cells[sent], minlength=plan.grid.cells).astype(np.int64),
        checks.astype(np.int64),
        held,
        sizes,
    )


@compiled
def _held_by_cell(
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
    sizes_of_rows: Array,
    partition: Whole,
    held: Array,
    sizes: Array,
) -> None:
    """Count every subscription in the cells for which the partition holds it."""
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
                        held[cell] += 1
                        sizes[cell] += sizes_of_rows[i]
