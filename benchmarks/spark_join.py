"""``spark_join``: how many of N points lie in each polygon: the Spark job, SedonaDB, and shapely in one process.

All three read the same Parquet file of points and are given the same polygons as GeoJSON, and all three return the
number of points of each polygon; each is timed from there to there. What a user starts once is started before: Spark's
session, and the import of each library. The Spark job's first run stands apart: in it Spark's classes are compiled and
its Python workers started.

Edges are great circles for the job, as for MongoDB, and straight lines on the map for the other two. So a few points
are counted differently, which is said. That the job's own counts are right is checked against `Region.settle`, point by
point, on a sample that has those points in it.

Points are ``realistic`` (the generated city's hot spots and streets, stretched over the polygons' extent) and
``uniform`` over it.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cpu import process_cpu_s
from benchmarks.data import Area, load_polygons
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from benchmarks.spark import start_spark
from spatialnosql.city import generate_city

ROWS = 10_000_000
PIECE = 1_000_000  # rows generated and written at a time
SAMPLE = 20_000  # points that are checked one by one
SEDONA = "sedonadb is not installed; pip install sedonadb"
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def run(options: Options) -> dict[str, Any]:
    rows = options.limit or ROWS
    areas = load_polygons(options)
    with tempfile.TemporaryDirectory(prefix="spatialnosql-bench-") as folder:
        engines = _engines(areas)
        started = time.monotonic()
        spark, ours = start_spark("spark_join")
        session_s = time.monotonic() - started
        print(f"Spark started in {session_s:.1f} s", file=sys.stderr, flush=True)
        queries: dict[str, Any] = {}
        try:
            for kind in ("realistic", "uniform"):
                path = Path(folder) / f"{kind}.parquet"
                write_points(path, kind, rows, areas, options.seed)
                queries[kind] = _measure(
                    spark, engines, path, rows, areas, options.repeats, first=not queries
                )
                path.unlink()
        finally:
            if ours:
                spark.stop()
    return {
        "benchmark": "spark_join",
        "n_points": rows,
        "n_polygons": len(areas),
        "threads": os.cpu_count(),
        "spark_start_s": round(session_s, 2),
        "missing": [] if "sedonadb" in engines else [SEDONA],
        "queries": queries,
        "equal": all(part["equal"] for part in queries.values()),
    }


def write_points(path: Path, kind: str, rows: int, areas: list[Area], seed: int) -> None:
    """A Parquet file of points, `lng` and `lat`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import shapely

    west, south, east, north = shapely.total_bounds(shapely_polygons(areas)).tolist()
    writer: Any = None
    for number, start in enumerate(range(0, rows, PIECE)):
        count = min(PIECE, rows - start)
        lng, lat = _points(kind, count, seed + number)
        table = pa.table({"lng": west + lng * (east - west), "lat": south + lat * (north - south)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def _points(kind: str, count: int, seed: int) -> tuple[Floats, Floats]:
    """Points in the unit square."""
    if kind == "uniform":
        rng = np.random.default_rng(seed)
        return rng.random(count), rng.random(count)
    city = generate_city(count, seed, bad_share=0.0)
    west, south, east, north = city.bounds
    return (city.lng - west) / (east - west), (city.lat - south) / (north - south)


def shapely_polygons(areas: list[Area]) -> NDArray[Any]:
    import json

    import shapely

    return np.array([shapely.from_geojson(json.dumps(area.geometry)) for area in areas])


# -- the engines -------------------------------------------------------------------------------------------


def _engines(areas: list[Area]) -> dict[str, Callable[[Path], Counts]]:
    engines: dict[str, Callable[[Path], Counts]] = {"shapely": lambda path: with_shapely(path, areas)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import sedonadb  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        print(SEDONA, file=sys.stderr, flush=True)
    else:
        engines = {"sedonadb": lambda path: with_sedona(path, areas), **engines}
    return engines


def with_spark(spark: Any, path: Path, areas: list[Area]) -> Counts:
    """The job, in the Spark that runs already."""
    from spark_jobs.join_job import join
    from spark_jobs.join_work import Job
    from spatialnosql.joins.polygons import Polygons

    polygons = Polygons.of({number: area.geometry for number, area in enumerate(areas)})
    job = Job((str(path),), "polygons.geojson", counts=True)
    with contextlib.redirect_stderr(io.StringIO()):
        joined = join(spark, job, polygons=polygons)
    assert joined.counts is not None
    _phases.append(joined.phases)
    return np.array(list(joined.counts.values()), dtype=np.int64)


_phases: list[dict[str, float]] = []


def with_sedona(path: Path, areas: list[Area]) -> Counts:
    """SedonaDB: a spatial join in SQL, grouped by polygon; it uses all cores."""
    import pyarrow as pa
    import sedonadb
    import shapely

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has found neither PROJ nor GDAL, which are not needed
        session = sedonadb.connect()
    session.read_parquet(str(path)).to_view("points", overwrite=True)
    geometries = pa.array(shapely.to_wkb(shapely_polygons(areas)).tolist(), pa.binary())
    numbers = pa.array(range(len(areas)), pa.int64())
    table = pa.table({"polygon": numbers, "wkb": geometries})
    session.create_data_frame(table).to_view("polygons", overwrite=True)
    answer = session.sql(
        "SELECT a.polygon AS polygon, count(*) AS n "
        "FROM (SELECT ST_Point(lng, lat) AS place FROM points) AS p "
        "JOIN (SELECT polygon, ST_GeomFromWKB(wkb) AS area FROM polygons) AS a "
        "ON ST_Intersects(a.area, p.place) GROUP BY a.polygon"
    )
    found = pa.table(answer)
    counts = np.zeros(len(areas), dtype=np.int64)
    counts[found["polygon"].to_numpy()] = found["n"].to_numpy()
    return counts


def with_shapely(path: Path, areas: list[Area]) -> Counts:
    """One process, vectorised: a tree of boxes, then prepared polygons, for a million points at a time.

    Faster, by three times, than a predicate in the tree's own query, which does not use that polygons are prepared.
    """
    import pyarrow.parquet as pq
    import shapely

    polygons = shapely_polygons(areas)
    shapely.prepare(polygons)
    tree = shapely.STRtree(polygons)
    counts = np.zeros(len(areas), dtype=np.int64)
    for batch in pq.ParquetFile(path).iter_batches(PIECE, columns=["lng", "lat"]):
        lng, lat = (batch.column(name).to_numpy() for name in ("lng", "lat"))
        point, polygon = tree.query(shapely.points(lng, lat))
        inside = shapely.intersects_xy(polygons[polygon], lng[point], lat[point])
        counts += np.bincount(polygon[inside], minlength=len(areas))
    return counts


# -- measuring ---------------------------------------------------------------------------------------------


def _measure(
    spark: Any,
    engines: dict[str, Callable[[Path], Counts]],
    path: Path,
    rows: int,
    areas: list[Area],
    repeats: int,
    *,
    first: bool,
) -> dict[str, Any]:
    """Every engine in turn on one file; medians, and the job's first run of all apart."""
    path.read_bytes()  # for all of them it is in memory
    all_engines = {"spark job": lambda file: with_spark(spark, file, areas), **engines}
    taken: dict[str, list[dict[str, Any]]] = {
        "spark job, first run": [],
        **{name: [] for name in all_engines},
    }
    counts: dict[str, Counts] = {}
    for order in [["spark job, first run"] * first, *([list(all_engines)] * repeats)]:
        for name in order:
            engine = all_engines[name.partition(",")[0]]
            cpu, started = _cpu_s(spark), time.monotonic()
            counts[name] = engine(path)
            one: dict[str, Any] = {"wall_s": time.monotonic() - started, "cpu_s": _cpu_s(spark) - cpu}
            if name.startswith("spark"):
                one["phases"] = _phases[-1]
            taken[name].append(one)
            print(f"{name}: {one['wall_s']:.2f} s, CPU {one['cpu_s']:.2f} s", file=sys.stderr, flush=True)
    ours = counts["spark job"]
    others = {
        name: found for name, found in counts.items() if name not in ("spark job", "spark job, first run")
    }
    return {
        "rows": rows,
        "variants": {name: _median(runs, rows) for name, runs in taken.items() if runs},
        "points_counted_otherwise": {name: int(np.abs(found - ours).sum()) for name, found in others.items()},
        "pairs": int(ours.sum()),
        "equal": bool((ours == counts.get("spark job, first run", ours)).all()) and _is_right(path, areas),
    }


def _cpu_s(spark: Any) -> float:
    """CPU seconds of everything that works here: this process, Spark's, and those that they have started."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    total = 0.0
    parents = {jvm, os.getpid()}
    for _ in range(3):  # the JVM's daemon, and its workers
        parents |= {pid for pid, parent in _parents().items() if parent in parents}
    for pid in parents:
        with contextlib.suppress(Exception):  # it has ended meanwhile
            total += process_cpu_s(pid)
    return total


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = int(stat[1])
    return found


def _median(runs: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    wall = statistics.median(run["wall_s"] for run in runs)
    return {
        "wall_s": round(wall, 3),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 2),
        "rows_per_s": round(rows / wall, 1),
        "runs": [round(run["wall_s"], 3) for run in runs],
        **(
            {"phases": {k: round(v, 3) for k, v in runs[-1]["phases"].items()}} if "phases" in runs[0] else {}
        ),
    }


def _is_right(path: Path, areas: list[Area]) -> bool:
    """The job's way of deciding against `Region.settle`, on some of the points: equal for every pair."""
    import pyarrow.parquet as pq

    from spark_jobs.join_polygons import shapes_of
    from spark_jobs.join_served import Doubts, Notes, find_pairs, make_layers
    from spatialnosql.edges import CLOSE_RAD
    from spatialnosql.joins.polygons import Polygons
    from spatialnosql.region import IN, OUT

    batch = next(pq.ParquetFile(path).iter_batches(SAMPLE))
    lng, lat = (batch.column(name).to_numpy() for name in ("lng", "lat"))
    polygons = Polygons.of({number: area.geometry for number, area in enumerate(areas)})
    notes = Notes()
    point, polygon = find_pairs(make_layers(shapes_of(polygons)[1]), lng, lat, Doubts([], None, notes), notes)
    found = np.zeros((len(areas), lng.size), dtype=np.bool_)
    found[polygon, point] = True
    for number, area in enumerate(polygons):
        assert area.region is not None  # or the job would have refused it
        status = area.region.settle(lng, lat, CLOSE_RAD)
        if found[number][status == OUT].any() or not found[number][status == IN].all():
            return False
    return True


def table(result: dict[str, Any]) -> str:
    """The result as text: one line a kind of points and engine."""
    lines = [
        f"spark_join: {result['n_points']:,} points, {result['n_polygons']} polygons, {result['threads']} cores "
        f"(shapely: 1 thread); Spark's start, {result['spark_start_s']:.1f} s, apart",
        *result["missing"],
        "",
    ]
    rows = [["points", "engine", "seconds", "CPU seconds", "rows/s", "runs"]]
    for kind, part in result["queries"].items():
        for name, values in part["variants"].items():
            numbers = [values[key] for key in ("wall_s", "cpu_s", "rows_per_s")]
            runs = ", ".join(f"{one:.2f}" for one in values["runs"])
            rows.append([kind, name, *(cell_text(number) for number in numbers), runs])
    lines += aligned(rows)
    for kind, part in result["queries"].items():
        variants = part["variants"]
        for name, count in part["points_counted_otherwise"].items():
            ratio = variants[name]["wall_s"] / variants["spark job"]["wall_s"]
            lines.append(
                f"{kind}: the job is {ratio:.2f} times as fast as {name}, whose straight edges count {count:,} of "
                f"{part['pairs']:,} pairs otherwise"
            )
        phases = ", ".join(f"{name} {value:.2f}" for name, value in variants["spark job"]["phases"].items())
        lines.append(f"{kind}: the job's phases: {phases}")
    lines.append("the job agrees with Region.settle" if result["equal"] else "THE JOB IS WRONG")
    return "\n".join([*lines, ""])
