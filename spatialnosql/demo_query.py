"""The demo's queries: the points of each neighbourhood, asked as they are and by geohash ranges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection

from spatialnosql.cover import cover
from spatialnosql.examined import Examined, examine_count
from spatialnosql.geometry import within_to_region
from spatialnosql.placement import SHARD_KEY

Filter = dict[str, Any]


def by_ranges(area: dict[str, Any]) -> Filter:
    """The filter for a GeoJSON area that routes by ``gh``: the seam where the rewriter will come in.

    Whatever lies in the cover's interior is in the area; only at its boundary must the server look.
    """
    covering = cover(within_to_region({"$geometry": area}))
    parts = [_between(low, high) for low, high in covering.interior.to_strings()]
    boundary = [_between(low, high) for low, high in covering.boundary.to_strings()]
    if boundary:
        parts.append({"$and": [{"$or": boundary}, as_it_is(area)]})
    return {"$or": parts} if parts else {"gh": {"$in": []}}


def _between(low: str, high: str) -> Filter:
    return {"gh": {"$gte": low, "$lt": high}}


def as_it_is(area: dict[str, Any]) -> Filter:
    """The filter for a GeoJSON area that anybody would write."""
    return {"loc": {"$geoWithin": {"$geometry": area}}}


# A way to ask: its name, the filter for an area, and the options of the query.
WAYS: tuple[tuple[str, Callable[[dict[str, Any]], Filter], dict[str, Any]], ...] = (
    ("as it is", as_it_is, {}),
    ("by geohash ranges", by_ranges, {"hint": SHARD_KEY}),
)


def compare_counts(
    collection: Collection[dict[str, Any]], areas: list[dict[str, Any]], say: Callable[[str], None]
) -> dict[str, Any]:
    """Count the points of each area in each way; what was found, what it took and what was examined."""
    outcome: dict[str, Any] = {"areas": len(areas), "ways": {}}
    counts: list[list[int]] = []
    say(f"\nPoints in each of {len(areas)} neighbourhoods, by $geoWithin:")
    for name, make_filter, options in WAYS:
        started = time.perf_counter()
        # Making the filter is part of the price.
        counts.append([collection.count_documents(make_filter(area), **options) for area in areas])
        wall_s = time.perf_counter() - started
        looked = Examined.total(examine_count(collection, make_filter(area), **options) for area in areas)
        shards = looked.shards / max(looked.queries, 1)
        outcome["ways"][name] = {
            "wall_s": round(wall_s, 3),
            "keys": looked.keys,
            "docs": looked.docs,
            "shards": round(shards, 2),
            "results": sum(counts[-1]),
        }
        say(
            f"  {name:18} {sum(counts[-1]):>9,} points in {wall_s:6.2f} s; "
            f"{looked.docs:>9,} documents examined, {shards:.1f} shards asked"
        )
    outcome["equal"] = all(other == counts[0] for other in counts)
    say(
        "  The same answers."
        if outcome["equal"]
        else "  THE ANSWERS DIFFER: this is a bug, please report it."
    )
    return outcome
