"""Finds settled in the client: what pymongo's cursor gives, however it is read."""

from __future__ import annotations

import asyncio
import datetime as dt
import tracemalloc
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import bson
import numpy as np
import pytest
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from differential import KINDS, Question, points_for
from places import Setup, documents, make_collection
from pymongo import AsyncMongoClient, MongoClient, monitoring
from pymongo.errors import AutoReconnect, InvalidOperation, OperationFailure
from pymongo.read_concern import ReadConcern
from spies import answers_of

from spatialnosql import reading, settled_find
from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.costs import Costs
from spatialnosql.experience import Experience
from spatialnosql.geohash import cells_to_strings, point_to_geohash, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import QoS
from spatialnosql.settle import IN, OUT, UNSURE
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.05]}}}
CLIENT = QoS(form="client")
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def questions() -> list[Question]:
    rng = np.random.default_rng(17)
    kinds = [kind for kind in KINDS if kind not in ("near", "geo_near")]
    return [KINDS[kind](rng) for kind in kinds for _ in range(2)]


def strange_ids() -> list[Any]:
    standard = bson.Binary.from_uuid(ID)
    legacy = bson.Binary.from_uuid(ID, UuidRepresentation.PYTHON_LEGACY)
    when = dt.datetime(2020, 2, 29, 12, 30, tzinfo=dt.timezone.utc)
    some: list[Any] = [
        None,
        b"bytes",
        {"a": 1, "b": {"c": 2}},
        SON([("b", 1), ("a", 2)]),
        when,
        standard,
        legacy,
    ]
    return [
        *some,
        bson.ObjectId("5" * 24),
        True,
        2.5,
        bson.Int64(2**40),
        Decimal128("7.25"),
        bson.MinKey(),
        "id",
        "",
    ]


def border_documents() -> list[dict[str, Any]]:
    """At the border of `CIRCLE` and of a box, with ids of every type, inside and outside."""
    made = []
    for number, name in enumerate(strange_ids()):
        for id_, x, y in ((name, 2.0, 48.0 + number / 50), ({"again": name}, 2.0, 48.9 + number / 50)):
            gh = str(cells_to_strings(points_to_cells([x], [y]))[0])
            when = dt.datetime(2021, 1, 1, number)
            made.append({"_id": id_, "n": 200_000 + len(made), "loc": [x, y], "gh": gh, "when": when})
    return made


BOX = {"loc": {"$geoWithin": {"$box": [[2.0, 47.0], [3.0, 49.0]]}}}


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client["test_settled_find"]
    client.drop_database(database.name)
    setup = Setup("loc", "any")
    content = documents(1500, 7, setup)
    rng = np.random.default_rng(12)
    for question in questions():
        lng, lat = points_for(question, rng, 24)
        hashes = cells_to_strings(points_to_cells(lng, lat))
        for x, y, gh in zip(lng.tolist(), lat.tolist(), hashes, strict=True):
            point = {"type": "Point", "coordinates": [x, y]}
            content.append({"_id": len(content), "n": 300_000 + len(content), "loc": point, "gh": str(gh)})
    collection = make_collection(database, "points", setup, content)
    collection.insert_many(border_documents())
    yield collection
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


@pytest.fixture(scope="module")
def info(plain: Any) -> CollectionInfo:
    found = run(load_info(plain))
    assert found.why_not is None
    return found


@pytest.fixture
def spatial(plain: Any, info: CollectionInfo) -> SpatialCollection:
    return SpatialCollection(plain, info=replace(info), qos=CLIENT)


def answer(collection: Any, asked: Any, **options: Any) -> tuple[list[Any], int | None]:
    try:
        return list(collection.find(asked, **options)), None
    except OperationFailure as error:
        return [], error.code


def is_settled(spatial: SpatialCollection, asked: Any, **options: Any) -> bool:
    return spatial.plan(asked, **options).settled is not None


