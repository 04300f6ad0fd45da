"""`SpatialCollection` and its asynchronous twin behave as pymongo's collections do: cursors, options, errors."""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from places import Setup, documents, make_collection, register
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.cursor import Cursor
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, InvalidDocument, InvalidOperation, OperationFailure
from pymongo.read_concern import ReadConcern

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.cursor import SpatialCursor
from spatialnosql.errors import UsageError
from spatialnosql.found import AsyncFound, Found
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import InfoCache, load_info, metadata_collection
from spatialnosql.rewrite import Plan, QoS
from spatialnosql.sphere import distances_m
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

Documents = Collection[dict[str, Any]]
POINT = {"type": "Point", "coordinates": [2.35, 48.86]}
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
NEAR = {"loc": {"$nearSphere": {"$geometry": POINT}}}
NEARBY = {"loc": {"$nearSphere": {"$geometry": POINT, "$maxDistance": 50_000}}}
GEO_NEAR = {"$geoNear": {"near": POINT, "distanceField": "d"}}
DATABASE = "test_collection"
# Under a thousand documents most covers do not pay; this many do.
LARGE = 1000


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    """A collection of 1,000 documents, whose statistics say that it is large."""
    client.drop_database(DATABASE)
    setup = Setup()
    collection = make_collection(client[DATABASE], "places", setup, documents(1000, 5, setup))
    true = run(load_info(collection)).histogram
    assert true is not None
    register(collection, setup, Histogram(true.bits, true.cells, true.counts * LARGE))
    yield collection
    client.drop_database(DATABASE)
    metadata_collection(collection).delete_many({"_id": {"$regex": f"^{DATABASE}[.]"}})


@pytest.fixture
def spatial(plain: Documents) -> SpatialCollection:
    made = SpatialCollection(plain)
    made.forget()
    return made


def plan_of(cursor: SpatialCursor) -> Plan:
    """The plan of a cursor that was read."""
    assert cursor.plan is not None
    return cursor.plan


# -- cursors ----------------------------------------------------------------------------------------------

CHAINS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda c: c.sort("n"),
    "sort downwards": lambda c: c.sort("n", -1),
    "sort by list": lambda c: c.sort([("kind", 1), ("n", -1)]),
    "sort by document": lambda c: c.sort({"kind": -1, "n": 1}),
    "limit": lambda c: c.sort("n").limit(5),
    "negative limit": lambda c: c.sort("n").limit(-5),
    "no limit": lambda c: c.sort("n").limit(5).limit(0),
    "skip": lambda c: c.sort("n").skip(7),
    "skip and limit": lambda c: c.limit(4).skip(3).sort("n"),
    "batch size": lambda c: c.sort("n").batch_size(3),
    "comment": lambda c: c.sort("n").comment("why"),
    "time": lambda c: c.sort("n").max_time_ms(100_000),
    "no time": lambda c: c.sort("n").max_time_ms(None),
    "disk": lambda c: c.sort("n").allow_disk_use(True),
    "hint": lambda c: c.sort("n").hint("loc_2dsphere"),
    "hint taken back": lambda c: c.sort("n").hint("loc_2dsphere").hint(None),
    "collation": lambda c: c.sort("n").collation({"locale": "en"}),
    "where": lambda c: c.sort("n").where("this.n % 2 == 0"),
    "min and max": lambda c: c.sort("n").hint("_id_").min([("_id", 5)]).max([("_id", 90)]),
    "options": lambda c: c.sort("n").add_option(16).remove_option(16),
    "slice": lambda c: c.sort("n")[2:6],
    "open slice": lambda c: c.sort("n")[4:],
    "slice from the start": lambda c: c.sort("n")[:3],
    "empty slice": lambda c: c.sort("n")[3:3],
    "clone": lambda c: c.sort("n").limit(3).clone(),
    "copy": lambda c: copy.copy(c.sort("n").limit(3)),
    "deep copy": lambda c: copy.deepcopy(c.sort("n").limit(3)),
    "rewind": lambda c: c.sort("n").rewind(),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_chained_calls_do_what_they_do_in_pymongo(
    chain: str, plain: Documents, spatial: SpatialCollection
) -> None:
    expected, actual = (list(CHAINS[chain](one.find(CIRCLE))) for one in (plain, spatial))
    assert_same_documents(expected, actual, ordered=True, at_least=0 if chain == "empty slice" else 3)


@pytest.mark.parametrize("chain", ["hint", "collation", "where", "min and max", "options", "empty slice"])
def test_calls_after_which_the_query_goes_as_it_is(chain: str, spatial: SpatialCollection) -> None:
    cursor = CHAINS[chain](spatial.find(CIRCLE))
    list(cursor)
    assert not plan_of(cursor).rewritten


def test_a_cursor_is_planned_when_it_is_first_read(spatial: SpatialCollection) -> None:
    cursor = spatial.find(CIRCLE)
    assert cursor.plan is None
    assert cursor.alive
    assert cursor.retrieved == 0
    assert cursor.cursor_id is None
    cursor.batch_size(2).next()
    assert plan_of(cursor).rewritten
    assert cursor.retrieved == 2
    assert cursor.cursor_id
    assert cursor.address is not None
    cursor.close()
    cursor.to_list()
    assert not cursor.alive


