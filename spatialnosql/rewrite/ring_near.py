"""Rule for near: documents by ranges of ``gh``, ring after ring around the place, measured and sorted in the client.

Before: ``find({loc: {$nearSphere: POINT}}).limit(10)``
After: ``find({$or: [{gh: RANGES OF A RING}...]})``, the first ring as wide as ten documents should need.

Sound because every document nearer than the end of a ring lies in its ranges or in an earlier ring's. Ranges that were
read are not read again: what lies in them beyond the end of their ring is kept for the next one. A ring that brought
too few is followed by a wider one, until there are enough or the greatest distance is reached; once enough documents
are known, wherever they are, the farthest of them says how wide. The server's own near machinery, which on geohash
shards walks through everything that a shard far away holds, is not used at all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import bson
from bson.errors import InvalidDocument

from spatialnosql.block import block_around
from spatialnosql.cover import NOTHING, Ranges, cover
from spatialnosql.density import enough, radius_m, remembered_radius_m
from spatialnosql.geometry import EARTH_RADIUS_M, near_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.region import IntersectionRegion, Region
from spatialnosql.rewrite.bound_near import with_distance
from spatialnosql.rewrite.cost import CLIENT
from spatialnosql.rewrite.fragments import all_of, any_of, conditions, encoded_as, snapshot
from spatialnosql.rewrite.own_indexes import (
    SURELY,
    WITH_PLACE,
    fewer_in_all,
    fields_behind_gh,
    fields_of,
    found_with_place,
    have_index,
    may_be_rare,
    names_of,
    rather_by_own_index,
    share_of,
)
from spatialnosql.rewrite.plan import Context, Filter, Plan, Rings
from spatialnosql.rewrite.predicates import Conjunction, Near
from spatialnosql.rewrite.settled import why_not_settled

RING_POINTS = 20_000
"""A ring is made to hold no more points than about this: it is sorted in memory."""

FIRST_POINTS = 5_000
"""The first ring of a query for everything in order, which may be read only as far as its reader likes."""

# For few points a block of so many cells is sooner made than a cover, and hardly dearer to read.
_BLOCKS = ((16, 60.0), (64, 120.0), (256, 400.0))
# Where fewer points are expected up to the greatest distance than are wanted, a smaller one may do.
_LAST_BLOCKS = ((8, 40.0), *_BLOCKS[1:])
# What was seen of other conditions may be wrong of this place: no more points than so many are read because of it.
_MOST_THINNED = 1_000.0
_SOONER_READ = 24.0  # so many documents are sooner read than the density around a place is looked up
_FEWEST_TESTED, _MOST_TESTED, _LARGEST_TESTED_M = 16, 1_000, 1e6
_MARGIN_M = 1.0  # what is as far as that from a circle's rim is left to the client


class Ring(NamedTuple):
    """What is to be read for the documents up to a distance."""

    ranges: Ranges
    surely_m: float  # up to here they hold all documents
    held: float  # points that are expected in them and were not read yet


def ring_near(filter: Filter, conjunction: Conjunction, context: Context) -> Plan | None:
    """The plan for a near; None where only the server's machinery will do."""
    near = conjunction.near
    assert near is not None
    if why_not_rings(conjunction, context) is not None:
        return None
    rings = rings_of(near, conjunction, filter, context)
    what = f"the nearest {rings.needed}" if rings.needed else "all"
    return Plan(
        filter,
        filter=filter,
        hint=rings.hint_for(rings.expected),
        rewritten=True,
        rules=("ring_near",),
        reasons=(
            f"{what} by ranges and sorted in the client: about {rings.expected:.0f} documents within "
            f"{rings.first_m:.0f} m first, then wider rings",
        ),
        commands=1 if rings.first_m >= rings.max_m else 2,
        form=CLIENT,
        rings=rings,
    )


def why_not_rings(conjunction: Conjunction, context: Context) -> str | None:
    """Why a near cannot go by rings, or had better not; None if it can."""
    near, info, qos = conjunction.near, context.info, context.qos
    assert near is not None
    if not near.spherical or not info.nears_on_sphere:
        return "the server does not measure it on a sphere"
    if qos.form == "server":
        return "the servers' form was asked for"
    # A condition with an index of its own is no reason here: the ranges are not hinted then.
    others = [other for other in conjunction.others if not _has_own_index(other, info)]
    together = [other for other in others if found_with_place([other], info)]
    why_not = why_not_settled(Conjunction(others=[one for one in others if one not in together]), info, qos)
    if why_not is not None or qos.form == "client" or not found_with_place(conjunction.others, info):
        return why_not
    # Of all documents there are, the index finds those that are wanted sooner.
    return WITH_PLACE if not context.limit or rather_by_own_index(conjunction.others, context) else None


def rings_of(near: Near, conjunction: Conjunction, filter: Filter, context: Context) -> Rings:
    """The rings around a place for so many documents, or for all of them; `filter` is a find's that asks for it."""
    info, needed = context.info, context.limit + context.skip if context.limit else 0
    histogram = info.histogram
    assert histogram is not None
    others = tuple(conjunction.others)
    share = share_of(others, info)
    points = _first_points(needed, share) if needed else FIRST_POINTS
    known = remembered_radius_m(near.lng, near.lat, points, histogram)
    if known is None and _all_in_one(near, points, histogram):
        first = near.max_distance_m
    else:
        radius = radius_m(near.lng, near.lat, points, histogram, beyond_m=near.min_distance_m)
        first = min(radius, near.max_distance_m)
    # Of all documents there is no number that rings may take too long for, and whoever insists on them gets them.
    may_end = needed > 0 and context.qos.form == "cheapest"
    return Rings(
        near.lng,
        near.lat,
        near.min_distance_m,
        near.max_distance_m,
        needed,
        first,
        points,
        tuple(predicate.region for predicate in conjunction.predicates),
        others,
        all_of([predicate.condition for predicate in conjunction.predicates])
        if conjunction.predicates
        else {},
        _end_tests(near, filter, info),
        None if fields_of(others) & fields_behind_gh(info) else info.gh_index,
        names_of(others),
        _hinted(others, needed, info, histogram),
        context.qos.max_ranges,
        _as_it_came(filter) if may_end and found_with_place(others, info) else None,
    )


