"""Pairs of a document and a polygon whose border is too near for its geohash to tell.

The coordinates settle most of them. Of the rest the server says, polygon by polygon, with its own ``$geoWithin``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.info import CollectionInfo
from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.polygons import Polygons
from spatialnosql.places import settled_by_place
from spatialnosql.region import IN, UNSURE
from spatialnosql.steps import Steps, listed

_ASKED_AT_ONCE = 1_000


def decided(
    collection: Any,
    info: CollectionInfo,
    documents: list[Any],
    pairs: Pairs,
    polygons: Polygons,
    options: Mapping[str, Any],
) -> Steps[NDArray[np.bool_]]:
    """For each pair whether the document lies in the polygon. Documents need ``_id``, ``gh`` and their location."""
    inside = np.zeros(pairs.point.size, dtype=np.bool_)
    for number in np.unique(pairs.polygon).tolist():
        own = np.flatnonzero(pairs.polygon == number)
        polygon = polygons[number]
        candidates = [documents[i] for i in pairs.point[own].tolist()]
        status = settled_by_place(polygon.region, candidates, info.location)
        inside[own] = status == IN
        doubtful = own[status == UNSURE]
        left = [documents[i] for i in pairs.point[doubtful].tolist()]
        inside[doubtful] = yield from _asked(collection, info, left, polygon.within, options)
    return inside


def _asked(
    collection: Any,
    info: CollectionInfo,
    documents: list[Any],
    within: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Steps[list[bool]]:
    """Which of some documents meet a condition on their location: the server says so."""
    gh = info.gh
    hint = {} if info.gh_index is None else {"hint": info.gh_index}
    known: set[bytes] = set()
    for start in range(0, len(documents), _ASKED_AT_ONCE):
        hashes = sorted({document[gh] for document in documents[start : start + _ASKED_AT_ONCE]})
        asked = {gh: {"$in": hashes}, info.location: within}
        answers = yield from listed(collection.find, asked, {"_id": 1, gh: 1}, **hint, **options)
        known.update(_name(answer, gh) for answer in answers)
    return [_name(document, gh) in known for document in documents]


def _name(document: Any, gh: str) -> bytes:
    # An _id may be of any type, and is unique only together with gh.
    return bson.encode({"": document["_id"], "gh": document[gh]})
