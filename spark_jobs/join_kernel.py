"""Points against a grid of polygons (`join_grid`): certainly in which, and of which polygons too near a border to say.

Sent to workers as it is: numpy only.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark import cloudpickle

from spark_jobs.join_grid import Arrays
from spatialnosql.edges import Bools, Floats, Ints, ragged

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

WEST, SOUTH, PER_X, PER_Y, COLUMNS, ROWS, START = range(7)


class Found(NamedTuple):
    """Pairs of a point and a polygon whose border is near it."""

    point: Ints
    polygon: Ints
    inside: Bools
    unsure: Bools  # within the tolerance of the border; `inside` is then by the sign alone


def codes_of(grid: Arrays, lng: Floats, lat: Floats) -> NDArray[np.int32]:
    """For each point the class of its box; below 0, -1 less the number of a border box."""
    frames, codes = grid["frames"], grid["codes"]
    west, south, per_x, per_y, columns, rows, _ = frames[:, 0].tolist()
    x, y = lng - west, lat - south
    x *= per_x
    y *= per_y
    inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
    outside = not inside.all()  # what is no number is outside, too
    if outside:
        x, y = np.where(inside, x, 0.0), np.where(inside, y, 0.0)
    place = x.astype(np.int32)
    place *= np.int32(rows)
    place += y.astype(np.int32)
    found: NDArray[np.int32] = codes.take(place)
    if outside:
        found *= inside
    if frames.shape[1] > 1:
        _descend(grid, lng, lat, found)
    return found


def _descend(grid: Arrays, lng: Floats, lat: Floats, found: NDArray[np.int32]) -> None:
    """Look points of boxes that are grids up in those."""
    frames, codes = grid["frames"], grid["codes"]
    borders = grid["border_class"].size
    which = np.flatnonzero(found < -borders)
    while which.size:
        frame = frames[:, -1 - borders - found[which].astype(np.intp)]
        # Rounding may put a point at the side of a box just beyond it.
        x = np.clip((lng[which] - frame[WEST]) * frame[PER_X], 0, frame[COLUMNS] - 1).astype(np.intp)
        y = np.clip((lat[which] - frame[SOUTH]) * frame[PER_Y], 0, frame[ROWS] - 1).astype(np.intp)
        found[which] = codes[frame[START].astype(np.intp) + x * frame[ROWS].astype(np.intp) + y]
        which = which[found[which] < -borders]


def members_of(grid: Arrays, classes: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """The polygons of classes, one after the other: the position in `classes`, and the polygon."""
    starts = grid["class_starts"]
    first = starts[classes]
    counts = starts[classes + 1] - first
    return np.repeat(np.arange(classes.size), counts), grid["class_members"][ragged(first, counts)]


def near_borders(grid: Arrays, border: Ints, lng: Floats, lat: Floats, tolerance_rad: float) -> Found:
    """The pairs of points, given with their border boxes, and the polygons whose borders pass there."""
    first = grid["border_starts"][border]
    counts = grid["border_starts"][border + 1] - first
    point, spot = np.repeat(np.arange(border.size), counts), ragged(first, counts)
    first = grid["spot_starts"][spot]
    counts = grid["spot_starts"][spot + 1] - first
    pair, edge = np.repeat(np.arange(spot.size), counts), grid["spot_edges"][ragged(first, counts)]
    lo, hi, lo_near, hi_near, south, north, c0, c1, c2, sign = grid["edges"].take(edge, axis=1)
    # The very formulas of `spatialnosql.edges`, so that rounding is the same.
    angle_x, angle_y = np.radians(lng), np.radians(lat)
    flat = np.cos(angle_y)
    p0, p1, p2 = flat * np.cos(angle_x), flat * np.sin(angle_x), np.sin(angle_y)
    at = point[pair]
    x, y = lng[at], lat[at]
    offset = c0 * p0[at] + c1 * p1[at] + c2 * p2[at]
    crossed = ((y < south) | ((offset < 0) & (y <= north))) & (lo <= x) & (x < hi)
    degrees = float(np.degrees(tolerance_rad))
    close = (np.abs(offset) <= tolerance_rad) & (y >= south - degrees) & (y <= north + degrees)
    close &= (lo_near <= x) & (x <= hi_near)
    total = np.bincount(pair, weights=np.where(crossed, sign, 0.0), minlength=spot.size)
    unsure = np.zeros(spot.size, dtype=np.bool_)
    unsure[pair[close]] = True
    inside = np.rint(total).astype(np.intp) + grid["spot_base"][spot] > 0
    return Found(point, grid["spot_polygon"][spot], inside, unsure)
