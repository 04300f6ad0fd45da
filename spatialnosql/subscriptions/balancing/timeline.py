"""Rounds of a stream, simulated: what workers that are balanced by a policy would do while the load moves.

Real are the dispatcher, every worker's index and the policy. Counted are, for a sample of each round's objects, those
that every worker receives and the postings its index reads for them. Computed are, by the costs of definition 1 (see
`Costs`), how long each worker is busy; from that the throughput, which the busiest worker limits, since a stream goes
on only as fast as its slowest part takes it (back-pressure); and what is received in a round of so many seconds.
Nothing is timed, so equal scenarios give equal figures on any machine. There is no network, no dispatcher and no merger
in it.

Latency comes from queues: objects arrive at random at a given rate, at most `PENDING` are on their way at a time, each
waits its turn at its workers. It is measured from when it is let in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.cell_loads import row_bytes
from spatialnosql.subscriptions.balancing.policies import Policy, Round
from spatialnosql.subscriptions.balancing.strategies import Held, Strategies, hold, strategies_differ
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.nodes import postings_met
from spatialnosql.subscriptions.partitioning.routes import merge_matches, take_objects
from spatialnosql.subscriptions.table import Table

PENDING = 1000
"""So many objects are on their way at a time."""
ROUND_S = 15.0
"""How long a round takes, as in SWARM's experiments."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scenario:
    """What comes, round by round."""

    name: str
    rounds: int
    table: Table
    """All subscriptions there will be, in the order in which they come."""
    born: Rows
    """The round with which each comes, ascending, and the one with which it goes."""
    dies: Rows
    objects: Callable[[int], Objects]
    """A sample of the objects of a round."""
    workers: int
    hot: tuple[int, int] = (0, 0)
    """The rounds ``[first, last)`` in which the load is another than before."""
    whole: bool = False
    """Whether `objects` are all of a round, beside which subscriptions come and go. Otherwise they are a sample of what
    the workers can take in `ROUND_S`."""

    def live(self, turn: int) -> Rows:
        """The subscriptions there are in a round."""
        return np.flatnonzero((self.born <= turn) & (self.dies > turn))


@dataclass(frozen=True)
class Turn:
    """What a round was like."""

    queries: int
    throughput: float
    """Objects a second that the workers could take."""
    imbalance: float
    """The busiest worker over the mean."""
    latency_us: float
    moved: int
    """Subscriptions that came to a worker because plans changed."""
    moved_bytes: int
    moves: tuple[str, ...] = ()

    @property
    def units(self) -> float:
        """SWARM's units of work (section 6.1): queries in the system times objects a second."""
        return self.queries * self.throughput


@dataclass
class Workers:
    """The workers: which subscriptions each holds, and its index."""

    table: Table
    held: list[Rows]
    indexes: list[Index]

    @classmethod
    def of(cls, table: Table, workers: int) -> Workers:
        """Workers that hold nothing."""
        nothing = table.take(np.zeros(0, dtype=np.int64))
        return cls(
            table,
            [np.zeros(0, dtype=np.int64) for _ in range(workers)],
            [Index.build(nothing) for _ in range(workers)],
        )

    def hold(self, rows: tuple[Rows, ...]) -> tuple[list[Rows], list[Rows]]:
        """Let every worker hold these subscriptions; what came to each, and what went."""
        came, went = [], []
        for worker, (before, now) in enumerate(zip(self.held, rows, strict=True)):
            came.append(np.setdiff1d(now, before, assume_unique=True))
            went.append(np.setdiff1d(before, now, assume_unique=True))
            if came[-1].size or went[-1].size:
                self.indexes[worker] = Index.build(self.table.take(now))
                self.held[worker] = now
        return came, went

    def match(self, held: Held, objects: Objects) -> tuple[Rows, Rows]:
        """The distinct pairs of object and subscription that match: for tests."""
        routes, parts = held.route(objects), []
        for worker, index in enumerate(self.indexes):
            rows = routes.rows_of(worker)
            found, numbers = index.match_objects(take_objects(objects, rows))
            parts.append((rows[found], self.held[worker][numbers]))
        return merge_matches(parts)


