"""Matching with the subscriptions in partitions: for more of them than a worker can hold.

A plan is made from a sample of the objects, and carried out in a folder that all workers see. Objects go to the
partitions that may hold what they match (dispatch), are matched there, and the matches of an object meet again where
they are merged and stored. Three passes over Arrow batches with two shuffles between them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_jobs.join_worker import map_in_arrow
from spark_jobs.match_parts_worker import (
    NUMBERS,
    PART,
    TERMS,
    Watcher,
    dispatch_batches,
    match_part_batches,
    merge_batches,
)
from spark_jobs.match_work import AUTO
from spark_jobs.match_worker import (
    AT,
    COLUMNS,
    ID,
    LAT,
    LNG,
    NOTE,
    TALLY_SCHEMA,
    TEXT,
    WRITTEN,
    Matcher,
    Sink,
    Tally,
    coordinates,
    index_reader,
    times,
)
from spark_jobs.session import physical_memory_mb
from spatialnosql.subscriptions.balancing.shedding import Shedding
from spatialnosql.subscriptions.index_keeper import IndexKeeper
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.load import Report, report
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.partitioning.stored import Parts, Sizes, save_partitions

DEFAULT_PLANNER = "hybrid"
MEMORY_SHARE = 0.5
"""Of the memory of a machine that the index may take, unless the user says how much."""
SAMPLED = 50_000
"""Objects that the plan is made from, about."""


def choose(
    partitioner: str, partitions: int | None, memory_mb: float | None, index_mb: float, cores: int
) -> tuple[str | None, int, str]:
    """The planner, or None to share the index; how many partitions; and why, in words."""
    limit = memory_mb if memory_mb is not None else MEMORY_SHARE * physical_memory_mb()
    takes = f"the index takes {index_mb:,.0f} MB"
    fits = index_mb <= limit
    if partitioner == AUTO and partitions is None and fits:
        return None, 1, f"shared: {takes}, within the {limit:,.0f} MB that a worker may have"
    # So many that each is well below the limit, though some subscriptions are in several of them.
    needed = partitions or max(2 * cores, int(np.ceil(2 * index_mb / max(limit, 1.0))))
    name = DEFAULT_PLANNER if partitioner == AUTO else partitioner
    if partitioner != AUTO or partitions is not None:
        return name, needed, f"{needed} partitions by {name}, as asked for; {takes}"
    return name, needed, f"{needed} partitions by {name}: {takes}, more than the {limit:,.0f} MB of a worker"


@dataclass(frozen=True)
class Partitioned:
    """Subscriptions in partitions, saved."""

    parts: Parts
    report: Report
    sizes: Sizes

    @classmethod
    def prepare(
        cls,
        keeper: IndexKeeper,
        matcher: Matcher,
        frame: DataFrame,
        folder: Path,
        planner: str,
        partitions: int,
    ) -> Partitioned:
        """Make a plan and carry it out in a folder."""
        table, numbers = keeper.index.live_table()
        sample = sampled(frame, matcher)
        started = time.perf_counter()
        plan = make_plan(planner, Sample.of(sample, table), partitions)
        found = report(plan, sample, table, time.perf_counter() - started)
        parts, sizes = save_partitions(folder, plan, table, numbers)
        return cls(parts, found, sizes)

    @property
    def words(self) -> str:
        """What they look like, for people."""
        largest = max(self.sizes.partitions) / 2**20
        return (
            f"at most {largest:,.0f} MB each, a subscription in {self.sizes.replication:.2f} of them, an object sent "
            f"to {self.report.spread:.2f}, {self.report.dropped:.0%} of the objects to none; load of the fullest over "
            f"the mean {self.report.imbalance:.2f}; planned in {self.report.planning_s:.1f} s"
        )

    def match(self, frame: DataFrame, matcher: Matcher, sink: Sink) -> tuple[Tally, list[str]]:
        """Match the objects of a frame into a sink; what was done, and the notes of the tasks."""
        return match_in_parts(frame, matcher, sink, self.parts)


def match_in_parts(
    frame: DataFrame,
    matcher: Matcher,
    sink: Sink,
    parts: Parts,
    watcher: Watcher | None = None,
    shedding: Shedding | None = None,
) -> tuple[Tally, list[str]]:
    """Match the objects of a frame into a sink; what was done, and the notes of the tasks."""
    observed = Observation()
    valid = F.col(LNG).between(-180, 180) & F.col(LAT).between(-90, 90)
    oldest = F.min(WRITTEN) if WRITTEN in frame.columns else F.lit(None).cast("long")
    seen = frame.observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(~F.coalesce(valid, F.lit(False))).alias("no_place"),
        F.count_if(F.col(AT).isNull()).alias("no_time"),
        F.coalesce(oldest, F.lit(0).cast("long")).alias("oldest"),
    )
    own = [
        frame.schema[ID],
        StructField(TEXT, StringType()),
        StructField(LNG, DoubleType()),
        StructField(LAT, DoubleType()),
        StructField(AT, LongType()),
    ]
    sent_schema = StructType([StructField(PART, IntegerType()), *own, StructField(TERMS, BinaryType())])
    sent = map_in_arrow(seen, dispatch_batches(matcher, parts, watcher, shedding), sent_schema)
    there = sent.repartitionById(len(parts.partitions), F.col(PART))
    found_schema = StructType([*own, StructField(NUMBERS, BinaryType())])
    found = map_in_arrow(there, match_part_batches(parts, watcher), found_schema)
    # By all columns: an identifier that comes with two texts is two objects, as it is without partitions.
    met = found.repartition(F.col(ID)).sortWithinPartitions(*(F.col(name) for name in COLUMNS))
    tallies = map_in_arrow(met, merge_batches(matcher, sink), TALLY_SCHEMA).collect()
    counted = {name: int(observed.get[name]) for name in ("rows", "no_place", "no_time", "oldest")}
    notes = [str(row[NOTE]) for row in tallies if row[NOTE] is not None]
    return Tally.together(tallies)._replace(**counted), notes


def sampled(frame: DataFrame, matcher: Matcher) -> Objects:
    """Some objects of all there are, as the planner sees them: the first ones may be of one place or one day.

    It costs a pass over the objects, and another to count them.
    """
    total = frame.count()
    chosen = frame if total <= SAMPLED else frame.sample(fraction=SAMPLED / total, seed=1)
    rows = chosen.toArrow().combine_chunks()
    batch = rows.to_batches()[0] if rows.num_rows else None
    if batch is None:
        nothing = np.zeros(0)
        return Objects.of(nothing, nothing, 0, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    at, _ = times(batch.column(AT), matcher.now_ms)
    return Objects.of(*coordinates(batch), at, *index_reader(matcher).terms.read(batch.column(TEXT)))
