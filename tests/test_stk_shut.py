"""What is shut, on a real sharded server: fewer questions, the same answers, whoever opens it and whoever is killed."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, WriteError
from pymongo.monitoring import CommandListener
from stk_world import GRACE_S, HOURS, SETTINGS, START, WORDS, hashed, make, random_document, random_query

from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.metadata import load_info
from spatialnosql.steps import run
from spatialnosql.stk import planning, shutting
from spatialnosql.stk.filter_store import Busy, states
from spatialnosql.stk.sealing import seal
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.setup import disable, enable
from spatialnosql.stk.shutting import reopen, reopen_for, shut, shut_again

COUNT = 2000
END = START + dt.timedelta(hours=HOURS)
CITY = {
    "type": "Polygon",
    "coordinates": [[[13.3, 52.45], [13.45, 52.45], [13.45, 52.6], [13.3, 52.6], [13.3, 52.45]]],
}
POINT = {"type": "Point", "coordinates": [13.4, 52.5]}


@pytest.fixture
def city(database: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A collection of sealed documents that is shut."""
    monkeypatch.setattr(planning, "_estimates", lambda *_: None)  # so few would be read without filters
    collection = make(database)
    rng = random.Random(1)
    collection.insert_many(hashed([random_document(rng, number) for number in range(COUNT)]))
    enable(collection, SETTINGS, sized=True, grace_s=GRACE_S)
    _shut(collection)
    yield collection
    states(collection).delete_one({"_id": collection.full_name})


def _shut(collection: Any, before: dt.datetime = END, **options: Any) -> None:
    info = run(load_info(collection))
    assert info.stk is not None
    shut(collection, info, info.stk, before, **options)


def _query(words: Any, end: dt.datetime = END) -> dict[str, Any]:
    return {
        "loc": {"$geoWithin": {"$geometry": CITY}},
        "at": {"$gte": START, "$lt": end},
        "words": words,
    }


def _ids(documents: Any) -> list[Any]:
    return sorted((one["_id"] for one in documents), key=str)


def _same(spatial: Any, query: dict[str, Any]) -> int:
    plain = _ids(spatial._collection.find(query))
    assert _ids(spatial.find(query)) == plain
    return len(plain)


class _Finds(CommandListener):
    """Counts the finds of documents; not those of filters and metadata."""

    def __init__(self, name: str) -> None:
        self.name, self.filters = name, []  # type: ignore[var-annotated]

    def started(self, event: Any) -> None:
        if event.command_name == "find" and event.command["find"] == self.name:
            self.filters.append(event.command["filter"])

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


def test_nothing_is_asked_where_nothing_can_be(city: Any, cluster: Any) -> None:
    finds = _Finds(city.name)
    with MongoClient[dict[str, Any]](cluster.uri, event_listeners=[finds]) as client:
        spatial = SpatialCollection(client[city.database.name][city.name])
        assert list(spatial.find(_query("unheardof"))) == []
        assert spatial.count_documents(_query({"$all": ["w1", "unheardof"]})) == 0
        assert list(spatial.find_stk(CITY, START, END, "w0 AND unheardof")) == []
        assert finds.filters == []
        assert spatial.plan(_query("unheardof")).commands == 0
        cursor = spatial.find(_query("unheardof"))
        assert cursor.to_list() == []
        assert not cursor.alive
        # What the server would refuse, it must see.
        with pytest.raises(OperationFailure, match="unknown operator"):
            list(spatial.find({**_query("unheardof"), "n": {"$unknown": 1}}))
        finds.filters.clear()
        found = list(spatial.find(_query("w30")))
        assert len(found) > 3
        assert len(finds.filters) == 1
        assert "None" not in str(finds.filters[0]["$and"][0])
        # A query that goes on beyond what is shut looks for fresh documents too.
        list(spatial.find(_query("unheardof", END + dt.timedelta(hours=1))))
        assert "None" in str(finds.filters[-1]["$and"][0])
        assert spatial.find(_query("unheardof")).explain()


