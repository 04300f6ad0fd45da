"""A query as it came and as it is sent, side by side: shards asked, keys and documents examined, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spatialnosql.cursor import near_limit, unchanged_reason
from spatialnosql.examined import Examined, examined
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite import Context, Plan, QoS, rewrite, rewrite_pipeline
from spatialnosql.rewrite.bound_geo_near import pipeline_within_window
from spatialnosql.rewrite.bound_near import windows, within_window
from spatialnosql.steps import Steps, call

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
            "returned": "documents returned",
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
    unchanged = unchanged_reason(options)
    if isinstance(query, Mapping):
        plan = rewrite(
            query,
            info,
            qos=qos,
            limit=near_limit(options),
            skip=options.get("skip", 0),
            unchanged=unchanged,
        )
        shared = {_FIND_OPTIONS[name]: value for name, value in options.items() if name in _FIND_OPTIONS}
        if isinstance(shared.get("sort"), Sequence):
            shared["sort"] = dict(shared["sort"])
        before = {"find": collection.name, "filter": query, **shared}
        sent = plan.filter
        if plan.near is not None:
            sent = within_window(query, windows(plan.near)[0], Context(info, qos))
        after = {**before, "filter": sent}
    else:
        plan = rewrite_pipeline(query, info, qos=qos, unchanged=unchanged)
        before = {"aggregate": collection.name, "pipeline": list(query), "cursor": {}}
        stages = plan.pipeline
        if plan.near is not None:
            stages = pipeline_within_window(query, windows(plan.near)[0], Context(info, qos))
        after = {**before, "pipeline": list(stages or [])}
    if plan.hint:
        after["hint"] = plan.hint
    original = yield from _examined(collection, before)
    if not plan.rewritten:
        return Explanation(plan, original, None)
    return Explanation(plan, original, (yield from _examined(collection, after)))


def _examined(collection: Any, command: dict[str, Any]) -> Steps[Examined]:
    explained = yield from call(collection.database.command, "explain", command, verbosity="executionStats")
    return examined(explained)
