"""How fine bins, cells and filter cubes should be: chosen from a sample of the documents.

A data cube should hold a few documents: with more, words of one bring others along; with fewer, a query has many cubes
to name and filters are no smaller for it. A filter cube should hold some thousands of keys: large enough that a query
needs few of them, small enough to be loaded and evicted in a millisecond.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from spatialnosql.geohash import BITS, Cells
from spatialnosql.stk.settings import MOST_POSITION_BITS, Ints

BINS_S = (900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600, 28 * 24 * 3600)
CELL_BITS = (24, 26, 28, 30, 32)
USUAL_BIN_S, USUAL_CELL_BITS = 3600, 28
"""An hour and 1.4 km, the paper's: people ask about hours and kilometres."""
MOST_DOCUMENTS, FEWEST_DOCUMENTS = 64.0, 1.5
KEYS = 8_192
"""Of a filter cube, about."""


class Sizes(TypedDict):
    """What is chosen, by the names of the settings."""

    bin_s: int
    cell_bits: int
    cube_bin_bits: int
    cube_cell_bits: int


def chosen_sizes(at_ms: Ints, cells: Cells, total: int, words: float) -> Sizes:
    """The sizes for a collection of `total` documents with so many words each, by a sample of their times and cells."""
    bin_s, cell_bits = _at_least(at_ms), USUAL_CELL_BITS
    if len(at_ms):
        scale = max(1.0, total / len(at_ms))
        while _crowd(at_ms, cells, bin_s, cell_bits, scale) > MOST_DOCUMENTS and cell_bits < CELL_BITS[-1]:
            cell_bits += 2
        while _crowd(at_ms, cells, bin_s, cell_bits, scale) < FEWEST_DOCUMENTS and cell_bits > CELL_BITS[0]:
            cell_bits -= 2
    bin_bits, bits = _cube(at_ms, cells, bin_s, cell_bits, total, words)
    return Sizes(bin_s=bin_s, cell_bits=cell_bits, cube_bin_bits=bin_bits, cube_cell_bits=bits)


def _at_least(at_ms: Ints) -> int:
    """An hour, or more where the times themselves are coarser: days, or months."""
    moments = np.unique(at_ms)
    if len(moments) < 2:
        return USUAL_BIN_S
    gap_s = int(np.diff(moments).min()) // 1000
    return max([size for size in BINS_S if size <= max(gap_s, USUAL_BIN_S)])


def _crowd(at_ms: Ints, cells: Cells, bin_s: int, cell_bits: int, scale: float) -> float:
    """How many documents share the data cube of a document, itself included; of all, not of the sample."""
    bins = np.floor_divide(at_ms, bin_s * 1000)
    cubes = (bins << cell_bits) | (cells >> np.uint64(BITS - cell_bits)).astype(np.int64)
    _, counts = np.unique(cubes, return_counts=True)
    # Pairs in the same cube estimate the crowd without bias; alone, a document is a crowd of one.
    pairs = float((counts * (counts - 1)).sum())
    return 1.0 + scale * pairs / max(1, len(cubes))


def _cube(at_ms: Ints, cells: Cells, bin_s: int, cell_bits: int, total: int, words: float) -> tuple[int, int]:
    """Bits of time and of place that a filter cube has above a data cube, in turn until it holds enough keys."""
    bin_bits, bits = 0, 0
    if not len(at_ms):
        return 2, 4
    scale = max(1.0, total / len(at_ms))
    while bin_bits + bits + 3 <= MOST_POSITION_BITS:
        bins = np.floor_divide(at_ms, bin_s * 1000) >> bin_bits
        places = (cells >> np.uint64(BITS - cell_bits)).astype(np.int64) >> bits
        _, counts = np.unique((bins << cell_bits) | places, return_counts=True)
        held = 1.0 + scale * float((counts * (counts - 1)).sum()) / len(at_ms)
        if held * words >= KEYS:
            break
        bin_bits, bits = bin_bits + 1, bits + 2
    return bin_bits, bits