@pytest.mark.parametrize("times", [500])
def test_points_on_borders(
    plain: Any, info: CollectionInfo, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert info.histogram is not None
    counts = info.histogram.counts * times
    more = replace(info, histogram=Histogram(info.histogram.bits, info.histogram.cells, counts))
    spatial = SpatialCollection(plain, info=more, qos=CLIENT)
    undecided = answers_of(monkeypatch, settled_find, "settle_cells")
    closely = answers_of(monkeypatch, settled_find, "settled_by_place")
    settled = found = 0
    for number, question in enumerate(questions()):
        asked: dict[str, Any] = {"loc": question.condition}
        if number % 3 == 0:
            asked["n"] = {"$gte": 500}
        expected, actual = answer(plain, asked), answer(spatial, asked, batch_size=(0, 5)[number % 2])
        assert expected[1] == actual[1], asked
        assert_same_documents(expected[0], actual[0], at_least=0)
        settled += is_settled(spatial, asked)
        found += len(expected[0])
    assert settled > 30
    assert found > 1000
    assert sum(int((status == UNSURE).sum()) for status in undecided) > 100
    assert set(np.concatenate(closely).tolist()) == {IN, OUT, UNSURE}


OPTIONS: tuple[dict[str, Any], ...] = (
    {"sort": [("n", 1)]},
    {"sort": [("n", -1)], "skip": 5},
    {"sort": [("n", 1)], "limit": 7},
    {"sort": [("n", 1)], "limit": 7, "skip": 3},
    {"sort": {"kind": 1, "n": -1}, "batch_size": 3},
    {"sort": [("n", 1)], "projection": {"_id": 0, "n": 1}, "batch_size": 1},
    {"sort": [("n", 1)], "skip": 10_000},
    {"sort": [("n", 1)], "limit": -4},
    {"sort": [("n", 1)], "allow_disk_use": True, "comment": "why", "no_cursor_timeout": False},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("asked", [CIRCLE, BOX], ids=["circle", "box"])
def test_sorted(plain: Any, spatial: SpatialCollection, asked: Any, options: dict[str, Any]) -> None:
    expected, found = list(plain.find(asked, **options)), list(spatial.find(asked, **options))
    least = 0 if options.get("skip") == 10_000 else 4
    assert_same_documents(expected, found, ordered=True, at_least=least, key="n")
    assert is_settled(spatial, asked, **options) is ("limit" not in options)


@pytest.mark.parametrize("batch_size", [0, 2, 1000])
@pytest.mark.parametrize(
    ("skip", "limit"), [(0, 0), (0, 1), (3, 9), (5, 0), (0, 100_000), (100_000, 3), (2, -6)]
)
def test_cut(plain: Any, spatial: SpatialCollection, skip: int, limit: int, batch_size: int) -> None:
    """Without an order any documents of the answer will do, but as many, and none twice."""
    options = {"skip": skip, "limit": limit, "batch_size": batch_size}
    whole = {bson.encode(d) for d in plain.find(CIRCLE)}
    expected = list(plain.find(CIRCLE, **options))
    assert is_settled(spatial, CIRCLE, **options)
    for found in (list(spatial.find(CIRCLE, **options)), spatial.find(CIRCLE, **options).to_list()):
        assert len(found) == len(expected)
        names = {bson.encode(d) for d in found}
        assert len(names) == len(found)
        assert names <= whole
    assert len(spatial.find(CIRCLE, **options).to_list(4)) == min(4, len(expected))


def test_ids_of_any_type(plain: Any, spatial: SpatialCollection) -> None:
    """Points on the border are asked of the server, and its answers are told apart by their ids."""
    expected = list(plain.find(BOX))
    assert sum(type(d["_id"]) is not int for d in expected) >= 2 * len(strange_ids()) - 10
    assert_same_documents(expected, spatial.find(BOX), key="n")
    assert is_settled(spatial, BOX)


@pytest.mark.parametrize(
    "codec",
    [
        CodecOptions(tz_aware=True),
        CodecOptions(tz_aware=True, tzinfo=dt.timezone(dt.timedelta(hours=5))),
        CodecOptions(uuid_representation=UuidRepresentation.STANDARD),
        CodecOptions(uuid_representation=UuidRepresentation.PYTHON_LEGACY),
        CodecOptions(document_class=SON),
        CodecOptions(datetime_conversion=bson.DatetimeConversion.DATETIME_MS),
    ],
    ids=str,
)
@pytest.mark.parametrize("projection", [None, {"when": 1, "_id": 0}, {"when": 1}])
def test_codec_options(plain: Any, info: CollectionInfo, codec: Any, projection: Any) -> None:
    own = plain.with_options(codec_options=codec)
    spatial = SpatialCollection(own, info=info, qos=CLIENT)
    options = {"sort": [("n", 1)], "projection": projection}
    expected, found = list(own.find(BOX, **options)), list(spatial.find(BOX, **options))
    assert is_settled(spatial, BOX, **options)
    assert len(expected) > 20
    assert found == expected
    assert {type(d) for d in found} == {codec.document_class}
    assert [list(map(type, d.values())) for d in found] == [list(map(type, d.values())) for d in expected]


class _Decimals(TypeDecoder):
    bson_type = Decimal128

    def transform_bson(self, value: Any) -> Any:
        return value.to_decimal()


class _Strings(TypeDecoder):
    bson_type = str

    def transform_bson(self, value: Any) -> Any:
        return ("text", value)


@pytest.mark.parametrize(
    "codec",
    [
        CodecOptions(document_class=RawBSONDocument),
        CodecOptions(type_registry=TypeRegistry([_Decimals()])),
        CodecOptions(type_registry=TypeRegistry([_Strings()])),
    ],
    ids=["raw", "decimals", "strings"],
)
def test_documents_that_only_the_caller_can_read(plain: Any, info: CollectionInfo, codec: Any) -> None:
    own = plain.with_options(codec_options=codec)
    spatial = SpatialCollection(own, info=info, qos=CLIENT)
    near = {"loc": {"$nearSphere": [2.0, 48.0]}}
    assert not is_settled(spatial, BOX)
    assert spatial.plan(near, limit=5).rings is None
    expected = list(own.find(BOX, sort=[("n", 1)]))
    assert len(expected) > 20
    assert list(spatial.find(BOX, sort=[("n", 1)])) == expected
    assert len(list(spatial.find(near).limit(5))) == 5


def test_a_uuid_in_the_filter(plain: Any, info: CollectionInfo) -> None:
    """Only the collection's codec can encode it."""
    own = plain.with_options(codec_options=CodecOptions(uuid_representation=UuidRepresentation.STANDARD))
    spatial = SpatialCollection(own, info=info, qos=CLIENT)
    asked = {**BOX, "ref": {"$ne": ID}}
    assert is_settled(spatial, asked)
    assert sorted(d["n"] for d in spatial.find(asked)) == sorted(d["n"] for d in plain.find(BOX))
    assert spatial.count_documents(asked) == plain.count_documents(BOX)
    near = {"loc": {"$nearSphere": [2.0, 48.0]}, "ref": {"$ne": ID}}
    assert len(list(spatial.find(near).limit(5))) == 5
    with pytest.raises(ValueError, match="cannot encode native uuid"):
        list(SpatialCollection(plain, info=info, qos=CLIENT).find(asked))


def test_filters_that_change_afterwards(plain: Any, info: CollectionInfo) -> None:
    for qos in (CLIENT, QoS(form="server"), QoS()):
        spatial = SpatialCollection(plain, info=replace(info), qos=qos)

        def asked(least: int) -> dict[str, Any]:
            return {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.05]}}, "n": {"$gte": least}}

        first = asked(0)
        expected = plain.count_documents(first)
        assert spatial.count_documents(first) == len(list(spatial.find(first))) == expected > 20
        first["n"]["$gte"] = 10**9
        first["loc"]["$geoWithin"]["$centerSphere"][1] = 1e-9
        first["more"] = 5
        # The same question from somebody else.
        assert spatial.count_documents(asked(0)) == len(list(spatial.find(asked(0)))) == expected
        reading = spatial.find(again := asked(0), batch_size=2)
        next(reading)
        again["n"]["$gte"] = 10**9
        again["loc"]["$geoWithin"] = {"$box": [[0, 0], [1, 1]]}
        assert 1 + len(list(reading)) == expected


