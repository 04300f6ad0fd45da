"""The simulated rounds: counted as by hand, the same every time, and adaptive plans do better when the load moves."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partition_samples import sample_of

from benchmarks import adaptive as benchmark
from benchmarks import adaptive_runs
from benchmarks.__main__ import main
from benchmarks.adaptive_runs import by_history, figures, migration, run_all
from benchmarks.adaptive_scenarios import days_scenario, history, hot_spots, q3_scenario, swarm_scenario
from spatialnosql.subscriptions.balancing.local import Problem
from spatialnosql.subscriptions.balancing.policies import LocalPolicy, Static, SwarmPolicy
from spatialnosql.subscriptions.balancing.strategies import Strategy, hold
from spatialnosql.subscriptions.balancing.timeline import (
    ROUND_S,
    Scenario,
    Timeline,
    Workers,
    mean,
    recovery_rounds,
    work_of,
)
from spatialnosql.subscriptions.balancing.versions import Versions
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import join_objects, take_objects
from spatialnosql.subscriptions.partitioning.stored import open_dispatcher, open_partition
from spatialnosql.subscriptions.tweets import UNITED_STATES

COSTS = Costs(check_s=1.0, object_s=1000.0, insert_s=0.0, delete_s=0.0)


def constant(workers: int = 3, rounds: int = 4) -> tuple[Scenario, object]:
    sample = sample_of(2)
    count = len(sample.table)
    scenario = Scenario(
        "constant",
        rounds,
        sample.table,
        np.zeros(count, dtype=np.int64),
        np.full(count, rounds),
        lambda turn: sample.objects,
        workers,
    )
    return scenario, sample


def test_work_is_what_each_worker_reads() -> None:
    _, sample = constant()
    plan = make_plan("hybrid", sample, 3)
    held = hold((Strategy(plan),), sample.table)
    workers = Workers.of(sample.table, 3)
    workers.hold(held.rows)
    work = work_of(workers, held, sample.objects, COSTS)
    routes = held.route(sample.objects)
    assert work.objects.size == routes.rows.size
    for worker in range(3):
        own = work.workers == worker
        assert own.sum() == routes.counts[worker]
        # One term a subscription at least is checked for every match.
        rows, _ = workers.indexes[worker].match_objects(take_objects(sample.objects, routes.rows_of(worker)))
        assert (work.seconds[own] - 1000).sum() >= rows.size
    assert work.busy_s(3).sum() == pytest.approx(work.seconds.sum())


def test_a_plan_that_stays_gives_the_same_round_again_and_again() -> None:
    scenario, sample = constant()
    turns = Timeline(scenario, Static(make_plan("kdtree", sample, 3)), costs=COSTS).run()
    assert len({(turn.throughput, turn.imbalance, turn.queries) for turn in turns}) == 1
    assert [turn.moved for turn in turns] == [0, 0, 0, 0]
    one = turns[0]
    assert one.units == one.queries * one.throughput
    assert recovery_rounds(turns, 1, one.throughput) == 0
    assert recovery_rounds(turns, 1, 2 * one.throughput) is None


def test_latency_is_service_while_idle_and_waiting_when_overloaded() -> None:
    scenario, sample = constant(rounds=3)
    plan = make_plan("kdtree", sample, 3)
    costs = Costs(check_s=0.0, object_s=1e-6)
    capacity = Timeline(scenario, Static(plan), costs=costs).run(1)[0].throughput
    idle = Timeline(scenario, Static(plan), capacity / 1e4, costs).run()
    busy = Timeline(scenario, Static(plan), capacity * 2, costs).run()
    assert mean(idle, lambda turn: turn.latency_us) == pytest.approx(1.0, rel=0.01)
    assert busy[-1].latency_us > 20


def test_swarm_and_local_adjustment_follow_a_step() -> None:
    """A small one of the benchmark's own scenarios; all variants match exactly at its end."""
    scenario = swarm_scenario("step", 1, rounds=60, queries=2_000, sample=2_000)
    west, south, east, north = UNITED_STATES
    grid = Grid(west, south, east, north, 64, 64)
    table = scenario.table.take(scenario.live(0))
    plan = by_history(grid, table, history(1, 4_000), scenario.workers, "work")
    ones = np.ones(1, dtype=np.int64)
    result = run_all(
        scenario,
        {
            "static": lambda: Static(plan),
            "swarm": lambda: SwarmPolicy(grid, scenario.workers, ones),
            "local": lambda: LocalPolicy(plan),
        },
    )
    assert all(one["equal"] for one in result["variants"].values())
    for name in ("swarm", "local"):
        assert result["variants"][name]["units_hot"] > 1.5 * result["variants"]["static"]["units_hot"]
        assert result["variants"][name]["moved_bytes"] > 0
    assert result["recovery_s"]["static"] is None
    assert result["recovery_s"]["local"] % ROUND_S == 0


