"""The benchmarks that ask a server: their shape, their comparing, and that a wrong answer is seen."""

import copy
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import benchmarks.__main__ as command
from benchmarks import cold, containment, deployment, mbr, near, paper, throughput, topn, worst
from benchmarks.cpu import ServerCpu
from benchmarks.data import Area, Points
from benchmarks.frame import Variant, compare
from benchmarks.paper_figures import draw_figures
from benchmarks.sent import recording
from spatialnosql.errors import UsageError
from spatialnosql.geohash import points_to_strings

NO_CPU = ServerCpu(None)
LIMIT = "1500"
PART_KEYS = {"n_queries", "variants", "ratio", "ratio_total", "ratio_wall", "equal"}
VARIANT_KEYS = {"wall_s", "server_cpu_s", "client_cpu_s", "keys", "docs", "shards", "results"}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]]}


@pytest.fixture
def on_cluster(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmarks use the run's own cluster."""

    @contextmanager
    def running(shards: int) -> Iterator[Any]:
        yield cluster

    monkeypatch.setattr(deployment, "LocalCluster", running)
    for module in (worst, cold):
        monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(worst, "LEAST_S", 0.0)


def asked_for(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON of a small run that went well."""
    assert command.main([name, "--limit", LIMIT, "--repeats", "1", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def few_polygons(monkeypatch: pytest.MonkeyPatch, module: Any, count: int = 6) -> None:
    whole = module.load_polygons
    monkeypatch.setattr(module, "load_polygons", lambda *given: whole(*given)[:count])


# --- containment ------------------------------------------------------------------------------------------


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_containment_keeps_the_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few_polygons(monkeypatch, containment)
    result = asked_for("containment", capsys)
    assert result["benchmark"] == "containment"
    assert set(result["queries"]) == {"count", "find"}
    assert result["equal"] is True
    for part in result["queries"].values():
        assert set(part) >= PART_KEYS | {"worst", "worst_queries", "again", "cold"}
        assert list(part["variants"]) == ["plain", "unrewritten", "paper", "rewritten"]
        assert all(set(values) >= VARIANT_KEYS for values in part["variants"].values())
        results = {values["results"] for values in part["variants"].values()}
        assert len(results) == 1
        assert results.pop() > 0
        assert part["worst"] == part["worst_queries"][0]["ratio_wall"] > 0
        assert part["cold"]["variants"]["rewritten"]["first_s"] > 0
        assert part["variants"]["plain"]["shards"] == result["n_shards"]
        assert part["variants"]["plain"]["docs"] > 0
    assert result["worst"] == min(part["worst"] for part in result["queries"].values())
    assert "worst single queries" in containment.table(result)


@pytest.mark.mongo
@pytest.mark.spark
@pytest.mark.usefixtures("on_cluster")
def test_topn_keeps_the_contract(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few_polygons(monkeypatch, topn)
    result = asked_for("topn", capsys)
    assert result["benchmark"] == "topn"
    assert set(result) >= PART_KEYS
    assert list(result["variants"]) == ["plain", "rewritten", "new", "again", "as_of", "spark"]
    assert result["equal"] is True
    assert {values["results"] for values in result["variants"].values()} == {
        result["variants"]["plain"]["results"]
    }
    assert result["variants"]["plain"]["results"] > 0
    assert result["variants"]["rewritten"]["docs"] < result["variants"]["plain"]["docs"]
    assert result["estimated"]["within_bounds"] is True
    assert "borders estimated" in topn.table(result)


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
@pytest.mark.parametrize("kind", ["count_documents", "find"])
def test_a_wrong_answer_of_the_rewriter_is_seen(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(containment.SpatialCollection):
        def count_documents(self, *arguments: Any, **options: Any) -> int:
            return super().count_documents(*arguments, **options) + (kind == "count_documents")

        def find(self, *arguments: Any, **options: Any) -> Any:
            found = list(super().find(*arguments, **options))
            return found[1:] if kind == "find" else found

    few_polygons(monkeypatch, containment, 2)
    monkeypatch.setattr(containment, "SpatialCollection", Wrong)
    monkeypatch.setattr(containment, "cold_queries", lambda *_: {"variants": {}, "equal": True})
    assert command.main(["containment", "--limit", "300", "--repeats", "1", "--json"]) == 1
    captured = capsys.readouterr()
    parts = json.loads(captured.out.splitlines()[-1])["queries"]
    assert "variants gave different answers" in captured.err
    assert parts["count"]["equal"] is (kind != "count_documents")
    assert parts["find"]["equal"] is (kind != "find")


def test_a_rotated_ring_is_the_same_ring() -> None:
    hole = [[1, 1], [1, 2], [2, 2], [1, 1]]
    polygon = {"type": "Polygon", "coordinates": [SQUARE["coordinates"][0], hole]}
    both = {"type": "MultiPolygon", "coordinates": [polygon["coordinates"], SQUARE["coordinates"]]}
    for geometry in (polygon, both):
        asked = containment.Asked(Area("here", geometry), ["s0"])
        untouched = copy.deepcopy(geometry)
        assert containment.rotated(asked, 0) == asked
        turned = containment.rotated(asked, 5)  # further than the hole is long
        assert geometry == untouched
        assert turned.hashes == asked.hashes
        assert turned.area.geometry != geometry
        assert containment.rotated(asked, 12).area.geometry == geometry  # 12 is whole turns of both rings
    turned = containment.rotated(containment.Asked(Area("here", polygon), []), 1).area.geometry["coordinates"]
    assert turned == [[[4, 0], [4, 4], [0, 4], [0, 0], [4, 0]], [[1, 2], [2, 2], [1, 1], [1, 2]]]


def test_whole_documents_are_compared() -> None:
    def holding(*documents: dict[str, Any]) -> Any:
        return SimpleNamespace(find=lambda _: iter(documents))

    one, other = {"_id": 1, "loc": 5}, {"_id": 2, "loc": 6}
    same = {name: holding({**other, "gh": "x"}, one) for name in ("unrewritten", "paper")}
    asked = [containment.Asked(Area("here", SQUARE), [])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containment, "SpatialCollection", lambda collection: collection)
        assert containment.documents_equal(
            asked, {"plain": holding(one, other), "rewritten": holding(one, other), **same}
        )
        changed = holding(one, {**other, "loc": 7})
        assert not containment.documents_equal(
            asked, {"plain": holding(one, other), "rewritten": changed, **same}
        )


# --- near -------------------------------------------------------------------------------------------------


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_near_keeps_the_contract(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert {kind.name for kind in near.KINDS} >= {
        *(f"k{k}{most}" for k in (1, 10, 100) for most in ("", "_max_200m", "_max_1km", "_max_5km")),
        "within_500m",
        "within_2km",
    }
    kinds = {kind.name: kind for kind in near.KINDS}
    chosen = [kinds[name] for name in ("k10", "k100_max_1km", "within_2km", "geonear_k10")]
    monkeypatch.setattr(near, "KINDS", tuple(near.dataclasses.replace(kind, places=4) for kind in chosen))
    result = asked_for("near", capsys)
    assert result["equal"] is True
    assert set(result["queries"]) == {kind.name + suffix for kind in chosen for suffix in ("", "_empty")}
    for part in result["queries"].values():
        assert set(part) >= PART_KEYS | {"worst", "worst_queries"}
        assert set(part["variants"]) == {"plain", "unrewritten", "rewritten"}
        assert part["variants"]["unrewritten"]["n_queries"] <= near.UNREWRITTEN_PLACES
        assert set(part["ratio_wall"]) == set(part["variants"])
    for name in ("k10", "k10_empty", "geonear_k10"):
        part = result["queries"][name]
        assert part["variants"]["rewritten"]["results"] == 10 * part["n_queries"] > 0
    dense, empty = (
        result["queries"][f"within_2km{suffix}"]["variants"]["plain"] for suffix in ("", "_empty")
    )
    assert dense["results"] > 4 * empty["results"]
    assert result["worst"] == min(part["worst"] for part in result["queries"].values())
    assert "unrewritten was asked from 3 places" in near.table(result)


def answer(*metres_east: float, said: float | None = None, limit: int = 0) -> near.Answer:
    kind = near.Kind("any", limit, None, 1, aggregate=said is not None)
    documents = [
        {"_id": int(metres), "loc": {"coordinates": [metres * near.METRE_DEG, 0.0]}, "distance_m": said}
        for metres in metres_east
    ]
    return near.Answer.of(near.Asked("here", 0.0, 0.0, kind), documents)


def test_distances_are_compared_in_order_and_ties_may_be_any() -> None:
    distances = near.distances
    assert distances(answer(100, 200)).metres == pytest.approx([100, 200])
    assert distances(answer(100, -100, 200)) == distances(answer(-100, 100, 200))
    assert distances(answer(100, 200)) != distances(answer(200, 100))
    assert distances(answer(100, 200)) != distances(answer(100, 200.001))
    assert distances(answer(100, 200)) != distances(answer(100))
    assert distances(answer()) == distances(answer())
    assert distances(answer(100, 200)) != distances(answer(-100, 200))  # as far, and another
    assert distances(answer(100, 200, limit=2)) != distances(answer(-100, 200, limit=2))
    assert distances(answer(100, 200, limit=2)) == distances(answer(100, -200, limit=2))
    assert distances(answer(100, said=100.0)) != distances(answer(100, said=100.1))


def test_empty_places_are_empty_and_dense_ones_are_not() -> None:
    rng = np.random.default_rng(5)
    lng, lat = rng.uniform(10, 10.3, 20_000), rng.uniform(50, 50.3, 20_000)
    hole = (np.abs(lng - 10.15) < 0.06) & (np.abs(lat - 50.15) < 0.06)
    points = Points(lng[~hole], lat[~hole], "a ring", {})
    places = near.empty_places(points, 1)
    assert sum(place.label.startswith("hole") for place in places) == 4
    assert all(-180 <= place.lng <= 180 and -90 <= place.lat <= 90 for place in places)

    def nearest_m(place: near.Asked) -> float:
        places = zip(points.lng.tolist(), points.lat.tolist(), strict=True)
        documents = [{"_id": number, "loc": {"coordinates": at}} for number, at in enumerate(places)]
        return float(near.distances(near.Answer.of(place, documents)).metres.min())

    assert min(nearest_m(place) for place in places) > 600
    dense = near.dense_places(points, 1)
    assert len({(place.lng, place.lat) for place in dense}) == len(dense) == 80
    assert max(nearest_m(place) for place in dense[:10]) < 1500


def test_places_move_less_than_a_millimetre_and_stay_on_the_map() -> None:
    for lng, lat in ((180.0, -90.0), (-180.0, 90.0), (11.0, 55.0)):
        place = near.Asked("here", lng, lat, near.KINDS[0])
        assert near.moved(place, 0) == place
        for run in (1, 2, 1000):
            moved = near.moved(place, run)
            assert (moved.lng, moved.lat) != (lng, lat)
            assert abs(moved.lng) <= abs(lng)
            assert abs(moved.lng - lng) < 1e-6
            assert abs(moved.lat) <= abs(lat)


def test_slow_places_are_left_out_and_some_are_always_asked() -> None:
    slow = Variant("plain", lambda _: time.sleep(0.02))
    assert len(near.within_budget(list(range(30)), slow, 0.1)) in range(3, 12)
    assert len(near.within_budget(list(range(30)), slow, 0.0)) == near.FEWEST_PLACES
    assert near.within_budget([1, 2], slow, 9.0) == [1, 2]


# --- the paper --------------------------------------------------------------------------------------------


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_paper_measures_and_draws_every_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    few_polygons(monkeypatch, paper, 4)
    monkeypatch.setattr(paper, "RADII_KM", (1, 15))
    result = asked_for("paper", capsys, "--out", str(tmp_path))
    assert result["equal"] is True
    assert set(result["queries"]) == {"containment", "topn", "proximity_1km", "proximity_15km"}
    for part in result["queries"].values():
        assert list(part["variants"]) == ["plain", "paper_25", "paper", "paper_35", "rewritten"]
        assert set(part) >= PART_KEYS
        for values in part["variants"].values():
            assert set(values) >= VARIANT_KEYS
            assert values["docs"] is not None
            assert values["keys"] is not None
        assert len({values["results"] for values in part["variants"].values()}) == 1
    # Finer cells let fewer candidates through; the plain query looks at every shard.
    docs = {name: values["docs"] for name, values in result["queries"]["containment"]["variants"].items()}
    assert docs["paper_25"] >= docs["paper"] >= docs["paper_35"] > 0
    assert paper.PAPER == {"paper_25": 25, "paper": 30, "paper_35": 35}
    assert result["queries"]["containment"]["variants"]["plain"]["shards"] == result["n_shards"]
    stems = {Path(plot).stem for plot in result["plots"]}
    assert {stem.partition("_")[0] for stem in stems} == {"figure2", "figure3", "figure4"}
    assert all((tmp_path / plot).stat().st_size > 1000 for plot in result["plots"])
    assert "figure 3, Top-N" in paper.table(result)


def test_the_paper_lists_every_cell_of_the_rectangle() -> None:
    rng = np.random.default_rng(3)
    rectangle = mbr.geometry_rectangle({"type": "MultiPolygon", "coordinates": [SQUARE["coordinates"]]})
    assert rectangle == (0, 0, 4, 4)
    around = mbr.circle_rectangle(11.3, 56.2, 3000)
    for bits, (west, south, east, north) in ((25, around), (30, around), (35, around), (25, rectangle)):
        hashes = mbr.rectangle_hashes((west, south, east, north), bits)
        assert len(set(hashes)) == len(hashes)
        lng, lat = rng.uniform(west, east, 500), rng.uniform(south, north, 500)
        corners = np.array([west, east, west, east]), np.array([south, south, north, north])
        for x, y in ((lng, lat), corners):
            assert set(points_to_strings(x, y, bits // 5).tolist()) <= set(hashes)
    # The circle touches its rectangle, and no point of it lies outside.
    x, y = near.travel(
        np.full(360, 11.3), np.full(360, 56.2), np.radians(np.arange(360)), 3000 * near.METRE_DEG
    )
    west, south, east, north = around
    assert x.min() >= west - 1e-9
    assert x.max() <= east + 1e-9
    assert x.max() > east - 1e-4
    assert y.min() >= south - 1e-9
    assert y.max() <= north + 1e-9


def test_without_matplotlib_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"spatialnosql\[plots\]"):
        draw_figures({}, tmp_path)


# --- throughput -------------------------------------------------------------------------------------------


@pytest.mark.mongo
@pytest.mark.usefixtures("on_cluster")
def test_throughput_counts_queries_and_wrong_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few_polygons(monkeypatch, throughput, 4)
    monkeypatch.setattr(throughput, "PROCESSES", 2)
    monkeypatch.setattr(throughput, "QUICK_ROUND_S", 0.4)
    result = asked_for("throughput", capsys)
    assert result["equal"] is True
    assert result["wrong"] == {"plain": 0, "rewritten": 0}
    assert set(result) >= PART_KEYS - {"n_queries"}
    for values in result["variants"].values():
        assert set(values) >= VARIANT_KEYS
        assert values["results"] > 0
        assert values["qps"] > 0
        assert values["keys"] > 0
        assert values["shards"] >= 1
        assert values["p50_ms"] <= values["p95_ms"] <= values["p99_ms"]
    plain, ours = (result["variants"][name]["qps"] for name in ("plain", "rewritten"))
    assert result["ratio_qps"] == {"plain": 1.0, "rewritten": pytest.approx(ours / plain, abs=1e-3)}
    assert "queries/s" in throughput.table(result)


@pytest.mark.mongo
def test_a_client_process_sees_a_wrong_count(database: Any) -> None:
    database.points.insert_many([{"loc": {"type": "Point", "coordinates": [1, 1]}}] * 1)
    uri = f"mongodb://{database.client.address[0]}:{database.client.address[1]}"
    nothing = SimpleNamespace(wait=lambda *_: None)
    for expected, wrong in ((1, False), (2, True)):
        found: list[dict[str, Any]] = []
        work = throughput.Work(uri, database.name, "points", False, 1, 0.05, [SQUARE], [expected])
        throughput._client(work, nothing, nothing, SimpleNamespace(put=found.append))
        assert (found[0]["wrong"] > 0) is wrong
        assert found[0]["latencies_s"]


# --- the parts --------------------------------------------------------------------------------------------


@pytest.mark.mongo
def test_every_command_that_is_sent_is_examined(cluster: Any, database: Any) -> None:
    points = database.points
    points.insert_many([{"n": number} for number in range(10)])
    points.create_index("n")
    with recording(cluster.uri) as recorded:
        twin = recorded.twin(points)

        def ask() -> None:
            twin.database.other.find_one({})
            twin.count_documents({"n": {"$lt": 4}}, hint="n_1")
            list(twin.find({"n": {"$gte": 8}}, batch_size=1))
            list(twin.find_raw_batches({}, {"n": 1}, limit=3))

        sent = recorded.commands(points, ask)
        assert [next(iter(command)) for command in sent] == ["aggregate", "find", "find"]
        assert sent[1] == {"find": "points", "filter": {"n": {"$gte": 8}}}
        assert sent[2] == {"find": "points", "filter": {}, "projection": {"n": 1}, "limit": 3}
        examined = recorded.examine(points, ask)
    assert examined.docs == 2 + 3
    assert examined.keys >= 4 + 2
    assert (examined.shards, examined.queries) == (1, 1)


def test_fresh_queries_are_compared_within_their_run() -> None:
    asked: list[int] = []
    variants = [Variant("plain", lambda q: asked.append(q) or q), Variant("other", lambda q: q)]
    comparison = compare([1, 5], variants, cpu=NO_CPU, repeats=3, fresh=lambda query, run: query + 10 * run)
    assert asked == [1, 5, 11, 15, 21, 25]
    assert comparison.result()["equal"] is True
    wrong = Variant("other", lambda q: q + (q == 15))
    comparison = compare(
        [1, 5], [variants[0], wrong], cpu=NO_CPU, repeats=3, fresh=lambda query, run: query + 10 * run
    )
    assert comparison.unequal == [("other", 1)]


def test_the_worst_query_is_measured_again() -> None:
    calls: list[Any] = []

    def slow(query: int) -> int:
        calls.append(query)
        time.sleep(0.004 if query % 10 == 3 else 0.001)
        return 0

    plain = Variant("plain", lambda _: time.sleep(0.002) or 0)
    ours = Variant("rewritten", slow)
    comparison = compare([1, 2, 3], [plain, ours], cpu=NO_CPU, repeats=1)
    calls.clear()
    found = worst.measure_worst(
        "count",
        comparison,
        [1, 2, 3],
        plain,
        ours,
        fresh=lambda q, run: q + 10 * run,
        candidates=2,
        repeats=5,
    )
    assert len(calls) == 10
    assert min(calls) > 1000  # fresh ones, and none of an earlier run
    assert found[0].query == "3"
    assert found[0].repeats == 5
    assert found[0].ratio_wall < found[1].ratio_wall
    keys = worst.worst_keys(found)
    assert keys["worst"] == keys["worst_queries"][0]["ratio_wall"] < 1
    assert worst.worst_keys([])["worst"] is None
    assert all(one.equal for one in found)
    wrong = Variant("rewritten", lambda query: int(query == 1003))  # once, and only when it is asked again
    found = worst.measure_worst(
        "count", comparison, [1, 2, 3], plain, wrong, fresh=lambda q, run: q + run, candidates=3, repeats=5
    )
    assert sorted((one.query, one.equal) for one in found) == [("1", False), ("2", False), ("3", False)]
    assert "count 3" in worst.worst_lines(keys)[0]


def test_a_query_that_takes_long_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = Variant("plain", lambda _: 0), Variant("rewritten", lambda _: 0)
    comparison = compare([7], [plain, ours], cpu=NO_CPU, repeats=1)
    monkeypatch.setattr(worst, "LONG_S", 0.0)
    never = Variant("rewritten", lambda _: pytest.fail("asked again"))
    (found,) = worst.measure_worst("near", comparison, [7], plain, never)
    assert found.repeats == 1


@pytest.mark.mongo
def test_a_process_of_its_own_asks_the_first_query(cluster: Any, database: Any) -> None:
    database.points.insert_many(
        [{"_id": i, "loc": {"type": "Point", "coordinates": [i, 1]}} for i in range(9)]
    )
    inside = {"loc": {"$geoWithin": {"$geometry": SQUARE}}}
    asked = {"database": database.name, "collection": "points", "filters": [inside, {}]}
    variants = {
        "plain": {**asked, "spatial": False, "kind": "count"},
        "rewritten": {**asked, "spatial": True, "kind": "find"},
    }
    result = cold.cold_queries(cluster.uri, variants, repeats=1)
    assert result["equal"] is True
    assert set(result["ratio_wall"]) == {"plain", "rewritten"}
    assert result["variants"]["rewritten"]["import_s"] > 0
    variants["rewritten"]["filters"] = [inside, {"_id": 1}]
    assert cold.cold_queries(cluster.uri, variants, repeats=1)["equal"] is False
    with pytest.raises(RuntimeError, match="failed"):
        cold.cold_queries(cluster.uri, {"plain": {**asked, "spatial": False}}, repeats=1)
