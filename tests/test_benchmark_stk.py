"""The benchmark of place, time and words: its contract, on a small world; and a file of one's own."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import benchmarks.__main__ as command
from benchmarks import deployment, stk, stk_costs, stk_growth
from benchmarks.options import Options
from benchmarks.stk_data import load_world
from benchmarks.stk_queries import KINDS, make_queries
from spatialnosql.errors import UsageError

VARIANTS = {"st_index_then_filter", "keyword_index", "filtered", "open", "no_global", "no_filters"}


@pytest.fixture
def on_cluster(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks take the cluster of the tests for their own."""

    @contextmanager
    def running(shards: int, cache_gb: float) -> Iterator[Any]:
        yield cluster

    monkeypatch.setattr(deployment, "LocalCluster", running)


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_stk_keeps_the_contract(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stk, "KINDS", KINDS[:2])
    monkeypatch.setattr(stk, "LIMITS", (0.1, 1.0))
    monkeypatch.setattr(stk_costs, "REPEATS", 1)
    assert command.main(["stk", "--limit", "2000", "--repeats", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["equal"] is True
    assert set(result["queries"]) == {"or", "and"}
    for part in [*result["queries"].values(), result]:
        assert set(part["variants"]) == set(part["ratio"]) == set(part["ratio_wall"]) == VARIANTS
        assert len({values["results"] for values in part["variants"].values()}) == 1
        assert part["variants"]["filtered"]["results"] > 0
    assert set(result["storage"]["indexes"]) == {"place_time", "words_time", "stk_cube"}
    assert result["filters"]["filter_bytes"] > 0
    assert result["filters"]["fresh"] == 0
    assert result["filters"]["shut_before"] is not None
    assert set(result["storage"]["insert_us"]) == {*result["storage"]["indexes"], "none", "fresh", "seal"}
    assert [one["n_queries"] for one in result["memory"]] == [20, 20]
    text = stk.table(result)
    assert "worst kind against the better native plan" in text
    assert "THE ANSWERS DIFFER" not in text


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_growth(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["stk_growth", "--limit", "5000", "--repeats", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["equal"] is True
    assert [step["n_points"] for step in result["steps"]] == [500, 1000, 2500, 5000]
    found = [step["variants"]["filtered"]["results"] for step in result["steps"]]
    assert found == sorted(found)
    assert found[0] > 0
    sizes = [step["filter_bytes"] for step in result["steps"]]
    assert sizes == sorted(sizes)
    assert "5,000" in stk_growth.table(result)


def test_a_file_of_months(tmp_path: Path) -> None:
    rows = {
        "month": ["2018-01", "2018-02", "2018-03"] * 20,
        "lon": [0.1] * 59 + [None],
        "lat": [51.5] * 60,
        "what": ["Bicycle theft near the park"] * 60,
    }
    path = tmp_path / "crime.parquet"
    pq.write_table(pa.table(rows), path)
    world = load_world(Options(data=path))
    assert len(world) == 59
    assert world.words_of(0) == ["bicycle", "theft", "near", "park"]
    assert world.unit_s == 28 * 24 * 3600
    asked = make_queries(world, KINDS[0], 4, 1)
    interval = asked[0].filter["at"]
    assert interval["$lt"] - interval["$gte"] == dt.timedelta(days=3 * 28)
    pq.write_table(pa.table({"lon": [0.1], "lat": [51.5], "what": ["x"]}), path)
    with pytest.raises(UsageError, match="no column of times"):
        load_world(Options(data=path))