def test_scenarios_are_what_they_say() -> None:
    rounds = 48
    for name, spots in hot_spots(rounds).items():
        scenario = swarm_scenario(name, 1, rounds, 400, 500)
        first, last = scenario.hot
        assert scenario.live(0).size == scenario.live(rounds - 1).size == 400
        assert scenario.live(first + 4).size > 500
        middle = max(range(rounds), key=lambda turn, own=spots: sum(spot.share(turn) for spot in own))
        hot = scenario.objects(middle)
        inside = 0
        for spot in spots:
            width, height = (
                (UNITED_STATES[2] - UNITED_STATES[0]) * 0.15,
                (UNITED_STATES[3] - UNITED_STATES[1]) * 0.15,
            )
            x, y = hot.lng - spot.west, hot.lat - spot.south
            inside += int(((x >= 0) & (x <= width) & (y >= 0) & (y <= height)).sum())
        assert inside / len(hot) > 0.15
        assert (first, last) == (8, 40)
        assert np.array_equal(
            scenario.objects(3).lng, swarm_scenario(name, 1, rounds, 400, 500).objects(3).lng
        )


@pytest.mark.parametrize("make", [q3_scenario, days_scenario])
def test_subscriptions_are_exchanged_and_five_objects_come_for_each_change(make: Any) -> None:
    scenario = make(1, rounds=20, mu=300)
    sizes = [scenario.live(turn).size for turn in range(20)]
    assert max(sizes) - min(sizes) <= 60
    assert np.intersect1d(scenario.live(0), scenario.live(19)).size == 0
    assert (np.diff(scenario.born) >= 0).all()
    objects = sum(len(scenario.objects(turn)) for turn in range(1, 11))
    changes = sum(np.setxor1d(scenario.live(turn), scenario.live(turn - 1)).size for turn in range(1, 11))
    assert objects == 5 * changes


def test_days_pass_from_east_to_west() -> None:
    scenario = days_scenario(1, rounds=20, mu=4_000)
    morning, evening = scenario.objects(2), scenario.objects(5)  # 8 and 20 o'clock at longitude 0
    assert evening.lng.mean() > morning.lng.mean() + 1


def test_means_and_migration_costs() -> None:
    scenario, sample = constant()
    turns = Timeline(scenario, Static(make_plan("kdtree", sample, 3)), costs=COSTS).run()
    assert figures(turns, 1, 3)["units"] == pytest.approx(turns[0].units)
    problem = Problem(np.array([1.0, 1.0, 4.0]), np.array([6400, 64000, 640000]), 2.0)
    found = migration([problem])
    assert found["bytes"]["GR"] == found["bytes"]["DP"] == 70400
    assert found["bytes"]["SI"] == 640000
    assert found["gr_below"]["SI"] == pytest.approx(0.89)
    assert migration([])["bytes"]["GR"] is None


