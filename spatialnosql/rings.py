"""Rings of GeoJSON polygons on the sphere: whether they are valid, and which side of them is inside.

MongoDB's rules: a ring is simple (no vertex twice, no crossing edges), its inside is the smaller side whatever its
direction, and holes lie inside their shell. With the strict-winding CRS the inside is what lies to the left.

A ring that MongoDB certainly rejects is a GeometryError. Where rounding might decide, or a rare form could be read in
two ways, it is an UnsupportedShape: then the query goes to the server as it is, and the server decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import shapely
from numpy.typing import NDArray

from spatialnosql.edges import (
    HI,
    LO,
    NORTH,
    SIGN,
    SOUTH,
    STEEP,
    Edges,
    Floats,
    Ints,
    cross,
    great_circle_edges,
    longitude_steps,
    ragged,
    unit_vectors,
)
from spatialnosql.errors import GeometryError, UnsupportedShape
from spatialnosql.region import EdgeRegion, MirroredRegion, Region

Bools: TypeAlias = NDArray[np.bool_]

_TOUCHING = 1e-14  # sines nearer to zero than this are left to the server's exact arithmetic
_HEMISPHERE_DOUBT = 1e-9  # steradians around a hemisphere where "the smaller side" is left to the server
_MOST_NEIGHBOURS = 64  # pairs of edges for each edge that are compared without an index
_STEP_DEG = 2e-6  # a step off an edge to its left side; more than the tolerance, less than any sensible shape


@dataclass(frozen=True)
class Rings:
    """Rings without their closing vertex, end to end: ring r is ``[starts[r], starts[r] + counts[r])``."""

    lng: Floats
    lat: Floats
    starts: Ints
    counts: Ints
    names: tuple[str, ...]  # for messages: "ring 0", "polygon 3 ring 1"
    shell: Ints  # for each ring, the ring that is its shell; a shell's own number for itself
    north: float = 1.0  # -1 in the mirror image, so that messages name places as they were given

    @cached_property
    def ring(self) -> Ints:
        """The ring of each vertex."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def next(self) -> Ints:
        """The vertex after each vertex."""
        following = np.arange(1, len(self.lng) + 1)
        following[self.starts + self.counts - 1] = self.starts
        return following

    @cached_property
    def is_hole(self) -> Bools:
        """Which rings are holes."""
        holes: Bools = self.shell != np.arange(len(self.shell))
        return holes

    def mirrored(self) -> Rings:
        """The mirror image in the equator, with the same sides left and right."""
        backwards = np.repeat(2 * self.starts + self.counts - 1, self.counts) - np.arange(len(self.lng))
        lng, lat = self.lng[backwards], -self.lat[backwards]
        return Rings(lng, lat, self.starts, self.counts, self.names, self.shell, -self.north)


def rings_to_region(rings: Rings, *, strict_winding: bool = False) -> Region:
    """The region of polygons with great-circle edges; raises as the module says."""
    north, south = _through_pole(rings, 90.0).any(), _through_pole(rings, -90.0).any()
    if north and south:
        raise UnsupportedShape("the border of the shape runs through both poles")
    if north:
        # Winding numbers are counted from the north pole, so no border may run through it.
        return MirroredRegion(_region(rings.mirrored(), strict_winding))
    return _region(rings, strict_winding)


def _region(rings: Rings, strict_winding: bool) -> Region:
    follow = rings.next
    table, edge = great_circle_edges(rings.lng, rings.lat, rings.lng[follow], rings.lat[follow])
    vectors = unit_vectors(rings.lng, rings.lat)
    _check_vertices(rings, vectors)
    _check_crossings(rings, vectors, table, edge)
    left_area, pole_left = _left_sides(rings)
    if not strict_winding and bool((np.abs(left_area - 2 * np.pi) < _HEMISPHERE_DOUBT).any()):
        raise UnsupportedShape("a ring is a hemisphere: which side is the smaller one is the server's to say")
    flipped = (left_area > 2 * np.pi) & (not strict_winding)
    pole_inside = np.where(flipped, 1 - pole_left, pole_left)
    side = np.where(flipped, -1.0, 1.0)
    _check_holes(rings, side, pole_inside)
    counts = np.where(rings.is_hole, -1, 1)
    table[:, SIGN] *= (side * counts)[rings.ring[edge]]
    return EdgeRegion(Edges(table, geodesic=True), "positive", int((pole_inside * counts).sum()))


def _through_pole(rings: Rings, pole: float) -> Bools:
    """Which vertices are a pole, or begin an edge that runs over it."""
    through: Bools = rings.lat == pole
    if np.ptp(rings.lng) < 180.0:
        return through  # no two of them lie on opposite meridians
    follow = rings.next
    opposite = np.abs(rings.lng - rings.lng[follow]) == 180.0
    over = opposite & ((rings.lat + rings.lat[follow]) * pole > 0) & (np.abs(rings.lat[follow]) < 90.0)
    through |= over
    return through


