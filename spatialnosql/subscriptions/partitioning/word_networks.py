"""Word networks cut by a graph partitioner: S3-TM's gC, gFC, gFCL and gNFCL (section 3.2), and a hypergraph of words.

Vertices are the subscribed words, edges join words that objects have together, and Metis, as in the paper, finds parts
with a small cut. They differ in what weighs:

| | edges | vertices |
|---|---|---|
| gC | alike | alike |
| gFC | co-occurrence f(v, w) | alike |
| gFCL | f(v, w) | frequency f(w) |
| gNFCL | f(v, w) | f(w) / (1 + sum of f(v, w) over v / f(w)) |
| hypergraph | each object a net | f(w) |

The hypergraph is PS2Stream's baseline (section VI.B): the nets are objects, and a net of n words becomes the edges of
all its pairs, of weight 1 / (n - 1) each, since Metis cuts graphs; only words under which clauses are filed are in it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.partitioning.hash_text import hashed_homes
from spatialnosql.subscriptions.partitioning.plan import Plan, text_plan
from spatialnosql.subscriptions.partitioning.sample import Sample

Network = Literal["gc", "gfc", "gfcl", "gnfcl", "hypergraph"]
MOST_WORDS = 64
"""An object with more words lends only its first ones to the network: their pairs grow with the square."""
_SCALE = 60.0  # Metis takes whole numbers; 1 / (n - 1) is one for most n


def plan_gc(sample: Sample, partitions: int) -> Plan:
    """Cut minimising."""
    return _plan(sample, partitions, "gc")


def plan_gfc(sample: Sample, partitions: int) -> Plan:
    """Co-frequency cut minimising."""
    return _plan(sample, partitions, "gfc")


def plan_gfcl(sample: Sample, partitions: int) -> Plan:
    """Co-frequency cut minimising, frequency load balancing."""
    return _plan(sample, partitions, "gfcl")


def plan_gnfcl(sample: Sample, partitions: int) -> Plan:
    """Co-frequency cut minimising, normalised frequency load balancing."""
    return _plan(sample, partitions, "gnfcl")


def plan_hypergraph(sample: Sample, partitions: int) -> Plan:
    """Few partitions for each object's words."""
    return _plan(sample, partitions, "hypergraph")


def _plan(sample: Sample, partitions: int, network: Network) -> Plan:
    known = len(sample.table.vocabulary)
    chosen = sample.filed if network == "hypergraph" else sample.table.members
    words = np.flatnonzero((np.bincount(chosen, minlength=known) > 0) & (sample.frequencies > 0))
    homes = hashed_homes(known, partitions)
    if partitions > 1 and words.size:
        vertices = np.full(known, -1, dtype=np.int64)
        vertices[words] = np.arange(words.size)
        ends, weights = _edges(sample, vertices, network == "hypergraph")
        homes[words] = _cut(ends, weights, sample.frequencies[words], network, partitions)
    return text_plan(network, homes, partitions, sample.frequencies)


