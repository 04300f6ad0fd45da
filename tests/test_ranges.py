"""Ranges of the curve as sets: taken out of each other and put together, against Python's own sets of cells."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.geohash import BITS, merge_ranges

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
