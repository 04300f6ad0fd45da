"""Storing matches so that nothing is lost and nothing is there twice, whatever is killed when.

Matches are written in *tasks*: the objects first, then the buckets that name them (see `match_documents`). While a task
writes, a document of its own says so; finishing the task is deleting that. What a task has written before it died is
removed by whoever takes up its work: the next attempt of the same task, or, once the run is known to be dead, the
next run. So what stands there without a document of its task is whole. The document of a
task that was undone is kept for a day: its worker may have outlived its driver and write on, and what it writes then is
not believed, and removed later.

An object that is there already was matched before, perhaps by another run over the same hours, and its matches are left
out, unless its text, place or time has changed since: then it is told again.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray
from pymongo import ReplaceOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, PyMongoError

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.metadata import DATABASE
from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.match_documents import Things, bucket_documents, object_documents
from spatialnosql.subscriptions.match_names import matched_collection, matches_collection
from spatialnosql.subscriptions.store_setup import shard_hashed
from spatialnosql.subscriptions.store_writing import UTC, server_time

Documents = Collection[dict[str, Any]]

TASKS, RUNS = "match_tasks", "match_runs"
"""Collections of the package's own database: tasks that write now, and runs."""
BEAT_S = 3.0
DEAD_S = 20.0
"""A run of another machine is dead if it has not been heard of for so long."""
KEPT_UNDONE = dt.timedelta(days=1)
"""How long a task that was undone is remembered."""
_DUPLICATE = 11000
_AT_ONCE = 5_000
_WRITING, _UNDONE = "writing", "undone"


@dataclass
class Stored:
    """What a task has stored."""

    objects: int = 0
    known: int = 0
    """Objects that were matched before."""
    pairs: int = 0
    buckets: int = 0

    def add(self, other: Stored) -> None:
        """Take the numbers of another one in."""
        self.objects += other.objects
        self.known += other.known
        self.pairs += other.pairs
        self.buckets += other.buckets


class MatchStore:
    """The matches of a collection of subscriptions, for those who write them."""

    def __init__(self, subscriptions: Documents) -> None:
        self.matches: Documents = matches_collection(subscriptions).with_options(codec_options=UTC)
        self.matched: Documents = matched_collection(subscriptions).with_options(codec_options=UTC)
        own = subscriptions.database.client[DATABASE]
        self._tasks: Documents = own[TASKS].with_options(codec_options=UTC)
        self._runs: Documents = own[RUNS].with_options(codec_options=UTC)

    @property
    def namespace(self) -> str:
        """The name of the collection of buckets, by which runs and tasks are told apart."""
        return self.matches.full_name

    def prepare(self) -> None:
        """Shard and index both collections; may be repeated."""
        shard_hashed(self.matches, "owner")
        shard_hashed(self.matched, "_id")
        # One's own matches from a time on, and the newest ones.
        self.matches.create_index([("owner", 1), ("first", 1)])
        self.matches.create_index([("owner", 1), ("last", 1)])
        # For what is removed: tasks that died, and what is old.
        self.matches.create_index([("task", 1)])
        self.matched.create_index([("task", 1)])

    # -- runs ----------------------------------------------------------------------------------------------

    @contextmanager
    def run(self, name: str) -> Iterator[str]:
        """A run that is alive until this ends; before it begins, what dead ones left unfinished is removed."""
        run = f"{name}-{secrets.token_hex(4)}"
        self.clear_dead()
        self._runs.insert_one(
            {"_id": run, "matches": self.namespace, "host": socket.gethostname(), "pid": os.getpid()}
        )
        ended = threading.Event()
        self._beat(run)
        heart = threading.Thread(target=self._keep_beating, args=(run, ended), daemon=True)
        heart.start()
        try:
            yield run
        finally:
            ended.set()
            heart.join()
            self._undo({"run": run})  # tasks that failed for good
            self._runs.delete_one({"_id": run})

    def _beat(self, run: str) -> None:
        self._runs.update_one({"_id": run}, [{"$set": {"alive": "$$NOW"}}])

    def _keep_beating(self, run: str, ended: threading.Event) -> None:
        while not ended.wait(BEAT_S):
            try:
                self._beat(run)
            except PyMongoError:
                continue  # whoever writes will notice if it lasts

    def clear_dead(self) -> int:
        """Remove what runs that are dead have left unfinished; how many tasks that were."""
        undone = 0
        now = server_time(self.matches)
        for run in self._runs.find({"matches": self.namespace}):
            if not _is_alive(run, now):
                undone += self._undo({"run": run["_id"]})
                self._runs.delete_one({"_id": run["_id"]})
        # A task without a run: its run was removed while it was being undone. Or it was undone, but went on.
        alive = self._runs.distinct("_id", {"matches": self.namespace})
        undone += self._undo({"run": {"$nin": alive}})
        self._tasks.delete_many({"matches": self.namespace, "undone": {"$lt": now - KEPT_UNDONE}})
        return undone

    def _undo(self, which: dict[str, Any]) -> int:
        """Remove all that tasks have written; they may go on, but never finish. How many had not been undone before."""
        undone = 0
        for task in self._tasks.find({"matches": self.namespace, **which}):
            # First it must not finish any more, or what it says is whole would not be.
            fence = [{"$set": {"state": _UNDONE, "undone": {"$ifNull": ["$undone", "$$NOW"]}}}]
            if self._tasks.update_one({"_id": task["_id"]}, fence).matched_count:
                self._remove(task["_id"])
                undone += task["state"] == _WRITING
        return undone

    def _remove(self, task: str) -> None:
        self.matches.delete_many({"task": task})
        self.matched.delete_many({"task": task})

    def undone_among(self, tasks: Iterable[str]) -> set[str]:
        """Which of these tasks were undone: what they have written since is not to be believed."""
        which = {"_id": {"$in": sorted(set(tasks))}, "state": _UNDONE}
        return {task["_id"] for task in self._tasks.find(which, {"_id": 1})}

    # -- tasks ---------------------------------------------------------------------------------------------

    @contextmanager
    def task(self, run: str, part: int | str) -> Iterator[Task]:
        """The writing of a part of a run; an earlier attempt at the same part is undone first."""
        self._undo({"run": run, "part": part})
        name = f"{run}-{part}-{secrets.token_hex(4)}"
        self._tasks.insert_one(
            {"_id": name, "matches": self.namespace, "run": run, "part": part, "state": _WRITING}
        )
        yield Task(self, name)
        if not self._tasks.delete_one({"_id": name, "state": _WRITING}).deleted_count:
            self._remove(name)
            raise SpatialNoSQLError(
                f"the task {name} was taken up by another run, which held it for dead; its own writes were removed"
            )


