"""Objects against subscriptions, as one Spark job: the phases in their order."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.join_worker import map_in_arrow
from spark_jobs.match_objects import Rows, collection_objects, file_objects
from spark_jobs.match_parts import Partitioned, choose
from spark_jobs.match_sinks import ConsoleSink, MongoSink, ParquetFolder, ParquetSink
from spark_jobs.match_work import CONSOLE, Counts, Job, Matched
from spark_jobs.match_worker import NOTE, TALLY_SCHEMA, Matcher, Sink, Tally, match_batches
from spark_jobs.session import first_line, large_batches
from spatialnosql.cover import Ranges
from spatialnosql.errors import UsageError
from spatialnosql.joins.covering import range_keys
from spatialnosql.joins.points import JoinPoints
from spatialnosql.progress import Progress
from spatialnosql.subscriptions.area_cover import area_ranges
from spatialnosql.subscriptions.index_keeper import IndexKeeper
from spatialnosql.subscriptions.match_store import MatchStore
from spatialnosql.subscriptions.matched_batches import MatchedBatches, unmatched_batches
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.store_setup import stored_rules
from spatialnosql.target import split_namespace
from spatialnosql.uri import redact

WORTH = 0.8
"""The areas are pushed down to the servers if they hold at most this share of the points."""
ATTEMPTS = 3
PAUSE_S = 5.0


def match(spark: SparkSession, uri: str, client: Any, job: Job, *, spark_start_s: float = 0.0) -> Matched:
    """Run one matching."""
    database, name = split_namespace(job.subscriptions)
    subscriptions = Subscriptions(client[database][name])
    matched = Matched(
        job.subscriptions, ", ".join(job.objects.sources), job.out or f"{job.subscriptions}_matches",
        spark_start_s=spark_start_s,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        keeper = open_index(spark, subscriptions, job.index, matched, stack)
        with matched.phase("objects", "looking at the objects"):
            batches, condition = _condition(client, job)
            if batches is not None and not batches.finished:
                matched.read = f"nothing was ingested into {batches.namespace} since the last run"
                return matched
            rows = _open_rows(spark, client, job, keeper, condition)
            stack.callback(rows.close)
            matched.read = rows.words if batches is None else f"{batches.words}: {rows.words}"
        stack.enter_context(large_batches(spark))
        stack.enter_context(many_tasks(spark))
        matcher = make_matcher(keeper)
        parts = _partitioned(spark, keeper, matcher, rows, job, matched, stack)
        if job.into_mongodb:
            _into_mongodb(uri, subscriptions, matcher, rows, job, matched, parts)
        elif job.out == CONSOLE:
            notes = match_rows(matcher, ConsoleSink(job.limit), rows, matched, parts)
            matched.found = [one for note in notes for one in json.loads(note)][: job.limit]
        else:
            assert job.out_file is not None
            with ParquetFolder(job.out_file) as folder:
                files = match_rows(matcher, ParquetSink(str(folder.beside)), rows, matched, parts)
                folder.commit(files, matched.to_document())
        if batches is not None:
            batches.record()
    return matched


def open_index(
    spark: SparkSession,
    subscriptions: Subscriptions,
    folder: str | None,
    counts: Counts,
    stack: contextlib.ExitStack,
    *,
    some: bool = True,
) -> IndexKeeper:
    """The index, in a folder or in a temporary one; unless `some`, the subscriptions may all be gone."""
    namespace = subscriptions.collection.full_name
    if folder is None:
        if not str(spark.sparkContext.master).startswith("local"):
            raise UsageError("the workers are on other machines: give --index FOLDER, which all of them see")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="spatialnosql-index-"))
    with counts.phase("index", f"indexing the subscriptions of {namespace}"):
        count = subscriptions.count()
        if not count and (some or stored_rules(subscriptions.collection) is None):
            raise UsageError(f"{namespace} has no subscriptions; add some with `spatialnosql subscribe add`")
        with Progress("reading subscriptions", count, unit="subscriptions") as progress:
            keeper = IndexKeeper(subscriptions, Path(folder), progress.advance)
        counts.subscriptions_count = keeper.index.live
        counts.index_mb = keeper.index.nbytes / 2**20
    return keeper


# -- which objects -----------------------------------------------------------------------------------------


def _condition(client: Any, job: Job) -> tuple[MatchedBatches | None, dict[str, Any]]:
    """What the objects of a collection must meet; and the batches that are matched, if it goes by those."""
    if job.objects.collection is None:
        return None, {}
    parts: list[Mapping[str, Any]] = [job.filter] if job.filter else []
    batches = None
    if job.objects.time is not None and (job.since is not None or job.until is not None):
        bounds = {"$gte": job.since, "$lt": job.until}
        parts.append({job.objects.time: {key: value for key, value in bounds.items() if value is not None}})
    elif not job.everything:
        batches = unmatched_batches(client, job.subscriptions, job.objects.collection)
        parts.append(batches.condition)
    if not parts:
        return None, {}
    return batches, dict(parts[0]) if len(parts) == 1 else {"$and": parts}


def _open_rows(
    spark: SparkSession, client: Any, job: Job, keeper: IndexKeeper, condition: Mapping[str, Any]
) -> Rows:
    if job.objects.collection is None:
        return file_objects(spark, job)
    return collection_objects(spark, client, job, condition, lambda points: worth_reading(keeper, points))


def worth_reading(keeper: IndexKeeper, points: JoinPoints) -> tuple[Ranges | None, str]:
    """The ranges of ``gh`` that subscriptions ask about, if leaving out the rest saves something; in words, too."""
    histogram, namespace = points.info.histogram, points.info.namespace
    if histogram is None or not histogram.total:
        return None, f"all of {namespace}, of which there are no statistics"
    ranges = area_ranges(keeper.index)
    share = float(histogram.points_in(ranges.lo, ranges.hi).sum()) / histogram.total
    if share > WORTH:
        return None, f"all of {namespace}: {share:.0%} of the points lie where somebody has subscribed"
    if len(ranges) > 1:
        ranges = ranges.bridged(histogram, range_keys(points.info.costs))[0]
    return ranges, (
        f"of {namespace} {len(ranges):,} ranges of {points.info.gh}, with {share:.1%} of the points: elsewhere "
        "nobody has subscribed"
    )


# -- matching ----------------------------------------------------------------------------------------------


def _into_mongodb(
    uri: str,
    subscriptions: Subscriptions,
    matcher: Matcher,
    rows: Rows,
    job: Job,
    matched: Matched,
    parts: Partitioned | None,
) -> None:
    store = MatchStore(subscriptions.collection)
    store.prepare()
    matched.undone = store.clear_dead()
    for attempt in range(1, ATTEMPTS + 1):
        matched.attempts = attempt
        try:
            with store.run("match") as run:
                sink = MongoSink(uri, job.subscriptions, run, rows.id_type)
                match_rows(matcher, sink, rows, matched, parts)
            return
        except (PySparkException, PyMongoError) as error:
            # A task that lost its server: those that were finished stay, the others are done again.
            if attempt == ATTEMPTS or not may_pass(error):
                raise
            print(
                f"matching was interrupted ({redact(first_line(error))[:200]}); taken up again",
                file=sys.stderr,
            )
            time.sleep(PAUSE_S)


def may_pass(error: Exception) -> bool:
    """Whether an error may be gone when the matching is taken up again."""
    said = str(error)
    lost = (
        "AutoReconnect",
        "NetworkTimeout",
        "ServerSelectionTimeoutError",
        "NotPrimary",
        "MongoSocket",  # of the connector, as the next two
        "MongoTimeoutException",
        "MongoNodeIsRecovering",
        "Worker exited",
    )
    return isinstance(error, PyMongoError) or any(name in said for name in lost)


def _partitioned(
    spark: SparkSession,
    keeper: IndexKeeper,
    matcher: Matcher,
    rows: Rows,
    job: Job,
    matched: Matched,
    stack: contextlib.ExitStack,
) -> Partitioned | None:
    """The subscriptions in partitions, if they do not fit a worker or if that is asked for; None to share the index."""
    cores = spark.sparkContext.defaultParallelism
    planner, count, matched.held = choose(
        job.partitioner, job.partitions, job.worker_memory_mb, matched.index_mb, cores
    )
    if planner is None:
        return None
    folder = Path(keeper.version.folder) / "partitions"
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    with matched.phase("plan", f"planning {count} partitions by {planner}"):
        parts = Partitioned.prepare(keeper, matcher, rows.frame, folder, planner, count)
    matched.held += f"; {parts.words}"
    return parts


def match_rows(
    matcher: Matcher, sink: Sink, rows: Rows, matched: Matched, parts: Partitioned | None = None
) -> list[str]:
    """Match all objects into a sink; the notes of the tasks."""
    with matched.phase("match", f"matching against {matched.subscriptions_count:,} subscriptions"):
        if parts is not None:
            tally, notes = parts.match(rows.frame, matcher, sink)
        else:
            tally, notes = match_frame(rows.frame, matcher, sink)
    matched.clear()  # of an attempt that failed
    matched.add(tally)
    return notes


def make_matcher(keeper: IndexKeeper) -> Matcher:
    """What workers need to know to match now."""
    now_ms = int(keeper.subscriptions.now().timestamp() * 1000)
    return Matcher(keeper.version, keeper.subscriptions.rules.to_document(), now_ms)


def match_frame(frame: DataFrame, matcher: Matcher, sink: Sink) -> tuple[Tally, list[str]]:
    """Match the objects of a frame into a sink; what was done, and the notes of the tasks."""
    tallies = map_in_arrow(frame, match_batches(matcher, sink), TALLY_SCHEMA).collect()
    return Tally.together(tallies), [str(row[NOTE]) for row in tallies if row[NOTE] is not None]


@contextlib.contextmanager
def many_tasks(spark: SparkSession) -> Iterator[None]:
    """Files in enough parts for every core, however small they are, while a job runs."""
    key = "spark.sql.files.minPartitionNum"
    before = spark.conf.get(key, None)
    spark.conf.set(key, str(4 * spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.unset(key) if before is None else spark.conf.set(key, before)
