"""The paper's own rewrite, to the letter: ``$in`` of the geohashes of one precision over the bounding rectangle.

Al Jawarneh et al., "Efficient QoS-Aware Spatial Join Processing for Scalable NoSQL Storage Frameworks", IEEE TNSM
18(2), 2021, algorithms 1 and 2: the geohash of a chosen precision is a field and the shard key, the compound index
``{geohash, 2dsphere}`` is made, and a query gets ``geohash: {$in: [...]}`` beside its own condition. The lists of
polygons are computed beforehand, as theirs were; those of circles when they are asked for.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import GEOSPHERE
from pymongo.collection import Collection

from benchmarks.data import Points
from benchmarks.deployment import Bench
from spatialnosql.geohash import cells_to_ranges, cells_to_strings, indices_to_cells, points_to_strings
from spatialnosql.loading import insert
from spatialnosql.placement import even_cuts

PRECISIONS = (25, 30, 35)  # bits; five a character
DEFAULT_PRECISION = 30
VARIANTS = {"paper" if bits == DEFAULT_PRECISION else f"paper_{bits}": bits for bits in PRECISIONS}
"""The paper's rewrite by its precision, as benchmarks name it."""
EARTH_RADIUS_M = 6_378_100.0

Rectangle = tuple[float, float, float, float]
"""West, south, east, north, in degrees."""


def paper_collection(
    bench: Bench, name: str, points: Points, bits: int = DEFAULT_PRECISION
) -> Collection[dict[str, Any]]:
    """Sharded on the geohash of one precision, with the compound index and no other but the shard key's."""
    hashes = points_to_strings(points.lng, points.lat, bits // 5)
    collection = bench.database[name]
    if bench.kind.is_sharded:
        admin = bench.database.client.admin
        admin.command("shardCollection", collection.full_name, key={"gh": 1})
        cuts = [{"gh": cut} for cut in even_cuts(hashes, bench.n_shards)]
        for cut in cuts:
            admin.command("split", collection.full_name, middle=cut)
        bounds = [{"gh": MinKey()}, *cuts, {"gh": MaxKey()}]
        for shard, (low, high) in zip(bench.kind.shards, pairwise(bounds), strict=False):
            admin.command("moveRange", collection.full_name, min=low, max=high, toShard=shard)
    else:
        collection.create_index("gh")
    insert(
        collection,
        points.to_documents(extra={"gh": hashes}, along_curve=bench.load_order == "curve"),
        len(points),
    )
    collection.create_index([("gh", 1), ("loc", GEOSPHERE)])
    return collection


def geometry_rectangle(geometry: dict[str, Any]) -> Rectangle:
    """The minimum bounding rectangle of a polygon's vertices."""
    places = np.array(_positions(geometry["coordinates"]))
    (west, south), (east, north) = places.min(axis=0), places.max(axis=0)
    return float(west), float(south), float(east), float(north)


def circle_rectangle(lng: float, lat: float, radius_m: float) -> Rectangle:
    """The bounding rectangle of a circle on the sphere, which must not reach a pole or the antimeridian."""
    angle = radius_m / EARTH_RADIUS_M
    high = math.degrees(angle)
    wide = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(lat)))))
    return lng - wide, lat - high, lng + wide, lat + high


def rectangle_hashes(rectangle: Rectangle, bits: int) -> list[str]:
    """The geohashes of all cells of one precision that meet a rectangle."""
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    west, south, east, north = rectangle
    x0, x1 = (min(columns - 1, max(0, math.floor((v + 180.0) / 360.0 * columns))) for v in (west, east))
    y0, y1 = (min(rows - 1, max(0, math.floor((v + 90.0) / 180.0 * rows))) for v in (south, north))
    x, y = np.meshgrid(np.arange(x0, x1 + 1), np.arange(y0, y1 + 1))
    cells, _ = cells_to_ranges(np.sort(indices_to_cells(x.ravel(), y.ravel(), bits)), bits)
    strings: list[str] = cells_to_strings(cells, length=bits // 5).tolist()
    return strings


def _positions(coordinates: Any) -> list[list[float]]:
    if not isinstance(coordinates[0], list):
        return [coordinates[:2]]
    return [position for part in coordinates for position in _positions(part)]
