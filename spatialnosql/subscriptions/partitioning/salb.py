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

HOT_SHARE = 0.5
"""A word may make up so much of a partition's even share of the load; one that is more frequent is split."""


def plan_salb(sample: Sample, partitions: int) -> Plan:
    """SALB over all subscribed words, hot words in versions, subscriptions placed by LASP."""
    known = len(sample.table.vocabulary)
    subscribed = np.bincount(sample.table.members, minlength=known) > 0
    limit = HOT_SHARE * sample.frequencies[subscribed].sum() / partitions
    split = np.ones(known, dtype=np.int64)
    if limit > 0 and partitions > 1:
        split = np.where(subscribed, np.ceil(sample.frequencies / limit), 1).astype(np.int64)
    split = np.clip(split, 1, partitions)
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(split)])
    homes_of_versions = balanced_homes(sample, subscribed, partitions, split, firsts)
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


def balanced_homes(
    sample: Sample,
    words: NDArray[np.bool_],
    partitions: int,
    split: NDArray[np.int64],
    firsts: NDArray[np.int64],
) -> NDArray[np.int32]:
    """SALB's mapping of the versions of the given words; -1 for words that no object of the sample has.

    Word w has the versions ``[firsts[w], firsts[w + 1])``, ``split[w]`` of them, and every object has one.
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
        turn[counts[turn] > 0], starts, objects[order], len(sample.objects), partitions, int(firsts[-1])
    )


@compiled
def _any_version(words: Array, split: Array, firsts: Array) -> Array:
    """Each occurrence of a word as one of its versions, by hash of the occurrence."""
    versions = np.empty(words.size, np.int64)
    for k in range(words.size):
        versions[k] = firsts[words[k]] + mixed(k) % split[words[k]]
    return versions


@compiled
def _balance(turn: Array, starts: Array, objects: Array, count: int, partitions: int, known: int) -> Array:
    homes = np.full(known, -1, np.int32)
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
        best, best_utility = 0, -np.inf
        for i in range(partitions):
            mean = (total + extra[i]) / partitions
            variance = (squares + extra[i] * (2.0 * loads[i] + extra[i])) / partitions - mean * mean
            b = np.sqrt(max(variance, 0.0)) / mean if mean > 0 else 0.0
            utility = -(spread + extra[i] / count) * b
            if utility > best_utility:
                best, best_utility = i, utility
        squares += extra[best] * (2.0 * loads[best] + extra[best])
        total += extra[best]
        loads[best] += extra[best]
        spread += extra[best] / count
        homes[word] = best
        for k in range(first, end):
            sent[objects[k], best] = True
    return homes
