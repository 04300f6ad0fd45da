"""A small circle as a block of a few cells: what a cover would be, made in a fiftieth of the time.

Cells of the block that the circle does not touch are left out. The rest holds more than the circle; so the circle may
as well grow until it touches the block's nearest side, or a cell that was left out: that radius comes back with it.

Plain Python, a number at a time: for so few cells that is sooner done than numpy is called.
"""

from __future__ import annotations

import functools
import math

from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS, spread
from spatialnosql.geometry import EARTH_RADIUS_M

_POLAR_DEG = 85.0  # nearer to a pole than this, a small circle may have every longitude
_MARGIN_M = 1e-3  # a point nearer than this to a side may be on either side of it


@functools.lru_cache(maxsize=64)  # a query asks twice: whether its circle holds much, and for its ranges
def block_around(lng: float, lat: float, radius_m: float, most_cells: int) -> tuple[Ranges, float] | None:
    """The ranges of a block of at most so many cells around a circle, and the radius that surely fits into it.

    None for large circles, for which a block is no good.
    """
    height = math.degrees(radius_m / EARTH_RADIUS_M)
    if not 0 < height < 1:
        return None
    if abs(lat) + height > _POLAR_DEG:
        return _polar_block(lat, height, most_cells)
    width = height / math.cos(math.radians(abs(lat) + height))
    # Below 0 or beyond 360 across the antimeridian; a hair to the west, that longitude 180 be there beside -180.
    west, east = lng + 180.0 - width - 1e-9, lng + 180.0 + width
    south, north = lat + 90.0 - height, lat + 90.0 + height
    # The finest precision at which few cells hold the circle.
    bits = min(BITS, 2 * int(math.log2(360.0 / width)) + int(math.log2(most_cells)))
    while True:
        cell_lng, cell_lat = 360.0 / 2 ** ((bits + 1) // 2), 180.0 / 2 ** (bits // 2)
        x0, x1 = math.floor(west / cell_lng), math.floor(east / cell_lng)
        y0, y1 = int(south / cell_lat), int(north / cell_lat)
        if (x1 - x0 + 1) * (y1 - y0 + 1) <= most_cells:
            break
        bits -= 1
    cos_lat = math.cos(math.radians(lat))
    most = math.sin((radius_m + _MARGIN_M) / EARTH_RADIUS_M / 2) ** 2
    aside = math.radians(min(lng + 180.0 - x0 * cell_lng, (x1 + 1) * cell_lng - 180.0 - lng))
    above = math.radians(min(lat + 90.0 - y0 * cell_lat, (y1 + 1) * cell_lat - 90.0 - lat))
    surely = min(above, math.asin(cos_lat * math.sin(aside)))
    around = (1 << ((bits + 1) // 2)) - 1
    columns = [
        (spread(x & around), math.sin(_away(x * cell_lng - 180.0, cell_lng, lng) / 2) ** 2)
        for x in range(x0, x1 + 1)
    ]
    cells = []
    for y in range(y0, y1 + 1):
        begin = y * cell_lat - 90.0
        up = math.sin(_away(begin, cell_lat, lat) / 2) ** 2
        across = cos_lat * math.cos(math.radians(max(abs(begin), abs(begin + cell_lat))))
        row = spread(y)
        for column, along in columns:
            haversine = up + across * along  # of the nearest that the cell can be
            if haversine <= most:
                cells.append(column << 1 | row if bits % 2 == 0 else row << 1 | column)
            else:
                surely = min(surely, 2 * math.asin(math.sqrt(haversine)))
    return ranges_of_cells(cells, bits), surely * EARTH_RADIUS_M - _MARGIN_M


def _polar_block(lat: float, height: float, most_cells: int) -> tuple[Ranges, float]:
    """All cells between a parallel and the pole: as small a block as so many cells can be."""
    low = abs(lat) - height
    bits = int(math.log2(most_cells)) + 3
    while True:
        columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
        first = int((low + 90.0) * rows / 180.0)  # counted from the other pole
        if columns * (rows - first) <= most_cells or not bits:
            break
        bits -= 1
    chosen = range(first, rows) if lat > 0 else range(rows - first)
    across, up = (1, 0) if bits % 2 == 0 else (0, 1)
    cells = [spread(x) << across | spread(y) << up for y in chosen for x in range(columns)]
    surely = math.radians(abs(lat) - (first * 180.0 / rows - 90.0))
    return ranges_of_cells(cells, bits), surely * EARTH_RADIUS_M - _MARGIN_M


def _away(begin: float, size: float, at: float) -> float:
    """How far a place is from an interval, in radians; 0 within."""
    return math.radians(max(begin - at, at - (begin + size), 0.0))


def ranges_of_cells(cells: list[int], bits: int) -> Ranges:
    """The ranges of cells of one precision, which are sorted here; neighbours are one range."""
    cells.sort()
    lo, hi = [], []
    end = -1
    for cell in cells:
        if cell != end:
            lo.append(cell)
            hi.append(cell)
        end = cell + 1
        hi[-1] = end
    shift = BITS - bits
    return Ranges([cell << shift for cell in lo], [cell << shift for cell in hi])
