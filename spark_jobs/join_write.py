"""The result of a join into its place: a Parquet file, or a collection of its own. Run again, it is replaced.

A collection is written beside its place, counted, and put there by one rename: so it is never half of a result, nor one
with rows twice, whatever became of Spark's tasks. A collection that no join has made is never replaced.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from pymongo.collection import Collection
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.join_served import NOTES
from spark_jobs.join_work import Joined
from spark_jobs.join_worker import NOTE
from spark_jobs.loading import BATCH
from spark_jobs.points import quoted
from spark_jobs.session import mongo_writer
from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.metadata import DATABASE

JOINS = "joins"
"""The collection, of the package's own database, that knows which collections are results of joins."""
_BESIDE = "_joining"


def check_target(collection: Collection[dict[str, Any]]) -> None:
    """Refuse to replace what no join has made."""
    made = _joins(collection).find_one({"_id": collection.full_name})
    if made is None and collection.count_documents({}, limit=1):
        raise UsageError(
            f"{collection.full_name} has documents that no join has written; they would be replaced: choose another "
            "collection, or drop it first"
        )


def write_file(pairs: DataFrame, path: str, name: str, joined: Joined) -> None:
    """Into a Parquet file, in the place of what is there; polygons are in the column `name`."""
    observed, rows = _watched(pairs, name)
    rows.write.mode("overwrite").parquet(path)
    _note(observed, joined)


def write_collection(
    pairs: DataFrame, collection: Collection[dict[str, Any]], name: str, joined: Joined
) -> None:
    """Into a collection, in the place of what an earlier join has left there."""
    database, beside = collection.database, collection.database[collection.name + _BESIDE]
    beside.drop()
    observed, rows = _watched(pairs, name)
    writer = mongo_writer(_named(rows), database.name, beside.name)
    writer.option("operationType", "insert").option("ordered", "false").option(
        "maxBatchSize", str(BATCH)
    ).save()
    _note(observed, joined)
    written, meant = beside.count_documents({}), int(observed.get["rows"])
    if written != meant:
        beside.drop()
        raise SpatialNoSQLError(
            f"{meant:,} rows were to be written to {collection.full_name}, but {written:,} were: a task was "
            "interrupted and run again; nothing was changed, run the join again"
        )
    _joins(collection).update_one(
        {"_id": collection.full_name},
        {"$set": {"written": dt.datetime.now(dt.timezone.utc), "rows": written, "points": joined.points}},
        upsert=True,
    )
    if written:
        beside.rename(collection.name, dropTarget=True)
    else:
        collection.drop()


def _joins(collection: Collection[dict[str, Any]]) -> Collection[dict[str, Any]]:
    return collection.database.client[DATABASE][JOINS]


def _named(rows: DataFrame) -> DataFrame:
    """A point's own identifier is not that of a row: it may be in several polygons."""
    return rows.withColumnRenamed("_id", "point") if "_id" in rows.columns else rows


def _watched(pairs: DataFrame, name: str) -> tuple[Observation, DataFrame]:
    """The rows without the notes, which are added up on their way."""
    observed = Observation()
    sums = [F.coalesce(F.sum(f"{NOTE}.{note}"), F.lit(0)).alias(note) for note in NOTES]
    row, polygon = F.col(NOTE).isNull(), F.col(quoted(name)).isNotNull()
    watched = pairs.observe(
        observed, F.count_if(row).alias("rows"), F.count_if(row & polygon).alias("pairs"), *sums
    )
    return observed, watched.where(row).drop(NOTE)


def _note(observed: Observation, joined: Joined) -> None:
    found = observed.get
    joined.rows += int(found["points"])
    for name in ("invalid", "matched", "asked", "unasked", "pairs"):
        setattr(joined, name, getattr(joined, name) + int(found[name]))
