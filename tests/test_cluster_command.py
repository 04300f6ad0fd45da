"""``spatialnosql cluster``: a cluster that outlives the command, seen from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from pymongo import MongoClient

from spatialnosql.cluster.state import Process, load_state, processes_in


def run(*arguments, expect=0):
    result = subprocess.run(
        [sys.executable, "-m", "spatialnosql", "cluster", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == expect, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    return result.stdout if expect == 0 else result.stdout + result.stderr


@pytest.fixture
def directory(tmp_path, programs):
    folder = tmp_path / "cluster"
    yield folder
    run("down", "--dir", folder)
    assert not processes_in(folder)


def test_up_repair_down(directory):
    assert "no cluster in" in run("status", "--dir", directory, expect=1)
    assert "nothing to take down" in run("down", "--dir", directory)
    assert not directory.exists()

    up = json.loads(run("up", "--shards", 2, "--dir", directory, "--json"))
    assert up["outcome"] == "up"
    assert up["up"] is True
    assert list(up["processes"]) == ["config", "shard0", "shard1", "mongos"]
    assert run("uri", "--dir", directory).strip() == up["uri"]
    with MongoClient(up["uri"]) as client:
        client.kept.points.insert_many([{"_id": number} for number in range(100)])

    again = run("up", "--dir", directory)
    assert again == f"already up: {up['uri']}\n"
    assert "has 2 shards, not 5" in run("up", "--shards", 5, "--dir", directory, expect=1)
    assert "is up on port" in run("up", "--port", 1234, "--dir", directory, expect=1)

    killed = [up["processes"][name]["pid"] for name in ("shard0", "mongos")]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    while any(Process.of(pid) for pid in killed):
        time.sleep(0.02)
    shown = run("status", "--dir", directory, expect=1)
    assert "not up" in shown
    assert [line.split()[-1] for line in shown.splitlines()[2:]] == ["yes", "no", "yes", "no"]

    repaired = json.loads(run("up", "--dir", directory, "--json"))
    assert repaired["outcome"] == "repaired"
    assert repaired["started"] == ["shard0", "mongos"]
    for name in ("config", "shard1"):
        assert repaired["processes"][name]["pid"] == up["processes"][name]["pid"]
    with MongoClient(repaired["uri"]) as client:
        assert client.kept.points.count_documents({}) == 100

    down = run("down", "--dir", directory)
    assert down.count("ended ") == 4
    assert "data kept in" in down
    assert not processes_in(directory)
    assert "no cluster is up" in run("uri", "--dir", directory, expect=1)
    assert "no process was running" in run("down", "--dir", directory)

    (directory / "mine.txt").write_text("not the cluster's")
    assert "removed config, shard0, shard1, logs" in run("down", "--purge", "--dir", directory)
    assert [path.name for path in directory.iterdir()] == ["mine.txt"]


def test_stale_pids_and_strays(directory):
    run("up", "--shards", 1, "--dir", directory)
    state = load_state(directory)
    real = dict(state.processes)
    # A crash lost the note of shard0, and the pid noted for mongos belongs to somebody else by now: us.
    del state.processes["shard0"]
    state.processes["mongos"] = Process(os.getpid(), 1, real["mongos"].boot)
    state.save()

    assert "not up" in run("status", "--dir", directory, expect=1)
    repaired = json.loads(run("up", "--dir", directory, "--json"))
    assert repaired["started"] == ["shard0", "mongos"]
    assert not real["shard0"].alive
    assert not real["mongos"].alive
    assert real["config"].alive

    # Somebody removes the note under the running servers.
    (directory / "cluster.json").unlink()
    down = json.loads(run("down", "--dir", directory, "--json"))
    assert len(down["strays"]) == 3
    assert not processes_in(directory)


def test_a_damaged_state_file_is_one_line(tmp_path):
    (tmp_path / "cluster.json").write_text("{")
    assert "cluster.json is damaged" in run("status", "--dir", tmp_path, expect=1)
