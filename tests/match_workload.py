"""Random subscriptions and objects, on borders too, and brute force over them: the oracle of matching."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pymongo.database import Database

from spatialnosql.subscriptions.model import Object
from spatialnosql.subscriptions.store import Subscriptions

NOON = dt.datetime(2026, 11, 17, 12, tzinfo=dt.timezone.utc)
NOON_MS = int(NOON.timestamp() * 1000)
WORDS = ("flood", "floods", "Flooding", "road", "roads", "fire", "Straße", "STRASSE", "storm", "the")
KEYWORDS = ("flood", "flooded AND road", "fire OR (storm AND roads)", "strasse", "storm OR flood")
HOUR_MS = 3_600_000
Pair = tuple[str, Any]


def random_subscription(draw: np.random.Generator, name: str) -> dict[str, Any]:
    """A rectangle, a circle or a polygon around the origin; half of them expire around noon."""
    x, y = draw.integers(-4, 4, 2).tolist()
    width = int(draw.integers(1, 4))
    region: Any = [x, y, x + width, y + width]
    kind = int(draw.integers(3))
    if kind == 1:
        region = [x, y, width * 60_000]
    elif kind == 2:
        ring = [[x, y], [x + width, y], [x + width, y + width], [x, y]]
        region = {"type": "Polygon", "coordinates": [ring]}
    expires = NOON + dt.timedelta(hours=int(draw.integers(-2, 3))) if draw.integers(2) else None
    return {
        "id": name,
        "owner": f"owner {draw.integers(5)}",
        "keywords": KEYWORDS[int(draw.integers(len(KEYWORDS)))],
        "region": region,
        "expires": expires,
    }


def random_objects(draw: np.random.Generator, first: int, count: int) -> list[dict[str, Any]]:
    """Half of them on whole degrees, where borders and corners are, and on whole hours, when subscriptions expire."""
    objects = []
    for number in range(first, first + count):
        lng, lat = draw.uniform(-5, 5, 2).tolist()
        at = NOON_MS + int(draw.integers(-3 * HOUR_MS, 3 * HOUR_MS))
        if draw.integers(2):
            lng, lat, at = float(round(lng)), float(round(lat)), round(at / HOUR_MS) * HOUR_MS
        text = " ".join(draw.choice(WORDS, int(draw.integers(1, 6))).tolist())
        objects.append({"id": number, "text": text, "lng": lng, "lat": lat, "at": at})
    return objects


def brute_force(subscriptions: Subscriptions, objects: Iterable[dict[str, Any]]) -> set[Pair]:
    """Every object with every subscription that it matches, as the subscriptions are now."""
    live = list(subscriptions.list())
    things = [Object(one["id"], one["text"], one["lng"], one["lat"], moment(one["at"])) for one in objects]
    return {(one.id, thing.id) for thing in things for one in live if one.matches(thing, subscriptions.rules)}


def moment(ms: int) -> dt.datetime:
    """A time as a datetime."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=ms)


def stored_pairs(database: Database[dict[str, Any]], name: str = "alerts") -> list[Pair]:
    """All matches that are stored."""
    buckets = database[f"{name}_matches"].find()
    return [(one["id"], one["object"]) for bucket in buckets for one in bucket["matches"]]


def write_lines(folder: Path, name: str, objects: Sequence[dict[str, Any]]) -> None:
    """A file of JSON lines that appears as a whole."""
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{json.dumps(one)}\n" for one in objects))
    hidden.rename(folder / name)
