"""How far around a place one must look for so many points, by the histogram.

Where points are dense the nine finest cells around the place tell. Elsewhere the histogram is searched as a tree, from
its coarsest cells to its finest: at each level a radius that surely holds enough is known, and cells beyond it are not
looked into. So a place in the middle of the ocean takes as little as one in a city.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import ragged
from spatialnosql.geohash import (
    BITS,
    Cells,
    cells_to_indices,
    cells_to_ranges,
    indices_to_cells,
    points_to_cells,
)
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.histogram import Histogram
from spatialnosql.sphere import Floats, distances_m

HALF_EARTH_M = math.pi * EARTH_RADIUS_M
_STEP = 6  # bits from one level of the tree to the next
_DENSE = 4.0  # the nine cells hold so many times the points wanted: the circle lies well within them


def radius_m(lng: float, lat: float, wanted: float, histogram: Histogram, *, beyond_m: float = 0.0) -> float:
    """The radius within which so many points are expected that are not nearer than `beyond_m`.

    Half around the Earth if there are not so many at all.
    """
    if not beyond_m:
        radius = _dense_radius(lng, lat, wanted, histogram)
        if radius is not None:
            return radius
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


def _dense_radius(lng: float, lat: float, wanted: float, histogram: Histogram) -> float | None:
    bits = histogram.bits - histogram.bits % 2
    side = 1 << (bits // 2)
    place = points_to_cells([lng], [lat]) >> np.uint64(BITS - bits)
    x, y = (int(part[0]) for part in cells_to_indices(place << np.uint64(BITS - bits)))
    x, y = x >> (30 - bits // 2), y >> (30 - bits // 2)
    columns = np.arange(x - 1, x + 2) % side
    rows = np.arange(max(y - 1, 0), min(y + 2, side))
    across, up = np.meshgrid(columns, rows)
    block = indices_to_cells(across.ravel(), up.ravel(), bits)
    count = float(histogram.points_in(*cells_to_ranges(block, bits)).sum())
    if count < _DENSE * wanted:
        return None
    height = HALF_EARTH_M / side
    width = 2 * height * max(math.cos(math.radians(lat)), 1e-9)
    radius = math.sqrt(wanted * len(block) * width * height / (math.pi * count))
    return radius if radius < min(width, height) else None


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

    cells: Cells
    counts: NDArray[np.int64]
    lng: Floats
    lat: Floats
    reach_m: Floats  # from the centre to the farthest corner, at most
    first_child: NDArray[np.intp]

    def distances(self, lng: float, lat: float, chosen: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Bounds of the distance from a place to the points of cells."""
        centre = distances_m(lng, lat, self.lng[chosen], self.lat[chosen])
        reach = self.reach_m[chosen]
        return np.maximum(centre - reach, 0.0), centre + reach


@functools.lru_cache(maxsize=8)
def _levels(histogram: Histogram) -> list[_Level]:
    precisions = sorted({histogram.bits, *range(histogram.bits, 0, -_STEP)})
    histograms = [histogram.coarsened(bits) for bits in precisions]
    levels = []
    for number, one in enumerate(histograms):
        west, height = cells_to_indices(one.cells << np.uint64(BITS - one.bits))
        width_deg, height_deg = 360.0 / 2 ** ((one.bits + 1) // 2), 180.0 / 2 ** (one.bits // 2)
        lng = west * (360.0 / 2**30) - 180.0 + width_deg / 2
        lat = height * (180.0 / 2**30) - 90.0 + height_deg / 2
        # The half diagonal, with the width where the cell is widest.
        widest = np.cos(np.radians(np.maximum(np.abs(lat) - height_deg / 2, 0.0)))
        reach = np.hypot(width_deg / 2 * widest, height_deg / 2) * (HALF_EARTH_M / 180.0)
        children = np.zeros(len(one.cells) + 1, dtype=np.intp)
        if number + 1 < len(histograms):
            finer = histograms[number + 1]
            parents = finer.cells >> np.uint64(finer.bits - one.bits)
            children[:-1] = np.searchsorted(parents, one.cells)
            children[-1] = len(finer.cells)
        levels.append(_Level(one.cells, one.counts, lng, lat, reach, children))
    return levels
