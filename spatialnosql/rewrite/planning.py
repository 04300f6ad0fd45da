"""Finds and counts to plans: which form is cheapest, and the plan for it.

`rewrite` knows one command for one query. Here the client may take part: it settles boundaries and sorts by distance.
Plans are remembered with the collection's info, so a query that comes again is not planned again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidDocument

from spatialnosql.cover import Cover
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.info import CollectionInfo
from spatialnosql.region import Region
from spatialnosql.rewrite import rewrite
from spatialnosql.rewrite.ask_outline import ask_outline
from spatialnosql.rewrite.cost import (
    CLIENT,
    IN_ORDER,
    ONE_SCAN,
    ORIGINAL,
    SERVER,
    Load,
    estimate,
    estimate_count,
    why_as_it_is,
)
from spatialnosql.rewrite.fragments import cover_of, encoded_as, snapshot
from spatialnosql.rewrite.plan import ALL, Context, Plan, QoS, Wanted
from spatialnosql.rewrite.predicates import Conjunction, is_near, read
from spatialnosql.rewrite.ring_near import ring_near, why_not_rings
from spatialnosql.rewrite.settle_count import settle_count
from spatialnosql.rewrite.settle_find import settle_find
from spatialnosql.rewrite.settled import region_of, why_not_settled
from spatialnosql.rewrite.sorted_by import known_order, why_not_sorted

CLIENT_RULES = ("ring_near", "ring_geo_near", "ask_outline", "settle_find", "settle_count", "count_pipeline")
"""What is done where the client takes part, one module each; all else is `rewrite`'s."""

