"""Small spatial collections for tests of the rewriter: sharded by ``gh`` over all shards, with points where it hurts.

Documents lie in clusters around a city, a corner of geohash cells, both sides of the antimeridian and the poles, at the
borders of cells, and a few anywhere; some at the very same place, some at none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from spatialnosql.expression import Form
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import true_gh
from spatialnosql.metadata import READY, histogram_to_document, metadata_collection
from spatialnosql.testing import points_at_cell_borders, points_on_sphere
from spatialnosql.testing.sphere import Floats, log_uniform, normal_lng, travel

Documents = Collection[dict[str, Any]]
CENTRES = ((2.35, 48.86), (-73.98, 40.75), (180.0, -17.0), (45.0, 90.0), (-120.0, -90.0), (0.0, 0.0))
KINDS = ("cafe", "hotel", "museum", "park", "Café")
HISTOGRAM_BITS = 30


@dataclass(frozen=True)
class Setup:
    """How a collection of this module is made."""

    location: str = "loc"
    form: Form = "geojson"
    unhashed: bool = False
    geo_index: str = "2dsphere"


def points(n: int, seed: int) -> tuple[Floats, Floats]:
    """Clusters around `CENTRES`, from metres to degrees wide; of ten points one is anywhere, one at a cell's border."""
    rng = np.random.default_rng(seed)
    centre = np.array(CENTRES)[rng.integers(0, len(CENTRES), n)]
    far = log_uniform(rng, 1e-4, 4.0, n)
    lng, lat = travel(centre[:, 0], centre[:, 1], rng.uniform(0, 2 * np.pi, n), far)
    for share, (others_lng, others_lat) in (
        (0.1, points_on_sphere(n, seed)),
        (0.1, points_at_cell_borders(n, seed, bits=(4, 40))),
    ):
        chosen = rng.random(n) < share
        lng, lat = np.where(chosen, others_lng, lng), np.where(chosen, others_lat, lat)
    # The very places of others, and the centres themselves: equal distances.
    same = rng.random(n) < 0.1
    source = rng.integers(0, n, n)
    lng, lat = np.where(same, lng[source], lng), np.where(same, lat[source], lat)
    at_centre = rng.random(n) < 0.02
    lng, lat = np.where(at_centre, centre[:, 0], lng), np.where(at_centre, centre[:, 1], lat)
    return np.where(np.abs(lng) > 180, normal_lng(lng), lng), np.clip(lat, -90, 90)


def documents(n: int, seed: int, setup: Setup) -> list[dict[str, Any]]:
    """Documents with their ``gh``, and with other fields of many sorts to ask for."""
    rng = np.random.default_rng(seed)
    lng, lat = points(n, seed)
    hashes = cells_to_strings(points_to_cells(lng, lat))
    made = []
    for number in range(n):
        document = _others(number, rng)
        place = rng.random()
        pair = [float(lng[number]), float(lat[number])]
        if place < 0.02:
            _put(document, setup.location, None)
        elif place > 0.04:
            if setup.unhashed and place > 0.9:
                _put_several(document, setup, pair, rng)
            else:
                _put(document, setup.location, _point(pair, setup.form, rng))
                document["gh"] = str(hashes[number])
        made.append(document)
    return made


def _others(number: int, rng: np.random.Generator) -> dict[str, Any]:
    document: dict[str, Any] = {
        "_id": number,
        "n": int((number * 7919) % 100_003),
        "kind": str(rng.choice(KINDS)),
        "score": round(float(rng.normal(50, 20)), 3),
        "tags": [
            str(tag) for tag in rng.choice(["a", "b", "c", "d"], int(rng.integers(0, 4)), replace=False)
        ],
        "items": [{"a": int(rng.integers(0, 4)), "b": int(rng.integers(0, 9))} for _ in range(2)],
        "elsewhere": [float(rng.uniform(-180, 180)), float(rng.uniform(-90, 90))],
    }
    if rng.random() < 0.7:
        document["size"] = int(rng.integers(0, 5)) if rng.random() < 0.8 else None
    return document


def _point(pair: list[float], form: Form, rng: np.random.Generator) -> Any:
    choice = rng.random()
    if form == "geojson" or (form == "any" and choice < 0.5):
        return {"type": "Point", "coordinates": pair}
    return pair if choice < 0.8 else {"lng": pair[0], "lat": pair[1]}


