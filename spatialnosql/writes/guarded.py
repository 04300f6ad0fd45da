"""Updates one document at a time, each on condition that its location is still as it was read.

Who loses that race reads again, for as long as is reasonable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pymongo.errors import DuplicateKeyError, WriteConcernError, WriteError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.results import UpdateResult

from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.steps import Steps, call, listed
from spatialnosql.writes.documents import PLAIN
from spatialnosql.writes.simulate import NotViable
from spatialnosql.writes.updates import UpdatePlan, add_gh, gh_after
from spatialnosql.writes.upserts import inserted_by, tops_of

Document: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[Document, Any, bool], Steps[Any]]
"""A command by its filter, its update and whether to upsert; None when no document matched."""

ATTEMPTS = 100
"""How often a race may be lost: each time some other writer has won, so this many others moved the same point."""

_READ_OPTIONS = ("collation", "hint", "session", "let", "comment", "sort")
_WRITE_CONFLICT = 112


class ConcurrentMoves(SpatialNoSQLError, WriteError):  # noqa: N818 - not a fault of the caller
    """Others kept moving the point while we tried to; pymongo's WriteError with the code of a write conflict."""


def update_one(target: Any, options: dict[str, Any]) -> Send:
    """The command `update_one`."""

    def send(narrowed: Document, update: Any, insert: bool) -> Steps[UpdateResult | None]:
        result: UpdateResult = yield from call(target.update_one, narrowed, update, upsert=insert, **options)
        return result if result.matched_count or result.did_upsert else None

    return send


def raw_result(matched: int, modified: int) -> dict[str, Any]:
    """The server's answer to an update, summed up."""
    return {"n": matched, "nModified": modified, "ok": 1.0, "updatedExisting": matched > 0}


def change_one(
    target: Any,
    filter: Document,
    plan: UpdatePlan,
    info: CollectionInfo,
    upsert: bool,
    options: dict[str, Any],
    send: Send,
) -> Steps[Any]:
    """Change one document that matches; what `send` gave for it, or None."""
    for attempt in range(ATTEMPTS):
        found = yield from _read(target, filter, plan, info, options, limit=1)
        if found:
            answer = yield from send(
                _as_read(filter, found[0], plan, info), _changed(plan, found[0], info), False
            )
            if answer is not None:
                return answer
        elif not upsert:
            return None
        else:
            try:
                return (yield from _insert(filter, plan, info, target, send))
            except DuplicateKeyError:
                # Most likely it is there by now: look once more. A transaction is over with its first error.
                if attempt or _in_transaction(options):
                    raise
    raise _lost(info)


def change_each(
    target: Any,
    filter: Document,
    plan: UpdatePlan,
    info: CollectionInfo,
    upsert: bool,
    options: dict[str, Any],
) -> Steps[UpdateResult]:
    """Change all documents that match, which are listed first: a document that moved is not met again."""
    found = yield from _read(target, filter, plan, info, options)
    send = update_one(target, options)
    if not found and upsert:
        result = yield from change_one(target, filter, plan, info, True, options, send)
        assert isinstance(result, UpdateResult)
        return result
    matched = modified = 0
    concern: WriteConcernError | None = None
    for document in found:
        for _ in range(ATTEMPTS):
            try:
                result = yield from send(
                    _as_read(filter, document, plan, info), _changed(plan, document, info), False
                )
            except WriteConcernError as error:  # it is written, and so shall the others be
                concern = error
                break
            if result is not None:
                matched += result.matched_count
                modified += result.modified_count
                break
            narrowed = {"$and": [filter, {"_id": {"$eq": document["_id"]}}]}
            again = yield from _read(target, narrowed, plan, info, options, limit=1)
            if not again:
                break  # gone, or no longer meant
            document = again[0]
        else:
            raise _lost(info)
    if concern is not None:
        raise concern
    return UpdateResult(raw_result(matched, modified), True)


def _read(
    target: Any,
    filter: Document,
    plan: UpdatePlan,
    info: CollectionInfo,
    options: dict[str, Any],
    limit: int = 0,
) -> Steps[list[dict[str, Any]]]:
    """What decides about ``gh`` in the documents that match, from the primary, in types that can be sent back."""
    reader = target.with_options(
        codec_options=PLAIN, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
    )
    fields = {"_id", info.gh, *(tops_of(info, plan.operations) if plan.operations else ())}
    kept = {name: options[name] for name in _READ_OPTIONS if options.get(name) is not None}
    if isinstance(kept.get("sort"), Mapping):
        kept["sort"] = list(kept["sort"].items())
    return (yield from listed(reader.find, filter, dict.fromkeys(sorted(fields), 1), limit=limit, **kept))


def _as_read(
    filter: Document,
    document: dict[str, Any],
    plan: UpdatePlan,
    info: CollectionInfo,
) -> dict[str, Any]:
    """The filter for one document, as long as it is as it was read; with ``gh`` and ``_id`` only its shard is asked."""
    same: list[Any] = [{"_id": {"$eq": document["_id"]}, info.gh: {"$eq": document.get(info.gh)}}]
    for top in sorted(tops_of(info, plan.operations)) if plan.operations else ():
        if top in document:
            same.append({"$expr": {"$eq": [f"${top}", {"$literal": document[top]}]}})
        else:
            same.append({top: {"$exists": False}})
    return {"$and": [filter, *same]}


def _changed(plan: UpdatePlan, document: dict[str, Any], info: CollectionInfo) -> Any:
    """The update to send for a document as it was read."""
    if not plan.operations:
        return plan.update
    try:
        gh = gh_after(document, [one for one in plan.operations if one.operator != "$setOnInsert"], info)
    except NotViable:
        return plan.update  # for the server to refuse
    return plan.update if gh == document.get(info.gh) else add_gh(plan.update, info.gh, gh)


def _insert(
    filter: Document,
    plan: UpdatePlan,
    info: CollectionInfo,
    target: Any,
    send: Send,
) -> Steps[Any]:
    """The upsert of an update when nothing matched."""
    if not plan.operations:
        return (yield from send(filter, plan.update, True))
    made, gh = inserted_by(filter, plan.operations, info, target.codec_options)
    if gh is None and not info.unhashed and _is_somewhere(made, info.location):
        operators = ", ".join(sorted({one.operator for one in plan.operations}))
        raise UsageError(
            f"nothing matches, and what {operators} would make of {info.location!r} in a new document is no point; "
            f"give the location that an upsert inserts with $setOnInsert in an update of its own"
        )
    # It must insert: were a document to match by now, its location would change and its gh not. The condition is
    # one that no document meets and that the server still does not simplify away, with the equalities it inserts.
    nothing = {"$and": [filter, {"_id": {"$exists": False}}]}
    update = plan.update if gh is None else add_gh(plan.update, info.gh, gh, "$setOnInsert")
    return (yield from send(nothing, update, True))


def _is_somewhere(document: Any, location: str) -> bool:
    for name in location.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document is not None


def _in_transaction(options: Document) -> bool:
    session = options.get("session")
    return session is not None and bool(session.in_transaction)


def _lost(info: CollectionInfo) -> ConcurrentMoves:
    return ConcurrentMoves(
        f"others changed {info.location!r} of the same document {ATTEMPTS} times while it was to be updated; "
        "set the whole location instead of a part of it, or update it in a transaction",
        _WRITE_CONFLICT,
        {"index": 0, "code": _WRITE_CONFLICT, "errmsg": "lost too many races"},
    )
