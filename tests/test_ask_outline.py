"""Shapes that were never asked for: when their outlines are asked for, and that the answers are the server's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pymongo
import pytest
from differential import KINDS, Question, points_for
from places import Setup, documents, make_collection
from pymongo import AsyncMongoClient, MongoClient, monitoring
from pymongo.errors import (
    AutoReconnect,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern

from spatialnosql import reading
from spatialnosql.calm import calm_find
from spatialnosql.cluster import LocalCluster
from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.costs import Costs
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index, ShardRange
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import Context, QoS
from spatialnosql.rewrite.ask_outline import ask_outline
from spatialnosql.rewrite.planning import plan_count, plan_find
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

SQUARE = [[2.01, 48.01], [3.01, 48.01], [3.01, 49.01], [2.01, 49.01], [2.01, 48.01]]
SMALL = [[2.31, 48.41], [2.36, 48.41], [2.36, 48.46], [2.31, 48.41]]
ELSEWHERE = [[12.0, 8.0], [13.0, 8.0], [13.0, 9.0], [12.0, 9.0], [12.0, 8.0]]


# -- when -------------------------------------------------------------------------------------------------


def known(n: int = 50_000, **changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.3, n), 48.5 + rng.normal(0, 0.3, n), 30)
    indexes = (Index("gh_1__id_1", (("gh", 1), ("_id", 1))), Index("loc", (("loc", "2dsphere"),)))
    given: dict[str, Any] = {"histogram": histogram, "indexes": indexes}
    return CollectionInfo("city.trips", **(given | changed))


def within(*rings: Any, kind: str = "Polygon", operator: str = "$geoWithin", **more: Any) -> dict[str, Any]:
    return {"loc": {operator: {"$geometry": {"type": kind, "coordinates": list(rings), **more}}}}


@pytest.mark.parametrize("operator", ["$geoWithin", "$within", "$geoIntersects"])
@pytest.mark.parametrize("plan", [plan_find, plan_count])
def test_few_points_are_asked_for_by_their_outline(plan: Any, operator: str) -> None:
    for ring in (SMALL, ELSEWHERE):
        made = plan(within(ring, operator=operator), known())
        assert made.rules == ("ask_outline",)
        assert made.rewritten
        assert made.hasty
        assert made.settled is not None
        assert made.settled.unread
        assert made.hint == "gh_1__id_1"
        assert "reads the shape meanwhile" in str(made)
    assert plan(within(SQUARE, operator=operator), known()).rules != ("ask_outline",)


def test_the_parts_of_a_multipolygon_count_together() -> None:
    beside = [[lng + 0.06, lat] for lng, lat in SMALL]
    far_away = [[lng + 10.0, lat + 30.0] for lng, lat in SMALL]
    asked = {
        name: within([SMALL], [ring], kind="MultiPolygon")
        for name, ring in (("near", beside), ("far", far_away))
    }
    plans = {name: plan_find(query, known(20_000)) for name, query in asked.items()}
    assert plans["near"].rules == ("ask_outline",)
    # One grid for both is too coarse.
    assert plans["far"].rules != ("ask_outline",)


@pytest.mark.parametrize("plan", [plan_find, plan_count])
def test_a_shape_that_comes_again_is_covered(plan: Any) -> None:
    info, asked = known(), within(SMALL)
    first, second, third = (plan(asked, info) for _ in range(3))
    assert (first.hasty, second.hasty, third.hasty) == (True, False, False)
    assert second.rules in (("settle_find",), ("settle_count",))
    assert second.settled is third.settled
    # What is remembered of a hasty plan holds on to nothing.
    plan(within(ELSEWHERE), info)
    kept = next(reversed(info.plans.values()))
    assert (kept.hasty, kept.settled, kept.original) == (True, None, {})


def test_what_lies_in_the_outline_but_not_in_the_shape_decides() -> None:
    """A sliver through the middle of everything is not worth the documents beside it."""
    sliver = [[2.0, 48.2], [2.7, 48.8], [2.7005, 48.8], [2.0, 48.2]]
    plan = ask_outline(within(sliver), Context(known()))
    assert plan is not None
    assert not plan.rewritten
    assert plan.hasty
    assert "sooner asked than covered" in str(plan)
    slow_shape = known(costs=replace(Costs(), shape_ms=20.0))
    assert ask_outline(within(sliver), Context(slow_shape)) is None  # to be covered, then


def test_a_limit_makes_the_original_cheap() -> None:
    info, asked = known(200_000), within(SQUARE)
    assert ask_outline(asked, Context(info)) is None
    limited = ask_outline(asked, Context(info, limit=3))
    assert limited is not None
    assert not limited.rewritten
    assert ask_outline(asked, Context(info, limit=3, skip=100_000)) is None


def test_costs_decide() -> None:
    asked = within(SMALL)
    for costs, expected in (
        (Costs(), True),
        (Costs(shape_ms=0.0, shape_vertex_ms=0.0, test_ms=0.0, return_ms=1.0), False),
        (Costs(read_ms=0.0, read_vertex_ms=0.0, return_ms=0.01, shape_ms=20.0), None),
    ):
        plan = ask_outline(asked, Context(known(costs=costs)))
        assert (plan.rewritten if plan is not None else None) is expected


@pytest.mark.parametrize("name", ["read_ms", "read_vertex_ms"])
def test_what_a_shape_takes_to_read_speaks_for_the_outline(name: str) -> None:
    covered = Costs(read_ms=0.001, read_vertex_ms=1e-6, return_ms=0.01, shape_ms=20.0)
    assert ask_outline(within(SMALL), Context(known(costs=covered))) is None
    plan = ask_outline(within(SMALL), Context(known(costs=replace(covered, **{name: 100.0}))))
    assert plan is not None
    assert plan.rewritten


def test_max_ranges_is_kept() -> None:
    assert plan_find(within(SMALL), known(), qos=QoS(max_ranges=1)).ranges == 1


def test_what_was_learnt_of_a_place_counts() -> None:
    info = known()
    plan = ask_outline(within(SMALL), Context(info))
    assert plan is not None
    assert plan.settled is not None
    info.experience.learn(plan.settled.cover, plan.settled.expected, 100 * plan.settled.expected)
    again = ask_outline(within(SMALL), Context(info))
    assert again is None or again.settled is None


@pytest.mark.parametrize(
    "filter",
    [
        {"loc": None},
        {"loc": 5},
        {"loc": {}},
        {"loc": {"$geoWithin": {"$box": [[12, 8], [13, 9]]}}},
        {"loc": {**within(ELSEWHERE)["loc"], "$exists": True}},
        {"loc": {"$geoWithin": {"$geometry": {"type": "Point", "coordinates": [12, 8]}}}},
        {"loc": {"$geoWithin": {"$geometry": {"type": ["Polygon"], "coordinates": [ELSEWHERE]}}}},
        {"loc": {"$geoWithin": {"$geometry": 5}}},
        {"loc": {"$geoWithin": 5}},
        {"loc": {"$nearSphere": [12, 8]}},
        {"other": within(ELSEWHERE)["loc"]},
        {"$and": [within(ELSEWHERE)]},
        {**within(ELSEWHERE), "_id": 5},
        {**within(ELSEWHERE), "$or": [{"a": 1}]},
        within(ELSEWHERE, crs={"type": "name"}),
        within(None),
        within([[170, 10], [-170, 10], [-170, 20], [170, 10]]),
    ],
    ids=lambda value: str(value)[:80],
)
def test_not_for_anything_else(filter: Any) -> None:
    assert ask_outline(filter, Context(known())) is None


@pytest.mark.parametrize(
    "changed",
    [{"histogram": None}, {"unhashed": True}, {"indexes": ()}, {"gh": "a.gh"}],
    ids=lambda changed: next(iter(changed)),
)
def test_not_without_what_it_takes(changed: dict[str, Any]) -> None:
    assert ask_outline(within(ELSEWHERE), Context(known(**changed))) is None


def test_who_insists_on_a_form_gets_it() -> None:
    for form in ("client", "server"):
        plan = plan_find(within(ELSEWHERE), known(), qos=QoS(form=form))  # type: ignore[arg-type]
        assert plan.form == form
        assert not plan.hasty


def test_the_shards_of_the_outline_are_predicted() -> None:
    shards = (ShardRange("", "u", "a"), ShardRange("u", "{", "b"))
    assert plan_find(within(SMALL), known(shards=shards)).shards == ("b",)


class FailsOnce:
    """Cursors of which the first to be read loses its server."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.made += 1
        return _Failing(self) if self.made == 1 else calm_find(*arguments, **options)


