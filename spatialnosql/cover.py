"""Covers: a region as sorted, disjoint ranges of the curve, some of them certainly inside.

The *outer* ranges (interior and boundary together) hold every place of the region, the *interior* ranges hold only
places of it. Both are so by construction: a cell is dropped or called interior only if `Region.refine` is certain.

Cells are refined best first: those that cost most are split next. With a histogram a boundary cell costs the points
expected in it, without one its area. A range costs something too (parsing, planning, a seek): refinement stops when a
split cannot save that much, and ranges whose gap costs less than a range are joined over the gap.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import Floats, Ints
from spatialnosql.errors import UsageError
from spatialnosql.geohash import (
    BITS,
    Cells,
    cells_to_bounds,
    indices_to_cells,
    merge_ranges,
    range_to_strings,
)
from spatialnosql.histogram import Histogram
from spatialnosql.region import BOUNDARY, IN, OUT, Box, Region, Status

DEFAULT_MAX_CELLS = 256
DEFAULT_RANGE_COST = 12.0
"""What one more range costs a query, in index keys read (18 us against 1.5 us on MongoDB 8.2)."""

_SEEDS = 8  # at most so many cells, roughly, to begin with
_STEP = 2  # bits a split adds: a cell becomes four
_BATCH = 0.4  # cells that cost at least this share of the dearest are split in the same round
_CACHE_SIZE = 1024


@dataclass(frozen=True)
class Ranges:
    """Sorted, disjoint, half-open ranges ``[lo, hi)`` of 60-bit cells."""

    lo: Cells
    hi: Cells

    def __len__(self) -> int:
        return len(self.lo)

    def contains(self, cells: Cells) -> NDArray[np.bool_]:
        """Which 60-bit cells lie in any of the ranges."""
        if not len(self.lo):
            return np.zeros(np.shape(cells), dtype=np.bool_)
        at = np.searchsorted(self.lo, cells, side="right")
        return (at > 0) & (np.asarray(cells) < self.hi[np.maximum(at, 1) - 1])

    def to_strings(self) -> list[tuple[str, str]]:
        """The same as ranges of ``gh`` strings, for filters."""
        return [range_to_strings(int(lo), int(hi)) for lo, hi in zip(self.lo, self.hi, strict=True)]


@dataclass(frozen=True)
class Cover:
    """Interior ranges (only places of the region) and boundary ranges (the rest of its places, and others)."""

    interior: Ranges
    boundary: Ranges
    cells: int  # how many cells it was made of before they were joined

    @cached_property
    def outer(self) -> Ranges:
        """Interior and boundary together: every place of the region."""
        lo = np.concatenate([self.interior.lo, self.boundary.lo])
        hi = np.concatenate([self.interior.hi, self.boundary.hi])
        return Ranges(*merge_ranges(lo, hi))


def cover(
    region: Region,
    *,
    max_cells: int = DEFAULT_MAX_CELLS,
    max_ranges: int | None = None,
    weights: Histogram | None = None,
    range_cost: float = DEFAULT_RANGE_COST,
    max_bits: int = BITS,
) -> Cover:
    """The cover of a region, at most `max_cells` cells and, if given, `max_ranges` ranges of both kinds.

    `range_cost` is in points and matters only with `weights`; 0 refines to the last cell allowed. `max_bits` bounds the
    precision of cells. Covers are cached by region, budget and histogram.
    """
    if max_cells < 1:
        raise UsageError(f"max_cells is {max_cells}; a cover needs at least one cell")
    if max_ranges is not None and max_ranges < 1:
        raise UsageError(f"max_ranges is {max_ranges}; a cover needs at least one range")
    if not 0 <= max_bits <= BITS:
        raise UsageError(f"max_bits is {max_bits}; it must be between 0 and {BITS}")
    histogram_key = weights.key if weights is not None else None
    key = (region.key, max_cells, max_ranges, histogram_key, range_cost, max_bits)
    found = _cache.get(key)
    if found is None:
        leaves = _refine(region, max_cells, weights, range_cost, max_bits)
        found = _join(leaves, max_ranges, weights, range_cost)
        _cache.put(key, found)
    return found


@dataclass(frozen=True)
class _Leaves:
    """Cells as ranges, each with its status; unsorted."""

    lo: Cells
    hi: Cells
    status: Status


class _Cache:
    """The most recently used covers."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[object, Cover] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> Cover | None:
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: object, value: Cover) -> None:
        with self._lock:
            self._items[key] = value
            while len(self._items) > self._size:
                self._items.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()


_cache = _Cache(_CACHE_SIZE)


def clear_cache() -> None:
    """Forget all cached covers."""
    _cache.clear()


# -- refinement -------------------------------------------------------------------------------------------


