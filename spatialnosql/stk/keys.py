"""What a filter holds: one 32-bit key for each data cube and word in it, sorted.

A key is a hash of the word in its high bits and the data cube's position in the low ones. So the data cubes of a word
lie side by side: two binary searches find all of them, where a Bloom filter must be asked for every cube on its own.
A union is a merge, whoever adds what how often, and in any order: a job that was killed may add its keys again.

A wrong "yes" needs a word of the same hash in the same data cube: with n words there, n / 2 ** (32 - position bits).
Measured against Bloom filters and InfiniFilter in docs/stk.md.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatialnosql.stk.settings import Ints, StkSettings

Keys: TypeAlias = NDArray[np.uint32]

EXISTS = ""
"""The word that every document has, also one without words: where it is missing there is nothing at all."""


@functools.lru_cache(maxsize=1 << 18)
def word_hash(word: str) -> int:
    """32 bits of a word, the same in every process and version."""
    return int.from_bytes(
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "little"
    )


def word_hashes(words: Iterable[str]) -> NDArray[np.uint32]:
    """The hashes of words."""
    return np.fromiter(map(word_hash, words), dtype=np.uint32)


def keys_of(hashes: NDArray[np.uint32], positions: Ints, position_bits: int) -> Keys:
    """The keys of words at positions."""
    mask = np.uint32(0xFFFFFFFF & ~((1 << position_bits) - 1))
    return (hashes & mask) | positions.astype(np.uint32)


def unique_keys(keys: Keys) -> Keys:
    """Keys sorted, each once."""
    ordered: Keys = np.sort(keys)
    if len(ordered) > 1:
        ordered = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return ordered


def union(several: Sequence[Keys]) -> Keys:
    """All keys of several filters."""
    if len(several) == 1:
        return several[0]
    return unique_keys(np.concatenate([np.zeros(0, dtype=np.uint32), *several]))


def cubes_of_words(keys: Keys, hashes: NDArray[np.uint32], position_bits: int) -> NDArray[np.bool_]:
    """Which of a filter's data cubes hold which words: a row a word, a column a position."""
    size = 1 << position_bits
    mask = np.uint32(size - 1)
    first = hashes & ~mask
    ends = keys.searchsorted(np.concatenate([first, first | mask]))
    found = np.zeros((len(hashes), size), dtype=np.bool_)
    count = len(hashes)
    for row in range(count):
        # The last possible key may be there itself: then the range ends behind it.
        stop = int(ends[count + row])
        if stop < len(keys) and keys[stop] == first[row] | mask:
            stop += 1
        found[row, keys[int(ends[row]) : stop] & mask] = True
    return found


def keys_by_cube(
    settings: StkSettings, bins: Ints, cells: Ints, offsets: Ints, hashes: NDArray[np.uint32]
) -> tuple[Ints, list[Keys]]:
    """The filter cubes of documents, ascending, and the keys of each.

    Document i lies in bin and cell i, and its words have the hashes ``hashes[offsets[i]:offsets[i + 1]]``.
    """
    cubes, positions = settings.filter_cubes(bins, cells), settings.positions(bins, cells)
    counts = np.diff(offsets)
    exists = np.full(len(bins), word_hash(EXISTS), dtype=np.uint32)
    keys = np.concatenate(
        [
            keys_of(exists, positions, settings.position_bits),
            keys_of(hashes, np.repeat(positions, counts), settings.position_bits),
        ]
    )
    names, order = np.unique(cubes, return_inverse=True)
    owners = np.concatenate([order, np.repeat(order, counts)])
    # One sort of both together: the cube's number in the high half, the key in the low.
    both = (owners.astype(np.uint64) << np.uint64(32)) | keys
    both.sort()
    both = both[np.concatenate([[True], both[1:] != both[:-1]])] if len(both) else both
    starts = np.searchsorted(both, np.arange(len(names) + 1, dtype=np.uint64) << np.uint64(32))
    low = (both & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return names, [low[starts[at] : starts[at + 1]] for at in range(len(names))]