@dataclass
class Task:
    """A task that is writing."""

    store: MatchStore
    name: str
    stored: Stored = field(default_factory=Stored)
    _flushes: int = 0

    def write(
        self, things: Things, rows: NDArray[np.int64], numbers: NDArray[np.int32], names: Names
    ) -> None:
        """Store the matches of objects: ``rows[k]`` of `things` and subscription ``numbers[k]``."""
        has_match = np.zeros(len(things), dtype=np.bool_)
        has_match[rows] = True
        matched = np.flatnonzero(has_match)
        new = np.zeros(len(things), dtype=np.bool_)
        new[matched[self._insert_objects(things.take(matched))]] = True
        kept = new[rows]
        self._flushes += 1
        buckets = bucket_documents(
            things, rows[kept], numbers[kept], names, self.name, _now_ms(), self._flushes
        )
        if failed := _insert(self.store.matches, buckets):
            raise SpatialNoSQLError(f"a bucket of {self.name} is there already: number {failed[0]}")
        count = int(new.sum())
        self.stored.add(Stored(count, matched.size - count, int(kept.sum()), len(buckets)))

    def _insert_objects(self, things: Things) -> NDArray[np.bool_]:
        """Insert objects; which of them were not there, or were there with another text, place or time."""
        documents = object_documents(things, self.name)
        new = np.ones(len(things), dtype=np.bool_)
        there = _insert(self.store.matched, documents)
        for start in range(0, len(there), _AT_ONCE):
            rows = np.array(there[start : start + _AT_ONCE])
            ids = things.ids.take(rows).values()
            found = list(self.store.matched.find({"_id": {"$in": ids}}, {"digest": 1, "task": 1}))
            undone = self.store.undone_among(one["task"] for one in found)
            known = {one["_id"]: one["digest"] for one in found if one["task"] not in undone}
            changed = []
            for row, id_, digest in zip(rows.tolist(), ids, things.digests()[rows].tolist(), strict=True):
                new[row] = known.get(id_) != digest
                if new[row]:
                    known[id_] = digest  # the same object twice in one batch is told once
                    changed.append(ReplaceOne({"_id": id_}, documents[row], upsert=True))
            if changed:
                self.store.matched.bulk_write(changed, ordered=True)
        return new


def _insert(collection: Documents, documents: Sequence[RawBSONDocument]) -> list[int]:
    """Insert documents; the numbers of those whose ``_id`` was there already."""
    there: list[int] = []
    for start in range(0, len(documents), _AT_ONCE):
        try:
            collection.insert_many(documents[start : start + _AT_ONCE], ordered=False)
        except BulkWriteError as error:
            failures = error.details["writeErrors"]
            wrong = next((one for one in failures if one["code"] != _DUPLICATE), None)
            if wrong is not None or error.details.get("writeConcernErrors"):
                raise
            there += [start + one["index"] for one in failures]
    return sorted(there)


def _is_alive(run: dict[str, Any], now: dt.datetime) -> bool:
    """Whether a run may still be writing: its process is there, or, on another machine, it was heard of lately."""
    if run["host"] == socket.gethostname():
        try:
            os.kill(int(run["pid"]), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
    heard: dt.datetime | None = run.get("alive")
    return heard is not None and now - heard < dt.timedelta(seconds=DEAD_S)


def _now_ms() -> int:
    return int(dt.datetime.now(dt.timezone.utc).timestamp() * 1000)
