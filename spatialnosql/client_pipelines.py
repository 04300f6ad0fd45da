"""Pipelines that need no aggregation: a count, or the nearest few. They are done with counts and finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spatialnosql.counting import settled_count
from spatialnosql.found import Found
from spatialnosql.info import CollectionInfo
from spatialnosql.nearest import RingSource
from spatialnosql.one_moment import has_one_moment
from spatialnosql.projection import Widened
from spatialnosql.reading import Reader, can_settle_documents
from spatialnosql.rewrite import Context, Plan, QoS
from spatialnosql.rewrite.count_pipeline import CountPipeline, read_count_pipeline
from spatialnosql.rewrite.planning import plan_count
from spatialnosql.rewrite.ring_geo_near import RingGeoNear, ring_geo_near
from spatialnosql.steps import Steps

# Options of an aggregation that say nothing about its answer, and the type of those that could be wrong.
_OPTIONS: dict[str, type] = {
    "session": object,
    "comment": object,
    "maxTimeMS": int,
    "batchSize": int,
    "allowDiskUse": bool,
}


@dataclass(frozen=True)
class PlannedCount:
    """A pipeline that is a count, which the client settles."""

    plan: Plan
    counting: CountPipeline


def plan_in_client(
    collection: Any,
    pipeline: Any,
    info: CollectionInfo,
    qos: QoS,
    options: Mapping[str, Any],
    *,
    consistent: bool = False,
) -> PlannedCount | RingGeoNear | None:
    """How a pipeline is answered by counts and finds alone; None if it is to be sent."""
    if not all(name in _OPTIONS and isinstance(value, _OPTIONS[name]) for name, value in options.items()):
        return None
    if options.get("maxTimeMS", 0) < 0 or options.get("batchSize", 1) < 1:
        return None  # pymongo or the server has an error for it
    if collection.codec_options.document_class is not dict or not can_settle_documents(collection):
        return None
    near = ring_geo_near(pipeline, Context(info, qos))
    if near is not None:
        return None if consistent and not has_one_moment(options.get("session")) else near
    counting = read_count_pipeline(pipeline)
    if counting is None:
        return None
    plan = plan_count(counting.filter, info, qos=qos)
    return PlannedCount(plan, counting) if plan.settled is not None else None


def pipeline_in_client(
    collection: Any,
    pipeline: Any,
    info: CollectionInfo,
    qos: QoS,
    options: Mapping[str, Any],
    *,
    consistent: bool = False,
) -> Steps[Found | None]:
    """The answer of a pipeline by counts and finds alone; None if it is to be sent."""
    planned = plan_in_client(collection, pipeline, info, qos, options, consistent=consistent)
    if planned is None:
        return None
    given: dict[str, Any] = {name: options[name] for name in ("session", "comment") if name in options}
    limit_ms = options.get("maxTimeMS", qos.max_time_ms)
    if isinstance(planned, RingGeoNear):
        reader = Reader(collection, info, {**given, "max_time_ms": limit_ms}, Widened(None))
        found = _nearest(reader, planned, options.get("batchSize", 0))
        yield from found.fill()  # as an aggregation does: what is wrong with it shows here
        return found
    if limit_ms is not None:
        given["maxTimeMS"] = limit_ms
    if consistent:
        given["consistent"] = True
    total = yield from settled_count(collection, planned.plan, info, given)
    return Found(planned.counting.answer(total))


def _nearest(reader: Reader, near: RingGeoNear, batch_size: int) -> Found:
    assert near.plan.rings is not None
    source = RingSource(reader, near.plan.rings, near.fields)
    return Found(
        (), source, skip=near.skip, limit=near.limit, batch_size=batch_size, deadline=reader.deadline
    )
