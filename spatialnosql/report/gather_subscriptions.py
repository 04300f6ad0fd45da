"""Subscriptions for a report: how many, and the load of their partitions by a planner, or by a plan that was saved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pymongo.collection import Collection

from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.geometry import geojson_point
from spatialnosql.report.model import PartitionFacts, SubscriptionFacts
from spatialnosql.subscriptions.match_names import matched_collection, matches_collection
from spatialnosql.subscriptions.store import Subscriptions

if TYPE_CHECKING:
    from spatialnosql.subscriptions.objects import Objects
    from spatialnosql.subscriptions.partitioning.plan import Plan
    from spatialnosql.subscriptions.table import Table

Documents = Collection[dict[str, Any]]

MOST_OBJECTS = 20_000
MOST_SUBSCRIPTIONS = 200_000
"""Of more, the first so many are planned for: it is a picture, not the plan itself."""


@dataclass(frozen=True)
class Planned:
    """How the subscriptions are to be spread: by a planner over so many partitions, or by a plan in a file."""

    planner: str = "hybrid"
    partitions: int = 8
    plan: Path | None = None
    objects: Documents | None = None  # whose objects are sent; those that matched before, if not given
    text: str = "text"
    location: str = "loc"


def gather_subscriptions(collection: Documents, planned: Planned) -> SubscriptionFacts:
    """Count, and plan the partitions if there are objects to plan for."""
    subscriptions = Subscriptions(collection)
    count = subscriptions.count()
    if not count:
        raise UsageError(
            f"{collection.full_name} has no subscriptions; `spatialnosql subscribe add` and `load` store some"
        )
    owners = collection.aggregate(
        [{"$match": {"removed": {"$ne": True}}}, {"$group": {"_id": "$owner"}}, {"$count": "n"}]
    ).to_list()
    buckets = matches_collection(collection).aggregate(
        [{"$group": {"_id": None, "n": {"$sum": {"$size": "$matches"}}}}]
    )
    matches = next((int(row["n"]) for row in buckets), 0)
    partitions, note = _partitions(subscriptions, planned, count)
    return SubscriptionFacts(
        collection.full_name,
        count,
        int(owners[0]["n"]) if owners else 0,
        matches,
        matched_collection(collection).estimated_document_count(),
        partitions,
        note,
    )


def _partitions(
    subscriptions: Subscriptions, planned: Planned, count: int
) -> tuple[PartitionFacts | None, str | None]:
    try:
        from spatialnosql.subscriptions.index_keeper import read_table
        from spatialnosql.subscriptions.partitioning.planners import make_plan
        from spatialnosql.subscriptions.partitioning.sample import Sample
    except ModuleNotFoundError as error:
        return None, f"The load by partition needs {error.name}: pip install 'spatialnosql[matching]'."
    source = planned.objects if planned.objects is not None else matched_collection(subscriptions.collection)
    table = read_table(islice(subscriptions.list(), MOST_SUBSCRIPTIONS))
    objects = _objects(source, planned, subscriptions, table)
    if not len(objects):
        return None, (
            f"There are no objects in {source.full_name} to plan partitions for; match some, or name a collection of "
            "objects with --objects."
        )
    from spatialnosql.subscriptions.partitioning.plan import Plan

    if planned.plan is not None:
        plan = Plan.open(planned.plan)
    else:
        plan = make_plan(planned.planner, Sample.of(objects, table), planned.partitions)
    sample = f"{len(objects):,} objects of {source.full_name}"
    if planned.objects is None:
        sample += " (which matched before)"
    if count > MOST_SUBSCRIPTIONS:
        sample += f" and the first {MOST_SUBSCRIPTIONS:,} subscriptions"
    return partition_facts(plan, objects, table, sample), None


def partition_facts(plan: Plan, objects: Objects, table: Table, sample: str) -> PartitionFacts:
    """What a plan does with objects and subscriptions. Pure."""
    from spatialnosql.subscriptions.partitioning.load import report

    found = report(plan, objects, table)
    grid = plan.grid
    by_place = grid.cells > 1
    return PartitionFacts(
        plan.name,
        found.loads,
        found.objects,
        found.subscriptions,
        found.replication,
        found.spread,
        found.dropped,
        sample,
        (grid.west, grid.south, grid.east, grid.north, grid.columns, grid.rows) if by_place else None,
        plan.leaf_home[plan.leaf_of_cell] if by_place else None,
    )


def _objects(source: Documents, planned: Planned, subscriptions: Subscriptions, table: Table) -> Objects:
    import pyarrow as pa

    from spatialnosql.subscriptions.objects import Objects
    from spatialnosql.subscriptions.text_batches import TermReader

    texts: list[str] = []
    places: list[tuple[float, float]] = []
    wanted = {planned.text: 1, planned.location: 1}
    for document in source.find({}, wanted).limit(MOST_OBJECTS):
        text = document.get(planned.text)
        try:
            place = geojson_point(document.get(planned.location))
        except (GeometryError, KeyError, TypeError, ValueError):
            continue
        if isinstance(text, str):
            texts.append(text)
            places.append(place)
    lng, lat = np.array(places, dtype=np.float64).reshape(-1, 2).T
    offsets, terms = TermReader(subscriptions.rules, table.vocabulary).read(pa.array(texts, pa.string()))
    return Objects.of(lng, lat, 0, offsets, terms)