@dataclass(frozen=True, eq=False)
class Work:
    """What the objects of a round cost: pairs of object and worker, sorted by object."""

    objects: Rows
    workers: NDArray[np.int32]
    seconds: NDArray[np.float64]

    def busy_s(self, workers: int) -> NDArray[np.float64]:
        """How long each worker is at it."""
        return np.bincount(self.workers, weights=self.seconds, minlength=workers).astype(np.float64)


def work_of(workers: Workers, held: Held, objects: Objects, costs: Costs) -> Work:
    """Send objects to the workers and count what they do with them."""
    routes = held.route(objects)
    rows, homes = routes.pairs()
    seconds = np.full(rows.size, costs.object_s)
    for worker, index in enumerate(workers.indexes):
        own = take_objects(objects, routes.rows_of(worker))
        if not len(own):
            continue
        owner = np.repeat(np.arange(len(own)), np.diff(own.offsets))
        for segment in index.segments:
            checks = postings_met(
                own.x, own.y, own.offsets, own.terms,
                segment.levels, segment.cell_keys, segment.cell_numbers, segment.cell_slots,
                segment.slot_terms, segment.slot_postings,
            )  # fmt: skip
            met = np.bincount(owner, weights=checks, minlength=len(own))
            seconds[routes.offsets[worker] : routes.offsets[worker + 1]] += costs.check_s * met
    order = np.argsort(rows, kind="stable")
    return Work(rows[order], homes[order], seconds[order])


@dataclass
class Timeline:
    """A scenario under a policy, round after round."""

    scenario: Scenario
    policy: Policy
    demand: float | None = None
    """Objects a second that arrive, for the latency; None for no latency."""
    costs: Costs = field(default_factory=Costs)
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = Workers.of(self.scenario.table, self.scenario.workers)
        self._sizes = row_bytes(self.scenario.table)
        self._queues = _Queues(self.scenario.workers)
        self._live: Rows = np.zeros(0, dtype=np.int64)
        self._strategies: Strategies | None = None
        self.held: Held
        self._subscribed: Table

    def run(self, rounds: int | None = None) -> list[Turn]:
        """All rounds, or the first so many."""
        for turn in range(self.scenario.rounds if rounds is None else rounds):
            self.turns.append(self._turn(turn))
        return self.turns

    def _turn(self, turn: int) -> Turn:
        scenario, count = self.scenario, self.scenario.workers
        before, now = self._live, scenario.live(turn)
        added = np.setdiff1d(now, before, assume_unique=True)
        removed = np.setdiff1d(before, now, assume_unique=True)
        strategies = self.policy.strategies
        changed = strategies_differ(self._strategies, strategies)
        if changed or added.size or removed.size:
            self._subscribed = scenario.table.take(now)
            self.held = hold(strategies, self._subscribed, now)
        came, went = self.workers.hold(tuple(now[rows] for rows in self.held.rows))
        self._live, self._strategies = now, strategies
        # What is new to a worker, but not to all of them, was moved; in the first round nothing was.
        old = [np.setdiff1d(rows, added, assume_unique=True) for rows in came] if turn else []
        objects = scenario.objects(turn)
        work = work_of(self.workers, self.held, objects, self.costs)
        busy = work.busy_s(count)
        changing = np.zeros(count)
        if turn:
            changing += [
                self.costs.insert_s * a.size + self.costs.delete_s * b.size
                for a, b in zip(came, went, strict=True)
            ]
        throughput = _throughput(busy, changing, len(objects), scenario.whole)
        latency = self._latency(work, changing, len(objects)) if self.demand is not None else 0.0
        if (
            turn and scenario.whole
        ):  # what comes and goes is load as well; what is moved is not the plan's fault
            own = [np.intersect1d(rows, added, assume_unique=True).size for rows in came]
            gone = [np.intersect1d(rows, removed, assume_unique=True).size for rows in went]
            busy = busy + self.costs.insert_s * np.array(own) + self.costs.delete_s * np.array(gone)
        weight = 1.0 if scenario.whole else throughput * ROUND_S / max(len(objects), 1)
        moves = self.policy.end_round(
            Round(
                objects,
                weight,
                self._subscribed,
                now,
                int(np.searchsorted(scenario.born, turn, side="right")),
                scenario.table.bounds[added],
                scenario.table.bounds[removed],
                weight * busy,
                throughput,
                self.held,
            )
        )
        return Turn(
            now.size,
            throughput,
            float(busy.max() / busy.mean()) if busy.any() else 1.0,
            latency,
            sum(rows.size for rows in old),
            int(sum(self._sizes[rows].sum() for rows in old)),
            tuple(moves),
        )

    def _latency(self, work: Work, changing: NDArray[np.float64], count: int) -> float:
        assert self.demand is not None
        # Insertions are spread over the round, of which these objects may be an excerpt.
        share = 1.0 if self.scenario.whole else count / self.demand / ROUND_S
        return self._queues.mean_latency_s(work, count, self.demand, changing * share) * 1e6