class _Failing:
    retrieved, cursor_id, address = 0, None, None

    def __init__(self, all_of_them: FailsOnce) -> None:
        self._all = all_of_them

    def to_list(self, length: int | None = None) -> list[Any]:
        raise AutoReconnect("once")

    def close(self) -> None:
        self._all.closed += 1


# -- the same answers -------------------------------------------------------------------------------------


def questions() -> list[Question]:
    """Polygons of every kind, also such as are none."""
    rng = np.random.default_rng(23)
    made = [make(rng) for kind, make in KINDS.items() if kind not in ("near", "geo_near") for _ in range(16)]
    return [one for one in made if "'Polygon'" in str(one.condition) or "MultiPolygon" in str(one.condition)]


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client["test_ask_outline"]
    client.drop_database(database.name)
    setup = Setup("loc", "any")
    content = documents(1500, 8, setup)
    rng = np.random.default_rng(13)
    for question in questions():
        lng, lat = points_for(question, rng, 24)
        hashes = cells_to_strings(points_to_cells(lng, lat))
        for x, y, gh in zip(lng.tolist(), lat.tolist(), hashes, strict=True):
            point = {"type": "Point", "coordinates": [x, y]}
            content.append({"_id": len(content), "n": 300_000 + len(content), "loc": point, "gh": str(gh)})
    yield make_collection(database, "points", setup, content)
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


