"""What is recorded about each spatial collection, on the server itself: ``spatialnosql.collections``.

One document a collection: its location field, precision and why, histogram of cells, where its chunks lie. Nothing in
it decides what a query returns. That ``gh`` is true is not taken from here but from the collection's own validator,
which is read together with it.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bson
import numpy as np
from bson.binary import Binary
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.errors import OperationFailure

from spatialnosql.costs import Costs
from spatialnosql.geohash import END_OF_STRINGS
from spatialnosql.histogram import Histogram
from spatialnosql.info import GH_FIELD, CollectionInfo, Index, ShardRange, true_gh
from spatialnosql.own_session import in_own_session
from spatialnosql.steps import Steps, call, listed
from spatialnosql.stk.seals import shut_by, true_seal
from spatialnosql.stk.settings import StkSettings

DATABASE, COLLECTION = "spatialnosql", "collections"
READY, ADOPTING = "ready", "adopting"
EXPIRY_S = 60.0
"""How long what is known of a collection is used before it is read again."""
_NO_PRIVILEGE = (13, 8000)  # what servers say to users who may not read it, and Atlas


def histogram_to_document(histogram: Histogram) -> dict[str, Any]:
    """A histogram as stored: little-endian arrays, 16 bytes a cell."""
    return {
        "bits": histogram.bits,
        "cells": Binary(histogram.cells.astype("<u8").tobytes()),
        "counts": Binary(histogram.counts.astype("<i8").tobytes()),
        "total": histogram.total,
        "at": dt.datetime.now(dt.timezone.utc),
    }


def histogram_from_document(document: Mapping[str, Any]) -> Histogram:
    """A histogram as it was stored."""
    cells = np.frombuffer(document["cells"], dtype="<u8").astype(np.uint64)
    counts = np.frombuffer(document["counts"], dtype="<i8").astype(np.int64)
    return Histogram(int(document["bits"]), cells, counts)


def metadata_collection(collection: Any) -> Any:
    """The metadata collection of the deployment that a collection is on (of either client)."""
    return collection.database.client[DATABASE][COLLECTION]


def load_info(collection: Any, *, trust_gh: bool = False) -> Steps[CollectionInfo]:
    """Read what there is to know of a collection; three commands, four on a sharded cluster."""
    return (
        yield from in_own_session(
            collection.database.client, lambda session: _load_info(collection, trust_gh, session)
        )
    )


def _load_info(collection: Any, trust_gh: bool, session: Any) -> Steps[CollectionInfo]:
    namespace = f"{collection.database.name}.{collection.name}"
    database, name = collection.database, {"name": collection.name}
    try:
        found = yield from listed(database.list_collections, filter=name, session=session)
        one = {"_id": namespace}
        stored = yield from call(metadata_collection(collection).find_one, one, session=session)
    except OperationFailure as error:
        why_not = f"its metadata cannot be read (code {error.code})"
        passing = error.code not in _NO_PRIVILEGE
        return CollectionInfo(namespace, why_not=why_not, adopted=False, passing=passing)
    if not found or stored is None:
        why_not = "it does not exist" if not found else "it was never adopted or ingested"
        return CollectionInfo(namespace, why_not=why_not, adopted=False)
    is_view = found[0]["type"] == "view"
    indexes = yield from _nothing() if is_view else listed(collection.list_indexes, session=session)
    shards = yield from _shard_ranges(collection, namespace, stored, session)
    histogram = stored.get("histogram")
    stk, why_no_stk = _stk(found[0], stored)
    return CollectionInfo(
        namespace,
        stored["location"],
        stored.get("gh", GH_FIELD),
        stored.get("form", "any"),
        bool(stored.get("unhashed", False)),
        histogram_from_document(histogram) if histogram else None,
        tuple(_index(index) for index in indexes if not index.get("hidden")),
        shards,
        _why_not(found[0], stored, trust_gh),
        costs=Costs.of_document(stored.get("costs", {})),
        analyzed=stored.get("analyzed"),
        stk=stk,
        why_no_stk=why_no_stk,
        shut_ms=None if stk is None else _shut_ms(found[0], stk),
    )


def _nothing() -> Steps[list[Any]]:
    return []
    yield


def _why_not(found: Mapping[str, Any], stored: Mapping[str, Any], trust_gh: bool) -> str | None:
    options = found.get("options", {})
    if found["type"] == "view":
        return "it is a view"
    if found["type"] != "collection":
        return f"it is a {found['type']} collection"
    if options.get("collation", {}).get("locale", "simple") != "simple":
        return "the collection has a collation of its own, by which geohashes do not sort"
    if stored.get("state") != READY:
        return "it is still being adopted"
    if trust_gh or is_guaranteed(options, stored):
        return None
    return "no validator guarantees that gh is true (see `spatialnosql adopt`, or pass trust_gh=True)"


def _stk(found: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[StkSettings | None, str | None]:
    """The settings for queries by words, if the server guarantees what they rest on; else why there are none."""
    if "stk" not in stored:
        return None, None
    settings = StkSettings.from_document(stored["stk"])
    if _has_clause(found.get("options", {}), true_seal(settings, stored.get("gh", GH_FIELD))):
        return settings, None
    if stored.get("state") != READY:
        return None, "its first batch is not whole yet"
    return None, "its validator does not guarantee the seals any more: run `spatialnosql stk enable` again"


def _shut_ms(found: Mapping[str, Any], settings: StkSettings) -> int | None:
    """Before which moment the server refuses fresh documents."""
    return max(
        (at for part in _clauses(found.get("options", {})) if (at := shut_by(part, settings)) is not None),
        default=None,
    )


def is_guaranteed(options: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether the options of a collection make the server refuse every write whose ``gh`` is wrong."""
    clause = true_gh(
        stored["location"],
        stored.get("gh", GH_FIELD),
        stored.get("form", "any"),
        unhashed=bool(stored.get("unhashed", False)),
    )
    return _has_clause(options, clause)


