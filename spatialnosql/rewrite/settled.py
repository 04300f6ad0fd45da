"""Shapes whose boundary the client settles: what finds and counts have in common.

Sound because ``gh`` is true and `settle` is certain: a document in an interior range lies in the shape, one in no range
lies outside. Of one in a boundary range the 12 characters of ``gh`` tell, and the server is asked about the few that
lie too near to the border.
"""

from __future__ import annotations

from typing import Any

from spatialnosql.cover import Ranges
from spatialnosql.info import CollectionInfo
from spatialnosql.region import IntersectionRegion, Region
from spatialnosql.rewrite.fragments import all_of, any_of, conditions
from spatialnosql.rewrite.own_indexes import fields_behind_gh, why_not_by_ranges
from spatialnosql.rewrite.plan import Context, Filter, QoS, Settled
from spatialnosql.rewrite.predicates import Conjunction

_PART = 6.0  # times what a command costs: no part is worth one that takes a shard less
_DECISIVE = ("_id",)  # conditions that find their documents better than any place does


def why_not_settled(conjunction: Conjunction, info: CollectionInfo, qos: QoS) -> str | None:
    """Why a conjunction cannot be settled in the client; None if it can."""
    if qos.precision != "cost":
        return "the paper's cover was asked for"
    if info.unhashed:
        return "documents without gh may be anywhere"
    if info.gh_index is None or "." in info.gh:
        return "there is no index to read gh from"
    if info.histogram is None:
        return "there are no statistics"
    keys = {str(key) for other in conjunction.others for key in other}
    if any(key in _DECISIVE or key.startswith("$") for key in keys):
        return "other conditions may find their documents better than the place does"
    if keys and keys & fields_behind_gh(info) and qos.form != "client":
        return "another condition has an index of its own together with gh"
    return why_not_by_ranges(tuple(conjunction.others), info, qos)


def region_of(conjunction: Conjunction) -> Region:
    """Where a document must lie to meet all conditions on the location."""
    regions = tuple(predicate.region for predicate in conjunction.predicates)
    return regions[0] if len(regions) == 1 else IntersectionRegion(regions)


def within(ranges: Ranges, settled: Settled, gh: str) -> dict[str, Any] | None:
    """The condition to send for some ranges of a cover, beside the other conditions; None if there are no ranges."""
    parts = conditions(ranges, gh)
    return all_of([any_of(parts, gh), *settled.others]) if parts else None


def side_by_side(
    ranges: Ranges, settled: Settled, context: Context, *, most: int, work_ms: float
) -> tuple[Filter, ...]:
    """The condition of `within` in at most so many parts: asked at once they take less time, though not less work.

    `work_ms` is what all of it costs a shard. A server scans an index with one thread a command.
    """
    info, costs = context.info, context.info.costs
    parts = min(most, int(work_ms / (_PART * (costs.command_ms + costs.shard_ms))))
    if context.qos.prefer != "latency" or info.histogram is None or parts < 2:
        pieces = [ranges]
    else:
        pieces = ranges.parted(info.histogram, parts)
    return tuple([part for piece in pieces if (part := within(piece, settled, info.gh)) is not None])
