"""Storing matches, killed at every step: nothing lost, nothing twice. On the real cluster, without Spark."""

from __future__ import annotations

import datetime as dt
import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pymongo.database import Database

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.metadata import DATABASE
from spatialnosql.subscriptions import match_store
from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.match_documents import Things
from spatialnosql.subscriptions.match_store import RUNS, TASKS, MatchStore, Task
from spatialnosql.subscriptions.object_ids import ObjectIds
from spatialnosql.subscriptions.strings import Strings

NAMES = Names(Strings.of(["a1", "a2", "b1"]), np.array([0, 0, 1], dtype=np.int32), Strings.of(["ann", "bob"]))
PAIRS = [(0, 0), (0, 2), (1, 1), (2, 2)]
"""Rows of objects and numbers of subscriptions."""


@pytest.fixture
def store(database: Database[dict[str, Any]]) -> MatchStore:
    made = MatchStore(database.alerts)
    made.prepare()
    return made


def things(*ids: int, text: str = "flood") -> Things:
    count = len(ids)
    places = np.arange(count, dtype=np.float64)
    return Things(
        ObjectIds.of(pa.array(ids, pa.int64())),
        Strings.of([text] * count),
        places,
        places.copy(),
        np.arange(count, dtype=np.int64) * 1000,
    )


def write(task: Task, *ids: int, text: str = "flood") -> None:
    rows, numbers = np.array(PAIRS).T
    task.write(things(*ids, text=text), rows, numbers.astype(np.int32), NAMES)


def stored(store: MatchStore) -> list[tuple[str, str, int]]:
    found = [
        (bucket["owner"], match["id"], match["object"])
        for bucket in store.matches.find()
        for match in bucket["matches"]
    ]
    return sorted(found)


WHOLE = [("ann", "a1", 10), ("ann", "a2", 11), ("bob", "b1", 10), ("bob", "b1", 12)]


def left(store: MatchStore) -> tuple[int, int]:
    """Tasks that write, and runs."""
    own = store.matches.database.client[DATABASE]
    which = {"matches": store.namespace}
    return own[TASKS].count_documents({**which, "state": "writing"}), own[RUNS].count_documents(which)


def test_a_task_that_ends_well(store: MatchStore) -> None:
    with store.run("test") as run, store.task(run, 0) as task:
        write(task, 10, 11, 12)
        assert left(store) == (1, 1)
    assert stored(store) == WHOLE
    assert store.matched.count_documents({}) == 3
    assert left(store) == (0, 0)
    assert (task.stored.objects, task.stored.known, task.stored.pairs, task.stored.buckets) == (3, 0, 4, 2)


def test_objects_matched_before_are_not_told_of_again(store: MatchStore) -> None:
    for _ in range(2):
        with store.run("test") as run, store.task(run, 0) as task:
            write(task, 10, 11, 12)
            write(task, 10, 11, 12)  # and twice in one task
    assert stored(store) == WHOLE
    assert task.stored.known == 6
    with store.run("test") as run, store.task(run, 0) as task:
        write(task, 10, 11, 13)  # of which one is new
    assert stored(store) == sorted([*WHOLE, ("bob", "b1", 13)])


def test_an_object_that_has_changed_is_told_of_again(store: MatchStore) -> None:
    for text in ("flood", "flood!"):
        with store.run("test") as run, store.task(run, 0) as task:
            write(task, 10, 11, 12, text=text)
    assert stored(store) == sorted(WHOLE * 2)
    assert {one["text"] for one in store.matched.find()} == {"flood!"}


def test_the_same_object_twice_in_a_batch_is_one(store: MatchStore) -> None:
    twice = Things.joined([things(10), things(10)])
    with store.run("test") as run, store.task(run, 0) as task:
        task.write(twice, np.array([0, 1]), np.array([0, 0], dtype=np.int32), NAMES)
    assert stored(store) == [("ann", "a1", 10)]


