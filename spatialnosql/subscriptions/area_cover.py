"""Where any subscription wants anything: the ranges of geohashes that all areas together touch.

What lies elsewhere matches nobody and need not be read. Areas are laid on a grid of cells of 24 bits, some 10 by 5 km;
coarse, but a million areas take a tenth of a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS, points_to_cells
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.kernel import GONE

_LEVEL = 12
"""Bits for each of longitude and latitude."""
_SIDE = 1 << _LEVEL
_MARGIN = 1e-6
"""Degrees by which areas are widened: more than rounding makes of a coordinate on a cell's border."""


def area_ranges(index: Index) -> Ranges:
    """The ranges of 60-bit cells that the areas of an index touch."""
    boxes = [segment.table.bounds[segment.state & GONE == 0] for segment in index.segments if len(segment)]
    covered = _grid(np.concatenate(boxes)) if boxes else np.zeros((_SIDE, _SIDE), dtype=np.bool_)
    x, y = np.nonzero(covered)
    cells = points_to_cells((x + 0.5) / _SIDE * 360.0 - 180.0, (y + 0.5) / _SIDE * 180.0 - 90.0)
    shift = np.uint64(BITS - 2 * _LEVEL)
    cells = np.sort(np.asarray(cells, dtype=np.uint64) >> shift)
    first = np.diff(cells, prepend=np.uint64(0)) != 1
    if cells.size:
        first[0] = True
    last = np.append(first[1:], True) if cells.size else first
    return Ranges(cells[first] << shift, (cells[last] + np.uint64(1)) << shift)


def _grid(boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which cells any box touches, by column and row; a box with west > east reaches across the antimeridian."""
    west, south, east, north = boxes.T
    across = west > east
    spans = [(west[~across], east[~across], ~across)]
    if across.any():
        spans += [(west[across], np.full(across.sum(), 180.0), across)]
        spans += [(np.full(across.sum(), -180.0), east[across], across)]
    # Each box adds one at its corner and takes it away behind its others: summed up, the boxes over every cell.
    marks = np.zeros((_SIDE + 1, _SIDE + 1), dtype=np.int64)
    for left, right, own in spans:
        a, b = _places(left, -1, 180.0), _places(right, 1, 180.0) + 1
        c, d = _places(south[own], -1, 90.0), _places(north[own], 1, 90.0) + 1
        for x, y, sign in ((a, c, 1), (b, c, -1), (a, d, -1), (b, d, 1)):
            np.add.at(marks, (x, y), sign)
    summed = marks.cumsum(axis=0).cumsum(axis=1)
    return np.asarray(summed[:_SIDE, :_SIDE] > 0)


def _places(degrees: NDArray[np.float64], side: int, half: float) -> NDArray[np.int64]:
    """The columns, or rows, that coordinates fall into when they are moved a little to one side."""
    share = (degrees + side * _MARGIN + half) / (2 * half)
    return np.clip((share * _SIDE).astype(np.int64), 0, _SIDE - 1)
