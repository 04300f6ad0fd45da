"""Every plan gives exactly the brute-force matches: whatever is inserted, removed, or was never seen in planning."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.areas import Area, Circle, Polygon, Rectangle
from spatialnosql.subscriptions.model import Object, Subscription
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.hybrid import plan_hybrid
from spatialnosql.subscriptions.partitioning.partitioned_index import PartitionedIndex
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.planners import PLANNERS, make_plan
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.vocabulary import Vocabulary

RULES = TextRules(stop_words="none")
WORDS = [f"word{i}" for i in range(40)]
SHARES = 1.0 / np.arange(1, 41)
SHARES /= SHARES.sum()
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.timezone.utc)
# Coordinates on which borders, cells and objects meet, the ends of the world among them.
LNGS = np.array([-180.0, -179.9, -100.0, -99.5, -50.0, 0.0, 0.5, 40.0, 179.9, 180.0])
LATS = np.array([-90.0, -40.0, -0.5, 0.0, 25.0, 25.5, 60.0, 90.0])


def words(draw: np.random.Generator, count: int, known: list[str]) -> list[str]:
    shares = SHARES[: len(known)] / SHARES[: len(known)].sum()
    return sorted(set(draw.choice(known, size=count, p=shares).tolist()))


def place(draw: np.random.Generator) -> tuple[float, float]:
    turn = draw.random()
    if turn < 0.4:
        return float(draw.choice(LNGS)), float(draw.choice(LATS))
    if turn < 0.8:  # a town
        return float(draw.normal(-100, 1)), float(draw.normal(25, 1))
    return float(draw.uniform(-180, 180)), float(draw.uniform(-90, 90))


def area(draw: np.random.Generator) -> Area:
    lng, lat = place(draw)
    kind = draw.random()
    if kind < 0.15:
        return Circle(lng, lat, float(draw.choice([1_000.0, 80_000.0, 3e6])))
    if kind < 0.3:
        west, south = min(lng, 179.0), min(max(lat, -80.0), 70.0)
        ring = [[west, south], [west + 5, south], [west + 5, south + 5], [west, south + 5]]
        ring = [[x - 360 if x > 180 else x, y] for x, y in ring]  # some reach across the antimeridian
        return Polygon({"type": "Polygon", "coordinates": [[*ring, ring[0]]]})
    if kind < 0.4:
        return Rectangle(-180.0, -90.0, 180.0, 90.0)
    wide, high = draw.exponential(2.0, size=2)
    return Rectangle(lng, lat, min(lng + wide, 180.0), min(lat + high, 90.0))


def subscribed(
    draw: np.random.Generator, count: int, first: int, known: list[str] = WORDS
) -> list[Subscription]:
    rows = []
    for i in range(first, first + count):
        clauses = {tuple(words(draw, draw.integers(1, 4), known)) for _ in range(draw.integers(1, 4))}
        ends = None if draw.random() < 0.8 else NOON + dt.timedelta(milliseconds=int(draw.integers(-2, 3)))
        rows.append(Subscription(f"s{i}", "ann", tuple(sorted(clauses)), area(draw), ends))
    return rows


def happened(draw: np.random.Generator, count: int, known: list[str] = WORDS) -> list[Object]:
    rows = []
    for i in range(count):
        text = " ".join([*words(draw, draw.integers(0, 9), known), "unheard"])
        rows.append(Object(i, text, *place(draw), NOON))
    return rows


def batch(objects: list[Object], vocabulary: Vocabulary) -> Objects:
    terms = []
    for one in objects:
        numbers = vocabulary.numbers(one.text.split())
        terms.append(np.unique(numbers[numbers >= 0]))
    return Objects.of(
        [one.lng for one in objects],
        [one.lat for one in objects],
        int(NOON.timestamp() * 1000),
        np.concatenate([[0], np.cumsum([own.size for own in terms])]),
        np.concatenate([np.zeros(0, dtype=np.int32), *terms]),
    )


ANSWERS: dict[str, list[tuple[int, int]]] = {}


def brute_force(key: str, objects: list[Object], there: dict[int, Subscription]) -> list[tuple[int, int]]:
    """Every pair asked once; the planners share the answer, since their cases are the same."""
    if key not in ANSWERS:
        ANSWERS[key] = sorted(
            (row, number)
            for row, one in enumerate(objects)
            for number, subscription in there.items()
            if subscription.matches(one, RULES)
        )
    return ANSWERS[key]


def found(index: PartitionedIndex, objects: list[Object], vocabulary: Vocabulary) -> list[tuple[int, int]]:
    rows, numbers = index.match_objects(batch(objects, vocabulary))
    return list(zip(rows.tolist(), numbers.tolist(), strict=True))


class Case:
    """Subscriptions, the sample they are planned by, and other objects to match."""

    def __init__(self, seed: int, count: int = 150, side: int = 16) -> None:
        self.draw = np.random.default_rng(seed)
        self.subscriptions = subscribed(self.draw, count, 0)
        self.vocabulary = Vocabulary()
        self.table = Table.of(self.subscriptions, self.vocabulary)
        self.sample = Sample.of(batch(happened(self.draw, 400), self.vocabulary), self.table, side=side)
        self.objects = happened(self.draw, 150)


@pytest.mark.parametrize("partitions", [1, 2, 8])
@pytest.mark.parametrize("name", PLANNERS)
def test_every_plan_finds_what_brute_force_finds(name: str, partitions: int) -> None:
    case = Case(1)
    index = PartitionedIndex(make_plan(name, case.sample, partitions), case.table)
    there = dict(enumerate(case.subscriptions))
    expected = brute_force("first", case.objects, there)
    assert len(expected) > 100
    assert found(index, case.objects, case.vocabulary) == expected
    # Later: some go, others come, also with words and in places that planning has not seen.
    gone = case.draw.choice(150, size=50, replace=False)
    index.remove(gone)
    more = [*WORDS[:20], *(f"new{i}" for i in range(20))]
    added = subscribed(case.draw, 60, 150, more)
    index.insert(Table.of(added, case.vocabulary))
    there = {number: one for number, one in there.items() if number not in set(gone.tolist())}
    there |= dict(enumerate(added, start=150))
    objects = happened(case.draw, 100, more)
    expected = brute_force("later", objects, there)
    assert any(number >= 150 for _, number in expected)
    assert found(index, objects, case.vocabulary) == expected
    index.remove(np.arange(150, 210))
    expected = [pair for pair in expected if pair[1] < 150]
    assert found(index, objects, case.vocabulary) == expected


@pytest.mark.parametrize("name", PLANNERS)
def test_more_partitions_than_cells_and_words(name: str) -> None:
    case = Case(5, side=2)
    index = PartitionedIndex(make_plan(name, case.sample, 60), case.table)
    if name not in ("grid", "salb"):  # the one has cells of its own, the other splits words
        assert any(len(part) == 0 for part in index.indexes)
    expected = brute_force("many", case.objects, dict(enumerate(case.subscriptions)))
    assert found(index, case.objects, case.vocabulary) == expected


@pytest.mark.parametrize("name", PLANNERS)
def test_planned_from_nothing(name: str) -> None:
    case = Case(6)
    vocabulary = Vocabulary()
    nothing = Table.of([], vocabulary)
    sample = Sample.of(batch([], vocabulary), nothing)
    index = PartitionedIndex(make_plan(name, sample, 4), nothing)
    assert found(index, case.objects, vocabulary) == []
    index.insert(Table.of(case.subscriptions, vocabulary))
    expected = brute_force("nothing", case.objects, dict(enumerate(case.subscriptions)))
    assert found(index, case.objects, vocabulary) == expected


@pytest.mark.parametrize("name", PLANNERS)
def test_a_saved_plan_is_the_same_plan(name: str, tmp_path: Path) -> None:
    case = Case(7)
    plan = make_plan(name, case.sample, 5)
    plan.save(tmp_path / "plan.npz")
    again = Plan.open(tmp_path / "plan.npz")
    objects = batch(case.objects, case.vocabulary)
    routes = []
    for one in (plan, again):
        dispatcher = Dispatcher(one)
        placement = dispatcher.insert(case.table)
        routes.append((dispatcher.route(objects).pairs(), placement.offsets, placement.partitions))
    assert routes[0][0][0].size > 0
    for first, second in zip((*routes[0][0], *routes[0][1:]), (*routes[1][0], *routes[1][1:]), strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize("delta", [0.0, 1.1])
def test_hybrid_is_exact_whether_it_parts_by_space_or_by_text(delta: float) -> None:
    case = Case(8, count=200)
    plan = plan_hybrid(case.sample, 6, sigma=1.0, delta=delta)
    if delta > 1:
        assert (plan.leaf_home < 0).any()
    index = PartitionedIndex(plan, case.table)
    expected = brute_force("hybrid", case.objects, dict(enumerate(case.subscriptions)))
    assert found(index, case.objects, case.vocabulary) == expected


def test_an_object_is_sent_only_where_something_is_filed_for_it() -> None:
    case = Case(9)
    for name in PLANNERS:
        dispatcher = Dispatcher(make_plan(name, case.sample, 4))
        placement = dispatcher.insert(case.table)
        objects = batch(case.objects, case.vocabulary)
        routes = dispatcher.route(objects)
        sent = set(routes.rows.tolist())
        assert len(sent) + routes.dropped == len(objects)
        filed = set(placement.filed.tolist())
        for row in sent:
            own = objects.terms[objects.offsets[row] : objects.offsets[row + 1]].tolist()
            assert filed.intersection(own)
        dispatcher.remove(case.table, placement, np.arange(len(case.table)))
        assert dispatcher.route(objects).dropped == len(objects)


def test_objects_without_a_place_are_dropped() -> None:
    case = Case(10)
    dispatcher = Dispatcher(make_plan("kdtree", case.sample, 4))
    dispatcher.insert(case.table)
    lost = Objects.of([np.nan, 200.0], [0.0, 0.0], 0, [0, 1, 2], [0, 0])
    assert dispatcher.route(lost).dropped == 2


def test_what_was_not_inserted_cannot_be_removed() -> None:
    case = Case(11)
    dispatcher = Dispatcher(make_plan("hash", case.sample, 4))
    placement = dispatcher.insert(case.table)
    rows = np.arange(len(case.table))
    dispatcher.remove(case.table, placement, rows)
    with pytest.raises(UsageError, match="remove each subscription once"):
        dispatcher.remove(case.table, placement, rows)


def test_an_unknown_planner_is_named() -> None:
    case = Case(12)
    with pytest.raises(UsageError, match="no partitioner 'voronoi'; there are hash"):
        make_plan("voronoi", case.sample, 4)
    with pytest.raises(UsageError, match="0 partitions"):
        make_plan("hash", case.sample, 0)
