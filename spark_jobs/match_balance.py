"""A stream's subscriptions in partitions that follow the load: versions of plans, changed between micro-batches.

Before a micro-batch is dispatched the subscriptions are where its plan says: what has moved, come or gone is written
first (see `balancing.versions`). While it runs the workers note how long each partition takes, and a sample of the
objects; after it the policy may decide on another plan, for the next.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark import SparkContext
from pyspark.sql import DataFrame

from spark_jobs.match_balance_state import Balanced, load_policy, save_policy
from spark_jobs.match_parts import match_in_parts, sampled
from spark_jobs.match_watcher import TaskWatcher
from spark_jobs.match_worker import Matcher, Sink, Tally
from spatialnosql.subscriptions.balancing.policies import Policy, Round, make_policy
from spatialnosql.subscriptions.balancing.shedding import Buffer, Level, Shedding, Utility
from spatialnosql.subscriptions.balancing.strategies import Strategies, strategies_differ
from spatialnosql.subscriptions.balancing.versions import Published, Versions
from spatialnosql.subscriptions.index_keeper import IndexKeeper, Version
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table


class StreamBalance:
    """The partitions of a stream."""

    def __init__(
        self,
        keeper: IndexKeeper,
        context: SparkContext,
        checkpoint: Path,
        balance: str,
        partitions: int,
        planner: str,
        shed: Utility | None = None,
        buffer: int = 0,
    ) -> None:
        self._keeper, self._context, self._checkpoint = keeper, context, checkpoint
        self._planner = planner
        self._versions = Versions(Path(keeper.version.folder) / "partitions")
        self._policy: Policy | None = None
        self._published: Published | None = None
        self._strategies: Strategies | None = None
        self._index_version: Version | None = None
        self._base = -1
        self.busy_s: NDArray[np.float64] = np.zeros(partitions)
        """CPU seconds that the partitions took to match the last micro-batch."""
        self._table: Table
        self._numbers: NDArray[np.int64]
        self._last: tuple[Table, NDArray[np.int64], int] | None = None
        self._moves: list[str] = []
        self._shed, self._waiting = shed, buffer
        self._level = Level(first_most=max(partitions - 1, 1))
        self.done = Balanced(balance, partitions)

    def match(self, frame: DataFrame, matcher: Matcher, sink: Sink) -> tuple[Tally, list[str]] | None:
        """Match a micro-batch into a sink; None if there are no objects yet to plan by."""
        if self._policy is None:
            self._policy = self._first_policy(frame, matcher)
            if self._policy is None:
                return None
        published = self._bring_up_to_date(self._policy)
        watcher = TaskWatcher.of(self._context, self.done.partitions)
        shedding = None
        if self._shed is not None and self._level.level:
            shedding = Shedding(self._level.most, self._shed)
        found = match_in_parts(frame, matcher, sink, published.parts, watcher, shedding)
        self._end_round(self._policy, published, watcher, found[0].rows)
        return found

    def _bring_up_to_date(self, policy: Policy) -> Published:
        """Write what has changed since the last micro-batch: the plan, the subscriptions, or both."""
        version = self._keeper.version
        changed = version != self._index_version
        if changed:
            self._table, self._numbers = self._keeper.index.live_table()
            self._numbers = self._numbers.astype(np.int64)
        if version.base != self._base:
            # Numbers mean other subscriptions now: none of them is "old" any more.
            self._base = version.base
            if len(policy.strategies) > 1:
                self._policy = policy = make_policy(self.done.balance, policy.strategies[-1].plan)
        strategies = policy.strategies
        moving = strategies_differ(self._strategies, strategies)
        if self._published is None or moving or changed:
            self._published = self._versions.publish(
                strategies, self._table, self._numbers, str(version.base)
            )
            if moving:
                self._note(policy, strategies)
        self._strategies, self._index_version = strategies, version
        return self._published

    def _note(self, policy: Policy, strategies: Strategies) -> None:
        """A plan has taken effect: say so, and keep it for the next start."""
        assert self._published is not None
        self.done.versions += 1
        self.done.moves += len(self._moves)
        self.done.moved += self._published.moved
        self.done.moved_bytes += self._published.moved_bytes
        for move in self._moves:
            print(
                f"plan {self.done.versions}: {move}; {self._published.moved:,} subscriptions, "
                f"{self._published.moved_bytes / 1e6:,.2f} MB",
                file=sys.stderr,
                flush=True,
            )
        self._moves = []
        save_policy(self._checkpoint, self.done, policy, strategies[-1], self._keeper.index.vocabulary)

    def _end_round(self, policy: Policy, published: Published, watcher: TaskWatcher, rows: int) -> None:
        notes = watcher.notes.value
        shed = sum(sends for sends, _ in notes["shed"])
        self.done.shed += shed
        self.done.shed_objects += sum(objects for _, objects in notes["shed"])
        objects = watcher.objects()
        if self._shed is not None and objects is not None:
            routes = published.held.route(objects)
            loads = self._level.loads(np.bincount(routes.rows, minlength=len(objects)))
            before = self._level
            self._level = before.after(rows, Buffer.of(self._waiting, loads))
            if before != self._level or shed:
                print(
                    f"shedding: level {before.level} -> {self._level.level}, {shed:,} sends left out",
                    file=sys.stderr,
                    flush=True,
                )
        if objects is None:
            return
        self.busy_s = busy = watcher.busy_s()
        added, removed = self._changes()
        seen = Round(
            objects,
            rows / len(objects),
            self._table,
            self._numbers,
            len(self._keeper.index),
            added,
            removed,
            busy,
            rows / float(busy.max()) if busy.max() > 0 else 0.0,
            published.held,
        )
        self._moves = policy.end_round(seen)

    def _changes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The bounds of subscriptions that came and went since the last round; all of both when numbers are new."""
        now, before = (self._table, self._numbers, self._base), self._last
        self._last = now
        if before is None:
            return self._table.bounds, np.zeros((0, 4))
        if before[2] != self._base:
            return self._table.bounds, before[0].bounds
        came = ~np.isin(self._numbers, before[1], assume_unique=True)
        went = ~np.isin(before[1], self._numbers, assume_unique=True)
        return self._table.bounds[came], before[0].bounds[went]

    def _first_policy(self, frame: DataFrame, matcher: Matcher) -> Policy | None:
        """As it was when the stream was last up, if its terms are the same; else by a plan of the first objects."""
        vocabulary = self._keeper.index.vocabulary
        found = load_policy(self._checkpoint, self.done, vocabulary)
        if found is not None:
            return found
        objects = sampled(frame, matcher)
        if not len(objects):
            return None
        table, _ = self._keeper.index.live_table()
        # Of SWARM's first plan only the grid counts, which a plan by text has not.
        planner = "kdtree" if self.done.balance == "swarm" else self._planner
        plan = make_plan(planner, Sample.of(objects, table), self.done.partitions)
        return make_policy(self.done.balance, plan)
