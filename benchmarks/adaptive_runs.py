"""The variants of the `adaptive` benchmark: which policies run on a scenario, and what is taken from their rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptive_scenarios import history
from spatialnosql.subscriptions.balancing.local import UNIT_BYTES, Problem
from spatialnosql.subscriptions.balancing.migration import SELECTIONS, by_chance
from spatialnosql.subscriptions.balancing.policies import (
    GlobalPolicy,
    LocalPolicy,
    Policy,
    Static,
    SwarmPolicy,
    object_work,
    plain_spans,
)
from spatialnosql.subscriptions.balancing.repartition import GlobalRules
from spatialnosql.subscriptions.balancing.statistics import Cost
from spatialnosql.subscriptions.balancing.strategies import Strategy, hold
from spatialnosql.subscriptions.balancing.swarm import Swarm
from spatialnosql.subscriptions.balancing.timeline import (
    ROUND_S,
    Scenario,
    Timeline,
    Turn,
    Workers,
    mean,
    recovery_rounds,
    to_document,
    work_of,
)
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import join_objects, merge_matches, take_objects
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.tweets import UNITED_STATES

SIDE = 256
HISTORY, HISTORY_ROUNDS = 40_000, 60
DEMAND = 0.7
"""Objects arrive at this share of what the static plan takes before anything happens: the latency's rate."""
RECOVERED, SETTLED = 0.8, 10
"""After a step a variant has recovered when it is at this share of what the best one does in the last few rounds."""
PLANNED_BY = range(6_000, 6_006)
"""Plans of Q1 and Q3 are made from the objects of these rounds: a day, and none of those that are run."""
LOOKED_EVERY = 40
"""Global adjustment plans anew every so many rounds of a hot spot: ten minutes. The paper does it once a day."""
COMPARED = 1_000
"""So many objects of the last round are matched, and compared with one index of all."""


def country_grid() -> Grid:
    """The cells of SWARM's scenarios."""
    west, south, east, north = UNITED_STATES
    return Grid(west, south, east, north, SIDE, SIDE)


def static_plans(scenario: Scenario, seed: int) -> dict[Cost, Plan]:
    """The grids by history of one of SWARM's scenarios; before anything happens all of them are alike."""
    table, objects = scenario.table.take(scenario.live(0)), history(seed, HISTORY)
    costs: tuple[Cost, ...] = ("work", "product")
    return {cost: by_history(country_grid(), table, objects, scenario.workers, cost) for cost in costs}