def test_reading_the_same_in_every_way(plain: Documents, spatial: SpatialCollection) -> None:
    expected = list(plain.find(CIRCLE).sort("n"))
    assert list(spatial.find(CIRCLE).sort("n")) == expected
    assert spatial.find(CIRCLE).sort("n").to_list() == expected
    assert spatial.find(CIRCLE).sort("n").to_list(3) == expected[:3]
    cursor = spatial.find(CIRCLE).sort("n")
    assert [next(cursor), cursor.next(), *cursor.to_list(2)] == expected[:4]
    with spatial.find(CIRCLE).sort("n").batch_size(3) as opened:
        assert next(opened) == expected[0]
    assert len(list(opened)) == 2  # those that were there already, as pymongo's
    assert not opened.alive
    assert spatial.find(CIRCLE).sort("n")[4] == expected[4]
    assert spatial.find(CIRCLE).sort("n").skip(2)[1] == expected[3]
    cursor.rewind()
    assert list(cursor) == expected
    assert list(cursor) == []
    assert list(cursor.clone()) == expected


def test_a_closed_cursor_gives_nothing(plain: Documents, spatial: SpatialCollection) -> None:
    for one in (plain, spatial):
        cursor = one.find(CIRCLE)
        cursor.close()
        assert list(cursor) == []
        assert not cursor.alive
        assert list(cursor.rewind())


def test_explaining_does_not_read(plain: Documents, spatial: SpatialCollection) -> None:
    cursor = spatial.find(CIRCLE).sort("n")
    explained = cursor.explain()
    assert "gh_1__id_1" in str(explained["queryPlanner"])
    assert list(cursor.limit(2)) == list(plain.find(CIRCLE).sort("n").limit(2))
    assert "gh_1__id_1" in str(spatial.find(NEAR).limit(3).explain()["queryPlanner"])
    tested = spatial.with_qos(form="server")
    assert "2dsphere" in str(tested.find(NEAR).limit(3).explain())
    assert "2dsphere" in str(spatial.find(CIRCLE).hint("loc_2dsphere").explain())


def test_distinct_of_a_cursor(plain: Documents, spatial: SpatialCollection) -> None:
    for query in (CIRCLE, NEARBY, NEAR):
        expected, actual = (one.find(query).distinct("kind") for one in (plain, spatial))
        assert sorted(expected) == sorted(actual)
        assert expected
        expected, actual = (one.find(query).limit(2).distinct("kind") for one in (plain, spatial))
        assert sorted(expected) == sorted(actual)


STARTED: dict[str, Callable[[Any], Any]] = {
    "limit": lambda c: c.limit(5),
    "skip": lambda c: c.skip(5),
    "sort": lambda c: c.sort("n"),
    "hint": lambda c: c.hint("gh_1__id_1"),
    "batch size": lambda c: c.batch_size(5),
    "comment": lambda c: c.comment("x"),
    "time": lambda c: c.max_time_ms(5),
    "collation": lambda c: c.collation({"locale": "en"}),
    "where": lambda c: c.where("true"),
    "disk": lambda c: c.allow_disk_use(True),
    "min": lambda c: c.min([("n", 1)]),
    "max": lambda c: c.max([("n", 1)]),
    "slice": lambda c: c[1:2],
    "index": lambda c: c[1],
    "option": lambda c: c.add_option(2),
}


@pytest.mark.parametrize("call", STARTED)
@pytest.mark.parametrize("query", [CIRCLE, NEAR, {}], ids=["rewritten", "nearest few", "as it is"])
def test_a_cursor_that_was_read_takes_no_options(
    call: str, query: dict[str, Any], plain: Documents, spatial: SpatialCollection
) -> None:
    for one in (plain, spatial):
        cursor = one.find(query, limit=20, batch_size=2)
        next(cursor)
        with pytest.raises(InvalidOperation, match="cannot set options after executing query"):
            STARTED[call](cursor)
        cursor.close()


