"""Polygons as small pictures: which parts of a polygon's box lie certainly in it, certainly outside, or on its border.

The exact test of a polygon takes a call for each; a picture of 32 x 32 decides most points by one look, in the loop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.region import BOUNDARY, Region
from spatialnosql.subscriptions.compiled import compiled

SIDE = 32
UNDECIDED = BOUNDARY


def raster_of(region: Region, bounds: tuple[float, float, float, float]) -> NDArray[np.uint8]:
    """The status (OUT, BOUNDARY, IN) of each of 32 x 32 equal parts of a box, row by row from its south-west corner.

    West > east is a box across the antimeridian; the column that holds it is left undecided.
    """
    west, south, east, north = bounds
    width = east - west + (360.0 if west > east else 0.0)
    lngs = west + np.arange(SIDE + 1) * (width / SIDE)
    lats = np.clip(south + np.arange(SIDE + 1) * ((north - south) / SIDE), -90.0, 90.0)
    across = (lngs[:-1] < 180.0) & (lngs[1:] > 180.0)
    beyond = lngs[:-1] >= 180.0
    lefts = np.clip(np.where(beyond, lngs[:-1] - 360.0, lngs[:-1]), -180.0, 180.0)
    rights = np.clip(np.where(beyond, lngs[1:] - 360.0, lngs[1:]), -180.0, 180.0)
    boxes = np.stack(
        [
            np.tile(lefts, SIDE),
            np.repeat(lats[:-1], SIDE),
            np.tile(rights, SIDE),
            np.repeat(lats[1:], SIDE),
        ],
        axis=1,
    )
    status = region.refine(boxes)[0].astype(np.uint8)
    status[np.tile(across, SIDE)] = UNDECIDED
    return status


@compiled
def look(lng: float, lat: float, bounds: NDArray[np.float64], rasters: NDArray[np.uint8], row: int) -> int:
    """What a picture says of a place: OUT, UNDECIDED or IN; nothing of what is not in its box."""
    west, south = bounds[0], bounds[1]
    width, height = bounds[2] - west, bounds[3] - south
    turn = lng - west
    if width < 0.0:
        width += 360.0
        if turn < 0.0:
            turn += 360.0
    if not (0.0 <= turn < width and 0.0 <= lat - south < height):
        return UNDECIDED
    column = min(int(turn / width * SIDE), SIDE - 1)
    line = min(int((lat - south) / height * SIDE), SIDE - 1)
    return int(rasters[row, line * SIDE + column])
