"""The histogram as the server counts it, what is stored of it, and the command."""

import json

import numpy as np
import pytest

from spatialnosql import analyze as module
from spatialnosql.adopt import adopt
from spatialnosql.analyze import analyze, distribution, histogram_pipeline, server_histogram
from spatialnosql.cli import main
from spatialnosql.errors import UsageError
from spatialnosql.expression import geohash_expression
from spatialnosql.geohash import points_to_cells, points_to_strings
from spatialnosql.histogram import Histogram
from spatialnosql.metadata import histogram_from_document, load_info, metadata_collection
from spatialnosql.steps import run
from spatialnosql.testing import points_to_documents

LNG = np.random.default_rng(4).normal(9.9, 0.02, 3_000)
LAT = np.random.default_rng(5).normal(53.5, 0.02, 3_000)
EXPECTED = Histogram.of_points(LNG, LAT, 40)


def same(one: Histogram, other: Histogram) -> bool:
    return one.bits == other.bits and one.key == other.key


@pytest.fixture
def adopted(database):
    database.points.insert_many(points_to_documents(LNG, LAT))
    adopt(database.points, "loc", shard=False)
    yield database.points
    metadata_collection(database.points).delete_one({"_id": database.points.full_name})


def stages(plan: object) -> set[str]:
    if isinstance(plan, dict):
        found = {plan["stage"]} if "stage" in plan else set()
        return found.union(*(stages(value) for value in plan.values()))
    return set().union(*(stages(value) for value in plan)) if isinstance(plan, list) else set()


def test_the_histogram_comes_from_the_index_alone(adopted) -> None:
    hint = module.gh_index(adopted, "gh")
    assert same(server_histogram(adopted, "$gh", gh="gh", hint=hint).histogram, EXPECTED)
    pipeline = histogram_pipeline("$gh", "gh")
    command = {"aggregate": adopted.name, "pipeline": pipeline, "cursor": {}, "hint": hint}
    told = adopted.database.command("explain", command, verbosity="executionStats")
    assert {"PROJECTION_COVERED", "IXSCAN"} <= stages(told["shards"])
    assert not {"FETCH", "COLLSCAN"} & stages(told["shards"])
    # The same without gh, from the locations: what a dry run does.
    assert same(server_histogram(adopted, geohash_expression("loc")).histogram, EXPECTED)


def test_many_cells_become_coarser_ones_while_they_stream(adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 100)
    found = server_histogram(adopted, "$gh", gh="gh", most_cells=40).histogram
    assert len(found.cells) <= 40
    assert found.bits < 40
    assert same(found, EXPECTED.coarsened(found.bits))
    assert len(EXPECTED.coarsened(found.bits + 1).cells) > 40


def test_of_very_many_documents_fewer_characters_are_asked_for(
    adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spatialnosql.analyze.MANY_DOCUMENTS", 2_999)
    assert same(analyze(adopted).histogram, EXPECTED.coarsened(35))


def test_what_is_stored_serves_the_rewriter_and_is_refreshed(adopted) -> None:
    first = metadata_collection(adopted).find_one({"_id": adopted.full_name})
    assert same(histogram_from_document(first["histogram"]), EXPECTED)
    adopted.delete_many({"_id": {"$lt": 1000}})
    analysis = analyze(adopted)
    assert analysis.documents == 2_000 == sum(analysis.shards.values())
    info = run(load_info(adopted))
    assert info.why_not is None
    assert same(info.histogram, Histogram.of_points(LNG[1000:], LAT[1000:], 40))
    stored = metadata_collection(adopted).find_one({"_id": adopted.full_name})
    assert stored["analyzed"] > first["analyzed"]
    assert stored["precision"]["bits"] == analysis.choice.bits
    assert len(stored["precision"]["table"]) == 7
    assert stored["state"] == "ready"


def test_documents_without_a_geohash_are_reported_not_counted(database) -> None:
    points = database.points
    points.insert_many(points_to_documents(LNG[:100], LAT[:100]))
    points.insert_many([{"_id": f"nowhere {n}"} for n in range(5)])
    adopt(points, "loc", shard=False, validator=False)
    points.insert_many([{"_id": "a", "gh": "hello wörld!"}, {"_id": "b", "gh": 7}, {"_id": "c", "gh": "u1"}])
    analysis = analyze(points)
    assert (analysis.documents, analysis.without_gh) == (100, 8)
    assert "without a geohash: 8" in "\n".join(analysis.lines())
    metadata_collection(points).delete_one({"_id": points.full_name})


def test_of_an_empty_collection_and_of_one_never_adopted(database) -> None:
    with pytest.raises(UsageError, match="never adopted"):
        analyze(database.points)
    database.create_collection("points")
    adopt(database.points, "loc", shard=False)
    assert analyze(database.points).documents == 0
    metadata_collection(database.points).delete_one({"_id": database.points.full_name})


def test_the_shards_own_counts_ignore_what_has_moved_away(database, client) -> None:
    points = database.points
    documents = points_to_documents(LNG, LAT)
    for document, gh in zip(documents, points_to_strings(LNG, LAT).tolist(), strict=True):
        document["gh"] = gh
    client.admin.command("shardCollection", points.full_name, key={"gh": 1, "_id": 1})
    points.insert_many(documents)
    first = client["config"]["chunks"].find_one(
        {"uuid": client["config"]["collections"].find_one({"_id": points.full_name})["uuid"]}
    )
    other = next(s for s in ("shard0", "shard1", "shard2") if s != first["shard"])
    cut = str(points_to_strings(LNG, LAT)[0])
    client.admin.command(
        "moveRange", points.full_name, min={"gh": cut, "_id": 0}, max=first["max"], toShard=other
    )
    moved = int((points_to_cells(LNG, LAT) >= points_to_cells(LNG[:1], LAT[:1])[0]).sum())
    held = distribution(points, "gh")
    assert held[other] == moved
    assert sum(held.values()) == 3_000
    assert len(held) == 3


def test_the_command(adopted, cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", adopted.full_name, "--uri", cluster.uri]) == 0
    text = capsys.readouterr().out
    assert f"{adopted.full_name}: 3,000 documents" in text
    assert sum(line.startswith("* ") for line in text.splitlines()) == 1
    assert "Precision: " in text

    assert main(["analyze", adopted.full_name, "--uri", cluster.uri, "--json", "--precision", "20"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["precision"]["bits"], told["precision"]["reason"]) == (
        3_000,
        20,
        "asked for",
    )
    assert metadata_collection(adopted).find_one({"_id": adopted.full_name})["precision"]["bits"] == 20


def test_the_command_without_a_collection_or_a_server(
    cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPATIALNOSQL_URI", raising=False)
    assert main(["analyze", "trips", "--uri", cluster.uri]) == 1
    assert "DATABASE.COLLECTION" in capsys.readouterr().err
    assert main(["analyze", "city.trips"]) == 1
    assert "--uri" in capsys.readouterr().err
    assert main(["analyze", "city.never", "--uri", cluster.uri]) == 1
    assert "never adopted" in capsys.readouterr().err
