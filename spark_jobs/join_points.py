"""The points of a join, from files or from a collection: rows with their coordinates in two columns.

From a collection only candidates are read: each read has a ``$match`` of the ranges of ``gh`` that the polygons' covers
have in one part of the curve. Parts are cut by the statistics, so that they are about even.
"""

from __future__ import annotations

import functools
import glob
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from bson import json_util
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import (
    DoubleType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from spark_jobs.join_work import LEFT, Job
from spark_jobs.join_worker import RowGroups, X, Y
from spark_jobs.points import find_column, format_of, location_columns, point_pipeline, quoted
from spark_jobs.screening import coordinate_columns
from spark_jobs.session import mongo_reader
from spark_jobs.sources import CORRUPT, GEOMETRY, Source, open_files
from spark_jobs.sources import FORMATS as FILE_FORMATS
from spark_jobs.staging import SIMPLE, staging_schema
from spatialnosql.cover import Ranges
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.joins.covering import overlay_of, range_keys
from spatialnosql.joins.passes import split
from spatialnosql.joins.points import JoinPoints, open_points
from spatialnosql.joins.polygons import Polygons
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.steps import run
from spatialnosql.target import split_namespace

POINTS_A_PART = 500_000
MOST_PARTS = 64
_MOST_FOOTERS = 64
_MOST_GROUPS = 16  # row groups of a task


@dataclass
class Rows:
    """Rows to join: the columns that are kept, and `X` and `Y`."""

    columns: list[str]
    words: str
    opened: Callable[[], DataFrame]
    histogram: Histogram | None = None
    ranges: int = 0
    row_groups: list[RowGroups] | None = None
    """Files and row groups for workers to read themselves, if only coordinates are wanted, and of Parquet."""
    coordinates: tuple[str, str] = (X, Y)
    fields: Sequence[StructField] = ()  # of documents, that are read
    source: Source | None = field(default=None, repr=False)

    @cached_property
    def frame(self) -> DataFrame:
        """The rows themselves."""
        return self.opened()

    def close(self) -> None:
        """Remove what was written to read from."""
        if self.source is not None:
            self.source.close()


# -- files -------------------------------------------------------------------------------------------------


def open_file_points(spark: SparkSession, job: Job) -> Rows:
    """The rows of files."""
    kind = job.file_format or format_of(job.points, FILE_FORMATS)
    if job.counts and kind == "parquet" and job.point is None:
        found = _coordinates_of_parquet(job, spark.sparkContext.defaultParallelism)
        if found is not None:
            tasks, names = found
            rows = Rows([], ", ".join(job.points), lambda: _read_files(spark, job, kind).frame)
            rows.row_groups, rows.coordinates = tasks, names
            return rows
    return _read_files(spark, job, kind)


def _read_files(spark: SparkSession, job: Job, kind: str) -> Rows:
    """The rows as Spark reads them."""
    point = job.point or (GEOMETRY if kind == "geojson" and not (job.lon or job.lat) else None)
    source = open_files(spark, job.points, kind)
    try:
        if point is not None:
            x, y = location_columns(source.rows, point, "--point")
        else:
            x, y = (F.col(quoted(name)) for name in coordinate_columns(source.columns, job.lon, job.lat))
        if CORRUPT in source.rows.columns:  # the line is no row, whatever was made of it
            x = F.when(F.col(CORRUPT).isNull(), x)
        chosen = [find_column(source.columns, name, (), "--select") for name in job.select]
        columns = [] if job.counts else chosen or list(source.columns)
        if job.name in columns:
            raise UsageError(f"the points have a column {job.name} already; give --as another name")
        frame = source.rows.select(
            *(F.col(quoted(name)) for name in columns),
            x.try_cast("double").alias(X),
            y.try_cast("double").alias(Y),
        )
        return Rows(columns, ", ".join(job.points), lambda: frame, source=source)
    except BaseException:
        source.close()
        raise


def _coordinates_of_parquet(job: Job, cores: int) -> tuple[list[RowGroups], tuple[str, str]] | None:
    """Pieces of Parquet files of this file system, and the names of their coordinates.

    None if Spark should read them: they are elsewhere, or have no columns of plain numbers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [urlparse(name) for name in job.points]
    if any(path.scheme not in ("", "file") for path in paths):
        return None
    files = [str(path) for path in local_files(job.points)]
    footers = [pq.read_metadata(path) for path in files[:_MOST_FOOTERS]]
    columns: dict[str, Any] = {}
    for footer in footers:
        columns |= {one.name: one.type for one in footer.schema.to_arrow_schema()}
    names = coordinate_columns(list(columns), job.lon, job.lat)
    if not all(pa.types.is_floating(columns[name]) or pa.types.is_integer(columns[name]) for name in names):
        return None
    if len(files) > _MOST_FOOTERS:
        return [RowGroups(path, 0, 0) for path in files], names
    return row_groups(files, [footer.num_row_groups for footer in footers], cores), names


def row_groups(files: Sequence[str], counts: Sequence[int], cores: int) -> list[RowGroups]:
    """Files, with so many row groups each, in even pieces: two a core, more if those were large."""
    wanted = max(2 * cores, -(-sum(counts) // _MOST_GROUPS))
    tasks = []
    for path, count in zip(files, counts, strict=True):
        pieces = min(count, max(1, round(wanted * count / sum(counts)))) if count else 0
        ends = [count * number // pieces for number in range(pieces + 1)] if pieces else []
        tasks += [RowGroups(path, first, last - first) for first, last in itertools.pairwise(ends)]
    return tasks


def local_files(paths: Sequence[str]) -> list[Path]:
    """The files of names, globs and folders of this file system, as Spark finds them: without hidden ones."""
    files: list[Path] = []
    for path in paths:
        found = [Path(name) for name in sorted(glob.glob(path.removeprefix("file://")))]  # noqa: PTH207
        if not found:
            raise UsageError(f"no such file: {path}")
        for one in found:
            files += sorted(file for file in one.rglob("*") if file.is_file()) if one.is_dir() else [one]
    kept = [file for file in files if not file.name.startswith((".", "_"))]
    if not kept:
        raise UsageError(f"no files in {', '.join(paths)}")
    return kept


# -- a collection ------------------------------------------------------------------------------------------


def open_collection_points(client: Any, job: Job) -> JoinPoints:
    """What is known of an adopted collection; refuses what cannot be read by ``gh`` alone."""
    assert job.points_collection is not None
    database, name = split_namespace(job.points_collection)
    opened = run(open_points(client[database][name], job.filter))
    info = opened.info
    nowhere = {info.gh: None, info.location: {"$exists": True, "$ne": None}}
    if info.unhashed and opened.collection.count_documents(nowhere, limit=1):
        raise UsageError(
            f"{info.namespace} has documents whose location is no single point, and so no geohash to read them by; "
            "count_by_polygon and join of the Python API ask the server for those"
        )
    return opened


def read_collection_points(spark: SparkSession, points: JoinPoints, polygons: Polygons, job: Job) -> Rows:
    """The candidates of a collection, or for a left join all of it."""
    info = points.info
    ranges = Ranges.everything()
    if job.how != LEFT:
        ranges = overlay_of(polygons, info).ranges()
        if info.histogram is not None and len(ranges) > 1:
            ranges = ranges.bridged(info.histogram, range_keys(info.costs))[0]
    reads = [any_of(conditions(part, info.gh), info.gh) for part in even_parts(ranges, info.histogram, spark)]
    if job.how == LEFT:
        reads.append({info.gh: None})  # a place that is none is kept, with null
    fields = [] if job.counts else collection_fields(points, job.select)
    taken = {field.name for field in fields}
    places = [] if job.counts else [name for name in ("lng", "lat") if name not in taken]
    columns = [*(field.name for field in fields), *places]
    if job.name in columns:
        raise UsageError(f"the points have a field {job.name} already; give --as another name")
    frames = [read_documents(spark, points, points.matching(read), fields) for read in reads]
    frame = functools.reduce(DataFrame.unionAll, frames) if frames else None
    if frame is None:
        frame = read_documents(spark, points, {info.gh: {"$in": []}}, fields)
    frame = frame.select(
        *(F.col(f"row.{quoted(one.name)}").alias(one.name) for one in fields),
        *(F.col(name) for name in places),
        F.col("lng").alias(X),
        F.col("lat").alias(Y),
    )
    return Rows(columns, info.namespace, lambda: frame, info.histogram, len(ranges), fields=fields)


def read_within(spark: SparkSession, points: JoinPoints, within: Mapping[str, Any], rows: Rows) -> DataFrame:
    """The points of one polygon, which the server alone can tell, as `Rows.frame` has them without `X` and `Y`."""
    frame = read_documents(spark, points, points.matching({points.info.location: within}), rows.fields)
    own = {one.name for one in rows.fields}
    return frame.select(
        *(F.col(f"row.{quoted(name)}").alias(name) if name in own else F.col(name) for name in rows.columns)
    )


def even_parts(ranges: Ranges, histogram: Histogram | None, spark: SparkSession) -> list[Ranges]:
    """Ranges in as many parts as there is work for."""
    expected = float(histogram.points_in(ranges.lo, ranges.hi).sum()) if histogram is not None else 0.0
    wanted = max(2 * spark.sparkContext.defaultParallelism, expected / POINTS_A_PART)
    return split(ranges, histogram, max(expected / min(wanted, MOST_PARTS), 1_000.0))


def collection_fields(points: JoinPoints, select: Sequence[str]) -> list[StructField]:
    """The identifier and the selected fields of a collection, with the types that they have there."""
    for name in select:
        if "." in name or name.startswith("$"):
            raise UsageError(f"--select {name}: only whole fields of documents can be selected")
    kinds = points.collection.aggregate(
        [{"$match": {points.info.gh: {"$gte": ""}}}, {"$group": {"_id": {"$type": "$_id"}}}]
    )
    found = {group["_id"] for group in kinds}
    own = SIMPLE.get(found.pop(), StringType()) if len(found) == 1 else StringType()
    fields = [StructField("_id", own)]
    if select:
        schema = staging_schema(points.collection)
        missing = [name for name in select if name not in schema.names]
        if missing:
            raise UsageError(
                f"--select {missing[0]}: no document has it; there are {', '.join(schema.names)}"
            )
        fields += [schema[name] for name in select if name != "_id"]
    # A field that is null everywhere is a text that is null everywhere.
    return [
        StructField(one.name, StringType()) if isinstance(one.dataType, NullType) else one for one in fields
    ]


def read_documents(
    spark: SparkSession, points: JoinPoints, match: Mapping[str, Any], fields: Sequence[StructField]
) -> DataFrame:
    """Documents of an adopted collection in one read: ``lng``, ``lat``, and in ``row`` the fields."""
    database, name = split_namespace(points.info.namespace)
    pipeline, schema = document_pipeline(points.info.location, match, fields)
    return (
        mongo_reader(spark, database, name)
        .schema(schema)
        # One read a part: the parts are ours, by what the statistics say, not of some sample's making.
        .option("partitioner", "com.mongodb.spark.sql.connector.read.partitioner.SinglePartitionPartitioner")
        .option("aggregation.pipeline", json_util.dumps(pipeline))
        .load()
    )


def document_pipeline(
    location: str, match: Mapping[str, Any], fields: Sequence[StructField]
) -> tuple[list[dict[str, Any]], StructType]:
    """Stages that leave ``lng`` and ``lat`` of documents, and in ``row`` the fields; and the schema of that."""
    place, numbers = point_pipeline(location)
    row = {one.name: f"${one.name}" for one in fields}
    project = {**place["$project"], **({"row": row} if row else {})}
    pipeline: list[dict[str, Any]] = [
        {"$match": match},
        {"$project": project},
        {"$project": {**numbers["$project"], **({"row": 1} if row else {})}},
    ]
    schema = StructType([StructField("lng", DoubleType()), StructField("lat", DoubleType())])
    return pipeline, schema.add("row", StructType(list(fields))) if row else schema
