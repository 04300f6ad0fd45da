"""Bulk writes that keep ``gh`` true, with the result and the errors of a single ``bulk_write``.

Requests that cannot move a document go to the server together. One that may move a document must be alone in its
batch, and one that needs the current location is done in steps. What comes back is merged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypeAlias

from pymongo import InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, WriteConcernError, WriteError
from pymongo.results import BulkWriteResult, UpdateResult

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.steps import Steps, call
from spatialnosql.writes.documents import to_insert, with_gh
from spatialnosql.writes.moves import acknowledged, update_steps
from spatialnosql.writes.updates import plan_update

Way: TypeAlias = Literal["together", "alone", "in steps"]

_COUNTS = ("nInserted", "nUpserted", "nMatched", "nModified", "nRemoved")
_BAD_VALUE = 2


@dataclass(frozen=True)
class _Item:
    """One request: its place in the user's list, what to send, and how."""

    index: int
    request: Any
    way: Way


@dataclass
class _Merged:
    """The result of all batches so far, as pymongo keeps it."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    upserted: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    concerns: list[Any] = field(default_factory=list)

    def add(self, result: Mapping[str, Any], items: list[_Item]) -> None:
        """Add the result of a batch, whose places are those of its items."""
        for name in _COUNTS:
            self.counts[name] += result.get(name, 0)
        self.upserted += [{**one, "index": items[one["index"]].index} for one in result["upserted"]]
        self.errors += [{**one, "index": items[one["index"]].index} for one in result["writeErrors"]]
        self.concerns += result["writeConcernErrors"]

    def add_update(self, result: UpdateResult, item: _Item) -> None:
        """Add the result of an update done in steps."""
        self.counts["nMatched"] += result.matched_count
        self.counts["nModified"] += result.modified_count
        if result.did_upsert:
            self.counts["nUpserted"] += 1
            self.upserted.append({"index": item.index, "_id": result.upserted_id})

    def whole(self) -> dict[str, Any]:
        """All of it, as `bulk_write` gives it or raises it."""
        return {
            "writeErrors": sorted(self.errors, key=lambda one: int(one["index"])),
            "writeConcernErrors": self.concerns,
            **self.counts,
            "upserted": sorted(self.upserted, key=lambda one: int(one["index"])),
        }


def bulk_steps(
    collection: Any,
    requests: Any,
    info: CollectionInfo,
    *,
    ordered: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Steps[BulkWriteResult]:
    """`bulk_write` of a list of requests; `options` are pymongo's own (session, let, comment, ...)."""
    options = dict(options or {})
    items = (
        [_prepared(collection, index, request, info) for index, request in enumerate(requests)]
        if isinstance(requests, list)
        else []
    )
    if all(item.way == "together" for item in items):
        prepared = (
            [item.request for item in items] if items else requests
        )  # what is no list is pymongo's to refuse
        whole: BulkWriteResult = yield from call(collection.bulk_write, prepared, ordered=ordered, **options)
        return whole
    merged = _Merged()
    for batch in _batches(items):
        if batch[0].way == "in steps":
            yield from _in_steps(collection, batch[0], info, options, merged)
        else:
            yield from _together(collection, batch, ordered, options, merged)
        if ordered and merged.errors:
            break
    if merged.errors or merged.concerns:
        raise BulkWriteError(merged.whole())
    if not collection.write_concern.acknowledged:
        return BulkWriteResult({}, False)
    return BulkWriteResult(merged.whole(), True)


def _prepared(collection: Any, index: int, request: Any, info: CollectionInfo) -> _Item:
    codec_options = collection.codec_options
    if isinstance(request, InsertOne):
        return _Item(index, _with(request, to_insert(request._doc, info, codec_options)), "together")
    if isinstance(request, ReplaceOne):
        return _Item(index, _with(request, with_gh(request._doc, info, codec_options)), "alone")
    if not isinstance(request, (UpdateOne, UpdateMany)):
        return _Item(index, request, "together")
    many, upsert = isinstance(request, UpdateMany), bool(request._upsert)
    plan = plan_update(
        request._doc, request._filter, info, upsert=upsert, many=many, codec_options=codec_options
    )
    if plan.kind == "one by one" or (many and upsert):
        return _Item(index, request, "in steps")
    return _Item(index, _with(request, plan.update), "alone" if plan.may_move else "together")


def _with(request: Any, document: Any) -> Any:
    """The same request of another document or update. Requests have no public fields."""
    changed = copy.copy(request)
    changed._doc = document
    return changed


def _batches(items: list[_Item]) -> Iterator[list[_Item]]:
    for together, group in groupby(items, key=lambda item: item.way == "together"):
        if together:
            yield list(group)
        else:
            yield from ([item] for item in group)


def _together(
    collection: Any, items: list[_Item], ordered: bool, options: dict[str, Any], merged: _Merged
) -> Steps[None]:
    write = acknowledged(collection).bulk_write
    try:
        result = yield from call(write, [item.request for item in items], ordered=ordered, **options)
        merged.add(result.bulk_api_result, items)
    except BulkWriteError as error:
        merged.add(error.details, items)


def _in_steps(
    collection: Any, item: _Item, info: CollectionInfo, options: dict[str, Any], merged: _Merged
) -> Steps[None]:
    request = item.request
    own = {name: getattr(request, f"_{name}") for name in ("collation", "array_filters", "hint", "sort")}
    many = isinstance(request, UpdateMany)
    if many:
        del own["sort"]  # update_many knows none
    try:
        result = yield from update_steps(
            acknowledged(collection),
            request._filter,
            request._doc,
            info,
            upsert=bool(request._upsert),
            many=many,
            options={**options, **own},
        )
        merged.add_update(result, item)
    except WriteConcernError as error:
        merged.concerns.append(error.details)
    except (WriteError, UsageError) as error:
        details = (error.details if isinstance(error, WriteError) else None) or {
            "code": getattr(error, "code", None) or _BAD_VALUE,
            "errmsg": str(error),
        }
        operation = {"q": request._filter, "u": request._doc, "multi": many, "upsert": bool(request._upsert)}
        merged.errors.append({**details, "index": item.index, "op": operation})
