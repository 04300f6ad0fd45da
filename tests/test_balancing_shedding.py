"""S3-TM's shedding: who is left out, how much, and that nothing is when nobody asked for it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from partition_samples import sample_of

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.shedding import (
    UTILITIES,
    Buffer,
    Level,
    Shedding,
    Utility,
    left_out,
    utilities,
)
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.planners import make_plan

SAMPLE = sample_of(3, words=200)


def dispatcher() -> Dispatcher:
    made = Dispatcher(make_plan("hash", SAMPLE, 6))
    made.insert(SAMPLE.table)
    return made


@pytest.mark.parametrize("utility", UTILITIES)
def test_utilities_are_words_or_subscriptions_counted_one_by_one(utility: Utility) -> None:
    made = dispatcher()
    placement = Dispatcher(made.plan).insert(SAMPLE.table)
    cells = made.plan.grid.cells_of(SAMPLE.objects)
    assert set(cells.tolist()) == {0}  # by text there is one cell
    found = utilities([made], SAMPLE.objects, 6, utility)
    for row in range(0, len(SAMPLE.objects), 37):
        expected = np.zeros(6)
        for term in SAMPLE.objects.terms[SAMPLE.objects.offsets[row] : SAMPLE.objects.offsets[row + 1]]:
            clauses = int((placement.filed == term).sum())
            if clauses:
                expected[made.plan.homes[0, term]] += clauses if utility == "subscription" else 1
        assert found[row].tolist() == expected.tolist()


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("most", [1.0, 2.0, 3.0])
def test_an_object_goes_to_its_best_partitions_only(utility: Utility, most: float) -> None:
    made = dispatcher()
    whole = made.route(SAMPLE.objects)
    limited = Shedding(most, utility).limited([made], SAMPLE.objects, whole)
    scores = utilities([made], SAMPLE.objects, 6, utility)
    missing = objects = 0
    for row in range(len(SAMPLE.objects)):
        before = {p for p in range(6) if row in whole.rows_of(p)}
        after = {p for p in range(6) if row in limited.rows_of(p)}
        assert after <= before
        assert len(after) == min(len(before), most)
        if after:
            assert min(scores[row, p] for p in after) >= max(
                (scores[row, p] for p in before - after), default=0
            )
        missing += len(before) - len(after)
        objects += before != after
    assert missing > 0
    assert left_out(whole, limited) == (missing, objects)
    assert limited.dropped == whole.dropped


def test_a_fraction_is_the_chance_of_one_more() -> None:
    made = dispatcher()
    whole = made.route(SAMPLE.objects)
    counts = [Shedding(most).limited([made], SAMPLE.objects, whole).rows.size for most in (1.0, 1.5, 2.0)]
    assert counts[0] < counts[1] < counts[2]
    assert counts[1] == pytest.approx((counts[0] + counts[2]) / 2, rel=0.1)


def test_nothing_is_shed_at_level_zero() -> None:
    made = dispatcher()
    whole = made.route(SAMPLE.objects)
    assert Level().most == float("inf")
    assert Shedding(Level().most).limited([made], SAMPLE.objects, whole) is whole


def test_the_level_follows_the_segments_of_the_buffer() -> None:
    buffer = Buffer(ideal=30, stable=70)
    level = Level(step=2.0)
    assert level.after(90, buffer) == level
    for expected in (7.0, 5.0, 3.0, 1.0, 1.0):  # and no further
        level = level.after(101, buffer)
        assert level.most == expected
    assert level.level == 4
    assert level.after(30, buffer) == level
    for expected in (3.0, 5.0, 7.0, float("inf"), float("inf")):
        level = level.after(29, buffer)
        assert level.most == expected


def test_the_level_goes_on_only_while_it_gets_no_better() -> None:
    buffer = Buffer(ideal=30, stable=70)
    level = Level().after(150, buffer)
    assert level.level == 1
    level = level.after(120, buffer)  # overloaded still, but the queue is shorter
    assert level.level == 1
    level = level.after(120, buffer).after(130, buffer)
    assert level.level == 3
    level = level.after(20, buffer)
    assert level.level == 2
    level = level.after(25, buffer)  # nearly empty still, but the queue grows
    assert level.level == 2
    assert level.after(25, buffer).level == 1


def test_the_loads_of_levels_are_the_sends_that_are_left() -> None:
    made = dispatcher()
    whole = made.route(SAMPLE.objects)
    counts = np.bincount(whole.rows, minlength=len(SAMPLE.objects))
    level = Level(first_most=4)
    loads = level.loads(counts)
    assert len(loads) == 5
    assert loads[0] == whole.rows.size
    for number, load in enumerate(loads):
        most = Level(number, first_most=4).most
        assert Shedding(most).limited([made], SAMPLE.objects, whole).rows.size == load


@pytest.mark.parametrize("loads", [(1.0, 0.8, 0.6, 0.4), (1.0, 0.5), (10.0, 9.9, 3.0), (1.0,), (1.0, 1.0)])
def test_no_single_level_leads_from_ideal_to_overload(loads: tuple[float, ...]) -> None:
    buffer = Buffer.of(1000, loads)
    assert buffer.ideal + buffer.stable == pytest.approx(1000)
    assert buffer.stable > 0
    for before, after in pairwise(loads):
        assert buffer.ideal * before / after <= 1000 + 1e-9


def test_nonsense_is_named() -> None:
    with pytest.raises(UsageError, match="the stable segment must be above zero"):
        Buffer(5, 0)
    with pytest.raises(UsageError, match="step 0"):
        Level(step=0)
