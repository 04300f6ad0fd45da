"""Which cells to move, by what really has to be moved: GR with the sizes that are left.

Definition 4 (see `migration`) adds up the sizes of cells. But a subscription that touches several cells is moved once,
and one that the target has already is not moved at all; and as long as one of its cells stays, both partitions hold it,
so that it is inserted and removed twice from then on. Cells chosen each for itself lie scattered, and total load grows.

Here a cell's size is that of its subscriptions that the target has not yet. It shrinks as cells beside it are chosen,
so that connected cells are, and those that border on the target's. Otherwise it is GR: by size over load, ascending,
until the load suffices. In the end cells without load follow whose subscriptions are all there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.cell_loads import Touching
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array

Rows = NDArray[np.int64]


def by_marginal_cost(
    loads: NDArray[np.float64], least: float, ours: Touching, theirs: Touching, sizes: Rows
) -> Rows:
    """The cells to move from one partition to another, ascending: their loads sum up to `least` at least, if all do.

    `loads` are those of all cells of the grid; 0 for those that must not be chosen for it. `sizes` are those of the
    subscriptions.
    """
    there = np.zeros(sizes.size, dtype=np.bool_)
    there[theirs.rows] = True
    left = np.bincount(ours.cells, weights=np.where(there, 0, sizes)[ours.rows], minlength=loads.size)
    by_cell = np.argsort(ours.cells, kind="stable")
    counts = np.bincount(ours.cells, minlength=loads.size)
    chosen = _choose(
        np.flatnonzero(loads > 0),
        loads,
        least,
        np.concatenate([[0], np.cumsum(counts)]),
        ours.rows[by_cell],
        np.searchsorted(ours.rows, np.arange(sizes.size + 1)).astype(np.int64),
        ours.cells,
        sizes,
        there,
        left,
    )
    moved = (counts > 0) & (left <= 0) & (loads == 0)
    moved[chosen] = True
    return np.flatnonzero(moved) if chosen.size else chosen


@compiled
def _choose(
    candidates: Array,
    loads: Array,
    least: float,
    ends: Array,
    rows_of_cells: Array,
    starts: Array,
    cells_of_rows: Array,
    sizes: Array,
    there: Array,
    left: Array,
) -> Array:
    """Choose cells one after the other; `there` and `left` are kept up to date."""
    chosen = np.empty(candidates.size, np.int64)
    taken = np.zeros(loads.size, np.bool_)
    count, load = 0, 0.0
    while load < least:
        best, best_cost = -1, np.inf
        last, last_size = -1, np.inf  # the cheapest of those that suffice
        for cell in candidates:
            if taken[cell]:
                continue
            if left[cell] / loads[cell] < best_cost:
                best, best_cost = cell, left[cell] / loads[cell]
            if load + loads[cell] >= least and left[cell] < last_size:
                last, last_size = cell, left[cell]
        if best < 0:
            break
        if last >= 0 and load + loads[best] >= least:
            best = last
        taken[best] = True
        chosen[count] = best
        count += 1
        load += loads[best]
        for k in range(ends[best], ends[best + 1]):
            row = rows_of_cells[k]
            if not there[row]:
                there[row] = True
                for other in range(starts[row], starts[row + 1]):
                    left[cells_of_rows[other]] -= sizes[row]
    return chosen[:count]
