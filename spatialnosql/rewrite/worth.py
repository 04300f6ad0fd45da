"""Is a shape worth reading? Reading and covering one takes the client milliseconds: for a few points, ask at once.

Of a shape that comes again the plan is remembered, so then it is read whatever it holds.

A guess from the number of vertices and the bounding box alone, before the shape itself is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialnosql.cover import rough_ranges
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.region import Box
from spatialnosql.rewrite.cost import SPILL

# The shards work at the same time, and the client before them; so a shape must save more than it takes to read.
SURELY_COUNT, SURELY_FIND = 3.5, 14.0
"""How many times what it takes. Of a find the documents come besides, which nothing makes cheaper, and every false one
among them has to be decoded: measured, finds of less than some four hundred points are sooner asked as they are."""
_CELLS = 64  # a box of so many is at most by half too large
_WITHIN = ("$geoWithin", "$within", "$geoIntersects")


def why_not_worth(
    filter: Mapping[str, Any], info: CollectionInfo, limit: int = 0, surely: float = SURELY_COUNT
) -> str | None:
    """Why a filter with one GeoJSON area at its top is not worth planning; None if it may be.

    `limit` is how many documents are wanted at most; 0 = all.
    """
    polygons = _polygons(filter.get(info.location))
    if polygons is None or info.histogram is None:
        return None
    try:
        vertices = sum([len(ring) for polygon in polygons for ring in polygon])
    except TypeError:
        return None  # whoever reads it next knows what is wrong with it
    shards, costs = len({part.shard for part in info.shards}) or 1, info.costs
    # Every shard reads and covers the shape too.
    original = shards * (costs.shape_ms + vertices * costs.shape_vertex_ms)
    enough = surely * (costs.read_ms + vertices * costs.read_vertex_ms)
    box = _box(polygons) if original < enough else None
    if box is None:
        return None
    points = _points_in(box, info.histogram)
    if limit:
        # Each shard finds as many as are wanted.
        points = min(points, float(limit * shards))
    original += points * SPILL * (costs.key_ms + costs.fetch_ms + costs.test_ms + vertices * costs.vertex_ms)
    if original >= enough:
        return None
    return f"about {points:.0f} points at most: sooner asked than covered, unless it comes again"


def _polygons(condition: Any) -> Any:
    """What should be the polygons of a polygon or multipolygon; None if the condition is anything else."""
    if not isinstance(condition, Mapping) or len(condition) != 1 or next(iter(condition)) not in _WITHIN:
        return None
    operand = next(iter(condition.values()))
    geometry = operand.get("$geometry") if isinstance(operand, Mapping) else None
    if not isinstance(geometry, Mapping) or "crs" in geometry:
        return None
    coordinates = geometry.get("coordinates")
    return {"Polygon": [coordinates], "MultiPolygon": coordinates}.get(str(geometry.get("type")))


def _box(polygons: Any) -> Box | None:
    """The bounding box of polygons; None where a box of the corners says nothing."""
    try:
        rings = [np.asarray(polygon[0], dtype=np.float64)[:, :2] for polygon in polygons]
        corners = np.concatenate([np.stack([ring.min(axis=0), ring.max(axis=0)]) for ring in rings])
        west, south, east, north = (float(v) for v in (*corners.min(axis=0), *corners.max(axis=0)))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None
    # Around the antimeridian or a pole.
    sensible = west >= -180 and east <= 180 and east - west < 90 and south > -80 and north < 80
    return (west, south, east, north) if sensible else None


def _points_in(box: Box, histogram: Histogram) -> float:
    cells = rough_ranges([box], _CELLS)
    return float(histogram.points_in(cells.lo, cells.hi).sum())
