"""Shapes as MongoDB writes them, to regions with MongoDB's semantics.

The only place where coordinates are taken apart: positions are ``[longitude, latitude]`` everywhere in MongoDB, and
leave here as separate arrays named `lng` and `lat`.

- ``$geometry`` (GeoJSON): great-circle edges, borders inside, the smaller side of each ring unless the CRS is
  MongoDB's strict-winding one
- ``$box``, ``$polygon``, ``$center``: flat, in degrees, never across the antimeridian
- ``$centerSphere`` and near: a sphere of radius 6378.1 km

A shape that MongoDB rejects raises GeometryError; one that it may take but that cannot be covered safely raises
UnsupportedShape. The rewriter answers both by sending the query unchanged, so that the server has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from spatialnosql.edges import Edges, Floats, flat_edges, great_circle_edges
from spatialnosql.errors import GeometryError, UnsupportedShape
from spatialnosql.region import BoxRegion, CapRegion, DiscRegion, EdgeRegion, Region, UnionRegion
from spatialnosql.rings import Rings, rings_to_region

EARTH_RADIUS_M = 6_378_100.0
STRICT_WINDING = "urn:x-mongodb:crs:strictwinding:EPSG:4326"
PLAIN_CRS = ("urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326")


def within_to_region(operand: Mapping[str, Any]) -> Region:
    """The region of the operand of ``$geoWithin``, such as ``{"$box": [[0, 0], [1, 1]]}``."""
    name, value = _only_item(operand, "$geoWithin")
    if name == "$geometry":
        kind = _type_of(value)
        if kind == "GeometryCollection":
            # MongoDB takes its polygons and leaves out the rest: nothing lies within a point or a line.
            kinds = [_type_of(member) for member in _sequence(value.get("geometries"), "geometries")]
            parts = [part for part, of in zip(_collection(value), kinds, strict=True) if of in _AREAS]
            if not parts:
                raise GeometryError("$geoWithin takes a GeometryCollection with polygons; this one has none")
            return UnionRegion(tuple(parts))
        if kind not in _AREAS:
            raise GeometryError(f"$geoWithin takes a Polygon or a MultiPolygon, not a {kind}")
        return geometry_to_region(value)
    readers = {"$box": _box, "$polygon": _polygon, "$center": _center, "$centerSphere": _center_sphere}
    if name not in readers:
        raise GeometryError(f"$geoWithin has no {name}; it has $geometry, {', '.join(readers)}")
    return readers[name](value)


def intersects_to_region(operand: Mapping[str, Any]) -> Region:
    """The region where a point intersects the operand of ``$geoIntersects``, ``{"$geometry": ...}``."""
    name, value = _only_item(operand, "$geoIntersects")
    if name == "$centerSphere":
        raise UnsupportedShape("$geoIntersects with $centerSphere is not documented; the server may have it")
    if name != "$geometry":
        raise GeometryError(f"$geoIntersects has no {name}; it has $geometry")
    return geometry_to_region(value)


def near_to_region(
    lng: float, lat: float, *, min_distance_m: float = 0.0, max_distance_m: float = math.inf
) -> Region:
    """The ring of all places between two distances, in metres, from a point."""
    _check_position(lng, lat, "the centre")
    if math.isnan(min_distance_m) or math.isnan(max_distance_m) or min_distance_m < 0 or max_distance_m < 0:
        raise GeometryError(f"a distance is negative or no number: {min_distance_m} to {max_distance_m} m")
    outer = min(max_distance_m / EARTH_RADIUS_M, 4.0)  # more than half around the Earth is everywhere
    return CapRegion(float(lng), float(lat), outer, min_distance_m / EARTH_RADIUS_M)


def geometry_to_region(geometry: Mapping[str, Any]) -> Region:
    """The region of a GeoJSON geometry of any type; lines and points are regions without an inside."""
    kind = _type_of(geometry)
    if kind == "GeometryCollection":
        return UnionRegion(tuple(_collection(geometry)))
    strict = _is_strict(geometry)
    if strict and kind != "Polygon":
        raise GeometryError(f"the strict-winding CRS is for a Polygon, not a {kind}")
    if kind == "Point":
        return _point(geometry.get("coordinates"))
    coordinates = _sequence(geometry.get("coordinates"), f"the coordinates of a {kind}")
    if kind == "Polygon":
        if strict and len(coordinates) != 1:
            raise GeometryError("a polygon of the strict-winding CRS has one ring only")
        return rings_to_region(_rings([coordinates]), strict_winding=strict)
    if kind == "MultiPolygon":
        if not coordinates:
            raise GeometryError("a MultiPolygon has no polygons")
        return rings_to_region(_rings(coordinates))
    if kind == "MultiPoint":
        if not coordinates:
            raise GeometryError("a MultiPoint has no points")
        pairs = [_pair(position, "a point") for position in coordinates]
        for pair in pairs:
            _check_position(*pair, "a point")
        lng, lat = np.array(pairs).T
        # Edges of no length: found by index, where a union of a thousand regions would ask each of them.
        return EdgeRegion(Edges(great_circle_edges(lng, lat, lng, lat)[0], geodesic=True), "none")
    lines = [coordinates] if kind == "LineString" else coordinates
    return _lines(lines)


def geojson_point(value: Any) -> tuple[float, float]:
    """Longitude and latitude of a GeoJSON point."""
    if _type_of(value) != "Point":
        raise GeometryError(f"near takes a Point, not a {_type_of(value)}")
    lng, lat = _pair(_sequence(value.get("coordinates"), "the coordinates of a Point"), "a point")
    _check_position(lng, lat, "a point")
    return lng, lat


def legacy_point(value: Any) -> tuple[float, float]:
    """Longitude and latitude of a legacy pair, ``[lng, lat]`` or ``{lng: ..., lat: ...}``."""
    lng, lat = _pair(value, "a point")
    _check_position(lng, lat, "a point")
    return lng, lat


# -- GeoJSON ----------------------------------------------------------------------------------------------

GEOJSON_TYPES = (
    "Point",
    "MultiPoint",
    "LineString",
    "MultiLineString",
    "Polygon",
    "MultiPolygon",
    "GeometryCollection",
)
_AREAS = ("Polygon", "MultiPolygon")


def _collection(geometry: Mapping[str, Any]) -> list[Region]:
    """The regions of the members of a GeometryCollection; MongoDB takes no notice of its own CRS."""
    members = _sequence(geometry.get("geometries"), "geometries")
    if not members:
        raise GeometryError("a GeometryCollection has no geometries")
    for member in members:
        if _type_of(member) == "GeometryCollection":
            raise GeometryError("a GeometryCollection holds another; MongoDB takes none inside another")
        if _is_strict(member):
            raise UnsupportedShape("a GeometryCollection holds a polygon of the strict-winding CRS")
    return [geometry_to_region(member) for member in members]


def _type_of(geometry: Any) -> str:
    if not isinstance(geometry, Mapping):
        raise GeometryError(f"a GeoJSON geometry is a document, not {_brief(geometry)}")
    kind = geometry.get("type")
    if kind not in GEOJSON_TYPES:
        raise GeometryError(f"{kind!r} is no GeoJSON type; they are {', '.join(GEOJSON_TYPES)}")
    return str(kind)


def _is_strict(geometry: Mapping[str, Any]) -> bool:
    if "crs" not in geometry:
        return False
    crs = geometry["crs"]
    properties = crs.get("properties") if isinstance(crs, Mapping) else None
    name = properties.get("name") if isinstance(properties, Mapping) else None
    if not isinstance(crs, Mapping) or crs.get("type") != "name" or name not in (*PLAIN_CRS, STRICT_WINDING):
        raise GeometryError(f"unknown CRS {name!r}; MongoDB knows {', '.join((*PLAIN_CRS, STRICT_WINDING))}")
    return bool(name == STRICT_WINDING)


def _rings(polygons: Sequence[Any]) -> Rings:
    """The rings of polygons, checked one by one, without their closing vertices."""
    lngs: list[Floats] = []
    lats: list[Floats] = []
    counts: list[int] = []
    names: list[str] = []
    shells: list[int] = []
    for number, polygon in enumerate(polygons):
        rings = _sequence(polygon, f"polygon {number}")
        if not rings:
            raise GeometryError(f"polygon {number} has no rings")
        shell = len(counts)
        for position, ring in enumerate(rings):
            name = f"ring {position}" if len(polygons) == 1 else f"polygon {number} ring {position}"
            lng, lat = _positions(ring, name)
            if len(lng) < 4:
                raise GeometryError(
                    f"{name} has {len(lng)} positions; a ring needs at least 4, the last its first"
                )
            if lng[0] != lng[-1] or lat[0] != lat[-1]:
                raise GeometryError(f"{name} is not closed: its last position must be its first")
            # MongoDB drops a position that repeats the one before.
            keep = (np.diff(lng) != 0) | (np.diff(lat) != 0)
            lng, lat = lng[:-1][keep], lat[:-1][keep]
            if len(lng) < 3:
                raise GeometryError(f"{name} has {len(lng)} different positions; a ring needs at least 3")
            lngs.append(lng)
            lats.append(lat)
            counts.append(len(lng))
            names.append(name)
            shells.append(shell)
    sizes = np.array(counts, dtype=np.intp)
    return Rings(
        np.concatenate(lngs),
        np.concatenate(lats),
        np.cumsum(sizes) - sizes,
        sizes,
        tuple(names),
        np.array(shells, dtype=np.intp),
    )


def _lines(lines: Sequence[Any]) -> Region:
    if not lines:
        raise GeometryError("a MultiLineString has no lines")
    tables, places = [], []
    for number, line in enumerate(lines):
        lng, lat = _positions(line, f"line {number}")
        keep = np.concatenate(([True], (np.diff(lng) != 0) | (np.diff(lat) != 0)))
        lng, lat = lng[keep], lat[keep]
        if len(lng) < 2:
            raise GeometryError(f"line {number} has {len(lng)} different positions; a line needs at least 2")
        tables.append(great_circle_edges(lng[:-1], lat[:-1], lng[1:], lat[1:])[0])
        places.append((lng, lat))
    for lng, lat in places:
        opposite = (np.abs(lat[:-1] + lat[1:]) < 1e-9) & (np.abs(np.abs(np.diff(lng)) - 180.0) < 1e-9)
        if opposite.any():
            raise UnsupportedShape("a line leads to the opposite side of the Earth")
    return EdgeRegion(Edges(np.concatenate(tables), geodesic=True), "none")


def _point(position: Any) -> Region:
    lng, lat = _pair(position, "a point")
    _check_position(lng, lat, "a point")
    return CapRegion(lng, lat, 0.0)


def _positions(value: Any, name: str) -> tuple[Floats, Floats]:
    positions = _sequence(value, name)
    try:
        # numpy would read strings, truth values and None as numbers too.
        plain = set(map(type, chain.from_iterable(positions))) <= {float, int}
        array = np.array(positions if plain else [], dtype=np.float64)
    except (TypeError, ValueError):
        plain = False
    if not plain:
        # Not all alike (an altitude here and there), or not all plain numbers: look at each.
        names = [f"position {i} of {name}" for i in range(len(positions))]
        array = np.array([_pair(_sequence(p, own), own) for p, own in zip(positions, names, strict=True)])
    if array.ndim != 2 or array.shape[1] < 2:
        raise GeometryError(f"{name} is not a list of [longitude, latitude] positions: {_brief(value)}")
    lng, lat = array[:, 0].copy(), array[:, 1].copy()
    valid = (np.abs(lng) <= 180.0) & (np.abs(lat) <= 90.0)
    if not valid.all():
        at = int(np.flatnonzero(~valid)[0])
        _check_position(float(lng[at]), float(lat[at]), f"position {at} of {name}")
    return lng, lat


def _check_position(lng: float, lat: float, name: str) -> None:
    if not (abs(lng) <= 180.0 and abs(lat) <= 90.0):
        hint = " (latitude and longitude swapped?)" if abs(lng) <= 90.0 and abs(lat) <= 180.0 else ""
        raise GeometryError(
            f"{name} is [{lng:.10g}, {lat:.10g}]: longitude must be within 180 degrees, latitude within 90{hint}"
        )


# -- legacy -----------------------------------------------------------------------------------------------


def _box(value: Any) -> Region:
    corners = _members(value, "$box")
    if len(corners) < 2:
        raise GeometryError(f"$box takes two corners, not {len(corners)}")
    if len(corners) > 2:
        raise UnsupportedShape(f"$box takes two corners, not {len(corners)}; MongoDB may leave out the rest")
    (x1, y1), (x2, y2) = (_flat_pair(corner, "a corner of $box") for corner in corners)
    return BoxRegion(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


def _polygon(value: Any) -> Region:
    positions = [_flat_pair(position, "a position of $polygon") for position in _members(value, "$polygon")]
    if len(positions) < 3:
        raise GeometryError(f"$polygon takes at least 3 positions, not {len(positions)}")
    lng, lat = np.array(positions, dtype=np.float64).T
    table = flat_edges(lng, lat, np.roll(lng, -1), np.roll(lat, -1))
    return EdgeRegion(Edges(table, geodesic=False), "odd")


def _center(value: Any) -> Region:
    lng, lat, radius = _circle(value, "$center")
    return DiscRegion(lng, lat, radius)


def _center_sphere(value: Any) -> Region:
    lng, lat, radius = _circle(value, "$centerSphere")
    _check_position(lng, lat, "the centre of $centerSphere")
    if radius > math.pi - 1e-6:
        raise UnsupportedShape(f"a $centerSphere of {radius} radians goes around the Earth")
    return CapRegion(lng, lat, radius)


def _circle(value: Any, name: str) -> tuple[float, float, float]:
    parts = _members(value, name)
    if len(parts) != 2:
        raise GeometryError(f"{name} takes a centre and a radius, not {len(parts)} values")
    lng, lat = _flat_pair(parts[0], f"the centre of {name}")
    radius = _number(parts[1], f"the radius of {name}", finite=False)
    if radius == math.inf:
        raise UnsupportedShape(f"the radius of {name} is infinite")
    if not radius >= 0:
        raise GeometryError(f"the radius of {name} is {radius}; it must be a number, 0 or more")
    return lng, lat, radius


# -- values -----------------------------------------------------------------------------------------------


def _only_item(operand: Any, operator: str) -> tuple[str, Any]:
    if isinstance(operand, Mapping) and "$uniqueDocs" in operand:
        raise UnsupportedShape(f"{operator} with $uniqueDocs, which MongoDB has given up")
    if not isinstance(operand, Mapping) or len(operand) != 1:
        raise GeometryError(f"{operator} takes a document with one shape, not {_brief(operand)}")
    return next(iter(operand.items()))


def _members(value: Any, name: str) -> Sequence[Any]:
    """The members of a list, or the values of a document: legacy shapes may be written either way."""
    return list(value.values()) if isinstance(value, Mapping) else _sequence(value, name)


def _pair(value: Any, name: str) -> tuple[float, float]:
    members = _members(value, name)
    if len(members) < 2:
        raise GeometryError(f"{name} is {_brief(value)}; it must be a longitude and a latitude")
    return _number(members[0], name), _number(members[1], name)


def _flat_pair(value: Any, name: str) -> tuple[float, float]:
    """A pair of a legacy shape: unlike in GeoJSON, MongoDB takes no third number."""
    if len(_members(value, name)) > 2:
        raise GeometryError(f"{name} is {_brief(value)}; it must be a longitude and a latitude, no more")
    return _pair(value, name)


def _number(value: Any, name: str, *, finite: bool = True) -> float:
    # bool is an int to Python but not a number to MongoDB; Decimal128 has to_decimal and is one.
    number = value.to_decimal() if hasattr(value, "to_decimal") else value
    if isinstance(number, bool | str | bytes) or not hasattr(number, "__float__"):
        raise GeometryError(f"{name} holds {_brief(value)}, which is no number")
    if finite and not math.isfinite(float(number)):
        raise GeometryError(f"{name} holds {float(number)}, which is no place")
    return float(number)


def _sequence(value: Any, name: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise GeometryError(f"{name} must be a list, not {_brief(value)}")
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
