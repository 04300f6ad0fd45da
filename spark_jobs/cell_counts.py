"""One pass over screened rows: how many are fit, how many have which fault, and how many lie in which cell.

What comes to the driver is bounded: when there are too many cells, Spark itself rolls them up to coarser ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.geohash_column import cell_at
from spark_jobs.screening import CELL, FAULT
from spatialnosql.histogram import Histogram

FINEST_BITS, FEWER_BITS = 40, 35
"""Cells of 38 m at most, or of 153 m where those would be too many, as `spatialnosql analyze` counts them."""
MOST_CELLS = 600_000
"""What the driver takes: 10 MB."""
HOT_BITS = 50
"""How finely the inside of a hot cell is known: places of 1 m."""


@dataclass(frozen=True)
class Counts:
    """What one pass over the rows found."""

    histogram: Histogram  # of the rows that are fit
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> int:
        """Rows that are fit to be stored."""
        return self.histogram.total

    @property
    def bad(self) -> int:
        """Rows for the quarantine."""
        return sum(self.faults.values())

    @property
    def rows(self) -> int:
        """All rows."""
        return self.good + self.bad


def count(rows: DataFrame, *, most_cells: int = MOST_CELLS) -> Counts:
    """Count screened rows by fault and cell, at 40 bits or, if that is too many cells, at 35 or fewer."""
    for bits in (FINEST_BITS, FEWER_BITS):
        cell = F.when(F.col(FAULT).isNull(), cell_at(F.col(CELL), bits))
        groups = rows.groupBy(F.col(FAULT).alias("fault"), cell.alias("cell"))
        counted = groups.agg(F.count(F.lit(1)).alias("n"))
        # One more than is taken: whether there are too many is known without counting all of them.
        found = counted.limit(most_cells + 1000).toArrow()
        if found.num_rows <= most_cells:
            return _counts(found, bits)
    counted = counted.persist()
    try:
        bits = _bits_for(counted, most_cells)
        coarse = F.shiftright("cell", FEWER_BITS - bits).alias("cell")
        return _counts(counted.groupBy("fault", coarse).agg(F.sum("n").alias("n")).toArrow(), bits)
    finally:
        counted.unpersist()


def _counts(found: Any, bits: int) -> Counts:
    numbers = found["n"].to_numpy().astype(np.int64)
    faults = found["fault"].to_pylist()
    good = np.array([fault is None for fault in faults], dtype=bool)
    cells = found["cell"].fill_null(0).to_numpy().astype(np.uint64)[good]
    bad = {str(fault): int(n) for fault, n in zip(faults, numbers, strict=True) if fault is not None}
    return Counts(_histogram(bits, cells, numbers[good]), dict(sorted(bad.items())))


def _histogram(bits: int, cells: NDArray[np.uint64], counts: NDArray[np.int64]) -> Histogram:
    order = np.argsort(cells)
    return Histogram(bits, cells[order], counts[order])


def _bits_for(groups: DataFrame, most_cells: int) -> int:
    """The finest precision with few enough cells."""
    candidates = range(FEWER_BITS - 1, 0, -1)
    distinct = [F.approx_count_distinct(F.shiftright("cell", FEWER_BITS - bits), 0.05) for bits in candidates]
    estimates = groups.select(*distinct).collect()[0]
    # The estimate may be a tenth too low.
    return next((b for b, n in zip(candidates, estimates, strict=True) if n < 0.8 * most_cells), 1)


def refined(rows: DataFrame, histogram: Histogram, parts: int) -> Histogram:
    """The histogram with its hot cells counted inside: those that alone make a part of it too heavy.

    The others are there with their whole count in their first cell, which is enough to cut between them.
    """
    hot = histogram.cells[histogram.counts * parts * 10 > histogram.total]
    if not hot.size or histogram.bits >= HOT_BITS:
        return histogram
    shift = HOT_BITS - histogram.bits
    inside = (
        rows.where(F.col(FAULT).isNull() & cell_at(F.col(CELL), histogram.bits).isin([int(c) for c in hot]))
        .groupBy(cell_at(F.col(CELL), HOT_BITS).alias("cell"))
        .agg(F.count(F.lit(1)).alias("n"))
        .toArrow()
    )
    cold = ~np.isin(histogram.cells, hot)
    cells = np.concatenate(
        [histogram.cells[cold] << np.uint64(shift), inside["cell"].to_numpy().astype(np.uint64)]
    )
    counts = np.concatenate([histogram.counts[cold], inside["n"].to_numpy().astype(np.int64)])
    return _histogram(HOT_BITS, cells, counts)


def merged(first: Histogram, second: Histogram) -> Histogram:
    """The sum of two histograms, at the coarser precision of the two."""
    bits = min(first.bits, second.bits)
    one, other = first.coarsened(bits), second.coarsened(bits)
    cells, place = np.unique(np.concatenate([one.cells, other.cells]), return_inverse=True)
    counts = np.zeros(cells.size, dtype=np.int64)
    np.add.at(counts, place.ravel(), np.concatenate([one.counts, other.counts]))
    return Histogram(bits, cells, counts)
