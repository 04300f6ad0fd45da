"""By space and by text: PS2Stream's hybrid partitioning (section IV.B, algorithm 1).

1. The space is cut in two, and so on, where objects and subscriptions speak of different things and a part differs more
   than the whole (lines 3 to 12). What is left are nodes to be parted by text, N_t, and nodes for either way, N_s.
2. With fewer nodes than partitions, a dynamic programme says into how many parts each is best parted (lines 13 to 16).
3. Nodes are merged into partitions, and the heaviest node is parted in two until the loads differ by no more than
   sigma, or there are theta nodes (lines 17 to 27).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.partitioning.hash_text import hashed_homes
from spatialnosql.subscriptions.partitioning.nodes import Node, Workload
from spatialnosql.subscriptions.partitioning.plan import Plan
from spatialnosql.subscriptions.partitioning.sample import Sample

SIGMA = 1.05
"""The greatest load may be so many times the least."""
DELTA = 0.3
"""Objects and subscriptions less similar than this are parted by text only."""
ALIKE = 0.02
"""A part whose similarity differs less from the whole's is no better (line 9's "about 0")."""
THETA = 16
"""So many nodes for each partition at most."""
FEWEST = 500
"""Of fewer objects or clauses the similarity says nothing: such a node is not cut for it."""


def plan_hybrid(
    sample: Sample, partitions: int, sigma: float = SIGMA, delta: float = DELTA, theta: int | None = None
) -> Plan:
    """Algorithm 1 on the sample."""
    most = theta if theta is not None else THETA * partitions
    nodes, by_text = _phase_one(Workload(sample).root(), delta, most)
    if len(nodes) < partitions:
        numbers = _numbers_of_parts(nodes, by_text, partitions)
        nodes, by_text = _part_all(nodes, by_text, numbers)
    whole: set[int] = set()  # nodes that cannot be parted further, by id
    best = (np.inf, nodes, np.zeros(0, dtype=np.int32))
    while True:
        homes, loads = merge_nodes(nodes, partitions)
        if loads.max() < best[0]:
            best = (float(loads.max()), nodes, homes)
        if loads.max() <= sigma * loads.min() or len(nodes) >= most:
            break
        heavy = [i for i in np.argsort([-node.load for node in nodes]) if id(nodes[i]) not in whole]
        # One at a time, as the algorithm says; with many partitions several, or merging takes long.
        chosen = heavy[: max(1, partitions // 8)]
        if not chosen:
            break
        numbers = [1] * len(nodes)
        for i in chosen:
            if best_parts(nodes[i], by_text[i], 2) is None:
                whole.add(id(nodes[i]))
            else:
                numbers[i] = 2
        nodes, by_text = _part_all(nodes, by_text, numbers)
    return _flattened(sample, best[1], best[2], partitions)


def _phase_one(root: Node, delta: float, most: int) -> tuple[list[Node], list[bool]]:
    """Lines 1 to 12: the nodes, and whether each is to be parted by text only (N_t) or by either (N_s)."""
    open_nodes, nodes, by_text = [root], [], []
    while open_nodes:
        node = open_nodes.pop()
        if node.similarity >= delta:
            nodes.append(node)
            by_text.append(False)
            continue
        best: tuple[Node, Node] | None = None
        small = min(node.words.size, node.clauses.size) < FEWEST
        if not small and len(open_nodes) + len(nodes) + 2 <= most:
            cuts = [cut for cut in (node.cut(upright, 0.5) for upright in (True, False)) if cut is not None]
            best = min(cuts, key=lambda cut: min(cut[0].similarity, cut[1].similarity), default=None)
        alpha = node.similarity if best is None else min(best[0].similarity, best[1].similarity)
        if best is None or abs(alpha - node.similarity) < ALIKE:
            nodes.append(node)
            by_text.append(True)
        else:
            open_nodes += best
    return nodes, by_text


def best_parts(node: Node, by_text: bool, parts: int) -> list[Node] | None:
    """PartitionNode: by text if the node is of N_t or parted by text already, else the way with the smaller load."""
    text = node.parted_by_text(parts)
    if by_text or node.terms is not None:
        return text
    space = node.parted_by_space(parts)
    if space is None or text is None:
        return space or text
    return min(space, text, key=lambda nodes: sum(part.load for part in nodes))


def _numbers_of_parts(nodes: list[Node], by_text: list[bool], partitions: int) -> list[int]:
    """ComputeNumberPartitions: L[i, j] = min over k of L[i - 1, j - k] + C[i, k], and the k that led there."""
    most = partitions - len(nodes) + 1
    if len(nodes) == 1:  # nothing to choose: as many parts as there can be
        possible = (k for k in range(most, 1, -1) if best_parts(nodes[0], by_text[0], k) is not None)
        return [next(possible, 1)]
    costs = np.full((len(nodes), most + 1), np.inf)
    for i, node in enumerate(nodes):
        costs[i, 1] = node.load
        for k in range(2, most + 1):
            parts = best_parts(node, by_text[i], k)
            if parts is not None:
                costs[i, k] = sum(part.load for part in parts)
    least = np.full((len(nodes) + 1, partitions + 1), np.inf)
    chosen = np.zeros((len(nodes) + 1, partitions + 1), dtype=np.int64)
    least[0, 0] = 0.0
    for i in range(1, len(nodes) + 1):
        for j in range(i, partitions + 1):
            for k in range(1, min(j - i + 1, most) + 1):
                value = least[i - 1, j - k] + costs[i - 1, k]
                if value < least[i, j]:
                    least[i, j], chosen[i, j] = value, k
    # With too few cells and terms for so many parts: as many as there can be.
    j = max(j for j in range(len(nodes), partitions + 1) if np.isfinite(least[-1, j]))
    numbers = []
    for i in range(len(nodes), 0, -1):
        numbers.append(int(chosen[i, j]))
        j -= numbers[-1]
    return numbers[::-1]


def _part_all(nodes: list[Node], by_text: list[bool], numbers: list[int]) -> tuple[list[Node], list[bool]]:
    """Every node in its number of parts."""
    parted: list[Node] = []
    kinds: list[bool] = []
    for node, kind, number in zip(nodes, by_text, numbers, strict=True):
        parts = [node] if number == 1 else best_parts(node, kind, number)
        assert parts is not None
        parted += parts
        kinds += [kind or part.terms is not None for part in parts]
    return parted, kinds


def merge_nodes(nodes: list[Node], partitions: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """MergeNodesIntoPartitions: the partition of each node, and the loads of the partitions.

    The heaviest first. Each goes where it adds least, which is less than its load where its objects or subscriptions
    are already; unless that makes the loads more uneven (as it does while a partition has nothing): then to the least
    loaded.
    """
    work = nodes[0].workload
    held = np.zeros((partitions, len(work.sample.table)), dtype=np.bool_)
    sent = np.zeros((partitions, len(work.sample.objects)), dtype=np.bool_)
    loads = np.zeros(partitions)
    homes = np.zeros(len(nodes), dtype=np.int32)
    for i in np.argsort([-node.load for node in nodes], kind="stable").tolist():
        node = nodes[i]
        added = (
            node.load
            - work.change_s * held[:, node.subscriptions].sum(axis=1)
            - (work.object_s * sent[:, node.objects].sum(axis=1) if node.terms is not None else 0.0)
        )
        best = int(np.argmin(added))
        after = loads.copy()
        after[best] += added[best]
        if not (loads.min() > 0 and after.max() / after.min() <= loads.max() / loads.min()):
            best = int(np.argmin(loads + added))
        loads[best] += added[best]
        homes[i] = best
        held[best, node.subscriptions] = True
        sent[best, node.objects] = True
    return homes, loads


def _flattened(sample: Sample, nodes: list[Node], homes: NDArray[np.int32], partitions: int) -> Plan:
    """The kd-t-tree as leaves and maps; words that no node has seen are hashed among the node's partitions."""
    grid = sample.grid
    leaf_of_cell = np.full((grid.rows, grid.columns), -1, dtype=np.int32)
    regions: dict[tuple[int, int, int, int], list[int]] = {}
    for i, node in enumerate(nodes):
        regions.setdefault(node.cells, []).append(i)
    leaf_home: list[int] = []
    leaf_map: list[int] = []
    maps: list[NDArray[np.int32]] = []
    news: list[NDArray[np.int32]] = []
    for leaf, ((left, right, bottom, top), members) in enumerate(regions.items()):
        leaf_of_cell[bottom:top, left:right] = leaf
        own = np.unique(homes[members])
        if own.size == 1:
            leaf_home.append(int(own[0]))
            leaf_map.append(-1)
            continue
        known = own[hashed_homes(sample.frequencies.size, own.size)]
        for i in members:
            terms = nodes[i].terms
            assert terms is not None
            known[terms] = homes[i]
        leaf_home.append(-1)
        leaf_map.append(len(maps))
        maps.append(known)
        news.append(own)
    return Plan(
        "hybrid",
        partitions,
        grid,
        leaf_of_cell.reshape(-1),
        np.array(leaf_home, dtype=np.int32),
        np.array(leaf_map, dtype=np.int32),
        np.array(maps, dtype=np.int32).reshape(len(maps), sample.frequencies.size),
        np.cumsum([0] + [new.size for new in news], dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=np.int32), *news]).astype(np.int32),
        np.zeros(1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        sample.frequencies,
    )
