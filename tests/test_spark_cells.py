"""The job ``cells``: from files, from a collection, under spark-submit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pygeohash
import pytest
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_JAVA, QUICK_START

from spark_jobs import cells
from spark_jobs.points import format_of, select_points
from spark_jobs.session import build_session
from spatialnosql import geohash
from spatialnosql.cli import main
from spatialnosql.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
BAD_ROWS = ["here,40.7", ",", "200,1", "NaN,3", "1,-90.5"]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


def city(count: int = 3000) -> list[tuple[float, float]]:
    chance = random.Random(7)
    return [(chance.gauss(-74.0, 0.1), chance.gauss(40.7, 0.1)) for _ in range(count)]


def expected(points: list[tuple[float, float]], length: int = 6) -> Counter[str]:
    return Counter(pygeohash.encode(latitude=lat, longitude=lng, precision=length) for lng, lat in points)


def write_csv(path: Path) -> None:
    rows = [f"{lng!r},{lat!r}" for lng, lat in city()]
    path.write_text("\n".join(["Longitude,Latitude", *rows, *BAD_ROWS, ""]))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["cells", "--json", *arguments]) == 0, capsys.readouterr().err
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.spark
def test_csv_in_parquet_out(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "points.csv")
    out = tmp_path / "cells.parquet"
    counts = expected(city())
    for _ in range(2):  # the second run replaces what the first has written
        found = run_json(capsys, str(tmp_path / "points.csv"), "--out", str(out), "--top", "5")
        assert found["rows"] == len(city()) + len(BAD_ROWS)
        assert found["rows_without_point"] == len(BAD_ROWS)
        assert found["cells"] == len(counts)
        assert [top["count"] for top in found["top"]] == sorted(counts.values(), reverse=True)[:5]
        assert all(counts[top["name"]] == top["count"] for top in found["top"])
        written = spark.read.parquet(str(out)).collect()
        names = geohash.cells_to_strings(np.array([row["cell"] for row in written], np.uint64) << 30, 6)
        assert dict(zip(names.tolist(), (row["count"] for row in written), strict=True)) == counts


@pytest.mark.spark
def test_parquet_and_json_lines_give_the_same(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.createDataFrame(city(), "x double, y double").write.parquet(str(tmp_path / "folder"))
    lines = [json.dumps({"at": {"type": "Point", "coordinates": point}}) for point in city()]
    bad = ['{"at": {"type": "LineString", "coordinates": [1, 2]}}', '{"at": null}', "{", '{"at": {}}']
    (tmp_path / "points.jsonl").write_text("\n".join(lines + bad))
    flat = run_json(capsys, str(tmp_path / "folder"), "--precision", "33")
    nested = run_json(capsys, str(tmp_path / "points.jsonl"), "--precision", "33", "--location", "at")
    assert (flat["rows"], flat["rows_without_point"]) == (3000, 0)
    assert (nested["rows"], nested["rows_without_point"]) == (3004, 4)
    assert flat["top"] == nested["top"] != []


@pytest.mark.spark
def test_text_for_people(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text("lon,lat\n0,0\n0,0\n-180,90\n")
    assert main(["cells", str(tmp_path / "p.csv"), "--precision", "10", "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rows", "read", "3"]
    assert lines[1].split() == ["without", "a", "valid", "point", "0"]
    assert lines[2].split() == ["cells", "of", "10", "bits", "2"]
    assert lines[-1].split() == ["s0", "0.000000", "0.000000", "11.250000", "5.625000", "2"]


@pytest.mark.spark
def test_a_collection(
    spark: SparkSession,
    cluster: Any,
    database: Database[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    shapes: list[Any] = [{"type": "Point", "coordinates": list(point)} for point in city()]
    shapes += [[-74, 40], {"lng": -74.0, "lat": 40}]
    bad: list[Any] = ["there", None, [], [1], [1000, 0], {"type": "Point", "coordinates": ["a", 1]}]
    bad += [{"type": "Point", "coordinates": 5}, {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}]
    database.places.insert_many([{"geo": {"at": shape}} for shape in shapes + bad] + [{}])
    source = f"{database.name}.places"
    found = run_json(capsys, "--from", source, "--uri", cluster.uri, "--location", "geo.at", "--top", "3")
    counts = expected([*city(), (-74.0, 40.0), (-74.0, 40.0)])
    assert found["rows"] == len(shapes) + len(bad) + 1
    assert found["rows_without_point"] == len(bad) + 1
    assert found["cells"] == len(counts)
    assert all(counts[top["name"]] == top["count"] for top in found["top"])
    # The URI is in the running session only, not where the UI and the event log show settings.
    assert cluster.uri not in str(spark.sparkContext.getConf().getAll())


@pytest.mark.spark
def test_spark_submit_with_the_file_alone(tmp_path: Path) -> None:
    write_csv(tmp_path / "points.csv")
    # A Python that has Spark but not this package: only the file's own place can lead to it.
    blocked = tmp_path / "sitecustomize.py"
    blocked.write_text(f"import sys\nsys.path = [p for p in sys.path if p != {str(ROOT)!r}]\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment["PYTHONPATH"] = str(tmp_path)
    command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", QUICK_JAVA]
    command += [str(ROOT / "spark_jobs" / "cells.py"), str(tmp_path / "points.csv"), "--json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["cells"]) == (len(city()) + len(BAD_ROWS), len(expected(city())))


@pytest.mark.spark
def test_columns_are_found_or_listed(spark: SparkSession) -> None:
    named = spark.createDataFrame([(1.0, 2.0, 3.0)], "x double, `my.lng` double, LAT double")
    assert select_points(named).collect() == [(1.0, 3.0)]
    assert select_points(named, lng="my.lng").collect() == [(2.0, 3.0)]
    with pytest.raises(
        UsageError, match=r"no column 'lo'; name it with --lon; the columns are: x, my.lng, LAT"
    ):
        select_points(named, lng="lo")


@pytest.mark.spark
def test_a_missing_input_is_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cells", str(tmp_path / "none.csv")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("spatialnosql: Spark: [PATH_NOT_FOUND]")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either INPUT files or --from"),
        (["a.csv", "--from", "a.b"], "give either INPUT files or --from"),
        (["--from", "a.b"], "--from needs a MongoDB"),
        (["--from", "a.b", "--uri", "mongodb://h", "--lon", "x"], "not --lon and --lat"),
        (["a.csv", "--out", "folder"], "must end in .parquet"),
        (["a.parquet", "--out", "./a.parquet"], "is also an input"),
    ],
)
def test_what_cannot_be_meant(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPATIALNOSQL_URI", raising=False)
    assert main(["cells", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_formats(tmp_path: Path) -> None:
    (tmp_path / "part-0.csv.gz").touch()
    (tmp_path / "_SUCCESS").touch()
    assert format_of([str(tmp_path)]) == "csv"
    assert format_of(["hdfs://there/points.parquet", "*.parquet"]) == "parquet"
    with pytest.raises(UsageError, match=r"a.csv: csv, b: unknown"):
        format_of(["a.csv", "b"])


@pytest.mark.parametrize("bits", [1, 2, 5, 30, 33, 60])
def test_bounds_are_those_of_the_library(bits: int) -> None:
    cell = random.Random(bits).randrange(2**bits)
    found = cells.cell_count(cell, bits, 1)
    bounds = [float(edge) for edge in geohash.cells_to_bounds(cell, bits)]
    assert [found.west, found.south, found.east, found.north] == bounds


def test_names_say_what_is_left_of_a_character() -> None:
    assert cells.cell_name("0110011111") == "dz"
    assert cells.cell_name("01100111") == "d:111"
