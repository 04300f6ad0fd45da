"""What balancing did, and what it keeps beside a stream's checkpoint: the plan that took effect last."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spatialnosql.subscriptions.balancing.extents import Extent
from spatialnosql.subscriptions.balancing.layout import Layout
from spatialnosql.subscriptions.balancing.policies import Policy, SwarmPolicy, make_policy
from spatialnosql.subscriptions.balancing.statistics import Statistics
from spatialnosql.subscriptions.balancing.strategies import Strategy
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.vocabulary import Vocabulary

STATE, PLAN = "balance.json", "balance-{}.npz"


@dataclass
class Balanced:
    """What balancing did, for the summary."""

    balance: str
    partitions: int
    versions: int = 0
    """Plans that took effect, the first one included."""
    moves: int = 0
    moved: int = 0
    moved_bytes: int = 0
    shed: int = 0
    """Sends of an object to a partition that were left out."""
    shed_objects: int = 0

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"  {self.partitions} partitions, balance {self.balance}: {self.moves:,} moves, {self.moved:,} "
            f"subscriptions ({self.moved_bytes / 1e6:,.1f} MB)"
        ]
        if self.shed:
            lines.append(
                f"  SHED under overload: {self.shed_objects:,} objects were not sent to {self.shed:,} partitions; "
                "their matches there are lost"
            )
        return lines


def save_policy(
    checkpoint: Path, done: Balanced, policy: Policy, strategy: Strategy, vocabulary: Vocabulary
) -> None:
    """Keep the newest plan beside the checkpoint; whole or not at all."""
    number = done.versions
    name = PLAN.format(number % 2)  # the one that is named now is left alone
    strategy.plan.save(checkpoint / name)
    state: dict[str, Any] = {
        "balance": done.balance,
        "partitions": done.partitions,
        "plan": name,
        "terms": strategy.plan.frequencies.size,
        "digest": _digest(vocabulary, strategy.plan.frequencies.size),
    }
    if isinstance(policy, SwarmPolicy):
        layout = policy.state.layout
        numbers = layout.numbers
        state["extents"] = [layout.extent(number) for number in numbers]
        state["homes"] = [layout.homes[number] for number in numbers]
    fresh = checkpoint / f"{STATE}.new"
    fresh.write_text(json.dumps(state))
    fresh.replace(checkpoint / STATE)


def load_policy(checkpoint: Path, done: Balanced, vocabulary: Vocabulary) -> Policy | None:
    """The policy as it was saved; None if there is none, or it was of other terms or partitions."""
    path = checkpoint / STATE
    if not path.exists():
        return None
    state = json.loads(path.read_text())
    same = (state["balance"], state["partitions"]) == (done.balance, done.partitions)
    if not same or state["digest"] != _digest(vocabulary, state["terms"]):
        return None
    plan = Plan.open(checkpoint / state["plan"])
    policy = make_policy(done.balance, plan)
    if not isinstance(policy, SwarmPolicy) or "extents" not in state:
        return policy
    layout = Layout.of(
        plan.grid.columns,
        plan.grid.rows,
        done.partitions,
        [Extent(*extent) for extent in state["extents"]],
        state["homes"],
    )
    # Points are counted anew, and queries when the first round tells of them.
    statistics = {number: Statistics.empty(layout.extent(number)) for number in layout.numbers}
    begun = replace(policy.state, layout=layout, statistics=statistics)
    return SwarmPolicy(plan.grid, done.partitions, plan.frequencies, begun)


def _digest(vocabulary: Vocabulary, count: int) -> str:
    """What tells whether the first so many terms are the same, in the same order."""
    terms = hashlib.sha256()
    for number in range(min(count, len(vocabulary))):
        terms.update(vocabulary.term(number).encode() + b"\0")
    return terms.hexdigest()
