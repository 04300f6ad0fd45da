"""Following the matches of one owner as they are stored, by a change stream that may be resumed after any of them.

The server resumes after an event, and an event is a whole bucket. So the token of a match in the middle of a bucket
says after which event the bucket came, and how many of its matches were told: the bucket comes again and those are left
out. An event has the bucket as it was inserted, so that this holds even if it has been deleted since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from types import TracebackType
from typing import Any, TypeAlias

from bson import json_util
from pymongo.change_stream import CollectionChangeStream
from pymongo.errors import OperationFailure

from spatialnosql.errors import HistoryLost, UsageError
from spatialnosql.subscriptions.match_names import Documents
from spatialnosql.subscriptions.match_objects import LOOKED_UP_AT_ONCE, Match, Row, rows_to_matches

MAX_AWAIT_MS = 1_000
"""How long the server waits for news before it says that there are none."""
_FORGOTTEN = frozenset({280, 286})  # ChangeStreamFatalError: no such token; ChangeStreamHistoryLost
_NO_OPLOG = 40573

Token: TypeAlias = Mapping[str, Any]
Stream: TypeAlias = CollectionChangeStream[dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """Where a watch stands: after an event, and perhaps after some matches of the bucket that came next."""

    after: Token
    bucket: str | None = None
    done: int = 0


class Watch:
    """The matches of an owner that are stored from now on: bucket after bucket, those of a bucket in the order of time.

    Iterating blocks until there is one. The collection need not exist yet, and may be dropped and made again. After an
    error of the network it may be asked again, and goes on where it was.

    >>> with alerts.watch("ann", resume_after=saved) as watch:
    ...     for match in watch:
    ...         print(match.text)
    ...         saved = watch.resume_token
    """

    def __init__(
        self,
        buckets: Documents,
        objects: Documents,
        owner: str,
        resume_after: str | None = None,
        max_await_ms: int = MAX_AWAIT_MS,
    ) -> None:
        if max_await_ms < 1:
            raise UsageError(f"max_await_ms is {max_await_ms}; it must be 1 or more")
        self.owner = owner
        self._buckets = buckets
        self._objects = objects
        self._max_await_ms = max_await_ms
        self._left: deque[Row] = deque()  # of the bucket that came last
        self._ready: deque[Match] = deque()  # of those, the next ones, with their texts
        self._closed = False
        resumed = None if resume_after is None else read_token(resume_after, buckets.full_name, owner)
        # Opened now: what is stored once the watch is made is told, however late it is asked.
        self._stream = self._open(resumed.after if resumed else None)
        self._place = resumed or Place(_token(self._stream))

    @property
    def resume_token(self) -> str:
        """Text that makes another watch go on after the last match that was told.

        It changes without matches too, when the server says that there are none. Keep it now and then: of old ones the
        server knows nothing any more.
        """
        return write_token(self._place, self._buckets.full_name, self.owner)

    def try_next(self) -> Match | None:
        """The next match; None if none came within `max_await_ms`, or the watch is closed."""
        while not self._closed and not self._ready:
            if self._left:
                self._look_up()
            elif not self._receive():
                return None
        return None if self._closed else self._tell()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Match:
        while not self._closed:
            match = self.try_next()
            if match is not None:
                return match
        raise StopIteration

    def close(self) -> None:
        """End it; the resume token stays."""
        self._closed = True
        self._stream.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, after: Token | None) -> Stream:
        """A stream of buckets; its first batch is empty, which makes the server say where it begins."""
        inserted = {"operationType": "insert", "fullDocument.owner": self.owner}
        with self._explained():
            return self._buckets.watch(
                [{"$match": {"$or": [inserted, {"operationType": "invalidate"}]}}],
                start_after=after,  # resume_after would not do after a drop
                max_await_time_ms=self._max_await_ms,
                batch_size=0,
            )

    def _receive(self) -> bool:
        """Ask for the next bucket; whether it is worth asking again."""
        if not self._stream.alive:  # dropped, or an error has closed it
            self._stream = self._open(self._place.after)
        with self._explained():
            event = self._stream.try_next()
        if event is None:
            self._place = replace(self._place, after=_token(self._stream))
            return False
        if event["operationType"] == "invalidate":  # the collection was dropped
            self._stream.close()
            self._place = Place(event["_id"])
            return True
        bucket = event["fullDocument"]
        done = self._place.done if self._place.bucket == bucket["_id"] else 0
        self._left.extend((bucket, match) for match in bucket["matches"][done:])
        self._place = Place(self._place.after, bucket["_id"], done) if self._left else self._after_bucket()
        return True

    def _look_up(self) -> None:
        batch = [*islice(self._left, LOOKED_UP_AT_ONCE)]
        self._ready.extend(rows_to_matches(self._objects, batch))
        for _ in batch:  # only now: an error before leaves everything as it was
            self._left.popleft()

    def _tell(self) -> Match:
        match = self._ready.popleft()
        more = self._ready or self._left
        self._place = replace(self._place, done=self._place.done + 1) if more else self._after_bucket()
        return match

    def _after_bucket(self) -> Place:
        return Place(_token(self._stream))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the server says, in words that say what to do."""
        try:
            yield
        except OperationFailure as error:
            if error.code in _FORGOTTEN:
                raise HistoryLost(
                    f"the watch of {self.owner!r} cannot go on where it was: {self._buckets.full_name} was watched too "
                    "long ago, and the servers' oplogs no longer reach back to then; read what may be missing with "
                    f"matches({self.owner!r}, since=...), and watch anew without a resume token"
                ) from error
            if error.code == _NO_OPLOG:
                raise UsageError(
                    "only a replica set or a sharded cluster can be watched, and this MongoDB is a standalone; read "
                    f"matches({self.owner!r}, since=...) now and then instead"
                ) from error
            raise


def write_token(place: Place, collection: str, owner: str) -> str:
    """A place as text, with what it is a place in."""
    return json_util.dumps({"watched": collection, "owner": owner, **asdict(place)})


def read_token(text: str, collection: str, owner: str) -> Place:
    """A place from its text; an error if it is one in the matches of somebody else."""
    try:
        document = json_util.loads(text)
        place = Place(dict(document["after"]), document["bucket"], int(document["done"]))
        of = document["watched"], document["owner"]
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{text!r:.80} is no resume token of a watch") from error
    if of != (collection, owner):
        raise UsageError(
            f"the resume token is of {of[1]!r} in {of[0]}, not of {owner!r} in {collection}; give each watch its own"
        )
    return place


def _token(stream: Stream) -> Token:
    token = stream.resume_token
    assert token is not None, "servers since 4.2 say it with every batch"
    return token
