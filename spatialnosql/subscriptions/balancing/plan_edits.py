"""Small changes to a plan: cells that go from partition to partition, cells that are parted by text.

Each makes another plan; leaves and maps that no cell uses any more are left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.partitioning.plan import Plan


def move_cells(plan: Plan, cells: NDArray[np.int64], source: int, target: int) -> Plan:
    """What partition `source` has of some cells goes to `target`; terms of others in the same cells stay."""
    _check(plan, source, target)
    leaf_of_cell = plan.leaf_of_cell.copy()
    edited = _Edited(plan)
    for leaf in np.unique(plan.leaf_of_cell[cells]).tolist():
        own = cells[plan.leaf_of_cell[cells] == leaf]
        if plan.leaf_home[leaf] == source:
            leaf_of_cell[own] = edited.whole(target)
        elif plan.leaf_home[leaf] < 0:
            row = plan.leaf_map[leaf]
            homes = np.where(plan.homes[row] == source, target, plan.homes[row])
            new = plan.new_homes[plan.new_offsets[row] : plan.new_offsets[row + 1]]
            leaf_of_cell[own] = edited.mapped(homes, np.unique(np.where(new == source, target, new)))
    return edited.plan(leaf_of_cell)


def split_cell_by_text(plan: Plan, cell: int, moving: NDArray[np.bool_], target: int) -> Plan:
    """A cell of one partition parted by text: the terms that are `moving` go to another, the rest stays."""
    source = int(plan.leaf_home[plan.leaf_of_cell[cell]])
    if source < 0:
        raise UsageError(f"cell {cell} is parted by text already; move what a partition has of it")
    _check(plan, source, target)
    edited = _Edited(plan)
    leaf_of_cell = plan.leaf_of_cell.copy()
    homes = np.where(moving, target, source).astype(np.int32)
    leaf_of_cell[cell] = edited.mapped(homes, np.array(sorted({source, target}), dtype=np.int32))
    return edited.plan(leaf_of_cell)


class _Edited:
    """The leaves and maps of a plan, with new ones after them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._homes = plan.leaf_home.tolist()
        self._rows = plan.leaf_map.tolist()
        self._maps = list(plan.homes)
        self._news = [
            plan.new_homes[low:high]
            for low, high in zip(plan.new_offsets[:-1], plan.new_offsets[1:], strict=True)
        ]

    def whole(self, partition: int) -> int:
        """A leaf that belongs to one partition: one that is there, or a new one."""
        for leaf, home in enumerate(self._homes):
            if home == partition:
                return leaf
        self._homes.append(partition)
        self._rows.append(-1)
        return len(self._homes) - 1

    def mapped(self, homes: NDArray[np.int32], new: NDArray[np.int32]) -> int:
        """A leaf with a map of terms; a whole one if all of them have one partition."""
        if new.size == 1 and (homes == new[0]).all():
            return self.whole(int(new[0]))
        self._homes.append(-1)
        self._rows.append(len(self._maps))
        self._maps.append(homes.astype(np.int32))
        self._news.append(new.astype(np.int32))
        return len(self._homes) - 1

    def plan(self, leaf_of_cell: NDArray[np.int32]) -> Plan:
        """The plan, of what its cells use."""
        used, renumbered = np.unique(leaf_of_cell, return_inverse=True)
        homes = np.array(self._homes, dtype=np.int32)[used]
        rows = np.array(self._rows, dtype=np.int32)[used]
        kept = np.unique(rows[rows >= 0])
        news = [self._news[row] for row in kept]
        width = self._plan.homes.shape[1]
        return replace(
            self._plan,
            leaf_of_cell=renumbered.astype(np.int32).reshape(-1),
            leaf_home=homes,
            leaf_map=np.where(rows >= 0, np.searchsorted(kept, rows), -1).astype(np.int32),
            homes=np.array([self._maps[row] for row in kept], dtype=np.int32).reshape(kept.size, width),
            new_offsets=np.cumsum([0] + [new.size for new in news], dtype=np.int64),
            new_homes=np.concatenate([np.zeros(0, dtype=np.int32), *news]).astype(np.int32),
        )


def _check(plan: Plan, source: int, target: int) -> None:
    if plan.filing != "rarest" or plan.versions.size:
        raise UsageError(
            f"the plan {plan.name!r} places subscriptions by more than cells and terms; cells of it cannot be moved. "
            "Use hybrid, kdtree, rtree or grid"
        )
    if source == target or not (0 <= source < plan.partitions and 0 <= target < plan.partitions):
        raise UsageError(
            f"from partition {source} to {target} of {plan.partitions}; give two different ones that there are"
        )
