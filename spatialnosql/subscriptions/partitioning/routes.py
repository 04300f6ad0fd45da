"""What a dispatcher gives: the objects of every partition; and how the partitions' matches become one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.strings import ragged_rows


@dataclass(frozen=True, eq=False)
class Routes:
    """Partition p gets the objects ``rows[offsets[p]:offsets[p + 1]]``, each once, neighbours together."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    dropped: int
    """How many objects go nowhere: no place, or no term under which anything is filed there."""

    @property
    def partitions(self) -> int:
        """How many there are."""
        return int(self.offsets.size - 1)

    def rows_of(self, partition: int) -> NDArray[np.int64]:
        """The objects of a partition."""
        return self.rows[self.offsets[partition] : self.offsets[partition + 1]]

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Objects and partitions, sorted by partition."""
        return self.rows, np.repeat(
            np.arange(self.partitions, dtype=np.int32), np.diff(self.offsets).astype(np.int64)
        )

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many objects each partition gets."""
        return np.diff(self.offsets)


def take_objects(objects: Objects, rows: NDArray[np.int64]) -> Objects:
    """Some objects of a batch, in the given order."""
    offsets, positions = ragged_rows(objects.offsets, rows)
    return Objects(
        objects.lng[rows],
        objects.lat[rows],
        objects.at[rows],
        offsets,
        objects.terms[positions],
        objects.x[rows],
        objects.y[rows],
    )


def join_objects(parts: Sequence[Objects]) -> Objects:
    """Several batches as one, one after the other."""
    ends = np.cumsum([0] + [int(part.offsets[-1]) for part in parts])
    offsets = [part.offsets[1:] + end for part, end in zip(parts, ends, strict=False)]
    return Objects(
        np.concatenate([part.lng for part in parts]),
        np.concatenate([part.lat for part in parts]),
        np.concatenate([part.at for part in parts]),
        np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
        np.concatenate([part.terms[: part.offsets[-1]] for part in parts]),
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
    )


def merge_matches(
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """PS2Stream's merger: the distinct pairs of object and subscription, sorted by object, then subscription."""
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    rows = np.concatenate([part[0] for part in parts])
    numbers = np.concatenate([part[1] for part in parts])
    order = np.lexsort([numbers, rows])
    rows, numbers = rows[order], numbers[order]
    first = np.ones(rows.size, dtype=np.bool_)
    first[1:] = (np.diff(rows) != 0) | (np.diff(numbers) != 0)
    return rows[first], numbers[first]