def test_random_queries_with_inserts_between(city: Any) -> None:
    spatial, rng, border = SpatialCollection(city), random.Random(3), END
    found = answered = 0
    for round_ in range(3):
        for _ in range(60):
            query = random_query(rng)
            found += _same(spatial, query)
            answered += spatial.plan(query).commands == 0
        some = [random_document(rng, 10_000 * (round_ + 1) + number) for number in range(100)]
        for one in some:
            one["at"] += border - START - dt.timedelta(hours=3)
        spatial.insert_many([one for one in some if one["at"] >= border])
        early = next(one for one in some if one["at"] < border)
        with pytest.raises(WriteError, match="failed validation"):
            spatial.insert_one(early)
        spatial.delete_many({"n": round_, "at": {"$lt": START + dt.timedelta(hours=20)}})
        spatial.update_many({"n": 5}, {"$set": {"seen": round_}})
        if round_ == 1:
            assert seal(city, run(load_info(city)), SETTINGS) > 100
            border += dt.timedelta(hours=2 * HOURS)
            _shut(city, border)
    assert found > 200
    assert answered > 10


def test_what_the_server_accepts(city: Any) -> None:
    spatial = SpatialCollection(city)
    before = START + dt.timedelta(hours=1)
    new = {"loc": POINT, "words": ["new"]}
    for refused in (before, [before], [END, before], []):
        with pytest.raises(WriteError, match="failed validation"):
            city.insert_one(hashed([{**new, "at": refused}])[0])
    victim = city.find_one({"at": {"$lt": END}})
    with pytest.raises(WriteError, match="failed validation"):
        spatial.update_one({"_id": victim["_id"]}, {"$push": {"words": "new"}})
    with pytest.raises(WriteError, match="failed validation"):
        city.update_one({"_id": victim["_id"]}, {"$unset": {"stk": ""}})
    for number, accepted in enumerate((END, END + dt.timedelta(days=400), "2026-03-01", 7, None)):
        city.insert_one(hashed([{**new, "_id": f"new {number}", "at": accepted}])[0])
    city.insert_one(hashed([{**new, "_id": "no time"}])[0])
    assert _same(spatial, _query("new")) == 0
    assert _same(spatial, _query("new", END + dt.timedelta(days=1))) == 1
    with pytest.raises(WriteError, match="failed validation"):
        city.update_one({"_id": "new 0"}, {"$set": {"at": before}})
    reopen(city)
    city.insert_one(hashed([{**new, "_id": "late", "at": before}])[0])
    assert _same(spatial, _query("new")) == 1
    with pytest.raises(UsageError, match=r"has fresh documents before .* as _id 'late'; seal them first"):
        _shut(city)
    city.insert_one(hashed([{**new, "_id": "later", "at": before}])[0])
    assert _same(spatial, _query("new")) == 2
    assert seal(city, run(load_info(city)), SETTINGS) == 4
    _shut(city)
    assert _same(SpatialCollection(city), _query("new")) == 2


def test_what_cannot_be_shut_stays_as_it_was(city: Any) -> None:
    spatial = SpatialCollection(city)
    city.insert_one(hashed([{"_id": "late", "loc": POINT, "at": END, "words": ["late"]}])[0])
    with pytest.raises(UsageError, match="has fresh documents"):
        _shut(city, END + dt.timedelta(hours=1))
    assert run(load_info(city)).shut_ms == round(END.timestamp() * 1000)
    assert spatial.plan(_query("late")).commands == 0
    assert _same(spatial, _query("late", END + dt.timedelta(hours=1))) == 1
    _shut(city, START)  # what is less is let in first
    city.insert_one(hashed([{"_id": "again", "loc": POINT, "at": START, "words": ["late"]}])[0])
    assert _same(spatial, _query("late")) == 1


