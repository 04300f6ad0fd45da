"""The join as functions over Arrow batches: what Spark's workers run.

Points come as batches of rows, or, from Parquet files, as the names of row groups, which the worker reads itself: so
they never pass through the JVM. Polygons are there already (broadcast), or come ahead of the points of their part.

Sent to workers as it is: numpy and pyarrow, and pymongo where a server is asked.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from spark_jobs.join_grid import Arrays
from spark_jobs.join_served import NOTES, Counter, Doubts, Notes, Server, Shape, find_pairs, make_layers
from spark_jobs.points import quoted
from spatialnosql.edges import Floats

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

X, Y = "__lng", "__lat"
PART, KIND = "__part", "__kind"
"""Of rows that are sent to their part of the curve: which, and whether they are a polygon (0) or a point (1)."""
NUMBER, IDENTITY, TABLE, POLE, MIRROR, BOUNDS, BOX, GEOMETRY = (
    "__number", "__id", "__table", "__pole", "__mirror", "__bounds", "__box", "__geometry"
)  # fmt: skip
NOTE = "__note"
COUNT_SCHEMA = StructType([StructField(name, LongType()) for name in ("number", "count", *NOTES)])
NOTE_TYPE = StructType([StructField(name, LongType()) for name in NOTES])
READ_AT_ONCE = 1 << 16

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class Served:
    """Polygons as a worker has them."""

    layers: Sequence[Arrays]
    numbers: Any  # of each polygon, in the whole
    ids: Any  # likewise, a pyarrow array
    geometries: Sequence[bytes]
    regions: dict[Any, Any]
    """What was made of polygons on the way; with a broadcast it is there for the worker's next task, too."""

    @classmethod
    def of(cls, plain: tuple[Any, ...]) -> Served:
        """From what was broadcast: plain values, for workers unpickle those without this package."""
        layers, numbers, ids, geometries, regions = plain
        return cls(layers, numbers, pa.array(ids), geometries, regions)


Stream = Iterator[tuple[Served, pa.RecordBatch]]
Streaming = Callable[[Batches], Stream]


def with_broadcast(polygons: Any) -> Streaming:
    """Batches of points as they come; all have the same polygons."""

    def stream(batches: Batches) -> Stream:
        served = Served.of(polygons.value)
        for batch in batches:
            yield served, batch

    return stream


class RowGroups(NamedTuple):
    """Consecutive row groups of a Parquet file."""

    path: str
    first: int
    groups: int  # 0: all


def from_row_groups(polygons: Any, tasks: Sequence[RowGroups], lng: str, lat: str) -> Streaming:
    """Batches of numbers of tasks, whose points are read here."""
    plain = [(task.path, task.first, task.groups) for task in tasks]

    def stream(batches: Batches) -> Stream:
        served = Served.of(polygons.value)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, first, groups = plain[number]
                for points in read_row_groups(path, first, groups, lng, lat):
                    yield served, points

    return stream


def read_row_groups(path: str, first: int, groups: int, lng: str, lat: str) -> Batches:
    """The coordinates of row groups of a Parquet file; a file without the columns has no points, only rows."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        chosen = range(first, first + groups) if groups else range(file.num_row_groups)
        known = [name for name in (lng, lat) if name in file.schema_arrow.names]
        if len(known) < 2:
            rows = sum(file.metadata.row_group(number).num_rows for number in chosen)
            yield pa.record_batch({X: pa.nulls(rows, pa.float64()), Y: pa.nulls(rows, pa.float64())})
            return
        for batch in file.iter_batches(
            READ_AT_ONCE, row_groups=list(chosen), columns=known, use_threads=False
        ):
            yield pa.record_batch({X: batch.column(lng), Y: batch.column(lat)})


def with_parts(batches: Batches) -> Stream:
    """Rows sorted by part, and in each polygons ahead of points."""
    part: int | None = None
    rows: list[dict[str, Any]] = []
    served: Served | None = None
    for batch in batches:
        parts, kinds = (batch.column(name).to_numpy() for name in (PART, KIND))
        changes = np.flatnonzero(np.diff(parts.astype(np.int64) * 2 + kinds, prepend=-1))
        for start, end in zip(changes.tolist(), [*changes[1:].tolist(), batch.num_rows], strict=True):
            if int(parts[start]) != part:
                part, rows, served = int(parts[start]), [], None
            some = batch.slice(start, end - start)
            if kinds[start] == 0:
                rows += some.select(
                    [NUMBER, IDENTITY, TABLE, POLE, MIRROR, BOUNDS, BOX, GEOMETRY]
                ).to_pylist()
                continue
            if served is None:
                served = _served(rows, batch.schema.field(IDENTITY).type)
                rows = []
            yield served, some


def _served(rows: list[dict[str, Any]], kind: Any) -> Served:
    shapes = [
        Shape(
            np.frombuffer(row[TABLE]).reshape(-1, 13),
            row[POLE],
            row[MIRROR],
            tuple((w, s, e, n) for w, s, e, n in np.frombuffer(row[BOUNDS]).reshape(-1, 4).tolist()),
        )
        for row in rows
    ]
    box = tuple(np.frombuffer(rows[0][BOX]).tolist()) if rows else None
    return Served(
        make_layers(shapes, box),
        np.array([row[NUMBER] for row in rows], dtype=np.int64),
        pa.array([row[IDENTITY] for row in rows], kind),
        [row[GEOMETRY] for row in rows],
        {},
    )


def coordinates(batch: pa.RecordBatch) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of a batch; NaN where there are none."""
    lng, lat = (batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in (X, Y))
    return lng, lat