@pytest.mark.parametrize(
    "coordinates",
    [[], [[]], [[[]]], [[[[1], [2], [3], [1]]]], [[[[1, [2]], [2, 3]]]], None, 5, "x", [["x"]]],
    ids=str,
)
@pytest.mark.parametrize("kind", ["Polygon", "MultiPolygon"])
def test_shapes_that_are_none(plain: Any, info: CollectionInfo, kind: str, coordinates: Any) -> None:
    asked = {"loc": {"$geoWithin": {"$geometry": {"type": kind, "coordinates": coordinates}}}}
    refused = answer(plain, asked)[1]
    assert refused is not None
    for qos in (QoS(), CLIENT):
        assert answer(SpatialCollection(plain, info=info, qos=qos), asked)[1] == refused


# -- the cursor -------------------------------------------------------------------------------------------


def test_clone_rewind_explain_and_slices(plain: Any, spatial: SpatialCollection) -> None:
    cursor = spatial.find(CIRCLE, sort=[("n", 1)], batch_size=3)
    expected = list(plain.find(CIRCLE, sort=[("n", 1)]))
    assert cursor.alive
    assert [next(cursor), next(cursor)] == expected[:2]
    assert cursor.plan is not None
    assert cursor.plan.settled is not None
    assert cursor.retrieved >= 2
    assert cursor.cursor_id
    with pytest.raises(InvalidOperation, match="cannot set options after executing query"):
        cursor.limit(3)
    twin = cursor.clone()
    assert list(twin) == expected
    assert not twin.alive
    assert cursor.rewind() is cursor
    assert list(cursor) == expected
    assert cursor.rewind().to_list() == expected
    assert cursor.to_list() == []
    assert list(spatial.find(CIRCLE, sort=[("n", 1)])[3:8]) == expected[3:8]
    assert spatial.find(CIRCLE, sort=[("n", 1)])[4] == expected[4]
    assert sorted(spatial.find(CIRCLE).distinct("n")) == [d["n"] for d in expected]
    stages = str(spatial.find(CIRCLE).explain())
    assert "IXSCAN" in stages
    assert "gh_1__id_1" in stages
    assert "$centerSphere" not in stages
    with spatial.find(CIRCLE) as within:
        assert next(within) is not None
    with pytest.raises(ValueError, match="length must be greater than 0"):
        spatial.find(CIRCLE).to_list(0)


