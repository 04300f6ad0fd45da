"""A grid from the stored statistics: the cells that were counted, rolled up; the border read now, or estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Cover
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS, cells_to_bounds
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.estimates import shares_inside
from spatialnosql.joins.grid_cells import GridCell, make_rows
from spatialnosql.joins.grid_pieces import sums_by_place
from spatialnosql.joins.grid_region import Area


def check_stored(area: Area, centre: str) -> None:
    """Whether statistics can answer what is asked of a grid."""
    if centre == "exact":
        raise UsageError("as_of knows in which cells points lie, not where in them: no exact centre")
    if area.only_the_server_knows:
        raise UsageError(f"of this region only the server can tell: {area.why_not}")


def check_stored_bits(bits: int, info: CollectionInfo) -> None:
    """Statistics do not know a finer grid than their own."""
    assert info.histogram is not None
    if bits > info.histogram.bits:
        raise UsageError(
            f"the statistics of {info.namespace} have cells of {info.histogram.bits} bits and cannot make a grid of "
            f"{bits}; ask for at most {info.histogram.bits}, or without as_of"
        )


def estimated_rows(
    histogram: Histogram, area: Area, cover: Cover, bits: int, *, centres: bool
) -> tuple[GridCell, ...]:
    """Rows with bounds, from the statistics alone. A cell that is not among them was certainly empty."""
    starts = histogram.cells << np.uint64(BITS - histogram.bits)
    inside, border = cover.interior.contains(starts), np.flatnonzero(cover.boundary.contains(starts))
    sure = np.where(inside, histogram.counts, 0)
    share, most = np.zeros(sure.size), sure.copy()
    west, south, east, north = cells_to_bounds(histogram.cells, histogram.bits)
    if border.size:
        assert area.region is not None  # it has a border
        touched, about = shares_inside(area.region, histogram.cells[border], histogram.bits)
        most[border] = np.where(touched, histogram.counts[border], 0)
        share[border] = about * histogram.counts[border]
    known = most > 0
    unique, place = np.unique(histogram.cells[known] >> np.uint64(histogram.bits - bits), return_inverse=True)

    def added(values: NDArray[Any]) -> NDArray[np.float64]:
        return sums_by_place(place, values[known], unique.size)

    low, high = (added(part).astype(np.int64) for part in (sure, most))
    # What lies at the border counts for the middle as it is estimated; where that is nothing, as it may be.
    weight = sure + share + most * 1e-9
    whole = added(weight)
    middle = (added(weight * (west + east) / 2) / whole, added(weight * (south + north) / 2) / whole)
    counts = low + np.rint(added(share)).astype(np.int64)
    return make_rows(unique, bits, counts, None, middle if centres else None, (low, high))
