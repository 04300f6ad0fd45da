"""Building a segment of the index: from the rows of subscriptions to postings by cell and term.

Five passes, all linear: choose each clause's two rarest terms; count the cells; put the clauses into their cells;
count each cell's terms; write the postings. A cell's terms are an open-addressing table of their own, all tables one
after the other, and the postings lie in the order of the tables' slots, so that a slot needs to say only where its
list begins.
"""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.cells import cell_key, level_of, scaled, spread
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import GONE, MIX, NO_TERM, Array

MOST_LOAD = 0.6
"""How full a cell's table of terms may be: at 0.6 a term that is not there costs about three looks."""


@compiled
def boxes_of(bounds: Array, boxes: Array) -> None:
    """Fill in each subscription's one or two boxes in 32-bit numbers; west > east means across the antimeridian.

    A row is west, south, east, north of the first and west, east of the second box, or -1, -1 if it has none.
    """
    for i in range(bounds.shape[0]):
        west, east = scaled(bounds[i, 0], -180.0, 360.0), scaled(bounds[i, 2], -180.0, 360.0)
        boxes[i, 0], boxes[i, 1] = west, scaled(bounds[i, 1], -90.0, 180.0)
        boxes[i, 2], boxes[i, 3] = east, scaled(bounds[i, 3], -90.0, 180.0)
        boxes[i, 4] = boxes[i, 5] = -1
        if bounds[i, 0] > bounds[i, 2]:
            boxes[i, 2] = 4294967295
            boxes[i, 4], boxes[i, 5] = 0, east


@compiled
def rarest(clause_terms: Array, members: Array, frequencies: Array, firsts: Array, seconds: Array) -> None:
    """Fill in the rarest and the second rarest term of every clause; terms without a known frequency are rarest."""
    for clause in range(clause_terms.size - 1):
        first = second = np.int64(-1)
        often_first = often_second = np.int64(0)
        for k in range(clause_terms[clause], clause_terms[clause + 1]):
            term = np.int64(members[k])
            often = np.int64(frequencies[term]) if term < frequencies.size else np.int64(0)
            if first < 0 or often < often_first:
                second, often_second = first, often_first
                first, often_first = term, often
            elif second < 0 or often < often_second:
                second, often_second = term, often
        firsts[clause] = first
        seconds[clause] = NO_TERM if second < 0 else second


@compiled
def levels_of(boxes: Array, finest: int, step: int, most: int, levels: Array) -> None:
    """Fill in the level of every subscription: the same for both of its boxes, so that no object meets it at two."""
    for i in range(boxes.shape[0]):
        level = level_of(boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3], finest, step, most)
        if boxes[i, 4] >= 0:
            level = min(
                level, level_of(boxes[i, 4], boxes[i, 1], boxes[i, 5], boxes[i, 3], finest, step, most)
            )
        levels[i] = level


@compiled
def cells_touched(boxes: Array, clauses: Array, state: Array, levels: Array) -> int:
    """How many postings there are if every subscription is put into cells of its level."""
    total = 0
    for i in range(boxes.shape[0]):
        if state[i] & GONE:
            continue
        shift = 32 - levels[i]
        rows = (boxes[i, 3] >> shift) - (boxes[i, 1] >> shift) + 1
        columns = (boxes[i, 2] >> shift) - (boxes[i, 0] >> shift) + 1
        if boxes[i, 4] >= 0:
            columns += (boxes[i, 5] >> shift) + 1
        total += rows * columns * (clauses[i + 1] - clauses[i])
    return total


@compiled
def find_cell(keys: Array, key: int) -> int:
    """Where a cell's key is in the table of cells, or the free place where it belongs."""
    mask = keys.size - 1
    at = spread(key) & mask
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def count_cells(boxes: Array, levels: Array, clauses: Array, state: Array) -> tuple[Array, Array]:
    """The cells that subscriptions touch, as an open-addressing table of keys (-1: free), with their postings."""
    keys, counts = np.full(1024, -1, np.int64), np.zeros(1024, np.int64)
    used = 0
    for i in range(boxes.shape[0]):
        if state[i] & GONE:
            continue
        level = levels[i]
        shift = 32 - level
        for part in range(2):
            west, east = boxes[i, 4 * part] >> shift, boxes[i, 2 + 3 * part] >> shift
            if boxes[i, 4 * part] < 0:
                continue
            for column in range(west, east + 1):
                for row in range(boxes[i, 1] >> shift, (boxes[i, 3] >> shift) + 1):
                    key = cell_key(level, column << shift, row << shift)
                    at = find_cell(keys, key)
                    if keys[at] < 0:
                        keys[at] = key
                        used += 1
                    counts[at] += clauses[i + 1] - clauses[i]
                    if 2 * used > keys.size:
                        old_keys, old_counts = keys, counts
                        keys = np.full(2 * old_keys.size, -1, np.int64)
                        counts = np.zeros(keys.size, np.int64)
                        for k in range(old_keys.size):
                            if old_keys[k] >= 0:
                                at = find_cell(keys, old_keys[k])
                                keys[at], counts[at] = old_keys[k], old_counts[k]
    return keys, counts