def test_whatever_is_accepted_is_found_while_others_shut_and_open(city: Any) -> None:
    """A client that knows it as shut, of a validator that it does not read again, misses nothing."""
    spatial, info = SpatialCollection(city), run(load_info(city))
    assert _same(spatial, _query("fresh")) == 0
    stop, failures, turns = threading.Event(), [], [0]

    def disturb() -> None:
        try:
            while not stop.is_set():
                reopen(city)
                time.sleep(0.05)
                seal(city, info, SETTINGS)
                try:
                    _shut(city)
                    turns[0] += 1
                except UsageError:
                    pass  # another came in
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    accepted = refused = 0
    try:
        until = time.monotonic() + 8
        # At least so long, and on a slow machine until enough of everything has happened.
        while time.monotonic() < until or turns[0] <= 2 or accepted <= 20 or refused <= 20:
            assert time.monotonic() < until + 60
            name = f"fresh {accepted}"
            try:
                city.insert_one(
                    hashed([{"_id": name, "loc": POINT, "at": START, "words": ["fresh", name]}])[0]
                )
            except WriteError:
                refused += 1
                time.sleep(0.002)
                continue
            accepted += 1
            assert [one["_id"] for one in spatial.find(_query(name))] == [name]
            time.sleep(0.03 if accepted % 5 else 0.8)
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert turns[0] > 2
    assert accepted > 20
    assert refused > 20


@pytest.mark.parametrize("step", ["set_clause", "_some_fresh", "_published", "_left"])
@pytest.mark.parametrize("opening", [False, True])
def test_killed_while_shutting_or_opening(
    city: Any, monkeypatch: pytest.MonkeyPatch, step: str, opening: bool
) -> None:
    if opening and step == "_some_fresh":
        return
    spatial = SpatialCollection(city)
    if not opening:
        reopen(city)
    assert _same(spatial, _query("fresh")) == 0  # it knows how things are
    with monkeypatch.context() as patched:

        def dies(*_: Any) -> Any:
            raise KeyboardInterrupt

        patched.setattr(shutting, step, dies)
        with pytest.raises(KeyboardInterrupt):
            reopen(city) if opening else _shut(city)
    new = hashed([{"_id": "fresh", "loc": POINT, "at": START, "words": ["fresh"]}])[0]
    try:
        city.insert_one(new)
    except WriteError:
        assert _same(spatial, _query("fresh")) == 0
    else:
        assert _same(spatial, _query("fresh")) == 1
    with pytest.raises(
        Busy, match=r"another shuts or opens .*: (shut|open) since .* If it is dead, use --force"
    ):
        reopen(city)
    reopen(city, force=True)
    city.delete_one({"_id": "fresh"})
    city.insert_one(new)
    assert _same(spatial, _query("fresh")) == 1


def test_opened_for_a_work_that_is_killed(city: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = run(load_info(city))
    with monkeypatch.context() as patched:
        patched.setattr(shutting, "set_clause", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reopen_for(city, "a work")
    with pytest.raises(Busy, match="a work since"):
        reopen_for(city, "another work")
    reopen_for(city, "a work")
    city.insert_one(hashed([{"_id": "fresh", "loc": POINT, "at": START, "words": ["fresh"]}])[0])
    assert "it stays open: " in (shut_again(city, info, SETTINGS) or "")
    seal(city, info, SETTINGS)
    assert shut_again(city, info, SETTINGS) is None
    assert run(load_info(city)).shut_ms == info.shut_ms
    assert shut_again(city, info, SETTINGS) is None  # once


def test_other_settings_and_none(city: Any) -> None:
    spatial, rng = SpatialCollection(city), random.Random(10)
    queries = [random_query(rng) for _ in range(20)]
    found = sum(_same(spatial, query) for query in queries)
    other = StkSettings(bin_s=4 * 3600, cell_bits=26, cube_bin_bits=1, cube_cell_bits=2)
    assert enable(city, other, sized=True, grace_s=GRACE_S).sealed == COUNT
    info = run(load_info(city))
    assert (info.stk, info.shut_ms) == (other, None)
    assert sum(_same(spatial, query) for query in queries) == found
    shut(city, info, other, END)
    states(city).delete_one(
        {"_id": city.full_name}
    )  # the filters are lost, and set up anew with other settings
    assert enable(city, SETTINGS, sized=True, grace_s=GRACE_S).sealed == COUNT
    spatial.forget()
    assert sum(_same(spatial, query) for query in queries) == found
    _shut(city)
    assert enable(city, grace_s=GRACE_S).sealed == 0  # nothing to do, and nothing is opened
    assert run(load_info(city)).shut_ms is not None
    disable(city)
    city.update_one({"_id": 1}, {"$set": {"words": ["free"], "at": START}})
    spatial.forget()
    assert _same(spatial, _query({"$in": WORDS[:3]})) > 100
