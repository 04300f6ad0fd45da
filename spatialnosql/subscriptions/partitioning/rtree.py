"""By space, the leaves of an R-tree packed by sort-tile-recursive: PS2Stream's R-tree baseline (section VI.B)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.plan import Plan, space_plan
from spatialnosql.subscriptions.partitioning.sample import Sample

LEAVES = 16
"""So many leaves for each partition."""


def plan_rtree(sample: Sample, partitions: int) -> Plan:
    """Leaves with equally many objects, the heaviest first, each to the least loaded partition.

    As SpatialHadoop does it: slices of equally many objects from west to east, each cut into tiles from south to
    north. Between the tiles there is nothing, so that every place is in one.
    """
    grid = sample.grid
    counts = sample.objects_of_cell.reshape(grid.rows, grid.columns)
    slices = min(math.ceil(math.sqrt(LEAVES * partitions)), grid.columns)
    slice_of_column = _equal_parts(counts.sum(axis=0), slices)
    tile_of_cell = np.empty((grid.rows, grid.columns), dtype=np.int64)
    for number in range(slices):
        own = slice_of_column == number
        tiles = _equal_parts(counts[:, own].sum(axis=1), slices)
        tile_of_cell[:, own] = (number * slices + tiles)[:, None]
    tile = tile_of_cell.reshape(-1)
    objects = np.bincount(tile, weights=sample.objects_of_cell, minlength=slices * slices)
    loads = objects * _touching(sample, tile_of_cell, slices * slices)
    homes = lightest_first(loads, partitions)
    return space_plan("rtree", grid, homes[tile], partitions, sample.frequencies)


def _equal_parts(counts: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Runs of columns (or rows) with about equally many objects each: the part of every column."""
    before = np.cumsum(counts) - counts / 2
    total = max(int(counts.sum()), 1)
    return np.minimum((before * parts / total).astype(np.int64), parts - 1)


def _touching(sample: Sample, tile_of_cell: NDArray[np.int64], tiles: int) -> NDArray[np.int64]:
    """How many subscriptions touch each tile."""
    counts = np.zeros(tiles, dtype=np.int64)
    for tile in np.unique(tile_of_cell).tolist():
        rows, columns = np.nonzero(tile_of_cell == tile)
        first_column, last_column, first_row, last_row = sample.spans.T
        counts[tile] = np.count_nonzero(
            (first_column <= columns.max())
            & (last_column >= columns.min())
            & (first_row <= rows.max())
            & (last_row >= rows.min())
        )
    return counts
