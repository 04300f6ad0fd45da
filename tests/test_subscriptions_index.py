"""The index of subscriptions against brute force: every pair, whatever is inserted, removed or expired."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import kernel
from spatialnosql.subscriptions.areas import Area, Circle, Polygon, Rectangle
from spatialnosql.subscriptions.index import Index, warm_up
from spatialnosql.subscriptions.model import Object, Subscription
from spatialnosql.subscriptions.segment import Segment
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.vocabulary import Vocabulary

RULES = TextRules(stop_words="none")
WORDS = [f"word{i}" for i in range(30)]
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.timezone.utc)

# A grid of coordinates on which borders and objects meet, ends of the world included.
LNGS = np.array([-180.0, -179.5, -90.0, -0.1, 0.0, 0.1, 10.0, 10.000001, 10.1, 45.0, 90.0, 179.5, 180.0])
LATS = np.array([-90.0, -89.9, -45.0, -0.1, 0.0, 0.1, 50.0, 50.000001, 50.1, 66.6, 89.9, 90.0])


def random_area(draw: np.random.Generator, kinds: str = "rrrcp") -> Area:
    kind = draw.choice(list(kinds))
    on_grid = draw.random() < 0.6
    lng = float(draw.choice(LNGS)) if on_grid else draw.uniform(-180, 180)
    lat = float(draw.choice(LATS)) if on_grid else draw.uniform(-90, 90)
    if kind == "c":
        return Circle(lng, lat, float(draw.choice([0.0, 1.0, 11_132.0, 500_000.0, 3e6, 1.5e7])))
    if kind == "p":
        wide, high = draw.uniform(0.2, 30, size=2)
        west, south = draw.uniform(-180, 175), draw.uniform(-88, 60)
        if draw.random() < 0.3:
            west = 180.0 - wide / 2  # across the antimeridian
        elif draw.random() < 0.3:
            west = float(draw.choice([-180.0, 180.0 - wide, 0.0]))  # along it
        east, north = west + wide, min(south + high, 90.0)
        ring = [
            [x - 360 if x > 180 else x, y]
            for x, y in [(west, south), (east, south), (east, north), (west, north)]
        ]
        return Polygon({"type": "Polygon", "coordinates": [[*ring, ring[0]]]})
    if on_grid:
        west, east = np.sort(draw.choice(LNGS, 2)).tolist()
        south, north = np.sort(draw.choice(LATS, 2)).tolist()
        return Rectangle(west, south, east, north)
    wide, high = draw.exponential(3.0, size=2)
    return Rectangle(lng, lat, min(lng + wide, 180.0), min(lat + high, 90.0))


def random_subscription(draw: np.random.Generator, id: str, kinds: str = "rrrcp") -> Subscription:
    clauses = {
        tuple(sorted(draw.choice(WORDS, size=draw.integers(1, 5), replace=False).tolist()))
        for _ in range(draw.integers(1, 4))
    }
    ends = None if draw.random() < 0.6 else NOON + dt.timedelta(milliseconds=int(draw.integers(-3, 4)))
    return Subscription(
        id, f"owner{draw.integers(5)}", tuple(sorted(clauses)), random_area(draw, kinds), ends
    )


def random_objects(draw: np.random.Generator, count: int) -> list[Object]:
    objects = []
    for i in range(count):
        lng, lat = (
            (float(draw.choice(LNGS)), float(draw.choice(LATS)))
            if draw.random() < 0.6
            else (draw.uniform(-180, 180), draw.uniform(-90, 90))
        )
        words = draw.choice([*WORDS, "unheard", "of"], size=draw.integers(0, 12)).tolist()
        at = NOON + dt.timedelta(milliseconds=int(draw.integers(-3, 4)))
        objects.append(Object(i, " ".join(words), lng, lat, at))
    return objects


def arrays(objects: Sequence[Object], vocabulary: Vocabulary) -> tuple[object, ...]:
    terms = [
        sorted(vocabulary[term] for term in RULES.terms(thing.text) if term in vocabulary)
        for thing in objects
    ]
    offsets = np.cumsum([0] + [len(row) for row in terms])
    return (
        np.array([thing.lng for thing in objects], dtype=np.float64),
        np.array([thing.lat for thing in objects], dtype=np.float64),
        np.array([thing.at_ms for thing in objects], dtype=np.int64),
        offsets,
        np.array([term for row in terms for term in row], dtype=np.int32),
    )


def brute_force(subscriptions: Iterable[Subscription], objects: Sequence[Object]) -> set[tuple[int, str]]:
    """All matching pairs by the definition, area by area."""
    lng, lat = np.array([thing.lng for thing in objects]), np.array([thing.lat for thing in objects])
    terms = [set(RULES.terms(thing.text)) for thing in objects]
    pairs = set()
    for subscription in subscriptions:
        for row in np.flatnonzero(subscription.area.inside(lng, lat)).tolist():
            if objects[row].at_ms < subscription.expires_ms and any(
                terms[row].issuperset(clause) for clause in subscription.clauses
            ):
                pairs.add((row, subscription.id))
    return pairs


def matched(index: Index, objects: Sequence[Object]) -> set[tuple[int, str]]:
    rows, numbers = index.match(*arrays(objects, index.vocabulary))
    assert rows.dtype == np.int64
    assert numbers.dtype == np.int32
    assert (np.diff(rows) >= 0).all()
    pairs = list(zip(rows.tolist(), index.ids(numbers), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


@pytest.mark.parametrize("bits", [None, 2, 6, 12, 20, 32])
@pytest.mark.parametrize("seed", [1, 2])
def test_equals_brute_force(bits: int | None, seed: int) -> None:
    draw = np.random.default_rng(seed)
    subscriptions = [random_subscription(draw, str(i)) for i in range(400)]
    objects = random_objects(draw, 400)
    expected = brute_force(subscriptions, objects)
    assert len(expected) > 500
    assert matched(Index.build(Table.of(subscriptions), bits=bits), objects) == expected


def test_brute_force_is_the_models_definition() -> None:
    draw = np.random.default_rng(3)
    subscriptions = [random_subscription(draw, str(i)) for i in range(80)]
    objects = random_objects(draw, 80)
    pairs = {
        (i, subscription.id)
        for i, thing in enumerate(objects)
        for subscription in subscriptions
        if subscription.matches(thing, RULES)
    }
    assert len(pairs) > 20
    assert brute_force(subscriptions, objects) == pairs


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stays_exact_while_subscriptions_come_and_go(seed: int, tmp_path: object) -> None:
    draw = np.random.default_rng(seed)
    there = {str(i): random_subscription(draw, str(i)) for i in range(100)}
    index = Index.build(Table.of(there.values()))
    most = 0
    for step in range(25):
        fresh = [random_subscription(draw, f"{step}-{i}") for i in range(draw.integers(0, 30))]
        # Words that no subscription had before, an id that is there already, and one given twice.
        fresh += [
            Subscription(
                f"new{step}", "o", ((f"unseen{step}",), ("word1", "word2")), Rectangle(-180, -90, 180, 90)
            )
        ]
        again = [random_subscription(draw, name) for name in draw.choice(list(there), 3).tolist()]
        numbers = index.insert([*fresh, *again, *again])
        there.update({subscription.id: subscription for subscription in [*fresh, *again]})
        assert index.ids(numbers) == list({s.id: s for s in [*fresh, *again]})
        removed = draw.choice(list(there), size=draw.integers(0, 20), replace=False).tolist()
        assert index.remove(index.find(removed)) == len(removed)
        assert index.remove(np.zeros(0, dtype=np.int64)) == 0
        there = {name: one for name, one in there.items() if name not in removed}
        objects = [*random_objects(draw, 60), Object(0, f"Unseen{step}", 1.0, 1.0, NOON)]
        assert matched(index, objects) == brute_force(there.values(), objects)
        assert index.live == len(there)
        most = max(most, len(index.segments))
        if step == 15:
            index.save(tmp_path / "index")  # type: ignore[operator]
            index = Index.open(tmp_path / "index")  # type: ignore[operator]
    assert 2 < most < 8
    objects = random_objects(draw, 300)
    before = matched(index, objects)
    assert before == brute_force(there.values(), objects)
    index.compact()
    assert len(index.segments) == 1
    assert matched(index, objects) == before


def test_numbers_stay_when_segments_are_merged() -> None:
    draw = np.random.default_rng(4)
    index = Index.build(Table.of([random_subscription(draw, "a0")]))
    expected = {"a0": 0}
    for i in range(1, 60):
        expected[f"a{i}"] = int(index.insert([random_subscription(draw, f"a{i}")])[0])
    assert expected == {f"a{i}": i for i in range(60)}
    assert index.find(list(expected)).tolist() == list(range(60))
    assert index.find(["a60", ""]).tolist() == [-1, -1]
    assert index.subscription(37).id == "a37"
    assert index.area(37) == index.subscription(37).area
    index.remove([37])
    assert index.find(["a37"]).tolist() == [-1]


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up()
    before = len(getattr(kernel.match_segment, "signatures", []))
    draw = np.random.default_rng(12)
    matched(
        Index.build(Table.of([random_subscription(draw, "a", "rcp") for _ in range(9)])),
        random_objects(draw, 9),
    )
    assert len(getattr(kernel.match_segment, "signatures", [])) == before == 1


def test_borders_belong_to_rectangles() -> None:
    west, south, east, north = 10.0, 50.0, 10.1, 50.1
    table = Table.of([Subscription("r", "o", (("a",),), Rectangle(west, south, east, north))])
    for bits in (None, 2, 16, 32):
        index = Index.build(table, bits=bits)
        for lng, lat, inside in [
            (west, south, True), (east, north, True), (west, 50.05, True), (10.05, north, True),
            (np.nextafter(west, 0), 50.05, False), (np.nextafter(east, 11), 50.05, False),
            (10.05, np.nextafter(south, 0), False), (10.05, np.nextafter(north, 51), False),
            (np.nextafter(west, 11), np.nextafter(north, 0), True),
        ]:  # fmt: skip
            rows, _ = index.match([lng], [lat], 0, [0, 1], [0])
            assert rows.size == inside, (bits, lng, lat)


def test_the_antimeridian_is_one_place_to_circles_and_two_numbers_to_rectangles() -> None:
    table = Table.of(
        [
            Subscription("east", "o", (("a",),), Rectangle(170, -10, 180, 10)),
            Subscription("west", "o", (("a",),), Rectangle(-180, -10, -170, 10)),
            Subscription("circle", "o", (("a",),), Circle(179.9, 0, 50_000)),
            Subscription("touching", "o", (("a",),), Circle(-179.0, 0, np.pi / 180 * 6_378_100)),
            Subscription("pole", "o", (("a",),), Circle(30.0, 90.0, 10.0)),
            Subscription("strip", "o", (("a",),), Rectangle(-180, 90, -180, 90)),
        ]
    )
    index = Index.build(table)
    for lng, lat, expected in [
        (180.0, 0.0, {"east", "circle", "touching"}),
        (-180.0, 0.0, {"west", "circle", "touching"}),
        (179.999999, 0.0, {"east", "circle"}),
        (123.4, 90.0, {"pole"}),
        (-180.0, 90.0, {"pole", "strip"}),
    ]:
        _, numbers = index.match([lng], [lat], 0, [0, 1], [0])
        assert set(index.ids(numbers)) == expected, (lng, lat)


def test_circles_agree_with_their_definition_at_every_distance_from_the_border() -> None:
    draw = np.random.default_rng(14)
    steps_m = np.array([0.0, 1e-6, 1e-4, 1e-3, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 1.0, 10.0])
    steps_m = np.concatenate([-steps_m, steps_m])
    circles, lngs, lats = [], [], []
    for radius_m in (0.0, 0.01, 0.5, 1.0, 300.0, 5000.0, 2e6, 1.9e7, 2.0037e7):
        for lng, lat in [(12.3, 45.6), (179.99, -0.001), (-77.0, 89.999), tuple(draw.uniform(-80, 80, 2))]:
            circles.append(Circle(lng, lat, radius_m))
            # Along the meridian, over the pole if need be.
            up = lat + np.degrees((radius_m + steps_m) / 6_378_100)
            turned = up > 90
            lats.append(np.where(up > 270, up - 360, np.where(turned, 180 - up, up)))
            lngs.append(np.where(turned & (up <= 270), lng - 180 if lng > 0 else lng + 180, lng))
    x, y = np.concatenate(lngs), np.concatenate(lats)
    index = Index.build(
        Table.of(Subscription(str(i), "o", (("a",),), circle) for i, circle in enumerate(circles))
    )
    rows, numbers = index.match(x, y, 0, np.arange(x.size + 1), np.zeros(x.size, dtype=np.int32))
    found = np.zeros((len(circles), x.size), dtype=bool)
    found[numbers, rows] = True
    expected = np.array([circle.inside(x, y) for circle in circles])
    np.testing.assert_array_equal(found, expected)
    own = np.array([expected[i, i * 24 : i * 24 + 24] for i in range(len(circles))])
    assert 0.3 < own.mean() < 0.8


def test_what_is_no_place_matches_nothing() -> None:
    everywhere = [Rectangle(-180, -90, 180, 90), Circle(0, 0, 2e7)]
    index = Index.build(
        Table.of(Subscription(str(i), "o", (("a",),), area) for i, area in enumerate(everywhere))
    )
    lng = np.array([0.0, np.nan, 0.0, 180.1, -1e300, np.inf, 0.0])
    lat = np.array([0.0, 0.0, np.nan, 0.0, 0.0, 0.0, 90.00001])
    rows, numbers = index.match(lng, lat, 0, np.arange(8), np.zeros(7, dtype=np.int32))
    assert (rows.tolist(), sorted(numbers.tolist())) == ([0, 0], [0, 1])


def test_each_subscription_is_reported_once() -> None:
    clauses = (("a",), ("a", "b"), ("a", "b", "c"), ("b",), ("c", "d"))
    index = Index.build(Table.of([Subscription("s", "o", clauses, Circle(0.0, 90.0, 1e6))]))
    terms = sorted(index.vocabulary[word] for word in "abcd")
    rows, _ = index.match([5.0, 170.0], [89.0, 89.0], 0, [0, 4, 8], terms * 2)
    assert rows.tolist() == [0, 1]


def test_a_text_of_a_thousand_terms() -> None:
    words = [f"w{i}" for i in range(1000)]
    clauses = [tuple(words[i : i + size]) for i in range(0, 990, 7) for size in (1, 2, 3, 9)]
    everywhere = Rectangle(-180, -90, 180, 90)
    subscriptions = [Subscription(str(i), "o", (clause,), everywhere) for i, clause in enumerate(clauses)]
    index = Index.build(Table.of(subscriptions, Vocabulary(words)))
    odd = np.array([i for i in range(1000) if i % 5], dtype=np.int32)
    _, numbers = index.match([0.0], [0.0], 0, [0, odd.size], odd)
    has = set(odd.tolist())
    assert set(numbers.tolist()) == {
        i for i, clause in enumerate(clauses) if all(int(word[1:]) in has for word in clause)
    }


def test_terms_the_index_never_saw_are_passed_over() -> None:
    index = Index.build(Table.of([Subscription("s", "o", (("a",),), Rectangle(0, 0, 1, 1))]))
    rows, _ = index.match([0.5], [0.5], 0, [0, 4], np.array([-1, 0, 17, 2**31 - 1], dtype=np.int32))
    assert rows.tolist() == [0]


def test_frequencies_choose_the_list_and_never_the_answer() -> None:
    draw = np.random.default_rng(5)
    subscriptions = [random_subscription(draw, str(i), "r") for i in range(200)]
    objects = random_objects(draw, 200)
    expected = brute_force(subscriptions, objects)
    for frequencies in (np.arange(30), np.arange(30)[::-1].copy(), np.zeros(0, dtype=np.int64)):
        index = Index.build(Table.of(subscriptions), frequencies)
        assert matched(index, objects) == expected


def test_a_large_region_is_not_copied_into_thousands_of_cells() -> None:
    small = [
        Subscription(str(i), "o", (("a",),), Rectangle(i / 100, 0, i / 100 + 0.01, 0.01)) for i in range(1000)
    ]
    large = [Subscription(f"L{i}", "o", (("a",),), Rectangle(-170, -80, 170, 80)) for i in range(10)]
    index = Index.build(Table.of([*small, *large]))
    assert len(index.segments[0].postings) < 20 * 1010
    _, numbers = index.match([5.005], [0.005], 0, [0, 1], [0])
    assert set(index.ids(numbers)) == {"500", *(f"L{i}" for i in range(10))}


def test_a_saved_index_is_mapped_and_never_written_to(tmp_path: object) -> None:
    draw = np.random.default_rng(6)
    subscriptions = [random_subscription(draw, f"süß{i}") for i in range(300)]
    objects = random_objects(draw, 200)
    expected = brute_force(subscriptions, objects)
    folder = tmp_path / "deep" / "index"  # type: ignore[operator]
    index = Index.build(Table.of(subscriptions))
    index.save(folder)
    worker = Index.open(folder)
    assert 0 <= worker.nbytes - index.nbytes < 1000  # the terms are packed now
    assert matched(worker, objects) == expected
    gone = [f"süß{i}" for i in range(0, 300, 2)]
    assert worker.remove(worker.find(gone)) == 150
    worker.insert([random_subscription(draw, "late")])
    assert worker.live == 151
    other = Index.open(folder)
    assert matched(other, objects) == expected
    worker.save(folder)  # replaced as a whole, while others still have it open
    assert matched(other, objects) == expected
    assert Index.open(folder).live == 151
    assert [path.name for path in folder.parent.iterdir()] == ["index"]
    assert Index.open(folder).subscription(5) == subscriptions[5]


def test_removal_in_a_mapped_index_stays_with_the_worker(tmp_path: object) -> None:
    count = 10_000  # enough for every array to be mapped
    bounds = np.tile([0.0, 0.0, 1.0, 1.0], (count, 1))
    table = Table.of_rectangles(
        bounds, np.arange(count + 1), np.arange(count + 1), np.arange(count) % 2, Vocabulary(["a", "b"])
    )
    folder = tmp_path / "index"  # type: ignore[operator]
    Index.build(table).save(folder)
    worker = Index.open(folder)
    assert worker.remove(np.arange(0, count, 5)) == 2000
    assert worker.live == 8000
    assert worker.match([0.5], [0.5], 0, [0, 2], [0, 1])[0].size == 8000
    assert Index.open(folder).match([0.5], [0.5], 0, [0, 2], [0, 1])[0].size == count


def test_a_folder_of_something_else_is_left_alone(tmp_path: object) -> None:
    folder = tmp_path / "mine"  # type: ignore[operator]
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    index = Index.build(Table.of([]))
    with pytest.raises(UsageError, match="no saved index"):
        index.save(folder)
    with pytest.raises(UsageError, match="no saved index"):
        Index.open(folder)
    assert (folder / "letter.txt").read_text() == "dear"
    (folder / "index.json").write_text('{"format": 99}')
    with pytest.raises(UsageError, match="format 99"):
        Index.open(folder)


def test_an_empty_index_matches_nothing_and_can_be_filled() -> None:
    draw = np.random.default_rng(7)
    index = Index.build(Table.of([]))
    objects = random_objects(draw, 50)
    assert matched(index, objects) == set()
    subscriptions = [random_subscription(draw, str(i)) for i in range(50)]
    index.insert(subscriptions)
    assert matched(index, objects) == brute_force(subscriptions, objects)
    assert matched(index, []) == set()


def test_threads_may_match_at_the_same_time() -> None:
    draw = np.random.default_rng(8)
    subscriptions = [random_subscription(draw, str(i)) for i in range(300)]
    objects = random_objects(draw, 300)
    index = Index.build(Table.of(subscriptions))
    expected = brute_force(subscriptions, objects)
    answers: list[set[tuple[int, str]]] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(matched(index, objects) for _ in range(5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 20


def test_stamps_begin_anew_before_they_run_out() -> None:
    index = Index.build(Table.of([Subscription("s", "o", (("a",), ("b",)), Rectangle(0, 0, 1, 1))]))
    index._spare.append((np.full(1, 2**31 - 2, dtype=np.int32), 2**31 - 2))
    rows, _ = index.match([0.5] * 3, [0.5] * 3, 0, [0, 2, 4, 6], [0, 1] * 3)
    assert rows.tolist() == [0, 1, 2]


def test_lists_longer_than_the_first_buffer() -> None:
    count = 5000
    bounds = np.tile([0.0, 0.0, 1.0, 1.0], (count, 1))
    table = Table.of_rectangles(
        bounds, np.arange(count + 1), np.arange(count + 1), np.zeros(count), Vocabulary(["a"])
    )
    rows, numbers = Index.build(table).match([0.5, 0.2], [0.5, 0.2], 0, [0, 1, 2], [0, 0])
    assert np.bincount(rows).tolist() == [count, count]
    assert sorted(numbers[:count].tolist()) == list(range(count))


def test_a_table_gives_its_subscriptions_back() -> None:
    draw = np.random.default_rng(9)
    subscriptions = [random_subscription(draw, str(i)) for i in range(100)]
    table = Table.joined(
        [Table.of(subscriptions[:40], words := Vocabulary()), Table.of(subscriptions[40:], words)]
    )
    assert [table.subscription(i) for i in range(100)] == subscriptions
    assert {int(kind) for kind in table.kind} == {0, 1, 2}


def test_a_table_by_place_has_the_same_subscriptions() -> None:
    draw = np.random.default_rng(13)
    subscriptions = {f"s{i}": random_subscription(draw, f"s{i}") for i in range(300)}
    table = Table.of(subscriptions.values())
    sorted_table = table.by_place()
    assert list(sorted_table.ids) != list(table.ids)
    assert {s.id: s for s in map(sorted_table.subscription, range(300))} == subscriptions
    assert [table.take(np.array([7, 3])).subscription(i).id for i in range(2)] == ["s7", "s3"]
    assert [table.take(np.arange(0, 300, 3)).subscription(i) for i in range(100)] == list(
        subscriptions.values()
    )[::3]
    objects = random_objects(draw, 200)
    assert matched(Index.build(sorted_table), objects) == brute_force(subscriptions.values(), objects)


def test_names_as_arrow_arrays() -> None:
    pytest.importorskip("pyarrow")
    draw = np.random.default_rng(10)
    index = Index.build(Table.of([random_subscription(draw, f"é{i}") for i in range(20)]))
    for i in range(20, 30):
        index.insert([random_subscription(draw, f"é{i}")])
    numbers = np.array([29, 3, 3, 25, 0])
    assert (
        index.ids_to_arrow().take(numbers).to_pylist()
        == index.ids(numbers)
        == ["é29", "é3", "é3", "é25", "é0"]
    )
    assert index.owners_to_arrow().take(numbers).to_pylist() == index.owners(numbers)


def test_polygons_are_mostly_decided_by_their_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(11)
    shapes = [random_area(draw, "p") for _ in range(60)]
    hole = [[[0, 0], [40, 0], [40, 40], [0, 40], [0, 0]], [[10, 10], [30, 10], [30, 30], [10, 30], [10, 10]]]
    cap = [[0.0, 70.0], [120.0, 70.0], [-120.0, 70.0], [0.0, 70.0]]
    spike = [[10.0, 80.0], [20.0, 80.0], [15.0, 90.0], [10.0, 80.0]]
    up_to_it = [[170, 0], [180, 0], [180, 10], [170, 10], [170, 0]]
    from_it = [[-180, 0], [-170, 0], [-170, 10], [-180, 10], [-180, 0]]
    # The hole lies just beyond the antimeridian, in a column of the picture that begins before it.
    over_it = [[160, 0], [-165, 0], [-165, 10], [160, 10], [160, 0]]
    hole_beyond = [[-179.9, 4], [-179.4, 4], [-179.4, 6], [-179.9, 6], [-179.9, 4]]
    special = (hole, [cap], [spike], [up_to_it], [from_it], [over_it, hole_beyond])
    shapes += [Polygon({"type": "Polygon", "coordinates": rings}) for rings in special]
    two = [[[[100, 0], [101, 0], [101, 1], [100, 0]]], [[[-150, 0], [-149, 0], [-149, 1], [-150, 0]]]]
    shapes.append(Polygon({"type": "MultiPolygon", "coordinates": two}))
    subscriptions = [
        Subscription(f"{i}-{k}", "o", (("word1",),), shape)
        for i, shape in enumerate(shapes)
        for k in range(2)
    ]
    index = Index.build(Table.of(subscriptions))
    assert len(index.segments[0].table.polygons) == len(shapes)
    objects = [Object(thing.id, "word1", thing.lng, thing.lat, NOON) for thing in random_objects(draw, 3000)]
    hard = [
        (-179.7, 5.0),
        (-179.95, 5.0),
        (180.0, 5.0),
        (-180.0, 5.0),
        (77.0, 90.0),
        (100.9, 0.5),
        (-149.1, 0.5),
    ]
    objects += [Object(0, "word1", lng, lat, NOON) for lng, lat in hard]
    for shape in shapes[:-1]:  # and around every corner
        for lng, lat in shape.geometry["coordinates"][0]:
            objects += [
                Object(0, "word1", lng + d, lat, NOON)
                for d in (-1e-3, 0.0, 1e-9, 1e-3)
                if abs(lng + d) <= 180
            ]
    undecided = []
    settle = Segment.settle

    def noting(self: Segment, batch: object, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        undecided.append(rows.size)
        return settle(self, batch, rows, numbers)  # type: ignore[arg-type]

    monkeypatch.setattr(Segment, "settle", noting)
    expected = brute_force(subscriptions, objects)
    assert matched(index, objects) == expected
    assert len(expected) > 5000
    assert sum(undecided) < 0.7 * len(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bounds": [[1.0, 0.0, 0.0, 1.0]]}, "west not east of east"),
        ({"bounds": [[0.0, 0.0, np.nan, 1.0]]}, "within the world"),
        ({"clauses": [0]}, "offsets of clauses"),
        ({"clauses": [0, 0], "clause_terms": [0], "members": []}, "needs a clause"),
        ({"members": [1]}, "the vocabulary has 1"),
    ],
)
def test_arrays_that_are_no_subscriptions(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "bounds": [[0.0, 0.0, 1.0, 1.0]], "clauses": [0, 1], "clause_terms": [0, 1], "members": [0]
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        Table.of_rectangles(**{**given, **change}, vocabulary=Vocabulary(["a"]))  # type: ignore[arg-type]


def test_clear_errors() -> None:
    table = Table.of([Subscription("s", "o", (("a",),), Rectangle(0, 0, 1, 1))])
    with pytest.raises(UsageError, match="33 bits"):
        Index.build(table, bits=33)
    index = Index.build(table)
    with pytest.raises(UsageError, match="there are 1"):
        index.remove([1])
    with pytest.raises(UsageError, match="no subscription of that number"):
        index.subscription(1)
    with pytest.raises(UsageError, match="another vocabulary"):
        index.insert(Table.of([]))
    with pytest.raises(UsageError, match="one offset more"):
        index.match([0.0], [0.0], 0, [0], [])
    for wrong in ([1, 0], [0, 0]):
        with pytest.raises(UsageError, match="must ascend, each once"):
            index.match([0.0], [0.0], 0, [0, 2], wrong)
    with pytest.raises(UsageError, match="stay within the terms"):
        index.match([0.0], [0.0], 0, [0, 2], [0])


def test_readonly_arrays_are_taken_as_they_come() -> None:
    index = Index.build(Table.of([Subscription("s", "o", (("a",),), Rectangle(0, 0, 1, 1))]))
    given = [
        np.array([0.5]),
        np.array([0.5], dtype=np.float32),
        np.array([0]),
        np.array([0, 1], dtype=np.int32),
    ]
    for array in given:
        array.flags.writeable = False
    before = len(getattr(kernel.match_segment, "signatures", []))
    rows, _ = index.match(*given, np.array([0]))
    assert rows.tolist() == [0]
    assert len(getattr(kernel.match_segment, "signatures", [])) in (before, 1)
