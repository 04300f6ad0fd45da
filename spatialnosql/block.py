"""A small circle as a block of a few cells: what a cover would be, made in a tenth of the time.

The block holds more than the circle. So the circle may as well grow until it touches the block's nearest side: that
radius comes back with it.
"""

from __future__ import annotations

import math

import numpy as np

from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS, cells_to_ranges, indices_to_cells, merge_ranges
from spatialnosql.geometry import EARTH_RADIUS_M

MOST_CELLS = 8
_MARGIN_M = 1e-3  # a point nearer than this to a side may be on either side of it


def block_around(lng: float, lat: float, radius_m: float) -> tuple[Ranges, float] | None:
    """The ranges of a block around a circle, and the radius that surely fits into it.

    None for large circles, at the poles and across the antimeridian, where a block is no good.
    """
    height = math.degrees(radius_m / EARTH_RADIUS_M)
    if not 0 < height < 1 or abs(lat) + height > 85:
        return None
    width = height / math.cos(math.radians(abs(lat) + height))
    west, east = lng + 180.0 - width, lng + 180.0 + width
    if west <= 0 or east >= 360:
        return None
    south, north = lat + 90.0 - height, lat + 90.0 + height
    # The finest precision at which few cells hold the circle; a side of it spans at most 4 cells.
    bits = min(BITS, 2 * int(math.log2(360.0 / width)) + 3)
    while True:
        per_lng, per_lat = 2 ** ((bits + 1) // 2) / 360.0, 2 ** (bits // 2) / 180.0
        x0, x1 = int(west * per_lng), int(east * per_lng)
        y0, y1 = int(south * per_lat), int(north * per_lat)
        if (x1 - x0 + 1) * (y1 - y0 + 1) <= MOST_CELLS:
            break
        bits -= 1
    x, y = np.meshgrid(np.arange(x0, x1 + 1), np.arange(y0, y1 + 1))
    lo, hi = cells_to_ranges(indices_to_cells(x.ravel(), y.ravel(), bits), bits)
    fits_deg = min(lat + 90.0 - y0 / per_lat, (y1 + 1) / per_lat - 90.0 - lat)
    aside = math.radians(min(lng + 180.0 - x0 / per_lng, (x1 + 1) / per_lng - 180.0 - lng))
    fits = min(math.radians(fits_deg), math.asin(math.cos(math.radians(lat)) * math.sin(aside)))
    return Ranges(*merge_ranges(lo, hi)), fits * EARTH_RADIUS_M - _MARGIN_M
