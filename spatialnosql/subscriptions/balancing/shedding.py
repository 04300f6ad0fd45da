"""S3-TM's load shedding (section 5.2): under overload an object goes to fewer partitions. It loses matches.

*What*: an object goes to at most m of its partitions, those of the highest utility: where most of its words are filed
(consensus), or where most subscriptions are filed under its words (subscription).

*How much*: objects that wait fill a buffer of three segments. While it is filled beyond the stable segment, the level
goes up one, unless fewer wait than the last time; within the ideal one, down, unless more do; in the stable one nothing
changes. Level 0 sheds nothing, level 1 means m = k, and each further level `step` less; a fraction of m is the chance
of one more partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.routes import Routes

Utility = Literal["consensus", "subscription"]
UTILITIES: tuple[Utility, ...] = ("consensus", "subscription")
FIRST_MOST = 7
"""k: the partitions of an object at level 1, as the paper found best."""
LEAST = 1.0
"""An object that has partitions goes to one of them at least."""


@dataclass(frozen=True)
class Buffer:
    """The sizes of the buffer's segments, in objects: ideal, then stable, then overload."""

    ideal: float
    stable: float

    def __post_init__(self) -> None:
        if self.ideal < 0 or self.stable <= 0:
            raise UsageError(
                f"a buffer of {self.ideal} and {self.stable} objects; the stable segment must be above zero"
            )

    @classmethod
    def of(cls, size: float, loads: Sequence[float]) -> Buffer:
        """A buffer of so many objects before overload, which no step down of the level can jump through.

        `loads` are those of the levels, from 0 on. One level down the queue grows by L(l - 1) / L(l) at most, which
        must not lead from the ideal segment past the stable one: (ideal + stable) / ideal is at least that (the
        paper's equation 8 has the other segment there, and 9 does not follow from it).
        """
        grows = max((before / after for before, after in pairwise(loads) if after > 0), default=2.0)
        ideal = size / max(grows, 1.0)
        stable = max(
            size - ideal, 0.1 * size
        )  # something between both, or the level would change all the time
        return cls(size - stable, stable)


@dataclass(frozen=True)
class Level:
    """How much is shed: 0 for nothing."""

    level: int = 0
    first_most: int = FIRST_MOST
    step: float = 1.0
    waiting: float | None = field(default=None, compare=False)
    """How many objects waited when it was last set."""

    def __post_init__(self) -> None:
        if self.level < 0 or self.first_most < 1 or self.step <= 0:
            raise UsageError(
                f"level {self.level}, {self.first_most} partitions, step {self.step}; none may be below zero, "
                "and the last two not zero"
            )

    @property
    def most(self) -> float:
        """m: to how many partitions an object goes; infinite at level 0."""
        return max(self.first_most - self.step * (self.level - 1), LEAST) if self.level else float("inf")

    def after(self, waiting: float, buffer: Buffer) -> Level:
        """The level when so many objects wait; still in the same segment it goes on only while that gets no better."""
        before, level = self.waiting, self.level
        overload = buffer.ideal + buffer.stable
        if waiting > overload:
            eased = before is not None and overload < waiting < before
            level += not eased and self.most > LEAST
        elif waiting < buffer.ideal:
            filling = before is not None and before < waiting
            level -= not filling and level > 0
        return replace(self, level=level, waiting=waiting)

    def loads(self, counts: NDArray[np.int64]) -> list[float]:
        """L(l), measured: the sends of objects with so many partitions each, at every level from 0 to the last."""
        levels = [replace(self, level=0)]
        while levels[-1].most > LEAST:
            levels.append(replace(self, level=levels[-1].level + 1))
        return [float(np.minimum(counts, one.most).sum()) for one in levels]


@dataclass(frozen=True)
class Shedding:
    """Limits where objects go; sent to workers."""

    most: float
    utility: Utility = "consensus"
    seed: int = 1

    def limited(self, dispatchers: Sequence[Dispatcher], objects: Objects, routes: Routes) -> Routes:
        """The routes of objects without those that are shed."""
        if np.isinf(self.most):
            return routes
        rows, partitions = routes.pairs()
        scores = utilities(dispatchers, objects, routes.partitions, self.utility)[rows, partitions]
        # The best first; ties by partition, so that every run sheds the same.
        order = np.lexsort((partitions, -scores, rows))
        places = np.empty(rows.size, dtype=np.int64)
        firsts = np.flatnonzero(np.diff(rows[order], prepend=-1))
        places[order] = np.arange(rows.size) - np.repeat(firsts, np.diff(np.append(firsts, rows.size)))
        whole = int(self.most)
        chance = np.random.default_rng(self.seed).random(len(objects)) < self.most - whole
        kept = places < whole + chance[rows]
        counts = np.bincount(partitions[kept], minlength=routes.partitions)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Routes(rows[kept], offsets, routes.dropped)


def utilities(
    dispatchers: Sequence[Dispatcher], objects: Objects, partitions: int, utility: Utility
) -> NDArray[np.float64]:
    """The utility of every partition for every object: its words there, or what is filed under them there."""
    scores = np.zeros((len(objects), partitions))
    owner = np.repeat(np.arange(len(objects)), np.diff(objects.offsets))
    for dispatcher in dispatchers:
        counts, homes = dispatcher.checks(objects)
        used = (counts > 0) & (homes >= 0)
        weights = counts[used] if utility == "subscription" else np.ones(int(used.sum()))
        np.add.at(scores, (owner[used], homes[used]), weights)
    return scores


def left_out(whole: Routes, limited: Routes) -> tuple[int, int]:
    """How many sends were shed, and of how many objects."""
    before, after = (np.bincount(routes.rows, minlength=1) for routes in (whole, limited))
    missing = before.copy()
    missing[: after.size] -= after
    return int(missing.sum()), int((missing > 0).sum())
