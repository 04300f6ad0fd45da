"""State files: who is alive, who may be ended, and what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spatialnosql.cluster.state import (
    Process,
    State,
    boot_id,
    end_processes,
    load_state,
    processes_in,
    reap,
    register,
    registry,
    write_json,
)
from spatialnosql.errors import ClusterError

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def _own_registry(tmp_path, monkeypatch):
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def spawn():
    """Start harmless processes that look like servers with a log in a folder; ended afterwards."""
    started = []

    def start(directory, code="import time; print(flush=True); time.sleep(600)"):
        command = [sys.executable, "-c", code, "--logpath", str(directory / "logs" / "x.log")]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(child)
        child.stdout.readline()
        return Process.of(child.pid)

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def entry_of(directory, owner, **changes):
    entry = register(directory, temporary=True)
    import json

    values = json.loads(entry.read_text())
    values["owner"] = {"pid": owner.pid, "started": owner.started, "boot": owner.boot}
    write_json(entry, {**values, **changes})
    return entry


def test_a_process_is_its_pid_and_its_start():
    me = Process.of(os.getpid())
    assert me is not None
    assert me.alive
    assert not replace(me, started=me.started + 1).alive
    assert not replace(me, boot="another boot").alive


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    assert Process.of(child.pid) is None
    child.wait()


def test_who_has_one_thread_left_is_alive():
    """A server holds its port until the last of its threads has ended; the first one may be a zombie by then."""
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 20
        while " Z " not in Path(f"/proc/{child.pid}/stat").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert " Z " in Path(f"/proc/{child.pid}/stat").read_text()
        assert Process.of(child.pid) is not None
    finally:
        child.kill()
        child.wait()


def test_a_reused_pid_is_not_killed(tmp_path, spawn):
    stranger = spawn(tmp_path)
    end_processes([replace(stranger, started=stranger.started - 5)], clean=False)
    assert stranger.alive


def test_who_ignores_the_request_is_killed(tmp_path, spawn):
    stubborn = spawn(tmp_path, STUBBORN)
    end_processes([stubborn], clean=True, patience_s=0.3)
    assert not stubborn.alive


def test_processes_are_found_by_their_folder(tmp_path, spawn):
    ours, other = spawn(tmp_path / "a"), spawn(tmp_path / "ab")
    assert processes_in(tmp_path / "a") == {ours.pid: ours}
    assert processes_in(tmp_path / "ab") == {other.pid: other}


def test_the_state_survives_the_disk(tmp_path):
    me = Process.of(os.getpid())
    state = State(
        tmp_path, 2, 0.5, {"config": 1, "shard0": 2, "shard1": 3, "mongos": 4}, False, me, {"mongos": me}
    )
    state.save()
    assert load_state(tmp_path) == state
    assert state.names == ("config", "shard0", "shard1", "mongos")
    assert state.uri == "mongodb://127.0.0.1:4/"
    assert state.owned
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]
    assert load_state(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_state_is_an_error(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"cluster.json is damaged .*--dir"):
        load_state(tmp_path)


def test_reap_ends_only_what_has_no_owner(tmp_path, spawn):
    owner, dead = spawn(tmp_path / "owner"), spawn(tmp_path / "dead")
    end_processes([dead], clean=False)
    folders = [tmp_path / name for name in ("living", "orphaned")]
    servers = [spawn(folder) for folder in folders]
    for folder in folders:
        folder.mkdir()
    entry_of(folders[0], owner)
    orphan = entry_of(folders[1], dead)
    assert reap() == [folders[1]]
    assert servers[0].alive
    assert not servers[1].alive
    assert folders[0].exists()
    assert not folders[1].exists()
    assert not orphan.exists()
    assert reap() == []


def test_reap_leaves_other_machines_and_containers_alone(tmp_path):
    me = Process.of(os.getpid())
    boot, _, namespace = boot_id().partition("/")
    kept = [
        entry_of(tmp_path, replace(me, boot=f"{boot}/pid:[1]")),
        entry_of(tmp_path, replace(me, boot=f"other/{namespace}"), host="another machine"),
    ]
    before_reboot = entry_of(tmp_path / "gone", replace(me, boot=f"other/{namespace}"))
    assert reap() == [tmp_path / "gone"]
    assert all(entry.exists() for entry in kept)
    assert not before_reboot.exists()


def test_reap_drops_what_it_cannot_read(tmp_path):
    registry().mkdir(parents=True)
    (registry() / "bad.json").write_text("{")
    assert reap() == []
    assert not (registry() / "bad.json").exists()
