"""The law on the real server: a rewritten query returns what the query as it came returns.

Seeded random filters and pipelines from `grammar`, against collections of every form of location on three shards, with
true, stale and no statistics and every wish of the caller's; ``--examples N`` for more of them. Each example has its
own seed, so that one can be asked again alone.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from bson import encode
from grammar import Grammar, Query
from places import Documents, Setup, coordinates, documents, get, make_collection
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from spatialnosql.client_pipelines import plan_in_client
from spatialnosql.collection import SpatialCollection
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.planned_find import planned, unchanged_reason
from spatialnosql.rewrite import Plan, QoS, rewrite, rewrite_pipeline
from spatialnosql.rewrite.cost import CLIENT
from spatialnosql.rewrite.planning import plan_count
from spatialnosql.steps import run
from spatialnosql.testing import assert_same_documents, points_on_sphere

SETUPS = {
    "geojson": Setup("loc", "geojson"),
    "legacy": Setup("place.point", "legacy"),
    "any": Setup("loc", "any"),
    "several": Setup("place.point", "any", unhashed=True),
    "flat": Setup("loc", "legacy", unhashed=True, geo_index="2d"),
}
WISHES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"prefer": "throughput"},
    {"max_ranges": 1},
    {"max_ranges": 3},
    {"precision": "selectivity"},
    {"form": "server"},
    {"form": "client"},
    {"form": "client"},
    {"form": "client", "max_ranges": 3},
)
SIZE = 2500


@dataclass(frozen=True)
class Asked:
    """A collection to ask, and what is known of it."""

    setup: Setup
    plain: Documents
    places: np.ndarray
    infos: tuple[CollectionInfo, ...]
    """The same collection with true, magnified, stale and no statistics: they may decide how it is asked, only."""


@pytest.fixture(scope="module")
def asked(client: MongoClient[dict[str, Any]]) -> Iterator[dict[str, Asked]]:
    database = client["test_rewrite_server"]
    client.drop_database(database.name)
    made = {}
    for seed, (name, setup) in enumerate(SETUPS.items()):
        content = documents(SIZE, seed, setup)
        collection = make_collection(database, name, setup, content)
        places = np.array([coordinates(get(d, setup.location)) for d in content if "gh" in d])
        made[name] = Asked(setup, collection, places, infos_of(run(load_info(collection))))
    yield made
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def infos_of(info: CollectionInfo) -> tuple[CollectionInfo, ...]:
    true = info.histogram
    assert info.why_not is None
    assert true is not None
    # So many that most covers pay, and are refined: as it would be in a large collection.
    many = Histogram(true.bits, true.cells, true.counts * 500)
    moved = Histogram.of_points(*points_on_sphere(100_000, 7), 20)
    return tuple(replace(info, histogram=histogram) for histogram in (true, many, many, moved, None))


def ask(collection: Any, query: Query) -> list[dict[str, Any]]:
    """The answer as documents, whatever the method."""
    if query.method == "aggregate":
        return list(collection.aggregate(query.pipeline))
    if query.method == "find":
        return list(collection.find(query.filter, **query.options))
    if query.method == "find_one":
        found = collection.find_one(query.filter, **query.options)
        return [] if found is None else [found]
    if query.method == "count_documents":
        return [{"_id": "count", "n": collection.count_documents(query.filter, **query.options)}]
    values = collection.distinct(query.options["key"], query.filter)
    return [{"_id": value} for value in values]


def answered(collection: Any, query: Query) -> tuple[list[dict[str, Any]], OperationFailure | None]:
    try:
        return ask(collection, query), None
    except OperationFailure as error:
        return [], error


def plan_of(query: Query, collection: Documents, info: CollectionInfo, qos: QoS) -> Plan:
    if query.pipeline is not None:
        in_client = plan_in_client(collection, query.pipeline, info, qos, {})
        return in_client.plan if in_client is not None else rewrite_pipeline(query.pipeline, info, qos=qos)
    assert query.filter is not None
    if query.method == "count_documents":
        return plan_count(query.filter, info, qos=qos)
    if query.method in ("find", "find_one"):
        options = {**query.options, "limit": 1} if query.method == "find_one" else query.options
        return planned(collection, info, qos, {**options, "filter": query.filter})
    return rewrite(query.filter, info, qos=qos, unchanged=unchanged_reason(query.options))


def compare(asked: Asked, query: Query, expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> None:
    """Assert that two answers are the same as far as the query says what the answer is."""
    if query.order == "sorted":
        assert_same_documents(expected, actual, ordered=True, at_least=0)
    elif query.order == "any" and query.whole is None:
        assert_same_documents(expected, actual, at_least=0)
    elif query.order == "near" and query.whole is None:
        distance = _distances(asked, query, [*expected, *actual])
        assert_same_documents(expected, actual, tie_key=distance, at_least=0)
    else:
        # Cut by a limit or a skip, perhaps between equals: as many, in the same order, and all from the whole answer.
        assert len(expected) == len(actual)
        if query.order == "near":
            distance = _distances(asked, query, [*expected, *actual])
            assert [distance(d) for d in expected] == [distance(d) for d in actual]
        whole = Counter(map(encode, ask(asked.plain, query.whole)))
        strangers = Counter(map(encode, actual)) - whole
        assert not strangers, f"not in the whole answer: {strangers}"


def _distances(asked: Asked, query: Query, found: list[dict[str, Any]]) -> Any:
    """A function from documents to their distances: the server's own, by which it sorts."""
    if query.distance is not None:
        return lambda document: get(document, query.distance)
    stage = {
        "key": asked.setup.location,
        **query.near,
        "distanceField": "d",
        "query": {"_id": {"$in": [document["_id"] for document in found]}},
    }
    by_id = {d["_id"]: d["d"] for d in asked.plain.aggregate([{"$geoNear": stage}, {"$project": {"d": 1}}])}
    return lambda document: by_id[document["_id"]]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", SETUPS)