@compiled
def fill_cells(
    boxes: Array,
    levels: Array,
    clauses: Array,
    state: Array,
    keys: Array,
    numbers: Array,
    starts: Array,
    entries: Array,
) -> None:
    """Put each clause into the cells its subscription touches: twice its number, plus 1 for the second box."""
    filled = np.zeros(starts.size - 1, np.int64)
    for i in range(boxes.shape[0]):
        if state[i] & GONE:
            continue
        level = levels[i]
        shift = 32 - level
        for part in range(2):
            west, east = boxes[i, 4 * part] >> shift, boxes[i, 2 + 3 * part] >> shift
            if boxes[i, 4 * part] < 0:
                continue
            for column in range(west, east + 1):
                for row in range(boxes[i, 1] >> shift, (boxes[i, 3] >> shift) + 1):
                    cell = numbers[find_cell(keys, cell_key(level, column << shift, row << shift))]
                    for clause in range(clauses[i], clauses[i + 1]):
                        entries[starts[cell] + filled[cell]] = 2 * clause + part
                        filled[cell] += 1


@compiled
def count_terms(starts: Array, entries: Array, firsts: Array, vocabulary: int, slots: Array) -> None:
    """Fill in where each cell's table of terms begins: one slot at least stays free, which ends every search."""
    last = np.full(vocabulary, -1, np.int64)
    slots[0] = 0
    for cell in range(starts.size - 1):
        distinct = 0
        for k in range(starts[cell], starts[cell + 1]):
            term = firsts[entries[k] >> 1]
            if last[term] != cell:
                last[term] = cell
                distinct += 1
        slots[cell + 1] = slots[cell] + int(distinct / MOST_LOAD) + 1


@compiled
def write_postings(
    cell_keys: Array,
    starts: Array,
    entries: Array,
    firsts: Array,
    seconds: Array,
    clause_numbers: Array,
    boxes: Array,
    slots: Array,
    slot_terms: Array,
    slot_postings: Array,
    postings: Array,
) -> None:
    """Fill in the cells' tables of terms and the postings in the order of their slots."""
    widest = 0
    for cell in range(starts.size - 1):
        widest = max(widest, starts[cell + 1] - starts[cell])
    chosen = np.empty(widest, np.int64)
    for cell in range(starts.size - 1):
        base, size = slots[cell], slots[cell + 1] - slots[cell]
        begin = starts[cell]
        for k in range(begin, starts[cell + 1]):
            term = firsts[entries[k] >> 1]
            slot = base + ((((term * MIX) & 0xFFFFFFFF) * size) >> 32)
            while slot_terms[slot] != term and slot_terms[slot] >= 0:
                slot += 1
                if slot == base + size:
                    slot = base
            slot_terms[slot] = term
            slot_postings[slot] += 1
            chosen[k - begin] = slot
        total = begin
        for slot in range(base, base + size):  # counts become where the next posting goes
            count = slot_postings[slot]
            slot_postings[slot] = total
            total += count
        level = cell_keys[cell] >> 32
        shift = 16 - level
        column, row = (cell_keys[cell] >> 16) & 0xFFFF, cell_keys[cell] & 0xFFFF
        for k in range(begin, starts[cell + 1]):
            clause, part = entries[k] >> 1, entries[k] & 1
            number = clause_numbers[clause]
            west = max((boxes[number, 4 * part] >> shift) - (column << 16), 0)
            east = min((boxes[number, 2 + 3 * part] >> shift) - (column << 16), 0xFFFF)
            south = max((boxes[number, 1] >> shift) - (row << 16), 0)
            north = min((boxes[number, 3] >> shift) - (row << 16), 0xFFFF)
            slot = chosen[k - begin]
            at = slot_postings[slot]
            slot_postings[slot] = at + 1
            postings[at, 0] = west | (east << 16)
            postings[at, 1] = south | (north << 16)
            postings[at, 2] = number
            postings[at, 3] = seconds[clause]
        for slot in range(base + size - 1, base - 1, -1):  # each ends where the next begins: back by one
            slot_postings[slot] = slot_postings[slot - 1] if slot > base else begin
    slot_postings[slot_terms.size] = entries.size
