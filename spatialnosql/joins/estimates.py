"""Counts from the stored statistics alone.

What lies inside is known; of cells at a border it is known how much at most. Of a cell that a border passes
through the share inside is taken to be that of a few places spread over it.
"""

from __future__ import annotations

import numpy as np

from spatialnosql.geohash import BITS, cells_to_bounds
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.overlay import Overlay
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.tallies import AsOf, Tallies, Tally
from spatialnosql.region import OUT

_PLACES = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))


def estimated(polygons: Polygons, overlay: Overlay, info: CollectionInfo) -> Tallies:
    """The points of each polygon as of the last analysis, with bounds; nothing is read."""
    histogram = info.histogram
    assert histogram is not None
    assert info.analyzed is not None
    sure, most, share = (np.zeros(len(polygons)) for _ in range(3))
    segment = overlay.segments_of(histogram.cells << np.uint64(BITS - histogram.bits))
    known = np.flatnonzero(segment >= 0)
    at, polygon = overlay.inside.expanded(segment[known])
    np.add.at(sure, polygon, histogram.counts[known[at]])
    at, polygon = overlay.border.expanded(segment[known])
    cell = known[at]
    west, south, east, north = cells_to_bounds(histogram.cells[cell], histogram.bits)
    for number in np.unique(polygon).tolist():
        own = np.flatnonzero(polygon == number)
        counts = histogram.counts[cell[own]]
        region = polygons[number].region
        assert region is not None  # it has a cover
        boxes = np.stack([west[own], south[own], east[own], north[own]], axis=1)
        touching = region.refine(boxes)[0] != OUT
        most[number] += counts[touching].sum()
        for x, y in _PLACES:
            lng, lat = west[own] + x * (east - west)[own], south[own] + y * (north - south)[own]
            inside = touching & (region.settle(lng, lat) != OUT)
            share[number] += counts[inside].sum() / len(_PLACES)
    rows = [
        Tally(polygon.id, int(low + part), int(low + part), int(low), int(low + high))
        for polygon, low, part, high in zip(polygons, sure, np.rint(share), most, strict=True)
    ]
    return Tallies(tuple(rows), AsOf(info.analyzed, histogram.total, None))
