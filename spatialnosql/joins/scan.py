"""The documents of points, read for a join: one find, batch by batch, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import bson
import numpy as np
from bson.codec_options import CodecOptions

from spatialnosql.collection import SpatialCollection
from spatialnosql.cover import Ranges
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.points import JoinPoints
from spatialnosql.one_moment import with_session
from spatialnosql.projection import Widened, widened
from spatialnosql.reading import Reader, can_settle_documents, next_documents
from spatialnosql.steps import Steps, call
from spatialnosql.writes.documents import PLAIN

MOST_RANGES = 1_000
"""In one find: some 60 kB."""
_OPTIONS = ("session", "comment", "max_time_ms", "sort", "hint", "allow_disk_use", "no_cursor_timeout")


@dataclass(frozen=True)
class Reading:
    """How the documents of a collection are read so that a join understands them, and given back as asked for."""

    collection: Any
    widened: Widened
    codec: CodecOptions[Any] | None = None  # the caller's own, if documents are read in another

    @classmethod
    def of(cls, source: Any, widened: Widened) -> Reading:
        """For a pymongo collection or a `SpatialCollection`."""
        own = source._collection if isinstance(source, SpatialCollection) else source
        if can_settle_documents(own):
            return cls(own, widened)
        # What the caller's own types make of a geohash or an _id nobody knows: such documents are decoded twice.
        return cls(own.with_options(codec_options=PLAIN), widened, own.codec_options)

    def given_back(self, documents: list[Any]) -> list[Any]:
        """Documents as the caller asked for them."""
        documents = self.widened.strip(documents)
        if self.codec is None:
            return documents
        return [bson.decode(bson.encode(one, codec_options=PLAIN), self.codec) for one in documents]


class Scan:
    """A find whose documents have what a join needs."""

    def __init__(
        self, points: JoinPoints, reading: Reading, batch_size: int, options: Mapping[str, Any]
    ) -> None:
        self._points, self._reading, self.info = points, reading, points.info
        self._batch_size = checked_batch_size(batch_size)
        self._options = with_session(reading.collection.database.client, checked_options(options))
        self.given_back = reading.given_back
        self.reader = Reader(reading.collection, points.info, self._options, reading.widened)
        self._asked: tuple[dict[str, Any], Any, dict[str, Any]] = ({}, None, {})
        with self.reader.deadline.counted():
            pass  # what follows until the first read is no time of the server's

    @property
    def for_aggregates(self) -> dict[str, Any]:
        """The options that other commands of the same call have too."""
        return {name: self._options[name] for name in ("session", "comment") if name in self._options}

    @property
    def in_session(self) -> bool:
        """Whether commands must be sent one after the other."""
        return self._options.get("session") is not None

    def open(self, condition: Mapping[str, Any], *, by_gh: bool) -> None:
        """Say which documents are to be read; `by_gh` if the index of ``gh`` is the best way to them."""
        given: dict[str, Any] = {"batch_size": self._batch_size}
        if self._options.get("sort"):
            given["sort"] = self._options["sort"]
        hint = self._options.get("hint")
        if hint is None and by_gh and not self._points.filter and "sort" not in given:
            hint = self.info.gh_index
        self._asked = self._points.matching(condition), hint, given

    @cached_property
    def cursor(self) -> Any:
        """The server's cursor, made when it is first read."""
        filter_, hint, given = self._asked
        return self.reader.find(filter_, hint, **given)

    def next_documents(self) -> Steps[list[Any]]:
        """The next batch; nothing at the end."""
        (documents,) = yield from next_documents([self.cursor], self._batch_size)
        return documents


class ScanSource:
    """What is made of the documents of a scan, batch by batch; a `Source` of `Found`."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    def answers(self, documents: list[Any]) -> Steps[list[Any]]:
        """What comes of a batch."""
        raise NotImplementedError

    @property
    def cursor_id(self) -> int | None:
        """Of the server's cursor."""
        return self.scan.cursor.cursor_id  # type: ignore[no-any-return]

    @property
    def address(self) -> tuple[str, int] | None:
        """Of the server."""
        return self.scan.cursor.address  # type: ignore[no-any-return]

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """What comes of the next batch."""
        del everything  # a batch at a time, whoever asks
        documents = yield from self.scan.next_documents()
        return (yield from self.answers(documents)) if documents else None

    def explained(self) -> Steps[Any]:
        """What the server says of the find."""
        return (yield from call(self.scan.cursor.explain))

    def close(self) -> Steps[None]:
        """Let the server forget the cursor."""
        yield from call(self.scan.cursor.close)


def needed_of(projection: Any, info: CollectionInfo, *, place: bool, more: tuple[str, ...] = ()) -> Widened:
    """A projection with what a join needs beside, and `more`; with `place` it cannot do without the location."""
    if projection is not None and not isinstance(projection, Mapping):
        if isinstance(projection, str) or not isinstance(projection, Iterable):
            raise UsageError(f"a projection is a document or a list of names, not {projection!r:.60}")
        projection = dict.fromkeys(projection, 1)
    # Of a location within another document, that document: a path is not so easily taken out again.
    root = info.location.partition(".")[0]
    keys = ("_id", info.gh, *more)
    found = widened(projection, (*keys, root)) or (None if place else widened(projection, keys))
    if found is None:
        raise UsageError(
            f"a projection of {projection!r:.80} cannot be joined: name fields to include or fields to exclude"
            + (f", and {root!r} as a whole or not at all" if place else ", no expressions")
        )
    return found


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a find that a join can have, under the names that a find has for them."""
    names = {"maxTimeMS": "max_time_ms", "allowDiskUse": "allow_disk_use"}
    given = {names.get(name, name): value for name, value in options.items()}
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(f"there is no option {name!r}; there are {', '.join(_OPTIONS)}")
    return given


def checked_batch_size(batch_size: Any) -> int:
    """How many documents are read at a time; 0 leaves it to the server."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 0:
        raise UsageError(f"batch_size is {batch_size!r}; it must be a number of documents, 0 for the default")
    return batch_size


def checked_how(how: Any) -> bool:
    """Whether documents without any polygon come too: "left"; with "inner" they do not."""
    if how not in ("inner", "left"):
        raise UsageError(f"how is {how!r}; it must be 'inner' or 'left'")
    return bool(how == "left")


def ranges_to_read(ranges: Ranges, info: CollectionInfo, most: int = MOST_RANGES) -> Ranges:
    """Ranges joined over gaps that are cheaper to read than a range costs, and in any case no more than `most`."""
    costs = info.costs
    if info.histogram is not None and len(ranges) > 1:
        document_ms = costs.key_ms + costs.fetch_ms + costs.return_ms
        ranges = ranges.bridged(info.histogram, costs.range_ms / document_ms)[0]
    return _limited(ranges, info.histogram, most)


def _limited(ranges: Ranges, histogram: Histogram | None, most: int) -> Ranges:
    """Joined over the gaps that hold least, until there are few enough ranges."""
    if len(ranges) <= most:
        return ranges
    gaps = (ranges.lo[1:] - ranges.hi[:-1]).astype(np.float64)
    if histogram is not None:
        gaps = histogram.points_in(ranges.hi[:-1], ranges.lo[1:])
    open_ = np.sort(np.argsort(gaps, kind="stable")[gaps.size - (most - 1) :])
    first, last = np.concatenate([[0], open_ + 1]), np.concatenate([open_, [len(ranges) - 1]])
    return Ranges(ranges.lo[first], ranges.hi[last])