def _left_sides(rings: Rings) -> tuple[Floats, Ints]:
    """For each ring: the area to its left in steradians, and whether (1 or 0) the north pole lies there.

    The area is the sum of the signed triangles (pole, a, b): with t = tan(colatitude / 2), half a triangle's area is
    ``atan2(ta*tb*sin(d), 1 + ta*tb*cos(d))``, d the step in longitude.
    """
    touching = np.zeros(len(rings.counts), dtype=np.bool_)
    touching[rings.ring[_through_pole(rings, -90.0)]] = True
    follow = rings.next
    # Exact, and from the nearer pole (surely from one that the ring runs through, where t is 0): the sign of the area
    # of a few centimetres decides between them and all the rest of the world.
    step = np.radians(longitude_steps(rings.lng, rings.lng[follow]))
    southern = np.add.reduceat(rings.lat, rings.starts) < 0
    origin = np.where(touching | southern, -1.0, 1.0)[rings.ring]
    t = np.tan(np.radians(90.0 - origin * rings.lat) / 2)
    product = t * t[follow]
    half = np.arctan2(product * np.sin(step), 1 + product * np.cos(step))
    area = 2 * np.add.reduceat(origin * half, rings.starts)
    turns = np.rint(np.add.reduceat(step, rings.starts) / (2 * np.pi)).astype(np.intp)
    # Around the pole eastwards: it is left. Around neither pole: both are left if the area comes out negative.
    pole_left = np.where(turns == 0, area < 0, turns > 0).astype(np.intp)
    for ring in np.flatnonzero(touching):
        pole_left[ring] = _north_pole_left(rings, int(ring))
    return np.mod(area, 4 * np.pi), pole_left


def _north_pole_left(rings: Rings, ring: int) -> int:
    """Whether the pole is left of a ring that runs through the other: step off an edge to the left and count."""
    part = slice(int(rings.starts[ring]), int(rings.starts[ring] + rings.counts[ring]))
    lng, lat = rings.lng[part], rings.lat[part]
    table, _ = great_circle_edges(lng, lat, np.roll(lng, -1), np.roll(lat, -1))
    edges = Edges(table, geodesic=True)
    usable = np.flatnonzero((table[:, STEEP] == 0) & (table[:, LO] >= -180.0) & (table[:, HI] <= 180.0))
    if not usable.size:
        raise UnsupportedShape("all edges of a ring run along meridians through a pole")
    row = table[[usable[np.argmax(table[usable, HI] - table[usable, LO])]]]
    middle = (row[:, LO] + row[:, HI]) / 2
    left = edges.latitude_at(row, middle) - np.sign(row[:, SIGN]) * _STEP_DEG
    total, near = edges.crossings(middle, left)
    if near.any():
        raise UnsupportedShape("a ring through a pole is too narrow to tell its sides apart")
    return int(1 - total[0])


# -- validity ---------------------------------------------------------------------------------------------


def _check_crossings(rings: Rings, vectors: Floats, table: Floats, edge: Ints) -> None:
    """No edges of one polygon cross or touch, but for neighbours in a ring; an edge has its first vertex's number."""
    follow = rings.next
    one, other = _boxes_that_meet(table)
    first, second = np.minimum(edge[one], edge[other]), np.maximum(edge[one], edge[other])
    polygon = rings.shell[rings.ring]
    pairs = (first < second) & (polygon[first] == polygon[second])
    pairs &= (follow[first] != second) & (follow[second] != first)
    first, second = first[pairs], second[pairs]
    if not first.size:
        return
    # In a row each for x, y and z: a and b, c and d are the ends of the edges.
    a, b, c, d = (vectors[:, at] for at in (first, follow[first], second, follow[second]))
    ab, cd = _normals(a, b), _normals(c, d)
    sc, sd, sa, sb = _dot(ab, c), _dot(ab, d), _dot(cd, a), _dot(cd, b)
    # Both pairs of ends on different sides, and the crossing on the same half of the world for both edges.
    meeting = cross(ab, cd)
    same_half = _dot(meeting, a + b) * _dot(meeting, c + d) > 0
    crossing = (sc * sd < 0) & (sa * sb < 0) & same_half
    on_ab = np.minimum(np.abs(sc), np.abs(sd)) < _TOUCHING
    on_cd = np.minimum(np.abs(sa), np.abs(sb)) < _TOUCHING
    doubtful = (on_ab & (on_cd | (sa * sb <= 0))) | (on_cd & (sc * sd <= 0))
    certain = np.flatnonzero(crossing & ~doubtful)
    if certain.size:
        i, j = int(first[certain[0]]), int(second[certain[0]])
        raise GeometryError(
            f"edges of {rings.names[rings.ring[i]]} cross: from {_place(rings, i)} to "
            f"{_place(rings, int(follow[i]))} and from {_place(rings, j)} to {_place(rings, int(follow[j]))}"
        )
    if doubtful.any():
        i = int(first[np.flatnonzero(doubtful)[0]])
        raise UnsupportedShape(
            f"{rings.names[rings.ring[i]]} touches itself or another ring near {_place(rings, i)}"
        )


