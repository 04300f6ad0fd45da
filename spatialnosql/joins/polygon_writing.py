"""Polygons written into their collection, and what the server says of those that it does not take."""

from __future__ import annotations

import re
import secrets
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import GEOSPHERE, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure

from spatialnosql.errors import UsageError
from spatialnosql.joins.cover_refreshing import bar
from spatialnosql.joins.polygon_collection import RAW, plain
from spatialnosql.joins.polygons import BadPolygon, Polygons, hashable_id, shape_key
from spatialnosql.joins.read_shapes import remember_shape
from spatialnosql.progress import Progress

Documents = Collection[dict[str, Any]]

MOST_BYTES = 16 << 20  # of a document, says MongoDB
_WRITTEN_AT_ONCE, _BYTES_AT_ONCE = 500, 8 << 20
_LONGEST_REASON = 300
_CANNOT_INDEX = 16755
# What a server says of a whole command because of one document in it: nested too deeply, no BSON, too large.
_OF_A_DOCUMENT = (15, 22, 10334, 17419, 17420)


@dataclass(frozen=True)
class Stored:
    """A polygon as it is stored, without its covers."""

    id: Any
    key: bytes  # of its shape and its properties
    content: RawBSONDocument | None = None  # None: as it is in the collection already
    size: int = 0


def to_stored(polygons: Polygons) -> tuple[list[Stored], list[BadPolygon]]:
    """What can be stored as a document, and what cannot."""
    good: list[Stored] = []
    bad: list[BadPolygon] = []
    for polygon in polygons:
        try:
            bson.encode({"_id": polygon.id})
            geometry, properties = bson.encode(polygon.geometry), bson.encode(polygon.properties)
            content = bson.encode(
                {"geometry": RawBSONDocument(geometry), "properties": RawBSONDocument(properties)}
            )
        except (BSONError, OverflowError, RecursionError, UnicodeError) as error:
            bad.append(BadPolygon(polygon.id, f"it cannot be stored: {error}"))
            continue
        if len(content) > MOST_BYTES - 1024:  # some room for the id
            reason = (
                f"it takes {len(content):,} bytes, and a document of MongoDB has at most {MOST_BYTES:,}; simplify "
                "it, or load its parts as polygons of their own"
            )
            bad.append(BadPolygon(polygon.id, reason))
            continue
        remember_shape(geometry, polygon)
        key = shape_key(geometry) + shape_key(properties)
        good.append(Stored(polygon.id, key, RawBSONDocument(content), len(content)))
    return good, bad


def stored_polygons(collection: Documents) -> dict[Hashable, Stored]:
    """What is in the collection, without its contents."""
    raw = collection.with_options(codec_options=RAW)
    found = {}
    for document in raw.find({}, {"geometry": 1, "properties": 1}):
        own = plain(document["_id"])
        parts = (document.get(name) for name in ("geometry", "properties"))
        key = b"".join(shape_key(bytes(p.raw)) for p in parts if isinstance(p, RawBSONDocument))
        found[hashable_id(own)] = Stored(own, key)
    return found


def write_polygons(collection: Documents, ready: list[Stored], shown: Progress) -> list[BadPolygon]:
    """Write polygons; those that the server refuses are returned, with its words."""
    refused: list[BadPolygon] = []
    for batch in _batches(ready):
        refused += _written_at_once(collection, batch)
        shown.advance(len(batch))
    return refused


def _batches(ready: list[Stored]) -> Iterator[list[Stored]]:
    """Not too many at once, nor too much."""
    batch: list[Stored] = []
    held = 0
    for one in ready:
        if batch and (len(batch) >= _WRITTEN_AT_ONCE or held + one.size > _BYTES_AT_ONCE):
            yield batch
            batch, held = [], 0
        batch.append(one)
        held += one.size
    if batch:
        yield batch


def _written_at_once(collection: Documents, batch: list[Stored]) -> list[BadPolygon]:
    # An id may look like an operator; with $eq it is one in no case.
    writes = [UpdateOne({"_id": {"$eq": one.id}}, {"$set": one.content}, upsert=True) for one in batch]
    try:
        collection.bulk_write(writes, ordered=False)
    except BulkWriteError as error:
        refused = error.details.get("writeErrors", [])
        if not refused:
            raise
        return [_refused(batch[one["index"]], str(one["errmsg"])) for one in refused]
    except (OperationFailure, BSONError) as error:
        if isinstance(error, OperationFailure) and error.code not in _OF_A_DOCUMENT:
            raise
        if len(batch) > 1:
            return [bad for one in batch for bad in _written_at_once(collection, [one])]
        return [_refused(batch[0], str(error))]
    return []


def _refused(one: Stored, message: str) -> BadPolygon:
    return BadPolygon(one.id, f"MongoDB refuses it: {_said(message)}")


def _said(message: str) -> str:
    """What a server says of a document, without the whole document, or the ring, that it quotes."""
    for before in ("}", "] ]", " :: caused by :: "):
        message = message.rpartition(before)[2].strip() or message
    return message[:_LONGEST_REASON]


def refused_on_trial(collection: Documents, ready: list[Stored]) -> list[BadPolygon]:
    """Which ones the server would refuse: they are written elsewhere, and thrown away."""
    trial = collection.database[f"{collection.name}_trial_{secrets.token_hex(4)}"]
    try:
        ensure_index(trial)
        return write_polygons(trial, ready, bar("", 0, False))
    finally:
        trial.drop()


def remove_polygons(collection: Documents, ids: list[Any]) -> None:
    """Remove polygons by their ids."""
    for start in range(0, len(ids), _WRITTEN_AT_ONCE):
        collection.delete_many({"_id": {"$in": ids[start : start + _WRITTEN_AT_ONCE]}})


def ensure_index(collection: Documents) -> None:
    """A 2dsphere index on ``geometry``: for plain queries, and so that the server looks at every polygon written."""
    for index in collection.list_indexes():
        if index["key"].get("geometry") == GEOSPHERE and "partialFilterExpression" not in index:
            return
    try:
        collection.create_index([("geometry", GEOSPHERE)])
    except OperationFailure as error:
        if error.code != _CANNOT_INDEX:
            raise
        message = str((error.details or {}).get("errmsg", error))
        which = re.search(r"_id: [^,]{1,60}", message)
        raise UsageError(
            f"a polygon that {collection.full_name} held before cannot be indexed"
            f"{f' ({which[0]})' if which else ''}: {_said(message)}; remove it, or load into another collection"
        ) from error
