"""Indexes of the user's own beside ours: what they find sooner stays theirs, with the same answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import Setup, make_collection
from pymongo import MongoClient
from spies import answers_of

from spatialnosql import nearest
from spatialnosql.analyze import analyze
from spatialnosql.collection import SpatialCollection
from spatialnosql.experience import Experience
from spatialnosql.geohash import points_to_strings
from spatialnosql.info import CollectionInfo, Index
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite.own_indexes import (
    fewer_in_all,
    found_with_place,
    may_be_rare,
    names_of,
    share_of,
)
from spatialnosql.rewrite.planning import plan_count, plan_find
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

DATABASE = "test_own_indexes"
SIZE = 20_000
RARE, UNCOMMON, COMMON, NONE = 1, 2, 3, 4  # 20, 1,000 and the rest of all documents, and no document
RING = [[2.30, 48.83], [2.40, 48.82], [2.41, 48.89], [2.33, 48.90], [2.30, 48.83]]
WITHIN = {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [RING]}}}}
INDEXES: dict[str, list[tuple[str, Any]]] = {
    "place first": [("loc", "2dsphere"), ("kind", 1)],
    "place last": [("kind", 1), ("loc", "2dsphere")],
    "geohash first": [("gh", 1), ("kind", 1)],
    "alone": [("kind", 1)],
}
WITH_PLACE = ("place first", "place last")


@pytest.fixture(scope="module")
def collections(client: MongoClient[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    client.drop_database(DATABASE)
    rng = np.random.default_rng(1)
    lng, lat = 2.35 + rng.normal(0, 0.05, SIZE), 48.86 + rng.normal(0, 0.03, SIZE)
    kinds = np.full(SIZE, COMMON)
    kinds[:1_000], kinds[:20] = UNCOMMON, RARE
    rows = zip(
        lng.tolist(), lat.tolist(), points_to_strings(lng, lat).tolist(), rng.permutation(kinds), strict=True
    )
    content = [
        {"_id": n, "n": n, "loc": {"type": "Point", "coordinates": [x, y]}, "gh": gh, "kind": int(kind)}
        for n, (x, y, gh, kind) in enumerate(rows)
    ]
    made = {}
    for name, keys in INDEXES.items():
        made[name] = make_collection(client[DATABASE], name.replace(" ", "_"), Setup(), content)
        made[name].create_index(keys)
        analyze(made[name])
    yield made
    client.drop_database(DATABASE)
    metadata_collection(client[DATABASE]["any"]).delete_many({"_id": {"$regex": f"^{DATABASE}[.]"}})


def fresh(collection: Any) -> SpatialCollection:
    """The collection, and nobody has asked it anything yet."""
    info = run(load_info(collection))
    return SpatialCollection(
        collection, info=replace(info, experience=Experience(), plans=type(info.plans)())
    )


@pytest.mark.parametrize("count", [False, True], ids=["find", "count"])
@pytest.mark.parametrize("kind", [RARE, UNCOMMON, COMMON])
@pytest.mark.parametrize("name", INDEXES)
def test_areas_read_no_more_than_as_they_are(
    name: str, kind: int, count: bool, collections: dict[str, Any]
) -> None:
    """Where it is not known how rare a condition is the query goes as it is; then that is known."""
    plain, asked = collections[name], {**WITHIN, "kind": kind}
    expected = plain.count_documents(asked)
    assert expected >= 5
    spatial, plans = fresh(plain), []
    for _ in range(3):
        explained = spatial.explain(asked, **({"count": True} if count else {}))
        plans.append(explained.plan)
        if explained.rewritten is not None:
            assert explained.rewritten.docs <= 1.2 * explained.original.docs + 20
            assert explained.rewritten.keys <= 1.2 * explained.original.keys + 20
        found = spatial.count_documents(asked) if count else len(list(spatial.find(asked)))
        assert found == expected
    if name in WITH_PLACE:
        assert not any(plan.rewritten for plan in plans)
        assert all("by the place and another condition" in str(plan) for plan in plans)
    elif name == "alone":
        assert "not known yet how many documents meet it" in str(plans[0])
        # By now it is known, and what is common is sooner found by ranges, whatever the planner would do.
        assert [plan.rewritten for plan in plans] == [False, kind == COMMON, kind == COMMON]
        assert [plan.hint for plan in plans][1:] == ["gh_1__id_1" if kind == COMMON else None] * 2
    else:
        assert all(plan.rewritten for plan in plans)


@pytest.mark.parametrize("form", ["client", "server"])
@pytest.mark.parametrize("name", INDEXES)
def test_who_insists_on_a_form_gets_it(name: str, form: Any, collections: dict[str, Any]) -> None:
    plain = collections[name]
    for kind in (RARE, UNCOMMON, COMMON, NONE):
        asked = {**WITHIN, "kind": kind}
        spatial = fresh(plain).with_qos(form=form)
        assert spatial.plan(asked).form == form
        assert_same_documents(list(plain.find(asked)), list(spatial.find(asked)), key="n", at_least=0)
        assert spatial.count_documents(asked) == plain.count_documents(asked)


def near(place: list[float], kind: int, **limits: float) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": place}
    return {"loc": {"$nearSphere": {"$geometry": point, **limits}}, "kind": kind}


@pytest.mark.parametrize("kind", [RARE, UNCOMMON, COMMON, NONE])
@pytest.mark.parametrize("name", INDEXES)
def test_the_nearest_of_a_kind(name: str, kind: int, collections: dict[str, Any]) -> None:
    """From the same collection three times, which has learnt something by then; and from one that knows nothing."""
    plain, rng = collections[name], np.random.default_rng(kind)
    for limits in ({}, {"$maxDistance": 3_000.0}, {"$minDistance": 1_500.0}):
        for limit, skip in ((1, 0), (4, 3)) if kind != NONE else ((3, 0),):
            spatial = fresh(plain)
            for _ in range(2 if kind != NONE else 1):
                place = [2.35 + float(rng.normal(0, 0.03)), 48.86 + float(rng.normal(0, 0.02))]
                asked = near(place, kind, **limits)
                expected = [one["_id"] for one in plain.find(asked, limit=limit, skip=skip)]
                for one in (spatial, fresh(plain)):
                    assert [d["_id"] for d in one.find(asked, limit=limit, skip=skip)] == expected
                stage = {"near": asked["loc"]["$nearSphere"]["$geometry"], "key": "loc", "distanceField": "d"}
                stage |= {key[1:]: value for key, value in limits.items()} | {"query": {"kind": kind}}
                pipeline = [{"$geoNear": stage}, *([{"$skip": skip}] if skip else []), {"$limit": limit}]
                assert list(spatial.aggregate(pipeline)) == list(plain.aggregate(pipeline))


@pytest.mark.parametrize("name", WITH_PLACE)
def test_what_is_rare_is_left_to_the_index_that_finds_it(
    name: str, collections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = collections[name], near([2.35, 48.86], RARE)
    spatial = fresh(plain)
    assert spatial.plan(asked, limit=10).rings is not None  # nobody knows yet that it is rare
    rings = answers_of(monkeypatch, nearest, "ring_filter")
    expected = list(plain.find(asked, limit=10))
    assert list(spatial.find(asked, limit=10)) == expected
    assert 0 < len(rings) <= 3  # and the rest as it came, instead of reading everything around
    assert share_of(({"kind": RARE},), spatial._info) == pytest.approx(20 / SIZE, rel=0.9)  # type: ignore[arg-type]
    for plan in (spatial.plan(asked, limit=10), spatial.explain(asked, limit=10).plan):
        assert not plan.rewritten
        assert any("by the place and another condition" in reason for reason in plan.reasons)
    stage = {
        "$geoNear": {"near": asked["loc"]["$nearSphere"]["$geometry"], "key": "loc", "query": {"kind": RARE}}
    }
    assert list(spatial.aggregate([stage, {"$limit": 10}])) == expected
    assert not spatial.explain([stage, {"$limit": 10}]).plan.rewritten
    assert spatial.explain(asked, limit=10).rewritten is None
    # What is common is still found around the place, and all of a kind by the index.
    assert spatial.plan(near([2.35, 48.86], COMMON), limit=10).rings is not None
    assert spatial.plan(asked).rings is None
    within = near([2.35, 48.86], RARE, **{"$maxDistance": 2_000.0})
    assert spatial.plan(within).rules == ("bound_near",)
    assert list(spatial.find(within)) == list(plain.find(within))


@pytest.mark.parametrize("form", ["client", "cheapest"])
@pytest.mark.parametrize("name", WITH_PLACE)
def test_who_insists_on_rings_gets_them_to_the_end(
    name: str, form: Any, collections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = collections[name], near([2.35, 48.86], UNCOMMON)
    rings = answers_of(monkeypatch, nearest, "ring_filter")
    for limit in (0, 800):
        expected = [one["_id"] for one in plain.find(asked, limit=limit)]
        spatial = fresh(plain).with_qos(form=form)
        rings.clear()
        assert [one["_id"] for one in spatial.find(asked, limit=limit)] == expected
        assert len(rings) > 1 or form == "cheapest"
    stage = {"near": asked["loc"]["$nearSphere"]["$geometry"], "key": "loc", "query": {"kind": UNCOMMON}}
    both = [list(one.aggregate([{"$geoNear": stage}])) for one in (plain, spatial)]
    assert both[0] == both[1]


def test_documents_given_before_do_not_come_again(
    collections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring has brought some; the rest comes by the query as it was, beyond that ring, in batches as wanted."""
    plain = collections["place last"]
    monkeypatch.setattr(nearest, "fewer_in_all", lambda share, missing, histogram: True)
    for place in plain.find({"kind": UNCOMMON}).limit(6):
        asked = near(place["loc"]["coordinates"], UNCOMMON)
        expected = [one["_id"] for one in plain.find(asked, limit=200)]
        spatial = fresh(plain)
        rings = answers_of(monkeypatch, nearest, "ring_filter")
        found = [one["_id"] for one in spatial.find(asked, limit=200, batch_size=7)]
        assert (found, len(rings)) == (expected, 1)
        assert [one["_id"] for one in spatial.find(asked, limit=20, skip=150)] == expected[150:170]


