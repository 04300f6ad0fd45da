"""``match-stream --balance``: partitions move all the time, the job is killed amid a move, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from match_workload import Pair, brute_force, random_objects, random_subscription, stored_pairs, write_lines
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
from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing import policies
from spatialnosql.subscriptions.balancing.plan_edits import move_cells, split_cell_by_text
from spatialnosql.subscriptions.balancing.policies import Round
from spatialnosql.subscriptions.balancing.strategies import Strategies, Strategy
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.text import TextRules

pytestmark = [pytest.mark.spark, pytest.mark.mongo]
ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "id long, text string, lng double, lat double, at long"


class Restless:
    """Moves a third of all cells after every round, parts some by text, and now and then begins a second strategy."""

    def __init__(self, plan: Plan) -> None:
        self.strategies: Strategies = (Strategy(plan),)
        self._draw = np.random.default_rng(9)
        self._rounds = 0

    def end_round(self, seen: Round) -> list[str]:
        self._rounds += 1
        plan = self.strategies[-1].plan
        for _ in range(6):
            source, target = self._draw.choice(plan.partitions, 2, replace=False).tolist()
            cells = self._draw.choice(plan.grid.cells, plan.grid.cells // 3, replace=False)
            plan = move_cells(plan, cells, source, target)
        whole = np.flatnonzero(plan.leaf_home[plan.leaf_of_cell] >= 0)
        for cell in self._draw.permutation(whole)[:5].tolist():
            home = int(plan.leaf_home[plan.leaf_of_cell[cell]])
            moving = self._draw.random(plan.frequencies.size) < 0.5
            plan = split_cell_by_text(plan, cell, moving, (home + 1) % plan.partitions)
        if self._rounds % 3 == 2:
            self.strategies = (*self.strategies[-1:], Strategy(plan, seen.next_number))
        else:
            self.strategies = (Strategy(plan),)
        return ["something"]


@pytest.fixture(scope="module")
def spark(cluster: Any) -> SparkSession:
    return build_session("tests", master="local[2]", mongo_uri=cluster.uri, config=QUICK_START)


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Iterator[Subscriptions]:
    made = Subscriptions(database.alerts, TextRules(stem="english"))
    draw = np.random.default_rng(7)
    made.add_many(random_subscription(draw, f"s{number}") for number in range(60))
    yield made
    made.drop()


def job_of(alerts: Subscriptions, inbox: Path, tmp_path: Path, **more: Any) -> StreamJob:
    return StreamJob(
        alerts.collection.full_name,
        Objects((str(inbox),), ("text",), "json", time="at", id="id"),
        checkpoint=str(tmp_path / "checkpoint"),
        schema=SCHEMA,
        trigger_ms=50,
        **more,
    )


def test_partitions_that_move_all_the_time_lose_nothing_and_tell_nothing_twice(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(policies.BALANCES, "restless", Restless)
    job = job_of(alerts, inbox, tmp_path, balance="restless", partitions=3)
    draw = np.random.default_rng(2)
    expected: set[Pair] = set()
    with MatchStream(spark, cluster.uri, client, job) as stream:
        query = stream.start()
        assert query is not None
        for turn in range(5):
            objects = random_objects(draw, 1000 * turn, 100)
            expected |= brute_force(alerts, objects)
            write_lines(inbox, f"{turn}.json", objects)
            query.processAllAvailable()
            assert sorted(stored_pairs(database)) == sorted(expected)
            alerts.remove([f"s{number}" for number in range(4 * turn, 4 * turn + 4)])
            alerts.add_many(random_subscription(draw, f"new {turn} {number}") for number in range(4))
            alerts.add("ann", f"unheard{turn} OR storm", [-5, -5, 5, 5], id=f"word {turn}")
        folder = Path(stream._keeper.version.folder) / "partitions"
        assert len(list(folder.glob("partition-*"))) <= 6  # those of two versions
    assert len(expected) > 200
    done = stream.streamed.balanced
    assert done is not None
    assert (done.versions, done.moves) == (5, 4)
    assert done.moved > 20
    assert stream.streamed.latency_s is not None
    assert "plan 3: something; " in capsys.readouterr().err


@pytest.mark.parametrize("balance", ["none", "swarm", "local", "global"])
def test_every_balance_is_exact_and_is_taken_up_again(
    balance: str,
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(3)
    expected: set[Pair] = set()
    for start in range(2):
        job = job_of(alerts, inbox, tmp_path, balance=balance, partitions=3, once=True)
        objects = random_objects(draw, 1000 * start, 120)
        expected |= brute_force(alerts, objects)
        write_lines(inbox, f"{start}.json", objects)
        with MatchStream(spark, cluster.uri, client, job) as stream:
            stream.run(threading.Event())
        assert sorted(stored_pairs(database)) == sorted(expected)
        assert (tmp_path / "checkpoint" / "balance.json").exists()
        document = stream.streamed.to_document()
        assert (document["balanced"]["partitions"], document["balanced"]["balance"]) == (3, balance)
        assert any("3 partitions" in line for line in stream.streamed.lines())
        alerts.add("eve", f"flood OR never{start}", [-5, -5, 5, 5], id=f"eve{start}")


KILLED = """
import os, signal, sys
from spatialnosql.cli import main
from spatialnosql.subscriptions.balancing import policies, versions
sys.path.insert(0, {tests!r})
from test_match_stream_balance import Restless
policies.BALANCES["swarm"] = Restless
turns = 0
real = versions.{name}
def until_killed(*given):
    global turns
    turns += 1
    if turns == {turn}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)