def _boxes_that_meet(table: Floats) -> tuple[Ints, Ints]:
    """All pairs of edges whose boxes meet, each once."""
    south, north = table[:, SOUTH] - 1e-12, table[:, NORTH] + 1e-12
    order = np.argsort(table[:, LO], kind="stable")
    lo = table[order, LO]
    counts = np.searchsorted(lo, table[order, HI], side="right") - np.arange(1, len(lo) + 1)
    if int(counts.sum()) <= _MOST_NEIGHBOURS * len(lo):
        # Short edges, as in a coast: few begin before another ends.
        one, other = np.repeat(order, counts), order[ragged(np.arange(1, len(lo) + 1), counts)]
        meet = (south[one] <= north[other]) & (north[one] >= south[other])
        return one[meet], other[meet]
    # The diagonal of an edge's box has the same box, which is all that the tree looks at.
    diagonals = np.empty((len(table), 2, 2))
    diagonals[:, 0, 0], diagonals[:, 1, 0] = table[:, LO], table[:, HI]
    diagonals[:, 0, 1], diagonals[:, 1, 1] = south, north
    lines = shapely.linestrings(diagonals)
    one, other = shapely.STRtree(lines).query(lines)
    return one[one < other], other[one < other]


def _check_vertices(rings: Rings, vectors: Floats) -> None:
    """No place twice in one ring; no edge between opposite points of the Earth."""
    lng, lat = rings.lng, rings.lat
    if float(lng.max()) == 180.0 or float(np.abs(lat).max()) == 90.0:
        lng = np.where(np.abs(lat) == 90.0, 0.0, np.where(lng == 180.0, -180.0, lng)) + 0.0
    order = np.argsort(lng)
    ordered = lng[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():  # most rings have no longitude twice, and need not be sorted by three keys
        order = np.lexsort((lng, lat, rings.ring))
        same = (np.diff(lng[order]) == 0) & (np.diff(lat[order]) == 0) & (np.diff(rings.ring[order]) == 0)
    if same.any():
        vertex, other = (int(v) for v in order[np.flatnonzero(same)[0] + np.arange(2)])
        if rings.lng[vertex] != rings.lng[other]:
            # MongoDB's vectors of such places differ in the last digit.
            raise UnsupportedShape(
                f"{rings.names[rings.ring[vertex]]} comes twice to one place under different longitudes, "
                f"{_place(rings, vertex)} and {_place(rings, other)}"
            )
        raise GeometryError(f"{rings.names[rings.ring[vertex]]} comes twice to {_place(rings, vertex)}")
    step = vectors[:, rings.next] - vectors
    squared = (step * step).sum(axis=0)
    if float(squared.max()) > 4.0 - 2e-12:
        vertex = int(np.argmax(squared))
        raise UnsupportedShape(
            f"the edge from {_place(rings, vertex)} leads to the opposite side of the Earth"
        )
    if float(squared.min()) < 1e-28:
        raise UnsupportedShape("two vertices in a row are the same but for rounding")


def _check_holes(rings: Rings, side: Floats, pole_inside: Ints) -> None:
    """Every hole lies in its shell and in no other hole of it."""
    holes = np.flatnonzero(rings.is_hole)
    if not holes.size:
        return
    follow = rings.next
    for shell in np.unique(rings.shell[holes]):
        members = np.flatnonzero(rings.shell == shell)
        points = rings.starts[members]
        for ring in members:
            part = np.arange(rings.starts[ring], rings.starts[ring] + rings.counts[ring])
            ahead = follow[part]
            table, _ = great_circle_edges(
                rings.lng[part], rings.lat[part], rings.lng[ahead], rings.lat[ahead]
            )
            table[:, SIGN] *= side[ring]
            others = members[members != ring]
            where = points[members != ring]
            total, _ = Edges(table, geodesic=True).crossings(rings.lng[where], rings.lat[where])
            inside = total + pole_inside[ring] > 0
            if ring == shell and not inside.all():
                name = rings.names[int(others[np.flatnonzero(~inside)[0]])]
                raise GeometryError(f"{name} is a hole but does not lie inside its shell")
            if ring != shell and inside[others != shell].any():
                raise UnsupportedShape("a hole lies inside another hole")


def _normals(a: Floats, b: Floats) -> Floats:
    normal = cross(a + b, b - a)
    length = np.sqrt(_dot(normal, normal))
    return normal / np.where(length > 0, length, 1.0)


def _dot(a: Floats, b: Floats) -> Floats:
    product: Floats = (a * b).sum(axis=0)
    return product


def _place(rings: Rings, vertex: int) -> str:
    return f"[{rings.lng[vertex]:.10g}, {rings.north * rings.lat[vertex]:.10g}]"
