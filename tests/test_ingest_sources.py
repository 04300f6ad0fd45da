"""Ingest: every kind of source gives the same documents; bad rows are set aside; nothing disappears."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pygeohash
import pytest
from ingest_helpers import Ingest, city, write_csv
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_START

from spark_jobs.cell_counts import count
from spark_jobs.screening import Rules, screened
from spark_jobs.session import build_session
from spatialnosql.collection import SpatialCollection
from spatialnosql.histogram import Histogram
from spatialnosql.ledger import batches
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.sharding import chunks, shard_key
from spatialnosql.steps import run
from spatialnosql.validator import INVALID
from spatialnosql.verify import verify

pytestmark = pytest.mark.spark
ROWS = city(3000)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture
def ingest(
    spark: SparkSession, cluster: Any, database: Database[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> Ingest:
    return Ingest(cluster.uri, database.trips, capsys)


def as_rows(target: Any) -> list[tuple[Any, ...]]:
    """The documents as the rows that they came from."""
    found = []
    for document in target.find():
        lng, lat = document["loc"]["coordinates"]
        assert document["gh"] == pygeohash.encode(lat, lng, 12)
        assert document["loc"]["type"] == "Point"
        found.append((document["number"], lng, lat, document["at"], document["base"]))
    return sorted(found)


def with_dates() -> list[tuple[Any, ...]]:
    return sorted((n, x, y, dt.datetime.fromisoformat(at), base) for n, x, y, at, base in ROWS)


def write_geojson(path: Path, *, zipped: bool) -> str:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [x, y]},
            "properties": {"number": n, "at": at, "base": base},
        }
        for n, x, y, at, base in ROWS
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features}, indent=1)
    path.write_bytes(gzip.compress(text.encode())) if zipped else path.write_text(text)
    return str(path)


def make_source(
    kind: str, folder: Path, spark: SparkSession, database: Database[dict[str, Any]]
) -> list[str]:
    """The rows in a kind of source; the arguments that name it."""
    columns = ["number", "lon", "lat", "at", "base"]
    if kind == "csv glob":
        for part in range(3):
            write_csv(folder / f"p{part}.csv", ROWS[part::3])
        return [str(folder / "p*.csv")]
    if kind == "parquet folder":
        frame = spark.createDataFrame(ROWS, "number int, lon double, lat double, at string, base string")
        # A time without a zone, as pyarrow and pandas write it.
        frame.selectExpr("number", "lon", "lat", "CAST(at AS TIMESTAMP_NTZ) AS at", "base").write.parquet(
            str(folder / "nights")
        )
        return [str(folder / "nights")]
    if kind == "json lines":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in ROWS]
        (folder / "p.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        return [str(folder / "p.jsonl.gz")]
    if kind == "geojson":
        return [write_geojson(folder / "p.geojson", zipped=False)]
    if kind == "geojson.gz":
        return [write_geojson(folder / "p.geojson.gz", zipped=True)]
    database.staging.insert_many(
        {
            "number": n,
            "place": {"type": "Point", "coordinates": [x, y]},
            "at": dt.datetime.fromisoformat(at),
            "base": b,
        }
        for n, x, y, at, b in ROWS
    )
    return ["--from", f"{database.name}.staging", "--point", "place", "--select", "number,at,base"]


@pytest.mark.parametrize(
    "kind", ["csv glob", "parquet folder", "json lines", "geojson", "geojson.gz", "staging collection"]
)
def test_every_source_gives_the_same_documents(
    kind: str, ingest: Ingest, spark: SparkSession, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    outcome = ingest(*make_source(kind, tmp_path, spark, database))
    assert (outcome["rows"], outcome["written"], outcome["quarantined"]) == (3000, 3000, 0)
    assert as_rows(ingest.target) == with_dates()


def test_the_whole_of_a_first_night(ingest: Ingest, tmp_path: Path, cluster: Any) -> None:
    bad = [
        "7,,40.7,2014-08-01T00:00:00,B",
        "8,here,40.7,2014-08-01T00:00:00,B",
        "9,NaN,40.7,2014-08-01T00:00:00,B",
    ]
    bad += ["10,-74.0,95.5,2014-08-01T00:00:00,B", "11,40.7,-74.0,2014-08-01T00:00:00,B"]
    bad += ["12,40.7,-120.1,2014-08-01T00:00:00,B", "13,-74.0,40.7,2014-08-01T00:00:00,B,more,still more"]
    path = write_csv(tmp_path / "night.csv", ROWS, [*bad, "14,0,0,2014-08-01T00:00:00,B"])
    outcome = ingest(path, "--reject-zero", "--batch", "first", "--write-concern", "majority")
    reasons = {
        "malformed": 1,
        "missing": 1,
        "not_a_number": 2,
        "null_island": 1,
        "out_of_range": 2,
        "swapped": 1,
    }
    assert outcome["reasons"] == reasons
    assert (outcome["rows"], outcome["written"], outcome["quarantined"]) == (3008, 3000, 8)
    assert outcome["accounted"] == outcome["rows"]
    target = ingest.target
    # The quarantine has the reason, the batch, the file, and the row as it was.
    aside = list(target.database.trips_quarantine.find())
    assert {row["reason"] for row in aside} == set(reasons)
    assert {row["batch"] for row in aside} == {"first"}
    assert all(row["source"].endswith("night.csv") for row in aside)
    swapped = next(row for row in aside if row["row"]["number"] == 11)
    assert (swapped["reason"], swapped["row"]["lat"]) == ("swapped", -74.0)
    # Sharded, cut, placed in order, left alone by the balancer, indexed, guaranteed by the server.
    assert shard_key(target) == {"gh": 1, "_id": 1}
    order = [chunk["shard"] for chunk in chunks(target)]
    assert order == sorted(order)
    assert len(set(order)) == 3
    entry = target.database.client["config"]["collections"].find_one({"_id": target.full_name})
    assert entry["noBalance"] is True
    assert entry["enableAutoMerge"] is False
    assert outcome["max_over_mean"] < 1.1
    assert sum(outcome["shards"].values()) == 3000
    assert "loc_2dsphere" in target.index_information()
    with pytest.raises(Exception, match="failed validation") as refused:
        target.insert_one({"loc": {"type": "Point", "coordinates": [1, 2]}, "gh": "u0u0u0u0u0u0"})
    assert getattr(refused.value, "code", None) == INVALID
    assert verify(target).is_sound
    # Known to the rewriter at once.
    box = {"$geoWithin": {"$centerSphere": [[-74.0, 40.7], 0.0005]}}
    spatial = SpatialCollection(target)
    assert run(load_info(target)).why_not is None
    assert spatial.count_documents({"loc": box}) == target.count_documents({"loc": box}) > 0
    # What was chosen and why is in the metadata, and the batch in the ledger.
    stored = metadata_collection(target).find_one({"_id": target.full_name})
    assert stored["precision"]["table"] == outcome["precision"]["table"]
    assert stored["precision"]["reason"] == outcome["precision"]["reason"] != ""
    assert stored["documents"] == stored["histogram"]["total"] == 3000
    assert [(batch["batch"], batch["state"]) for batch in batches(target)] == [("first", "done")]


def test_bounds_and_options_of_the_reader(ingest: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "night.csv"
    rows = [*ROWS[:50], (50, -80.0, 40.7, ROWS[0][3], "far"), (51, 40.7, -74.0, ROWS[0][3], "swapped")]
    lines = ["number;lon;lat;at;base", *(";".join(str(value) for value in row) for row in rows), ""]
    path.write_text("\n".join(lines))
    options = ("--read-option", "sep=;", "--bounds=-75,40,-73,41.5", "--max-bad", "10%")
    outcome = ingest(str(path), *options)
    assert outcome["reasons"] == {"outside": 1, "swapped": 1}
    assert (outcome["rows"], outcome["written"], outcome["quarantined"]) == (52, 50, 2)
    assert as_rows(ingest.target) == with_dates()[:50]


def test_locations_that_are_no_points(ingest: Ingest, tmp_path: Path) -> None:
    places = [{"type": "Point", "coordinates": [x, y]} for _, x, y, _, _ in ROWS[:20]]
    places += [{"type": "Point", "coordinates": [7.0]}, {"type": "Point"}, None]
    path = tmp_path / "places.jsonl"
    path.write_text("".join(json.dumps({"n": n, "place": place}) + "\n" for n, place in enumerate(places)))
    outcome = ingest(str(path), "--point", "place", "--max-bad", "20%")
    assert outcome["reasons"] == {"missing": 1, "not_a_point": 2}
    assert (outcome["rows"], outcome["written"]) == (23, 20)
    aside = ingest.target.database.trips_quarantine.find({"reason": "not_a_point"})
    assert sorted(row["row"]["n"] for row in aside) == [20, 21]


def test_more_cells_than_the_driver_takes_are_rolled_up(spark: SparkSession) -> None:
    columns = ["number", "lon", "lat", "at", "base"]
    rows = screened(spark.createDataFrame([*ROWS, (1, None, 2.0, "", "")], columns), Rules())
    lng, lat = (np.array([row[axis] for row in ROWS]) for axis in (1, 2))
    fine = Histogram.of_points(lng, lat, 40)
    assert count(rows).histogram.key == fine.key
    few = count(rows, most_cells=50)
    assert few.faults == {"missing": 1}
    assert 5 < len(few.histogram.cells) <= 50
    assert few.histogram.key == fine.coarsened(few.histogram.bits).key


def test_too_many_bad_rows_and_nothing_is_written(ingest: Ingest, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "bad.csv", ROWS[:95], ["1,,,,"] * 5)
    ingest(path, "--max-bad", "4%", fails=True)
    assert "5 of 100 rows are bad (missing 5), more than --max-bad 0.04; nothing was written" in ingest.error
    assert ingest.target.database.list_collection_names() == []
    assert [batch["state"] for batch in batches(ingest.target)] == ["refused"]
    assert ingest(path, "--max-bad", "5%")["written"] == 95


def test_a_dry_run_changes_nothing(ingest: Ingest, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "night.csv", ROWS, ["1,,,,"])
    plot = tmp_path / "precisions.svg"
    text = ingest.text(path, "--dry-run", "--batch", "dry", "--plot", str(plot))
    assert "geohash precision (bits)" in plot.read_text()
    assert "nothing was changed" in text
    assert "would be cut into 3 chunks on 3 shards" in text
    assert "max/mean load" in text
    assert "Precision: " in text
    assert ingest.target.database.list_collection_names() == []
    assert batches(ingest.target) == []


def test_columns_chosen_and_renamed(ingest: Ingest, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "night.csv", ROWS[:50])
    outcome = ingest(
        path, "--select", "number,base", "--rename", "number=trip", "--limit", "20", "--gh", "hash"
    )
    assert outcome["written"] == 20
    assert set(ingest.target.find_one() or {}) == {"_id", "trip", "base", "loc", "hash"}
    ingest(path, fails=True)
    assert "keeps its gh in 'hash', not 'gh'; give --gh hash" in ingest.error


def test_equal_rows_are_all_kept(ingest: Ingest, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "night.csv", [*ROWS[:100], *ROWS[:40], *ROWS[:40], ROWS[0]])
    outcome = ingest(path)
    assert (outcome["rows"], outcome["written"]) == (181, 181)
    assert len(ingest.target.distinct("_id")) == 181
    again = ingest(path)
    assert (again["rows"], again["written"], again["already_there"]) == (181, 0, 181)
    assert ingest.target.count_documents({}) == 181


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "there are no points yet to choose by"),
        (ROWS[:1], "all points lie in one cell"),
        (ROWS[:1] * 60, "all points lie in one cell"),
        ([*ROWS[:1], (1, 10.0, 10.0, ROWS[0][3], "x")], "no precision can be balanced over 3 shards"),
    ],
)
def test_degenerate_data_in_words(ingest: Ingest, tmp_path: Path, rows: list[Any], words: str) -> None:
    outcome = ingest(write_csv(tmp_path / "night.csv", rows))
    assert words in outcome["precision"]["reason"]
    assert outcome["written"] == ingest.target.count_documents({}) == len(rows)


def test_an_array_in_a_line_of_json_and_a_field_in_few_documents(
    ingest: Ingest, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    rare = [{"at": [x, y], "n": n} for n, x, y, *_ in ROWS[:1500]]
    rare[1400]["seen"] = {"by": "one", "times": [1, 2]}
    database.staging.insert_many(rare)
    outcome = ingest("--from", f"{database.name}.staging", "--point", "at")
    assert outcome["written"] == 1500
    # A document of the staging collection is known by its _id: what was corrected there replaces what was here.
    database.staging.update_one({"n": 7}, {"$set": {"at": [2.0, 48.0], "n": 7000}})
    outcome = ingest("--from", f"{database.name}.staging", "--point", "at", "--batch", "again")
    assert (outcome["written"], outcome["replaced"], outcome["already_there"]) == (0, 1, 1499)
    assert ingest.target.count_documents({}) == 1500
    assert ingest.target.find_one({"n": 1400})["seen"] == {"by": "one", "times": [1, 2]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either INPUT files or --from"),
        (["a.csv", "--from", "a.b"], "give either INPUT files or --from"),
        (["a.csv", "--point", "p", "--lon", "x"], "give either --point or --lon and --lat"),
        (["a.csv", "--bounds", "1,2,3"], "four numbers are needed"),
        (["a.csv", "--drift", "0.5"], "1 or more"),
    ],
)
def test_what_cannot_be_meant(ingest: Ingest, arguments: list[str], message: str) -> None:
    ingest(*arguments, fails=True)
    assert message in ingest.error


def test_a_collection_that_is_not_ours(ingest: Ingest, tmp_path: Path) -> None:
    ingest.target.insert_one({"x": 1})
    ingest(write_csv(tmp_path / "night.csv", ROWS[:5]), fails=True)
    assert "has documents and was never adopted" in ingest.error
    assert ingest.target.count_documents({}) == 1