NO_BSON = object()
BAD_CALLS: dict[str, Callable[[Any], Any]] = {
    "limit": lambda s: s.find(CIRCLE).limit("5"),
    "skip": lambda s: s.find(CIRCLE).skip(-1),
    "skip of text": lambda s: s.find(CIRCLE).skip("x"),
    "sort": lambda s: s.find(CIRCLE).sort([]),
    "sort of nothing": lambda s: s.find(CIRCLE).sort(5),
    "hint": lambda s: s.find(CIRCLE).hint(5),
    "batch size": lambda s: s.find(CIRCLE).batch_size(-1),
    "batch size of text": lambda s: s.find(CIRCLE).batch_size("x"),
    "time": lambda s: s.find(CIRCLE).max_time_ms("x"),
    "collation": lambda s: s.find(CIRCLE).collation(5),
    "disk": lambda s: s.find(CIRCLE).allow_disk_use("yes"),
    "min": lambda s: s.find(CIRCLE).min({"n": 1}),
    "max": lambda s: s.find(CIRCLE).max(5),
    "min without a hint": lambda s: list(s.find(CIRCLE).min([("n", 1)])),
    "where": lambda s: s.find(CIRCLE).where(5),
    "option": lambda s: s.find(CIRCLE).add_option("x"),
    "index": lambda s: s.find(CIRCLE)["x"],
    "negative index": lambda s: s.find(CIRCLE)[-1],
    "index beyond": lambda s: s.find(CIRCLE)[100_000],
    "step": lambda s: s.find(CIRCLE)[1:9:2],
    "negative slice": lambda s: s.find(CIRCLE)[-2:],
    "slice backwards": lambda s: s.find(CIRCLE)[5:2],
    "to_list": lambda s: s.find(CIRCLE).to_list(0),
    "to_list of the nearest": lambda s: s.find(NEAR).limit(5).to_list(0),
    "filter": lambda s: s.find("x"),
    "filter list": lambda s: list(s.find([CIRCLE])),
    "projection": lambda s: s.find(CIRCLE, 5),
    "keyword": lambda s: s.find(CIRCLE, wrong=1),
    "too many": lambda s: s.find(*range(40)),
    "key that is no text": lambda s: list(s.find({**CIRCLE, 5: 1})),
    "value that is no BSON": lambda s: list(s.find({**CIRCLE, "x": NO_BSON})),
    "count of nothing": lambda s: s.count_documents(None),
    "count keyword": lambda s: s.count_documents(CIRCLE, wrong=1),
    "count limit": lambda s: s.count_documents(CIRCLE, limit=-1),
    "count of a list": lambda s: s.count_documents([CIRCLE]),
    "distinct key": lambda s: s.distinct(5, CIRCLE),
    "distinct filter": lambda s: s.distinct("kind", 5),
    "pipeline": lambda s: s.aggregate(5),
    "pipeline of one": lambda s: s.aggregate({"$match": CIRCLE}),
    "pipeline as a tuple": lambda s: s.aggregate(({"$match": CIRCLE},)),
    "pipeline of text": lambda s: s.aggregate(["$match"]),
    "empty stage": lambda s: s.aggregate([{}]),
    "delete": lambda s: s.delete_many(5),
    "delete nothing": lambda s: s.delete_one(None),
    "find and delete": lambda s: s.find_one_and_delete(None),
    "call": lambda s: s.no_such_method(),
    "call itself": lambda s: s(),
    "truth": lambda s: bool(s),
    "iterate": lambda s: iter(s),
}


def raised(function: Callable[[Any], Any], one: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever pymongo raises
        function(one)
    return caught.value


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_arguments_raise_what_pymongo_raises(
    call: str, plain: Documents, spatial: SpatialCollection
) -> None:
    expected, actual = (raised(BAD_CALLS[call], one) for one in (plain, spatial))
    assert type(actual) is type(expected)
    assert getattr(actual, "code", None) == getattr(expected, "code", None)
    if isinstance(expected, OperationFailure):
        assert (actual.details or {}).get("errmsg") == (expected.details or {}).get("errmsg")
    elif call not in ("too many", "keyword", "iterate", "count keyword"):
        assert str(actual) == str(expected)


# -- the nearest few --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "skip"), [(1, 0), (10, 0), (-7, 0), (5, 20), (40, 3), (900, 0)])
@pytest.mark.parametrize("form", ["client", "server"])
def test_the_nearest_few(
    form: str, limit: int, skip: int, plain: Documents, spatial: SpatialCollection
) -> None:
    expected = list(plain.find(NEAR).skip(skip).limit(limit))
    cursor = spatial.with_qos(form=form).find(NEAR).skip(skip).limit(limit)
    found = list(cursor)
    # Of those equally far as the first or the last any choice will do.
    assert [distance(d) for d in found] == [distance(d) for d in expected]
    assert len({d["_id"] for d in found}) == len(expected) == abs(limit)
    plan = plan_of(cursor)
    assert (plan.rings if form == "client" else plan.near) is not None


def distance(document: dict[str, Any]) -> float:
    """From `POINT`, in metres, as the server computes it."""
    lng, lat = document["loc"]["coordinates"]
    return float(distances_m(*POINT["coordinates"], [lng], [lat])[0])


@pytest.mark.parametrize("form", ["client", "server"])
def test_more_of_the_nearest_than_there_are(form: str, plain: Documents, spatial: SpatialCollection) -> None:
    """Statistics promise enough; no window has them, and at last the query goes as it is, or to the last ring."""
    query = {**NEAR, "kind": "cafe", "size": 3, "tags": "a"}
    expected = list(plain.find(query))
    assert 1 <= len(expected) < 50
    cursor = spatial.with_qos(form=form).find(query).limit(50)
    assert_same_documents(expected, cursor, tie_key=distance)
    plan = plan_of(cursor)
    assert (plan.rings if form == "client" else plan.near) is not None


def test_the_cursor_of_the_nearest_few(plain: Documents, spatial: SpatialCollection) -> None:
    expected = list(plain.find(NEAR).limit(6))
    cursor = spatial.find(NEAR).limit(6)
    assert cursor.next() == expected[0]
    assert (cursor.alive, cursor.retrieved, cursor.cursor_id, cursor.session) == (True, 6, 0, None)
    assert len(cursor.to_list(2)) == 2
    assert len(cursor.to_list()) == 3
    assert not cursor.alive
    assert list(cursor) == []
    assert len(list(cursor.rewind())) == 6
    assert len(list(cursor.clone())) == 6
    cursor = spatial.find(NEAR).limit(6)
    next(cursor)
    cursor.close()
    assert len(list(cursor)) == 5  # those that were there already, as pymongo's
    assert spatial.find_one(NEAR) == expected[0]


def test_an_aggregation_of_the_nearest_few_has_a_cursor(plain: Documents, spatial: SpatialCollection) -> None:
    expected = list(plain.aggregate([GEO_NEAR, {"$limit": 5}]))
    with spatial.aggregate([GEO_NEAR, {"$limit": 5}]) as cursor:
        assert isinstance(cursor, Found)
        assert cursor.batch_size(2) is cursor
        assert cursor.try_next() == expected[0]
        assert_same_documents(expected[1:], cursor, tie_key="d", cut_by_limit=True)
        assert cursor.try_next() is None
        assert not cursor.alive
        with pytest.raises(StopIteration):
            cursor.next()
        with pytest.raises(TypeError, match="batch_size must be an integer"):
            cursor.batch_size("x")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="batch_size must be >= 0"):
            cursor.batch_size(-1)
        with pytest.raises(ValueError, match="length must be greater than 0"):
            cursor.to_list(0)


