"""What part of the Earth a map shows, how it is stretched there, and the points as cells few enough to draw.

Maps are plain longitude and latitude. A degree of longitude is ``cos(latitude)`` as long as one of latitude, so a map
of a city is stretched by ``1 / cos`` of its middle; a map of the world is not, for there is no one middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.geohash import BITS, cells_to_bounds, cells_to_indices
from spatialnosql.histogram import Histogram
from spatialnosql.report.model import Chunk

CORE = 0.998
"""A map shows at least this share of the points; strays that would make it much larger are left out, and told of."""
STRAYS_WIDEN = 1.6
MOST_CELLS = 22_000
"""Cells of a map, empty ones included: some 60 kB of the page, however many points there are."""
WIDE_DEG = 60.0
_LEAST_DEG = 0.004
_PADDING = 0.04


@dataclass(frozen=True)
class View:
    """West, south, east and north of a map, in degrees."""

    west: float
    south: float
    east: float
    north: float

    @property
    def width(self) -> float:
        """In degrees."""
        return self.east - self.west

    @property
    def height(self) -> float:
        """In degrees."""
        return self.north - self.south

    @property
    def stretch(self) -> float:
        """How much longer a degree of latitude is drawn than one of longitude."""
        if self.height > WIDE_DEG:
            return 1.0
        middle = min(abs(self.south + self.north) / 2, 85.0)
        return 1.0 / math.cos(math.radians(middle))

    @property
    def ratio(self) -> float:
        """Height over width on the screen."""
        return self.height * self.stretch / self.width

    def grown(self, share: float) -> View:
        """With a margin of such a share of its size, within the world."""
        dx, dy = self.width * share, self.height * share
        return View(
            max(self.west - dx, -180.0),
            max(self.south - dy, -90.0),
            min(self.east + dx, 180.0),
            min(self.north + dy, 90.0),
        )

    def fitted(self, flattest: float, steepest: float) -> View:
        """Wider or higher, so that the ratio lies between these, as far as the world allows."""
        x, y = (self.west + self.east) / 2, (self.south + self.north) / 2
        if self.ratio > steepest:
            half = self.height * self.stretch / steepest / 2
            return View(max(x - half, -180.0), self.south, min(x + half, 180.0), self.north)
        if self.ratio < flattest:
            half = self.width * flattest / self.stretch / 2
            return View(self.west, max(y - half, -90.0), self.east, min(y + half, 90.0))
        return self

    def joined(self, other: View) -> View:
        """The least view that shows both."""
        return View(
            min(self.west, other.west),
            min(self.south, other.south),
            max(self.east, other.east),
            max(self.north, other.north),
        )


WORLD = View(-180.0, -90.0, 180.0, 90.0)


def view_of(histogram: Histogram) -> View:
    """The view of all points; or of nearly all, where a few strays would make the rest a dot."""
    if not len(histogram.cells):
        return WORLD
    west, south, east, north = cells_to_bounds(histogram.cells, histogram.bits)
    whole = View(float(west.min()), float(south.min()), float(east.max()), float(north.max()))
    west_core, east_core = _core(west, east, histogram.counts)
    south_core, north_core = _core(south, north, histogram.counts)
    core = View(west_core, south_core, east_core, north_core)
    near = whole.width <= STRAYS_WIDEN * core.width and whole.height <= STRAYS_WIDEN * core.height
    return _padded(whole if near else core)


def _core(
    low: NDArray[np.float64], high: NDArray[np.float64], counts: NDArray[np.int64]
) -> tuple[float, float]:
    order = np.argsort(low)
    sums = np.cumsum(counts[order])
    edges = np.array([(1 - CORE) / 2, 1 - (1 - CORE) / 2]) * sums[-1]
    first, last = np.minimum(np.searchsorted(sums, edges), low.size - 1)
    return float(low[order[first]]), float(high[order[last]])


def view_around(rings: Sequence[NDArray[np.float64]], boxes: Sequence[View] = ()) -> View | None:
    """The view of shapes and boxes; None if there is nothing to see."""
    views = [
        View(float(r[:, 0].min()), float(r[:, 1].min()), float(r[:, 0].max()), float(r[:, 1].max()))
        for r in rings
        if len(r)
    ]
    views += boxes
    if not views:
        return None
    found = views[0]
    for one in views[1:]:
        found = found.joined(one)
    return _padded(found)


def _padded(view: View) -> View:
    wide, high = max(view.width, _LEAST_DEG), max(view.height, _LEAST_DEG)
    x, y = (view.west + view.east) / 2, (view.south + view.north) / 2
    return View(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2).grown(_PADDING)


@dataclass(frozen=True)
class Raster:
    """Points of a view by cell: row 0 is the southernmost. `owner` is the place of a shard in a list, -1 for none."""

    bits: int
    lng: NDArray[np.float64]  # of the middles of columns
    lat: NDArray[np.float64]  # of the middles of rows
    counts: NDArray[np.int64]
    owner: NDArray[np.int64]
    outside: int  # points that are not in the view

    @property
    def cell_deg(self) -> tuple[float, float]:
        """Width and height of a cell."""
        return 360.0 / 2 ** ((self.bits + 1) // 2), 180.0 / 2 ** (self.bits // 2)

    @property
    def occupied(self) -> int:
        """Cells with points."""
        return int((self.counts > 0).sum())


def raster_of(
    histogram: Histogram,
    view: View,
    chunks: Sequence[Chunk] = (),
    shards: Sequence[str] = (),
    most_cells: int = MOST_CELLS,
) -> Raster:
    """The points of a view, at the finest precision of which no more than so many cells fit into it."""
    bits = histogram.bits
    while bits > 1 and _cells_across(view, bits) > most_cells:
        bits -= 1
    x, y = (axis.astype(np.int64) for axis in cells_to_indices(histogram.cells, histogram.bits))
    x >>= (histogram.bits + 1) // 2 - (bits + 1) // 2
    y >>= histogram.bits // 2 - bits // 2
    width, height = 360.0 / 2 ** ((bits + 1) // 2), 180.0 / 2 ** (bits // 2)
    x0, y0 = math.floor((view.west + 180.0) / width), math.floor((view.south + 90.0) / height)
    x1 = max(math.ceil((view.east + 180.0) / width), x0 + 1)
    y1 = max(math.ceil((view.north + 90.0) / height), y0 + 1)
    inside = (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
    columns, rows = x1 - x0, y1 - y0
    place = (y[inside] - y0) * columns + (x[inside] - x0)
    counts = np.bincount(place, weights=histogram.counts[inside], minlength=rows * columns).astype(np.int64)
    owner = _owners(histogram, inside, place, rows * columns, chunks, shards)
    return Raster(
        bits,
        -180.0 + (np.arange(x0, x1) + 0.5) * width,
        -90.0 + (np.arange(y0, y1) + 0.5) * height,
        counts.reshape(rows, columns),
        owner.reshape(rows, columns),
        int(histogram.counts[~inside].sum()),
    )


def _cells_across(view: View, bits: int) -> float:
    columns = math.ceil(view.width / 360.0 * 2.0 ** ((bits + 1) // 2)) + 1
    rows = math.ceil(view.height / 180.0 * 2.0 ** (bits // 2)) + 1
    return columns * rows


def _owners(
    histogram: Histogram,
    inside: NDArray[np.bool_],
    place: NDArray[np.int64],
    size: int,
    chunks: Sequence[Chunk],
    shards: Sequence[str],
) -> NDArray[np.int64]:
    """The shard that holds most of each cell's points."""
    if not chunks or not shards:
        return np.full(size, -1, dtype=np.int64)
    numbers = {name: number for number, name in enumerate(shards)}
    starts = np.array([chunk.lo for chunk in chunks], dtype=np.uint64)
    owners = np.array([numbers.get(chunk.shard, -1) for chunk in chunks], dtype=np.int64)
    shift = BITS - histogram.bits
    middles = (histogram.cells[inside] << np.uint64(shift)) + np.uint64((1 << shift) // 2)
    own = owners[np.maximum(np.searchsorted(starts, middles, side="right") - 1, 0)]
    known = own >= 0
    held = np.zeros((len(shards), size))
    np.add.at(held, (own[known], place[known]), histogram.counts[inside][known])
    return np.where(held.sum(axis=0) > 0, held.argmax(axis=0), -1)
