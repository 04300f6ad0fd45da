"""The queries that MongoDB samples of a collection (since 7.0): what its shards are really asked.

The routers take up to 50 a second. They hear of it after some ten seconds, and the shards store what they have every
90 s, unless `queryAnalysisWriterIntervalSecs` says otherwise; samples are kept for a week. Insertions are not sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.collection import Collection

SAMPLES_PER_SECOND = 20.0


@contextmanager
def sampling(collection: Collection[Any], per_second: float = SAMPLES_PER_SECOND) -> Iterator[None]:
    """Sample queries while the block lasts; as it was before, afterwards."""
    admin, name = collection.database.client.admin, collection.full_name
    answer = admin.command("configureQueryAnalyzer", name, mode="full", samplesPerSecond=per_second)
    before: Mapping[str, Any] = answer.get("oldConfiguration") or {"mode": "off"}
    try:
        yield
    finally:
        options = {key: before[key] for key in ("mode", "samplesPerSecond") if key in before}
        if options["mode"] == "off":
            options.pop("samplesPerSecond", None)
        admin.command("configureQueryAnalyzer", name, **options)


def sampled_filters(collection: Collection[Any]) -> list[Mapping[str, Any]]:
    """The filters of all sampled queries, one for each statement of a write."""
    pipeline = [{"$listSampledQueries": {"namespace": collection.full_name}}]
    filters: list[Mapping[str, Any]] = []
    for sample in collection.database.client.admin.aggregate(pipeline):
        command = sample["cmd"]
        statements = [*command.get("updates", ()), *command.get("deletes", ())]
        filters += [one.get("q", {}) for one in statements] or [
            command.get("filter", command.get("query", {}))
        ]
    return filters
