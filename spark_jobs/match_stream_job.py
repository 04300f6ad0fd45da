"""A stream of objects against subscriptions: one micro-batch after the other, taken up where it was left.

Spark's checkpoint says which objects a micro-batch has, before it is begun and when it is done: one that was cut off is
run again with the same objects. What it had stored is then known, or replaced (see `match_stream_sinks`).
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.match import shown
from spark_jobs.match_balance import StreamBalance
from spark_jobs.match_job import (
    ATTEMPTS,
    PAUSE_S,
    make_matcher,
    match_frame,
    may_pass,
    open_index,
    worth_reading,
)
from spark_jobs.match_objects import collection_objects
from spark_jobs.match_stream_sinks import Batches, ConsoleBatches, MongoBatches, ParquetBatches
from spark_jobs.match_stream_sources import (
    Nudge,
    change_stream,
    folder_stream,
    id_kind,
    read_until,
    servers_second,
    start_seconds,
)
from spark_jobs.match_stream_work import Streamed, StreamJob, StreamState
from spark_jobs.match_work import CONSOLE, Job
from spark_jobs.match_worker import Sink, Tally
from spark_jobs.session import first_line, large_batches
from spatialnosql.subscriptions.index_keeper import IndexKeeper, Refreshed
from spatialnosql.subscriptions.match_store import MatchStore
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.target import split_namespace
from spatialnosql.uri import redact

WAIT_S = 0.2
NOTED_S = 5.0
"""How long Spark is given to note that a micro-batch is done; else it is run again next time."""
ALL_FIRST = -1
"""The number of the batch of what was there before the stream began."""


@contextlib.contextmanager
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """Small files together in a task: each task makes its own buckets, and connections."""
    key = "spark.sql.files.openCostInBytes"
    before = str(spark.conf.get(key))
    spark.conf.set(key, "64kb")
    try:
        yield
    finally:
        spark.conf.set(key, before)


class MatchStream:
    """A stream, open inside a ``with`` block: `run` it until it ends, or `start` its query and drive that.

    >>> with MatchStream(spark, uri, client, job) as stream:
    ...     stream.run(threading.Event())
    """

    def __init__(self, spark: SparkSession, uri: str, client: Any, job: StreamJob) -> None:
        self._spark, self._uri, self._client, self._job = spark, uri, client, job
        out = job.out or f"{job.subscriptions}_matches"
        self.streamed = Streamed(job.subscriptions, job.source, out)
        self._checkpoint: Path
        self._state: StreamState
        self._keeper: IndexKeeper
        self._batches: Batches
        self.balance: StreamBalance | None = None
        self._nudge = Nudge(client) if job.objects.collection is not None else None
        self._query: StreamingQuery | None = None
        self._busy = threading.Lock()
        self._ending = False
        self._refused = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> MatchStream:
        job = self._job
        database, name = split_namespace(job.subscriptions)
        subscriptions = Subscriptions(self._client[database][name])
        with contextlib.ExitStack() as stack:
            folder = job.checkpoint or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="spatialnosql-stream-", ignore_cleanup_errors=True)
            )
            self._checkpoint = Path(folder.removeprefix("file://")).resolve()
            self._state = StreamState(self._checkpoint, job)
            if job.objects.collection is not None:
                start_seconds(self._client, self._state)  # before anything is read: nothing falls between
            self._keeper = open_index(self._spark, subscriptions, job.index, self.streamed, stack, some=False)
            self._batches = self._open_sink(subscriptions, stack)
            self.balance = self._open_partitions()
            stack.enter_context(large_batches(self._spark))
            stack.enter_context(few_tasks(self._spark))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with self._stack:
            self.stop()

    def _open_sink(self, subscriptions: Subscriptions, stack: contextlib.ExitStack) -> Batches:
        job = self._job
        if job.into_mongodb:
            store = MatchStore(subscriptions.collection)
            store.prepare()
            self.streamed.undone = store.clear_dead()
            return MongoBatches(self._uri, job.subscriptions, stack.enter_context(store.run("match-stream")))
        if job.out == CONSOLE:
            return ConsoleBatches(job.limit, lambda one: print(shown(one), flush=True))
        assert job.out is not None
        return ParquetBatches(job.out, self._state.name)

    def _open_partitions(self) -> StreamBalance | None:
        """The partitions, if the subscriptions are to be held in some."""
        job, context = self._job, self._spark.sparkContext
        if not job.in_partitions:
            return None
        balance = StreamBalance(
            self._keeper,
            context,
            self._checkpoint,
            job.balance,
            job.partitions or max(context.defaultParallelism, 2),
            job.partitioner,
            job.shed,
            job.shed_buffer,
        )
        self.streamed.balanced = balance.done
        return balance

    # -- the query -----------------------------------------------------------------------------------------

    def start(self) -> StreamingQuery | None:
        """Start the query; None while a collection has no document that would tell the type of its identifiers."""
        frame = self._frame()
        if frame is None:
            return None
        self._failure = None
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", (self._checkpoint / "spark").as_uri())
        if self._job.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._job.trigger_ms} milliseconds")
        self._query = writer.start()
        return self._query

    def _frame(self) -> DataFrame | None:
        """The objects as they come."""
        job = self._job
        if job.objects.collection is None:
            return folder_stream(self._spark, job, self._state)
        database, name = split_namespace(job.objects.collection)
        collection = self._client[database][name]
        kind = id_kind(collection, self._state)
        if kind is None:
            return None
        start = start_seconds(self._client, self._state)
        frame, id_type = change_stream(self._spark, collection, job, kind, start)
        if isinstance(self._batches, MongoBatches):
            self._batches.id_type = id_type
        if self._state.get("all_first") == "wanted":
            self._match_all()
            self._state.note(all_first="done")
        return frame

    def _match_all(self) -> None:
        """Match what is in the collection, as the batch job does; what the stream brings again is known then."""
        job = self._job
        given = Job(job.subscriptions, job.objects, everything=True)
        rows = collection_objects(
            self._spark, self._client, given, {}, lambda points: worth_reading(self._keeper, points)
        )
        with self.streamed.phase("all", f"matching {rows.words} first"):
            self._match(rows.frame, ALL_FIRST)

    def run(self, ended: threading.Event) -> None:
        """Run until it is ended, or, with `once`, until all that is there is matched."""
        began = time.monotonic()
        try:
            self._run(ended)
        finally:
            self.stop()
            self.streamed.seconds = time.monotonic() - began
            self.streamed.subscriptions_count = self._keeper.index.live

    def _run(self, ended: threading.Event) -> None:
        until = 0
        if self._job.once and self._nudge is not None:
            until = servers_second(self._client)
            time.sleep(1.0)  # the connector's offsets are whole seconds: this one must be over to be read
        failures = 0
        while not ended.is_set():
            before = self.streamed.batches
            try:
                query = self.start()
                if query is None:
                    if self._job.once:
                        return
                    ended.wait(self._job.trigger_ms / 1000)
                    continue
                self._wait(query, ended)
                # Of a change stream Spark makes only one micro-batch, which may be one that was cut off.
                if not until or read_until(query) > until:
                    return
            except (PySparkException, PyMongoError) as error:
                # A task that lost its server: the micro-batch is run again.
                failures = 1 if self.streamed.batches > before else failures + 1
                if failures == ATTEMPTS or not may_pass(error):
                    raise
                self.streamed.restarts += 1
                said = redact(first_line(error))[:200]
                print(f"the stream was interrupted ({said}); taken up again", file=sys.stderr)
                ended.wait(PAUSE_S)

    def _wait(self, query: StreamingQuery, ended: threading.Event) -> None:
        try:
            while not ended.is_set() and not query.awaitTermination(WAIT_S):  # type: ignore[arg-type]
                pass
        except PySparkException as error:
            # What Spark says of it is a stack of two languages; what went wrong here says it shortly.
            raise self._failure or error from None

    def stop(self) -> None:
        """End the query, when the micro-batch that it is in has been stored, and noted as done."""
        query, self._query = self._query, None
        if query is None:
            return
        with self._busy:
            self._ending = True
        end = time.monotonic() + NOTED_S
        while time.monotonic() < end and query.isActive and query.status["isTriggerActive"]:
            if self._refused.wait(0.05):
                break  # it has come to the next one
        query.stop()
        self._ending = False
        self._refused.clear()

    # -- micro-batches -------------------------------------------------------------------------------------

    def _take(self, frame: DataFrame, number: int) -> None:
        """Match one micro-batch: what Spark calls."""
        with self._busy:
            if self._ending:
                self._refused.set()
                raise InterruptedError("the stream is being ended")
            try:
                self._match(frame, number)
            except BaseException as error:
                self._failure = error
                raise

    def _match(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        refreshed: Refreshed = self._keeper.refresh()
        matcher = make_matcher(self._keeper)
        tally = Tally()

        def match(sink: Sink) -> list[str]:
            nonlocal tally
            found = self.balance.match(frame, matcher, sink) if self.balance is not None else None
            tally, notes = found or match_frame(frame, matcher, sink)
            return notes

        with self._nudge.nudging() if self._nudge is not None else contextlib.nullcontext():
            self._batches.store(number, match)
        latency = time.time() - tally.oldest / 1000 if tally.oldest else None
        self.streamed.take(number, tally, refreshed, time.monotonic() - began, latency)