@pytest.fixture(scope="module")
def info(plain: Any) -> CollectionInfo:
    found = run(load_info(plain))
    assert found.why_not is None
    # Whatever a shape costs the servers, it is more: every outline is worth asking for.
    return replace(found, costs=replace(Costs(), shape_ms=1000.0, read_ms=1000.0))


@pytest.fixture
def spatial(plain: Any, info: CollectionInfo) -> SpatialCollection:
    """One that has not seen any shape."""
    return SpatialCollection(plain, info=replace(info, plans=type(info.plans)()))


def answer(collection: Any, asked: Any, **options: Any) -> tuple[list[Any], int | None]:
    try:
        return list(collection.find(asked, **options)), None
    except OperationFailure as error:
        return [], error.code


def number(collection: Any, asked: Any, **options: Any) -> int | tuple[str, int | None]:
    try:
        return int(collection.count_documents(asked, **options))
    except OperationFailure as error:
        return "refused", error.code


def is_asked_by_outline(info: CollectionInfo, asked: Any) -> bool:
    return plan_find(asked, replace(info, plans=type(info.plans)())).rules == ("ask_outline",)


@pytest.mark.mongo
def test_finds_and_counts_of_every_kind_of_shape(
    plain: Any, spatial: SpatialCollection, info: CollectionInfo
) -> None:
    seen: Counter[str] = Counter()
    for turn, question in enumerate(questions()):
        asked: dict[str, Any] = {"loc": question.condition}
        if turn % 4 == 0:
            asked["n"] = {"$gte": 500}
        expected = answer(plain, asked)
        found = answer(spatial, asked, batch_size=(0, 5)[turn % 2])
        assert expected[1] == found[1], asked
        assert_same_documents(expected[0], found[0], at_least=0)
        counted = {**asked, "score": {"$exists": turn % 2 == 0}} if turn % 8 == 1 else asked
        spatial._info = replace(info, plans=type(info.plans)())
        assert number(spatial, counted) == number(plain, counted), counted
        outlined = is_asked_by_outline(info, asked)
        seen["asked by outline"] += outlined
        seen["with an answer"] += outlined and bool(expected[0])
        seen["refused"] += outlined and expected[1] is not None
    assert seen["asked by outline"] > 90
    assert seen["with an answer"] > 80
    assert seen["refused"] > 3


# A shape with a vertex on a multiple of 45 degrees, which only the server may judge; and one that crosses itself.
LEFT_TO_THE_SERVER = within([[0.0, 45.5], [3.3, 47.7], [3.2, 50.1], [0.0, 51.0], [0.0, 45.5]])
CROSSED = within([[2.0, 48.0], [3.0, 49.0], [3.0, 48.0], [2.0, 49.0], [2.0, 48.0]])
AROUND = within([[1.5, 48.05], [3.3, 48.1], [3.2, 50.1], [1.6, 49.9], [1.5, 48.05]])


