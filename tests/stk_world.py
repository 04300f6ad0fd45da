"""Worlds for tests of queries by place, time and words: documents in a city over some days, and random queries."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

from spatialnosql.create import create
from spatialnosql.info import CollectionInfo
from spatialnosql.stk.settings import StkSettings
from spatialnosql.writes import with_gh

START = dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)
HOURS = 72
WORDS = [f"w{number}" for number in range(40)]
WEST, SOUTH, SIDE = 13.30, 52.45, 0.20
SETTINGS = StkSettings(bin_s=3600, cell_bits=28, cube_bin_bits=2, cube_cell_bits=4)
GRACE_S = 0.3


def random_document(rng: random.Random, number: int) -> dict[str, Any]:
    """A document near one of three hot spots, with words of which some are common."""
    hot = rng.choice([(0.05, 0.05), (0.12, 0.10), (0.15, 0.16)])
    lng = WEST + min(SIDE, max(0.0, rng.gauss(hot[0], 0.02)))
    lat = SOUTH + min(SIDE, max(0.0, rng.gauss(hot[1], 0.02)))
    words = sorted({WORDS[min(39, int(rng.expovariate(0.15)))] for _ in range(rng.randint(0, 6))})
    at = START + dt.timedelta(seconds=rng.randrange(HOURS * 3600), milliseconds=rng.choice([0, 1, 999]))
    if rng.random() < 0.1:
        at = at.replace(minute=0, second=0, microsecond=0)  # on the border of two bins
    return {
        "_id": number,
        "loc": {"type": "Point", "coordinates": [lng, lat]},
        "at": at,
        "words": words,
        "n": number % 7,
    }


def make(database: Any, name: str = "reports") -> Any:
    """A new, empty spatial collection."""
    return create(database, name, "loc")


def hashed(documents: list[dict[str, Any]], namespace: str = "x.y") -> list[dict[str, Any]]:
    """Documents with their ``gh``, as another client would write them."""
    return [with_gh(one, CollectionInfo(namespace)) for one in documents]


def random_region(rng: random.Random) -> dict[str, Any]:
    """A rectangle, a circle, a flat box or a triangle somewhere in the city."""
    lng, lat = WEST + rng.random() * SIDE, SOUTH + rng.random() * SIDE
    size = rng.choice([0.005, 0.02, 0.06])
    kind = rng.randrange(4)
    if kind == 0:
        ring = [[lng, lat], [lng + size, lat], [lng + size, lat + size], [lng, lat + size], [lng, lat]]
        return {"$geometry": {"type": "Polygon", "coordinates": [ring]}}
    if kind == 1:
        return {"$centerSphere": [[lng, lat], size / 90]}
    if kind == 2:
        return {"$box": [[lng, lat], [lng + size, lat + size]]}
    ring = [[lng, lat], [lng + size, lat + size / 3], [lng + size / 2, lat + size], [lng, lat]]
    return {"$geometry": {"type": "Polygon", "coordinates": [ring]}}


def random_wording(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A condition on the words as users write it, of any form."""
    kind = rng.randrange(9 if depth < 2 else 5)
    some = rng.sample(WORDS, rng.randint(1, 3))
    if kind == 0:
        return {"words": some[0]}
    if kind == 1:
        return {"words": {"$all": some}}
    if kind == 2:
        return {"words": {"$in": some}}
    if kind == 3:
        return {"words": {"$nin": some}}
    if kind == 4:
        return {"words": {"$ne": some[0]}}
    if kind == 5:
        return {"$nor": [random_wording(rng, depth + 1)]}
    if kind == 6:
        return {"$or": [random_wording(rng, depth + 1), random_wording(rng, depth + 1)]}
    if kind == 7:
        return {"$and": [random_wording(rng, depth + 1), random_wording(rng, depth + 1)]}
    return {"words": {"$not": {"$in": some}}}


def random_query(rng: random.Random) -> dict[str, Any]:
    """A region, an interval and words, sometimes with something else beside."""
    start = START + dt.timedelta(hours=rng.uniform(-5, HOURS))
    end = start + dt.timedelta(hours=rng.choice([0.5, 1, 3, 5, 24]))
    low, high = rng.choice([("$gte", "$lt"), ("$gt", "$lte")])
    query: dict[str, Any] = {"loc": {"$geoWithin": random_region(rng)}, "at": {low: start, high: end}}
    parts = [query, random_wording(rng)] if rng.random() < 0.9 else [query]
    if rng.random() < 0.2:
        parts.append({"n": {"$lt": 4}})
    return parts[0] if len(parts) == 1 else {"$and": parts}
