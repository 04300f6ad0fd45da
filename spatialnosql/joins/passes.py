"""What to ask the servers so that every point of an overlay is looked at once: pure.

Segments that a border passes through are *scanned*: their keys come to the client. Segments inside are *counted* by the
servers, which group keys by their first characters. For that they are cut into pieces that are whole cells of so many
characters, as few as possible; ends too fine for that are scanned with the border beside them, since to send a group
costs as much as to send its few keys.

Ranges are joined over gaps that hold fewer points than a range costs. What is read in a gap is left out, by its
segment, except that segments inside are not asked for again when they are scanned anyway.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS, LENGTH, Cells
from spatialnosql.histogram import Histogram
from spatialnosql.joins.overlay import Overlay

SCANNED = LENGTH  # of a segment: its keys come whole
FINEST = 7  # characters by which the servers group: cells of 150 m, with dozens of points each where there are many
_MOST_RANGES = 2_000  # in one command: some 120 kB


@dataclass(frozen=True)
class Passes:
    """An overlay, for each of its segments by how many characters its keys are grouped, and the ranges for each."""

    overlay: Overlay
    characters: NDArray[np.int8]
    ranges: dict[int, Ranges]


def passes(
    overlay: Overlay,
    histogram: Histogram | None,
    range_cost: float,
    *,
    stored: bool = False,
    finest: int = FINEST,
) -> Passes:
    """How to read an overlay. With `stored`, what lies inside is not read at all: the statistics hold it."""
    if not stored:
        overlay = overlay.cut(_pieces(overlay, finest))
    characters = np.where(overlay.has_border, SCANNED, 0).astype(np.int8)
    if not stored:
        characters[~overlay.has_border] = _needed(overlay, finest)[~overlay.has_border]
    scanned = _bridged(overlay.ranges(characters == SCANNED), histogram, range_cost)
    if not stored:
        # What is scanned on the way need not be counted again.
        characters[scanned.contains(overlay.lo)] = SCANNED
    ranges = {SCANNED: scanned} if len(scanned) else {}
    if not stored:
        for number in np.unique(characters[characters != SCANNED]).tolist():
            ranges[number] = _bridged(overlay.ranges(characters == number), histogram, range_cost)
    return Passes(overlay, characters, ranges)


def split(ranges: Ranges, histogram: Histogram | None, most: float) -> list[Ranges]:
    """Ranges in parts, along the curve, of about so many expected points each; and of not too many ranges."""
    if not len(ranges):
        return []
    cuts = np.zeros(0, dtype=np.uint64)
    if histogram is not None and len(histogram.cells):
        held = histogram.points_in(ranges.lo, ranges.hi)
        parts = int(np.ceil(held.sum() / most))
        if parts > 1:
            # Cells of the statistics that lie in the ranges, in order: cut where enough has come together.
            starts = histogram.cells << np.uint64(BITS - histogram.bits)
            inside = ranges.contains(starts)
            total = np.cumsum(histogram.counts[inside])
            at = np.searchsorted(total, np.arange(1, parts) * (float(held.sum()) / parts))
            cuts = np.unique(starts[inside][np.minimum(at, total.size - 1)])
    cuts = np.union1d(cuts, ranges.lo[_MOST_RANGES::_MOST_RANGES])
    bounds = np.concatenate([[np.uint64(0)], cuts, [np.uint64(1 << BITS)]]).astype(np.uint64)
    parts_ = [ranges.within(low, high) for low, high in itertools.pairwise(bounds)]
    return [part for part in parts_ if len(part)]


def _pieces(overlay: Overlay, finest: int) -> Cells:
    """Where segments inside are cut so that each piece is made of whole cells of as few characters as possible."""
    inner = ~overlay.has_border
    lo, hi = overlay.lo[inner], overlay.hi[inner]
    cuts = []
    for characters in range(1, finest + 1):
        below = np.uint64((1 << (BITS - 5 * characters)) - 1)
        low, high = (lo + below) & ~below, hi & ~below
        whole = low < high
        cuts += [low[whole], high[whole]]
        # What is left on both sides is cut more finely.
        lo = np.concatenate([lo[~whole], lo[whole], high[whole]])
        hi = np.concatenate([hi[~whole], low[whole], hi[whole]])
        left = lo < hi
        lo, hi = lo[left], hi[left]
    return np.unique(np.concatenate(cuts)) if cuts else np.zeros(0, dtype=np.uint64)


def _needed(overlay: Overlay, finest: int) -> NDArray[np.int8]:
    """The fewest characters that tell a segment from the next: its ends are ends of such cells; else it is scanned."""
    ends = overlay.lo | overlay.hi
    needed = np.full(ends.size, SCANNED, dtype=np.int8)
    for characters in range(finest, 0, -1):
        needed[ends & np.uint64((1 << (BITS - 5 * characters)) - 1) == 0] = characters
    return needed


def _bridged(ranges: Ranges, histogram: Histogram | None, range_cost: float) -> Ranges:
    if histogram is None or len(ranges) < 2:
        return ranges
    return ranges.bridged(histogram, range_cost)[0]
