"""How far points are from the borders of polygons, on MongoDB's sphere: vectorised.

The distance to an edge is that to its great circle where the foot of the perpendicular lies on the edge, else that to
the nearer end, each as ``atan2(sine, cosine)``: S2's formulas, and accurate to nanometres near and far. A point's edges
are found by boxes of longitudes and latitudes. The edge that is nearest in flat degrees is not the nearest, but no more
than its distance need be looked at.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from spatialnosql.edges import (
    HI,
    LO,
    NORTH,
    SOUTH,
    STEEP,
    TOLERANCE_RAD,
    TURN_LAT,
    TURN_LNG,
    Floats,
    Ints,
    great_circle_edges,
    longitude_steps,
)
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.region import OUT, UNSURE, Box, Status

_FIRST_POINTS, _MOST_POINTS = 64, 4_096  # looked at together
_PAIRS_HELD = 1 << 20  # pairs of a point and an edge, as numbers: 16 MB
_PAIRS_AT_ONCE = 1 << 17  # as vectors: some 30 MB
_SLACK_RAD = 1e-12  # more than rounding can take from a distance
_SLACK_DEG = 1e-9
_COARSE = 4  # surroundings are as wide as so many steps of the grid that they are rounded to


@dataclass(frozen=True, eq=False)
class Borders:
    """The edges of many polygons."""

    starts: Floats  # unit vectors, one row an edge
    ends: Floats
    normals: Floats
    polygon: Ints  # whose edge
    table: Floats  # of `great_circle_edges`: where edges run; some come in two rows
    edge: Ints  # of each row of the table
    lines: Floats  # of each row three places, with the extent of the row

    @classmethod
    def of(cls, geometries: Sequence[Mapping[str, Any]]) -> Borders:
        """The borders of polygons and multipolygons, in their order."""
        parts = [
            (number, _positions(ring))
            for number, geometry in enumerate(geometries)
            for polygon in _polygons(geometry)
            for ring in polygon
        ]
        rings = [ring for _, ring in parts]
        nothing = np.zeros((0, 2))
        lng_a, lat_a = np.concatenate([nothing, *(ring[:-1] for ring in rings)]).T
        lng_b, lat_b = np.concatenate([nothing, *(ring[1:] for ring in rings)]).T
        polygon = np.repeat(
            np.array([number for number, _ in parts], dtype=np.intp), [len(ring) - 1 for ring in rings]
        )
        long = (lng_a != lng_b) | (lat_a != lat_b)
        lng_a, lat_a, lng_b, lat_b, polygon = (one[long] for one in (lng_a, lat_a, lng_b, lat_b, polygon))
        a, b = vectors(lng_a, lat_a), vectors(lng_b, lat_b)
        normal = np.cross(a + b, b - a)
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        normal = normal / np.where(length > 0, length, 1.0)
        if not polygon.size:
            return cls(a, b, normal, polygon, np.zeros((0, STEEP + 1)), polygon, np.zeros((0, 3, 2)))
        table, edge = great_circle_edges(lng_a, lat_a, lng_b, lat_b)
        east = longitude_steps(lng_a, lng_b) >= 0
        lines = _lines(table, np.where(east, lat_a, lat_b)[edge], np.where(east, lat_b, lat_a)[edge])
        return cls(a, b, normal, polygon, table, edge, lines)

    def __len__(self) -> int:
        return len(self.polygon)

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(shapely.linestrings(self.lines))

    @cached_property
    def _sides(self) -> tuple[Floats, Floats]:
        """For each edge the planes at right angles through its ends; between them lie the feet on the edge."""
        return np.cross(self.normals, self.starts), np.cross(self.ends, self.normals)

    def nearest(self, lng: Floats, lat: Floats, most_m: float) -> tuple[Ints, Floats]:
        """For each point the polygon with the nearest border, and its distance in metres; -1 where none is in reach.

        Of polygons whose borders are equally near it is the first.
        """
        polygon, distance = np.full(lng.size, -1, dtype=np.intp), np.full(lng.size, np.inf)
        start, size = 0, _FIRST_POINTS
        while len(self) and start < lng.size:
            part = slice(start, start + size)
            polygon[part], distance[part], pairs = self._nearest(lng[part], lat[part], most_m)
            start = part.stop
            # As many points at a time as keep their pairs few: in the middle of a continent all its coast is near.
            size = min(max(_PAIRS_HELD * size // (pairs + 1), _FIRST_POINTS), _MOST_POINTS)
        return polygon, distance

    def _nearest(self, lng: Floats, lat: Floats, most_m: float) -> tuple[Ints, Floats, int]:
        """The same for a few, and how many pairs of a point and an edge it took."""
        points = vectors(lng, lat)
        most = min(most_m / EARTH_RADIUS_M, math.pi)
        reach = self._bounds(lng, lat, points, most) + _SLACK_RAD
        boxes, owner = _boxes_around(lng, lat, reach)
        box, row = self._tree.query(shapely.box(*boxes.T))
        point, edge, pairs = owner[box], self.edge[row], len(row)
        distance = self._distances(points, point, edge)
        polygon = self.polygon[edge]
        order = np.lexsort((polygon, distance, point))
        point, first = np.unique(point[order], return_index=True)
        chosen = order[first]
        nearest, away = np.full(lng.size, -1, dtype=np.intp), np.full(lng.size, np.inf)
        near = distance[chosen] * EARTH_RADIUS_M <= most_m
        nearest[point[near]] = polygon[chosen[near]]
        away[point[near]] = distance[chosen[near]] * EARTH_RADIUS_M
        return nearest, away, pairs

    def _bounds(self, lng: Floats, lat: Floats, points: Floats, most: float) -> Floats:
        """For each point a distance within which an edge lies; `most` if none is known to lie nearer."""
        bounds = np.full(lng.size, most)
        within = float(np.max(_half_widths(lat, np.full(lat.size, most)), initial=_SLACK_DEG))
        every, beyond = np.arange(lng.size), np.flatnonzero(np.abs(lng) + within >= 180.0)
        # Across the antimeridian it may be nearer.
        for asked, lngs in ((every, lng), (beyond, lng[beyond] - np.copysign(360.0, lng[beyond]))):
            flat = shapely.points(lngs, lat[asked])
            at, row = self._tree.query_nearest(flat, max_distance=within, all_matches=False)
            point = asked[at]
            np.minimum.at(bounds, point, self._distances(points, point, self.edge[row]))
        return bounds

    def _distances(self, points: Floats, point: Ints, edge: Ints) -> Floats:
        """The distances in radians of pairs of a point and an edge."""
        out = np.empty(point.size)
        for start in range(0, point.size, _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            out[part] = self._to_edges(points[point[part]], edge[part])
        return out

    def _to_edges(self, x: Floats, edge: Ints) -> Floats:
        a, b, normal = self.starts[edge], self.ends[edge], self.normals[edge]
        height = _dot(x, normal)
        to_circle = np.arctan2(np.abs(height), np.linalg.norm(x - height[:, None] * normal, axis=1))
        beside = (_dot(self._sides[0][edge], x) > 0) & (_dot(self._sides[1][edge], x) > 0)
        return np.where(beside, to_circle, np.minimum(_angles(x, a), _angles(x, b)))


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A region that holds all places within a distance of some borders, and others near them: boxes around edges."""

    borders: Borders
    distance_m: float

    on_s2_borders = False

    @cached_property
    def key(self) -> bytes:
        """Equal for equal borders and distances."""
        digest = hashlib.blake2b(self.borders.table.tobytes(), digest_size=16)
        return b"around " + repr(self.distance_m).encode() + digest.digest()

    @cached_property
    def _boxes(self) -> Floats:
        table = self.borders.table
        reach = min(self.distance_m / EARTH_RADIUS_M, math.pi) + _SLACK_RAD
        widest = np.maximum(np.abs(table[:, SOUTH]), np.abs(table[:, NORTH]))
        half = _half_widths(widest, np.full(len(table), reach))
        height = math.degrees(reach) + _SLACK_DEG
        west, south = table[:, LO] - half, table[:, SOUTH] - height
        east, north = table[:, HI] + half, table[:, NORTH] + height
        # A little larger, and many edges share a box.
        grid = height / _COARSE
        low, high = np.floor(np.stack([west, south]) / grid), np.ceil(np.stack([east, north]) / grid)
        boxes = np.unique(np.concatenate([low, high]).T, axis=0) * grid
        return _around_the_world(boxes)[0]

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(shapely.box(*self._boxes.T))

    @cached_property
    def bounds(self) -> Sequence[Box]:
        """The box of all boxes."""
        if not len(self._boxes):
            return []
        west, south = np.maximum(self._boxes[:, :2].min(axis=0), (-180.0, -90.0)).tolist()
        east, north = np.minimum(self._boxes[:, 2:].max(axis=0), (180.0, 90.0)).tolist()
        return [(west, south, east, north)]

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """Boxes that meet none of its own are outside."""
        del state, parents
        status = np.full(len(boxes), OUT, dtype=np.int8)
        status[self._tree.query(shapely.box(*boxes.T))[0]] = UNSURE
        return status, None

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Points as boxes without extent."""
        del tolerance_rad
        return self.refine(np.stack([lng, lat, lng, lat], axis=1))[0]


def vectors(lng: Floats, lat: Floats) -> Floats:
    """Unit vectors of places, one row each."""
    x, y = np.radians(lng), np.radians(lat)
    return np.stack([np.cos(x) * np.cos(y), np.sin(x) * np.cos(y), np.sin(y)], axis=1)


def _polygons(geometry: Mapping[str, Any]) -> Sequence[Any]:
    coordinates: Sequence[Any] = geometry["coordinates"]
    return [coordinates] if geometry["type"] == "Polygon" else coordinates


def _positions(ring: Sequence[Any]) -> Floats:
    """Longitudes and latitudes; a third number is none of ours, and decimals are numbers."""
    try:
        return np.array(ring, dtype=np.float64)[:, :2]
    except (TypeError, ValueError):
        return np.array([[_number(value) for value in position[:2]] for position in ring])


def _number(value: Any) -> float:
    return float(value.to_decimal() if hasattr(value, "to_decimal") else value)


def _lines(table: Floats, lat_lo: Floats, lat_hi: Floats) -> Floats:
    """Each row as three places in flat degrees, which have its extent: its ends, and where it turns if it does."""
    upright = table[:, LO] == table[:, HI]
    lat_lo = np.where(upright, table[:, SOUTH], lat_lo)
    lat_hi = np.where(upright, table[:, NORTH], lat_hi)
    turns = ~np.isnan(table[:, TURN_LNG])
    middle_lng = np.where(turns, table[:, TURN_LNG], (table[:, LO] + table[:, HI]) / 2)
    middle_lat = np.where(turns, table[:, TURN_LAT], (lat_lo + lat_hi) / 2)
    lng = np.stack([table[:, LO], middle_lng, table[:, HI]], axis=1)
    return np.stack([lng, np.stack([lat_lo, middle_lat, lat_hi], axis=1)], axis=2)


def _half_widths(lat: Floats, reach: Floats) -> Floats:
    """How many degrees of longitude a circle of so many radians spans to either side; all if it holds a pole."""
    polar = np.radians(np.abs(lat)) + reach >= math.pi / 2 - 1e-9
    ratio = np.sin(np.where(polar, 0.0, reach)) / np.cos(np.where(polar, 0.0, np.radians(lat)))
    half = np.degrees(np.arcsin(np.minimum(ratio, 1.0))) + _SLACK_DEG
    return np.where(polar, 360.0, half)


def _boxes_around(lng: Floats, lat: Floats, reach: Floats) -> tuple[Floats, Ints]:
    """Boxes that hold all within a distance of points, and whose they are: two across the antimeridian."""
    half, height = _half_widths(lat, reach), np.degrees(reach) + _SLACK_DEG
    return _around_the_world(np.stack([lng - half, lat - height, lng + half, lat + height], axis=1))


def _around_the_world(boxes: Floats) -> tuple[Floats, Ints]:
    """Boxes as they are, and a turn to the east or west those that reach beyond the antimeridian; whose each is."""
    all_, west, east = np.arange(len(boxes)), boxes[:, 0] < -180.0, boxes[:, 2] > 180.0
    turn = np.array([360.0, 0.0, 360.0, 0.0])
    owner = np.concatenate([all_, all_[west], all_[east]])
    return np.concatenate([boxes, boxes[west] + turn, boxes[east] - turn]), owner


def _dot(a: Floats, b: Floats) -> Floats:
    product: Floats = np.einsum("ij,ij->i", a, b)
    return product


def _angles(a: Floats, b: Floats) -> NDArray[np.float64]:
    """As S2 has it: accurate near and far."""
    angles: Floats = np.arctan2(np.linalg.norm(np.cross(a, b), axis=1), _dot(a, b))
    return angles
