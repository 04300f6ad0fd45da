"""A find with its options: what it wants, why it may go only as it is, its plan, and who reads its documents.

Options are as pymongo's ``find`` takes them, by name, those of calls like ``.limit(5)`` among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spatialnosql.found import Found, Source
from spatialnosql.info import CollectionInfo
from spatialnosql.nearest import RingSource
from spatialnosql.one_moment import has_one_moment, wants_one_moment
from spatialnosql.projection import widened
from spatialnosql.reading import Reader, can_settle_documents
from spatialnosql.rewrite import Plan, QoS, Wanted
from spatialnosql.rewrite.planning import plan_find
from spatialnosql.rewrite.sorted_by import wanted_of_sort
from spatialnosql.settled_find import SettledFind
from spatialnosql.steps import Steps
from spatialnosql.stk.finding import named_plan, pruned_plan
from spatialnosql.stk.operator import expand
from spatialnosql.stk.pruned_find import PrunedFind
from spatialnosql.stk.settings import STK_FIELD

_FOREIGN = ("hint", "collation", "min", "max", "cursor_type", "return_key", "show_record_id", "oplog_replay")


def unchanged_reason(options: Mapping[str, Any]) -> str | None:
    """Why a query with these options must go as it is; None if it may be rewritten."""
    for name in _FOREIGN:
        if options.get(name):
            return f"the caller gave {name}"
    sort = options.get("sort")
    if sort and "$natural" in str(sort):
        return "the caller sorts by $natural"
    return None


def near_limit(options: Mapping[str, Any]) -> int:
    """How many of the nearest a find wants; 0 if all, or if it sorts and so wants others than the nearest."""
    return 0 if options.get("sort") else abs(options.get("limit", 0))


def sorted_wanted(options: Mapping[str, Any]) -> Wanted:
    """What a find that sorts wants: its order, and how many."""
    limit = abs(options.get("limit", 0))
    first = limit + options.get("skip", 0) if limit else 0
    return wanted_of_sort(options.get("sort"), first, in_memory=options.get("allow_disk_use") is False)


def planned_steps(
    collection: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any], unchanged: str | None = None
) -> Steps[Plan]:
    """The plan of a find with these options, also by filters of words that have to be looked at on the server."""
    given = options["filter"] or {}
    plain = given if unchanged else expand(given, info)
    options = {**options, "filter": plain}
    if info.stk is not None and not (unchanged or unchanged_reason(options)):
        pruned = yield from _pruned(collection, info, qos, options)
        if pruned is not None:
            return pruned
    plan = planned(collection, info, qos, options, unchanged)
    if plain is not given and not plan.rewritten:
        plan = replace(plan, filter=plain, rewritten=True, rules=("expand_stk",))
    return plan


def _pruned(
    collection: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Plan | None]:
    """The plan by filters of words, if the find is of that kind."""
    wanted = options["filter"]
    if options.get("sort") or qos.form == "server":
        return (yield from named_plan(collection, wanted, info, qos, options))
    if not can_settle_documents(collection) or _needs(info, options, seal=True) is None:
        return None
    return (yield from pruned_plan(collection, wanted, info, qos, options.get("session")))


def planned(
    collection: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any], unchanged: str | None = None
) -> Plan:
    """The plan of a find with these options."""
    near = near_limit(options)
    return plan_find(
        options["filter"] or {},
        info,
        qos=qos,
        limit=near,
        skip=options.get("skip", 0) if near else 0,
        unchanged=unchanged or unchanged_reason(options),
        is_sorted=bool(options.get("sort")),
        wanted=sorted_wanted(options),
        readable=why_unreadable(collection, info, options) is None,
    )


def why_unreadable(collection: Any, info: CollectionInfo, options: Mapping[str, Any]) -> str | None:
    """Why the client cannot settle the documents of a find, wherever they are; None if it can."""
    if options.get("sort") and options.get("limit"):
        return "of a sort with a limit the servers send only the first few"
    if options.get("sort") and options.get("allow_disk_use") is False:
        return "what lies outside would be sorted too, and to sort on disk is forbidden"
    if wants_one_moment(collection) and not has_one_moment(options.get("session")):
        return "every command would choose a moment of its own, and the read concern says that all is of one"
    if not can_settle_documents(collection):
        return "the collection decodes documents in a way of its own"
    if _needs(info, options) is None:
        return "the projection leaves out what it would be settled by, and cannot be widened"
    return None


def _needs(
    info: CollectionInfo, options: Mapping[str, Any], *, place: bool = True, seal: bool = False
) -> Any:
    needed = ["_id", info.gh, *((info.location,) if place else ()), *((STK_FIELD,) if seal else ())]
    return widened(options.get("projection"), needed)


def in_client(collection: Any, plan: Plan, info: CollectionInfo, options: dict[str, Any]) -> Found:
    """The documents of a plan in which the client takes part."""
    limit, batch_size = options.get("limit", 0), options.get("batch_size", 0)
    if limit < 0 and batch_size:
        limit = min(-limit, batch_size)  # a negative limit wants one batch, and no more
    wanted = {"skip": options.get("skip", 0), "limit": abs(limit), "batch_size": batch_size}
    needed = _needs(info, options, place=plan.rings is not None, seal=plan.pruned is not None)
    reader = Reader(collection, info, options, needed)
    source: Source
    if plan.rings is not None:
        source = RingSource(reader, plan.rings)
    else:
        source = PrunedFind(reader, plan, options) if plan.pruned else SettledFind(reader, plan, options)
    return Found((), source, deadline=reader.deadline, **wanted)
