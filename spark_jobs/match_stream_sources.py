"""Objects as they come: from a folder that grows, or from the change stream of a collection.

The connector's offsets are whole seconds: a micro-batch is what was written from one second to another, of the time
that the servers give to every write. It is read again in the same bounds after a crash, and nothing falls between two.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from spark_jobs.match_objects import adopted, identity_of, select_objects
from spark_jobs.match_stream_work import StreamJob, StreamState
from spark_jobs.match_work import Objects
from spark_jobs.match_worker import AT, ID, LAT, LNG, TEXT, WRITTEN
from spark_jobs.points import format_of, point_pipeline
from spark_jobs.session import mongo_stream_reader
from spark_jobs.sources import CORRUPT, FORMAT_OPTIONS, read_rows
from spatialnosql.errors import UsageError

STREAMED = ("parquet", "csv", "json")
FOREVER = "36500d"
"""Spark would leave out files that are a week older than the newest: one that is moved there keeps its old time."""
NUDGE_S = 0.5


# -- a folder ----------------------------------------------------------------------------------------------


def folder_stream(spark: SparkSession, job: StreamJob, state: StreamState) -> DataFrame:
    """The objects of files that appear in a folder; the types are noted, so that they stay what they were."""
    if not Path(job.source).is_dir():
        raise UsageError(f"{job.source} is no folder; make it, or give DB.COLLECTION")
    kind = job.objects.file_format or state.get("format") or format_of(job.objects.sources, STREAMED)
    noted = state.get("schema")
    if job.schema is not None:
        schema = _parsed(job.schema)
    elif noted is not None:
        schema = StructType.fromJson(noted)
    elif not any(not one.name.startswith((".", "_")) for one in Path(job.source).iterdir()):
        raise UsageError(
            f"{job.source} is empty: say what files will have, as in --schema 'text string, lng double, lat double'"
        )
    else:
        schema = read_rows(spark.read, [job.source], kind).schema
    state.note(format=kind, schema=schema.jsonValue())
    if kind != "parquet" and CORRUPT not in schema.names:
        schema = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    reader = spark.readStream.format(kind).schema(schema).options(**FORMAT_OPTIONS[kind])
    rows = reader.option("maxFileAge", FOREVER).load(job.source)
    columns = [name for name in rows.columns if name != CORRUPT]
    written = F.unix_millis(F.col("_metadata.file_modification_time")).alias(WRITTEN)
    objects = select_objects(rows, columns, job.objects, written)
    # A row without an identifier would end the stream, and end it again at every start: it counts as a bad one.
    return objects.withColumn(LNG, F.when(F.col(ID).isNotNull(), F.col(LNG)))


def _parsed(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise UsageError(f"--schema {ddl}: give columns with their types, as in 'text string, lng double'")
    return schema


# -- a collection ------------------------------------------------------------------------------------------


def start_seconds(client: Any, state: StreamState) -> int:
    """The second in which the stream begins, by the servers' clock: noted when it is first asked for."""
    if state.get("start") is None:
        state.note(start=servers_second(client))
    return int(state.get("start"))


def servers_second(client: Any) -> int:
    """The time of the servers' last write, in seconds since 1970."""
    return int(client.admin.command("ping")["operationTime"].time)


def read_until(query: StreamingQuery) -> int:
    """The second before which a query over a change stream has read everything; 0 if it has read nothing."""
    progress = query.lastProgress
    if progress is None or not progress.sources[0].endOffset:
        return 0
    return int(json.loads(progress.sources[0].endOffset)["offset"]["$timestamp"]["t"])


def id_kind(collection: Collection[dict[str, Any]], state: StreamState) -> str | None:
    """The BSON type of identifiers, by some document, and ever after; None while there is none."""
    if state.get("id_kind") is None:
        found = list(collection.aggregate([{"$limit": 1}, {"$project": {"kind": {"$type": "$_id"}}}]))
        if not found:
            return None
        kind = found[0]["kind"]
        state.note(id_kind="long" if kind == "int" else kind)  # small ones come first, large ones later
    return str(state.get("id_kind"))


