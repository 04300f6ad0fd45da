"""Histograms: counts of points by cell, at any precision and over any range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialnosql import testing
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS, cells_to_ranges, points_to_cells
from spatialnosql.histogram import Histogram

CELLS = points_to_cells(*testing.points_clustered(5000))


@pytest.mark.parametrize("bits", [0, 1, 15, 24, 33, 60])
def test_counts_are_those_of_brute_force(bits: int) -> None:
    histogram = Histogram.of_cells(CELLS, bits)
    cells, counts = np.unique(CELLS >> np.uint64(BITS - bits), return_counts=True)
    assert (histogram.cells.tolist(), histogram.counts.tolist()) == (cells.tolist(), counts.tolist())
    assert histogram.total == 5000
    assert histogram.bits == bits


def test_points_are_counted_by_their_cells() -> None:
    lng, lat = testing.points_clustered(500)
    assert Histogram.of_points(lng, lat, 30).key == Histogram.of_cells(points_to_cells(lng, lat), 30).key
    coarse = points_to_cells(lng, lat, 35)
    assert Histogram.of_cells(coarse, 30, cell_bits=35).key == Histogram.of_points(lng, lat, 30).key


@pytest.mark.parametrize("bits", [0, 7, 20, 30])
def test_coarser_is_as_if_counted_so(bits: int) -> None:
    coarse = Histogram.of_cells(CELLS, 30).coarsened(bits)
    assert coarse.key == Histogram.of_cells(CELLS, bits).key
    assert coarse.total == 5000


def test_finer_cannot_be_known() -> None:
    with pytest.raises(UsageError, match="a histogram of 30 bits cannot be made one of 31"):
        Histogram.of_cells(CELLS, 30).coarsened(31)


@given(st.integers(0, 2**20), st.integers(0, 2**20))
def test_whole_cells_are_counted_exactly(one: int, other: int) -> None:
    histogram = Histogram.of_cells(CELLS, 20)
    lo, hi = (np.uint64(bound) << np.uint64(40) for bound in sorted((one, other)))
    assert histogram.points_in([lo], [hi])[0] == pytest.approx(int(((lo <= CELLS) & (hi > CELLS)).sum()))


@given(st.lists(st.integers(0, 2**60), min_size=2, max_size=20))
def test_ranges_add_up_and_never_count_less_than_nothing(bounds: list[int]) -> None:
    histogram = Histogram.of_cells(CELLS, 20)
    bounds = sorted(bounds)
    parts = histogram.points_in(bounds[:-1], bounds[1:])
    assert (parts >= -1e-9).all()
    assert parts.sum() == pytest.approx(histogram.points_in(bounds[:1], bounds[-1:])[0], abs=1e-6)
    assert histogram.points_before([2**60])[0] == 5000
    assert histogram.points_before([0])[0] == 0


@given(st.lists(st.integers(0, 2**60), max_size=20), st.sampled_from([1, 20, 40]))
def test_one_by_one_or_together(bounds: list[int], bits: int) -> None:
    histogram = Histogram.of_cells(CELLS, bits)
    bounds += [0, 2**60, *(int(cell) for cell in CELLS[:5])]
    assert [histogram.points_before_one(bound) for bound in bounds] == histogram.points_before(
        bounds
    ).tolist()


def test_within_a_cell_points_are_spread_evenly() -> None:
    histogram = Histogram(10, np.array([3], dtype=np.uint64), np.array([1000]))
    lo, hi = (int(bound[0]) for bound in cells_to_ranges([3], 10))
    quarter = (hi - lo) // 4
    bounds = [lo - 5, lo, lo + quarter, lo + 2 * quarter, hi, hi + 5]
    assert histogram.points_before(bounds).tolist() == [0, 0, 250, 500, 1000, 1000]


def test_an_empty_histogram() -> None:
    histogram = Histogram.of_cells([], 20)
    assert histogram.total == 0
    assert histogram.points_in([0, 5], [2**60, 7]).tolist() == [0, 0]
    assert histogram.coarsened(10).total == 0


def test_keys_tell_histograms_apart() -> None:
    histogram = Histogram.of_cells(CELLS, 20)
    others = [Histogram.of_cells(CELLS[1:], 20), Histogram.of_cells(CELLS, 21), Histogram.of_cells([], 20)]
    moved = Histogram(21, histogram.cells, histogram.counts)
    assert len({histogram.key, moved.key, *(other.key for other in others)}) == 5


def test_what_is_no_histogram() -> None:
    with pytest.raises(UsageError, match="a histogram of 2 cells but 1 counts"):
        Histogram(10, np.array([1, 2], dtype=np.uint64), np.array([5]))
    for cells in ([2, 1], [1, 1]):
        with pytest.raises(UsageError, match=r"sorted, each once; use Histogram\.of_cells"):
            Histogram(10, np.array(cells, dtype=np.uint64), np.array([5, 5]))
