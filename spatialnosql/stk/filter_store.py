"""Where filters live: on the server, in pieces that are only ever added.

``spatialnosql.stk`` has one small document for each collection: which set of filters is in force, for which settings,
and its *tick*, which counts publications. ``spatialnosql.stk_filters`` has the pieces: the keys that one writer added
to one filter cube, and for each publication a directory of the cubes it touched.

A writer adds its pieces, then publishes, and only later are there documents with such seals. So whoever reads the tick
knows of every document that was sealed at that moment, however many writers there are; a writer that dies leaves keys
without documents, which cost a look and hide nothing.

A tick that was read is good for a while: between publishing keys and writing the first document with such a seal every
writer waits for `State.grace_s`. A query that is not done by then looks again (`pruned_find`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from bson import ObjectId
from bson.binary import Binary
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.metadata import DATABASE
from spatialnosql.own_session import in_own_session
from spatialnosql.steps import Steps, call, listed
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.keys import Keys, union
from spatialnosql.stk.settings import Ints

STATES, PIECES = "stk", "stk_filters"
GRACE_S = 20.0
"""Between publishing keys and the first document with such a seal."""
_MOST_KEYS = 2_000_000  # of a piece: 8 MB, half of what a document holds
_MOST_CUBES = 1_000_000  # of a part of a directory
_AT_ONCE = 500  # cubes in one question
_PIECES, _BYTES = 5_000, 16_000_000  # in one insert


@dataclass(frozen=True)
class State:
    """Which filters are in force, of which settings, and how often something was published."""

    filters: Any  # ObjectId of the set
    tick: int
    settings: str  # their digest
    grace_s: float = GRACE_S
    paused: bool = False  # documents are being sealed anew: nobody must go by filters
    shut_ms: int | None = None  # of no time before this is any document fresh: see `shutting`


def states(collection: Any) -> Any:
    """The states of the deployment that a collection is on."""
    return _beside(collection, STATES)


def pieces(collection: Any) -> Any:
    """The pieces of the deployment that a collection is on."""
    return _beside(collection, PIECES)


def _beside(collection: Any, name: str) -> Any:
    """One of our collections on the same deployment, read where it is written and when it is certain."""
    return collection.database.client[DATABASE].get_collection(
        name,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority"),
    )


def namespace_of(collection: Any) -> str:
    """The name under which a collection's state is kept."""
    return f"{collection.database.name}.{collection.name}"


# -- reading, for both clients ----------------------------------------------------------------------------


def _now(collection: Any, read: Callable[[Any], Steps[Any]]) -> Steps[Any]:
    """What is there now, also for who reads from the past: it is kept for all."""
    return (yield from in_own_session(collection.database.client, read))


def read_state(collection: Any) -> Steps[State | None]:
    """The state of a collection's filters now; None if it has none."""
    name = {"_id": namespace_of(collection)}
    found = yield from _now(collection, lambda own: call(states(collection).find_one, name, session=own))
    return None if found is None else _state(found)


def _state(found: Mapping[str, Any]) -> State:
    grace_s, paused = float(found.get("grace_s", GRACE_S)), bool(found.get("paused", False))
    shut_ms = None if found.get("shut_ms") is None else int(found["shut_ms"])
    return State(found["filters"], found["tick"], found["settings"], grace_s, paused, shut_ms)


def read_directories(collection: Any, filters: Any, seen: Iterable[Any] = ()) -> Steps[dict[Any, Ints]]:
    """The filter cubes of each publication, by the publication's name, but for those that were seen."""
    wanted = {"f": filters, "q": None, "_id": {"$nin": list(seen)}}
    read = pieces(collection).find
    found = yield from _now(collection, lambda own: listed(read, wanted, {"cubes": 1}, session=own))
    return {part["_id"]: np.frombuffer(part["cubes"], dtype="<i8") for part in found}


