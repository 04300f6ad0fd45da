"""From a histogram of cells to a precision, and from a precision to split points. Pure: no server.

The paper takes the precision whose counts of points per cell are least skewed. Alone that picks cells so coarse that
one of them holds nearly everything and no placement can be even. So here: **the least skewed among the precisions whose
cells can still be spread evenly**, that is whose best cut into contiguous parts keeps the fullest shard within a bound
of the mean. The whole table is kept with the choice, and the choice can be overridden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS
from spatialnosql.histogram import Histogram

BOUND = 1.1
"""How much more than the mean the fullest shard may hold before a precision counts as one that cannot be balanced."""

CHARACTER_BITS = 5
FINEST_BITS = 35
"""The finest precision to shard by, as in the paper; a histogram may know more."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """What one precision makes of the data."""

    bits: int
    cells: int
    skewness: float | None  # None: fewer than three cells have none
    largest: float  # the share of all points that the fullest cell holds
    imbalance: float  # fullest shard / mean shard, after the best contiguous cut

    def is_balanced(self, bound: float = BOUND) -> bool:
        """Whether whole cells of this precision can be spread evenly enough."""
        return self.imbalance <= bound


@dataclass(frozen=True)
class Choice:
    """A precision, why it was chosen, and what it was chosen from."""

    bits: int
    reason: str
    table: tuple[Row, ...]
    shards: int
    bound: float = BOUND

    def to_document(self) -> dict[str, Any]:
        """As stored and as printed in JSON."""
        return {
            "bits": self.bits,
            "reason": self.reason,
            "shards": self.shards,
            "bound": self.bound,
            "table": [asdict(row) for row in self.table],
        }

    def lines(self) -> list[str]:
        """The table for people, the chosen precision marked, and the reason below."""
        lines = [f"  {'bits':>4}  {'cells':>9}  {'skewness':>8}  {'largest cell':>12}  {'max/mean load':>13}"]
        for row in self.table:
            mark = "*" if row.bits == self.bits else " "
            skewed = "-" if row.skewness is None else f"{row.skewness:.1f}"
            lines.append(
                f"{mark} {row.bits:>4}  {row.cells:>9,}  {skewed:>8}  {row.largest:>12.1%}  {row.imbalance:>13.2f}"
            )
        return [*lines, f"Precision: {self.bits} bits: {self.reason}."]


def skewness(counts: ArrayLike) -> float | None:
    """The sample skewness ``N/((N-1)(N-2)) * sum((y - mean)^3) / S^3`` of the counts of N distinct cells.

    S is the sample standard deviation. Fewer than three cells have no sample skewness: None. Equal counts: 0.
    """
    values = np.asarray(counts, dtype=np.float64)
    n = values.size
    if n < 3:
        return None
    deviations = values - values.mean()
    variance = float((deviations**2).sum()) / (n - 1)
    if variance <= 0.0:
        return 0.0
    return float(n / ((n - 1) * (n - 2)) * (deviations**3).sum() / variance**1.5)


def imbalance(counts_in_order: ArrayLike, shards: int) -> float:
    """The fullest shard's load over the mean, when cells in order are cut into contiguous parts as evenly as can be."""
    counts = np.asarray(counts_in_order, dtype=np.int64)
    total = int(counts.sum())
    if not total:
        return 1.0
    return _least_maximum(_prefix_sums(counts), shards) * _checked_parts(shards) / total


def _checked_parts(parts: int) -> int:
    if parts < 1:
        raise UsageError(f"points cannot be spread over {parts} shards; at least one is needed")
    return parts


