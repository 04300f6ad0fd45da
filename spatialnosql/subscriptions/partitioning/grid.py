"""By space, cells of equal size: PS2Stream's grid baseline (section VI.B), 2**6 x 2**6 cells as there."""

from __future__ import annotations

from dataclasses import replace

from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.plan import Plan, space_plan
from spatialnosql.subscriptions.partitioning.sample import Sample

CELLS = 64


def plan_grid(sample: Sample, partitions: int) -> Plan:
    """Cells by load n_o * n_q (definition 3), the heaviest first, each to the least loaded partition."""
    coarse = replace(sample, side=CELLS)
    loads = coarse.objects_of_cell.astype(float) * coarse.subscriptions_of_cell
    return space_plan("grid", coarse.grid, lightest_first(loads, partitions), partitions, sample.frequencies)
