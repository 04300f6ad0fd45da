"""Seeded random shapes of every kind that MongoDB's $geoWithin and $geoIntersects accept.

Polygons are star-shaped around a middle and reach at most 40 degrees from it, so that they are valid by
construction and smaller than a hemisphere; only "big_polygon" is the rest of the world around such a one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialnosql.errors import UsageError
from spatialnosql.testing.sphere import log_uniform, normal_lng, travel

SMALLEST_DEG, LARGEST_DEG = 1e-4, 40.0  # ten metres to a continent
STRICT_CRS = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}
Ring = list[list[float]]
_OPERATORS = {
    "box": "$box",
    "flat_polygon": "$polygon",
    "center": "$center",
    "center_sphere": "$centerSphere",
}
KINDS: tuple[str, ...] = ("polygon", "polygon_with_holes", "multipolygon", "big_polygon", *_OPERATORS)


@dataclass(frozen=True)
class Shape:
    """A shape as MongoDB takes it, and how it came about."""

    kind: str
    """One of `KINDS`."""
    value: Any
    """GeoJSON, or the array that the legacy operator takes."""
    centre: tuple[float, float]
    """Longitude and latitude of the middle it was drawn around."""
    radius_deg: float
    """About how far it reaches from there."""

    @property
    def operator(self) -> str:
        """The name MongoDB has for this way to give a shape, such as ``$geometry``."""
        return _OPERATORS.get(self.kind, "$geometry")

    @property
    def flat(self) -> bool:
        """Whether its edges are straight in the plane of longitude and latitude."""
        return self.kind in ("box", "flat_polygon", "center")

    def query(self, field: str = "loc", predicate: str = "$geoWithin") -> dict[str, Any]:
        """The filter that asks for documents in this shape."""
        if predicate == "$geoIntersects" and self.operator != "$geometry":
            raise UsageError(f"$geoIntersects takes only $geometry, not {self.operator}")
        return {field: {predicate: {self.operator: self.value}}}

    def polygons(self) -> list[list[Ring]]:
        """Its polygons as lists of closed rings, the first the outer; none for circles."""
        if self.kind == "box":
            (west, south), (east, north) = self.value
            return [[[[west, south], [east, south], [east, north], [west, north], [west, south]]]]
        if self.kind == "flat_polygon":
            return [[[*self.value, self.value[0]]]]
        if self.operator != "$geometry":
            return []
        coordinates: list[Any] = self.value["coordinates"]
        return coordinates if self.kind == "multipolygon" else [coordinates]


def random_shapes(
    count: int,
    seed: int = 1,
    *,
    kinds: Sequence[str] = KINDS,
    around: Sequence[tuple[float, float]] = (),
    smallest_deg: float = SMALLEST_DEG,
    largest_deg: float = LARGEST_DEG,
) -> Iterator[Shape]:
    """Yield shapes, taking the kinds in turn.

    Of every four middles, one is anywhere on the globe, one near the antimeridian, one near a pole and one
    anywhere again; or each is one of the places ``around`` (longitude, latitude), if any are given.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        where = number // len(kinds) % 4
        lng, lat = float(rng.uniform(-180, 180)), float(np.degrees(np.arcsin(rng.uniform(-1, 1))))
        if around:
            lng, lat = around[int(rng.integers(len(around)))]
        elif where == 1:
            lng = float(normal_lng(180 + rng.normal(0, 0.5)))
        elif where == 2:
            lat = float(rng.choice([-1, 1]) * (90 - log_uniform(rng, 1e-3, 10)))
        radius = float(log_uniform(rng, smallest_deg, largest_deg))
        yield random_shape(rng, kinds[number % len(kinds)], (lng, lat), radius)


