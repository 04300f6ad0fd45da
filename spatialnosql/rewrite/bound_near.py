"""Rule: a near condition with a greatest distance gets the ranges of its circle beside it.

Before: ``{loc: {$nearSphere: {$geometry: POINT, $maxDistance: 500}}}``
After: the same, and ``{$or: [{gh: RANGES}...]}``

Sound because every document within the distance lies in the ranges. The server still measures and sorts. mongos asks
only the shards that hold the ranges; without them, on geohash shards, every shard walks outwards through all it has.

A near condition without a distance but with a limit is given a window: the radius that should hold enough documents by
the histogram. Whoever runs the plan checks that it did, and widens it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialnosql.cover import Cover
from spatialnosql.geohash import BITS, cell_neighbours, cells_to_ranges, points_to_cells
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.histogram import Histogram
from spatialnosql.region import IntersectionRegion, Region
from spatialnosql.rewrite.fragments import any_of, conditions, cover_of
from spatialnosql.rewrite.own_indexes import WITH_PLACE, rather_by_own_index
from spatialnosql.rewrite.plan import Context, Filter, NearWindow, Notes
from spatialnosql.rewrite.predicates import Conjunction, Near, read

MOST_NEEDED = 1000  # more than so many nearest are not bought by widening
_HALF_EARTH_M = math.pi * EARTH_RADIUS_M
_SLACK = 3.0  # a window for so many times the documents needed is rarely too small


def bound_near(conjunction: Conjunction, context: Context, notes: Notes) -> Conjunction:
    """Add the ranges of the circle, or a window for the nearest few."""
    near = conjunction.near
    if near is None:
        return conjunction
    if rather_by_own_index(conjunction.others, context):
        notes.declined(WITH_PLACE)
        return conjunction
    if near.region is None:
        window = window_for(near, context)
        if window is None:
            notes.declined("near without a greatest distance, and without a limit to guess one from")
        else:
            notes.near = window
            notes.applied(
                "bound_near",
                f"the nearest {window.needed} expected within {window.first_radius_m:.0f} m; wider when short",
            )
        return conjunction
    covering = near_cover(near.region, conjunction, context)
    why_not = why_not_bound(covering, context.info.histogram)
    if why_not is not None:
        notes.declined(why_not)
        return conjunction
    extra = near_ranges(covering, context)
    notes.applied("bound_near", f"the circle covered by {len(covering.outer)} ranges")
    notes.covers.append(covering)
    return Conjunction(conjunction.predicates, near, [*conjunction.others, extra])


def near_cover(region: Region, conjunction: Conjunction, context: Context) -> Cover:
    """The cover of a near region and of what else the location must meet."""
    others = tuple(predicate.region for predicate in conjunction.predicates)
    return cover_of(IntersectionRegion((region, *others)) if others else region, context)


def near_ranges(covering: Cover, context: Context) -> dict[str, Any]:
    """The ranges as a condition to stand beside a near."""
    parts = conditions(covering.outer, context.info.gh)
    if context.info.unhashed:
        parts.append({context.info.gh: None})
    return any_of(parts, context.info.gh)


def why_not_bound(covering: Cover, histogram: Histogram | None) -> str | None:
    """Why ranges would not serve a near condition: there are none, or they hold most of the points."""
    if not len(covering.outer):
        # With ranges that nothing is in, the server would not even see that the near has no index.
        return "the circle holds no place"
    if histogram is None or not histogram.total:
        return None
    share = covering.outer.held(histogram) / histogram.total
    return "the circle holds most of the collection" if share > 0.8 else None


def window_for(near: Near, context: Context) -> NearWindow | None:
    """The first window for the nearest `limit` documents; None without a limit or without statistics."""
    needed = context.limit + context.skip
    histogram = context.info.histogram
    if not context.limit or needed > MOST_NEEDED or histogram is None or not near.spherical:
        return None
    radius = radius_for(near.lng, near.lat, needed * _SLACK, histogram, near.min_distance_m)
    if radius is None:
        return None
    return NearWindow(near.operator, near.lng, near.lat, near.min_distance_m, needed, radius)


def radius_for(
    lng: float, lat: float, wanted: float, histogram: Histogram, min_distance_m: float = 0.0
) -> float | None:
    """The radius within which so many points are expected; None if there are not so many at all.

    By the density of the smallest block of 3 x 3 cells around the place that holds enough of them.
    """
    place = int(points_to_cells([lng], [lat])[0])
    emptier = math.inf
    for bits in range(histogram.bits - histogram.bits % 2, 0, -2):
        cell = np.array([place >> (BITS - bits)], dtype=np.uint64)
        block = np.unique(np.append(cell, cell_neighbours(cell, bits)))
        count = float(histogram.points_in(*cells_to_ranges(block, bits)).sum())
        if count >= wanted:
            break
        emptier = count
    else:
        return None
    height = _HALF_EARTH_M / 2 ** (bits // 2)
    width = 2 * height * max(math.cos(math.radians(lat)), 0.01)
    whole = 2 * math.hypot(width, height)
    # Evenly spread points thin out to a quarter from one precision to the next. Where they are far fewer, they lie in
    # some corner of the block, and only a circle around all of it is sure to meet them.
    even = emptier >= wanted / 8
    radius = min(whole, 1.2 * math.sqrt(wanted * 9 * width * height / (math.pi * count))) if even else whole
    return max(radius, 1.0) + min_distance_m


def windows(window: NearWindow) -> list[float]:
    """The radii to ask within, in turn, before the query is sent as it is."""
    radii = [window.first_radius_m * 4**step for step in range(3)]
    return [radius for radius in radii if radius < _HALF_EARTH_M]


def within_window(filter: Filter, radius_m: float, context: Context) -> Filter:
    """A filter with a near that has no greatest distance, given one, and the ranges of that circle beside it."""
    bounded = with_distance(filter, radius_m, context.info.location)
    conjunction = read(bounded, context.info)
    assert conjunction.near is not None
    assert conjunction.near.region is not None
    covering = near_cover(conjunction.near.region, conjunction, context)
    return beside(bounded, [near_ranges(covering, context)])


def beside(filter: Filter, added: list[dict[str, Any]]) -> Filter:
    """A filter with further conditions; a near in it keeps its place and its spelling, which the server minds."""
    return {**filter, "$and": [*filter["$and"], *added] if "$and" in filter else added}


def with_distance(filter: Filter, radius_m: float, location: str) -> Filter:
    """A filter whose near has no greatest distance, given one."""
    bounded: dict[str, Any] = {}
    for key, value in filter.items():
        if key == "$and":
            bounded[key] = [with_distance(part, radius_m, location) for part in value]
        elif key == location and isinstance(value, Mapping) and "$nearSphere" in value:
            bounded[key] = _bounded(value, "$nearSphere", radius_m)
        elif key == location and isinstance(value, Mapping) and "$near" in value:
            bounded[key] = _bounded(value, "$near", radius_m)
        else:
            bounded[key] = value
    return bounded


def _bounded(value: Mapping[str, Any], operator: str, radius_m: float) -> dict[str, Any]:
    operand = value[operator]
    if isinstance(operand, Mapping) and "$geometry" in operand:
        return {**value, operator: {**operand, "$maxDistance": radius_m}}
    return {**value, "$maxDistance": radius_m / EARTH_RADIUS_M}