@pytest.mark.mongo
def test_a_shape_that_is_not_for_us_is_sent_as_it_is(
    plain: Any, info: CollectionInfo, client: MongoClient[dict[str, Any]]
) -> None:
    def fresh() -> SpatialCollection:
        return SpatialCollection(plain, info=replace(info, plans=type(info.plans)()))

    expected = list(plain.find(LEFT_TO_THE_SERVER))
    for made in (
        list(fresh().find(LEFT_TO_THE_SERVER)),
        fresh().find(LEFT_TO_THE_SERVER).to_list(),
        fresh().find(LEFT_TO_THE_SERVER, max_time_ms=10_000).to_list(),
        list(fresh().find(LEFT_TO_THE_SERVER).clone()),
        list(fresh().with_qos(max_time_ms=10_000).find(LEFT_TO_THE_SERVER)),
    ):
        assert_same_documents(expected, made, at_least=20)
    cursor = fresh().find(LEFT_TO_THE_SERVER).limit(3).skip(1)
    assert len(list(cursor)) == 3
    assert cursor.plan is not None
    assert cursor.plan.rules == ("ask_outline",)
    assert len(list(cursor.rewind())) == 3
    assert fresh().count_documents(LEFT_TO_THE_SERVER) == len(expected)
    assert fresh().count_documents(LEFT_TO_THE_SERVER, skip=2, limit=5, maxTimeMS=10_000) == 5
    assert fresh().count_documents(LEFT_TO_THE_SERVER, consistent=True) == len(expected)
    pipeline = [{"$match": LEFT_TO_THE_SERVER}, {"$count": "n"}]
    assert list(fresh().aggregate(pipeline)) == [{"n": len(expected)}]
    with client.start_session() as session, session.start_transaction():
        assert fresh().count_documents(LEFT_TO_THE_SERVER, session=session) == len(expected)
        assert len(list(fresh().find(LEFT_TO_THE_SERVER, session=session))) == len(expected)
    # To explain is to ask for what would be sent, so that is judged too.
    assert "gh" not in str(fresh().find(LEFT_TO_THE_SERVER).explain()["queryPlanner"]["winningPlan"])
    for refused in (
        lambda: fresh().find(CROSSED).explain(),
        lambda: list(fresh().find(CROSSED)),
        lambda: fresh().count_documents(CROSSED),
        lambda: fresh().find_one(CROSSED),
        lambda: list(fresh().aggregate([{"$match": CROSSED}, {"$count": "n"}])),
    ):
        with pytest.raises(OperationFailure, match="cross"):
            refused()


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"sort": [("n", 1)]},
    {"sort": [("n", -1)], "skip": 5, "batch_size": 3},
    {"sort": [("n", 1)], "projection": {"_id": 0, "n": 1}},
    {"sort": [("n", 1)], "projection": {"loc": 0}, "batch_size": 1},
    {"sort": [("n", 1)], "projection": ["n", "loc"]},
    {"sort": [("n", 1)], "skip": 10_000},
    {"sort": [("n", 1)], "max_time_ms": 10_000, "comment": "why"},
)


@pytest.mark.mongo
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(plain: Any, spatial: SpatialCollection, options: dict[str, Any]) -> None:
    expected = list(plain.find(AROUND, **options))
    cursor = spatial.find(AROUND, **options)
    least = 0 if options.get("skip") == 10_000 else 20
    assert_same_documents(expected, list(cursor), ordered="sort" in options, at_least=least, key="n")
    assert cursor.plan is not None
    assert cursor.plan.rules == ("ask_outline",)


@pytest.mark.mongo
@pytest.mark.parametrize(("skip", "limit"), [(0, 1), (3, 9), (5, 0), (0, 100_000), (100_000, 3), (2, -6)])
@pytest.mark.parametrize("batch_size", [0, 2])
def test_cut(plain: Any, spatial: SpatialCollection, skip: int, limit: int, batch_size: int) -> None:
    options = {"skip": skip, "limit": limit, "batch_size": batch_size}
    whole = {document["_id"] for document in plain.find(AROUND)}
    found = [document["_id"] for document in spatial.find(AROUND, **options)]
    assert len(found) == len(set(found)) == len(list(plain.find(AROUND, **options)))
    assert set(found) <= whole


@pytest.mark.mongo
def test_the_caller_may_change_the_filter_while_the_cursor_is_read(
    plain: Any, spatial: SpatialCollection
) -> None:
    expected = list(plain.find(AROUND))
    asked = {"loc": {"$geoWithin": {"$geometry": dict(AROUND["loc"]["$geoWithin"]["$geometry"])}}}
    cursor = spatial.find(asked, batch_size=2)
    found = [next(cursor)]
    asked["loc"]["$geoWithin"]["$geometry"]["coordinates"] = [ELSEWHERE]
    assert_same_documents(expected, [*found, *cursor], at_least=20)


@pytest.mark.mongo
def test_explain_says_what_is_sent_first(spatial: SpatialCollection) -> None:
    explained = spatial.find(AROUND).explain()
    assert "gh" in str(explained["queryPlanner"]["winningPlan"]["shards"][0])
    explanation = spatial.explain(within(SMALL))
    assert explanation.plan.rules == ("ask_outline",)
    assert explanation.rewritten is not None