def read_filters(collection: Any, filters: Any, cubes: list[int]) -> Steps[dict[int, Keys]]:
    """The filters of some cubes, from all their pieces; a cube without any is not in the answer."""
    read, wanted = pieces(collection).find, {"f": filters, "q": {"$in": cubes}}
    found = yield from _now(collection, lambda own: listed(read, wanted, {"q": 1, "k": 1}, session=own))
    by_cube: dict[int, list[Keys]] = {}
    for piece in found:
        by_cube.setdefault(piece["q"], []).append(np.frombuffer(piece["k"], dtype="<u4"))
    return {cube: union(several) for cube, several in by_cube.items()}


# -- writing ----------------------------------------------------------------------------------------------


class Busy(SpatialNoSQLError):  # noqa: N818 - a state, not a fault
    """Filters are being rebuilt, or cannot be while others write to them."""


@contextmanager
def writing(collection: Any, what: str, *, again: bool = False) -> Iterator[State]:
    """Be a writer, to the set of filters in force. As long as there are writers nobody can put another set in force.

    A writer that fails or is killed stays listed, since documents of its may be there whose keys are in this set only.
    With `again` it does all that an earlier one of the same name did, and so takes over what that one left listed.
    """
    name, run = namespace_of(collection), ObjectId()
    writer = _writer_again(what) if again else str(run)
    entry = {"what": what, "at": dt.datetime.now(dt.timezone.utc), "run": run}
    found = states(collection).find_one_and_update(
        {"_id": name, "rebuilding": None}, {"$set": {f"writers.{writer}": entry}}
    )
    if found is None:
        raise Busy(
            f"the filters of {name} are being rebuilt, or there are none; see `spatialnosql stk status`"
        )
    yield _state(found)
    # Not if a later run has taken it over: that one writes still.
    states(collection).update_one(
        {"_id": name, f"writers.{writer}.run": run}, {"$unset": {f"writers.{writer}": ""}}
    )


def _writer_again(what: str) -> str:
    """The name of a writer that may come again."""
    return hashlib.blake2b(what.encode(), digest_size=12).hexdigest()


def note_published(collection: Any, what: str) -> None:
    """Let those who work for a writer that may come again know that it has published."""
    states(collection).update_one(
        {"_id": namespace_of(collection)}, {"$set": {f"writers.{_writer_again(what)}.published": True}}
    )


def has_published(collection: Any, what: str) -> bool:
    """Whether a writer that may come again has published: what is added now, it does not know of."""
    found = states(collection).find_one({"_id": namespace_of(collection)}) or {}
    return bool(found.get("writers", {}).get(_writer_again(what), {}).get("published", False))


def add_pieces(collection: Any, filters: Any, cubes: Iterable[int], keys: Iterable[Keys]) -> int:
    """Add keys to cubes; how many pieces that took. They count once they are published."""
    target, added, size = pieces(collection), 0, 0
    waiting: list[dict[str, Any]] = []
    for cube, some in zip(cubes, keys, strict=True):
        for start in range(0, len(some), _MOST_KEYS):
            part = Binary(some[start : start + _MOST_KEYS].astype("<u4").tobytes())
            waiting.append({"f": filters, "q": int(cube), "k": part})
            size += len(part)
        if len(waiting) >= _PIECES or size >= _BYTES:
            added += len(target.insert_many(waiting, ordered=False).inserted_ids)
            waiting, size = [], 0
    if waiting:
        added += len(target.insert_many(waiting, ordered=False).inserted_ids)
    return added


