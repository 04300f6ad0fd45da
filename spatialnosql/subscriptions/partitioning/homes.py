"""The home of a term: which partition a plan gives it in a leaf. Used by placing and by dispatching alike."""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import MIX, Array, Whole


@compiled
def mixed(number: Whole) -> Whole:
    """A number well mixed, within 32 bits: the hash of words and of objects."""
    value = (np.int64(number) + 1) * MIX & 0xFFFFFFFF
    value = (value ^ (value >> 15)) * 2246822519 & 0xFFFFFFFF
    return value ^ (value >> 13)


@compiled
def home_of(
    leaf: Whole,
    term: Whole,
    leaf_home: Array,
    leaf_map: Array,
    homes: Array,
    new_offsets: Array,
    new_homes: Array,
) -> Whole:
    """The partition of a term in a leaf, or ``~row`` of the versions of a hot word."""
    if leaf_home[leaf] >= 0:
        return np.int64(leaf_home[leaf])
    row = leaf_map[leaf]
    if term < homes.shape[1]:
        return np.int64(homes[row, term])
    first = new_offsets[row]
    return np.int64(new_homes[first + mixed(term) % (new_offsets[row + 1] - first)])
