"""Counts settled in the client: when, and the same numbers as the server's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from differential import KINDS, Question, points_for
from places import Setup, documents, make_collection
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from spies import answers_of

from spatialnosql import counting
from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.costs import Costs
from spatialnosql.counting import can_settle
from spatialnosql.deadline import Deadline
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import QoS
from spatialnosql.rewrite.planning import plan_count
from spatialnosql.settle import IN, OUT, UNSURE
from spatialnosql.steps import Call, Steps, run

CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}


# -- when -------------------------------------------------------------------------------------------------


def known(**changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.5, 50_000), 48.86 + rng.normal(0, 0.5, 50_000), 35)
    index = Index("gh_1__id_1", (("gh", 1), ("_id", 1)))
    given: dict[str, Any] = {"histogram": histogram, "indexes": (index, Index("kind_1", (("kind", 1),)))}
    return CollectionInfo("city.trips", **(given | changed))


def test_a_count_of_many_points_is_settled() -> None:
    plan = plan_count(CIRCLE, known())
    assert plan.settled is not None
    assert plan.settled.counted is not None
    assert plan.settled.scanned is not None
    assert not plan.settled.one_scan
    assert plan.rules == ("settle_count",)
    assert "settled in the client" in str(plan)


def test_a_small_interior_is_not_worth_a_command_of_its_own() -> None:
    few = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.0012]}}}
    plan = plan_count(few, known(), qos=QoS(form="client"))
    assert plan.settled is not None
    assert plan.settled.one_scan
    assert plan.settled.counted is None
    assert plan.commands == 2  # and one for what is undecided


def test_a_large_interior_is_counted_side_by_side() -> None:
    plan = plan_count(CIRCLE, known())
    assert plan.settled is not None
    assert plan.settled.counted is not None
    assert len(plan.settled.parts) == 4
    assert plan.commands == 6
    assert "in 4 commands" in str(plan)
    # Every range is in one of them, some of them cut in two.
    bounds = sorted((one["gh"]["$gte"], one["gh"]["$lt"]) for one in plan.settled.counted["$or"])
    parts = [one["gh"] for part in plan.settled.parts for one in part.get("$or", [part])]
    assert bounds[0][0] == parts[0]["$gte"]
    assert bounds[-1][1] == parts[-1]["$lt"]
    assert len(bounds) <= len(parts) <= len(bounds) + 3
    # Work is not less for it, so not for those who want to save it, nor where a command costs as much.
    for info, qos in ((known(), QoS(prefer="throughput")), (known(costs=Costs(command_ms=10.0)), QoS())):
        settled = plan_count(CIRCLE, info, qos=qos).settled
        assert settled is not None
        assert settled.parts == (settled.counted,)


def test_of_a_limit_no_more_is_counted_than_is_needed() -> None:
    """ "Is there any" is answered by whoever stops at the first; a limit near to all of it changes nothing."""
    info = known()
    settled = [plan_count(CIRCLE, info, limit=n).settled is not None for n in (1, 100, 30_000)]
    assert settled == [False, False, True]
    assert plan_count(CIRCLE, info, limit=100, skip=30_000).settled is not None
    assert plan_count(CIRCLE, info, skip=5).settled is not None  # all of it
    assert len(info.plans) == 5
    plan = plan_count(CIRCLE, known(), limit=1)
    assert plan.estimates_ms is not None
    assert plan.estimates_ms["original"] < plan.estimates_ms["client"]


@pytest.mark.parametrize(
    ("filter", "info", "qos", "why"),
    [
        ({"kind": "park"}, known(), QoS(), "no condition on the location"),
        ({"$or": [CIRCLE, {"kind": "park"}]}, known(), QoS(), "a branch without a region"),
        ({**CIRCLE, "_id": 5}, known(), QoS(), "_id finds its document better"),
        ({**CIRCLE, "kind": "park"}, known(), QoS(), "another index may be better"),
        (CIRCLE, known(unhashed=True), QoS(), "documents without gh may be inside"),
        (CIRCLE, known(histogram=None), QoS(), "nothing to tell the cost by"),
        (CIRCLE, known(indexes=()), QoS(), "no index to read the keys from"),
        (CIRCLE, known(why_not="a view"), QoS(), "not to be rewritten"),
        (CIRCLE, known(), QoS(rewrite=False), "turned off"),
        (CIRCLE, known(), QoS(precision="selectivity"), "the paper's cover was asked for"),
        ({"loc": {"$geoWithin": {"$box": "no"}}}, known(), QoS(), "the server has an error for it"),
        (
            {"loc": {"$geoWithin": {"$box": [[9, 9], [9.1, 9.1]]}}},
            known(),
            QoS(),
            "too few to be worth two commands",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_settled(filter: dict[str, Any], info: CollectionInfo, qos: QoS, why: str) -> None:
    assert plan_count(filter, info, qos=qos).settled is None, why


@pytest.mark.parametrize(
    ("options", "can"),
    [
        ({}, True),
        ({"skip": 5, "limit": 3, "comment": "x", "maxTimeMS": 50}, True),
        ({"limit": 0}, False),
        ({"skip": -1}, False),
        ({"limit": 2.5}, False),
        ({"hint": "gh_1__id_1"}, False),
        ({"collation": {"locale": "fr"}}, False),
        ({"whatever": 1}, False),
    ],
)
def test_options_that_only_the_server_understands(options: dict[str, Any], can: bool) -> None:
    assert can_settle(options) is can


def _made(call: Call) -> Steps[Any]:
    return (yield call)


# -- on the server ----------------------------------------------------------------------------------------


QUESTIONS_EACH = 12  # of every kind of shape; the border of each has points on and near it


def questions() -> list[Question]:
    rng = np.random.default_rng(11)
    kinds = [kind for kind in KINDS if kind not in ("near", "geo_near")]
    return [KINDS[kind](rng) for kind in kinds for _ in range(QUESTIONS_EACH)]


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client["test_counting"]
    client.drop_database(database.name)
    setup = Setup("loc", "geojson")
    content = documents(2000, 7, setup)
    rng = np.random.default_rng(12)
    for question in questions():
        lng, lat = points_for(question, rng, 30)
        for x, y, gh in zip(
            lng.tolist(), lat.tolist(), cells_to_strings(points_to_cells(lng, lat)), strict=True
        ):
            point = {"type": "Point", "coordinates": [x, y]}
            content.append({"_id": len(content), "n": len(content), "loc": point, "gh": str(gh)})
    yield make_collection(database, "points", setup, content)
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


def magnified(plain: Any, times: int = 1000) -> CollectionInfo:
    """What is known of the collection, with every count so many times, so that settling always seems worth it."""
    info = run(load_info(plain))
    assert info.why_not is None
    assert info.histogram is not None
    more = Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts * times)
    return replace(info, histogram=more)


def counted(collection: Any, asked: dict[str, Any], **options: Any) -> tuple[int, int | None]:
    """The number of documents, or the code with which the server refuses."""
    try:
        return collection.count_documents(asked, **options), None
    except OperationFailure as error:
        return 0, error.code


@pytest.mark.parametrize(
    ("magnify", "pushed"), [(1000, True), (1, True), (1000, False)], ids=["two commands", "one", "documents"]
)
def test_settled_counts_are_the_servers(
    plain: Any, magnify: int, pushed: bool, tally: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info, qos = magnified(plain, magnify), QoS(form="client")
    spatial = SpatialCollection(plain, info=info, qos=qos)
    if not pushed:
        monkeypatch.setattr(counting, "_MOST_PUSHED", -1)
    undecided = answers_of(monkeypatch, counting, "settle_cells")
    closely = answers_of(monkeypatch, counting, "settled_by_place")
    settled = found = 0
    for number, question in enumerate(questions()):
        asked: dict[str, Any] = {"loc": question.condition}
        if number % 3 == 0:
            asked["n"] = {"$gte": 500}
        expected, refusal = counted(plain, asked)
        actual = counted(spatial, asked)
        assert actual == (expected, refusal), asked
        settled += plan_count(asked, info, qos=qos).settled is not None
        found += expected
    assert settled > 100
    assert found > 1000
    # Points on the borders themselves are nobody's but the server's to judge.
    assert sum(int((status == UNSURE).sum()) for status in undecided) > 100
    assert set(np.concatenate(closely).tolist()) == {IN, OUT, UNSURE}
    tally["counts settled in the client"] += settled


@pytest.mark.parametrize("magnify", [1000, 1], ids=["keys", "places"])
def test_more_keys_than_a_document_holds(plain: Any, magnify: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses documents over 16 MB; statistics that were wrong by so much are not the caller's trouble."""
    info = magnified(plain, magnify)
    spatial = SpatialCollection(plain, info=info, qos=QoS(form="client"))
    real = counting._pushed

    def too_large(collection: Any, *given: Any) -> Any:
        call = real(collection, *given)
        many = {"$map": {"input": {"$range": [0, 2_000_000]}, "in": "a string"}}
        return replace(call, arguments=([*call.arguments[0], {"$set": {"keys": many}}],))

    monkeypatch.setattr(counting, "_pushed", too_large)
    with pytest.raises(OperationFailure) as caught:
        run(_made(too_large(plain, CIRCLE, "gh", "gh_1__id_1", Deadline(None), {})))
    assert caught.value.code in counting._TOO_LARGE
    assert spatial.count_documents(CIRCLE) == plain.count_documents(CIRCLE)


