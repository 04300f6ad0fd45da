"""Edges of a shape as flat arrays: where they run, on which side a point lies, which of them touch a box.

Two kinds share one table and one set of algorithms. **Great-circle** edges are MongoDB's GeoJSON edges; **flat**
edges are straight in longitude and latitude, as in ``$polygon``. Each edge is monotone in longitude, has one latitude
at every longitude that it spans, and a linear form that is positive for points north of it:

- great circle: ``n . (cos(lat)cos(lng), cos(lat)sin(lng), sin(lat))``, n the unit normal with n_z >= 0; its value is
  the sine of the distance to the circle
- flat: ``a*lng + b*lat + c`` with b >= 0 and a^2 + b^2 = 1; its value is the distance in degrees

So nothing is bent and no edge is approximated: what remains is the rounding of doubles, about 1e-15, and the
tolerance below is a million times that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]

TOLERANCE_RAD = 1e-8
"""Nearer to a border than this (6.4 cm), only the server may say.

It bounds the sum of: half the diagonal of a 60-bit cell (3.3e-9, when a point is known by its geohash only), the
diagonal of the S2 leaf cell by which MongoDB lets border points in (2.6e-9), and the rounding of both sides.
"""
TOLERANCE_DEG = float(np.degrees(TOLERANCE_RAD))
CLOSE_RAD = 4e-9
"""The same (2.6 cm) for a point whose coordinates are known: without the 60-bit cell."""

# Columns of the table. LO and HI bound the longitude; LO_NEAR and HI_NEAR do so with the tolerance added.
LO, HI, LO_NEAR, HI_NEAR, SOUTH, NORTH, TURN_LNG, TURN_LAT, C0, C1, C2, SIGN, STEEP = range(13)
_COLUMNS = 13
_STEEP = 1e-6  # a linear form with a smaller last coefficient gives no trustworthy latitude at a longitude
_BENT = 1e-18  # a product of two sines: rounding may hide a turn only where it changes nothing
_MAX_STRIPS = 1 << 15
_MAX_PAIRS = 1 << 17  # pairs of point and edge looked at together; bounds the memory of any query


@dataclass(frozen=True)
class Edges:
    """A table of edges, with an index of vertical strips to find the edges near a meridian.

    `SIGN` of an edge is what crossing it southwards adds to a point's winding number.
    """

    table: Floats
    geodesic: bool
    _strips: Strips = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_strips", Strips.of(self.table))

    def __len__(self) -> int:
        return len(self.table)

    def latitude_at(self, rows: Floats, lng: Floats) -> Floats:
        """The latitude of edges at longitudes that they span; meaningless for steep edges."""
        if self.geodesic:
            angle = np.radians(lng)
            return np.degrees(
                np.arctan2(-(rows[:, C0] * np.cos(angle) + rows[:, C1] * np.sin(angle)), rows[:, C2])
            )
        return -(rows[:, C0] * lng + rows[:, C2]) / np.where(rows[:, STEEP] > 0, 1.0, rows[:, C1])

    def near_boxes(self, boxes: Floats) -> tuple[Ints, Ints]:
        """All pairs of a box and an edge whose own boxes meet, in the order of the boxes."""
        columns = self._columns
        boxes_of, edges_of = [], []
        # As many boxes at a time as keep the table of pairs small.
        step = max(1, 8 * _MAX_PAIRS // max(1, len(self.table)))
        for start in range(0, len(boxes), step):
            west, south, east, north = boxes[start : start + step].T[:, :, None]
            meet = (columns[LO_NEAR] <= east) & (columns[HI_NEAR] >= west)
            meet &= (columns[SOUTH] <= north + TOLERANCE_DEG) & (columns[NORTH] >= south - TOLERANCE_DEG)
            box, edge = np.nonzero(meet)
            boxes_of.append(box + start)
            edges_of.append(edge)
        nothing = np.zeros(0, dtype=np.intp)
        return np.concatenate([nothing, *boxes_of]), np.concatenate([nothing, *edges_of])

    def touch(self, edge: Ints, boxes: Floats, box: Ints) -> Bools:
        """Whether each edge comes within the tolerance of its box (west, south, east, north); may say yes too often."""
        columns = self._columns
        west, south, east, north = np.ascontiguousarray(boxes.T)
        south, north = south - TOLERANCE_DEG, north + TOLERANCE_DEG
        touching: Bools = (columns[LO_NEAR][edge] <= east[box]) & (columns[HI_NEAR][edge] >= west[box])
        touching &= (columns[SOUTH][edge] <= north[box]) & (columns[NORTH][edge] >= south[box])
        # An edge whose own box lies inside needs no more; of the others, look where they really run.
        which = np.flatnonzero(touching)
        own, at = edge[which], box[which]
        inside = (columns[LO][own] >= west[at]) & (columns[HI][own] <= east[at])
        inside &= (columns[SOUTH][own] >= south[at]) & (columns[NORTH][own] <= north[at])
        which = which[~inside & (columns[STEEP][own] == 0)]
        if which.size:
            part, at = self.table[edge[which]], box[which]
            # The tolerance to the sides too: a steep edge just beside the box may be far above it at its corner.
            reach = part[:, HI_NEAR] - part[:, HI]
            left = np.maximum(west[at] - reach, part[:, LO])
            right = np.maximum(np.minimum(east[at] + reach, part[:, HI]), part[:, LO])
            left = np.minimum(left, right)
            a, b = self.latitude_at(part, left), self.latitude_at(part, right)
            low, high = np.minimum(a, b), np.maximum(a, b)
            turns = (part[:, TURN_LNG] >= left) & (part[:, TURN_LNG] <= right)
            low = np.where(turns, np.minimum(low, part[:, TURN_LAT]), low)
            high = np.where(turns, np.maximum(high, part[:, TURN_LAT]), high)
            touching[which] = (low <= north[at]) & (high >= south[at])
        return touching

    def lift(self, lng: Floats, lat: Floats) -> tuple[Floats, Floats, Floats]:
        """Points in the space of the linear form."""
        if not self.geodesic:
            return lng, lat, np.ones_like(lng)
        x, y = np.radians(lng), np.radians(lat)
        c = np.cos(y)
        return c * np.cos(x), c * np.sin(x), np.sin(y)

    def crossings(self, lng: Floats, lat: Floats, tolerance_rad: float = TOLERANCE_RAD) -> tuple[Ints, Bools]:
        """For each point: the signs of the edges north of it summed, and whether an edge is within the tolerance."""
        total = np.zeros(lng.size, dtype=np.intp)
        near = np.zeros(lng.size, dtype=np.bool_)
        if not len(self.table):
            return total, near
        strip = self._strips.of_longitudes(lng)
        counts = self._strips.counts[strip]
        ends = np.cumsum(counts)
        start = 0
        while start < lng.size:
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _MAX_PAIRS, side="right")))
            part = slice(start, stop)
            total[part], near[part] = self._crossings(
                lng[part], lat[part], strip[part], counts[part], tolerance_rad
            )
            start = stop
        return total, near

    def _crossings(
        self, lng: Floats, lat: Floats, strip: Ints, counts: Ints, tolerance_rad: float
    ) -> tuple[Ints, Bools]:
        point = np.repeat(np.arange(lng.size), counts)
        edge = self._strips.edges[ragged(self._strips.starts[strip], counts)]
        x, y = lng[point], lat[point]
        lo, hi, lo_near, hi_near, south, north, _, _, c0, c1, c2, sign, _ = self._columns
        reach = np.flatnonzero((lo_near[edge] <= x) & (x <= hi_near[edge]))
        point, edge, x, y = point[reach], edge[reach], x[reach], y[reach]
        p0, p1, p2 = self.lift(lng, lat)
        offset = c0[edge] * p0[point] + c1[edge] * p1[point] + c2[edge] * p2[point]
        bottom, top = south[edge], north[edge]
        # Beyond an edge's latitudes its side is plain, whatever rounding makes of a nearly vertical one.
        above = (y < bottom) | ((offset < 0) & (y <= top))
        crossed = above & (lo[edge] <= x) & (x < hi[edge])
        degrees = float(np.degrees(tolerance_rad))
        within = tolerance_rad if self.geodesic else degrees  # in the unit of the linear form
        close = (np.abs(offset) <= within) & (y >= bottom - degrees) & (y <= top + degrees)
        total = np.bincount(point, weights=np.where(crossed, sign[edge], 0.0), minlength=lng.size)
        near = np.zeros(lng.size, dtype=np.bool_)
        near[point[close]] = True
        return np.rint(total).astype(np.intp), near

    def close_pairs(self, lng: Floats, lat: Floats, within_rad: float) -> tuple[Ints, Ints]:
        """All pairs of a point and a great-circle edge that comes so near, or a little farther; for few points.

        `within_rad` must not exceed the tolerance.
        """
        strip = self._strips.of_longitudes(lng)
        counts = self._strips.counts[strip]
        point = np.repeat(np.arange(lng.size), counts)
        edge = self._strips.edges[ragged(self._strips.starts[strip], counts)]
        x, y, degrees = lng[point], lat[point], float(np.degrees(within_rad))
        columns = self._columns
        near = (columns[LO_NEAR][edge] <= x) & (x <= columns[HI_NEAR][edge])
        near &= (columns[SOUTH][edge] - degrees <= y) & (y <= columns[NORTH][edge] + degrees)
        point, edge = point[near], edge[near]
        offset = np.einsum("nk,nk->n", self.forms(edge), np.stack(self.lift(lng, lat), axis=1)[point])
        close = np.abs(offset) <= within_rad
        return point[close], edge[close]

    def forms(self, edge: Ints) -> Floats:
        """The linear forms of edges, a row each."""
        return self.table[edge, C0 : C2 + 1]

    @property
    def _columns(self) -> Floats:
        return self._strips.columns


@dataclass(frozen=True)
class Strips:
    """For each of many narrow strips of longitude, the edges that reach into it."""

    west: float
    per_degree: float
    starts: Ints
    counts: Ints
    edges: Ints
    columns: Floats  # the table transposed: one contiguous row a column, which gathers faster

    @classmethod
    def of(cls, table: Floats) -> Strips:
        """Index a table; the number of strips adapts so that the index stays linear in the edges."""
        columns = np.ascontiguousarray(table.T)
        if not len(table):
            empty = np.zeros(1, dtype=np.intp)
            return cls(0.0, 0.0, empty, empty, empty[:0], columns)
        # Both ends: a flat edge may lie off the map altogether.
        lo, hi = np.minimum(np.maximum(columns[[LO_NEAR, HI_NEAR]], -180.0), 180.0)
        west, east = float(lo.min()), float(hi.max())
        width = max(east - west, 1e-9)
        strips = min(max(2 * len(table), 16), _MAX_STRIPS)
        # Long edges reach into many strips: fewer strips keep the sum of all reaches within 16 an edge.
        reach = float((hi - lo).sum()) / width
        strips = max(1, min(strips, int(16 * len(table) / max(reach, 1e-9))))
        per_degree = strips / width
        spans = ((np.stack([lo, hi]) - west) * per_degree).astype(np.intp)
        first, last = np.minimum(spans, strips - 1)
        sizes = last - first + 1
        edge = np.repeat(np.arange(len(table)), sizes)
        strip = ragged(first, sizes)
        order = np.argsort(strip.astype(np.uint16), kind="stable")
        counts = np.bincount(strip, minlength=strips)
        # One empty strip more at the end, for points outside all of them.
        starts = np.concatenate(([0], np.cumsum(counts)))
        return cls(west, per_degree, starts, np.append(counts, 0), edge[order], columns)

    def of_longitudes(self, lng: Floats) -> Ints:
        """The strip of each longitude; the last, empty one for longitudes that no edge reaches."""
        last = len(self.counts) - 1
        position = (lng - self.west) * self.per_degree
        # Rounding may put a longitude at the very edge of the indexed span outside it: give it the strip beside.
        inside = (position >= -1e-6) & (position <= last + 1e-6)
        return np.where(inside, np.clip(position.astype(np.intp), 0, max(last - 1, 0)), last)


def ragged(starts: Ints, counts: Ints) -> Ints:
    """``[starts[0], starts[0]+1, ...]`` with counts[0] members, then those of the next, in one array."""
    ends = np.cumsum(counts)
    if not ends.size:
        return np.zeros(0, dtype=np.intp)
    members: Ints = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
    return members


def great_circle_edges(lng_a: Floats, lat_a: Floats, lng_b: Floats, lat_b: Floats) -> tuple[Floats, Ints]:
    """The table of great-circle edges from a to b, and for each of its rows the number of the edge it is (part) of.

    The sign of an edge counts the side to its left as one. An edge over a pole (its ends on opposite meridians) becomes
    the two meridians it runs along; one that crosses the antimeridian comes twice, a turn around the world apart.
    """
    number = np.arange(lng_a.size)
    ends = np.concatenate([lat_a, lat_b])
    span = lng_b - lng_a
    # Most shapes are nowhere near a pole or the antimeridian, and need none of this.
    if float(np.abs(ends).max(initial=0.0)) < 90.0 and float(np.abs(span).max(initial=0.0)) < 180.0:
        lo, hi = np.minimum(lng_a, lng_b), np.maximum(lng_a, lng_b)
        end, east = hi, span >= 0
    else:
        lng_a, lat_a, lng_b, lat_b, number = _over_poles(lng_a, lat_a, lng_b, lat_b, number)
        span = longitude_steps(lng_a, lng_b)
        east = span >= 0
        lo, end = np.where(east, lng_a, lng_b), np.where(east, lng_b, lng_a)
        # Not lo + |span|, which is rounded: the next edge begins at `end`, and a point on that very meridian must find
        # it in exactly one of the two.
        hi = end + 360.0 * np.rint((lo + np.abs(span) - end) / 360.0)
    a, b = unit_vectors(lng_a, lat_a), unit_vectors(lng_b, lat_b)
    # (a+b) x (b-a) = 2 a x b, and keeps its digits when a and b are close.
    normal = cross(a + b, b - a)
    length = np.sqrt((normal * normal).sum(axis=0))
    normal *= np.where(east, 1.0, -1.0) / np.where(length > 0, length, 1.0)
    south, north = np.minimum(lat_a, lat_b), np.maximum(lat_a, lat_b)
    turn_lng, turn_lat = np.full((2, lo.size), np.nan)
    # Where a circle turns, its normal lies in the plane of the meridian: on its way there and beyond, on either side.
    bend = (normal[0] * a[1] - normal[1] * a[0]) * (normal[0] * b[1] - normal[1] * b[0])
    turning = np.flatnonzero(bend < _BENT)
    if turning.size:
        turn_lng[turning], turn_lat[turning] = _turning_point(normal[:, turning], lo[turning], hi[turning])
        south, north = np.fmin(south, turn_lat), np.fmax(north, turn_lat)
    steep = (normal[2] < _STEEP) | (length == 0)
    widest = np.minimum(np.maximum(np.abs(south), np.abs(north)) + TOLERANCE_DEG, 90.0)
    reach = np.minimum(TOLERANCE_DEG / np.maximum(np.cos(np.radians(widest)), 1e-12), 360.0)
    sign = np.where(east, -1.0, 1.0)
    table = _table(lo, hi, reach, south, north, turn_lng, turn_lat, normal.T, sign, steep)
    return _around_the_world(table, end, number)


def _over_poles(
    lng_a: Floats, lat_a: Floats, lng_b: Floats, lat_b: Floats, number: Ints
) -> tuple[Floats, Floats, Floats, Floats, Ints]:
    """Edges with an end at a pole as the meridians they are; those over a pole as two meridians."""
    at_pole_a, at_pole_b = np.abs(lat_a) == 90.0, np.abs(lat_b) == 90.0
    # A pole has every longitude: take that of the other end, and the edge is the meridian it is.
    lng_a, lng_b = np.where(at_pole_a, lng_b, lng_a), np.where(at_pole_b, lng_a, lng_b)
    span = longitude_steps(lng_a, lng_b)
    over = np.flatnonzero(np.abs(span) == 180.0)
    if not over.size:
        return lng_a, lat_a, lng_b, lat_b, number
    pole = np.where(lat_a[over] + lat_b[over] >= 0, 90.0, -90.0)
    keep = np.abs(span) != 180.0
    return (
        np.concatenate([lng_a[keep], lng_a[over], lng_b[over]]),
        np.concatenate([lat_a[keep], lat_a[over], pole]),
        np.concatenate([lng_b[keep], lng_a[over], lng_b[over]]),
        np.concatenate([lat_b[keep], pole, lat_b[over]]),
        np.concatenate([number[keep], over, over]),
    )


def longitude_steps(lng_a: Floats, lng_b: Floats) -> Floats:
    """Degrees to the east from a to b the short way, exact for places that are close; 180 either way is 180."""
    step: Floats = lng_b - lng_a
    # Across the antimeridian from both sides to it: 360 less would be rounded.
    eastwards, westwards = (180.0 - lng_a) + (lng_b + 180.0), (lng_b - 180.0) - (lng_a + 180.0)
    return np.where(step > 180.0, westwards, np.where(step < -180.0, eastwards, step))


def flat_edges(lng_a: Floats, lat_a: Floats, lng_b: Floats, lat_b: Floats) -> Floats:
    """The table of straight edges in longitude and latitude; crossing any of them counts one."""
    swap = lng_a > lng_b
    lo, lat_lo = np.where(swap, lng_b, lng_a), np.where(swap, lat_b, lat_a)
    hi, lat_hi = np.where(swap, lng_a, lng_b), np.where(swap, lat_a, lat_b)
    dx, dy = hi - lo, lat_hi - lat_lo
    length = np.hypot(dx, dy)
    scale = np.where(length > 0, length, 1.0)
    a, b = -dy / scale, dx / scale
    form = np.stack([a, b, -(a * lo + b * lat_lo)], axis=1)
    nothing = np.full(lo.size, np.nan)
    reach = np.full(lo.size, TOLERANCE_DEG)
    south, north = np.minimum(lat_a, lat_b), np.maximum(lat_a, lat_b)
    steep = b < _STEEP
    return _table(lo, hi, reach, south, north, nothing, nothing, form, np.ones(lo.size), steep)


def _table(
    lo: Floats,
    hi: Floats,
    reach: Floats,
    south: Floats,
    north: Floats,
    turn_lng: Floats,
    turn_lat: Floats,
    form: Floats,
    sign: Floats,
    steep: Bools,
) -> Floats:
    table = np.empty((lo.size, _COLUMNS))
    table[:, LO], table[:, HI] = lo, hi
    table[:, LO_NEAR], table[:, HI_NEAR] = lo - reach, hi + reach
    table[:, SOUTH], table[:, NORTH] = south, north
    table[:, TURN_LNG], table[:, TURN_LAT] = turn_lng, turn_lat
    table[:, C0 : C2 + 1] = form
    table[:, SIGN], table[:, STEEP] = sign, steep
    return table


def _turning_point(normal: Floats, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Where, strictly between its ends, a great circle turns from rising to falling (or back); NaN if nowhere."""
    horizontal = np.hypot(normal[0], normal[1])
    top = np.degrees(np.arctan2(horizontal, normal[2]))
    # Northernmost opposite to the normal's own meridian, southernmost on it. They are 180 degrees apart, so an edge
    # holds at most one of them.
    lng_south = np.degrees(np.arctan2(normal[1], normal[0]))
    turn_lng = np.full(lo.size, np.nan)
    turn_lat = np.full(lo.size, np.nan)
    for lng, lat in ((lng_south, -top), (lng_south + 180.0, top)):
        shifted = lo + (lng - lo) % 360.0
        inside = shifted < hi
        turn_lng = np.where(inside, shifted, turn_lng)
        turn_lat = np.where(inside, lat, turn_lat)
    return turn_lng, turn_lat


