"""Filters and pipelines to plans: pure, one rule a module, in the order of `RULES`.

`rewrite(filter, info)` and `rewrite_pipeline(pipeline, info)` ask no server; they say what to send and why.
A query that is not understood, or that does not gain, is returned as it came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.bound_geo_near import bound_geo_near
from spatialnosql.rewrite.bound_near import beside, bound_near
from spatialnosql.rewrite.cost import SERVER, predicted_shards
from spatialnosql.rewrite.fragments import all_of
from spatialnosql.rewrite.own_indexes import fields_behind_gh, fields_of, hint_for
from spatialnosql.rewrite.plan import ALL, Context, NearWindow, Notes, Plan, QoS, Wanted
from spatialnosql.rewrite.predicates import Conjunction, read
from spatialnosql.rewrite.replace_regions import replace_regions
from spatialnosql.rewrite.rewrite_branches import rewrite_branches
from spatialnosql.rewrite.sorted_by import known_order, wanted_of_pipeline

__all__ = [
    "PIPELINE_RULES",
    "RULES",
    "Context",
    "NearWindow",
    "Plan",
    "QoS",
    "Wanted",
    "rewrite",
    "rewrite_pipeline",
]

Rule: TypeAlias = Callable[[Conjunction, Context, Notes], Conjunction]


def _branches(conjunction: Conjunction, context: Context, notes: Notes) -> Conjunction:
    return rewrite_branches(conjunction, context, notes, rewrite_filter)


RULES: tuple[tuple[str, Rule], ...] = (
    ("bound_near", bound_near),
    ("rewrite_branches", _branches),
    ("replace_regions", replace_regions),
)
"""What is done to a filter, in this order: branches before regions, which make an ``$or`` of their own."""

PIPELINE_RULES = ("bound_geo_near", "rewrite_matches")
"""What is done to a pipeline: its first ``$geoNear``, or every ``$match`` that documents reach as they are stored."""

# Stages that hand on documents as they are stored, and that a $match may be moved before.
_TRANSPARENT = ("$match", "$sort")


def rewrite(
    filter: Mapping[str, Any],
    info: CollectionInfo,
    *,
    qos: QoS | None = None,
    limit: int = 0,
    skip: int = 0,
    wanted: Wanted = ALL,
    unchanged: str | None = None,
) -> Plan:
    """The plan for a filter of a find, count, update or delete.

    `limit` and `skip` are the find's, for near; 0 if it sorts, for then `wanted` says what it takes. `unchanged` is a
    reason the caller knows not to rewrite: a hint of the user's own, a collation, ...
    """
    context = Context(info, qos or QoS(), limit, skip, wanted=known_order(wanted, info))
    reason = unchanged or _why_not(context)
    if reason is not None:
        return Plan(filter, filter=filter, reasons=(reason,))
    notes = Notes()
    try:
        sent = rewrite_filter(filter, context, notes)
    except SpatialNoSQLError as error:
        return Plan(filter, filter=filter, reasons=(f"left to the server: {error}",))
    if not notes.rules:
        reasons = tuple(notes.reasons) or ("no condition on the location",)
        return Plan(filter, filter=filter, reasons=reasons, answered=notes.answered)
    return _plan(filter, notes, context, filter=sent, hint=_hint(filter, notes, info))


def rewrite_pipeline(
    pipeline: Sequence[Mapping[str, Any]],
    info: CollectionInfo,
    *,
    qos: QoS | None = None,
    in_memory: bool = False,
    unchanged: str | None = None,
) -> Plan:
    """The plan for an aggregation pipeline; `in_memory` says that servers may not sort on disk."""
    context = Context(info, qos or QoS())
    reason = unchanged or _why_not(context)
    if reason is not None:
        return Plan(pipeline, pipeline=pipeline, reasons=(reason,))
    notes = Notes()
    try:
        wanted = known_order(wanted_of_pipeline(pipeline, in_memory=in_memory), info)
        sent = _rewrite_stages(pipeline, replace(context, wanted=wanted), notes)
    except SpatialNoSQLError as error:
        return Plan(pipeline, pipeline=pipeline, reasons=(f"left to the server: {error}",))
    if not notes.rules:
        why = tuple(notes.reasons) or ("no condition on the location that an index could serve",)
        return Plan(pipeline, pipeline=pipeline, reasons=why)
    first = pipeline[0].get("$match") if len(pipeline) and "$match" in pipeline[0] else None
    hint = _hint(first, notes, info) if isinstance(first, Mapping) else None
    return _plan(pipeline, notes, context, pipeline=sent, hint=hint)


def rewrite_filter(filter: Mapping[str, Any], context: Context, notes: Notes) -> Mapping[str, Any]:
    """Apply the rules to one filter; the same object comes back if none applies."""
    conjunction = read(filter, context.info)
    before = len(notes.rules)
    for _, rule in RULES:
        conjunction = rule(conjunction, context, notes)
    if len(notes.rules) == before:
        return filter
    if conjunction.near is not None:
        # Only conditions were added, by a rule that knows: they are the last ones.
        added = conjunction.others[len(read(filter, context.info).others) :]
        return beside(filter, added) if added else filter
    return all_of([*conjunction.others, *(p.condition for p in conjunction.predicates)])


def _rewrite_stages(
    pipeline: Sequence[Mapping[str, Any]], context: Context, notes: Notes
) -> list[Mapping[str, Any]]:
    stages = list(pipeline)
    if stages and "$geoNear" in stages[0]:
        stages[0] = bound_geo_near(stages, context, notes)
        return stages
    for position, stage in enumerate(stages):
        if len(stage) != 1 or next(iter(stage)) not in _TRANSPARENT:
            break
        match = stage.get("$match")
        if isinstance(match, Mapping):
            sent = rewrite_filter(match, context, notes)
            if sent is not match:
                stages[position] = {"$match": sent}
    return stages


def _why_not(context: Context) -> str | None:
    if not context.qos.rewrite:
        return "rewriting is turned off"
    return context.info.why_not


def _plan(original: Any, notes: Notes, context: Context, **fields: Any) -> Plan:
    shards = {shard for covering in notes.covers for shard in predicted_shards(covering.outer, context.info)}
    estimates = None
    if notes.estimates:
        forms = [form for form in notes.estimates[0] if all(form in part for part in notes.estimates)]
        estimates = {form: sum(part[form] for part in notes.estimates) for form in forms}
    return Plan(
        original,
        rewritten=True,
        rules=tuple(notes.rules),
        reasons=tuple(notes.reasons),
        commands=1 if notes.near is None else 5,
        ranges=sum(len(c.interior) + len(c.boundary) for c in notes.covers),
        interior_ranges=sum(len(c.interior) for c in notes.covers),
        form=SERVER,
        estimates_ms=estimates,
        shards=tuple(sorted(shards)),
        near=notes.near,
        answered=notes.answered,
        **fields,
    )


def _hint(filter: Mapping[str, Any], notes: Notes, info: CollectionInfo) -> str | None:
    """The ``gh`` index, unless a near needs its own or another condition has or may have a better one."""
    if "bound_near" in notes.rules:
        return None
    conjunction = read(filter, info)
    others = tuple(conjunction.others)
    points = (
        sum(covering.outer.held(info.histogram) for covering in notes.covers) if info.histogram else math.inf
    )
    own = fields_of(others) & fields_behind_gh(info) or hint_for(others, points, info) is None
    if own or _has_text(filter):
        notes.reasons.append("no hint: another condition has an index of its own")
        return None
    return info.gh_index


def _has_text(value: Any) -> bool:
    """Whether there is a ``$text`` anywhere in a filter: the server refuses every hint beside it."""
    if isinstance(value, Mapping):
        return "$text" in value or any(_has_text(part) for part in value.values())
    return isinstance(value, list | tuple) and any(_has_text(part) for part in value)
