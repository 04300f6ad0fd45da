"""Matching in partitions as functions over Arrow batches: dispatch, match, merge; what Spark's workers run.

Between them Spark moves the rows: objects to the partitions that may hold what they match, then every object's matches
to one place, where those found twice are dropped and the sink takes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.match_worker import (
    AT,
    COLUMNS,
    ID,
    LAT,
    LNG,
    MATCHED_AT_ONCE,
    TEXT,
    Batches,
    Found,
    Matcher,
    Sink,
    Writer,
    coordinates,
    index_reader,
    tally_row,
    task_part,
    times,
)
from spatialnosql.subscriptions.balancing.shedding import Shedding, left_out
from spatialnosql.subscriptions.balancing.strategies import route_by
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.routes import Routes, merge_matches
from spatialnosql.subscriptions.partitioning.stored import Parts, open_dispatcher, open_partition

PART, TERMS, NUMBERS = "__part", "__terms", "__numbers"
"""The partition that an object is sent to, its terms, and the subscriptions that it matches, as 32-bit numbers."""


class Watcher(Protocol):
    """What is told how a matching goes, in the workers; sent to them."""

    def dispatched(self, objects: Objects, sent: Routes) -> None:
        """Objects were sent."""

    def shed(self, sends: int, objects: int) -> None:
        """Under overload so many objects were not sent to all of their partitions; so many sends were left out."""

    def matched(self, partition: int, objects: int, seconds: float) -> None:
        """A partition has matched some, in so many seconds of CPU."""


_dispatchers: dict[tuple[str, ...], list[Dispatcher]] = {}
_partitions: dict[str, tuple[Index, NDArray[np.int32]]] = {}


def dispatch_batches(
    matcher: Matcher, parts: Parts, watcher: Watcher | None = None, shedding: Shedding | None = None
) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: objects in, objects with `PART` and `TERMS` out, one row for each partition they go to."""

    def run(batches: Batches) -> Batches:
        reader = index_reader(matcher)
        if parts.dispatchers not in _dispatchers:
            _dispatchers.clear()
            _dispatchers[parts.dispatchers] = [open_dispatcher(Path(name)) for name in parts.dispatchers]
        dispatchers = _dispatchers[parts.dispatchers]
        for batch in batches:
            for start in range(0, batch.num_rows, MATCHED_AT_ONCE):
                piece = batch.slice(start, MATCHED_AT_ONCE)
                at, _ = times(piece.column(AT), matcher.now_ms)
                offsets, terms = reader.terms.read(piece.column(TEXT))
                objects = Objects.of(*coordinates(piece), at, offsets, terms)
                routes = route_by(dispatchers, objects)
                if watcher is not None:
                    watcher.dispatched(objects, routes)
                if shedding is not None:
                    whole, routes = routes, shedding.limited(dispatchers, objects, routes)
                    if watcher is not None:
                        watcher.shed(*left_out(whole, routes))
                rows, partition = routes.pairs()
                taken = pa.array(rows)
                columns = {name: piece.column(name).take(taken) for name in (ID, TEXT, LNG, LAT)}
                columns[AT] = pa.array(at[rows])
                columns[TERMS] = _packed(offsets, terms).take(taken)
                yield pa.record_batch({PART: pa.array(partition), **columns})

    return run


def match_part_batches(parts: Parts, watcher: Watcher | None = None) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: what was sent to a partition in, its matched objects with `NUMBERS` out."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            partition = batch.column(PART).to_numpy()
            for number in np.unique(partition).tolist():
                piece = batch.filter(pa.array(partition == number))
                index, numbers_of = _partition(parts, number)
                offsets, terms = _unpacked(piece.column(TERMS))
                at = piece.column(AT).to_numpy()
                began = time.process_time()
                rows, numbers = index.match_objects(Objects.of(*coordinates(piece), at, offsets, terms))
                if watcher is not None:
                    watcher.matched(number, piece.num_rows, time.process_time() - began)
                bounds = np.flatnonzero(np.diff(rows, prepend=-1))
                taken = piece.select(list(COLUMNS)).take(pa.array(rows[bounds]))
                packed = _packed(np.append(bounds, rows.size), numbers_of[numbers])
                yield pa.record_batch([*taken.columns, packed], names=[*COLUMNS, NUMBERS])

    return run


def merge_batches(matcher: Matcher, sink: Sink) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: matched objects sorted by all of `COLUMNS` in, one row of `TALLY_SCHEMA` out."""

    def run(batches: Batches) -> Batches:
        names = index_reader(matcher).names
        began = time.process_time()
        with ExitStack() as stack:
            writer: Writer | None = None
            for batch in _whole_objects(batches):
                writer = writer or stack.enter_context(sink.open(task_part()))
                writer.write(_merged(batch), names)
            stack.close()
        yield tally_row(writer, {}, {"write": time.process_time() - began})

    return run


def _merged(batch: pa.RecordBatch) -> Found:
    """Objects whose matches may come in several rows, each once with all of its matches."""
    object_of = np.cumsum(_begins(batch)) - 1
    offsets, numbers = _unpacked(batch.column(NUMBERS))
    rows, found = merge_matches([(np.repeat(object_of, np.diff(offsets)), numbers.astype(np.int64))])
    first = batch.filter(pa.array(np.diff(object_of, prepend=-1) != 0))
    lng, lat = coordinates(first)
    return Found(first, lng, lat, first.column(AT).to_numpy(), rows, found.astype(np.int32))


def _whole_objects(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that no object is parted by."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if held is not None:
            batch = pa.concat_batches([held, batch])
        if not batch.num_rows:
            continue
        last = int(np.flatnonzero(_begins(batch))[-1])
        if last:
            yield batch.slice(0, last)
        held = batch.slice(last)
    if held is not None:
        yield held


def _begins(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which rows are of another object than the row before."""
    begins = np.ones(batch.num_rows, dtype=np.bool_)
    if batch.num_rows > 1:
        begins[1:] = False
        for name in COLUMNS:
            column = batch.column(name)
            differs = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
            # Null beside null is the same, null beside something is not.
            nulls = pc.not_equal(pc.is_null(column.slice(1)), pc.is_null(column.slice(0, len(column) - 1)))
            begins[1:] |= pc.or_(pc.fill_null(differs, False), nulls).to_numpy(zero_copy_only=False)
    return begins


def _partition(parts: Parts, number: int) -> tuple[Index, NDArray[np.int32]]:
    name = parts.partitions[number]
    if name not in _partitions:
        _partitions.clear()  # one partition a worker: that is what they are for
        _partitions[name] = open_partition(Path(name))
    return _partitions[name]


def _packed(offsets: NDArray[np.int64], numbers: NDArray[np.int32]) -> Any:
    """Lists of 32-bit numbers as an Arrow array of bytes, which Spark moves without looking at them."""
    buffers = [
        pa.py_buffer((offsets * 4).astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(numbers, "<i4")),
    ]
    return pa.BinaryArray.from_buffers(pa.binary(), offsets.size - 1, [None, *buffers])


def _unpacked(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Such lists again: list i is ``numbers[offsets[i]:offsets[i + 1]]``."""
    if not len(column):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32)
    wide = column.cast(pa.large_binary())
    bounds = np.frombuffer(wide.buffers()[1], dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    content = wide.buffers()[2]
    data = np.frombuffer(content, dtype="<i4") if content is not None else np.zeros(0, dtype=np.int32)
    return (bounds - bounds[0]) // 4, data[bounds[0] // 4 : bounds[-1] // 4]