def count_points(streaming: Streaming, server: Server | None) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: rows of `COUNT_SCHEMA`, the counts of each polygon, and notes with the number -1."""

    def run(batches: Batches) -> Batches:
        ask, notes = server.asker() if server is not None else None, Notes()
        for served, group in itertools.groupby(streaming(batches), key=operator.itemgetter(0)):
            doubts = Doubts(served.geometries, ask, notes, served.regions)
            counter = Counter(served.layers, len(served.ids), doubts, notes)
            for _, batch in group:
                counter.add(*coordinates(batch))
            yield _counts(served, counter)
        row = {"number": -1, "count": 0, **asdict(notes)}
        yield pa.record_batch({name: pa.array([value], pa.int64()) for name, value in row.items()})

    return run


def of_numbers(function: Callable[[Batches], Batches]) -> Callable[[Iterable[int]], Batches]:
    """A function over batches of numbers as one over the numbers themselves: for ``mapPartitions``."""

    def run(numbers: Iterable[int]) -> Batches:
        return function(iter([pa.record_batch({"task": pa.array(list(numbers), pa.int64())})]))

    return run


def _counts(served: Served, counter: Counter) -> pa.RecordBatch:
    counts = counter.counts()
    some = np.flatnonzero(counts)
    columns = {
        "number": pa.array(served.numbers[some], pa.int64()),
        "count": pa.array(counts[some], pa.int64()),
    }
    nothing = pa.array(np.zeros(some.size, dtype=np.int64))
    return pa.record_batch(columns | dict.fromkeys(NOTES, nothing))


def pair_points(
    streaming: Streaming, server: Server | None, columns: Sequence[str], name: str, *, left: bool
) -> Callable[[Batches], Batches]:
    """For `map_in_arrow`: the columns of each point with the id of a polygon that it lies in; and notes in `NOTE`.

    A point in several polygons comes several times; with `left`, one in none comes once, with null.
    """
    note_type = pa.struct([(note, pa.int64()) for note in NOTES])

    def run(batches: Batches) -> Batches:
        ask, notes = server.asker() if server is not None else None, Notes()
        schema = None
        for served, group in itertools.groupby(streaming(batches), key=operator.itemgetter(0)):
            doubts = Doubts(served.geometries, ask, notes, served.regions)
            for _, batch in group:
                point, polygon = find_pairs(served.layers, *coordinates(batch), doubts, notes)
                ids = served.ids.take(pa.array(polygon))
                if left:
                    alone = np.ones(batch.num_rows, dtype=np.bool_)
                    alone[point] = False
                    point = np.concatenate([point, np.flatnonzero(alone)])
                    ids = pa.concat_arrays([ids, pa.nulls(point.size - len(ids), ids.type)])
                rows = batch.select(list(columns)).take(pa.array(point))
                arrays = [*rows.columns, ids, pa.nulls(point.size, note_type)]
                found = pa.RecordBatch.from_arrays(arrays, names=[*columns, name, NOTE])
                schema = found.schema
                yield found
        if schema is not None:
            said = pa.array([asdict(notes)], note_type)
            nothing = [pa.nulls(1, field.type) for field in schema][:-1]
            yield pa.RecordBatch.from_arrays([*nothing, said], names=schema.names)

    return run


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """``frame.mapInArrow(function, schema)``, which would ask for pandas, of which it uses nothing."""
    made = UserDefinedFunction(
        function,
        schema,
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column: Any = made(*(frame[quoted(name)] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
