"""Counts settled in the client: run a plan against the server.

The commands are sent side by side, and each sees its own moment: a document that moves from one range to another in
between may be counted twice or not at all. Who minds asks for `consistent`: then all read at one moment, in turn. With
the read concern "snapshot" it is so anyway, and in a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pymongo.errors import OperationFailure

from spatialnosql.deadline import Deadline
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.geohash import cells_to_strings, strings_to_cells
from spatialnosql.info import CollectionInfo
from spatialnosql.one_moment import at_one_moment
from spatialnosql.places import settled_by_place
from spatialnosql.reading import can_settle_documents
from spatialnosql.rewrite import Plan
from spatialnosql.rewrite.plan import Settled
from spatialnosql.settle import IN, UNSURE, settle_cells
from spatialnosql.steps import Call, Steps, call, listed, together

_OPTIONS = {"session", "comment", "maxTimeMS", "skip", "limit", "consistent"}
_MOST_PUSHED = (
    200_000  # keys in one document, which may have 16 MB: 25 bytes each, and predictions may be wrong
)
_TOO_LARGE = (10334, 17419, 17420, 146)  # what a server says of documents over 16 MB or lists over 100 MB
_NO_TRANSACTIONS = 20  # what a standalone server says, of which one command sees one moment
_ASKED_AT_ONCE = 1_000
# So many documents are sooner read than a second command is sent, which every third count of keys needs.
_FEW = 200


def can_settle(options: Mapping[str, Any]) -> bool:
    """Whether all options of a count are such that we do with them what the server would."""
    numbers = [options[name] for name in ("skip", "limit") if name in options]
    return options.keys() <= _OPTIONS and all(type(number) is int and number > 0 for number in numbers)


def by_place(settled: Settled, collection: Any) -> bool:
    """Whether a count reads the places of documents instead of their keys, for they are few."""
    return settled.counted is None and settled.expected <= _FEW and can_settle_documents(collection)


def listed_stages(filter: Any, field: str) -> list[dict[str, Any]]:
    """A field of all documents of some ranges in one document: if a key, as good as free for who reads the index."""
    return [{"$match": filter}, {"$group": {"_id": None, "keys": {"$push": f"${field}"}}}]


def settled_count(collection: Any, plan: Plan, info: CollectionInfo, options: dict[str, Any]) -> Steps[int]:
    """The number of documents: interior + boundary keys certainly in + what the server says of the undecided."""
    options = dict(options)
    skip, limit = options.pop("skip", 0), options.pop("limit", 0)
    if options.pop("consistent", False):
        total = yield from _consistent_total(collection, plan, info, options)
    else:
        total = yield from _total(collection, plan, info, options)
    total = max(0, total - int(skip))
    return min(total, int(limit)) if limit else total


def _consistent_total(
    collection: Any, plan: Plan, info: CollectionInfo, options: dict[str, Any]
) -> Steps[int]:
    try:
        return (
            yield from at_one_moment(
                collection.database.client,
                lambda session: _total(collection, plan, info, {**options, "session": session}),
                options.get("session"),
            )
        )
    except OperationFailure as error:
        if error.code != _NO_TRANSACTIONS:
            raise
        return (
            yield from _asked(collection, plan.original, Deadline(options.pop("maxTimeMS", None)), options)
        )


def _total(collection: Any, plan: Plan, info: CollectionInfo, options: dict[str, Any]) -> Steps[int]:
    options = dict(options)
    deadline = Deadline(options.pop("maxTimeMS", None))
    try:
        return (yield from _settled_total(collection, plan, info, deadline, options))
    except SpatialNoSQLError:
        # A shape that was read while the servers were busy, and is not for us to judge.
        return (yield from _asked(collection, plan.original, deadline, options))


def _asked(
    collection: Any, filter: Any, deadline: Deadline, options: dict[str, Any], hint: str | None = None
) -> Steps[int]:
    """A count by the servers, in one command."""
    one = _count(collection, filter, hint, deadline, options)
    return int((yield from call(one.function, *one.arguments, **one.options)))


def _settled_total(
    collection: Any, plan: Plan, info: CollectionInfo, deadline: Deadline, options: dict[str, Any]
) -> Steps[int]:
    settled, hint = plan.settled, plan.hint
    assert settled is not None
    if by_place(settled, collection):
        total = yield from _placed(collection, plan, info, deadline, options)
        if total is not None:
            return total
    in_turn = options.get("session") is not None
    counted = settled.parts
    if in_turn and settled.counted is not None:
        counted = (settled.counted,)  # parts are for doing them at once
    calls = [_count(collection, part, hint, deadline, options) for part in counted]
    pushed = settled.expected <= _MOST_PUSHED
    if settled.scanned is not None:
        keys = _pushed if pushed else _found
        calls.append(keys(collection, settled.scanned, info.gh, hint, deadline, options))
    try:
        answers = yield from together(calls, in_turn=in_turn, work=settled.reading())
    except OperationFailure as error:
        if not pushed or error.code not in _TOO_LARGE:
            raise
        calls[-1] = _found(collection, settled.scanned, info.gh, hint, deadline, options)
        answers = yield from together(calls, in_turn=in_turn)
        pushed = False
    total = sum([int(number) for number in answers[: len(counted)]])
    if settled.scanned is None:
        return total
    if pushed:
        hashes = [gh for document in answers[-1] for gh in document["keys"]]
    else:
        hashes = [document[info.gh] for document in answers[-1]]
    cells = strings_to_cells(hashes)
    settled.learn(info, len(cells), counted=total)
    if settled.one_scan:
        inside = settled.cover.interior.contains(cells)
        total += int(np.count_nonzero(inside))
        cells = cells[~inside]
    status = settle_cells(settled.region, cells)
    total += int(np.count_nonzero(status == IN))
    undecided = cells_to_strings(np.unique(cells[status == UNSURE])).tolist()
    if undecided and can_settle_documents(collection):
        more, undecided = yield from _closely(collection, plan, info, undecided, deadline, options)
        total += more
    for start in range(0, len(undecided), _ASKED_AT_ONCE):
        hashes = undecided[start : start + _ASKED_AT_ONCE]
        asked = {"$and": [{info.gh: {"$in": hashes}}, settled.tests]}
        total += yield from _asked(collection, asked, deadline, options, info.gh_index)
    return total


def _placed(
    collection: Any, plan: Plan, info: CollectionInfo, deadline: Deadline, options: dict[str, Any]
) -> Steps[int | None]:
    """The number of documents, all of them settled by their coordinates; None if those do not tell of every one."""
    settled, hint = plan.settled, plan.hint
    assert settled is not None
    one = _pushed(collection, settled.scanned, info.location, hint, deadline, options)
    try:
        (answers,) = yield from together([one], work=settled.reading())
    except OperationFailure as error:
        if error.code not in _TOO_LARGE:
            raise
        return None
    documents = [{"at": place} for document in answers for place in document["keys"]]
    status = settled_by_place(settled.region, documents, "at")
    if (status == UNSURE).any():
        return None  # whoever counts them otherwise also learns from it, once
    settled.learn(info, len(documents))
    return int(np.count_nonzero(status == IN))


def _closely(
    collection: Any,
    plan: Plan,
    info: CollectionInfo,
    undecided: list[str],
    deadline: Deadline,
    options: dict[str, Any],
) -> Steps[tuple[int, list[str]]]:
    """The documents of undecided geohashes by their coordinates: how many are inside, and which to ask about still.

    To read a few documents is cheaper than to let a server read the shape.
    """
    settled, hint = plan.settled, info.gh_index
    assert settled is not None
    inside, left = 0, []
    for start in range(0, len(undecided), _ASKED_AT_ONCE):
        wanted = {info.gh: {"$in": undecided[start : start + _ASKED_AT_ONCE]}}
        asked = {"$and": [wanted, *settled.others]} if settled.others else wanted
        one = _found(collection, asked, info.gh, hint, deadline, options, info.location)
        documents = yield from listed(one.function, *one.arguments, **one.options)
        status = settled_by_place(settled.region, documents, info.location).tolist()
        hashes = [document[info.gh] for document in documents]
        # The server is asked by geohash, and then counts all documents that have it.
        doubtful = {gh for gh, one in zip(hashes, status, strict=True) if one == UNSURE}
        inside += sum(one == IN and gh not in doubtful for gh, one in zip(hashes, status, strict=True))
        left += sorted(doubtful)
    return inside, left


def _count(
    collection: Any, filter: Any, hint: str | None, deadline: Deadline, options: dict[str, Any]
) -> Call:
    timed = {} if deadline.remaining_ms() is None else {"maxTimeMS": deadline.remaining_ms()}
    return Call(collection.count_documents, (filter,), {**_hinted(hint), **timed, **options})


def _pushed(
    collection: Any, filter: Any, field: str, hint: str | None, deadline: Deadline, options: dict[str, Any]
) -> Call:
    timed = {} if deadline.remaining_ms() is None else {"maxTimeMS": deadline.remaining_ms()}
    stages = listed_stages(filter, field)
    return Call(collection.aggregate, (stages,), {**_hinted(hint), **timed, **options}, listed=True)


def _found(
    collection: Any,
    filter: Any,
    gh: str,
    hint: str | None,
    deadline: Deadline,
    options: dict[str, Any],
    *more: str,
) -> Call:
    """The keys of some ranges, a document each, when they are too many for one; with more fields if wanted."""
    timed = {} if deadline.remaining_ms() is None else {"max_time_ms": deadline.remaining_ms()}
    given = {"projection": {"_id": 0, **dict.fromkeys((gh, *more), 1)}, **_hinted(hint), **timed, **options}
    return Call(collection.find, (filter,), given, listed=True)


def _hinted(hint: str | None) -> dict[str, Any]:
    return {} if hint is None else {"hint": hint}
