"""A stream's subscriptions in partitions that follow the load: versions of plans, changed between micro-batches.

Before a micro-batch is dispatched the subscriptions are where its plan says: what has moved, come or gone is written
first (see `balancing.versions`). While it runs the workers note how long each partition takes, and a sample of the
objects; after it the policy may decide on another plan, for the next.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame

from spark_jobs.match_parts import match_in_parts, sampled
from spark_jobs.match_worker import Matcher, Sink, Tally
from spatialnosql.subscriptions.balancing.extents import Extent
from spatialnosql.subscriptions.balancing.layout import Layout
from spatialnosql.subscriptions.balancing.policies import Policy, Round, SwarmPolicy, make_policy
from spatialnosql.subscriptions.balancing.shedding import Buffer, Level, Shedding, Utility
from spatialnosql.subscriptions.balancing.statistics import Statistics
from spatialnosql.subscriptions.balancing.strategies import Strategies, Strategy
from spatialnosql.subscriptions.balancing.timeline import strategies_differ
from spatialnosql.subscriptions.balancing.versions import Published, Versions
from spatialnosql.subscriptions.index_keeper import IndexKeeper, Version
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import Routes, join_objects, take_objects
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.vocabulary import Vocabulary

STATE, PLAN = "balance.json", "balance-{}.npz"
SAMPLED_A_TASK = 2_000
"""Objects of a task that the policy sees."""
LEVELS = (1.0, 0.8, 0.6, 0.4)
"""The loads of levels of shedding, about: they set the segments of the buffer."""

Noted = dict[str, list[Any]]


class _Notes(AccumulatorParam[Noted]):
    """Lists by name, from all tasks. A task that is done again is noted again: it is for statistics only."""

    def zero(self, value: Noted) -> Noted:
        """Nothing noted."""
        return {name: [] for name in value}

    def addInPlace(self, value1: Noted, value2: Noted) -> Noted:  # noqa: N802 - Spark's name
        """All of both."""
        for name, notes in value2.items():
            value1[name].extend(notes)
        return value1


@dataclass(frozen=True)
class TaskWatcher:
    """Notes in the workers what a policy goes by."""

    notes: Accumulator[Noted]
    partitions: int

    @classmethod
    def of(cls, context: SparkContext, partitions: int) -> TaskWatcher:
        """One for a micro-batch."""
        names = ("samples", "busy", "shed")
        return cls(context.accumulator({name: [] for name in names}, _Notes()), partitions)

    def dispatched(self, objects: Objects, sent: Routes) -> None:
        """Note some of the objects."""
        del sent
        every = max(-(-len(objects) // SAMPLED_A_TASK), 1)
        self.notes.add({"samples": [take_objects(objects, np.arange(0, len(objects), every))]})

    def shed(self, sends: int, objects: int) -> None:
        """Note what was not sent, and of how many objects."""
        self.notes.add({"shed": [(sends, objects)]})

    def matched(self, partition: int, objects: int, seconds: float) -> None:
        """Note what a partition took."""
        self.notes.add({"busy": [(partition, objects, seconds)]})

    def busy_s(self) -> NDArray[np.float64]:
        """The CPU seconds of every partition."""
        busy = np.zeros(self.partitions)
        for partition, _, seconds in self.notes.value["busy"]:
            busy[partition] += seconds
        return busy

    def objects(self) -> Objects | None:
        """The noted objects; None if there are none."""
        parts = [part for part in self.notes.value["samples"] if len(part)]
        return join_objects(parts) if parts else None


@dataclass
class Balanced:
    """What balancing did, for the summary."""

    balance: str
    partitions: int
    versions: int = 0
    """Plans that took effect, the first one included."""
    moves: int = 0
    moved: int = 0
    moved_bytes: int = 0
    shed: int = 0
    """Sends of an object to a partition that were left out."""
    shed_objects: int = 0

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"  {self.partitions} partitions, balance {self.balance}: {self.moves:,} moves, {self.moved:,} "
            f"subscriptions ({self.moved_bytes / 1e6:,.1f} MB)"
        ]
        if self.shed:
            lines.append(
                f"  SHED under overload: {self.shed_objects:,} objects were not sent to {self.shed:,} partitions; "
                "their matches there are lost"
            )
        return lines


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
        self._shed, self._buffer = shed, Buffer.of(buffer, LEVELS) if shed else None
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
        if self._buffer is not None:
            before, self._level = self._level, self._level.after(rows, self._buffer)
            if before != self._level or shed:
                print(
                    f"shedding: level {before.level} -> {self._level.level}, {shed:,} sends left out",
                    file=sys.stderr,
                    flush=True,
                )
        objects = watcher.objects()
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
        return make_policy(
            self.done.balance, make_plan(self._planner, Sample.of(objects, table), self.done.partitions)
        )


def save_policy(
    checkpoint: Path, done: Balanced, policy: Policy, strategy: Strategy, vocabulary: Vocabulary
) -> None:
    """Keep the newest plan beside the checkpoint; whole or not at all."""
    number = done.versions
    name = PLAN.format(number % 2)  # the one that is named now is left alone
    strategy.plan.save(checkpoint / name)
    state: dict[str, Any] = {
        "balance": done.balance,
        "partitions": done.partitions,
        "plan": name,
        "terms": strategy.plan.frequencies.size,
        "digest": _digest(vocabulary, strategy.plan.frequencies.size),
    }
    if isinstance(policy, SwarmPolicy):
        layout = policy.state.layout
        numbers = layout.numbers
        state["extents"] = [layout.extent(number) for number in numbers]
        state["homes"] = [layout.homes[number] for number in numbers]
    fresh = checkpoint / f"{STATE}.new"
    fresh.write_text(json.dumps(state))
    fresh.replace(checkpoint / STATE)


def load_policy(checkpoint: Path, done: Balanced, vocabulary: Vocabulary) -> Policy | None:
    """The policy as it was saved; None if there is none, or it was of other terms or partitions."""
    path = checkpoint / STATE
    if not path.exists():
        return None
    state = json.loads(path.read_text())
    same = (state["balance"], state["partitions"]) == (done.balance, done.partitions)
    if not same or state["digest"] != _digest(vocabulary, state["terms"]):
        return None
    plan = Plan.open(checkpoint / state["plan"])
    policy = make_policy(done.balance, plan)
    if not isinstance(policy, SwarmPolicy) or "extents" not in state:
        return policy
    layout = Layout.of(
        plan.grid.columns,
        plan.grid.rows,
        done.partitions,
        [Extent(*extent) for extent in state["extents"]],
        state["homes"],
    )
    # Points are counted anew, and queries when the first round tells of them.
    statistics = {number: Statistics.empty(layout.extent(number)) for number in layout.numbers}
    begun = replace(policy.state, layout=layout, statistics=statistics)
    return SwarmPolicy(plan.grid, done.partitions, plan.frequencies, begun)


def _digest(vocabulary: Vocabulary, count: int) -> str:
    """What tells whether the first so many terms are the same, in the same order."""
    terms = hashlib.sha256()
    for number in range(min(count, len(vocabulary))):
        terms.update(vocabulary.term(number).encode() + b"\0")
    return terms.hexdigest()