def test_what_places_leave_open_is_counted_by_keys_and_learnt_once(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spatial = SpatialCollection(plain, info=magnified(plain, 1), qos=QoS(form="client"))
    learnt: list[float] = []
    monkeypatch.setattr(CollectionInfo, "learn", lambda self, cover, seen, expected: learnt.append(seen))
    monkeypatch.setattr(counting, "_FEW", 10**6)
    monkeypatch.setattr(
        counting, "settled_by_place", lambda region, documents, location: np.full(len(documents), UNSURE)
    )
    asked = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.001]}}}
    expected = plain.count_documents(asked)
    assert expected > 5
    assert spatial.count_documents(asked) == expected
    assert len(learnt) == 1


def test_skip_limit_sessions_and_snapshots(plain: Any, client: MongoClient[dict[str, Any]]) -> None:
    info = magnified(plain)
    spatial = SpatialCollection(plain, info=info)
    assert plan_count(CIRCLE, info).settled is not None
    whole = plain.count_documents(CIRCLE)
    assert whole > 20
    for options in ({"skip": 5}, {"limit": 7}, {"skip": 3, "limit": 4}, {"skip": whole + 1}):
        assert spatial.count_documents(CIRCLE, **options) == plain.count_documents(CIRCLE, **options)
    assert spatial.count_documents(CIRCLE, consistent=True) == whole
    snapshot = plain.with_options(read_concern=ReadConcern("snapshot"))
    assert SpatialCollection(snapshot, info=info).count_documents(CIRCLE) == whole
    with client.start_session() as session:
        assert spatial.count_documents(CIRCLE, session=session) == whole
        assert spatial.count_documents(CIRCLE, session=session, consistent=True) == whole
        assert not session.in_transaction  # it is the caller's again
        with session.start_transaction():
            assert spatial.count_documents(CIRCLE, session=session) == whole
            assert spatial.count_documents(CIRCLE, session=session, consistent=True) == whole
            assert session.in_transaction
    with client.start_session(snapshot=True) as session:
        assert spatial.count_documents(CIRCLE, session=session, consistent=True) == whole


