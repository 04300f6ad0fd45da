"""Which rows of a batch are in the collection already, asked of the server a few thousand identifiers at a time.

The cost follows the batch, not the collection. MongoDB keeps ``_id`` unique within a shard only, so the question goes
to all of them, and every document with the identifier is told, wherever it lives.

This runs on Spark's workers, which may not have this package: the module is sent to them as it is, and imports nothing
of it. They need pymongo.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

AT, SAME = "__at", "__same"
"""The geohashes of the documents with a row's ``_id`` (null if there is none); whether one of them is the row."""
AT_ONCE = 2_000

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Target:
    """The collection that is asked."""

    uri: str
    database: str
    collection: str
    gh: str
    location: str
    digest: str | None  # the field that tells whether a row has changed; without one its _id tells
    seal: str | None = None  # the field of seals, if documents may have some: one that moves loses its own


def looked_up(documents: DataFrame, target: Target) -> DataFrame:
    """The documents with `AT` and `SAME`; only what identifies a row goes to Python."""

    def ask(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return _ask(batches, target)

    found = arrow_udf(ask, f"{AT} array<string>, {SAME} boolean").asNondeterministic()
    digest = F.col(target.digest) if target.digest else F.lit(None).cast("long")
    state = found(F.col("_id"), F.col(target.gh), digest)
    return documents.withColumn("__state", state).select(
        *documents.columns, f"__state.{AT}", f"__state.{SAME}"
    )


def moved_home(documents: DataFrame, target: Target) -> int:
    """Move the documents that `looked_up` found in another place to the place of their row; how many that were.

    The server moves a document from shard to shard in one transaction. Of copies of one identifier only one stays.
    """

    def mend(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return _mend(batches, target)

    mended = arrow_udf(mend, "long").asNondeterministic()
    place = F.col(f"{target.location}.coordinates")
    moved = documents.select(mended(F.col("_id"), F.col(target.gh), place, F.col(AT)).alias("moved"))
    return int(moved.agg(F.coalesce(F.sum("moved"), F.lit(0))).collect()[0][0])


def unsealed(documents: DataFrame, target: Target) -> int:
    """Take the seals of documents away, wherever they are; how many had one."""

    def unseal(batches: Iterator[tuple[pa.Array]]) -> Iterator[pa.Array]:
        return _unseal(batches, target)

    taken = arrow_udf(unseal, "long").asNondeterministic()
    found = documents.select(taken(F.col("_id")).alias("taken"))
    return int(found.agg(F.coalesce(F.sum("taken"), F.lit(0))).collect()[0][0])


def _unseal(batches: Iterator[Any], target: Target) -> Iterator[Any]:
    from pymongo import MongoClient

    seal = str(target.seal)
    with MongoClient[dict[str, Any]](target.uri) as client:
        collection = client[target.database][target.collection]
        for batch in batches:
            # A function of one column is given the columns themselves, not tuples of them.
            ids = (batch[0] if isinstance(batch, tuple) else batch).to_pylist()
            changed = 0
            for start in range(0, len(ids), AT_ONCE):
                wanted = {"_id": {"$in": ids[start : start + AT_ONCE]}, seal: {"$exists": True}}
                changed += collection.update_many(wanted, {"$unset": {seal: ""}}).modified_count
            yield pa.array([changed] + [0] * (len(ids) - 1), pa.int64())


def _ask(batches: Iterator[Any], target: Target) -> Iterator[Any]:
    from pymongo import MongoClient

    fields = {target.gh: 1, **({target.digest: 1} if target.digest else {})}
    with MongoClient[dict[str, Any]](target.uri) as client:
        collection = client[target.database][target.collection]
        for batch in batches:
            ids, places, digests = (column.to_pylist() for column in batch)
            found: dict[Any, list[dict[str, Any]]] = {}
            for start in range(0, len(ids), AT_ONCE):
                for document in collection.find({"_id": {"$in": ids[start : start + AT_ONCE]}}, fields):
                    found.setdefault(document["_id"], []).append(document)
            at: list[list[str] | None] = []
            same: list[bool] = []
            for identifier, place, digest in zip(ids, places, digests, strict=True):
                documents = found.get(identifier)
                at.append([str(one.get(target.gh)) for one in documents] if documents else None)
                same.append(
                    documents is not None
                    and len(documents) == 1
                    and documents[0].get(target.gh) == place
                    and (target.digest is None or documents[0].get(target.digest) == digest)
                )
            columns = [pa.array(at, pa.list_(pa.string())), pa.array(same, pa.bool_())]
            yield pa.StructArray.from_arrays(columns, names=[AT, SAME])


def _mend(batches: Iterator[Any], target: Target) -> Iterator[Any]:
    from concurrent.futures import ThreadPoolExecutor

    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](target.uri, retryWrites=True) as client, ThreadPoolExecutor(4) as pool:
        collection = client[target.database][target.collection]

        def mend(row: tuple[Any, str, list[float], list[str]]) -> int:
            identifier, home, coordinates, places = row
            # Copies that only an accident can have left: one is enough.
            kept = home if home in places else places[0]
            for place in places:
                if place != kept:
                    collection.delete_one({"_id": identifier, target.gh: place})
            if kept == home:
                return 0
            point = {"type": "Point", "coordinates": coordinates}
            change: dict[str, Any] = {"$set": {target.gh: home, target.location: point}}
            if target.seal is not None:
                change["$unset"] = {target.seal: ""}
            return int(collection.update_one({"_id": identifier, target.gh: kept}, change).matched_count)

        for batch in batches:
            rows = zip(*(column.to_pylist() for column in batch), strict=True)
            yield pa.array(list(pool.map(mend, rows)), pa.int64())
