"""Which partitions hold a subscription: PS2Stream's dispatching of updating requests (section IV.C)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions import building
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array, longer
from spatialnosql.subscriptions.partitioning.homes import home_of, mixed
from spatialnosql.subscriptions.partitioning.lasp import Lasp
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.table import Table


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the rows of a table are held."""

    filed: NDArray[np.int32]
    """The term under which each clause is filed."""
    offsets: NDArray[np.int64]
    partitions: NDArray[np.int32]
    """Row i is held by ``partitions[offsets[i]:offsets[i + 1]]``, each once."""

    def rows_of(self, partition: int) -> NDArray[np.int64]:
        """The rows that a partition holds, ascending."""
        return np.asarray(
            np.searchsorted(self.offsets, np.flatnonzero(self.partitions == partition), side="right") - 1,
            dtype=np.int64,
        )

    @property
    def held(self) -> int:
        """How many subscriptions the partitions hold together, copies counted."""
        return int(self.partitions.size)


class Placer:
    """Places subscriptions by a plan, one table after the other.

    With LASP, where one goes depends on those placed before; otherwise on the plan alone.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._lasp = Lasp(plan) if plan.filing == "lasp" else None

    def place(self, table: Table) -> Placement:
        """The partitions of every row."""
        plan = self.plan
        if self._lasp is not None:
            filed = self._lasp.file(table)
        elif plan.filing == "any":
            filed = _any_terms(table.clause_terms, table.members)
        else:
            filed = filing_terms(table, plan.frequencies)
        offsets = np.zeros(len(table) + 1, dtype=np.int64)
        partitions = _place(
            plan.grid.spans_of(table.bounds), plan.grid.columns, plan.leaf_of_cell, table.clauses, filed,
            plan.leaf_home, plan.leaf_map, plan.homes, plan.new_offsets, plan.new_homes,
            plan.version_offsets, plan.versions, plan.partitions, offsets,
        )  # fmt: skip
        return Placement(filed, offsets, partitions)


def filing_terms(table: Table, frequencies: NDArray[np.int64]) -> NDArray[np.int32]:
    """The rarest term of every clause; a term of unknown frequency is rarest."""
    firsts, seconds = np.empty((2, table.clause_terms.size - 1), dtype=np.int64)
    building.rarest(table.clause_terms, table.members, frequencies, firsts, seconds)
    return firsts.astype(np.int32)


@compiled
def _any_terms(clause_terms: Array, members: Array) -> Array:
    """One term of every clause, by hash of the clause's number: S3-TM's anycast (section 2)."""
    filed = np.empty(clause_terms.size - 1, np.int32)
    for clause in range(filed.size):
        first = clause_terms[clause]
        filed[clause] = members[first + mixed(clause) % (clause_terms[clause + 1] - first)]
    return filed


@compiled
def _place(
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
    version_offsets: Array,
    versions: Array,
    partitions: int,
    offsets: Array,
) -> Array:
    """The partitions of all rows, one row after the other; fills in where each begins."""
    found = np.empty(max(1024, 2 * spans.shape[0]), np.int32)
    used = 0
    met_leaf, met = np.full(leaf_home.size, -1, np.int64), np.full(partitions, -1, np.int64)
    for i in range(spans.shape[0]):
        if used + partitions > found.size:
            found = longer(found, used + partitions)
        for part in range(2):
            for row in range(spans[i, 2], spans[i, 3] + 1):
                for column in range(spans[i, 4 * part], spans[i, 4 * part + 1] + 1):
                    leaf = leaf_of_cell[row * columns + column]
                    if met_leaf[leaf] == i:
                        continue
                    met_leaf[leaf] = i
                    for clause in range(clauses[i], clauses[i + 1]):
                        home = home_of(
                            leaf, filed[clause], leaf_home, leaf_map, homes, new_offsets, new_homes
                        )
                        first, end = 0, 1
                        if home < 0:
                            first, end = version_offsets[~home], version_offsets[~home + 1]
                        for k in range(first, end):
                            partition = home if home >= 0 else versions[k]
                            if met[partition] != i:
                                met[partition] = i
                                found[used] = partition
                                used += 1
        offsets[i + 1] = used
    return found[:used].copy()