def killed_run(store: MatchStore, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A run that stops in the middle of a task, as if its process had been killed: nothing cleans up.

    What it returns must be kept: Python would end the run otherwise.
    """
    monkeypatch.setattr(match_store, "BEAT_S", 3600.0)
    run = store.run("test")
    name = run.__enter__()
    task = store.task(name, 0)
    write(task.__enter__(), 10, 11, 12)
    # Of what it had written, not all has arrived.
    store.matches.delete_one({"owner": "bob"})
    dead = {"host": socket.gethostname(), "pid": _dead_pid()}
    store.matches.database.client[DATABASE][RUNS].update_one({"_id": name}, {"$set": dead})
    return [run, task]


def _dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_what_a_dead_run_left_is_removed_and_written_again(
    store: MatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = killed_run(store, monkeypatch)
    assert stored(store) != WHOLE
    assert left(store) == (1, 1)
    with store.run("test") as run, store.task(run, 0) as task:
        assert stored(store) == []
        write(task, 10, 11, 12)
    assert stored(store) == WHOLE
    assert left(store) == (0, 0)
    assert killed


def test_a_run_of_another_machine_is_dead_when_it_is_not_heard_of(
    store: MatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = killed_run(store, monkeypatch)
    runs = store.matches.database.client[DATABASE][RUNS]
    elsewhere = {"host": "elsewhere", "alive": dt.datetime.now(dt.timezone.utc)}
    runs.update_one({"matches": store.namespace}, {"$set": elsewhere})
    assert store.clear_dead() == 0
    assert left(store) == (1, 1)
    runs.update_one({"matches": store.namespace}, {"$set": {"alive": dt.datetime(2020, 1, 1)}})
    assert store.clear_dead() == 1
    assert stored(store) == []
    assert left(store) == (0, 0)
    assert killed


def test_a_live_run_is_left_alone(store: MatchStore) -> None:
    with store.run("first") as first, store.task(first, 0) as task:
        write(task, 10, 11, 12)
        with store.run("second") as second, store.task(second, 0) as other:
            write(other, 20, 21, 22)
    assert len(stored(store)) == 8


def test_another_attempt_at_a_task_undoes_the_first(store: MatchStore) -> None:
    with store.run("test") as run:
        lost = store.task(run, 3)
        write(lost.__enter__(), 10, 11, 12)
        with store.task(run, 3) as task:
            assert stored(store) == []
            write(task, 10, 11, 12)
        assert stored(store) == WHOLE
        # The first one comes back, and must not leave anything.
        with pytest.raises(SpatialNoSQLError, match="taken up by another"):
            lost.__exit__(None, None, None)
    assert stored(store) == WHOLE
    assert store.matched.count_documents({}) == 3


def test_a_worker_that_outlives_its_run_is_not_believed(
    store: MatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes on after it was undone, and dies before it could notice."""
    killed = killed_run(store, monkeypatch)
    tasks = store.matches.database.client[DATABASE][TASKS]
    task = Task(store, tasks.find_one({"matches": store.namespace})["_id"])
    store.clear_dead()
    write(task, 10, 11, 12)
    with store.run("test") as run, store.task(run, 0) as again:
        write(task, 20, 21, 22)
        write(again, 10, 11, 12)
        write(again, 20, 21, 22)
    assert again.stored.objects == 6
    assert store.clear_dead() == 0
    more = [("ann", "a1", 20), ("ann", "a2", 21), ("bob", "b1", 20), ("bob", "b1", 22)]
    assert stored(store) == sorted([*WHOLE, *more])
    monkeypatch.setattr(match_store, "KEPT_UNDONE", -match_store.KEPT_UNDONE)
    store.clear_dead()
    assert tasks.count_documents({"matches": store.namespace}) == 0
    assert killed


def test_a_task_that_fails_is_undone_with_its_run(store: MatchStore) -> None:
    with pytest.raises(ZeroDivisionError), store.run("test") as run:  # noqa: PT012 - both are what is tested
        with store.task(run, 0) as whole:
            write(whole, 10, 11, 12)
        with store.task(run, 1) as task:
            write(task, 20, 21, 22)
            raise ZeroDivisionError
    assert stored(store) == WHOLE
    assert left(store) == (0, 0)


def test_many_objects_at_once_and_few_known(store: MatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_store, "_AT_ONCE", 7)
    rows = np.arange(30)
    numbers = np.zeros(30, dtype=np.int32)
    for first in (0, 20):
        with store.run("test") as run, store.task(run, 0) as task:
            task.write(things(*range(first, first + 30)), rows, numbers, NAMES)
    # The same identifier at another place is another object: of 20 to 29 the places differ.
    assert [one[2] for one in stored(store)] == sorted([*range(50), *range(20, 30)])


def test_both_collections_are_sharded(store: MatchStore) -> None:
    config = store.matches.database.client.config.collections
    keys = {
        name: config.find_one({"_id": name})["key"] for name in (store.namespace, store.matched.full_name)
    }
    assert keys == {store.namespace: {"owner": "hashed"}, store.matched.full_name: {"_id": "hashed"}}
    store.prepare()


def test_this_process_is_alive() -> None:
    assert match_store._is_alive(
        {"host": socket.gethostname(), "pid": os.getpid(), "alive": dt.datetime.now(dt.timezone.utc)},
        dt.datetime.now(dt.timezone.utc),
    )