class _Commands(monitoring.CommandListener):
    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.seen.append(event.command)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass

    def names(self) -> list[str]:
        return [next(iter(command)) for command in self.seen]


def test_read_as_far_as_wanted_and_closed_early(plain: Any, info: CollectionInfo, cluster: Any) -> None:
    commands = _Commands()
    with MongoClient(cluster.uri, event_listeners=[commands]) as client:
        listened = client["test_settled_find"]["points"]
        spatial = SpatialCollection(listened, info=info, qos=CLIENT)
        cursor = spatial.find(CIRCLE, batch_size=5)
        assert commands.names() == []
        next(cursor)
        sent = [command for command in commands.seen if "find" in command]
        assert all(command["batchSize"] == 5 for command in sent if "batchSize" in command)
        assert "$geoWithin" not in str(sent[0])
        cursor.close()
        assert commands.names()[-1] == "killCursors"
        assert not list(cursor)[5:]
        commands.seen.clear()
        # A limit that is filled leaves no cursor behind either.
        assert len(list(spatial.find(CIRCLE).limit(3).batch_size(2))) == 3
        assert "killCursors" in commands.names()
        commands.seen.clear()
        spatial.find(CIRCLE).close()
        assert commands.names() == []


def test_time_limits(plain: Any, info: CollectionInfo, cluster: Any) -> None:
    commands = _Commands()
    with MongoClient(cluster.uri, event_listeners=[commands]) as client:
        listened = client["test_settled_find"]["points"]
        spatial = SpatialCollection(listened, info=info, qos=CLIENT)
        assert len(list(spatial.find(BOX).max_time_ms(30_000))) > 10
        limits = [command.get("maxTimeMS") for command in commands.seen if "find" in command]
        assert len(limits) > 1
        assert all(limit is not None and 0 < limit <= 30_000 for limit in limits)
        assert limits == sorted(limits, reverse=True)
        commands.seen.clear()
        list(SpatialCollection(listened, info=info, qos=QoS(form="client", max_time_ms=20_000)).find(BOX))
        assert all(command["maxTimeMS"] <= 20_000 for command in commands.seen if "find" in command)


