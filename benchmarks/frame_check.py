"""The trivial benchmark: it proves the frame on queries whose outcome is known beforehand.

Counts over polygons with the 2dsphere index and with a collection scan. They must agree, and the scan
must examine every document for every polygon.
"""

from __future__ import annotations

from typing import Any

from benchmarks.data import Area, load_points, load_polygons
from benchmarks.deployment import hashed_collection, open_deployment
from benchmarks.frame import Variant, compare
from benchmarks.options import Options
from spatialnosql.examined import examine_count

ROWS, POLYGONS = 20_000, 20
SCAN = {"$natural": 1}


def run(options: Options) -> dict[str, Any]:
    points, polygons = load_points(options, ROWS), load_polygons(options, POLYGONS)[:POLYGONS]
    with open_deployment(options) as bench:
        collection = hashed_collection(bench, "points", points.to_documents(), len(points))

        def within(area: Area) -> dict[str, Any]:
            return {"loc": {"$geoWithin": {"$geometry": area.geometry}}}

        variants = [
            Variant(
                "plain",
                lambda area: collection.count_documents(within(area)),
                lambda area: examine_count(collection, within(area)),
            ),
            Variant(
                "no_index",
                lambda area: collection.count_documents(within(area), hint=SCAN),
                lambda area: examine_count(collection, within(area), hint=SCAN),
            ),
        ]
        comparison = compare(polygons, variants, cpu=bench.cpu, repeats=options.repeats, label="counting")
        return {
            "benchmark": "frame",
            "n_points": len(points),
            "n_shards": bench.n_shards,
            **comparison.result(),
        }
