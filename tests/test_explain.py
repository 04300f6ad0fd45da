"""What a query touches, as it is and rewritten: the object, its table and JSON, and the command."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import Documents, Setup, documents, make_collection, register
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from benchmarks.sent import recording
from spatialnosql.cli import main
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.explain_command import read_query
from spatialnosql.histogram import Histogram
from spatialnosql.info import Index
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import QoS
from spatialnosql.steps import run

DATABASE = "test_explain"
POINT = {"type": "Point", "coordinates": [2.35, 48.86]}
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.001]}}}
NEAR = {"loc": {"$nearSphere": {"$geometry": POINT}}}
GEO_NEAR = {"$geoNear": {"near": POINT, "distanceField": "d"}}


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    client.drop_database(DATABASE)
    setup = Setup()
    collection = make_collection(client[DATABASE], "places", setup, documents(2000, 21, setup))
    true = run(load_info(collection)).histogram
    assert true is not None
    # As if there were a thousand times as many: then covers pay.
    register(collection, setup, Histogram(true.bits, true.cells, true.counts * 1000))
    yield collection
    client.drop_database(DATABASE)
    metadata_collection(collection).delete_one({"_id": collection.full_name})


@pytest.fixture
def spatial(plain: Documents) -> SpatialCollection:
    made = SpatialCollection(plain)
    made.forget()
    return made


@pytest.mark.parametrize(
    "query", [CIRCLE, [{"$match": CIRCLE}, {"$sort": {"n": 1}}]], ids=["filter", "pipeline"]
)
def test_both_ways_side_by_side(query: Any, plain: Documents, spatial: SpatialCollection) -> None:
    explained = spatial.explain(query)
    inside = plain.count_documents(CIRCLE)
    assert inside > 10
    assert explained.plan.rewritten
    assert explained.rewritten is not None
    assert explained.original.returned == inside
    # What the client settles is sent with a few that are not inside.
    assert inside <= explained.rewritten.returned <= 1.5 * inside + 20
    assert explained.original.shards == 3
    assert explained.rewritten.shards < 3
    assert explained.rewritten.docs >= inside
    assert explained.rewritten.keys >= inside
    assert set(explained.plan.shards) <= {"shard0", "shard1", "shard2"}
    assert len(explained.plan.shards) == explained.rewritten.shards


def test_a_query_sent_as_it_is_has_one_side(spatial: SpatialCollection) -> None:
    explained = spatial.explain({"kind": "cafe"})
    assert explained.rewritten is None
    assert explained.to_dict()["rewritten"] is None
    assert "sent as it is: no condition on the location" in str(explained)
    assert [line.split()[-1] for line in str(explained).splitlines()[1:6]] == ["-"] * 5
    assert spatial.explain(CIRCLE, hint="loc_2dsphere").plan.reasons == ("the caller gave hint",)
    assert spatial.with_qos(rewrite=False).explain(CIRCLE).rewritten is None


@pytest.mark.parametrize(
    ("query", "options"),
    [(NEAR, {"limit": 5}), ([GEO_NEAR, {"$limit": 5}], {})],
    ids=["find", "aggregate"],
)
@pytest.mark.parametrize("form", ["cheapest", "server"])
def test_the_nearest_few_are_explained_by_their_first_window(
    query: Any, options: dict[str, Any], form: str, spatial: SpatialCollection
) -> None:
    explained = spatial.with_qos(form=form).explain(query, **options)
    assert (explained.plan.near or explained.plan.rings) is not None
    assert explained.rewritten is not None
    assert explained.rewritten.shards < explained.original.shards == 3
    assert explained.rewritten.docs < explained.original.docs


def test_options_of_a_find(spatial: SpatialCollection) -> None:
    explained = spatial.explain(CIRCLE, sort=[("n", 1)], limit=3, skip=1, projection={"n": 1})
    assert explained.rewritten is not None
    assert explained.original.returned == explained.rewritten.returned == 3


@pytest.mark.parametrize(
    "options", [{"sort": ["n", "kind"]}, {"sort": {"n": -1}}, {"limit": -3}, {"sort": None}]
)
def test_options_in_every_form_that_pymongo_takes(
    options: dict[str, Any], spatial: SpatialCollection
) -> None:
    explained = spatial.explain(CIRCLE, **options)
    assert len(list(spatial.find(CIRCLE, **options))) > 0
    assert explained.original.returned > 0
    if "limit" in options:
        assert explained.original.returned <= 3 * explained.original.shards


def test_as_json_and_as_a_table(spatial: SpatialCollection) -> None:
    explained = spatial.explain(CIRCLE)
    told = json.loads(json.dumps(explained.to_dict()))
    assert set(told) == {"decision", "original", "rewritten"}
    assert set(told["original"]) == set(told["rewritten"]) == {"keys", "docs", "shards", "returned", "ms"}
    assert told["decision"]["rules"] == ["settle_find"]
    assert set(told["decision"]["estimates_ms"]) == {"original", "server", "client"}
    assert told["decision"]["reasons"]
    lines = str(explained).splitlines()
    assert lines[0].split() == ["original", "rewritten"]
    assert [line[:20].strip() for line in lines[1:6]] == [
        "shards asked",
        "keys examined",
        "documents examined",
        "documents sent",
        "milliseconds",
    ]
    assert lines[1].split()[-2:] == [str(told["original"]["shards"]), str(told["rewritten"]["shards"])]
    assert "are settled in the client, in 2 commands (estimated: original " in lines[-1]


def test_a_count_is_explained_as_it_is_sent(plain: Documents, spatial: SpatialCollection) -> None:
    settled = spatial.with_qos(form="client").explain(CIRCLE, count=True)
    assert settled.plan.rules == ("settle_count",)
    assert settled.original.docs >= plain.count_documents(CIRCLE)
    assert settled.rewritten is not None
    assert settled.rewritten.docs == 0
    assert settled.rewritten.keys >= plain.count_documents(CIRCLE)
    tested = spatial.with_qos(form="server").explain(CIRCLE, count=True)
    assert tested.plan.rules == ("replace_regions",)
    assert tested.rewritten is not None
    assert spatial.explain({"kind": "cafe"}, count=True).rewritten is None


def test_a_small_count_reads_documents_and_says_so(plain: Documents) -> None:
    info = run(load_info(plain))
    assert info.histogram is not None
    few = replace(
        info, histogram=Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts // 1000)
    )
    explained = SpatialCollection(plain, info=few, qos=QoS(form="client")).explain(CIRCLE, count=True)
    assert explained.rewritten is not None
    assert explained.rewritten.docs == explained.rewritten.keys >= plain.count_documents(CIRCLE)


@pytest.mark.parametrize(
    ("pipeline", "rule"),
    [
        ([{"$match": CIRCLE}, {"$count": "n"}], "settle_count"),
        ([{"$match": CIRCLE}, {"$group": {"_id": None, "n": {"$sum": 1}}}], "settle_count"),
        ([GEO_NEAR, {"$limit": 5}], "ring_near"),
    ],
    ids=["count", "group", "nearest"],
)
def test_a_pipeline_is_explained_as_it_is_answered(
    pipeline: list[Any], rule: str, cluster: Any, spatial: SpatialCollection
) -> None:
    in_client = spatial.with_qos(form="client")
    explained = in_client.explain(pipeline)
    assert explained.plan.rules == (rule,)
    assert explained.rewritten is not None
    assert explained.rewritten.docs < explained.original.docs
    with recording(cluster.uri) as recorded:
        twin = recorded.twin(in_client._collection)
        sent = recorded.commands(
            in_client._collection,
            lambda: list(SpatialCollection(twin, qos=in_client._qos).aggregate(pipeline)),
        )
    first = {"settle_count": "aggregate", "ring_near": "find"}[rule]
    assert {next(iter(command)) for command in sent} == {first}
    assert len(sent) <= explained.plan.commands
    # What the servers are asked to do themselves is explained so.
    assert spatial.with_qos(form="server").explain(pipeline).plan.rules != (rule,)
    assert spatial.explain([GEO_NEAR, {"$limit": 5}, {"$project": {"d": 1}}]).plan.rules == (
        "bound_geo_near",
    )


UNSETTLED: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    (
        "of a sort with a limit the servers send only the first few",
        CIRCLE,
        {"sort": [("n", 1)], "limit": 3},
        {},
    ),
    ("the projection leaves out", CIRCLE, {"projection": {"gh": {"$literal": 1}}}, {}),
    ("other conditions may find their documents better", {**CIRCLE, "$or": [{"n": 1}, {"n": 2}]}, {}, {}),
    ("another condition has an index of its own", {**CIRCLE, "kind": "cafe"}, {}, {}),
    ("there are no statistics", CIRCLE, {}, {"histogram": None}),
    ("documents without gh may be anywhere", CIRCLE, {}, {"unhashed": True}),
]


@pytest.mark.parametrize(("why", "asked", "options", "changed"), UNSETTLED, ids=[one[0] for one in UNSETTLED])
def test_why_the_client_takes_no_part(
    why: str, asked: Any, options: dict[str, Any], changed: dict[str, Any], plain: Documents
) -> None:
    info = run(load_info(plain))
    own = Index("kind_1", (("kind", 1),))
    known = replace(info, indexes=(*info.indexes, own), **changed)
    explained = SpatialCollection(plain, info=known).explain(asked, **options)
    assert any(f"not settled in the client: {why}" in reason for reason in explained.plan.reasons), (
        explained.plan
    )
    assert "client" not in (explained.plan.estimates_ms or {})
    if "sort" not in options and "projection" not in options:
        counted = SpatialCollection(plain, info=known).explain(asked, count=True)
        assert any(why in reason for reason in counted.plan.reasons)


def test_no_reason_where_the_client_could_and_nothing_is_gained(spatial: SpatialCollection) -> None:
    for explained in (spatial.explain(CIRCLE), spatial.explain({"kind": "cafe"}), spatial.explain({})):
        assert not any("not settled" in reason for reason in explained.plan.reasons)


def test_errors_pass_through(spatial: SpatialCollection) -> None:
    with pytest.raises(OperationFailure, match="unknown top level operator"):
        spatial.explain({**CIRCLE, "$nonsense": 1})


# -- the command ------------------------------------------------------------------------------------------


def explain(cluster: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", f"{DATABASE}.places", *arguments, "--uri", cluster.uri])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.usefixtures("plain")
def test_the_command_prints_a_table(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(cluster, capsys, json.dumps(CIRCLE))
    assert (code, err) == (0, "")
    assert "documents examined" in out
    assert "are settled in the client" in out


@pytest.mark.usefixtures("plain")
def test_the_command_prints_json(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(cluster, capsys, json.dumps(CIRCLE), "--json", "--show-query", "--max-ranges", "6")
    told = json.loads(out)
    assert code == 0
    assert told["decision"]["rewritten"] is True
    assert 1 <= told["decision"]["ranges"] <= 6
    assert "gh" in json.dumps(told["sent"])
    assert 0 < told["original"]["returned"] <= told["rewritten"]["returned"]


@pytest.mark.usefixtures("plain")
def test_the_command_takes_pipelines_files_and_stdin(
    cluster: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "query.json"
    file.write_text(json.dumps([{"$match": CIRCLE}, {"$sort": {"n": 1}}]))
    code, out, _ = explain(cluster, capsys, f"@{file}", "--prefer", "throughput")
    assert code == 0
    assert "rewritten: " in out
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(NEAR)))
    code, out, _ = explain(cluster, capsys, "-", "--limit", "3")
    assert code == 0
    assert "the nearest 3 by ranges and sorted in the client" in out
    code, out, _ = explain(cluster, capsys, json.dumps(CIRCLE), "--precision", "selectivity", "--show-query")
    assert code == 0
    assert '"$gte"' in out


@pytest.mark.usefixtures("plain")
def test_the_command_explains_counts_and_forms(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(cluster, capsys, json.dumps(CIRCLE), "--count", "--form", "client", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["decision"]["rules"] == ["settle_count"]
    assert told["rewritten"]["docs"] == 0 < told["original"]["docs"]
    code, out, _ = explain(cluster, capsys, json.dumps(CIRCLE), "--form", "server")
    assert code == 0
    assert "rewritten: a region covered by" in out
    code, _, err = explain(cluster, capsys, json.dumps([{"$match": CIRCLE}]), "--count")
    assert code != 0
    assert "--count is for a filter" in err


@pytest.mark.usefixtures("plain")
def test_the_command_says_what_is_wrong(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["{"], "the query is no JSON"),
        (["5"], "the query must be a filter"),
        (["{}", "--max-ranges", "0"], "max_ranges is 0"),
        (["@/no/such/file"], "No such file"),
        (['{"$nonsense": 1}'], "unknown top level operator"),
    ):
        code, out, err = explain(cluster, capsys, *arguments)
        assert (code, out) == (1, "")
        assert message in err
        assert len(err.splitlines()) == 1


def test_extended_json_is_understood() -> None:
    assert read_query('{"at": {"$date": "2024-01-01T00:00:00Z"}}')["at"].year == 2024
    with pytest.raises(UsageError, match="the query is no JSON"):
        read_query("loc")