def test_found_has_what_a_command_cursor_has(plain: Documents) -> None:
    with plain.aggregate([]) as cursor:
        names = {name for name in dir(cursor) if not name.startswith("_")}
    assert names <= set(dir(Found([])))
    assert {name for name in names if callable(getattr(cursor, name))} <= set(dir(AsyncFound))


def test_a_cursor_has_what_pymongos_has() -> None:
    assert {name for name in dir(Cursor) if not name.startswith("_")} <= set(dir(SpatialCursor))


# -- the collection ---------------------------------------------------------------------------------------


def test_reads_are_rewritten_and_the_same(plain: Documents, spatial: SpatialCollection) -> None:
    assert spatial.plan(CIRCLE).rewritten
    assert spatial.count_documents(CIRCLE) == plain.count_documents(CIRCLE) > 10
    assert spatial.count_documents(CIRCLE, limit=5) == 5
    assert spatial.count_documents(CIRCLE, skip=5) == plain.count_documents(CIRCLE) - 5
    assert sorted(spatial.distinct("kind", CIRCLE)) == sorted(plain.distinct("kind", CIRCLE))
    assert sorted(spatial.distinct("kind")) == sorted(plain.distinct("kind"))
    assert spatial.find_one(CIRCLE, sort=[("n", 1)]) == plain.find_one(CIRCLE, sort=[("n", 1)])
    assert spatial.find_one(5) == plain.find_one(5) is not None
    assert spatial.find_one() is not None
    assert spatial.find_one({"kind": "none"}) is None
    by_kind = [{"$match": CIRCLE}, {"$sortByCount": "$kind"}, {"$sort": {"_id": 1}}]
    assert list(spatial.aggregate(by_kind)) == list(plain.aggregate(by_kind))


def test_options_by_position(plain: Documents, spatial: SpatialCollection, client: MongoClient[Any]) -> None:
    shown = {"_id": 0, "n": 1}
    assert_same_documents(
        plain.find(CIRCLE, shown, 2, 5, False, 0, [("n", 1)]),
        spatial.find(CIRCLE, shown, 2, 5, False, 0, [("n", 1)]),
        ordered=True,
        key="n",
    )
    assert spatial.find_one(CIRCLE, shown, 3) is not None
    with client.start_session() as session:
        assert spatial.count_documents(CIRCLE, session) == plain.count_documents(CIRCLE, session)
        assert sorted(spatial.distinct("n", CIRCLE, session)) == sorted(plain.distinct("n", CIRCLE, session))
        assert len(list(spatial.aggregate([{"$match": CIRCLE}], session))) > 0
    with pytest.raises(TypeError, match="got multiple values for argument 'session'"):
        spatial.count_documents(CIRCLE, None, session=None)
    with pytest.raises(TypeError, match="takes"):
        spatial.count_documents(CIRCLE, None, None, None, None, None)


@pytest.mark.parametrize(
    "make",
    [SON, lambda query: RawBSONDocument(__import__("bson").encode(query))],
    ids=["SON", "raw"],
)
def test_filters_of_other_types(make: Any, plain: Documents, spatial: SpatialCollection) -> None:
    for query in (CIRCLE, NEARBY, {"$and": [CIRCLE, {"n": {"$gt": 0}}]}):
        assert spatial.plan(make(query)).rewritten
        assert_same_documents(plain.find(query), spatial.find(make(query)))


def test_a_read_does_not_change_its_arguments(spatial: SpatialCollection) -> None:
    query = {"$and": [CIRCLE, {"$or": [CIRCLE, {"n": 5}]}], "kind": "cafe"}
    pipeline = [{"$match": query}, {"$sort": {"n": 1}}]
    before = copy.deepcopy((query, pipeline))
    list(spatial.find(query))
    list(spatial.aggregate(pipeline))
    spatial.count_documents(query)
    assert (query, pipeline) == before


