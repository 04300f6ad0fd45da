"""Shut: of no time before a moment is any document fresh, and the server refuses whoever would make one so.

A query that ends before the moment need not look for fresh documents; and where no filter knows its words, it is
answered without asking any server. For what is loaded in batches that is the common case, and it is not the default:
whoever inserts documents of an older time must seal them (ingest does), and whoever changes one must open first.

As with filters (`filter_store`), nobody may go by what is not true any more:

- Shutting, the server first refuses fresh documents of that time; then it is looked whether there are any; then it is
  published.
- Opening, it is first published; when all who knew otherwise are done, a grace later, the server accepts them again.

Killed in between, the server refuses more than is published, never less. One at a time: whoever is at it is noted.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.stk.clauses import clauses_of, is_about_shut, set_clause
from spatialnosql.stk.filter_store import GRACE_S, Busy, namespace_of, states
from spatialnosql.stk.seals import only_sealed_before, shut_by
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME, StkSettings


def shut(
    collection: Any, info: CollectionInfo, settings: StkSettings, before: dt.datetime, *, force: bool = False
) -> None:
    """Shut what is before a moment; UsageError if fresh documents of such a time are there.

    `force` takes over from another who shuts or opens, and who must be known to be dead.
    """
    shut_ms = int(DatetimeMS(before))
    with _alone(collection, "shut", force=force) as (run, published):
        refused = _refused_before(collection, settings)
        if refused is not None and refused > shut_ms:
            _let_in(collection, run)
            published = None
        set_clause(collection, is_about_shut, only_sealed_before(settings, shut_ms))
        left = _some_fresh(collection, settings, shut_ms)
        if left is not None:
            earlier = None if published is None else only_sealed_before(settings, published)
            set_clause(collection, is_about_shut, earlier)
            raise UsageError(
                f"{info.namespace} has fresh documents before {before:%Y-%m-%d %H:%M:%S}, as _id {left!r}; seal them "
                "first (`spatialnosql stk seal`), or mend them if they have no list of words"
            )
        _published(collection, run, {"$set": {"shut_ms": shut_ms}, "$unset": {"shut_again_ms": ""}})


def reopen(collection: Any, *, force: bool = False) -> None:
    """Let fresh documents of any time in again."""
    with _alone(collection, "open", force=force) as (run, _):
        _let_in(collection, run)
        _published(collection, run, {"$unset": {"shut_again_ms": ""}})


def reopen_for(collection: Any, what: str) -> None:
    """Open for a work that ends with `shut_again`; after it was killed, it is done again under the same name."""
    with _alone(collection, what, again=True) as (run, published):
        if published is not None:
            _published(collection, run, {"$set": {"shut_again_ms": published}})
        _let_in(collection, run)


def shut_again(collection: Any, info: CollectionInfo, settings: StkSettings) -> str | None:
    """Shut what was opened for a work; why it stays open, if it does."""
    found = states(collection).find_one({"_id": namespace_of(collection)}) or {}
    if found.get("shut_again_ms") is None:
        return None
    moment = dt.datetime.fromtimestamp(int(found["shut_again_ms"]) / 1000, dt.timezone.utc)
    try:
        shut(collection, info, settings, moment)
    except UsageError as error:
        return f"it stays open: {error}"
    return None


def _let_in(collection: Any, run: Any) -> None:
    """Publish that nothing is shut, wait, and let the server accept again."""
    found = _published(collection, run, {"$unset": {"shut_ms": ""}})
    if not any(map(is_about_shut, clauses_of(collection))):
        return
    # Also if it was published before, by one who was killed then: it may be that it was just now.
    time.sleep(float(found.get("grace_s", GRACE_S)))
    _published(collection, run, {})  # that nobody has taken over meanwhile
    set_clause(collection, is_about_shut, None)


def _refused_before(collection: Any, settings: StkSettings) -> int | None:
    """Before which moment the server refuses fresh documents."""
    moments = (shut_by(clause, settings) for clause in clauses_of(collection))
    return max((at for at in moments if at is not None), default=None)


@contextmanager
def _alone(
    collection: Any, what: str, *, force: bool = False, again: bool = False
) -> Iterator[tuple[Any, int | None]]:
    """Be the only one who shuts or opens: the name of the run, and what was shut before.

    Whoever fails with an answer is done; whoever is killed stays noted. With `again` it does all that an earlier one of
    the same name did, and so takes over from it.
    """
    name, run = namespace_of(collection), ObjectId()
    entry = {"what": what, "at": dt.datetime.now(dt.timezone.utc), "run": run}
    free: dict[str, Any] = {"_id": name}
    if not force:
        free["$or"] = [{"gate": None}, {"gate.what": what}] if again else [{"gate": None}]
    known = states(collection).find_one_and_update(free, {"$set": {"gate": entry}})
    if known is None:
        found = (states(collection).find_one({"_id": name}) or {}).get("gate")
        if found is None:
            raise Busy(f"{name} has no filters; see `spatialnosql stk enable`")
        raise Busy(
            f"another shuts or opens {name}: {found['what']} since {found['at']:%Y-%m-%d %H:%M} UTC. If it is dead, "
            "use --force"
        )
    try:
        yield run, None if known.get("shut_ms") is None else int(known["shut_ms"])
    except UsageError:
        _left(collection, run)
        raise
    _left(collection, run)


def _left(collection: Any, run: Any) -> None:
    states(collection).update_one(
        {"_id": namespace_of(collection), "gate.run": run}, {"$unset": {"gate": ""}}
    )


def _published(collection: Any, run: Any, change: dict[str, Any]) -> dict[str, Any]:
    """Change what is known of a collection, unless another has taken over; what was known before."""
    found: dict[str, Any] | None = states(collection).find_one_and_update(
        {"_id": namespace_of(collection), "gate.run": run}, {**change, "$inc": {"tick": 1}}
    )
    if found is None:
        raise Busy(f"another has taken over {namespace_of(collection)}; this work is void")
    return found


def _some_fresh(collection: Any, settings: StkSettings, shut_ms: int) -> Any:
    """The ``_id`` of a fresh document with a time before a moment; None if there is none."""
    reader = collection.with_options(
        read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
    )
    wanted = {CUBE_FIELD: None, settings.time: {"$lt": DatetimeMS(shut_ms)}}
    found = reader.find_one(wanted, {"_id": 1}, hint=INDEX_NAME)
    return None if found is None else found["_id"]
