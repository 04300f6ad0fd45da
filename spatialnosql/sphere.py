"""Distances on MongoDB's sphere, computed as the server computes them.

The server turns both points into unit vectors and takes the angle between them as atan2(|a x b|, a . b), times its
radius of the Earth (S2's ``S1Angle``). The same operations in the same order agree with it to the last few bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.geometry import EARTH_RADIUS_M

Floats = NDArray[np.float64]

ERROR_M = 1e-6
"""More than rounding can make of any distance on Earth: two distances that differ by less may be equal."""


_FEW = 32  # so few are sooner measured one by one than numpy is called


def distances_m(lng: float, lat: float, lngs: ArrayLike, lats: ArrayLike) -> Floats:
    """The distances in metres from one point to others, all in degrees."""
    x, y = (np.asarray(degrees, dtype=np.float64).reshape(-1) for degrees in (lngs, lats))
    if x.size < _FEW:
        return np.array(_one_by_one(lng, lat, x.tolist(), y.tolist()), dtype=np.float64)
    ax, ay, az = _vector(np.array([lng]), np.array([lat]))
    bx, by, bz = _vector(x, y)
    cx, cy, cz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    across, along = np.sqrt(cx * cx + cy * cy + cz * cz), ax * bx + ay * by + az * bz
    # Not np.arctan2: with AVX-512 that is another algorithm, a last bit off in one of twenty; the server has libm's.
    angles = np.fromiter(map(math.atan2, across.tolist(), along.tolist()), np.float64, count=across.size)
    distances: Floats = angles * EARTH_RADIUS_M
    return distances


def _one_by_one(lng: float, lat: float, lngs: Sequence[float], lats: Sequence[float]) -> list[float]:
    ax, ay, az = _vector_of_one(lng, lat)
    distances = []
    for x, y in zip(lngs, lats, strict=True):
        bx, by, bz = _vector_of_one(x, y)
        cx, cy, cz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
        across, along = math.sqrt(cx * cx + cy * cy + cz * cz), ax * bx + ay * by + az * bz
        distances.append(math.atan2(across, along) * EARTH_RADIUS_M)
    return distances


def _vector_of_one(lng: float, lat: float) -> tuple[float, float, float]:
    theta, phi = math.radians(lng), math.radians(lat)
    cosphi = math.cos(phi)
    return math.cos(theta) * cosphi, math.sin(theta) * cosphi, math.sin(phi)


def _vector(lng: Floats, lat: Floats) -> tuple[Floats, Floats, Floats]:
    theta, phi = np.radians(lng), np.radians(lat)
    cosphi = np.cos(phi)
    return np.cos(theta) * cosphi, np.sin(theta) * cosphi, np.sin(phi)
