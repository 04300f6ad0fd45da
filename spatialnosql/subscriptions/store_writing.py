"""Subscriptions written in bulk: added, changed, or left as they are, by their ids.

What is new is inserted. Of an id that is there already the server itself decides: it keeps a document that has the same
content, so that adding again changes nothing, and otherwise puts the new one in its place. That alone would do, but an
insert costs the servers a seventh of such an update. ``changed`` is the server's time. Batches are written by a few
threads, since a client waits for the server longer than it works.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bson.codec_options import CodecOptions
from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from spatialnosql.subscriptions.model import Subscription

Documents = Collection[dict[str, Any]]
UTC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)

WRITTEN_AT_ONCE = 1_000
WRITERS = 3
SLOW_S = 10.0
"""A batch that took longer is given a later time of change."""
MOST_LISTED = 1_000
"""Bad ones are counted; so many are listed with their reasons."""

_DUPLICATE = 11000
# "old" and "new" side by side, so that the new document is sent once.
_KEEP_OR_REPLACE = {
    "$replaceWith": {
        "$cond": [
            {"$eq": [{"$unsetField": {"field": "changed", "input": "$old"}}, "$new"]},
            "$old",
            {"$mergeObjects": ["$new", {"changed": "$$NOW"}]},
        ]
    }
}


@dataclass(frozen=True)
class BadSubscription:
    """One that could not be added: which one it was, and why."""

    place: str
    reason: str


@dataclass
class Added:
    """What became of many subscriptions."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    bad_count: int = 0
    bad: list[BadSubscription] = field(default_factory=list)

    @property
    def stored(self) -> int:
        """How many are in the collection as they were given."""
        return self.added + self.changed + self.unchanged

    def note_bad(self, place: str, reason: str) -> None:
        """Count a bad one, and list it if there is room."""
        self.bad_count += 1
        if len(self.bad) < MOST_LISTED:
            self.bad.append(BadSubscription(place, reason))

    def to_document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "added": self.added,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "bad_count": self.bad_count,
            "bad": [{"place": one.place, "reason": one.reason} for one in self.bad],
        }


def write_subscriptions(
    collection: Documents,
    subscriptions: Iterable[Subscription],
    done: Added,
    written: Callable[[int], None],
) -> None:
    """Write subscriptions of distinct ids, in any order; `written` hears of each batch."""
    writer = _Writer(collection)
    pending: deque[Future[_Counts]] = deque()

    def settle_one() -> None:
        counts = pending.popleft().result()
        done.added += counts.added
        done.changed += counts.changed
        done.unchanged += counts.unchanged
        written(counts.added + counts.changed + counts.unchanged)

    given = iter(subscriptions)
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="subscriptions") as threads:
        while batch := [one.to_document() for one in islice(given, WRITTEN_AT_ONCE)]:
            pending.append(threads.submit(writer.write, batch))
            if len(pending) > WRITERS:
                settle_one()
        while pending:
            settle_one()


def server_time(collection: Collection[Any]) -> dt.datetime:
    """The time on the server, in UTC."""
    hello = collection.database.client.admin.command("hello", codec_options=UTC)
    local: dt.datetime = hello["localTime"]
    return local


@dataclass(frozen=True)
class _Counts:
    added: int = 0
    changed: int = 0
    unchanged: int = 0


class _Writer:
    """Writes batches of documents, from several threads."""

    def __init__(self, collection: Documents) -> None:
        self._collection = collection
        self._expect_new = True  # as the last batch was

    def write(self, batch: list[dict[str, Any]]) -> _Counts:
        """Insert what is new, and update the rest."""
        if not self._expect_new:
            counts = self._update(batch)
            self._expect_new = counts.added > len(batch) / 2
            return counts
        there = self._insert(batch)
        if not there:
            return _Counts(added=len(batch))
        self._expect_new = len(there) <= len(batch) / 2
        counts = self._update([batch[number] for number in there])
        return _Counts(len(batch) - len(there) + counts.added, counts.changed, counts.unchanged)

    def _insert(self, batch: list[dict[str, Any]]) -> list[int]:
        """Insert documents; the numbers of those whose ids are there already."""
        began = time.monotonic()
        now = server_time(self._collection)
        there: list[int] = []
        try:
            self._collection.insert_many([{**document, "changed": now} for document in batch], ordered=False)
        except BulkWriteError as error:
            errors = error.details["writeErrors"]
            if error.details.get("writeConcernErrors") or any(one["code"] != _DUPLICATE for one in errors):
                raise
            there = [one["index"] for one in errors]
        if time.monotonic() - began > SLOW_S:
            # Whoever follows the changes may have read on past that time: say a later one.
            ids = {document["_id"] for document in batch} - {batch[number]["_id"] for number in there}
            self._collection.update_many({"_id": {"$in": [*ids]}}, [{"$set": {"changed": "$$NOW"}}])
        return there

    def _update(self, batch: list[dict[str, Any]]) -> _Counts:
        updates = [
            UpdateOne(
                {"_id": document["_id"]},
                [{"$replaceWith": {"old": "$$ROOT", "new": {"$literal": document}}}, _KEEP_OR_REPLACE],
                upsert=True,
            )
            for document in batch
        ]
        result = self._collection.bulk_write(updates, ordered=False)
        unchanged = result.matched_count - result.modified_count
        return _Counts(result.upserted_count, result.modified_count, unchanged)
