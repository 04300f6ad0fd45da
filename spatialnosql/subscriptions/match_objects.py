"""A match, and the objects of many matches looked up at once.

A bucket names objects by their ids only: an object that a thousand subscriptions match is stored once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bson import json_util
from pymongo import ReadPreference

from spatialnosql.geometry import geojson_point
from spatialnosql.subscriptions.match_names import Documents

LOOKED_UP_AT_ONCE = 500

Bucket: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[Bucket, Mapping[str, Any]]
"""A bucket, and one of its matches."""


@dataclass(frozen=True)
class Match:
    """An object that matched a subscription; what it said and where is None if it is no longer stored."""

    owner: str
    subscription: str
    """The id of the subscription."""
    object: Any
    """The id of the object."""
    at: dt.datetime
    """When the object happened."""
    text: str | None
    lng: float | None
    lat: float | None
    stored: dt.datetime
    """When the match was stored."""

    @property
    def key(self) -> tuple[str, str]:
        """Subscription and object, for a set of the matches that were heard of; the object's id as JSON."""
        return self.subscription, object_key(self.object)

    def to_document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "owner": self.owner,
            "subscription": self.subscription,
            "object": self.object,
            "at": self.at,
            "text": self.text,
            "lng": self.lng,
            "lat": self.lat,
            "stored": self.stored,
        }


def object_key(value: Any) -> str:
    """The id of an object as text, the same for ids that the server takes for equal: 7 and 7.0, but not true and 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_util.dumps(value, json_options=json_util.RELAXED_JSON_OPTIONS)


def rows_to_matches(objects: Documents, rows: Sequence[Row]) -> list[Match]:
    """Matches with the texts and places of their objects, in the order given; one query."""
    known = _look_up(objects, (match["object"] for _, match in rows))
    return [_match(bucket, match, known.get(object_key(match["object"]), {})) for bucket, match in rows]


def _look_up(objects: Documents, ids: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    wanted = {object_key(one): one for one in ids}
    # The primary has every object whose match was read; a secondary may be behind.
    reader = objects.with_options(read_preference=ReadPreference.PRIMARY)
    found = reader.find(
        {"_id": {"$in": [*wanted.values()]}}, {"text": 1, "loc": 1}, batch_size=len(wanted) + 1
    )
    return {object_key(one["_id"]): one for one in found}


def _match(bucket: Bucket, match: Mapping[str, Any], thing: Mapping[str, Any]) -> Match:
    lng, lat = geojson_point(thing["loc"]) if "loc" in thing else (None, None)
    return Match(
        bucket["owner"],
        match["id"],
        match["object"],
        match["at"],
        thing.get("text"),
        lng,
        lat,
        bucket["stored"],
    )
