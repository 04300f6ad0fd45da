"""Precision and split points: against values worked out by hand, and against every cut there is."""

import itertools
import math

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.skew import choose_precision, imbalance, precision_table, skewness, split_points


def histogram(bits: int, counts: dict[int, int]) -> Histogram:
    cells = sorted(counts)
    return Histogram(bits, np.array(cells, np.uint64), np.array([counts[c] for c in cells], np.int64))


def test_skewness_by_hand() -> None:
    # mean 2, deviations -1 -1 2: squares 6, S = sqrt(3); cubes 6; 3/(2*1) * 6 / 3**1.5
    assert skewness([1, 1, 4]) == pytest.approx(1.5 * 6 / 3**1.5)
    # mean 4, deviations -3 -2 -1 6: squares 50, cubes 180; 4/(3*2) * 180 / (50/3)**1.5
    assert skewness([1, 2, 3, 10]) == pytest.approx(4 / 6 * 180 / (50 / 3) ** 1.5)
    assert skewness([1, 2, 3]) == pytest.approx(0)
    assert skewness([4, 4, 1]) < 0


@pytest.mark.parametrize(("counts", "value"), [([], None), ([7], None), ([1, 9], None), ([5, 5, 5, 5], 0.0)])
def test_skewness_of_degenerate_counts(counts: list[int], value: float | None) -> None:
    assert skewness(counts) == value


def best_of_all_cuts(counts: list[int], parts: int) -> int:
    places = itertools.combinations_with_replacement(range(len(counts) + 1), parts - 1)
    return min(
        max(sum(counts[a:b]) for a, b in itertools.pairwise((0, *cuts, len(counts)))) for cuts in places
    )


def test_imbalance_is_that_of_the_best_cut() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        counts = rng.integers(1, 40, rng.integers(1, 9)).tolist()
        parts = int(rng.integers(1, 5))
        expected = best_of_all_cuts(counts, parts) * parts / sum(counts)
        assert imbalance(counts, parts) == pytest.approx(expected)
    assert imbalance([], 3) == 1.0
    with pytest.raises(UsageError, match="0 shards"):
        imbalance([1, 2], 0)


def test_the_table_has_one_row_a_precision() -> None:
    rows = precision_table(histogram(10, {0: 6, 1: 1, 33: 1}), 2)
    assert [(row.bits, row.cells) for row in rows] == [(5, 2), (10, 3)]
    assert (rows[0].largest, rows[0].skewness, rows[0].imbalance) == (7 / 8, None, 1.75)
    assert (rows[1].largest, rows[1].imbalance) == (6 / 8, 1.5)


def hot_spot(seed: int = 3) -> Histogram:
    """A town of favourite places in the middle of a thinly settled country."""
    rng = np.random.default_rng(seed)
    place = np.minimum(rng.pareto(0.6, 40_000) * 20, 3_999).astype(int)
    town_lng, town_lat = rng.normal(10.2, 0.03, 4_000), rng.normal(50.3, 0.03, 4_000)
    lng = np.concatenate([town_lng[place], rng.uniform(8, 12, 1_000)])
    lat = np.concatenate([town_lat[place], rng.uniform(48, 52, 1_000)])
    return Histogram.of_points(lng, lat, 35)


def test_the_least_skewed_of_those_that_can_be_balanced() -> None:
    data = hot_spot()
    choice = choose_precision(data, 4)
    rows = {row.bits: row for row in choice.table}
    chosen = rows[choice.bits]
    assert chosen.imbalance <= 1.1
    allowed = [row for row in choice.table if row.imbalance <= 1.1]
    assert chosen.skewness == min(row.skewness for row in allowed if row.skewness is not None)
    # The paper's rule alone takes another one, and one shard would get nearly everything.
    least = min((row for row in choice.table if row.skewness is not None), key=lambda row: row.skewness)
    assert least.bits != choice.bits
    assert least.imbalance > 2
    assert f"{least.bits} bits" in choice.reason
    assert sum(line.startswith("*") for line in choice.lines()) == 1
    # With one shard there is nothing to balance: the paper's own rule.
    assert choose_precision(data, 1).bits == least.bits


def test_the_user_may_override_and_move_the_bound() -> None:
    data = hot_spot()
    overridden = choose_precision(data, 4, override=22)
    assert (overridden.bits, overridden.reason) == (22, "asked for")
    assert choose_precision(data, 4, bound=4.0).bits < choose_precision(data, 4).bits
    for wrong in ({"bound": 0.5}, {"override": 0}, {"override": 61}):
        with pytest.raises(UsageError):
            choose_precision(data, 4, **wrong)


@pytest.mark.parametrize(
    ("counts", "shards", "bits", "words"),
    [
        ({}, 3, 10, "no points"),
        ({77: 1}, 3, 10, "one cell"),
        ({77: 900}, 3, 10, "one cell"),
        ({0: 5, 1023: 5}, 2, 5, "too few for a skewness"),
        ({0: 90, 1: 5, 1023: 5}, 2, 10, "no precision can be balanced"),
        (dict.fromkeys(range(1024), 3), 2, 5, "skewness 0.0"),
    ],
)
def test_degenerate_data(counts: dict[int, int], shards: int, bits: int, words: str) -> None:
    choice = choose_precision(histogram(10, counts), shards)
    assert choice.bits == bits
    assert words in choice.reason
    for row in choice.table:
        assert all(math.isfinite(value) for value in (row.largest, row.imbalance, row.skewness or 0.0))
    assert choice.lines()


def weights(data: Histogram, cuts: list[int]) -> list[float]:
    return data.points_in([0, *cuts], [*cuts, 1 << 60]).tolist()


def test_split_points_are_borders_of_cells_and_the_parts_are_as_even_as_can_be() -> None:
    rng = np.random.default_rng(8)
    for _ in range(100):
        counts = {
            int(c): int(n) for c, n in zip(rng.permutation(32)[:12], rng.integers(1, 20, 12), strict=True)
        }
        data, parts = histogram(5, counts), int(rng.integers(2, 5))
        cuts = split_points(data, 5, parts)
        assert cuts == sorted(set(cuts))
        assert len(cuts) == parts - 1
        assert all(cut % (1 << 55) == 0 for cut in cuts)
        ordered = [counts[cell] for cell in sorted(counts)]
        assert max(weights(data, cuts)) == best_of_all_cuts(ordered, parts)


def test_cuts_lie_as_near_to_even_as_the_fullest_part_allows() -> None:
    # Greedily filled to the least maximum (12), the last part would hold 6 only.
    data = histogram(5, {0: 12, 1: 5, 2: 5, 3: 5, 4: 5, 5: 5})
    assert sorted(weights(data, split_points(data, 5, 4))) == [5, 10, 10, 12]


def test_a_cell_that_outweighs_a_part_is_cut_inside() -> None:
    data = hot_spot()
    cuts = split_points(data, 15, 4)
    assert max(weights(data, cuts)) < 1.02 * data.total / 4
    assert any(cut % (1 << 45) for cut in cuts)
    # Not so when whole cells will do.
    assert all(cut % (1 << 30) == 0 for cut in split_points(data, 30, 4))


def test_split_points_of_little_data() -> None:
    assert split_points(histogram(5, {}), 5, 3) == []
    assert split_points(histogram(5, {7: 100}), 5, 3) == []
    assert split_points(histogram(5, {7: 1, 9: 1}), 5, 5) == [9 << 55]
    assert split_points(hot_spot(), 30, 1) == []
    with pytest.raises(UsageError):
        split_points(hot_spot(), 30, 0)
