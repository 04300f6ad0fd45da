"""Regions of subscriptions: rectangles, circles and polygons, and which points lie in them.

`inside` is the definition of membership: whatever matches must agree with it.

- `Rectangle`: plain longitudes and latitudes, its borders belong to it; as MongoDB's flat ``$box``.
- `Circle`: as MongoDB's ``$centerSphere`` on a sphere of radius 6,378,100 m.
- `Polygon`: as MongoDB's ``$geoWithin`` of a GeoJSON geometry, with great-circle edges.

MongoDB lets a point in if the S2 leaf cell around it, about a centimetre wide, meets the shape; so do circles and
polygons here. Where that does not tell of a polygon (within rounding of a border, or where a corner of it reaches into
a leaf cell from the side), the point counts as inside: a fixed rule, so that every run gives the same matches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.edges import CLOSE_RAD
from spatialnosql.errors import GeometryError, SpatialNoSQLError, UsageError
from spatialnosql.geometry import EARTH_RADIUS_M, within_to_region
from spatialnosql.leaf_cells import ROUNDING_RAD, leaf_corners
from spatialnosql.region import IN, OUT, UNSURE, BoxRegion, CapRegion, Region
from spatialnosql.settle import settle_closely, settle_points

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Bounds: TypeAlias = tuple[float, float, float, float]  # west, south, east, north; closed

MOST_POSITIONS = 100_000
"""Of a polygon: far below what a document of MongoDB can hold."""
_SMALL_M = (
    10.0  # so much bends a circle that it may meet a leaf cell between two corners, by a micrometre or more
)
MOST_RADIUS_M = (math.pi - 1e-6) * EARTH_RADIUS_M


@dataclass(frozen=True)
class Rectangle:
    """All places between two longitudes and two latitudes, borders included."""

    west: float
    south: float
    east: float
    north: float

    kind: ClassVar[int] = 0

    def __post_init__(self) -> None:
        west, south, east, north = self.west, self.south, self.east, self.north
        if type(west) is type(south) is type(east) is type(north) is float and (
            -180.0 <= west <= east <= 180.0 and -90.0 <= south <= north <= 90.0
        ):
            return  # a million are read in half the time
        sides = {name: _number(getattr(self, name), name) for name in ("west", "south", "east", "north")}
        for name, value in sides.items():
            object.__setattr__(self, name, value)
        for low, high, most in (("west", "east", 180.0), ("south", "north", 90.0)):
            for name in (low, high):
                if abs(sides[name]) > most:
                    raise GeometryError(
                        f"the {name} of a rectangle is {sides[name]:.10g}; it must be within {most:g} degrees of 0"
                    )
            if sides[low] > sides[high]:
                raise GeometryError(
                    f"the rectangle is inverted: {low} {sides[low]:.10g} is greater than {high} {sides[high]:.10g}; "
                    + _WAY_OUT[low]
                )

    @property
    def bounds(self) -> list[Bounds]:
        """The rectangle itself."""
        return [(self.west, self.south, self.east, self.north)]

    @property
    def region(self) -> Region:
        """The same as a region to cover."""
        return BoxRegion(self.west, self.south, self.east, self.north)

    def inside(self, lng: ArrayLike, lat: ArrayLike) -> Bools:
        """Whether each point lies in it or on its border."""
        x, y = _points(lng, lat)
        return (self.west <= x) & (x <= self.east) & (self.south <= y) & (y <= self.north)

    def to_document(self) -> dict[str, Any]:
        """The rectangle as it is stored."""
        return {"type": "Rectangle", "bounds": [self.west, self.south, self.east, self.north]}


_WAY_OUT = {
    "west": "give west, south, east, north in this order; across the antimeridian use two subscriptions, one on each "
    "side, or a polygon",
    "south": "give west, south, east, north in this order",
}


@dataclass(frozen=True)
class Circle:
    """All places within a distance, in metres, from a centre."""

    lng: float
    lat: float
    radius_m: float

    kind: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if type(self.lng) is type(self.lat) is type(self.radius_m) is float and (
            abs(self.lng) <= 180.0 and abs(self.lat) <= 90.0 and 0.0 <= self.radius_m <= MOST_RADIUS_M
        ):
            return
        for name in ("lng", "lat", "radius_m"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        if abs(self.lng) > 180.0 or abs(self.lat) > 90.0:
            raise GeometryError(
                f"the centre of a circle is [{self.lng:.10g}, {self.lat:.10g}]: longitude must be within 180 degrees, "
                "latitude within 90, and longitude comes first"
            )
        if not 0 <= self.radius_m <= MOST_RADIUS_M:
            raise GeometryError(
                f"the radius of a circle is {self.radius_m:.10g} m; it must be between 0 and "
                f"{MOST_RADIUS_M:,.0f} m, which is once around the Earth"
            )

    @property
    def radius_rad(self) -> float:
        """The radius as an angle."""
        return self.radius_m / EARTH_RADIUS_M

    @property
    def bounds(self) -> list[Bounds]:
        """Boxes that together hold it, with a margin; two across the antimeridian."""
        return list(self.region.bounds)

    @cached_property
    def region(self) -> CapRegion:
        """The same as a region to cover."""
        return CapRegion(self.lng, self.lat, self.radius_rad)

    def inside(self, lng: ArrayLike, lat: ArrayLike) -> Bools:
        """Whether each point, or its leaf cell, lies within the radius."""
        x, y = _points(lng, lat)
        found, unsure = _settled(self.region, x, y)
        if unsure.size:
            found[unsure] = self._reaches_leaf_cells(x[unsure], y[unsure])
        return found

    def _reaches_leaf_cells(self, lng: Floats, lat: Floats) -> Bools:
        """Whether the leaf cells of points meet the circle, as S2 has it: by a corner, across a side, or around it."""
        corners, _ = leaf_corners(lng, lat)
        centre = _vectors(np.array([self.lng]), np.array([self.lat]))[0]
        # Squared chords; the rounding of one is about that of a unit vector times the chord.
        reach = 4 * math.sin(self.radius_rad / 2) ** 2
        reach += 2 * math.sqrt(reach) * ROUNDING_RAD + 1e-30
        inside = np.concatenate([corners, _vectors(lng, lat)[:, None]], axis=1)
        meets: Bools = (((inside - centre) ** 2).sum(axis=2) <= reach).any(axis=1)
        if self.radius_m < _SMALL_M:
            meets |= _sides_near(corners, centre, self.radius_rad)
        return meets

    def to_document(self) -> dict[str, Any]:
        """The circle as it is stored."""
        return {"type": "Circle", "center": [self.lng, self.lat], "radius_m": self.radius_m}


@dataclass(frozen=True)
class Polygon:
    """A GeoJSON Polygon or MultiPolygon."""

    geometry: Mapping[str, Any]

    kind: ClassVar[int] = 2

    def __post_init__(self) -> None:
        # Raises GeometryError if it is none; kept, since making it is what takes long.
        self.__dict__["region"] = within_to_region({"$geometry": self.geometry})
        object.__setattr__(self, "geometry", _plain_geometry(self.geometry))

    def __hash__(self) -> int:
        return hash(self.region.key)

    @property
    def bounds(self) -> list[Bounds]:
        """Boxes that together hold it, with a margin; two across the antimeridian."""
        return list(self.region.bounds)

    @cached_property
    def region(self) -> Region:
        """The same as a region to cover."""
        return within_to_region({"$geometry": self.geometry})

    def inside(self, lng: ArrayLike, lat: ArrayLike) -> Bools:
        """Whether each point, or its leaf cell, lies in it; what cannot be told lies in it."""
        x, y = _points(lng, lat)
        found, unsure = _settled(self.region, x, y)
        if unsure.size:
            found[unsure] = settle_closely(self.region, x[unsure], y[unsure]) != OUT
        return found

    def to_document(self) -> dict[str, Any]:
        """The polygon as it is stored: GeoJSON."""
        return dict(self.geometry)


Area: TypeAlias = Rectangle | Circle | Polygon


def area_of(value: Any) -> Area:
    """An area from its document, a GeoJSON geometry or feature, or four numbers (a rectangle) or three (a circle).

    ``[west, south, east, north]`` in degrees; ``[lng, lat, radius_m]`` in degrees and metres.
    """
    if isinstance(value, Rectangle | Circle | Polygon):
        return value
    if isinstance(value, Mapping):
        return _from_document(value)
    if (
        isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str | bytes)
        and len(value) in (3, 4)
    ):
        return Circle(*value) if len(value) == 3 else Rectangle(*value)
    raise UsageError(f"a region is {_brief(value)}; {_FORMS}")


_FORMS = (
    "it must be [west, south, east, north], [lng, lat, radius_m], a GeoJSON Polygon or MultiPolygon, or a document "
    "of type Rectangle (bounds) or Circle (center, radius_m)"
)


def _from_document(document: Mapping[str, Any]) -> Area:
    kind = document.get("type")
    try:
        if kind == "Rectangle":
            return Rectangle(*document["bounds"])
        if kind == "Circle":
            lng, lat = document["center"]
            return Circle(lng, lat, document["radius_m"])
    except SpatialNoSQLError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"a region is {_brief(document)}; {_FORMS}") from error
    if kind == "Feature" and isinstance(document.get("geometry"), Mapping):
        return _from_document(document["geometry"])
    if kind in ("Polygon", "MultiPolygon"):
        return Polygon(document)
    raise UsageError(f"a region is of type {_brief(kind)}; {_FORMS}")


def _plain_geometry(geometry: Mapping[str, Any]) -> dict[str, Any]:
    """A polygon or multipolygon that is valid, as lists of plain numbers and without members that mean nothing."""
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    positions = sum(len(ring) for polygon in polygons for ring in polygon)
    if positions > MOST_POSITIONS:
        raise GeometryError(
            f"the polygon has {positions:,} positions; a subscription takes at most {MOST_POSITIONS:,}: simplify it"
        )
    plain = [
        [[[float(number) for number in position[:2]] for position in ring] for ring in polygon]
        for polygon in polygons
    ]
    kept = {
        "type": geometry["type"],
        "coordinates": plain if geometry["type"] == "MultiPolygon" else plain[0],
    }
    return kept | ({"crs": geometry["crs"]} if "crs" in geometry else {})


def _settled(region: Region, lng: Floats, lat: Floats) -> tuple[Bools, NDArray[np.intp]]:
    """Which points are certainly in, and the numbers of those near the border. What is no place is in nothing."""
    found = np.zeros(lng.size, dtype=np.bool_)
    places = np.flatnonzero((np.abs(lng) <= 180.0) & (np.abs(lat) <= 90.0))
    status = settle_points(region, lng[places], lat[places])
    found[places[status == IN]] = True
    unsure = places[status == UNSURE]
    if unsure.size:
        status = region.settle(lng[unsure], lat[unsure], CLOSE_RAD)
        found[unsure[status == IN]] = True
        unsure = unsure[status == UNSURE]
    return found, unsure


def _points(lng: ArrayLike, lat: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.broadcast_arrays(np.asarray(lng, dtype=np.float64), np.asarray(lat, dtype=np.float64))
    return x.reshape(-1), y.reshape(-1)


def _vectors(lng: Floats, lat: Floats) -> Floats:
    x, y = np.radians(lng), np.radians(lat)
    return np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=1)


def _sides_near(corners: Floats, centre: Floats, within_rad: float) -> Bools:
    """Whether a side of each leaf cell comes so near to a centre a few metres away, or the cell holds it.

    By differences of neighbouring vectors throughout: their own coordinates have too few digits for lengths like these.
    """
    sides = np.roll(corners, -1, axis=1) - corners
    lengths = np.linalg.norm(sides, axis=2)
    normals = np.cross(corners, sides) / lengths[:, :, None]
    to_centre = centre - corners
    offsets = np.einsum("nsk,nsk->ns", normals, to_centre)
    along = np.einsum("nsk,nsk->ns", sides, to_centre) / lengths
    near = (np.abs(offsets) <= within_rad) & (along >= 0) & (along <= lengths)
    holds = (offsets >= 0).all(axis=1) | (offsets <= 0).all(axis=1)
    found: Bools = near.any(axis=1) | holds
    return found


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise GeometryError(f"{name} is {_brief(value)}, which is no number")
    if not math.isfinite(float(value)):
        raise GeometryError(f"{name} is {float(value)}, which is no place")
    return float(value)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
