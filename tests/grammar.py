"""Seeded random queries over everything that the rewriter touches, for `test_rewrite_server`.

A grammar: a filter is geo conditions, other conditions, and filters joined by ``$and``, ``$or`` and ``$nor``; a query
is a filter or a pipeline with the options of one of the methods. `differential` has the stranger shapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from differential import KINDS as STRANGE
from places import CENTRES, KINDS, Setup

from spatialnosql import testing
from spatialnosql.testing.sphere import log_uniform, travel

Rng = np.random.Generator
Filter = dict[str, Any]
Order = Literal["any", "sorted", "near"]
EARTH_RADIUS_M = 6_378_100.0


@dataclass(frozen=True)
class Query:
    """One question for a collection, and in what order the answer must come."""

    method: Literal["find", "find_one", "count_documents", "distinct", "aggregate"]
    filter: Filter | None = None
    pipeline: list[dict[str, Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    order: Order = "any"
    """What decides the order: nothing, a sort by a unique field, or the distance."""
    near: Any = None
    """Where distances are measured from, if by them, as ``$geoNear`` takes it."""
    distance: str | None = None
    """The field that holds the distance, if there is one."""
    whole: Query | None = None
    """The same without skip and limit, where these may cut between documents in any order."""


class Grammar:
    """Queries for a collection made by `places`, around the places of its documents."""

    def __init__(self, rng: Rng, setup: Setup, places: np.ndarray) -> None:
        self.rng, self.setup, self.places, self.location = rng, setup, places, setup.location

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _pick(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def _place(self) -> list[float]:
        """The very place of a document, near one, or a centre."""
        rng = self.rng
        lng, lat = self.places[int(rng.integers(len(self.places)))]
        if self._chance(0.3):
            lng, lat = self._pick(*CENTRES)
        elif self._chance(0.5):
            lng, lat = travel(lng, lat, rng.uniform(0, 7), float(log_uniform(rng, 1e-5, 2)))
        return [float(lng), float(lat)]

    # -- conditions ---------------------------------------------------------------------------------------

    def region(self) -> Filter:
        """A condition on the location: ``{"$geoWithin": ...}`` or ``{"$geoIntersects": ...}``."""
        how = self.rng.random()
        if how < 0.6:
            condition = self._around_places()
        elif how < 0.8:
            condition = self._through_places()
        else:
            kinds = [kind for kind in STRANGE if kind not in ("near", "geo_near")]
            condition = STRANGE[self._pick(*kinds)](self.rng).condition
        if "$geoWithin" in condition and self._chance(0.1):
            condition = {"$within": condition["$geoWithin"]}
        return condition

    def _around_places(self) -> Filter:
        radius = float(log_uniform(self.rng, 1e-2, 30))
        shape = testing.random_shape(self.rng, self._pick(*testing.KINDS), tuple(self._place()), radius)
        intersects = shape.operator == "$geometry" and self._chance(0.3)
        operator = "$geoIntersects" if intersects else "$geoWithin"
        condition: Filter = shape.query(self.location, operator)[self.location]
        return condition

    def _through_places(self) -> Filter:
        """Shapes whose vertices are the places of documents: borders are inside."""
        a, b, c = self._place(), self._place(), self._place()
        kind = self._pick("box", "circle", "triangle", "point", "points", "line", "lines", "several")
        if kind == "box":
            return {"$geoWithin": {"$box": [a, b]}}
        if kind == "circle":
            return {"$geoWithin": {"$center": [a, float(np.hypot(a[0] - b[0], a[1] - b[1]))]}}
        point, line = {"type": "Point", "coordinates": a}, {"type": "LineString", "coordinates": [a, b, c]}
        triangle = {"type": "Polygon", "coordinates": [[a, b, c, a]]}
        geometry = {
            "triangle": triangle,
            "point": point,
            "points": {"type": "MultiPoint", "coordinates": [a, b, c]},
            "line": line,
            "lines": {"type": "MultiLineString", "coordinates": [[a, b], [b, c]]},
            "several": {"type": "GeometryCollection", "geometries": [point, line, triangle]},
        }[kind]
        within = kind in ("triangle", "several") and self._chance(0.5)
        return {"$geoWithin" if within else "$geoIntersects": {"$geometry": geometry}}

    def near(self) -> tuple[Filter, Any]:
        """A near condition, and from where distances are measured."""
        point = self._place()
        if self.setup.geo_index == "2d" and abs(point[1]) > 80:
            # There the server itself loses documents: which of them depends on the other distance that is given.
            point = list(CENTRES[0])
        operator = self._pick("$near", "$nearSphere")
        limits = self._distances()
        if self.setup.geo_index == "2d" or self._chance(0.2):
            spherical = operator == "$nearSphere"
            unit = EARTH_RADIUS_M if spherical else EARTH_RADIUS_M * np.pi / 180
            legacy = self._pick(point, {"lng": point[0], "lat": point[1]})
            scaled = {f"${name}": float(value / unit) for name, value in limits.items()}
            return {operator: legacy, **scaled}, {"near": point, "spherical": spherical}
        geometry = {"type": "Point", "coordinates": point}
        bounds = {f"${name}": value for name, value in limits.items()}
        return {operator: {"$geometry": geometry, **bounds}}, {"near": geometry}

    def _distances(self) -> dict[str, float]:
        limits = {}
        farthest = float(log_uniform(self.rng, 100, 1e7))
        if self._chance(0.6):
            limits["maxDistance"] = self._pick(farthest, float(round(farthest)), round(farthest))
        if self._chance(0.3):
            limits["minDistance"] = float(farthest * self._pick(0.01, 0.1, 0.9, 1.0))
        return limits

    def other(self) -> Filter:
        """A condition on something else, or on the location but not on where it is."""
        rng, location = self.rng, self.location
        low = int(rng.integers(0, 80_000))
        return self._pick(
            {"kind": self._pick(*KINDS)},
            {"kind": {"$in": ["cafe", re.compile("^Caf")]}},
            {"kind": {"$ne": "park"}},
            {"kind": {"$nin": ["cafe", "park"]}},
            {"n": {"$gte": low, "$lt": low + 40_000}},
            {"n": {"$mod": [3, 1]}},
            {"n": {"$not": {"$gt": low}}},
            {"score": {"$lt": 55.5}},
            {"size": {"$exists": self._chance(0.5)}},
            {"size": None},
            {"kind": {"$regex": "^C", "$options": "i"}},
            {"kind": re.compile("e$")},
            {"$expr": {"$gt": ["$score", {"$multiply": ["$size", 20]}]}},
            {"items": {"$elemMatch": {"a": 1, "b": {"$gt": 2}}}},
            {"items.a": 2},
            {"tags": {"$all": ["a", "b"]}},
            {"tags": {"$size": 2}},
            {"tags": "c"},
            {"$nor": [{"kind": "cafe"}, {"n": {"$lt": low}}]},
            {"_id": {"$in": [int(i) for i in rng.integers(0, 3000, 500)]}},
            {"_id": {"$lt": 1500}},
            {"gh": {"$gte": self._pick("8", "g", "u"), "$lt": "z"}},
            {"gh": {"$exists": True}},
            {location: {"$exists": True}},
            {location: {"$ne": None}},
            {location: {"$type": self._pick("object", "array")}},
            {f"{location}.type": "Point"},
            {"elsewhere": {"$geoWithin": {"$box": [[-120, -60], [120, 60]]}}},
            {"$comment": "why not"},
            {},
        )

    def _negated(self) -> Filter:
        condition = self.region()
        return self._pick({self.location: {"$not": condition}}, {"$nor": [{self.location: condition}]})

    def filter(self, depth: int = 2) -> Filter:
        """A filter, most often with a condition on the place."""
        parts: list[Filter] = []
        if self._chance(0.85):
            parts.append({self.location: self.region()})
        if self._chance(0.2):
            parts.append({self.location: self.region()})
        if self._chance(0.15):
            parts.append(self._negated())
        while self._chance(0.3):
            parts.append(self.other())
        if depth and self._chance(0.3):
            branches = [self.filter(depth - 1) for _ in range(int(self.rng.integers(1, 4)))]
            parts.append({self._pick("$or", "$or", "$and"): branches})
        return self.joined(parts)

    def joined(self, parts: list[Filter]) -> Filter:
        """All of these: as one document where their keys allow it, else by ``$and``."""
        parts = [parts[i] for i in self.rng.permutation(len(parts))]
        keys = [key for part in parts for key in part]
        if len(set(keys)) == len(keys) and self._chance(0.7):
            return {key: value for part in parts for key, value in part.items()}
        places = [part[self.location] for part in parts if self.location in part]
        operators = [operator for place in places for operator in place]
        if len(places) > 1 and len(set(operators)) == len(operators) and self._chance(0.3):
            rest = [part for part in parts if self.location not in part]
            together = {self.location: {o: value for place in places for o, value in place.items()}}
            return {"$and": [*rest, together]}
        return {"$and": parts} if parts else {}

    # -- queries ------------------------------------------------------------------------------------------

    def query(self) -> Query:
        """Any query."""
        how = self.rng.random()
        if how < 0.15:
            return self._near_find()
        if how < 0.30:
            return self._geo_near()
        if how < 0.60:
            return self._find()
        if how < 0.67:
            sort = self._sort() if self._chance(0.5) else {}
            options = {**sort, **self._projection()}
            asked = self.filter()
            return Query(
                "find_one",
                asked,
                options=options,
                order="sorted" if sort else "any",
                whole=None if sort else Query("find", asked, options=options),
            )
        if how < 0.77:
            return Query("count_documents", self.filter(), options=self._cut(0.2))
        if how < 0.84:
            return Query("distinct", self.filter(), options={"key": self._pick("kind", "tags", "n", "size")})
        return self._match_pipeline()

    def _sort(self) -> dict[str, Any]:
        return {
            "sort": self._pick([("n", 1)], [("n", -1)], [("kind", 1), ("n", -1)], {"score": -1, "_id": 1})
        }

    def _cut(self, share: float) -> dict[str, Any]:
        options = {}
        if self._chance(share):
            options["limit"] = int(self.rng.integers(1, 60))
        if self._chance(share / 2):
            options["skip"] = int(self.rng.integers(1, 30))
        return options

    def _projection(self) -> dict[str, Any]:
        if self._chance(0.6):
            return {}
        return {"projection": self._pick(["n"], {"gh": 0}, {self.location: 1}, {"tags": {"$slice": 1}})}

    def _find(self) -> Query:
        asked = self.filter()
        shown = self._projection()
        if self._chance(0.2):
            shown["batch_size"] = int(self.rng.integers(1, 40))
        cut = self._cut(0.3)
        if self._chance(0.4):
            return Query("find", asked, options={**self._sort(), **cut, **shown}, order="sorted")
        whole = Query("find", asked, options=shown) if cut else None
        return Query("find", asked, options={**cut, **shown}, whole=whole)

    def _near_filter(self, near: Filter) -> Filter:
        parts = [{self.location: near}]
        if self._chance(0.2):
            parts.append({self.location: self.region()})
        while self._chance(0.4):
            parts.append(self.other())
        return self.joined(parts)

    def _near_find(self) -> Query:
        near, origin = self.near()
        asked = self._near_filter(near)
        shown = self._projection()
        cut = self._cut(0.6)
        if self._chance(0.3):
            return Query("find", asked, options={**self._sort(), **cut, **shown}, order="sorted")
        whole = Query("find", asked, options=shown, order="near", near=origin)
        if self._chance(0.15):
            return Query("find_one", asked, options=shown, order="near", near=origin, whole=whole)
        if not cut:
            return whole
        return Query("find", asked, options={**cut, **shown}, order="near", near=origin, whole=whole)

    def _geo_near(self) -> Query:
        _, origin = self.near()
        stage: dict[str, Any] = {**origin, "distanceField": self._pick("d", "at.distance")}
        flat = self.setup.geo_index == "2d" and not origin.get("spherical", True)
        # In the unit of the origin: metres for GeoJSON, radians or degrees for legacy pairs.
        unit = 1.0 if isinstance(origin["near"], dict) else EARTH_RADIUS_M * (np.pi / 180 if flat else 1)
        stage |= {name: float(value / unit) for name, value in self._distances().items()}
        if self._chance(0.5):
            stage["query"] = self.joined([self.other() for _ in range(int(self.rng.integers(0, 3)))])
        if self._chance(0.2):
            stage["query"] = {self.location: self.region()}
        if self._chance(0.4):
            stage["key"] = self.location
        if self._chance(0.2):
            stage["includeLocs"] = "there"
        if self._chance(0.2):
            stage["distanceMultiplier"] = 0.001
        first = {"$geoNear": stage}
        distance = stage["distanceField"]
        return self._after_geo_near(first, distance)

    def _after_geo_near(self, first: dict[str, Any], distance: str) -> Query:
        def query(*stages: dict[str, Any], order: Order = "near", whole: Query | None = None) -> Query:
            return Query("aggregate", pipeline=[first, *stages], order=order, distance=distance, whole=whole)

        limit, skip = {"$limit": int(self.rng.integers(1, 60))}, {"$skip": int(self.rng.integers(1, 20))}
        match, shown = {"$match": self.other()}, {"$project": {distance: 1, "n": 1}}
        count = {"$group": {"_id": None, "documents": {"$sum": 1}}}
        by_kind = {"$group": {"_id": "$kind", "documents": {"$sum": 1}, "least": {"$min": "$n"}}}
        everything, matched = query(), query(match)
        return self._pick(
            everything,
            matched,
            query(shown),
            query(
                {"$set": {"more": {"$add": ["$n", 1]}}},
                limit,
                whole=query({"$set": {"more": {"$add": ["$n", 1]}}}),
            ),
            query(limit, whole=everything),
            query(skip, limit, whole=everything),
            query(limit, shown, whole=query(shown)),
            query(limit, {"$limit": 5}, whole=everything),
            query(limit, match, count, order="any")
            if match == {"$match": {}}
            else query(limit, count, order="any"),
            query(match, limit, whole=matched),
            query(by_kind, order="any"),
            query(match, by_kind, order="any"),
            query({"$sort": {"n": 1}}, order="sorted"),
            query({"$sort": {"n": -1}}, limit, order="sorted"),
            query({"$sort": {"kind": 1, "n": 1}}, skip, limit, order="sorted"),
            query({"$sort": {distance: 1, "n": 1}}, limit, order="sorted"),
            query({"$sort": {distance: -1, "n": 1}}, limit, order="sorted"),
            query(
                {"$match": {distance: {"$gt": 10}}}, limit, whole=query({"$match": {distance: {"$gt": 10}}})
            ),
            query({"$unwind": "$tags"}, by_kind, order="any"),
            query({"$count": "documents"}, order="any"),
        )

    def _match_pipeline(self) -> Query:
        match, again = {"$match": self.filter()}, {"$match": self.filter(0)}
        unique, limit = (
            {"$sort": self._pick({"n": 1}, {"kind": -1, "n": 1})},
            {"$limit": int(self.rng.integers(1, 99))},
        )
        by_kind = {"$group": {"_id": "$kind", "documents": {"$sum": 1}, "least": {"$min": "$n"}}}
        moved = {"$set": {self.location: {"type": "Point", "coordinates": self._place()}}}
        ordered = self._chance(0.5)
        pipeline = (
            self._pick(
                [match, unique],
                [match, unique, limit],
                [unique, match],
                [unique, match, limit],
                [unique, limit, match],
                [match, unique, again],
                [match, unique, {"$skip": 7}, limit, {"$project": {"n": 1, "gh": 1}}],
            )
            if ordered
            else self._pick(
                [match],
                [match, again],
                [match, by_kind],
                [match, {"$count": "documents"}],
                [match, {"$group": {"_id": None, "documents": {"$sum": 1}}}],
                [match, {"$unwind": "$tags"}, {"$group": {"_id": "$tags", "documents": {"$sum": 1}}}],
                [match, {"$project": {"n": 1, self.location: 1}}, again],
                [moved, match],
                [match, moved, again],
                [{"$project": {self.location: 1, "gh": "never"}}, match],
                [{"$set": {"gh": "zzzzzzzzzzzz"}}, match],
                [
                    match,
                    {"$facet": {"few": [unique, {"$limit": 3}], "all": [by_kind, {"$sort": {"_id": 1}}]}},
                ],
                [match, limit, {"$count": "documents"}],
            )
        )
        return Query("aggregate", pipeline=pipeline, order="sorted" if ordered else "any")
