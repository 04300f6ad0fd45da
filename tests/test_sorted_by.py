"""Finds that sort where an index has the order: few documents are looked at, and they come in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import Setup, make_collection
from pymongo import MongoClient
from pymongo.collection import Collection

from spatialnosql.analyze import analyze
from spatialnosql.collection import SpatialCollection
from spatialnosql.experience import Experience
from spatialnosql.geohash import points_to_strings
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index, ShardRange
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.planned_find import planned
from spatialnosql.rewrite import Plan, QoS
from spatialnosql.rewrite.own_indexes import names_of
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

DATABASE = "test_sorted_by"
SIZE = 20_000
RING = [[2.25, 48.80], [2.45, 48.79], [2.46, 48.92], [2.26, 48.93], [2.25, 48.80]]
BIG = {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [RING]}}}}
TRIANGLE = [[2.24, 48.800], [2.262, 48.801], [2.25, 48.815], [2.24, 48.800]]
SMALL = {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [TRIANGLE]}}}}
FLAT = {"loc": {"$geoWithin": {"$centerSphere": [[2.33, 48.86], 0.0005]}}}  # soon tested
EMPTY = {"loc": {"$geoWithin": {"$centerSphere": [[9.0, 9.0], 0.01]}}}

# -- when -------------------------------------------------------------------------------------------------

TIME, KIND_AND_TIME = Index("time", (("time", -1),)), Index("both", (("kind", 1), ("size", 1), ("time", 1)))


def known(*more: Index, shards: tuple[ShardRange, ...] = ()) -> CollectionInfo:
    rng = np.random.default_rng(1)
    histogram = Histogram.of_points(rng.normal(2.35, 0.05, 500_000), rng.normal(48.86, 0.03, 500_000), 30)
    gh = Index("gh_1__id_1", (("gh", 1), ("_id", 1)))
    return CollectionInfo("city.places", histogram=histogram, indexes=(gh, *more), shards=shards)


def plan_of(info: CollectionInfo, filter: Any, **options: Any) -> Plan:
    with MongoClient[dict[str, Any]]("localhost:1", connect=False) as never_connected:
        return planned(never_connected["city"]["places"], info, QoS(), {"filter": filter, **options})


SHARDS = (ShardRange("", "u09tv", "a"), ShardRange("u09tv", "u09w", "b"), ShardRange("u09w", "{", "c"))


@pytest.mark.parametrize(
    "sort", ["time", [("time", 1)], {"time": -1}, [("time", -1)], ["time"], [("time", -1.0)]], ids=str
)
def test_a_sort_is_read_in_any_way_that_it_is_written(sort: Any) -> None:
    plan = plan_of(known(TIME), BIG, sort=sort, limit=10)
    assert not plan.rewritten
    assert "an index has the order that is wanted" in str(plan)
    assert plan.hint is None


@pytest.mark.parametrize(
    "sort",
    [[("time", {"$meta": "textScore"})], [("n", 1)], [("time", 1), ("n", 1)], [("n", 1), ("time", 1)]],
    ids=str,
)
def test_a_sort_that_no_index_has_is_done_with_what_ranges_hold(sort: Any) -> None:
    plan = plan_of(known(TIME), BIG, sort=sort, limit=10)
    assert plan.rewritten
    assert plan.hint == "gh_1__id_1"


def test_a_partial_index_has_the_order_of_some_documents_only() -> None:
    assert plan_of(known(replace(TIME, partial=True)), BIG, sort="time", limit=10).rewritten


def test_what_is_wanted_decides() -> None:
    """Ever more of the documents inside: sooner or later it is better to read them all."""
    info = known(TIME)
    rewritten = [plan_of(info, FLAT, sort="time", limit=n).rewritten for n in (1, 100, 10_000, 90_000)]
    assert rewritten == [False, False, False, True]
    assert not plan_of(info, FLAT, sort="time", limit=-1).rewritten
    assert plan_of(info, FLAT, sort="time", limit=10, skip=90_000).rewritten
    assert [plan_of(info, SMALL, sort="time", limit=n).rewritten for n in (1, 10, 100)] == [True] * 3
    # Each shard finds as many as are wanted, so it is the sooner the more there are.
    spread = [plan_of(known(TIME, shards=SHARDS), BIG, sort="time", limit=n).rewritten for n in (100, 60_000)]
    assert spread == [False, True]
    assert not plan_of(info, BIG, sort="time", limit=60_000).rewritten


def test_a_key_that_is_no_text_is_left_to_pymongo() -> None:
    info = known(KIND_AND_TIME)
    assert "an index has the order" not in str(plan_of(info, {**BIG, 5: 1}, sort="time", limit=10))


def test_equality_before_the_order() -> None:
    """Conditions on the fields before the order make one of it, if they are met by one value or by few."""
    info = known(KIND_AND_TIME)
    few: dict[str, Any] = {"kind": "cafe", "size": {"$in": [1, 2]}}
    for others, served in (
        (few, True),
        ({"kind": {"$eq": "cafe"}, "size": 3}, True),
        ({"kind": {"$in": ["cafe"]}, "size": {"inches": 3}}, True),
        ({"kind": "cafe"}, False),
        ({"kind": "cafe", "size": {"$gt": 1}}, False),
        ({"kind": "cafe", "size": {"$in": list(range(500))}}, False),
    ):
        info.experience.learn_share(names_of([{key: value} for key, value in others.items()]), 900, 1_000.0)
        plan = plan_of(info, {**BIG, **others}, sort="time", limit=10)
        assert plan.rewritten is not served, others
        assert ("an index has the order" in str(plan)) is served
    # Of what is equal in all documents nothing is sorted.
    assert not plan_of(info, {**BIG, **few}, sort=[("kind", -1), ("time", 1)], limit=10).rewritten
    assert plan_of(info, {**BIG, **few}, sort=[("kind", -1)], limit=10).rewritten


def test_plans_of_sorts_are_remembered_apart() -> None:
    info = known(TIME)
    for n, rewritten in ((10, False), (90_000, True), (10, False)):
        assert plan_of(info, FLAT, sort="time", limit=n).rewritten is rewritten
    assert len(info.plans) == 2
    # Where no index has the order a limit makes no difference.
    for n in (1, 2, 3, 4):
        assert plan_of(info, FLAT, sort="n", limit=n).rewritten
    assert len(info.plans) == 3


def test_how_many_are_sorted_at_once() -> None:
    """Without a limit as well: what does not fit a server's memory comes from the index, as it would."""
    info = known(TIME)
    plan = plan_of(info, BIG, sort="time")
    assert not plan.rewritten
    assert "so many would be sorted on disk" in str(plan)
    assert plan_of(info, BIG, sort="n").rewritten
    assert plan_of(info, SMALL, sort="time").rewritten


