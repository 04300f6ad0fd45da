"""``spatialnosql match-stream``: exactly the brute-force matches, from everywhere, to everywhere, killed or not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from match_workload import (
    NOON_MS,
    Pair,
    brute_force,
    moment,
    random_objects,
    random_subscription,
    stored_pairs,
    write_lines,
)
from processes import eventually, kill_all
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_options import QUICK_JAVA, QUICK_START

from spark_jobs.match_stream_job import MatchStream
from spark_jobs.match_stream_work import StreamJob
from spark_jobs.match_work import Objects
from spark_jobs.session import build_session
from spatialnosql.cli import main
from spatialnosql.metadata import DATABASE
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.text import TextRules

pytestmark = [pytest.mark.spark, pytest.mark.mongo]
ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("--text", "text", "--time", "at", "--id", "id")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def spark(cluster: Any) -> SparkSession:
    return build_session("tests", master="local[2]", mongo_uri=cluster.uri, config=QUICK_START)


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Iterator[Subscriptions]:
    """Forty random subscriptions, read by stems."""
    made = Subscriptions(database.alerts, TextRules(stem="english"))
    draw = np.random.default_rng(7)
    made.add_many(random_subscription(draw, f"s{number}") for number in range(40))
    yield made
    made.drop()


@pytest.fixture
def stream(
    spark: SparkSession,
    cluster: Any,
    alerts: Subscriptions,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command, as it answers with --json."""

    def run(
        source: Any, *options: str, checkpoint: Path = tmp_path / "checkpoint", expected: int = 0
    ) -> dict[str, Any]:
        given = ["--checkpoint", str(checkpoint)]
        where = [alerts.collection.full_name, str(source), "--uri", cluster.uri, "--json"]
        code = main(["match-stream", *where, *COLUMNS, *given, *options])
        said = capsys.readouterr()
        assert code == expected, said.err
        outcome: dict[str, Any] = json.loads(said.out.splitlines()[-1])
        outcome["console"] = said.out.splitlines()[:-1]
        return outcome

    return run


def run_again(checkpoint: Path) -> None:
    """Make Spark believe that it was killed before it could note that the last micro-batch was done."""
    commits = checkpoint / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in commits.glob(f"*{last}*"):
        path.unlink()


# -- a folder ----------------------------------------------------------------------------------------------