def test_fewer_in_all(collections: dict[str, Any]) -> None:
    info: CollectionInfo = run(load_info(collections["alone"]))
    assert info.histogram is not None
    assert not fewer_in_all(1.0, 10, info.histogram)
    assert not fewer_in_all(0.1, 10, info.histogram)
    assert fewer_in_all(0.001, 10, info.histogram)


# -- what was seen in one place and is not so in another ---------------------------------------------------

FERRY, FERRIES, HARBOUR = 9, 130, [2.50, 48.95]


@pytest.fixture(scope="module")
def harbour(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    """All ferries of the collection lie in one harbour, where every second point is one."""
    database = client[f"{DATABASE}_harbour"]
    client.drop_database(database.name)
    rng = np.random.default_rng(2)
    lng, lat = 2.35 + rng.normal(0, 0.03, SIZE), 48.86 + rng.normal(0, 0.02, SIZE)
    kinds = np.full(SIZE, COMMON)
    lng[: 2 * FERRIES] = HARBOUR[0] + rng.normal(0, 0.002, 2 * FERRIES)
    lat[: 2 * FERRIES] = HARBOUR[1] + rng.normal(0, 0.002, 2 * FERRIES)
    kinds[:FERRIES] = FERRY
    columns = (lng.tolist(), lat.tolist(), points_to_strings(lng, lat).tolist(), kinds.tolist())
    made = make_collection(
        database,
        "harbour",
        Setup(),
        [
            {"_id": n, "n": n, "loc": {"type": "Point", "coordinates": [x, y]}, "gh": gh, "kind": kind}
            for n, (x, y, gh, kind) in enumerate(zip(*columns, strict=True))
        ],
    )
    made.create_index({"kind": 1})
    analyze(made)
    yield made
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def around(place: list[float], radius_m: float) -> dict[str, Any]:
    return {"loc": {"$geoWithin": {"$centerSphere": [place, radius_m / 6_378_100]}}}


def square(place: list[float], half_deg: float) -> dict[str, Any]:
    """A polygon, which the servers test at a price: about a square."""
    corners = ((-1.0, -1.01), (1.02, -1.0), (1.0, 1.01), (-1.01, 1.0), (-1.0, -1.01))
    ring = [[place[0] + half_deg * x, place[1] + half_deg * y] for x, y in corners]
    return {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}}}


