"""The ten polygons with most points.

- ``plain``: one ``$geoWithin`` count a polygon, on hashed shards with a 2dsphere index
- ``rewritten``: `top_n` with polygons that are stored with their covers; polygons, covers and all are read each time
- ``new``: `top_n` with polygons that were never seen: read and covered in the call
- ``again``: `top_n` with polygons that the process has used before
- ``as_of``: `top_n(..., as_of="last_analyze")`, polygons stored; the keys at the borders are read
- ``spark``: the Spark join's counts of the same collection, in a session that runs already; of its clients' CPU only
  the driver's Python is seen
- ``estimated``: the same with the borders estimated: nothing but the polygons is read, and the counts are not exact

Every variant but the last must give the same count for every polygon, not only for the first ten.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection

from benchmarks import frame
from benchmarks.data import load_points, load_polygons
from benchmarks.deployment import Bench, adopted_collection, open_deployment, plain_collection
from benchmarks.frame import Variant, compare
from benchmarks.options import Options
from benchmarks.sent import Recording, recording
from benchmarks.spark import start_spark
from spatialnosql.cover import clear_cache
from spatialnosql.joins.covering import forget_overlays
from spatialnosql.joins.polygon_loading import load_polygons as store_polygons
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.read_shapes import forget_shapes
from spatialnosql.joins.tallies import Tallies
from spatialnosql.joins.top_n import top_n

ROWS, POLYGONS = 200_000, 60
TOP = 10


def run(options: Options) -> dict[str, Any]:
    points, areas = load_points(options, ROWS), load_polygons(options, POLYGONS)
    named = {f"{number} {area.name}": area.geometry for number, area in enumerate(areas)}
    with open_deployment(options) as bench, recording(bench.uri) as recorded:
        plain = plain_collection(bench, "plain", points)
        trips = adopted_collection(bench, "geohash", points)
        stored = bench.database["areas"]
        spark, ours = start_spark("topn", mongo_uri=bench.uri)
        store_polygons(stored, named, points=[trips])
        comparison = compare(
            ["top"],
            [*_variants(plain, trips, stored, named, recorded), _spark_variant(spark, bench, trips, stored)],
            cpu=bench.cpu,
            repeats=options.repeats,
            label="Top-N",
        )
        estimate = _estimate(plain, trips, stored, named, bench)
        if ours:
            spark.stop()
    return {
        "benchmark": "topn",
        "n_points": len(points),
        "n_polygons": len(areas),
        "n_shards": bench.n_shards,
        "load_order": options.load_order,
        "source": points.source,
        **comparison.result(),
        "estimated": estimate,
    }


def _variants(
    plain: Collection[dict[str, Any]],
    trips: Collection[dict[str, Any]],
    stored: Collection[dict[str, Any]],
    named: dict[str, Any],
    recorded: Recording,
) -> list[Variant]:
    known = Polygons.of(named)

    def asking(points: Any, polygons: Any, *, forget: bool, **options: Any) -> Callable[[Any], Any]:
        def ask(_: Any) -> dict[str, int]:
            if forget:
                forget_all()
            given = Polygons.of(dict(polygons)) if isinstance(polygons, dict) else polygons
            return counts(top_n(points, given, len(named), **options))

        return ask

    def variant(name: str, polygons: Any, *, forget: bool, **options: Any) -> Variant:
        twin = asking(recorded.twin(trips), polygons, forget=forget, **options)
        ask = asking(trips, polygons, forget=forget, **options)
        return Variant(name, ask, lambda _: recorded.examine(trips, lambda: twin(_)), size=_size)

    twin = recorded.twin(plain)
    return [
        Variant(
            "plain",
            lambda _: one_by_one(plain, named),
            lambda _: recorded.examine(plain, lambda: one_by_one(twin, named)),
            size=_size,
        ),
        variant("rewritten", stored, forget=True),
        variant("new", named, forget=True),
        variant("again", known, forget=False),
        variant("as_of", stored, forget=True, as_of="last_analyze"),
    ]


def _spark_variant(
    spark: Any, bench: Bench, trips: Collection[dict[str, Any]], stored: Collection[dict[str, Any]]
) -> Variant:
    from spark_jobs.join_job import join
    from spark_jobs.join_work import Job

    def ask(_: Any) -> dict[str, int]:
        forget_all()
        job = Job((trips.full_name,), stored.full_name, counts=True)
        with contextlib.redirect_stderr(io.StringIO()):
            joined = join(spark, job, uri=bench.uri, client=bench.database.client)
        assert joined.counts is not None
        return dict(sorted(joined.counts.items(), key=lambda pair: -pair[1]))

    return Variant("spark", ask, size=_size)


def one_by_one(collection: Collection[dict[str, Any]], named: dict[str, Any]) -> dict[str, int]:
    """One count a polygon, as applications do it today; the greatest first."""
    found = {
        name: collection.count_documents({"loc": {"$geoWithin": {"$geometry": geometry}}})
        for name, geometry in named.items()
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def counts(tallies: Tallies) -> dict[str, int]:
    """The counts by polygon, the greatest first."""
    return {tally.id: tally.count for tally in tallies}


def forget_all() -> None:
    """Let no call profit from an earlier one."""
    clear_cache()
    forget_overlays()
    forget_shapes()


def _size(answer: dict[str, int]) -> int:
    return sum(answer.values())


def _estimate(
    plain: Collection[dict[str, Any]],
    trips: Collection[dict[str, Any]],
    stored: Collection[dict[str, Any]],
    named: dict[str, Any],
    bench: Bench,
) -> dict[str, Any]:
    """How far the estimate is off, and what it takes."""
    answers: list[Tallies] = []

    def ask(_: Any) -> int:
        forget_all()
        answers.append(top_n(trips, stored, len(named), as_of="last_analyze", borders="estimated"))
        return 0

    timing = compare(
        ["estimated"], [Variant("estimated", ask)], cpu=bench.cpu, reference="estimated"
    ).result()
    exact = one_by_one(plain, named)
    tallies = answers[-1]
    wrong = [abs(tally.count - exact[tally.id]) for tally in tallies]
    inside = all((tally.low or 0) <= exact[tally.id] <= (tally.high or 0) for tally in tallies)
    top = list(exact)[:TOP]
    return {
        **{key: timing["variants"]["estimated"][key] for key in ("wall_s", "server_cpu_s", "client_cpu_s")},
        "points_wrong": sum(wrong),
        "share_wrong": round(sum(wrong) / max(sum(exact.values()), 1), 5),
        "largest_error": max(wrong),
        "within_bounds": inside,
        "same_top": [tally.id for tally in tallies][:TOP] == top,
    }


def table(result: dict[str, Any]) -> str:
    estimate = result["estimated"]
    return "\n".join(
        [
            frame.table(result),
            f"borders estimated: {estimate['wall_s']:.3f} s, {100 * estimate['share_wrong']:.2f} % of the points in "
            f"the wrong polygon, {'all' if estimate['within_bounds'] else 'NOT ALL'} within the bounds, the first "
            f"{TOP} {'the same' if estimate['same_top'] else 'not the same'}",
            "",
        ]
    )
