"""Rule for finds: ranges only are sent, and the client drops the documents that lie in them but not in the shape.

Before: ``find({loc: {$geoWithin: SHAPE}})``
After: ``find({$or: [{gh: RANGES}...]})``, whose documents are settled as they arrive.

The servers test no polygon at all, but for the few documents too near to a border to say.
"""

from __future__ import annotations

from spatialnosql.cover import Cover
from spatialnosql.rewrite.cost import CLIENT, Load
from spatialnosql.rewrite.plan import Context, Filter, Plan, Settled
from spatialnosql.rewrite.predicates import Conjunction
from spatialnosql.rewrite.settled import region_of, within


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
    settled = Settled(region_of(conjunction), covering, tuple(conjunction.others), filter, load.outer)
    sent = within(covering.outer, settled, info.gh)
    if sent is None:
        return None
    return Plan(
        filter,
        filter=sent,
        hint=info.gh_index,
        rewritten=True,
        rules=("settle_find",),
        reasons=(
            f"{len(covering.outer)} ranges with about {load.outer:.0f} documents, of which about "
            f"{load.boundary:.0f} are settled in the client",
        ),
        commands=2,
        ranges=len(covering.outer),
        interior_ranges=len(covering.interior),
        form=CLIENT,
        estimates_ms=estimates,
        shards=load.held_by,
        settled=settled,
    )