def test_sessions_transactions_and_snapshots(
    plain: Any, spatial: SpatialCollection, info: CollectionInfo, client: MongoClient[dict[str, Any]]
) -> None:
    expected = sorted(d["n"] for d in plain.find(BOX))

    def found(collection: Any, **options: Any) -> list[int]:
        return sorted(d["n"] for d in collection.find(BOX, **options))

    with client.start_session() as session:
        assert found(spatial, session=session) == expected
        with session.start_transaction():
            plain.delete_one(
                {"n": expected[0], "gh": plain.find_one({"n": expected[0]})["gh"]}, session=session
            )
            # What the transaction did is seen by all commands in it, and by nobody else.
            assert found(spatial, session=session) == expected[1:]
            assert found(spatial) == expected
            session.abort_transaction()
    with client.start_session(snapshot=True) as session:
        assert found(spatial, session=session) == expected
        assert is_settled(spatial, BOX, session=session)
    snapshot = plain.with_options(read_concern=ReadConcern("snapshot"))
    at_one_moment = SpatialCollection(snapshot, info=info, qos=CLIENT)
    assert found(at_one_moment) == expected
    assert not is_settled(at_one_moment, BOX)


def test_the_asynchronous_twin(plain: Any, info: CollectionInfo, cluster: Any) -> None:
    expected = list(plain.find(BOX, sort=[("n", 1)]))

    async def ask() -> None:
        async with AsyncMongoClient(cluster.uri) as client:
            own = client["test_settled_find"]["points"]
            spatial = AsyncSpatialCollection(own, info=info, qos=CLIENT)
            cursor = spatial.find(BOX, sort=[("n", 1)], batch_size=4)
            assert [d async for d in cursor] == expected
            assert cursor.plan is not None
            assert cursor.plan.settled is not None
            assert not cursor.alive
            assert await (await cursor.rewind()).to_list() == expected
            assert await spatial.find(BOX, sort=[("n", 1)]).to_list(3) == expected[:3]
            assert len(await spatial.find(BOX).limit(5).skip(2).to_list()) == 5
            assert "gh_1__id_1" in str(await spatial.find(BOX).explain())
            early = spatial.find(BOX).batch_size(2)
            assert await early.next() is not None
            await early.close()
            assert (await spatial.find_one(BOX))["_id"] in [d["_id"] for d in expected]

    asyncio.run(ask())


