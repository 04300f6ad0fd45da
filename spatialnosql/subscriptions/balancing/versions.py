"""Plans carried out, version after version, in a folder that workers map: what moves is written before it is used.

A partition's folder is named after what is in it, so that a version writes only the partitions that have changed. Each
folder is written beside its place and renamed, and a `Parts` that names it is given out when all of them are there. So
whoever is killed in between leaves folders that nobody asks for, which the next start removes.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.cell_loads import row_bytes
from spatialnosql.subscriptions.balancing.strategies import Held, Strategies, hold
from spatialnosql.subscriptions.partitioning.stored import Parts, save_dispatcher, save_partition
from spatialnosql.subscriptions.table import Table

KEPT = 2
"""Versions whose folders stay: the one in force, and the one before, which a task may still be reading."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Published:
    """A version in force."""

    number: int
    parts: Parts
    held: Held
    moved: int
    """Subscriptions that came to a partition that did not hold them, though another did."""
    moved_bytes: int


class Versions:
    """Writes versions; for one process, while others read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)  # of a process that is gone
        folder.mkdir(parents=True)
        self._token = secrets.token_hex(4)  # workers keep what they have opened, by its name
        self._number = 0
        self._recent: list[Parts] = []
        self._held: list[Rows] | None = None
        self._base = ""

    def publish(self, strategies: Strategies, table: Table, numbers: Rows, base: str) -> Published:
        """Place the subscriptions, write what has changed, and give out the new version.

        `numbers` are those of the rows, ascending; with another `base` they mean other subscriptions than before.
        """
        held = hold(strategies, table, numbers)
        own = [numbers[rows] for rows in held.rows]
        moved, moved_bytes = self._moved(own, table, numbers, base)
        self._number += 1
        partitions = [
            self._partition(table, rows, now, base) for rows, now in zip(held.rows, own, strict=True)
        ]
        dispatchers = []
        for order, dispatcher in enumerate(held.dispatchers):
            name = self._folder / f"dispatcher-{self._number}-{order}-{self._token}"
            fresh = name.with_suffix(".new")
            save_dispatcher(fresh, dispatcher)
            fresh.rename(name)
            dispatchers.append(str(name))
        parts = Parts(tuple(dispatchers), tuple(partitions))
        self._recent = [*self._recent[-(KEPT - 1) :], parts]
        self._held, self._base = own, base
        self._remove_old()
        return Published(self._number, parts, held, moved, moved_bytes)

    def _partition(self, table: Table, rows: Rows, numbers: Rows, base: str) -> str:
        content = hashlib.sha256(base.encode() + b"\0" + np.ascontiguousarray(numbers, "<i8").tobytes())
        name = self._folder / f"partition-{content.hexdigest()[:24]}-{self._token}"
        if not name.exists():
            fresh = name.with_suffix(".new")
            save_partition(fresh, table.take(rows), numbers)
            fresh.rename(name)
        return str(name)

    def _moved(self, now: list[Rows], table: Table, numbers: Rows, base: str) -> tuple[int, int]:
        """How many subscriptions changed their places, and their bytes; those that are new to all have not."""
        if self._held is None or base != self._base:
            return 0, 0
        known = np.unique(np.concatenate(self._held))
        sizes = row_bytes(table)
        moved = moved_bytes = 0
        for before, rows in zip(self._held, now, strict=True):
            came = np.intersect1d(np.setdiff1d(rows, before, assume_unique=True), known, assume_unique=True)
            moved += came.size
            moved_bytes += int(sizes[np.searchsorted(numbers, came)].sum())
        return moved, moved_bytes

    def _remove_old(self) -> None:
        used = {name for parts in self._recent for name in (*parts.dispatchers, *parts.partitions)}
        for path in self._folder.iterdir():
            if str(path) not in used:
                shutil.rmtree(path, ignore_errors=True)