def _refine(
    region: Region, max_cells: int, weights: Histogram | None, range_cost: float, max_bits: int
) -> _Leaves:
    cells, bits = _seeds(region.bounds, min(max_cells, _SEEDS), max_bits)
    state = None
    parents: Ints | None = None
    done_lo, done_hi, done_status = [], [], []
    finished = 0
    while cells.size:
        boxes = _boxes(cells, bits)
        status, state = region.refine(boxes, state, parents)
        shift = (BITS - bits).astype(np.uint64)
        lo, hi = cells << shift, (cells + np.uint64(1)) << shift
        cost = _cost(lo, hi, bits, boxes, weights)
        kept = status != OUT
        chosen = np.flatnonzero((status == BOUNDARY) & (bits < max_bits))
        # Every split turns one cell into at most four, and what is left of them counts.
        room = max_cells - finished - int(kept.sum())
        chosen = _dearest(chosen, cost, room, range_cost if weights is not None else 0.0)
        kept[chosen] = False
        # Boundary cells that were not dear enough now may be so later: they stay in the round.
        waiting = np.flatnonzero(kept & (status == BOUNDARY)) if chosen.size else np.zeros(0, dtype=np.intp)
        kept[waiting] = False
        done = np.flatnonzero(kept)
        finished += done.size
        done_lo.append(lo[done])
        done_hi.append(hi[done])
        done_status.append(status[done])
        if not chosen.size:
            break
        cells, bits, parents = _split(cells, bits, chosen, waiting, max_bits)
    return _Leaves(_joined(done_lo), _joined(done_hi), np.concatenate([*done_status, np.zeros(0, np.int8)]))


def _joined(parts: list[Cells]) -> Cells:
    return np.concatenate([*parts, np.zeros(0, dtype=np.uint64)])


def _split(
    cells: Cells, bits: Ints, chosen: Ints, waiting: Ints, max_bits: int
) -> tuple[Cells, Ints, Ints]:
    """The children of the chosen cells and the waiting cells as they are, with the places they came from."""
    step = np.minimum(_STEP, max_bits - bits[chosen])
    children = 1 << step
    parent = np.repeat(chosen, children)
    member = np.arange(parent.size) - np.repeat(np.cumsum(children) - children, children)
    shift = np.repeat(step, children).astype(np.uint64)
    split = (cells[parent] << shift) + member.astype(np.uint64)
    return (
        np.concatenate([split, cells[waiting]]),
        np.concatenate([bits[parent] + np.repeat(step, children), bits[waiting]]),
        np.concatenate([parent, waiting]),
    )


def _dearest(chosen: Ints, cost: Floats, room: int, floor: float) -> Ints:
    """The cells to split now: the dearest, as far as the budget reaches, none whose split cannot pay."""
    if not chosen.size or room <= 0:
        return chosen[:0]
    costs = cost[chosen]
    limit = max(float(costs.max()) * _BATCH, floor)
    chosen = chosen[(costs >= limit) & (costs > 0)]
    # On average half of a boundary cell's children survive or turn out interior: a split adds about two cells.
    most = max(1, room // 2)
    if chosen.size > most:
        chosen = chosen[np.argpartition(-cost[chosen], most - 1)[:most]]
    return np.sort(chosen)


def _cost(lo: Cells, hi: Cells, bits: Ints, boxes: Floats, weights: Histogram | None) -> Floats:
    if weights is not None:
        return weights.points_in(lo, hi)
    # Area on the sphere, up to a factor: cells near the poles are small.
    return (boxes[:, 2] - boxes[:, 0]) * (np.sin(np.radians(boxes[:, 3])) - np.sin(np.radians(boxes[:, 1])))


def _boxes(cells: Cells, bits: Ints) -> Floats:
    """West, south, east, north of cells of mixed precisions."""
    boxes = np.empty((cells.size, 4))
    for precision in np.unique(bits):
        same = bits == precision
        boxes[same] = np.stack(cells_to_bounds(cells[same], int(precision)), axis=1)
    return boxes


def _seeds(boxes: tuple[Box, ...] | list[Box], most: int, max_bits: int) -> tuple[Cells, Ints]:
    """The cells to begin with: of the finest precision at which few of them hold all boxes."""
    boxes = list(boxes)
    if not boxes:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.intp)
    for bits in range(max_bits - max_bits % 2, -1, -2):
        found = _cells_of_boxes(boxes, bits, most)
        if found is not None:
            return found, np.full(found.size, bits, dtype=np.intp)
    return np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.intp)