def test_the_benchmark_says_what_the_contract_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All scenarios, very small, drawn."""
    small = partial(swarm_scenario, rounds=8, sample=300)
    monkeypatch.setattr(benchmark, "swarm_scenario", small)
    planned = {"q3": partial(q3_scenario, rounds=8), "days": partial(days_scenario, rounds=8)}
    monkeypatch.setattr(benchmark, "PLANNED", planned)
    for name, value in (("SIDE", 32), ("HISTORY", 1000), ("HISTORY_ROUNDS", 3)):
        monkeypatch.setattr(adaptive_runs, name, value)
    assert main(["adaptive", "--limit", "400", "--json", "--out", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(result["queries"]) == {"one", "normal", "step", "overlapping", "consecutive", "q3", "days"}
    for scenario in result["queries"].values():
        assert {"static", "swarm", "local", "global"} <= set(scenario["variants"])
        for name, variant in scenario["variants"].items():
            assert variant["equal"] is True
            assert variant["units"] > 0
            assert len(scenario["timelines"][name]["moved_bytes"]) == 8
    assert result["swarm_vs_static"] > 0
    assert result["adjust_vs_none"] > 0
    assert result["adjust_bound"] >= 1
    assert len(list(tmp_path.glob("adaptive_*.png"))) == len(list(tmp_path.glob("*.svg"))) == 7
    assert "swarm_vs_static" in benchmark.table(result)
    assert main(["adaptive", "--limit", "400", "--only", "q3", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["queries"]) == {"q3"}
    assert main(["adaptive", "--only", "q4"]) != 0
    assert "no part q4; there are one, normal" in capsys.readouterr().err


def test_batches_of_objects_are_joined() -> None:
    sample = sample_of(4)
    parts = [take_objects(sample.objects, np.arange(low, low + 200)) for low in (0, 200, 400)]
    whole = join_objects(parts)
    for name in ("lng", "lat", "at", "offsets", "terms", "x", "y"):
        assert np.array_equal(getattr(whole, name), getattr(sample.objects, name))


# -- versions ----------------------------------------------------------------------------------------------


def test_a_version_writes_only_the_partitions_that_changed(tmp_path: Path) -> None:
    sample = sample_of(5)
    first, second = make_plan("kdtree", sample, 4), make_plan("hybrid", sample, 4)
    versions = Versions(tmp_path / "parts")
    numbers = np.arange(len(sample.table)) * 2  # as in an index of which half are gone
    one = versions.publish((Strategy(first),), sample.table, numbers, "1")
    assert (one.number, one.moved) == (1, 0)
    again = versions.publish((Strategy(first),), sample.table, numbers, "1")
    assert again.parts.partitions == one.parts.partitions
    assert again.moved == 0
    other = versions.publish((Strategy(second),), sample.table, numbers, "1")
    assert set(other.parts.partitions) != set(one.parts.partitions)
    came = sum(
        np.setdiff1d(now, before).size for before, now in zip(one.held.rows, other.held.rows, strict=True)
    )
    assert other.moved == came > 0
    assert other.moved_bytes >= 60 * came
    # Another base: the same numbers mean other subscriptions, and nothing is taken for the same.
    fresh = versions.publish((Strategy(second),), sample.table, numbers, "2")
    assert not set(fresh.parts.partitions) & set(other.parts.partitions)
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    assert names == {
        Path(name).name for one in (other, fresh) for name in (*one.parts.dispatchers, *one.parts.partitions)
    }
    found = []
    dispatcher = open_dispatcher(Path(fresh.parts.dispatchers[0]))
    routes = dispatcher.route(sample.objects)
    for partition, name in enumerate(fresh.parts.partitions):
        index, own = open_partition(Path(name))
        rows = routes.rows_of(partition)
        matched, row_numbers = index.match_objects(take_objects(sample.objects, rows))
        found += list(zip(rows[matched].tolist(), own[row_numbers].tolist(), strict=True))
    rows, row_numbers = Index.build(sample.table).match_objects(sample.objects)
    assert sorted(set(found)) == sorted(zip(rows.tolist(), (2 * row_numbers).tolist(), strict=True))


def test_what_a_dead_process_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "parts" / "partition-dead.new").mkdir(parents=True)
    Versions(tmp_path / "parts")
    assert list((tmp_path / "parts").iterdir()) == []
