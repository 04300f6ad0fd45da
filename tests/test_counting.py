"""Counts settled in the client: keys from raw batches, and the same numbers as the server's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import bson
import numpy as np
import pytest
from differential import KINDS, Question, points_for
from places import Setup, documents, make_collection
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from spatialnosql import counting
from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.counting import can_settle
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index
from spatialnosql.keys import batch_to_cells
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import QoS
from spatialnosql.rewrite.settle_count import settle_count
from spatialnosql.settle import UNSURE, settle_cells
from spatialnosql.steps import run

CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}


# -- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["gh", "geohash"])
def test_a_raw_batch_is_read_without_decoding(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    cells = points_to_cells(rng.uniform(-180, 180, 500), rng.uniform(-90, 90, 500))
    batch = b"".join(bson.encode({field: text}) for text in cells_to_strings(cells).tolist())

    def forbidden(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(bson, "decode_all", forbidden)
    assert (batch_to_cells(batch, field) == cells).all()


def test_batches_that_look_otherwise_are_decoded() -> None:
    texts = ["s00000000000", "ezs42", "u4pruydqqvj8"]
    batch = b"".join(bson.encode({"gh": text}) for text in texts)
    assert [int(c) for c in batch_to_cells(batch, "gh")] == [
        int(c) for c in batch_to_cells(b"".join(bson.encode({"gh": t.ljust(12, "0")}) for t in texts), "gh")
    ]
    assert batch_to_cells(b"", "gh").size == 0


# -- when -------------------------------------------------------------------------------------------------


def known(**changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.5, 50_000), 48.86 + rng.normal(0, 0.5, 50_000), 35)
    index = Index("gh_1__id_1", (("gh", 1), ("_id", 1)))
    given: dict[str, Any] = {"histogram": histogram, "indexes": (index, Index("kind_1", (("kind", 1),)))}
    return CollectionInfo("city.trips", **(given | changed))


def test_a_count_of_many_points_is_settled() -> None:
    plan = settle_count(CIRCLE, known(), QoS())
    assert plan is not None
    assert plan.interior is not None
    assert plan.boundary is not None
    assert plan.plan.rules == ("settle_count",)
    assert "settled in the client" in str(plan.plan)


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
    assert settle_count(filter, info, qos) is None, why


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


def magnified(plain: Any) -> CollectionInfo:
    """What is known of the collection, with every count a thousandfold, so that settling always seems worth it."""
    info = run(load_info(plain))
    assert info.why_not is None
    assert info.histogram is not None
    more = Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts * 1000)
    return replace(info, histogram=more)


def counted(collection: Any, asked: dict[str, Any]) -> tuple[int, int | None]:
    """The number of documents, or the code with which the server refuses."""
    try:
        return collection.count_documents(asked), None
    except OperationFailure as error:
        return 0, error.code


def test_settled_counts_are_the_servers(
    plain: Any, tally: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = magnified(plain)
    spatial = SpatialCollection(plain, info=info)
    undecided = []
    monkeypatch.setattr(
        counting, "settle_cells", lambda *given: undecided.append(settle_cells(*given)) or undecided[-1]
    )
    settled = found = 0
    for number, question in enumerate(questions()):
        asked: dict[str, Any] = {"loc": question.condition}
        if number % 3 == 0:
            asked["n"] = {"$gte": 500}
        expected, refusal = counted(plain, asked)
        actual = counted(spatial, asked)
        assert actual == (expected, refusal), asked
        settled += settle_count(asked, info, QoS()) is not None
        found += expected
    assert settled > 100
    assert found > 1000
    # Points on the borders themselves are nobody's but the server's to judge.
    assert sum(int((status == UNSURE).sum()) for status in undecided) > 100
    tally["counts settled in the client"] += settled


def test_skip_limit_sessions_and_snapshots(plain: Any, client: MongoClient[dict[str, Any]]) -> None:
    info = magnified(plain)
    spatial = SpatialCollection(plain, info=info)
    assert settle_count(CIRCLE, info, QoS()) is not None
    whole = plain.count_documents(CIRCLE)
    assert whole > 20
    for options in ({"skip": 5}, {"limit": 7}, {"skip": 3, "limit": 4}, {"skip": whole + 1}):
        assert spatial.count_documents(CIRCLE, **options) == plain.count_documents(CIRCLE, **options)
    assert spatial.count_documents(CIRCLE, consistent=True) == whole
    snapshot = plain.with_options(read_concern=ReadConcern("snapshot"))
    assert SpatialCollection(snapshot, info=info).count_documents(CIRCLE) == whole
    with client.start_session() as session:
        assert spatial.count_documents(CIRCLE, session=session) == whole
        with session.start_transaction():
            assert spatial.count_documents(CIRCLE, session=session) == whole
    with client.start_session(snapshot=True) as session:
        assert spatial.count_documents(CIRCLE, session=session, consistent=True) == whole


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
