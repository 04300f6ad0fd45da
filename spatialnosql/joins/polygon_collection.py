"""Polygons in a collection, each with its covers: one for every collection of points that it is joined with.

A document is ``{_id, geometry, properties, covers}``; a cover has the points' namespace, digests of the shape and of
the statistics that it was made from, and its interior and boundary ranges as pairs of strings: ``lo <= gh < hi``.
Covers made from another shape or other statistics than those of now are made anew when they are needed, and stored
again if the user may write.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import bson
import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, PyMongoError

from spatialnosql.cover import Cover, Ranges
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.geohash import BITS, END_OF_STRINGS, Cells, strings_to_cells
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.covering import covers_of
from spatialnosql.joins.polygons import BadPolygon, Polygon, Polygons, StoredCovers
from spatialnosql.joins.read_shapes import read_shape
from spatialnosql.steps import Steps, call, listed
from spatialnosql.writes.documents import PLAIN

MADE = 2
"""How covers are made: a greater number for a better way, so that none of the old are used."""
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_WRITTEN_AT_ONCE = 500
COVERS = {"$cond": [{"$isArray": "$covers"}, "$covers", []]}
"""The covers of a document, whatever somebody else may have written there."""


def polygons_of(
    source: Any, info: CollectionInfo, options: Mapping[str, Any] | None = None
) -> Steps[Polygons]:
    """Polygons of a collection, with covers for these points, or of whatever `Polygons.of` takes.

    `options` are those of the caller's commands; in a session nothing is written, which might wait for the session.
    """
    if not isinstance(source, Collection):
        return Polygons.of(source)
    given = {name: value for name, value in (options or {}).items() if name != "let"}
    polygons = yield from read_polygons(source, info, given)
    stale = stale_covers(polygons, info)
    if stale and given.get("session") is not None:
        return with_covers(polygons, info)
    if stale:
        polygons = with_covers(polygons, info)
        with contextlib.suppress(PyMongoError):  # a reader need not be a writer
            yield from store_covers(source, polygons, info, stale, newest=True)
    return polygons


def read_polygons(
    collection: Collection[Any],
    info: CollectionInfo | None = None,
    options: Mapping[str, Any] | None = None,
) -> Steps[Polygons]:
    """All polygons of a collection in the order of their ids, with the covers for these points as they are now."""
    wanted: dict[str, Any] = {"geometry": 1, "properties": 1}
    histogram = None if info is None or info.histogram is None else info.histogram.key
    if info is not None and histogram is not None:
        own = {"$eq": ["$$this.points", info.namespace]}
        same = {"$eq": ["$$this.histogram", {"$literal": histogram}]}
        wanted["covers"] = {"$filter": {"input": COVERS, "cond": {"$and": [own, same]}}}
    pipeline = [{"$sort": {"_id": 1}}, {"$project": wanted}]
    raw = collection.with_options(codec_options=RAW)
    documents: list[RawBSONDocument] = yield from listed(
        raw.aggregate, pipeline, allowDiskUse=True, **(options or {})
    )
    if not documents:
        raise UsageError(
            f"{collection.full_name} has no polygons; `spatialnosql polygons load FILE --into "
            f"{collection.full_name}` loads some"
        )
    polygons = [_polygon(document) for document in documents]
    if histogram is None:
        return Polygons(polygons)
    stored = [
        next((one for one in document.get("covers", ()) if is_of(one, polygon.key)), None)
        for polygon, document in zip(polygons, documents, strict=True)
    ]
    return Polygons(polygons, StoredCovers(histogram, tuple(_covers(stored))))


def _polygon(document: RawBSONDocument) -> Polygon:
    id = plain(document["_id"])  # noqa: A001 - what a polygon calls it
    try:
        properties = plain(document.get("properties"))
        return read_shape(document.get("geometry")).named(
            id, properties if isinstance(properties, Mapping) else {}
        )
    except GeometryError as error:
        raise GeometryError(f"polygon {id!r}: {error}") from None


def plain(value: Any) -> Any:
    """A value of a raw document as Python has it."""
    return bson.decode(value.raw, PLAIN) if isinstance(value, RawBSONDocument) else value


def is_of(cover: Any, shape: bytes) -> bool:
    """Whether something stored is a cover of this very shape, made as they are made now."""
    return (
        isinstance(cover, Mapping)
        and cover.get("made") == MADE
        and cover.get("shape") == shape
        and all(isinstance(cover.get(kind), list) for kind in ("interior", "boundary"))
        and cover.get("ranges") == _digest(cover["interior"], cover["boundary"])
    )


def _digest(interior: Any, boundary: Any) -> bytes:
    """Of the ranges as they are stored: so that a cover that somebody has edited is not believed."""
    return hashlib.blake2b(bson.encode({"interior": interior, "boundary": boundary}), digest_size=16).digest()


def stale_covers(polygons: Polygons, info: CollectionInfo) -> list[int]:
    """The numbers of those polygons that have no cover by the statistics of now; none if there are no statistics."""
    if info.histogram is None:
        return []
    stored = polygons.stored
    usable = stored is not None and stored.histogram == info.histogram.key
    covers: Sequence[Cover | None] = stored.covers if stored and usable else [None] * len(polygons)
    return [
        number
        for number, (polygon, cover) in enumerate(zip(polygons, covers, strict=True))
        if cover is None and polygon.region is not None
    ]


def with_covers(polygons: Polygons, info: CollectionInfo) -> Polygons:
    """Polygons with covers by the statistics of now."""
    assert info.histogram is not None
    return Polygons(polygons, StoredCovers(info.histogram.key, covers_of(polygons, info)))


def store_covers(
    collection: Collection[Any],
    polygons: Polygons,
    info: CollectionInfo,
    which: Sequence[int] | None = None,
    *,
    newest: bool = False,
) -> Steps[list[BadPolygon]]:
    """Write the covers of polygons into their documents, in place of those for the same points.

    Of all polygons, or of some by their numbers. With `newest`, covers made from a later analysis stay: whoever knows
    only an older one needs others for a minute, but nobody after that. Those that could not be written are returned.
    """
    assert polygons.stored is not None
    key = polygons.stored.histogram
    writes, ids = [], []
    for number in range(len(polygons)) if which is None else which:
        polygon, cover = polygons[number], polygons.stored.covers[number]
        if cover is None:
            continue
        others = {"$filter": {"input": COVERS, "cond": {"$ne": ["$$this.points", info.namespace]}}}
        made = {"$literal": cover_to_document(cover, polygon, info, key)}
        # Should the shape have changed meanwhile, its digest tells so.
        which_one: dict[str, Any] = {"_id": {"$eq": polygon.id}}
        if newest and info.analyzed is not None:
            later = {"points": info.namespace, "analyzed": {"$gt": info.analyzed}}
            which_one["covers"] = {"$not": {"$elemMatch": later}}
        writes.append(UpdateOne(which_one, [{"$set": {"covers": {"$concatArrays": [others, [made]]}}}]))
        ids.append(polygon.id)
    failed: list[BadPolygon] = []
    plainly = collection.with_options(codec_options=PLAIN)
    for start in range(0, len(writes), _WRITTEN_AT_ONCE):
        try:
            yield from call(plainly.bulk_write, writes[start : start + _WRITTEN_AT_ONCE], ordered=False)
        except BulkWriteError as error:
            refused = error.details.get("writeErrors", [])
            if not refused:
                raise
            failed += [BadPolygon(ids[start + one["index"]], str(one["errmsg"])[:300]) for one in refused]
    return failed


def cover_to_document(
    cover: Cover, polygon: Polygon, info: CollectionInfo, histogram: bytes
) -> dict[str, Any]:
    """A cover as it is stored."""
    interior, boundary = (
        [list(pair) for pair in ranges.to_strings()] for ranges in (cover.interior, cover.boundary)
    )
    return {
        "points": info.namespace,
        "made": MADE,
        "shape": polygon.key,
        "histogram": histogram,
        "analyzed": info.analyzed,
        "ranges": _digest(interior, boundary),
        "interior": interior,
        "boundary": boundary,
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
