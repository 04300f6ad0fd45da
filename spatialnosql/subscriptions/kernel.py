"""The matching loop: objects against one segment of the index.

An object is looked up in its cell of every level in use, there under each of its terms, and every posting of the list
found is one candidate. A posting is 16 bytes and decides nearly always alone: the rectangle to 1/65536 of the cell, the
clause's second rarest term, the subscription's number. What it leaves open (a coordinate that falls into the same
65536th as a border, a clause of three and more terms, an expiry, a circle) is decided from the subscription's own row.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import CLOSE_RAD
from spatialnosql.subscriptions.cells import cell_key, scaled, spread
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.rasters import look

Array: TypeAlias = NDArray[Any]
Whole: TypeAlias = int | np.signedinteger[Any]

# What makes a subscription more than a rectangle with clauses of at most two terms; bits of its state.
GONE = 1
EXPIRES = 2
REPEATS = 4
"""It may be met twice by one object: several clauses, or two boxes that may share a cell."""
LONG = 8
"""One of its clauses has three terms or more."""
CIRCLE = 16
POLYGON = 32

MARGIN = 1.5 * CLOSE_RAD
"""How near to its border a circle is left undecided, as a chord of the unit sphere: farther off, `Circle.inside` goes
by the distance alone. Very small circles have more (see `CapRegion`)."""

MIX = 2654435769  # 2**32 over the golden ratio: multiplied by it, neighbouring term numbers lie far apart
NO_TERM = 0xFFFFFFFF
"""Where a posting has the second term: the clause has no other."""
RADIAN = np.pi / 180.0


@compiled
def place(lng: Array, lat: Array, x: Array, y: Array) -> None:
    """Fill in the 32-bit numbers of places; -1 for what is no place."""
    for i in range(lng.size):
        x[i] = y[i] = -1
        if -180.0 <= lng[i] <= 180.0 and -90.0 <= lat[i] <= 90.0:
            x[i], y[i] = scaled(lng[i], -180.0, 360.0), scaled(lat[i], -90.0, 180.0)


@compiled
def first_unsorted(offsets: Array, terms: Array) -> int:
    """The first row whose terms do not strictly ascend, or -1."""
    for i in range(offsets.size - 1):
        for k in range(offsets[i] + 1, offsets[i + 1]):
            if terms[k] <= terms[k - 1]:
                return i
    return -1


@compiled
def curve(x: Array, y: Array, level: int, keys: Array) -> None:
    """Fill in where each place's cell comes on the Z-order curve: sorted by it, objects of a cell are neighbours."""
    for i in range(x.size):
        a, b = x[i] >> (32 - level), y[i] >> (32 - level)
        a = (a | (a << 8)) & 0x00FF00FF
        a = (a | (a << 4)) & 0x0F0F0F0F
        a = (a | (a << 2)) & 0x33333333
        a = (a | (a << 1)) & 0x55555555
        b = (b | (b << 8)) & 0x00FF00FF
        b = (b | (b << 4)) & 0x0F0F0F0F
        b = (b | (b << 2)) & 0x33333333
        b = (b | (b << 1)) & 0x55555555
        keys[i] = (a << 1) | b


@compiled
def holds(terms: Array, first: int, end: int, term: Whole) -> bool:
    """Whether a term is among the sorted terms ``[first, end)``."""
    while end - first > 8:
        middle = (first + end) >> 1
        if terms[middle] <= term:
            first = middle
        else:
            end = middle
    while first < end and terms[first] != term:
        first += 1
    return first < end


@compiled
def any_clause(
    number: Whole, clauses: Array, clause_terms: Array, members: Array, terms: Array, first: int, end: int
) -> bool:
    """Whether all terms of any clause of a subscription are among an object's."""
    for clause in range(clauses[number], clauses[number + 1]):
        k = clause_terms[clause]
        while k < clause_terms[clause + 1] and holds(terms, first, end, members[k]):
            k += 1
        if k == clause_terms[clause + 1]:
            return True
    return False


@compiled
def to_vector(lng: float, lat: float, vector: Array) -> None:
    """Fill in a place as a unit vector."""
    height = np.cos(lat * RADIAN)
    vector[0] = height * np.cos(lng * RADIAN)
    vector[1] = height * np.sin(lng * RADIAN)
    vector[2] = np.sin(lat * RADIAN)


@compiled
def side_of_circle(vector: Array, circle: Array) -> int:
    """Whether a place is certainly inside (1) or outside (-1) of a circle: a unit vector and a chord."""
    dx, dy, dz = vector[0] - circle[0], vector[1] - circle[1], vector[2] - circle[2]
    beyond = np.sqrt(dx * dx + dy * dy + dz * dz) - circle[3]
    margin = MARGIN + 1e-15 / max(circle[3], 1e-8)
    if beyond < -margin:
        return 1
    if beyond > margin:
        return -1
    return 0


@compiled
def longer(array: Array, size: int) -> Array:
    """The same array with room for at least so many."""
    roomier = np.empty(max(size, 2 * array.size), array.dtype)
    roomier[: array.size] = array
    return roomier


