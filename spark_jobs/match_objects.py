"""Objects to match, from files or from a collection: their identifiers, texts, places and times, in five columns.

From an adopted collection only what some subscription may want is read, where the statistics say that this saves:
then each read has a ``$match`` of the ranges of ``gh`` that the subscriptions' areas cover.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import json_util
from pymongo.collection import Collection
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.join_points import document_pipeline, even_parts, read_documents
from spark_jobs.match_work import Job, Objects
from spark_jobs.match_worker import AT, ID, LAT, LNG, TEXT
from spark_jobs.points import find_column, format_of, location_columns, quoted
from spark_jobs.screening import coordinate_columns
from spark_jobs.session import mongo_reader
from spark_jobs.sources import CORRUPT, FORMATS, GEOMETRY, Source, open_files
from spark_jobs.staging import SIMPLE
from spatialnosql.cover import Ranges
from spatialnosql.errors import UsageError
from spatialnosql.joins.points import JoinPoints, open_points
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.steps import run
from spatialnosql.subscriptions.object_ids import OBJECT_ID
from spatialnosql.target import split_namespace

ONE_PART = "com.mongodb.spark.sql.connector.read.partitioner.SinglePartitionPartitioner"
FEW = 1_000
"""Of fewer documents the connector makes no parts by sampling: of one it would take a sample of none, an error."""
DIGEST_SEEDS = 2
"""64-bit digests of a row without an identifier: two make 16 bytes, of which no two rows have the same."""


@dataclass
class Rows:
    """Objects to match."""

    frame: DataFrame
    words: str
    id_type: str | None = None
    source: Source | None = None

    def close(self) -> None:
        """Remove what was written to read from."""
        if self.source is not None:
            self.source.close()


# -- files -------------------------------------------------------------------------------------------------


def file_objects(spark: SparkSession, job: Job) -> Rows:
    """The objects of files."""
    given = job.objects
    kind = given.file_format or format_of(given.sources, FORMATS)
    source = open_files(spark, given.sources, kind)
    try:
        frame = select_objects(source.rows, source.columns, given, geojson=kind == "geojson")
        if job.since is not None or job.until is not None:
            frame = within(frame, job)
        return Rows(frame, f"all of {', '.join(given.sources)}", source=source)
    except BaseException:
        source.close()
        raise


def select_objects(
    rows: DataFrame, columns: Sequence[str], given: Objects, *more: Column, geojson: bool = False
) -> DataFrame:
    """The five columns of objects, from whatever columns they are in; and more, as they are given."""
    point = given.point or (GEOMETRY if geojson and not (given.lon or given.lat) else None)
    if point is not None:
        x, y = location_columns(rows, point, "--point")
    else:
        x, y = (F.col(quoted(name)) for name in coordinate_columns(columns, given.lon, given.lat))
    if CORRUPT in rows.columns:  # the line is no object, whatever was made of it
        x = F.when(F.col(CORRUPT).isNull(), x)
    texts = [F.col(quoted(find_column(columns, name, (), "--text"))).cast("string") for name in given.text]
    text = texts[0] if len(texts) == 1 else F.concat_ws(" ", *texts)
    at = F.lit(None).cast("long")
    if given.time is not None:
        name = find_column(columns, given.time, (), "--time")
        at = milliseconds(F.col(quoted(name)), rows.schema[name].dataType, name)
    x, y = x.try_cast("double"), y.try_cast("double")
    if given.id is not None:
        identity = F.col(quoted(find_column(columns, given.id, (), "--id")))
    else:
        identity = digest(text, x, y, at)
    return rows.select(identity.alias(ID), text.alias(TEXT), x.alias(LNG), y.alias(LAT), at.alias(AT), *more)


def milliseconds(column: Column, kind: Any, name: str) -> Column:
    """A time as milliseconds since 1970; null for what is no time."""
    if isinstance(kind, LongType | IntegerType):
        return column.cast("long")
    if isinstance(kind, StringType):
        return F.unix_millis(F.try_to_timestamp(column))
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.unix_millis(column.cast("timestamp"))
    raise UsageError(f"--time {name} is {kind.simpleString()}; it must be a time, or milliseconds since 1970")


def digest(*columns: Column) -> Column:
    """An identifier of 16 bytes for objects that have none: equal rows are one object."""
    hashes = [F.lpad(F.hex(F.xxhash64(F.lit(seed), *columns)), 16, "0") for seed in range(DIGEST_SEEDS)]
    return F.unhex(F.concat(*hashes))


def within(frame: DataFrame, job: Job) -> DataFrame:
    """The objects of the time that is asked for; those without a time are not."""
    at = F.col(AT)
    if job.since is not None:
        frame = frame.where(at >= int(job.since.timestamp() * 1000))
    if job.until is not None:
        frame = frame.where(at < int(job.until.timestamp() * 1000))
    return frame


# -- a collection ------------------------------------------------------------------------------------------


def collection_objects(
    spark: SparkSession,
    client: Any,
    job: Job,
    condition: Mapping[str, Any],
    areas: Callable[[JoinPoints], tuple[Ranges | None, str]],
) -> Rows:
    """The objects of a collection that meet a condition; `areas` says what of an adopted one is worth reading."""
    given = job.objects
    assert given.collection is not None
    database, name = split_namespace(given.collection)
    collection = client[database][name]
    points, why_not = adopted(collection, given)
    identity, id_type = identity_of(_id_kinds(collection, condition))
    fields = [identity, *(StructField(one, StringType()) for one in given.text if one != "_id")]
    if given.time is not None:
        fields.append(StructField(given.time, TimestampType()))
    if points is None:
        words = f"all of {given.collection} ({why_not})"
        frame = _read_any(spark, collection, given.point or "loc", condition, fields)
    else:
        ranges, words = areas(points)
        frame = _read_adopted(spark, points, ranges, condition, fields)
    texts = [F.col(f"row.{quoted(one)}").cast("string") for one in given.text]
    at = F.lit(None).cast("long")
    if given.time is not None:
        at = F.unix_millis(F.col(f"row.{quoted(given.time)}"))
    chosen = frame.select(
        F.col("row._id").alias(ID),
        (texts[0] if len(texts) == 1 else F.concat_ws(" ", *texts)).alias(TEXT),
        F.col("lng").alias(LNG),
        F.col("lat").alias(LAT),
        at.alias(AT),
    )
    return Rows(chosen, words, id_type)


def adopted(collection: Collection[dict[str, Any]], given: Objects) -> tuple[JoinPoints | None, str]:
    """The collection as one that can be read by ``gh``, or why not."""
    try:
        points = run(open_points(collection, None))
    except UsageError as error:
        return None, str(error).partition("; ")[0]
    if given.point is not None and given.point != points.info.location:
        return None, f"its geohashes are of {points.info.location}, not of {given.point}"
    return points, ""


def _id_kinds(collection: Collection[dict[str, Any]], condition: Mapping[str, Any]) -> set[str]:
    """The BSON types of identifiers."""
    groups = [{"$match": dict(condition)}, {"$group": {"_id": {"$type": "$_id"}}}]
    return {str(one["_id"]) for one in collection.aggregate(groups)}


def identity_of(kinds: set[str]) -> tuple[StructField, str | None]:
    """The field of identifiers of some BSON types: the connector must be told, and ObjectIds come as text."""
    if kinds == {OBJECT_ID}:
        return StructField("_id", StringType()), OBJECT_ID
    kind = SIMPLE.get(next(iter(kinds)), StringType()) if len(kinds) == 1 else StringType()
    return StructField("_id", kind), None


def _read_adopted(
    spark: SparkSession,
    points: JoinPoints,
    ranges: Ranges | None,
    condition: Mapping[str, Any],
    fields: Sequence[StructField],
) -> DataFrame:
    """One read for each part of the curve; documents without a place match nothing and are not read."""
    gh = points.info.gh
    whole = ranges if ranges is not None else Ranges.everything()
    reads = [any_of(conditions(part, gh), gh) for part in even_parts(whole, points.info.histogram, spark)]
    frames = [
        read_documents(spark, points, {"$and": [read, condition]} if condition else read, fields)
        for read in reads or [{gh: {"$in": []}}]
    ]
    return functools.reduce(DataFrame.unionAll, frames)


def _read_any(
    spark: SparkSession,
    collection: Collection[dict[str, Any]],
    location: str,
    condition: Mapping[str, Any],
    fields: Sequence[StructField],
) -> DataFrame:
    """A collection that is not adopted, in the parts that the connector makes."""
    pipeline, schema = document_pipeline(location, condition, fields)
    reader = mongo_reader(spark, collection.database.name, collection.name).schema(StructType(schema.fields))
    if collection.estimated_document_count() < FEW:
        reader = reader.option("partitioner", ONE_PART)
    return reader.option("aggregation.pipeline", json_util.dumps(pipeline)).load()