def change_stream(
    spark: SparkSession, collection: Collection[dict[str, Any]], job: StreamJob, kind: str, start: int
) -> tuple[DataFrame, str | None]:
    """The objects that are inserted or changed; and the BSON type of their identifiers, where they come as text."""
    points, _ = adopted(collection, job.objects)
    location = points.info.location if points is not None else job.objects.point or "loc"
    identity, id_type = identity_of({kind})
    texts = [f"t{number}" for number in range(len(job.objects.text))]
    numbers = [StructField("at", LongType()), StructField("written", LongType())]
    places = [StructField("lng", DoubleType()), StructField("lat", DoubleType())]
    schema = StructType([identity, *(StructField(name, StringType()) for name in texts), *numbers, *places])
    reader = mongo_stream_reader(spark, collection.database.name, collection.name).schema(schema)
    rows = (
        reader.option("change.stream.publish.full.document.only", "true")
        .option("aggregation.pipeline", json_util.dumps(event_pipeline(job.objects, location)))
        .option("change.stream.startup.mode", "timestamp")
        .option("change.stream.startup.mode.timestamp.start.at.operation.time", str(start))
        .option("change.stream.micro.batch.max.partition.count", str(job.readers))
        .load()
    )
    text = F.col(texts[0]) if len(texts) == 1 else F.concat_ws(" ", *texts)
    chosen = rows.select(
        F.col("_id").alias(ID),
        text.alias(TEXT),
        F.col("lng").alias(LNG),
        F.col("lat").alias(LAT),
        F.col("at").alias(AT),
        F.col("written").alias(WRITTEN),
    )
    return chosen, id_type


def event_pipeline(given: Objects, location: str) -> list[dict[str, Any]]:
    """Stages that leave of change events what is matched: identifier, texts, place, times.

    A document that was deleted before an update of it was looked up is null: no object, and not counted as one.
    Nothing here fails because of what a document holds: one bad document must not end the stream.
    """
    place, numbers = point_pipeline(f"fullDocument.{location}")
    row: dict[str, Any] = {f"t{number}": f"$fullDocument.{name}" for number, name in enumerate(given.text)}
    row |= {"_id": "$fullDocument._id", "written": {"$toLong": "$wallTime"}}
    if given.time is not None:
        row["at"] = _milliseconds(f"$fullDocument.{given.time}")
    fields = {name: f"$row.{name}" for name in row}
    return [
        {
            "$match": {
                "operationType": {"$in": ["insert", "replace", "update"]},
                "fullDocument": {"$type": "object"},
            }
        },
        {"$project": {"pair": place["$project"]["pair"], "row": row}},
        {"$project": {"fullDocument": {**fields, **numbers["$project"]}}},
    ]


def _milliseconds(value: str) -> dict[str, Any]:
    """A date, its text, or a number of milliseconds, as a number; null for anything else."""
    date = {"$convert": {"input": value, "to": "date", "onError": None, "onNull": None}}
    number = {"$cond": [{"$isNumber": value}, value, date]}
    return {"$convert": {"input": number, "to": "long", "onError": None, "onNull": None}}


class Nudge:
    """Makes idle shards say that time has passed, without which a change stream waits for their next write.

    They say so by themselves every ten seconds (``periodicNoopIntervalSecs``). An entry in the oplog that means nothing
    (``appendOplogNote``, by a role such as clusterManager) makes them say it at once; who may not, waits.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._allowed = True

    @contextmanager
    def nudging(self) -> Iterator[None]:
        """While a micro-batch is read."""
        done = threading.Event()
        thread = threading.Thread(target=self._nudge, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _nudge(self, done: threading.Event) -> None:
        while self._allowed:
            try:
                self._client.admin.command({"appendOplogNote": 1, "data": {"spatialnosql": "match-stream"}})
            except OperationFailure as error:
                self._allowed = False
                said = (error.details or {}).get("errmsg", error)
                print(
                    f"idle shards cannot be asked for the time ({said}): matches come later", file=sys.stderr
                )
            except PyMongoError:
                pass  # whoever reads will notice if it lasts
            if done.wait(NUDGE_S):
                return
