"""All planners by name: each a function of a sample and a number of partitions."""

from __future__ import annotations

from collections.abc import Callable

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.partitioning.frequency import plan_frequency
from spatialnosql.subscriptions.partitioning.grid import plan_grid
from spatialnosql.subscriptions.partitioning.hash_text import plan_anycast, plan_hash
from spatialnosql.subscriptions.partitioning.hybrid import plan_hybrid
from spatialnosql.subscriptions.partitioning.kdtree import plan_kdtree
from spatialnosql.subscriptions.partitioning.metric import plan_metric
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.rtree import plan_rtree
from spatialnosql.subscriptions.partitioning.salb import plan_salb
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.partitioning.word_networks import (
    plan_gc,
    plan_gfc,
    plan_gfcl,
    plan_gnfcl,
    plan_hypergraph,
)

Planner = Callable[[Sample, int], Plan]

PLANNERS: dict[str, Planner] = {
    "hash": plan_hash,
    "anycast": plan_anycast,
    "frequency": plan_frequency,
    "hypergraph": plan_hypergraph,
    "metric": plan_metric,
    "grid": plan_grid,
    "kdtree": plan_kdtree,
    "rtree": plan_rtree,
    "hybrid": plan_hybrid,
    "gc": plan_gc,
    "gfc": plan_gfc,
    "gfcl": plan_gfcl,
    "gnfcl": plan_gnfcl,
    "salb": plan_salb,
}


def make_plan(name: str, sample: Sample, partitions: int) -> Plan:
    """The plan of the planner of that name."""
    if name not in PLANNERS:
        raise UsageError(f"no partitioner {name!r}; there are {', '.join(PLANNERS)}")
    if partitions < 1:
        raise UsageError(f"{partitions} partitions; there must be one at least")
    return PLANNERS[name](sample, partitions)
