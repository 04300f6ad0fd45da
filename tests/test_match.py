"""``spatialnosql match``: exactly the brute-force matches, from everywhere, to everywhere; again and killed."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bson import ObjectId
from matching_world import FIRST, RULES, World, brute_force, make_world
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_JAVA, QUICK_START

from spark_jobs import match_job, match_parts
from spark_jobs.match_parts import choose
from spark_jobs.session import build_session
from spatialnosql.cli import main
from spatialnosql.cluster import LocalCluster, connect
from spatialnosql.cluster.local import bring_up
from spatialnosql.cluster.programs import Programs
from spatialnosql.metadata import DATABASE, metadata_collection
from spatialnosql.subscriptions.store import Subscriptions

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[1]
WORLD = make_world(1, 120, 1500)
COLUMNS = ("--text", "text", "--time", "at", "--id", "id")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Subscriptions:
    made = Subscriptions(database.alerts, RULES)
    made.add_many(WORLD.subscriptions)
    return made


class Match:
    """``spatialnosql match`` in this process."""

    def __init__(self, uri: str, alerts: Subscriptions, capsys: pytest.CaptureFixture[str]) -> None:
        self._uri, self._alerts, self._capsys = uri, alerts, capsys

    def __call__(self, *arguments: str, fails: int = 0, text: bool = False) -> Any:
        self._capsys.readouterr()
        shape = [] if text else ["--json"]
        code = main(["match", self._alerts.collection.full_name, *arguments, "--uri", self._uri, *shape])
        captured = self._capsys.readouterr()
        assert code == fails, captured.err
        if fails or text:
            return captured.err if fails else captured.out
        return json.loads(captured.out.splitlines()[-1])

    def stored(self) -> list[tuple[str, Any]]:
        """The pairs in MongoDB; each owner's must be the owner's own."""
        owners = {one.id: one.owner for one in WORLD.subscriptions}
        database, name = self._alerts.collection.database, self._alerts.collection.name
        found = []
        for bucket in database[f"{name}_matches"].find():
            for match in bucket["matches"]:
                assert owners[match["id"]] == bucket["owner"]
                found.append((match["id"], match["object"]))
        named = {one["_id"] for one in database[f"{name}_matched"].find({}, {"_id": 1})}
        assert named == {object_ for _, object_ in found}
        return sorted(found)


@pytest.fixture
def match(
    spark: SparkSession, cluster: Any, alerts: Subscriptions, capsys: pytest.CaptureFixture[str]
) -> Match:
    return Match(cluster.uri, alerts, capsys)


def test_files_into_mongodb_again_and_with_more(match: Match, tmp_path: Path) -> None:
    expected = sorted(WORLD.expected())
    assert len(expected) > 1000
    first = WORLD.write(tmp_path / "a.parquet", WORLD.objects[:1000])
    outcome = match(first, *COLUMNS)
    assert (outcome["rows"], outcome["known"]) == (1000, 0)
    assert outcome["pairs"] == len(match.stored()) > 0
    both = [first, WORLD.write(tmp_path / "b.parquet", WORLD.objects[1000:])]
    again = match(*both, *COLUMNS)
    assert match.stored() == expected
    assert (again["rows"], again["known"]) == (1500, outcome["matched"])
    third = match(*both, *COLUMNS)
    assert (third["pairs"], third["known"]) == (0, len({object_ for _, object_ in expected}))
    assert match.stored() == expected


def test_files_into_parquet_which_is_replaced(match: Match, tmp_path: Path) -> None:
    path, out = WORLD.write(tmp_path / "a.parquet"), tmp_path / "out.parquet"
    for _ in range(2):
        match(path, *COLUMNS, "--out", str(out))
        rows = pq.read_table(out).to_pylist()
        pairs = [(id_, row["object"]) for row in rows for id_ in row["subscriptions"]]
        assert sorted(pairs) == sorted(WORLD.expected())
    owners = {one.id: one.owner for one in WORLD.subscriptions}
    by_id = {one.id: one for one in WORLD.objects}
    for row in rows:
        assert [owners[id_] for id_ in row["subscriptions"]] == row["owners"]
        assert (row["lng"], row["lat"], row["at"]) == (
            by_id[row["object"]].lng,
            by_id[row["object"]].lat,
            by_id[row["object"]].at,
        )
    assert [one.name for one in tmp_path.iterdir() if "out" in one.name] == ["out.parquet"]
    other = tmp_path / "mine.parquet"
    other.mkdir()
    assert "was not made by a matching" in match(path, *COLUMNS, "--out", str(other), fails=1)
    assert match.stored() == []


def test_the_console(match: Match, tmp_path: Path) -> None:
    path = WORLD.write(tmp_path / "a.parquet")
    said = match(path, *COLUMNS, "--out", "console", "--limit", "5", text=True)
    lines = said.splitlines()
    assert [line.startswith("owner ") for line in lines[:6]] == [True] * 5 + [False]
    assert f"{len(WORLD.expected()):,}" in said
    assert "objects that somebody wanted" in said
    found = match(path, *COLUMNS, "--out", "console", "--limit", "5")["found"]
    assert {(one["subscription"], one["object"]) for one in found} <= WORLD.expected()


def test_rows_without_place_time_or_identifier(match: Match, alerts: Subscriptions, tmp_path: Path) -> None:
    lines = [
        {"words": "flood", "lng": 10.5, "lat": 50.5, "at": "2026-03-01T00:00:00Z"},
        {"words": "flood", "lng": 10.5, "lat": 50.5, "at": "2026-03-01T00:00:00Z"},  # the same again
        {"words": "flood", "lng": 10.5, "lat": 50.5, "at": "some day"},
        {"words": "flood", "lng": None, "lat": 50.5, "at": "2026-03-01T00:00:00Z"},
        {"words": "flood", "lng": 10.5, "lat": 150.5, "at": "2026-03-01T00:00:00Z"},
        {"words": None, "lng": 10.5, "lat": 50.5, "at": "2026-03-01T00:00:00Z"},
    ]
    alerts.remove([one.id for one in WORLD.subscriptions])
    alerts.add("ann", "floods", [10, 50, 11, 51], id="sub-0")
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    outcome = match(str(path), "--text", "words", "--time", "at")
    assert (outcome["rows"], outcome["no_place"], outcome["no_time"]) == (6, 2, 1)
    assert (outcome["matched"], outcome["pairs"]) == (3, 2)


def ingest(cluster: Any, path: str, into: str, *more: str) -> None:
    arguments = ["ingest", path, "--into", into, "--lon", "lng", "--lat", "lat", "--key", "id"]
    assert main([*arguments, "--mark", "batch", "--uri", cluster.uri, *more]) == 0


def test_what_was_ingested_since_the_last_run(
    match: Match, cluster: Any, alerts: Subscriptions, tmp_path: Path
) -> None:
    into = f"{alerts.collection.database.name}.reports"
    fields = ("--text", "text", "--time", "at")
    assert "ingest with --mark" in match(into, *fields, fails=1)
    nights = [WORLD.objects[:600], WORLD.objects[600:900], WORLD.objects[900:]]
    seen: list[Any] = []
    for number, night in enumerate(nights[:2]):
        ingest(cluster, WORLD.write(tmp_path / f"{number}.parquet", night), into)
        seen += night
        outcome = match(into, *fields)
        assert outcome["rows"] == len(night)
        assert match.stored() == sorted(brute_force(WORLD.subscriptions, seen))
    assert match(into, *fields)["read"] == f"nothing was ingested into {into} since the last run"
    # The next night, and the one before again: what is the same is not new.
    ingest(cluster, WORLD.write(tmp_path / "again.parquet", [*nights[1], *nights[2]]), into)
    outcome = match(into, *fields)
    assert (outcome["rows"], outcome["known"]) == (600, 0)
    assert match.stored() == sorted(WORLD.expected())
    index = alerts.collection.database.reports.index_information()
    assert "batch_1_gh_1" in index
    metadata_collection(alerts.collection).delete_many({"_id": into})


def test_a_time_range_and_a_filter_of_a_collection(
    match: Match, cluster: Any, alerts: Subscriptions, tmp_path: Path
) -> None:
    into = f"{alerts.collection.database.name}.reports"
    ingest(cluster, WORLD.write(tmp_path / "all.parquet"), into)
    fields = ("--text", "text", "--time", "at")
    middle, end = FIRST + dt.timedelta(hours=4), FIRST + dt.timedelta(hours=7)
    outcome = match(into, *fields, "--since", middle.isoformat(), "--until", end.isoformat())
    between = [one for one in WORLD.objects if middle <= one.at < end]
    assert outcome["rows"] == len(between) > 100
    assert match.stored() == sorted(brute_force(WORLD.subscriptions, between))
    # An overlapping range tells only of what is new.
    outcome = match(into, *fields, "--until", end.isoformat(), "--filter", '{"id": {"$lt": 1000}}')
    early = [one for one in WORLD.objects if one.at < end and one.id < 1000]
    assert outcome["rows"] == len(early)
    assert match.stored() == sorted({*brute_force(WORLD.subscriptions, [*early, *between])})
    metadata_collection(alerts.collection).delete_many({"_id": into})


def test_only_where_somebody_has_subscribed_is_read(
    match: Match, cluster: Any, alerts: Subscriptions, tmp_path: Path
) -> None:
    """Of a collection of the whole continent, a small part."""
    far = make_world(2, 1, 4000, (-10.0, 35.0, 40.0)).objects
    moved = [*WORLD.objects, *(type(one)(one.id + 10_000, one.text, one.lng, one.lat, one.at) for one in far)]
    into = f"{alerts.collection.database.name}.reports"
    ingest(cluster, WORLD.write(tmp_path / "all.parquet", moved), into)
    outcome = match(into, "--text", "text", "--time", "at")
    assert "ranges of gh" in outcome["read"]
    assert 1500 <= outcome["rows"] < 3000
    assert match.stored() == sorted(brute_force(WORLD.subscriptions, moved))
    metadata_collection(alerts.collection).delete_many({"_id": into})


@pytest.mark.parametrize("kind", ["ObjectId", "text"])
def test_a_collection_that_is_not_adopted(match: Match, alerts: Subscriptions, kind: str) -> None:
    database = alerts.collection.database
    ids: dict[int, Any] = {
        one.id: ObjectId() if kind == "ObjectId" else f"n{one.id}" for one in WORLD.objects
    }
    database.plain.insert_many(
        [
            {
                "_id": ids[one.id],
                "title": one.text,
                "more": [one.text],
                "where": {"type": "Point", "coordinates": [one.lng, one.lat]},
                "at": one.at,
            }
            for one in WORLD.objects
        ]
    )
    outcome = match(
        f"{database.name}.plain", "--text", "title,more", "--time", "at", "--point", "where", "--all"
    )
    assert "never adopted" in outcome["read"]
    assert match.stored() == sorted((id_, ids[number]) for id_, number in WORLD.expected())


def test_an_index_that_is_kept(match: Match, alerts: Subscriptions, tmp_path: Path) -> None:
    path, index = WORLD.write(tmp_path / "a.parquet", WORLD.objects[:700]), tmp_path / "index"
    match(path, *COLUMNS, "--index", str(index))
    alerts.remove([one.id for one in WORLD.subscriptions[:30]])
    rest = WORLD.write(tmp_path / "b.parquet", WORLD.objects[700:])
    outcome = match(rest, *COLUMNS, "--index", str(index))
    assert outcome["subscriptions_count"] == 90
    early = brute_force(WORLD.subscriptions, WORLD.objects[:700])
    late = brute_force(WORLD.subscriptions[30:], WORLD.objects[700:])
    assert match.stored() == sorted(early | late)
    assert (index / "state.json").exists()


def test_killed_in_the_middle_and_run_again(
    match: Match, cluster: Any, alerts: Subscriptions, tmp_path: Path
) -> None:
    """Killed when the first objects are there, and the buckets may or may not be."""
    many = World(WORLD.subscriptions, make_world(7, 120, 12_000).objects)
    path = many.write(tmp_path / "many.parquet")
    database = alerts.collection.database
    options = [f"--spark-conf=spark.driver.extraJavaOptions={QUICK_JAVA}", "--master", "local[2]"]
    command = [
        sys.executable,
        "-m",
        "spatialnosql",
        "match",
        alerts.collection.full_name,
        path,
        *COLUMNS,
        *options,
    ]
    child = subprocess.Popen(
        [*command, "--uri", cluster.uri],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < end:
        if database.alerts_matched.estimated_document_count():
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    own = database.client[DATABASE]
    assert own.match_runs.count_documents({"matches": f"{database.name}.alerts_matches"}) == 1
    outcome = match(path, *COLUMNS)
    assert match.stored() == sorted(many.expected())
    assert outcome["rows"] == 12_000
    assert own.match_runs.count_documents({"matches": f"{database.name}.alerts_matches"}) == 0
    writing = {"matches": f"{database.name}.alerts_matches", "state": "writing"}
    assert own.match_tasks.count_documents(writing) == 0


@pytest.mark.parametrize("partitioner", ["hybrid", "kdtree", "hash", "salb"])
def test_subscriptions_in_partitions(
    match: Match, alerts: Subscriptions, tmp_path: Path, partitioner: str
) -> None:
    """Some are gone, some have come since the index was built, and some objects come twice."""
    path, index = (
        WORLD.write(tmp_path / "a.parquet", [*WORLD.objects, *WORLD.objects[:50]]),
        tmp_path / "index",
    )
    alerts.remove([one.id for one in WORLD.subscriptions[100:]])
    match(WORLD.write(tmp_path / "none.parquet", WORLD.objects[:1]), *COLUMNS, "--index", str(index))
    alerts.collection.database.drop_collection("alerts_matches")
    alerts.collection.database.drop_collection("alerts_matched")
    alerts.add_many(WORLD.subscriptions[100:])
    alerts.remove([one.id for one in WORLD.subscriptions[:20]])
    outcome = match(path, *COLUMNS, "--index", str(index), "--partitioner", partitioner, "--partitions", "5")
    assert f"5 partitions by {partitioner}, as asked for" in outcome["held"]
    expected = sorted(brute_force(WORLD.subscriptions[20:], WORLD.objects))
    assert match.stored() == expected
    assert (outcome["rows"], outcome["pairs"]) == (1550, len(expected))
    assert not (index / "partitions").exists()


def test_plans_are_made_from_objects_of_everywhere(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thousand objects are in the west; a plan that has seen only them knows nothing of the east."""
    monkeypatch.setattr(match_parts, "SAMPLED", 400)
    reads = SimpleNamespace(read=lambda texts: (np.arange(len(texts) + 1), np.zeros(len(texts), np.int32)))
    monkeypatch.setattr(match_parts, "index_reader", lambda _: SimpleNamespace(terms=reads))
    columns = "id __id", "'a' __text", "id / 100 __lng", "0D __lat", "0L __at"
    frame = spark.range(2_000, numPartitions=4).selectExpr(*columns)
    found = match_parts.sampled(frame, SimpleNamespace(now_ms=0))
    assert 300 < len(found) < 500
    assert np.ptp(found.lng) > 19
    assert len(match_parts.sampled(frame.limit(300), SimpleNamespace(now_ms=0))) == 300


