"""Reading at one moment: the same answer while documents move between shards, and again after a transient error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import Setup, documents, make_collection
from processes import mongod
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from spatialnosql.adopt import adopt
from spatialnosql.analyze import analyze
from spatialnosql.client_pipelines import plan_in_client
from spatialnosql.cluster import connect
from spatialnosql.collection import SpatialCollection
from spatialnosql.geohash import points_to_strings
from spatialnosql.one_moment import at_one_moment
from spatialnosql.rewrite import QoS
from spatialnosql.steps import Steps, call, run

WEST, SOUTH, SIDE = 2.25, 48.80, 0.20
PLACE = {"type": "Point", "coordinates": [2.35, 48.9]}


def failure(*labels: str) -> OperationFailure:
    return OperationFailure("a chunk moved", 251, {"errorLabels": list(labels)})


def test_again_after_a_transient_error(client: MongoClient[dict[str, Any]]) -> None:
    sessions = []

    def work(session: Any) -> Steps[int]:
        sessions.append(session)
        assert session.in_transaction
        found: int = yield from call(client["test_one_moment"]["none"].count_documents, {}, session=session)
        if len(sessions) < 3:
            raise failure("TransientTransactionError")
        return found

    assert run(at_one_moment(client, work)) == 0
    assert len(sessions) == 3
    assert all(session.has_ended for session in sessions)


@pytest.mark.parametrize(("labels", "tries"), [((), 1), (("TransientTransactionError",), 5)])
def test_the_error_when_it_stays(
    labels: tuple[str, ...], tries: int, client: MongoClient[dict[str, Any]]
) -> None:
    sessions = []

    def work(session: Any) -> Steps[int]:
        sessions.append(session)
        yield from call(client["test_one_moment"]["none"].count_documents, {}, session=session)
        raise failure(*labels)

    with pytest.raises(OperationFailure, match="a chunk moved"):
        run(at_one_moment(client, work))
    assert len(sessions) == tries
    assert all(session.has_ended for session in sessions)


@pytest.fixture
def moving(client: MongoClient[dict[str, Any]]) -> Iterator[SpatialCollection[Any]]:
    """Points that jump about between the shards, all the time."""
    database = client["test_one_moment"]
    client.drop_database(database)
    content = [one for one in documents(1_000, 5, Setup()) if "gh" in one]
    collection = make_collection(database, "points", Setup(), content)
    rng = np.random.default_rng(1)

    def place() -> dict[str, Any]:
        lng, lat = float(rng.uniform(WEST, WEST + SIDE)), float(rng.uniform(SOUTH, SOUTH + SIDE))
        gh = str(points_to_strings(np.array([lng]), np.array([lat]))[0])
        return {"loc": {"type": "Point", "coordinates": [lng, lat]}, "gh": gh}

    collection.insert_many([{"_id": f"moving {number}", **place()} for number in range(300)])
    analyze(collection)
    done = threading.Event()

    def move() -> None:
        while not done.is_set():
            one = {"_id": f"moving {rng.integers(300)}", "gh": {"$gte": ""}}
            collection.update_one(one, {"$set": place()})

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield SpatialCollection(collection, qos=QoS(form="client"))
    finally:
        done.set()
        mover.join()
        client.drop_database(database)


# No point leaves the shape: at any one moment it holds all of them.
def around() -> dict[str, Any]:
    west, south, side = WEST - 0.01, SOUTH - 0.01, SIDE + 0.02
    ring = [
        [west, south],
        [west + side, south],
        [west + side, south + side],
        [west, south + side],
        [west, south],
    ]
    return {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}}}


WITHIN = around()
COUNT = [{"$match": WITHIN}, {"$count": "n"}]
SNAPSHOT = ReadConcern("snapshot")


def in_a_session(moving: SpatialCollection[Any], **options: Any) -> int:
    with moving.database.client.start_session() as session:
        return moving.count_documents(WITHIN, session=session, **options)


def in_a_bound_session(moving: SpatialCollection[Any]) -> int:
    with moving.database.client.start_session() as session, session.bind():
        return moving.count_documents(WITHIN, consistent=True)


def in_a_bound_transaction(moving: SpatialCollection[Any]) -> int:
    with (
        moving.database.client.start_session() as session,
        session.bind(),
        session.start_transaction(SNAPSHOT),
    ):
        return moving.count_documents(WITHIN)


def in_a_transaction(moving: SpatialCollection[Any]) -> int:
    with moving.database.client.start_session() as session, session.start_transaction(SNAPSHOT):
        return moving.count_documents(WITHIN, session=session)


def by_read_concern(moving: SpatialCollection[Any]) -> SpatialCollection[Any]:
    return moving.with_options(read_concern=SNAPSHOT)


WAYS: dict[str, Callable[[SpatialCollection[Any]], int]] = {
    "consistent": lambda moving: moving.count_documents(WITHIN, consistent=True),
    "consistent, in a session": lambda moving: in_a_session(moving, consistent=True),
    "consistent, in a bound session": in_a_bound_session,
    "in a transaction": in_a_transaction,
    "in a bound transaction": in_a_bound_transaction,
    "read concern": lambda moving: by_read_concern(moving).count_documents(WITHIN),
    "read concern, in a session": lambda moving: in_a_session(by_read_concern(moving)),
    "pipeline, consistent": lambda moving: next(moving.aggregate(COUNT, consistent=True))["n"],
    "pipeline, read concern": lambda moving: next(by_read_concern(moving).aggregate(COUNT))["n"],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_count_while_points_move(way: str, moving: SpatialCollection[Any]) -> None:
    if "bound" in way and not hasattr(ClientSession, "bind"):
        pytest.skip("this pymongo binds no sessions")
    found = {WAYS[way](moving) for _ in range(40)}
    assert len(found) == 1
    assert found.pop() >= 300


def test_finds_of_one_moment_are_one_command_each(moving: SpatialCollection[Any]) -> None:
    snapshot = by_read_concern(moving)
    with moving.database.client.start_session() as session:
        found = {len(list(snapshot.find(WITHIN, session=session))) for _ in range(20)}
        assert len(found) == 1
        assert snapshot.plan(WITHIN, session=session).settled is None
    with moving.database.client.start_session() as session, session.start_transaction(SNAPSHOT):
        assert snapshot.plan(WITHIN, session=session).settled is not None
    near = [{"$geoNear": {"near": PLACE, "distanceField": "d"}}, {"$limit": 5}]
    plain, info = moving._collection, run(moving._load_info())
    assert plan_in_client(plain, near, info, moving._qos, {}) is not None
    assert plan_in_client(plain, near, info, moving._qos, {}, consistent=True) is None
    with plain.database.client.start_session() as session, session.start_transaction(SNAPSHOT):
        options = {"session": session}
        assert plan_in_client(plain, near, info, moving._qos, options, consistent=True) is not None
    assert len(list(moving.aggregate(near, consistent=True))) == 5


def test_a_standalone_has_no_transactions_and_one_moment_a_command(programs: Any, tmp_path: Path) -> None:
    with mongod(programs, tmp_path / "data") as port, connect(f"mongodb://127.0.0.1:{port}/") as client:
        points = client["test_one_moment"]["points"]
        points.insert_many([one for one in documents(500, 5, Setup()) if "gh" in one])
        adopt(points, "loc")
        spatial = SpatialCollection(points, qos=QoS(form="client"))
        circle = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.05]}}}
        assert spatial.plan(circle).settled is not None
        expected = points.count_documents(circle)
        assert expected > 5
        assert spatial.count_documents(circle, consistent=True) == expected
        assert spatial.count_documents(circle) == expected
