"""A plan carried out, in a folder: the dispatcher, and the index of every partition, for workers to map.

A worker that dispatches opens the dispatcher; one that matches opens the index of its partition and no other.

    folder/plan.npz   folder/dispatcher/*.npy   folder/partition-3/ (an index)   folder/numbers-3.npy
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.index_store import read_array
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.table import Table

_PLAN, _DISPATCHER = "plan.npz", "dispatcher"


@dataclass(frozen=True)
class Sizes:
    """What the parts take, in bytes."""

    dispatcher: int
    partitions: tuple[int, ...]
    replication: float
    """How many partitions hold a subscription on average."""


def save_partitions(
    folder: Path, plan: Plan, table: Table, numbers: NDArray[np.int64] | None = None
) -> Sizes:
    """Place the subscriptions of a table by a plan, build every partition's index, and save all of it.

    `numbers` are those that the rows of the table have elsewhere, if not their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan.save(folder / _PLAN)
    dispatcher = Dispatcher(plan)
    placement = dispatcher.insert(table)
    dispatcher.save(folder / _DISPATCHER)
    sizes = []
    for partition in range(plan.partitions):
        rows = placement.rows_of(partition)
        index = Index.build(table.take(rows))
        index.save(folder / f"partition-{partition}")
        own = rows if numbers is None else numbers[rows]
        np.save(folder / f"numbers-{partition}.npy", own.astype(np.int32))
        sizes.append(index.nbytes)
    return Sizes(dispatcher.nbytes, tuple(sizes), placement.held / max(len(table), 1))


def open_dispatcher(folder: Path) -> Dispatcher:
    """The dispatcher that was saved."""
    return Dispatcher.open(folder / _DISPATCHER, Plan.open(folder / _PLAN))


def open_partition(folder: Path, partition: int) -> tuple[Index, NDArray[np.int32]]:
    """The index of a partition, and the numbers that its subscriptions have in the whole."""
    index = Index.open(folder / f"partition-{partition}")
    return index, read_array(folder / f"numbers-{partition}.npy")