def test_partitions_into_parquet_when_the_index_does_not_fit(match: Match, tmp_path: Path) -> None:
    path, out = WORLD.write(tmp_path / "a.parquet"), str(tmp_path / "out.parquet")
    assert "shared: the index takes" in match(path, *COLUMNS, "--out", out)["held"]
    assert choose("auto", None, 100.0, 250.0, 2)[:2] == ("hybrid", 5)
    assert choose("auto", None, 100.0, 50.0, 2)[:2] == (None, 1)
    outcome = match(path, *COLUMNS, "--out", out, "--partitions", "2")
    assert "2 partitions by hybrid" in outcome["held"]
    pairs = [(id_, row["object"]) for row in pq.read_table(out).to_pylist() for id_ in row["subscriptions"]]
    assert sorted(pairs) == sorted(WORLD.expected())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.parquet", "--text", "t", "--since", "2026-01-01"], "give --time"),
        (["x.parquet", "--text", "t", "--time", "at", "--since", "yesterday"], "write it as in"),
        (
            ["x.parquet", "--text", "t", "--time", "at", "--since", "2026-02-01", "--until", "2026-01-01"],
            "not before",
        ),
        (["x.parquet", "--text", "t", "--out", "city.matches"], "give FOLDER.parquet or console"),
        (["x.parquet", "--text", ","], "which columns have the text"),
        (["city.reports", "--text", "t", "--lon", "x"], "documents have a location"),
        (["x.parquet", "--text", "t", "--filter", "{}"], "the objects of files have none"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "city.alerts", *arguments, "--uri", "mongodb://127.0.0.1:1"]) == 1
    assert said in capsys.readouterr().err


