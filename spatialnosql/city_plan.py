"""The plan of the generated city: where its land, water, streets and crowds are.

Havnsund is fictional. It lies around 11.25 E, 56.25 N, in truth open sea, because four 2-character
geohash cells (11.25 by 5.625 degrees each) meet in that very point: a city that straddles
borders of every precision shows more faults than one that lies snugly inside a cell.

Everything here is in kilometres east (x) and north (y) of that point; `to_lng_lat` leaves the plane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NAME = "Havnsund"
CENTRE_LNG, CENTRE_LAT = 11.25, 56.25
KM_PER_DEGREE = 111.32
HALF_WIDTH_KM, HALF_HEIGHT_KM = 26.0, 20.0  # the city limit is an ellipse
PLAN_SEED = 5625  # the satellite towns and taxi ranks are part of the plan, not of the sample


class HotSpot(NamedTuple):
    """A Gaussian crowd: centre, spread along and across its axis, the axis' angle, share of all points."""

    name: str
    x: float
    y: float
    along_km: float
    across_km: float
    angle_deg: float
    weight: float
    on_streets: bool = True


HOT_SPOTS: tuple[HotSpot, ...] = (
    HotSpot("downtown", 1.5, 0.5, 1.4, 0.8, 60, 0.24),
    HotSpot("midtown", 2.5, 3.4, 1.8, 0.9, 65, 0.13),
    HotSpot("westside", -4.8, 4.0, 1.6, 1.1, 10, 0.08),
    HotSpot("old port", 1.0, -4.4, 0.8, 0.35, 20, 0.05),
    HotSpot("central station", 0.9, 1.1, 0.07, 0.05, 29, 0.04, False),
    HotSpot("university", -3.9, 1.8, 0.5, 0.4, 0, 0.03),
    HotSpot("east docks", 9.5, -5.0, 1.2, 0.6, 40, 0.03),
    HotSpot("airport, terminal A", 15.5, 6.2, 0.12, 0.05, 30, 0.03, False),
    HotSpot("airport, terminal B", 16.3, 6.6, 0.10, 0.04, 30, 0.018, False),
    HotSpot("north station", 3.2, 6.1, 0.06, 0.04, 29, 0.015, False),
    HotSpot("stadium", -7.2, -1.0, 0.15, 0.10, 0, 0.010, False),
    HotSpot("airfield", -14.0, -7.0, 0.30, 0.10, 75, 0.006, False),
)
SATELLITES_SHARE, SATELLITES = 0.09, 14
RANKS_SHARE, RANKS = 0.012, 40  # exact places: a parked taxi reports the same coordinates all night
COUNTRYSIDE_SHARE = 0.02  # the suburbs get what is left


def satellite_towns() -> tuple[HotSpot, ...]:
    """Small towns around the city, each about as big as its rank in a Zipf law says."""
    rng = np.random.default_rng(PLAN_SEED)
    towns: list[HotSpot] = []
    shares = 1 / np.arange(1, SATELLITES + 1)
    shares *= SATELLITES_SHARE / shares.sum()
    while len(towns) < SATELLITES:
        bearing, radius = rng.uniform(0, 2 * np.pi), rng.uniform(7, 19)
        x, y, spread = radius * np.cos(bearing), 0.8 * radius * np.sin(bearing), rng.uniform(0.25, 1.2)
        if on_land(np.array([x]), np.array([y]), margin_km=0.5)[0]:
            weight = float(shares[len(towns)])
            name, angle = f"town {len(towns) + 1}", rng.uniform(0, 180)
            towns.append(HotSpot(name, x, y, spread, spread * 0.7, angle, weight))
    return tuple(towns)


def taxi_ranks() -> tuple[Floats, Floats]:
    """The exact places, around the centre, where many points coincide."""
    rng = np.random.default_rng(PLAN_SEED + 1)
    x, y = rng.normal(1.5, 3.0, RANKS * 4), rng.normal(1.0, 3.0, RANKS * 4)
    dry = on_land(x, y, margin_km=0.02)
    return x[dry][:RANKS], y[dry][:RANKS]


def river_course(y: Floats) -> tuple[Floats, Floats]:
    """The river's middle and half its width (both along x) where it passes y; it flows south to the bay."""
    middle = -1.5 + 1.2 * np.sin(y / 4.0) + 0.4 * np.sin(y / 1.3)
    return middle, 0.12 + 0.010 * (HALF_HEIGHT_KM - y)


def bay_radius(bearing: Floats) -> Floats:
    """How far the bay reaches from its middle, in km before it is stretched along x."""
    return 8.0 * (1 + 0.06 * np.sin(3 * bearing) + 0.04 * np.cos(5 * bearing + 1))


BAY_X, BAY_Y, BAY_STRETCH = 0.5, -14.0, 1.3


def in_water(x: Floats, y: Floats, *, margin_km: float = 0.0) -> Mask:
    """Whether a place is in the river or the bay, or nearer to them than the margin."""
    middle, half = river_course(y)
    river = (np.abs(x - middle) < half + margin_km) & (y > BAY_Y)
    east, north = (x - BAY_X) / BAY_STRETCH, y - BAY_Y
    bay = np.hypot(east, north) < bay_radius(np.arctan2(north, east)) + margin_km
    return river | bay


def on_land(x: Floats, y: Floats, *, margin_km: float = 0.0) -> Mask:
    """Whether a place is inside the city limit and dry."""
    return ((x / HALF_WIDTH_KM) ** 2 + (y / HALF_HEIGHT_KM) ** 2 < 1) & ~in_water(x, y, margin_km=margin_km)


def snap_to_streets(rng: np.random.Generator, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Move places onto the nearest street of the local grid, a few metres of GPS noise apart.

    The two banks of the river have grids of different angles, and blocks grow away from the centre.
    """
    angle = np.where(x < river_course(y)[0], np.radians(8.0), np.radians(29.0))
    cos, sin = np.cos(angle), np.sin(angle)
    u, v = x * cos + y * sin, -x * sin + y * cos
    scale = np.where(np.hypot(x, y) > 8, 2.5, 1.0)
    along_street = rng.random(x.size) < 0.6
    u = np.where(along_street, u, np.round(u / (0.27 * scale)) * 0.27 * scale)
    v = np.where(along_street, np.round(v / (0.085 * scale)) * 0.085 * scale, v)
    u += rng.normal(0, 0.006, x.size)
    v += rng.normal(0, 0.006, x.size)
    return u * cos - v * sin, u * sin + v * cos


def to_lng_lat(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Kilometres from the centre to degrees (an equirectangular plane: exact enough for a fiction)."""
    return CENTRE_LNG + x / (KM_PER_DEGREE * np.cos(np.radians(CENTRE_LAT))), CENTRE_LAT + y / KM_PER_DEGREE


def to_km(lng: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """The inverse of `to_lng_lat`."""
    east = (lng - CENTRE_LNG) * KM_PER_DEGREE * np.cos(np.radians(CENTRE_LAT))
    return east, (lat - CENTRE_LAT) * KM_PER_DEGREE


def bounds() -> tuple[float, float, float, float]:
    """West, south, east, north of the city limit in degrees."""
    half = np.array([-1.0, 1.0])
    lng, lat = to_lng_lat(half * HALF_WIDTH_KM, half * HALF_HEIGHT_KM)
    return float(lng[0]), float(lat[0]), float(lng[1]), float(lat[1])
