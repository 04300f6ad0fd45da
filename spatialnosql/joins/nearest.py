"""Each point with the polygon that is nearest to it.

Read are the points within the distance of some polygon: the ranges of the covers of polygons, and of boxes around
their edges. Inside a polygon the distance is 0; it is a great-circle distance to the nearest edge elsewhere, as
``$geoNear`` from that point over the polygons says. While points change, what `join` says of readers holds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from spatialnosql.calm import collector_paused
from spatialnosql.cover import cover
from spatialnosql.density import HALF_EARTH_M
from spatialnosql.edges import Ints
from spatialnosql.errors import UsageError
from spatialnosql.found import Found
from spatialnosql.geohash import Cells
from spatialnosql.joins.distances import Borders, Surroundings
from spatialnosql.joins.join import Asking, candidates, opened_cursor
from spatialnosql.joins.membership import Membership, joined_pairs
from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.scan import Scan, ScanSource, checked_how
from spatialnosql.places import places
from spatialnosql.region import OUT
from spatialnosql.sphere import Floats
from spatialnosql.steps import Steps, run

_MAX_CELLS = 2_048


class Nearest(NamedTuple):
    """A document, the id of its nearest polygon and the distance: None and None if none is in reach."""

    document: Any
    polygon: Any
    distance_m: float | None


def nearest_polygon(
    points: Any,
    polygons: Any,
    within_m: float,
    *,
    how: str = "inner",
    filter: Mapping[str, Any] | None = None,
    projection: Any = None,
    batch_size: int = 0,
    **options: Any,
) -> Found:
    """A cursor of `Nearest`: every point within a distance of a polygon, with the nearest one.

    With ``how="left"`` every document, those without a polygon in reach with None. Where several polygons are equally
    near, as where they overlap, it is the first of them. Documents that are no single point have no distance.
    Everything else is as for `join`.

    >>> for stop, name, metres in nearest_polygon(stops, parks, 500):
    ...     print(stop["_id"], name, round(metres))
    """
    left, reach = checked_how(how), checked_distance(within_m)
    asked = Asking(points, polygons, filter, projection, batch_size, options)
    return run(
        opened_cursor(
            asked, lambda scan, membership: NearestSource(scan, membership, reach, left), place=True
        )
    )


def checked_distance(within_m: Any) -> float:
    """A distance in metres, no more than half around the Earth."""
    number = isinstance(within_m, int | float) and not isinstance(within_m, bool)
    if not number or not within_m >= 0:
        raise UsageError(f"within_m is {within_m!r}; it must be a distance in metres, 0 or more")
    return min(float(within_m), HALF_EARTH_M)


class NearestSource(ScanSource):
    """Documents with their nearest polygons."""

    def __init__(self, scan: Scan, membership: Membership, within_m: float, left: bool) -> None:
        super().__init__(scan)
        self._membership, self._within_m, self._left = membership, within_m, left
        self._ids = [polygon.id for polygon in membership.polygons]
        self._borders = Borders.of([polygon.geometry for polygon in membership.polygons])
        if left:
            scan.open({}, by_gh=False)
            return
        around = Surroundings(self._borders, within_m)
        ranges = cover(around, max_cells=_MAX_CELLS, weights=scan.info.histogram).outer
        condition = candidates(membership, membership.overlay.ranges().joined(ranges))
        scan.open(condition, by_gh=not membership.servers_own)

    def answers(self, documents: list[Any]) -> Steps[list[Any]]:
        """The documents of a batch, with what is nearest to them."""
        polygon, distance = np.full(len(documents), -1, dtype=np.intp), np.full(len(documents), np.inf)
        which, cells = self._membership.hashed(documents)
        polygon[which], distance[which] = yield from self._measured(documents, which, cells)
        kept = np.arange(len(documents)) if self._left else np.flatnonzero(polygon >= 0)
        rows = zip(polygon[kept].tolist(), distance[kept].tolist(), strict=True)
        with collector_paused():  # thousands of tuples, and no cycles
            given = self.scan.given_back([documents[at] for at in kept.tolist()])
            return [
                Nearest(document, self._ids[number], metres) if number >= 0 else Nearest(document, None, None)
                for document, (number, metres) in zip(given, rows, strict=True)
            ]

    def _measured(self, documents: list[Any], which: Ints, cells: Cells) -> Steps[tuple[Ints, Floats]]:
        """For each hashed document its nearest polygon, or -1, and the distance."""
        lng, lat = places([documents[at] for at in which.tolist()], self.scan.info.location)
        pairs = self._inside(cells, lng, lat)
        asked = yield from self._membership.asked_of_server(documents, which)
        pairs = joined_pairs([pairs, Pairs(np.searchsorted(which, asked.point), asked.polygon)])
        none = len(self._ids)
        polygon, distance = np.full(which.size, none, dtype=np.intp), np.zeros(which.size)
        np.minimum.at(polygon, pairs.point, pairs.polygon)
        out = np.flatnonzero(polygon == none)
        polygon[out], distance[out] = self._borders.nearest(lng[out], lat[out], self._within_m)
        return polygon, distance

    def _inside(self, cells: Cells, lng: Floats, lat: Floats) -> Pairs:
        """Points and polygons that hold them.

        Not as ``$geoWithin`` says, which takes in what lies a centimetre beside a border: distances know no such thing.
        """
        membership = self._membership
        certain, unsure = membership.overlay.pairs(cells, membership.regions)
        parts = [certain]
        for number in np.unique(unsure.polygon).tolist():
            near = unsure.point[unsure.polygon == number]
            region = membership.regions[number]
            assert region is not None  # it has a border
            inside = near[region.settle(lng[near], lat[near], 0.0) != OUT]
            parts.append(Pairs(inside, np.full(inside.size, number, dtype=np.intp)))
        return joined_pairs(parts)
