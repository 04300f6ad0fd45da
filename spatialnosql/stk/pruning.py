"""Which data cubes can hold an answer: pure, from a cover, bins, words and the filters at hand.

The paper's key verification (section 6.2): a data cube survives if its filter has the words that the query needs there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.geohash import BITS
from spatialnosql.stk.keys import EXISTS, Keys, cubes_of_words, word_hashes
from spatialnosql.stk.settings import Ints, StkSettings
from spatialnosql.stk.wording import Wording, possible, terms_of


@dataclass(frozen=True)
class Window:
    """The bins and the cells that a query meets: all data cubes of one of each."""

    bins: Ints
    cells: Ints

    @property
    def size(self) -> int:
        """How many data cubes that are."""
        return len(self.bins) * len(self.cells)


def cells_of_ranges(ranges: Ranges, settings: StkSettings, most: int) -> Ints | None:
    """The data cells that ranges of the curve meet, ascending; None if there are more than so many."""
    shift = np.uint64(BITS - settings.cell_bits)
    first = (ranges.lo >> shift).astype(np.int64)
    last = ((ranges.hi - np.uint64(1)) >> shift).astype(np.int64)
    if int((last - first + 1).sum()) > most + len(first):
        return None
    parts = [np.arange(lo, hi + 1) for lo, hi in zip(first.tolist(), last.tolist(), strict=True)]
    cells = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
    return cells if len(cells) <= most else None


def filter_cubes_of(window: Window, settings: StkSettings) -> Ints:
    """The filter cubes of a window, ascending."""
    bins, cells = window.bins >> settings.cube_bin_bits, window.cells >> settings.cube_cell_bits
    # Both ascend, and so do the cubes: the bin counts before the cell.
    bins, cells = (one[np.diff(one, prepend=one[:1] - 1) != 0] for one in (bins, cells))
    shift = settings.cell_bits - settings.cube_cell_bits
    cubes: Ints = ((bins << shift)[:, None] | cells[None, :]).ravel()
    return cubes


def surviving(
    window: Window, wording: Wording, filters: Mapping[int, Keys | None], settings: StkSettings
) -> Ints:
    """The numbers of the data cubes that can hold a document with such words, ascending.

    `filters` are those of the window's filter cubes. One that is not among them does not exist, and neither do
    documents in it; of one that is None nothing is known, so that all of its data cubes survive.
    """
    terms = sorted(terms_of(wording))
    rows = {term: row for row, term in enumerate([*terms, EXISTS])}
    hashes = word_hashes([*terms, EXISTS])
    bins, cells = np.broadcast_arrays(window.bins[:, None], window.cells[None, :])
    cubes = settings.filter_cubes(bins, cells)
    names = np.array(sorted(filters), dtype=np.int64)
    if not len(names):
        return np.zeros(0, dtype=np.int64)
    tables = np.ones((len(names), len(rows), 1 << settings.position_bits), dtype=np.bool_)
    for number, name in enumerate(names.tolist()):
        keys = filters[name]
        if keys is not None:
            tables[number] = cubes_of_words(keys, hashes, settings.position_bits)
    at = np.minimum(np.searchsorted(names, cubes), len(names) - 1)
    there = names[at] == cubes
    positions = settings.positions(bins, cells)

    def has(term: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = there & tables[at, rows[term], positions]
        return found

    exists = has(EXISTS)
    alive = possible(wording, has, operator.and_, operator.or_, exists, np.zeros_like(exists))
    return np.sort(settings.data_cubes(bins, cells)[alive])
