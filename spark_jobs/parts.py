"""Into which Spark partition a row goes: ranges of the curve, of even weight, so that an index grows page by page.

Partitions are numbered so that those running together write to different shards.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.screening import CELL
from spatialnosql.histogram import Histogram
from spatialnosql.spreading import layout

ROWS = 100_000
"""What a partition is meant to have: sorted in memory, and little to do again if it fails."""
FEW_ROWS = 10_000


def part_column(histogram: Histogram, shards: int, cores: int) -> tuple[Column, int]:
    """The number of the partition of a row by its `CELL`, and how many there are."""
    wanted = -(-histogram.total // ROWS)
    if histogram.total > FEW_ROWS:
        wanted = max(wanted, 2 * cores)
    each = -(-wanted // shards)
    plan = layout(histogram, histogram.bits, shards, lambda _: each)
    cuts = plan.bounds
    numbers = interleaved([len(inner) + 1 for inner in plan.inner])
    return _number(cuts, numbers, 0, len(cuts)), len(numbers)


def interleaved(sizes: Sequence[int]) -> list[int]:
    """Numbers for the members of groups in a row, such that consecutive ones are of different groups.

    >>> interleaved([2, 2])
    [0, 2, 1, 3]
    """
    members = [(place, group) for group, size in enumerate(sizes) for place in range(size)]
    order = {member: number for number, member in enumerate(sorted(members))}
    return [order[member] for member in members]


def _number(cuts: Sequence[int], numbers: Sequence[int], low: int, high: int) -> Column:
    """A search by halves, written out as comparisons: compiled, not interpreted."""
    if low == high:
        return F.lit(numbers[low])
    middle = (low + high) // 2
    before, after = _number(cuts, numbers, low, middle), _number(cuts, numbers, middle + 1, high)
    return F.when(F.col(CELL) < F.lit(cuts[middle]), before).otherwise(after)
