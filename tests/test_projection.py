"""Projections widened by what the client needs: what is sent, what is taken out, and the server's own answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import Int64
from bson.decimal128 import Decimal128
from places import Setup, documents, make_collection
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from spatialnosql.collection import SpatialCollection
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.projection import Widened, widened
from spatialnosql.rewrite import QoS
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents

NEEDED = ("_id", "gh", "loc")


@pytest.mark.parametrize(
    ("projection", "sent", "added"),
    [
        (None, None, ()),
        ({}, None, ()),
        ({"n": 1}, {"n": 1, "gh": 1, "loc": 1}, ("gh", "loc")),
        (["n"], {"n": 1, "gh": 1, "loc": 1}, ("gh", "loc")),
        (("n", "gh"), {"n": 1, "gh": 1, "loc": 1}, ("loc",)),
        ({"n": True, "_id": False}, {"n": True, "gh": 1, "loc": 1}, ("_id", "gh", "loc")),
        ({"_id": 1}, {"_id": 1, "gh": 1, "loc": 1}, ("gh", "loc")),
        ({"_id": 0}, None, ("_id",)),
        ({"gh": 1, "loc": 1}, {"gh": 1, "loc": 1}, ()),
        ({"n": 0}, {"n": 0}, ()),
        ({"gh": 0}, None, ("gh",)),
        ({"_id": 0, "gh": 0, "loc": 0, "n": 0}, {"n": 0}, NEEDED),
        ({"_id": 1, "n": 0}, {"_id": 1, "n": 0}, ()),
        ({"items.a": 1}, {"items.a": 1, "gh": 1, "loc": 1}, ("gh", "loc")),
        ({"items.a": 0.0, "loc": Int64(0)}, {"items.a": 0.0}, ("loc",)),
        ({"n": -2.5}, {"n": -2.5, "gh": 1, "loc": 1}, ("gh", "loc")),
    ],
    ids=str,
)
def test_what_is_sent_and_taken_out(projection: Any, sent: Any, added: tuple[str, ...]) -> None:
    before = repr(projection)
    made = widened(projection, NEEDED)
    assert made == Widened(sent, tuple(name for name in NEEDED if name in added))
    assert repr(projection) == before


@pytest.mark.parametrize(
    "projection",
    [
        {"n": "$score"},
        {"n": {"$add": ["$n", 1]}},
        {"tags": {"$slice": 1}},
        {"items": {"$elemMatch": {"a": 1}}},
        {"items.$": 1},
        {"n": Decimal128("1")},
        {"n": None},
        {"loc.type": 1},
        {"loc.coordinates": 0},
        {"gh.x": 1},
        {"n": 1, "kind": 0},
        [],
        "n",
        {"n"},
        5,
    ],
    ids=str,
)
def test_what_only_the_server_knows(projection: Any) -> None:
    assert widened(projection, NEEDED) is None


def test_no_path_is_added() -> None:
    assert widened({"n": 1}, ("_id", "place.point")) is None
    assert widened(None, ("_id", "place.point")) == Widened(None)


def test_what_is_not_there_is_not_missed() -> None:
    assert Widened(None, ("gh",)).strip([{"a": 1}, {"gh": 2, "a": 3}]) == [{"a": 1}, {"a": 3}]


# -- on the server ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client["test_projection"]
    client.drop_database(database.name)
    setup = Setup()
    yield make_collection(database, "points", setup, documents(600, 21, setup))
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


PROJECTIONS: tuple[Any, ...] = (
    None,
    {},
    [],
    ["n"],
    {"n": 1},
    {"n": 1, "_id": 0},
    {"_id": 0},
    {"_id": 1},
    {"_id": True, "n": 0},
    {"gh": 0},
    {"gh": 1, "_id": 0},
    {"loc": 0},
    {"loc": 1},
    {"loc": 0, "gh": 0, "_id": 0},
    {"loc.type": 1},
    {"loc.coordinates": 0},
    {"items.a": 1},
    {"items.a": 0, "gh": 0},
    {"nowhere": 1},
    {"nowhere": 1, "_id": 0},
    {"tags": {"$slice": 1}},
    {"items": {"$elemMatch": {"a": 1}}},
    {"n": "$score", "where": "$loc"},
    {"loc": "$n"},
    {"gh": {"$literal": "u"}},
    {"n": 1, "more": {"$add": ["$n", 1]}},
    {"n": 1.5, "kind": True},
    # Refused, and by both.
    {"n": 1, "kind": 0},
    {"n": 1, "n.a": 1},
    {"gh": 1, "gh.a": 1},
    {"": 1},
    {"a..b": 1},
)
NEAR = {"loc": {"$nearSphere": {"$geometry": {"type": "Point", "coordinates": [2.35, 48.86]}}}}
WITHIN = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.05]}}}


def answer(collection: Any, asked: Any, options: dict[str, Any]) -> tuple[list[Any], int | None]:
    try:
        return list(collection.find(asked, **options)), None
    except OperationFailure as error:
        return [], error.code


@pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
def test_documents_come_as_the_server_shows_them(plain: Any, projection: Any) -> None:
    info = run(load_info(plain))
    spatial = SpatialCollection(plain, info=info, qos=QoS(form="client"))
    by_n = {"sort": [("n", 1)], "projection": projection}
    expected = answer(plain, WITHIN, by_n)
    found = answer(spatial, WITHIN, by_n)
    assert expected[1] == found[1]
    if expected[1] is None:
        assert_same_documents(expected[0], found[0], ordered=True, at_least=30)
    whole = answer(plain, NEAR, {"projection": projection})
    ringed = answer(spatial, NEAR, {"projection": projection})
    assert whole[1] == ringed[1] == expected[1]
    if whole[1] is None:
        assert_same_documents(whole[0], ringed[0], at_least=300)
    if projection in (["n"], {"n": 1, "_id": 0}, {"loc": 0, "gh": 0, "_id": 0}):
        # The client did take part, so this test is one.
        assert spatial.plan(WITHIN, **by_n).settled is not None
        assert spatial.plan(NEAR, projection=projection).rings is not None
