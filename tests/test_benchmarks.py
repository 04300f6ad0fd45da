"""The frame of the benchmarks: it compares what it measures, and says what the contract asks for."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import benchmarks.__main__ as command
from benchmarks import deployment
from benchmarks.cpu import ServerCpu, client_cpu_s, process_cpu_s
from benchmarks.data import Points, find_columns, load_points, load_polygons, read_columns, read_polygons
from benchmarks.deployment import geohash_collection, hashed_collection, open_deployment
from benchmarks.frame import Comparison, Timing, Variant, compare, table
from benchmarks.options import Options
from spatialnosql.errors import ClusterError, UsageError
from spatialnosql.examined import Examined, examine_count, examine_find, examined
from spatialnosql.geohash import points_to_strings

NO_CPU = ServerCpu(None)
COMMON_KEYS = {"benchmark", "n_points", "n_shards", "variants", "ratio", "ratio_total", "ratio_wall", "equal"}
VARIANT_KEYS = {"wall_s", "server_cpu_s", "client_cpu_s", "keys", "docs", "shards", "results"}


# --- comparing --------------------------------------------------------------------------------------------


def test_variants_take_turns_and_every_answer_counts() -> None:
    calls: list[str] = []

    def asking(name: str) -> Variant:
        return Variant(name, lambda query: calls.append(name) or query)

    comparison = compare([3, 4], [asking("other"), asking("plain")], cpu=NO_CPU, repeats=3)
    assert calls == ["plain"] * 2 + ["other"] * 4 + ["plain"] * 4 + ["other"] * 2
    assert comparison.result()["equal"] is True
    assert comparison.result()["variants"]["other"]["results"] == 7
    assert [len(t.wall_s) for t in comparison.timings.values()] == [3, 3]


def test_an_unequal_answer_is_found_and_named() -> None:
    variants = [Variant("plain", lambda q: q), Variant("wrong", lambda q: q + (q == 2))]
    comparison = compare([1, 2, 3], variants, cpu=NO_CPU, repeats=1)
    assert comparison.result()["equal"] is False
    assert comparison.unequal == [("wrong", 1)]
    assert "THE ANSWERS DIFFER" in table({"benchmark": "x", **comparison.result()})


def test_an_answer_that_is_wrong_only_once_is_found() -> None:
    answers = iter([1, 1, 2])
    variants = [Variant("plain", lambda _: 1), Variant("fickle", lambda _: next(answers))]
    assert compare([None], variants, cpu=NO_CPU, repeats=3).result()["equal"] is False


def test_turns_after_a_few_queries() -> None:
    asked: list[tuple[str, int]] = []

    def asking(name: str) -> Variant:
        return Variant(name, lambda query: asked.append((name, query)) or query)

    comparison = compare([1, 2, 3], [asking("plain"), asking("other")], cpu=NO_CPU, repeats=2, block=2)
    first = [("plain", 1), ("plain", 2), ("other", 1), ("other", 2), ("other", 3), ("plain", 3)]
    second = [("other", 1), ("other", 2), ("plain", 1), ("plain", 2), ("plain", 3), ("other", 3)]
    assert asked == [*first, *second]
    assert comparison.result()["equal"] is True
    timing = comparison.timings["other"]
    assert (len(timing.wall_s), [len(walls) for walls in timing.query_wall_s]) == (2, [3, 3])
    assert timing.results == 6  # of one run: answers that are numbers are counts


def test_answers_are_compared_in_their_canonical_form_and_sized() -> None:
    variants = [
        Variant("plain", lambda _: [1, 2, 3], canonical=sorted),
        Variant("other", lambda _: [3, 1, 2], canonical=sorted),
    ]
    result = compare([None], variants, cpu=NO_CPU, repeats=1).result()
    assert result["equal"] is True
    assert result["variants"]["other"]["results"] == 3


def test_medians_and_ratios() -> None:
    plain = Timing([1.0, 9.0, 2.0], [4.0, 4.0, 8.0], [1.0, 1.0, 1.0], [[1.0, 4.0]] * 3, 5)
    other = Timing(
        [0.5, 0.5, 7.0], [2.0, 2.0, 1.0], [3.0, 3.0, 3.0], [[2.0, 1.0]] * 3, 5, Examined(8, 6, 4, 2)
    )
    comparison = Comparison("plain", 2, {"plain": plain, "other": other}, [])
    result = comparison.result()
    assert result["variants"]["plain"]["wall_s"] == 2.0
    numbers = {"wall_s": 0.5, "server_cpu_s": 2.0, "client_cpu_s": 3.0, "results": 5}
    assert result["variants"]["other"] == {**numbers, "keys": 8, "docs": 6, "shards": 2.0}
    assert result["ratio"] == {"plain": 1.0, "other": 2.0}
    assert result["ratio_total"] == {"plain": 1.0, "other": 1.0}
    assert result["ratio_wall"] == {"plain": 1.0, "other": 4.0}
    assert comparison.worst_query_ratio_wall("other") == 0.5


@pytest.mark.parametrize("server", [None, 0.0])
def test_what_was_not_measured_is_null(server: float | None) -> None:
    timings = {name: Timing([1.0], [server], [0.5], [[1.0]], 1) for name in ("plain", "other")}
    result = Comparison("plain", 1, timings, []).result()
    assert result["ratio"] == {"plain": None, "other": None}
    assert result["variants"]["other"]["server_cpu_s"] == server
    json.dumps(result, allow_nan=False)


def test_the_table_says_when_server_cpu_is_unknown() -> None:
    result = compare([1], [Variant("plain", lambda q: q)], cpu=NO_CPU, repeats=1).result()
    text = table({"benchmark": "x", "n_points": 5, "n_shards": 3, "queries": {"count": result}})
    assert "count: 1 queries" in text
    assert "server CPU is unknown" in text


# --- CPU --------------------------------------------------------------------------------------------------


def burn() -> None:
    sum(i * i for i in range(200_000))


def test_cpu_of_a_process_grows_when_it_works() -> None:
    before, client_before = process_cpu_s(os.getpid()), client_cpu_s()
    while process_cpu_s(os.getpid()) == before:  # a tick is coarse: work until one has passed
        burn()
    assert client_cpu_s() > client_before


def test_children_that_were_waited_for_count_as_client() -> None:
    before = os.times().children_user
    while os.times().children_user == before:
        subprocess.run([sys.executable, "-c", "sum(i * i for i in range(300_000))"], check=True)
    assert client_cpu_s() >= os.times().children_user


def test_cpu_is_unknown_without_processes_and_an_error_when_they_are_gone() -> None:
    assert NO_CPU.seconds() is None
    assert not NO_CPU.known
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ClusterError, match=f"process {ended.pid} of the cluster is gone"):
        ServerCpu({"mongos": ended.pid}).seconds()


# --- data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lat", "lon", "base"], ("lon", "lat")),
        (["Longitude", "Latitude"], ("Longitude", "Latitude")),
        (["fare", "pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat"], ("pickup_lon", "pickup_lat")),
        (["long_name", "lng", "lat"], ("lng", "lat")),
        (["start_lng_deg", "start_lat_deg"], ("start_lng_deg", "start_lat_deg")),
    ],
)
def test_columns_are_found_by_name(names: list[str], expected: tuple[str, str]) -> None:
    assert find_columns(names) == expected


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(UsageError, match=r"no pair of columns like lon/lat .* among x, y"):
        find_columns(["x", "y"])


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_are_read_up_to_the_limit_and_bad_rows_dropped(tmp_path: Path, suffix: str) -> None:
    lng, lat = [1.5, None, 0.0, 200.0, 2.5, 3.5], [4.5, 5.0, 0.0, 1.0, 6.5, 7.5]
    rows = pa.table({"name": list("abcdef"), "lat": lat, "lon": lng})
    path = tmp_path / f"points.{suffix}"
    (pa.parquet.write_table if suffix == "parquet" else pa.csv.write_csv)(rows, path)
    assert read_columns(path)[0].size == 6
    points = load_points(Options(data=path, limit=5))
    assert points.lng.tolist() == [1.5, 2.5]
    assert points.lat.tolist() == [4.5, 6.5]
    assert points.dropped == {"missing": 1, "null_island": 1, "out_of_range": 1}
    (documents,) = points.to_documents(extra={"gh": np.array(["a", "b"])})
    assert documents[1] == {"_id": 1, "loc": {"type": "Point", "coordinates": [2.5, 6.5]}, "gh": "b"}


def test_along_the_curve_rows_keep_their_numbers_and_columns() -> None:
    points = load_points(Options(limit=1000))
    gh = points_to_strings(points.lng, points.lat)
    given, sorted_ = (
        [d for batch in points.to_documents(300, extra={"gh": gh}, along_curve=along) for d in batch]
        for along in (False, True)
    )
    assert [d["gh"] for d in given] != [d["gh"] for d in sorted_] == sorted(gh.tolist())
    assert sorted(sorted_, key=lambda d: d["_id"]) == given


def test_a_generated_city_stands_in_for_missing_files() -> None:
    points = load_points(Options(limit=1000))
    assert sum(points.dropped.values()) == 2
    assert len(points) == 998
    assert len(load_polygons(Options(), 12)) == 12


FEATURE = {
    "type": "Feature",
    "properties": {"id": 7, "BoroName": "Here"},
    "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]},
}
LINE = {"type": "Feature", "properties": None, "geometry": {"type": "LineString", "coordinates": []}}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"type": "FeatureCollection", "features": [FEATURE, LINE]}),
        f"{json.dumps(FEATURE)}\n{json.dumps(LINE)}\n\n",
        json.dumps(FEATURE),
    ],
    ids=["collection", "lines", "one"],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_polygons_are_read_in_every_wrapping(tmp_path: Path, text: str, zipped: bool) -> None:
    path = tmp_path / ("areas.geojson" + ".gz" * zipped)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    (area,) = read_polygons(path)
    assert area.name == "Here"
    assert area.geometry == FEATURE["geometry"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.geojson", "hello", "a.geojson is no GeoJSON"),
        ("a.geojson", json.dumps(LINE), "no Polygon or MultiPolygon in a.geojson"),
        ("a.geojson.gz", "not zipped", "a.geojson.gz is no GeoJSON"),
    ],
)
def test_polygons_that_cannot_be_read_are_a_usage_error(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        read_polygons(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "message"), [("a.txt", "takes .parquet, .csv"), ("a.parquet", "cannot read")]
)
def test_points_that_cannot_be_read_are_a_usage_error(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("nonsense")
    with pytest.raises(UsageError, match=message):
        read_columns(tmp_path / name)


def test_missing_files_and_halves_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_columns(tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="no such file"):
        read_polygons(tmp_path / "none.geojson")
    with pytest.raises(UsageError, match="--data without --polygons"):
        load_polygons(Options(data=tmp_path / "points.csv"))


# --- explain ----------------------------------------------------------------------------------------------


def stats(keys: int, docs: int, **stages: object) -> dict:
    return {
        "executionStats": {"totalKeysExamined": keys, "totalDocsExamined": docs, "executionStages": stages}
    }


def test_explain_is_summed_over_shards() -> None:
    assert examined(stats(5, 4, shards=[{}, {}])) == Examined(5, 4, 2)
    assert examined({"shards": {"a": {"stages": [{"$cursor": stats(1, 2)}]}, "b": stats(3, 4)}}) == Examined(
        4, 6, 2
    )
    assert examined(stats(5, 4)) == Examined(5, 4, 1)
    assert Examined.total([Examined(1, 2, 3), Examined(4, 5, 6)]) == Examined(5, 7, 9, 2)


@contextmanager
def bench_on(cluster: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[deployment.Bench]:
    """The run's own cluster in the place of one that the benchmark would start."""

    @contextmanager
    def running(shards: int) -> Iterator[object]:
        yield cluster

    monkeypatch.setattr(deployment, "LocalCluster", running)
    with open_deployment(Options()) as bench:
        yield bench


