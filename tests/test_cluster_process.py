"""What is said about a server that died."""

from __future__ import annotations

import json

import pytest

from spatialnosql.cluster.process import last_words, readable
from spatialnosql.cluster.state import State


def line(severity, msg, **attributes):
    return json.dumps({"s": severity, "ctx": "x", "msg": msg, "attr": attributes})


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path, 1, 0.25, {"config": 1, "shard0": 2, "mongos": 3})
    state.log("shard0").parent.mkdir()
    return state


def test_the_last_errors_on_one_line(state):
    log = [line("I", "fine")] + [line("E", f"trouble {number}", error="with\n it") for number in range(5)]
    log += [line("F", "Writing fatal message", message="abort")] * 3
    state.log("shard0").write_text("\n".join(log))
    said = last_words(state, "shard0")
    assert said.startswith("it said: trouble 2 with it | trouble 3 with it | trouble 4 with it (log: ")
    assert "Docker" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("message", "hint"),
    [("[28] No space left on device", "the disk is full"), ("Address already in use", "the port is taken")],
)
def test_known_causes_have_a_hint(state, message, hint):
    state.log("shard0").write_text(line("F", "Failed", error={"errmsg": message}))
    assert hint in last_words(state, "shard0")


def test_a_server_that_cannot_even_log(state):
    assert "nothing about an error" in last_words(state, "shard0")
    output = state.log("shard0").with_suffix(".out")
    output.write_text("mongod: error while loading shared libraries: libcurl.so.4\n")
    assert "it said: mongod: error while loading shared libraries: libcurl.so.4 (" in last_words(
        state, "shard0"
    )


def test_the_log_of_a_temporary_cluster_outlives_it(state, tmp_path, monkeypatch):
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path / "cache"))
    state.temporary = True
    state.log("shard0").write_text(line("E", "trouble"))
    kept = tmp_path / "cache" / "logs" / "shard0.log"
    assert f"(log: {kept})" in last_words(state, "shard0")
    assert "trouble" in kept.read_text()


def test_half_a_line_is_no_message():
    assert readable('x","ctx":"y","msg":"cut"}') is None
    assert readable("") is None
    assert readable("[1]") is None
