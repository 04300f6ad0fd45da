"""Ingest, night after night: appended, corrected, cut anew where it drifted; run again, nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ingest_helpers import Ingest, city, write_csv
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_START

from spark_jobs.session import build_session
from spatialnosql.analyze import distribution
from spatialnosql.ledger import batches
from spatialnosql.metadata import histogram_from_document, metadata_collection
from spatialnosql.sharding import chunks, unevenness
from spatialnosql.verify import verify

pytestmark = pytest.mark.spark
FIRST = city(2000)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture
def ingest(
    spark: SparkSession, cluster: Any, database: Database[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> Ingest:
    return Ingest(cluster.uri, database.trips, capsys)


def by_number(target: Any) -> dict[int, tuple[float, float, str]]:
    documents = list(target.find())
    found = {d["number"]: (*d["loc"]["coordinates"], d["base"]) for d in documents}
    assert len(found) == len(documents), "a row is there twice"
    return found


def expected(*nights: list[Any]) -> dict[int, tuple[float, float, str]]:
    return {row[0]: (row[1], row[2], row[4]) for night in nights for row in night}


def test_a_second_night_is_appended(ingest: Ingest, tmp_path: Path) -> None:
    second = city(1000, 8, first=2000)
    ingest(write_csv(tmp_path / "1.csv", FIRST))
    before = chunks(ingest.target)
    outcome = ingest(write_csv(tmp_path / "2.csv", second), "--batch", "second")
    assert (outcome["written"], outcome["already_there"], outcome["documents"]) == (1000, 0, 3000)
    assert "left as it is" in outcome["placement"]
    assert [chunk["min"] for chunk in chunks(ingest.target)] == [chunk["min"] for chunk in before]
    assert by_number(ingest.target) == expected(FIRST, second)
    stored = metadata_collection(ingest.target).find_one({"_id": ingest.target.full_name})
    assert histogram_from_document(stored["histogram"]).total == stored["documents"] == 3000
    assert [batch["state"] for batch in batches(ingest.target)] == ["done", "done"]
    assert verify(ingest.target).is_sound


def test_what_drifted_is_cut_anew(ingest: Ingest, tmp_path: Path) -> None:
    """The second night lies elsewhere: all of it would go to one shard."""
    elsewhere = city(3000, 8, lng=2.35, lat=48.85, first=2000)
    ingest(write_csv(tmp_path / "1.csv", FIRST))
    outcome = ingest(write_csv(tmp_path / "2.csv", elsewhere))
    assert "new split points" in outcome["placement"]
    assert "the fullest shard would hold" in outcome["placement"]
    assert unevenness(distribution(ingest.target, "gh")) < 1.1
    assert by_number(ingest.target) == expected(FIRST, elsewhere)


def test_resharded_when_asked(ingest: Ingest, tmp_path: Path) -> None:
    elsewhere = city(3000, 8, lng=2.35, lat=48.85, first=2000)
    ingest(write_csv(tmp_path / "1.csv", FIRST))
    outcome = ingest(write_csv(tmp_path / "2.csv", elsewhere), "--reshard")
    assert "resharded into 3 ranges (asked for)" in outcome["placement"]
    assert outcome["max_over_mean"] < 1.1
    assert by_number(ingest.target) == expected(FIRST, elsewhere)


def test_a_corrected_row_replaces_the_old_one_wherever_it_lives(ingest: Ingest, tmp_path: Path) -> None:
    ingest(write_csv(tmp_path / "1.csv", FIRST), "--key", "number")
    # By 100 degrees, to another shard; by a little; not at all, but another text; and unchanged.
    far = [(n, round(x + 0.9, 6), round(y + 0.9, 6), at, b) for n, x, y, at, b in FIRST[:20]]
    near = [(n, round(x + 1e-5, 6), y, at, b) for n, x, y, at, b in FIRST[20:40]]
    text = [(n, x, y, at, "changed") for n, x, y, at, b in FIRST[40:70]]
    new = city(5, 9, first=5000)
    night = [*far, *near, *text, *FIRST[70:100], *new]
    on = {d["_id"]: d["gh"] for d in ingest.target.find({"number": {"$lt": 20}}, {"gh": 1})}
    outcome = ingest(write_csv(tmp_path / "2.csv", night), "--key", "number", "--batch", "corrections")
    assert (outcome["written"], outcome["replaced"], outcome["already_there"]) == (5, 70, 30)
    assert outcome["moved"] == 40
    assert by_number(ingest.target) == expected(FIRST, night)
    assert all(d["gh"] != on[d["_id"]] for d in ingest.target.find({"number": {"$lt": 20}}, {"gh": 1}))
    assert verify(ingest.target).is_sound
    again = ingest(write_csv(tmp_path / "2.csv", night), "--key", "number", "--batch", "corrections")
    assert (again["written"], again["replaced"], again["already_there"]) == (0, 0, 105)
    assert by_number(ingest.target) == expected(FIRST, night)
    stored = metadata_collection(ingest.target).find_one({"_id": ingest.target.full_name})
    assert stored["documents"] == 2005


def test_copies_on_several_shards_become_one(ingest: Ingest, tmp_path: Path) -> None:
    """Each shard keeps ``_id`` unique for itself only: what an accident left twice is mended by the row."""
    ingest(write_csv(tmp_path / "1.csv", FIRST), "--key", "number")
    ends = [ingest.target.find_one(sort=[("gh", way)]) for way in (1, -1)]
    assert ends[0] is not None
    assert ends[1] is not None
    copy = {**ends[0], "loc": ends[1]["loc"], "gh": ends[1]["gh"]}
    ingest.target.insert_one(copy)
    assert ingest.target.count_documents({"_id": copy["_id"]}) == 2
    outcome = ingest(write_csv(tmp_path / "2.csv", FIRST), "--key", "number")
    assert (outcome["replaced"], outcome["already_there"]) == (1, 1999)
    assert by_number(ingest.target) == expected(FIRST)


def test_of_rows_with_one_key_the_last_counts(ingest: Ingest, tmp_path: Path) -> None:
    later = [(n, x, y, at, "later") for n, x, y, at, b in FIRST[:10]]
    outcome = ingest(write_csv(tmp_path / "1.csv", [*FIRST, *later, *later]), "--key", "number")
    assert (outcome["rows"], outcome["written"], outcome["superseded"]) == (2020, 2000, 20)
    assert by_number(ingest.target) == expected(FIRST, later)


def test_a_key_of_several_columns(ingest: Ingest, tmp_path: Path) -> None:
    rows = [(1, -74.0, 40.7, "2014-08-01T00:00:00", "a|b"), (1, -74.0, 40.7, "2014-08-01T00:00:00", "c")]
    path = write_csv(tmp_path / "1.csv", rows, [",-74,40.7,2014-08-01T00:00:00,b"])
    outcome = ingest(path, "--key", "base,number", "--max-bad", "50%")
    assert sorted(ingest.target.distinct("_id")) == ["a\\|b|1", "c|1"]
    assert outcome["reasons"] == {"missing_key": 1}


def test_one_place_heavier_than_a_shard_is_cut_between_its_documents(ingest: Ingest, tmp_path: Path) -> None:
    parked = [(n, -73.9857, 40.7484, at, b) for n, _, _, at, b in city(3000)]
    outcome = ingest(write_csv(tmp_path / "1.csv", [*parked, *city(300, 9, first=3000)]))
    assert outcome["max_over_mean"] < 1.1
    assert "documents moved" in outcome["placement"]
    assert len(by_number(ingest.target)) == 3300


def test_a_collection_that_was_adopted_is_appended_to(
    ingest: Ingest, tmp_path: Path, database: Database[dict[str, Any]]
) -> None:
    from spatialnosql.adopt import adopt

    documents = [
        {"number": n, "loc": {"type": "Point", "coordinates": [x, y]}, "base": b} for n, x, y, _, b in FIRST
    ]
    database.trips.insert_many(documents)
    adopt(database.trips, "loc")
    second = city(500, 8, first=2000)
    outcome = ingest(write_csv(tmp_path / "2.csv", second))
    assert (outcome["written"], outcome["documents"]) == (500, 2500)
    assert by_number(ingest.target) == expected(FIRST, second)
