"""Every form of write on a sharded collection whose validator refuses a wrong gh, against a plain collection.

What is written to the one is written to the other: the same documents but for gh, the same results, the same errors.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from bson.min_key import MinKey
from bson.objectid import ObjectId
from pymongo import AsyncMongoClient, MongoClient, ReturnDocument, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, WriteError
from pymongo.results import UpdateResult

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo, true_gh
from spatialnosql.steps import Steps, run, run_async
from spatialnosql.writes import (
    ConcurrentMoves,
    find_one_and_steps,
    replace_steps,
    to_insert,
    update_steps,
)

Documents = Collection[dict[str, Any]]


def point(lng: float, lat: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [lng, lat]}


START: list[dict[str, Any]] = [
    {"_id": 0, "n": 0, "loc": point(-100.0, -10.0)},  # on the first shard
    {"_id": 1, "n": 1, "loc": point(-100.0, 10.0)},
    {"_id": 2, "n": 2, "loc": point(10.0, 10.0)},  # on the second
    {"_id": 3, "n": 3, "loc": [100.0, 40.0]},  # on the third
    {"_id": 4, "n": 4, "loc": {"lng": 101, "lat": 41}},
    {"_id": 5, "n": 5},
    {"_id": 6, "n": 6, "loc": None, "old": point(50.0, 5.0)},
    {"_id": 7, "n": 7, "loc": "nowhere", "tags": [{"k": 1}, {"k": 2}]},
]


@dataclass
class Sides:
    """A collection of points on three shards, and a plain one beside it."""

    spatial: Documents
    plain: Documents
    info: CollectionInfo
    uri: str

    def reset(self, documents: list[dict[str, Any]]) -> None:
        for side in (self.spatial, self.plain):
            side.delete_many({})
        if documents:
            self.spatial.insert_many([to_insert(dict(one), self.info) for one in documents])
            self.plain.insert_many([dict(one) for one in documents])

    def documents(self) -> tuple[list[Any], list[Any]]:
        """The documents of both, without gh; what no two servers can agree on is made equal."""
        found = list(self.spatial.find({}, sort=[("_id", 1)]))
        for one in found:
            one.pop(self.info.gh, None)
        return _comparable(found), _comparable(list(self.plain.find({}, sort=[("_id", 1)])))

    def assert_same(self) -> None:
        spatial, plain = self.documents()
        assert spatial == plain
        wrong = {
            "$nor": [true_gh(self.info.location, self.info.gh, self.info.form, unhashed=self.info.unhashed)]
        }
        assert list(self.spatial.find(wrong)) == []


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, (ObjectId, dt.datetime)):
        return type(value).__name__
    return value


def make_sides(
    client: MongoClient[dict[str, Any]], uri: str, location: str = "loc", unhashed: bool = True
) -> Sides:
    """With `unhashed` the validator takes locations that are no points, as the plain collection does."""
    name = f"test_{secrets.token_hex(6)}"
    database, namespace = client[name], f"{name}.points"
    spatial = database.create_collection("points", validator=true_gh(location, unhashed=unhashed))
    client.admin.command("shardCollection", namespace, key={"gh": 1, "_id": 1})
    shards = sorted(shard["_id"] for shard in client.admin.command("listShards")["shards"])
    bounds = [MinKey(), "8", "s"]
    for bound in bounds[1:]:
        client.admin.command("split", namespace, middle={"gh": bound, "_id": MinKey()})
    for bound, shard in zip(bounds, shards, strict=False):
        client.admin.command("moveChunk", namespace, find={"gh": bound, "_id": MinKey()}, to=shard)
    info = CollectionInfo(namespace, location, unhashed=unhashed)
    return Sides(spatial, database["plain"], info, uri)


@pytest.fixture(scope="module")
def made_sides(cluster: Any, client: MongoClient[dict[str, Any]]) -> Iterator[Sides]:
    sides = make_sides(client, cluster.uri)
    yield sides
    client.drop_database(sides.spatial.database.name)


@pytest.fixture
def sides(made_sides: Sides) -> Sides:
    made_sides.reset(START)
    return made_sides


Drive = Callable[[Callable[[Any], Steps[Any]]], Any]


@pytest.fixture(scope="module")
def drive_async(made_sides: Sides) -> Iterator[Drive]:
    loop = asyncio.new_event_loop()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(made_sides.uri)
    collection = client[made_sides.spatial.database.name][made_sides.spatial.name]
    yield lambda make: loop.run_until_complete(run_async(make(collection)))
    loop.run_until_complete(client.close())
    loop.close()


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest, made_sides: Sides) -> Drive:
    """Runs steps made for a collection, with one client or the other."""
    if request.param == "async":
        return request.getfixturevalue("drive_async")  # type: ignore[no-any-return]
    return lambda make: run(make(made_sides.spatial))


def outcome(write: Callable[[], Any]) -> Any:
    """A result, or an error, as far as both sides must agree on it."""
    try:
        result = write()
    except OperationFailure as error:
        return "error", error.code
    if isinstance(result, UpdateResult):
        return result.matched_count, result.modified_count, result.did_upsert, _comparable(result.upserted_id)
    if isinstance(result, dict):
        result = {name: value for name, value in result.items() if name != "gh"}
    return _comparable(result)


# -- updates ----------------------------------------------------------------------------------------------

NORTH = {"$set": {"loc.coordinates.1": {"$add": [{"$arrayElemAt": ["$loc.coordinates", 1]}, 1]}}}
UPDATES: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("another field", {"_id": 0}, {"$set": {"n": 9}}, {}),
    ("to another shard", {"_id": 0}, {"$set": {"loc": point(100.0, 40.0)}, "$inc": {"n": 1}}, {}),
    ("on the same shard", {"_id": 0}, {"$set": {"loc": point(-101.0, -11.0)}}, {}),
    ("to where it is", {"_id": 0}, {"$set": {"loc": point(-100.0, -10.0)}}, {}),
    ("to nowhere", {"_id": 2}, {"$unset": {"loc": ""}}, {}),
    ("to no point", {"_id": 2}, {"$set": {"loc": "lost"}}, {}),
    ("from nowhere", {"_id": 5}, {"$set": {"loc": point(100.0, 40.0)}}, {}),
    ("a coordinate", {"_id": 0}, {"$set": {"loc.coordinates.0": 120.5}}, {}),
    ("both coordinates", {"_id": 0}, {"$set": {"loc.coordinates": [120.5, 1]}}, {}),
    ("a legacy coordinate", {"_id": 3}, {"$inc": {"loc.0": -150}}, {}),
    ("a coordinate by name", {"_id": 4}, {"$mul": {"loc.lng": -1}}, {}),
    ("off the globe", {"_id": 3}, {"$inc": {"loc.0": 500}}, {}),
    ("$min", {"_id": 3}, {"$min": {"loc.0": -50.5}}, {}),
    ("$max in vain", {"_id": 3}, {"$max": {"loc.0": -50.5}}, {}),
    ("the type removed", {"_id": 0}, {"$unset": {"loc.type": ""}}, {}),
    ("renamed to", {"_id": 6}, {"$rename": {"old": "loc"}}, {}),
    ("renamed from", {"_id": 2}, {"$rename": {"loc": "old"}}, {}),
    ("renamed from nothing", {"_id": 2}, {"$rename": {"nothing": "loc"}}, {}),
    ("a coordinate renamed", {"_id": 4}, {"$rename": {"loc.lng": "loc.z"}}, {}),
    ("a note", {"_id": 0}, {"$push": {"loc.notes": "x"}}, {}),
    ("a date", {"_id": 0}, {"$currentDate": {"loc": True}}, {}),
    ("refused by the server", {"_id": 7}, {"$set": {"loc.coordinates.0": 5}}, {}),
    ("refused too", {"_id": 7}, {"$inc": {"loc": 5}}, {}),
    ("no match", {"_id": 99}, {"$inc": {"loc.0": 5}}, {}),
    ("a pipeline", {"_id": 0}, [{"$set": {"loc": point(100.0, 1.0)}}], {}),
    ("a computing pipeline", {"_id": 0}, [NORTH], {}),
    ("a replacing pipeline", {"_id": 0}, [{"$replaceWith": {"loc": [5, 5], "n": "$n"}}], {}),
    ("a projecting pipeline", {"_id": 0}, [{"$project": {"n": 1}}], {}),
    ("a bad pipeline", {"_id": 0}, [{"$set": {"loc": {"$nonsense": 1}}}], {}),
    (
        "the positional operator elsewhere",
        {"_id": 7, "tags.k": 2},
        {"$set": {"tags.$.k": 5, "loc": [1, 2]}},
        {},
    ),
    ("with a guard and the positional operator", {"_id": 7, "tags.k": 2}, {"$set": {"tags.$.k": 5}}, {}),
    (
        "array filters",
        {"_id": 7},
        {"$set": {"tags.$[t].k": 5, "loc": [1, 2]}},
        {"array_filters": [{"t.k": 1}]},
    ),
    ("let", {"$expr": {"$eq": ["$_id", "$$it"]}}, {"$inc": {"loc.0": -150}}, {"let": {"it": 3}}),
    ("hint and comment", {"_id": 3}, {"$inc": {"loc.0": -150}}, {"hint": "_id_", "comment": "why"}),
    ("collation", {"_id": 3}, {"$inc": {"loc.0": -150}}, {"collation": {"locale": "en", "strength": 2}}),
]
ONE_ONLY: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("the last by n", {"loc": {"$type": "object"}}, {"$inc": {"loc.lng": -150}}, {"sort": {"n": -1}}),
]
MANY: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("another field of all", {}, {"$inc": {"n": 1}}, {}),
    ("all to one place", {}, {"$set": {"loc": point(100.0, 40.0)}, "$inc": {"n": 1}}, {}),
    ("all to nowhere", {}, {"$unset": {"loc": ""}}, {}),
    ("all a bit east", {"loc.type": "Point"}, {"$inc": {"loc.coordinates.0": 30.5, "n": 1}}, {}),
    ("what it filters by", {"loc.coordinates.0": {"$lt": 50}}, {"$inc": {"loc.coordinates.0": 90}}, {}),
    (
        "all by a pipeline",
        {"loc.type": "Point"},
        [{"$set": {"loc.coordinates": [77, {"$add": ["$n", 1]}]}}],
        {},
    ),
    (
        "in a region",
        {"loc": {"$geoWithin": {"$centerSphere": [[100, 40], 0.1]}}},
        {"$set": {"loc": [1, 1]}},
        {},
    ),
    ("none", {"n": 99}, {"$set": {"loc": [1, 1]}}, {}),
    ("all renamed", {}, {"$rename": {"old": "loc"}}, {}),
]
UPSERTS: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("$set", {"_id": 50}, {"$set": {"loc": point(100.0, 40.0)}}, {}),
    ("$set of one that is there", {"_id": 0}, {"$set": {"loc": point(100.0, 40.0)}}, {}),
    ("$setOnInsert", {"_id": 50}, {"$setOnInsert": {"loc": point(100.0, 40.0)}, "$set": {"n": 1}}, {}),
    ("$setOnInsert in vain", {"_id": 0}, {"$setOnInsert": {"loc": point(100.0, 40.0)}, "$set": {"n": 1}}, {}),
    ("without _id", {"n": 50}, {"$set": {"loc": point(100.0, 40.0)}}, {}),
    ("without a place", {"n": 50}, {"$set": {"a": 1}}, {}),
    ("the place in the filter", {"n": 50, "loc": point(100.0, 40.0)}, {"$set": {"a": 1}}, {}),
    ("the place under $and", {"$and": [{"n": 50}, {"loc": {"$eq": [100, 40]}}]}, {"$set": {"a": 1}}, {}),
    ("the place in $in", {"n": 50, "loc": {"$in": [[100, 40]]}}, {"$inc": {"a": 1}}, {}),
    ("the place in parts", {"loc.type": "Point", "loc.coordinates": [100, 40]}, {"$inc": {"a": 1}}, {}),
    ("a part of the place in the filter", {"_id": 50, "loc": [100, 40]}, {"$inc": {"loc.0": -150}}, {}),
    ("parts, some on insertion", {"_id": 50}, {"$set": {"loc.0": 5}, "$setOnInsert": {"loc.1": 6}}, {}),
    ("a part of one that is there", {"_id": 3}, {"$inc": {"loc.0": -150}}, {}),
    ("a pipeline", {"_id": 50}, [{"$set": {"loc": point(100.0, 40.0)}}], {}),
    ("a pipeline and a place in the filter", {"_id": 50, "loc": [100, 40]}, [{"$set": {"a": 1}}], {}),
    ("renamed from the filter", {"_id": 50, "old": [100, 40]}, {"$rename": {"old": "loc"}}, {}),
]


def _check(
    sides: Sides, drive: Drive, case: tuple[str, dict[str, Any], Any, dict[str, Any]], **how: bool
) -> None:
    _, which, update, options = case
    method = sides.plain.update_many if how.get("many") else sides.plain.update_one
    wanted = outcome(lambda: method(which, update, upsert=how.get("upsert", False), **options))
    given = outcome(
        lambda: drive(
            lambda collection: update_steps(collection, which, update, sides.info, options=options, **how),
        )
    )
    assert given == wanted
    sides.assert_same()


@pytest.mark.parametrize("case", UPDATES + ONE_ONLY, ids=lambda case: case[0])
def test_update_one(sides: Sides, drive: Drive, case: Any) -> None:
    _check(sides, drive, case)


@pytest.mark.parametrize("case", MANY, ids=lambda case: case[0])
def test_update_many(sides: Sides, drive: Drive, case: Any) -> None:
    _check(sides, drive, case, many=True)


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case[0])
def test_update_many_of_one(sides: Sides, case: Any) -> None:
    _check(sides, lambda make: run(make(sides.spatial)), case, many=True)


@pytest.mark.parametrize("case", UPSERTS, ids=lambda case: case[0])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_upserts(sides: Sides, drive: Drive, many: bool, case: Any) -> None:
    _check(sides, drive, case, many=many, upsert=True)


def test_upsert_of_an_increment_says_what_to_do(sides: Sides) -> None:
    strict = CollectionInfo(sides.info.namespace)
    steps = update_steps(sides.spatial, {"_id": 50}, {"$inc": {"loc.coordinates.0": 1}}, strict, upsert=True)
    with pytest.raises(UsageError, match=r"\$setOnInsert"):
        run(steps)
    sides.assert_same()


REPLACEMENTS = [{"loc": point(100.0, 40.0)}, {"n": 5}, {"loc": "lost", "gh": "wrong"}]


@pytest.mark.parametrize("number", [0, 50], ids=["there", "inserted"])
@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=str)
def test_replacements(sides: Sides, drive: Drive, replacement: dict[str, Any], number: int) -> None:
    bare = {name: value for name, value in replacement.items() if name != "gh"}
    wanted = outcome(lambda: sides.plain.replace_one({"_id": number}, bare, upsert=True))
    steps = lambda to: replace_steps(to, {"_id": number}, replacement, sides.info, upsert=True)  # noqa: E731
    assert outcome(lambda: drive(steps)) == wanted
    sides.assert_same()


# -- find and modify --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case[0])
def test_find_one_and_update(sides: Sides, drive_async: Drive, case: Any) -> None:
    # By turns with one client and the other, and before and after the change.
    number = UPDATES.index(case)
    drive = drive_async if number % 2 else lambda make: run(make(sides.spatial))
    after = bool(number // 2 % 2)
    _, which, update, options = case
    options = {**options, "return_document": after, "sort": [("n", 1)]}
    wanted = outcome(lambda: sides.plain.find_one_and_update(which, update, **options))
    steps = lambda to: find_one_and_steps(to, which, update, sides.info, options=options)  # noqa: E731
    assert outcome(lambda: drive(steps)) == wanted
    sides.assert_same()


@pytest.mark.parametrize("case", UPSERTS, ids=lambda case: case[0])
def test_find_one_and_upsert(sides: Sides, drive: Drive, case: Any) -> None:
    _, which, update, _ = case
    # No projection: of what it inserts, a sharded cluster returns all fields whatever is asked for.
    options = {"return_document": ReturnDocument.AFTER}
    wanted = outcome(lambda: sides.plain.find_one_and_update(which, update, upsert=True, **options))
    steps = lambda to: find_one_and_steps(  # noqa: E731
        to, which, update, sides.info, upsert=True, options=options
    )
    assert outcome(lambda: drive(steps)) == wanted
    sides.assert_same()


def test_find_one_and_update_sorts_and_projects(sides: Sides, drive: Drive) -> None:
    which, update = {"loc.type": "Point"}, {"$inc": {"loc.coordinates.0": 40}}
    options: dict[str, Any] = {"sort": [("n", -1)], "projection": {"n": 1, "_id": 0}}
    wanted = sides.plain.find_one_and_update(which, update, **options)
    steps = lambda to: find_one_and_steps(to, which, update, sides.info, options=options)  # noqa: E731
    assert drive(steps) == wanted == {"n": 2}
    sides.assert_same()


@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=str)
def test_find_one_and_replace(sides: Sides, drive: Drive, replacement: dict[str, Any]) -> None:
    bare = {name: value for name, value in replacement.items() if name != "gh"}
    wanted = sides.plain.find_one_and_replace({"_id": 0}, bare)
    steps = lambda to: find_one_and_steps(  # noqa: E731
        to, {"_id": 0}, replacement, sides.info, replace=True
    )
    assert outcome(lambda: drive(steps)) == wanted
    sides.assert_same()


# -- transactions and write concerns ----------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_in_a_transaction(sides: Sides, commit: bool) -> None:
    writes: list[tuple[dict[str, Any], Any, dict[str, bool]]] = [
        ({"_id": 0}, {"$set": {"loc": point(100.0, 40.0)}}, {}),
        ({"loc.type": "Point"}, {"$inc": {"loc.coordinates.0": 20.5}}, {"many": True}),
        ({"_id": 3}, {"$inc": {"loc.0": -150}}, {}),
        ({"_id": 50}, {"$set": {"loc": [1, 2]}}, {"upsert": True, "many": True}),
        ({}, [{"$set": {"loc": [3, "$n"]}}], {"many": True}),
    ]
    with sides.spatial.database.client.start_session() as session, session.start_transaction():
        for which, update, how in writes:
            run(update_steps(sides.spatial, which, update, sides.info, options={"session": session}, **how))
            if commit:
                many = how.get("many")
                method = sides.plain.update_many if many else sides.plain.update_one
                method(which, update, upsert=how.get("upsert", False))
        if not commit:
            session.abort_transaction()
    sides.assert_same()


def test_in_an_asynchronous_transaction(sides: Sides) -> None:
    async def main() -> None:
        async with AsyncMongoClient(sides.uri) as client:
            collection = client[sides.spatial.database.name][sides.spatial.name]
            async with client.start_session() as session, await session.start_transaction():
                for number in (0, 1, 2):
                    update = {"$inc": {"loc.coordinates.0": 50}}
                    options = {"session": session}
                    await run_async(
                        update_steps(collection, {"_id": number}, update, sides.info, options=options)
                    )

    asyncio.run(main())
    sides.plain.update_many({"_id": {"$lte": 2}}, {"$inc": {"loc.coordinates.0": 50}})
    sides.assert_same()


def test_unacknowledged_writes_are_written(sides: Sides) -> None:
    silent = sides.spatial.with_options(write_concern=WriteConcern(w=0))
    for update in ({"$set": {"loc": [1, 2]}}, {"$inc": {"loc.0": 150}}):
        result = run(update_steps(silent, {"_id": 0}, update, sides.info))
        assert not result.acknowledged
        sides.plain.update_one({"_id": 0}, update)
    assert not run(replace_steps(silent, {"_id": 1}, {"loc": [100, 40]}, sides.info)).acknowledged
    sides.plain.replace_one({"_id": 1}, {"loc": [100, 40]})
    sides.assert_same()


def test_without_retryable_writes_the_servers_error_passes(sides: Sides) -> None:
    with MongoClient[dict[str, Any]](sides.uri, retryWrites=False) as client:
        collection = client[sides.spatial.database.name][sides.spatial.name]
        with pytest.raises(OperationFailure) as raised:
            run(update_steps(collection, {"_id": 0}, {"$inc": {"loc.coordinates.0": 200}}, sides.info))
    assert raised.value.code == 20
    sides.assert_same()


# -- races ------------------------------------------------------------------------------------------------


def run_disturbed(steps: Steps[Any], disturb: Callable[[int], None]) -> Any:
    """Drive steps, and let somebody else in before each command but the first."""
    number = 0
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value
        if number:
            disturb(number)
        number += 1
        answer, failure = None, None
        try:
            answer = step.function(*step.arguments, **step.options)
            answer = answer.to_list() if step.listed else answer
        except Exception as error:
            failure = error


EAST = {"$inc": {"loc.coordinates.0": 10}}


def _once(sides: Sides, filter: dict[str, Any], update: dict[str, Any]) -> Callable[[int], None]:
    def disturb(number: int) -> None:
        if number == 1:
            run(update_steps(sides.spatial, filter, update, sides.info))

    return disturb


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    ("other", "matched", "longitude"),
    [
        ({"$set": {"loc": point(100.0, 1.0)}}, 1, 110.0),
        ({"$inc": {"loc.coordinates.0": 5}}, 1, -85.0),
        ({"$set": {"loc.note": "x"}}, 1, -90.0),
        ({"$set": {"a": 1}}, 1, -90.0),
        ({"$set": {"n": 77}}, 0, -100.0),
    ],
    ids=["moved to another shard", "moved", "changed", "not concerned", "no longer meant"],
)
def test_a_lost_race_is_run_again(
    sides: Sides, many: bool, other: Any, matched: int, longitude: float
) -> None:
    steps = update_steps(sides.spatial, {"n": 0}, EAST, sides.info, many=many)
    result = run_disturbed(steps, _once(sides, {"_id": 0}, other))
    assert result.matched_count == matched
    found = sides.spatial.find_one({"_id": 0})
    assert found is not None
    assert found["loc"]["coordinates"][0] == longitude


def test_others_that_never_stop_are_an_error_in_words(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialnosql.writes.guarded.ATTEMPTS", 3)

    def disturb(number: int) -> None:
        run(update_steps(sides.spatial, {"_id": 0}, {"$inc": {"loc.coordinates.0": 1}}, sides.info))

    for many in (False, True):
        with pytest.raises(ConcurrentMoves, match="others changed 'loc'") as raised:
            run_disturbed(update_steps(sides.spatial, {"_id": 0}, EAST, sides.info, many=many), disturb)
        assert isinstance(raised.value, WriteError)
        assert raised.value.code == 112


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_an_upsert_finds_what_somebody_else_inserted_meanwhile(sides: Sides, many: bool) -> None:
    def disturb(number: int) -> None:
        if number == 1:
            sides.spatial.insert_one(to_insert({"_id": 50, "loc": [100, 40], "k": 1}, sides.info))

    which, update = {"_id": 50, "loc": [100, 40]}, {"$inc": {"loc.0": 1}}
    steps = update_steps(sides.spatial, which, update, sides.info, upsert=True, many=many)
    if many:
        disturb, inner = (lambda number: inner(number - 1)), disturb  # it looks twice before it inserts
    result = run_disturbed(steps, disturb)
    assert (result.matched_count, result.did_upsert) == (1, False)
    found = sides.spatial.find_one({"_id": 50})
    assert found is not None
    assert (found["loc"], found["k"]) == ([101, 40], 1)
