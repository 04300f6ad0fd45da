"""Rule for ``$geoNear``: by rings, as `ring_near` does it, with the fields that the stage adds to its documents.

Before: ``[{$geoNear: {near: POINT, distanceField: "d"}}, {$limit: 10}]``
After: ``find({$or: [{gh: RANGES OF A RING}...]})``, with ``d`` computed here just as the server computes it.

Only where nothing follows but ``$skip`` and ``$limit``: whatever else follows is the servers' work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.rewrite.bound_geo_near import read_geo_near
from spatialnosql.rewrite.plan import Context, Plan
from spatialnosql.rewrite.predicates import Conjunction, read
from spatialnosql.rewrite.ring_near import ring_near

_KNOWN = frozenset(
    {
        "near",
        "distanceField",
        "spherical",
        "key",
        "query",
        "minDistance",
        "maxDistance",
        "distanceMultiplier",
        "includeLocs",
    }
)


@dataclass(frozen=True)
class GeoNearFields:
    """What the stage adds to a document."""

    distance: str | None
    multiplier: float | None
    location: str | None

    def added(self, document: Any, distance_m: float, place: Any) -> Any:
        """A document with its distance and its place, at its end as the server puts them."""
        if self.distance is not None:
            document[self.distance] = distance_m if self.multiplier is None else distance_m * self.multiplier
        if self.location is not None:
            document[self.location] = place
        return document


@dataclass(frozen=True)
class RingGeoNear:
    """A plan by rings, what is skipped and wanted of it, and what is added to each document."""

    plan: Plan
    skip: int
    limit: int
    fields: GeoNearFields


def ring_geo_near(stages: Sequence[Mapping[str, Any]], context: Context) -> RingGeoNear | None:
    """The plan for a pipeline that begins with ``$geoNear``; None if it is to be sent, rewritten or not."""
    if (
        not stages
        or set(stages[0]) != {"$geoNear"}
        or context.info.why_not is not None
        or not context.qos.rewrite
    ):
        return None
    stage, cut = stages[0]["$geoNear"], _cut(stages[1:])
    if not isinstance(stage, Mapping) or set(stage) - _KNOWN or cut is None:
        return None
    fields, point, query = _fields(stage), stage.get("near"), stage.get("query", {})
    if fields is None or not isinstance(point, Mapping) or "coordinates" not in point:
        return None  # legacy points have their distances in radians
    if not isinstance(query, Mapping):
        return None
    try:
        near = read_geo_near(stage, context.info)
        inside = read(query, context.info)
    except SpatialNoSQLError:
        return None
    if inside.near is not None:
        return None
    bounds = {f"${name}": stage[name] for name in ("minDistance", "maxDistance") if name in stage}
    filter_ = {context.info.location: {"$nearSphere": {"$geometry": point, **bounds}}}
    asked = {**filter_, "$and": [query]} if query else filter_
    skip, limit = cut
    plan = ring_near(
        asked, Conjunction(inside.predicates, near, inside.others), context.with_limit(limit, skip)
    )
    return None if plan is None or plan.rings is None else RingGeoNear(plan, skip, limit, fields)


def _cut(stages: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """What ``$skip`` and ``$limit`` leave, as one skip and one limit (0 = all); None if there is anything else."""
    skip, limit = 0, 0
    for stage in stages:
        operator, value = next(iter(stage.items()))
        if len(stage) != 1 or type(value) is not int or value < 1:
            return None
        if operator == "$skip":
            if limit and value >= limit:
                return None  # nothing is left: not worth a case of its own
            skip, limit = skip + value, limit - value if limit else 0
        elif operator == "$limit":
            limit = min(limit, value) if limit else value
        else:
            return None
    return skip, limit


def _fields(stage: Mapping[str, Any]) -> GeoNearFields | None:
    distance, location = stage.get("distanceField"), stage.get("includeLocs")
    multiplier = stage.get("distanceMultiplier")
    if multiplier is not None and (type(multiplier) not in (int, float) or not multiplier >= 0):
        return None
    for name in (distance, location):
        if name is not None and (not isinstance(name, str) or not name or "." in name or "$" in name):
            return None
    return GeoNearFields(distance, multiplier, location)
