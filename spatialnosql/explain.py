"""A query as it came and as it is sent, side by side: shards asked, keys and documents examined, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spatialnosql.client_pipelines import PlannedCount, plan_in_client
from spatialnosql.counting import by_place, listed_stages
from spatialnosql.examined import Examined, count_stages, examined
from spatialnosql.info import CollectionInfo
from spatialnosql.one_moment import wants_one_moment
from spatialnosql.own_session import in_own_session
from spatialnosql.planned_find import near_limit, planned_steps, unchanged_reason, why_unreadable
from spatialnosql.rewrite import Context, Plan, QoS, rewrite_pipeline
from spatialnosql.rewrite.bound_geo_near import pipeline_within_window
from spatialnosql.rewrite.bound_near import windows, within_window
from spatialnosql.rewrite.cost import CLIENT
from spatialnosql.rewrite.planning import plan_count, why_not_in_client
from spatialnosql.rewrite.ring_near import first_ring
from spatialnosql.steps import Steps, call
from spatialnosql.stk.finding import expand_pipeline, pruned_pipeline, pruned_plan
from spatialnosql.stk.operator import expand

# What a find command calls the options of pymongo's find.
_FIND_OPTIONS = {"projection": "projection", "sort": "sort", "limit": "limit", "skip": "skip", "hint": "hint"}


@dataclass(frozen=True)
class Explanation:
    """Both ways to ask, what each made the servers examine, and the decision."""

    plan: Plan
    original: Examined
    rewritten: Examined | None  # None when the query is sent as it is

    def to_dict(self) -> dict[str, Any]:
        """Everything as data, for JSON."""
        return {
            "decision": self.plan.describe(),
            "original": _numbers(self.original),
            "rewritten": _numbers(self.rewritten) if self.rewritten is not None else None,
        }

    def __str__(self) -> str:
        rows = [("", "original", "rewritten")]
        before, after = _numbers(self.original), _numbers(self.rewritten) if self.rewritten else {}
        names = {
            "shards": "shards asked",
            "keys": "keys examined",
            "docs": "documents examined",
            "returned": "documents sent",
            "ms": "milliseconds",
        }
        rows += [
            (text, f"{before[key]:,}", f"{after[key]:,}" if after else "-") for key, text in names.items()
        ]
        lines = [f"{a:20} {b:>14} {c:>14}".rstrip() for a, b, c in rows]
        return "\n".join([*lines, "", str(self.plan)])


def _numbers(part: Examined | None) -> dict[str, int]:
    numbers = asdict(part) if part is not None else {}
    numbers.pop("queries", None)
    return numbers


def explain_steps(
    collection: Any, query: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Explanation]:
    """Explain a filter (a mapping) or a pipeline (a list of stages). The server runs both ways."""
    if not isinstance(query, Mapping):
        return (yield from _explain_pipeline(collection, query, info, qos, options))
    query = expand(query, info)
    plan = yield from planned_steps(collection, info, qos, {**options, "filter": query})
    unreadable = why_unreadable(collection, info, options)
    if not unchanged_reason(options):
        limit = near_limit(options)
        skip = options.get("skip", 0) if limit else 0
        plan = _with_reason(plan, unreadable or why_not_in_client(query, info, qos, limit, skip))
    given = {name: value for name, value in options.items() if value is not None}
    shared = {_FIND_OPTIONS[name]: value for name, value in given.items() if name in _FIND_OPTIONS}
    if shared.get("sort"):
        shared["sort"] = _sorting(shared["sort"])
    if shared.get("limit", 0) < 0:  # pymongo's way to ask for one batch
        shared |= {"limit": -shared["limit"], "singleBatch": True}
    before = {"find": collection.name, "filter": query, **shared}
    original = yield from _examined(collection, before)
    if not plan.rewritten:
        return Explanation(plan, original, None)
    after = {**before, "filter": plan.filter}
    if plan.settled is not None or plan.rings is not None:
        # The client counts after it has settled, so the servers know of no limit.
        after = {key: value for key, value in after.items() if key not in ("limit", "skip")}
    if plan.rings is not None:
        after["filter"] = first_ring(plan.rings, info)
    elif plan.near is not None:
        after["filter"] = within_window(query, windows(plan.near)[0], Context(info, qos))
    if plan.hint:
        after["hint"] = plan.hint
    return Explanation(plan, original, (yield from _examined(collection, after)))


def _sorting(sort: Any) -> dict[str, Any]:
    """A sort as the command takes it, of any form that pymongo takes."""
    if isinstance(sort, Mapping):
        return dict(sort)
    return dict((one, 1) if isinstance(one, str) else one for one in sort)


def _with_reason(plan: Plan, why_not: str | None) -> Plan:
    """A plan that also says why the client takes no part in it, if it could not."""
    if why_not is None or plan.form == CLIENT or plan.settled is not None or plan.pruned is not None:
        return plan
    estimates = plan.estimates_ms and {
        form: ms for form, ms in plan.estimates_ms.items() if not form.startswith(CLIENT)
    }
    reasons = (*plan.reasons, f"not settled in the client: {why_not}")
    return replace(plan, reasons=reasons, estimates_ms=estimates)


def _explain_pipeline(
    collection: Any, query: Any, info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Explanation]:
    query = expand_pipeline(query, info)
    unchanged = unchanged_reason(options)
    pruned = None if unchanged else (yield from pruned_pipeline(collection, query, info, qos, options))
    before = _aggregating(collection, query)
    original = yield from _examined(collection, before)
    if not (unchanged or pruned):
        in_client = plan_in_client(
            collection, query, info, qos, options, consistent=wants_one_moment(collection)
        )
        if isinstance(in_client, PlannedCount):
            sent = yield from _examined_count(collection, in_client.plan, info)
            return Explanation(in_client.plan, original, sent)
        if in_client is not None:
            assert in_client.plan.rings is not None
            command = {"find": collection.name, "filter": first_ring(in_client.plan.rings, info)}
            command |= {"hint": in_client.plan.hint} if in_client.plan.hint else {}
            return Explanation(in_client.plan, original, (yield from _examined(collection, command)))
    in_memory = options.get("allowDiskUse") is False
    plan = pruned or rewrite_pipeline(query, info, qos=qos, in_memory=in_memory, unchanged=unchanged)
    if not plan.rewritten:
        return Explanation(plan, original, None)
    stages = plan.pipeline
    if plan.near is not None:
        stages = pipeline_within_window(query, windows(plan.near)[0], Context(info, qos))
    after = {**before, "pipeline": list(stages or [])}
    if plan.hint:
        after["hint"] = plan.hint
    return Explanation(plan, original, (yield from _examined(collection, after)))


def explain_count_steps(
    collection: Any, filter: Mapping[str, Any], info: CollectionInfo, qos: QoS, options: Mapping[str, Any]
) -> Steps[Explanation]:
    """Explain a count, of which `options` may have limit and skip. The server runs both ways."""
    cut = {name: options[name] for name in ("skip", "limit") if options.get(name)}
    filter = expand(filter, info)  # noqa: A001 - the argument's own name
    pruned = yield from pruned_plan(collection, filter, info, qos, options.get("session"))
    plan = pruned or _with_reason(
        plan_count(filter, info, qos=qos, **cut), why_not_in_client(filter, info, qos)
    )
    original = yield from _examined(collection, _counting(collection, filter, cut))
    if not plan.rewritten:
        return Explanation(plan, original, None)
    hint = {"hint": plan.hint} if plan.hint else {}
    if pruned is not None:
        command = {"find": collection.name, "filter": plan.filter, "projection": {"_id": 1}, **hint}
        return Explanation(plan, original, (yield from _examined(collection, command)))
    if plan.settled is None:
        assert plan.filter is not None
        sent = yield from _examined(collection, {**_counting(collection, plan.filter, cut), **hint})
        return Explanation(plan, original, sent)
    return Explanation(plan, original, (yield from _examined_count(collection, plan, info)))


def _examined_count(collection: Any, plan: Plan, info: CollectionInfo) -> Steps[Examined]:
    """What a count looks at that the client settles."""
    settled = plan.settled
    assert settled is not None
    commands = []
    if settled.counted is not None:
        commands.append(_counting(collection, settled.counted))
    if settled.scanned is not None:
        field = info.location if by_place(settled, collection) else info.gh
        commands.append(_aggregating(collection, listed_stages(settled.scanned, field)))
    parts, hint = [], {"hint": plan.hint} if plan.hint else {}
    for command in commands:
        parts.append((yield from _examined(collection, {**command, **hint})))
    return replace(Examined.total(parts), shards=max(part.shards for part in parts))


def _counting(
    collection: Any, filter: Mapping[str, Any], cut: Mapping[str, int] | None = None
) -> dict[str, Any]:
    match, *rest = count_stages(filter)
    return _aggregating(collection, [match, *({f"${name}": n} for name, n in (cut or {}).items()), *rest])


def _aggregating(collection: Any, stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"aggregate": collection.name, "pipeline": list(stages), "cursor": {}}


def _examined(collection: Any, command: dict[str, Any]) -> Steps[Examined]:
    # In a transaction servers explain nothing.
    database = collection.database
    explained = yield from in_own_session(
        database.client,
        lambda session: call(
            database.command, "explain", command, verbosity="executionStats", session=session
        ),
    )
    return examined(explained)
