"""The demo: on the run's cluster, as a person and as a program would see it."""

import argparse
import io
import json
from pathlib import Path

import numpy as np
import pytest
from spark_options import QUICK_START

from spark_jobs.session import build_session
from spatialnosql import demo, demo_query
from spatialnosql.cli import main
from spatialnosql.examined import Examined
from spatialnosql.placement import even_cuts
from spatialnosql.progress import Progress


@pytest.fixture
def demo_database(client):
    """The demo's database has a fixed name: it must be gone before and after."""
    client.drop_database(demo.DATABASE)
    yield client[demo.DATABASE]
    client.drop_database(demo.DATABASE)


@pytest.mark.mongo
@pytest.mark.spark
def test_the_demo_for_people(
    cluster, demo_database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    build_session("tests", master="local[2]", config=QUICK_START)
    assert main(["demo", "--points", "5000", "--uri", cluster.uri, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Inserted 4,990 points; in quarantine: 4 missing, 2 out_of_range, 3 null_island, 1 swapped" in text
    assert "The same answers." in text
    assert "1,000 subscriptions of 50 owners" in text
    assert "20 of them asked one by one: the same." in text
    assert demo.DATABASE not in demo_database.client.list_database_names()
    assert json.loads((out / "demo.json").read_text())["inserted"] == 4990
    assert len(json.loads((out / "neighbourhoods.geojson").read_text())["features"]) == 60


@pytest.mark.mongo
def test_the_demo_as_json_and_what_it_keeps(
    cluster, demo_database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "demo",
        "--points",
        "3000",
        "--uri",
        cluster.uri,
        "--out",
        str(tmp_path),
        "--json",
        "--keep",
        "--no-spark",
    ]
    assert main(arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["queries"]["equal"] is True
    counts, nearest = facts["queries"]["counts"]["ways"], facts["queries"]["nearest"]["ways"]
    assert {name: way["results"] for name, way in counts.items()} == {
        "as it is": 2994,
        "rewritten": 2994,
        "one pass": 2994,
    }
    assert counts["rewritten"]["shards"] < counts["as it is"]["shards"]
    assert nearest["as it is"]["results"] == nearest["rewritten"]["results"] == 100
    assert facts["precision"] > 0

    points, quarantine = demo_database.points, demo_database.quarantine
    assert points.count_documents({}) == 2994 == sum(facts["per_shard"].values())
    assert max(facts["per_shard"].values()) < 1.2 * 2994 / len(facts["per_shard"])
    assert points.count_documents({"gh": {"$regex": "^u[0-9a-z]{11}$"}}) == 2994
    reasons = {
        r["_id"]: r["n"] for r in quarantine.aggregate([{"$group": {"_id": "$reason", "n": {"$sum": 1}}}])
    }
    assert reasons == facts["quarantined"]
    assert quarantine.find_one({"reason": "null_island"})["row"]["loc"]["coordinates"] == [0, 0]

    # What is there is not ours to overwrite.
    assert main(arguments) == 1
    assert "the database spatialnosql_demo is there already" in capsys.readouterr().err
    assert points.count_documents({}) == 2994


@pytest.mark.mongo
def test_the_rewritten_queries_examine_less(
    cluster, demo_database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From about 30,000 points on: in smaller collections the covers are too coarse for it, as the README says."""
    assert (
        main(
            [
                "demo",
                "--points",
                "30000",
                "--no-spark",
                "--uri",
                cluster.uri,
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    counts = json.loads(capsys.readouterr().out)["queries"]["counts"]["ways"]
    assert counts["rewritten"]["shards"] < counts["as it is"]["shards"]
    assert counts["rewritten"]["docs"] < counts["as it is"]["docs"]


@pytest.mark.mongo
def test_different_answers_make_the_demo_fail(
    cluster,
    demo_database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_query.SpatialCollection, "count_documents", lambda *_: 0)
    assert main(["demo", "--points", "500", "--no-spark", "--uri", cluster.uri, "--out", str(tmp_path)]) == 1
    assert "THE ANSWERS DIFFER" in capsys.readouterr().out


@pytest.mark.mongo
def test_without_a_uri_a_cluster_is_started_and_ended(
    cluster, demo_database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPATIALNOSQL_URI", raising=False)
    seen: dict[str, object] = {}

    class Recorded:
        uri = cluster.uri

        def __init__(self, **options: object) -> None:
            seen.update(options)

        def __enter__(self) -> "Recorded":
            seen["entered"] = True
            return self

        def __exit__(self, *_: object) -> None:
            seen["left"] = True

    monkeypatch.setattr(demo, "LocalCluster", Recorded)
    demo_database.points.insert_one({"_id": "of an earlier demo"})
    assert (
        main(["demo", "--points", "200", "--no-spark", "--shards", "2", "--out", str(tmp_path), "--json"])
        == 0
    )
    assert seen == {"shards": 2, "directory": None, "entered": True, "left": True}
    assert demo.DATABASE not in demo_database.client.list_database_names()


@pytest.mark.parametrize("option", ["--points", "--shards"])
def test_zero_is_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", option, "0"]) == 2
    assert f"{option} must be 1 or more, not 0" in capsys.readouterr().err


def test_defaults() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    args = parser.parse_args([])
    assert (args.points, args.shards, args.seed, args.keep, str(args.out)) == (
        200_000,
        3,
        1,
        False,
        "demo-output",
    )
    assert args.uri is None
    assert args.json is False


def test_counts_of_no_areas_are_equal_and_empty() -> None:
    outcome = demo_query.compare_counts(None, None, [], lambda _: None)  # type: ignore[arg-type]
    assert outcome["equal"] is True
    assert outcome["ways"]["as it is"]["results"] == 0
    assert Examined.total([]) == Examined(0, 0, 0, 0)


# --- placement --------------------------------------------------------------------------------------------


def test_cuts_divide_a_sample_evenly() -> None:
    sample = np.array([f"{number:03d}" for number in range(300)])
    np.random.default_rng(1).shuffle(sample)
    assert even_cuts(sample, 3) == ["100", "200"]
    assert even_cuts(sample, 1) == []


def test_a_place_that_outweighs_a_part_gives_fewer_cuts() -> None:
    assert even_cuts(np.array(["a"] * 10), 3) == []
    assert even_cuts(np.array(["a", *["b"] * 9]), 4) == ["b"]
    assert even_cuts(np.array([], dtype="U12"), 3) == []


# --- progress ---------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_a_bar_and_then_one_line() -> None:
    stream = Terminal()
    with Progress("counting", 4, unit="sheep", stream=stream) as progress:
        progress._shown = 0.0  # long ago: the next step draws
        progress.advance(2)
    shown = stream.getvalue()
    assert "\rcounting [###############...............]  50% 2 of 4 sheep" in shown
    assert shown.rpartition("\x1b[K")[2].startswith("counting: 2 sheep in ")


def test_progress_in_a_log_is_sparse() -> None:
    stream = io.StringIO()
    with Progress("counting", 1000, stream=stream) as progress:
        for _ in range(1000):
            progress.advance()
    assert len(stream.getvalue().splitlines()) == 1
    assert "\r" not in stream.getvalue()


def test_progress_says_nothing_of_success_when_it_failed() -> None:
    stream = io.StringIO()

    def fail() -> None:
        with Progress("counting", 3, stream=stream):
            raise ZeroDivisionError("half way")

    with pytest.raises(ZeroDivisionError, match="half way"):
        fail()
    assert stream.getvalue() == ""


def test_progress_of_nothing_is_complete() -> None:
    stream = Terminal()
    with Progress("counting", 0, stream=stream):
        pass
    assert "100%" in stream.getvalue()
