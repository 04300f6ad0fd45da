"""The law while chunks move: the same questions as in `test_rewrite_server`, while a thread moves ranges."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from places import Documents, Setup, coordinates, documents, make_collection
from pymongo import MongoClient
from test_rewrite_server import Asked, infos_of, try_query

from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.steps import run

DATABASE = "test_rewrite_moves"


class Mover(threading.Thread):
    """Moves every chunk to each of the other shards in turn, until all were everywhere or it is told to stop.

    Never back: the shard it came from keeps the documents for a while, and refuses the range until they are gone.
    """

    def __init__(self, uri: str, namespace: str) -> None:
        super().__init__(daemon=True)
        self._uri, self._namespace = uri, namespace
        self.stopping = threading.Event()
        self.moved = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with MongoClient[dict[str, Any]](self._uri) as client:
                self._move(client)
        except Exception as error:  # raised by the test
            self.error = error

    def _move(self, client: MongoClient[dict[str, Any]]) -> None:
        shards = [shard["_id"] for shard in client.admin.command("listShards")["shards"]]
        for _ in shards[1:]:
            for chunk in chunks_of(client, self._namespace):
                if self.stopping.is_set():
                    return
                target = shards[(shards.index(chunk["shard"]) + 1) % len(shards)]
                bounds = {"min": chunk["min"], "max": chunk["max"]}
                client.admin.command("moveRange", self._namespace, toShard=target, **bounds)
                self.moved += 1


def chunks_of(client: MongoClient[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """The chunks of a collection, in order."""
    entry = client["config"]["collections"].find_one({"_id": namespace})
    assert entry is not None
    return list(client["config"]["chunks"].find({"uuid": entry["uuid"]}, sort=[("min", 1)]))


@pytest.fixture
def moving(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    client.drop_database(DATABASE)
    setup = Setup()
    yield make_collection(client[DATABASE], "places", setup, documents(1500, 11, setup))
    metadata_collection(client[DATABASE]["places"]).delete_many({"_id": {"$regex": f"^{DATABASE}[.]"}})
    client.drop_database(DATABASE)


def test_rewritten_queries_answer_as_the_original_while_chunks_move(
    moving: Documents, cluster: Any, examples: int, tally: Counter[str]
) -> None:
    places = np.array([coordinates(d["loc"]) for d in moving.find({"gh": {"$exists": True}})])
    asked = Asked(Setup(), moving, places, infos_of(run(load_info(moving))))
    client = moving.database.client
    before = [chunk["shard"] for chunk in chunks_of(client, moving.full_name)]
    tried: Counter[str] = Counter()
    number = 0
    mover = Mover(cluster.uri, moving.full_name)
    mover.start()
    try:
        # So many questions at least, and for as long as chunks move.
        while number < max(50, examples // 10) or mover.is_alive():
            tried += try_query(asked, np.random.default_rng([11, number]), f"moving {number}")
            number += 1
    finally:
        mover.stopping.set()
        mover.join()
    if mover.error is not None:
        raise mover.error
    tally["queries (while chunks moved)"] += tried["queries"]
    tally["rewritten and with an answer (while chunks moved)"] += tried["rewritten and with an answer"]
    tally["moves of chunks meanwhile"] += mover.moved
    assert mover.moved == 2 * len(before)
    after = [chunk["shard"] for chunk in chunks_of(client, moving.full_name)]
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert tried["rewritten and with an answer"] >= 0.2 * number
    assert moving.count_documents({}) == 1500
