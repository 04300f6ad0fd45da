"""Polygons in a collection, each with its covers: one for every collection of points that it is joined with.

A document is ``{_id, geometry, properties, covers}``; a cover has the points' namespace, digests of the shape and of
the statistics that it was made from, and its interior and boundary ranges as pairs of strings: ``lo <= gh < hi``.
Covers made from another shape or other statistics than those of now are made anew when they are needed, and stored
again if the user may write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from spatialnosql.cover import Cover, Ranges
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.geohash import BITS, END_OF_STRINGS, Cells, strings_to_cells
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.covering import covers_of
from spatialnosql.joins.polygons import Polygon, Polygons, StoredCovers, read_polygon
from spatialnosql.steps import Steps, call, listed
from spatialnosql.writes.documents import PLAIN

MADE = 1
"""How covers are made: a greater number for a better way, so that none of the old are used."""
_WRITTEN_AT_ONCE = 500


def polygons_of(source: Any, info: CollectionInfo) -> Steps[Polygons]:
    """Polygons of a collection, with covers for these points, or of whatever `Polygons.of` takes."""
    if not isinstance(source, Collection):
        return Polygons.of(source)
    collection = source.with_options(codec_options=PLAIN)
    polygons = yield from read_polygons(collection, info.namespace)
    if info.histogram is not None and not _is_fresh(polygons, info):
        polygons = with_covers(polygons, info)
        with contextlib.suppress(PyMongoError):  # a reader need not be a writer
            yield from store_covers(collection, polygons, info)
    return polygons


def read_polygons(collection: Collection[dict[str, Any]], points: str | None = None) -> Steps[Polygons]:
    """All polygons of a collection in the order of their ids, with the covers stored for some points."""
    wanted = {"geometry": 1, "properties": 1}
    pipeline: list[dict[str, Any]] = [{"$sort": {"_id": 1}}, {"$project": wanted}]
    if points is not None:
        own = {"$filter": {"input": {"$ifNull": ["$covers", []]}, "cond": {"$eq": ["$$this.points", points]}}}
        pipeline[1]["$project"] = {**wanted, "covers": own}
    documents = yield from listed(collection.aggregate, pipeline, allowDiskUse=True)
    if not documents:
        raise UsageError(
            f"{collection.full_name} has no polygons; `spatialnosql polygons load FILE --into "
            f"{collection.full_name}` loads some"
        )
    polygons = [_polygon(document) for document in documents]
    return Polygons(polygons, _stored(polygons, documents))


def _polygon(document: Mapping[str, Any]) -> Polygon:
    try:
        return read_polygon(document["_id"], document.get("geometry"), document.get("properties"))
    except GeometryError as error:
        raise GeometryError(f"polygon {document['_id']!r}: {error}") from None


def _stored(polygons: list[Polygon], documents: list[dict[str, Any]]) -> StoredCovers | None:
    stored = [
        next((one for one in document.get("covers", ()) if _is_of(one, polygon)), None)
        for polygon, document in zip(polygons, documents, strict=True)
    ]
    keys = {bytes(one["histogram"]) for one in stored if one is not None}
    if len(keys) != 1:
        return None  # never made, or cut off while they were made anew
    return StoredCovers(keys.pop(), tuple(_covers(stored)))


def _is_of(cover: Mapping[str, Any], polygon: Polygon) -> bool:
    """Whether a stored cover is one of this very shape."""
    return cover.get("made") == MADE and bytes(cover.get("shape", b"")) == polygon.key


def _is_fresh(polygons: Polygons, info: CollectionInfo) -> bool:
    stored, histogram = polygons.stored, info.histogram
    if stored is None or histogram is None or stored.histogram != histogram.key:
        return False
    return all(
        cover is not None or polygon.region is None
        for cover, polygon in zip(stored.covers, polygons, strict=True)
    )


def with_covers(polygons: Polygons, info: CollectionInfo) -> Polygons:
    """Polygons with covers by the statistics of now."""
    assert info.histogram is not None
    return Polygons(polygons, StoredCovers(info.histogram.key, covers_of(polygons, info)))


def store_covers(
    collection: Collection[dict[str, Any]], polygons: Polygons, info: CollectionInfo
) -> Steps[None]:
    """Write the covers of polygons into their documents, in place of those for the same points."""
    assert polygons.stored is not None
    key = polygons.stored.histogram
    writes = []
    for polygon, cover in zip(polygons, polygons.stored.covers, strict=True):
        if cover is None:
            continue
        others = {
            "$filter": {
                "input": {"$ifNull": ["$covers", []]},
                "cond": {"$ne": ["$$this.points", info.namespace]},
            }
        }
        made = {"$literal": cover_to_document(cover, polygon, info.namespace, key)}
        # Only if it is still the shape that was covered.
        same = {"_id": polygon.id, "geometry": polygon.geometry}
        writes.append(UpdateOne(same, [{"$set": {"covers": {"$concatArrays": [others, [made]]}}}]))
    for start in range(0, len(writes), _WRITTEN_AT_ONCE):
        yield from call(collection.bulk_write, writes[start : start + _WRITTEN_AT_ONCE], ordered=False)


def cover_to_document(cover: Cover, polygon: Polygon, points: str, histogram: bytes) -> dict[str, Any]:
    """A cover as it is stored."""
    return {
        "points": points,
        "made": MADE,
        "shape": polygon.key,
        "histogram": histogram,
        "interior": [list(pair) for pair in cover.interior.to_strings()],
        "boundary": [list(pair) for pair in cover.boundary.to_strings()],
    }


def _covers(stored: list[Mapping[str, Any] | None]) -> list[Cover | None]:
    """All at once: thousands of strings are sooner read together."""
    parts = [one[kind] for one in stored if one is not None for kind in ("interior", "boundary")]
    bounds = _cells([bound for ranges in parts for pair in ranges for bound in pair]).reshape(-1, 2)
    ends = np.cumsum([len(ranges) for ranges in parts]) if parts else np.zeros(0, dtype=np.intp)
    made = (
        [Ranges(part[:, 0].copy(), part[:, 1].copy()) for part in np.split(bounds, ends[:-1])]
        if parts
        else []
    )
    pairs = iter(zip(made[::2], made[1::2], strict=True))
    return [None if one is None else Cover(*next(pairs), cells=0) for one in stored]


def _cells(bounds: list[str]) -> Cells:
    end = np.array([bound == END_OF_STRINGS for bound in bounds], dtype=np.bool_)
    cells = strings_to_cells(
        ["" if last else bound for bound, last in zip(bounds, end.tolist(), strict=True)]
    )
    cells[end] = np.uint64(1 << BITS)
    return cells
