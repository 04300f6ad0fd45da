"""Load that moves: SWARM and PS2Stream's adjustments beside plans that stay, in simulated rounds of 15 seconds.

What is real, counted and computed: see `spatialnosql.subscriptions.balancing.timeline`. The scenarios are
those of the papers: see `adaptive_scenarios`. Variants:

- ``static``: a grid by history, made by SWARM's own rounds over the load before the hot spot, the best of them; on Q3
  the planner `hybrid`
- ``swarm``: SWARM from a cold start, cost of a partition by its work; ``swarm_product`` by the paper's N x Q x R, and
  ``static_product`` the grid by history that this cost makes
- ``local``, ``global``: PS2Stream's adjustments, beginning with the static plan

``swarm_vs_static``: units of work while the hot spots last, the mean over the scenarios; ``whole`` over all rounds.
``adjust_vs_none``: throughput on Q3, local adjustment beside none. ``migration``: bytes that DP, GR, SI and RA choose
to move, for the same cells. ``spark``: a step in real Spark, see `adaptive_spark`. ``--out DIR`` draws the timelines;
``--limit`` sets the number of queries, and with it Spark is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import adaptive_spark
from benchmarks.adaptive_scenarios import history, hot_spots, q3_scenario, swarm_scenario
from benchmarks.frame import aligned
from benchmarks.options import Options
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
COMPARED = 1_000
"""So many objects of the last round are matched, and compared with one index of all."""


def run(options: Options) -> dict[str, Any]:
    sizes = {} if options.limit is None else {"queries": options.limit}
    scenarios: dict[str, Any] = {}
    for name in hot_spots(1):
        scenario = swarm_scenario(name, options.seed, **sizes)
        scenarios[name] = _hot_spot(scenario, options.seed)
    mu = {} if options.limit is None else {"mu": options.limit}
    scenarios["q3"], problems = _q3(q3_scenario(options.seed, **mu))
    hot = [name for name in scenarios if name != "q3"]
    ratios = {name: _ratios(scenarios[name]) for name in hot}
    q3 = scenarios["q3"]["variants"]
    result: dict[str, Any] = {
        "benchmark": "adaptive",
        "n_points": scenarios["one"]["objects_a_round"],
        "round_s": ROUND_S,
        "queries": scenarios,
        "swarm_vs_static": float(np.mean([one["units_hot"] for one in ratios.values()])),
        "swarm_vs_static_by_scenario": ratios,
        "latency_vs_static": float(np.mean([one["latency_hot"] for one in ratios.values()])),
        "adjust_vs_none": q3["local"]["throughput"] / q3["static"]["throughput"],
        "migration": migration(problems),
        "recovery_s": scenarios["step"]["recovery_s"],
        "spark": None if options.limit is not None else adaptive_spark.run(options),
    }
    result["plots"] = _plots(result, options)
    return result


def _hot_spot(scenario: Scenario, seed: int) -> dict[str, Any]:
    west, south, east, north = UNITED_STATES
    grid = Grid(west, south, east, north, SIDE, SIDE)
    ones = np.ones(1, dtype=np.int64)
    table, objects = scenario.table.take(scenario.live(0)), history(seed, HISTORY)
    plans = {cost: by_history(grid, table, objects, scenario.workers, cost) for cost in ("work", "product")}
    static = plans["work"]

    def swarm(cost: Cost) -> Policy:
        return SwarmPolicy(grid, scenario.workers, ones, Swarm.start(SIDE, SIDE, scenario.workers, cost=cost))

    policies: dict[str, Callable[[], Policy]] = {
        "static": lambda: Static(static),
        "swarm": lambda: swarm("work"),
        "local": lambda: LocalPolicy(static),
        "global": lambda: GlobalPolicy(static),
        "static_product": lambda: Static(plans["product"]),
        "swarm_product": lambda: swarm("product"),
    }
    return _run_all(scenario, policies)


def _q3(scenario: Scenario) -> tuple[dict[str, Any], list[Problem]]:
    table = scenario.table.take(scenario.live(0))
    objects = join_objects([scenario.objects(1000 + turn) for turn in range(5)])
    sample = Sample.of(objects, table)
    plan = make_plan("hybrid", sample, scenario.workers)
    local = LocalPolicy(plan)
    policies: dict[str, Callable[[], Policy]] = {
        "static": lambda: Static(plan),
        "swarm": lambda: SwarmPolicy(sample.grid, scenario.workers, sample.frequencies),
        "local": lambda: local,
        "global": lambda: GlobalPolicy(plan),
    }
    result = _run_all(scenario, policies)
    return result, [one.problem for one in local.adjustments if one.problem is not None and one.moved]


def _run_all(scenario: Scenario, policies: dict[str, Callable[[], Policy]]) -> dict[str, Any]:
    calm = Timeline(scenario, policies["static"]()).run(3)
    demand = DEMAND * mean(calm, lambda turn: turn.throughput)
    variants, timelines, recovery, runs = {}, {}, {}, {}
    first, last = scenario.hot
    for name, policy in policies.items():
        print(f"  {scenario.name}: {name}", file=sys.stderr, flush=True)
        timeline = Timeline(scenario, policy(), demand)
        turns = timeline.run()
        variants[name] = figures(turns, first, last) | {"equal": _is_exact(timeline)}
        timelines[name] = to_document(turns)
        runs[name] = turns[:last]
    settled = max(np.median([turn.throughput for turn in turns[-SETTLED:]]) for turns in runs.values())
    for name, turns in runs.items():
        found = recovery_rounds(turns, first, RECOVERED * float(settled))
        recovery[name] = None if found is None else found * ROUND_S
    return {
        "workers": scenario.workers,
        "rounds": scenario.rounds,
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
        "throughput": mean(turns, lambda turn: turn.throughput),
        "latency_us": mean(turns, lambda turn: turn.latency_us),
        "latency_us_hot": mean(turns, lambda turn: turn.latency_us, first, last),
        "imbalance_hot": mean(turns, lambda turn: turn.imbalance, first, last),
        "moved_bytes": sum(turn.moved_bytes for turn in turns),
        "moves": sum(len(turn.moves) for turn in turns),
    }


def _ratios(scenario: dict[str, Any]) -> dict[str, float]:
    """SWARM beside the static grid; and, by the paper's cost, its own beside its own."""
    of = scenario["variants"]

    def ratio(key: str, mine: str = "swarm", other: str = "static") -> float:
        return float(of[mine][key] / of[other][key])

    return {
        "units_hot": ratio("units_hot"),
        "units": ratio("units"),
        "latency_hot": ratio("latency_us_hot"),
        "latency": ratio("latency_us"),
        "units_hot_by_product": ratio("units_hot", "swarm_product", "static_product"),
        "units_by_product": ratio("units", "swarm_product", "static_product"),
        "units_hot_vs_static_product": ratio("units_hot", "swarm", "static_product"),
        "units_vs_static_product": ratio("units", "swarm", "static_product"),
    }


