"""How fine a grid is: which precision gives about so many cells, and by how many characters the servers group.

Both go by the statistics, which are a guess: a wrong one makes an answer dearer or coarser, never wrong.
"""

from __future__ import annotations

import numpy as np

from spatialnosql.cover import Cover
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS, LENGTH, cells_to_bounds
from spatialnosql.histogram import Histogram
from spatialnosql.joins.grid_region import Area
from spatialnosql.region import OUT

MOST_CELLS = 100_000
MOST_GROUPS = 50_000
"""More groups than that are not asked of the servers for the sake of better centres: 3 MB on their way."""
_AS_NEAR = 0.01  # of the cells that there are
_FINER = (2, 1)  # characters: a cell becomes 32 x 32 for its centre's sake, or 8 x 4


def check_bits(bits: object) -> int:
    """A precision as the caller gave it."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= BITS:
        raise UsageError(f"a precision of {bits!r} does not exist; it is a number of bits from 0 to {BITS}")
    return bits


def statistics_inside(histogram: Histogram, cover: Cover) -> Histogram:
    """The part of the statistics that certainly lies in a region."""
    inside = cover.interior.contains(histogram.cells << np.uint64(BITS - histogram.bits))
    return Histogram(histogram.bits, histogram.cells[inside], histogram.counts[inside])


def statistics_of(histogram: Histogram, area: Area, cover: Cover) -> Histogram:
    """The part of the statistics that lies in a region, or is touched by its border."""
    starts = histogram.cells << np.uint64(BITS - histogram.bits)
    chosen = cover.interior.contains(starts)
    border = np.flatnonzero(cover.boundary.contains(starts))
    if border.size:
        assert area.outline is not None  # it has a border
        boxes = np.stack(cells_to_bounds(histogram.cells[border], histogram.bits), axis=1)
        chosen[border] = area.outline.refine(boxes)[0] != OUT
    return Histogram(histogram.bits, histogram.cells[chosen], histogram.counts[chosen])


def expected_cells(statistics: Histogram, bits: int) -> float:
    """How many cells of a precision are not empty.

    Known as far as the statistics are as fine. Of a finer grid, points are taken to be spread evenly over each of the
    statistics' cells: of m smaller ones in it, c points leave m (1 - 1/m)^c empty.
    """
    if not len(statistics.cells):
        return 0.0
    if bits <= statistics.bits:
        parents = statistics.cells >> np.uint64(statistics.bits - bits)
        return 1.0 + np.count_nonzero(parents[1:] != parents[:-1])
    parts = 2.0 ** (bits - statistics.bits)
    return float(np.sum(-parts * np.expm1(statistics.counts * np.log1p(-1.0 / parts))))


def choose_bits(statistics: Histogram, cells: int, finest: int = BITS) -> int:
    """The precision whose number of cells is nearest to the one wanted; of those as good as equally near the coarsest.

    So points that are fewer than the cells wanted do not get cells of centimetres where metres tell them apart.
    """
    numbers: list[float] = []
    for bits in range(finest + 1):
        numbers.append(expected_cells(statistics, bits))
        if numbers[-1] >= cells:
            break
    away = [abs(number - cells) for number in numbers]
    enough = min(away) + _AS_NEAR * min(numbers[-1], cells)
    return next(bits for bits, distance in enumerate(away) if distance <= enough)


def whole_characters(bits: int) -> int:
    """The fewest characters that tell cells of a precision apart."""
    return -(-bits // 5)


def finer_characters(bits: int, statistics: Histogram | None, documents: int) -> int:
    """By how many characters to group so that centres are good and groups not too many.

    Without statistics only the number of all documents is known: there cannot be more groups.
    """
    characters = whole_characters(bits)
    for more in _FINER:
        finer = min(characters + more, LENGTH)
        groups = documents if statistics is None else expected_cells(statistics, 5 * finer)
        if groups <= MOST_GROUPS:
            return finer
    return characters


def centre_error(bits: int, finer: int) -> float:
    """How far a mean of centres of cells of `finer` bits may be off: half of one, as a share of a cell of `bits`."""
    wide = (finer + 1) // 2 - (bits + 1) // 2
    high = finer // 2 - bits // 2
    return float(0.5 / 2.0 ** min(wide, high))
