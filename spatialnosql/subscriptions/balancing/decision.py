"""SWARM's decision whether to rebalance (section 4.3.1, figure 9): five stages, from left to right.

    FLIP  BAD  START  GOOD  GREAT

A round that received more than the one before goes one to the right, any other one to the left. Whatever was decided
last is done again, until FLIP is reached: then the opposite is done, from START on. After `beta` rounds of the same,
FLIP is forced, so that no decision lasts for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

BETA = 20


class Stage(IntEnum):
    """Where the pointer is."""

    FLIP = 0
    BAD = 1
    START = 2
    GOOD = 3
    GREAT = 4


@dataclass(frozen=True)
class Decision:
    """What is done, since when, and how well it goes."""

    rebalance: bool = False
    stage: Stage = Stage.START
    rounds: int = 0
    """For how many rounds the same was decided."""
    received: float = 0.0
    """R(S) of the last round."""


def decide(before: Decision, received: float, beta: int = BETA) -> Decision:
    """The decision for this round, in which the whole system received so many points and queries."""
    stage = min(before.stage + 1, Stage.GREAT) if received > before.received else before.stage - 1
    if stage == Stage.FLIP or before.rounds >= beta:
        return Decision(not before.rebalance, Stage.START, 1, received)
    return Decision(before.rebalance, Stage(stage), before.rounds + 1, received)
