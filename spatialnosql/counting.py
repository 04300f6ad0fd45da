"""Counts settled in the client: run a `CountPlan` against the server.

The two commands are sent side by side, and each sees its own moment: a document that moves from one kind of range to
the other in between may be counted twice or not at all. Who minds asks for `consistent`: then both read at one cluster
time, in turn, in a snapshot session. In a transaction, or with the read concern "snapshot", it is so anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialnosql.cursor import Deadline
from spatialnosql.geohash import cells_to_strings
from spatialnosql.info import CollectionInfo
from spatialnosql.keys import batch_to_cells
from spatialnosql.rewrite.settle_count import CountPlan
from spatialnosql.settle import IN, UNSURE, settle_cells
from spatialnosql.steps import Call, Steps, call, together

_OPTIONS = {"session", "comment", "maxTimeMS", "skip", "limit", "consistent"}
_BATCH = 500_000  # keys a batch; the server sends at most 16 MB, so all but huge boundaries come in one
_ASKED_AT_ONCE = 1_000


def can_settle(options: Mapping[str, Any]) -> bool:
    """Whether all options of a count are such that we do with them what the server would."""
    numbers = [options[name] for name in ("skip", "limit") if name in options]
    return options.keys() <= _OPTIONS and all(type(number) is int and number > 0 for number in numbers)


def settled_count(
    collection: Any, plan: CountPlan, info: CollectionInfo, options: dict[str, Any]
) -> Steps[int]:
    """The number of documents: interior + boundary keys certainly in + what the server says of the undecided."""
    options = dict(options)
    skip, limit = options.pop("skip", 0), options.pop("limit", 0)
    if options.pop("consistent", False) and options.get("session") is None:
        session = yield from call(collection.database.client.start_session, snapshot=True)
        try:
            total = yield from _total(collection, plan, info, {**options, "session": session})
        finally:
            yield from call(session.end_session)
    else:
        total = yield from _total(collection, plan, info, options)
    total = max(0, total - int(skip))
    return min(total, int(limit)) if limit else total


def _total(collection: Any, plan: CountPlan, info: CollectionInfo, options: dict[str, Any]) -> Steps[int]:
    options = dict(options)
    deadline = Deadline(options.pop("maxTimeMS", None))
    session = options.get("session")
    calls = []
    if plan.interior is not None:
        calls.append(_count(collection, plan.interior, plan.hint, deadline, options))
    if plan.boundary is not None:
        calls.append(_keys(collection, plan.boundary, info.gh, plan.hint, deadline, options))
    answers = yield from together(calls, in_turn=session is not None)
    total = int(answers[0]) if plan.interior is not None else 0
    if plan.boundary is not None:
        cells = np.concatenate(
            [np.zeros(0, dtype=np.uint64), *(batch_to_cells(b, info.gh) for b in answers[-1])]
        )
        status = settle_cells(plan.region, cells)
        total += int(np.count_nonzero(status == IN))
        undecided = np.unique(cells[status == UNSURE])
        for start in range(0, len(undecided), _ASKED_AT_ONCE):
            hashes = cells_to_strings(undecided[start : start + _ASKED_AT_ONCE]).tolist()
            asked = {"$and": [{info.gh: {"$in": hashes}}, plan.tests]}
            one = _count(collection, asked, plan.hint, deadline, options)
            total += int((yield from call(one.function, *one.arguments, **one.options)))
    return total


def _count(collection: Any, filter: Any, hint: str, deadline: Deadline, options: dict[str, Any]) -> Call:
    timed = {} if deadline.remaining_ms() is None else {"maxTimeMS": deadline.remaining_ms()}
    return Call(collection.count_documents, (filter,), {"hint": hint, **timed, **options})


def _keys(
    collection: Any, filter: Any, gh: str, hint: str, deadline: Deadline, options: dict[str, Any]
) -> Call:
    """All keys of the boundary, in raw batches; covered by the index when there is no other condition."""
    projection = {"_id": 0, gh: 1}
    timed = {} if deadline.remaining_ms() is None else {"max_time_ms": deadline.remaining_ms()}
    given = {"projection": projection, "hint": hint, "batch_size": _BATCH, **timed, **options}
    return Call(collection.find_raw_batches, (filter,), given, listed=True)
