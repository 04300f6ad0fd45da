"""Load that moves: SWARM and PS2Stream's adjustments beside plans that stay, in simulated rounds of 15 seconds.

What is real, counted and computed: see `spatialnosql.subscriptions.balancing.timeline`. The scenarios are
those of the papers: see `adaptive_scenarios`. Variants:

- ``static``: a grid by history, made by SWARM's own rounds over the load before the hot spot, the best of them; on
  Q3 and Q1 the planner `hybrid`
- ``swarm``: SWARM from a cold start, cost of a partition by its work, half of the workers may give in a round;
  ``swarm_single``: one gives, as in the paper; ``swarm_product``: one, and the paper's N x Q x R;
  ``static_product``: the grid by history that this cost makes
- ``local``, ``global``: PS2Stream's adjustments, beginning with the static plan

``swarm_vs_static``: units of work while the hot spots last, the mean over the scenarios. ``adjust_vs_none``: throughput
on Q3, local adjustment beside none; ``adjust_bound`` what it would be were the load without adjustment even in every
round. ``migration``: bytes that DP, GR, SI and RA choose to move, for the same cells. ``spark``: a step in real Spark,
see `adaptive_spark`. ``--out DIR`` draws the timelines; ``--limit`` sets the number of queries, and with it Spark is
left out; ``--only step,q3`` runs these parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import adaptive_spark
from benchmarks.adaptive_runs import migration, run_hot_spot, run_planned, static_plans
from benchmarks.adaptive_scenarios import days_scenario, hot_spots, q3_scenario, swarm_scenario
from benchmarks.frame import aligned
from benchmarks.options import Options, chosen_parts
from spatialnosql.subscriptions.balancing.statistics import Cost
from spatialnosql.subscriptions.balancing.timeline import ROUND_S
from spatialnosql.subscriptions.partitioning.plan import Plan

HOT_SPOTS = tuple(hot_spots(1))
PLANNED = {"q3": q3_scenario, "days": days_scenario}
PARTS = (*HOT_SPOTS, *PLANNED, "spark")


def run(options: Options) -> dict[str, Any]:
    parts = chosen_parts(options, PARTS)
    small = options.limit is not None
    scenarios: dict[str, Any] = {}
    plans: dict[Cost, Plan] = {}
    for name in (name for name in HOT_SPOTS if name in parts):
        sizes = {"queries": options.limit} if options.limit is not None else {}
        scenario = swarm_scenario(name, options.seed, **sizes)
        plans = plans or static_plans(scenario, options.seed)
        scenarios[name] = run_hot_spot(scenario, plans)
    ratios = {name: _ratios(one) for name, one in scenarios.items()}
    migrations = {}
    for name, make in PLANNED.items():
        if name in parts:
            mu = {"mu": options.limit} if options.limit is not None else {}
            scenarios[name], problems = run_planned(make(options.seed, **mu))
            migrations[name] = migration(problems)
    result: dict[str, Any] = {
        "benchmark": "adaptive",
        "n_points": max((one["objects_a_round"] for one in scenarios.values()), default=0),
        "round_s": ROUND_S,
        "queries": scenarios,
        "migration": migrations,
        "spark": adaptive_spark.run(options) if "spark" in parts and not small else None,
    }
    if ratios:
        result["swarm_vs_static"] = float(np.mean([one["units_hot"] for one in ratios.values()]))
        result["swarm_vs_static_by_scenario"] = ratios
        result["latency_vs_static"] = float(np.mean([one["latency_hot"] for one in ratios.values()]))
    if "q3" in scenarios:
        result |= {key: scenarios["q3"][key] for key in ("adjust_vs_none", "adjust_bound")}
    if "step" in scenarios:
        result["recovery_s"] = scenarios["step"]["recovery_s"]
    result["plots"] = _plots(result, options)
    return result


def _ratios(scenario: dict[str, Any]) -> dict[str, float]:
    """SWARM beside the static grid; and, by the paper's cost, its own beside its own."""
    of = scenario["variants"]

    def ratio(key: str, mine: str = "swarm", other: str = "static") -> float:
        return float(of[mine][key] / of[other][key])

    return {
        "units_hot": ratio("units_hot"),
        "units_hot_bound": float(of["static"]["units_hot_if_even"] / of["static"]["units_hot"]),
        "units": ratio("units"),
        "latency_hot": ratio("latency_us_hot"),
        "latency": ratio("latency_us"),
        "units_hot_single": ratio("units_hot", "swarm_single"),
        "units_single": ratio("units", "swarm_single"),
        "units_hot_by_product": ratio("units_hot", "swarm_product", "static_product"),
        "units_by_product": ratio("units", "swarm_product", "static_product"),
        "units_hot_vs_static_product": ratio("units_hot", "swarm", "static_product"),
        "units_vs_static_product": ratio("units", "swarm", "static_product"),
    }


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
    for name, ratios in result.get("swarm_vs_static_by_scenario", {}).items():
        said = ", ".join(f"{key} {value:.2f}" for key, value in ratios.items())
        lines.append(f"swarm beside static, {name}: {said}")
    if "swarm_vs_static" in result:
        lines.append(
            f"swarm_vs_static {result['swarm_vs_static']:.2f}, latency {result['latency_vs_static']:.2f}"
        )
    for name in (name for name in PLANNED if name in result["queries"]):
        one, moved = result["queries"][name], result["migration"][name]
        below = ", ".join(f"{share:.0%} below {other}" for other, share in moved["gr_below"].items())
        lines.append(
            f"{name}: adjust_vs_none {one['adjust_vs_none']:.2f} ({one['adjust_bound']:.2f} were every round even); "
            f"GR's migration cost in {moved['adjustments']} adjustments: {below}"
        )
    if "recovery_s" in result:
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