def test_sessions_and_transactions(
    plain: Documents, spatial: SpatialCollection, client: MongoClient[Any]
) -> None:
    with client.start_session(causal_consistency=True) as session:
        cursor = spatial.find(CIRCLE, session=session)
        assert cursor.session is session
        assert_same_documents(plain.find(CIRCLE), cursor)
    with client.start_session() as session, session.start_transaction():
        spatial.insert_one({"_id": "inside", "loc": POINT}, session=session)
        assert spatial.find_one({**CIRCLE, "_id": "inside"}, session=session) is not None
        assert "inside" in [d["_id"] for d in spatial.find(CIRCLE, session=session)]
        assert "inside" in [d["_id"] for d in spatial.find(NEAR, session=session).limit(30)]
        assert spatial.count_documents(CIRCLE, session=session) == plain.count_documents(CIRCLE) + 1
        assert spatial.delete_many({**CIRCLE, "kind": {"$exists": False}}, session=session).deleted_count == 1
        session.abort_transaction()
    assert spatial.find_one({"_id": "inside"}) is None
    with client.start_session() as session:
        session.end_session()
        with pytest.raises(InvalidOperation, match="ended session"):
            list(spatial.find(CIRCLE, session=session))


def test_with_options_stays_spatial(spatial: SpatialCollection) -> None:
    other = spatial.with_options(
        CodecOptions(document_class=SON),
        ReadPreference.SECONDARY_PREFERRED,
        read_concern=ReadConcern("majority"),
    )
    assert isinstance(other, SpatialCollection)
    assert other.read_preference == ReadPreference.SECONDARY_PREFERRED
    assert other.read_concern.level == "majority"
    cursor = other.find(CIRCLE)
    assert isinstance(next(cursor), SON)
    assert plan_of(cursor).rewritten
    assert spatial.read_preference == ReadPreference.PRIMARY


def test_with_qos(spatial: SpatialCollection) -> None:
    narrow = spatial.with_qos(max_ranges=2)
    assert narrow.plan(CIRCLE).ranges <= 2 < spatial.plan(CIRCLE).ranges
    off = spatial.with_qos(rewrite=False)
    assert off.plan(CIRCLE).reasons == ("rewriting is turned off",)
    assert narrow.count_documents(CIRCLE) == off.count_documents(CIRCLE) == spatial.count_documents(CIRCLE)
    with pytest.raises(UsageError, match="max_ranges is 0"):
        spatial.with_qos(max_ranges=0)


def test_the_rest_is_pymongos_own(plain: Documents, spatial: SpatialCollection) -> None:
    assert spatial.name == "places"
    assert spatial.full_name == plain.full_name
    assert spatial.database == plain.database
    assert spatial.sub.name == spatial["sub"].name == "places.sub"
    assert spatial.estimated_document_count() == plain.estimated_document_count()
    assert spatial.index_information() == plain.index_information()
    assert b"".join(spatial.find_raw_batches({"_id": 5})) == b"".join(plain.find_raw_batches({"_id": 5}))
    assert spatial.create_index("score") == "score_1"
    spatial.drop_index("score_1")
    with spatial.watch() as stream:
        assert stream.try_next() is None
    assert spatial == SpatialCollection(plain)
    assert spatial != plain
    assert hash(spatial) == hash(plain)
    assert repr(spatial).startswith("SpatialCollection(Collection(")
    assert copy.copy(spatial) == spatial


def test_every_method_of_a_collection_is_there_with_its_name() -> None:
    """What pymongo has, we have, and neither renamed nor with other first arguments."""
    for kind, own in (
        (Collection, SpatialCollection),
        (AsyncSpatialCollection._kind, AsyncSpatialCollection),
    ):
        for name, method in vars(own).items():
            if name.startswith("_") or name in ("plan", "explain", "find_stk"):
                continue
            theirs = [
                n for n in inspect.signature(getattr(kind, name)).parameters if n not in ("args", "kwargs")
            ]
            ours = [n for n in inspect.signature(method).parameters if n not in ("arguments", "options")]
            assert theirs[: len(ours)] == ours


def test_only_collections_can_be_spatial(plain: Documents) -> None:
    with pytest.raises(UsageError, match="SpatialCollection takes a pymongo Collection"):
        SpatialCollection("places")
    with pytest.raises(UsageError, match="AsyncSpatialCollection takes a pymongo AsyncCollection"):
        AsyncSpatialCollection(plain)


def test_deletes(database: Database[dict[str, Any]]) -> None:
    setup = Setup()
    content = documents(600, 9, setup)
    twins = [make_collection(database, name, setup, content) for name in ("plain", "spatial")]
    ours = SpatialCollection(twins[1], info=_large(twins[1]))
    everything: list[Any] = [twins[0], ours]
    assert ours.plan(CIRCLE).rewritten
    kind = {**CIRCLE, "kind": "cafe"}
    assert len({one.delete_many(kind).deleted_count for one in everything}) == 1
    assert len({str(one.find_one_and_delete(CIRCLE, sort=[("n", 1)])) for one in everything}) == 1
    assert len({str(one.find_one_and_delete(CIRCLE, {"n": 1}, [("n", -1)])) for one in everything}) == 1
    last = {**CIRCLE, "n": twins[0].find_one(CIRCLE, sort=[("n", 1)])["n"]}  # type: ignore[index]
    assert [one.delete_one(last).deleted_count for one in everything] == [1, 1]
    assert [one.delete_many({**CIRCLE, "n": -1}).deleted_count for one in everything] == [0, 0]
    assert_same_documents(twins[0].find(), twins[1].find(), at_least=300)
    assert twins[0].count_documents({}) < 600 - 5
    metadata_collection(twins[0]).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def _large(collection: Documents) -> CollectionInfo:
    """What is known of a collection, as if it were a thousand times as large."""
    from dataclasses import replace

    info = run(load_info(collection))
    assert info.histogram is not None
    true = info.histogram
    return replace(info, histogram=Histogram(true.bits, true.cells, true.counts * LARGE))


