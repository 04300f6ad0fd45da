"""Polygons as cells that surely hold them, before they are read: a cover for a quick look.

For each row of a small grid the cells from the westernmost to the easternmost place where an edge reaches into it.
Whoever goes from a place inside along its parallel meets an edge on both sides, so nothing inside lies beyond. Nothing
is checked: of rings that are no rings the outline means nothing, and whoever reads them says so.

Plain Python, a number at a time: up to some hundred vertices that is sooner done than numpy is called. Of many vertices
it would take more than half of what it takes to read the shape, so they have no outline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spatialnosql.block import ranges_of_cells
from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS, spread

_MARGIN_DEG = 1e-5  # more than the tolerance of any border, at any latitude that is taken
_MOST_VERTICES = 2_000
_WIDEST_DEG, _HIGHEST_DEG = 90.0, 80.0  # beyond, around the antimeridian or a pole, corners say nothing


@dataclass(frozen=True)
class Outline:
    """Ranges that hold polygons, and which share of them (0 to 1, by area) the polygons fill, more or less."""

    ranges: Ranges
    filled: float
    vertices: int


def outline_of(polygons: Any, most_cells: int) -> Outline | None:
    """The outline, of at most so many cells, of polygons given as GeoJSON has the coordinates of a MultiPolygon.

    None where corners say nothing, where there are too many, or for what are no coordinates.
    """
    try:
        vertices = sum([len(ring) for polygon in polygons for ring in polygon])
        if vertices > _MOST_VERTICES:
            return None
        shells = [([p[0] for p in polygon[0]], [p[1] for p in polygon[0]]) for polygon in polygons]
        return _outline(shells, vertices, most_cells)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None


def _outline(
    shells: Sequence[tuple[Sequence[float], Sequence[float]]], vertices: int, most_cells: int
) -> Outline | None:
    west, east = min([min(lngs) for lngs, _ in shells]), max([max(lngs) for lngs, _ in shells])
    south, north = min([min(lats) for _, lats in shells]), max([max(lats) for _, lats in shells])
    if not (west >= _MARGIN_DEG - 180.0 and east <= 180.0 - _MARGIN_DEG and east - west < _WIDEST_DEG):
        return None  # also of a shape that ends at the antimeridian: its border may be on the other side
    if not (south > -_HIGHEST_DEG and north < _HIGHEST_DEG):
        return None
    rise = _MARGIN_DEG + _most_rise(east - west)
    bits = _finest(east - west + 2 * _MARGIN_DEG, north - south + 2 * rise, most_cells)
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    # Rounded as the rows of edges are.
    bottom, top = (
        int((lat + to_end) * (rows / 180.0)) for lat, to_end in ((south, 90.0 - rise), (north, 90.0 + rise))
    )
    begin, end = [columns] * (top + 1 - bottom), [-1] * (top + 1 - bottom)
    area = 0.0
    for lngs, lats in shells:
        area += abs(_widen(begin, end, lngs, lats, columns / 360.0, rows / 180.0, bottom, rise))
    cells = _cells(begin, [min(x, columns - 1) for x in end], bottom, bits)
    return Outline(
        ranges_of_cells(cells, bits), min(area * columns * rows / (len(cells) * 64_800.0), 1.0), vertices
    )


def _widen(
    begin: list[int],
    end: list[int],
    lngs: Sequence[float],
    lats: Sequence[float],
    per_lng: float,
    per_lat: float,
    bottom: int,
    rise: float,
) -> float:
    """Widen the rows to the boxes of the edges of a shell; its area in square degrees, by the shoelace formula."""
    before_lng, before_lat = lngs[0], lats[0]
    lng_0, lat_0, area = before_lng, before_lat, 0.0
    to_west, to_east = 180.0 - _MARGIN_DEG, 180.0 + _MARGIN_DEG
    to_south, to_north = 90.0 - rise, 90.0 + rise
    for lng, lat in zip(lngs, lats, strict=True):
        if lng < before_lng:
            first, last = int((lng + to_west) * per_lng), int((before_lng + to_east) * per_lng)
        else:
            first, last = int((before_lng + to_west) * per_lng), int((lng + to_east) * per_lng)
        if lat < before_lat:
            low, high = int((lat + to_south) * per_lat), int((before_lat + to_north) * per_lat)
        else:
            low, high = int((before_lat + to_south) * per_lat), int((lat + to_north) * per_lat)
        for row in range(low - bottom, high - bottom + 1):
            if first < begin[row]:
                begin[row] = first
            if last > end[row]:
                end[row] = last
        area += (before_lng - lng_0) * (lat - lat_0) - (lng - lng_0) * (before_lat - lat_0)
        before_lng, before_lat = lng, lat
    return area / 2


def _cells(begin: list[int], end: list[int], bottom: int, bits: int) -> list[int]:
    """The cells from `begin` to `end` of each row, the lowest row first."""
    # The first bit of a cell is its column's; if their number is odd, so is the last.
    across, up = (1, 0) if bits % 2 == 0 else (0, 1)
    west = min(begin)
    column = [spread(x) << across for x in range(west, max(end) + 1)]
    return [
        spread(y) << up | x
        for y, (x0, x1) in enumerate(zip(begin, end, strict=True), bottom)
        for x in column[x0 - west : max(x1 + 1 - west, 0)]
    ]


def _most_rise(span_deg: float) -> float:
    """How many degrees a great circle may rise above the higher of its ends, which are so far apart in longitude.

    Between ends of one latitude ``tan(top) = tan(lat) / cos(span / 2)``, and lower ends make it lower; `top - lat` is
    greatest where ``tan(lat) = sqrt(cos(span / 2))``.
    """
    root = math.sqrt(math.cos(math.radians(span_deg) / 2))
    return math.degrees(math.atan(1 / root) - math.atan(root))


def _finest(width: float, height: float, most_cells: int) -> int:
    """The finest precision at which so many cells surely hold a box, wherever it lies."""
    bits = min(BITS, int(math.log2(most_cells * 64_800.0 / (width * height))) + 1)
    while (
        bits
        and (width * 2 ** ((bits + 1) // 2) / 360 + 2) * (height * 2 ** (bits // 2) / 180 + 2) > most_cells
    ):
        bits -= 1
    return bits
