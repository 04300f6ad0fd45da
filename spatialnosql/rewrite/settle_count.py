"""Rule for counts: interior ranges are counted from the index, and the boundary is settled in the client.

Before: ``count({loc: {$geoWithin: SHAPE}})``
After: ``count({gh: INTERIOR RANGES})``, the keys of ``{gh: BOUNDARY RANGES}``, and, for the few keys too near a border
to say, ``count({gh: {$in: [...]}, loc: {$geoWithin: SHAPE}})``

Without other conditions the index alone is read; no document is fetched and no polygon tested but for the undecided.
A large interior is counted in parts, side by side. Where it holds few points all keys come in one scan: a second
command would cost more than they do.
"""

from __future__ import annotations

from dataclasses import replace

from spatialnosql.cover import NOTHING, Cover
from spatialnosql.rewrite.cost import CLIENT, ONE_SCAN, Load
from spatialnosql.rewrite.own_indexes import hint_for, names_of
from spatialnosql.rewrite.plan import Context, Filter, Plan, Settled
from spatialnosql.rewrite.predicates import Conjunction
from spatialnosql.rewrite.settled import region_of, side_by_side, within

MOST_KEYS = 2_000_000  # more boundary keys than this are not brought to the client
_MOST_PARTS = 4


def settle_count(
    filter: Filter,
    conjunction: Conjunction,
    covering: Cover,
    load: Load,
    context: Context,
    estimates: dict[str, float],
) -> Plan | None:
    """The plan; None if there is nothing to send, or too much to bring here."""
    info = context.info
    if not len(covering.outer) or load.boundary > MOST_KEYS:
        return None
    one_scan = estimates[ONE_SCAN] < estimates[CLIENT] and load.outer <= MOST_KEYS
    others = tuple(conjunction.others)
    settled = Settled(
        region_of(conjunction), covering, others, filter, names=names_of(others), held=load.outer
    )
    interior = NOTHING if one_scan else covering.interior
    key_ms = info.costs.key_ms + (info.costs.fetch_ms if others else 0.0)
    parts = side_by_side(
        interior, settled, context, most=_MOST_PARTS, work_ms=load.interior * key_ms / load.asked
    )
    if one_scan:
        how = f"all of about {load.outer:.0f} keys of {len(covering.outer)} ranges settled in the client"
    else:
        at_once = f" in {len(parts)} commands" if len(parts) > 1 else ""
        how = (
            f"counted from {len(covering.interior)} interior ranges{at_once}; about {load.boundary:.0f} keys of "
            f"{len(covering.boundary)} boundary ranges settled in the client"
        )
    return Plan(
        filter,
        filter=filter,
        hint=hint_for(others, load.outer, info),
        rewritten=True,
        rules=("settle_count",),
        reasons=(how,),
        commands=1 + (1 if one_scan else len(parts) + bool(len(covering.boundary))),
        ranges=len(covering.outer) if one_scan else len(covering.interior) + len(covering.boundary),
        interior_ranges=len(covering.interior),
        form=CLIENT,
        estimates_ms=estimates,
        shards=load.held_by,
        settled=replace(
            settled,
            expected=load.outer if one_scan else load.boundary,
            counted=within(interior, settled, info.gh),
            parts=parts,
            scanned=within(covering.outer if one_scan else covering.boundary, settled, info.gh),
            one_scan=one_scan,
        ),
    )