@pytest.mark.mongo
def test_placement_on_shards_and_what_queries_examine(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 600
    points = Points(np.linspace(0, 10, n), np.linspace(40, 50, n), "line", {})
    gh = np.array([f"{number:012d}" for number in range(n)])
    with bench_on(cluster, monkeypatch) as bench:
        hashed = hashed_collection(bench, "hashed", points.to_documents(100), n)
        ranged = geohash_collection(bench, "ranged", points.to_documents(100, extra={"gh": gh}), n, gh)
        assert hashed.count_documents({}) == ranged.count_documents({}) == n
        assert examine_count(hashed, {"amount": 1}) == Examined(0, n, bench.n_shards)
        assert examine_find(hashed, {"amount": 1}) == Examined(0, n, bench.n_shards)
        # One shard holds the first third, in order: nobody else is asked.
        first = {"gh": {"$gte": gh[0], "$lt": gh[100]}}
        assert examine_find(ranged, first).shards == 1
        assert examine_count(ranged, first, hint={"gh": 1, "_id": 1}) == Examined(100, 0, 1)
        sizes = [s["count"] for s in ranged.aggregate([{"$collStats": {"count": {}}}])]
        assert sorted(sizes) == [n // bench.n_shards] * bench.n_shards
        name = bench.database.name
    with bench_on(cluster, monkeypatch) as other:
        assert name not in other.database.client.list_database_names()


# --- the command ------------------------------------------------------------------------------------------


def last_json(text: str) -> dict:
    return json.loads(text.splitlines()[-1])


@pytest.mark.mongo
def test_the_frame_benchmark_keeps_the_contract(
    cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def running(shards: int) -> Iterator[object]:
        yield cluster

    monkeypatch.setattr(deployment, "LocalCluster", running)
    assert command.main(["frame", "--limit", "2000", "--repeats", "1", "--json"]) == 0
    result = last_json(capsys.readouterr().out)
    assert set(result) >= COMMON_KEYS
    assert all(set(variant) == VARIANT_KEYS for variant in result["variants"].values())
    assert result["equal"] is True
    assert result["n_points"] == 1996
    assert result["variants"]["no_index"]["docs"] == 1996 * result["n_queries"]
    assert result["variants"]["plain"]["results"] == result["variants"]["no_index"]["results"] == 1996
    assert result["variants"]["plain"]["shards"] == result["n_shards"]
    assert result["variants"]["no_index"]["server_cpu_s"] > 0


@pytest.mark.mongo
def test_with_a_uri_server_cpu_is_null_and_the_table_says_so(
    cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["all", "--uri", cluster.uri, "--limit", "500", "--repeats", "1"]
    monkeypatched = [b for b in command.REGISTRY if b.name == "frame"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "REGISTRY", tuple(monkeypatched))
        assert command.main(arguments) == 0
        text = capsys.readouterr()
        assert "server CPU is unknown" in text.out
        assert "no_index" in text.out
        assert command.main([*arguments, "--json"]) == 0
    result = last_json(capsys.readouterr().out)
    assert result["benchmarks"]["frame"]["variants"]["plain"]["server_cpu_s"] is None
    assert result["benchmarks"]["frame"]["ratio"] == {"plain": None, "no_index": None}


def test_the_list_names_every_benchmark_and_every_module_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    for benchmark in command.REGISTRY:
        assert benchmark.name in listed
        assert callable(__import__(benchmark.module, fromlist=["run"]).run)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["nonsense", "--json"]])
def test_an_unknown_benchmark_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    captured = capsys.readouterr()
    assert "there are frame" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("option", ["--limit", "--repeats", "--shards"])
def test_zero_is_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["frame", option, "0"])
    assert "0 is not above zero" in capsys.readouterr().err


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.parquet"
    assert command.main(["frame", "--data", str(missing)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"benchmarks: no such file: {missing}"


def test_unequal_answers_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = [Variant("plain", lambda q: q), Variant("wrong", lambda q: q + 1)]
    result = {"benchmark": "frame", "queries": {"count": compare([1], variants, cpu=NO_CPU).result()}}
    monkeypatch.setattr(command, "run_one", lambda *_: (result, table(result)))
    assert command.main(["frame"]) == 1
    assert "THE ANSWERS DIFFER" in capsys.readouterr().out
