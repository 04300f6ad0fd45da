"""Finds, counts and pipelines that speak of place, time and words: where the filters come in."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spatialnosql.found import Found
from spatialnosql.info import CollectionInfo
from spatialnosql.one_moment import has_one_moment, wants_one_moment, with_session
from spatialnosql.projection import widened
from spatialnosql.reading import Reader, can_settle_documents
from spatialnosql.rewrite.plan import Plan, QoS
from spatialnosql.steps import Steps
from spatialnosql.stk.filter_cache import FilterCache
from spatialnosql.stk.filter_store import namespace_of
from spatialnosql.stk.operator import expand
from spatialnosql.stk.planning import plan_stk
from spatialnosql.stk.pruned_find import PrunedFind
from spatialnosql.stk.settings import STK_FIELD

MOST_NAMED = 2_000
"""Documents that are asked for by name."""

# By the client's identity: clients of the same hosts are equal to each other, but each has its own memory limit.
_caches: dict[int, dict[str, FilterCache]] = {}


def filters_of(collection: Any) -> FilterCache:
    """The filters in memory of a collection: one cache for all who use the same client."""
    client = collection.database.client
    if id(client) not in _caches:
        _caches[id(client)] = {}
        weakref.finalize(client, _caches.pop, id(client), None)
    return _caches[id(client)].setdefault(namespace_of(collection), FilterCache())


def pruned_plan(
    collection: Any, filter: Any, info: CollectionInfo, qos: QoS, session: Any = None
) -> Steps[Plan | None]:
    """The plan of a find or count by its filters; None if it is no such query, or another way is better."""
    if info.stk is None or info.why_not is not None or info.unhashed or not qos.rewrite:
        return None
    if not isinstance(filter, Mapping) or info.gh_index is None or _sees_the_past(collection, session):
        return None
    plan = yield from plan_stk(collection, filter, info, filters_of(collection))
    return plan if isinstance(plan, Plan) else None


def _sees_the_past(collection: Any, session: Any) -> bool:
    """Whether documents may be seen that were deleted since: the filters know only of what is there now."""
    session = with_session(collection.database.client, {"session": session})["session"]
    return wants_one_moment(collection) or has_one_moment(session)


def named_plan(
    collection: Any, filter: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Plan | None]:
    """The plan of what only a server can do, as sorting: the documents are found first, and then asked for by name.

    None if it is no such query, or if they are too many to be named.
    """
    if not can_settle_documents(collection):
        return None
    given = {name: options[name] for name in ("session", "comment", "max_time_ms") if name in options}
    plan = yield from pruned_plan(collection, filter, info, qos, given.get("session"))
    if plan is None:
        return None
    needed = widened({"_id": 1}, ("_id", info.gh, STK_FIELD))
    assert needed is not None
    reader = Reader(collection, info, given, replace(needed, added=(STK_FIELD,)))
    source = PrunedFind(reader, plan, {"limit": MOST_NAMED + 1})
    found = yield from Found((), source, limit=MOST_NAMED + 1, deadline=reader.deadline).taken(None)
    if len(found) > MOST_NAMED:
        return None
    names = {
        "_id": {"$in": [one["_id"] for one in found]},
        info.gh: {"$in": sorted({one[info.gh] for one in found})},
    }
    return replace(
        plan,
        filter={"$and": [names, filter]},
        hint=info.gh_index,
        rules=("prune_stk", "by_name"),
        form="server",
        settled=None,
        pruned=None,
        commands=3,
    )


def pruned_pipeline(
    collection: Any, pipeline: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Plan | None]:
    """The plan of a pipeline that begins with such a ``$match``; None if it does not."""
    if info.stk is None or not pipeline or set(pipeline[0]) != {"$match"}:
        return None
    given = {"session": options.get("session"), "max_time_ms": options.get("maxTimeMS", qos.max_time_ms)}
    plan = yield from named_plan(collection, pipeline[0]["$match"], info, qos, given)
    if plan is None:
        return None
    return replace(plan, original=pipeline, filter=None, pipeline=[{"$match": plan.filter}, *pipeline[1:]])


def expand_pipeline(pipeline: Any, info: CollectionInfo) -> Any:
    """A pipeline whose ``$match`` stages say ``$stk`` in plain words; the same object if none has it."""
    if not isinstance(pipeline, list):
        return pipeline
    stages = [
        {"$match": expand(stage["$match"], info)}
        if isinstance(stage, Mapping) and set(stage) == {"$match"}
        else stage
        for stage in pipeline
    ]
    same = all(
        new is old or new["$match"] is old["$match"] for new, old in zip(stages, pipeline, strict=True)
    )
    return pipeline if same else stages
