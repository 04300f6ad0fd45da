"""What workers note while they match in partitions: some of the objects, what each partition took, what was shed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark import Accumulator, AccumulatorParam, SparkContext

from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.routes import Routes, join_objects, take_objects

SAMPLED = 2_000
"""Of the objects that are dispatched at a time so many are noted."""

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
        every = max(-(-len(objects) // SAMPLED), 1)
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
