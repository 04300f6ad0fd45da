"""Points within centimetres of a border: what MongoDB says of them, computed as it does.

A point lies in a polygon of great circles for MongoDB if the polygon holds it or meets the S2 leaf cell around it,
which is about a centimetre wide. So the corners of that cell tell: if one of them lies inside, the cell meets the
polygon; if none does, nor the point, and no edge runs between them, it does not. What is left undecided, where rounding
could matter or a vertex reaches into the cell from the side, only the server may say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import CLOSE_RAD, Floats
from spatialnosql.region import IN, OUT, UNSURE, EdgeRegion, Status

ROUNDING_RAD = 2e-14
"""Nearer than this (0.1 micrometres) to an edge, rounding could matter: a hundred times what it is."""

_CELLS = 2.0**30  # leaf cells along each side of a face of the cube
_ROUNDING_CELLS = 1e-4  # of a cell: nearer to its side, rounding could tell which cell it is
# For each face of the cube the axes of its normal, of u and of v, and their signs.
_AXES = np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0], [2, 1, 0]])
_SIGNS = np.array(
    [[1, 1, 1], [1, -1, 1], [1, -1, -1], [-1, -1, -1], [-1, -1, 1], [-1, 1, 1]], dtype=np.float64
)


def settle_leaf_cells(region: EdgeRegion, lng: Floats, lat: Floats) -> Status:
    """The status of points by their leaf cells; IN and OUT are certain."""
    status = np.full(lng.size, UNSURE, dtype=np.int8)
    if region.rule != "positive" or not region.edges.geodesic or not lng.size:
        return status
    corners, certain = leaf_corners(lng, lat)
    corner_lng = np.degrees(np.arctan2(corners[..., 1], corners[..., 0]))
    corner_lat = np.degrees(np.arctan2(corners[..., 2], np.hypot(corners[..., 0], corners[..., 1])))
    of_corners = region.settle(corner_lng.ravel(), corner_lat.ravel(), ROUNDING_RAD).reshape(-1, 4)
    of_points = region.settle(lng, lat, ROUNDING_RAD)
    outside = (of_corners == OUT).all(axis=1) & (of_points == OUT)
    outside &= ~_crossed(region, lng, lat, corners)
    status[certain & outside] = OUT
    status[(certain & (of_corners == IN).any(axis=1)) | (of_points == IN)] = IN
    return status


def leaf_corners(lng: Floats, lat: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The corners of the leaf cells of points as unit vectors, (n, 4, 3); and whether each is surely the right cell."""
    x, y = np.radians(lng), np.radians(lat)
    points = np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=1)
    rows = np.arange(lng.size)
    axis = np.argmax(np.abs(points), axis=1)
    face = np.where(points[rows, axis] < 0, axis + 3, axis)
    axes, signs = _AXES[face], _SIGNS[face]
    normal, u, v = (points[rows, axes[:, part]] * signs[:, part] for part in range(3))
    sides = np.stack([u / normal, v / normal], axis=1)
    at = np.where(sides >= 0, 0.5 * np.sqrt(1 + 3 * np.abs(sides)), 1 - 0.5 * np.sqrt(1 + 3 * np.abs(sides)))
    place = at * _CELLS
    first = np.clip(np.floor(place), 0, _CELLS - 1)
    inside = place - first
    ordered = np.sort(np.abs(points), axis=1)
    certain = ((inside > _ROUNDING_CELLS) & (inside < 1 - _ROUNDING_CELLS)).all(axis=1)
    certain &= ordered[:, 2] - ordered[:, 1] > 1e-12  # not at an edge of the cube
    corners = np.empty((lng.size, 4, 3))
    for number, (right, up) in enumerate(((0, 0), (1, 0), (1, 1), (0, 1))):
        s = (first + np.array([right, up])) / _CELLS
        uv = np.where(s >= 0.5, (4 * s * s - 1) / 3, (1 - 4 * (1 - s) * (1 - s)) / 3)
        vector = np.stack([np.ones(lng.size), uv[:, 0], uv[:, 1]], axis=1) * signs
        vector /= np.linalg.norm(vector, axis=1)[:, None]
        np.put_along_axis(corners[:, number], axes, vector, axis=1)
    return corners, certain


def _crossed(region: EdgeRegion, lng: Floats, lat: Floats, corners: Floats) -> NDArray[np.bool_]:
    """Whether the line of a near edge may pass between the corners of a leaf cell."""
    point, edge = region.edges.close_pairs(lng, lat, 2 * CLOSE_RAD)
    offsets = np.einsum("nk,nck->nc", region.edges.forms(edge), corners[point])
    apart = (offsets > ROUNDING_RAD).all(axis=1) | (offsets < -ROUNDING_RAD).all(axis=1)
    crossed = np.zeros(lng.size, dtype=np.bool_)
    crossed[point[~apart]] = True
    return crossed