def add_missing(collection: Any, filters: Any, cubes: list[int], keys: list[Keys]) -> int:
    """Add those keys that the cubes do not have; how many that were. What was added before costs a look.

    Whoever is `writing` may go by what it finds: pieces stay, and become known when these cubes are published.
    """
    new: list[Keys] = []
    for start in range(0, len(cubes), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        there = run_steps(read_filters(collection, filters, cubes[some]))
        for cube, one in zip(cubes[some], keys[some], strict=True):
            new.append(one[~np.isin(one, there[cube], assume_unique=True)] if cube in there else one)
    add_pieces(collection, filters, cubes, new)
    return sum(map(len, new))


def publish(collection: Any, filters: Any, cubes: Ints) -> None:
    """Let everyone know of the pieces added to these cubes: directory first, then the tick that makes them look."""
    for start in range(0, len(cubes), _MOST_CUBES):
        part = Binary(np.asarray(cubes[start : start + _MOST_CUBES], dtype="<i8").tobytes())
        pieces(collection).insert_one({"f": filters, "q": None, "cubes": part})
    states(collection).update_one({"_id": namespace_of(collection)}, {"$inc": {"tick": 1}})


def begin(
    collection: Any, settings: str, *, grace_s: float = GRACE_S, paused: bool = True
) -> tuple[State, bool]:
    """Give a collection an empty set of filters, unless it has one; paused, until its documents are sealed.

    Its state, and whether it is new. Where there are no documents yet there is no need to pause.
    """
    pieces(collection).create_index([("f", 1), ("q", 1)])
    fresh = {
        "filters": ObjectId(),
        "tick": 0,
        "settings": settings,
        "grace_s": grace_s,
        "paused": paused,
        "writers": {},
    }
    name = {"_id": namespace_of(collection)}
    done = states(collection).update_one(name, {"$setOnInsert": fresh}, upsert=True)
    return _state(states(collection).find_one(name)), done.did_upsert


def pause(collection: Any) -> None:
    """Let nobody go by filters any more, nor by what is shut, and wait for those who do."""
    found = states(collection).find_one_and_update(
        {"_id": namespace_of(collection)},
        {"$set": {"paused": True}, "$unset": {"shut_ms": "", "shut_again_ms": ""}, "$inc": {"tick": 1}},
    )
    if found is not None and not found.get("paused"):
        time.sleep(_state(found).grace_s)


def resume(collection: Any) -> None:
    """Let everybody go by the filters in force."""
    states(collection).update_one(
        {"_id": namespace_of(collection)}, {"$set": {"paused": False}, "$inc": {"tick": 1}}
    )


@contextmanager
def rebuilding(collection: Any, settings: str, *, force: bool = False) -> Iterator[Any]:
    """Be the only one to write: a new set to fill, in force at the end, when the old one is deleted.

    `force` does so though writers are listed: they must be known to be dead.
    """
    name = namespace_of(collection)
    alone: dict[str, Any] = {"_id": name} if force else {"_id": name, "writers": {}}
    new = ObjectId()
    old = states(collection).find_one_and_update(alone, {"$set": {"rebuilding": new, "writers": {}}})
    if old is None:
        raise Busy(_who_writes(collection, name))
    yield new
    done = states(collection).update_one(
        {"_id": name, "rebuilding": new},
        {"$set": {"filters": new, "settings": settings}, "$unset": {"rebuilding": ""}, "$inc": {"tick": 1}},
    )
    if not done.matched_count:
        raise Busy(f"the filters of {name} were rebuilt by someone else meanwhile; this work is void")
    pieces(collection).delete_many({"f": old["filters"]})


def _who_writes(collection: Any, name: str) -> str:
    found = states(collection).find_one({"_id": name})
    if found is None:
        return f"{name} has no filters; see `spatialnosql stk enable`"
    who = [f"{one['what']} since {one['at']:%Y-%m-%d %H:%M} UTC" for one in found.get("writers", {}).values()]
    return f"others write to the filters of {name}: {', '.join(who)}. If they are dead, use --force"


def forget(collection: Any) -> None:
    """Delete a collection's filters and its state."""
    found = states(collection).find_one_and_delete({"_id": namespace_of(collection)})
    if found is not None:
        pieces(collection).delete_many({"f": found["filters"]})