def run_hot_spot(scenario: Scenario, plans: dict[Cost, Plan]) -> dict[str, Any]:
    """All variants on one of SWARM's scenarios."""
    grid, static, workers = country_grid(), plans["work"], scenario.workers
    ones = np.ones(1, dtype=np.int64)

    def swarm(cost: Cost, pairs: int) -> Policy:
        return SwarmPolicy(grid, workers, ones, Swarm.start(SIDE, SIDE, workers, cost=cost, pairs=pairs))

    return run_all(
        scenario,
        {
            "static": lambda: Static(static),
            "swarm": lambda: swarm("work", workers // 2),
            "swarm_single": lambda: swarm("work", 1),
            "local": lambda: LocalPolicy(static),
            "global": lambda: GlobalPolicy(static, GlobalRules(every=LOOKED_EVERY)),
            "static_product": lambda: Static(plans["product"]),
            "swarm_product": lambda: swarm("product", 1),
        },
    )


def run_planned(scenario: Scenario) -> tuple[dict[str, Any], list[Problem]]:
    """All variants on one of PS2Stream's scenarios, and what local adjustment had to choose from."""
    table = scenario.table.take(scenario.live(0))
    sample = Sample.of(join_objects([scenario.objects(turn) for turn in PLANNED_BY]), table)
    plan = make_plan("hybrid", sample, scenario.workers)
    local = LocalPolicy(plan)
    result = run_all(
        scenario,
        {
            "static": lambda: Static(plan),
            "swarm": lambda: SwarmPolicy(sample.grid, scenario.workers, sample.frequencies),
            "local": lambda: local,
            "global": lambda: GlobalPolicy(plan),
        },
    )
    of = result["variants"]
    result["adjust_vs_none"] = of["local"]["throughput"] / of["static"]["throughput"]
    result["adjust_bound"] = of["static"]["throughput_if_even"] / of["static"]["throughput"]
    return result, [one.problem for one in local.adjustments if one.problem is not None and one.moved]


def run_all(scenario: Scenario, policies: dict[str, Callable[[], Policy]]) -> dict[str, Any]:
    """The figures and the rounds of every policy."""
    calm = Timeline(scenario, policies["static"]()).run(3)
    demand = DEMAND * mean(calm, lambda turn: turn.throughput)
    variants, timelines, recovery, runs = {}, {}, {}, {}
    first, last = scenario.hot
    for name, policy in policies.items():
        print(f"  {scenario.name}: {name}", file=sys.stderr, flush=True)
        timeline = Timeline(scenario, policy(), demand)
        turns = timeline.run()
        variants[name] = figures(turns, first, last) | {"equal": is_exact(timeline)}
        timelines[name] = to_document(turns)
        runs[name] = turns[:last]
    settled = max(np.median([turn.throughput for turn in turns[-SETTLED:]]) for turns in runs.values())
    for name, turns in runs.items():
        found = recovery_rounds(turns, first, RECOVERED * float(settled))
        recovery[name] = None if found is None else found * ROUND_S
    return {
        "workers": scenario.workers,
        "rounds": scenario.rounds,
        "round_s": None if scenario.whole else ROUND_S,
        "hot": [first, last],
        "objects_a_round": len(scenario.objects(0)),
        "demand": demand,
        "variants": variants,
        "recovery_s": recovery,
        "timelines": timelines,
    }


def figures(turns: list[Turn], first: int, last: int) -> dict[str, Any]:
    """The means of a timeline, over all of it and while the load is another."""
    return {
        "units": mean(turns, lambda turn: turn.units),
        "units_hot": mean(turns, lambda turn: turn.units, first, last),
        "units_hot_if_even": mean(turns, lambda turn: turn.units * turn.imbalance, first, last),
        "throughput": mean(turns, lambda turn: turn.throughput),
        "throughput_if_even": mean(turns, lambda turn: turn.throughput * turn.imbalance),
        "latency_us": mean(turns, lambda turn: turn.latency_us),
        "latency_us_hot": mean(turns, lambda turn: turn.latency_us, first, last),
        "imbalance_hot": mean(turns, lambda turn: turn.imbalance, first, last),
        "moved_bytes": sum(turn.moved_bytes for turn in turns),
        "moves": sum(len(turn.moves) for turn in turns),
    }


def by_history(grid: Grid, table: Table, objects: Objects, workers: int, cost: Cost) -> Plan:
    """SWARM's "static grid based on history": its own rounds over what was seen, and the best layout of all of them."""
    ones = np.ones(1, dtype=np.int64)
    spans = plain_spans(grid, table.bounds)
    state = Swarm.start(grid.columns, grid.rows, workers, cost=cost, pairs=workers // 2).with_queries(spans)
    cells = grid.cells_of(objects).astype(np.int64)
    held_by, costs = Workers.of(table, workers), Costs()
    best: tuple[float, Plan] | None = None
    for _ in range(HISTORY_ROUNDS):
        plan = state.layout.to_plan(grid, ones, "static")
        held = hold((Strategy(plan),), table)
        held_by.hold(held.rows)
        busiest = float(work_of(held_by, held, objects, costs).busy_s(workers).max())
        if best is None or busiest < best[0]:
            best = (busiest, plan)
        state = state.with_points(
            cells % grid.columns, cells // grid.columns, 1.0, object_work(held, objects, costs)
        )
        state = replace(state, statistics={number: one.folded() for number, one in state.statistics.items()})
        state, moves = state.rebalanced(state.reports(), spans)
        if not moves:
            break
    assert best is not None
    return best[1]


def migration(problems: list[Problem]) -> dict[str, Any]:
    """The mean bytes that each algorithm moves, for what local adjustment had to choose from."""
    sums: dict[str, list[float]] = {name: [] for name in SELECTIONS}
    for number, one in enumerate(problems):
        for name, select in SELECTIONS.items():
            if name == "RA":
                chosen: NDArray[np.int64] = by_chance(one.loads, one.sizes, one.least, seed=number)
            elif name == "DP":
                chosen = select(one.loads, -(-one.sizes // (16 * UNIT_BYTES)), one.least)
            else:
                chosen = select(one.loads, one.sizes, one.least)
            sums[name].append(float(one.sizes[chosen].sum()))
    means = {name: float(np.mean(costs)) if costs else None for name, costs in sums.items()}
    greedy = means["GR"]
    below = {
        name: 1 - greedy / other
        for name, other in means.items()
        if name != "GR" and greedy is not None and other
    }
    return {"adjustments": len(problems), "bytes": means, "gr_below": below}


def is_exact(timeline: Timeline) -> bool:
    """Whether the workers find, at the end, what one index of all subscriptions finds."""
    scenario = timeline.scenario
    live = scenario.live(scenario.rounds - 1)
    objects = scenario.objects(scenario.rounds - 1)
    few = take_objects(objects, np.arange(min(COMPARED, len(objects))))
    rows, numbers = Index.build(scenario.table.take(live)).match_objects(few)
    expected = merge_matches([(rows, live[numbers])])
    found = timeline.workers.match(timeline.held, few)
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
