"""Weights to partitions, the heaviest first, each to the one that has least so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array


def lightest_first(weights: NDArray[Any], partitions: int) -> NDArray[np.int32]:
    """The partition of each weight (Graham's longest processing time first); equal ones in their order."""
    homes: NDArray[np.int32] = _assign(
        np.argsort(-weights, kind="stable"), weights.astype(np.float64), partitions
    )
    return homes


@compiled
def _assign(order: Array, weights: Array, partitions: int) -> Array:
    homes = np.empty(weights.size, np.int32)
    loads = np.zeros(partitions, np.float64)
    turn = 0
    for item in order:
        if weights[item] > 0:
            home = int(np.argmin(loads))
        else:  # what weighs nothing takes turns: much of it together may weigh something tomorrow
            home = turn
            turn = (turn + 1) % partitions
        loads[home] += weights[item]
        homes[item] = home
    return homes
