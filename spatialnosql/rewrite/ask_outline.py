"""Rule for shapes that were never asked for: ask for everything in the outline, and read the shape meanwhile.

Before: ``find({loc: {$geoWithin: SHAPE}})``
After: ``find({$or: [{gh: RANGES OF THE OUTLINE}...]})``, whose documents are settled as they arrive; counts likewise.

To read and cover a shape takes the client milliseconds, in which the servers have nothing to do. An outline is made in
a tenth of one, and holds half as much again as the shape. So this is for shapes of which the points outside cost less
than a cover; where even that would not pay, the query goes as it is. A shape that comes again is covered.

Sound because the outline of a valid shape holds all of it. A shape that proves not to be valid, or that only the server
may judge, is sent as it is after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spatialnosql.cover import NOTHING, Cover, Ranges
from spatialnosql.info import CollectionInfo
from spatialnosql.outline import outline_of
from spatialnosql.region import Region
from spatialnosql.rewrite.cost import CLIENT, ORIGINAL, SPILL, predicted_shards
from spatialnosql.rewrite.own_indexes import have_index, hint_for, names_of, own_index_ms
from spatialnosql.rewrite.plan import Answered, Context, Filter, Plan, Settled, UnreadShape
from spatialnosql.rewrite.predicates import Conjunction, read
from spatialnosql.rewrite.settled import region_of, why_not_settled, within
from spatialnosql.rewrite.sorted_by import why_not_sorted

OUTLINE, COVER = "outline", "cover"
_CELLS = 512
# What a shape takes to read was measured with nothing else to do: between queries it takes some times that.
_READ = 3.0
_RANGES, _BORDER = 20, 0.25  # of an ordinary cover: its ranges, and the share of points at its border
_WITHIN = ("$geoWithin", "$within", "$geoIntersects")


def ask_outline(filter: Filter, context: Context, *, counted: bool = False) -> Plan | None:
    """The plan for a filter with one GeoJSON area at its top; None if it is no such, or the shape is worth a cover."""
    info = context.info
    polygons = _polygons(filter.get(info.location))
    others = tuple({key: value} for key, value in filter.items() if key != info.location)
    if polygons is None or why_not_settled(Conjunction(others=list(others)), info, context.qos) is not None:
        return None
    outline = outline_of(polygons, _CELLS)
    if outline is None or info.histogram is None:
        return None
    kind = {"counted": counted, "fetched": bool(others)}
    ranges, held = outline.ranges.bridged(info.histogram, info.costs.range_ms / _candidate_ms(info, **kind))
    if len(ranges) > (context.qos.max_ranges or len(ranges)):
        return None
    covering = Cover(NOTHING, ranges, len(ranges))
    held *= info.experience.factor(covering)
    inside = held * outline.filled
    if why_not_sorted(context.wanted, others, held / (len(predicted_shards(ranges, info)) or 1), info):
        return None
    wanted = min(inside, float(context.enough or inside))
    estimates = _estimates(ranges, held, wanted, outline.vertices, info, **kind)
    test_ms = info.costs.test_ms + outline.vertices * info.costs.vertex_ms
    estimates[ORIGINAL] = min(estimates[ORIGINAL], own_index_ms(others, info, test_ms))
    form = min(estimates, key=lambda form: estimates[form])
    if form == COVER:
        return None
    if form == ORIGINAL:
        reason = f"about {inside:.0f} points: sooner asked than covered, unless it comes again"
        taught = not others or have_index(others, info)
        answered = Answered(covering, 0.0, held, names_of(others)) if taught else None
        return Plan(
            filter, filter=filter, reasons=(reason,), estimates_ms=estimates, answered=answered, hasty=True
        )
    return _plan(filter, covering, held, others, estimates, context, counted=counted)


def _plan(
    filter: Filter,
    covering: Cover,
    held: float,
    others: tuple[dict[str, Any], ...],
    estimates: dict[str, float],
    context: Context,
    *,
    counted: bool,
) -> Plan:
    info, ranges = context.info, covering.boundary

    def region() -> Region:
        return region_of(read({info.location: filter[info.location]}, info))

    settled = Settled(
        UnreadShape(region), covering, others, filter, held, one_scan=counted, names=names_of(others)
    )
    sent = within(ranges, settled, info.gh)
    what = "keys" if counted else "documents"
    return Plan(
        filter,
        filter=filter if counted else sent,
        hint=hint_for(others, held, info),
        rewritten=True,
        rules=("ask_outline",),
        reasons=(
            f"all of about {held:.0f} {what} in {len(ranges)} ranges of the outline settled in the client, which "
            "reads the shape meanwhile",
        ),
        commands=2,
        ranges=len(ranges),
        form=CLIENT,
        estimates_ms=estimates,
        shards=predicted_shards(ranges, info),
        settled=replace(settled, scanned=sent) if counted else settled,
        hasty=True,
    )


def _candidate_ms(info: CollectionInfo, *, counted: bool, fetched: bool) -> float:
    """What a candidate costs until it is settled: a key of a count, or a document."""
    costs = info.costs
    if counted:
        return costs.key_ms + costs.settle_ms + (costs.fetch_ms if fetched else 0.0)
    return costs.key_ms + costs.fetch_ms + costs.return_ms + costs.settle_ms


def _estimates(
    ranges: Ranges,
    held: float,
    wanted: float,
    vertices: int,
    info: CollectionInfo,
    *,
    counted: bool,
    fetched: bool,
) -> dict[str, float]:
    """The milliseconds until the answer is there, of all who work one after the other.

    Shards work at the same time; so of what each of them does for itself, reading the shape, one counts.
    """
    costs = info.costs
    asked = costs.command_ms + costs.shard_ms
    tested = costs.key_ms + costs.fetch_ms + costs.test_ms + vertices * costs.vertex_ms
    candidate = _candidate_ms(info, counted=counted, fetched=fetched)
    # Of a cover the interior is counted by the servers, with a command of its own.
    covered = candidate - (1 - _BORDER) * costs.settle_ms if counted else candidate
    return {
        ORIGINAL: asked
        + costs.shape_ms
        + vertices * costs.shape_vertex_ms
        + wanted * (SPILL * tested + (0.0 if counted else costs.return_ms)),
        OUTLINE: asked + len(ranges) * costs.range_ms + held * candidate,
        COVER: asked * (2 if counted else 1)
        + _READ * (costs.read_ms + vertices * costs.read_vertex_ms)
        + _RANGES * costs.range_ms
        + wanted * covered,
    }


def _polygons(condition: Any) -> Any:
    """What should be the polygons of a polygon or multipolygon; None if the condition is anything else."""
    if not isinstance(condition, Mapping) or len(condition) != 1 or next(iter(condition)) not in _WITHIN:
        return None
    operand = next(iter(condition.values()))
    geometry = operand.get("$geometry") if isinstance(operand, Mapping) else None
    if not isinstance(geometry, Mapping) or "crs" in geometry:
        return None
    coordinates = geometry.get("coordinates")
    return {"Polygon": [coordinates], "MultiPolygon": coordinates}.get(str(geometry.get("type")))