@pytest.mark.parametrize("count", [False, True], ids=["find", "count"])
def test_common_in_one_area_is_not_common_everywhere(harbour: Any, count: bool) -> None:
    spatial = fresh(harbour)
    small, large = ({**square(HARBOUR, 0.006), "kind": FERRY}, {**square([2.43, 48.91], 0.08), "kind": FERRY})
    for asked in (small, small, large, large, small, large):
        explained = spatial.explain(asked, **({"count": True} if count else {}))
        if explained.rewritten is not None:
            assert explained.rewritten.docs <= 2 * explained.original.docs + 20
        expected = harbour.count_documents(asked)
        assert expected >= 50
        assert (spatial.count_documents(asked) if count else len(list(spatial.find(asked)))) == expected
    # By now it is known how rare ferries are: what finds them is an index of the user's own.
    assert not spatial.plan(large).rewritten
    # What is common in all of a large area surely is common.
    town = {**WITHIN, "kind": COMMON}
    for _ in range(2):
        assert len(list(spatial.find(town))) == harbour.count_documents(town)
    assert spatial.plan(town).hint == "gh_1__id_1"


def test_nears_of_one_place_say_little_of_another(harbour: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ferry much is read in vain; the next one asks where every second point is one."""
    spatial = fresh(harbour)
    for _ in range(3):
        nowhere = near([2.35, 48.86], FERRY, **{"$maxDistance": 8_000.0})
        assert list(spatial.find(nowhere, limit=1)) == list(harbour.find(nowhere, limit=1)) == []
        rings = answers_of(monkeypatch, nearest, "ring_cover")
        here = near(HARBOUR, FERRY)
        assert list(spatial.find(here, limit=1)) == list(harbour.find(here, limit=1))
        assert rings[0].held < 1_500


# -- which indexes may find what, by the planner alone ------------------------------------------------------


def knowing(collection: Any, *indexes: Index) -> CollectionInfo:
    """What is known of a collection that has other indexes, and nothing learnt."""
    info: CollectionInfo = run(load_info(collection))
    ours = tuple(index for index in info.indexes if index.keys[0][0] in ("_id", "gh", "loc"))
    return replace(info, indexes=(*ours, *indexes), experience=Experience(), plans=type(info.plans)())


@pytest.mark.parametrize(
    ("keys", "condition", "may_find"),
    [
        ({"kind": 1}, {"kind": 5}, True),
        ({"kind": 1, "time": 1}, {"kind": 5}, True),
        ({"time": 1, "kind": 1}, {"kind": 5}, False),
        ({"$**": 1}, {"kind": 5}, True),
        ({"at.$**": 1}, {"at.city": 5}, True),
        ({"at.$**": 1}, {"atoll": 5}, False),
        ({"kind": 1}, {"$or": [{"kind": 5}, {"kind": 6}]}, True),
        ({"kind": 1}, {"$expr": {"$eq": ["$kind", 5]}}, True),
        ({"kind": 1}, {"$nor": [{"time": 5}]}, False),
        ({"kind": 1, "_fts": "text", "_ftsx": 1}, {"kind": 5}, False),
    ],
)
def test_what_an_index_of_the_users_own_may_find_is_not_hinted(
    harbour: Any, keys: dict[str, Any], condition: dict[str, Any], may_find: bool
) -> None:
    info = knowing(harbour, Index("own", tuple(keys.items())))
    assert may_be_rare((condition,), info) is may_find
    plan = plan_find({**around(HARBOUR, 20_000), **condition}, info)
    assert (plan.hint is None) is may_find
    assert plan.rewritten is not may_find


@pytest.mark.parametrize(
    ("keys", "with_place"),
    [
        ({"kind": 1, "loc": "2dsphere"}, True),
        ({"loc": "2dsphere", "kind": 1}, True),
        ({"kind": 1, "time": 1, "loc": "2dsphere"}, True),
        ({"time": 1, "kind": 1, "loc": "2dsphere"}, False),
        ({"loc": 1, "kind": 1}, False),
        ({"loc": "2dsphere"}, False),
    ],
)
def test_which_indexes_find_by_the_place_too(harbour: Any, keys: dict[str, Any], with_place: bool) -> None:
    info = knowing(harbour, Index("own", tuple(keys.items())))
    assert found_with_place([{"kind": 5}], info) is with_place
    # A condition on the place in a branch is none beside it.
    assert not found_with_place([{"$or": [around(HARBOUR, 100), around(HARBOUR, 50)]}], info)


@pytest.mark.parametrize("keys", [{"kind": 1}, {"$**": 1}])
@pytest.mark.parametrize(
    "condition",
    [
        {"$text": {"$search": "cafe"}},  # the server refuses it beside a near
        {"$or": [{"kind": 1}, {"$text": {"$search": "cafe"}}]},
        {"$or": [{"kind": 1}, {"kind": 2}]},
        {"$expr": {"$eq": ["$kind", 1]}},
    ],
)
def test_a_near_goes_by_no_ring_beside_what_only_the_server_judges(
    harbour: Any, keys: dict[str, Any], condition: dict[str, Any]
) -> None:
    info = knowing(harbour, Index("own", tuple(keys.items())))
    here = near(HARBOUR, FERRY)
    assert plan_find(here, info, limit=5).rings is not None
    assert plan_find({"loc": here["loc"], **condition}, info, limit=5).rings is None


def test_conditions_that_only_the_callers_codec_encodes(harbour: Any) -> None:
    """They are learnt of like any other, and say nothing of how many points there are."""
    info = knowing(harbour, Index("own", (("tenant", 1),)))
    one, other = ({**around(HARBOUR, 20_000), "tenant": uuid.UUID(int=n)} for n in (1, 2))
    plan = plan_find(one, info)
    assert not plan.rewritten
    assert plan.answered is not None
    before = plan_count(around(HARBOUR, 20_000), info).settled
    plan.answered.learn(info, 3)
    after = plan_count(around(HARBOUR, 20_000), info).settled
    assert before is not None
    assert after is not None
    assert after.held == before.held
    assert info.experience.share(names_of([{"tenant": uuid.UUID(int=1)}])) == pytest.approx(3 / SIZE, rel=0.3)
    assert "not known yet" not in str(plan_find(other, info))


def test_conditions_that_never_come_again(harbour: Any) -> None:
    """What is asked of the last hour is planned by what the hours before have shown, and voids no other plan."""
    info = knowing(harbour, Index("own", (("time", 1),)))
    for _ in range(2):
        kept = plan_find(WITHIN, info)
    for hour in range(5):
        plan = plan_find({**WITHIN, "time": {"$gte": hour}}, info)
        assert ("not known yet" in str(plan)) is (hour == 0)
        assert plan.rewritten is (hour > 0)
        assert plan.hint is None  # of this very hour nothing is sure
        learner = plan.answered or plan.settled
        assert learner is not None
        learner.learn(info, 9_000)
    assert info.experience.version == 0
    assert plan_find(WITHIN, info).settled is kept.settled


def test_a_share_of_two_conditions_is_not_that_of_one(harbour: Any) -> None:
    """Of what is common and indexed, and rare and not indexed, the index finds much."""
    info = knowing(harbour, Index("own", (("kind", 1),)))
    asked = {**around(HARBOUR, 20_000), "kind": COMMON, "plate": "AB 123"}
    info.experience.learn_share(names_of([{"kind": COMMON}, {"plate": "AB 123"}]), 1, SIZE)
    plan = plan_find(asked, info)
    assert plan.rewritten
    assert plan.hint is None
    alone = knowing(harbour, Index("own", (("kind", 1), ("plate", 1))))
    alone.experience.learn_share(names_of([{"kind": COMMON}, {"plate": "AB 123"}]), 1, SIZE)
    assert not plan_find(asked, alone).rewritten