def _edges(
    sample: Sample, vertices: NDArray[np.int64], nets: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pairs of words that objects have together, each once, and their weights: counts, or shares of nets."""
    objects = sample.objects
    keys, shares = _pairs(objects.offsets, objects.terms, vertices, nets)
    distinct, edge = np.unique(keys, return_inverse=True)
    ends = np.stack([distinct // vertices.size, distinct % vertices.size], axis=1)
    weights = np.bincount(edge.reshape(-1), weights=shares, minlength=distinct.size)
    return ends, weights.astype(np.float64)


def objects_with_both(
    sample: Sample, words: NDArray[np.int32], others: NDArray[np.int32]
) -> NDArray[np.float64]:
    """How many objects have a word and another, for many pairs; for a word and itself, how many have it."""
    known = len(sample.table.vocabulary)
    subscribed = np.bincount(sample.table.members, minlength=known) > 0
    ends, counts = _edges(sample, np.where(subscribed, np.arange(known), -1), nets=False)
    keys = ends[:, 0] * known + ends[:, 1]  # ascending, as the pairs are
    wanted = np.minimum(words, others).astype(np.int64) * known + np.maximum(words, others)
    at = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    found = np.where(keys[at] == wanted, counts[at], 0.0) if keys.size else np.zeros(wanted.size)
    return np.where(words == others, sample.frequencies[words], found)


@compiled
def _pairs(offsets: Array, terms: Array, vertices: Array, nets: bool) -> tuple[Array, Array]:
    own = np.empty(MOST_WORDS, np.int64)
    total = 0
    for turn in range(2):
        if turn:
            keys, shares = np.empty(total, np.int64), np.empty(total, np.float64)
        total = 0
        for i in range(offsets.size - 1):
            count = 0
            for k in range(offsets[i], offsets[i + 1]):
                known = 0 <= terms[k] < vertices.size and vertices[terms[k]] >= 0
                if known and count < MOST_WORDS:
                    own[count] = vertices[terms[k]]
                    count += 1
            for a in range(count):
                for b in range(a + 1, count):
                    if turn:
                        keys[total] = own[a] * vertices.size + own[b]
                        shares[total] = 1.0 / (count - 1) if nets else 1.0
                    total += 1
    return keys, shares


def _cut(
    ends: NDArray[np.int64],
    weights: NDArray[np.float64],
    frequencies: NDArray[np.int64],
    network: Network,
    partitions: int,
) -> NDArray[np.int32]:
    """The part of every vertex."""
    loads = np.ones(frequencies.size)
    if network in ("gfcl", "hypergraph"):
        loads = frequencies.astype(np.float64)
    if network == "gnfcl":
        together = np.bincount(ends.reshape(-1), weights=np.repeat(weights, 2), minlength=frequencies.size)
        loads = frequencies / (1.0 + together / frequencies)
    parts = np.full(frequencies.size, -1, dtype=np.int32)
    # Metis cannot balance what one vertex outweighs: such a word has a part of its own.
    left = partitions
    for word in np.argsort(-loads, kind="stable").tolist():
        if left == 1 or loads[word] < loads[parts < 0].sum() / left:
            break
        left -= 1
        parts[word] = left
    others = np.flatnonzero(parts < 0)
    if others.size <= left:
        parts[others] = np.arange(others.size)
    elif left == 1:
        parts[others] = 0
    else:
        numbers = np.full(frequencies.size, -1, dtype=np.int64)
        numbers[others] = np.arange(others.size)
        kept = (numbers[ends] >= 0).all(axis=1)
        edge_weights = np.ones(int(kept.sum())) if network == "gc" else weights[kept]
        parts[others] = _metis_parts(numbers[ends[kept]], edge_weights, loads[others], left)
    return parts


def _metis_parts(
    ends: NDArray[np.int64], weights: NDArray[np.float64], loads: NDArray[np.float64], partitions: int
) -> NDArray[np.int32]:
    metis = _metis()
    both = np.concatenate([ends, ends[:, ::-1]])
    order = np.lexsort([both[:, 1], both[:, 0]])
    starts = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=loads.size))])
    _, parts = metis.part_graph(
        partitions,
        metis.CSRAdjacency(starts, both[order, 1]),
        vweights=_whole(loads * _SCALE),
        eweights=_whole(np.concatenate([weights, weights])[order] * _SCALE),
        options=metis.Options(seed=1),
    )
    return np.asarray(parts, dtype=np.int32)


def _whole(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Weights as Metis takes them: whole, at least 1, their sum within 31 bits."""
    shrink = min(1.0, 1e9 / max(float(weights.sum()), 1.0))
    return np.maximum(np.rint(weights * shrink), 1).astype(np.int64)


def _metis() -> Any:
    try:
        import pymetis
    except ImportError as error:  # pragma: no cover - the tests' environment has it
        raise UsageError("word networks need pymetis: pip install 'spatialnosql[partitioning]'") from error
    return pymetis
