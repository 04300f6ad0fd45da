"""Pipelines done with counts and finds: which they are, and the same answers as the server's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from bson.int64 import Int64
from bson.son import SON
from places import Documents, Setup, documents, make_collection
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.found import AsyncFound, Found
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import Context, QoS
from spatialnosql.rewrite.count_pipeline import read_count_pipeline
from spatialnosql.rewrite.ring_geo_near import ring_geo_near
from spatialnosql.steps import run

DATABASE = "test_client_pipelines"
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
NOTHING = {"loc": {"$geoWithin": {"$centerSphere": [[-30.0, 30.0], 1e-7]}}}
POINT = {"type": "Point", "coordinates": [2.35, 48.86]}
OCEAN = {"type": "Point", "coordinates": [-40.0, 5.0]}


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    client.drop_database(DATABASE)
    setup = Setup("loc", "any")
    yield make_collection(client[DATABASE], "places", setup, documents(2500, 4, setup))
    client.drop_database(DATABASE)
    metadata_collection(client[DATABASE]["any"]).delete_many({"_id": {"$regex": f"^{DATABASE}[.]"}})


@pytest.fixture
def spatial(plain: Documents) -> SpatialCollection:
    return SpatialCollection(plain, qos=QoS(form="client"))


# -- counts -----------------------------------------------------------------------------------------------

COUNTS: dict[str, list[dict[str, Any]]] = {
    "count": [{"$match": CIRCLE}, {"$count": "n"}],
    "group": [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": 1}}}],
    "group by nothing but a name": [{"$match": CIRCLE}, {"$group": {"_id": "all", "n": {"$count": {}}}}],
    "several sums": [{"$match": CIRCLE}, {"$group": {"_id": 1, "a": {"$sum": 2}, "b": {"$sum": -3}}}],
    "large sums": [{"$match": CIRCLE}, {"$group": {"_id": True, "n": {"$sum": 2_000_000_000}}}],
    "no sum": [{"$match": CIRCLE}, {"$group": {"_id": None}}],
    "two matches": [{"$match": CIRCLE}, {"$match": {"n": {"$gt": 20_000}}}, {"$count": "n"}],
    "nothing to count": [{"$match": NOTHING}, {"$count": "n"}],
    "nothing to group": [{"$match": NOTHING}, {"$group": {"_id": None, "n": {"$sum": 1}}}],
}


@pytest.mark.parametrize("name", COUNTS)
def test_pipelines_that_only_count(name: str, plain: Documents, spatial: SpatialCollection) -> None:
    expected = list(plain.aggregate(COUNTS[name]))
    with spatial.aggregate(COUNTS[name]) as found:
        assert isinstance(found, Found)
        answer = list(found)
    assert answer == expected
    assert [[type(v) for v in one.values()] for one in answer] == [
        [type(v) for v in one.values()] for one in expected
    ]
    assert bool(answer) is not name.startswith("nothing")


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"$match": CIRCLE}],
        [{"$count": "n"}],
        [{"$match": CIRCLE}, {"$count": "a.b"}],
        [{"$match": CIRCLE}, {"$count": ""}],
        [{"$match": CIRCLE}, {"$count": "$n"}],
        [{"$match": CIRCLE}, {"$group": {"_id": "$kind", "n": {"$sum": 1}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": {"$year": "$at"}, "n": {"$sum": 1}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": "$n"}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": 1.5}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": True}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": Int64(1)}}}],
        [{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$avg": 1}}}],
        [{"$match": CIRCLE}, {"$group": {"n": {"$sum": 1}}}],
        [{"$match": CIRCLE}, {"$sort": {"n": 1}}, {"$count": "n"}],
        [{"$match": CIRCLE}, {"$count": "n"}, {"$project": {"n": 1}}],
        [{"$match": {}}, {"$count": "n"}],
        [{"$match": CIRCLE, "$limit": 3}, {"$count": "n"}],
    ],
)
def test_pipelines_that_do_more_than_count(pipeline: list[dict[str, Any]]) -> None:
    assert read_count_pipeline(pipeline) is None


# -- the nearest ------------------------------------------------------------------------------------------


def near(point: Any = POINT, **more: Any) -> dict[str, Any]:
    return {"$geoNear": {"near": point, "distanceField": "d", **more}}


NEAREST: dict[str, list[dict[str, Any]]] = {
    "few": [near(), {"$limit": 12}],
    "skipped": [near(), {"$skip": 5}, {"$limit": 12}],
    "limit before skip": [near(), {"$limit": 30}, {"$skip": 8}, {"$limit": 100}],
    "within": [near(maxDistance=40_000)],
    "a ring": [near(minDistance=2_000, maxDistance=60_000), {"$limit": 50}],
    "beyond": [near(minDistance=3_000_000), {"$limit": 20}],
    "in kilometres, with its place": [
        near(distanceMultiplier=0.001, includeLocs="where", key="loc"),
        {"$limit": 9},
    ],
    "with conditions": [near(query={"kind": "cafe", "size": {"$gt": 1}}), {"$limit": 15}],
    "with a region": [near(query={**CIRCLE, "kind": "park"}), {"$limit": 15}],
    "from the ocean": [near(OCEAN), {"$limit": 7}],
    "from a pole": [near({"type": "Point", "coordinates": [0.0, 90.0]}), {"$limit": 7}],
    "all of them": [near()],
    "without a distance": [{"$geoNear": {"near": POINT, "includeLocs": "p"}}, {"$limit": 3}],
}


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_with_the_servers_own_distances(
    name: str, plain: Documents, spatial: SpatialCollection
) -> None:
    expected = list(plain.aggregate(NEAREST[name]))
    found = spatial.aggregate(NEAREST[name])
    assert isinstance(found, Found)
    answer = list(found)
    assert len(answer) == len(expected) > 0
    if name != "without a distance":
        assert [one["d"] for one in answer] == [one["d"] for one in expected]  # to the last bit
    by_id = {one["_id"]: one for one in plain.aggregate(NEAREST[name][:1])}
    assert all(one == by_id[one["_id"]] and list(one) == list(by_id[one["_id"]]) for one in answer)
    assert len({one["_id"] for one in answer}) == len(answer)


@pytest.mark.parametrize(
    "pipeline",
    [
        [near(), {"$limit": 3}, {"$project": {"d": 1}}],
        [near(), {"$group": {"_id": None}}],
        [near([2.35, 48.86]), {"$limit": 3}],
        [near(key="elsewhere"), {"$limit": 3}],
        [near(distanceField="a.b"), {"$limit": 3}],
        [near(distanceMultiplier=-1), {"$limit": 3}],
        [near(unknown=1), {"$limit": 3}],
        [near(query=5), {"$limit": 3}],
        [near(query={"loc": {"$nearSphere": {"$geometry": POINT}}}), {"$limit": 3}],
        [near(), {"$limit": 3}, {"$skip": 3}],
        [near(), {"$limit": 0}],
        [near(), {"$limit": 2.0}],
        [{"$match": CIRCLE}],
        [],
    ],
)
def test_pipelines_that_are_more_than_the_nearest(pipeline: list[Any], plain: Documents) -> None:
    assert ring_geo_near(pipeline, Context(run(load_info(plain)), QoS(form="client"))) is None


# -- both -------------------------------------------------------------------------------------------------

BOTH = [COUNTS["group"], NEAREST["few"]]


@pytest.mark.parametrize("pipeline", BOTH, ids=["count", "nearest"])
def test_options_and_sessions(
    pipeline: list[dict[str, Any]],
    plain: Documents,
    spatial: SpatialCollection,
    client: MongoClient[dict[str, Any]],
) -> None:
    expected = list(plain.aggregate(pipeline))
    options = {"maxTimeMS": 60_000, "batchSize": 2, "allowDiskUse": True, "comment": "x"}
    found = spatial.aggregate(pipeline, **options)
    assert isinstance(found, Found)
    assert list(found) == expected
    with client.start_session() as session:
        assert list(spatial.aggregate(pipeline, session=session)) == expected
        with session.start_transaction():
            assert list(spatial.aggregate(pipeline, session=session)) == expected
    snapshot = plain.with_options(read_concern=ReadConcern("snapshot"))
    assert list(SpatialCollection(snapshot, qos=QoS(form="client")).aggregate(pipeline)) == expected
    # What is not understood, or would not come back as it should, is the server's.
    assert list(spatial.aggregate(pipeline, let={"x": 1})) == expected
    classy = plain.with_options(codec_options=plain.codec_options.with_options(document_class=SON))
    answer = list(SpatialCollection(classy, qos=QoS(form="client")).aggregate(pipeline))
    assert all(type(one) is SON for one in answer)
    with pytest.raises(ValueError, match="batchSize must be a non negative integer"):
        spatial.aggregate(pipeline, batchSize=-1)


def test_wrong_queries_fail_at_once_as_the_servers_do(plain: Documents, spatial: SpatialCollection) -> None:
    for pipeline in (
        [near(query={"kind": {"$nonsense": 1}}), {"$limit": 3}],
        [{"$match": {**CIRCLE, "kind": {"$nonsense": 1}}}, {"$count": "n"}],
    ):
        with pytest.raises(OperationFailure) as expected:
            plain.aggregate(pipeline)
        with pytest.raises(OperationFailure) as actual:
            spatial.aggregate(pipeline)
        assert actual.value.code == expected.value.code


def test_the_asynchronous_twin(plain: Documents, cluster: Any) -> None:
    async def ask() -> list[Any]:
        async with AsyncMongoClient(cluster.uri) as client:
            ours = AsyncSpatialCollection(client[DATABASE]["places"], qos=QoS(form="client"))
            found = [await ours.aggregate(pipeline) for pipeline in BOTH]
            assert all(isinstance(one, AsyncFound) for one in found)
            return [await one.to_list() for one in found]

    assert asyncio.run(ask()) == [list(plain.aggregate(pipeline)) for pipeline in BOTH]


def test_not_without_a_guarantee(plain: Documents) -> None:
    info = replace(run(load_info(plain)), why_not="no validator")
    spatial = SpatialCollection(plain, info=info, qos=QoS(form="client"))
    assert not any(isinstance(spatial.aggregate(pipeline), Found) for pipeline in BOTH)
