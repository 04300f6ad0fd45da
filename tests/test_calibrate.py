"""``analyze --calibrate``: costs are measured, plausible, stored, and used."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from places import Setup, documents, make_collection
from pymongo import MongoClient

from spatialnosql import calibrate as calibrating
from spatialnosql.calibrate import _plausible, calibrate, measure_costs
from spatialnosql.cli import main
from spatialnosql.costs import Costs
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite.planning import plan_find
from spatialnosql.steps import run

DATABASE = "test_calibrate"
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}


@pytest.fixture(scope="module")
def places(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    client.drop_database(DATABASE)
    setup = Setup("loc", "geojson")
    yield make_collection(client[DATABASE], "places", setup, documents(2000, 3, setup))
    client.drop_database(DATABASE)
    metadata_collection(client[DATABASE]["any"]).delete_many({"_id": {"$regex": f"^{DATABASE}[.]"}})


def test_costs_are_measured_stored_and_used(
    cluster: Any, places: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", f"{DATABASE}.places", "--calibrate", "--json", "--uri", cluster.uri]) == 0
    told = json.loads(capsys.readouterr().out)
    costs = Costs.of_document(told["costs"])
    assert set(told["costs"]) == set(asdict(Costs()))
    # Commands and the reading of shapes take time on every machine, and nowhere exactly what they take by default.
    assert costs != Costs()
    assert run(load_info(places)).costs == costs


def test_every_cost_is_a_difference_of_two_queries(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = run(load_info(places))
    own = Costs.of_document({name: 1.5 * value for name, value in asdict(Costs()).items()})
    shards = len({part.shard for part in info.shards})
    assert shards == 3

    def measured(queries: Any) -> dict[str, float]:
        n, vertices = queries.documents, calibrating._MANY - calibrating._FEW
        assert n > 100
        times = {"nothing": own.command_ms + own.shard_ms + own.range_ms}
        times["ranges"] = times["nothing"] + (calibrating._RANGES - 1) * own.range_ms
        times["everywhere"] = times["nothing"] + (shards - 1) * own.shard_ms
        times["small area"] = times["everywhere"] + shards * own.shape_ms
        times["large area"] = times["small area"] + shards * vertices * own.shape_vertex_ms
        times["keys"] = times["nothing"] + n * own.key_ms
        times["fetched"] = times["keys"] + n * own.fetch_ms
        times["flat"] = times["fetched"] + n * own.flat_test_ms
        times["tested"] = times["fetched"] + n * own.test_ms
        times["vertices"] = times["tested"] + n * vertices * own.vertex_ms
        times["returned"] = times["fetched"] + n * own.return_ms
        times["settled"] = times["keys"] + n * own.settle_ms
        times["small shape"] = own.read_ms
        times["large shape"] = own.read_ms + vertices * own.read_vertex_ms
        assert set(times) == set(queries._asked())
        return times

    monkeypatch.setattr(calibrating._Queries, "measured", measured)
    found = measure_costs(places, info)
    assert asdict(found) == pytest.approx(asdict(own), rel=1e-6)


def test_costs_decide(places: Any) -> None:
    info = run(load_info(places))
    # So many points everywhere that no cover is fine enough to leave none to be tested.
    rng = np.random.default_rng(2)
    crowded = Histogram.of_points(2.35 + rng.normal(0, 0.5, 200_000), 48.86 + rng.normal(0, 0.5, 200_000), 35)
    dear = {
        "client": replace(Costs(), flat_test_ms=1.0),
        "server": replace(Costs(), return_ms=0.0, settle_ms=5.0, flat_test_ms=1.0),
        "original": replace(Costs(), range_ms=1000.0),
    }
    for form, costs in dear.items():
        plan = plan_find(CIRCLE, replace(info, costs=costs, histogram=crowded, plans=OrderedDict()))
        assert plan.form == form, plan


def test_what_was_not_measured_but_disturbed_is_the_default() -> None:
    strange = replace(Costs(), key_ms=-1.0, fetch_ms=float("nan"), test_ms=1e6, range_ms=0.02)
    assert _plausible(strange) == replace(Costs(), range_ms=0.02)


def test_costs_as_stored() -> None:
    costs = replace(Costs(), key_ms=0.5)
    assert Costs.of_document(costs.to_document()) == costs
    assert Costs.of_document({"key_ms": "fast", "fetch_ms": -1, "unknown": 5, "test_ms": 1}) == replace(
        Costs(), test_ms=1.0
    )


def test_nothing_to_measure(client: MongoClient[dict[str, Any]]) -> None:
    with pytest.raises(UsageError, match="cannot be calibrated"):
        calibrate(client[DATABASE]["nothing"])
