"""Workers beyond this machine: measured on one core, one partition after the other; what many would do is computed.

Measured, with the real plan, dispatcher and index (`measure`): the time to dispatch a batch; for each partition the
time to match the objects it gets, to insert and to remove its share of the changes; the bytes it holds.

Computed (`simulate`): a worker is one core with one partition, and does nothing else. Throughput is what the busiest of
workers and dispatchers allows, as S3-TM's equation 6 has it. Latency comes from an event simulation: objects arrive at
random (Poisson), wait their turn at a dispatcher and then at each of their workers, and are done when the last of these
is. There is no network in it: neither its time nor the work of reading and writing messages, and no merger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.partitioned_index import PartitionedIndex
from spatialnosql.subscriptions.partitioning.placing import Placement
from spatialnosql.subscriptions.partitioning.routes import Routes, take_objects
from spatialnosql.subscriptions.table import Table

DISPATCHERS = 4
BATCH = 20_000
"""So many objects are matched at a time, as the index advises: all matches at once may not fit the memory."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What the parts of a plan took on one core, in seconds of processor time; arrays have one element a worker."""

    objects: int
    changes: int
    """How many subscriptions were inserted, and removed again, while the objects passed."""
    dispatch_s: float
    match_s: NDArray[np.float64]
    insert_s: NDArray[np.float64]
    remove_s: NDArray[np.float64]
    received: NDArray[np.int64]
    """The objects of each worker."""
    held: NDArray[np.int64]
    """The subscriptions of each worker."""
    worker_bytes: NDArray[np.int64]
    """Of each worker's index; the vocabulary, which all share, is not in it."""
    dispatcher_bytes: int
    routes: Routes
    matches: int

    @property
    def busy_s(self) -> NDArray[np.float64]:
        """How long each worker is at it."""
        return self.match_s + self.insert_s + self.remove_s


@dataclass(frozen=True)
class Simulated:
    """What so many workers and dispatchers would do."""

    throughput: float
    """Objects, insertions and removals a second."""
    limited_by: str
    """`workers` or `dispatchers`."""
    imbalance: float
    """The busiest worker's time over the mean."""
    latency_us: float
    """Mean time from arrival to the last match."""
    latency_p95_us: float

    def to_document(self) -> dict[str, Any]:
        """The figures of one line of a table."""
        return dict(vars(self))


def measure(
    index: PartitionedIndex, objects: Objects, added: Table | None = None, repeats: int = 3
) -> Measured:
    """What the parts of one plan take; see `measure_by_turns`."""
    return measure_by_turns({"": index}, objects, added, repeats)[""]


def measure_by_turns(
    indexes: Mapping[str, PartitionedIndex], objects: Objects, added: Table | None = None, repeats: int = 3
) -> dict[str, Measured]:
    """What the parts of several plans take; `added` come and go again.

    The plans take turns, so often; and of every batch of every partition the least time counts. Whatever else the
    machine does for a while, it makes no single plan slow, nor one of its partitions the busiest.
    """
    running = {name: _Running(index, objects, added) for name, index in indexes.items()}
    for _ in range(repeats):
        for one in running.values():
            one.run_once()
    return {name: one.measured() for name, one in running.items()}