def by_history(grid: Grid, table: Table, objects: Objects, workers: int, cost: Cost) -> Plan:
    """SWARM's "static grid based on history": its own rounds over what was seen, and the best layout of all of them."""
    ones = np.ones(1, dtype=np.int64)
    spans = plain_spans(grid, table.bounds)
    state = Swarm.start(grid.columns, grid.rows, workers, cost=cost).with_queries(spans)
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


def _is_exact(timeline: Timeline) -> bool:
    """Whether the workers find, at the end, what one index of all subscriptions finds."""
    scenario = timeline.scenario
    live = scenario.live(scenario.rounds - 1)
    objects = scenario.objects(scenario.rounds - 1)
    few = take_objects(objects, np.arange(min(COMPARED, len(objects))))
    rows, numbers = Index.build(scenario.table.take(live)).match_objects(few)
    expected = merge_matches([(rows, live[numbers])])
    found = timeline.workers.match(timeline.held, few)
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def _plots(result: dict[str, Any], options: Options) -> list[str]:
    if options.out is None:
        return []
    from benchmarks.adaptive_figures import draw_timelines

    return draw_timelines(result, options.out)


def table(result: dict[str, Any]) -> str:
    lines = []
    for name, scenario in result["queries"].items():
        rows = [
            [
                name,
                "units hot, G",
                "units, G",
                "M objects/s",
                "latency hot, us",
                "imbalance",
                "moved MB",
                "moves",
            ]
        ]
        rows += [
            [
                variant,
                f"{one['units_hot'] / 1e9:,.1f}",
                f"{one['units'] / 1e9:,.1f}",
                f"{one['throughput'] / 1e6:,.2f}",
                f"{one['latency_us_hot']:,.1f}",
                f"{one['imbalance_hot']:.2f}",
                f"{one['moved_bytes'] / 1e6:,.1f}",
                str(one["moves"]),
            ]
            for variant, one in scenario["variants"].items()
        ]
        lines += [*aligned(rows), ""]
    for name, ratios in result["swarm_vs_static_by_scenario"].items():
        said = ", ".join(f"{key} {value:.2f}" for key, value in ratios.items())
        lines.append(f"swarm beside static, {name}: {said}")
    lines.append(
        f"swarm_vs_static {result['swarm_vs_static']:.2f}, latency {result['latency_vs_static']:.2f}"
    )
    lines.append(f"adjust_vs_none {result['adjust_vs_none']:.2f}")
    below = ", ".join(f"{share:.0%} below {name}" for name, share in result["migration"]["gr_below"].items())
    lines.append(f"GR's migration cost in {result['migration']['adjustments']} adjustments: {below}")
    recovered = ", ".join(
        f"{name} {'never' if seconds is None else f'{seconds:.0f} s'}"
        for name, seconds in result["recovery_s"].items()
    )
    lines.append(f"after the step, at 80 % of what the best settles at: {recovered}")
    if result["spark"] is not None:
        spark = result["spark"]
        said = ", ".join(
            f"{name} {one['objects_per_s']:,.0f} ({one['moves']} moves)"
            for name, one in spark["variants"].items()
        )
        lines.append(
            f"Spark, {spark['partitions']} partitions, objects/s of the busiest after the step: {said}"
        )
    lines += [f"drawn: {plot}" for plot in result["plots"] or ["nothing; --out DIR draws the timelines"]]
    return "\n".join(lines)
