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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import Floats, Ints, ragged
from spatialnosql.errors import UsageError
from spatialnosql.geohash import (
    BITS,
    Cells,
    bounds_to_strings,
    cells_to_indices,
    indices_to_cells,
    merge_ranges,
    range_to_strings,
)
from spatialnosql.histogram import Histogram
from spatialnosql.region import BOUNDARY, IN, OUT, Box, Region, Status

DEFAULT_MAX_CELLS = 256
DEFAULT_RANGE_COST = 12.0
"""What one more range costs a query, in index keys read (18 us against 1.5 us on MongoDB 8.2)."""

_SEEDS = 32  # at most so many cells to begin with
_STEP = 2  # bits a split adds: a cell becomes four,
_WIDE_STEP, _WIDE = (
    4,
    256,
)  # or sixteen, while no more than this come of it: half the rounds, and hardly more cells
# Cells that cost at least this share of the dearest are split in the same round: few rounds of many cells suit numpy,
# and one cell at a time would find no better covers (their boundary points differ by less than 0.1 %).
_BATCH = 0.1
# A round of splitting takes the client about as long as this many more ranges take a server: no round for cells that
# hold fewer points than that is worth.
_ROUND = 60
_CACHE_SIZE = 1024
_FEW = 64  # so few ranges are sooner gone through one by one than numpy is called

