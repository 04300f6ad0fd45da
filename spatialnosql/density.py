"""How far around a place one must look for so many points, by the histogram.

Where there are points the cells in a small block around the place tell. Elsewhere the histogram is searched as a tree,
from its coarsest cells to its finest: at each level a radius that surely holds enough is known, and cells beyond it are
not looked into. So a place in the middle of the ocean takes little more than one in a city.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import ragged
from spatialnosql.geohash import BITS, Cells, cells_to_indices, spread
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.histogram import Histogram
from spatialnosql.sphere import Floats, distances_m

HALF_EARTH_M = math.pi * EARTH_RADIUS_M
_STEP = 6  # bits from one level of the tree to the next
_PLACES = 10_000  # places a degree, for which a radius is remembered
_MOST_REMEMBERED = 50_000
_COARSEST = 20  # blocks of cells up to 40 km
_FEW = 128  # so few cells are sooner gone through one by one


def enough(needed: int) -> float:
    """How many points a ring should hold in the mean, that `needed` are found: points come in clumps."""
    return needed + 2.0 * math.sqrt(needed) + 3.0


def radius_m(lng: float, lat: float, wanted: float, histogram: Histogram, *, beyond_m: float = 0.0) -> float:
    """The radius within which so many points are expected that are not nearer than `beyond_m`.

    Half around the Earth if there are not so many at all.
    """
    if beyond_m:
        return _radius(lng, lat, wanted, histogram, beyond_m)
    # Once for all places within some ten metres: it is a guess, and the next query is near by.
    radius = remembered_radius_m(lng, lat, wanted, histogram)
    if radius is None:
        radius = _local_radius(lng, lat, wanted, histogram) or _radius(lng, lat, wanted, histogram, 0.0)
        learn_radius(lng, lat, wanted, histogram, radius)
    return radius


def remembered_radius_m(lng: float, lat: float, wanted: float, histogram: Histogram) -> float | None:
    """The same if it was looked up or learnt before for this place."""
    return _leaves(histogram).radii.get(_place(lng, lat, wanted))


def learn_radius(lng: float, lat: float, wanted: float, histogram: Histogram, radius: float) -> None:
    """Remember for a place what it has taken, where that was far from what the histogram had led to expect."""
    radii = _leaves(histogram).radii
    if len(radii) >= _MOST_REMEMBERED:
        radii.clear()
    radii[_place(lng, lat, wanted)] = radius


def _place(lng: float, lat: float, wanted: float) -> tuple[int, int, int]:
    # What other conditions leave of the points makes a number that never comes again: within a tenth is near enough.
    return int((lng + 180.0) * _PLACES), int((lat + 90.0) * _PLACES), round(8 * math.log2(wanted))


def _radius(lng: float, lat: float, wanted: float, histogram: Histogram, beyond_m: float) -> float:
    levels = _levels(histogram)
    chosen = np.arange(len(levels[0].cells))
    for number, level in enumerate(levels):
        nearest, farthest = level.distances(lng, lat, chosen)
        # Points nearer than `beyond_m` do not count; a cell that holds some of them may hold no others.
        counts = np.where(nearest >= beyond_m, level.counts[chosen], 0)
        order = np.argsort(farthest)
        enough = int(np.searchsorted(np.cumsum(counts[order]), wanted))
        radius = float(farthest[order[enough]]) if enough < len(order) else HALF_EARTH_M
        if number == len(levels) - 1:
            return _expected_radius(nearest, farthest, level.counts[chosen], wanted, radius, beyond_m)
        inside = chosen[(nearest <= radius) & (farthest >= beyond_m)]
        chosen = ragged(level.first_child[inside], level.first_child[inside + 1] - level.first_child[inside])
    return HALF_EARTH_M


def _local_radius(lng: float, lat: float, wanted: float, histogram: Histogram) -> float | None:
    """The same by the cells in a block around the place, as small a block as will do; None where that is too large.

    Plain Python up to some hundred cells: numpy would take most of a millisecond to begin so many times.
    """
    x, y = int((lng + 180.0) * (2**30 / 360.0)), int((lat + 90.0) * (2**30 / 180.0))
    finest = 30 - histogram.bits // 2
    metres_lat = HALF_EARTH_M / 180.0
    metres_lng = metres_lat * max(math.cos(math.radians(lat)), 1e-9)
    before = histogram.points_before_one
    for shift in range(finest, max(finest, _COARSEST) + 1):
        column, row, end = x >> shift, y >> shift, (1 << (30 - shift)) - 1
        if not (0 < column < end and 0 < row < end):
            return None  # at a pole, or the antimeridian
        columns = [spread(at) << 1 for at in (column - 1, column, column + 1)]
        rows = [spread(at) for at in (row - 1, row, row + 1)]
        blocks = [
            ((across | up) << 2 * shift, (across | up) + 1 << 2 * shift) for up in rows for across in columns
        ]
        held = sum([before(hi) - before(lo) for lo, hi in blocks])
        if held < wanted:
            continue
        size = 1 << shift
        inside = (x % size + size, 2 * size - x % size, y % size + size, 2 * size - y % size)
        column_m, row_m = metres_lng * 360.0 / 2**30, metres_lat * 180.0 / 2**30
        to_side = min(min(inside[:2]) * column_m, min(inside[2:]) * row_m)
        radius = _leaves(histogram).radius_of(blocks, lng, lat, metres_lng, metres_lat, wanted)
        if radius is not None and radius <= to_side:
            # In a cell with many points the nearest ones are much nearer than half of them.
            even = math.sqrt(wanted / held * 9 * size * size * column_m * row_m / math.pi)
            return min(max(radius, even), to_side)
    return None


def _expected_radius(
    nearest: Floats,
    farthest: Floats,
    counts: NDArray[np.int64],
    wanted: float,
    certain: float,
    beyond_m: float,
) -> float:
    """The radius that should hold enough if the points of each cell are spread evenly; no more than the certain one."""
    low, high = beyond_m, certain
    span = np.maximum(farthest - nearest, 1e-9)

    def expected(radius: float) -> float:
        return float((counts * np.clip((radius - nearest) / span, 0.0, 1.0)).sum())

    base = expected(beyond_m) if beyond_m else 0.0
    for _ in range(16):
        middle = (low + high) / 2
        if expected(middle) - base >= wanted:
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class _Level:
    """The cells of one precision that hold points: where each lies, its points, its first child in the next level."""

    bits: int
    cells: Cells
    counts: NDArray[np.int64]
    lng: Floats
    lat: Floats
    reach_m: Floats  # from the centre to the farthest corner, at most
    first_child: NDArray[np.intp]
    radii: dict[tuple[int, int, int], float] = field(default_factory=dict)  # of places asked for before

    def radius_of(
        self,
        blocks: list[tuple[int, int]],
        lng: float,
        lat: float,
        metres_lng: float,
        metres_lat: float,
        wanted: float,
    ) -> float | None:
        """The radius that holds so many points of the cells in some blocks, on a flat map; None if they are fewer.

        The points of a cell are taken to lie half nearer and half farther than its middle.
        """
        below = BITS - self.bits
        cells, counts, lngs, lats, reaches = self._views
        spans = [
            (bisect_left(cells, lo >> below), bisect_right(cells, (hi - 1) >> below)) for lo, hi in blocks
        ]
        total = 0.0
        if sum([last - first for first, last in spans]) <= _FEW:
            ends: list[tuple[float, float]] = []
            for first, last in spans:
                for at in range(first, last):
                    away = math.hypot((lngs[at] - lng) * metres_lng, (lats[at] - lat) * metres_lat)
                    half, apart = counts[at] / 2, reaches[at] / 2
                    ends.append((max(away - apart, 0.0), half))
                    ends.append((away + apart, half))
            ends.sort()
            for distance, half in ends:
                total += half
                if total >= wanted:
                    return distance
            return None
        chosen = np.concatenate([np.arange(first, last) for first, last in spans])
        away_m = np.hypot((self.lng[chosen] - lng) * metres_lng, (self.lat[chosen] - lat) * metres_lat)
        apart_m = self.reach_m[chosen] / 2
        distances = np.concatenate([np.maximum(away_m - apart_m, 0.0), away_m + apart_m])
        order = np.argsort(distances)
        enough = int(np.searchsorted(np.cumsum(np.tile(self.counts[chosen] / 2, 2)[order]), wanted))
        return float(distances[order[enough]]) if enough < len(order) else None

    @cached_property
    def _views(self) -> tuple[memoryview[Any], ...]:
        """The same columns for reading a few numbers."""
        columns: tuple[Any, ...] = (self.cells, self.counts, self.lng, self.lat, self.reach_m)
        return tuple([memoryview(column) for column in columns])

    def distances(self, lng: float, lat: float, chosen: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Bounds of the distance from a place to the points of cells."""
        centre = distances_m(lng, lat, self.lng[chosen], self.lat[chosen])
        reach = self.reach_m[chosen]
        return np.maximum(centre - reach, 0.0), centre + reach


