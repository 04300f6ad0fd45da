"""The dispatcher: PS2Stream's grid-t (section IV.C), made from any plan.

Every cell has two maps of terms. H1, from all terms to partitions, is the plan's. H2, from the terms under which
subscriptions are filed there, says where an object goes: to the partitions of those of its terms that H2 has. An object
with none of them is dropped here.

H2 is one open-addressing table a cell, all in the same arrays; a full one is written again, twice as large, at their
end. Objects are taken cell by cell, so that a table is in the processor's cache when the next object asks it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.index_store import read_array
from spatialnosql.subscriptions.kernel import MIX, Array, Whole, by_group, longer
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.homes import home_of, mixed
from spatialnosql.subscriptions.partitioning.placing import Placement, Placer
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.routes import Routes
from spatialnosql.subscriptions.table import Table

WIDE = 256
"""A subscription that touches more cells is noted once a leaf, in a table that all cells of the leaf ask as well."""
_FIRST_SIZE = 8
_SLOTS = ("_terms", "_values", "_counts")
_TABLES = ("_starts", "_sizes", "_used", *_SLOTS)
"""The arrays of H2: those of its slots are longer than what is used of them."""


class Dispatcher:
    """Knows where the subscriptions inserted so far are held, and sends objects there."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._placer = Placer(plan)
        tables = plan.grid.cells + plan.leaves
        self._starts = np.zeros(tables, dtype=np.int64)
        self._sizes = np.zeros(tables, dtype=np.int64)
        self._used = np.zeros(tables, dtype=np.int64)
        self._end = 0
        self._terms = np.full(1024, -1, dtype=np.int32)
        self._values = np.zeros(1024, dtype=np.int32)
        self._counts = np.zeros(1024, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """The bytes of the plan and of H2."""
        tables = (self._starts, self._sizes, self._used, self._terms, self._values, self._counts)
        return self.plan.nbytes + sum(array.nbytes for array in tables)

    def save(self, folder: Path) -> None:
        """Write H2 as plain arrays that `open` maps; the plan is saved apart."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _TABLES:
            array = getattr(self, name)
            np.save(folder / f"{name[1:]}.npy", array[: self._end] if name in _SLOTS else array)

    @classmethod
    def open(cls, folder: Path, plan: Plan) -> Dispatcher:
        """What was saved, to route objects by; it is mapped, and cannot be inserted into."""
        made = cls(plan)
        for name in _TABLES:
            setattr(made, name, read_array(folder / f"{name[1:]}.npy"))
        made._end = made._terms.size
        return made

    def insert(self, table: Table) -> Placement:
        """Place subscriptions and send objects to them from now on; keep the placement to remove them again."""
        placement = self._placer.place(table)
        plan = self.plan
        self._end, self._terms, self._values, self._counts = _note(
            plan.grid.spans_of(table.bounds), plan.grid.columns, plan.leaf_of_cell, table.clauses, placement.filed,
            plan.leaf_home, plan.leaf_map, plan.homes, plan.new_offsets, plan.new_homes,
            self._starts, self._sizes, self._used, self._end, self._terms, self._values, self._counts,
        )  # fmt: skip
        return placement

    def remove(self, table: Table, placement: Placement, rows: NDArray[np.int64]) -> None:
        """Forget rows of a table that was inserted, each once, with the placement that `insert` gave."""
        plan = self.plan
        missing = _forget(
            np.asarray(rows, dtype=np.int64), plan.grid.spans_of(table.bounds), plan.grid.columns,
            plan.leaf_of_cell, plan.leaf_home.size, table.clauses, placement.filed,
            self._starts, self._sizes, self._terms, self._counts,
        )  # fmt: skip
        if missing >= 0:
            raise UsageError(
                f"row {missing:,} was not inserted, or is removed already; remove each subscription once"
            )

    def route(self, objects: Objects) -> Routes:
        """The partitions of every object."""
        plan = self.plan
        cells = plan.grid.cells_of(objects)
        order = by_group(cells, plan.grid.cells)
        rows, partitions, dropped = _route(
            order, cells, plan.leaf_of_cell, plan.leaf_home, plan.version_offsets, plan.versions, plan.partitions,
            objects.offsets, objects.terms,
            self._starts, self._sizes, self._used, self._terms, self._values, self._counts,
        )  # fmt: skip
        ends = np.cumsum(np.bincount(partitions, minlength=plan.partitions), dtype=np.int64)
        return Routes(
            rows[by_group(partitions, plan.partitions)],
            np.concatenate([np.zeros(1, dtype=np.int64), ends]),
            dropped + len(objects) - order.size,
        )

    def checks(self, objects: Objects) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For every term of the objects how many clauses are filed under it in the object's cell, and its partition.

        The partition is that of the plan, ``~row`` of its versions for a hot word; nothing where none is filed.
        """
        plan = self.plan
        counts = np.zeros(int(objects.offsets[-1]), dtype=np.int64)
        homes = np.full(counts.size, -1, dtype=np.int64)
        _checks(
            plan.grid.cells_of(objects), plan.leaf_of_cell, objects.offsets, objects.terms,
            self._starts, self._sizes, self._used, self._terms, self._values, self._counts, counts, homes,
        )  # fmt: skip
        return counts, homes


@compiled
def _slot(terms: Array, start: Whole, size: Whole, term: Whole) -> Whole:
    """Where a term is in a table, or the free place where it belongs; sizes are powers of two."""
    at = ((np.int64(term) * MIX) & 0xFFFFFFFF) >> 8
    slot = start + (at & (size - 1))
    while terms[slot] >= 0 and terms[slot] != term:
        at += 1
        slot = start + (at & (size - 1))
    return slot


@compiled
def _is_wide(spans: Array, i: int) -> bool:
    columns = spans[i, 1] - spans[i, 0] + 1 + spans[i, 5] - spans[i, 4] + 1
    return bool(columns * (spans[i, 3] - spans[i, 2] + 1) > WIDE)


@compiled
def _note(
    spans: Array,
    columns: int,
    leaf_of_cell: Array,
    clauses: Array,
    filed: Array,
    leaf_home: Array,
    leaf_map: Array,
    homes: Array,
    new_offsets: Array,
    new_homes: Array,
    starts: Array,
    sizes: Array,
    used: Array,
    end: int,
    terms: Array,
    values: Array,
    counts: Array,
) -> tuple[int, Array, Array, Array]:
    """Count every clause in the tables of the cells that its subscription touches."""
    met = np.full(leaf_home.size, -1, np.int64)
    for i in range(spans.shape[0]):
        wide = _is_wide(spans, i)
        for part in range(2):
            for row in range(spans[i, 2], spans[i, 3] + 1):
                for column in range(spans[i, 4 * part], spans[i, 4 * part + 1] + 1):
                    table = row * columns + column
                    leaf = leaf_of_cell[table]
                    if wide:
                        if met[leaf] == i:
                            continue
                        met[leaf] = i
                        table = leaf_of_cell.size + leaf
                    for clause in range(clauses[i], clauses[i + 1]):
                        term = filed[clause]
                        if 10 * (used[table] + 1) > 6 * sizes[table]:
                            start, size = starts[table], sizes[table]
                            larger = max(2 * size, _FIRST_SIZE)
                            if end + larger > terms.size:
                                values, counts = longer(values, end + larger), longer(counts, end + larger)
                                terms = longer(terms, end + larger)
                                counts[end:] = 0
                                terms[end:] = -1
                            for old in range(start, start + size):
                                if terms[old] >= 0:
                                    to = _slot(terms, end, larger, terms[old])
                                    terms[to], values[to] = terms[old], values[old]
                                    counts[to] = counts[old]
                            starts[table], sizes[table] = end, larger
                            end += larger
                        slot = _slot(terms, starts[table], sizes[table], term)
                        if terms[slot] < 0:
                            used[table] += 1
                            terms[slot] = term
                            values[slot] = home_of(
                                leaf, term, leaf_home, leaf_map, homes, new_offsets, new_homes
                            )
                        counts[slot] += 1
    return end, terms, values, counts


@compiled
def _forget(
    rows: Array,
    spans: Array,
    columns: int,
    leaf_of_cell: Array,
    leaves: int,
    clauses: Array,
    filed: Array,
    starts: Array,
    sizes: Array,
    terms: Array,
    counts: Array,
) -> int:
    """Undo `_note` for some rows; a term that is not there is the first sign of a row that was not. Or -1."""
    met = np.full(leaves, -1, np.int64)
    for i in rows:
        wide = _is_wide(spans, i)
        for part in range(2):
            for row in range(spans[i, 2], spans[i, 3] + 1):
                for column in range(spans[i, 4 * part], spans[i, 4 * part + 1] + 1):
                    table = row * columns + column
                    if wide:
                        leaf = leaf_of_cell[table]
                        if met[leaf] == i:
                            continue
                        met[leaf] = i
                        table = leaf_of_cell.size + leaf
                    for clause in range(clauses[i], clauses[i + 1]):
                        if sizes[table] == 0:
                            return int(i)
                        slot = _slot(terms, starts[table], sizes[table], filed[clause])
                        if terms[slot] < 0 or counts[slot] == 0:
                            return int(i)
                        counts[slot] -= 1
    return -1


@compiled
def _route(
    order: Array,
    cells: Array,
    leaf_of_cell: Array,
    leaf_home: Array,
    version_offsets: Array,
    versions: Array,
    partitions: int,
    offsets: Array,
    words: Array,
    starts: Array,
    sizes: Array,
    used: Array,
    terms: Array,
    values: Array,
    counts: Array,
) -> tuple[Array, Array, int]:
    """The pairs of object and partition, objects in the given order, and how many objects have none."""
    rows, homes = (
        np.empty(2 * order.size + partitions, np.int64),
        np.empty(2 * order.size + partitions, np.int32),
    )
    met = np.full(partitions, -1, np.int64)
    found = dropped = 0
    for row in order:
        before = found
        if found + partitions > rows.size:
            rows, homes = longer(rows, found + partitions), longer(homes, found + partitions)
        cell = cells[row]
        leaf = leaf_of_cell[cell]
        whole = leaf_home[leaf] >= 0  # one filed term is enough
        for part in range(2):
            table = cell if part == 0 else leaf_of_cell.size + leaf
            if used[table] == 0 or (whole and found > before):
                continue
            start, size = starts[table], sizes[table]
            for k in range(offsets[row], offsets[row + 1]):
                slot = _slot(terms, start, size, words[k])
                if terms[slot] < 0 or counts[slot] == 0:
                    continue
                home = values[slot]
                if home < 0:  # a hot word: any of its versions, as section 5.1 of S3-TM has it
                    first = version_offsets[~home]
                    home = versions[first + mixed(row * 31 + k) % (version_offsets[~home + 1] - first)]
                if met[home] != row:
                    met[home] = row
                    rows[found], homes[found] = row, home
                    found += 1
                if whole:
                    break
        dropped += found == before
    return rows[:found], homes[:found], dropped


@compiled
def _checks(
    cells: Array,
    leaf_of_cell: Array,
    offsets: Array,
    words: Array,
    starts: Array,
    sizes: Array,
    used: Array,
    terms: Array,
    values: Array,
    counts: Array,
    found: Array,
    homes: Array,
) -> None:
    """Fill in what is filed under every term of every object: in its cell, and of wide ones in its leaf."""
    for i in range(cells.size):
        if cells[i] < 0:
            continue
        for part in range(2):
            table = cells[i] if part == 0 else leaf_of_cell.size + leaf_of_cell[cells[i]]
            if used[table] == 0:
                continue
            for k in range(offsets[i], offsets[i + 1]):
                slot = _slot(terms, starts[table], sizes[table], words[k])
                if terms[slot] >= 0 and counts[slot] > 0:
                    found[k] += counts[slot]
                    homes[k] = values[slot]
