"""Each point with its polygon or polygons: one find over the points, however many polygons.

What is read are the ranges of the polygons' covers laid over each other. Each batch is looked up in them as it comes,
so memory is that of a batch.

While points change: each document is joined as it was when it was read, a batch at a time (of one near a border the
server is asked a moment later, and a document that has left its place by then is in no polygon there). As with any
cursor of MongoDB, a document that moves while it is open may be seen twice or not at all; one that does not is seen
once. With a ``session`` of snapshot reads everything is of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from spatialnosql.calm import collector_paused
from spatialnosql.cover import Ranges
from spatialnosql.found import Found
from spatialnosql.joins.membership import Membership
from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.points import open_points
from spatialnosql.joins.polygon_collection import polygons_of
from spatialnosql.joins.scan import Reading, Scan, ScanSource, checked_how, needed_of, ranges_to_read
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.steps import Steps, run


class Joined(NamedTuple):
    """A document and the ids of the polygons that it lies in, in the order of the polygons."""

    document: Any
    polygons: tuple[Any, ...]


def join(
    points: Any,
    polygons: Any,
    *,
    how: str = "inner",
    filter: Mapping[str, Any] | None = None,
    projection: Any = None,
    batch_size: int = 0,
    **options: Any,
) -> Found:
    """A cursor of `Joined`: every point that lies in a polygon, with its polygons, as one ``$geoWithin`` each says.

    With ``how="left"`` every point, those in no polygon and those without a place with ``()``. `points` and `polygons`
    are what `count_by_polygon` takes; `filter`, `projection` and `batch_size` are those of a find, as are the options
    (``session``, ``comment``, ``max_time_ms``, ``sort``, ``hint``, ...).

    >>> with join(trips, neighborhoods, projection=["fare"]) as joined:
    ...     for trip, names in joined:
    ...         print(trip["fare"], *names)
    """
    left = checked_how(how)
    asked = Asking(points, polygons, filter, projection, batch_size, options)
    return run(opened_cursor(asked, lambda scan, membership: JoinSource(scan, membership, left)))


@dataclass(frozen=True)
class Asking:
    """What is asked of a cursor over points and polygons, as it was given."""

    points: Any
    polygons: Any
    filter: Mapping[str, Any] | None
    projection: Any
    batch_size: int
    options: Mapping[str, Any]


def opened_cursor(
    asked: Asking, source: Callable[[Scan, Membership], ScanSource], *, place: bool = False
) -> Steps[Found]:
    """A cursor of what a source makes of the points; with `place`, of their coordinates too."""
    opened = yield from open_points(asked.points, asked.filter)
    reading = Reading.of(asked.points, needed_of(asked.projection, opened.info, place=place))
    scan = Scan(opened, reading, asked.batch_size, asked.options)
    areas = yield from polygons_of(asked.polygons, opened.info, scan.for_aggregates)
    membership = Membership(areas, scan.reader, in_turn=scan.in_session)
    answers = source(scan, membership)
    return Found((), answers, batch_size=asked.batch_size, deadline=scan.reader.deadline)


class JoinSource(ScanSource):
    """Documents with their polygons."""

    def __init__(self, scan: Scan, membership: Membership, left: bool) -> None:
        super().__init__(scan)
        self._membership, self._left = membership, left
        self._ids = [polygon.id for polygon in membership.polygons]
        if left:
            scan.open({}, by_gh=False)
        else:
            condition = candidates(membership, membership.overlay.ranges())
            scan.open(condition, by_gh=not membership.servers_own)

    def answers(self, documents: list[Any]) -> Steps[list[Any]]:
        """The joined documents of a batch."""
        pairs = yield from self._membership.pairs(documents)
        with collector_paused():  # thousands of tuples, and no cycles
            return self._joined(documents, pairs)

    def _joined(self, documents: list[Any], pairs: Pairs) -> list[Joined]:
        order = np.lexsort((pairs.polygon, pairs.point))
        names = [self._ids[number] for number in pairs.polygon[order].tolist()]
        counts = np.bincount(pairs.point, minlength=len(documents))
        ends = np.cumsum(counts)
        kept = np.arange(len(documents)) if self._left else np.flatnonzero(counts)
        given = self.scan.given_back([documents[at] for at in kept.tolist()])
        spans = zip((ends - counts)[kept].tolist(), ends[kept].tolist(), strict=True)
        return [
            Joined(document, tuple(names[start:end]))
            for document, (start, end) in zip(given, spans, strict=True)
        ]


def candidates(membership: Membership, ranges: Ranges) -> dict[str, Any]:
    """The condition that all documents meet that may lie in a polygon or in some ranges."""
    info = membership.info
    parts = conditions(ranges_to_read(ranges, info), info.gh)
    if info.unhashed:
        parts.append({info.gh: None})
    parts += [{info.location: membership.polygons[number].within} for number in membership.servers_own]
    return any_of(parts, info.gh)