def _prefix_sums(counts: Counts) -> Counts:
    sums = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _least_maximum(sums: Counts, parts: int) -> int:
    """The least load of the fullest part over all cuts into contiguous parts: bisection with a greedy check."""
    _checked_parts(parts)
    total = int(sums[-1])
    low = max(-(-total // parts), int(np.diff(sums).max(initial=0)))
    high = total
    while low < high:
        middle = (low + high) // 2
        if _fits(sums, parts, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _fits(sums: Counts, parts: int, most: int) -> bool:
    """Whether parts that take as many whole cells as `most` allows, one after the other, take all of them."""
    taken, total = 0, int(sums[-1])
    for _ in range(parts):
        taken = int(sums[np.searchsorted(sums, taken + most, side="right") - 1])
        if taken == total:
            return True
    return False


def default_candidates(histogram: Histogram) -> tuple[int, ...]:
    """Whole characters, as in the paper, up to its finest or to what the histogram knows."""
    finest = min(histogram.bits, FINEST_BITS)
    return tuple(sorted({*range(CHARACTER_BITS, finest + 1, CHARACTER_BITS), finest}))


def precision_table(
    histogram: Histogram, shards: int, candidates: Iterable[int] | None = None
) -> tuple[Row, ...]:
    """One row for each candidate precision, coarse to fine."""
    rows = []
    for bits in sorted(set(default_candidates(histogram) if candidates is None else candidates)):
        counts = histogram.coarsened(bits).counts
        largest = float(counts.max() / counts.sum()) if counts.size else 0.0
        rows.append(Row(bits, counts.size, skewness(counts), largest, imbalance(counts, shards)))
    return tuple(rows)


def choose_precision(
    histogram: Histogram,
    shards: int,
    *,
    bound: float = BOUND,
    override: int | None = None,
    candidates: Iterable[int] | None = None,
) -> Choice:
    """The least skewed precision that can be balanced over the shards, and why; or the one that the user wants."""
    if bound < 1.0:
        raise UsageError(
            f"bound is {bound}; the fullest shard holds at least the mean, so it must be 1 or more"
        )
    if override is not None and not 1 <= override <= BITS:
        raise UsageError(f"a precision of {override} bits cannot be chosen; it must be between 1 and {BITS}")
    rows = precision_table(histogram, shards, candidates)
    bits, reason = (
        (override, "asked for") if override is not None else _chosen(histogram, rows, shards, bound)
    )
    return Choice(bits, reason, rows, shards, bound)


def _chosen(histogram: Histogram, rows: tuple[Row, ...], shards: int, bound: float) -> tuple[int, str]:
    finest = rows[-1]
    if not histogram.total:
        return finest.bits, "there are no points yet to choose by; the finest of the candidates"
    if finest.cells == 1:
        return (
            finest.bits,
            "all points lie in one cell even at the finest of the candidates; only _id can part them",
        )
    skewed = [
        (row.skewness, row.bits, row) for row in rows if row.is_balanced(bound) and row.skewness is not None
    ]
    if skewed:
        value, bits, _ = min(skewed)
        passed = [row for row in rows if row.skewness is not None and row.skewness < value]
        words = f"skewness {value:.1f}, the least of those that can be balanced over {_shards(shards)}"
        if passed:
            worst = min(passed, key=lambda row: (row.skewness, row.bits))
            words += (
                f" ({worst.bits} bits: {worst.skewness:.1f}, but the fullest shard would hold "
                f"{worst.imbalance:.2f} times the mean, more than {bound:g})"
            )
        return bits, words
    best = min(rows, key=lambda row: (row.imbalance, row.bits))
    if best.is_balanced(bound):
        return (
            best.bits,
            f"{best.cells} cells, too few for a skewness, but they spread evenly over {_shards(shards)}",
        )
    return best.bits, (
        f"no precision can be balanced over {_shards(shards)}: the least imbalance, the fullest shard with "
        f"{best.imbalance:.2f} times the mean, more than {bound:g}"
    )


def _shards(count: int) -> str:
    return "one shard" if count == 1 else f"{count} shards"


def split_points(histogram: Histogram, bits: int, parts: int) -> list[int]:
    """Where to cut the 60-bit curve so that the parts weigh the same: at most ``parts - 1`` bounds, ascending.

    Every bound is the beginning of a cell of `bits` bits, except inside a cell that outweighs a part: that one is cut
    at whatever the histogram knows. The fullest part is as light as it can be, and each cut then as near to its
    even place as that allows. Fewer bounds come back when there are fewer cells than parts.
    """
    starts, counts = _units(histogram, bits, _checked_parts(parts))
    sums = _prefix_sums(counts)
    total = int(sums[-1])
    if not total:
        return []
    most = _least_maximum(sums, parts)
    earliest = _earliest_cuts(sums, parts, most)
    cuts: list[int] = []
    last = 0
    for number in range(1, parts):
        # Not so late that this part is too heavy, nor so early that the rest cannot be carried.
        latest = int(np.searchsorted(sums, int(sums[last]) + most, side="right")) - 1
        wanted = total * number / parts
        nearest = int(np.searchsorted(sums, wanted))
        if nearest > 0 and wanted - int(sums[nearest - 1]) < int(sums[nearest]) - wanted:
            nearest -= 1
        last = min(max(nearest, earliest[number], last), latest)
        cuts.append(last)
    return [int(starts[cut]) for cut in sorted({cut for cut in cuts if 0 < cut < counts.size})]


def _units(histogram: Histogram, bits: int, parts: int) -> tuple[NDArray[np.uint64], Counts]:
    """What is not cut: cells of `bits` bits, and the histogram's own inside those that outweigh a part."""
    whole = histogram.coarsened(min(bits, histogram.bits))
    shift = np.uint64(histogram.bits - whole.bits)
    heavy = whole.cells[whole.counts * parts > histogram.total]
    inside = np.isin(histogram.cells >> shift, heavy)
    light = ~np.isin(whole.cells, heavy)
    starts = np.concatenate(
        [
            whole.cells[light] << np.uint64(BITS - whole.bits),
            histogram.cells[inside] << np.uint64(BITS - histogram.bits),
        ]
    )
    counts = np.concatenate([whole.counts[light], histogram.counts[inside]])
    order = np.argsort(starts)
    return starts[order], counts[order]


def _earliest_cuts(sums: Counts, parts: int, most: int) -> list[int]:
    """For each cut, the first place that leaves no more behind it than the parts that follow can carry."""
    earliest = [0] * (parts + 1)
    earliest[parts] = sums.size - 1
    for number in range(parts - 1, 0, -1):
        carried = int(sums[earliest[number + 1]]) - most
        earliest[number] = int(np.searchsorted(sums, carried, side="left"))
    return earliest
