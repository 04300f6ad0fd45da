"""Seeded random questions to compare with the server: shapes of every kind, and points where mistakes hide.

`spatialnosql.testing` has the well-behaved shapes. These are the others: rounded to the grid, beyond a hemisphere,
through the poles and the antimeridian, crossing themselves, off the map, lines, points, collections, distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spatialnosql import testing
from spatialnosql.geometry import STRICT_WINDING, intersects_to_region, near_to_region, within_to_region
from spatialnosql.region import Region
from spatialnosql.testing.sphere import Floats, log_uniform, normal_lng, to_degrees, to_vectors, travel

Ring = list[list[float]]
Rng = np.random.Generator
STRICT_CRS = {"type": "name", "properties": {"name": STRICT_WINDING}}
EARTH_RADIUS_M = 6_378_100.0


@dataclass(frozen=True)
class Question:
    """What is asked of the server, the region that must agree, and where the border runs."""

    condition: dict[str, Any]
    """For one field: ``{"$geoWithin": ...}`` and the like."""
    to_region: Callable[[], Region]
    outline: list[Floats]
    """Vertices of the border, in order, as rows of longitude and latitude."""
    flat: bool = False
    stage: dict[str, Any] = field(default_factory=dict)
    """The options of ``$geoNear`` if it is asked that way."""


def _question(predicate: str, operand: dict[str, Any], outline: list[Any], *, flat: bool = False) -> Question:
    to_region = within_to_region if predicate == "$geoWithin" else intersects_to_region
    return Question({predicate: operand}, lambda: to_region(operand), [np.array(o) for o in outline], flat)


def _centre(rng: Rng) -> tuple[float, float]:
    """Anywhere, at the antimeridian, at a pole, at a corner of large geohash cells, or at whole degrees."""
    lng, lat = float(rng.uniform(-180, 180)), float(np.degrees(np.arcsin(rng.uniform(-1, 1))))
    where = rng.integers(6)
    if where == 0:
        lng = float(rng.choice([-180.0, 180.0, 179.99999, -179.99999]))
    elif where == 1:
        lat = float(rng.choice([-1, 1]) * rng.choice([90.0, 89.9999, 89.9, 85.0]))
    elif where == 2:
        lng, lat = float(rng.integers(-16, 17) * 11.25), float(rng.integers(-7, 8) * 11.25)
    elif where == 3:
        lng, lat = round(lng), round(lat)
    return lng, lat


def _star(rng: Rng, centre: tuple[float, float], radius_deg: float, most: int = 40, least: int = 3) -> Ring:
    """A closed ring around a place, in either direction; bearings at random, so some do not hold their centre."""
    n = int(rng.integers(least, most))
    bearing = np.sort(rng.uniform(0, 2 * np.pi, n)) * rng.choice([-1, 1])
    lng, lat = travel(
        np.full(n, centre[0]), np.full(n, centre[1]), bearing, radius_deg * rng.uniform(0.3, 1, n)
    )
    ring: Ring = np.stack([lng, lat], axis=1).tolist()
    return [*ring, ring[0]]


def _radius(rng: Rng, largest_deg: float = 60.0) -> float:
    return float(log_uniform(rng, 1e-5, largest_deg))


def _polygon(rings: list[Ring], predicate: str = "$geoWithin", **more: Any) -> Question:
    geometry = {"type": "Polygon", "coordinates": rings, **more}
    return _question(predicate, {"$geometry": geometry}, rings)


# -- kinds ------------------------------------------------------------------------------------------------


def _shape(kind: str) -> Callable[[Rng], Question]:
    """A kind of `spatialnosql.testing`."""

    def make(rng: Rng) -> Question:
        shape = next(testing.random_shapes(1, int(rng.integers(2**31)), kinds=[kind], around=[_centre(rng)]))
        predicate = "$geoIntersects" if shape.operator == "$geometry" and rng.random() < 0.3 else "$geoWithin"
        outline = [ring for polygon in shape.polygons() for ring in polygon] or [_circle(shape)]
        return _question(predicate, {shape.operator: shape.value}, outline, flat=shape.flat)

    return make


def _circle(shape: testing.Shape) -> Floats:
    bearing = np.linspace(0, 2 * np.pi, 65)
    if shape.flat:
        (lng, lat), radius = shape.value
        return np.stack([lng + radius * np.cos(bearing), lat + radius * np.sin(bearing)], axis=1)
    return _ring_on_sphere(shape.centre, np.degrees(shape.value[1]))


def _ring_on_sphere(centre: tuple[float, float], radius_deg: float) -> Floats:
    lng, lat = (np.full(65, value) for value in centre)
    return np.stack(travel(lng, lat, np.linspace(0, 2 * np.pi, 65), np.full(65, radius_deg)), axis=1)


def _tiny(rng: Rng) -> Question:
    """Centimetres to metres."""
    return _polygon([_star(rng, _centre(rng), float(log_uniform(rng, 2e-7, 1e-4)), 8)])


def _sliver(rng: Rng) -> Question:
    """Metres wide, up to thousands of kilometres long."""
    lng, lat = _centre(rng)
    bearing, width = rng.uniform(0, 2 * np.pi), float(log_uniform(rng, 1e-5, 1e-3))
    ends = travel(np.full(2, lng), np.full(2, lat), np.full(2, bearing), [0.0, rng.uniform(1, 40)])
    sides = [
        travel(*ends, np.full(2, bearing + turn), np.full(2, width / 2)) for turn in (-np.pi / 2, np.pi / 2)
    ]
    left, right = (np.stack(side, axis=1).tolist() for side in sides)
    return _polygon([[*left, *right[::-1], left[0]]])


def _rounded(rng: Rng) -> Question:
    """Vertices as people write them, few decimals: many share a longitude or a latitude, edges along both."""
    lng, lat = float(rng.uniform(-170, 170)), float(rng.uniform(-80, 80))
    decimals = int(rng.integers(0, 5))
    unit = 10.0**-decimals
    n = int(rng.integers(3, 9))
    heights = rng.integers(1, 6, n)
    # A skyline over a straight ground: vertical and horizontal edges, one number for each.
    top = [[lng + unit * (i + side), lat + unit * int(heights[i])] for i in range(n) for side in (0, 1)]
    ring = np.round([[lng, lat], *top, [lng + unit * n, lat]], decimals)
    keep = np.append(True, (np.diff(ring, axis=0) != 0).any(axis=1))
    ring = np.clip(ring[keep], [-180, -90], [180, 90]).tolist()
    if rng.random() < 0.3:
        ring = np.round(np.array(_star(rng, (lng, lat), 8 * unit))[:-1], decimals).tolist()
    return _polygon([[*ring, ring[0]]])


def _gridded(rng: Rng) -> Question:
    """Every vertex a corner of geohash cells."""
    bits = int(rng.integers(3, 20))
    size = np.array([360.0, 180.0]) / 2.0**bits
    corner = np.floor(rng.uniform([-180, -90], [180, 90]) / size) * size
    w, h = (size * rng.integers(1, 9, 2)).tolist()
    x, y = corner.tolist()
    x2, y2 = min(x + w, 180.0), min(y + h, 90.0)
    ring = [[x, y], [x2, y], [x2, y2], [x, y2]] if rng.random() < 0.5 else [[x, y], [x2, y], [x2, y2]]
    return _polygon([[*ring, ring[0]]])


def _beside(rng: Rng) -> Question:
    """Every edge within centimetres of a border of geohash cells, on either side, nearly along it."""
    size = np.array([360.0, 180.0]) / 2.0 ** int(rng.integers(8, 22))
    x, y = (np.round(rng.uniform([-179, -85], [179, 85]) / size) * size).tolist()
    x2, y2 = x + size[0] * int(rng.integers(1, 5)), min(y + size[1] * int(rng.integers(1, 5)), 89.0)
    corners = np.array([[x, y], [x2, y], [x2, y2], [x, y2]])
    ring = (corners + rng.uniform(-6e-7, 6e-7, (4, 2)) * float(rng.choice([0.1, 1.0]))).tolist()
    if rng.random() < 0.3:
        return _question("$geoWithin", {"$polygon": ring}, [[*ring, ring[0]]], flat=True)
    return _polygon([[*ring, ring[0]]])


def _wide(rng: Rng) -> Question:
    """Continents to nearly everything: the smaller side is inside."""
    return _polygon([_star(rng, _centre(rng), float(rng.uniform(30, 150)), 30, 4)])


def _strict(rng: Rng) -> Question:
    """The side to the left is inside, however large."""
    return _polygon([_star(rng, _centre(rng), float(log_uniform(rng, 1e-3, 150)), 20)], crs=STRICT_CRS)


def _polar(rng: Rng) -> Question:
    """Around a pole, with a vertex at it, or with an edge over it."""
    pole = float(rng.choice([-1, 1]))
    n = int(rng.integers(3, 12))
    lng = np.sort(rng.uniform(-180, 180, n)).round(int(rng.integers(0, 8)))
    lat = pole * (90 - log_uniform(rng, 1e-4, 40, n))
    ring: Ring = np.stack([lng, lat], axis=1).tolist()
    how = rng.integers(3)
    if how == 1:
        ring = [*ring[: n // 2 + 1], [float(rng.uniform(-180, 180)), pole * 90.0]]
    elif how == 2:
        a = float(rng.integers(-180, 1))
        high, low = float(rng.uniform(60, 89)), float(rng.uniform(10, 50))
        ring = [[a, pole * high], [a + 180, pole * high], [a + 90, pole * low]]
    return _polygon([[*ring, ring[0]]])


def _antimeridian(rng: Rng) -> Question:
    """Vertices at exactly 180 degrees, written either way."""
    east, west = float(rng.choice([-180.0, 180.0])), float(rng.choice([-180.0, 180.0]))
    lat, high = float(rng.uniform(-80, 60)), float(log_uniform(rng, 1e-4, 20))
    side = float(rng.choice([-1, 1])) * float(log_uniform(rng, 1e-4, 30))
    far = float(normal_lng(180 + side))
    ring = [[east, lat], [far, lat + 0.2 * high], [far, lat + 0.7 * high], [west, lat + high]]
    if rng.random() < 0.5:
        other = float(normal_lng(180 - side))
        ring = [[far, lat], [east, lat + 0.1 * high], [other, lat], [other, lat + high], [far, lat + high]]
    return _polygon([[*ring, ring[0]]])


def _overlapping(rng: Rng) -> Question:
    """Parts that may overlap, contain or touch each other."""
    lng, lat = _centre(rng)
    radius = _radius(rng, 30)
    parts = []
    for _ in range(int(rng.integers(2, 5))):
        middle = travel(lng, lat, rng.uniform(0, 7), radius * rng.random())
        parts.append([_star(rng, (float(middle[0]), float(middle[1])), radius * rng.uniform(0.2, 1), 15)])
    geometry = {"type": "MultiPolygon", "coordinates": parts}
    return _question("$geoWithin", {"$geometry": geometry}, [part[0] for part in parts])


def _tangled(rng: Rng) -> Question:
    """A flat polygon that crosses itself, closed or not, now and then off the map."""
    lng, lat = _centre(rng)
    points = [[lng, lat] + _radius(rng, 90) * rng.normal(size=2) for _ in range(int(rng.integers(3, 10)))]
    if rng.random() < 0.3:
        points = [np.round(point) for point in points]
    ring = [point.tolist() for point in points]
    closed = [*ring, ring[0]]
    return _question("$geoWithin", {"$polygon": closed if rng.random() < 0.3 else ring}, [closed], flat=True)


def _off_the_map(rng: Rng) -> Question:
    """Flat shapes that reach beyond the edge of the map, or end exactly at it."""
    lng, lat = (rng.choice([-180.0, 180.0, 170.0]), rng.choice([-90.0, 90.0, 80.0]))
    radius = _radius(rng, 200)
    how = rng.integers(3)
    if how == 0:
        ring = (np.array([lng, lat]) + radius * rng.uniform(-1, 1, (int(rng.integers(3, 8)), 2))).tolist()
        return _question("$geoWithin", {"$polygon": ring}, [[*ring, ring[0]]], flat=True)
    if how == 1:
        turn = np.linspace(0, 2 * np.pi, 65)
        outline = np.stack([lng + radius * np.cos(turn), lat + radius * np.sin(turn)], axis=1)
        return _question("$geoWithin", {"$center": [[float(lng), float(lat)], radius]}, [outline], flat=True)
    x, y = float(lng - radius * rng.random()), float(lat - radius * rng.random())
    x2, y2 = (float(lng), float(lat)) if rng.random() < 0.5 else (x + radius, y + radius)
    outline = np.array([[x, y], [x2, y], [x2, y2], [x, y2], [x, y]])
    return _question("$geoWithin", {"$box": [[x, y], [x2, y2]]}, [outline], flat=True)


def _cap(rng: Rng) -> Question:
    """Spherical circles from nothing to nearly everything."""
    centre = _centre(rng)
    sizes = [
        0.0,
        log_uniform(rng, 1e-9, 3.1),
        log_uniform(rng, 1e-6, 1e-2),
        np.pi - log_uniform(rng, 1e-5, 1),
    ]
    radius = float(rng.choice(sizes, p=[0.1, 0.5, 0.2, 0.2]))
    outline = _ring_on_sphere(centre, float(np.degrees(radius)))
    return _question("$geoWithin", {"$centerSphere": [list(centre), radius]}, [outline])


def _point(rng: Rng) -> Question:
    lng, lat = _centre(rng)
    geometry = {"type": "Point", "coordinates": [lng, lat]}
    return _question("$geoIntersects", {"$geometry": geometry}, [[[lng, lat], [lng, lat]]])


def _multipoint(rng: Rng) -> Question:
    places = [list(_centre(rng)) for _ in range(int(rng.integers(1, 6)))]
    geometry = {"type": "MultiPoint", "coordinates": places}
    return _question("$geoIntersects", {"$geometry": geometry}, [[place, place] for place in places])


def _path(rng: Rng, centre: tuple[float, float]) -> Ring:
    radius = _radius(rng, 100)
    n = int(rng.integers(2, 8))
    lng, lat = (np.full(n, value) for value in centre)
    path: Ring = np.stack(travel(lng, lat, rng.uniform(0, 7, n), radius * rng.random(n)), axis=1).tolist()
    return np.round(path, 1).tolist() if radius > 5 and rng.random() < 0.3 else path


def _line(rng: Rng) -> Question:
    path = _path(rng, _centre(rng))
    return _question("$geoIntersects", {"$geometry": {"type": "LineString", "coordinates": path}}, [path])


def _multiline(rng: Rng) -> Question:
    paths = [_path(rng, _centre(rng)) for _ in range(int(rng.integers(1, 4)))]
    return _question(
        "$geoIntersects", {"$geometry": {"type": "MultiLineString", "coordinates": paths}}, paths
    )


def _collection(rng: Rng) -> Question:
    """A point, a line and polygons; with $geoWithin only the polygons count."""
    centre, radius = _centre(rng), _radius(rng)
    ring, other, path = _star(rng, centre, radius), _star(rng, _centre(rng), radius), _path(rng, centre)
    members = [
        {"type": "Polygon", "coordinates": [ring]},
        {"type": "LineString", "coordinates": path},
        {"type": "Point", "coordinates": list(centre)},
        {"type": "MultiPolygon", "coordinates": [[other]]},
    ]
    geometry = {"type": "GeometryCollection", "geometries": members}
    predicate = str(rng.choice(["$geoWithin", "$geoIntersects"]))
    return _question(predicate, {"$geometry": geometry}, [ring, other, path, [list(centre)] * 2])


def _distances(rng: Rng) -> tuple[tuple[float, float], dict[str, float], list[Floats]]:
    centre = _centre(rng)
    half_around = np.pi * EARTH_RADIUS_M
    farthest = float(
        rng.choice([log_uniform(rng, 0.5, 2.1e7), half_around - log_uniform(rng, 1, 1e6)], p=[0.85, 0.15])
    )
    nearest = float(farthest * rng.choice([0.0, 0.3, 0.9, 1.0]))
    limits = {"max_distance_m": farthest, "min_distance_m": nearest}
    if rng.random() < 0.15:
        del limits["max_distance_m"]
    outline = [_ring_on_sphere(centre, np.degrees(m / EARTH_RADIUS_M)) for m in (nearest, farthest)]
    return centre, limits, outline


def _near(rng: Rng) -> Question:
    """``$nearSphere`` between two distances."""
    centre, limits, outline = _distances(rng)
    operand: dict[str, Any] = {"$geometry": {"type": "Point", "coordinates": list(centre)}}
    names = {"max_distance_m": "$maxDistance", "min_distance_m": "$minDistance"}
    operand |= {names[name]: value for name, value in limits.items()}
    predicate = str(rng.choice(["$nearSphere", "$near"]))
    return Question({predicate: operand}, lambda: near_to_region(*centre, **limits), outline)


def _geo_near(rng: Rng) -> Question:
    """``$geoNear`` between two distances."""
    centre, limits, outline = _distances(rng)
    names = {"max_distance_m": "maxDistance", "min_distance_m": "minDistance"}
    stage: dict[str, Any] = {"near": {"type": "Point", "coordinates": list(centre)}, "distanceField": "d"}
    stage |= {names[name]: value for name, value in limits.items()}
    return Question({}, lambda: near_to_region(*centre, **limits), outline, stage=stage)


KINDS: dict[str, Callable[[Rng], Question]] = {
    **{kind: _shape(kind) for kind in testing.KINDS},
    "tiny": _tiny,
    "sliver": _sliver,
    "rounded": _rounded,
    "gridded": _gridded,
    "beside": _beside,
    "wide": _wide,
    "strict": _strict,
    "polar": _polar,
    "antimeridian": _antimeridian,
    "overlapping": _overlapping,
    "tangled": _tangled,
    "off_the_map": _off_the_map,
    "cap": _cap,
    "point": _point,
    "multipoint": _multipoint,
    "line": _line,
    "multiline": _multiline,
    "collection": _collection,
    "near": _near,
    "geo_near": _geo_near,
}


# -- points -----------------------------------------------------------------------------------------------


def points_for(question: Question, rng: Rng, n: int = 120) -> tuple[Floats, Floats]:
    """Points at and near the border, on the meridians and parallels of its vertices, at cell edges, and anywhere."""
    vertices = np.concatenate([outline[:-1] if len(outline) > 1 else outline for outline in question.outline])
    starts = vertices
    ends = np.concatenate([outline[1:] for outline in question.outline])
    border = _near_edges(question, starts, ends, rng, n // 2)
    pick = vertices[rng.integers(0, len(vertices), n // 6)]
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    reach = np.maximum(high - low, 1e-7)
    around = rng.uniform(low - 0.2 * reach, high + 0.2 * reach, (n // 6, 2))
    # The very longitude (or latitude) of a vertex, somewhere else on it: where edges are counted.
    shared = np.where(rng.random((len(pick), 1)) < [[0.75, 0.25]], pick, around)
    cells = border[: n // 8]
    size = np.array([360.0, 180.0]) / 2.0 ** rng.integers(5, 31, (len(cells), 1))
    gridded = np.round(cells / size) * size
    anywhere = np.stack(testing.points_on_sphere(n // 20, int(rng.integers(2**31))), axis=1)
    corners = np.array([[180, 0], [-180, 0], [rng.uniform(-180, 180), 90], [0, -90], [180, 90], [-0.0, -0.0]])
    points = np.concatenate([border, pick[: n // 12], shared, around, gridded, anywhere, corners])
    lng, lat = points.T
    return np.where(np.abs(lng) > 180, normal_lng(lng), lng), np.clip(lat, -90, 90)


def _near_edges(question: Question, starts: Floats, ends: Floats, rng: Rng, n: int) -> Floats:
    edge = rng.integers(0, len(starts), n)
    share = rng.random(n)[:, None]
    a, b = starts[edge], ends[edge]
    if question.flat:
        on = a + share * (b - a)
    else:
        on = np.stack(to_degrees((1 - share) * to_vectors(*a.T) + share * to_vectors(*b.T)), axis=1)
    aside = rng.normal(size=(n, 2)) * log_uniform(rng, 1e-10, 1e-1, n)[:, None]
    aside[rng.random(n) < 0.1] = 0
    # A degree of longitude is short near a pole.
    aside[:, 0] /= np.maximum(np.cos(np.radians(np.clip(on[:, 1], -90, 90))), 1e-3)
    return on + aside
