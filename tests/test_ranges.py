"""Ranges of the curve as sets: taken out of each other and put together, against Python's own sets of cells."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialnosql import cover
from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.geohash import BITS, merge_ranges
from spatialnosql.histogram import Histogram

PARTS = 24
UNIT = (1 << BITS) // PARTS

sets = st.sets(st.integers(0, PARTS - 1))


def bound(part: int) -> int:
    """Where a part of the curve begins; the last one ends with the world."""
    return part * UNIT if part < PARTS else 1 << BITS


def ranges_of(members: set[int]) -> Ranges:
    lo = np.array([bound(part) for part in members], dtype=np.uint64)
    hi = np.array([bound(part + 1) for part in members], dtype=np.uint64)
    return Ranges(*merge_ranges(lo, hi))


def same(one: Ranges, other: Ranges) -> bool:
    return np.array_equal(one.lo, other.lo) and np.array_equal(one.hi, other.hi)


@given(sets, sets)
def test_without_and_joined_are_those_of_sets(one: set[int], other: set[int]) -> None:
    assert same(ranges_of(one).without(ranges_of(other)), ranges_of(one - other))
    assert same(ranges_of(one).joined(ranges_of(other)), ranges_of(one | other))


@given(sets)
def test_nothing_changes_nothing(members: set[int]) -> None:
    ranges = ranges_of(members)
    assert same(ranges.without(NOTHING), ranges)
    assert same(NOTHING.without(ranges), NOTHING)
    assert same(ranges.joined(NOTHING), ranges)
    assert same(ranges.without(ranges), NOTHING)


def bridged_by_hand(members: set[int], counts: list[int], points: int) -> tuple[set[int], int]:
    """Gaps with few points are filled, and all is counted."""
    filled = set(members)
    for start, end in pairwise(sorted(members)):
        gap = set(range(start + 1, end))
        if sum(counts[part] for part in gap) <= points:
            filled |= gap
    return filled, sum(counts[part] for part in filled)


@pytest.mark.parametrize("few", [0, 1000], ids=["together", "one by one"])
@given(sets, st.lists(st.integers(0, 9), min_size=32, max_size=32), st.integers(0, 30))
def test_bridged(few: int, members: set[int], counts: list[int], points: int) -> None:
    parts, unit = 32, 1 << (BITS - 5)  # such as are cells
    held_in = np.flatnonzero(counts).astype(np.uint64)
    histogram = Histogram(5, held_in, np.array(counts, dtype=np.int64)[held_in.astype(int)])

    def of(chosen: set[int]) -> Ranges:
        lo = np.array(sorted(chosen), dtype=np.uint64) * np.uint64(unit)
        return Ranges(*merge_ranges(lo, lo + np.uint64(unit)))

    assert all(member < parts for member in members)
    expected, total = bridged_by_hand(members, counts, points)
    with mock.patch.object(cover, "_FEW", few):
        ranges, held = of(members).bridged(histogram, points)
        assert of(members).held(histogram) == sum(counts[part] for part in members)
    assert same(ranges, of(expected))
    assert held == total


@given(sets, st.lists(st.integers(0, 9), min_size=32, max_size=32), st.integers(1, 6))
def test_parted(members: set[int], counts: list[int], parts: int) -> None:
    """All of it in order, in parts none of which holds a cell's points more than its share."""
    unit = 1 << (BITS - 5)
    held_in = np.flatnonzero(counts).astype(np.uint64)
    histogram = Histogram(5, held_in, np.array(counts, dtype=np.int64)[held_in.astype(int)])
    lo = np.array(sorted(members), dtype=np.uint64) * np.uint64(unit)
    whole = Ranges(*merge_ranges(lo, lo + np.uint64(unit)))
    pieces = whole.parted(histogram, parts)
    assert len(pieces) <= max(parts, 1)
    joined = NOTHING
    for piece in pieces:
        assert len(joined) == 0 or len(piece) == 0 or joined.hi[-1] <= piece.lo[0]
        assert piece.held(histogram) <= whole.held(histogram) / parts + 2 * max(counts)
        joined = joined.joined(piece)
    assert same(joined, whole)
