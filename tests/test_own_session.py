"""What is read beside the caller's own commands is no part of his transaction, nor of the moment he reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from places import Documents, temporary_points
from pymongo import AsyncMongoClient, MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.grid import grid
from spatialnosql.joins.polygons import Polygons
from spatialnosql.metadata import InfoCache
from spatialnosql.rewrite import QoS
from spatialnosql.steps import run

DATABASE = "test_own_session"
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
TRIANGLE = {"type": "Polygon", "coordinates": [[[2.0, 48.5], [3.0, 48.5], [2.5, 49.2], [2.0, 48.5]]]}
NEW = {"_id": "new", "loc": {"type": "Point", "coordinates": [2.35, 48.86]}}

pytestmark = pytest.mark.skipif(not hasattr(ClientSession, "bind"), reason="this pymongo binds no sessions")


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    with temporary_points(client, DATABASE) as collection:
        yield collection


@pytest.fixture
def spatial(plain: Documents) -> SpatialCollection[Any]:
    """Of which nothing is known yet."""
    made = SpatialCollection(plain, qos=QoS(form="client"))
    made.forget()
    return made


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_metadata_in_a_bound_transaction(
    first: bool, plain: Documents, spatial: SpatialCollection[Any]
) -> None:
    expected = plain.count_documents(CIRCLE)
    with plain.database.client.start_session() as session, session.bind(), session.start_transaction():
        if not first:
            plain.find_one({})
        assert spatial.count_documents(CIRCLE) == expected
        assert run(spatial._load_info()).why_not is None
        spatial.forget()
        spatial.insert_one(dict(NEW))
        assert spatial.count_documents(CIRCLE) == expected + 1
        assert len(list(spatial.find(CIRCLE))) == expected + 1
    assert plain.find_one({"_id": "new"}, {"gh": 1}) is not None
    assert spatial.delete_one({"_id": "new", "gh": {"$gte": ""}}).deleted_count == 1


def test_metadata_in_a_bound_transaction_of_the_asynchronous_client(plain: Documents, cluster: Any) -> None:
    expected = plain.count_documents(CIRCLE)

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](cluster.uri) as client:
            points = AsyncSpatialCollection(client[DATABASE]["points"], qos=QoS(form="client"))
            async with (
                client.start_session() as session,
                session.bind(end_session=False),
                await session.start_transaction(),
            ):
                assert await points.count_documents(CIRCLE) == expected
                points.forget()
                await points.insert_one(dict(NEW))
                assert len(await points.find(CIRCLE).to_list()) == expected + 1

    asyncio.run(main())
    assert plain.delete_one({"_id": "new", "gh": {"$gte": ""}}).deleted_count == 1


def test_metadata_in_a_bound_session_of_the_past(plain: Documents, spatial: SpatialCollection[Any]) -> None:
    expected = plain.count_documents(CIRCLE)
    with plain.database.client.start_session(snapshot=True) as session, session.bind():
        assert spatial.count_documents(CIRCLE) == expected
    assert run(spatial._load_info()).why_not is None


class Failing:
    """In the place of a collection whose metadata cannot be read."""

    name = "points"

    def __init__(self, client: Any, code: int) -> None:
        self._code, self.asked = code, 0
        self.database = SimpleNamespace(name=DATABASE, client=client, list_collections=self._refuse)

    def _refuse(self, **_: Any) -> None:
        self.asked += 1
        raise OperationFailure("no", self._code)


@pytest.mark.parametrize(("code", "kept"), [(13, True), (8000, True), (263, False), (11601, False)])
def test_only_what_lasts_is_remembered(code: int, kept: bool, client: MongoClient[dict[str, Any]]) -> None:
    cache, collection = InfoCache(), Failing(client, code)
    for _ in range(3):
        info = run(cache.info(collection))
        assert info.why_not == f"its metadata cannot be read (code {code})"
        assert not info.adopted
    assert collection.asked == (1 if kept else 3)


def test_explaining_in_a_bound_transaction(plain: Documents, spatial: SpatialCollection[Any]) -> None:
    with plain.database.client.start_session() as session, session.bind(), session.start_transaction():
        spatial.insert_one(dict(NEW))
        assert spatial.explain(CIRCLE).rewritten is not None
        assert spatial.explain(CIRCLE, count=True).rewritten is not None
        assert spatial.explain([{"$match": CIRCLE}, {"$count": "n"}]).rewritten is not None
        assert spatial.find_one({"_id": "new"}) is not None
        session.abort_transaction()
    assert plain.find_one({"_id": "new"}) is None


def test_joins_in_a_bound_transaction(plain: Documents, spatial: SpatialCollection[Any]) -> None:
    areas = Polygons.of({"triangle": TRIANGLE})
    expected = plain.count_documents({"loc": {"$geoWithin": {"$geometry": TRIANGLE}}})
    assert expected > 5
    with plain.database.client.start_session() as session, session.bind():
        assert count_by_polygon(spatial, areas, consistent=True)[0].count == expected
        with session.start_transaction():
            assert count_by_polygon(spatial, areas)[0].count == expected
            assert sum(cell.count for cell in grid(spatial, TRIANGLE, precision=20)) == expected
