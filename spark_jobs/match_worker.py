"""Matching as a function over Arrow batches: what Spark's workers run.

A worker maps the index once and keeps it from task to task; the pages are shared by all workers of a machine. Of what a
task has matched its sink takes care: a collection, a Parquet file, or the rows themselves. What comes back through
Spark is one row of numbers a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.index_keeper import IndexReader, Version
from spatialnosql.subscriptions.match_store import Stored
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.text import TextRules

ID, TEXT, LNG, LAT, AT = "__id", "__text", "__lng", "__lat", "__at"
COLUMNS = (ID, TEXT, LNG, LAT, AT)
"""The columns of objects: ``AT`` in milliseconds since 1970, null for those without a time."""
WRITTEN = "__written"
"""Of objects that stream in, also when each was written, in milliseconds since 1970."""
MATCHED_AT_ONCE = 16_384

Batches = Iterator[pa.RecordBatch]


class Tally(NamedTuple):
    """What a task did; the last three are CPU seconds, and `oldest` when its first object was written, or 0."""

    rows: int = 0
    no_place: int = 0
    no_time: int = 0
    matched: int = 0
    known: int = 0
    pairs: int = 0
    buckets: int = 0
    oldest: int = 0
    text: float = 0.0
    kernel: float = 0.0
    write: float = 0.0

    @classmethod
    def together(cls, tallies: Iterable[Any]) -> Tally:
        """What several tasks did, given as rows."""
        rows = [[one[name] for name in cls._fields] for one in tallies]
        sums = cls(*map(sum, zip(*rows, strict=True))) if rows else cls()
        at = cls._fields.index("oldest")
        return sums._replace(oldest=min((row[at] for row in rows if row[at]), default=0))


NOTE = "note"
"""What else a task has to say: the file that it has written, or the matches themselves."""
TALLY_SCHEMA = StructType(
    [
        *(
            StructField(name, LongType() if kind is int else DoubleType())
            for name, kind in zip(Tally._fields, map(type, Tally()), strict=True)
        ),
        StructField(NOTE, StringType()),
    ]
)


@dataclass(frozen=True, eq=False)
class Found:
    """Objects of a batch and what they match: object ``rows[k]`` and subscription ``numbers[k]``, sorted by object."""

    batch: pa.RecordBatch
    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at: NDArray[np.int64]
    rows: NDArray[np.int64]
    numbers: NDArray[np.int32]


class Writer(Protocol):
    """What takes the matches of one task."""

    @property
    def note(self) -> str | None:
        """What else there is to say: see `NOTE`."""

    def write(self, found: Found, names: Names) -> None:
        """Take the matches of some objects."""

    def __enter__(self) -> Writer: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...

    @property
    def stored(self) -> Stored:
        """What was taken."""


class Sink(Protocol):
    """Where matches go; sent to workers."""

    def open(self, part: int) -> Writer:
        """The writer of a task."""


@dataclass(frozen=True)
class Matcher:
    """What a worker needs to know."""

    version: Version
    rules: dict[str, Any]
    now_ms: int


_readers: dict[str, IndexReader] = {}


def index_reader(matcher: Matcher) -> IndexReader:
    """The index of this process, brought to the version."""
    key = f"{matcher.version.folder} {matcher.rules}"
    if key not in _readers:
        _readers.clear()  # one index a worker
        _readers[key] = IndexReader(TextRules.from_document(matcher.rules))
    _readers[key].bring_to(matcher.version)
    return _readers[key]


def match_batches(matcher: Matcher, sink: Sink) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: objects in, one row of `TALLY_SCHEMA` out."""

    def run(batches: Batches) -> Batches:
        reader = index_reader(matcher)
        counts = dict.fromkeys(("rows", "no_place", "no_time"), 0)
        oldest: list[int] = []
        spent = dict.fromkeys(("text", "kernel", "write"), 0.0)
        with ExitStack() as stack:
            writer: Writer | None = None
            for batch in batches:
                if WRITTEN in batch.schema.names and batch.num_rows:
                    oldest.append(pc.min(batch.column(WRITTEN)).as_py() or 0)
                for start in range(0, batch.num_rows, MATCHED_AT_ONCE):
                    piece = batch.slice(start, MATCHED_AT_ONCE)
                    at, none = times(piece.column(AT), matcher.now_ms)
                    began = time.process_time()
                    offsets, terms = reader.terms.read(piece.column(TEXT))
                    read = time.process_time()
                    lng, lat = coordinates(piece)
                    objects = Objects.of(lng, lat, at, offsets, terms)
                    rows, numbers = reader.index.match_objects(objects)
                    matched = time.process_time()
                    if rows.size:
                        writer = writer or stack.enter_context(sink.open(task_part()))
                        writer.write(Found(piece, lng, lat, at, rows, numbers), reader.names)
                    counts["rows"] += piece.num_rows
                    counts["no_place"] += int((objects.x < 0).sum())
                    counts["no_time"] += none
                    spent["text"] += read - began
                    spent["kernel"] += matched - read
                    spent["write"] += time.process_time() - matched
            before = time.process_time()
            stack.close()  # here, not at the end of the block: it is part of the work
            spent["write"] += time.process_time() - before
        yield tally_row(writer, {**counts, "oldest": min(filter(None, oldest), default=0)}, spent)

    return run


def tally_row(writer: Writer | None, counts: Mapping[str, int], spent: Mapping[str, float]) -> pa.RecordBatch:
    """One row of `TALLY_SCHEMA`: what a task did, and what its writer stored."""
    stored = writer.stored if writer is not None else Stored()
    found = {"matched": stored.objects + stored.known, "known": stored.known}
    found |= {"pairs": stored.pairs, "buckets": stored.buckets}
    tally = {**Tally()._asdict(), **found, **counts, **spent}
    columns = {name: pa.array([value]) for name, value in tally.items()}
    note = writer.note if writer is not None else None
    return pa.record_batch({**columns, NOTE: pa.array([note], pa.string())})


def task_part() -> int:
    """The number of the task that runs this, among those of its stage."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def coordinates(batch: pa.RecordBatch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitudes and latitudes, NaN for nulls."""
    lng, lat = (batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in (LNG, LAT))
    return lng, lat


def times(column: pa.Array, now_ms: int) -> tuple[NDArray[np.int64], int]:
    """Times, now for nulls; and how many were null."""
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(now_ms).to_numpy(zero_copy_only=False)
    return found, column.null_count
