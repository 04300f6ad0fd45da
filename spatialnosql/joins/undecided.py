"""Places so near to the border of a polygon that their geohash does not tell: their coordinates do, or the server.

What has such a geohash is added up by the servers place by place, so that a thousand documents at one place are one
answer. Coordinates settle nearly all places; of the rest the server says, polygon by polygon, with its own
``$geoWithin``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.polygons import Polygons
from spatialnosql.places import settled_by_place
from spatialnosql.region import IN, UNSURE
from spatialnosql.steps import Steps, listed

ASKED_AT_ONCE = 1_000
GH, AT = "gh", "at"  # of the ``_id`` of a group: its geohash, and its location as it is stored


def groups_at(
    points: JoinPoints, hashes: Sequence[str], sums: Mapping[str, Any], options: Mapping[str, Any]
) -> Steps[list[dict[str, Any]]]:
    """What has one of some geohashes, place by place: ``n`` documents, and whatever else is to be summed."""
    info = points.info
    pipeline = [
        {"$match": points.matching({info.gh: {"$in": list(hashes)}})},
        {"$group": {"_id": _place(points), "n": {"$sum": 1}, **sums}},
    ]
    return (yield from listed(points.collection.aggregate, pipeline, **points.hint, **options))


def decided(
    points: JoinPoints,
    groups: list[dict[str, Any]],
    pairs: Pairs,
    polygons: Polygons,
    options: Mapping[str, Any],
) -> Steps[NDArray[np.bool_]]:
    """For each pair of a group and a polygon whether the one lies in the other."""
    inside = np.zeros(pairs.point.size, dtype=np.bool_)
    for number in np.unique(pairs.polygon).tolist():
        own = np.flatnonzero(pairs.polygon == number)
        polygon = polygons[number]
        places = [groups[i]["_id"] for i in pairs.point[own].tolist()]
        status = settled_by_place(polygon.region, places, AT)
        inside[own] = status == IN
        doubtful = np.flatnonzero(status == UNSURE)
        left = [places[i] for i in doubtful.tolist()]
        inside[own[doubtful]] = yield from _asked(points, left, polygon.within, options)
    return inside


def _asked(
    points: JoinPoints, places: list[Any], within: Mapping[str, Any], options: Mapping[str, Any]
) -> Steps[list[bool]]:
    """Which of some places meet a condition: the server says so."""
    info = points.info
    hashes = sorted({place[GH] for place in places})
    known: set[bytes] = set()
    for start in range(0, len(hashes), ASKED_AT_ONCE):
        asked = {info.gh: {"$in": hashes[start : start + ASKED_AT_ONCE]}, info.location: within}
        pipeline = [{"$match": asked}, {"$group": {"_id": _place(points)}}]
        answers = yield from listed(points.collection.aggregate, pipeline, hint=info.gh_index, **options)
        known.update(bson.encode(answer["_id"]) for answer in answers)
    return [bson.encode(place) in known for place in places]


def _place(points: JoinPoints) -> dict[str, str]:
    return {GH: f"${points.info.gh}", AT: f"${points.info.location}"}