def _cells_of_boxes(boxes: list[Box], bits: int, most: int) -> Cells | None:
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    parts = []
    for west, south, east, north in boxes:
        x0, x1 = _span(west, east, -180.0, columns / 360.0, columns)
        y0, y1 = _span(south, north, -90.0, rows / 180.0, rows)
        if (x1 - x0 + 1) * (y1 - y0 + 1) > most:
            return None
        x, y = np.meshgrid(np.arange(x0, x1 + 1), np.arange(y0, y1 + 1))
        parts.append(indices_to_cells(x.ravel(), y.ravel(), bits))
    cells = np.unique(np.concatenate(parts))
    return cells if cells.size <= most else None


def _span(low: float, high: float, origin: float, per_degree: float, count: int) -> tuple[int, int]:
    # A hair to both sides, so that no rounding loses a cell; a cell too many is found empty soon enough.
    first = int((low - origin) * per_degree - 1e-6)
    last = int((high - origin) * per_degree + 1e-6)
    return max(0, min(first, count - 1)), max(0, min(last, count - 1))


# -- joining ----------------------------------------------------------------------------------------------


def _join(leaves: _Leaves, max_ranges: int | None, weights: Histogram | None, range_cost: float) -> Cover:
    """Leaves to as few ranges as are worth having."""
    interior = Ranges(*merge_ranges(leaves.lo[leaves.status == IN], leaves.hi[leaves.status == IN]))
    boundary = Ranges(*merge_ranges(leaves.lo[leaves.status == BOUNDARY], leaves.hi[leaves.status == BOUNDARY]))
    cells = len(leaves.lo)
    if weights is not None and range_cost > 0:
        interior, boundary = _close_gaps(interior, boundary, weights, range_cost, None)
    if max_ranges is not None and len(interior) + len(boundary) > max_ranges:
        interior, boundary = _close_gaps(interior, boundary, weights, range_cost, max_ranges)
    return Cover(interior, boundary, cells)


def _close_gaps(
    interior: Ranges,
    boundary: Ranges,
    weights: Histogram | None,
    range_cost: float,
    max_ranges: int | None,
) -> tuple[Ranges, Ranges]:
    """Join boundary ranges over the gaps where that is worth it, or as many as `max_ranges` demands.

    A gap between two boundary ranges holds outside cells and interior ranges. Closing it makes all of it boundary: that
    saves one boundary range and those interior ranges, and costs the points of the gap. Gaps do not depend on each other.
    """
    if max_ranges is not None and max_ranges < 2:
        outer = Ranges(*merge_ranges(np.append(interior.lo, boundary.lo), np.append(interior.hi, boundary.hi)))
        return Ranges(interior.lo[:0], interior.hi[:0]), Ranges(outer.lo[:1], outer.hi[-1:])
    if len(boundary) < 2:
        if max_ranges is None or len(interior) + len(boundary) <= max_ranges:
            return interior, boundary
        return _all_boundary(interior, boundary, weights, range_cost, max_ranges)
    lo, hi = boundary.hi[:-1], boundary.lo[1:]
    first = np.searchsorted(interior.lo, lo, side="left")
    last = np.searchsorted(interior.lo, hi, side="left")
    inside = last - first
    cost = weights.points_in(lo, hi) if weights is not None else (hi - lo).astype(np.float64)
    if weights is not None:
        # Interior points are read either way; as boundary they are also sent and settled, about as dear again.
        before = np.concatenate(([0.0], np.cumsum(weights.points_in(interior.lo, interior.hi))))
        cost = cost - 0.5 * (before[last] - before[first])
    saved = 1 + inside
    if max_ranges is None:
        closed = cost < range_cost * saved
    else:
        order = np.argsort(cost / saved, kind="stable")
        excess = len(interior) + len(boundary) - max_ranges
        needed = int(np.searchsorted(np.cumsum(saved[order]), excess, side="left")) + 1
        closed = np.zeros(len(lo), dtype=np.bool_)
        closed[order[:needed]] = True
    gap_lo, gap_hi = lo[closed], hi[closed]
    joined = Ranges(*merge_ranges(np.append(boundary.lo, gap_lo), np.append(boundary.hi, gap_hi)))
    kept = ~joined.contains(interior.lo)
    interior = Ranges(interior.lo[kept], interior.hi[kept])
    if max_ranges is not None and len(interior) + len(joined) > max_ranges:
        return _all_boundary(interior, joined, weights, range_cost, max_ranges)
    return interior, joined


def _all_boundary(
    interior: Ranges, boundary: Ranges, weights: Histogram | None, range_cost: float, max_ranges: int
) -> tuple[Ranges, Ranges]:
    """Give up the interior, then close gaps: the last resort of a very small budget."""
    nothing = Ranges(interior.lo[:0], interior.hi[:0])
    outer = Ranges(*merge_ranges(np.append(interior.lo, boundary.lo), np.append(interior.hi, boundary.hi)))
    if len(outer) <= max_ranges:
        return nothing, outer
    return _close_gaps(nothing, outer, weights, range_cost, max_ranges)