@compiled
def by_group(groups: Array, count: int) -> Array:
    """The rows sorted by group, those of a group in their order; without the rows of group -1.

    Counted, not sorted, which takes ten times as long.
    """
    starts = np.zeros(count + 1, np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            starts[groups[i] + 1] += 1
    for group in range(count):
        starts[group + 1] += starts[group]
    rows = np.empty(starts[count], np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            rows[starts[groups[i]]] = i
            starts[groups[i]] += 1
    return rows


@compiled
def match_segment(
    order: Array,
    x: Array,
    y: Array,
    lng: Array,
    lat: Array,
    at: Array,
    offsets: Array,
    terms: Array,
    levels: Array,
    cell_keys: Array,
    cell_numbers: Array,
    cell_slots: Array,
    slot_terms: Array,
    slot_postings: Array,
    postings: Array,
    state: Array,
    exact: Array,
    expires: Array,
    clauses: Array,
    clause_terms: Array,
    members: Array,
    polygon_numbers: Array,
    polygon_rows: Array,
    rasters: Array,
    seen: Array,
    stamp: int,
    counts: Array,
) -> tuple[Array, Array, Array]:
    """The matches of objects, taken in the given order, and the pairs that only an exact test can decide.

    Returns the numbers of the subscriptions, object after object in that order, with ``counts[i]`` for the i-th;
    and the rows and numbers of the undecided pairs. `seen` remembers the last object that met a subscription
    of several clauses, as `stamp` plus its place in the order.
    """
    found = np.empty(max(1024, 8 * order.size), np.int32)
    open_rows, open_numbers = np.empty(64, np.int64), np.empty(64, np.int32)
    used = opened = 0
    vector, vector_of = np.empty(3, np.float64), -1  # made for the first circle that an object meets
    last_keys, last_cells = np.full(levels.size, -1, np.int64), np.full(levels.size, -1, np.int64)
    cell_mask = cell_keys.size - 1
    for i in range(order.size):
        before = used
        row = order[i]
        first, end = offsets[row], offsets[row + 1]
        px, py = x[row], y[row]
        if px < 0 or first == end:
            counts[i] = 0
            continue
        signature = 0
        for k in range(first, end):
            signature |= 1 << (terms[k] & 63)
        for rank in range(levels.size):
            level = levels[rank]
            key = cell_key(level, px, py)
            if key != last_keys[rank]:
                last_keys[rank], last_cells[rank] = key, -1
                at_key = spread(key) & cell_mask
                while cell_keys[at_key] >= 0:
                    if cell_keys[at_key] == key:
                        last_cells[rank] = cell_numbers[at_key]
                        break
                    at_key = (at_key + 1) & cell_mask
            cell = last_cells[rank]
            if cell < 0:
                continue
            base = cell_slots[cell]
            size = cell_slots[cell + 1] - base
            qx, qy = (px >> (16 - level)) & 0xFFFF, (py >> (16 - level)) & 0xFFFF
            for k in range(first, end):
                term = terms[k]
                slot = base + ((((term * MIX) & 0xFFFFFFFF) * size) >> 32)
                while slot_terms[slot] != term and slot_terms[slot] >= 0:
                    slot += 1
                    if slot == base + size:
                        slot = base
                if slot_terms[slot] < 0:
                    continue
                begin, stop = slot_postings[slot], slot_postings[slot + 1]
                if used + stop - begin > found.size:
                    found = longer(found, used + stop - begin)
                for p in range(begin, stop):
                    across, along = np.int64(postings[p, 0]), np.int64(postings[p, 1])
                    west, east = across & 0xFFFF, across >> 16
                    south, north = along & 0xFFFF, along >> 16
                    if (qx < west) | (qx > east) | (qy < south) | (qy > north):
                        continue
                    second = np.int64(postings[p, 3])
                    if second != NO_TERM and (
                        (signature >> (second & 63)) & 1 == 0 or not holds(terms, first, end, second)
                    ):
                        continue
                    number = np.int64(postings[p, 2])
                    flags = state[number]
                    on_border = (qx == west) | (qx == east) | (qy == south) | (qy == north)
                    if flags == 0 and not on_border:
                        found[used] = number
                        used += 1
                        continue
                    if flags & GONE or (flags & EXPIRES and at[row] >= expires[number]):
                        continue
                    if flags & REPEATS and seen[number] == stamp + i:
                        continue
                    if flags & LONG and not any_clause(
                        number, clauses, clause_terms, members, terms, first, end
                    ):
                        continue
                    if flags & REPEATS:
                        seen[number] = stamp + i
                    if flags & (CIRCLE | POLYGON):
                        side = 0
                        if flags & CIRCLE:
                            if vector_of != row:
                                to_vector(lng[row], lat[row], vector)
                                vector_of = row
                            side = side_of_circle(vector, exact[number])
                        else:
                            row_of_polygon = polygon_rows[np.searchsorted(polygon_numbers, number)]
                            side = look(lng[row], lat[row], exact[number], rasters, row_of_polygon) - 1
                        if side < 0:
                            continue
                        if side == 0:
                            if opened == open_rows.size:
                                open_rows, open_numbers = (
                                    longer(open_rows, opened),
                                    longer(open_numbers, opened),
                                )
                            open_rows[opened], open_numbers[opened] = row, number
                            opened += 1
                            continue
                    elif on_border and not (
                        exact[number, 0] <= lng[row] <= exact[number, 2]
                        and exact[number, 1] <= lat[row] <= exact[number, 3]
                    ):
                        continue
                    found[used] = number
                    used += 1
        counts[i] = used - before
    return found[:used], open_rows[:opened], open_numbers[:opened]


@compiled
def in_row_order(order: Array, counts: Array, found: Array, starts: Array, numbers: Array) -> None:
    """Copy each object's matches to where those of its row belong."""
    read = 0
    for i in range(order.size):
        write = starts[order[i]]
        for k in range(counts[i]):
            numbers[write + k] = found[read + k]
        read += counts[i]
