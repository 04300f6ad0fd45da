"""The demo's queries: the points of each neighbourhood and the nearest to some places, as they are and rewritten."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.examined import Examined
from spatialnosql.joins.count_by_polygon import count_by_polygon

Say = Callable[[str], None]
AS_IT_IS, REWRITTEN, ONE_PASS = "as it is", "rewritten", "one pass"
NEAREST = 10


def compare(
    collection: Collection[dict[str, Any]], areas: list[dict[str, Any]], places: list[list[float]], say: Say
) -> dict[str, Any]:
    """Ask everything both ways; what was found, what it took and what was examined."""
    spatial = SpatialCollection(collection)
    counts = compare_counts(collection, spatial, areas, say)
    nearest = compare_nearest(collection, spatial, places, say)
    equal = counts.pop("equal") and nearest.pop("equal")
    say("\nThe same answers." if equal else "\nTHE ANSWERS DIFFER: this is a bug, please report it.")
    return {"counts": counts, "nearest": nearest, "equal": equal}


def compare_counts(
    collection: Collection[dict[str, Any]], spatial: SpatialCollection, areas: list[dict[str, Any]], say: Say
) -> dict[str, Any]:
    """Count the points of each area both ways, and see what that makes the servers examine."""
    filters = [{"loc": {"$geoWithin": {"$geometry": area}}} for area in areas]
    say(f"\nPoints in each of {len(areas)} neighbourhoods, by $geoWithin:")
    found, ways = {}, {}
    for name, asked in ((AS_IT_IS, collection), (REWRITTEN, spatial)):
        started = time.perf_counter()
        found[name] = [asked.count_documents(one) for one in filters]
        ways[name] = {"wall_s": round(time.perf_counter() - started, 3), "results": sum(found[name])}
    explained = [spatial.explain(one, count=True) for one in filters]
    looked = {
        AS_IT_IS: Examined.total(one.original for one in explained),
        REWRITTEN: Examined.total(one.rewritten or one.original for one in explained),
    }
    for name, way in ways.items():
        shards = round(looked[name].shards / max(len(areas), 1), 2)
        way |= {"keys": looked[name].keys, "docs": looked[name].docs, "shards": shards}
        say(
            f"  {name:10} {way['results']:>9,} points counted in {way['wall_s']:6.2f} s; examined: "
            f"{way['docs']:>9,} documents and {way['keys']:>9,} keys on {shards:.1f} shards"
        )
    if areas:
        found[ONE_PASS], ways[ONE_PASS] = one_pass(spatial, areas, say)
    equal = all(counts == found[AS_IT_IS] for counts in found.values())
    return {"areas": len(areas), "ways": ways, "equal": equal}


def one_pass(
    spatial: SpatialCollection, areas: list[dict[str, Any]], say: Say
) -> tuple[list[int], dict[str, Any]]:
    """The same counts by one pass over the points for all areas together."""
    started = time.perf_counter()
    found = [tally.count for tally in count_by_polygon(spatial, dict(enumerate(areas)))]
    way = {"wall_s": round(time.perf_counter() - started, 3), "results": sum(found)}
    say(f"  {ONE_PASS:10} {way['results']:>9,} points counted in {way['wall_s']:6.2f} s, all areas together")
    return found, way


def compare_nearest(
    collection: Collection[dict[str, Any]], spatial: SpatialCollection, places: list[list[float]], say: Say
) -> dict[str, Any]:
    """The distances of the nearest few from each place, both ways."""
    say(f"\nThe nearest {NEAREST} to each of {len(places)} places, by $geoNear:")
    found, ways = {}, {}
    for name, asked in ((AS_IT_IS, collection), (REWRITTEN, spatial)):
        started = time.perf_counter()
        found[name] = [[one["d"] for one in asked.aggregate(nearest(place))] for place in places]
        ways[name] = {
            "wall_s": round(time.perf_counter() - started, 3),
            "results": sum(map(len, found[name])),
        }
        say(f"  {name:10} {ways[name]['results']:>9,} points in {ways[name]['wall_s']:6.2f} s")
    return {"places": len(places), "ways": ways, "equal": found[AS_IT_IS] == found[REWRITTEN]}


def nearest(place: list[float]) -> list[dict[str, Any]]:
    """The pipeline for the nearest few: of equally near ones any may come, so it is distances that are compared."""
    near = {"near": {"type": "Point", "coordinates": place}, "distanceField": "d", "key": "loc"}
    return [{"$geoNear": near}, {"$limit": NEAREST}, {"$project": {"d": 1}}]
