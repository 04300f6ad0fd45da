"""What is learnt from queries: predictions that proved wrong, plans made before, conditions that thin out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import Setup, documents, make_collection, register
from pymongo import AsyncMongoClient, MongoClient

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.cover import cover
from spatialnosql.experience import TOLERATED, Experience
from spatialnosql.geometry import within_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index
from spatialnosql.metadata import InfoCache, load_info, metadata_collection
from spatialnosql.rewrite import Plan, QoS, planning, predicates
from spatialnosql.rewrite.cost import Load
from spatialnosql.rewrite.planning import plan_count, plan_find
from spatialnosql.steps import run

PARIS = cover(within_to_region({"$box": [[2.0, 48.0], [3.0, 49.0]]}))
LONDON = cover(within_to_region({"$box": [[-1.0, 51.0], [0.5, 52.0]]}))
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
CLIENT = QoS(form="client")


def known(n: int = 50_000, **changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.5, n), 48.86 + rng.normal(0, 0.5, n), 35)
    indexes = (Index("gh_1__id_1", (("gh", 1), ("_id", 1))), Index("loc", (("loc", "2dsphere"),)))
    return CollectionInfo("city.trips", histogram=histogram, indexes=indexes, **changed)


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("predicted", "seen"), [(1000, 10), (1000, 0), (100, 5000), (0, 5000), (20, 60)])
def test_a_prediction_that_was_wrong_is_corrected_next_time(predicted: float, seen: float) -> None:
    one = Experience()
    one.learn(PARIS, predicted, seen)
    assert one.version == 1
    assert (predicted + 1) * one.factor(PARIS) == pytest.approx(seen + 1)
    assert one.factor(LONDON) == 1.0
    # What it predicts now is right, and teaches nothing.
    one.learn(PARIS, (predicted + 1) * one.factor(PARIS) - 1, seen)
    assert one.version == 1


@pytest.mark.parametrize(
    ("predicted", "seen"), [(1000, 1000), (1000, 600), (1000, 1900), (1, 45), (40, 0), (0, 0), (49, 1)]
)
def test_what_is_near_enough_or_small_teaches_nothing(predicted: float, seen: float) -> None:
    one = Experience()
    one.learn(PARIS, predicted, seen)
    assert (one.version, one.factor(PARIS)) == (0, 1.0)


def test_factors_follow_what_is_seen() -> None:
    one, points = Experience(), 1000.0
    for seen in (10, 10, 100_000, 100_000, 0, 800):
        one.learn(PARIS, points * one.factor(PARIS), seen)
        one.learn(PARIS, points * one.factor(PARIS), seen)
        assert max(seen, 1) / TOLERATED - 1 <= points * one.factor(PARIS) <= max(seen, 50) * TOLERATED + 50


def test_a_cover_of_nothing_has_a_factor_too() -> None:
    empty = replace(PARIS, interior=type(PARIS.outer)(PARIS.outer.lo[:0], PARIS.outer.hi[:0]))
    empty = replace(empty, boundary=empty.interior)
    one = Experience()
    one.learn(empty, 1000, 0)
    assert one.factor(empty) < 0.01
    assert one.factor(PARIS) == 1.0


def test_only_so_much_is_kept() -> None:
    one = Experience()
    for number in range(6000):
        one.learn_share((number,), 50, 100.0)
        assert one.share((5,)) is not None or number < 5  # what is asked for is not forgotten
    assert one.share((5999,)) == pytest.approx(0.5, rel=0.1)
    assert one.share((0,)) is None
    assert len(one._shares) == 4096


def test_shares_say_nothing_of_places() -> None:
    one = Experience()
    one.learn_share((b"kind",), 10, 1_000.0)
    assert one.share((b"kind",)) == pytest.approx(0.01, rel=0.1)
    assert (one.share((b"other",)), one.factor(PARIS)) == (None, 1.0)
    assert one.version == 0  # nothing was planned by what was not known


def test_large_areas_say_more_than_small_ones() -> None:
    """Where all ferries are half of the points are ferries; they are rare all the same, and no fewer than were seen."""
    one, ferry = Experience(), (b"ferry", ("kind",))
    one.learn_share(ferry, 1, 3.0)
    assert (one.share(ferry), one.most_found(ferry)) == (None, 1)
    one.learn_share(ferry, 80, 134.0)
    assert one.share(ferry) == pytest.approx(0.6, rel=0.05)
    one.learn_share(ferry, 130, 385_000.0)
    assert one.share(ferry) == pytest.approx(211 / 385_137, rel=0.05)
    assert (one.most_found(ferry), one.version) == (130, 1)
    one.learn_share(ferry, 80, 134.0)
    assert one.version == 1


def test_other_values_say_something_of_those_never_seen() -> None:
    one = Experience()
    one.learn_share((b"since 1 am", ("time", "$gte")), 10, 1_000.0)
    assert one.share((b"since 2 am", ("time", "$gte"))) == one.share((b"since 1 am", ("time", "$gte")))
    assert one.most_found((b"since 2 am", ("time", "$gte"))) == 0
    one.learn_share((b"since 2 am", ("time", "$gte")), 900, 1_000.0)
    assert one.share((b"since 2 am", ("time", "$gte"))) == pytest.approx(0.9, rel=0.01)
    assert one.version == 0  # no plan was made by it alone


def test_the_load_of_a_cover_goes_by_it() -> None:
    info = known()
    assert info.histogram is not None
    before = Load.of(PARIS, info, info.histogram)
    info.experience.learn(PARIS, before.outer, before.outer * 10)
    after = Load.of(PARIS, info, info.histogram)
    assert after.outer == pytest.approx(10 * before.outer, rel=0.01)
    assert (after.shards, after.asked) == (before.shards, before.asked)


@pytest.mark.parametrize(
    ("least", "most", "seen", "learnt"),
    [
        (1000, 1000, 100, True),
        (1000, 1000, 9000, True),
        (400, 1000, 500, False),  # between the bounds anything may be true
        (400, 1000, 100, True),
        (0, 1000, 0, False),
        (0, 1000, 2500, True),
    ],
)
def test_bounds_teach_when_they_prove_wrong(least: float, most: float, seen: float, learnt: bool) -> None:
    info = known()
    info.learn(PARIS, seen, least, most)
    assert (info.experience.version > 0) is learnt
    if learnt:
        assert (info.experience.factor(PARIS) > 1) is (seen > most)


def test_places_smaller_than_the_cells_teach_nothing() -> None:
    info = known()
    small = cover(within_to_region({"$box": [[2.35, 48.86], [2.3501, 48.8601]]}))
    info.learn(small, 10_000, 100)
    assert info.experience.version == 0
    info.learn(PARIS, 10_000, 100)
    assert info.experience.version == 1
    without = replace(known(), histogram=None)
    without.learn(PARIS, 10_000, 100)
    assert without.experience.version == 0


# -- plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [plan_find, plan_count])
def test_a_query_that_comes_again_is_not_planned_again(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info, made = known(), []
    monkeypatch.setattr(planning, "cover_of", lambda *given: made.append(1) or cover(given[0]))
    first = plan(CIRCLE, info)
    assert len(made) == 1
    again = plan({"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}, info)
    assert len(made) == 1
    assert again.settled is first.settled
    plan({**CIRCLE, "kind": "cafe"}, info)
    plan(CIRCLE, info, qos=QoS(prefer="throughput"))
    assert len(made) == 3


def test_experience_that_contradicts_makes_plans_void(monkeypatch: pytest.MonkeyPatch) -> None:
    info, made = known(), []
    monkeypatch.setattr(planning, "cover_of", lambda *given: made.append(1) or cover(given[0]))
    first = plan_find(CIRCLE, info, qos=CLIENT)
    assert first.settled is not None
    info.experience.learn(first.settled.cover, first.settled.expected, 20 * first.settled.expected)
    second = plan_find(CIRCLE, info, qos=CLIENT)
    assert len(made) == 2
    assert second.settled is not None
    assert second.settled.expected == pytest.approx(20 * first.settled.expected, rel=0.01)


def test_the_callers_own_filter_is_in_the_plan() -> None:
    info = known()
    for asked in (dict(CIRCLE), dict(CIRCLE)):
        assert plan_find(asked, info).original is asked
        kept = {"loc": {"$geoWithin": {"$box": [[9, 9], [9.1, 9.1]]}}}
        plan = plan_find(kept, info)
        assert not plan.rewritten
        assert plan.filter is plan.original is kept


def test_no_more_plans_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_REMEMBERED", 8)
    info = known(2000)
    for number in range(30):
        plan_find({"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.001 + number / 1e5]}}}, info)
    assert len(info.plans) == 8


def test_plans_and_regions_are_forgotten_by_many_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(predicates, "_MOST_REGIONS", 2)
    info, before = known(100), sys.getswitchinterval()

    def work(west: int) -> None:
        for number in range(1000):
            box = [[west, 0], [west + 1, 1 + number / 1e4]]
            predicates.read({"loc": {"$geoWithin": {"$box": box}}}, info)
            planning._remembered(info, {"n": [west, number]}, "", lambda asked, _: Plan(asked, filter=asked))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(info.plans) <= 2


def test_rings_go_by_what_was_learnt_last() -> None:
    info = known()
    asked = {"loc": {"$nearSphere": [2.35, 48.86]}, "kind": "rare"}
    first = plan_find(asked, info, qos=CLIENT, limit=5).rings
    assert first is not None
    assert not info.plans
    info.experience.learn_share(first.names, 10, 1_000.0)
    second = plan_find(asked, info, qos=CLIENT, limit=5).rings
    assert second is not None
    assert second.first_m > 5 * first.first_m
    plain = plan_find({"loc": asked["loc"]}, info, qos=CLIENT, limit=5).rings
    assert plain is not None
    assert plain.first_m == first.first_m


def test_rings_within_an_and_do_so_too() -> None:
    info = known()
    asked = {"$and": [{"loc": {"$nearSphere": [2.35, 48.86]}}, {"kind": "rare"}]}
    first = plan_find(asked, info, qos=CLIENT, limit=5).rings
    assert first is not None
    info.experience.learn_share(first.names, 10, 1_000.0)
    second = plan_find(asked, info, qos=CLIENT, limit=5).rings
    assert second is not None
    assert second.first_m > 5 * first.first_m


# -- on the server ----------------------------------------------------------------------------------------


@pytest.fixture
def collection(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client["test_experience"]
    client.drop_database(database.name)
    yield make_collection(database, "points", Setup(), documents(800, 3, Setup()))
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


def test_a_new_index_makes_plans_void_but_not_what_was_learnt(collection: Any) -> None:
    cache = InfoCache(expiry_s=0)
    info = run(cache.info(collection))
    plan_find(CIRCLE, info, qos=CLIENT)
    info.experience.learn_share(("kind",), 50, 100.0)
    collection.create_index({"kind": 1}, name="kind", hidden=True)
    assert run(cache.info(collection)) is info  # the servers do not use it, nor do we
    collection.database.command("collMod", collection.name, index={"name": "kind", "hidden": False})
    fresh = run(cache.info(collection))
    assert "kind" in {index.name for index in fresh.indexes}
    assert not fresh.plans
    assert fresh.experience is info.experience


def test_queries_teach_and_infos_live_as_long_as_they_are_true(collection: Any) -> None:
    cache = InfoCache(expiry_s=0)
    info = run(cache.info(collection))
    asked = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.02]}}}
    plan_find(asked, info, qos=CLIENT)
    assert info.plans
    info.experience.learn_share("x", 50, 100.0)
    # Read anew and found the same: what was made and learnt is kept.
    assert run(cache.info(collection)) is info
    assert info.histogram is not None
    stale = Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts * 50)
    register(collection, Setup(), stale)
    fresh = run(cache.info(collection))
    assert fresh is not info
    assert not fresh.plans
    assert fresh.experience.share("x") is None
    # The histogram says fifty times what there is; a find that was read to its end knows better.
    spatial = SpatialCollection(collection, info=fresh, qos=CLIENT)
    before = spatial.plan(asked).settled
    assert before is not None
    assert next(spatial.find(asked)) is not None
    assert fresh.experience.version == 0
    expected = collection.count_documents(asked)
    assert len(list(spatial.find(asked))) == expected
    assert fresh.experience.version == 1
    after = spatial.plan(asked).settled
    assert after is not None
    assert expected <= after.expected < before.expected / 20
    assert len(list(spatial.find(asked))) == expected
    assert fresh.experience.version == 1
    # Conditions that leave out most say nothing of the histogram.
    assert list(spatial.find({**asked, "n": -1})) == []
    assert fresh.experience.version == 1
    collection.create_index("kind")
    assert run(cache.info(collection)) is not fresh
    assert run(load_info(collection)).same_as(run(load_info(collection)))


@pytest.mark.parametrize("form", ["cheapest", "server"])
@pytest.mark.parametrize("method", ["find", "next", "to_list", "count"])
def test_what_the_servers_answer_teaches_too(form: Any, method: str, collection: Any) -> None:
    """Statistics so old that what is large seems small, and is asked for as it is."""
    info = run(load_info(collection))
    assert info.histogram is not None
    old = Histogram(
        info.histogram.bits, info.histogram.cells[::40], np.ones_like(info.histogram.counts[::40])
    )
    stale = replace(info, histogram=old, plans=type(info.plans)(), experience=Experience())
    spatial = SpatialCollection(collection, info=stale, qos=QoS(form=form))
    asked = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.3]}}}
    expected = collection.count_documents(asked)
    assert expected > 100

    def ask(**options: Any) -> int:
        if method == "count":
            return spatial.count_documents(asked, **options)
        found = spatial.find(asked, **options)
        if method == "next":
            return sum(1 for _ in iter(lambda: next(found, None), None))
        return len(found.to_list() if method == "to_list" else list(found))

    plan = (plan_count if method == "count" else plan_find)(asked, stale, qos=spatial._qos)
    assert plan.settled is None
    assert plan.answered is not None
    assert plan.answered.most < expected / 2
    assert ask(limit=3) == 3
    next(spatial.find(asked))
    with spatial.find(asked) as left:
        for _ in left:
            left.close()
    assert stale.experience.version == 0  # none of them has seen everything
    assert list(spatial.find({**asked, "n": -1})) == []
    assert stale.experience.version == 0
    assert ask() == expected
    assert stale.experience.version == 1
    again = (plan_count if method == "count" else plan_find)(asked, stale, qos=spatial._qos)
    known = again.answered.most if again.answered is not None else again.settled and again.settled.expected
    assert known > expected / 2
    assert ask() == expected


def test_asynchronously_too(collection: Any, cluster: Any) -> None:
    info = run(load_info(collection))
    assert info.histogram is not None
    old = Histogram(
        info.histogram.bits, info.histogram.cells[::40], np.ones_like(info.histogram.counts[::40])
    )
    asked = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.3]}}}

    async def learnt(listed: bool) -> int:
        stale = replace(info, histogram=old, plans=type(info.plans)(), experience=Experience())
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as client:
            own = client[collection.database.name][collection.name]
            found = AsyncSpatialCollection(own, info=stale, qos=QoS(form="server")).find(asked)
            documents = await found.to_list() if listed else [one async for one in found]
        assert len(documents) == collection.count_documents(asked)
        return stale.experience.version

    assert [asyncio.run(learnt(listed)) for listed in (True, False)] == [1, 1]


def test_a_rare_condition_is_known_the_second_time(collection: Any) -> None:
    info = run(load_info(collection))
    spatial = SpatialCollection(collection, info=info, qos=CLIENT)
    asked = {"loc": {"$nearSphere": [2.35, 48.86]}, "n": {"$lt": 3000}}
    first = spatial.plan(asked, limit=3).rings
    found = list(spatial.find(asked).limit(3))
    second = spatial.plan(asked, limit=3).rings
    assert first is not None
    assert second is not None
    assert second.first_m > first.first_m
    assert list(spatial.find(asked).limit(3)) == found == list(collection.find(asked).limit(3))
