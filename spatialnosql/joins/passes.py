"""What to ask the servers so that every point of an overlay is looked at once: pure.

Segments that a border passes through are *scanned*: their keys come to the client. Segments inside are *counted* by the
servers, which group keys by their first characters: as many as it takes that each group lies in one segment.
Ranges are joined over gaps that hold fewer points than a range costs. What is read in a gap is left out, by its
segment, except that segments inside are not asked for again when they are scanned anyway.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.edges import Ints
from spatialnosql.geohash import BITS, LENGTH
from spatialnosql.histogram import Histogram
from spatialnosql.joins.overlay import Overlay

SCANNED = LENGTH  # of a segment: its keys come whole
_MOST_RANGES = 2_000  # in one command: some 120 kB


@dataclass(frozen=True)
class Passes:
    """For each segment the number of characters by which its keys are grouped; and the ranges to read for each."""

    characters: NDArray[np.int8]
    ranges: dict[int, Ranges]


def passes(
    overlay: Overlay, histogram: Histogram | None, range_cost: float, *, stored: bool = False
) -> Passes:
    """How to read an overlay. With `stored`, what lies inside is not read at all: the statistics hold it."""
    characters = np.full(len(overlay), SCANNED, dtype=np.int8)
    scanned = _bridged(overlay.ranges(overlay.has_border), histogram, range_cost)
    # What is scanned on the way need not be counted again.
    inner = ~overlay.has_border & (stored | ~scanned.contains(overlay.lo))
    characters[inner] = _needed(overlay, inner)
    ranges = {SCANNED: scanned} if len(scanned) else {}
    if not stored:
        for number in np.unique(characters[inner]).tolist():
            ranges[number] = _bridged(overlay.ranges(characters == number), histogram, range_cost)
    return Passes(characters, ranges)


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


def _needed(overlay: Overlay, chosen: NDArray[np.bool_]) -> Ints:
    """How many characters tell the segments apart: both ends must be ends of cells of so many characters."""
    ends = overlay.lo[chosen] | overlay.hi[chosen]
    needed = np.full(ends.size, LENGTH, dtype=np.intp)
    for characters in range(LENGTH - 1, 0, -1):
        whole = ends & np.uint64((1 << (BITS - 5 * characters)) - 1) == 0
        needed[whole] = characters
    return needed


def _bridged(ranges: Ranges, histogram: Histogram | None, range_cost: float) -> Ranges:
    if histogram is None or len(ranges) < 2:
        return ranges
    return ranges.bridged(histogram, range_cost)[0]
