"""A segment of the index: some subscriptions, filed once by cell and rarest terms (PS2Stream's GI2), then only read.

What may change is whether a subscription is gone: removal marks it and leaves its postings where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.subscriptions import building, kernel
from spatialnosql.subscriptions.areas import Area, Polygon
from spatialnosql.subscriptions.cells import FINEST
from spatialnosql.subscriptions.model import NEVER_MS
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.table import CIRCLE, POLYGON, Table

STEP = 2
"""Levels in use are so far apart: each cell of a level is 4**STEP of the next."""
MOST_CELLS = 64
"""A box that touches more cells goes to a coarser level."""
MOST_COPIES = 10.0
"""The finest level is chosen so that a clause is filed in no more cells than this on average."""
MOST_POSTINGS = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Segment:
    """Postings by cell and term; see `building` for how they lie."""

    table: Table
    levels: NDArray[np.int64]
    """The levels in use, finest first."""
    cell_keys: NDArray[np.int64]
    cell_numbers: NDArray[np.int32]
    cell_slots: NDArray[np.int64]
    slot_terms: NDArray[np.int32]
    slot_postings: NDArray[np.int32]
    postings: NDArray[np.uint32]
    state: NDArray[np.uint8]

    @classmethod
    def build(
        cls, table: Table, frequencies: NDArray[np.int64], finest: int | None = None, gone: Any = None
    ) -> Segment:
        """File every subscription that is not gone; without `finest`, the finest level is chosen by their sizes."""
        state = _state(table, gone)
        boxes = np.empty((len(table), 6), dtype=np.int64)
        building.boxes_of(table.bounds, boxes)
        levels = np.empty(len(table), dtype=np.int64)
        if finest is None:
            finest = _finest_level(boxes, table.clauses, state, levels)
        building.levels_of(boxes, finest, STEP, MOST_CELLS, levels)
        keys, counts = building.count_cells(boxes, levels, table.clauses, state)
        used = np.flatnonzero(keys >= 0)
        used = used[np.argsort(_curve(keys[used]))]
        numbers = np.full(keys.size, -1, dtype=np.int32)
        numbers[used] = np.arange(used.size)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts[used])])
        if max(int(starts[-1]), 2 * (table.clause_terms.size - 1)) > MOST_POSTINGS:
            raise UsageError(
                f"{len(table):,} subscriptions need {int(starts[-1]):,} postings; at most {MOST_POSTINGS:,} fit one "
                "index: part the subscriptions"
            )
        entries = np.empty(int(starts[-1]), dtype=np.int32)
        building.fill_cells(boxes, levels, table.clauses, state, keys, numbers, starts, entries)
        firsts, seconds = np.empty((2, table.clause_terms.size - 1), dtype=np.int64)
        building.rarest(table.clause_terms, table.members, frequencies, firsts, seconds)
        slots = np.empty(used.size + 1, dtype=np.int64)
        building.count_terms(starts, entries, firsts, max(len(table.vocabulary), 1), slots)
        slot_terms = np.full(int(slots[-1]), -1, dtype=np.int32)
        slot_postings = np.zeros(slot_terms.size + 1, dtype=np.int32)
        postings = np.empty((entries.size, 4), dtype=np.uint32)
        clause_numbers = np.repeat(np.arange(len(table)), np.diff(table.clauses))
        building.write_postings(
            keys[used], starts, entries, firsts, seconds, clause_numbers, boxes,
            slots, slot_terms, slot_postings, postings,
        )  # fmt: skip
        in_use = np.flatnonzero(np.bincount(levels[state & kernel.GONE == 0]))[::-1].astype(np.int64)
        return cls(table, in_use, keys, numbers, slots, slot_terms, slot_postings, postings, state)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, the table's included."""
        own = [getattr(self, field.name) for field in fields(self) if field.name != "table"]
        return sum(int(array.nbytes) for array in own) + self.table.nbytes

    def match(
        self, objects: Objects, order: NDArray[np.int64], seen: NDArray[np.int32], stamp: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """The matches of the objects in the given order, and undecided pairs: see `kernel.match_segment`."""
        counts = np.empty(order.size, dtype=np.int64)
        table = self.table
        found, rows, numbers = kernel.match_segment(
            order, objects.x, objects.y, objects.lng, objects.lat, objects.at, objects.offsets, objects.terms,
            self.levels, self.cell_keys, self.cell_numbers, self.cell_slots,
            self.slot_terms, self.slot_postings, self.postings,
            self.state, self._exact, table.expires, table.clauses, table.clause_terms, table.members,
            table.polygon_numbers, table.polygon_rows, table.rasters,
            seen, stamp, counts,
        )  # fmt: skip
        return counts, found, rows, numbers

    def settle(
        self, objects: Objects, rows: NDArray[np.int64], numbers: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Which of the undecided pairs match, by the areas themselves; each distinct area is asked once."""
        polygons = self.table.kind[numbers] == POLYGON
        # Circles by number, polygons by their row, which many subscriptions may share: as negative numbers.
        areas = numbers.astype(np.int64)
        areas[polygons] = ~self.table.polygon_row(numbers[polygons]).astype(np.int64)
        inside = np.zeros(rows.size, dtype=np.bool_)
        order = np.argsort(areas, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(areas[order])) + 1):
            if group.size:
                own = rows[group]
                inside[group] = self._area(int(areas[group[0]])).inside(objects.lng[own], objects.lat[own])
        return inside

    def _area(self, number: int) -> Area:
        if number >= 0:
            return self.table.area(number)
        if number not in self._polygons:  # a polygon takes long to read, so it is kept
            self._polygons[number] = self.table.polygon(~number)
        return self._polygons[number]

    @cached_property
    def _polygons(self) -> dict[int, Polygon]:
        return {}

    @cached_property
    def _exact(self) -> NDArray[np.float64]:
        """What decides at a border: rectangles as they are; circles as a unit vector and a chord."""
        table = self.table
        if not table.circle_numbers.size:
            return table.bounds
        exact = table.bounds.copy()
        lng, lat = np.radians(table.circles[:, :2]).T
        vectors = (np.cos(lat) * np.cos(lng), np.cos(lat) * np.sin(lng), np.sin(lat))
        chords = 2 * np.sin(table.circles[:, 2] / EARTH_RADIUS_M / 2)
        exact[table.circle_numbers] = np.stack([*vectors, chords], axis=1)
        return exact


def _state(table: Table, gone: Any) -> NDArray[np.uint8]:
    counts, lengths = np.diff(table.clauses), np.diff(table.clause_terms)
    state = np.zeros(len(table), dtype=np.uint8)
    state[table.expires != NEVER_MS] |= kernel.EXPIRES
    state[(counts > 1) | (table.bounds[:, 0] > table.bounds[:, 2])] |= kernel.REPEATS
    state[np.repeat(np.arange(len(table)), counts)[lengths > 2]] |= kernel.LONG
    state[table.kind == CIRCLE] |= kernel.CIRCLE
    state[table.kind == POLYGON] |= kernel.POLYGON
    if gone is not None:
        state[gone] |= kernel.GONE
    return state


def _finest_level(boxes: Any, clauses: Any, state: Any, levels: Any) -> int:
    """The finest level at which clauses are not filed in too many cells."""
    count = max(int(clauses[-1]), 1)
    for finest in range(FINEST, STEP, -1):
        building.levels_of(boxes, finest, STEP, MOST_CELLS, levels)
        if building.cells_touched(boxes, clauses, state, levels) <= MOST_COPIES * count:
            return finest
    return STEP


def _curve(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells in the order in which they are stored: level by level, along the Z-order curve."""
    order = np.empty(keys.size, dtype=np.int64)
    kernel.curve((keys >> 16 & 0xFFFF) << 16, (keys & 0xFFFF) << 16, FINEST, order)
    levels: NDArray[np.int64] = keys >> 32
    return (levels << 32) | order
