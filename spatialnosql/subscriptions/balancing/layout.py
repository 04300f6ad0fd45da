"""SWARM's global index (section 4.1): a grid of cells, each in one rectangular partition, each partition at a worker.

Rows count from the south and columns from the west; where the paper says top-left, this says first row and column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.extents import Extent, Spans
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array, longer
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.plan import Plan, space_plan


@dataclass(frozen=True, eq=False)
class Layout:
    """Partitions by number: their extents, their workers, and the partition of every cell. Numbers are not reused."""

    columns: int
    rows: int
    workers: int
    extents: tuple[Extent | None, ...]
    """None for one that was split or merged."""
    homes: tuple[int, ...]
    """The worker of each."""
    partition_of_cell: NDArray[np.int32]

    @classmethod
    def even(cls, columns: int, rows: int, workers: int) -> Layout:
        """One partition a worker: the largest is halved across its longer side until there are enough (4.1.1)."""
        if min(columns, rows, workers) < 1:
            raise UsageError(f"{columns} x {rows} cells for {workers} workers; all must be above zero")
        extents = [Extent(0, columns, 0, rows)]
        while len(extents) < workers:
            largest = max(range(len(extents)), key=lambda i: extents[i].columns * extents[i].rows)
            one = extents[largest]
            upright = one.columns >= one.rows
            side = one.columns if upright else one.rows
            if side < 2:
                break  # every partition is one cell: the other workers have nothing for now
            extents[largest : largest + 1] = one.parted(upright, side // 2)
        return cls.of(columns, rows, workers, extents, range(len(extents)))

    @classmethod
    def of(
        cls, columns: int, rows: int, workers: int, extents: Sequence[Extent], homes: Iterable[int]
    ) -> Layout:
        """Partitions that cover the grid, each cell once."""
        cells = np.full((rows, columns), -1, dtype=np.int32)
        for number, one in enumerate(extents):
            cells[one.bottom : one.top, one.left : one.right] = number
        return cls(columns, rows, workers, tuple(extents), tuple(homes), cells.reshape(-1))

    @property
    def numbers(self) -> list[int]:
        """The partitions that there are."""
        return [number for number, one in enumerate(self.extents) if one is not None]

    def extent(self, number: int) -> Extent:
        """The extent of a partition."""
        one = self.extents[number]
        if one is None:
            raise UsageError(f"partition {number} was split or merged; it has no extent any more")
        return one

    def of_worker(self, worker: int) -> list[int]:
        """The partitions of a worker."""
        return [number for number in self.numbers if self.homes[number] == worker]

    def moved(self, numbers: Iterable[int], worker: int) -> Layout:
        """With some partitions at another worker."""
        chosen = set(numbers)
        homes = tuple(worker if number in chosen else home for number, home in enumerate(self.homes))
        return replace(self, homes=homes)

    def split(self, number: int, upright: bool, at: int) -> tuple[Layout, int, int]:
        """With a partition cut in two new ones, both at its worker; their numbers, first columns or rows first."""
        sides = self.extent(number).parted(upright, at)
        return self._exchanged([number], sides, self.homes[number])

    def merged(self, first: int, second: int) -> tuple[Layout, int] | None:
        """With two partitions of one worker made one, and its number; None if they make no rectangle."""
        whole = self.extent(first).joined(self.extent(second))
        if whole is None or self.homes[first] != self.homes[second]:
            return None
        layout, number, _ = self._exchanged([first, second], (whole,), self.homes[first])
        return layout, number

    def _exchanged(self, gone: Sequence[int], new: Sequence[Extent], worker: int) -> tuple[Layout, int, int]:
        extents = [None if number in gone else one for number, one in enumerate(self.extents)]
        cells = self.partition_of_cell.copy().reshape(self.rows, self.columns)
        first = len(extents)
        for number, one in enumerate(new, start=first):
            cells[one.bottom : one.top, one.left : one.right] = number
        layout = replace(
            self,
            extents=(*extents, *new),
            homes=(*self.homes, *([worker] * len(new))),
            partition_of_cell=cells.reshape(-1),
        )
        return layout, first, first + len(new) - 1

    def overlapping(self, spans: Spans) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Query and partition of every overlap, by the partitions' borders (algorithm 1), queries in order.

        One change: from a partition the paper goes on in the row and the column of the cell by which it was reached.
        That misses partitions beside it if it was reached in its middle. This goes on from its first row and column
        within the query, whichever cell led there.
        """
        borders = np.array([one or (0, 0, 0, 0) for one in self.extents], dtype=np.int64)
        queries, partitions = _overlaps(
            np.ascontiguousarray(spans, dtype=np.int64), self.partition_of_cell, self.columns, borders
        )
        return queries, partitions

    def to_plan(self, grid: Grid, frequencies: NDArray[np.int64], name: str = "swarm") -> Plan:
        """The same as a plan that a dispatcher follows: a partition there is a worker here."""
        if (grid.columns, grid.rows) != (self.columns, self.rows):
            raise UsageError(f"a layout of {self.columns} x {self.rows} cells does not fit {grid}")
        homes = np.array(self.homes, dtype=np.int32)[self.partition_of_cell]
        return space_plan(name, grid, homes, self.workers, frequencies)


def merge_neighbours(layout: Layout) -> tuple[Layout, list[tuple[int, int, int]]]:
    """Merge partitions of one worker while two make a rectangle; both old numbers and the new one, in their order."""
    done: list[tuple[int, int, int]] = []
    for worker in range(layout.workers):
        found = True
        while found:
            found = False
            own = layout.of_worker(worker)
            for first, second in ((a, b) for i, a in enumerate(own) for b in own[i + 1 :]):
                merged = layout.merged(first, second)
                if merged is not None:
                    layout, number = merged
                    done.append((first, second, number))
                    found = True
                    break
    return layout, done


@compiled
def _overlaps(spans: Array, partition_of_cell: Array, columns: int, borders: Array) -> tuple[Array, Array]:
    queries, partitions = (
        np.empty(2 * spans.shape[0] + 16, np.int64),
        np.empty(2 * spans.shape[0] + 16, np.int32),
    )
    stack = np.empty((2 * borders.shape[0] + 2, 2), np.int64)
    met = np.full(borders.shape[0], -1, np.int64)
    found = 0
    for i in range(spans.shape[0]):
        left, right, bottom, top = spans[i, 0], spans[i, 1], spans[i, 2], spans[i, 3]
        stack[0, 0], stack[0, 1] = left, bottom
        waiting = 1
        while waiting > 0:
            waiting -= 1
            column, row = stack[waiting, 0], stack[waiting, 1]
            if column > right or row > top:
                continue
            partition = partition_of_cell[row * columns + column]
            if met[partition] == i:
                continue
            met[partition] = i
            if found == queries.size:
                queries, partitions = longer(queries, found + 1), longer(partitions, found + 1)
            queries[found], partitions[found] = i, partition
            found += 1
            stack[waiting, 0], stack[waiting, 1] = borders[partition, 1], max(borders[partition, 2], bottom)
            stack[waiting + 1, 0] = max(borders[partition, 0], left)
            stack[waiting + 1, 1] = borders[partition, 3]
            waiting += 2
    return queries[:found], partitions[:found]
