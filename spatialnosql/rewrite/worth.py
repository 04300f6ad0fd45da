"""Is a shape worth reading? Reading and covering one takes the client milliseconds: for a few points, ask at once.

Of a shape that comes again the plan is remembered, so then it is read whatever it holds.

A guess from the bounding box alone, before the shape itself is looked at; so a shape with thousands of vertices that
holds next to nothing costs no more than its corners.
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
SURELY_COUNT, SURELY_FIND = 3.5, 5.0
"""How many times what it takes; of a find the documents come besides, which nothing makes cheaper."""
_CELLS = 256  # a box of so many is at most a quarter too large
_WITHIN = ("$geoWithin", "$within", "$geoIntersects")


def why_not_worth(
    filter: Mapping[str, Any], info: CollectionInfo, limit: int = 0, surely: float = SURELY_COUNT
) -> str | None:
    """Why a filter with one GeoJSON area at its top is not worth planning; None if it may be.

    `limit` is how many documents are wanted at most; 0 = all.
    """
    found = _area(filter.get(info.location))
    if found is None or info.histogram is None:
        return None
    box, vertices = found
    points = _points_in(box, info.histogram)
    shards, costs = len({part.shard for part in info.shards}) or 1, info.costs
    if limit:
        # Each shard finds as many as are wanted.
        points = min(points, float(limit * shards))
    original = points * SPILL * (costs.key_ms + costs.fetch_ms + costs.test_ms + vertices * costs.vertex_ms)
    # Every shard reads and covers the shape too.
    original += shards * (costs.shape_ms + vertices * costs.shape_vertex_ms)
    reading = costs.read_ms + vertices * costs.read_vertex_ms
    if original >= surely * reading:
        return None
    return f"about {points:.0f} points at most: sooner asked than covered, unless it comes again"


def _area(condition: Any) -> tuple[Box, int] | None:
    """The bounding box and the number of vertices of a polygon or multipolygon; None if it is anything else."""
    if not isinstance(condition, Mapping) or len(condition) != 1 or next(iter(condition)) not in _WITHIN:
        return None
    operand = next(iter(condition.values()))
    geometry = operand.get("$geometry") if isinstance(operand, Mapping) else None
    if not isinstance(geometry, Mapping) or "crs" in geometry:
        return None
    kind: Any = geometry.get("type")
    coordinates: Any = geometry.get("coordinates")
    try:
        polygons: Any = {"Polygon": [coordinates], "MultiPolygon": coordinates}[kind]
        rings = [np.asarray(polygon[0], dtype=np.float64)[:, :2] for polygon in polygons]
        vertices = sum([len(ring) for polygon in polygons for ring in polygon])
        corners = np.concatenate([np.stack([ring.min(axis=0), ring.max(axis=0)]) for ring in rings])
        west, south, east, north = (float(v) for v in (*corners.min(axis=0), *corners.max(axis=0)))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None  # whoever reads it next knows what is wrong with it
    if not (west >= -180 and east <= 180 and east - west < 90 and south > -80 and north < 80):
        return None  # around the antimeridian or a pole a box of the corners says nothing
    return (west, south, east, north), vertices


def _points_in(box: Box, histogram: Histogram) -> float:
    cells = rough_ranges([box], _CELLS)
    return float(histogram.points_in(cells.lo, cells.hi).sum())