def test_every_branch_has_the_order() -> None:
    info = known(TIME)
    assert not plan_of(info, {"$or": [BIG, SMALL]}, sort="time", limit=10).rewritten
    assert plan_of(known(TIME, shards=SHARDS), {"$or": [SMALL, SMALL]}, sort="time", limit=10).rewritten


# -- with the server --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    client.drop_database(DATABASE)
    rng = np.random.default_rng(1)
    lng, lat = 2.35 + rng.normal(0, 0.05, SIZE), 48.86 + rng.normal(0, 0.03, SIZE)
    rows = zip(
        lng.tolist(),
        lat.tolist(),
        points_to_strings(lng, lat).tolist(),
        rng.permutation(SIZE).tolist(),
        strict=True,
    )
    content = [
        {"_id": n * 7919 % 20_011, "loc": {"type": "Point", "coordinates": [x, y]}, "gh": gh}
        | {"kind": n % 3, "n": n, "time": time}
        for n, (x, y, gh, time) in enumerate(rows)
    ]
    collection = make_collection(client[DATABASE], "points", Setup(), content)
    collection.create_index([("time", 1)])
    collection.create_index([("kind", 1), ("time", -1)])
    analyze(collection)
    yield collection
    client.drop_database(DATABASE)
    metadata_collection(collection).delete_one({"_id": collection.full_name})


