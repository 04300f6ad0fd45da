"""How many points lie in each polygon, or how much of a field: one pass over the points, however many polygons.

What lies inside is added up by the servers, from the index alone if neither a filter nor a weight is given; at the
borders the keys come to the client, once for all polygons, and are settled there. The commands are sent side by side
and each sees its own moment: while points change, one that moves may be counted twice or not at all. With `consistent`
all of them read at one moment, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import Ints, ragged
from spatialnosql.errors import UsageError
from spatialnosql.geohash import Cells, cells_to_strings, strings_to_cells
from spatialnosql.joins.asked import Asked
from spatialnosql.joins.covering import overlay_of, range_keys
from spatialnosql.joins.estimates import estimated
from spatialnosql.joins.overlay import Overlay, Pairs
from spatialnosql.joins.passes import SCANNED, Passes, passes
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.polygon_collection import polygons_of
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.range_reading import Groups, Request, read_ranges
from spatialnosql.joins.tallies import AsOf, Tallies, Tally
from spatialnosql.joins.undecided import ASKED_AT_ONCE, GH, decided, groups_at
from spatialnosql.joins.weights import Total
from spatialnosql.steps import Steps, listed, run

_PAIRS_AT_ONCE = 500_000  # of a key and a polygon: where many polygons lie over each other


def count_by_polygon(
    points: Any,
    polygons: Any,
    *,
    filter: Mapping[str, Any] | None = None,
    weight: Any = None,
    as_of: str | None = None,
    borders: str = "read",
    consistent: bool = False,
    **options: Any,
) -> Tallies:
    """The number of points in each polygon, in the order of the polygons; exactly as one ``$geoWithin`` each.

    `points` is a `SpatialCollection` or an adopted collection; `polygons` are `Polygons`, a collection that
    ``spatialnosql polygons load`` made, a GeoJSON FeatureCollection, or geometries by name. `filter` is what else
    points must meet. `weight` asks for a measure of a field beside the number: ``{"$avg": "$fare"}``; ``"fare"`` is its
    sum.

    ``as_of="last_analyze"`` takes what lies inside from the statistics, and says of which moment and how many points
    the answer is. It still reads the keys at the borders, as they are now; with ``borders="estimated"`` it reads
    nothing, and each tally has bounds. Other options are ``session``, ``comment``, ``maxTimeMS`` (of each command)
    and ``let``.
    """
    return run(_counted(points, polygons, Asked.of(filter, weight, as_of, borders, consistent, options)))


def _counted(points: Any, polygons: Any, asked: Asked) -> Steps[Tallies]:
    opened = yield from asked.opened(points)

    def work(options: dict[str, Any]) -> Steps[Tallies]:
        areas = yield from polygons_of(polygons, opened.info, options)
        if asked.stored:
            _check_areas(areas)
        if asked.estimated:
            return estimated(areas, overlay_of(areas, opened.info), opened.info)
        return (yield from _Counter(opened, areas, asked, options).tallies())

    return (yield from asked.in_session(opened, work))


def _check_areas(polygons: Polygons) -> None:
    for polygon in polygons:
        if polygon.region is None:
            raise UsageError(
                f"of polygon {polygon.id!r} only the server can tell, not as_of: {polygon.why_not}"
            )


class _Counter:
    """One call: what is asked, and the totals so far."""

    def __init__(self, points: JoinPoints, polygons: Polygons, asked: Asked, options: dict[str, Any]) -> None:
        self._points, self._polygons, self._asked = points, polygons, asked
        self._weight, self._options = asked.weight, options
        self._sums = {} if asked.weight is None else asked.weight.accumulators
        self._overlay: Overlay = overlay_of(polygons, points.info)
        self._regions = [polygon.region for polygon in polygons]
        self._counts = np.zeros(len(polygons), dtype=np.int64)
        self._totals = [Total(asked.weight) for _ in polygons] if asked.weight is not None else []
        self._undecided: list[tuple[Cells, Ints]] = []
        self._keys = 0

    def tallies(self) -> Steps[Tallies]:
        info, stored = self._points.info, self._asked.stored
        histogram = yield from self._points.trusted_histogram()
        reading = passes(self._overlay, histogram, range_keys(info.costs), stored=stored)
        if stored:
            self._add_stored(reading)
        requests = [
            Request(ranges, characters, border=characters == SCANNED)
            for characters, ranges in reading.ranges.items()
        ]
        yield from read_ranges(
            self._points,
            requests,
            histogram,
            self._sums,
            self._options,
            lambda request, groups: self._add(request, groups, reading),
        )
        yield from self._decide()
        yield from self._ask_for_the_rest()
        as_of = None
        if stored:
            assert info.histogram is not None
            assert info.analyzed is not None
            as_of = AsOf(info.analyzed, info.histogram.total, self._keys)
        return Tallies(tuple(self._rows()), as_of)

    def _rows(self) -> list[Tally]:
        if self._weight is None:
            return [
                Tally(polygon.id, count, count)
                for polygon, count in zip(self._polygons, self._counts.tolist(), strict=True)
            ]
        return [
            Tally(polygon.id, total.count, total.result)
            for polygon, total in zip(self._polygons, self._totals, strict=True)
        ]

    # -- adding up ----------------------------------------------------------------------------------------

    def _add_stored(self, reading: Passes) -> None:
        """What lies inside, from the statistics."""
        histogram = self._points.info.histogram
        assert histogram is not None
        inner = np.flatnonzero(reading.characters != SCANNED)
        held = histogram.points_in(reading.overlay.lo[inner], reading.overlay.hi[inner])
        at, polygon = reading.overlay.inside.expanded(inner)
        np.add.at(self._counts, polygon, np.rint(held[at]).astype(np.int64))

    def _add(self, request: Request, groups: Groups, reading: Passes) -> None:
        """Add up the answer to one command."""
        # In the gaps between ranges that were joined there are keys that another command counts, or nobody.
        segment = reading.overlay.segments_of(groups.cells)
        mine = (segment >= 0) & (reading.characters[np.maximum(segment, 0)] == request.characters)
        groups = groups.chosen(mine)
        if request.border:
            self._keys += int(groups.counts.sum())
        for part in self._overlay.slices(groups.cells, _PAIRS_AT_ONCE):
            cells = groups.cells[part]
            pairs, unsure = self._overlay.pairs(cells, self._regions)
            self._add_pairs(pairs, groups.counts[part], groups.rows[part])
            self._undecided.append((cells[unsure.point], unsure.polygon))

    def _add_pairs(
        self, pairs: Pairs, counts: NDArray[np.int64], groups: Sequence[Mapping[str, Any]]
    ) -> None:
        if self._weight is None:
            np.add.at(self._counts, pairs.polygon, counts[pairs.point])
            return
        for point, polygon in zip(pairs.point.tolist(), pairs.polygon.tolist(), strict=True):
            self._totals[polygon].add_group(groups[point])

    # -- what keys cannot tell ----------------------------------------------------------------------------

    def _decide(self) -> Steps[None]:
        """Add what has undecided geohashes to the polygons that it lies in."""
        if not self._undecided:
            return
        cells = np.concatenate([cells for cells, _ in self._undecided])
        polygon = np.concatenate([polygon for _, polygon in self._undecided])
        unique = np.unique(cells)
        for start in range(0, unique.size, ASKED_AT_ONCE):
            some = unique[start : start + ASKED_AT_ONCE]
            groups = yield from groups_at(
                self._points, cells_to_strings(some).tolist(), self._sums, self._options
            )
            if not groups:
                continue
            # Each place with the polygons that its geohash is undecided about.
            own = strings_to_cells([group["_id"][GH] for group in groups])
            chosen = np.isin(cells, some)
            order = np.argsort(cells[chosen], kind="stable")
            near, theirs = cells[chosen][order], polygon[chosen][order]
            first, last = np.searchsorted(near, own), np.searchsorted(near, own, side="right")
            point = np.repeat(np.arange(own.size), last - first)
            pairs = Pairs(point, theirs[ragged(first, last - first)])
            inside = yield from decided(self._points, groups, pairs, self._polygons, self._options)
            counts = np.array([int(group["n"]) for group in groups], dtype=np.int64)
            self._add_pairs(Pairs(pairs.point[inside], pairs.polygon[inside]), counts, groups)

    def _ask_for_the_rest(self) -> Steps[None]:
        """Polygons of which only the server can tell what lies in them, and documents without a geohash."""
        info = self._points.info
        for number, polygon in enumerate(self._polygons):
            if polygon.region is not None and not info.unhashed:
                continue
            condition: dict[str, Any] = {info.location: polygon.within}
            if polygon.region is not None:
                condition = {info.gh: None, **condition}
            pipeline = [
                {"$match": self._points.matching(condition)},
                {"$group": {"_id": None, "n": {"$sum": 1}, **self._sums}},
            ]
            answer = yield from listed(self._points.collection.aggregate, pipeline, **self._options)
            for group in answer:
                self._counts[number] += int(group["n"])
                if self._weight is not None:
                    self._totals[number].add_group(group)