def random_shape(
    rng: np.random.Generator, kind: str, centre: tuple[float, float], radius_deg: float
) -> Shape:
    """One shape of a kind, around a place."""
    lng, lat = centre
    if kind in ("polygon", "big_polygon", "polygon_with_holes"):
        rings = [_star(rng, centre, radius_deg, int(rng.integers(3, 40)))]
        if kind == "polygon_with_holes":
            rings = _with_holes(rng, centre, radius_deg)
        value: Any = {"type": "Polygon", "coordinates": rings}
        if kind == "big_polygon":
            # Clockwise under the strict rule: everything but the star.
            value = {"type": "Polygon", "coordinates": [rings[0][::-1]], "crs": STRICT_CRS}
    elif kind == "multipolygon":
        value = {"type": "MultiPolygon", "coordinates": _parts(rng, centre, radius_deg)}
    elif kind in ("box", "flat_polygon"):
        reach = min(radius_deg, 60.0)
        # Flat shapes end at the edge of the map: move them inside it.
        lng, lat = (
            float(np.clip(lng, -180 + reach, 180 - reach)),
            float(np.clip(lat, -90 + reach, 90 - reach)),
        )
        value = _flat_star(rng, lng, lat, reach)
        if kind == "box":
            wide, high = reach * rng.uniform(0.2, 1, 2)
            value = [[float(lng - wide), float(lat - high)], [float(lng + wide), float(lat + high)]]
    elif kind == "center":
        value = [[lng, lat], radius_deg]
    elif kind == "center_sphere":
        value = [[lng, lat], float(np.radians(radius_deg))]
    else:
        raise UsageError(f"no such kind of shape: {kind!r}; there are {', '.join(KINDS)}")
    return Shape(kind, value, (lng, lat), radius_deg)


def _bearings(rng: np.random.Generator, vertices: int) -> Any:
    """Ascending bearings with no gap as wide as half a turn, so that the star contains its middle."""
    slots = np.arange(vertices) + rng.uniform(-0.2, 0.2, vertices) + rng.random()
    return slots * 2 * np.pi / vertices


def _star(rng: np.random.Generator, centre: tuple[float, float], radius_deg: float, vertices: int) -> Ring:
    """A closed ring, counter-clockwise, around the centre."""
    bearings = _bearings(rng, vertices)[::-1]  # bearings run clockwise
    far = radius_deg * rng.uniform(0.4, 1, vertices)
    lng, lat = travel(np.full(vertices, centre[0]), np.full(vertices, centre[1]), bearings, far)
    ring = np.stack([lng, lat], axis=1).tolist()
    return [*ring, list(ring[0])]


def _flat_star(rng: np.random.Generator, lng: float, lat: float, radius_deg: float) -> Ring:
    vertices = int(rng.integers(3, 40))
    bearings, far = _bearings(rng, vertices), radius_deg * rng.uniform(0.4, 1, vertices)
    ring: Ring = np.stack([lng + far * np.cos(bearings), lat + far * np.sin(bearings)], axis=1).tolist()
    return ring


def _with_holes(rng: np.random.Generator, centre: tuple[float, float], radius_deg: float) -> list[Ring]:
    """A star of enough vertices that no edge comes near the middle, with one or two holes there."""
    rings = [_star(rng, centre, radius_deg, int(rng.integers(8, 40)))]
    holes, turn = int(rng.integers(1, 3)), rng.uniform(0, np.pi)
    for hole in range(holes):
        aside = 0.0 if holes == 1 else 0.12 * radius_deg
        lng, lat = travel(*centre, turn + hole * np.pi, aside)
        rings.append(_star(rng, (float(lng), float(lat)), 0.09 * radius_deg, int(rng.integers(3, 12)))[::-1])
    return rings


def _parts(rng: np.random.Generator, centre: tuple[float, float], radius_deg: float) -> list[list[Ring]]:
    """Two to four stars around the centre, too far apart to touch; the first one with holes."""
    parts, turn = int(rng.integers(2, 5)), rng.uniform(0, 2 * np.pi)
    polygons = []
    for part in range(parts):
        lng, lat = travel(*centre, turn + part * 2 * np.pi / parts, 0.7 * radius_deg)
        middle, reach = (float(lng), float(lat)), 0.3 * radius_deg
        polygons.append(
            _with_holes(rng, middle, reach)
            if part == 0
            else [_star(rng, middle, reach, int(rng.integers(3, 20)))]
        )
    return polygons