@pytest.mark.mongo
def test_one_command_and_the_shards_of_the_outline(
    cluster: LocalCluster, plain: Any, info: CollectionInfo
) -> None:
    class Commands(monitoring.CommandListener):
        def __init__(self) -> None:
            self.names: list[str] = []

        def started(self, event: monitoring.CommandStartedEvent) -> None:
            self.names.append(event.command_name)

        def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
            pass

        def failed(self, event: monitoring.CommandFailedEvent) -> None:
            pass

    commands = Commands()
    with MongoClient[dict[str, Any]](cluster.uri, event_listeners=[commands]) as watched:
        collection = watched[plain.database.name][plain.name]
        fresh = [
            SpatialCollection(collection, info=replace(info, plans=type(info.plans)())) for _ in range(2)
        ]
        assert len(list(fresh[0].find(within(SMALL)))) == plain.count_documents(within(SMALL))
        assert commands.names == ["find"]
        commands.names.clear()
        fresh[1].count_documents(within(SMALL))
        assert commands.names == ["aggregate"]


@pytest.mark.mongo
def test_sessions_and_read_concerns(
    plain: Any, info: CollectionInfo, client: MongoClient[dict[str, Any]]
) -> None:
    def fresh(collection: Any = plain) -> SpatialCollection:
        return SpatialCollection(collection, info=replace(info, plans=type(info.plans)()))

    expected = plain.count_documents(AROUND)
    assert expected > 20
    with client.start_session() as session, session.start_transaction():
        assert fresh().count_documents(AROUND, session=session) == expected
        assert len(list(fresh().find(AROUND, session=session))) == expected
    snapshot = plain.with_options(read_concern=ReadConcern("snapshot"))
    assert fresh(snapshot).count_documents(AROUND) == expected
    assert len(list(fresh(snapshot).find(AROUND))) == expected
    with client.start_session(snapshot=True) as session:
        assert len(list(fresh().find(AROUND, session=session))) == expected


@pytest.mark.mongo
def test_asynchronously(cluster: LocalCluster, plain: Any, info: CollectionInfo) -> None:
    expected = list(plain.find(AROUND))
    judged = list(plain.find(LEFT_TO_THE_SERVER))

    async def ask() -> None:
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as client:
            collection = client[plain.database.name][plain.name]

            def fresh() -> AsyncSpatialCollection:
                return AsyncSpatialCollection(collection, info=replace(info, plans=type(info.plans)()))

            assert_same_documents(expected, await fresh().find(AROUND).to_list(), at_least=20)
            assert_same_documents(
                expected, [d async for d in fresh().find(AROUND, batch_size=2)], at_least=20
            )
            assert await fresh().count_documents(AROUND) == len(expected)
            assert_same_documents(judged, await fresh().find(LEFT_TO_THE_SERVER).to_list(), at_least=20)
            assert await fresh().count_documents(LEFT_TO_THE_SERVER) == len(judged)
            with pytest.raises(OperationFailure, match="cross"):
                await fresh().find(CROSSED).to_list()
            with pytest.raises(OperationFailure, match="cross"):
                await fresh().count_documents(CROSSED)

    asyncio.run(ask())


@pytest.mark.mongo
def test_a_first_read_that_fails_may_be_tried_again(
    plain: Any, spatial: SpatialCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of shapes that only the server may judge: the cursor is as it was before."""
    for asked in (AROUND, LEFT_TO_THE_SERVER):
        fails = FailsOnce()
        monkeypatch.setattr(reading, "calm_find", fails)
        cursor = spatial.find(asked)
        with pytest.raises(AutoReconnect, match="once"):
            cursor.next()
        assert fails.closed == 1
        assert_same_documents(list(plain.find(asked)), cursor.to_list(), at_least=20)


def test_what_goes_wrong_asynchronously_is_not_hidden() -> None:
    async def ask(seconds: float, timeout: float) -> None:
        nowhere = AsyncMongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", serverSelectionTimeoutMS=timeout)
        async with nowhere as client:
            spatial = AsyncSpatialCollection(client.city.trips, info=known())
            async with spatial.find(within(SMALL)) as cursor:
                await asyncio.wait_for(cursor.to_list(), seconds)

    with pytest.raises(ServerSelectionTimeoutError, match="127"):
        asyncio.run(ask(20, 100))
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(ask(0.1, 20_000))


@pytest.mark.mongo
def test_pymongo_s_timeout_reaches_every_command(plain: Any, info: CollectionInfo) -> None:
    """Also those that are sent from other threads: the two of a count with an interior."""
    circle = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.05]}}}
    spatial = SpatialCollection(plain, info=info, qos=QoS(form="client"))
    assert spatial.count_documents(circle) == plain.count_documents(circle)
    for asked in (circle, AROUND):
        with pymongo.timeout(1e-9), pytest.raises((NetworkTimeout, ExecutionTimeout)):
            spatial.count_documents(asked)
