"""LASP, load-aware subscription placement (S3-TM, algorithm 2), with hot words as in section 5.1.

A clause may go to the partition of any of its words. LASP takes the one of greatest utility ``-l * b``: l is how many
of its words are new to the partition, b the coefficient of variation of the numbers of distinct words of partitions,
counted as if it were there. f, the cost of matching by distinct words, is linear in the paper; its slope and constant
do not change which is best, so it is the number itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.partitioning.homes import mixed
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.table import Table


class Lasp:
    """The subscription word map H: which partitions have which words of the clauses placed so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._has = np.zeros((plan.partitions, max(plan.frequencies.size, 1)), dtype=np.bool_)
        self._words = np.zeros(plan.partitions, dtype=np.int64)

    def file(self, table: Table) -> NDArray[np.int32]:
        """The term under which each clause is filed, in the order of the table; H is updated."""
        plan = self._plan
        known = len(table.vocabulary)
        if known > self._has.shape[1]:
            wider = np.zeros((plan.partitions, max(known, 2 * self._has.shape[1])), dtype=np.bool_)
            wider[:, : self._has.shape[1]] = self._has
            self._has = wider
        homes = np.full(known, -1, dtype=np.int64)
        size = min(known, plan.homes.shape[1])
        homes[:size] = plan.homes[0, :size]
        new = np.arange(size, known)
        if new.size:
            homes[size:] = plan.new_homes[[int(mixed(term)) % plan.new_homes.size for term in new.tolist()]]
        filed = np.empty(table.clause_terms.size - 1, dtype=np.int32)
        _file(
            table.clause_terms,
            table.members,
            plan.frequencies,
            homes,
            plan.version_offsets,
            plan.versions,
            self._has,
            self._words,
            filed,
        )
        return filed


@compiled
def _file(
    clause_terms: Array,
    members: Array,
    frequencies: Array,
    homes: Array,
    version_offsets: Array,
    versions: Array,
    has: Array,
    words: Array,
    filed: Array,
) -> None:
    partitions = words.size
    total = squares = 0.0
    for i in range(partitions):
        total += words[i]
        squares += float(words[i]) * float(words[i])
    for clause in range(clause_terms.size - 1):
        first, end = clause_terms[clause], clause_terms[clause + 1]
        best, best_utility, best_lot = -1, -np.inf, 0
        hot, hot_often = -1, np.int64(0)
        for k in range(first, end):
            term = members[k]
            often = np.int64(frequencies[term]) if term < frequencies.size else np.int64(0)
            home = homes[term]
            if home < 0:  # a hot word: only if there is no other, and then the rarest of them
                if hot < 0 or often < hot_often:
                    hot, hot_often = term, often
                continue
            new = 0
            for other in range(first, end):
                new += not has[home, members[other]]
            grown = total + new
            grown_squares = squares - float(words[home]) ** 2 + float(words[home] + new) ** 2
            mean = grown / partitions
            spread = np.sqrt(max(grown_squares / partitions - mean * mean, 0.0))
            utility = -new * (spread / mean if mean > 0 else 0.0)
            # Of equally useful ones any: all to one would be a load that nothing counts.
            lot = int(mixed(clause * 31 + k))
            if utility > best_utility or (utility == best_utility and lot < best_lot):
                best, best_utility, best_lot = term, utility, lot
        filed[clause] = best if best >= 0 else hot
        begin, stop = 0, 1
        if best < 0:
            begin, stop = version_offsets[~homes[hot]], version_offsets[~homes[hot] + 1]
        for version in range(begin, stop):
            home = homes[best] if best >= 0 else np.int64(versions[version])
            for k in range(first, end):
                if not has[home, members[k]]:
                    has[home, members[k]] = True
                    squares += 2.0 * words[home] + 1.0
                    total += 1.0
                    words[home] += 1
