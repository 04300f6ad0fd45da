"""Points with the polygons that they lie in, as one Spark job: the phases in their order.

Few polygons are sent to every worker (*broadcast*), as a grid in which a point is looked up. If they are too many for
that, the curve is cut into parts, and points and polygons meet in theirs (*partitioned*). Either way a point is tested
against the few edges near it, and the answer is MongoDB's own: great circles, and of points within centimetres of a
border the server is asked. Without a server those are decided by the sign of the test, and counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_jobs import join_parts as parts_
from spark_jobs.join_points import (
    Rows,
    open_collection_points,
    open_file_points,
    read_collection_points,
    read_within,
)
from spark_jobs.join_polygons import (
    identities,
    only_by_server,
    open_polygons,
    plain_served,
    shapes_of,
    size_mb,
)
from spark_jobs.join_served import NOTES, Server
from spark_jobs.join_work import AUTO, BROADCAST, LEFT, PARTITIONED, Job, Joined
from spark_jobs.join_worker import (
    COUNT_SCHEMA,
    NOTE,
    NOTE_TYPE,
    count_points,
    from_row_groups,
    map_in_arrow,
    of_numbers,
    pair_points,
    with_broadcast,
    with_parts,
)
from spark_jobs.join_write import check_target, write_collection, write_file
from spark_jobs.session import large_batches
from spatialnosql.errors import UsageError
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.polygons import Polygons
from spatialnosql.target import split_namespace

MOST_BY_SERVER = 50
"""Polygons whose inside only the server can tell: each is a query of its own."""
_ARROW_COUNTS = pa.schema([(name, pa.int64()) for name in COUNT_SCHEMA.names])


def join(
    spark: SparkSession,
    job: Job,
    *,
    uri: str | None = None,
    client: Any = None,
    polygons: Polygons | None = None,
    spark_start_s: float = 0.0,
) -> Joined:
    """Run one join. A `uri` and a `client` are needed if anything is in MongoDB, and used for borders if given.

    `polygons` may be given as they are, in the place of those that the job names.
    """
    joined = Joined(", ".join(job.points), 0, job.how, out=job.out, spark_start_s=spark_start_s)
    opened: JoinPoints | None = None
    if job.out_collection is not None:
        check_target(_collection(client, job.out_collection))
    with joined.phase("polygons", "reading polygons"):
        if job.points_collection is not None:
            opened = open_collection_points(client, job)
        if polygons is None:
            polygons = open_polygons(job, client, opened.info if opened is not None else None)
        joined.polygons = len(polygons)
        _check_by_server(polygons, opened, job)
    with joined.phase("points", "looking at the points"):
        rows = _open_rows(spark, opened, polygons, job)
        joined.ranges = rows.ranges
    server = None
    if uri is not None:
        database = split_namespace(job.points_collection)[0] if job.points_collection else "admin"
        server = Server(uri, database)
    try:
        with large_batches(spark):
            _Join(spark, job, polygons, rows, server, joined, opened).run(client)
    finally:
        rows.close()
    return joined


def _collection(client: Any, namespace: str) -> Any:
    database, name = split_namespace(namespace)
    return client[database][name]


def _open_rows(spark: SparkSession, opened: JoinPoints | None, polygons: Polygons, job: Job) -> Rows:
    if opened is None:
        return open_file_points(spark, job)
    return read_collection_points(spark, opened, polygons, job)


def _check_by_server(polygons: Polygons, opened: JoinPoints | None, job: Job) -> None:
    """Polygons that only the server can tell are asked for, if the points are there and they are few."""
    special = only_by_server(polygons)
    if not special:
        return
    first = polygons[special[0]]
    what = f"of {len(special)} polygons only the server can tell what lies in them; {first.id!r}: {first.why_not}"
    if opened is None:
        raise UsageError(
            f"{what}; ingest the points into MongoDB and join them there, or leave those polygons out"
        )
    if job.how == LEFT:
        raise UsageError(f"{what}; with --how left such polygons are not joined")
    if len(special) > MOST_BY_SERVER:
        raise UsageError(f"{what}; at most {MOST_BY_SERVER} are asked for, each by a query of its own")


class _Join:
    """What the phases share."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        polygons: Polygons,
        rows: Rows,
        server: Server | None,
        joined: Joined,
        opened: JoinPoints | None,
    ) -> None:
        self._spark, self._job, self._polygons, self._rows = spark, job, polygons, rows
        self._server, self._joined, self._opened = server, joined, opened
        self._special = only_by_server(polygons)

    def run(self, client: Any) -> None:
        job, joined = self._job, self._joined
        self._choose()
        given: Any = None
        if joined.strategy == BROADCAST:
            with joined.phase("grid", f"laying {joined.polygons:,} polygons on a grid"):
                served = plain_served(self._polygons, geometries=self._server is not None)
                given = self._spark.sparkContext.broadcast(served)
        else:
            with joined.phase("parts", "cutting the curve into parts"):
                frame = self._co_partitioned()
        with joined.phase("join", f"joining ({joined.strategy})"):
            if given is not None and self._rows.row_groups is not None:
                self._count(self._counted_from_files(given), client)
                return
            streaming = with_parts if given is None else with_broadcast(given)
            frame = self._rows.frame if given is not None else frame
            if job.counts:
                counted = map_in_arrow(frame, count_points(streaming, self._server), COUNT_SCHEMA)
                self._count(counted.toArrow(), client)
            else:
                self._pair(frame, streaming, client)

    def _counted_from_files(self, given: Any) -> pa.Table:
        """Counts of Parquet files, a task for each piece of them. No frames: starting up those takes Spark longer."""
        tasks = self._rows.row_groups or []
        streaming = from_row_groups(given, tasks, *self._rows.coordinates)
        numbers = self._spark.sparkContext.parallelize(range(len(tasks)), max(len(tasks), 1))
        function = of_numbers(count_points(streaming, self._server))
        return pa.Table.from_batches(numbers.mapPartitions(function).collect(), _ARROW_COUNTS)

    def _choose(self) -> None:
        """The strategy, and why."""
        job, joined = self._job, self._joined
        size, most = size_mb(shapes_of(self._polygons)[1]), job.broadcast_mb
        words = f"the polygons' grid takes about {size:,.0f} MB"
        if job.strategy != AUTO:
            joined.strategy, joined.why = job.strategy, f"as asked for; {words}"
        elif size <= most:
            joined.strategy, joined.why = (
                BROADCAST,
                f"{words}, within the {most:g} MB that go to every worker",
            )
        else:
            joined.strategy = PARTITIONED
            joined.why = f"{words}, more than the {most:g} MB that go to every worker"

    def _co_partitioned(self) -> DataFrame:
        joined, points = self._joined, self._rows.frame
        covers = parts_.coarse_covers(self._polygons)
        edges = np.array([len(shape.table) for shape in shapes_of(self._polygons)[1]], dtype=np.intp)
        known = self._rows.histogram
        weights = parts_.Weights.of_sample(points) if known is None else parts_.Weights.of_histogram(known)
        parts = parts_.plan_parts(weights, covers, edges, self._spark.sparkContext.defaultParallelism)
        rows = parts_.polygon_rows(
            self._spark, self._polygons, covers, parts, geometries=self._server is not None
        )
        joined.parts, joined.salted = parts.count, parts.salted
        joined.why += f"; {parts.count} parts of the curve"
        if parts.salted:
            joined.why += f", {parts.salted} of them copies of a hot cell"
        return parts_.co_partitioned(points, rows, parts)

    # -- what comes of it ---------------------------------------------------------------------------------

    def _count(self, found: pa.Table, client: Any) -> None:
        joined, job = self._joined, self._job
        columns = {name: found.column(name).to_numpy() for name in found.column_names}
        counts = np.zeros(len(self._polygons), dtype=np.int64)
        real = columns["number"] >= 0
        np.add.at(counts, columns["number"][real], columns["count"][real])
        for name in NOTES:
            setattr(joined, "rows" if name == "points" else name, int(columns[name].sum()))
        if self._opened is not None:
            for number in self._special:
                within = {self._opened.info.location: self._polygons[number].within}
                counts[number] = self._opened.collection.count_documents(self._opened.matching(within))
        joined.pairs = int(counts.sum())
        ids = identities(self._polygons)
        joined.counts = {str(one): count for one, count in zip(ids, counts.tolist(), strict=True)}
        if job.out is not None:
            kind = pa.int64() if ids and isinstance(ids[0], int) else pa.string()
            table = pa.table({job.name: pa.array(ids, kind), "count": pa.array(counts)})
            noted = self._spark.createDataFrame(table).withColumn(NOTE, F.lit(None).cast(NOTE_TYPE))
            pairs = joined.pairs
            self._write(noted.coalesce(1), client)
            joined.pairs = pairs

    def _pair(self, frame: DataFrame, streaming: Any, client: Any) -> None:
        job, rows = self._job, self._rows
        ids = identities(self._polygons)
        kind = LongType() if ids and isinstance(ids[0], int) else StringType()
        fields = [StructField(name, rows.frame.schema[name].dataType) for name in rows.columns]
        schema = StructType([*fields, StructField(job.name, kind), StructField(NOTE, NOTE_TYPE)])
        function = pair_points(streaming, self._server, rows.columns, job.name, left=job.how == LEFT)
        pairs = map_in_arrow(frame, function, schema)
        for number in self._special:
            assert self._opened is not None  # it was refused otherwise
            more = read_within(self._spark, self._opened, self._polygons[number].within, rows)
            named = more.withColumn(job.name, F.lit(ids[number]).cast(kind))
            pairs = pairs.unionByName(named.withColumn(NOTE, F.lit(None).cast(NOTE_TYPE)))
        self._write(pairs, client)

    def _write(self, pairs: DataFrame, client: Any) -> None:
        job = self._job
        if job.out_file is not None:
            write_file(pairs, job.out_file, job.name, self._joined)
        elif job.out_collection is not None:
            write_collection(pairs, _collection(client, job.out_collection), job.name, self._joined)
