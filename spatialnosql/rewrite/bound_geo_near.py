"""Rule: a first stage ``$geoNear`` with a greatest distance gets the ranges of its circle into its ``query``.

Before: ``{$geoNear: {near: POINT, distanceField: "d", maxDistance: 500}}``
After: the same with ``query: {$or: [{gh: RANGES}...]}``

Sound as `bound_near` is. Without a distance, a ``$limit`` behind it (a ``$skip`` may stand between) gives a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spatialnosql.geometry import EARTH_RADIUS_M, geojson_point, legacy_point
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.bound_near import near_cover, near_ranges, why_not_bound, window_for
from spatialnosql.rewrite.fragments import all_of
from spatialnosql.rewrite.own_indexes import WITH_PLACE, rather_by_own_index
from spatialnosql.rewrite.plan import Context, Filter, Notes
from spatialnosql.rewrite.predicates import Conjunction, Near, Unreadable, read

# Stages that give out a document for each that they take: their results can be counted to see whether k were found.
ONE_TO_ONE = ("$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith")


def bound_geo_near(stages: Sequence[Mapping[str, Any]], context: Context, notes: Notes) -> Mapping[str, Any]:
    """The first stage with its ranges, or as it is."""
    stage = stages[0]["$geoNear"]
    if not isinstance(stage, Mapping) or len(stages[0]) != 1:
        raise Unreadable("$geoNear takes a document, and stands alone in its stage")
    near = read_geo_near(stage, context.info)
    query = stage.get("query", {})
    if not isinstance(query, Mapping):
        raise Unreadable("the query of $geoNear is no document")
    if near.region is None:
        _open_window(near, read(query, context.info).others, stages, context, notes)
        return stages[0]
    conjunction = read(query, context.info)
    covering = near_cover(near.region, Conjunction(conjunction.predicates), context)
    why_not = why_not_bound(covering, context.info.histogram)
    if why_not is not None:
        notes.declined(why_not)
        return stages[0]
    ranges = near_ranges(covering, context)
    notes.applied("bound_geo_near", f"the circle covered by {len(covering.outer)} ranges")
    notes.covers.append(covering)
    return {"$geoNear": {**stage, "query": all_of([dict(query), ranges]) if query else ranges}}


def pipeline_within_window(
    stages: Sequence[Mapping[str, Any]], radius_m: float, context: Context
) -> list[Mapping[str, Any]]:
    """A pipeline whose first ``$geoNear`` has no greatest distance, given one, with the ranges of that circle."""
    stage = stages[0]["$geoNear"]
    point = stage["near"]
    in_metres = isinstance(point, Mapping) and "coordinates" in point
    bounded = {**stage, "maxDistance": radius_m if in_metres else radius_m / EARTH_RADIUS_M}
    near = read_geo_near(bounded, context.info)
    assert near.region is not None
    query = stage.get("query", {})
    conjunction = read(query, context.info)
    covering = near_cover(near.region, Conjunction(conjunction.predicates), context)
    ranges = near_ranges(covering, context)
    query = all_of([dict(query), ranges]) if query else ranges
    return [{"$geoNear": {**bounded, "query": query}}, *stages[1:]]


def read_geo_near(stage: Mapping[str, Any], info: CollectionInfo) -> Near:
    """The near condition that a ``$geoNear`` stage stands for."""
    key = stage.get("key", info.location)
    if key != info.location:
        raise Unreadable(f"$geoNear by another field, {key!r}")
    if "key" not in stage and sum(_is_geo(index.keys) for index in info.indexes) != 1:
        raise Unreadable("$geoNear does not say which of several geo indexes it means")
    point = stage.get("near")
    geojson = isinstance(point, Mapping) and "coordinates" in point
    lng, lat = geojson_point(point) if geojson else legacy_point(point)
    flat_index = any(index.keys[0] == (info.location, "2d") for index in info.indexes)
    spherical = geojson or bool(stage.get("spherical", False)) or not flat_index
    unit = 1.0 if geojson or not spherical else EARTH_RADIUS_M
    low, high = stage.get("minDistance", 0), stage.get("maxDistance", math.inf)
    for value in (low, high):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise Unreadable(f"a distance of {value!r} in $geoNear")
    return Near("$geoNear", point, lng, lat, low * unit, high * unit, spherical)


def _is_geo(keys: tuple[tuple[str, Any], ...]) -> bool:
    return any(kind in ("2d", "2dsphere") for _, kind in keys)


def _open_window(
    near: Near,
    others: Sequence[Filter],
    stages: Sequence[Mapping[str, Any]],
    context: Context,
    notes: Notes,
) -> None:
    skip = limit = 0
    is_sorted = False  # a limit behind a sort would choose others than the nearest
    for stage in stages[1:]:
        operator, value = next(iter(stage.items()))
        if operator == "$skip" and isinstance(value, int) and not limit and not is_sorted:
            skip += value
        elif operator == "$limit" and isinstance(value, int) and not is_sorted:
            limit = value if not limit else min(limit, value)
        elif operator == "$sort":
            is_sorted = True
        elif operator not in ONE_TO_ONE:
            break
    else:
        cut = context.with_limit(limit, skip)
        if rather_by_own_index(others, cut):
            notes.declined(WITH_PLACE)
            return
        window = window_for(near, cut) if limit else None
        if window is not None:
            notes.near = window
            notes.applied(
                "bound_geo_near",
                f"the nearest {window.needed} expected within {window.first_radius_m:.0f} m; wider when short",
            )
            return
    notes.declined("$geoNear without a greatest distance, and without a limit whose filling could be seen")