def test_rewritten_queries_answer_as_the_original(
    name: str, part: int, asked: dict[str, Asked], examples: int, tally: Counter[str]
) -> None:
    one = asked[name]
    count = max(25, round(examples / len(SETUPS) / 4))
    tried: Counter[str] = Counter()
    for number in range(part * count, (part + 1) * count):
        tried += try_query(
            one, np.random.default_rng([zlib.crc32(name.encode()), number]), f"{name} {number}"
        )
    for what in (
        "queries",
        "rewritten",
        "with an answer",
        "rewritten and with an answer",
        "settled in the client",
        "by rings",
        "pipelines in the client",
        "refused by both",
    ):
        tally[f"{what} (rewritten against original)"] += tried[what]
    # A test of nothing is worse than none.
    assert tried["rewritten"] >= 0.35 * count
    assert tried["with an answer"] >= 0.4 * count
    assert tried["rewritten and with an answer"] >= 0.2 * count


@pytest.mark.parametrize("name", [name for name, setup in SETUPS.items() if not setup.unhashed])
def test_what_the_client_does_answers_as_the_original(
    name: str, asked: dict[str, Asked], examples: int, tally: Counter[str]
) -> None:
    """The forms in which the client takes part, wherever they are possible."""
    one = asked[name]
    # Without statistics the client takes no part.
    known = replace(one, infos=tuple(info for info in one.infos if info.histogram is not None))
    count = max(60, round(examples / 12))
    tried: Counter[str] = Counter()
    for number in range(count):
        rng = np.random.default_rng([zlib.crc32(name.encode()), 1, number])
        tried += try_query(known, rng, f"{name}, client {number}", QoS(form="client"))
    for what in ("queries", "settled in the client", "by rings", "pipelines in the client"):
        tally[f"{what} (client forms against original)"] += tried[what]
    assert tried["settled in the client"] >= 0.05 * count
    assert tried["by rings"] >= 0.02 * count
    assert tried["pipelines in the client"] > 0


def try_query(one: Asked, rng: np.random.Generator, example: str, qos: QoS | None = None) -> Counter[str]:
    query = Grammar(rng, one.setup, one.places).query()
    info = one.infos[int(rng.integers(len(one.infos)))]
    qos = qos or QoS(**WISHES[int(rng.integers(len(WISHES)))])
    expected, refusal = answered(one.plain, query)
    actual, own = answered(SpatialCollection(one.plain, info=info, qos=qos), query)
    plan = plan_of(query, one.plain, info, qos)
    shown = (
        f"example {example}: {query}\n{qos}, statistics of {info.histogram and info.histogram.total}\n{plan}"
    )
    if refusal is not None or own is not None:
        assert (type(refusal), getattr(refusal, "code", None)) == (type(own), getattr(own, "code", None)), (
            f"{refusal!s:.300} but {own!s:.300}\n{shown}"
        )
        return Counter({"queries": 1, "refused by both": 1})
    try:
        compare(one, query, expected, actual)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{shown}") from None
    answer = bool(expected) and expected[0].get("n") != 0
    return Counter(
        {
            "queries": 1,
            "rewritten": int(plan.rewritten),
            "with an answer": int(answer),
            "rewritten and with an answer": int(plan.rewritten and answer),
            "settled in the client": int(plan.settled is not None and answer),
            "by rings": int(plan.rings is not None and answer),
            "pipelines in the client": int(query.pipeline is not None and plan.form == CLIENT and answer),
        }
    )