def _throughput(busy: NDArray[np.float64], changing: NDArray[np.float64], objects: int, whole: bool) -> float:
    """Objects a second: of a whole round; or each worker has what changes leave of `ROUND_S` for objects."""
    left = np.maximum(ROUND_S - changing, 0.01 * ROUND_S) / ROUND_S
    slowest = float((busy + changing if whole else busy / left).max()) / max(objects, 1)
    return 1.0 / slowest if slowest > 0 else 0.0


class _Queues:
    """The workers' queues; what waits at the end of a round is there when the next begins."""

    def __init__(self, workers: int) -> None:
        self._free = np.zeros(workers)
        self._slots = np.zeros(PENDING)
        self._turn = 0
        self._now = 0.0
        self._draw = np.random.default_rng(1)

    def mean_latency_s(self, work: Work, count: int, rate: float, changing: NDArray[np.float64]) -> float:
        arrivals = self._now + np.cumsum(self._draw.exponential(1.0 / rate, count))
        self._free = np.maximum(self._free, self._now) + changing
        offsets = np.searchsorted(work.objects, np.arange(count + 1)).astype(np.int64)
        latencies = np.zeros(count)
        self._turn, last = _flow(
            arrivals, offsets, work.workers, work.seconds, self._free, self._slots, self._turn, latencies
        )
        # The source waits when it is held back: time goes on from when the last object was let in.
        self._now = max(float(arrivals[-1]), last) if count else self._now
        sent = np.diff(offsets) > 0
        return float(latencies[sent].mean()) if sent.any() else 0.0


@compiled
def _flow(
    arrivals: Array,
    offsets: Array,
    workers: Array,
    seconds: Array,
    free: Array,
    slots: Array,
    turn: int,
    latencies: Array,
) -> tuple[int, float]:
    """Let objects through in turn; each takes the slot of the one so many before it. When the last was let in."""
    begins = 0.0
    for i in range(arrivals.size):
        begins = max(arrivals[i], slots[turn])
        done = begins
        for k in range(offsets[i], offsets[i + 1]):
            worker = workers[k]
            free[worker] = max(free[worker], begins) + seconds[k]
            done = max(done, free[worker])
        slots[turn] = done
        turn = (turn + 1) % slots.size
        latencies[i] = done - begins
    return turn, begins


def mean(turns: list[Turn], what: Callable[[Turn], float], first: int = 0, last: int | None = None) -> float:
    """The mean of something over the rounds ``[first, last)``."""
    return float(np.mean([what(turn) for turn in turns[first:last]]))


def recovery_rounds(turns: list[Turn], step: int, throughput: float) -> int | None:
    """How many rounds after a step the throughput is at least so much, for the first time; None if it never is."""
    return next(
        (turn - step for turn in range(step, len(turns)) if turns[turn].throughput >= throughput), None
    )


def to_document(turns: list[Turn]) -> dict[str, list[Any]]:
    """The rounds as lists, for JSON and drawing."""
    return {
        "queries": [turn.queries for turn in turns],
        "throughput": [round(turn.throughput, 1) for turn in turns],
        "units": [round(turn.units, 1) for turn in turns],
        "imbalance": [round(turn.imbalance, 3) for turn in turns],
        "latency_us": [round(turn.latency_us, 3) for turn in turns],
        "moved_bytes": [turn.moved_bytes for turn in turns],
    }