def test_a_projection_into_the_location_does_not_make_another_place_of_it(
    client: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A legacy point is its first two numbers: without the first of three, the others would be taken for one."""
    setup = Setup("loc", "legacy")
    collection = make_collection(client["test_settled_find"], "three_numbers", setup, documents(60, 3, setup))
    gh = point_to_geohash(2.0, 3.0)
    collection.insert_one({"_id": "three", "loc": {"x": 2.0, "y": 3.0, "z": 50.0}, "gh": gh})
    info = replace(run(load_info(collection)), histogram=Histogram.of_points([2.0] * 500, [3.0] * 500, 35))
    spatial = SpatialCollection(collection, info=info, qos=CLIENT)
    asked = {"loc": {"$geoWithin": {"$box": [[1.0, 2.0], [2.0, 4.0]]}}}  # the point is on its border
    whole: tuple[Any, ...] = (None, {"loc": 0}, {"loc": 1})
    for projection in (*whole, {"loc.x": 0}, {"loc.y": 1, "loc.z": 1}):
        assert is_settled(spatial, asked, projection=projection) is (projection in whole)
        found = list(spatial.find(asked, projection))
        assert_same_documents(list(collection.find(asked, projection)), found)
        assert "three" in [document["_id"] for document in found]


def test_a_loop_may_stop_go_on_and_begin_again(plain: Any, spatial: SpatialCollection) -> None:
    """As with pymongo's cursor, which is its own iterator."""
    for collection in (plain, spatial):
        expected = [document["n"] for document in plain.find(CIRCLE, sort=[("n", 1)])]
        assert len(expected) > 30
        cursor = collection.find(CIRCLE, sort=[("n", 1)], batch_size=7)
        found = [next(cursor)["n"]]
        for document in cursor:
            found.append(document["n"])
            if len(found) in (5, 20):
                break
        found.append(cursor.next()["n"])
        found += [document["n"] for document in cursor]
        assert found == expected
        assert list(cursor) == []
        again, rewound = [], False
        cursor.rewind()
        for document in cursor:
            again.append(document["n"])
            if len(again) == 10 and not rewound:
                rewound = True
                cursor.rewind()
        assert again == [*expected[:10], *expected]
        cursor.rewind()
        closed = []
        for document in cursor:
            closed.append(document["n"])
            cursor.close()
        assert closed[0] == expected[0]
        assert len(closed) <= 7


class Batches(monitoring.CommandListener):
    """The sizes of the batches that were asked for."""

    def __init__(self) -> None:
        self.sizes: list[Any] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in ("find", "getMore"):
            self.sizes.append(event.command.get("batchSize"))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def test_later_batches_fit_the_caches(cluster: Any, plain: Any, info: CollectionInfo) -> None:
    batches = Batches()
    sizes = batches.sizes
    assert info.histogram is not None
    many = Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts * 500)
    world = {"loc": {"$geoWithin": {"$box": [[-179.0, -89.0], [179.0, 89.0]]}}}
    with MongoClient[dict[str, Any]](cluster.uri, event_listeners=[batches]) as watched:
        collection = watched[plain.database.name][plain.name]
        # With experience of its own: what other tests taught corrects predictions.
        unwise = replace(info, histogram=many, experience=Experience())
        spatial = SpatialCollection(collection, info=unwise, qos=CLIENT)
        found = list(spatial.find(world))
        assert len(found) == plain.count_documents(world) > 1_000
        assert sizes == [None, None, 4_000, 4_000]  # in two parts, side by side
        sizes.clear()
        # What was predicted proved wrong: so few are not worth a second command.
        assert len(spatial.find(world).to_list()) == len(found)
        assert sizes == [None, 8_000]
        sizes.clear()
        assert len(list(spatial.find(world, batch_size=900))) == len(found)
        assert set(sizes) == {900}


