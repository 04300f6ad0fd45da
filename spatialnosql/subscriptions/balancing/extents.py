"""Rectangles of cells, and the cells that queries touch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError

Spans = NDArray[np.int64]
"""First and last column, first and last row, both ends included: one line a query."""


class Extent(NamedTuple):
    """Cells ``[left, right) x [bottom, top)``."""

    left: int
    right: int
    bottom: int
    top: int

    @property
    def columns(self) -> int:
        """How many there are."""
        return self.right - self.left

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.top - self.bottom

    def parted(self, upright: bool, at: int) -> tuple[Extent, Extent]:
        """Both sides of a cut before the column (if `upright`) or row `at`, counted within the extent."""
        if not 0 < at < (self.columns if upright else self.rows):
            raise UsageError(f"{self} cannot be cut at {at}; both sides must have cells")
        if upright:
            middle = self.left + at
            return self._replace(right=middle), self._replace(left=middle)
        middle = self.bottom + at
        return self._replace(top=middle), self._replace(bottom=middle)

    def joined(self, other: Extent) -> Extent | None:
        """The rectangle that both make, or None if they make none."""
        if (self.bottom, self.top) == (other.bottom, other.top) and (
            self.right == other.left or other.right == self.left
        ):
            return self._replace(left=min(self.left, other.left), right=max(self.right, other.right))
        if (self.left, self.right) == (other.left, other.right) and (
            self.top == other.bottom or other.top == self.bottom
        ):
            return self._replace(bottom=min(self.bottom, other.bottom), top=max(self.top, other.top))
        return None

    def touched_by(self, spans: Spans) -> NDArray[np.bool_]:
        """Which queries touch it."""
        return (
            (spans[:, 0] < self.right)
            & (spans[:, 1] >= self.left)
            & (spans[:, 2] < self.top)
            & (spans[:, 3] >= self.bottom)
        )

    def within(self, spans: Spans) -> Spans:
        """What of the spans lies in it, counted from its first column and row."""
        return np.stack(
            [
                np.maximum(spans[:, 0] - self.left, 0),
                np.minimum(spans[:, 1] - self.left, self.columns - 1),
                np.maximum(spans[:, 2] - self.bottom, 0),
                np.minimum(spans[:, 3] - self.bottom, self.rows - 1),
            ],
            axis=1,
        )
