"""Regions of the Earth: what a box of longitudes and latitudes has to do with them, and what a point has.

A region answers two questions, vectorised:

- `refine`: is a box certainly outside, certainly inside, or neither (boundary)?
- `settle`: is a point certainly outside, certainly inside, or too near a border to say?

"Certainly" leaves room for the tolerance of `spatialnosql.edges`; what MongoDB itself says of a point never contradicts
it. Regions are values: immutable, comparable by `key`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import (
    HI,
    HI_NEAR,
    LO,
    LO_NEAR,
    NORTH,
    SIGN,
    SOUTH,
    TOLERANCE_DEG,
    TOLERANCE_RAD,
    Edges,
    Floats,
    Ints,
    ragged,
)

Status: TypeAlias = NDArray[np.int8]
OUT, BOUNDARY, IN = 0, 1, 2
UNSURE = BOUNDARY

WORLD = (-180.0, -90.0, 180.0, 90.0)
Box: TypeAlias = tuple[float, float, float, float]  # west, south, east, north; closed; west <= east


class Region(Protocol):
    """A set of places."""

    @property
    def key(self) -> bytes:
        """Equal for equal regions: what caches go by."""

    @property
    def bounds(self) -> Sequence[Box]:
        """Boxes that together contain the region with its tolerance; none if it is empty."""

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """The status of each box, and a state to refine them further with.

        Without a state the boxes are new. With the state of earlier calls, box i must lie inside box ``parents[i]``,
        counted through all of those calls; knowing it spares looking at the whole shape again.
        """

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """The status of each point; UNSURE where it is so near a border that only the server may say."""

    @property
    def on_s2_borders(self) -> bool:
        """Whether the border touches one of the lines along which MongoDB contradicts itself.

        Those are the meridians at multiples of 45 degrees and the equator, which are borders of large S2 cells, and the
        poles, where four of them meet. A point exactly there and on the border of a shape is inside by MongoDB's own
        test, but its 2dsphere index may look for it in the neighbouring cell only: the answer depends on the plan.
        """


@dataclass(frozen=True)
class EdgeState:
    """For each box of all calls to `EdgeRegion.refine` so far: the edges that touch it."""

    starts: Ints
    counts: Ints
    edges: Ints


@dataclass(frozen=True, eq=False)
class EdgeRegion:
    """A region bounded by edges: polygons with holes, multipolygons, lines.

    A point's winding number is `north_pole` plus the signs of the edges on its meridian between it and the pole.
    `rule` says which numbers are inside: "positive" (GeoJSON: a shell counts +1, a hole -1, so that overlapping parts
    are no trouble), "odd" (legacy ``$polygon``, which may cross itself) or "none" (lines have no inside).
    """

    edges: Edges
    rule: str
    north_pole: int = 0

    @cached_property
    def key(self) -> bytes:
        """Equal for equal edges and rule."""
        digest = hashlib.blake2b(self.edges.table.tobytes(), digest_size=16)
        digest.update(f"{self.rule} {self.north_pole} {self.edges.geodesic}".encode())
        return digest.digest()

    @cached_property
    def bounds(self) -> Sequence[Box]:
        """The extent of the edges; everything between them and a pole that is inside."""
        table = self.edges.table
        poles = self._poles_inside()
        if not len(table):
            return [WORLD] if poles.any() else []
        south = min(max(float(table[:, SOUTH].min()) - TOLERANCE_DEG, -90.0), 90.0)
        north = max(min(float(table[:, NORTH].max()) + TOLERANCE_DEG, 90.0), -90.0)
        if poles.any():
            return [(-180.0, -90.0 if poles[1] else south, 180.0, 90.0 if poles[0] else north)]
        return [(west, south, east, north) for west, east in _longitude_spans(table)]

    def refine(
        self, boxes: Floats, state: EdgeState | None = None, parents: Ints | None = None
    ) -> tuple[Status, EdgeState]:
        """Boxes that an edge touches are boundary; the others are as their centres are."""
        if state is None or parents is None:
            box, edge = self.edges.near_boxes(boxes)
        else:
            counts = state.counts[parents]
            edge = state.edges[ragged(state.starts[parents], counts)]
            box = np.repeat(np.arange(len(boxes)), counts)
        touching = self.edges.touch(edge, boxes, box)
        box, edge = box[touching], edge[touching]
        counts = np.bincount(box, minlength=len(boxes))
        status = np.full(len(boxes), BOUNDARY, dtype=np.int8)
        clear = np.flatnonzero(counts == 0)
        centre_lng = (boxes[clear, 0] + boxes[clear, 2]) / 2
        centre_lat = (boxes[clear, 1] + boxes[clear, 3]) / 2
        status[clear] = np.where(self._inside(centre_lng, centre_lat)[0], IN, OUT)
        starts = np.cumsum(counts) - counts
        if state is not None:
            starts = np.concatenate([state.starts, starts + len(state.edges)])
            counts = np.concatenate([state.counts, counts])
            edge = np.concatenate([state.edges, edge])
        return status, EdgeState(starts, counts, edge)

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Points by their winding number; unsure within the tolerance of an edge."""
        inside, near = self._inside(lng, lat, tolerance_rad)
        return np.where(near, UNSURE, np.where(inside, IN, OUT)).astype(np.int8)

    @cached_property
    def on_s2_borders(self) -> bool:
        """Whether a vertex lies on such a line, or an edge over a pole; flat shapes need no 2dsphere index."""
        if not self.edges.geodesic or not len(self.edges.table):
            return False
        ends, heights = self.edges.table[:, [LO, HI]], self.edges.table[:, [SOUTH, NORTH]]
        return bool((np.mod(ends, 45.0) == 0).any() or (np.mod(heights, 90.0) == 0).any())

    def _poles_inside(self) -> NDArray[np.bool_]:
        """Whether the north pole and the south pole lie inside."""
        columns = self.edges.table.T
        if self.rule == "positive" and len(self.edges) and columns[SOUTH].min() > -90.0:
            # Between the poles lie the edges that cross a meridian, whole: no need to look where.
            crossed = columns[SIGN][(columns[LO] <= 0.0) & (columns[HI] > 0.0)].sum()
            return np.array([self.north_pole > 0, self.north_pole + crossed > 0])
        return self._inside(np.zeros(2), np.array([90.0, -90.0]))[0]

    def _inside(
        self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        total, near = self.edges.crossings(lng, lat, tolerance_rad)
        if self.rule == "none":
            return np.zeros(lng.size, dtype=np.bool_), near
        total = total + self.north_pole
        return (total % 2 == 1 if self.rule == "odd" else total > 0), near


def _longitude_spans(table: Floats) -> list[tuple[float, float]]:
    """One span of longitudes that holds all edges, or two where the widest gap between edges is worth leaving out."""
    lo, hi = np.clip(table[:, [LO_NEAR, HI_NEAR]], -180.0, 180.0).T
    order = np.argsort(lo)
    lo, reach = lo[order], np.maximum.accumulate(hi[order])
    west, east = float(lo[0]), float(reach[-1])
    gaps = lo[1:] - reach[:-1]
    if gaps.size and float(gaps.max()) > (east - west) / 4:
        at = int(gaps.argmax())
        return [(west, float(reach[at])), (float(lo[at + 1]), east)]
    return [(west, east)]


@dataclass(frozen=True)
class MirroredRegion:
    """The mirror image of a region in the equator."""

    image: Region

    @property
    def key(self) -> bytes:
        """Equal for equal images."""
        return b"mirrored " + self.image.key

    @property
    def bounds(self) -> Sequence[Box]:
        """Those of the image, mirrored."""
        return [(west, -north, east, -south) for west, south, east, north in self.image.bounds]

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """What the image says of the mirrored boxes."""
        mirrored = np.stack([boxes[:, 0], -boxes[:, 3], boxes[:, 2], -boxes[:, 1]], axis=1)
        return self.image.refine(mirrored, state, parents)

    @property
    def on_s2_borders(self) -> bool:
        """As the image: those lines are symmetrical."""
        return self.image.on_s2_borders

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """What the image says of the mirrored points."""
        return self.image.settle(lng, -lat, tolerance_rad)


@dataclass(frozen=True)
class BoxRegion:
    """A rectangle of longitudes and latitudes, flat: ``$box``."""

    west: float
    south: float
    east: float
    north: float

    on_s2_borders = False  # flat

    @property
    def key(self) -> bytes:
        """Equal for equal rectangles."""
        return repr(self).encode()

    @property
    def bounds(self) -> Sequence[Box]:
        """The rectangle itself, as far as it lies in the world."""
        t = TOLERANCE_DEG
        west, east = max(self.west - t, -180.0), min(self.east + t, 180.0)
        south, north = max(self.south - t, -90.0), min(self.north + t, 90.0)
        return [(west, south, east, north)] if west <= east and south <= north else []

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """Compare the sides."""
        del state, parents
        return self._status(*boxes.T), None

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Compare the coordinates."""
        return self._status(lng, lat, lng, lat, math.degrees(tolerance_rad))

    def _status(
        self, west: Floats, south: Floats, east: Floats, north: Floats, t: float = TOLERANCE_DEG
    ) -> Status:
        inside = (west > self.west + t) & (east < self.east - t)
        inside &= (south > self.south + t) & (north < self.north - t)
        outside = (east < self.west - t) | (west > self.east + t)
        outside |= (north < self.south - t) | (south > self.north + t)
        return np.where(inside, IN, np.where(outside, OUT, BOUNDARY)).astype(np.int8)


@dataclass(frozen=True)
class CapRegion:
    """All places whose distance from a centre, as an angle, is between `inner_rad` and `outer_rad`.

    ``$centerSphere``, ``$nearSphere``, ``$geoNear``; a single point if `outer_rad` is 0, a ring if `inner_rad` is not.
    """

    lng: float
    lat: float
    outer_rad: float
    inner_rad: float = 0.0

    @property
    def key(self) -> bytes:
        """Equal for equal circles."""
        return repr(self).encode()

    @property
    def on_s2_borders(self) -> bool:
        """Only a single point can be: circles are looked up generously."""
        return self.outer_rad == 0.0 and (self.lng % 45.0 == 0 or self.lat == 0)

    def _margin(self, tolerance_rad: float = TOLERANCE_RAD) -> float:
        # MongoDB compares squared chords, whose rounding of 1e-16 is more in terms of very small angles.
        # The same holds near the antipode, for MongoDB's chords and for the arcsine below.
        radii = [min(r, math.pi) for r in (self.outer_rad, self.inner_rad) if r > 0]
        return tolerance_rad + 5e-16 / max(min((math.sin(r) for r in radii), default=0.0), 1e-8)

    @property
    def bounds(self) -> Sequence[Box]:
        """The circle's extent: all longitudes if it holds a pole, two boxes if it crosses the antimeridian."""
        radius = self.outer_rad + 2 * self._margin()
        if self.inner_rad > self.outer_rad:
            return []
        reach = math.degrees(radius)
        south, north = self.lat - reach, self.lat + reach
        if south <= -90.0 or north >= 90.0:
            return [(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
        half = math.degrees(math.asin(min(1.0, math.sin(radius) / math.cos(math.radians(self.lat))))) + 1e-9
        west, east = self.lng - half, self.lng + half
        if west <= -180.0:
            return [(-180.0, south, east, north), (west + 360.0, south, 180.0, north)]
        if east >= 180.0:
            return [(west, south, 180.0, north), (-180.0, south, east - 360.0, north)]
        return [(west, south, east, north)]

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """Compare the nearest and the farthest point of each box."""
        del state, parents
        nearest, farthest = self._distances(boxes)
        return self._status(nearest, farthest, self._margin()), None

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Compare the distances."""
        distance = self._distance(np.abs(np.radians(lng) - math.radians(self.lng)), np.radians(lat))
        return self._status(distance, distance, self._margin(tolerance_rad))

    def _status(self, nearest: Floats, farthest: Floats, t: float) -> Status:
        inside = farthest < self.outer_rad - t
        if self.inner_rad > 0:
            inside &= nearest > self.inner_rad + t
        outside = (nearest > self.outer_rad + t) | (farthest < self.inner_rad - t)
        return np.where(inside, IN, np.where(outside, OUT, BOUNDARY)).astype(np.int8)

    def _distance(self, turn: Floats, lat: Floats) -> Floats:
        """Great-circle distance to points `turn` radians of longitude away (haversine: exact when small)."""
        own = math.radians(self.lat)
        h = np.sin((lat - own) / 2) ** 2 + math.cos(own) * np.cos(lat) * np.sin(turn / 2) ** 2
        angle: Floats = 2 * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
        return angle

    def _distances(self, boxes: Floats) -> tuple[Floats, Floats]:
        """Distance to the nearest and to the farthest point of each box.

        At a given latitude the distance grows with the turn, so both lie on the meridians of least and greatest turn;
        along a meridian ``cos(distance) = r * cos(lat - top)``, so they lie at its ends or at `top` or opposite.
        """
        west, south, east, north = np.radians(boxes).T
        own_lng, own = math.radians(self.lng), math.radians(self.lat)
        to_west, to_east = (np.mod(west - own_lng, 2 * np.pi), np.mod(east - own_lng, 2 * np.pi))
        # The turn runs from to_west eastwards over the box's width; it holds 0 or pi if it passes them.
        width = east - west
        holds_own = (to_west + width >= 2 * np.pi) | (to_west == 0)
        holds_opposite = ((to_west <= np.pi) & (to_west + width >= np.pi)) | (to_west + width >= 3 * np.pi)
        turn_west = np.minimum(to_west, 2 * np.pi - to_west)
        turn_east = np.minimum(to_east, 2 * np.pi - to_east)
        least = np.where(holds_own, 0.0, np.minimum(turn_west, turn_east))
        most = np.where(holds_opposite, np.pi, np.maximum(turn_west, turn_east))
        nearest = self._extreme(least, south, north, own, np.minimum, 0.0)
        farthest = self._extreme(most, south, north, own, np.maximum, np.pi)
        return nearest, farthest

    def _extreme(
        self, turn: Floats, south: Floats, north: Floats, own: float, choose: np.ufunc, opposite: float
    ) -> Floats:
        top = np.arctan2(math.sin(own), math.cos(own) * np.cos(turn)) + opposite
        top = (top + np.pi) % (2 * np.pi) - np.pi
        best: Floats = choose(self._distance(turn, south), self._distance(turn, north))
        between = (south <= top) & (top <= north)
        return np.where(between, choose(best, self._distance(turn, np.where(between, top, south))), best)


@dataclass(frozen=True)
class DiscRegion:
    """A circle (or ring) in flat degrees: ``$center``, and ``$near`` on a flat index."""

    lng: float
    lat: float
    outer_deg: float
    inner_deg: float = 0.0

    on_s2_borders = False  # flat

    @property
    def key(self) -> bytes:
        """Equal for equal discs."""
        return repr(self).encode()

    @property
    def bounds(self) -> Sequence[Box]:
        """The square around it, as far as it lies in the world."""
        r = self.outer_deg
        return BoxRegion(self.lng - r, self.lat - r, self.lng + r, self.lat + r).bounds

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """Compare the nearest and the farthest point of each box."""
        del state, parents
        west, south, east, north = boxes.T
        dx = np.maximum(np.maximum(west - self.lng, self.lng - east), 0.0)
        dy = np.maximum(np.maximum(south - self.lat, self.lat - north), 0.0)
        far_x = np.maximum(np.abs(west - self.lng), np.abs(east - self.lng))
        far_y = np.maximum(np.abs(south - self.lat), np.abs(north - self.lat))
        return self._status(np.hypot(dx, dy), np.hypot(far_x, far_y)), None

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Compare the distances."""
        distance = np.hypot(lng - self.lng, lat - self.lat)
        return self._status(distance, distance, math.degrees(tolerance_rad))

    def _status(self, nearest: Floats, farthest: Floats, t: float = TOLERANCE_DEG) -> Status:
        inside = farthest < self.outer_deg - t
        if self.inner_deg > 0:
            inside &= nearest > self.inner_deg + t
        outside = (nearest > self.outer_deg + t) | (farthest < self.inner_deg - t)
        return np.where(inside, IN, np.where(outside, OUT, BOUNDARY)).astype(np.int8)


@dataclass(frozen=True)
class _Compound:
    """Several regions taken together, part by part."""

    parts: tuple[Region, ...]

    @property
    def key(self) -> bytes:
        """Equal for equal parts in the same order."""
        joined = b"|".join(part.key for part in self.parts)
        return type(self).__name__.encode() + hashlib.blake2b(joined, digest_size=16).digest()

    def refine(self, boxes: Floats, state: Any = None, parents: Ints | None = None) -> tuple[Status, Any]:
        """Combine what the parts say."""
        states = [None] * len(self.parts) if state is None else state
        answers = [part.refine(boxes, own, parents) for part, own in zip(self.parts, states, strict=True)]
        return self._combine([status for status, _ in answers], len(boxes)), [own for _, own in answers]

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> Status:
        """Combine what the parts say."""
        return self._combine([part.settle(lng, lat, tolerance_rad) for part in self.parts], len(lng))

    @property
    def on_s2_borders(self) -> bool:
        """Whether any part is."""
        return any(part.on_s2_borders for part in self.parts)

    def _combine(self, statuses: list[Status], count: int) -> Status:
        raise NotImplementedError


class UnionRegion(_Compound):
    """Places in any of the parts; no parts: nowhere."""

    @property
    def bounds(self) -> Sequence[Box]:
        """Those of all parts."""
        return [box for part in self.parts for box in part.bounds]

    def _combine(self, statuses: list[Status], count: int) -> Status:
        return np.max(statuses, axis=0) if statuses else np.full(count, OUT, dtype=np.int8)


class IntersectionRegion(_Compound):
    """Places in all of the parts; no parts: everywhere."""

    @property
    def bounds(self) -> Sequence[Box]:
        """What the boxes of the parts have in common."""
        boxes: list[Box] = [WORLD]
        for part in self.parts:
            boxes = [common for a in boxes for b in part.bounds if (common := _common(a, b))]
        return boxes

    def _combine(self, statuses: list[Status], count: int) -> Status:
        return np.min(statuses, axis=0) if statuses else np.full(count, IN, dtype=np.int8)


def _common(a: Box, b: Box) -> Box | None:
    west, south, east, north = max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])
    return (west, south, east, north) if west <= east and south <= north else None
