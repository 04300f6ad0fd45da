"""Candidates against a region: certainly in, certainly out, or too near an edge to say.

The geohash of a document is its point to within 2.1 cm (half the diagonal of a 60-bit cell at the equator), so keys
from the index alone settle nearly all candidates of a boundary range. The error bound of "certainly" is
`TOLERANCE_RAD`, 1e-8 of the Earth's radius or 6.4 cm: it holds the cell's half diagonal, the leaf cell by which
MongoDB lets border points in, and rounding. Of the few candidates nearer to an edge the coordinates tell
(`settle_closely`), nearly always; where those leave a point UNSURE too, the server is asked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from spatialnosql.edges import CLOSE_RAD, TOLERANCE_RAD, Floats
from spatialnosql.errors import UsageError
from spatialnosql.geohash import cells_to_points
from spatialnosql.leaf_cells import settle_leaf_cells
from spatialnosql.region import IN, OUT, UNSURE, EdgeRegion, IntersectionRegion, Region, Status, UnionRegion

__all__ = ["IN", "OUT", "TOLERANCE_RAD", "UNSURE", "settle_cells", "settle_closely", "settle_points"]


def settle_cells(region: Region, cells: ArrayLike) -> Status:
    """The status of points of which only the 60-bit cells are known: IN, OUT or UNSURE for each."""
    lng, lat = cells_to_points(np.asarray(cells, dtype=np.uint64).reshape(-1))
    return region.settle(lng, lat)


def settle_points(region: Region, lng: ArrayLike, lat: ArrayLike) -> Status:
    """The status of points by their coordinates, which must be valid: IN, OUT or UNSURE for each.

    The tolerance is that of cells, so that both agree; `settle_closely` has a smaller one.
    """
    return region.settle(*_pairs(lng, lat))


def settle_closely(region: Region, lng: ArrayLike, lat: ArrayLike) -> Status:
    """As `settle_points`, as far as coordinates tell: for what cells have left undecided."""
    return _settled_closely(region, *_pairs(lng, lat))


def _settled_closely(region: Region, lng: Floats, lat: Floats) -> Status:
    if isinstance(region, IntersectionRegion | UnionRegion) and region.parts:
        statuses = [_settled_closely(part, lng, lat) for part in region.parts]
        combined: Status = (np.min if isinstance(region, IntersectionRegion) else np.max)(statuses, axis=0)
        return combined
    status = region.settle(lng, lat, CLOSE_RAD)
    if isinstance(region, EdgeRegion):
        unsure = np.flatnonzero(status == UNSURE)
        status[unsure] = settle_leaf_cells(region, lng[unsure], lat[unsure])
    return status


def _pairs(lng: ArrayLike, lat: ArrayLike) -> tuple[Floats, Floats]:
    lngs, lats = np.asarray(lng, dtype=np.float64).reshape(-1), np.asarray(lat, dtype=np.float64).reshape(-1)
    if lngs.shape != lats.shape:
        raise UsageError(
            f"{lngs.size} longitudes but {lats.size} latitudes; give one of each for every point"
        )
    return lngs, lats