def test_batches_grow_where_far_too_few_were_predicted(
    cluster: Any, plain: Any, info: CollectionInfo
) -> None:
    """Only the first batch is as large as the prediction: what is wrong about it is not repeated to the end."""
    batches = Batches()
    sizes = batches.sizes
    stale = Histogram.of_points([2.35] * 5, [48.86] * 5, 30)
    world = {"loc": {"$geoWithin": {"$box": [[-179.0, -89.0], [179.0, 89.0]]}}}
    inside = plain.count_documents(world)
    assert inside > 1_000
    with MongoClient[dict[str, Any]](cluster.uri, event_listeners=[batches]) as watched:
        collection = watched[plain.database.name][plain.name]
        for options, expected in (
            ({}, [107, 8_000]),
            ({"sort": [("n", 1)]}, [107, 8_000]),
            ({"batch_size": 300}, None),
            ({"limit": 30}, 65),
            ({"limit": 170}, 105),
        ):
            unwise = replace(info, histogram=stale, experience=Experience(), plans=OrderedDict())
            spatial = SpatialCollection(collection, info=unwise, qos=CLIENT)
            sizes.clear()
            found = spatial.find(world, **options).to_list()
            assert len(found) == options.get("limit", inside)
            if "batch_size" in options:
                assert set(sizes) == {300}
            elif "limit" in options:  # it depends on which shard answers first how many of them lie inside
                assert sizes[0] == expected
                assert all(later >= 2 * earlier for earlier, later in pairwise(sizes))
                assert len(sizes) <= 3
            else:
                assert sizes == expected


