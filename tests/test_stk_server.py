"""Queries by place, time and words on a real sharded server: always what the plain query answers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pymongo import AsyncMongoClient, MongoClient, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import WriteError
from pymongo.read_concern import ReadConcern
from stk_world import GRACE_S, SETTINGS, START, WORDS, hashed, make, random_document, random_query

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.create import create
from spatialnosql.errors import UsageError
from spatialnosql.geohash import strings_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.steps import run
from spatialnosql.stk import planning, sealing
from spatialnosql.stk.filter_store import Busy, pieces, read_state, states, writing
from spatialnosql.stk.finding import filters_of
from spatialnosql.stk.sealing import rebuild, seal
from spatialnosql.stk.seals import cube_expression, seal_expression, seal_of
from spatialnosql.stk.settings import INDEX_NAME, StkSettings
from spatialnosql.stk.setup import disable, enable

COUNT = 3000
CITY = {
    "type": "Polygon",
    "coordinates": [[[13.3, 52.45], [13.45, 52.45], [13.45, 52.6], [13.3, 52.6], [13.3, 52.45]]],
}


def _ids(documents: Any) -> list[Any]:
    found = [one["_id"] for one in documents]
    assert len(found) == len(set(found))
    return sorted(found, key=str)


def _same(spatial: Any, query: dict[str, Any]) -> int:
    """How many documents both give."""
    plain = _ids(spatial._collection.find(query))
    assert _ids(spatial.find(query)) == plain
    return len(plain)


def _pruned(spatial: Any, query: dict[str, Any]) -> bool:
    return "prune_stk" in spatial.plan(query).rules


@pytest.fixture
def city(database: Any) -> Iterator[Any]:
    """A collection of sealed documents, as a pymongo collection."""
    collection = make(database)
    rng = random.Random(1)
    collection.insert_many(hashed([random_document(rng, number) for number in range(COUNT)]))
    done = enable(collection, SETTINGS, sized=True, grace_s=GRACE_S)
    assert (done.sealed, done.fresh) == (COUNT, 0)
    yield collection
    states(collection).delete_one({"_id": f"{database.name}.{collection.name}"})


def test_the_seal_is_what_the_server_computes(database: Any) -> None:
    rng = random.Random(2)
    documents = [random_document(rng, number) for number in range(200)]
    documents[0]["words"] = ["Ärger", "雨", "a\nb", ""]
    documents[1]["words"] = [f"word{number}" for number in range(120)]
    documents[2]["at"] = dt.datetime(1931, 5, 17, tzinfo=dt.timezone.utc)
    for number, one in enumerate(hashed(documents)):
        cube = (number - 100) << 33
        at_ms = round(one["at"].timestamp() * 1000)
        one["stk"] = {"c": cube, "s": seal_of(cube, at_ms, one["gh"], one["words"])}
        database["raw"].insert_one(one)
    wrong = {"$expr": {"$ne": ["$stk.s", seal_expression(SETTINGS, "gh")]}}
    assert database["raw"].count_documents({}) == 200
    assert list(database["raw"].find(wrong)) == []
    for settings in (SETTINGS, StkSettings(bin_s=900, cell_bits=36), StkSettings(bin_s=7, cell_bits=31)):
        computed = {"gh": 1, "at": 1, "cube": cube_expression(settings, "gh")}
        for one in database["raw"].aggregate([{"$project": computed}]):
            at_ms = np.array([round(one["at"].replace(tzinfo=dt.timezone.utc).timestamp() * 1000)])
            cells = settings.cells_of(strings_to_cells([one["gh"]]))
            assert one["cube"] == settings.data_cubes(settings.bins_of(at_ms), cells)[0]


def test_random_queries_with_inserts_between(city: Any) -> None:
    spatial, rng = SpatialCollection(city), random.Random(3)
    found = pruned = 0
    for round_ in range(4):
        for _ in range(60):
            query = random_query(rng)
            found += _same(spatial, query)
            pruned += _pruned(spatial, query)
            assert spatial.count_documents(query) == city.count_documents(query)
        new = [random_document(rng, 10_000 * (round_ + 1) + number) for number in range(100)]
        if round_ % 2:
            spatial.insert_many(new)
        else:
            city.insert_many(hashed(new))  # by another client, that knows nothing of filters
        spatial.delete_many({"n": round_, "at": {"$lt": START + dt.timedelta(hours=20)}})
        if round_ == 2:
            assert seal(city, run(spatial._load_info()), SETTINGS) > 200
    assert found > 500
    assert pruned > 200


def test_a_tiny_memory_and_a_restart(city: Any, cluster: Any) -> None:
    rng = random.Random(4)
    queries = [random_query(rng) for _ in range(40)]
    with MongoClient[dict[str, Any]](cluster.uri) as other:
        collection = other[city.database.name][city.name]
        spatial = SpatialCollection(collection, filter_memory_mb=0.01)
        for query in queries + queries:
            _same(spatial, query)
        cache = filters_of(collection)
        assert cache.counters.evictions > 50
        assert cache.used_bytes <= 10_000 + cache.cubes.nbytes
    with MongoClient[dict[str, Any]](cluster.uri) as again:
        spatial = SpatialCollection(again[city.database.name][city.name])
        assert sum(_same(spatial, query) for query in queries) > 50
        cache = filters_of(again[city.database.name][city.name])
        assert cache.counters.evictions == 0
        assert cache.counters.absent > 0


def test_a_document_that_is_changed_is_found_as_it_is_now(city: Any) -> None:
    spatial = SpatialCollection(city)
    where = {"loc": {"$geoWithin": {"$geometry": CITY}}}
    when = {"at": {"$gte": START, "$lt": START + dt.timedelta(hours=5)}}
    victim = city.find_one({**where, **when, "stk": {"$exists": True}})
    # Another client that knows nothing of seals is refused, rather than have its document hidden.
    with pytest.raises(WriteError, match="failed validation"):
        city.update_one({"_id": victim["_id"]}, {"$push": {"words": "unheardof"}})
    with pytest.raises(WriteError, match="failed validation"):
        city.update_one({"_id": victim["_id"]}, {"$set": {"at": START}})
    city.update_one({"_id": victim["_id"]}, {"$set": {"n": 100}})  # what no seal vouches for
    query = {**where, **when, "words": "unheardof"}
    assert _same(spatial, query) == 0
    spatial.update_one({"_id": victim["_id"]}, {"$push": {"words": "unheardof"}})
    assert "stk" not in city.find_one({"_id": victim["_id"]})
    assert _same(spatial, query) == 1
    later = START + dt.timedelta(days=400)  # far from all bins that there are
    spatial.update_one({"_id": victim["_id"]}, [{"$set": {"at": later}}])
    assert _same(spatial, query) == 0
    moved = {**where, "at": {"$gte": later}, "words": "unheardof"}
    assert _same(spatial, moved) == 1
    assert seal(city, run(spatial._load_info()), SETTINGS) == 1
    assert _same(spatial, moved) == 1
    spatial.replace_one({"_id": victim["_id"]}, {**victim, "words": ["elsewhere"]})
    assert _same(spatial, {**where, **when, "words": "elsewhere"}) == 1
    requests = [UpdateOne({"_id": victim["_id"]}, {"$set": {"words": ["anew"]}})]
    spatial.bulk_write(requests)
    assert _same(spatial, {**where, **when, "words": "anew"}) == 1
    spatial.update_many({"n": 3}, {"$addToSet": {"words": "anew"}})
    assert _same(spatial, {**where, **when, "words": "anew"}) > 1


def test_what_can_have_no_seal_is_still_found(city: Any) -> None:
    spatial = SpatialCollection(city)
    point = {"type": "Point", "coordinates": [13.4, 52.5]}
    odd = [
        {"_id": "number", "loc": point, "at": START, "words": ["odd", 7]},
        {"_id": "text", "loc": point, "at": START, "words": "odd"},
        {"_id": "dates", "loc": point, "at": [START, START + dt.timedelta(days=9)], "words": ["odd"]},
        {"_id": "no date", "loc": point, "at": "2026-03-01", "words": ["odd"]},
        {"_id": "no words", "loc": point, "at": START},
        {"_id": "no place", "at": START, "words": ["odd"]},
        {
            "_id": "far",
            "loc": point,
            "at": dt.datetime(9999, 12, 31, tzinfo=dt.timezone.utc),
            "words": ["odd"],
        },
    ]
    city.insert_many(hashed(odd))
    assert seal(city, run(spatial._load_info()), SETTINGS) == 0
    around = {"loc": {"$geoWithin": {"$geometry": CITY}}, "at": {"$gte": START}}
    assert _ids(spatial.find({**around, "words": "odd"})) == ["dates", "far", "number", "text"]
    for query in ({"words": "odd"}, {"words": {"$ne": "odd"}}, {"words": 7}, {"words": None}):
        assert _same(spatial, {**around, **query}) > 0


def test_two_documents_of_one_id(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MongoDB keeps an ``_id`` unique within a shard only: both are found, fresh or sealed, however often it looks."""
    histogram = Histogram.of_points(np.linspace(13.3, 13.45, 300), np.full(300, 52.5), 30)
    city = create(database, "spread", "loc", histogram=histogram)
    enable(city, SETTINGS, sized=True, grace_s=GRACE_S)
    spatial = SpatialCollection(city)
    twins = [
        {"_id": 70_000, "loc": {"type": "Point", "coordinates": [lng, 52.5]}, "at": START, "words": ["twin"]}
        for lng in (13.31, 13.44)
    ]
    first, second = hashed(twins)
    city.insert_one(first)
    assert seal(city, run(spatial._load_info()), SETTINGS) == 1
    city.insert_one(second)
    query = {"loc": {"$geoWithin": {"$geometry": CITY}}, "at": {"$gte": START}, "words": "twin"}
    assert [one["_id"] for one in city.find(query)] == [70_000, 70_000]
    # One document a batch: it remembers what it gave, and looks at the fresh ones again.
    monkeypatch.setattr(planning, "_estimates", lambda *_: None)  # so few would be read without filters
    cursor = spatial.find(query, batch_size=1)
    found = [one["gh"] for one in cursor]
    assert cursor.plan is not None
    assert cursor.plan.rules == ("prune_stk",)
    assert sorted(found) == sorted([first["gh"], second["gh"]])