# -- time -------------------------------------------------------------------------------------------------

SLEEP = {"$function": {"body": "function() { sleep(120); return true; }", "args": [], "lang": "js"}}
SLOW = {**CIRCLE, "$expr": SLEEP}
SLOW_NEAR = {**NEAR, "$expr": SLEEP}


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: list(s.find(SLOW).max_time_ms(60)),
        lambda s: list(s.find(SLOW, max_time_ms=60)),
        lambda s: list(s.find(SLOW_NEAR, max_time_ms=60).limit(5)),
        lambda s: s.find_one(SLOW_NEAR, max_time_ms=60),
        lambda s: s.count_documents(SLOW, maxTimeMS=60),
        lambda s: s.distinct("kind", SLOW, maxTimeMS=60),
        lambda s: list(s.aggregate([{"$match": SLOW}], maxTimeMS=60)),
        lambda s: s.find_one_and_delete(SLOW, maxTimeMS=60),
    ],
    ids=["cursor", "find", "nearest", "find_one", "count", "distinct", "aggregate", "find_one_and_delete"],
)
def test_a_timeout_comes_through_untouched(ask: Callable[[Any], Any], spatial: SpatialCollection) -> None:
    with pytest.raises(ExecutionTimeout) as caught:
        ask(spatial)
    assert caught.value.code == 50


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: list(s.find(SLOW)),
        lambda s: list(s.find({"$expr": SLEEP})),
        lambda s: list(s.find(SLOW_NEAR).limit(5)),
        lambda s: s.count_documents(SLOW),
        lambda s: s.distinct("kind", SLOW),
        lambda s: list(s.aggregate([{"$match": SLOW}])),
    ],
    ids=["rewritten", "as it is", "nearest", "count", "distinct", "aggregate"],
)
def test_the_callers_time_limit_holds_for_every_read(
    ask: Callable[[Any], Any], spatial: SpatialCollection
) -> None:
    with pytest.raises(ExecutionTimeout) as caught:
        ask(spatial.with_qos(max_time_ms=60))
    assert caught.value.code == 50


def test_a_time_limit_of_the_query_goes_before_that_of_the_collection(spatial: SpatialCollection) -> None:
    hurried = spatial.with_qos(max_time_ms=60)
    assert len(list(hurried.find(SLOW, max_time_ms=100_000).limit(3))) == 3
    assert hurried.count_documents(SLOW, maxTimeMS=100_000, limit=3) == 3


