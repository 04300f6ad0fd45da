"""Nodes of PS2Stream's kd-t-tree: a rectangle of cells, perhaps with some of the terms only; their loads, their parts.

The load of a node is definition 1's with one refinement. There, every object of a worker is checked against every
subscription of it; the index of a worker (GI2, section IV.D) checks an object only against what is filed in its cell
under one of its terms. So the first term counts those pairs, which an index of the whole sample tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.building import find_cell
from spatialnosql.subscriptions.cells import cell_key
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.kernel import MIX, Array
from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.sample import Sample

Rows = NDArray[np.int64]


class Workload:
    """The sample as nodes are counted from it: terms of objects with what they cost, clauses with where they are."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.columns, self.rows = sample.grid.columns, sample.grid.rows
        self.terms_known = len(sample.table.vocabulary)
        objects = sample.objects
        terms = objects.terms[: objects.offsets[-1]]
        cells = sample.cells[sample.object_of_term]
        used = (terms >= 0) & (terms < self.terms_known) & (cells >= 0)
        self.owner = sample.object_of_term[used]
        """The object of every term, ascending."""
        self.term = terms[used].astype(np.int64)
        self.column, self.row = cells[used] % self.columns, cells[used] // self.columns
        self.clause_owner = sample.clause_rows
        """The subscription of every clause, ascending."""
        self.filed = sample.filed.astype(np.int64)
        self.span = sample.spans[self.clause_owner]
        segment = Index.build(sample.table, sample.frequencies).segments[0]
        checks = postings_met(
            objects.x, objects.y, objects.offsets, objects.terms,
            segment.levels, segment.cell_keys, segment.cell_numbers, segment.cell_slots,
            segment.slot_terms, segment.slot_postings,
        )  # fmt: skip
        self.checks = checks[used] * sample.scale
        """How many clauses an index of all has under the term in the object's cell: what a worker checks for it."""
        costs = sample.costs
        self.check_s, self.object_s = costs.check_s, costs.object_s
        self.change_s = costs.change_s(len(objects), len(sample.table) * sample.scale) * sample.scale
        """What a subscription of the sample costs by being there: it comes and goes."""

    def root(self) -> Node:
        """All there is."""
        terms = np.arange(self.term.size, dtype=np.int64)
        return Node(
            self, (0, self.columns, 0, self.rows), None, terms, np.arange(self.filed.size, dtype=np.int64)
        )


