"""Polygons and points for tests of joins: what overlaps, nests, touches, has holes and parts; points on all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from places import Documents, Setup, documents, make_collection
from pymongo.database import Database

from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.testing.sphere import normal_lng, to_degrees, to_vectors, travel

Geometry = dict[str, Any]


def square(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def star(lng: float, lat: float, degrees: float, seed: int, n: int = 12) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    bearing = np.sort((np.arange(n) + rng.uniform(0, 0.8, n)) / n * 2 * np.pi)
    ring = np.stack(
        travel(np.full(n, lng), np.full(n, lat), bearing, degrees * rng.uniform(0.4, 1, n)), axis=1
    )
    ring[:, 0] = normal_lng(ring[:, 0])
    return [*ring.tolist(), ring[0].tolist()]


def polygon(*rings: list[list[float]]) -> Geometry:
    return {"type": "Polygon", "coordinates": list(rings)}


def polygons() -> dict[Any, Geometry]:
    """By id, in an order that is neither that of the ids nor that of the places."""
    x, y = 2.3, 48.8
    tiles = {
        f"tile {i} {j}": polygon(square(x + 0.05 * i, y + 0.04 * j, x + 0.05 * (i + 1), y + 0.04 * (j + 1)))
        for i in range(3)
        for j in range(2)
    }
    return {
        "over all": polygon(star(2.35, 48.86, 1.5, 1)),
        **tiles,
        7: polygon(star(2.35, 48.86, 0.3, 2, 40)),
        "nested": polygon(square(2.34, 48.85, 2.36, 48.87)),
        "holed": polygon(square(2.2, 48.7, 2.6, 49.0), square(2.34, 48.85, 2.36, 48.87)[::-1]),
        "parts": {
            "type": "MultiPolygon",
            "coordinates": [
                [square(2.1, 48.5, 2.2, 48.6)],
                [square(2.32, 48.81, 2.33, 48.82)],
                [star(-73.98, 40.75, 0.5, 3)],
            ],
        },
        "antimeridian": polygon(star(180.0, -17.0, 2.0, 4, 20)),
        "west of it": polygon(square(178.5, -18.0, 179.5, -16.5)),
        "north": polygon([[lng, 88.0] for lng in (-170.0, -80.0, 10.0, 100.0, -170.0)]),
        "south": polygon([[lng, -89.0] for lng in (-170.0, 100.0, 10.0, -80.0, -170.0)]),
        "nobody": polygon(square(-140.2, -35.2, -140.1, -35.1)),
    }


def odd_polygons() -> dict[Any, Geometry]:
    """Polygons of which only the server can tell: with vertices on borders of S2 cells, and touching themselves."""
    return {
        "at zero": polygon(square(0.0, 0.0, 2.0, 2.0)),
        "below zero": polygon(square(-1.0, -1.0, 1.0, 0.0)),
        # On these borders MongoDB finds points without its index that it does not find with it.
        "west of zero": polygon(square(-1.5, 0.0, 0.0, 1.0)),
        "south of it": polygon(square(-45.0, -1.0, -43.5, 0.0)),
        # A hole that touches its shell in one place.
        "touching": polygon(
            square(2.3, 48.8, 2.5, 49.0), [[2.3, 48.9], [2.35, 48.85], [2.35, 48.95], [2.3, 48.9]]
        ),
    }


def points_on(geometries: Mapping[Any, Geometry], seed: int) -> list[list[float]]:
    """Vertices, places on edges, and others beside them, from fractions of a millimetre to metres."""
    rng = np.random.default_rng(seed)
    chosen: list[list[float]] = []
    for geometry in geometries.values():
        coordinates = geometry["coordinates"]
        for rings in coordinates if geometry["type"] == "MultiPolygon" else [coordinates]:
            for ring in rings:
                a, b = np.array(ring[:-1]), np.array(ring[1:])
                share = rng.uniform(0.1, 0.9, len(a))[:, None]
                on = np.stack(to_degrees((1 - share) * to_vectors(*a.T) + share * to_vectors(*b.T)), axis=1)
                aside = on + rng.normal(size=on.shape) * 10.0 ** rng.uniform(-9, -4, len(on))[:, None]
                flat = (a + b) / 2
                chosen += [*a.tolist(), *on.tolist(), *aside.tolist(), *flat.tolist()]
    lng, lat = np.array(chosen).T
    lng = np.where(np.abs(lng) > 180, normal_lng(lng), lng)
    return np.stack([lng, np.clip(lat, -90, 90)], axis=1).tolist()


def content(n: int, seed: int, setup: Setup, places: list[list[float]]) -> list[dict[str, Any]]:
    """Documents here and there, and one at each of some places."""
    made = documents(n, seed, setup)
    hashes = cells_to_strings(points_to_cells(*np.array(places).T))
    *parents, last = setup.location.split(".")
    for number, (pair, gh) in enumerate(zip(places, hashes, strict=True)):
        point: Any = pair if setup.form == "legacy" else {"type": "Point", "coordinates": pair}
        value: Any = {last: point}
        for parent in reversed(parents):
            value = {parent: value}
        made.append({"_id": f"on {number}", "n": number, "kind": "border", "gh": str(gh), **value})
    return made


def make_points(database: Database[dict[str, Any]], name: str, setup: Setup, n: int = 800) -> Documents:
    """A collection with points on all of the polygons."""
    areas = {key: one for key, one in {**polygons(), **odd_polygons()}.items() if key != "nobody"}
    # Beside a border of S2 cells that is a border of "south of it", within a leaf of MongoDB's index.
    close = [[-44.175, 1.3e-8], [-44.3, 2.2e-9], [-43.9, 1e-8], [-44.7, -1e-8]]
    places = points_on(areas, 11) + close
    return make_collection(database, name, setup, content(n, 12, setup, places))


def expected(
    points: Documents,
    location: str,
    geometries: Mapping[Any, Geometry],
    filter: Mapping[str, Any] | None = None,
) -> dict[Any, tuple[Any, ...]]:
    """The polygons of every document that meets a filter: one ``$geoWithin`` each, as the server answers it."""
    found: dict[Any, list[Any]] = {one["_id"]: [] for one in points.find(filter or {}, {"_id": 1})}
    for key, geometry in geometries.items():
        within = {location: {"$geoWithin": {"$geometry": geometry}}}
        for one in points.find({"$and": [within, filter or {}]}, {"_id": 1}):
            found[one["_id"]].append(key)
    return {key: tuple(ids) for key, ids in found.items()}
