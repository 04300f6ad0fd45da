"""Seeded random points, above all where mistakes hide: at borders, vertices and the edges of cells.

Every function returns longitudes and latitudes as two arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spatialnosql.testing.shapes import Shape
from spatialnosql.testing.sphere import Floats, log_uniform, normal_lng, to_degrees, to_vectors, travel

METRES_PER_DEGREE = 111_319.0
Points = tuple[Floats, Floats]


def points_on_sphere(n: int, seed: int = 1) -> Points:
    """Points spread evenly over the whole globe."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))


def points_clustered(n: int, seed: int = 1, *, clusters: int = 20) -> Points:
    """Points in clusters of very different weights and spreads (metres to degrees), some wide apart."""
    rng = np.random.default_rng(seed)
    centre_lng, centre_lat = points_on_sphere(clusters, seed)
    weights = 1 / np.arange(1, clusters + 1)
    chosen = rng.choice(clusters, n, p=weights / weights.sum())
    spread = log_uniform(rng, 1e-4, 5, clusters)[chosen]
    far = np.minimum(np.abs(rng.normal(0, spread)), 90)
    return travel(centre_lng[chosen], centre_lat[chosen], rng.uniform(0, 2 * np.pi, n), far)


def points_near(
    lng: ArrayLike, lat: ArrayLike, n: int, seed: int = 1, *, nearest_m: float = 1e-3, farthest_m: float = 1e4
) -> Points:
    """Points near given places, at distances of every magnitude; one in ten is the very place."""
    rng = np.random.default_rng(seed)
    lng, lat = np.atleast_1d(np.asarray(lng, float)), np.atleast_1d(np.asarray(lat, float))
    chosen = rng.integers(0, lng.size, n)
    far = log_uniform(rng, nearest_m, farthest_m, n) / METRES_PER_DEGREE
    near_lng, near_lat = travel(lng[chosen], lat[chosen], rng.uniform(0, 2 * np.pi, n), far)
    exact = rng.random(n) < 0.1
    return np.where(exact, lng[chosen], near_lng), np.where(exact, lat[chosen], near_lat)


def points_near_edges(shape: Shape, n: int, seed: int = 1) -> Points:
    """Points on and near the border of a shape, a millimetre to kilometres away, vertices included."""
    rng = np.random.default_rng(seed)
    share = rng.random(n)[:, None]
    if not shape.polygons():
        bearing, radius = rng.uniform(0, 2 * np.pi, n), np.full(n, shape.radius_deg)
        if shape.flat:
            lng = shape.centre[0] + radius * np.cos(bearing)
            lat = shape.centre[1] + radius * np.sin(bearing)
            return points_near(*_on_map(lng, lat), n, seed)
        centre_lng, centre_lat = np.full(n, shape.centre[0]), np.full(n, shape.centre[1])
        return points_near(*travel(centre_lng, centre_lat, bearing, radius), n, seed)
    starts, ends = [], []
    for polygon in shape.polygons():
        for ring in polygon:
            starts += ring[:-1]
            ends += ring[1:]
    edge = rng.integers(0, len(starts), n)
    a, b = np.array(starts)[edge], np.array(ends)[edge]
    if shape.flat:
        lng, lat = (a + share * (b - a)).T
    else:
        lng, lat = to_degrees((1 - share) * to_vectors(*a.T) + share * to_vectors(*b.T))
    vertex = rng.random(n) < 0.2
    return points_near(*_on_map(np.where(vertex, a[:, 0], lng), np.where(vertex, a[:, 1], lat)), n, seed)


def points_at_cell_borders(n: int, seed: int = 1, *, bits: tuple[int, int] = (1, 60)) -> Points:
    """Points on the borders of geohash cells of any number of bits, or the next float to either side."""
    rng = np.random.default_rng(seed)
    lng, lat = points_on_sphere(n, seed)
    total = rng.integers(bits[0], bits[1] + 1, n)
    for values, span, axis_bits in ((lng, 360.0, (total + 1) // 2), (lat, 180.0, total // 2)):
        size = span / 2.0**axis_bits
        borders = np.round((values + span / 2) / size) * size - span / 2
        side = rng.integers(-1, 2, n)
        moved = np.where(side == 0, borders, np.nextafter(borders, side * 1000.0))
        values[:] = np.where(rng.random(n) < 0.75, np.clip(moved, -span / 2, span / 2), values)
    return lng, lat


def points_for(shape: Shape, n: int, seed: int = 1) -> Points:
    """Points to try a shape with: half in its reach, most of the rest at its border, some anywhere."""
    rng = np.random.default_rng(seed)
    inner, border = n // 2, (n * 2) // 5
    far = np.minimum(shape.radius_deg * 1.2 * np.sqrt(rng.random(inner)), 175.0)
    bearing = rng.uniform(0, 2 * np.pi, inner)
    centre_lng, centre_lat = np.full(inner, shape.centre[0]), np.full(inner, shape.centre[1])
    parts = [
        _on_map(centre_lng + far * np.cos(bearing), centre_lat + far * np.sin(bearing))
        if shape.flat
        else travel(centre_lng, centre_lat, bearing, far),
        points_near_edges(shape, border, seed + 1),
        points_on_sphere(n - inner - border, seed + 2),
    ]
    return np.concatenate([lng for lng, _ in parts]), np.concatenate([lat for _, lat in parts])


def points_to_documents(lng: ArrayLike, lat: ArrayLike, *, first_id: int = 0) -> list[dict[str, Any]]:
    """Documents ``{"_id", "loc"}``, numbered from ``first_id``."""
    pairs = zip(np.asarray(lng, float).tolist(), np.asarray(lat, float).tolist(), strict=True)
    return [
        {"_id": number, "loc": {"type": "Point", "coordinates": [east, north]}}
        for number, (east, north) in enumerate(pairs, first_id)
    ]


def _on_map(lng: Floats, lat: Floats) -> Points:
    """What MongoDB takes: beyond the antimeridian is the other side, beyond a pole is the pole."""
    outside = np.abs(lng) > 180
    return np.where(outside, normal_lng(lng), lng), np.clip(lat, -90, 90)