def _has_clause(options: Mapping[str, Any], clause: Mapping[str, Any]) -> bool:
    """Whether the server refuses every write that a clause forbids: ours alone, or beside the user's own."""
    wanted = bson.encode(clause)
    return any(bson.encode(part) == wanted for part in _clauses(options))


def _clauses(options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every write must meet, by the options of a collection."""
    if (
        options.get("validationLevel", "strict") != "strict"
        or options.get("validationAction", "error") != "error"
    ):
        return []
    validator = options.get("validator", {})
    return [validator, *validator.get("$and", [])]


def _index(document: Mapping[str, Any]) -> Index:
    partial = bool(document.get("sparse")) or "partialFilterExpression" in document
    return Index(document["name"], tuple(document["key"].items()), partial)


def _shard_ranges(
    collection: Any, namespace: str, stored: Mapping[str, Any], session: Any
) -> Steps[tuple[ShardRange, ...]]:
    """Which shard holds which geohashes, from the cluster itself; none unless it is sharded by ``gh``."""
    config = collection.database.client["config"]
    try:
        entry = yield from call(config["collections"].find_one, {"_id": namespace}, session=session)
        if not entry or next(iter(entry["key"]), None) != stored.get("gh", GH_FIELD):
            return ()
        own = {"uuid": entry["uuid"]}
        chunks = yield from listed(config["chunks"].find, own, sort=[("min", 1)], session=session)
    except OperationFailure:
        return ()  # an ordinary user may not look there; it only serves predictions
    ranges: list[ShardRange] = []
    for chunk in chunks:
        low, high = (next(iter(chunk[side].values())) for side in ("min", "max"))
        lo = "" if isinstance(low, MinKey) else str(low)
        hi = END_OF_STRINGS if isinstance(high, MaxKey) else str(high)
        if ranges and ranges[-1].shard == chunk["shard"]:
            ranges[-1] = ShardRange(ranges[-1].lo, hi, chunk["shard"])
        else:
            ranges.append(ShardRange(lo, hi, chunk["shard"]))
    return tuple(ranges)


class InfoCache:
    """Infos by namespace, each for a while. One of these belongs to one client."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self._expiry_s = expiry_s
        self._items: dict[tuple[str, bool], tuple[float, CollectionInfo]] = {}
        self._lock = threading.Lock()

    def info(self, collection: Any, *, trust_gh: bool = False) -> Steps[CollectionInfo]:
        """The info of a collection, read anew when it is too old."""
        key = (f"{collection.database.name}.{collection.name}", trust_gh)
        with self._lock:
            found = self._items.get(key)
        if found is not None and time.monotonic() - found[0] < self._expiry_s:
            return found[1]
        info = yield from load_info(collection, trust_gh=trust_gh)
        if info.passing:
            return info  # of this query only
        if found is not None and found[1].same_as(info):
            info = found[1]  # with the plans that were made, and what was learnt
        elif found is not None and found[1].same_points(info):
            info = replace(info, experience=found[1].experience)  # chunks have moved, or there is a new index
        with self._lock:
            self._items[key] = (time.monotonic(), info)
        return info

    def forget(self, namespace: str) -> None:
        """Read the info of a collection anew next time."""
        with self._lock:
            for key in [key for key in self._items if key[0] == namespace]:
                del self._items[key]
