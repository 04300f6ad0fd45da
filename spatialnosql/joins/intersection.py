"""Points that lie in all of several regions: where two neighbourhoods, a circle and a park overlap.

No intersection of shapes is computed, which would bend its edges: a point is in the intersection if it is in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import bson
from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.cursor import SpatialCursor
from spatialnosql.errors import UsageError
from spatialnosql.joins.polygons import Polygon, Polygons
from spatialnosql.steps import run


def in_all(
    points: Any,
    regions: Iterable[Any],
    filter: Mapping[str, Any] | None = None,
    *,
    polygons: Any = None,
    **find_options: Any,
) -> SpatialCursor:
    """A cursor of the documents that lie in all of some regions, and meet a filter; options are those of a find.

    A region is a GeoJSON geometry or feature, what ``$geoWithin`` takes (``{"$centerSphere": ...}``), or the id of one
    of `polygons`.

    >>> in_all(trips, ["Harlem", {"$centerSphere": [[-73.95, 40.81], 0.0002]}], polygons=neighborhoods).to_list()
    """
    spatial = _spatial(points)
    return spatial.find(_condition(spatial, regions, filter, polygons), **find_options)


def count_in_all(
    points: Any,
    regions: Iterable[Any],
    filter: Mapping[str, Any] | None = None,
    *,
    polygons: Any = None,
    **options: Any,
) -> int:
    """How many documents `in_all` finds; options are those of ``count_documents``."""
    spatial = _spatial(points)
    return spatial.count_documents(_condition(spatial, regions, filter, polygons), **options)


def _spatial(points: Any) -> SpatialCollection:
    if isinstance(points, Collection):
        return SpatialCollection(points)
    if not isinstance(points, SpatialCollection):
        raise UsageError(f"points are a SpatialCollection or a pymongo Collection, not {points!r:.60}")
    return points


def _condition(
    spatial: SpatialCollection, regions: Iterable[Any], filter: Mapping[str, Any] | None, polygons: Any
) -> dict[str, Any]:
    info = run(spatial._load_info())
    if not info.adopted:
        raise UsageError(
            f"{info.namespace} was never adopted, so where its points are is not known; "
            f"`spatialnosql adopt {info.namespace}`"
        )
    if isinstance(regions, Mapping | str | bytes) or not isinstance(regions, Iterable):
        raise UsageError(f"regions are given as a list, not as {regions!r:.60}")
    known = _Known(polygons)
    parts: list[Any] = [{info.location: {"$geoWithin": known.operand(region)}} for region in regions]
    if not parts:
        raise UsageError("there are no regions; in_all takes one or more")
    if filter is not None and not isinstance(filter, Mapping):
        raise UsageError(f"a filter is a document, not {filter!r:.60}")
    return {"$and": [*parts, filter] if filter else parts}


class _Known:
    """Polygons that regions may be called by."""

    def __init__(self, polygons: Any) -> None:
        self._collection = polygons if isinstance(polygons, Collection) else None
        self._polygons = None if polygons is None or self._collection is not None else Polygons.of(polygons)

    def operand(self, region: Any) -> Any:
        """What ``$geoWithin`` takes for a region."""
        if isinstance(region, Polygon):
            return region.within["$geoWithin"]
        if isinstance(region, Mapping):
            if isinstance(region.get("$geoWithin"), Mapping):
                return region["$geoWithin"]
            if any(str(name).startswith("$") for name in region):
                return region
            if region.get("type") == "Feature":
                return {"$geometry": region.get("geometry")}
            if "type" in region:
                return {"$geometry": region}
        return {"$geometry": self._geometry(region)}

    def _geometry(self, id: Any) -> Any:
        if self._polygons is not None:
            return self._polygons.by_id(id).geometry
        if self._collection is None:
            raise UsageError(f"{id!r:.60} is no region; to call it by its id, give the polygons too")
        try:
            found = self._collection.find_one({"_id": {"$eq": id}}, {"geometry": 1})
        except bson.errors.InvalidDocument:
            found = None
        if found is None:
            raise UsageError(f"no polygon of {self._collection.full_name} has the id {id!r:.60}")
        return found.get("geometry")
