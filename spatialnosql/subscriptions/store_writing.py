"""Subscriptions written in bulk: added, changed, or left as they are, by their ids.

Each write is one update by id that the server itself decides on: it keeps a document that has the same content, so that
adding again changes nothing, and otherwise puts the new one in its place with the server's time in ``changed``. Batches
are written by a few threads, since a client waits for the server longer than it works.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection

from spatialnosql.subscriptions.model import Subscription

Documents = Collection[dict[str, Any]]

WRITTEN_AT_ONCE = 1_000
WRITERS = 3
MOST_LISTED = 1_000
"""Bad ones are counted; so many are listed with their reasons."""

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
    pending: deque[Future[tuple[int, int, int]]] = deque()

    def settle_one() -> None:
        added, changed, unchanged = pending.popleft().result()
        done.added += added
        done.changed += changed
        done.unchanged += unchanged
        written(added + changed + unchanged)

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="subscriptions") as writers:
        for batch in _batches(subscriptions):
            pending.append(writers.submit(_write, collection, batch))
            if len(pending) > WRITERS:
                settle_one()
        while pending:
            settle_one()


def _batches(subscriptions: Iterable[Subscription]) -> Iterator[list[UpdateOne]]:
    given = iter(subscriptions)
    while batch := [_update(one) for one in islice(given, WRITTEN_AT_ONCE)]:
        yield batch


def _update(one: Subscription) -> UpdateOne:
    both = {"$replaceWith": {"old": "$$ROOT", "new": {"$literal": one.to_document()}}}
    return UpdateOne({"_id": one.id}, [both, _KEEP_OR_REPLACE], upsert=True)


def _write(collection: Documents, batch: list[UpdateOne]) -> tuple[int, int, int]:
    """How many are new, changed and unchanged."""
    result = collection.bulk_write(batch, ordered=False)
    return result.upserted_count, result.modified_count, result.matched_count - result.modified_count