def _put_several(document: dict[str, Any], setup: Setup, pair: list[float], rng: np.random.Generator) -> None:
    """A location that has no one geohash: several points in one of the ways that the index takes, or an area."""
    anywhere_lng, anywhere_lat = points_on_sphere(1, int(rng.integers(2**31)))
    other = [float(anywhere_lng[0]), float(anywhere_lat[0])]
    x, y = min(pair[0], 179.0), min(max(pair[1], -85.0), 85.0)
    size = float(log_uniform(rng, 1e-3, 1.0))
    kind = rng.integers(4)
    if setup.geo_index == "2d":
        _put(document, setup.location, [pair, other])
    elif kind == 0 and "." in setup.location:
        parent, _, name = setup.location.partition(".")
        document[parent] = [{name: {"type": "Point", "coordinates": pair}}, {"floor": 3}, {name: other}]
    elif kind == 1:
        line = [[x, y], [x + size, y + size]]
        _put(document, setup.location, {"type": "LineString", "coordinates": line})
    elif kind == 2:
        ring = [[x, y], [x + size, y], [x + size, y + size], [x, y]]
        _put(document, setup.location, {"type": "Polygon", "coordinates": [ring]})
    else:
        _put(document, setup.location, {"type": "MultiPoint", "coordinates": [pair, other]})


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {"floor": 1})
    document[last] = value


def get(document: dict[str, Any], path: str) -> Any:
    """The value of a dotted path."""
    for name in path.split("."):
        document = document.get(name) or {}
    return document or None


def make_collection(
    database: Database[dict[str, Any]], name: str, setup: Setup, content: list[dict[str, Any]]
) -> Documents:
    """A collection as `spatialnosql adopt` leaves one, in interleaved chunks over all shards."""
    validator = true_gh(setup.location, "gh", setup.form, unhashed=setup.unhashed)
    collection: Documents = database.create_collection(name, validator=validator)
    collection.create_index([("gh", 1), ("_id", 1)])
    if setup.geo_index:
        limits = {"min": -181, "max": 181} if setup.geo_index == "2d" else {}
        collection.create_index([(setup.location, setup.geo_index)], **limits)
    shard_interleaved(collection, sorted(d["gh"] for d in content if "gh" in d))
    collection.insert_many(content, ordered=False)
    cells = _cells(content, setup)
    register(collection, setup, Histogram.of_cells(cells, HISTOGRAM_BITS))
    return collection


@contextlib.contextmanager
def temporary_points(client: MongoClient[dict[str, Any]], database: str) -> Iterator[Documents]:
    """Such a collection of a thousand documents in a database of its own, for as long as it is needed."""
    client.drop_database(database)
    collection = make_collection(client[database], "points", Setup(), documents(1_000, 5, Setup()))
    try:
        yield collection
    finally:
        client.drop_database(database)
        metadata_collection(collection).delete_many({"_id": {"$regex": f"^{database}[.]"}})


def shard_interleaved(collection: Documents, hashes: list[str], parts: int = 6) -> list[dict[str, Any]]:
    """Shard an empty collection by ``{gh, _id}`` into chunks of even weight that take turns on the shards.

    Returns the bounds of the chunks.
    """
    admin = collection.database.client.admin
    shards = [shard["_id"] for shard in admin.command("listShards")["shards"]]
    admin.command("shardCollection", collection.full_name, key={"gh": 1, "_id": 1})
    cuts = sorted({hashes[len(hashes) * part // parts] for part in range(1, parts)})
    bounds = [
        {"gh": MinKey(), "_id": MinKey()},
        *({"gh": cut, "_id": MinKey()} for cut in cuts),
        {"gh": MaxKey(), "_id": MaxKey()},
    ]
    for number, (low, high) in enumerate(pairwise(bounds)):
        admin.command(
            "moveRange", collection.full_name, min=low, max=high, toShard=shards[number % len(shards)]
        )
    return bounds


def register(collection: Documents, setup: Setup, histogram: Histogram | None, **changed: Any) -> None:
    """Write the metadata of a collection."""
    fields: dict[str, Any] = {
        "location": setup.location,
        "gh": "gh",
        "form": setup.form,
        "unhashed": setup.unhashed,
        "state": READY,
    }
    if histogram is not None:
        fields["histogram"] = histogram_to_document(histogram)
    metadata_collection(collection).replace_one(
        {"_id": collection.full_name}, {**fields, **changed}, upsert=True
    )


def _cells(content: list[dict[str, Any]], setup: Setup) -> Any:
    pairs = [coordinates(get(d, setup.location)) for d in content if "gh" in d]
    lng, lat = np.array(pairs, dtype=float).T
    return points_to_cells(lng, lat)


def coordinates(place: Any) -> list[float]:
    """Longitude and latitude of a point in any form."""
    if isinstance(place, dict):
        place = place.get("coordinates") or list(place.values())
    return [float(place[0]), float(place[1])]
