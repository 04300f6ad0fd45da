"""Documents into the collection through the connector: inserted, and replaced where they are there already.

An insert that fails half way (a shard or a mongos went away, an executor died) is taken up again: what is there is
looked up, and only the rest inserted. So a load may be interrupted anywhere, by anything, any number of times.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException, PySparkImportError, PySparkTypeError
from pyspark.sql import DataFrame, DataFrameWriter, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.lookup import AT, SAME, Target, looked_up, moved_home, unsealed
from spark_jobs.session import first_line, mongo_writer
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.progress import Progress
from spatialnosql.uri import redact

BATCH = 10_000
ATTEMPTS = 5
PAUSE_S = 2.0
PATIENCE_S = 120.0
"""How long a cluster that has lost a member is waited for."""

Plan = Callable[[dict[str, int]], dict[str, int]]


@dataclass(frozen=True)
class Loaded:
    """What became of the good rows of a batch."""

    written: int
    already_there: int = 0
    replaced: int = 0
    superseded: int = 0  # rows of one key: all but the last
    moved: int = 0  # of the replaced, those that were elsewhere
    attempts: int = 1

    @property
    def rows(self) -> int:
        """All good rows."""
        return self.written + self.already_there + self.replaced + self.superseded


def load(
    documents: DataFrame,
    collection: Collection[dict[str, Any]],
    target: Target,
    *,
    rows: int,
    fresh: bool,
    keyed: bool,
    plan: Plan,
    write_concern: str | None = None,
    settle: Callable[[], None] | None = None,
) -> Loaded:
    """Load the documents of `rows` good rows. `fresh`: the collection is empty, so nothing is looked up.

    `settle`: the documents are sealed. Those that are replaced lose their seals first, and then it is called, so that
    no query sees a document go from one seal to another.

    `plan` is told, before the first write, how many are new, the same and changed, and may know better from an earlier
    attempt: then that counts, for what this batch itself has written is not what was there.
    """
    counted: dict[str, int] | None = plan({"fresh": 1}) if fresh else None
    moved = 0
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if fresh and attempt == 1:
                with watched(collection, rows):
                    found = {"documents": insert(documents, collection, write_concern)}
            else:
                with_state = looked_up(documents, target).persist(StorageLevel.DISK_ONLY)
                try:
                    found = states(with_state)
                    counted = plan(found) if counted is None else counted
                    moved += write_missing(with_state, collection, target, found, write_concern, settle)
                finally:
                    with_state.unpersist()
            return _loaded(counted or found, found["documents"], rows, keyed, moved, attempt)
        except (PySparkException, Py4JError, PyMongoError) as error:
            said = first_line(error)
            if attempt == ATTEMPTS or not _may_pass(error, said):
                raise
            print(f"loading was interrupted ({redact(said)[:200]}); taken up again", file=sys.stderr)
            wait_for(collection)
    raise AssertionError("the last attempt returns or raises")


def _may_pass(error: Exception, said: str) -> bool:
    """Whether an error may be gone when the load is taken up again: not one of the query, nor of a validator."""
    wrong = isinstance(error, (AnalysisException, PySparkImportError, PySparkTypeError))
    return not wrong and "failed validation" not in said


def _loaded(
    counted: dict[str, int], documents: int, rows: int, keyed: bool, moved: int, attempts: int
) -> Loaded:
    """What became of the rows; every one is accounted for, or it is an error."""
    if documents > rows or (documents < rows and not keyed):
        raise SpatialNoSQLError(
            f"{rows:,} rows were counted, but {documents:,} came to be written: the source has changed meanwhile; "
            "run it again when nobody writes to it"
        )
    if counted.get("fresh"):
        counted = {"new": documents, "same": 0, "changed": 0}
    return Loaded(counted["new"], counted["same"], counted["changed"], rows - documents, moved, attempts)


def insert(documents: DataFrame, collection: Collection[dict[str, Any]], write_concern: str | None) -> int:
    """Insert documents that are not there; how many there were."""
    observed = Observation()
    watched_documents = documents.observe(observed, F.count(F.lit(1)).alias("documents"))
    writer_for(watched_documents, collection, write_concern).option("operationType", "insert").save()
    return int(observed.get["documents"])


def writer_for(
    documents: DataFrame, collection: Collection[dict[str, Any]], write_concern: str | None
) -> DataFrameWriter:
    """The connector's writer as it is fastest: unordered, in large batches."""
    writer = mongo_writer(documents, collection.database.name, collection.name)
    writer = writer.option("ordered", "false").option("maxBatchSize", str(BATCH))
    return writer.option("writeConcern.w", write_concern) if write_concern else writer


def states(with_state: DataFrame) -> dict[str, int]:
    """How many documents are new, the same as those that are there, and changed."""
    new = F.col(AT).isNull()
    row = with_state.agg(
        F.count(F.lit(1)).alias("documents"),
        F.count_if(new).alias("new"),
        F.count_if(F.col(SAME)).alias("same"),
    ).collect()[0]
    changed = row["documents"] - row["new"] - row["same"]
    return {"new": row["new"], "same": row["same"], "changed": changed, "documents": row["documents"]}


def write_missing(
    with_state: DataFrame,
    collection: Collection[dict[str, Any]],
    target: Target,
    found: dict[str, int],
    write_concern: str | None,
    settle: Callable[[], None] | None = None,
) -> int:
    """Insert what is new, replace what has changed, the elsewhere ones moved first; how many were moved."""
    moved = 0
    if found["changed"]:
        changed = with_state.where(F.col(AT).isNotNull() & ~F.col(SAME))
        alone = (F.size(AT) == 1) & (F.get(F.col(AT), 0) == F.col(target.gh))
        if settle is not None:
            unsealed(changed, target)
        moved = moved_home(changed.where(~alone), target)
        if settle is not None:
            settle()
        # Now each is where its row says, and one shard knows it by its shard key.
        writer = writer_for(changed.drop(AT, SAME), collection, write_concern)
        writer.option("operationType", "replace").option("idFieldList", f"_id,{target.gh}").save()
    if found["new"]:
        with watched(collection, found["new"]):
            insert(with_state.where(F.col(AT).isNull()).drop(AT, SAME), collection, write_concern)
    return moved


def wait_for(collection: Collection[dict[str, Any]]) -> None:
    """Wait until every shard answers again."""
    end = time.monotonic() + PATIENCE_S
    time.sleep(PAUSE_S)
    while True:
        try:
            collection.count_documents({}, limit=1, maxTimeMS=10_000)
            collection.aggregate([{"$collStats": {"count": {}}}]).to_list()
            return
        except PyMongoError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE_S)


class watched:  # noqa: N801 - reads as what it does
    """Progress while Spark writes: how many documents the collection has, asked every now and then."""

    def __init__(self, collection: Collection[dict[str, Any]], total: int) -> None:
        self._collection = collection
        self._bar = Progress(f"loading {collection.full_name}", total, unit="documents")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        try:
            before = self._collection.estimated_document_count()
            while not self._stop.wait(1.0):
                done = self._collection.estimated_document_count() - before
                self._bar.advance(max(min(done, self._bar.total) - self._bar.done, 0))
        except PyMongoError:
            return  # whoever writes will notice

    def __enter__(self) -> None:
        self._bar.__enter__()
        self._thread.start()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._bar.advance(self._bar.total - self._bar.done)
        self._bar.__exit__(kind, error, trace)
