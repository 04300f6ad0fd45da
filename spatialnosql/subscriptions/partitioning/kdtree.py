"""By space, a kd-tree each leaf of which is a partition: PS2Stream's baseline after AQWA and Tornado (section VI.B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.partitioning.plan import Plan, space_plan
from spatialnosql.subscriptions.partitioning.sample import Sample


def plan_kdtree(sample: Sample, partitions: int) -> Plan:
    """Cut at the column or row where the loads of both sides are as their numbers of partitions; and so on.

    The load is that of definition 1, objects times subscriptions as in AQWA's cost. Of the two directions the one
    with the smaller sum of loads is taken.
    """
    homes = np.zeros((sample.grid.rows, sample.grid.columns), dtype=np.int32)
    counts = sample.objects_of_cell.reshape(homes.shape)
    change_s = sample.costs.change_s(len(sample.objects), len(sample.table) * sample.scale) * sample.scale

    def part(
        top: int, bottom: int, left: int, right: int, rows: NDArray[np.int64], first: int, count: int
    ) -> None:
        """Give cells [top, bottom) x [left, right) to the partitions [first, first + count)."""
        homes[top:bottom, left:right] = first
        if count == 1 or (bottom - top == 1 and right - left == 1):
            return
        near = count // 2
        best: tuple[float, float, bool, int] | None = None
        for upright, low, high in ((True, left, right), (False, top, bottom)):
            if high - low < 2:
                continue
            spans = sample.spans[rows][:, :2] if upright else sample.spans[rows][:, 2:]
            along = counts[top:bottom, left:right].sum(axis=0 if upright else 1)
            before = np.cumsum(along)[:-1].astype(float)
            size = high - low
            starts = np.bincount(np.clip(spans[:, 0] - low, 0, size - 1), minlength=size)
            ends = np.bincount(np.clip(spans[:, 1] - low, 0, size - 1), minlength=size)
            here, there = np.cumsum(starts)[:-1], len(rows) - np.cumsum(ends)[:-1]
            loads = [
                sample.costs.load(objects, held * sample.scale, np.zeros(1)) + held * change_s
                for objects, held in ((before, here), (float(along.sum()) - before, there))
            ]
            uneven = np.maximum(loads[0] / near, loads[1] / (count - near))
            cut = int(np.argmin(uneven))
            found = (float(loads[0][cut] + loads[1][cut]), float(uneven[cut]), upright, low + cut + 1)
            best = found if best is None else min(best, found)
        assert best is not None
        _, _, upright, at = best
        spans = sample.spans[rows]
        lows, highs = (spans[:, 0], spans[:, 1]) if upright else (spans[:, 2], spans[:, 3])
        sides = (rows[lows < at], rows[highs >= at])
        if upright:
            part(top, bottom, left, at, sides[0], first, near)
            part(top, bottom, at, right, sides[1], first + near, count - near)
        else:
            part(top, at, left, right, sides[0], first, near)
            part(at, bottom, left, right, sides[1], first + near, count - near)

    part(0, sample.grid.rows, 0, sample.grid.columns, np.arange(len(sample.table)), 0, partitions)
    return space_plan("kdtree", sample.grid, homes.reshape(-1), partitions, sample.frequencies)