def test_one_time_limit_over_all_windows(plain: Documents) -> None:
    """A window that is too small, again and again: each next command has what is left of the time."""
    sent: list[int] = []

    class Watched:
        """A collection that tells how much time each find was given."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def find(self, *arguments: Any, **options: Any) -> Any:
            if options.get("max_time_ms") is not None and "$and" in options.get("filter", {}):
                sent.append(options["max_time_ms"])
                time.sleep(0.01)
            return self._real.find(*arguments, **options)

    query = {**NEAR, "kind": "cafe", "size": 3, "tags": "a"}
    spatial = SpatialCollection(plain)
    cursor = SpatialCursor(
        Watched(plain),
        spatial._load_info,
        QoS(form="server"),
        (query,),
        {"limit": 50, "max_time_ms": 60_000},
    )
    list(cursor)
    assert len(sent) >= 2
    assert sent == sorted(sent, reverse=True)
    assert len(set(sent)) == len(sent)
    assert 0 < sent[-1] < sent[0] <= 60_000


# -- what is known of a collection ------------------------------------------------------------------------


def test_a_collection_that_was_never_adopted(database: Database[dict[str, Any]]) -> None:
    missing = SpatialCollection(database["nothing"])
    assert missing.plan(CIRCLE).reasons == ("it does not exist",)
    assert list(missing.find(CIRCLE)) == []
    assert missing.count_documents(CIRCLE) == 0
    database["other"].insert_many([{"_id": 1, "loc": POINT}, {"_id": 2, "loc": [2.35, 48.86]}])
    database["other"].create_index([("loc", "2dsphere")])
    other = SpatialCollection(database["other"])
    assert other.plan(CIRCLE).reasons == ("it was never adopted or ingested",)
    assert other.count_documents(CIRCLE) == 2
    assert len(list(other.find(NEAR).limit(5))) == 2
    assert other.delete_many(CIRCLE).deleted_count == 2


def test_a_view_passes_unchanged(database: Database[dict[str, Any]]) -> None:
    setup = Setup()
    collection = make_collection(database, "places", setup, documents(100, 3, setup))
    database.create_collection(
        "elsewhere", viewOn="places", pipeline=[{"$set": {"loc": POINT, "gh": "000000000000"}}]
    )
    # As if somebody had registered it: the metadata alone must not be believed.
    register(database["elsewhere"], setup, None)
    view = SpatialCollection(database["elsewhere"])
    assert view.plan(CIRCLE).reasons == ("it is a view",)
    assert view.count_documents(CIRCLE) == database["elsewhere"].count_documents(CIRCLE) == 100
    metadata_collection(collection).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"validator": {}}, "no validator guarantees that gh is true"),
        ({"validationAction": "warn"}, "no validator guarantees that gh is true"),
        ({"validationLevel": "moderate"}, "no validator guarantees that gh is true"),
        ({"validationLevel": "off"}, "no validator guarantees that gh is true"),
        ({"validator": {"gh": {"$type": "string"}}}, "no validator guarantees that gh is true"),
    ],
)
def test_without_the_servers_guarantee_queries_pass_unchanged(
    change: dict[str, Any], reason: str, database: Database[dict[str, Any]]
) -> None:
    setup = Setup()
    collection = make_collection(database, "places", setup, documents(100, 3, setup))
    spatial = SpatialCollection(collection, qos=QoS(max_ranges=3))
    register(collection, setup, None)
    assert spatial.plan(CIRCLE).rewritten
    database.command("collMod", "places", **change)
    # Wrong, and the rules of the collection do not forbid it any more: it must be found where it is.
    stray = {"_id": "stray", "loc": POINT, "gh": "000000000000"}
    collection.insert_one(stray, bypass_document_validation=True)
    spatial.forget()
    plan = spatial.plan(CIRCLE)
    assert not plan.rewritten
    assert reason in plan.reasons[0]
    assert "stray" in [d["_id"] for d in spatial.find(CIRCLE)]
    # The caller's word against it: then what is wrong is missed, as trust_gh says.
    trusting = SpatialCollection(collection, trust_gh=True)
    assert trusting.plan(CIRCLE).rewritten
    assert "stray" not in [d["_id"] for d in trusting.find(CIRCLE)]
    metadata_collection(collection).delete_one({"_id": collection.full_name})


def test_while_it_is_being_adopted_or_has_another_collation(database: Database[dict[str, Any]]) -> None:
    setup = Setup()
    collection = make_collection(database, "places", setup, documents(100, 3, setup))
    register(collection, setup, None, state="adopting")
    assert SpatialCollection(collection).plan(CIRCLE).reasons == ("it is still being adopted",)
    database.create_collection("french", collation={"locale": "fr"})
    register(database["french"], setup, None)
    assert "a collation of its own" in SpatialCollection(database["french"]).plan(CIRCLE).reasons[0]
    metadata_collection(collection).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def test_what_is_known_expires_and_can_be_forgotten(database: Database[dict[str, Any]]) -> None:
    setup = Setup()
    collection = make_collection(database, "places", setup, documents(100, 3, setup))
    register(collection, setup, None)
    spatial = SpatialCollection(collection)
    assert spatial.plan(CIRCLE).rewritten
    register(collection, setup, None, state="adopting")
    assert spatial.plan(CIRCLE).rewritten  # from the cache, which another object of the same client shares
    assert SpatialCollection(collection).plan(CIRCLE).rewritten
    SpatialCollection(collection).forget()
    assert not spatial.plan(CIRCLE).rewritten
    cache = InfoCache(expiry_s=0.0)
    assert run(cache.info(collection)).why_not == "it is still being adopted"
    register(collection, setup, None)
    assert run(cache.info(collection)).why_not is None
    metadata_collection(collection).delete_one({"_id": collection.full_name})


def test_errors_of_the_server_pass_through(plain: Documents, spatial: SpatialCollection) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda s: list(s.find({**CIRCLE, "$nonsense": 1})),
        lambda s: list(s.find({**NEAR, "$nonsense": 1}).limit(5)),
        lambda s: list(s.find(CIRCLE, hint="no_such_index")),
        lambda s: list(s.aggregate([{"$match": CIRCLE}, {"$nonsense": 1}])),
        lambda s: list(s.aggregate([{"$match": CIRCLE}, {"$set": {"x": {"$divide": ["$n", 0]}}}])),
        lambda s: s.count_documents(NEAR),
        lambda s: list(s.find({**CIRCLE, "$text": {"$search": "x"}})),
        lambda s: s.delete_many({**CIRCLE, "n": {"$nonsense": 1}}),
    ]
    for call in calls:
        expected, actual = raised(call, plain), raised(call, spatial)
        assert isinstance(expected, OperationFailure)
        assert type(actual) is type(expected)
        assert isinstance(actual, OperationFailure)
        assert actual.code == expected.code


def test_a_key_that_is_no_text_is_pymongos_error(spatial: SpatialCollection) -> None:
    with pytest.raises(InvalidDocument):
        list(spatial.find({**CIRCLE, 5: 1}))


# -- the asynchronous twin --------------------------------------------------------------------------------


def asynchronously(plain: Documents, work: Callable[[Any, Any], Awaitable[None]]) -> None:
    """Run work with an asynchronous collection, plain and spatial."""

    async def main() -> None:
        host, port = plain.database.client.address or ("", 0)
        async with AsyncMongoClient[dict[str, Any]](host, port) as client:
            theirs = client[plain.database.name][plain.name]
            await work(theirs, AsyncSpatialCollection(theirs))

    asyncio.run(main())


def test_asynchronous_reads(plain: Documents) -> None:
    async def work(theirs: Any, ours: Any) -> None:
        assert (await ours.plan(CIRCLE)).rewritten
        expected = await theirs.find(CIRCLE).sort("n").to_list()
        assert len(expected) > 10
        assert [d async for d in ours.find(CIRCLE).sort("n")] == expected
        assert await ours.find(CIRCLE).sort("n").to_list(4) == expected[:4]
        assert await ours.find(CIRCLE).sort("n").limit(3).skip(1).next() == expected[1]
        assert await ours.find_one(CIRCLE, sort=[("n", 1)]) == expected[0]
        assert await ours.find_one({"kind": "none"}) is None
        assert await ours.count_documents(CIRCLE) == len(expected)
        assert sorted(await ours.distinct("n", CIRCLE)) == [d["n"] for d in expected]
        assert sorted(await ours.find(CIRCLE).distinct("n")) == [d["n"] for d in expected]
        pipeline = [{"$match": CIRCLE}, {"$sort": {"n": 1}}]
        assert await (await ours.aggregate(pipeline)).to_list() == expected
        assert "gh_1__id_1" in str(await ours.find(CIRCLE).explain())
        explanation = await ours.explain(CIRCLE)
        assert explanation.rewritten is not None
        assert (await ours.with_options().with_qos(rewrite=False).plan(CIRCLE)).rewritten is False
        assert ours.name == theirs.name

    asynchronously(plain, work)


def test_asynchronous_cursors(plain: Documents) -> None:
    async def work(theirs: Any, ours: Any) -> None:
        for query, order in ((CIRCLE, {"n": 1}), (NEAR, None), ({}, {"n": 1})):
            for one in (theirs, ours):
                cursor = one.find(query, limit=6, batch_size=2, sort=order)
                first = await cursor.next()
                with pytest.raises(InvalidOperation, match="cannot set options"):
                    cursor.limit(3)
                assert cursor.alive
                await cursor.rewind()
                assert await cursor.next() == first
                await cursor.close()
                assert len([d async for d in cursor]) <= 1
                assert len(await cursor.clone().to_list()) == 6
                async with one.find(query, limit=3, batch_size=2) as opened:
                    assert await anext(opened)
                assert len(await opened.to_list()) <= 1
                assert not opened.alive
                closed = one.find(query)
                await closed.close()
                assert await closed.to_list() == []
                with pytest.raises(IndexError, match="does not support indexing"):
                    one.find(query)[0]
                with pytest.raises(ValueError, match="length must be greater than 0"):
                    await one.find(query).limit(3).to_list(0)

    asynchronously(plain, work)


def test_asynchronous_nearest_few(plain: Documents) -> None:
    async def work(theirs: Any, ours: Any) -> None:
        expected = await theirs.find(NEAR).limit(9).to_list()
        cursor = ours.find(NEAR).limit(9)
        found = [d async for d in cursor]
        assert cursor.plan.rings is not None
        places = [[d["loc"]["coordinates"] for d in answer] for answer in (expected, found)]
        assert places[0] == places[1]
        assert "gh_1__id_1" in str(await ours.find(NEAR).limit(9).explain())
        assert await ours.find(NEAR).limit(2).distinct("kind")
        stages = [GEO_NEAR, {"$limit": 9}]
        aggregated = await ours.aggregate(stages)
        assert isinstance(aggregated, AsyncFound)
        assert aggregated.batch_size(3) is aggregated
        assert aggregated.alive
        first = await aggregated.try_next()
        assert first["loc"]["coordinates"] == places[0][0]
        assert len(await aggregated.to_list(3)) == 3
        assert len([d async for d in aggregated]) == 5
        assert await aggregated.try_next() is None
        async with await ours.aggregate(stages) as again:
            assert await again.next()
        assert len(await again.to_list()) == 8

    asynchronously(plain, work)


def test_asynchronous_deletes_and_errors(database: Database[dict[str, Any]]) -> None:
    setup = Setup()
    collection = make_collection(database, "places", setup, documents(400, 9, setup))
    register(collection, setup, None)

    async def work(theirs: Any, ours: Any) -> None:
        count = await theirs.count_documents(CIRCLE)
        assert count > 10
        first = await theirs.find_one(CIRCLE, sort=[("n", 1)])
        assert await ours.find_one_and_delete(CIRCLE, sort=[("n", 1)]) == first
        second = await theirs.find_one(CIRCLE, sort=[("n", 1)])
        assert (await ours.delete_one({**CIRCLE, "n": second["n"]})).deleted_count == 1
        assert (await ours.delete_many(CIRCLE)).deleted_count == count - 2
        assert await theirs.count_documents(CIRCLE) == 0
        with pytest.raises(OperationFailure, match="nonsense"):
            await ours.count_documents({**CIRCLE, "$nonsense": 1})
        with pytest.raises(TypeError, match="filter must be"):
            ours.find("x")

    asynchronously(collection, work)
    metadata_collection(collection).delete_one({"_id": collection.full_name})


def test_documents_of_the_fixture_are_where_they_say(plain: Documents) -> None:
    """The guard of all of the above: the circle holds some documents and leaves out most."""
    inside = plain.count_documents(CIRCLE)
    assert 20 < inside < 500
    places = np.array([d["loc"]["coordinates"] for d in plain.find(CIRCLE)])
    assert np.ptp(places, axis=0).max() < 3
