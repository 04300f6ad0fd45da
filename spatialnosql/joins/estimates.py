"""What the stored statistics alone tell of a border: cells that it passes through, and about how much lies inside.

Of such a cell the share inside is taken to be that of a few places spread over it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import Floats
from spatialnosql.geohash import BITS, Cells, cells_to_bounds
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.overlay import Overlay
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.tallies import AsOf, Tallies, Tally
from spatialnosql.region import OUT, Region

_PLACES = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))


def shares_inside(region: Region, cells: Cells, bits: int) -> tuple[NDArray[np.bool_], Floats]:
    """Which cells a region touches at all, and about what share of each lies in it."""
    west, south, east, north = cells_to_bounds(cells, bits)
    touched: NDArray[np.bool_] = region.refine(np.stack([west, south, east, north], axis=1))[0] != OUT
    share = np.zeros(cells.size)
    for x, y in _PLACES:
        lng, lat = west + x * (east - west), south + y * (north - south)
        share += touched & (region.settle(lng, lat) != OUT)
    return touched, share / len(_PLACES)


def estimated(polygons: Polygons, overlay: Overlay, info: CollectionInfo) -> Tallies:
    """The points of each polygon as of the last analysis, with bounds; nothing is read."""
    histogram = info.histogram
    assert histogram is not None
    assert info.analyzed is not None
    sure, most, about = (np.zeros(len(polygons)) for _ in range(3))
    segment = overlay.segments_of(histogram.cells << np.uint64(BITS - histogram.bits))
    known = np.flatnonzero(segment >= 0)
    at, polygon = overlay.inside.expanded(segment[known])
    np.add.at(sure, polygon, histogram.counts[known[at]])
    at, polygon = overlay.border.expanded(segment[known])
    cell = known[at]
    for number in np.unique(polygon).tolist():
        own = cell[polygon == number]
        region = polygons[number].region
        assert region is not None  # it has a cover
        touched, share = shares_inside(region, histogram.cells[own], histogram.bits)
        most[number] = histogram.counts[own][touched].sum()
        about[number] = (share * histogram.counts[own]).sum()
    rows = [
        Tally(polygon.id, int(low + part), int(low + part), int(low), int(low + high))
        for polygon, low, part, high in zip(polygons, sure, np.rint(about), most, strict=True)
    ]
    return Tallies(tuple(rows), AsOf(info.analyzed, histogram.total, None))
