"""A plan carried out, in folders: dispatchers, and the index of every partition, for workers to map.

A worker that dispatches opens the dispatchers; one that matches opens the index of its partition and no other.

    folder/dispatcher/plan.npz, *.npy   folder/partition-3/index/ (an index), numbers.npy
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

_PLAN, _INDEX, _NUMBERS = "plan.npz", "index", "numbers.npy"


@dataclass(frozen=True)
class Parts:
    """The folders of the dispatchers, and that of every partition; sent to workers."""

    dispatchers: tuple[str, ...]
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class Sizes:
    """What the parts take, in bytes."""

    dispatcher: int
    partitions: tuple[int, ...]
    replication: float
    """How many partitions hold a subscription on average."""


def save_partitions(
    folder: Path, plan: Plan, table: Table, numbers: NDArray[np.int64] | None = None
) -> tuple[Parts, Sizes]:
    """Place the subscriptions of a table by a plan, build every partition's index, and save all of it.

    `numbers` are those that the rows of the table have elsewhere, if not their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dispatcher = Dispatcher(plan)
    placement = dispatcher.insert(table)
    save_dispatcher(folder / "dispatcher", dispatcher)
    sizes, folders = [], []
    for partition in range(plan.partitions):
        rows = placement.rows_of(partition)
        own = folder / f"partition-{partition}"
        sizes.append(save_partition(own, table.take(rows), rows if numbers is None else numbers[rows]))
        folders.append(str(own))
    replication = placement.held / max(len(table), 1)
    return (
        Parts((str(folder / "dispatcher"),), tuple(folders)),
        Sizes(dispatcher.nbytes, tuple(sizes), replication),
    )


def save_dispatcher(folder: Path, dispatcher: Dispatcher) -> None:
    """Write a dispatcher and its plan."""
    dispatcher.save(folder)
    dispatcher.plan.save(folder / _PLAN)


def open_dispatcher(folder: Path) -> Dispatcher:
    """The dispatcher that was saved."""
    return Dispatcher.open(folder, Plan.open(folder / _PLAN))


def save_partition(folder: Path, table: Table, numbers: NDArray[np.int64]) -> int:
    """Build the index of a partition and write it; how many bytes it takes."""
    folder.mkdir(parents=True, exist_ok=True)
    index = Index.build(table)
    index.save(folder / _INDEX)
    np.save(folder / _NUMBERS, numbers.astype(np.int32))
    return index.nbytes


def open_partition(folder: Path) -> tuple[Index, NDArray[np.int32]]:
    """The index of a partition, and the numbers that its subscriptions have in the whole."""
    return Index.open(folder / _INDEX), read_array(folder / _NUMBERS)