class _Running:
    """A plan that is being measured."""

    def __init__(self, index: PartitionedIndex, objects: Objects, added: Table | None) -> None:
        self._index, self._objects, self._added = index, objects, added
        self._routes = index.dispatcher.route(objects)
        self._placement: Placement | None = None
        if added is not None:
            self._placement = index.dispatcher.insert(added)
            index.dispatcher.remove(added, self._placement, np.arange(len(added)))
        partitions = index.plan.partitions
        self._dispatch_s = np.inf
        self._match_s = [
            np.full(-(-self._routes.rows_of(partition).size // BATCH), np.inf)
            for partition in range(partitions)
        ]
        self._insert_s, self._remove_s = np.full((2, partitions), np.inf)
        self._matches = np.zeros(partitions, dtype=np.int64)

    def run_once(self) -> None:
        """Dispatch, match, insert and remove everything."""
        _, took = _timed(partial(self._index.dispatcher.route, self._objects))
        self._dispatch_s = min(self._dispatch_s, took)
        for partition, part in enumerate(self._index.indexes):
            self._match(partition, part)
            self._change(partition, part)

    def _match(self, partition: int, part: Index) -> None:
        rows, least = self._routes.rows_of(partition), self._match_s[partition]
        batches = [
            take_objects(self._objects, rows[first : first + BATCH]) for first in range(0, rows.size, BATCH)
        ]
        for _ in range(2):  # the first run reads what the second finds in the cache
            found = 0
            for number, own in enumerate(batches):
                # As a worker receives it, from plain arrays.
                matches, took = _timed(partial(part.match, own.lng, own.lat, own.at, own.offsets, own.terms))
                least[number] = min(least[number], took)
                found += matches[0].size
            self._matches[partition] = found

    def _change(self, partition: int, part: Index) -> None:
        if self._placement is None or self._added is None:
            return
        new = self._added.take(self._placement.rows_of(partition))
        segments = part.segments
        for _ in range(2 if len(new) else 0):
            part.segments = segments  # every run begins with the same index
            numbers, inserted_s = _timed(partial(part.insert, new))
            _, removed_s = _timed(partial(part.remove, numbers))
            self._insert_s[partition] = min(self._insert_s[partition], inserted_s)
            self._remove_s[partition] = min(self._remove_s[partition], removed_s)
        part.segments = segments

    def measured(self) -> Measured:
        """What it took, at least."""
        parts = self._index.indexes
        insert_s, remove_s = (
            np.where(np.isfinite(took), took, 0.0) for took in (self._insert_s, self._remove_s)
        )
        return Measured(
            len(self._objects),
            0 if self._added is None else len(self._added),
            self._dispatch_s,
            np.array([float(batches.sum()) for batches in self._match_s]),
            insert_s,
            remove_s,
            self._routes.counts,
            np.array([len(part) for part in parts], dtype=np.int64),
            np.array([part.nbytes - part.vocabulary.nbytes for part in parts], dtype=np.int64),
            self._index.dispatcher.nbytes,
            self._routes,
            int(self._matches.sum()),
        )


def simulate(
    measured: Measured, rate: float | None = None, dispatchers: int = DISPATCHERS, seed: int = 1
) -> Simulated:
    """What workers and dispatchers of this kind would do; objects arrive at `rate` a second, or half the throughput."""
    tuples = measured.objects + 2 * measured.changes
    workers_s = float(measured.busy_s.max())
    dispatchers_s = measured.dispatch_s / dispatchers
    throughput = tuples / max(workers_s, dispatchers_s)
    arriving = rate if rate is not None else throughput / 2 * measured.objects / tuples
    latencies = _latencies(measured, arriving, dispatchers, seed)
    mean = float(measured.busy_s.mean())
    return Simulated(
        throughput,
        "workers" if workers_s >= dispatchers_s else "dispatchers",
        workers_s / mean if mean > 0 else 1.0,
        float(latencies.mean()) * 1e6,
        float(np.quantile(latencies, 0.95)) * 1e6,
    )


def _latencies(measured: Measured, rate: float, dispatchers: int, seed: int) -> NDArray[np.float64]:
    """The seconds each object is on its way."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, measured.objects))
    dispatched = np.empty_like(arrivals)
    for one in range(dispatchers):
        turns = np.arange(one, arrivals.size, dispatchers)
        _queue(turns, arrivals, measured.dispatch_s / max(measured.objects, 1), dispatched)
    done = dispatched.copy()
    for partition in range(measured.routes.partitions):
        turns = np.sort(measured.routes.rows_of(partition))
        if turns.size:
            own = np.empty_like(arrivals)
            # The changes are spread over the objects: a little more for each.
            _queue(turns, dispatched, float(measured.busy_s[partition]) / turns.size, own)
            done[turns] = np.maximum(done[turns], own[turns])
    return np.asarray(done - arrivals)


@compiled
def _queue(turns: Array, arrivals: Array, service_s: float, done: Array) -> None:
    """One server, first come first served: fill in when each is done."""
    free = 0.0
    for row in turns:
        free = max(free, arrivals[row]) + service_s
        done[row] = free


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a run gives, and its processor time: others may use this machine too."""
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin
