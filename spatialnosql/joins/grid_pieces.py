"""What comes of a region in pieces, added up by cell of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geohash import Cells, cells_to_points
from spatialnosql.joins.grid_cells import GridCell, make_rows
from spatialnosql.joins.weights import Total, Weight

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Pieces:
    """The cells of a grid so far: a piece is some points of one cell, or of a smaller one inside it."""

    def __init__(self, bits: int, weight: Weight | None, most_cells: int, *, centres: bool) -> None:
        self.bits, self.weight, self.centres, self.most_cells = bits, weight, centres, most_cells
        self._cells: Cells = np.zeros(0, dtype=np.uint64)
        self._counts: Counts = np.zeros(0, dtype=np.int64)
        self._lng: Floats = np.zeros(0)  # sums
        self._lat: Floats = np.zeros(0)
        self._totals: dict[int, Total] = {}

    def add(
        self, cells: Cells, cell_bits: int, counts: Counts, sums: tuple[Floats, Floats] | None = None
    ) -> Cells:
        """Add numbers of points in cells as fine as the grid's or finer, and say in which cells of the grid they are.

        `sums` are those of the points' coordinates; without them each point is taken to be at the middle of its piece.
        """
        lng, lat = cells_to_points(cells, cell_bits)
        lng, lat = (lng * counts, lat * counts) if sums is None else sums
        own: Cells = cells >> np.uint64(cell_bits - self.bits)
        unique, place = np.unique(np.concatenate([self._cells, own]), return_inverse=True)
        # A piece that is added may lie in a cell that is there, or make a new one.
        self._counts = sums_by_place(place, np.concatenate([self._counts, counts]), unique.size).astype(
            np.int64
        )
        self._lng = sums_by_place(place, np.concatenate([self._lng, lng]), unique.size)
        self._lat = sums_by_place(place, np.concatenate([self._lat, lat]), unique.size)
        self._cells = unique
        self.check(unique.size)
        return own

    def add_groups(self, own: Cells, groups: Iterable[Mapping[str, Any]]) -> None:
        """Add what a ``$group`` made of the weight, in the cells that `add` has told."""
        assert self.weight is not None
        for cell, group in zip(own.tolist(), groups, strict=True):
            self._totals.setdefault(cell, Total(self.weight)).add_group(group)

    def check(self, cells: float) -> None:
        """An error if there are more cells than the caller wants."""
        if cells > self.most_cells:
            raise too_many(f"more than {self.most_cells:,}", self.bits, self.most_cells)

    def rows(self) -> tuple[GridCell, ...]:
        """The cells of the grid."""
        values = None
        if self.weight is not None:
            values = [self._totals[cell].result for cell in self._cells.tolist()]
        centres = (self._lng / self._counts, self._lat / self._counts) if self.centres else None
        return make_rows(self._cells, self.bits, self._counts, values, centres)

    def value(self) -> Any:
        """The measure of all cells together."""
        if self.weight is None:
            return int(self._counts.sum())
        everything = Total(self.weight)
        for total in self._totals.values():
            everything.add(total)
        return everything.result


def too_many(cells: str, bits: int, most: int) -> UsageError:
    """An error: a grid has more cells than the caller wants."""
    return UsageError(
        f"a grid of {bits} bits has {cells} cells here; ask for a coarser one, for cells=500, for a smaller region, "
        f"or for up to so many with most_cells (now {most:,})"
    )


def sums_by_place(place: NDArray[np.intp], values: NDArray[Any], size: int) -> Floats:
    """The sums of values that belong to the same place, as doubles: exact for counts below 2**53."""
    return np.bincount(place.reshape(-1), weights=values, minlength=size).astype(np.float64)
