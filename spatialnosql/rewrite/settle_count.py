"""Rule for counts: interior ranges are counted from the index, and the boundary is settled in the client.

Before: ``count({loc: {$geoWithin: SHAPE}})``
After: ``count({gh: INTERIOR RANGES})``, the keys of ``{gh: BOUNDARY RANGES}``, and, for the few keys too near a border
to say, ``count({gh: {$in: [...]}, loc: {$geoWithin: SHAPE}})``

Sound because ``gh`` is true and `settle` is certain: the server itself decides whatever is not. Without other
conditions the index alone is read; no document is fetched and no polygon tested but for the undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spatialnosql.cover import Cover
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.info import CollectionInfo
from spatialnosql.region import IntersectionRegion, Region
from spatialnosql.rewrite.cost import FETCH_MS, KEY_MS, RANGE_MS, SHARD_MS, SPILL, TEST_MS, predicted_shards
from spatialnosql.rewrite.fragments import all_of, any_of, conditions, cover_of
from spatialnosql.rewrite.plan import Context, Cost, Plan, QoS
from spatialnosql.rewrite.predicates import read

SETTLE_MS = 0.0006  # to send, decode and settle one key
COMMAND_MS = 1.0  # a command costs this much before it does anything
MOST_KEYS = 2_000_000  # more boundary keys than this are not brought to the client


@dataclass(frozen=True)
class CountPlan:
    """What a count is made of: two filters to send, the region to settle by, the condition for what is undecided."""

    plan: Plan
    region: Region
    interior: dict[str, Any] | None  # None: there is no interior
    boundary: dict[str, Any] | None
    tests: dict[str, Any]  # the original conditions on the location, and all others
    hint: str


def settle_count(filter: Mapping[str, Any], info: CollectionInfo, qos: QoS) -> CountPlan | None:
    """The plan to settle a count in the client; None where another form is cheaper or this one does not apply."""
    if info.why_not is not None or not qos.rewrite or qos.precision != "cost" or info.unhashed:
        return None
    if info.gh_index is None or info.histogram is None:
        return None
    context = Context(info, qos)
    try:
        conjunction = read(filter, info)
        if not conjunction.predicates or conjunction.near is not None:
            return None
        regions = tuple(predicate.region for predicate in conjunction.predicates)
        region = regions[0] if len(regions) == 1 else IntersectionRegion(regions)
        covering = cover_of(region, context)
    except SpatialNoSQLError:
        return None
    others = conjunction.others
    if any(key in _DECISIVE or key.startswith("$") for other in others for key in other):
        return None
    leading = {index.keys[0][0] for index in info.indexes} - {info.gh, info.location}
    if leading & {key for other in others for key in other}:
        return None
    cost, keys = _cost(covering, info, fetched=bool(others))
    if cost.rewritten_ms >= cost.original_ms or keys > MOST_KEYS:
        return None
    interior, boundary = conditions(covering.interior, info.gh), conditions(covering.boundary, info.gh)
    if not interior and not boundary:
        return None  # nothing to send, and so nobody to refuse what may be wrong in the other conditions
    plan = Plan(
        filter,
        filter=filter,
        hint=info.gh_index,
        rewritten=True,
        rules=("settle_count",),
        reasons=(
            f"counted from {len(interior)} interior ranges; about {keys:.0f} keys of {len(boundary)} boundary ranges "
            "settled in the client",
        ),
        commands=bool(interior) + bool(boundary) + 1,
        ranges=len(interior) + len(boundary),
        interior_ranges=len(interior),
        cost=cost,
        shards=predicted_shards(covering, info),
    )
    return CountPlan(
        plan,
        region,
        all_of([any_of(interior, info.gh), *others]) if interior else None,
        all_of([any_of(boundary, info.gh), *others]) if boundary else None,
        all_of([*(predicate.condition for predicate in conjunction.predicates), *others]),
        info.gh_index,
    )


_DECISIVE = ("_id",)  # conditions that find their documents better than any place does


def _cost(covering: Cover, info: CollectionInfo, *, fetched: bool) -> tuple[Cost, float]:
    """What the original and the settled count cost, and the keys that would come to the client."""
    histogram = info.histogram
    assert histogram is not None
    interior = float(histogram.points_in(covering.interior.lo, covering.interior.hi).sum())
    boundary = float(histogram.points_in(covering.boundary.lo, covering.boundary.hi).sum())
    shards = len({part.shard for part in info.shards}) or 1
    asked = len(predicted_shards(covering, info)) or 1
    original = shards * SHARD_MS + (interior + boundary / 2) * SPILL * (KEY_MS + FETCH_MS + TEST_MS)
    commands = bool(len(covering.interior)) + bool(len(covering.boundary))
    ranges = len(covering.interior) + len(covering.boundary)
    key = KEY_MS + (FETCH_MS if fetched else 0.0)
    settled = (
        (commands - 1) * COMMAND_MS
        + asked * (SHARD_MS + ranges * RANGE_MS)
        + interior * key
        + boundary * (key + SETTLE_MS)
    )
    return Cost(original, settled), boundary