def _around_the_world(table: Floats, end: Floats, number: Ints) -> tuple[Floats, Ints]:
    """Edges repeated a turn to the east or west where they, or their tolerance, cross the antimeridian.

    `end` is the longitude of each edge's eastern end as it was given.
    """
    if float(table[:, LO_NEAR].min()) > -180.0 and float(table[:, HI_NEAR].max()) < 180.0:
        return table, number
    tables, numbers = [], []
    for turn in (0.0, -360.0, 360.0):
        shifted = table.copy()
        shifted[:, [LO, HI, LO_NEAR, HI_NEAR, TURN_LNG]] += turn
        if turn < 0:
            # Back to the very number, which adding and taking away 360 has rounded.
            shifted[:, HI] = np.where(table[:, HI] > end, end, shifted[:, HI])
        visible = (shifted[:, LO_NEAR] <= 180.0) & (shifted[:, HI_NEAR] >= -180.0)
        tables.append(shifted[visible])
        numbers.append(number[visible])
    return np.concatenate(tables), np.concatenate(numbers)


def unit_vectors(lng: Floats, lat: Floats) -> Floats:
    """Places as vectors: a row each for x, y and z."""
    x, y = np.radians(lng), np.radians(lat)
    vectors = np.empty((3, lng.size))
    level = np.cos(y)
    np.multiply(level, np.cos(x), out=vectors[0])
    np.multiply(level, np.sin(x), out=vectors[1])
    np.sin(y, out=vectors[2])
    return vectors


def cross(a: Floats, b: Floats) -> Floats:
    """Cross products of vectors in three rows; numpy's own takes longer to begin than this to end."""
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
