"""What a query makes the servers look at, from explain("executionStats"), summed over the shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.collection import Collection


@dataclass(frozen=True)
class Examined:
    """Index keys and documents examined, and shards asked, by a number of queries together."""

    keys: int = 0
    docs: int = 0
    shards: int = 0
    queries: int = 1
    returned: int = field(default=0, compare=False)
    ms: int = field(default=0, compare=False)  # by the server's clock, the slowest shard's

    @staticmethod
    def total(parts: Iterable[Examined]) -> Examined:
        """All of them together."""
        listed = list(parts)
        return Examined(
            sum(part.keys for part in listed),
            sum(part.docs for part in listed),
            sum(part.shards for part in listed),
            sum(part.queries for part in listed),
            sum(part.returned for part in listed),
            sum(part.ms for part in listed),
        )


def examine_find(collection: Collection[Any], filter: Mapping[str, Any], **options: Any) -> Examined:
    """For a find; further options (hint, projection, limit, ...) as the command takes them."""
    return _explained(collection, {"find": collection.name, "filter": filter, **options})


def examine_count(collection: Collection[Any], filter: Mapping[str, Any], **options: Any) -> Examined:
    """For what ``count_documents`` sends: an aggregation."""
    return examine_aggregate(collection, count_stages(filter), **options)


def count_stages(filter: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pipeline that ``count_documents`` sends."""
    return [{"$match": filter}, {"$group": {"_id": 1, "n": {"$sum": 1}}}]


def examine_aggregate(
    collection: Collection[Any], pipeline: Sequence[Mapping[str, Any]], **options: Any
) -> Examined:
    """For an aggregation."""
    return _explained(
        collection, {"aggregate": collection.name, "pipeline": list(pipeline), "cursor": {}, **options}
    )


def _explained(collection: Collection[Any], command: dict[str, Any]) -> Examined:
    return examined(collection.database.command("explain", command, verbosity="executionStats"))


def examined(explained: Mapping[str, Any]) -> Examined:
    """Read the sums out of an explain document of a find or an aggregation, sharded or not."""
    if "shards" in explained:  # an aggregation through mongos: one plan a shard
        parts = [_of_plan(plan) for plan in explained["shards"].values()]
        return Examined(
            sum(p.keys for p in parts),
            sum(p.docs for p in parts),
            len(parts),
            returned=sum(p.returned for p in parts),
            ms=max((p.ms for p in parts), default=0),
        )
    return _of_plan(explained)


def _of_plan(explained: Mapping[str, Any]) -> Examined:
    plan: Mapping[str, Any] = explained
    if "stages" in plan:  # a pipeline that could not become a plain query: its first stage holds the plan
        plan = plan["stages"][0].get("$cursor") or plan["stages"][0].get("$geoNearCursor") or {}
    stats = plan.get("executionStats", {})
    shards = stats.get("executionStages", {}).get("shards", [None])
    return Examined(
        int(stats.get("totalKeysExamined", 0)),
        int(stats.get("totalDocsExamined", 0)),
        len(shards),
        returned=int(stats.get("nReturned", 0)),
        ms=int(stats.get("executionTimeMillis", 0)),
    )
