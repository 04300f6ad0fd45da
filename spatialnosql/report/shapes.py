"""Shapes as they are drawn: borders of queries and polygons bent along great circles, ranges of cells as areas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.cover_command import ranges_to_cells
from spatialnosql.geohash import cells_to_bounds
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.report.model import Outline, Ring
from spatialnosql.report.view import View

STEP_DEG = 1.0
"""Edges longer than that are drawn as the great circles that they are."""
CIRCLE_VERTICES = 96
_NEAR = ("$near", "$nearSphere", "$geoNear")
_WITHIN = ("$geoWithin", "$within", "$geoIntersects")

# -- borders ----------------------------------------------------------------------------------------------


def bent(ring: Any) -> Ring:
    """A line of places with further ones between those that are far apart, along the great circle."""
    places = np.asarray([place[:2] for place in ring], dtype=np.float64).reshape(-1, 2)
    if len(places) < 2:
        return places
    steps = np.abs(np.diff(places, axis=0))
    steps[:, 0] = np.minimum(steps[:, 0], 360.0 - steps[:, 0])
    if not (steps > STEP_DEG).any():
        return places
    pieces = [places[:1]]
    for start, end, step in zip(places[:-1], places[1:], steps.max(axis=1), strict=True):
        pieces.append(_great_circle(start, end, max(1, math.ceil(step / STEP_DEG))))
    return np.concatenate(pieces)


def _great_circle(start: Ring, end: Ring, parts: int) -> Ring:
    """The places after `start`, up to and with `end`."""
    a, b = _vector(start), _vector(end)
    angle = math.acos(float(np.clip(a @ b, -1.0, 1.0)))
    if parts == 1 or angle < 1e-12 or angle > math.pi - 1e-9:
        return end[None, :]
    share = np.arange(1, parts) / parts
    between = (np.sin((1 - share) * angle)[:, None] * a + np.sin(share * angle)[:, None] * b) / math.sin(
        angle
    )
    lng = np.degrees(np.arctan2(between[:, 1], between[:, 0]))
    lat = np.degrees(np.arcsin(np.clip(between[:, 2], -1.0, 1.0)))
    return np.concatenate([np.stack([lng, lat], axis=1), end[None, :]])


def _vector(place: Ring) -> NDArray[np.float64]:
    lng, lat = np.radians(place)
    return np.array([np.cos(lat) * np.cos(lng), np.cos(lat) * np.sin(lng), np.sin(lat)])


def circle(lng: float, lat: float, radius_rad: float) -> Ring:
    """The places at a distance from a centre, on the sphere."""
    bearing = np.linspace(0.0, 2 * np.pi, CIRCLE_VERTICES + 1)
    middle, radius = math.radians(lat), min(radius_rad, math.pi)
    sine = math.sin(middle) * math.cos(radius) + math.cos(middle) * math.sin(radius) * np.cos(bearing)
    around = np.arctan2(
        np.sin(bearing) * math.sin(radius) * math.cos(middle), math.cos(radius) - math.sin(middle) * sine
    )
    lngs = (lng + np.degrees(around) + 540.0) % 360.0 - 180.0
    return np.stack([lngs, np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))], axis=1)


def split_at_antimeridian(rings: Sequence[Ring]) -> tuple[Ring, ...]:
    """Rings of one area cut where they cross 180 degrees, and closed around a pole that they contain."""
    unwrapped = [_unwrapped(ring) for ring in rings if len(ring) > 2]
    if all(ring[:, 0].min() >= -180.0 and ring[:, 0].max() <= 180.0 for ring in unwrapped):
        # Holes run the other way than what they are in: so they are left out of what is filled.
        return tuple(_turning(ring, left=not number) for number, ring in enumerate(unwrapped))
    area = shapely.Polygon()
    for ring in unwrapped:
        area = shapely.symmetric_difference(area, shapely.make_valid(shapely.Polygon(ring)))
    world = shapely.box(-180.0, -90.0, 180.0, 90.0)
    moved = [_moved(area, by) for by in (-360.0, 0.0, 360.0)]
    return tuple(_rings(shapely.union_all([shapely.intersection(one, world) for one in moved])))


def _moved(area: Any, degrees: float) -> Any:
    return shapely.transform(area, lambda places: places + np.array([degrees, 0.0]))


def _turning(ring: Ring, *, left: bool) -> Ring:
    """The ring, run through counter-clockwise or clockwise."""
    x, y = ring.T
    return ring if (float(x[:-1] @ y[1:] - x[1:] @ y[:-1]) > 0) == left else ring[::-1]


def _unwrapped(ring: Ring) -> Ring:
    """Longitudes without jumps; a ring around a pole goes on over it."""
    out = ring.copy()
    out[:, 0] = np.degrees(np.unwrap(np.radians(ring[:, 0])))
    turned = out[-1, 0] - out[0, 0]
    if abs(turned) > 180.0:
        pole = 90.0 if out[:, 1].mean() > 0 else -90.0
        ends = np.array([[out[-1, 0], pole], [out[0, 0], pole], [out[0, 0], out[0, 1]]])
        out = np.concatenate([out, ends])
    return out


def area_rings(geometry: Mapping[str, Any]) -> tuple[Ring, ...]:
    """All rings of a Polygon or MultiPolygon, holes too, ready to be drawn."""
    parts = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    return tuple(ring for part in parts for ring in split_at_antimeridian([bent(ring) for ring in part]))


def simplified(rings: Sequence[Ring], tolerance_deg: float) -> tuple[Ring, ...]:
    """The rings with no more vertices than a map can show; those that are smaller than a dot are left out."""
    out = []
    for ring in rings:
        thin = shapely.get_coordinates(
            shapely.simplify(shapely.LinearRing(ring), tolerance_deg, preserve_topology=False)
        )
        if len(thin) > 3:
            out.append(thin)
    return tuple(out) or tuple(rings[:1])


# -- shapes in a query ------------------------------------------------------------------------------------


def outlines_of(query: Any) -> tuple[Outline, ...]:
    """The shapes that a filter or a pipeline names, wherever in it; what is not understood is left out."""
    found: list[Outline] = []
    for operator, operand, around in _operators(query):
        try:
            outline = _near(operator, operand, around) if operator in _NEAR else _within(operand)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            continue
        found += outline
    return tuple(found)


def _operators(value: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _NEAR or key in _WITHIN:
                yield str(key), inner, value
            yield from _operators(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _operators(inner)


def _within(operand: Mapping[str, Any]) -> list[Outline]:
    (kind, shape), *_ = operand.items()
    if kind == "$geometry":
        return list(_geometry(shape))
    if kind in ("$centerSphere", "$center"):
        (lng, lat), radius = _pair(shape[0]), float(shape[1])
        if kind == "$centerSphere":
            return [Outline("area", split_at_antimeridian([circle(lng, lat, radius)]))]
        bearing = np.linspace(0, 2 * np.pi, CIRCLE_VERTICES + 1)
        flat = np.stack([lng + radius * np.cos(bearing), lat + radius * np.sin(bearing)], axis=1)
        return [Outline("area", (flat,))]
    if kind == "$box":
        (west, south), (east, north) = _pair(shape[0]), _pair(shape[1])
        return [
            Outline(
                "area",
                (np.array([[west, south], [east, south], [east, north], [west, north], [west, south]]),),
            )
        ]
    if kind == "$polygon":
        corners = list(shape.values()) if isinstance(shape, Mapping) else list(shape)
        places = np.array([_pair(corner) for corner in corners])
        return [Outline("area", (np.concatenate([places, places[:1]]),))]
    return []


def _geometry(geometry: Mapping[str, Any]) -> Iterator[Outline]:
    kind = geometry["type"]
    if kind in ("Polygon", "MultiPolygon"):
        yield Outline("area", area_rings(geometry))
    elif kind in ("LineString", "MultiLineString"):
        lines = [geometry["coordinates"]] if kind == "LineString" else geometry["coordinates"]
        yield Outline("line", tuple(bent(line) for line in lines))
    elif kind in ("Point", "MultiPoint"):
        places = [geometry["coordinates"]] if kind == "Point" else geometry["coordinates"]
        yield Outline("place", (np.array([place[:2] for place in places], dtype=np.float64),), "the place")
    elif kind == "GeometryCollection":
        for one in geometry["geometries"]:
            yield from _geometry(one)


def _near(operator: str, operand: Any, around: Mapping[str, Any]) -> list[Outline]:
    if isinstance(operand, Mapping) and "near" in operand:  # the stage $geoNear
        place, distance = operand["near"], operand.get("maxDistance")
    elif isinstance(operand, Mapping) and "$geometry" in operand:
        place, distance = operand["$geometry"], operand.get("$maxDistance")
    else:
        place, distance = operand, around.get("$maxDistance")
    geojson = isinstance(place, Mapping) and "coordinates" in place
    lng, lat = _pair(place["coordinates"] if geojson else place)
    found = [Outline("place", (np.array([[lng, lat]]),), "the place")]
    if distance is not None and (geojson or operator == "$nearSphere"):
        radians = float(distance) / (EARTH_RADIUS_M if geojson else 1.0)
        found.append(Outline("area", split_at_antimeridian([circle(lng, lat, radians)]), "greatest distance"))
    return found


def _pair(value: Any) -> tuple[float, float]:
    lng, lat = list(value.values())[:2] if isinstance(value, Mapping) else list(value)[:2]
    return float(lng), float(lat)


# -- ranges of cells --------------------------------------------------------------------------------------


def ranges_to_boxes(ranges: Ranges) -> NDArray[np.float64]:
    """The fewest cells that make up ranges: west, south, east, north of each."""
    boxes = [[float(side) for side in cells_to_bounds(cell, bits)] for cell, bits in ranges_to_cells(ranges)]
    return np.array(boxes).reshape(-1, 4)


def boxes_to_path(boxes: NDArray[np.float64]) -> tuple[list[float | None], list[float | None]]:
    """Boxes as one line of longitudes and one of latitudes, with gaps between them."""
    return path(np.array([[w, s], [e, s], [e, n], [w, n], [w, s]]) for w, s, e, n in boxes)


def ranges_to_area(ranges: Ranges, clip: View, least_deg: float) -> tuple[Ring, ...]:
    """Where ranges lie within a view, as rings; cells smaller than can be seen are left out."""
    boxes = ranges_to_boxes(ranges)
    seen = (
        (boxes[:, 2] > clip.west)
        & (boxes[:, 0] < clip.east)
        & (boxes[:, 3] > clip.south)
        & (boxes[:, 1] < clip.north)
        & (boxes[:, 2] - boxes[:, 0] >= least_deg)
    )
    if not seen.any():
        return ()
    area = shapely.union_all(shapely.box(*boxes[seen].T))
    frame = shapely.box(clip.west, clip.south, clip.east, clip.north)
    return tuple(_rings(shapely.intersection(area, frame)))


def _rings(area: Any) -> Iterator[Ring]:
    for part in shapely.get_parts(area):
        if part.geom_type != "Polygon" or part.is_empty:
            continue
        oriented = shapely.geometry.polygon.orient(part)
        yield shapely.get_coordinates(oriented.exterior)
        for hole in oriented.interiors:
            yield shapely.get_coordinates(hole)


def path(rings: Iterable[Ring], decimals: int = 6) -> tuple[list[float | None], list[float | None]]:
    """Rings as one line of longitudes and one of latitudes, with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for ring in rings:
        if xs:
            xs.append(None)
            ys.append(None)
        rounded = np.round(ring, decimals)
        xs += rounded[:, 0].tolist()
        ys += rounded[:, 1].tolist()
    return xs, ys
