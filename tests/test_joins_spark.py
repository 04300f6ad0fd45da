"""``spatialnosql join``: equal to the API and to one ``$geoWithin`` a polygon, from everywhere, to everywhere."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import Setup, make_collection
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_JAVA, QUICK_START

from benchmarks import spark_join
from benchmarks.options import Options
from spark_jobs import join_parts
from spark_jobs.join_write import JOINS
from spark_jobs.session import build_session
from spatialnosql.cli import main
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.polygons import Polygons
from spatialnosql.metadata import DATABASE, metadata_collection

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def polygon(*rings: list[list[float]]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


SHAPES: dict[str, dict[str, Any]] = {
    "west": polygon(ring(2.0, 48.0, 2.3, 48.9)),
    "east": polygon(ring(2.3, 48.0, 2.7, 48.9)),  # shares a border
    "over both": polygon(ring(2.1, 48.3, 2.5, 48.6)),
    "nested": polygon(ring(2.15, 48.35, 2.2, 48.4)),
    "with a hole": polygon(ring(2.4, 48.1, 2.65, 48.8), ring(2.45, 48.2, 2.6, 48.7)[::-1]),
    "in the hole": polygon([[2.5, 48.3], [2.55, 48.4], [2.52, 48.6], [2.5, 48.3]]),
    "in parts": {
        "type": "MultiPolygon",
        "coordinates": [[ring(1.8, 47.8, 1.9, 47.9)], [ring(2.0, 47.9, 2.2, 48.1)]],
    },
    "empty": polygon(ring(100.1, 10.1, 100.2, 10.2)),
}


def places() -> list[tuple[float, float]]:
    """Points all over, one place many times, and points on vertices, on borders and within centimetres of them."""
    rng = np.random.default_rng(4)
    found = list(
        zip(rng.uniform(1.7, 2.8, 3000).tolist(), rng.uniform(47.7, 49.0, 3000).tolist(), strict=True)
    )
    found += [(2.17, 48.37)] * 2000
    for shape in SHAPES.values():
        parts = shape["coordinates"] if shape["type"] == "MultiPolygon" else [shape["coordinates"]]
        corners = [corner for part in parts for one in part for corner in one]
        for (x, y), (next_x, next_y) in itertools.pairwise(corners):
            middle = ((x + next_x) / 2, (y + next_y) / 2)
            for place in ((x, y), middle):
                for away in (0.0, 1e-8, -1e-8, 3e-7):
                    found.append((place[0] + away, place[1] - away / 2))
    return found


PLACES = places()


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture(scope="module")
def trips(client: MongoClient[Row]) -> Iterator[Any]:
    """An adopted collection of all places, in chunks on every shard."""
    database = client["test_joins_spark"]
    client.drop_database(database)
    hashes = cells_to_strings(points_to_cells(*np.array(PLACES).T)).tolist()
    content = [
        {
            "_id": number,
            "loc": {"type": "Point", "coordinates": list(place)},
            "gh": hashes[number],
            "n": number % 7,
        }
        for number, place in enumerate(PLACES)
    ]
    content += [{"_id": 100_000, "n": 1, "loc": None}]  # nowhere
    try:
        yield make_collection(database, "trips", Setup(), content)
    finally:
        metadata_collection(database.trips).delete_many({"_id": {"$regex": "^test_joins_spark"}})
        client.drop_database(database)


@pytest.fixture(scope="module")
def expected(trips: Any) -> set[tuple[int, str]]:
    """Brute force: what the server says, polygon by polygon."""
    pairs = {
        (document["_id"], name)
        for name, shape in SHAPES.items()
        for document in trips.find({"loc": {"$geoWithin": {"$geometry": shape}}}, {"_id": 1})
    }
    assert len(pairs) > 3000
    return pairs


@pytest.fixture
def zones(tmp_path: Path) -> str:
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": shape} for name, shape in SHAPES.items()
    ]
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


class Join:
    """``spatialnosql join`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *arguments: str, fails: bool = False) -> dict[str, Any]:
        self._capsys.readouterr()
        code = main(["join", "--json", *arguments])
        captured = self._capsys.readouterr()
        self.error = captured.err
        assert code == (1 if fails else 0), captured.err
        return {} if fails else dict(json.loads(captured.out.splitlines()[-1]))


@pytest.fixture
def join(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Join:
    return Join(capsys)


def counts_of(pairs: set[tuple[int, str]]) -> dict[str, int]:
    return {name: sum(1 for _, found in pairs if found == name) for name in SHAPES}


pytestmark = pytest.mark.spark


@pytest.mark.parametrize("strategy", ["broadcast", "partitioned"])
def test_a_collection_to_parquet(
    join: Join,
    cluster: Any,
    trips: Any,
    expected: Any,
    zones: str,
    tmp_path: Path,
    strategy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_parts, "POINTS_A_PART", 450)
    out = str(tmp_path / "out.parquet")
    asked = ["--points", trips.full_name, "--polygons", zones, "--out", out, "--uri", cluster.uri]
    for _ in range(
        2 if strategy == "broadcast" else 1
    ):  # the second time it replaces what the first has written
        found = join(*asked, "--strategy", strategy, "--select", "n")
        table = pq.read_table(out)
        pairs = list(zip(table["_id"].to_pylist(), table["polygon"].to_pylist(), strict=True))
        assert len(pairs) == len(set(pairs)) == found["pairs"]
        assert set(pairs) == expected
    assert found["strategy"] == strategy
    assert found["matched"] == len({number for number, _ in expected})
    # Only candidates were read, in few ranges; and of the border the server was asked.
    assert found["rows"] < len(PLACES)
    assert 0 < found["ranges"] < 200
    assert found["asked"] > 0
    assert found["unasked"] == 0
    assert table["n"].to_pylist() == [number % 7 for number in table["_id"].to_pylist()]
    if strategy == "partitioned":
        assert found["parts"] > 1
        assert found["salted"] > 1  # 2,000 points in one place


def test_counts_are_those_of_the_api_and_of_the_server(
    join: Join, cluster: Any, trips: Any, expected: Any, zones: str
) -> None:
    found = join("--points", trips.full_name, "--polygons", zones, "--counts", "--uri", cluster.uri)
    assert found["counts"] == counts_of(expected)
    assert found["counts"] == count_by_polygon(trips, Polygons.of(SHAPES)).to_dict()
    few = join(
        *("--points", trips.full_name, "--polygons", zones, "--counts", "--uri", cluster.uri),
        *("--filter", '{"n": {"$lt": 3}}', "--strategy", "partitioned"),
    )
    assert few["counts"] == counts_of({pair for pair in expected if pair[0] % 7 < 3})


def test_a_left_join_keeps_every_point(
    join: Join, cluster: Any, trips: Any, expected: Any, zones: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out.parquet")
    asked = ["--points", trips.full_name, "--polygons", zones, "--out", out, "--uri", cluster.uri]
    found = join(*asked, "--how", "left", "--as", "zone")
    rows = pq.read_table(out).to_pylist()
    inside = {number for number, _ in expected}
    alone = {number for number in [*range(len(PLACES)), 100_000] if number not in inside}
    assert {(row["_id"], row["zone"]) for row in rows if row["zone"] is not None} == expected
    assert sorted(row["_id"] for row in rows if row["zone"] is None) == sorted(alone)
    assert (found["rows"], found["invalid"], found["pairs"]) == (len(PLACES) + 1, 1, len(expected))


def write_points(path: Path, rows: list[tuple[Any, Any]], **options: Any) -> str:
    lng, lat = ([row[axis] for row in rows] for axis in (0, 1))
    table = pa.table(
        {"n": range(len(rows)), "lng": pa.array(lng, pa.float64()), "lat": pa.array(lat, pa.float64())}
    )
    pq.write_table(table, path, **options)
    return str(path)


def test_files_with_and_without_a_server(
    join: Join, cluster: Any, expected: Any, zones: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[Any, Any]] = [*PLACES, (None, 1.0), (500.0, 1.0)]
    path = write_points(tmp_path / "points.parquet", rows, row_group_size=700)
    asked = ["--points", path, "--polygons", zones, "--counts"]
    with_server = join(*asked, "--uri", cluster.uri)
    assert with_server["counts"] == counts_of(expected)
    assert (with_server["rows"], with_server["invalid"]) == (len(rows), 2)
    assert with_server["asked"] > 0
    without = join(*asked)
    assert without["unasked"] == with_server["asked"]
    # What lies within 3 cm of a border may be counted otherwise, nothing else.
    off = sum(abs(without["counts"][name] - count) for name, count in counts_of(expected).items())
    assert off <= without["unasked"]
    monkeypatch.setattr(join_parts, "POINTS_A_PART", 450)
    apart = join(*asked, "--strategy", "partitioned", "--uri", cluster.uri)
    assert apart["counts"] == with_server["counts"]
    assert apart["salted"] > 1
    assert (apart["rows"], apart["invalid"]) == (len(rows), 2)


def test_csv_into_a_collection_again_and_again(
    join: Join, cluster: Any, database: Database[Row], trips: Any, expected: Any, zones: str, tmp_path: Path
) -> None:
    lines = [f"{n},{lng!r},{lat!r}" for n, (lng, lat) in enumerate(PLACES)]
    (tmp_path / "points.csv").write_text("\n".join(["number,Longitude,Latitude", *lines, "x,here,there", ""]))
    asked = ["--points", str(tmp_path / "points.csv"), "--polygons", zones, "--uri", cluster.uri]
    target = f"{database.name}.joined"
    for _ in range(2):
        found = join(*asked, "--out", target, "--select", "number")
        rows = list(database.joined.find())
        assert len(rows) == found["pairs"] == len(expected)
        assert {(int(row["number"]), row["polygon"]) for row in rows} == expected
    assert database.list_collection_names() == ["joined"]
    database.client[DATABASE][JOINS].delete_one({"_id": target})
    join(*asked, "--out", target, fails=True)
    assert "no join has written" in join.error
    assert database.joined.count_documents({}) == len(expected)


def test_polygons_of_a_collection_and_one_that_only_the_server_knows(
    join: Join, cluster: Any, database: Database[Row], trips: Any, tmp_path: Path
) -> None:
    # A border along the meridian of 0, which is one of large S2 cells.
    known = {"a": SHAPES["with a hole"], "on the meridian": polygon(ring(0.0, 48.0, 2.3, 48.9))}
    database.zones.insert_many([{"_id": name, "geometry": shape} for name, shape in known.items()])
    within = {
        name: trips.count_documents({"loc": {"$geoWithin": {"$geometry": shape}}})
        for name, shape in known.items()
    }
    asked = ["--points", trips.full_name, "--polygons", f"{database.name}.zones", "--uri", cluster.uri]
    assert join(*asked, "--counts")["counts"] == within
    join(*asked, "--out", f"{database.name}.pairs")
    pairs = database.pairs.aggregate([{"$group": {"_id": "$polygon", "n": {"$sum": 1}}}])
    assert {group["_id"]: group["n"] for group in pairs} == within
    assert {"point", "lng", "lat", "polygon"} <= set(database.pairs.find_one() or {})
    path = write_points(tmp_path / "points.parquet", PLACES)
    join(
        *("--points", path, "--polygons", f"{database.name}.zones", "--counts", "--uri", cluster.uri),
        fails=True,
    )
    assert "only the server can tell" in join.error


def test_nothing_is_joined_with_nothing(join: Join, zones: str, tmp_path: Path) -> None:
    path = write_points(tmp_path / "none.parquet", [])
    for strategy in ("broadcast", "partitioned"):
        found = join("--points", path, "--polygons", zones, "--counts", "--strategy", strategy)
        assert (found["rows"], found["pairs"]) == (0, 0)
        assert set(found["counts"]) == set(SHAPES)
    out = tmp_path / "out.parquet"
    found = join("--points", path, "--polygons", zones, "--out", str(out))
    assert pq.read_table(out).column_names == ["n", "lng", "lat", "polygon"]
    assert pq.read_table(out).num_rows == found["pairs"] == 0


def test_the_strategy_is_chosen_by_size_and_said(
    spark: SparkSession, zones: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_points(tmp_path / "points.parquet", PLACES[:100])
    asked = ["join", "--points", path, "--polygons", zones, "--counts"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "broadcast: the polygons' grid takes about 0 MB, within the 128 MB" in text
    assert "pairs are within 3 cm of a border" not in text
    assert main([*asked, "--broadcast-limit", "0"]) == 0
    assert "partitioned: the polygons' grid takes about 0 MB, more than the 0 MB" in capsys.readouterr().out


def test_the_benchmark_counts_the_same_with_every_engine(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sedonadb", None)  # as where it is not installed
    result = spark_join.run(Options(limit=2000, repeats=1))
    assert result["equal"] is True
    assert set(result["queries"]) == {"realistic", "uniform"}
    for part in result["queries"].values():
        assert part["pairs"] > 100
        assert part["points_counted_otherwise"] == {"shapely": 0}
        assert part["variants"]["spark job"]["rows_per_s"] > 0
    text = spark_join.table(result)
    assert "sedonadb is not installed; pip install sedonadb" in text
    assert "the job agrees with Region.settle" in text
    assert "sedonadb is not installed" in capsys.readouterr().err


def test_spark_submit_with_the_file_alone(zones: str, tmp_path: Path) -> None:
    path = write_points(tmp_path / "points.parquet", PLACES)
    # A Python that has Spark but not this package: only the file's own place can lead to it, and workers have none.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nsys.path = [p for p in sys.path if not os.path.isdir(os.path.join(p, 'spark_jobs'))]\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment["PYTHONPATH"] = str(tmp_path)
    command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", QUICK_JAVA, str(ROOT / "spark_jobs" / "join.py")]
    command += ["--points", path, "--polygons", zones, "--counts", "--strategy", "partitioned", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == len(PLACES)
    assert found["counts"]["nested"] > 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--points", "a.b", "--polygons", "z.geojson", "--counts"], "which MongoDB"),
        (["--points", "a.csv", "--polygons", "z.geojson"], "where to?"),
        (
            [
                "--points",
                "a.csv",
                "--polygons",
                "z.geojson",
                "--out",
                "./a.csv.parquet",
                "--counts",
                "--how",
                "left",
            ],
            "all",
        ),
        (["--points", "a.parquet", "--polygons", "z.geojson", "--out", "./a.parquet"], "is also an input"),
        (["--points", "a.b", "--polygons", "c.d", "--out", "c.d"], "is also a source"),
        (
            ["--points", "a.b", "--polygons", "z.geojson", "--counts", "--lon", "x"],
            "knows where its points are",
        ),
        (
            ["--points", "a.csv", "--polygons", "z.geojson", "--counts", "--filter", "{}"],
            "points of files have none",
        ),
        (["--points", "a.csv", "--polygons", "none.geojson", "--counts"], "no such file"),
    ],
)
def test_what_cannot_be_meant(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPATIALNOSQL_URI", raising=False)
    assert main(["join", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_bad_polygons_are_named(join: Join, tmp_path: Path) -> None:
    bow = polygon([[0.1, 0.1], [1.1, 1.1], [1.1, 0.1], [0.1, 1.1], [0.1, 0.1]])
    features = [{"type": "Feature", "properties": {"name": "bow tie"}, "geometry": bow}]
    (tmp_path / "bad.geojson").write_text("\n".join(json.dumps(feature) for feature in features))
    path = write_points(tmp_path / "points.parquet", PLACES[:5])
    join("--points", path, "--polygons", str(tmp_path / "bad.geojson"), "--counts", fails=True)
    assert "'bow tie'" in join.error
