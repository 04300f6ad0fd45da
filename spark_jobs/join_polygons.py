"""The polygons of a join: read, and made into what workers are sent."""

from __future__ import annotations

from typing import Any

import bson
import numpy as np
from bson import json_util

from spark_jobs.join_grid import MOST_BOXES
from spark_jobs.join_served import Shape, make_layers
from spark_jobs.join_work import Job
from spatialnosql.errors import GeometryError
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.polygon_collection import read_polygons
from spatialnosql.joins.polygon_file import read_features
from spatialnosql.joins.polygons import Polygons, sorted_out
from spatialnosql.region import EdgeRegion, MirroredRegion, Region
from spatialnosql.steps import run
from spatialnosql.target import split_namespace

_BYTES_PER_EDGE = 150
_NAMED = 5  # bad polygons that a message names


def open_polygons(job: Job, client: Any, info: CollectionInfo | None) -> Polygons:
    """The polygons of a collection, with the covers stored for the points; or of a GeoJSON file."""
    if job.polygon_collection is not None:
        database, name = split_namespace(job.polygon_collection)
        return run(read_polygons(client[database][name], info))
    good, bad = sorted_out(read_features(job.polygons), job.polygon_id)
    if bad:
        named = "; ".join(f"{one.id!r}: {one.reason}" for one in bad[:_NAMED])
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise GeometryError(f"{job.polygons}: polygons that MongoDB would refuse: {named}{more}")
    return good


def only_by_server(polygons: Polygons) -> list[int]:
    """The numbers of polygons whose inside only the server can tell."""
    return [number for number, polygon in enumerate(polygons) if polygon.region is None]


def shapes_of(polygons: Polygons) -> tuple[list[int], list[Shape]]:
    """The other ones, and their shapes."""
    known = [
        (number, polygon.region) for number, polygon in enumerate(polygons) if polygon.region is not None
    ]
    return [number for number, _ in known], [shape_of(region) for _, region in known]


def shape_of(region: Region) -> Shape:
    """The edges of a polygon, or of its mirror image."""
    bounds = tuple(region.bounds)
    north = 1
    if isinstance(region, MirroredRegion):
        region, north = region.image, -1
    assert isinstance(region, EdgeRegion)  # which polygons are
    assert region.edges.geodesic
    assert region.rule == "positive"
    return Shape(region.edges.table, region.north_pole, north, bounds)


def identities(polygons: Polygons) -> list[Any]:
    """The ids as one column can hold them: numbers or texts; of mixed kinds, or any other, their JSON."""
    ids = [polygon.id for polygon in polygons]
    if all(isinstance(one, int) and not isinstance(one, bool) and abs(one) < 1 << 63 for one in ids):
        return ids
    return [one if isinstance(one, str) else json_util.dumps(one) for one in ids]


def size_mb(shapes: list[Shape]) -> float:
    """About what workers would be sent of all shapes."""
    edges = sum(len(shape.table) for shape in shapes)
    return (edges * _BYTES_PER_EDGE + 4 * min(MOST_BOXES, 40 * edges)) / 2**20


def plain_served(polygons: Polygons, *, geometries: bool) -> tuple[Any, ...]:
    """All polygons as `join_worker.Served` takes them: plain values."""
    numbers, shapes = shapes_of(polygons)
    ids = identities(polygons)
    encoded = [encoded_geometry(polygons, number) for number in numbers] if geometries else []
    return make_layers(shapes), np.array(numbers), [ids[number] for number in numbers], encoded, {}


def encoded_geometry(polygons: Polygons, number: int) -> bytes:
    """The geometry of a polygon for the question to the server."""
    return bytes(bson.encode(polygons[number].geometry))