_MOST_REMEMBERED = 1024
_LONG = 2_000  # bytes of a filter that is not copied without need
# Any date can be decoded.
_AS_IT_CAME: CodecOptions[Mapping[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)


def plan_find(
    filter: Mapping[str, Any],
    info: CollectionInfo,
    *,
    qos: QoS | None = None,
    limit: int = 0,
    skip: int = 0,
    is_sorted: bool = False,
    wanted: Wanted = ALL,
    unchanged: str | None = None,
    readable: bool = True,
) -> Plan:
    """The plan of a find.

    `limit` and `skip` are the find's; 0 if it `is_sorted`, for then `wanted` says what it takes. `readable` says that
    the client can read the documents' ``gh`` and place, whatever the projection.
    """
    qos, wanted = qos or QoS(), known_order(wanted, info)

    def make(filter: Mapping[str, Any], again: bool) -> Plan:
        context = Context(info, qos, limit, skip, again, wanted)
        plan = _client_find(filter, context) if readable else None
        if plan is not None and plan.rings is not None and is_sorted:
            plan = None  # not by distance, then
        return plan or rewrite(filter, info, qos=qos, limit=limit, skip=skip, wanted=wanted)

    if unchanged is not None or not _may_rewrite(info, qos):
        return rewrite(filter, info, qos=qos, limit=limit, skip=skip, unchanged=unchanged)
    if is_near(filter, info):
        # Rings are as cheap to make as to remember, and go by what was learnt last. They hold a near by its numbers.
        return make(filter, False) if len(filter) == 1 else _given_back(make(snapshot(filter), False), filter)
    return _remembered(info, filter, ("find", qos, limit, skip, is_sorted, wanted, readable), make)


def plan_count(
    filter: Mapping[str, Any], info: CollectionInfo, *, qos: QoS | None = None, limit: int = 0, skip: int = 0
) -> Plan:
    """The plan of a count; with a `limit` servers need not find more than that and `skip` together."""
    qos, wanted = qos or QoS(), Wanted(limit + skip if limit else 0)

    def make(filter: Mapping[str, Any], again: bool) -> Plan:
        context = Context(info, qos, again=again, wanted=wanted)
        return _client_count(filter, context) or rewrite(filter, info, qos=qos, wanted=wanted)

    if not _may_rewrite(info, qos):
        return rewrite(filter, info, qos=qos)
    return _remembered(info, filter, ("count", qos, wanted), make)


def why_not_in_client(
    filter: Mapping[str, Any], info: CollectionInfo, qos: QoS, limit: int = 0, skip: int = 0
) -> str | None:
    """Why the client could take no part in a query, whatever it would save; None if it could, or nothing is spatial."""
    if not _may_rewrite(info, qos):
        return None
    try:
        conjunction = read(filter, info)
    except SpatialNoSQLError:
        return None  # `rewrite` meets the same, and says why
    if conjunction.near is not None:
        return why_not_rings(conjunction, Context(info, qos, limit, skip))
    return why_not_settled(conjunction, info, qos) if conjunction.predicates else None


def _may_rewrite(info: CollectionInfo, qos: QoS) -> bool:
    return qos.rewrite and info.why_not is None


def _client_find(filter: Mapping[str, Any], context: Context) -> Plan | None:
    """A plan in which the client takes part, or to leave all as it is; None to let `rewrite` decide."""
    costs = context.info.costs
    # A false candidate is read, sent, decoded, settled and dropped: a range is cheap beside a few of those.
    false_ms = costs.key_ms + costs.fetch_ms + costs.return_ms + costs.settle_ms
    found = _covered(filter, context, costs.range_ms / false_ms)
    if found is None or isinstance(found, Plan):
        return found
    conjunction, region, covering, load = found
    info, others, wanted = context.info, tuple(conjunction.others), context.wanted
    if context.qos.form == "cheapest" and why_not_sorted(wanted, others, load.outer / load.asked, info):
        return None  # `rewrite` says it
    estimates = estimate(
        covering, region, info, limit=context.enough, load=load, others=others, wanted=wanted
    )
    assert estimates is not None
    form = _chosen(estimates, context.qos)
    if form == CLIENT:
        return settle_find(filter, conjunction, covering, load, context, estimates)
    return _as_it_is(filter, found, estimates, info) if form in (ORIGINAL, IN_ORDER) else None


def _client_count(filter: Mapping[str, Any], context: Context) -> Plan | None:
    costs = context.info.costs
    found = _covered(filter, context, costs.range_ms / (costs.key_ms + costs.settle_ms / 2), counted=True)
    if found is None or isinstance(found, Plan):
        return None if found is None or found.rings else found
    conjunction, region, covering, load = found
    others = tuple(conjunction.others)
    estimates = estimate_count(covering, region, context.info, load=load, others=others, limit=context.enough)
    assert estimates is not None
    form = _chosen(estimates, context.qos)
    if form in (CLIENT, ONE_SCAN):
        return settle_count(filter, conjunction, covering, load, context, estimates)
    return _as_it_is(filter, found, estimates, context.info) if form == ORIGINAL else None


def _covered(
    filter: Mapping[str, Any], context: Context, range_cost: float, *, counted: bool = False
) -> Plan | tuple[Conjunction, Region, Cover, Load] | None:
    """A filter that the client could settle, covered; or a plan at once; or None: it is no such filter."""
    info, qos = context.info, context.qos
    if qos.form == "cheapest" and qos.precision == "cost" and not context.again:
        hasty = ask_outline(filter, context, counted=counted)
        if hasty is not None:
            return hasty
    try:
        conjunction = read(filter, info)
        if conjunction.near is not None:
            return ring_near(filter, conjunction, context)
        if not conjunction.predicates or why_not_settled(conjunction, info, qos) is not None:
            return None
        region = region_of(conjunction)
        covering = cover_of(region, context, range_cost)
        assert info.histogram is not None  # there are statistics: `why_not_settled` has seen to it
        return conjunction, region, covering, Load.of(covering, info, info.histogram)
    except SpatialNoSQLError:
        return None  # `rewrite` meets the same, and says why


def _chosen(estimates: dict[str, float], qos: QoS) -> str:
    return min(estimates, key=lambda form: estimates[form]) if qos.form == "cheapest" else qos.form


def _as_it_is(
    filter: Mapping[str, Any],
    found: tuple[Conjunction, Region, Cover, Load],
    estimates: dict[str, float],
    info: CollectionInfo,
) -> Plan:
    conjunction, _, covering, load = found
    reason = why_as_it_is(estimates, min(estimates[SERVER], estimates[CLIENT]))
    return Plan(
        filter,
        filter=filter,
        reasons=(reason,),
        estimates_ms=estimates,
        answered=load.answered(covering, tuple(conjunction.others), info),
    )


def _remembered(
    info: CollectionInfo,
    filter: Mapping[str, Any],
    about: Hashable,
    make: Callable[[Mapping[str, Any], bool], Plan],
) -> Plan:
    """The plan for a query that came before, or a new one; experience that contradicts them makes all of them void.

    What is remembered holds nothing of the filter itself, but a copy: the caller may change it afterwards, even while
    its cursor is read.
    """
    try:
        encoded = bson.encode(filter)
    except (InvalidDocument, OverflowError, TypeError, ValueError):
        return make(filter, False)  # pymongo will refuse it too, unless the collection's codec knows better
    key = (hashlib.blake2b(encoded, digest_size=16).digest(), about, info.experience.version)
    plan: Plan | None = info.plans.get(key)
    if plan is None or plan.hasty:
        again = plan is not None
        plan = make(filter, again) if len(encoded) > _LONG else None
        if plan is not None and plan.settled is not None and (plan.hasty or not plan.settled.others):
            # A large shape. Of this plan only the tests are the caller's, and mostly they are not even sent.
            plan = replace(plan, settled=replace(plan.settled, tests=encoded_as(encoded)))
        elif plan is None or plan.rewritten:
            copy = bson.decode(encoded, codec_options=_AS_IT_CAME)
            if bson.encode(copy) != encoded:
                return make(filter, again)  # something that looks like a DBRef and is none
            plan = make(copy, again)
        if plan.rings is not None or _guessed(plan, info):
            # A near within an ``$and``: rings go by what was learnt last. So does what is learnt by the answer.
            return _given_back(plan, filter)
        # Of a hasty one only that it was made: it is not made again.
        info.plans[key] = replace(plan, original={}, filter=None, settled=None) if plan.hasty else plan
        while len(info.plans) > _MOST_REMEMBERED:
            with contextlib.suppress(KeyError):  # another thread was faster
                info.plans.popitem(last=False)
    return _given_back(plan, filter)


def _guessed(plan: Plan, info: CollectionInfo) -> bool:
    """Whether a plan would be another one if it were known what share of the points meets its other conditions."""
    learner = plan.settled or plan.answered
    if learner is None or not learner.names or info.experience.share(learner.names[:1]) is not None:
        return False
    return plan.answered is not None or plan.hint is None


def _given_back(plan: Plan, filter: Mapping[str, Any]) -> Plan:
    """A plan made of a copy of the caller's filter, with the filter itself where it is to be sent as it came."""
    is_copy = plan.filter is plan.original
    return replace(plan, original=filter, filter=filter if is_copy else plan.filter)
