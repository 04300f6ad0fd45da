"""Documents read in several commands that count as one find, and what the server says of the undecided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import bson
from bson.codec_options import TypeRegistry

from spatialnosql.calm import calm_find
from spatialnosql.deadline import Deadline
from spatialnosql.info import CollectionInfo
from spatialnosql.projection import Widened
from spatialnosql.steps import Call, Steps, listed, together

_ASKED_AT_ONCE = 1_000
FIRST_BATCH = 101
"""How many documents the server sends first unless it is told otherwise."""
LATER_BATCHES = 8_000
"""How many are asked for at a time after that."""
_NO_TYPES = TypeRegistry()


def can_settle_documents(collection: Any) -> bool:
    """Whether the client can read the collection's documents, and take out again what was added to a projection.

    With types of the caller's own even a geohash may be something else here, and an ``_id`` that cannot be sent back.
    """
    codec = collection.codec_options
    return issubclass(codec.document_class, MutableMapping) and codec.type_registry == _NO_TYPES


class Reader:
    """Finds in a collection with the options of one find, and one time limit over all of them."""

    def __init__(
        self, collection: Any, info: CollectionInfo, options: Mapping[str, Any], widened: Widened
    ) -> None:
        self.collection, self.info, self.widened = collection, info, widened
        dropped = ("filter", "projection", "skip", "limit", "max_time_ms", "sort", "hint", "batch_size")
        self._options = {name: value for name, value in options.items() if name not in dropped}
        self.deadline = Deadline(options.get("max_time_ms"))

    def find(self, filter: Mapping[str, Any], hint: str | None, **options: Any) -> Any:
        """A cursor, with the fields that the client needs."""
        given = {"projection": self.widened.projection, **options}
        return calm_find(self.collection, filter, **self._given(hint), **given)

    def confirmed(
        self, documents: list[Any], tests: Mapping[str, Any], hint: str | None
    ) -> Steps[list[bool]]:
        """Which of some documents meet conditions: the server says so."""
        gh = self.info.gh
        known: set[bytes] = set()
        hashes = sorted({document[gh] for document in documents})
        for start in range(0, len(hashes), _ASKED_AT_ONCE):
            some = {gh: {"$in": hashes[start : start + _ASKED_AT_ONCE]}}
            asked = {**tests, "$and": [*tests.get("$and", ()), some]}
            answers = yield from listed(self.collection.find, asked, {"_id": 1, gh: 1}, **self._given(hint))
            known.update(self._name(answer) for answer in answers)
        return [self._name(document) in known for document in documents]

    def _given(self, hint: str | None) -> dict[str, Any]:
        given = dict(self._options)
        left = self.deadline.remaining_ms()
        if left is not None:
            given["max_time_ms"] = left
        if hint is not None:
            given["hint"] = hint
        return given

    def _name(self, document: Any) -> bytes:
        # An _id may be of any type, and is unique only together with gh.
        codec = self.collection.codec_options
        return bson.encode({"": document["_id"], "gh": document[self.info.gh]}, codec_options=codec)


def next_documents(
    cursors: list[Any], batch_size: int, work: Callable[[], object] | None = None
) -> Steps[list[list[Any]]]:
    """The next batch of each cursor, side by side; nothing of one that is at its end.

    A `batch_size` of 0 is a small first batch, as the server has it, then many documents at a time. Any other is that
    of this batch: the next may have another. `work` is done while the servers are busy.
    """
    calls = []
    for cursor in cursors:
        size = batch_size
        if cursor.retrieved:
            size = size or LATER_BATCHES // len(cursors)
            cursor.set_batches(size)
        calls.append(Call(cursor.to_list, (size or FIRST_BATCH,)))
    return (yield from together(calls, work=work))