def _end_tests(near: Near, filter: Filter, info: CollectionInfo) -> Filter:
    """What the server is asked about documents at an end of the distances, as the filter is now."""
    if not math.isfinite(near.max_distance_m):
        if not near.min_distance_m:
            return {}  # there is no end
        # Not bounded, it would walk through everything to find those at its least distance.
        asked = with_distance(filter, near.min_distance_m + 1.0, info.location)
    else:
        asked = filter
    return _as_it_came(asked)


def _as_it_came(filter: Filter) -> Filter:
    """A filter as it is now, whatever its owner does to it."""
    try:
        return encoded_as(bson.encode(filter))
    except (InvalidDocument, OverflowError, TypeError, ValueError):
        copied: Filter = snapshot(filter)  # only the caller's codec can encode it
        return copied


def _all_in_one(near: Near, points: float, histogram: Histogram) -> bool:
    """Whether hardly more points are expected up to the greatest distance: then the density need not be looked up."""
    if near.min_distance_m or not math.isfinite(near.max_distance_m):
        return False
    block = block_around(near.lng, near.lat, near.max_distance_m, _LAST_BLOCKS[0][0])
    return (
        block is not None
        and block[1] >= near.max_distance_m
        and block[0].held(histogram) <= points + _SOONER_READ
    )


def ring_cover(rings: Rings, reach_m: float, info: CollectionInfo, known: Ranges) -> Ring:
    """The ring that reaches so far, at least. `known` was read already; it need not be read again, but may be there."""
    histogram, costs = info.histogram, info.costs
    assert histogram is not None
    range_cost = costs.range_ms / (costs.key_ms + costs.fetch_ms + costs.return_ms)
    if not rings.min_m and not rings.regions:
        for cells, most in _LAST_BLOCKS if reach_m >= rings.max_m else _BLOCKS:
            block = block_around(rings.lng, rings.lat, reach_m, cells)
            if block is None or block[1] < reach_m:
                break
            ranges, surely_m = block
            if len(known):
                held = ranges.without(known).held(histogram)
            else:
                ranges, held = ranges.bridged(histogram, range_cost)
            if held <= most and len(ranges) <= (rings.max_ranges or cells):
                return Ring(ranges, surely_m, held)
    region: Region = near_to_region(rings.lng, rings.lat, min_distance_m=rings.min_m, max_distance_m=reach_m)
    if rings.regions:
        region = IntersectionRegion((region, *rings.regions))
    covering = cover(region, max_ranges=rings.max_ranges, weights=histogram, range_cost=range_cost)
    return Ring(covering.outer, reach_m, covering.outer.without(known).held(histogram))


def ring_filter(ranges: Ranges, held: float, rings: Rings, info: CollectionInfo, *, last: bool) -> Filter:
    """What is sent for the ranges of a ring that were not read yet; about so many points are held in them.

    Beyond the last one nothing is wanted, so the servers may as well leave it out: beside a small circle there can be a
    clump of points in its ranges. To test for a circle takes them a fraction of what it takes to send a document; but
    a command that asks for it costs as much as a few documents, and in a ring of many points few lie beyond.
    """
    parts = [any_of(conditions(ranges, info.gh), info.gh), *rings.others]
    worth_it = _FEWEST_TESTED < held < _MOST_TESTED
    if last and worth_it and not rings.others and rings.max_m < _LARGEST_TESTED_M:
        radius = (rings.max_m + _MARGIN_M) / EARTH_RADIUS_M
        parts.append({info.location: {"$geoWithin": {"$centerSphere": [[rings.lng, rings.lat], radius]}}})
    return all_of(parts)


def first_ring(rings: Rings, info: CollectionInfo) -> Filter:
    """What is sent first."""
    ring = ring_cover(rings, rings.first_m, info, NOTHING)
    return ring_filter(ring.ranges, ring.held, rings, info, last=ring.surely_m >= rings.max_m)


def _has_own_index(other: Filter, info: CollectionInfo) -> bool:
    if any(str(key).startswith("$") for key in other):
        return False  # an $or, a $text, ...: which the server may refuse beside a near
    return have_index([other], info) or bool(set(other) & fields_behind_gh(info))


def _first_points(needed: int, share: float) -> float:
    """How many points the first ring should hold; where other conditions thin them out more, the next one knows."""
    return min(enough(needed) / share, max(_MOST_THINNED, enough(needed)), RING_POINTS)


def _hinted(others: tuple[Filter, ...], needed: int, info: CollectionInfo, histogram: Histogram) -> float:
    """The points of a ring up to which no index of the user's own is thought to find its documents sooner."""
    if not have_index(others, info):
        return math.inf
    if may_be_rare(others, info) or fewer_in_all(share_of(others, info), max(needed, 1), histogram):
        return 0.0
    return max(_MOST_THINNED, SURELY * info.experience.most_found(names_of(others)))
