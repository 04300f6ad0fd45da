"""PS2Stream's global adjustment (section V.B): a whole new plan, now and then, taken up without moving much at once.

A plan is made from recent objects. If it would do markedly better, new subscriptions follow it, and the old ones stay
where they are: two strategies side by side. When few of the old ones are left, these move, and the old strategy ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.strategies import Held, Strategies, Strategy, hold, strategy_rows
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table

EVERY = 10
"""Whether a new plan would pay is looked at every so many rounds; the paper does it once a day."""
GAIN = 1.15
"""It must let the busiest partition do so many times more."""
DRAINED = 0.2
"""The old strategy ends when it has this share of all subscriptions."""


@dataclass(frozen=True)
class GlobalRules:
    """What global adjustment goes by."""

    planner: str = "hybrid"
    every: int = EVERY
    gain: float = GAIN
    drained: float = DRAINED
    costs: Costs = field(default_factory=Costs)


def partition_loads(held: Held, objects: Objects, partitions: int, costs: Costs) -> NDArray[np.float64]:
    """The load of every partition for some objects: definition 1, its pairs counted as an index checks them."""
    loads = costs.object_s * held.route(objects).counts.astype(np.float64)
    for dispatcher in held.dispatchers:
        counts, homes = dispatcher.checks(objects)
        own = homes >= 0
        loads = loads + costs.check_s * np.bincount(homes[own], weights=counts[own], minlength=partitions)
    return loads


def drained(strategies: Strategies, numbers: NDArray[np.int64], rules: GlobalRules) -> Strategies:
    """The strategies without the old one, if few follow it; otherwise as they are."""
    while len(strategies) > 1:
        old = strategy_rows(strategies, numbers)[0].size
        if old > rules.drained * max(numbers.size, 1):
            break
        strategies = (Strategy(strategies[1].plan), *strategies[2:])
    return strategies


def considered(
    strategies: Strategies,
    held: Held,
    objects: Objects,
    table: Table,
    next_number: int,
    rules: GlobalRules,
) -> Strategies:
    """The strategies with a new plan for the subscriptions that will come, if it would pay.

    While two are in force nothing new is begun; but one that nobody follows yet is given up for a better one.
    """
    unfollowed = len(strategies) > 1 and strategies[-1].first >= next_number
    if (len(strategies) > 1 and not unfollowed) or not len(objects):
        return strategies
    partitions = strategies[0].plan.partitions
    plan = make_plan(rules.planner, Sample.of(objects, table, rules.costs), partitions)
    present = hold((Strategy(strategies[-1].plan),), table) if unfollowed else held
    now = partition_loads(present, objects, partitions, rules.costs)
    then = partition_loads(hold((Strategy(plan),), table), objects, partitions, rules.costs)
    if now.max() < rules.gain * then.max():
        return strategies
    kept = strategies[:-1] if unfollowed else strategies
    return (*kept, Strategy(plan, next_number)) if next_number else (Strategy(plan),)