def test_limits(plain: Any) -> None:
    """The same numbers as the server's, of however many, and few are looked at where few are wanted."""
    info = magnified(plain)
    spatial = SpatialCollection(plain, info=info)
    ways = Counter()
    for question in questions():
        asked = {"loc": question.condition}
        for options in ({"limit": 1}, {"limit": 3, "skip": 2}, {"limit": 40}, {"limit": 10**6, "skip": 1}):
            expected = counted(plain, asked, **options)
            for _ in range(2):
                assert counted(spatial, asked, **options) == expected, (asked, options)
            ways[plan_count(asked, info, **options).settled is not None] += 1
    assert min(ways.values()) > 30
    whole = plain.count_documents(CIRCLE)
    for options, most in (({"limit": 1}, 40), ({"limit": 2, "skip": 3}, 60)):
        explained = spatial.explain(CIRCLE, count=True, **options)
        sent = explained.rewritten or explained.original
        assert sent.keys < most < whole
        pipeline = [{"$match": CIRCLE}, {"$limit": options["limit"]}, {"$count": "n"}]
        assert list(spatial.aggregate(pipeline)) == list(plain.aggregate(pipeline))


def test_counted_in_parts(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = replace(magnified(plain), costs=Costs(command_ms=0.01, shard_ms=0.01))
    spatial = SpatialCollection(plain, info=info)
    parted = 0
    for question in questions():
        asked = {"loc": question.condition}
        settled = plan_count(asked, info).settled
        parted += settled is not None and len(settled.parts) > 1
        assert counted(spatial, asked) == counted(plain, asked), asked
    assert parted > 30
    commands = answers_of(monkeypatch, counting, "_count")
    whole = plain.count_documents(CIRCLE)
    assert spatial.count_documents(CIRCLE) == whole
    assert 1 < len(commands) <= 4
    # A session takes one command at a time: there are no parts in it.
    commands.clear()
    assert spatial.count_documents(CIRCLE, consistent=True) == whole
    assert len(commands) == 1


def test_the_asynchronous_twin(plain: Any, cluster: Any) -> None:
    info = magnified(plain)

    async def count() -> int:
        async with AsyncMongoClient(cluster.uri) as client:
            spatial = AsyncSpatialCollection(client["test_counting"]["points"], info=info)
            both = [
                await spatial.count_documents(CIRCLE),
                await spatial.count_documents(CIRCLE, consistent=True),
            ]
            assert both[0] == both[1]
            return both[0]

    assert asyncio.run(count()) == plain.count_documents(CIRCLE)
