"""The matches of an owner: read in the order of time, counted, watched, forgotten.

A bucket of ``city.alerts_matches`` is ``{_id: "<task>/1/<owner>", owner, task, stored, first, last, matches: [{id,
object, at}, ...]}``: the matches of one owner in one task of a job, in the order of ``at``. Buckets overlap in time.
"""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pymongo.collection import Collection

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.match_names import matched_collection, matches_collection
from spatialnosql.subscriptions.match_objects import LOOKED_UP_AT_ONCE, Bucket, Match, Row, rows_to_matches
from spatialnosql.subscriptions.match_watch import MAX_AWAIT_MS, Watch
from spatialnosql.subscriptions.model import moment_of, name_of
from spatialnosql.subscriptions.store_writing import UTC

__all__ = ["Forgotten", "Match", "Matches", "Watch"]

Moment = dt.datetime | str
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class Forgotten:
    """What was deleted: buckets of matches, and objects."""

    buckets: int
    objects: int


class Matches:
    """What matched the subscriptions of a collection.

    >>> for match in Matches(client.city.alerts).of("ann", since="2026-11-17T00:00:00Z"):
    ...     print(match.at, match.subscription, match.text)
    """

    def __init__(self, subscriptions: Collection[Any]) -> None:
        subscriptions = subscriptions.with_options(codec_options=UTC)
        self.buckets = matches_collection(subscriptions)
        self.objects = matched_collection(subscriptions)

    def of(
        self,
        owner: str,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Match]:
        """The matches of an owner whose objects happened in ``[since, until)``, in that order.

        Read as they are asked for; of the buckets, those that overlap in time are held in memory at once.
        """
        which = _which(owner, since, until)
        if limit is not None and limit < 0:
            raise UsageError(f"limit is {limit}; it must be 0 or more, or None for all")
        if limit == 0:
            return iter(())
        if newest_first:
            found = self.buckets.find(which).sort([("last", -1), ("_id", -1)])
            if limit is not None and until is None:
                # The last of each bucket is in the range, so that the newest n are in the n buckets that end last.
                found = found.limit(limit)
        else:
            found = self.buckets.find(which).sort([("first", 1), ("_id", 1)])
        rows = merged(_cut(found, since, until), newest_first)
        return self._looked_up(islice(rows, limit))

    def count(self, owner: str, since: Moment | None = None, until: Moment | None = None) -> int:
        """How many matches of an owner happened in ``[since, until)``; counted by the server."""
        tests = []
        if since is not None:
            tests.append({"$gte": ["$$this.at", moment_of(since, "since")]})
        if until is not None:
            tests.append({"$lt": ["$$this.at", moment_of(until, "until")]})
        inside = {"$filter": {"input": "$matches", "cond": {"$and": tests}}} if tests else "$matches"
        total = {"$group": {"_id": None, "count": {"$sum": {"$size": inside}}}}
        found = self.buckets.aggregate([{"$match": _which(owner, since, until)}, total]).to_list()
        return int(found[0]["count"]) if found else 0

    def watch(self, owner: str, resume_after: str | None = None, max_await_ms: int = MAX_AWAIT_MS) -> Watch:
        """Follow the matches of an owner that are stored from now on, or after a watch's `resume_token`."""
        return Watch(self.buckets, self.objects, name_of(owner, "owner"), resume_after, max_await_ms)

    def forget(self, before: Moment) -> Forgotten:
        """Delete, of all owners, buckets whose matches all happened before a moment, and objects that did.

        A bucket with a later match stays as it is; of its earlier matches the texts are gone.
        """
        moment = moment_of(before, "before")
        buckets = self.buckets.delete_many({"last": {"$lt": moment}}).deleted_count
        return Forgotten(buckets, self.objects.delete_many({"at": {"$lt": moment}}).deleted_count)

    def drop(self) -> None:
        """Drop both collections."""
        self.buckets.drop()
        self.objects.drop()

    def _looked_up(self, rows: Iterator[Row]) -> Iterator[Match]:
        while batch := list(islice(rows, LOOKED_UP_AT_ONCE)):
            yield from rows_to_matches(self.objects, batch)


def merged(buckets: Iterable[Bucket], newest_first: bool = False) -> Iterator[Row]:
    """The matches of buckets in the order of time; a bucket is held from the time it begins at until it is told.

    The buckets must come by ``first``, or newest first by ``last``. Matches of one moment come in the order of buckets.
    """
    sign = -1 if newest_first else 1
    begins = "last" if newest_first else "first"
    # When the next match of a bucket happened, the number of the bucket (no two are equal), itself, and what is left.
    held: list[tuple[int, int, Bucket, list[Mapping[str, Any]]]] = []

    def told_before(time_ms: float) -> Iterator[Row]:
        while held and held[0][0] < time_ms:
            _, number, bucket, left = heapq.heappop(held)
            yield bucket, left.pop()
            hold(number, bucket, left)

    def hold(number: int, bucket: Bucket, left: list[Mapping[str, Any]]) -> None:
        if left:
            heapq.heappush(held, (sign * _ms(left[-1]["at"]), number, bucket, left))

    for number, bucket in enumerate(buckets):
        yield from told_before(sign * _ms(bucket[begins]))
        hold(number, bucket, bucket["matches"][::-sign])  # taken from the end
    yield from told_before(math.inf)


def _which(owner: str, since: Moment | None, until: Moment | None) -> dict[str, Any]:
    """The buckets of an owner that reach into a range."""
    which: dict[str, Any] = {"owner": name_of(owner, "owner")}
    if since is not None:
        which["last"] = {"$gte": moment_of(since, "since")}
    if until is not None:
        which["first"] = {"$lt": moment_of(until, "until")}
    return which


def _cut(buckets: Iterable[Bucket], since: Moment | None, until: Moment | None) -> Iterator[Bucket]:
    """The buckets with only those of their matches that are in a range."""
    low = None if since is None else moment_of(since, "since")
    high = None if until is None else moment_of(until, "until")
    for bucket in buckets:
        inside = [
            one
            for one in bucket["matches"]
            if (low is None or low <= one["at"]) and (high is None or one["at"] < high)
        ]
        yield {**bucket, "matches": inside}


def _ms(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