def test_all_ways_to_ask(city: Any) -> None:
    spatial = SpatialCollection(city)
    start, end = START + dt.timedelta(hours=3), START + dt.timedelta(hours=30)
    interval = {"$gte": start, "$lt": end}
    plain: dict[str, Any] = {"loc": {"$geoWithin": {"$geometry": CITY}}, "at": interval}
    either = {"$or": [{"words": "w1"}, {"words": {"$all": ["w0", "w2"]}}]}
    asked = "w1 OR (w0 AND w2)"
    expected = _ids(city.find({**plain, **either}))
    assert len(expected) > 20
    assert _ids(spatial.find_stk(CITY, start, end, asked)) == expected
    assert (
        _ids(spatial.find({"$stk": {"region": CITY, "start": start, "end": end, "words": asked}})) == expected
    )
    with_n = spatial.find_stk(CITY, start, end, asked, {"n": {"$lt": 3}})
    assert _ids(with_n) == _ids(city.find({**plain, **either, "n": {"$lt": 3}}))
    box = {"$box": [[13.3, 52.45], [13.4, 52.6]]}
    assert _ids(spatial.find_stk(box, start, end, ["w1"])) == _ids(
        city.find({"loc": {"$geoWithin": box}, "at": interval, "words": "w1"})
    )
    assert _ids(spatial.find_stk(CITY, None, None, "w39")) == _ids(
        city.find({"loc": plain["loc"], "words": "w39"})
    )
    assert _ids(spatial.find_stk(CITY, start, end)) == _ids(city.find(plain))
    stk = {"$stk": {"region": CITY, "start": start, "end": end, "words": asked}}
    assert spatial.count_documents(stk) == len(expected)
    assert spatial.count_documents(stk, skip=3, limit=5) == 5
    by_n = [{"$match": stk}, {"$group": {"_id": "$n", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    assert list(spatial.aggregate(by_n)) == list(city.aggregate([{"$match": {**plain, **either}}, *by_n[1:]]))
    ordered = spatial.find(stk).sort([("at", -1), ("_id", 1)]).limit(7)
    assert [one["_id"] for one in ordered] == [
        one["_id"] for one in city.find({**plain, **either}).sort([("at", -1), ("_id", 1)]).limit(7)
    ]
    assert len(list(spatial.find(stk, batch_size=7))) == len(expected)
    assert len(list(spatial.find(stk).skip(5).limit(10))) == 10
    for projection in ({"n": 1}, {"_id": 0, "n": 1}, {"stk": 0}, {"words": 0, "loc": 0}, {"stk.c": 1}):
        key = lambda one: sorted((name, str(value)) for name, value in one.items())  # noqa: E731
        mine = sorted(spatial.find(stk, projection), key=key)
        assert mine == sorted(city.find({**plain, **either}, projection), key=key)
    assert sorted(spatial.find(stk).distinct("n")) == sorted(city.distinct("n", {**plain, **either}))
    assert sorted(spatial.distinct("n", stk)) == sorted(city.distinct("n", {**plain, **either}))
    assert spatial.find_one(stk)["_id"] in expected
    explained = spatial.explain({**plain, **either})
    assert explained.plan.rules == ("prune_stk",)
    assert explained.rewritten.docs < explained.original.docs
    assert "cubes of place and time" in str(explained)
    assert spatial.find(stk).explain()
    with spatial._collection.database.client.start_session() as session, session.start_transaction():
        assert _ids(spatial.find(stk, session=session)) == expected
    assert spatial.delete_many(stk).deleted_count == len(expected)
    assert _ids(spatial.find(stk)) == []


def test_async_too(city: Any, cluster: Any) -> None:
    async def ask() -> list[Any]:
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as client:
            spatial = AsyncSpatialCollection(client[city.database.name][city.name])
            cursor = spatial.find_stk(CITY, START, START + dt.timedelta(hours=9), "w1 AND NOT w2")
            found = await cursor.to_list()
            assert cursor.plan is not None
            assert cursor.plan.rules == ("prune_stk",)
            return found

    plain = {
        "loc": {"$geoWithin": {"$geometry": CITY}},
        "at": {"$gte": START, "$lt": START + dt.timedelta(hours=9)},
        "$and": [{"words": "w1"}, {"words": {"$ne": "w2"}}],
    }
    assert _ids(asyncio.run(ask())) == _ids(city.find(plain))


def test_wrong_questions_are_refused(city: Any, database: Any) -> None:
    spatial = SpatialCollection(city)
    with pytest.raises(UsageError, match="is not before end"):
        list(spatial.find_stk(CITY, START, START, "w1"))
    with pytest.raises(UsageError, match="give a datetime"):
        list(spatial.find({"$stk": {"start": "2026"}}))
    with pytest.raises(UsageError, match=r"unknown word; it takes region, start, end, words"):
        list(spatial.find({"$stk": {"word": "w1"}}))
    with pytest.raises(UsageError, match="is empty; give region"):
        list(spatial.find_stk(None, None, None))
    with pytest.raises(UsageError, match="give a GeoJSON geometry"):
        list(spatial.find_stk("here", START, None))  # type: ignore[arg-type]
    plain = SpatialCollection(make(database, "plain"))
    with pytest.raises(
        UsageError, match="is not set up for queries by place, time and words: see `spatialnosql stk"
    ):
        list(plain.find_stk(CITY, START, None))


def test_few_points_are_read_as_they_are(database: Any) -> None:
    collection = make(database, "few")
    collection.insert_many(hashed([random_document(random.Random(5), number) for number in range(30)]))
    enable(collection, SETTINGS, sized=True, grace_s=GRACE_S)
    from spatialnosql.analyze import analyze

    analyze(collection)
    spatial, query = SpatialCollection(collection), random_query(random.Random(6))
    assert not _pruned(spatial, query)
    _same(spatial, query)


def _kill(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> None:
    """Let a step of sealing die after so many calls, as a process does."""
    real, left = getattr(sealing, name), [calls]

    def dies(*arguments: Any, **options: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*arguments, **options)

    monkeypatch.setattr(sealing, name, dies)


@pytest.mark.parametrize(
    ("step", "calls"), [("add_pieces", 0), ("publish", 0), ("_changed", 0), ("_changed", 2)]
)
def test_killed_while_sealing_nothing_is_hidden(
    city: Any, monkeypatch: pytest.MonkeyPatch, step: str, calls: int
) -> None:
    rng = random.Random(7)
    spatial = SpatialCollection(city)
    fresh = [random_document(rng, 50_000 + number) for number in range(1000)]
    spatial.insert_many([{**one, "words": [*one["words"], "new"]} for one in fresh])
    queries = [{"$and": [random_query(rng), {"words": "new"}]} for _ in range(30)]
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "_CHANGES", 200)
        _kill(patched, step, calls)
        with pytest.raises(KeyboardInterrupt):
            seal(city, run(spatial._load_info()), SETTINGS)
    found = sum(_same(spatial, query) for query in queries)
    assert found > 5
    info = run(spatial._load_info())
    with pytest.raises(Busy, match=r"others write to the filters of .*: seal since"):
        rebuild(city, info, SETTINGS)
    assert seal(city, info, SETTINGS) == 1000 - 200 * calls
    assert sum(_same(spatial, query) for query in queries) == found
    assert rebuild(city, info, SETTINGS, force=True) == COUNT + 1000
    assert sum(_same(spatial, query) for query in queries) == found


def test_queries_while_others_seal_and_change(city: Any) -> None:
    """Documents that are always there are always found, each once, whatever happens to their seals."""
    spatial = SpatialCollection(city)
    rng = random.Random(8)
    query = {
        "loc": {"$geoWithin": {"$geometry": CITY}},
        "at": {"$gte": START, "$lt": START + dt.timedelta(hours=40)},
        "words": {"$in": WORDS[:3]},
    }
    expected = _ids(city.find(query))
    assert len(expected) > 200
    info, stop = run(spatial._load_info()), threading.Event()
    failures: list[BaseException] = []

    def disturb() -> None:
        try:
            while not stop.is_set():
                some = rng.sample(expected, 60)
                spatial.update_many(
                    {"_id": {"$in": some}}, {"$addToSet": {"words": f"tag{rng.randrange(5)}"}}
                )
                seal(city, info, SETTINGS)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        until = time.monotonic() + 6
        asked = 0
        while time.monotonic() < until:
            asked += 1
            options: dict[str, Any] = {"batch_size": 50} if asked % 3 == 0 else {}
            cursor = spatial.find(query, **options)
            found = []
            for one in cursor:
                found.append(one["_id"])
                if asked % 10 == 0 and len(found) % 100 == 0:
                    time.sleep(GRACE_S / 2)  # slower than seals wait for
            assert sorted(found, key=str) == expected
            assert cursor.plan is not None
            assert cursor.plan.rules == ("prune_stk",)
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert asked > 20


def test_filters_that_are_lost(city: Any) -> None:
    spatial, rng = SpatialCollection(city), random.Random(9)
    queries = [random_query(rng) for _ in range(20)]
    found = sum(_same(spatial, query) for query in queries)
    state = run(read_state(city))
    assert state is not None
    pieces(city).delete_many({"f": state.filters, "q": {"$ne": None}})
    spatial = SpatialCollection(city)
    filters_of(city)._forget(list(filters_of(city)._kept))
    assert (
        sum(_same(spatial, query) for query in queries) == found
    )  # a filter that is not there prunes nothing
    states(city).delete_one({"_id": f"{city.database.name}.{city.name}"})
    time.sleep(GRACE_S)
    assert sum(_same(spatial, query) for query in queries) == found
    assert not _pruned(spatial, queries[0])
    done = enable(city, grace_s=GRACE_S)
    assert done.settings == SETTINGS
    spatial.forget()
    assert sum(_same(spatial, query) for query in queries) == found


def test_other_settings_and_none(city: Any) -> None:
    spatial, rng = SpatialCollection(city), random.Random(10)
    queries = [random_query(rng) for _ in range(20)]
    found = sum(_same(spatial, query) for query in queries)
    other = StkSettings(bin_s=4 * 3600, cell_bits=26, cube_bin_bits=1, cube_cell_bits=2)
    stale = run(spatial._load_info())
    done = enable(city, other, sized=True, grace_s=GRACE_S)
    assert (done.sealed, done.settings) == (COUNT, other)
    late = SpatialCollection(city, info=stale)  # a client that does not know yet
    assert sum(_same(late, query) for query in queries) == found
    assert not _pruned(late, queries[0])
    spatial.forget()
    assert sum(_same(spatial, query) for query in queries) == found
    assert any(_pruned(spatial, query) for query in queries)
    disable(city)
    spatial.forget()
    assert sum(_same(spatial, query) for query in queries) == found
    assert INDEX_NAME not in city.index_information()
    assert city.count_documents({"stk": {"$exists": True}}) == 0
    city.update_one({"_id": 1}, {"$set": {"words": ["free"]}})
    with pytest.raises(UsageError, match="is not set up"):
        disable(city)


def test_texts_become_words(database: Any) -> None:
    collection = make(database, "texts")
    point = {"type": "Point", "coordinates": [13.4, 52.5]}
    collection.insert_many(
        hashed(
            [
                {"_id": 1, "loc": point, "at": START, "text": "Floods on the Road"},
                {"_id": 2, "loc": point, "at": START},
            ]
        )
    )
    settings = StkSettings(text="text")
    done = enable(collection, settings, grace_s=GRACE_S)
    assert (done.sealed, done.fresh) == (1, 1)
    assert collection.find_one({"_id": 1})["words"] == ["floods", "road"]
    spatial = SpatialCollection(collection)
    spatial.insert_one({"_id": 3, "loc": point, "at": START, "text": "Road closed"})
    end = START + dt.timedelta(hours=1)
    assert _ids(spatial.find_stk(CITY, START, end, "ROAD")) == [1, 3]
    spatial.update_one({"_id": 1}, {"$set": {"text": "Storm"}})
    assert _ids(spatial.find_stk(CITY, START, end, "storm OR closed")) == [1, 3]
    assert collection.find_one({"_id": 1})["words"] == ["storm"]


def test_writers_and_rebuilders_exclude_each_other(city: Any) -> None:
    info = run(SpatialCollection(city)._load_info())
    with writing(city, "a test"), pytest.raises(Busy, match="a test since"):
        rebuild(city, info, SETTINGS)
    assert rebuild(city, info, SETTINGS) == COUNT


# -- one moment, and the past -----------------------------------------------------------------------------

DAWN = START + dt.timedelta(hours=5)
AT_NIGHT = {"$stk": {"region": CITY, "start": START, "end": DAWN, "words": "w1 OR w2"}}
PLAINLY = {
    "loc": {"$geoWithin": {"$geometry": CITY}},
    "at": {"$gte": START, "$lt": DAWN},
    "words": {"$in": ["w1", "w2"]},
}
SNAPSHOT = ReadConcern("snapshot")


def test_filters_are_of_now(city: Any, client: MongoClient[dict[str, Any]]) -> None:
    """They are kept for all who use the client, so what a transaction sees must not come among them."""
    if not hasattr(ClientSession, "bind"):
        pytest.skip("this pymongo binds no sessions")
    mine = {"_id": f"{city.database.name}.{city.name}"}
    with client.start_session() as session, session.bind(), session.start_transaction(SNAPSHOT):
        before = states(city).find_one(mine)
        assert before is not None
        with client.start_session() as other:
            states(city).update_one(mine, {"$inc": {"tick": 1}}, session=other)
        assert states(city).find_one(mine) == before
        now = run(read_state(city))
        assert now is not None
        assert now.tick == before["tick"] + 1


@pytest.mark.parametrize("how", ["passed", "bound"])
@pytest.mark.parametrize(
    "past", ["transaction", "snapshot session", "read concern", "read concern, in a session"]
)
def test_who_reads_of_one_moment_goes_by_no_filters(
    how: str, past: str, city: Any, client: MongoClient[dict[str, Any]]
) -> None:
    """They know only of what is there now, and finding by them takes several commands."""
    if how == "bound" and not hasattr(ClientSession, "bind"):
        pytest.skip("this pymongo binds no sessions")
    spatial = SpatialCollection(city)
    expected = city.count_documents(PLAINLY)
    assert expected > 5
    assert _pruned(spatial, AT_NIGHT)
    if "read concern" in past:
        spatial = spatial.with_options(read_concern=SNAPSHOT)
    counters = filters_of(city).counters
    looked = counters.hits + counters.absent
    with contextlib.ExitStack() as stack:
        given: dict[str, Any] = {}
        if past != "read concern":
            session = stack.enter_context(client.start_session(snapshot=past == "snapshot session"))
            given = {"session": session} if how == "passed" else {}
            if how == "bound":
                stack.enter_context(session.bind(end_session=False))
            if past == "transaction":
                stack.enter_context(session.start_transaction(SNAPSHOT))
        assert spatial.count_documents(AT_NIGHT, **given) == expected
        assert len(list(spatial.find(AT_NIGHT, **given))) == expected
        assert len(list(spatial.find(AT_NIGHT, **given).sort("n"))) == expected
        assert len(list(spatial.aggregate([{"$match": AT_NIGHT}], **given))) == expected
        assert "prune_stk" not in spatial.plan(AT_NIGHT, **given).rules
        assert "prune_stk" not in spatial.explain(AT_NIGHT, **given).plan.rules
        assert "prune_stk" not in spatial.explain(AT_NIGHT, count=True, **given).plan.rules
        assert "prune_stk" not in spatial.explain([{"$match": AT_NIGHT}], **given).plan.rules
    assert counters.hits + counters.absent == looked
