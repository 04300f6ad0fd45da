"""Bulk writes, and random sequences of writes: both collections agree on documents, counts and errors.

``--examples N`` for more of the random ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from pymongo import (
    DeleteMany,
    DeleteOne,
    InsertOne,
    MongoClient,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
    WriteConcern,
)
from pymongo.errors import BulkWriteError, InvalidOperation
from pymongo.results import BulkWriteResult
from test_writes_server import (
    Drive,
    Sides,
    _comparable,
    drive,
    drive_async,
    made_sides,
    make_sides,
    outcome,
    point,
    sides,
)

from spatialnosql.errors import UsageError
from spatialnosql.steps import run
from spatialnosql.writes import bulk_steps, find_one_and_steps, replace_steps, to_insert, update_steps

__all__ = ["drive", "drive_async", "made_sides", "sides"]  # the fixtures

COUNTS = ("nInserted", "nUpserted", "nMatched", "nModified", "nRemoved")


def bulk_outcome(write: Any) -> Any:
    """The counts, the upserted ids and the errors, each with its place in the list."""
    try:
        result = write()
        assert isinstance(result, BulkWriteResult)
        api, errors = result.bulk_api_result, []
    except BulkWriteError as error:
        api, errors = error.details, [(one["index"], one["code"]) for one in error.details["writeErrors"]]
    return {name: api[name] for name in COUNTS}, _comparable(api["upserted"]), errors


HERE, THERE = point(-100.0, -10.0), point(100.0, 40.0)
LISTS: dict[str, list[Any]] = {
    "nothing special": [
        InsertOne({"_id": 50}),
        UpdateOne({"_id": 0}, {"$inc": {"n": 1}}),
        DeleteOne({"_id": 1}),
    ],
    "moves among others": [
        InsertOne({"_id": 50, "loc": HERE}),
        UpdateOne({"_id": 50}, {"$set": {"loc": THERE}}),
        UpdateOne({"_id": 2}, {"$set": {"n": 1}}),
        ReplaceOne({"_id": 2}, {"loc": THERE}),
        UpdateMany({"_id": {"$lt": 3}}, {"$inc": {"n": 1}}),
        UpdateMany({"loc.type": "Point"}, {"$inc": {"loc.coordinates.0": 10.5}}),
        UpdateOne({"_id": 3}, {"$inc": {"loc.0": -150}}),
        UpdateOne({"_id": 4}, [{"$set": {"loc": HERE}}]),
        DeleteMany({"n": {"$gt": 6}}),
        DeleteOne({"_id": 5}),
    ],
    "upserts of every kind": [
        UpdateOne({"_id": 60}, {"$set": {"loc": HERE}}, upsert=True),
        UpdateOne({"_id": 61}, {"$setOnInsert": {"loc": THERE}}, upsert=True),
        ReplaceOne({"_id": 62}, {"loc": THERE}, upsert=True),
        UpdateMany({"_id": 63}, {"$set": {"loc": THERE}}, upsert=True),
        UpdateMany({"_id": 64}, {"$set": {"n": 1}}, upsert=True),
        UpdateOne({"_id": 65, "loc": [1, 2]}, {"$inc": {"loc.0": 5}}, upsert=True),
        UpdateOne({"_id": 66}, [{"$set": {"loc": THERE}}], upsert=True),
        UpdateMany({"_id": 0}, {"$set": {"loc": THERE}}, upsert=True),
    ],
    "errors": [
        InsertOne({"_id": 50, "loc": HERE}),
        UpdateOne({"_id": 0}, {"$set": {"loc": THERE}}),
        InsertOne({"_id": 50, "loc": HERE}),  # there already
        UpdateOne({"_id": 7}, {"$set": {"loc.coordinates.0": 1}}),  # "nowhere" has no coordinates
        UpdateOne({"_id": 1}, {"$inc": {"n": "text"}}),
        UpdateMany({"_id": 2}, {"$inc": {"loc.coordinates.0": 5}}),
        DeleteOne({"_id": 3}),
        ReplaceOne({"_id": 1}, {"_id": 2, "loc": THERE}),  # _id cannot change
        UpdateOne({"_id": 4}, {"$set": {"loc": HERE}}),
    ],
    "an error at the end": [
        UpdateOne({"_id": 0}, {"$set": {"loc": THERE}}, upsert=True),
        UpdateOne({"_id": 51}, {"$set": {"loc": THERE}}, upsert=True),
        InsertOne({"_id": 1, "loc": point(-100.0, 10.0)}),  # where it is: only a shard keeps _id unique
    ],
    "options of its own": [
        UpdateOne({"_id": 7}, {"$set": {"tags.$[t].k": 5, "loc": [1, 2]}}, array_filters=[{"t.k": 1}]),
        UpdateOne(
            {"_id": 7}, {"$inc": {"tags.$[t].k": 5, "loc.0": 150}}, array_filters=[{"t.k": 2}], hint="_id_"
        ),
        UpdateOne({"loc.type": "Point"}, {"$inc": {"loc.coordinates.0": 50}}, sort={"n": -1}),
        UpdateMany({"_id": 3}, {"$inc": {"loc.0": 5}}, hint=[("_id", 1)], collation={"locale": "en"}),
    ],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
def test_bulk_write(sides: Sides, drive: Drive, name: str, ordered: bool) -> None:
    if name == "errors" and not ordered:
        # On a plain collection unordered inserts go first; nothing here depends on that.
        assert all(
            isinstance(one, (InsertOne, UpdateOne, UpdateMany, ReplaceOne, DeleteOne)) for one in LISTS[name]
        )
    requests = LISTS[name]
    wanted = bulk_outcome(lambda: sides.plain.bulk_write(requests, ordered=ordered))
    steps = lambda to: bulk_steps(to, requests, sides.info, ordered=ordered)  # noqa: E731
    assert bulk_outcome(lambda: drive(steps)) == wanted
    sides.assert_same()


def test_bulk_gives_the_callers_documents_their_ids_and_leaves_updates_alone(sides: Sides) -> None:
    document: dict[str, Any] = {"loc": HERE}
    update = {"$set": {"loc": THERE}}
    request = UpdateOne({"_id": 0}, update)
    run(bulk_steps(sides.spatial, [InsertOne(document), request], sides.info))
    assert set(document) == {"loc", "_id"}
    assert update == {"$set": {"loc": THERE}}
    assert request == UpdateOne({"_id": 0}, {"$set": {"loc": THERE}})


def test_what_is_no_bulk_is_refused_as_pymongo_does(sides: Sides) -> None:
    with pytest.raises(InvalidOperation, match="No operations"):
        run(bulk_steps(sides.spatial, [], sides.info))
    with pytest.raises(TypeError, match="list"):
        run(bulk_steps(sides.spatial, "text", sides.info))
    with pytest.raises(TypeError, match="not a valid request"):
        run(bulk_steps(sides.spatial, [5, UpdateOne({"_id": 0}, {"$set": {"loc": HERE}})], sides.info))


def test_what_cannot_be_kept_true_stops_the_bulk_before_it_begins(sides: Sides) -> None:
    requests = [DeleteMany({}), UpdateOne({"_id": 0}, {"$push": {"loc.coordinates": 1}})]
    with pytest.raises(UsageError, match=r"\$push"):
        run(bulk_steps(sides.spatial, requests, sides.info))
    sides.assert_same()


def test_what_turns_out_wrong_on_the_way_is_an_error_of_its_request(sides: Sides) -> None:
    requests = [
        UpdateOne({"_id": 5}, {"$inc": {"n": 1}}),
        UpdateOne({"_id": 0}, {"$min": {"loc": THERE}}),
        DeleteOne({"_id": 1}),
    ]
    with pytest.raises(BulkWriteError) as raised:
        run(bulk_steps(sides.spatial, requests, sides.info))
    assert raised.value.details["nModified"] == 1
    (error,) = raised.value.details["writeErrors"]
    assert (error["index"], error["code"]) == (1, 2)
    assert "pipeline" in error["errmsg"]
    assert error["op"]["q"] == {"_id": 0}


def test_bulk_in_a_transaction(sides: Sides) -> None:
    requests = LISTS["moves among others"]
    with sides.spatial.database.client.start_session() as session:
        with session.start_transaction():
            run(bulk_steps(sides.spatial, requests, sides.info, options={"session": session}))
            session.abort_transaction()
        sides.assert_same()
        with session.start_transaction():
            run(
                bulk_steps(
                    sides.spatial, requests, sides.info, options={"session": session, "comment": "why"}
                )
            )
    sides.plain.bulk_write(requests)
    sides.assert_same()


def test_unacknowledged_bulk(sides: Sides) -> None:
    silent = sides.spatial.with_options(write_concern=WriteConcern(w=0))
    requests = [UpdateOne({"_id": 0}, {"$set": {"loc": THERE}}), UpdateOne({"_id": 1}, {"$inc": {"n": 1}})]
    assert not run(bulk_steps(silent, requests, sides.info)).acknowledged
    sides.plain.bulk_write(requests)
    sides.assert_same()


# -- seeded random writes ---------------------------------------------------------------------------------


class Grammar:
    """Random writes of a collection whose points lie at `path`."""

    def __init__(self, rng: random.Random, path: str) -> None:
        self.rng, self.path = rng, path

    def number(self) -> Any:
        value = self.rng.choice(
            [self.rng.uniform(-85, 85), self.rng.randint(-80, 80), self.rng.choice([0, 1, -1, 0.5, 300])]
        )
        kind = self.rng.randrange(10)
        if kind == 0:
            return Decimal128(f"{value:.6f}")
        return Int64(int(value)) if kind == 1 else value

    def location(self) -> Any:
        lng, lat = self.number(), self.number()
        return self.rng.choice(
            [
                {"type": "Point", "coordinates": [lng, lat]},
                {"type": "Point", "coordinates": [lng, lat]},
                {"type": "Point", "coordinates": [lng, lat]},
                [lng, lat],
                {"lng": lng, "lat": lat},
                {"type": "Point"},
                "nowhere",
                None,
            ]
        )

    def within(self, value: Any) -> dict[str, Any]:
        """A document with a value at the path."""
        for name in reversed(self.path.split(".")):
            value = {name: value}
        assert isinstance(value, dict)
        return value

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"n": self.rng.randrange(5)}
        if self.rng.random() < 0.85:
            document |= self.within(self.location())
        if self.rng.random() < 0.4:
            document["old"] = self.location()
        return document

    def part(self) -> str:
        inner = ["coordinates.0", "coordinates.1", "coordinates", "0", "1", "2", "lng", "lat", "type", "a"]
        return f"{self.path}.{self.rng.choice(inner)}"

    def touching(self) -> tuple[str, str, Any]:
        pick = self.rng.randrange(14)
        top = self.path.split(".")[0]
        if pick < 2:
            return "$set", self.path, self.location()
        if pick == 2:
            return "$set", top, self.within(self.location())[top]
        if pick == 3:
            return "$unset", self.rng.choice([self.path, self.part(), top]), ""
        if pick < 6:
            value = self.rng.choice([self.number(), "Point", [self.number(), self.number()]])
            return "$set", self.part(), value
        if pick < 11:
            return self.rng.choice(["$inc", "$mul", "$min", "$max"]), self.part(), self.number()
        if pick == 11:
            names = ["old", self.path, self.part(), self.part(), "other"]
            old, new = self.rng.sample(names, 2)
            return "$rename", old, new
        if pick == 12:
            return "$push", f"{self.path}.notes", 1
        return "$setOnInsert", self.rng.choice([self.path, self.part()]), self.location()

    def update(self) -> Any:
        if self.rng.random() < 0.2:
            stages: list[dict[str, Any]] = [
                {"$set": {"n": {"$add": ["$n", 1]}}},
                {"$set": {self.path: {"$literal": self.location()}}},
                {"$set": {self.path: "$old"}},
                {"$unset": [self.path]},
                {"$set": {"old": f"${self.path}"}},
                # One more each time: whether an equal document counts as modified, servers do not agree.
                {"$replaceWith": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}, **self.within("$old")}},
            ]
            return self.rng.sample(stages, self.rng.randint(1, 2))
        update: dict[str, Any] = {"$inc": {"n": 1}} if self.rng.random() < 0.3 else {}
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            operator, path, argument = self.touching()
            update.setdefault(operator, {})[path] = argument
        return update

    def one(self) -> dict[str, Any]:
        if self.rng.random() < 0.15:
            # An _id that is nowhere yet: an upsert may insert it, and only within a shard it is unique.
            return {"_id": self.rng.randrange(100, 10**9), self.path: self.location()}
        return {"_id": self.rng.randrange(12)}

    def many(self) -> dict[str, Any]:
        return self.rng.choice(
            [
                {},
                {"n": self.rng.randrange(6)},
                {f"{self.path}.type": "Point"},
                {f"{self.path}.0": {"$lt": 0}},
                {"_id": {"$lt": self.rng.randrange(10)}},
            ]
        )


@pytest.fixture(scope="module")
def nested_sides(cluster: Any, client: MongoClient[dict[str, Any]]) -> Iterator[Sides]:
    made = make_sides(client, cluster.uri, "place.point")
    yield made
    client.drop_database(made.spatial.database.name)


def _write(grammar: Grammar, sides: Sides) -> tuple[Any, Any, str]:
    """A random write of the spatial side, the same of the plain side, and what it is."""
    rng, info, spatial, plain = grammar.rng, sides.info, sides.spatial, sides.plain
    kind = rng.choice(["one", "one", "one", "many", "many", "find", "replace", "insert", "delete", "bulk"])
    upsert = rng.random() < 0.3
    if kind in ("one", "many", "find"):
        update = grammar.update()
        which = grammar.many() if kind == "many" else grammar.one()
        upsert = upsert and not (kind == "many" and "n" not in which)
        text = f"{kind} {which} {update} upsert={upsert}"
        if kind == "find":
            mine = lambda: run(find_one_and_steps(spatial, which, update, info, upsert=upsert))  # noqa: E731
            return mine, lambda: plain.find_one_and_update(which, update, upsert=upsert), text
        method = plain.update_many if kind == "many" else plain.update_one
        return (
            lambda: run(update_steps(spatial, which, update, info, upsert=upsert, many=kind == "many")),
            lambda: method(which, update, upsert=upsert),
            text,
        )
    which = {"_id": rng.randrange(12)}
    document = grammar.document()
    if kind == "replace":
        mine = lambda: run(replace_steps(spatial, which, document, info, upsert=upsert))  # noqa: E731
        return mine, lambda: plain.replace_one(which, document, upsert=upsert), f"replace {which} {document}"
    if kind == "insert":
        document["_id"] = rng.randrange(100, 10**9)
        return (
            lambda: spatial.insert_one(to_insert(dict(document), info)) and None,
            lambda: plain.insert_one(dict(document)) and None,
            f"insert {document}",
        )
    if kind == "delete":
        gone = {"_id": {"$gte": 100}}
        return lambda: spatial.delete_many(gone) and None, lambda: plain.delete_many(gone) and None, "delete"
    ordered = rng.random() < 0.5
    requests = _requests(grammar, sides)
    return (
        lambda: bulk_outcome(lambda: run(bulk_steps(spatial, requests, info, ordered=ordered))),
        lambda: bulk_outcome(lambda: plain.bulk_write(requests, ordered=ordered)),
        f"bulk ordered={ordered} {requests}",
    )


def _requests(grammar: Grammar, sides: Sides) -> list[Any]:
    """Requests of one document each, and none of the same: in any order they do the same.

    An ``_id`` is inserted that is nowhere yet, for only within a shard is it unique; and what does not match is
    upserted, for without a match a sharded cluster does not even read the update.
    """
    there = sorted(one["_id"] for one in sides.plain.find({"_id": {"$lt": 20}}, {"_id": 1}))
    requests: list[Any] = []
    for number in grammar.rng.sample(range(20), grammar.rng.randint(1, 6)):
        which, document, update = {"_id": number}, grammar.document(), grammar.update()
        upsert = number not in there or grammar.rng.random() < 0.3
        requests.append(
            grammar.rng.choice(
                [
                    UpdateOne(which, update, upsert=upsert),
                    UpdateOne(which, update, upsert=upsert),
                    UpdateMany(which, update, upsert=upsert),
                    ReplaceOne(which, document, upsert=upsert),
                    DeleteOne(which) if number in there else InsertOne({**which, **document}),
                ]
            )
        )
    return requests


def _resync(sides: Sides) -> None:
    """An update of many that failed has changed some documents, on each side others: begin from the same again."""
    found = list(sides.spatial.find({}, {sides.info.gh: 0}))
    sides.plain.delete_many({})
    if found:
        sides.plain.insert_many(found)


def _failed(result: Any) -> bool:
    return isinstance(result, tuple) and result[0] == "error"


def _random_writes(sides: Sides, seed: int, length: int) -> dict[str, int]:
    grammar = Grammar(random.Random(seed), sides.info.location)
    sides.reset([{"_id": number, **grammar.document()} for number in range(10)])
    tally = {"written": 0, "refused": 0, "errors": 0}
    for _ in range(length):
        mine, other, text = _write(grammar, sides)
        try:
            given = outcome(mine)
        except UsageError:
            tally["refused"] += 1
            sides.assert_same()
            continue
        wanted = outcome(other)
        if given in (None, (0, 0, False, None)) and _failed(wanted) and "upsert=True" not in text:
            continue  # nothing matches: then a sharded cluster does not even read the update
        if _failed(given) and _failed(wanted) and text.startswith("many"):
            wanted = given  # of many documents one side meets this error first, the other that
        assert given == wanted, f"seed {seed}: {text}"
        if _failed(given) and text.startswith("many"):
            _resync(sides)
        tally["errors" if _failed(given) else "written"] += 1
        spatial, plain = sides.documents()
        assert spatial == plain, f"seed {seed}: {text}"
    sides.assert_same()
    return tally


WRITES = 40  # in each sequence


def _many_random_writes(sides: Sides, first_seed: int, examples: int, tally: Counter[str]) -> None:
    for seed in range(first_seed, first_seed + max(3, examples // WRITES // 20)):
        for what, times in _random_writes(sides, seed, WRITES).items():
            tally[f"random writes of {sides.info.location}: {what}"] += times


def test_random_writes(made_sides: Sides, examples: int, tally: Counter[str]) -> None:
    _many_random_writes(made_sides, 0, examples, tally)


def test_random_writes_of_a_nested_location(nested_sides: Sides, examples: int, tally: Counter[str]) -> None:
    _many_random_writes(nested_sides, 100_000, examples, tally)
