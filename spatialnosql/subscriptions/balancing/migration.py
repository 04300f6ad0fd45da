"""PS2Stream's minimum cost migration (section V.A, definition 4): which cells to move.

Given cells with loads L and sizes S, choose some whose loads sum up to `least` at least, and whose sizes to as little
as possible. It is NP-hard. `by_dynamic_programme` is exact, `by_relative_cost` (GR) is what is used; `by_size` (SI) and
`by_chance` (RA) are there to compare. All return the chosen cells, ascending; all of them if there is not enough load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError

Cells = NDArray[np.int64]
MOST_STATES = 200_000_000
"""The dynamic programme keeps a bit for each cell and size."""


def by_dynamic_programme(loads: NDArray[Any], sizes: NDArray[Any], least: float) -> Cells:
    """The cheapest choice: A(i, j), the greatest load of cells 1 to i whose sizes sum up to j at most.

    Sizes are whole numbers. P, the bound of the cost, is what GR needs. Time and memory are O(n P).
    """
    _check(loads, sizes)
    if least <= 0:
        return np.zeros(0, dtype=np.int64)
    greedy = by_relative_cost(loads, sizes, least)
    if loads[greedy].sum() < least:
        return greedy  # all of them
    whole = np.asarray(sizes, dtype=np.int64)
    bound = int(whole[greedy].sum())
    if loads.size * (bound + 1) > MOST_STATES:
        raise UsageError(
            f"{loads.size:,} cells of up to {bound:,} bytes are too many for the dynamic programme (at most "
            f"{MOST_STATES:,} states); use GR, or larger units"
        )
    best = np.zeros(bound + 1)
    taken = np.zeros((loads.size, bound + 1), dtype=np.bool_)
    for i in range(loads.size):
        size = int(whole[i])
        if size > bound:
            continue
        with_it = best[: bound + 1 - size] + loads[i]
        better = with_it > best[size:]
        taken[i, size:] = better
        best[size:] = np.where(better, with_it, best[size:])
    # Sums in another order differ in the last bits: what GR reached is reachable.
    room = int(np.argmax(best >= min(least, float(best[-1]))))
    chosen = []
    for i in range(loads.size - 1, -1, -1):
        if taken[i, room]:
            chosen.append(i)
            room -= int(whole[i])
    return np.array(chosen[::-1], dtype=np.int64)


def by_relative_cost(loads: NDArray[Any], sizes: NDArray[Any], least: float) -> Cells:
    """GR: cells by S / L ascending; those that do not yet suffice are taken (GS), others are tried (GL).

    The answer is the cheapest of the tries: what was taken before, and the one cell that suffices with it.
    """
    _check(loads, sizes)
    if least <= 0:
        return np.zeros(0, dtype=np.int64)
    useful = np.flatnonzero(loads > 0)
    order = useful[np.argsort(sizes[useful] / loads[useful], kind="stable")]
    taken: list[int] = []
    load = size = 0.0
    best: tuple[float, int, int] | None = None  # the cost, how many are taken before, the last cell
    for cell in order.tolist():
        if load + loads[cell] < least:
            taken.append(cell)
            load += float(loads[cell])
            size += float(sizes[cell])
        elif best is None or size + sizes[cell] < best[0]:
            best = (size + float(sizes[cell]), len(taken), cell)
    if best is None:
        return np.sort(order)
    return np.sort(np.array([*taken[: best[1]], best[2]], dtype=np.int64))


def by_size(loads: NDArray[Any], sizes: NDArray[Any], least: float) -> Cells:
    """SI: the largest cells first, until they suffice."""
    _check(loads, sizes)
    return _until_enough(np.argsort(-sizes, kind="stable"), loads, least)


def by_chance(loads: NDArray[Any], sizes: NDArray[Any], least: float, seed: int = 1) -> Cells:
    """RA: cells in random order, until they suffice."""
    _check(loads, sizes)
    return _until_enough(np.random.default_rng(seed).permutation(loads.size), loads, least)


Select = Callable[[NDArray[Any], NDArray[Any], float], Cells]
SELECTIONS: dict[str, Select] = {
    "DP": by_dynamic_programme,
    "GR": by_relative_cost,
    "SI": by_size,
    "RA": by_chance,
}


def _until_enough(order: Cells, loads: NDArray[Any], least: float) -> Cells:
    if least <= 0:
        return np.zeros(0, dtype=np.int64)
    sums = np.cumsum(loads[order])
    count = int(np.searchsorted(sums, least)) + 1
    return np.sort(order[:count]).astype(np.int64)


def _check(loads: NDArray[Any], sizes: NDArray[Any]) -> None:
    if loads.shape != sizes.shape or (loads.size and (loads.min() < 0 or sizes.min() < 0)):
        raise UsageError(
            f"{loads.size} loads and {sizes.size} sizes of cells; there must be as many, and none below zero"
        )
