"""The little spherical geometry that seeded shapes, points and the oracle share. Arrays throughout."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def to_vectors(lng: ArrayLike, lat: ArrayLike) -> Floats:
    """Unit vectors, one a row."""
    east, north = np.radians(np.asarray(lng, float)), np.radians(np.asarray(lat, float))
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)


def to_degrees(vectors: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude of vectors of any length."""
    x, y, z = np.moveaxis(vectors, -1, 0)
    return np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y)))


def normal_lng(lng: ArrayLike) -> Floats:
    """Longitudes brought into [-180, 180), what MongoDB takes."""
    return np.asarray((np.asarray(lng, float) + 180.0) % 360.0 - 180.0)


def travel(
    lng: ArrayLike, lat: ArrayLike, bearing: ArrayLike, distance_deg: ArrayLike
) -> tuple[Floats, Floats]:
    """Where a great circle leads from a place; bearing in radians from north, distance in degrees."""
    start = to_vectors(lng, lat)
    east_of = np.radians(np.asarray(lng, float))
    east = np.stack([-np.sin(east_of), np.cos(east_of), np.zeros_like(east_of)], axis=-1)
    north = np.cross(start, east)
    turn, far = np.asarray(bearing, float)[..., None], np.radians(np.asarray(distance_deg, float))[..., None]
    return to_degrees(np.cos(far) * start + np.sin(far) * (np.cos(turn) * north + np.sin(turn) * east))


def log_uniform(rng: np.random.Generator, low: float, high: float, n: int | None = None) -> Floats:
    """Numbers of every magnitude between the two, each magnitude as likely."""
    return np.asarray(np.exp(rng.uniform(np.log(low), np.log(high), n)))
