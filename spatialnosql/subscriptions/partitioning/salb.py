"""SALB, spread-aware load balancing (S3-TM, algorithm 1), with the splitting of hot words (section 5.1).

Words in descending order of frequency; each goes to the partition of greatest utility ``-r * b``, where r is the spread
and b the coefficient of variation of the loads as they would be then. The load that a word brings to a partition is the
number of objects that have it and none of the words already there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.partitioning.hash_text import hashed_homes
from spatialnosql.subscriptions.partitioning.homes import mixed
from spatialnosql.subscriptions.partitioning.plan import Plan, text_plan
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.partitioning.word_networks import objects_with_both

HOT_SHARE = 0.2
"""A word may make up so much of a partition's even share of the load; one that is more frequent is split."""


def plan_salb(sample: Sample, partitions: int) -> Plan:
    """SALB over all subscribed words, hot words in versions, subscriptions placed by LASP.

    The paper's load of an object is 1 (equation 3), whatever is filed under its word; here the checks that it is
    expected to cost count too.
    """
    known = len(sample.table.vocabulary)
    subscribed = np.bincount(sample.table.members, minlength=known) > 0
    limit = HOT_SHARE * sample.frequencies[subscribed].sum() / partitions
    split = np.ones(known, dtype=np.int64)
    if limit > 0 and partitions > 1:
        split = np.where(subscribed, np.ceil(sample.frequencies / limit), 1).astype(np.int64)
    split = np.clip(split, 1, partitions)
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(split)])
    checks = expected_checks(sample, split > 1)
    homes_of_versions = balanced_homes(sample, subscribed, partitions, split, firsts, checks)
    # A version that no object of the sample happened to have goes where its hash says.
    homes_of_versions = np.where(
        homes_of_versions >= 0, homes_of_versions, hashed_homes(homes_of_versions.size, partitions)
    )
    homes = hashed_homes(known, partitions)
    seen = subscribed & (sample.frequencies > 0)
    homes[seen] = homes_of_versions[firsts[:-1][seen]]
    hot = np.flatnonzero(split > 1)
    homes[hot] = ~np.arange(hot.size)
    versions = [homes_of_versions[firsts[word] : firsts[word + 1]] for word in hot.tolist()]
    return text_plan("salb", homes, partitions, sample.frequencies, versions, "lasp")


def expected_checks(sample: Sample, hot: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What an object that has a word costs in checks, in objects: definition 1's c1 / c2 for each.

    LASP may file a clause under any of its words, of those that are not hot if there are such; each is taken to be as
    likely. A worker's index has the clause under its rarest word, so that it is checked for the objects that have both.
    """
    table, frequencies = sample.table, sample.frequencies
    lengths = np.diff(table.clause_terms)
    clause = np.repeat(np.arange(lengths.size), lengths)
    regular = np.bincount(clause, weights=~hot[table.members], minlength=lengths.size)
    likely = ~hot[table.members] | (regular[clause] == 0)
    candidates = np.where(regular == 0, lengths, regular)[clause]
    rarest = sample.filed[clause]
    both = objects_with_both(sample, table.members, rarest)
    brought = np.bincount(
        table.members[likely], weights=(both / candidates)[likely], minlength=frequencies.size
    )
    per_check = sample.costs.check_s / sample.costs.object_s * sample.scale
    return np.asarray(per_check * brought / np.maximum(frequencies, 1), dtype=np.float64)


def balanced_homes(
    sample: Sample,
    words: NDArray[np.bool_],
    partitions: int,
    split: NDArray[np.int64],
    firsts: NDArray[np.int64],
    checks: NDArray[np.float64],
) -> NDArray[np.int32]:
    """SALB's mapping of the versions of the given words; -1 for words that no object of the sample has.

    Word w has the versions ``[firsts[w], firsts[w + 1])``, ``split[w]`` of them, and every object has one. `checks` is
    what an object that has the word costs besides being sent, in objects.
    """
    objects, terms = sample.object_of_term, sample.objects.terms[: sample.objects.offsets[-1]]
    there = np.flatnonzero((terms >= 0) & (terms < words.size))
    there = there[words[terms[there]]]
    objects, versions = objects[there], terms[there].astype(np.int64)
    versions = _any_version(versions, split, firsts)
    order = np.argsort(versions, kind="stable")
    counts = np.bincount(versions, minlength=int(firsts[-1]))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    turn = np.argsort(-counts, kind="stable")
    return _balance(
        turn[counts[turn] > 0],
        starts,
        objects[order],
        np.repeat(checks, split),
        len(sample.objects),
        partitions,
    )


@compiled
def _any_version(words: Array, split: Array, firsts: Array) -> Array:
    """Each occurrence of a word as one of its versions, by hash of the occurrence."""
    versions = np.empty(words.size, np.int64)
    for k in range(words.size):
        versions[k] = firsts[words[k]] + mixed(k) % split[words[k]]
    return versions


@compiled
def _balance(turn: Array, starts: Array, objects: Array, checks: Array, count: int, partitions: int) -> Array:
    homes = np.full(checks.size, -1, np.int32)
    loads = np.zeros(partitions, np.float64)
    sent = np.zeros((count, partitions), np.bool_)  # whether an object goes to a partition already
    extra = np.empty(partitions, np.int64)
    spread = total = squares = 0.0
    for word in turn:
        first, end = starts[word], starts[word + 1]
        extra[:] = end - first
        for k in range(first, end):
            row = sent[objects[k]]
            for i in range(partitions):
                extra[i] -= row[i]
        own = checks[word] * (end - first)
        best, best_utility = 0, -np.inf
        for i in range(partitions):
            load = extra[i] + own
            mean = (total + load) / partitions
            variance = (squares + load * (2.0 * loads[i] + load)) / partitions - mean * mean
            b = np.sqrt(max(variance, 0.0)) / mean if mean > 0 else 0.0
            utility = -(spread + extra[i] / count) * b
            if utility > best_utility:
                best, best_utility = i, utility
        load = extra[best] + own
        squares += load * (2.0 * loads[best] + load)
        total += load
        loads[best] += load
        spread += extra[best] / count
        homes[word] = best
        for k in range(first, end):
            sent[objects[k], best] = True
    return homes