versions.{name} = until_killed
main(sys.argv[1:])
"""


def test_killed_amid_a_move(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """The moved subscriptions are written, the dispatcher that sends objects to them is not: killed there."""
    draw = np.random.default_rng(4)
    objects = random_objects(draw, 0, 300)
    write_lines(inbox, "0.json", objects[:150])
    expected = brute_force(alerts, objects)
    arguments = [
        "match-stream", alerts.collection.full_name, str(inbox), "--text", "text", "--time", "at", "--id", "id",
        "--uri", cluster.uri, "--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[1]",
        "--balance", "swarm", "--partitions", "3", "--index", str(tmp_path / "index"), "--trigger", "50ms",
        "--spark-conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}",
    ]  # fmt: skip
    code = KILLED.format(tests=str(ROOT / "tests"), name="save_dispatcher", turn=2)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        commits = tmp_path / "checkpoint" / "spark" / "commits" / "0"
        eventually(lambda: commits.exists() or process.poll() is not None)
        write_lines(inbox, "1.json", objects[150:])
        said = process.communicate(timeout=120)[1].decode()
    finally:
        kill_all(process.pid)
    assert process.returncode == -signal.SIGKILL, said
    before = stored_pairs(database)
    assert 0 < len(before) < len(expected)
    left = list((tmp_path / "index" / "partitions").glob("*"))
    assert len([path for path in left if path.name.startswith("dispatcher-2")]) == 0
    assert len([path for path in left if path.name.startswith("partition-")]) > 3

    job = job_of(
        alerts, inbox, tmp_path, balance="swarm", partitions=3, once=True, index=str(tmp_path / "index")
    )
    with MatchStream(spark, cluster.uri, client, job) as stream:
        stream.run(threading.Event())
    assert sorted(stored_pairs(database)) == sorted(expected)


def test_shedding_is_counted_and_only_when_asked_for(
    spark: SparkSession,
    cluster: Any,
    client: MongoClient[dict[str, Any]],
    alerts: Subscriptions,
    inbox: Path,
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(5)
    job = job_of(
        alerts, inbox, tmp_path, partitions=4, partitioner="hash", shed="subscription", shed_buffer=10
    )
    objects = random_objects(draw, 0, 600)
    with MatchStream(spark, cluster.uri, client, job) as stream:
        query = stream.start()
        assert query is not None
        for turn in range(4):
            write_lines(inbox, f"{turn}.json", objects[150 * turn : 150 * turn + 150])
            query.processAllAvailable()
    found, expected = stored_pairs(database), brute_force(alerts, objects)
    done = stream.streamed.balanced
    assert done is not None
    assert done.shed >= done.shed_objects > 0
    assert set(found) < expected
    assert len(found) == len(set(found))
    assert any("SHED under overload" in line for line in stream.streamed.lines())


def test_errors_are_named(
    alerts: Subscriptions, inbox: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="--shed leaves out partitions"):
        job_of(alerts, inbox, tmp_path, shed="consensus")
    with pytest.raises(UsageError, match="--balance magic: there are none, swarm"):
        job_of(alerts, inbox, tmp_path, balance="magic")
    with pytest.raises(UsageError, match="salb places by more"):
        job_of(alerts, inbox, tmp_path, balance="local", partitioner="salb")
    with pytest.raises(SystemExit):
        main(["match-stream", "--help"])
    said = capsys.readouterr().out
    assert "--balance {none,swarm,local,global}" in said
    assert "LOSES MATCHES" in said