def test_once_and_once_more_over_a_folder_that_grows(
    stream: Run, alerts: Subscriptions, inbox: Path, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    draw = np.random.default_rng(1)
    first, second = random_objects(draw, 0, 200), random_objects(draw, 200, 100)
    bad: list[Any] = [{"id": 900, "text": "flood", "lng": None, "lat": 2.0, "at": 5}]
    untimed = {"id": 901, "text": "storm", "lng": 0.0, "lat": 0.0}
    write_lines(inbox, "a.json", [*first, *bad, untimed])
    (inbox / "nonsense.json").write_text("this is no object\n")
    expected = brute_force(alerts, [*first, {**untimed, "at": int(time.time() * 1000)}])
    assert any(thing == 901 for _, thing in expected)
    outcome = stream(inbox, "--once")
    assert (outcome["rows"], outcome["no_place"], outcome["no_time"]) == (203, 2, 2)
    assert sorted(stored_pairs(database)) == sorted(expected)
    assert len(expected) > 100

    # The last micro-batch again, one of whose objects has no time of its own: all are known.
    run_again(tmp_path / "checkpoint")
    outcome = stream(inbox, "--once")
    assert (outcome["rows"], outcome["pairs"], outcome["known"]) == (203, 0, outcome["matched"])
    write_lines(inbox, "b.json", [*second, {"text": "flood", "lng": 0.0, "lat": 0.0, "at": NOON_MS}])
    expected |= brute_force(alerts, second)
    outcome = stream(inbox, "--once")
    assert (outcome["rows"], outcome["no_place"]) == (101, 1)  # the last one has no identifier
    assert sorted(stored_pairs(database)) == sorted(expected)
    outcome = stream(inbox, "--once")
    assert (outcome["rows"], outcome["batches"], outcome["latency_s"]) == (0, 0, None)


def test_subscriptions_come_and_go_between_the_micro_batches_of_one_query(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """What an object matches is what brute force says of the subscriptions of that moment."""
    job = StreamJob(
        alerts.collection.full_name,
        Objects((str(inbox),), ("text",), "json", time="at", id="id"),
        checkpoint=str(tmp_path / "checkpoint"),
        schema="id long, text string, lng double, lat double, at long",
        trigger_ms=50,
    )
    draw = np.random.default_rng(2)
    expected: set[Pair] = set()
    with MatchStream(spark, cluster.uri, client, job) as stream:
        query = stream.start()
        assert query is not None
        for turn in range(4):
            objects = random_objects(draw, 1000 * turn, 120)
            expected |= brute_force(alerts, objects)
            write_lines(inbox, f"{turn}.json", objects)
            query.processAllAvailable()
            assert sorted(stored_pairs(database)) == sorted(expected)
            if turn == 2:  # nobody is left
                alerts.remove([one.id for one in alerts.list()])
                continue
            alerts.remove([f"s{number}" for number in range(7 * turn, 7 * turn + 7)])
            alerts.add_many(random_subscription(draw, f"new {turn} {number}") for number in range(5))
            alerts.add_many(random_subscription(draw, f"s{number}") for number in range(30, 34))  # changed
    assert len(expected) > 100
    assert (stream.streamed.rows, stream.streamed.batches) == (480, 4)
    assert stream.streamed.removed == 14 + len(list(range(14, 40))) + 10
    assert (
        database.alerts_matches.database.client[DATABASE].match_runs.count_documents(
            {"matches": f"{alerts.collection.full_name}_matches"}
        )
        == 0
    )


# -- a collection ------------------------------------------------------------------------------------------


def document(thing: dict[str, Any]) -> dict[str, Any]:
    return {
        "_id": thing["id"],
        "text": thing["text"],
        "at": moment(thing["at"]),
        "loc": {"type": "Point", "coordinates": [thing["lng"], thing["lat"]]},
    }


def test_a_change_stream(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """What is there first, what comes, what changes, what came while nobody watched; each exactly once."""
    things = database.things
    client.admin.command("shardCollection", things.full_name, key={"_id": "hashed"})
    objects = Objects((things.full_name,), ("text",), time="at")
    folder = str(tmp_path / "checkpoint")
    name = alerts.collection.full_name
    draw = np.random.default_rng(3)
    before, first, second, third = (random_objects(draw, 1000 * k, 100) for k in range(4))
    things.insert_many(map(document, before))
    expected = brute_force(alerts, before)
    job = StreamJob(name, objects, checkpoint=folder, trigger_ms=200, all_first=True)
    with MatchStream(spark, cluster.uri, client, job) as stream:
        assert stream.start() is not None
        assert sorted(stored_pairs(database)) == sorted(expected)
        expected |= brute_force(alerts, first)
        things.insert_many(map(document, first))
        eventually(lambda: set(stored_pairs(database)) == expected)

        alerts.add("eve", "flood", [-5, -5, 5, 5], id="eve")  # while it runs
        alerts.remove("s3")
        expected |= brute_force(alerts, second)
        assert any(one == "eve" for one, _ in expected)
        things.insert_many(map(document, second))
        things.insert_one({"_id": 9000, "text": {"no": "text"}, "loc": "nowhere", "at": "never"})
        things.update_one({"_id": 9000}, {"$set": {"more": 1}})
        things.delete_one({"_id": 9000})
        changed = {"id": 9001, "text": "flood", "lng": 0.0, "lat": 0.0, "at": NOON_MS}
        things.insert_one(document(changed))
        things.update_one({"_id": 9001}, {"$set": {"other": 1}})  # nothing that is matched
        expected |= brute_force(alerts, [changed])
        eventually(lambda: set(stored_pairs(database)) == expected)
    assert sorted(stored_pairs(database)) == sorted(expected)
    assert stream.streamed.no_place == 1  # 9000 once: when it was looked up it was gone

    things.insert_many(map(document, third))
    expected |= brute_force(alerts, third)
    job = StreamJob(name, objects, checkpoint=folder, once=True)
    with MatchStream(spark, cluster.uri, client, job) as stream:
        stream.run(threading.Event())
    assert sorted(stored_pairs(database)) == sorted(expected)
    assert stream.streamed.latency_s is not None


def test_an_empty_collection_is_waited_for(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """The first document says of which type identifiers are; where the stream begins was noted before that."""
    alerts.add("eve", "flood", [-5, -5, 5, 5], id="eve")
    objects = Objects((f"{database.name}.things",), ("text",), time="at", point="place")
    job = StreamJob(
        alerts.collection.full_name, objects, checkpoint=str(tmp_path / "checkpoint"), trigger_ms=200
    )
    ended, ids = threading.Event(), []

    def insert() -> None:
        thing = {"text": "Floods!", "place": [4.5, 4.5], "at": NOON_MS}
        ids.append(database.things.insert_one(thing).inserted_id)
        try:
            eventually(lambda: ("eve", ids[0]) in stored_pairs(database))
        finally:
            ended.set()

    # The stream runs here: in another thread Spark does not find a connector that was added while it ran.
    with MatchStream(spark, cluster.uri, client, job) as stream:
        thread = threading.Thread(target=insert)
        thread.start()
        stream.run(ended)
        thread.join()
    assert stored_pairs(database).count(("eve", ids[0])) == 1


# -- killed ------------------------------------------------------------------------------------------------


def test_killed_in_the_middle_of_a_micro_batch(
    stream: Run,
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    cluster: Any,
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(4)
    objects = random_objects(draw, 0, 400)
    for number in range(8):
        write_lines(inbox, f"{number}.json", objects[number * 50 : number * 50 + 50])
    expected = brute_force(alerts, objects)
    arguments = [alerts.collection.full_name, str(inbox), *COLUMNS, "--uri", cluster.uri]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[1]"]
    arguments += ["--spark-conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}"]
    arguments += [
        "--spark-conf",
        "spark.sql.files.maxPartitionBytes=1000b",
    ]  # many tasks, one after the other
    process = subprocess.Popen(
        [sys.executable, "-m", "spatialnosql", "match-stream", *arguments],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: database.alerts_matches.find_one() is not None or process.poll() is not None)
    finally:
        kill_all(process.pid)
    said = process.communicate()[1].decode()
    assert process.returncode == -signal.SIGKILL, said
    assert 0 < len(stored_pairs(database)) < len(expected)
    assert not (tmp_path / "checkpoint" / "spark" / "commits" / "0").exists()

    outcome = stream(inbox, "--once")
    assert outcome["rows"] == 400
    assert sorted(stored_pairs(database)) == sorted(expected)


# -- other sinks -------------------------------------------------------------------------------------------


def test_a_parquet_folder_is_replaced_batch_by_batch(
    stream: Run, spark: SparkSession, alerts: Subscriptions, inbox: Path, tmp_path: Path
) -> None:
    out = tmp_path / "matches.parquet"

    def pairs() -> list[Pair]:
        table = ds.dataset(out, partitioning="hive").to_table().to_pylist()
        by_spark = spark.read.parquet(str(out)).select("object", "batch").collect()
        assert sorted(map(tuple, by_spark)) == sorted((row["object"], row["batch"]) for row in table)
        return sorted((one, row["object"]) for row in table for one in row["subscriptions"])

    draw = np.random.default_rng(5)
    first, second = random_objects(draw, 0, 100), random_objects(draw, 100, 100)
    write_lines(inbox, "a.json", first)
    stream(inbox, "--once", "--out", str(out))
    write_lines(inbox, "b.json", second)
    of_first = brute_force(alerts, first)
    stream(inbox, "--once", "--out", str(out))
    assert pairs() == sorted(of_first | brute_force(alerts, second))

    alerts.remove([f"s{number}" for number in range(20)])
    run_again(tmp_path / "checkpoint")
    stream(inbox, "--once", "--out", str(out))
    assert pairs() == sorted(of_first | brute_force(alerts, second))
    assert not list(out.glob(".*"))
    with pytest.raises(AssertionError, match="does not belong to this checkpoint"):
        stream(inbox, "--once", "--out", str(out), checkpoint=tmp_path / "other")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_console_until_a_signal(
    stream: Run, alerts: Subscriptions, inbox: Path, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    alerts.add("eve", "flood", [-5, -5, 5, 5], id="eve")
    rows = [f"{number},flood {number},4.5,4.5,0" for number in range(9)]
    (inbox / "a.csv").write_text("\n".join(["id,text,lng,lat,at", *rows, "9,flood 9,4.5,4.5,0,too many"]))
    checkpoint = tmp_path / "checkpoint"

    def end() -> None:
        with contextlib.suppress(AssertionError):
            eventually(lambda: (checkpoint / "spark" / "commits" / "0").exists())
        os.kill(os.getpid(), sent)

    thread = threading.Thread(target=end)
    thread.start()
    schema = "id long, text string, lng double, lat double, at long"
    outcome = stream(inbox, "--out", "console", "--limit", "3", "--schema", schema, expected=code)
    thread.join()
    assert len(outcome["console"]) == 3
    assert all("eve  4.50000,4.50000  flood" in line for line in outcome["console"])
    assert (outcome["rows"], outcome["no_place"], outcome["matched"]) == (10, 1, 9)


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --checkpoint FOLDER"),
        (["--out", "console", "--all-first"], "--all-first is for collections"),
        (["--out", "console", "--trigger", "soon"], "--trigger soon: give a number and ms, s or m"),
        (["--out", "console", "--format", "json"], "is empty: say what files will have"),
        (["--out", "console", "--format", "geojson"], "GeoJSON files cannot be streamed"),
        (["--out", "console", "--format", "json", "--schema", "text strange"], "STRANGE"),
    ],
)
def test_errors_in_one_line(
    spark: SparkSession,
    cluster: Any,
    alerts: Subscriptions,
    inbox: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = [alerts.collection.full_name, str(inbox), "--text", "text", "--uri", cluster.uri, "--once"]
    assert main(["match-stream", *where, *options]) == 1
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert said[-1].startswith("spatialnosql: ")


def test_a_failure_in_a_micro_batch_is_told_in_one_line(
    spark: SparkSession, cluster: Any, alerts: Subscriptions, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inbox / "a.csv").write_text("text,lng,lat\nflood,1,2\n")
    schema = "lat double, lng double, text string"  # another order than the header's
    where = [alerts.collection.full_name, str(inbox), "--text", "text", "--uri", cluster.uri, "--once"]
    assert main(["match-stream", *where, "--out", "console", "--schema", schema]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("spatialnosql: Spark: ")
    assert "header" in said[-1]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["match-stream", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--checkpoint FOLDER" in said
    assert "--trigger TIME" in said
