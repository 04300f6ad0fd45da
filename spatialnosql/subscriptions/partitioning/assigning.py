"""Weights to partitions, the heaviest first, each to the one that has least so far."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray


def lightest_first(weights: NDArray[np.float64], partitions: int) -> NDArray[np.int32]:
    """The partition of each weight (Graham's longest processing time first); equal ones in their order."""
    homes = np.empty(weights.size, dtype=np.int32)
    heap = [(0.0, partition) for partition in range(partitions)]
    for item in np.argsort(-weights, kind="stable").tolist():
        load, partition = heap[0]
        homes[item] = partition
        # Even what weighs nothing takes turns: many light things together are not light.
        heapq.heapreplace(heap, (load + max(float(weights[item]), 1e-15), partition))
    return homes
