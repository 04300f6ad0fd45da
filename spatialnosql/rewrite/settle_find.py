"""Rule for finds: ranges only are sent, and the client drops the documents that lie in them but not in the shape.

Before: ``find({loc: {$geoWithin: SHAPE}})``
After: ``find({$or: [{gh: RANGES}...]})``, whose documents are settled as they arrive.

The servers test no polygon at all, but for the few documents too near to a border to say.
"""

from __future__ import annotations

from dataclasses import replace

from spatialnosql.cover import Cover
from spatialnosql.rewrite.cost import CLIENT, Load
from spatialnosql.rewrite.own_indexes import hint_for, names_of
from spatialnosql.rewrite.plan import Context, Filter, Plan, Settled
from spatialnosql.rewrite.predicates import Conjunction
from spatialnosql.rewrite.settled import region_of, side_by_side, within

_MOST_PARTS = 2  # the client decodes them one after the other


def settle_find(
    filter: Filter,
    conjunction: Conjunction,
    covering: Cover,
    load: Load,
    context: Context,
    estimates: dict[str, float],
) -> Plan | None:
    """The plan; None if there is nothing to send, and so nobody to refuse what may be wrong in other conditions."""
    info = context.info
    others = tuple(conjunction.others)
    settled = Settled(region_of(conjunction), covering, others, filter, load.outer, names=names_of(others))
    sent = within(covering.outer, settled, info.gh)
    if sent is None:
        return None
    costs = info.costs
    # What is read until there are enough is not read ahead.
    work_ms = 0.0 if context.limit else load.outer * (costs.key_ms + costs.fetch_ms + costs.return_ms)
    parts = side_by_side(covering.outer, settled, context, most=_MOST_PARTS, work_ms=work_ms / load.asked)
    return Plan(
        filter,
        filter=sent,
        hint=hint_for(others, load.outer, info),
        rewritten=True,
        rules=("settle_find",),
        reasons=(
            f"{len(covering.outer)} ranges with about {load.outer:.0f} documents, of which about "
            f"{load.boundary:.0f} are settled in the client"
            + (f", in {len(parts)} commands" if len(parts) > 1 else ""),
        ),
        commands=1 + len(parts),
        ranges=len(covering.outer),
        interior_ranges=len(covering.interior),
        form=CLIENT,
        estimates_ms=estimates,
        shards=load.held_by,
        settled=replace(settled, parts=parts),
    )
