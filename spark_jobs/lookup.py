"""Which rows of a batch are in the collection already, asked of the server a few thousand identifiers at a time.

The cost follows the batch, not the collection. MongoDB keeps ``_id`` unique within a shard only, so the question goes to
all of them, and every document with the identifier is told, wherever it lives.

This runs on Spark's workers, which may not have this package: the module is sent to them as it is, and imports nothing of
it. They need pymongo.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

AT, SAME = "__at", "__same"
"""The geohashes of the documents with a row's ``_id`` (null if there is none); whether one of them is the row."""
AT_ONCE = 2_000

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Target:
    """The collection that is asked."""

    uri: str
    database: str
    collection: str
    gh: str
    location: str
    digest: str | None  # the field that tells whether a row has changed; without one its _id tells


def looked_up(documents: DataFrame, target: Target) -> DataFrame:
    """The documents with `AT` and `SAME`."""
    added = [StructField(AT, ArrayType(StringType())), StructField(SAME, BooleanType())]
    schema = StructType([*documents.schema.fields, *added])

    def ask(batches: Iterable[Any]) -> Iterator[Any]:
        return _ask(batches, target)

    return documents.mapInArrow(ask, schema)  # type: ignore[arg-type]


def moved_home(documents: DataFrame, target: Target) -> DataFrame:
    """Move the documents that `looked_up` found in another place to the place of their row; counts what it did.

    The server moves a document from shard to shard in one transaction. Copies of one identifier are removed but for one.
    """

    def mend(batches: Iterable[Any]) -> Iterator[Any]:
        return _mend(batches, target)

    fields = documents.select("_id", target.gh, target.location, AT)
    return fields.mapInArrow(mend, "moved long, removed long")


def _ask(batches: Iterable[Any], target: Target) -> Iterator[Any]:
    import pyarrow as pa
    from pymongo import MongoClient

    fields = {target.gh: 1, **({target.digest: 1} if target.digest else {})}
    with MongoClient[dict[str, Any]](target.uri) as client:
        collection = client[target.database][target.collection]
        for batch in batches:
            names = batch.schema.names
            ids = batch.column(names.index("_id")).to_pylist()
            places = batch.column(names.index(target.gh)).to_pylist()
            digests = batch.column(names.index(target.digest)).to_pylist() if target.digest else None
            found: dict[Any, list[dict[str, Any]]] = {}
            for start in range(0, len(ids), AT_ONCE):
                for document in collection.find({"_id": {"$in": ids[start : start + AT_ONCE]}}, fields):
                    found.setdefault(document["_id"], []).append(document)
            at: list[list[str] | None] = []
            same: list[bool] = []
            for number, identifier in enumerate(ids):
                documents = found.get(identifier)
                at.append([str(one.get(target.gh)) for one in documents] if documents else None)
                same.append(
                    documents is not None
                    and len(documents) == 1
                    and documents[0].get(target.gh) == places[number]
                    and (digests is None or documents[0].get(target.digest or "") == digests[number])
                )
            columns = [batch.column(number) for number in range(len(names))]
            added = [pa.array(at, pa.list_(pa.string())), pa.array(same, pa.bool_())]
            yield pa.RecordBatch.from_arrays([*columns, *added], names=[*names, AT, SAME])


def _mend(batches: Iterable[Any], target: Target) -> Iterator[Any]:
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow as pa
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](target.uri, retryWrites=True) as client, ThreadPoolExecutor(4) as pool:
        collection = client[target.database][target.collection]

        def mend(row: dict[str, Any]) -> tuple[int, int]:
            places, home = list(row[AT]), row[target.gh]
            # Copies that only an earlier accident can have left: one is enough.
            kept = home if home in places else places[0]
            places.remove(kept)
            removed = sum(
                collection.delete_one({"_id": row["_id"], target.gh: place}).deleted_count for place in places
            )
            if kept == home:
                return 0, removed
            change = {"$set": {target.gh: home, target.location: row[target.location]}}
            moved = collection.update_one({"_id": row["_id"], target.gh: kept}, change).matched_count
            return moved, removed

        for batch in batches:
            results = list(pool.map(mend, batch.to_pylist()))
            sums = [pa.array([sum(result[place] for result in results)], pa.int64()) for place in (0, 1)]
            yield pa.RecordBatch.from_arrays(sums, names=["moved", "removed"])