_COLUMN, _ROW = 360.0 / 2**30, 180.0 / 2**30
_WIDTHS = 360.0 * 0.5 ** ((np.arange(BITS + 1) + 1) // 2)
_HEIGHTS = 180.0 * 0.5 ** (np.arange(BITS + 1) // 2)


class Ranges:
    """Sorted, disjoint, half-open ranges ``[lo, hi)`` of 60-bit cells.

    Arrays and lists of Python's numbers, each made when it is first asked for: for a few ranges numpy takes longer to
    begin than all the rest of a small query.
    """

    def __init__(self, lo: Cells | list[int], hi: Cells | list[int]) -> None:
        self._lo, self._hi = lo, hi

    @classmethod
    def everything(cls) -> Ranges:
        """One range of all cells."""
        return cls([0], [1 << BITS])

    @cached_property
    def lo(self) -> Cells:
        """Where each begins."""
        return np.asarray(self._lo, dtype=np.uint64)

    @cached_property
    def hi(self) -> Cells:
        """Where each has ended."""
        return np.asarray(self._hi, dtype=np.uint64)

    @cached_property
    def _numbers(self) -> tuple[list[int], list[int]]:
        """Both as Python's numbers."""
        lo, hi = self._lo, self._hi
        return (lo if isinstance(lo, list) else lo.tolist()), (hi if isinstance(hi, list) else hi.tolist())

    def __len__(self) -> int:
        return len(self._lo)

    @property
    def size(self) -> int:
        """How many 60-bit cells there are in all of them."""
        return sum([hi - lo for lo, hi in zip(*self._numbers, strict=True)])

    def contains(self, cells: Cells) -> NDArray[np.bool_]:
        """Which 60-bit cells lie in any of the ranges."""
        if not len(self):
            return np.zeros(np.shape(cells), dtype=np.bool_)
        at = np.searchsorted(self.lo, cells, side="right")
        inside: NDArray[np.bool_] = (at > 0) & (np.asarray(cells) < self.hi[np.maximum(at, 1) - 1])
        return inside

    def without(self, other: Ranges) -> Ranges:
        """What is left of these ranges when others are taken out."""
        if not len(self) or not len(other):
            return self
        # Between the others there are gaps, one before them and one behind them.
        gap_lo = np.concatenate([np.zeros(1, dtype=np.uint64), other.hi])
        gap_hi = np.concatenate([other.lo, np.full(1, 1 << BITS, dtype=np.uint64)])
        first = np.searchsorted(gap_hi, self.lo, side="right")
        count = np.searchsorted(gap_lo, self.hi, side="left") - first
        gap, mine = ragged(first, count), np.repeat(np.arange(len(self.lo)), count)
        lo, hi = np.maximum(self.lo[mine], gap_lo[gap]), np.minimum(self.hi[mine], gap_hi[gap])
        left = lo < hi
        return Ranges(lo[left], hi[left])

    def within(self, low: np.uint64, high: np.uint64) -> Ranges:
        """What lies of these ranges in ``[low, high)``."""
        lo, hi = np.maximum(self.lo, low), np.minimum(self.hi, high)
        left = lo < hi
        return Ranges(lo[left], hi[left])

    def held(self, histogram: Histogram) -> float:
        """How many points are expected in all of the ranges."""
        if len(self) >= _FEW:
            return float(histogram.points_in(self.lo, self.hi).sum())
        before = histogram.points_before_one
        return sum([before(hi) - before(lo) for lo, hi in zip(*self._numbers, strict=True)])

    def bridged(self, histogram: Histogram, points: float) -> tuple[Ranges, float]:
        """Joined over gaps in which no more points are expected than so many; and how many are in the whole."""
        if len(self) < _FEW:
            return self._bridged_one_by_one(histogram, points)
        before, after = histogram.points_before(np.stack([self.lo, self.hi]))
        apart = before[1:] - after[:-1] > points
        held = float((after - before).sum() + (before[1:] - after[:-1])[~apart].sum())
        if apart.all():
            return self, held
        ends = np.concatenate([apart, [True]])
        return Ranges(self.lo[np.concatenate([[True], apart])], self.hi[ends]), held

    def _bridged_one_by_one(self, histogram: Histogram, points: float) -> tuple[Ranges, float]:
        lo: list[int] = []
        hi: list[int] = []
        held = after = 0.0
        for first, end in zip(*self._numbers, strict=True):
            before = histogram.points_before_one(first)
            if hi and before - after <= points:
                held += before - after
                hi[-1] = end
            else:
                lo.append(first)
                hi.append(end)
            after = histogram.points_before_one(end)
            held += after - before
        return (self if len(lo) == len(self) else Ranges(lo, hi)), held

    def parted(self, histogram: Histogram, parts: int) -> list[Ranges]:
        """The same in order, in at most so many parts that hold about as many points each."""
        if parts < 2 or not len(self.lo):
            return [self]
        before, after = histogram.points_before(np.stack([self.lo, self.hi]))
        held = np.cumsum(after - before)
        shares = held[-1] * np.arange(1, parts) / parts
        at = np.minimum(np.searchsorted(held, shares), len(held) - 1)  # the range that each cut is in
        cuts = histogram.bounds_behind(after[at] - (held[at] - shares))
        cuts = np.clip(cuts, self.lo[at], self.hi[at])
        pieces = [
            self.within(low, high)
            for low, high in zip([self.lo[0], *cuts], [*cuts, self.hi[-1]], strict=True)
        ]
        return [piece for piece in pieces if len(piece)]

    def joined(self, other: Ranges) -> Ranges:
        """These ranges and others."""
        return Ranges(*merge_ranges(np.concatenate([self.lo, other.lo]), np.concatenate([self.hi, other.hi])))

    def to_strings(self) -> list[tuple[str, str]]:
        """The same as ranges of ``gh`` strings, for filters."""
        return self._strings

    @cached_property
    def _strings(self) -> list[tuple[str, str]]:
        if len(self) < _FEW:
            return [range_to_strings(lo, hi) for lo, hi in zip(*self._numbers, strict=True)]
        return list(zip(bounds_to_strings(self.lo), bounds_to_strings(self.hi), strict=True))


NOTHING = Ranges([], [])


@dataclass(frozen=True)
class Cover:
    """Interior ranges (only places of the region) and boundary ranges (the rest of its places, and others)."""

    interior: Ranges
    boundary: Ranges
    cells: int  # how many cells it was made of before they were joined

    @cached_property
    def outer(self) -> Ranges:
        """Interior and boundary together: every place of the region."""
        return self.interior.joined(self.boundary)


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


def rough_ranges(boxes: Sequence[Box], most: int) -> Ranges:
    """The cells that meet any of the boxes, as fine as `most` of them can be: a cover for a quick guess."""
    lo, bits = _seeds(boxes, most, BITS)
    return Ranges(lo, _ends(lo, bits))


def cells_over(boxes: Sequence[Box], bits: int, most: int) -> Cells | None:
    """All cells of one precision that meet any of the boxes, ascending; None if there are more than so many."""
    spans = [_spans(box, bits) for box in boxes]
    if sum([(x1 - x0) * (y1 - y0) for x0, x1, y0, y1 in spans]) > most:
        return None
    return np.sort(_cells_of_boxes(boxes, bits)) if boxes else np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True)
class _Leaves:
    """Cells given by their first 60-bit cell and their precision, each with its status and what it costs; unsorted."""

    lo: Cells
    bits: Ints
    status: Status
    cost: Floats

    @property
    def hi(self) -> Cells:
        """Where each cell ends."""
        return _ends(self.lo, self.bits)

    def appended(self, other: _Leaves) -> _Leaves:
        """These and others."""
        return _Leaves(
            np.concatenate([self.lo, other.lo]),
            np.concatenate([self.bits, other.bits]),
            np.concatenate([self.status, other.status]),
            np.concatenate([self.cost, other.cost]),
        )


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
    """Cells that hold the region, split best first. A cell that was split is left in place as OUT."""
    lo, bits = _seeds(region.bounds, min(max_cells, _SEEDS), max_bits)
    floor = range_cost if weights is not None else 0.0
    if weights is not None:
        held = weights.points_in(lo, _ends(lo, bits))
        # About half of its box is a shape's own. Not even worth asking it which of the cells it meets?
        if held.sum() < 2 * _ROUND * range_cost:
            return _Leaves(lo, bits, np.full(lo.size, BOUNDARY, dtype=np.int8), held)
    leaves, state = _classified(region, lo, bits, weights, None, None)
    while True:
        open_ = np.flatnonzero((leaves.status == BOUNDARY) & (leaves.bits < max_bits))
        room = max_cells - int(np.count_nonzero(leaves.status))
        chosen = _dearest(open_, leaves.cost, room, max_cells, floor)
        if not chosen.size or (weights is not None and leaves.cost[chosen].sum() < _ROUND * range_cost):
            return leaves
        wide = chosen.size << _WIDE_STEP <= min(room, _WIDE)
        lo, bits, parents = _split(leaves, chosen, _WIDE_STEP if wide else _STEP, max_bits)
        children, state = _classified(region, lo, bits, weights, state, parents)
        leaves.status[chosen] = OUT
        leaves = leaves.appended(children)


def _classified(
    region: Region, lo: Cells, bits: Ints, weights: Histogram | None, state: Any, parents: Ints | None
) -> tuple[_Leaves, Any]:
    boxes = _boxes(lo, bits)
    status, state = region.refine(boxes, state, parents)
    cost = weights.points_in(lo, _ends(lo, bits)) if weights is not None else _area(boxes)
    return _Leaves(lo, bits, status, cost), state


def _ends(lo: Cells, bits: Ints) -> Cells:
    return lo + (np.uint64(1) << (BITS - bits).astype(np.uint64))


def _split(leaves: _Leaves, chosen: Ints, step_bits: int, max_bits: int) -> tuple[Cells, Ints, Ints]:
    """The children of the chosen leaves, so many bits finer: first 60-bit cells, precisions and whose they are."""
    step = np.minimum(step_bits, max_bits - leaves.bits[chosen])
    children = 1 << step
    parent = np.repeat(chosen, children)
    member = ragged(np.zeros(chosen.size, dtype=np.intp), children).astype(np.uint64)
    bits = leaves.bits[parent] + np.repeat(step, children)
    return leaves.lo[parent] + (member << (BITS - bits).astype(np.uint64)), bits, parent


def _dearest(chosen: Ints, cost: Floats, room: int, max_cells: int, floor: float) -> Ints:
    """The cells to split now: the dearest, as far as the budget surely reaches, none whose split cannot pay."""
    most = room // (2**_STEP - 1)
    # The last few cells of a budget would take as many rounds as all before.
    if not chosen.size or most <= max_cells // 64:
        return chosen[:0]
    costs = cost[chosen]
    limit = max(float(costs.max()) * _BATCH, floor)
    chosen = chosen[(costs >= limit) & (costs > 0)]
    if chosen.size > most:
        chosen = chosen[np.argpartition(-cost[chosen], most - 1)[:most]]
    return np.sort(chosen)


def _area(boxes: Floats) -> Floats:
    """Area on the sphere, up to a factor: cells near the poles are small."""
    sines = np.sin(np.radians(boxes[:, [1, 3]]))
    area: Floats = (boxes[:, 2] - boxes[:, 0]) * (sines[:, 1] - sines[:, 0])
    return area


def _boxes(lo: Cells, bits: Ints) -> Floats:
    """West, south, east, north of cells of mixed precisions, given by their first 60-bit cell; exact."""
    boxes = np.empty((lo.size, 4))
    x, y = cells_to_indices(lo)
    boxes[:, 0] = x * _COLUMN - 180.0
    boxes[:, 1] = y * _ROW - 90.0
    boxes[:, 2] = boxes[:, 0] + _WIDTHS[bits]
    boxes[:, 3] = boxes[:, 1] + _HEIGHTS[bits]
    return boxes


def _seeds(boxes: Sequence[Box], most: int, max_bits: int) -> tuple[Cells, Ints]:
    """The cells to begin with: of the finest precision at which few of them hold all boxes."""
    if not boxes:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.intp)
    coarsest, finest = 0, max_bits // 2
    # The number of cells grows with the precision, so the finest that is few enough is found by halving.
    while coarsest < finest:
        half = (coarsest + finest + 1) // 2
        spans = [_spans(box, 2 * half) for box in boxes]
        if sum([(x1 - x0) * (y1 - y0) for x0, x1, y0, y1 in spans]) > most:
            finest = half - 1
        else:
            coarsest = half
    bits = 2 * coarsest
    cells = _cells_of_boxes(boxes, bits)
    return cells << np.uint64(BITS - bits), np.full(cells.size, bits, dtype=np.intp)


