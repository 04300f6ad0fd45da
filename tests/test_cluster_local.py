"""LocalCluster on real servers: what it offers, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pymongo import MongoClient

from spatialnosql.cluster import LocalCluster
from spatialnosql.cluster.process import free_port
from spatialnosql.cluster.state import Process, processes_in, reap, registry
from spatialnosql.errors import ClusterError, UsageError

READY_S = 30.0

OWNER = """
import sys, threading, time
from spatialnosql.cluster import LocalCluster
# Started in a thread that ends: the servers must not end with it.
cluster = LocalCluster(shards=1)
thread = threading.Thread(target=cluster.start)
thread.start()
thread.join()
print(cluster.directory, *cluster.pids.values(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def private_cache(tmp_path, monkeypatch, programs):
    """A cache with the fetched programs and a registry of its own, so that tests do not reap each other."""
    cache = tmp_path / "cache"
    cache.mkdir()
    if programs.source != "PATH":
        (cache / "programs").symlink_to(programs.mongod.parent.parent)
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(cache))
    return cache


def wait_until(condition, seconds=READY_S):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def start_owner():
    """A Python that has a cluster: the process, the cluster's folder and its servers."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory, *pids = owner.stdout.readline().split()
    processes = [Process.of(int(pid)) for pid in pids]
    assert len(processes) == 3
    assert all(process is not None and process.alive for process in processes)
    return owner, Path(directory), processes


def finish(owner):
    owner.wait()
    owner.stdout.close()


def local(cluster):
    if not cluster.pids:
        pytest.skip("the run uses a cluster that somebody else started")
    return cluster


def test_three_shards_on_loopback_without_zlib(cluster, client):
    local(cluster)
    assert set(cluster.pids) == {"config", "shard0", "shard1", "shard2", "mongos"}
    assert sorted(shard["_id"] for shard in client.admin.command("listShards")["shards"]) == [
        "shard0",
        "shard1",
        "shard2",
    ]
    for name, pid in cluster.pids.items():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert words[words.index("--bind_ip") + 1] == "127.0.0.1", name
        assert words[words.index("--networkMessageCompressors") + 1] == "snappy,zstd", name
        assert ("--wiredTigerCacheSizeGB" in words) == (name != "mongos")


def test_transactions_retryable_writes_and_change_streams(client, database):
    database.create_collection("points")
    client.admin.command("shardCollection", f"{database.name}.points", key={"gh": 1})
    with database.points.watch(max_await_time_ms=5000) as stream:
        with client.start_session() as session, session.start_transaction():
            database.points.insert_one({"_id": 1, "gh": "a"}, session=session)
            database.points.insert_one({"_id": 2, "gh": "b"}, session=session)
        assert [stream.next()["fullDocument"]["_id"] for _ in range(2)] == [1, 2]
    with client.start_session(causal_consistency=True) as session:
        database.points.update_one({"_id": 1, "gh": "a"}, {"$set": {"seen": True}}, session=session)
        assert database.points.count_documents({"seen": True}, session=session) == 1


def test_resharding_does_not_wait_five_minutes(cluster, client, database):
    local(cluster)
    client.admin.command("shardCollection", f"{database.name}.points", key={"_id": "hashed"})
    database.points.insert_many([{"_id": number, "gh": f"{number % 100:02}"} for number in range(1000)])
    started = time.monotonic()
    client.admin.command(
        "reshardCollection", f"{database.name}.points", key={"gh": 1, "_id": 1}, numInitialChunks=1
    )
    assert time.monotonic() - started < 60
    assert database.points.count_documents({}) == 1000


def test_stop_leaves_nothing(private_cache, monkeypatch):
    cluster = LocalCluster(shards=1)
    with pytest.raises(ClusterError, match="not started"):
        _ = cluster.uri
    with cluster:
        directory = cluster.directory
        processes = [Process.of(pid) for pid in cluster.pids.values()]
        assert cluster.start() is cluster
        assert list(registry().glob("*.json"))
        # A forked child that exits must not take the cluster with it.
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            cluster._stop_at_exit()
        assert all(process is not None and process.alive for process in processes)
    assert not any(process.alive for process in processes if process)
    assert not directory.exists()
    assert not list(registry().glob("*.json"))
    cluster.stop()


def test_data_in_a_directory_is_kept(private_cache, tmp_path):
    directory = tmp_path / "kept data"
    with LocalCluster(shards=1, directory=directory) as cluster:
        first = cluster.ports
        with MongoClient(cluster.uri) as client:
            client.kept.points.insert_one({"_id": 7})
        with pytest.raises(ClusterError, match=r"already up in .*kept data"):
            LocalCluster(shards=1, directory=directory).start()
    port = free_port(set(first.values()))
    with pytest.raises(ClusterError, match="has 1 shards, not 2"):
        LocalCluster(shards=2, directory=directory).start()
    with LocalCluster(shards=1, directory=directory, port=port) as cluster:
        assert cluster.uri == f"mongodb://127.0.0.1:{port}/"
        assert cluster.ports["shard0"] == first["shard0"]
        with MongoClient(cluster.uri) as client:
            assert client.kept.points.find_one() == {"_id": 7}
    assert not processes_in(directory)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_python_leaves_no_server(private_cache, how):
    owner, directory, processes = start_owner()
    owner.send_signal(how)
    finish(owner)
    wait_until(lambda: not any(process.alive for process in processes))
    wait_until(lambda: not directory.exists())
    wait_until(lambda: not list(registry().glob("*.json")))


def test_the_next_start_ends_what_a_killed_python_and_its_guard_left(private_cache):
    owner, directory, processes = start_owner()
    children = Path(f"/proc/{owner.pid}/task")
    pids = {int(pid) for task in children.iterdir() for pid in (task / "children").read_text().split()}
    (guard,) = pids - {process.pid for process in processes}
    os.kill(guard, signal.SIGKILL)
    assert reap() == []  # its owner lives
    owner.kill()
    finish(owner)
    assert all(process.alive for process in processes)
    assert reap() == [directory]
    assert not any(process.alive for process in processes)
    assert not directory.exists()


def test_a_taken_port_is_one_line(private_cache):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            ClusterError, match=rf"port {port} for mongos is taken .*--port.*Docker"
        ) as caught:
            LocalCluster(shards=1, port=port).start()
    assert "\n" not in str(caught.value)
    assert not list(registry().glob("*.json"))


def test_a_mongod_that_dies_shows_its_log(private_cache, tmp_path):
    directory = tmp_path / "broken"
    # The config server, for which the mongos waits: the error must not wait with it.
    (directory / "config").mkdir(parents=True)
    (directory / "config" / "storage.bson").write_text("not BSON")
    started = time.monotonic()
    with pytest.raises(
        ClusterError, match=r"config died at its start; it said: .+ \(log: .*config\.log\)"
    ) as caught:
        LocalCluster(shards=1, directory=directory).start()
    assert "\n" not in str(caught.value)
    assert not processes_in(directory)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shards": 0}, "shards must be 1 to 32, not 0"),
        ({"port": 70_000}, "port must be 1 to 65535, not 70000"),
        ({"cache_gb": 0.1}, "cache_gb must be 0.25"),
    ],
)
def test_impossible_options(private_cache, options, words):
    with pytest.raises(UsageError, match=words):
        LocalCluster(**options).start()