@pytest.fixture
def spatial(plain: Any) -> SpatialCollection:
    info = run(load_info(plain))
    info = replace(info, experience=Experience(), plans=type(info.plans)())
    info.experience.learn_share(names_of([{"kind": 1}]), 300, 1_000.0)
    info.experience.learn_share(names_of([{"kind": {"$in": [0, 2]}}]), 600, 1_000.0)
    return SpatialCollection(plain, info=info)


SORTS: tuple[dict[str, Any], ...] = (
    {"sort": [("time", -1)], "limit": 10},
    {"sort": [("time", 1)], "limit": 5, "skip": 2},
    {"sort": [("time", 1)], "limit": -3},
    {"sort": [("_id", 1)], "limit": 100},
    {"sort": [("_id", -1)], "limit": 1},
    {"sort": [("time", 1)], "limit": 5_000},
    {"sort": [("time", 1)]},
    {"sort": [("time", 1)], "allow_disk_use": False},
    {"sort": [("gh", 1), ("_id", 1)], "limit": 5},
    {"sort": [("gh", -1), ("_id", -1)]},
    {"sort": [("n", -1)], "limit": 7},
)


@pytest.mark.parametrize("options", SORTS, ids=str)
@pytest.mark.parametrize(
    "others", [{}, {"kind": 1}, {"kind": {"$in": [0, 2]}}, {"n": {"$gt": 5_000}}], ids=str
)
def test_the_same_documents_in_the_same_order(
    others: dict[str, Any], options: dict[str, Any], plain: Any, spatial: SpatialCollection
) -> None:
    for area in (BIG, SMALL, EMPTY):
        asked = {**area, **others}
        expected = list(plain.find(asked, **options))
        assert_same_documents(
            expected, list(spatial.find(asked, **options)), ordered=True, at_least=int(area is BIG)
        )
        stages = [{"$match": asked}, {"$sort": dict(options["sort"])}]
        if "skip" in options:
            stages.append({"$skip": options["skip"]})
        if "limit" in options:
            stages.append({"$limit": abs(options["limit"])})
        assert list(spatial.aggregate(stages)) == expected


@pytest.mark.parametrize("options", SORTS[:5], ids=str)
def test_few_documents_are_looked_at(options: dict[str, Any], plain: Any, spatial: SpatialCollection) -> None:
    inside = plain.count_documents(BIG)
    assert inside > SIZE / 2
    stats = spatial.find(BIG, **options).explain()["executionStats"]
    assert stats["nReturned"] == abs(options["limit"])
    assert stats["totalDocsExamined"] < 500
    assert stats["totalKeysExamined"] < 500
    stages = [{"$match": BIG}, {"$sort": dict(options["sort"])}, {"$limit": abs(options["limit"])}]
    explained = spatial.explain(stages)
    assert explained.rewritten is None
    assert explained.original.docs < 500
    assert "an index has the order that is wanted" in str(explained)


def test_the_first_one(plain: Any, spatial: SpatialCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    """``find_one`` and what changes the first take the way of a limit of 1."""
    sort, sent = [("time", -1)], []
    assert spatial.find_one(BIG, sort=sort) == plain.find_one(BIG, sort=sort)
    real = Collection.find_one_and_update

    def noted(collection: Any, filter: Any, update: Any, **options: Any) -> Any:
        sent.append((filter, options.get("hint")))
        return real(collection, filter, update, **options)

    monkeypatch.setattr(Collection, "find_one_and_update", noted)
    for area in (BIG, SMALL):
        first = plain.find_one(area, sort=sort)
        assert spatial.find_one_and_update(area, {"$set": {"seen": True}}, sort=sort) == first
    assert sent[0] == (BIG, None)
    assert sent[1][1] == "gh_1__id_1"
    assert plain.count_documents({"seen": True}) == 2
    plain.update_many({"seen": True}, {"$unset": {"seen": 1}})