def test_no_subscriptions_and_no_such_column(match: Match, alerts: Subscriptions, tmp_path: Path) -> None:
    path = WORLD.write(tmp_path / "a.parquet", WORLD.objects[:10])
    assert "no column 'words'" in match(path, "--text", "words", fails=1)
    alerts.drop()
    assert "has no subscriptions" in match(path, *COLUMNS, fails=1)


def test_a_shard_that_comes_back(
    spark: SparkSession,
    programs: Programs,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run itself begins again, and what was finished is not told twice."""
    monkeypatch.setattr(match_job, "PAUSE_S", 1.0)
    many = World(WORLD.subscriptions, make_world(8, 120, 8_000).objects)
    path = many.write(tmp_path / "many.parquet")
    with LocalCluster(shards=2) as own, connect(own.uri) as client:
        alerts = Subscriptions(client.city.alerts, RULES)
        alerts.add_many(WORLD.subscriptions)
        match = Match(own.uri, alerts, capsys)
        killed: list[int] = []

        def kill() -> None:
            while not client.city.alerts_matched.estimated_document_count():
                time.sleep(0.002)
            killed.append(own.pids["shard1"])
            os.kill(own.pids["shard1"], signal.SIGKILL)
            time.sleep(0.5)
            bring_up(own.state, programs)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        outcome = match(path, *COLUMNS)
        thread.join()
        assert killed
        assert match.stored() == sorted(many.expected())
        assert outcome["rows"] == 8_000
