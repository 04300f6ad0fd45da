"""How many points lie in which cells: what covers and costs go by.

A histogram is a guess about the data, possibly an old one. It decides how a query is asked, never what it returns.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS, Cells, cells_to_ranges, points_to_cells


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of points per cell of one precision; cells sorted, each once, none empty."""

    bits: int
    cells: Cells
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.cells) != len(self.counts):
            raise UsageError(f"a histogram of {len(self.cells)} cells but {len(self.counts)} counts")
        if len(self.cells) > 1 and not bool((self.cells[1:] > self.cells[:-1]).all()):
            raise UsageError("the cells of a histogram must be sorted, each once; use Histogram.of_cells")

    @classmethod
    def of_cells(cls, cells: ArrayLike, bits: int, *, cell_bits: int = BITS) -> Histogram:
        """Count cells of `cell_bits` bits by their parents of `bits` bits."""
        parents = np.asarray(cells, dtype=np.uint64) >> np.uint64(cell_bits - bits)
        unique, counts = np.unique(parents, return_counts=True)
        return cls(bits, unique, counts.astype(np.int64))

    @classmethod
    def of_points(cls, lng: ArrayLike, lat: ArrayLike, bits: int) -> Histogram:
        """Count points by their cells."""
        return cls.of_cells(points_to_cells(lng, lat), bits)

    @property
    def total(self) -> int:
        """The number of points."""
        return int(self.counts.sum())

    @cached_property
    def key(self) -> bytes:
        """Equal for equal histograms: what caches go by."""
        digest = hashlib.blake2b(self.cells.tobytes(), digest_size=16)
        digest.update(self.counts.tobytes())
        digest.update(bytes([self.bits]))
        return digest.digest()

    def coarsened(self, bits: int) -> Histogram:
        """The same counts at a coarser precision."""
        if bits > self.bits:
            raise UsageError(
                f"a histogram of {self.bits} bits cannot be made one of {bits}: it does not know"
            )
        parents = self.cells >> np.uint64(self.bits - bits)
        unique, first = np.unique(parents, return_index=True)
        counts = np.add.reduceat(self.counts, first) if len(unique) else self.counts[:0]
        return Histogram(bits, unique, counts)

    @cached_property
    def _edges(self) -> tuple[Cells, NDArray[np.float64], NDArray[np.float64]]:
        """Where each cell begins and ends on the curve, how many points lie before, and how many follow a unit."""
        lo, hi = cells_to_ranges(self.cells, self.bits)
        after = np.cumsum(self.counts).astype(np.float64)
        slope = self.counts / 2.0 ** (BITS - self.bits)
        zero = np.zeros(1)
        borders = np.concatenate([np.zeros(1, dtype=np.uint64), np.stack([lo, hi], axis=1).ravel()])
        below = np.concatenate([zero, np.stack([after - self.counts, after], axis=1).ravel()])
        slopes = np.concatenate([zero, np.stack([slope, np.zeros_like(slope)], axis=1).ravel()])
        return borders, below, slopes

    def points_before(self, bounds: ArrayLike) -> NDArray[np.float64]:
        """The expected number of points before each bound; within a cell, points are taken to be spread evenly."""
        places = np.asarray(bounds, dtype=np.uint64)
        borders, below, slope = self._edges
        at = np.searchsorted(borders, places, side="right") - 1
        # A difference of uint64 before it becomes a double: 60 bits do not fit one.
        before: NDArray[np.float64] = below[at] + slope[at] * (places - borders[at])
        return before

    def points_before_one(self, bound: int) -> float:
        """The same for one bound, in a tenth of the time that numpy takes to begin."""
        borders, below, slope = self._views
        at = bisect_right(borders, bound) - 1
        return below[at] + slope[at] * (bound - borders[at])

    @cached_property
    def _views(self) -> tuple[memoryview[int], memoryview[float], memoryview[float]]:
        borders, below, slope = self._edges
        return memoryview(borders), memoryview(below), memoryview(slope)  # type: ignore[arg-type]

    def bounds_behind(self, points: ArrayLike) -> Cells:
        """For each number the first border of a cell with at least so many points before it; else the last border."""
        borders, below, _ = self._edges
        bounds: Cells = borders[np.minimum(np.searchsorted(below, points), len(borders) - 1)]
        return bounds

    def points_in(self, lo: ArrayLike, hi: ArrayLike) -> NDArray[np.float64]:
        """The expected number of points in half-open ranges of 60-bit cells."""
        low, high = self.points_before(np.stack([np.asarray(lo), np.asarray(hi)]))
        inside: NDArray[np.float64] = high - low
        return inside