@dataclass(frozen=True, eq=False)
class Node:
    """Cells ``[left, right) x [bottom, top)``; all terms, or those of `terms`, sorted."""

    workload: Workload
    cells: tuple[int, int, int, int]
    terms: Rows | None
    words: Rows
    """The terms of objects that are in it: rows of the workload's `term`."""
    clauses: Rows

    @cached_property
    def objects(self) -> Rows:
        """The objects that are sent to it."""
        work = self.workload
        return _distinct(work.owner[self.words[work.checks[self.words] > 0]])

    @cached_property
    def subscriptions(self) -> Rows:
        """Those it holds."""
        return _distinct(self.workload.clause_owner[self.clauses])

    @cached_property
    def load(self) -> float:
        """Definition 1, its first term counted as the index checks."""
        work = self.workload
        return float(
            work.check_s * work.checks[self.words].sum() * self._clauses_held
            + work.object_s * self.objects.size
            + work.change_s * self.subscriptions.size
        )

    @property
    def _clauses_held(self) -> float:
        """Clauses in its index for each that is filed here: a subscription is held with all of them."""
        if self.terms is None or not self.clauses.size:
            return 1.0
        counts = np.diff(self.workload.sample.table.clauses)
        return float(counts[self.subscriptions].sum()) / self.clauses.size

    @cached_property
    def similarity(self) -> float:
        """The cosine of the angle between the term counts of its objects and of its subscriptions."""
        work = self.workload
        table = work.sample.table
        of_objects = np.bincount(work.term[self.words], minlength=work.terms_known).astype(np.float64)
        members = _members(table.clause_terms, table.members, self.clauses)
        of_subscriptions = np.bincount(members, minlength=work.terms_known).astype(np.float64)
        length = np.linalg.norm(of_objects) * np.linalg.norm(of_subscriptions)
        return float(of_objects @ of_subscriptions / length) if length > 0 else 0.0

    def cut(self, upright: bool, share: float) -> tuple[Node, Node] | None:
        """Both sides of the column (or row) before which about this share of the load is; None if there is no such."""
        work = self.workload
        left, right, bottom, top = self.cells
        low, high = (left, right) if upright else (bottom, top)
        if high - low < 2 or self.terms is not None:
            return None
        place = (work.column if upright else work.row)[self.words]
        weights = work.check_s * work.checks[self.words] + work.object_s / 8  # a text has some eight terms
        spans = work.span[self.clauses]
        lows, highs = (spans[:, 0], spans[:, 1]) if upright else (spans[:, 2], spans[:, 3])
        middles = np.clip((lows + highs) // 2, low, high - 1)
        per_clause = work.change_s * self.subscriptions.size / max(self.clauses.size, 1)
        loads = np.cumsum(
            np.bincount(place - low, weights=weights, minlength=high - low)
            + per_clause * np.bincount(middles - low, minlength=high - low)
        )
        at = low + 1 + int(np.argmin(np.abs(loads[:-1] - share * loads[-1])))
        cells = (
            ((left, at, bottom, top), (at, right, bottom, top))
            if upright
            else ((left, right, bottom, at), (left, right, at, top))
        )
        return (
            Node(work, cells[0], None, self.words[place < at], self.clauses[lows < at]),
            Node(work, cells[1], None, self.words[place >= at], self.clauses[highs >= at]),
        )

    def parted_by_space(self, parts: int) -> list[Node] | None:
        """So many nodes of about the same load, cut as a kd-tree is; None if there are not enough cells."""
        if parts == 1:
            return [self]
        near = parts // 2
        best: list[Node] | None = None
        for upright in (True, False):
            sides = self.cut(upright, near / parts)
            if sides is None:
                continue
            if best is None or sum(side.load for side in sides) < sum(side.load for side in best):
                best = list(sides)
        if best is None:
            return None
        first, second = best[0].parted_by_space(near), best[1].parted_by_space(parts - near)
        return None if first is None or second is None else first + second

    def parted_by_text(self, parts: int) -> list[Node] | None:
        """So many nodes with terms of about the same load each, the heaviest terms first; None if there are too few.

        Together they have every term of the vocabulary.
        """
        work = self.workload
        known = np.arange(work.terms_known) if self.terms is None else self.terms
        if known.size < parts:
            return None
        if parts == 1:
            return [self if self.terms is not None else self._with(known, self.words, self.clauses)]
        weights: NDArray[Any] = np.bincount(
            work.term[self.words],
            weights=work.check_s * work.checks[self.words] + work.object_s * (work.checks[self.words] > 0),
            minlength=work.terms_known,
        )
        weights = weights + work.change_s * np.bincount(work.filed[self.clauses], minlength=work.terms_known)
        part_of_term = np.full(work.terms_known, -1, dtype=np.int32)
        part_of_term[known] = lightest_first(weights[known], parts)
        of_words, of_clauses = part_of_term[work.term[self.words]], part_of_term[work.filed[self.clauses]]
        return [
            self._with(
                known[part_of_term[known] == part],
                self.words[of_words == part],
                self.clauses[of_clauses == part],
            )
            for part in range(parts)
        ]

    def _with(self, terms: Rows, words: Rows, clauses: Rows) -> Node:
        return Node(self.workload, self.cells, terms, words, clauses)


def _distinct(ascending: Rows) -> Rows:
    """Each number once."""
    first = np.ones(ascending.size, dtype=np.bool_)
    first[1:] = np.diff(ascending) != 0
    return ascending[first]


@compiled
def postings_met(
    x: Array,
    y: Array,
    offsets: Array,
    terms: Array,
    levels: Array,
    cell_keys: Array,
    cell_numbers: Array,
    cell_slots: Array,
    slot_terms: Array,
    slot_postings: Array,
) -> Array:
    """How many postings the matching loop reads for every term of every object; see `kernel.match_segment`."""
    counts = np.zeros(offsets[offsets.size - 1], np.int64)
    for i in range(x.size):
        if x[i] < 0:
            continue
        for level in levels:
            cell = cell_numbers[find_cell(cell_keys, cell_key(level, x[i], y[i]))]
            if cell < 0:
                continue
            base, size = cell_slots[cell], cell_slots[cell + 1] - cell_slots[cell]
            for k in range(offsets[i], offsets[i + 1]):
                slot = base + ((((terms[k] * MIX) & 0xFFFFFFFF) * size) >> 32)
                while slot_terms[slot] != terms[k] and slot_terms[slot] >= 0:
                    slot += 1
                    if slot == base + size:
                        slot = base
                if slot_terms[slot] >= 0:
                    counts[k] += slot_postings[slot + 1] - slot_postings[slot]
    return counts


@compiled
def _members(clause_terms: Array, members: Array, clauses: Array) -> Array:
    """The terms of some clauses."""
    total = 0
    for clause in clauses:
        total += clause_terms[clause + 1] - clause_terms[clause]
    found = np.empty(total, np.int64)
    at = 0
    for clause in clauses:
        for k in range(clause_terms[clause], clause_terms[clause + 1]):
            found[at] = members[k]
            at += 1
    return found
