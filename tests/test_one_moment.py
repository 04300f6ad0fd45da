"""Reading at one moment: the same answer while documents move between shards, and again after a transient error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from places import Setup, documents, make_collection
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from spatialnosql.analyze import analyze
from spatialnosql.collection import SpatialCollection
from spatialnosql.geohash import points_to_strings
from spatialnosql.one_moment import at_one_moment
from spatialnosql.rewrite import QoS
from spatialnosql.steps import Steps, call, run

WEST, SOUTH, SIDE = 2.25, 48.80, 0.20


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


def test_a_count_while_points_move(moving: SpatialCollection[Any]) -> None:
    # No point leaves the shape: at any one moment it holds all of them.
    west, south, side = WEST - 0.01, SOUTH - 0.01, SIDE + 0.02
    ring = [
        [west, south],
        [west + side, south],
        [west + side, south + side],
        [west, south + side],
        [west, south],
    ]
    within = {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}}}
    found = {moving.count_documents(within, consistent=True) for _ in range(60)}
    assert len(found) == 1
    assert found.pop() >= 300