@functools.lru_cache(maxsize=8)
def _leaves(histogram: Histogram) -> _Level:
    """The cells of a histogram itself."""
    return _level(histogram, None)


@functools.lru_cache(maxsize=8)
def _levels(histogram: Histogram) -> list[_Level]:
    precisions = sorted({histogram.bits, *range(histogram.bits, 0, -_STEP)})
    histograms = [histogram.coarsened(bits) for bits in precisions[:-1]]
    finer = [*histograms[1:], histogram]
    return [*map(_level, histograms, finer), _leaves(histogram)]


def _level(histogram: Histogram, finer: Histogram | None) -> _Level:
    west, height = cells_to_indices(histogram.cells << np.uint64(BITS - histogram.bits))
    width_deg, height_deg = 360.0 / 2 ** ((histogram.bits + 1) // 2), 180.0 / 2 ** (histogram.bits // 2)
    lng = west * (360.0 / 2**30) - 180.0 + width_deg / 2
    lat = height * (180.0 / 2**30) - 90.0 + height_deg / 2
    # The half diagonal, with the width where the cell is widest.
    widest = np.cos(np.radians(np.maximum(np.abs(lat) - height_deg / 2, 0.0)))
    reach = np.hypot(width_deg / 2 * widest, height_deg / 2) * (HALF_EARTH_M / 180.0)
    children = np.zeros(len(histogram.cells) + 1, dtype=np.intp)
    if finer is not None:
        parents = finer.cells >> np.uint64(finer.bits - histogram.bits)
        children[:-1] = np.searchsorted(parents, histogram.cells)
        children[-1] = len(finer.cells)
    return _Level(histogram.bits, histogram.cells, histogram.counts, lng, lat, reach, children)
