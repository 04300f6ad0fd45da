"""The points of every polygon for a report, counted by one pass. Writes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.polygon_collection import plain, read_polygons
from spatialnosql.joins.polygon_file import read_features
from spatialnosql.joins.polygons import Polygon, Polygons, sorted_out
from spatialnosql.metadata import load_info
from spatialnosql.report.model import Area, TopFacts
from spatialnosql.report.shapes import area_rings
from spatialnosql.steps import run
from spatialnosql.target import split_namespace


def open_polygons(name: str, points: Collection[dict[str, Any]]) -> tuple[Polygons, int]:
    """The polygons of a collection (``city.neighborhoods``) or a GeoJSON file (``@FILE``), and how many were bad."""
    if name.startswith("@"):
        good, bad = sorted_out(read_features(name[1:]))
        if not good:
            raise UsageError(f"{name[1:]} has no polygon that MongoDB would take")
        return good, len(bad)
    database, collection = split_namespace(name)
    # Covers that are stored are used; others are made for this once, and not stored.
    found = run(read_polygons(points.database.client[database][collection], run(load_info(points))))
    return found, 0


def count_polygons(spatial: SpatialCollection, polygons: Polygons, source: str, shown: int = 10) -> TopFacts:
    """Count, and take the shapes along for the map."""
    if shown < 1:
        raise UsageError(f"a top {shown} shows nothing; it must be 1 or more")
    started = time.perf_counter()
    tallies = count_by_polygon(spatial, polygons)
    seconds = time.perf_counter() - started
    areas = tuple(
        Area(_name(polygon), tally.count, area_rings(plain(polygon.geometry)))
        for polygon, tally in zip(polygons, tallies, strict=True)
    )
    return TopFacts(source, areas, len(areas), seconds, shown)


def _name(polygon: Polygon) -> str:
    named = polygon.properties.get("name") if isinstance(polygon.properties, Mapping) else None
    return str(polygon.id if isinstance(polygon.id, str) or named is None else named)
