"""`spatialnosql stk ...` as an operator runs it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from stk_world import hashed, make, random_document

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, EXIT_USAGE, main
from spatialnosql.stk.filter_store import states

COUNT = 400


@pytest.fixture
def reports(database: Any) -> Any:
    """A collection with texts, not set up yet."""
    collection = make(database)
    rng = random.Random(1)
    documents = [random_document(rng, number) for number in range(COUNT)]
    for one in documents:
        one["text"] = f"Report of {' and '.join(one.pop('words'))}"
    collection.insert_many(hashed(documents))
    return collection


def test_a_life_with_filters(reports: Any, cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name, uri = f"{reports.database.name}.{reports.name}", ["--uri", cluster.uri]

    def out(*arguments: str) -> str:
        assert main(["stk", arguments[0], name, *arguments[1:], *uri]) == EXIT_OK
        return capsys.readouterr().out

    shown = out("enable", "--text", "text")
    assert f"{name}: {COUNT} documents sealed, 0 stay fresh" in shown
    assert "bins of 3,600 s" in shown
    found = json.loads(out("status", "--json"))
    assert (found["documents"], found["fresh"], found["writers"], found["paused"]) == (COUNT, 0, [], False)
    assert found["filter_cubes"] > 0
    assert found["filter_bytes"] > 4 * COUNT
    assert "filters in force" in out("status")
    city = [
        "--rectangle",
        "13.2",
        "52.4",
        "13.6",
        "52.7",
        "--start",
        "2026-03-01T00:00:00Z",
        "--end",
        "2026-03-05",
    ]
    plain = reports.count_documents({"words": {"$all": ["w0", "w1"]}})
    assert plain > 3
    assert json.loads(out("find", *city, "--words", "w0 AND w1", "--count", "--json")) == {"count": plain}
    lines = out("find", *city, "--words", "W0 w1", "--limit", "3").splitlines()
    assert len(lines) == 3
    assert all({"w0", "w1"} <= set(json.loads(line)["words"]) for line in lines)
    circle = out("find", "--circle", "13.4", "52.5", "3000", "--words", "w0", "--count")
    assert int(circle) < reports.count_documents({"words": "w0"})
    assert "documents examined" in out("find", *city, "--words", "w30", "--explain")
    assert "0 documents sealed" in out("seal")
    assert "only sealed documents are accepted" in out("shut", "--before", "2026-03-05")
    assert "shut: no fresh documents before 2026-03-05" in out("status")
    assert json.loads(out("find", *city, "--words", "unheardof", "--count", "--json")) == {"count": 0}
    states(reports).update_one({"_id": name}, {"$set": {"grace_s": 0.1}})  # what open and disable wait for
    assert json.loads(out("open", "--json")) == {"shut_before": None}
    assert json.loads(out("status", "--json"))["shut_before"] is None
    assert f"filters of {COUNT} documents" in out("rebuild", "--force")
    assert "are gone" in out("disable")
    assert main(["stk", "status", name, *uri]) == EXIT_ERROR
    assert "run `spatialnosql stk enable` first" in capsys.readouterr().err


def test_what_cannot_be_meant(reports: Any, cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name, uri = f"{reports.database.name}.{reports.name}", ["--uri", cluster.uri]
    assert main(["stk", "enable", name, "--bin", "60", *uri]) == EXIT_ERROR
    assert "give both --bin and --cell" in capsys.readouterr().err
    assert main(["stk", "enable", name, "--time", "a.b", *uri]) == EXIT_ERROR
    assert "without a dot" in capsys.readouterr().err
    assert main(["stk", "enable", f"{reports.database.name}.none", *uri]) == EXIT_ERROR
    assert "it does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["stk", "find", name, "--start", "yesterday", *uri])
    assert stopped.value.code == EXIT_USAGE
    assert "'yesterday' is no time" in capsys.readouterr().err
