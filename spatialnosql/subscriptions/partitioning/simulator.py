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
from collections.abc import Callable
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
    """What the parts of a plan take, the least of so many runs each; `added` come and go again."""
    plan = index.plan
    routes, dispatch_s = _least(partial(index.dispatcher.route, objects), repeats)
    match_s, insert_s, remove_s = np.zeros((3, plan.partitions))
    held = np.array([len(part) for part in index.indexes], dtype=np.int64)
    sizes = np.array([part.nbytes - part.vocabulary.nbytes for part in index.indexes], dtype=np.int64)
    matches = 0
    for partition, part in enumerate(index.indexes):
        rows = routes.rows_of(partition)
        batches = [take_objects(objects, rows[first : first + BATCH]) for first in range(0, rows.size, BATCH)]
        _matched(part, batches)  # the first run reads what the others find in the cache
        found, match_s[partition] = _least(partial(_matched, part, batches), repeats)
        matches += found
    changes = 0
    if added is not None:
        changes = len(added)
        placement = index.dispatcher.insert(added)
        index.dispatcher.remove(added, placement, np.arange(changes))
        for partition, part in enumerate(index.indexes):
            new = added.take(placement.rows_of(partition))
            segments = part.segments
            for turn in range(repeats if len(new) else 0):
                part.segments = segments  # every run begins with the same index
                numbers, inserted_s = _timed(partial(part.insert, new))
                _, removed_s = _timed(partial(part.remove, numbers))
                insert_s[partition] = inserted_s if turn == 0 else min(insert_s[partition], inserted_s)
                remove_s[partition] = removed_s if turn == 0 else min(remove_s[partition], removed_s)
            part.segments = segments
    return Measured(
        len(objects), changes, dispatch_s, match_s, insert_s, remove_s, routes.counts, held, sizes,
        index.dispatcher.nbytes, routes, matches,
    )  # fmt: skip


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


def _matched(index: Index, batches: list[Objects]) -> int:
    """How many matches there are; every batch is read as a worker receives it, from plain arrays."""
    count = 0
    for own in batches:
        count += index.match(own.lng, own.lat, own.at, own.offsets, own.terms)[0].size
    return count


def _least(run: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """What a run gives, and the least time of several."""
    result, least = _timed(run)
    for _ in range(repeats - 1):
        result, took = _timed(run)
        least = min(least, took)
    return result, least


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a run gives, and its processor time: others may use this machine too."""
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin
