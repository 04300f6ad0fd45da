"""Load polygons into a collection: the good ones with their covers, the bad ones into a list with the reasons.

Safe to repeat, also after a run that was cut off: what is there already is left as it is, what has changed is
replaced, and a polygon that is bad now but was good before stays as it was. Polygons that are no longer among those
given stay too, unless they are to be removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import GEOSPHERE, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure

from spatialnosql.errors import UsageError
from spatialnosql.joins.cover_refreshing import Refreshed, bar, infos_of, points_info, refresh_covers
from spatialnosql.joins.polygon_collection import RAW, plain
from spatialnosql.joins.polygons import (
    AREAS,
    BadPolygon,
    Polygons,
    entries_of,
    hashable_id,
    shape_key,
    sorted_out,
)
from spatialnosql.metadata import metadata_collection
from spatialnosql.progress import Progress

Documents = Collection[dict[str, Any]]

MOST_BYTES = 16 << 20  # of a document, says MongoDB
_WRITTEN_AT_ONCE, _BYTES_AT_ONCE = 500, 8 << 20
_CANNOT_INDEX = 16755
# What a server says of a whole command because of one document in it: nested too deeply, no BSON, too large.
_OF_A_DOCUMENT = (15, 22, 10334, 17419, 17420)


@dataclass(frozen=True)
class Loaded:
    """What came of it."""

    namespace: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    others: int = 0  # in the collection, not among those given
    bad: tuple[BadPolygon, ...] = ()
    by_server: tuple[BadPolygon, ...] = ()  # loaded, but of these only the server can tell what lies inside
    numbered: bool = False  # whether ids are the numbers of features, for want of anything better
    covers: tuple[Refreshed, ...] = ()

    @property
    def loaded(self) -> int:
        """How many of those given are in the collection as they were given."""
        return self.added + self.changed + self.unchanged

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "namespace": self.namespace,
            "loaded": self.loaded,
            "added": self.added,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "removed": self.removed,
            "others": self.others,
            "bad": [{"id": one.id, "feature": one.number, "reason": one.reason} for one in self.bad],
            "by_server": [{"id": one.id, "reason": one.reason} for one in self.by_server],
            "covers": [one.to_document() for one in self.covers],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.namespace}: {self.loaded:,} polygons loaded ({self.added:,} new, {self.changed:,} changed, "
            f"{self.unchanged:,} as before)"
        )
        if self.removed:
            yield f"removed, since they were not given: {self.removed:,}"
        elif self.others:
            yield f"not given, but still in the collection: {self.others:,} (--replace removes them)"
        if self.numbered:
            yield "their ids are their numbers; --id PROPERTY takes a property instead"
        for one in self.covers:
            yield from one.lines()
        if self.by_server:
            yield f"counted by the server itself, one by one: {len(self.by_server):,}"
            yield from (f"  {one.name}: {one.reason}" for one in self.by_server)
        if self.bad:
            yield f"bad, and not loaded: {len(self.bad):,}"
            yield from (f"  {one.name}: {one.reason}" for one in self.bad)


def load_polygons(
    collection: Documents,
    source: Any,
    *,
    id: str | None = None,
    points: Sequence[Documents] = (),
    replace: bool = False,
    strict: bool = False,
    progress: bool = False,
) -> Loaded:
    """Load polygons (GeoJSON, features, geometries by name), indexed for plain MongoDB too, with covers for `points`.

    `id` is the property that ids are taken from. `replace` removes polygons that are not among those given. With
    `strict` nothing is changed if any polygon is bad; otherwise the others are loaded. Covers for points that the
    collection has covers for already are made anew with the rest.
    """
    check_target(collection, points)
    for one in points:
        points_info(one)  # or an error, before anything is done
    total = len(entries_of(source))
    with bar("checking polygons", total, progress) as shown:
        polygons, bad = sorted_out(source, id, shown.advance)
    ready, unfit = _ready(polygons)
    bad += unfit
    given = {hashable_id(one.id) for one in (*polygons, *bad)}
    if not ready or (strict and bad):
        return Loaded(collection.full_name, bad=tuple(bad))
    before = _stored(collection)
    new = [one for one in ready if hashable_id(one.id) not in before]
    changed = [one for one in ready if before.get(hashable_id(one.id), one).key != one.key]
    if strict:
        bad = _tried(collection, new + changed)
        if bad:
            return Loaded(collection.full_name, bad=tuple(bad))
    ensure_index(collection)
    with bar(f"writing {collection.full_name}", len(new) + len(changed), progress) as shown:
        new_refused = _written(collection, new, shown)
        refused = [*new_refused, *_written(collection, changed, shown)]
    others = [one.id for key, one in before.items() if key not in given]
    if replace:
        _remove(collection, others)
    not_in_it = {hashable_id(one.id) for one in [*unfit, *refused]}
    return Loaded(
        collection.full_name,
        added=len(new) - len(new_refused),
        changed=len(changed) - len(refused) + len(new_refused),
        unchanged=len(ready) - len(new) - len(changed),
        removed=len(others) if replace else 0,
        others=0 if replace else len(others),
        bad=(*bad, *refused),
        by_server=tuple(
            BadPolygon(one.id, one.why_not)
            for one in polygons
            if one.why_not is not None and hashable_id(one.id) not in not_in_it
        ),
        numbered=id is None and all(isinstance(one.id, int) and one.id in range(total) for one in polygons),
        covers=tuple(
            refresh_covers(collection, info, progress=progress) for info in infos_of(collection, points)
        ),
    )


def check_target(collection: Documents, points: Sequence[Documents]) -> None:
    """Polygons have a collection of their own: others may not be mixed with them, nor removed by `replace`."""
    name = collection.full_name
    adopted = metadata_collection(collection).find_one({"_id": name}, {"_id": 1})
    if adopted is not None or name in {one.full_name for one in points}:
        raise UsageError(f"{name} is a collection of points; load polygons into another")
    other = collection.find_one({"geometry.type": {"$nin": list(AREAS)}}, {"_id": 1})
    if other is not None:
        raise UsageError(
            f"{name} holds what are no polygons, such as the document with _id {other['_id']!r:.60}; "
            "load polygons into a collection of their own"
        )


def ensure_index(collection: Documents) -> None:
    """A 2dsphere index on ``geometry``: for plain queries, and so that the server looks at every polygon written."""
    if any(index["key"].get("geometry") == GEOSPHERE for index in collection.list_indexes()):
        return
    try:
        collection.create_index([("geometry", GEOSPHERE)])
    except OperationFailure as error:
        if error.code != _CANNOT_INDEX:
            raise
        raise UsageError(
            f"a polygon that {collection.full_name} held before cannot be indexed: {_said(str(error))}; remove "
            "it, or load into another collection"
        ) from error


# -- what is written --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ready:
    """A polygon as it is stored, without its covers."""

    id: Any
    key: bytes  # of its shape and its properties
    content: RawBSONDocument | None = None  # None: as it is in the collection already
    size: int = 0


def _ready(polygons: Polygons) -> tuple[list[_Ready], list[BadPolygon]]:
    """What can be stored as a document, and what cannot."""
    good: list[_Ready] = []
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
        key = shape_key(geometry) + shape_key(properties)
        good.append(_Ready(polygon.id, key, RawBSONDocument(content), len(content)))
    return good, bad


def _stored(collection: Documents) -> dict[Hashable, _Ready]:
    """What is in the collection, without its contents."""
    raw = collection.with_options(codec_options=RAW)
    found = {}
    for document in raw.find({}, {"geometry": 1, "properties": 1}):
        own = plain(document["_id"])
        parts = (document.get(name) for name in ("geometry", "properties"))
        key = b"".join(shape_key(bytes(p.raw)) for p in parts if isinstance(p, RawBSONDocument))
        found[hashable_id(own)] = _Ready(own, key)
    return found


def _written(collection: Documents, ready: list[_Ready], shown: Progress) -> list[BadPolygon]:
    """Write polygons; those that the server refuses are returned, with its words."""
    refused: list[BadPolygon] = []
    batch: list[_Ready] = []
    for one in ready:
        if len(batch) >= _WRITTEN_AT_ONCE or sum(each.size for each in batch) + one.size > _BYTES_AT_ONCE:
            refused += _written_at_once(collection, batch)
            shown.advance(len(batch))
            batch = []
        batch.append(one)
    if batch:
        refused += _written_at_once(collection, batch)
        shown.advance(len(batch))
    return refused


def _written_at_once(collection: Documents, batch: list[_Ready]) -> list[BadPolygon]:
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


def _refused(one: _Ready, message: str) -> BadPolygon:
    return BadPolygon(one.id, f"MongoDB refuses it: {_said(message)}")


def _said(message: str) -> str:
    """What a server says of a document, without the whole document that it quotes."""
    return message.rpartition("}")[2].strip()[:300] or message[:300]


def _tried(collection: Documents, ready: list[_Ready]) -> list[BadPolygon]:
    """Which ones the server would refuse: they are written elsewhere, and thrown away."""
    trial = collection.database[f"{collection.name}_trial_{secrets.token_hex(4)}"]
    try:
        ensure_index(trial)
        return _written(trial, ready, bar("", 0, False))
    finally:
        trial.drop()


def _remove(collection: Documents, ids: list[Any]) -> None:
    for start in range(0, len(ids), _WRITTEN_AT_ONCE):
        collection.delete_many({"_id": {"$in": ids[start : start + _WRITTEN_AT_ONCE]}})
