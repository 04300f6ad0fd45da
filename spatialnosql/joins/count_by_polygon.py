"""How many points lie in each polygon, or how much of a field: one pass over the points, however many polygons.

What lies inside is added up by the servers, from the index alone if neither a filter nor a weight is given; at the
borders the keys come to the client, once for all polygons, and are settled there. The commands are sent side by side
and each sees its own moment: while points change, one that moves may be counted twice or not at all. With `consistent`
all of them read at one cluster time, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymongo.errors import OperationFailure

from spatialnosql.edges import Ints, ragged
from spatialnosql.errors import UsageError
from spatialnosql.geohash import Cells, cells_to_strings, strings_to_cells
from spatialnosql.joins.covering import overlay_of, range_keys
from spatialnosql.joins.estimates import estimated
from spatialnosql.joins.overlay import Overlay, Pairs
from spatialnosql.joins.passes import SCANNED, Passes, passes, split
from spatialnosql.joins.points import JoinPoints, checked_options, open_points, opened_session
from spatialnosql.joins.polygon_collection import polygons_of
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.tallies import AsOf, Tallies, Tally
from spatialnosql.joins.undecided import ASKED_AT_ONCE, GH, decided, groups_at
from spatialnosql.joins.weights import Total, Weight
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.steps import Call, Steps, call, listed, run, together

AS_OF = "last_analyze"
_KEYS_AT_ONCE = 100_000  # that one command brings: 2.5 MB
_PAIRS_AT_ONCE = 500_000  # of a key and a polygon: where many polygons lie over each other
_SIDE_BY_SIDE = 4  # commands
_TOO_LARGE = (10334, 17419, 17420, 146)  # what a server says of documents over 16 MB or lists over 100 MB


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
    return run(
        count_steps(
            points,
            polygons,
            filter=filter,
            weight=weight,
            as_of=as_of,
            borders=borders,
            consistent=consistent,
            options=options,
        )
    )


def count_steps(
    points: Any,
    polygons: Any,
    *,
    filter: Mapping[str, Any] | None = None,
    weight: Any = None,
    as_of: str | None = None,
    borders: str = "read",
    consistent: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Steps[Tallies]:
    """The steps of `count_by_polygon`."""
    if borders not in ("read", "estimated"):
        raise UsageError(f"borders is {borders!r}; it must be 'read' or 'estimated'")
    if as_of not in (None, AS_OF):
        raise UsageError(f"as_of is {as_of!r}; it must be {AS_OF!r}, or None for now")
    if borders == "estimated" and as_of is None:
        raise UsageError(f"borders='estimated' goes with as_of={AS_OF!r}: what is of now is read")
    measured, given = Weight.of(weight), checked_options(options)
    opened = yield from open_points(points, filter, newest=as_of is not None)
    if as_of is not None:
        _check_as_of(opened, measured)
    session = yield from opened_session(opened, given, consistent)
    try:
        areas = yield from polygons_of(polygons, opened.info, given)
        if as_of is not None:
            _check_areas(areas)
        if borders == "estimated":
            return estimated(areas, overlay_of(areas, opened.info), opened.info)
        counter = _Counter(opened, areas, measured, given)
        return (yield from counter.tallies(stored=as_of is not None))
    finally:
        if session is not None:
            yield from call(session.end_session)


def _check_areas(polygons: Polygons) -> None:
    for polygon in polygons:
        if polygon.region is None:
            raise UsageError(
                f"of polygon {polygon.id!r} only the server can tell, not as_of: {polygon.why_not}"
            )


def _check_as_of(points: JoinPoints, weight: Weight | None) -> None:
    info = points.info
    if points.filter or weight is not None:
        raise UsageError(
            "as_of knows how many points lie where, not what their fields are: no filter, no weight"
        )
    if info.histogram is None or info.analyzed is None:
        raise UsageError(f"{info.namespace} has no statistics; run `spatialnosql analyze {info.namespace}`")
    if info.unhashed:
        raise UsageError(
            f"{info.namespace} may hold documents without a geohash, of which no statistics tell"
        )


class _Counter:
    """One call: what is asked, and the totals so far."""

    def __init__(
        self, points: JoinPoints, polygons: Polygons, weight: Weight | None, options: dict[str, Any]
    ) -> None:
        self._points, self._polygons, self._weight, self._options = points, polygons, weight, options
        self._overlay: Overlay = overlay_of(polygons, points.info)
        self._regions = [polygon.region for polygon in polygons]
        self._counts = np.zeros(len(polygons), dtype=np.int64)
        self._totals = [Total(weight) for _ in polygons] if weight is not None else []
        self._undecided: list[tuple[Cells, Ints]] = []
        self._keys = 0

    def tallies(self, *, stored: bool) -> Steps[Tallies]:
        info = self._points.info
        histogram = yield from self._points.trusted_histogram()
        reading = passes(self._overlay, histogram, range_keys(info.costs), stored=stored)
        if stored:
            self._add_stored(reading)
        calls = [
            (characters, part)
            for characters, ranges in reading.ranges.items()
            for part in split(ranges, histogram, _KEYS_AT_ONCE if characters == SCANNED else np.inf)
        ]
        in_turn = self._options.get("session") is not None
        for start in range(0, len(calls), _SIDE_BY_SIDE):
            some = calls[start : start + _SIDE_BY_SIDE]
            try:
                answers = yield from together([self._read(*one) for one in some], in_turn=in_turn)
            except OperationFailure as error:
                if error.code not in _TOO_LARGE:
                    raise
                answers = yield from together(
                    [self._read(*one, whole=False) for one in some], in_turn=in_turn
                )
            for (characters, _), answer in zip(some, answers, strict=True):
                self._add(answer, characters, reading)
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

    # -- reading ------------------------------------------------------------------------------------------

    def _read(self, characters: int, ranges: Any, *, whole: bool = True) -> Call:
        """The command for some ranges; with `whole` all keys come in one document, if only they are wanted."""
        gh = self._points.info.gh
        match = {"$match": self._points.matching(any_of(conditions(ranges, gh), gh))}
        group: dict[str, Any]
        if characters == SCANNED and self._weight is None and whole:
            group = {"_id": None, "keys": {"$push": f"${gh}"}}
        else:
            place = f"${gh}" if characters == SCANNED else {"$substrBytes": [f"${gh}", 0, characters]}
            more = {} if self._weight is None else self._weight.accumulators
            group = {"_id": place, "n": {"$sum": 1}, **more}
        given = {"allowDiskUse": True, **self._points.hint, **self._options}
        return Call(self._points.collection.aggregate, ([match, {"$group": group}],), given, listed=True)

    def _add_stored(self, reading: Passes) -> None:
        """What lies inside, from the statistics."""
        histogram = self._points.info.histogram
        assert histogram is not None
        inner = np.flatnonzero(reading.characters != SCANNED)
        held = histogram.points_in(reading.overlay.lo[inner], reading.overlay.hi[inner])
        at, polygon = reading.overlay.inside.expanded(inner)
        np.add.at(self._counts, polygon, np.rint(held[at]).astype(np.int64))

    def _add(self, answer: list[Any], characters: int, reading: Passes) -> None:
        """Add up the answer to one command."""
        if characters == SCANNED and self._weight is None and answer and "keys" in answer[0]:
            cells, counts = np.unique(strings_to_cells(answer[0]["keys"]), return_counts=True)
            groups: list[Any] = []
        else:
            cells = strings_to_cells([group["_id"] for group in answer])
            counts = np.array([int(group["n"]) for group in answer], dtype=np.int64)
            groups = answer
        # In the gaps between ranges that were joined there are keys that another command counts, or nobody.
        segment = reading.overlay.segments_of(cells)
        mine = (segment >= 0) & (reading.characters[np.maximum(segment, 0)] == characters)
        if characters == SCANNED:
            self._keys += int(counts[mine].sum())
        cells, counts = cells[mine], counts[mine]
        groups = [groups[i] for i in np.flatnonzero(mine).tolist()] if groups else groups
        for part in self._overlay.slices(cells, _PAIRS_AT_ONCE):
            pairs, unsure = self._overlay.pairs(cells[part], self._regions)
            self._add_pairs(pairs, counts[part], groups[part])
            self._undecided.append((cells[part][unsure.point], unsure.polygon))

    def _add_pairs(self, pairs: Pairs, counts: NDArray[np.int64], groups: list[Any]) -> None:
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
        sums = {} if self._weight is None else self._weight.accumulators
        unique = np.unique(cells)
        for start in range(0, unique.size, ASKED_AT_ONCE):
            some = unique[start : start + ASKED_AT_ONCE]
            groups = yield from groups_at(self._points, cells_to_strings(some).tolist(), sums, self._options)
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
            more = {} if self._weight is None else self._weight.accumulators
            pipeline = [
                {"$match": self._points.matching(condition)},
                {"$group": {"_id": None, "n": {"$sum": 1}, **more}},
            ]
            answer = yield from listed(self._points.collection.aggregate, pipeline, **self._options)
            for group in answer:
                self._counts[number] += int(group["n"])
                if self._weight is not None:
                    self._totals[number].add_group(group)
