"""Who is inside a shape, by trying every point against every edge: slow, simple, independent.

`BruteForce` computes with MongoDB's semantics (great-circle edges for GeoJSON, flat legacy shapes, a
sphere for $centerSphere) and admits when a point is too near the border to say.
`ServerOracle` asks MongoDB itself, without any index. Where both are sure they must agree.

On the sphere MongoDB asks whether the shape may touch the S2 leaf cell of a point, not whether it holds
the point: points up to a centimetre outside a border count as inside, in holes as well.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spatialnosql.testing.points import points_to_documents
from spatialnosql.testing.shapes import Ring, Shape
from spatialnosql.testing.sphere import Floats, to_vectors

IN, OUT, UNSURE = 1, 0, -1
Verdicts = NDArray[np.int8]
FLAT_TOLERANCE_DEG = 1e-9
SPHERE_TOLERANCE_DEG = 1.4e-7  # the longest diagonal of an S2 leaf cell is 1.302e-7 degrees
_CHUNK = 500_000  # points times edges at a time: tens of megabytes


class Oracle(Protocol):
    """Anything that can say which points are in a shape."""

    def decide(self, shape: Shape, lng: Floats, lat: Floats) -> Verdicts:
        """`IN`, `OUT` or `UNSURE` for each point."""


class BruteForce:
    """Decides in the client; unsure nearer to a border than the tolerance (see the constants above)."""

    def __init__(
        self, *, flat_deg: float = FLAT_TOLERANCE_DEG, sphere_deg: float = SPHERE_TOLERANCE_DEG
    ) -> None:
        self.flat_deg, self.sphere_deg = flat_deg, sphere_deg

    def decide(self, shape: Shape, lng: Floats, lat: Floats) -> Verdicts:
        """`IN`, `OUT` or `UNSURE` for each point."""
        if shape.kind == "center":
            (east, north), radius = shape.value
            return _by_margin(radius - np.hypot(lng - east, lat - north), self.flat_deg)
        if shape.kind == "center_sphere":
            (east, north), radius = shape.value
            chord = np.linalg.norm(to_vectors(lng, lat) - to_vectors(east, north), axis=-1)
            margin = np.degrees(radius - 2 * np.arcsin(np.minimum(chord / 2, 1)))
            return _by_margin(margin, self.sphere_deg)
        verdicts = np.full(lng.size, OUT, np.int8)
        for polygon in shape.polygons():
            outer, *holes = (self._in_ring(ring, lng, lat, flat=shape.flat) for ring in polygon)
            unsure = outer == UNSURE
            inside = outer == IN
            for hole in holes:
                unsure |= hole == UNSURE
                inside &= hole == OUT
            verdicts[inside] = IN
            verdicts[unsure] = UNSURE
        if shape.kind == "big_polygon":
            verdicts[verdicts != UNSURE] ^= 1
        return verdicts

    def _in_ring(self, ring: Ring, lng: Floats, lat: Floats, *, flat: bool) -> Verdicts:
        corners = np.array(ring)
        decide = self._in_flat_ring if flat else self._in_spherical_ring
        step = max(1, _CHUNK // len(ring))
        parts = [decide(corners, lng[i : i + step], lat[i : i + step]) for i in range(0, lng.size, step)]
        return np.concatenate(parts) if parts else np.empty(0, np.int8)

    def _in_flat_ring(self, corners: Floats, lng: Floats, lat: Floats) -> Verdicts:
        """Crossings of a ray to the east, and distance to the nearest edge."""
        (ax, ay), (bx, by) = corners[:-1].T, corners[1:].T
        px, py = lng[:, None], lat[:, None]
        spans = (ay > py) != (by > py)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing_x = ax + (py - ay) * (bx - ax) / (by - ay)
        inside = np.count_nonzero(spans & (px < crossing_x), axis=1) % 2 == 1
        length2 = np.maximum((bx - ax) ** 2 + (by - ay) ** 2, 1e-300)
        along = np.clip(((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length2, 0, 1)
        distance = np.hypot(px - ax - along * (bx - ax), py - ay - along * (by - ay)).min(axis=1)
        return _by_margin(np.where(inside, distance, -distance), self.flat_deg)

    def _in_spherical_ring(self, corners: Floats, lng: Floats, lat: Floats) -> Verdicts:
        """How often the ring winds around each point, and distance to the nearest edge.

        Seen from a point p, the edge from a to b turns by atan2(p . (a x b), a . b - (a . p)(b . p)). The
        turns add up to one full turn, in the ring's own direction, for points inside. Right for rings
        that reach no farther than 45 degrees from some middle.
        """
        vertices = to_vectors(*corners.T)
        a, b = vertices[:-1], vertices[1:]
        p = to_vectors(lng, lat)[:, None, :]
        normal = np.cross(a, b)
        length = np.linalg.norm(normal, axis=-1, keepdims=True)
        # From differences: close to an edge, p . (a x b) would be all rounding.
        sine = np.einsum("nmk,nmk->nm", np.cross(a - p, b - p), np.broadcast_to(p, (lng.size, *a.shape)))
        cosine = np.einsum("mk,mk->m", a, b) - (p @ a.T)[:, 0, :] * (p @ b.T)[:, 0, :]
        turns = np.arctan2(sine, cosine).sum(axis=1)
        # The vector area of the smaller side points to it: that tells the ring's direction.
        arcs = np.arctan2(length[:, 0], np.einsum("mk,mk->m", a, b))
        area = (normal / np.maximum(length, 1e-300) * arcs[:, None]).sum(axis=0)
        inside = turns * np.sign(area @ a.mean(axis=0)) > np.pi
        distance = _distance_to_arcs(p, a, b, normal / np.maximum(length, 1e-300))
        return _by_margin(np.degrees(np.where(inside, distance, -distance)), self.sphere_deg)


def _by_margin(margin_deg: Floats, tolerance_deg: float) -> Verdicts:
    """Verdicts from the distance to the border, positive inside."""
    verdicts = np.where(margin_deg > 0, IN, OUT).astype(np.int8)
    verdicts[np.abs(margin_deg) <= tolerance_deg] = UNSURE
    return verdicts


def _distance_to_arcs(p: Floats, a: Floats, b: Floats, normal: Floats) -> Floats:
    """Radians from each point to the nearest of the arcs (exact when small, which is when it matters)."""
    across = np.abs(np.einsum("nmk,mk->nm", p - a, normal))
    beside = (np.einsum("nmk,mk->nm", p, np.cross(normal, a)) >= 0) & (
        np.einsum("nmk,mk->nm", p, np.cross(b, normal)) >= 0
    )
    to_ends = np.minimum(np.linalg.norm(p - a, axis=-1), np.linalg.norm(p - b, axis=-1))
    distance: Floats = np.where(beside, across, to_ends).min(axis=1)
    return distance


class ServerOracle:
    """Asks MongoDB, from a scratch collection without indexes; it is always sure."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection

    def decide(self, shape: Shape, lng: Floats, lat: Floats) -> Verdicts:
        """`IN` or `OUT` for each point. Empties the collection."""
        self.collection.delete_many({})
        verdicts = np.full(lng.size, OUT, np.int8)
        if lng.size:
            self.collection.insert_many(points_to_documents(lng, lat), ordered=False)
            verdicts[[d["_id"] for d in self.collection.find(shape.query(), {"_id": 1})]] = IN
        return verdicts


def disagreements(first: Verdicts, second: Verdicts) -> NDArray[np.int64]:
    """The numbers of the points about which both are sure and do not agree."""
    return np.flatnonzero((first != second) & (first != UNSURE) & (second != UNSURE))