def _cells_of_boxes(boxes: Sequence[Box], bits: int) -> Cells:
    """All cells of a precision that meet any of the boxes."""
    parts = []
    for box in boxes:
        x0, x1, y0, y1 = _spans(box, bits)
        x, y = np.arange(x0, x1, dtype=np.uint32), np.arange(y0, y1, dtype=np.uint32)
        parts.append(indices_to_cells(np.tile(x, y.size), np.repeat(y, x.size), bits))
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


def _spans(box: Box, bits: int) -> tuple[int, int, int, int]:
    """The columns and the rows of the cells that meet a box: the first of each, and the first beyond."""
    west, south, east, north = box
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    return (
        *_span(west, east, -180.0, columns / 360.0, columns),
        *_span(south, north, -90.0, rows / 180.0, rows),
    )


def _span(low: float, high: float, origin: float, per_degree: float, count: int) -> tuple[int, int]:
    # A hair to both sides, so that no rounding loses a cell; a cell too many is found empty soon enough.
    first = int((low - origin) * per_degree - 1e-6)
    last = int((high - origin) * per_degree + 1e-6)
    return max(0, min(first, count - 1)), max(0, min(last, count - 1)) + 1


# -- joining ----------------------------------------------------------------------------------------------


def _join(leaves: _Leaves, max_ranges: int | None, weights: Histogram | None, range_cost: float) -> Cover:
    """Leaves to as few ranges as are worth having."""
    inside, border = leaves.status == IN, leaves.status == BOUNDARY
    hi = leaves.hi
    interior = Ranges(*merge_ranges(leaves.lo[inside], hi[inside]))
    boundary = Ranges(*merge_ranges(leaves.lo[border], hi[border]))
    cells = int(np.count_nonzero(leaves.status))
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
    saves one boundary range and those interior ranges, and costs the points of the gap. Each gap is its own decision.
    """
    if max_ranges is not None and max_ranges < 2:
        outer = Ranges(
            *merge_ranges(np.append(interior.lo, boundary.lo), np.append(interior.hi, boundary.hi))
        )
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