def test_found_in_parts(
    plain: Any, info: CollectionInfo, client: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two finds side by side have the same documents, and are only for who has not asked for anything like an order."""
    cheap = replace(info, costs=Costs(command_ms=1e-4, shard_ms=1e-4))
    spatial = SpatialCollection(plain, info=cheap, qos=CLIENT)
    parted = 0
    for question in questions():
        asked = {"loc": question.condition}
        cursor = spatial.find(asked)
        try:
            expected = sorted(document["n"] for document in plain.find(asked))
        except OperationFailure:
            continue
        assert sorted(document["n"] for document in cursor) == expected, asked
        assert cursor.plan is not None
        parted += cursor.plan.settled is not None and len(cursor.plan.settled.parts) == 2
    assert parted >= 10
    commands = answers_of(monkeypatch, reading, "calm_find")

    def parts(cursor: Any) -> int:
        commands.clear()
        cursor.to_list()
        return len(commands)

    assert parts(spatial.find(BOX)) == 2
    assert (
        parts(SpatialCollection(plain, info=cheap, qos=QoS(form="client", prefer="throughput")).find(BOX))
        == 1
    )
    assert parts(spatial.find(BOX).sort("n")) == 1
    assert parts(spatial.find(BOX).limit(30)) == 1
    assert parts(spatial.find(BOX).batch_size(30)) == 1
    with client.start_session() as session:
        assert parts(spatial.find(BOX, session=session)) == 1
        if hasattr(session, "bind"):  # since pymongo 4.17
            with session.bind():
                assert parts(spatial.find(BOX)) == 1
    closed = spatial.find(BOX)
    next(closed)
    assert closed.cursor_id is not None
    closed.close()
    assert not closed.alive or closed.cursor_id == 0
    assert "IXSCAN" in str(spatial.find(BOX).explain())


def test_a_part_that_fails_ends_all_of_them(
    plain: Any, info: CollectionInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pymongo has it: after an error a cursor is over, and nothing is left open or learnt."""
    made: list[Any] = []

    class Failing:
        """The second part, which loses its server with its second batch."""

        def __init__(self, cursor: Any) -> None:
            self._cursor, self._batches, self.closed = cursor, 0, False
            made.append(self)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

        def to_list(self, length: int) -> list[Any]:
            self._batches += 1
            if self._batches == 2 and self is made[1]:
                raise AutoReconnect("the second batch")
            documents: list[Any] = self._cursor.to_list(length)
            return documents

        def close(self) -> None:
            self.closed = True
            self._cursor.close()

    real = reading.calm_find
    monkeypatch.setattr(reading, "calm_find", lambda *given, **options: Failing(real(*given, **options)))
    cheap = replace(info, costs=Costs(command_ms=1e-4, shard_ms=1e-4), experience=Experience())
    assert cheap.histogram is not None
    many = Histogram(cheap.histogram.bits, cheap.histogram.cells, cheap.histogram.counts * 50)
    everywhere = {"loc": {"$geoWithin": {"$box": [[-170.0, -80.0], [170.0, 80.0]]}}}
    cheap = replace(cheap, histogram=many)
    cursor = SpatialCollection(plain, info=cheap, qos=CLIENT).find(everywhere)
    with pytest.raises(AutoReconnect, match="the second batch"):
        for _ in cursor:
            pass
    assert len(made) == 2
    assert all(part.closed for part in made)
    assert not cursor.alive
    with pytest.raises(StopIteration):
        next(cursor)
    assert cheap.experience.version == 0


def test_a_large_find_takes_no_more_memory_than_its_batches(client: MongoClient[dict[str, Any]]) -> None:
    database = client["test_settled_find_large"]
    client.drop_database(database.name)
    rng = np.random.default_rng(3)
    lng, lat = 2.35 + rng.normal(0, 0.02, 60_000), 48.86 + rng.normal(0, 0.02, 60_000)
    hashes = cells_to_strings(points_to_cells(lng, lat)).tolist()
    content = [
        {"_id": number, "n": number, "loc": [x, y], "gh": gh}
        for number, (x, y, gh) in enumerate(zip(lng.tolist(), lat.tolist(), hashes, strict=True))
    ]
    collection = make_collection(database, "points", Setup("loc", "legacy"), content)
    spatial = SpatialCollection(collection, info=run(load_info(collection)), qos=CLIENT)
    assert is_settled(spatial, CIRCLE)

    def peak(documents: Any) -> tuple[int, int]:
        tracemalloc.start()
        try:
            found = sum(1 for _ in documents())
            return found, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    streamed = peak(lambda: spatial.find(CIRCLE))
    whole = peak(lambda: spatial.find(CIRCLE).to_list())
    assert streamed[0] == whole[0] == 60_000
    assert streamed[1] < whole[1] / 2
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


@pytest.mark.parametrize("long", [False, True])
def test_dates_that_python_does_not_know(plain: Any, spatial: SpatialCollection, long: bool) -> None:
    """Also where the servers are asked about what is too near to a border, or as far as the greatest distance."""
    turns = np.linspace(0, 2 * np.pi, 400 if long else 5, endpoint=False)
    ring = [[2.0 + float(np.cos(turn)), 48.0 + float(np.sin(turn))] for turn in turns]
    far = DatetimeMS(10**15)
    within = {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}}}
    vertex = {"_id": f"vertex {long}", "n": -1, "loc": {"type": "Point", "coordinates": ring[0]}, "when": far}
    vertex["gh"] = point_to_geohash(*ring[0])
    plain.insert_one(vertex)
    try:
        distance = next(
            plain.aggregate(
                [
                    {
                        "$geoNear": {
                            "near": {"type": "Point", "coordinates": [2.0, 48.0]},
                            "distanceField": "d",
                        }
                    },
                    {"$match": {"_id": vertex["_id"]}},
                    {"$project": {"d": 1}},
                ]
            )
        )["d"]
        near = {"$geometry": {"type": "Point", "coordinates": [2.0, 48.0]}, "$maxDistance": distance}
        for asked in ({"loc": within, "when": far}, {"loc": {"$nearSphere": near}, "when": far}):
            expected = [one["_id"] for one in plain.find(asked, {"_id": 1})]
            assert [one["_id"] for one in spatial.find(asked, {"_id": 1})] == expected == [vertex["_id"]]
            assert spatial.count_documents({"loc": within, "when": far}) == 1
    finally:
        plain.delete_one({"_id": vertex["_id"], "gh": vertex["gh"]})
