"""Ingest, really killed: the driver, an executor, a shard's mongod, the mongos. In the end nothing is lost or twice."""

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

import pytest
from ingest_helpers import Ingest, city, write_csv
from processes import children, kill_all
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pyspark.sql import SparkSession
from spark_options import QUICK_JAVA, QUICK_START

from spark_jobs import loading
from spark_jobs.session import build_session
from spatialnosql.cluster import LocalCluster
from spatialnosql.cluster.local import bring_up
from spatialnosql.cluster.programs import Programs
from spatialnosql.ledger import batches
from spatialnosql.metadata import metadata_collection
from spatialnosql.verify import verify

pytestmark = [pytest.mark.spark, pytest.mark.mongo]
ROOT = Path(__file__).resolve().parents[1]
ROWS = [*city(8_000), *city(8_000)[:500]]  # some of them twice
BAD = ["1,,,,"] * 7


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture(scope="module")
def own(programs: Programs) -> Iterator[LocalCluster]:
    """A cluster of these tests alone: its members die here."""
    with LocalCluster(shards=3) as cluster:
        yield cluster


@pytest.fixture
def ingest(
    spark: SparkSession,
    own: LocalCluster,
    programs: Programs,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ingest]:
    monkeypatch.setattr(loading, "BATCH", 100)  # slow enough to be met half way
    monkeypatch.setattr(loading, "PAUSE_S", 0.5)
    with MongoClient[dict[str, Any]](own.uri, serverSelectionTimeoutMS=10_000) as client:
        name = "killed_" + "".join(c for c in request.node.name if c.isalnum())[:30]
        yield Ingest(own.uri, client[name].trips, capsys)
        client.drop_database(name)


def check_end(ingest: Ingest, outcome: dict[str, Any]) -> None:
    """The end is that of a run which nobody disturbed."""
    target = ingest.target
    assert (outcome["rows"], outcome["written"], outcome["quarantined"]) == (8_507, 8_500, 7)
    assert outcome["accounted"] == 8_507
    numbers = sorted(document["number"] for document in target.find({}, {"number": 1}))
    assert numbers == sorted(row[0] for row in ROWS)
    assert target.database.trips_quarantine.count_documents({}) == 7
    assert verify(target).is_sound
    stored = metadata_collection(target).find_one({"_id": target.full_name})
    assert (stored["state"], stored["documents"]) == ("ready", 8_500)
    assert "loc_2dsphere" in target.index_information()
    assert [batch["state"] for batch in batches(target)] == ["done"]


def when_half_way(target: Any, action: Callable[[], None], documents: int = 1_000) -> threading.Thread:
    """Do something as soon as the collection has some documents, but not all."""

    def watch() -> None:
        end = time.monotonic() + 180
        while time.monotonic() < end:
            with contextlib.suppress(PyMongoError):
                if target.estimated_document_count() >= documents:
                    action()
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("member", ["shard1", "mongos"])
def test_a_member_that_comes_back(
    ingest: Ingest, own: LocalCluster, programs: Programs, tmp_path: Path, member: str
) -> None:
    """The run itself waits for it and goes on."""
    killed = []

    def kill() -> None:
        killed.append(own.pids[member])
        os.kill(own.pids[member], signal.SIGKILL)
        time.sleep(1.0)
        bring_up(own.state, programs)

    thread = when_half_way(ingest.target, kill)
    outcome = ingest(write_csv(tmp_path / "night.csv", ROWS, BAD), "--batch", "night")
    thread.join()
    assert killed
    check_end(ingest, outcome)


def test_a_shard_that_stays_away(
    ingest: Ingest, own: LocalCluster, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run gives up; the next one, when the shard is back, goes on."""
    monkeypatch.setattr(loading, "PATIENCE_S", 1.0)
    path = write_csv(tmp_path / "night.csv", ROWS, BAD)
    uri = ingest.uri
    ingest.uri = f"{uri}?serverSelectionTimeoutMS=2000&socketTimeoutMS=5000"
    thread = when_half_way(ingest.target, lambda: os.kill(own.pids["shard1"], signal.SIGKILL))
    ingest(path, "--batch", "night", fails=True)
    thread.join()
    ingest.uri = uri
    bring_up(own.state, programs)
    assert next(batch["state"] for batch in batches(ingest.target)) in ("failed", "loading")
    assert 0 < ingest.target.count_documents({}) < 8_500
    outcome = ingest(path, "--batch", "night")
    assert outcome["attempts"] == 2
    check_end(ingest, outcome)


def driver(ingest: Ingest, path: str, *options: str) -> subprocess.Popen[bytes]:
    """The job in a process of its own, with small batches."""
    code = "import sys; from spark_jobs import loading; loading.BATCH = 100\n"
    code += "from spatialnosql.cli import main; sys.exit(main())"
    arguments = [
        "ingest",
        path,
        "--into",
        ingest.target.full_name,
        "--uri",
        ingest.uri,
        "--batch",
        "night",
        "--json",
    ]
    java = f"spark.driver.extraJavaOptions={QUICK_JAVA}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--spark-conf", java, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_the_driver(ingest: Ingest, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "night.csv", ROWS, BAD)
    process = driver(ingest, path, "--master", "local[2]")
    thread = when_half_way(ingest.target, lambda: kill_all(process.pid))
    process.communicate(timeout=240)
    thread.join()
    assert process.returncode == -signal.SIGKILL
    assert 0 < ingest.target.count_documents({}) < 8_500
    assert [batch["state"] for batch in batches(ingest.target)] == ["loading"]
    outcome = ingest(path, "--batch", "night")
    assert outcome["attempts"] == 2
    check_end(ingest, outcome)


def test_an_executor(ingest: Ingest, tmp_path: Path) -> None:
    """Executors of their own processes: Spark runs the task again, whose rows are there in part already."""
    path = write_csv(tmp_path / "night.csv", ROWS, BAD)
    process = driver(
        ingest, path, "--master", "local-cluster[2,1,1024]", "--spark-conf", "spark.executor.memory=1g"
    )
    killed: list[int] = []

    def kill() -> None:
        for pid in children(process.pid):
            with contextlib.suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return

    thread = when_half_way(ingest.target, kill)
    out, error = process.communicate(timeout=300)
    thread.join()
    assert killed
    assert process.returncode == 0, error.decode()
    check_end(ingest, json.loads(out.splitlines()[-1]))
