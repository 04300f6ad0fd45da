"""What the planners promise, each against a slow and plain reading of its paper."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from partition_samples import sample_of

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning import hybrid
from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.lasp import Lasp
from spatialnosql.subscriptions.partitioning.load import Costs, report
from spatialnosql.subscriptions.partitioning.metric import plan_metric
from spatialnosql.subscriptions.partitioning.nodes import Workload
from spatialnosql.subscriptions.partitioning.placing import Placer, filing_terms
from spatialnosql.subscriptions.partitioning.plan import space_plan
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.salb import HOT_SHARE, plan_salb
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.vocabulary import Vocabulary


def texts_of(sample: Sample) -> list[set[int]]:
    offsets, terms = sample.objects.offsets, sample.objects.terms
    return [set(terms[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(sample.objects))]


def test_the_metric_is_salb_as_the_paper_writes_it() -> None:
    sample = sample_of(1)
    plan = plan_metric(sample, 5)
    texts = texts_of(sample)
    filed = set(sample.filed.tolist())
    by_word = {word: [i for i, text in enumerate(texts) if word in text] for word in filed}
    loads, spread, mapping = np.zeros(5), 0.0, {}
    for word in sorted(filed, key=lambda word: (-len(by_word[word]), word)):
        if not by_word[word]:
            continue
        best = (-np.inf, 0, 0)
        for i in range(5):
            extra = sum(not any(mapping.get(other) == i for other in texts[p]) for p in by_word[word])
            after = loads.copy()
            after[i] += extra
            utility = -(spread + extra / len(texts)) * (after.std() / after.mean())
            if utility > best[0] + 1e-12:
                best = (utility, i, extra)
        _, i, extra = best
        loads[i] += extra
        spread += extra / len(texts)
        mapping[word] = i
    assert len(mapping) > 30
    assert {word: int(plan.homes[0, word]) for word in mapping} == mapping


def test_salb_splits_only_words_that_outweigh_their_share() -> None:
    sample = sample_of(2)
    plan = plan_salb(sample, 12)
    subscribed = np.bincount(sample.table.members, minlength=60) > 0
    limit = HOT_SHARE * sample.frequencies[subscribed].sum() / 12
    hot = subscribed & (sample.frequencies > limit)
    assert hot.any()
    assert np.array_equal(plan.homes[0] < 0, hot)
    for word in np.flatnonzero(hot):
        row = ~plan.homes[0, word]
        versions = plan.versions[plan.version_offsets[row] : plan.version_offsets[row + 1]]
        assert sample.frequencies[word] / versions.size <= limit


def test_lasp_takes_a_hot_word_only_if_there_is_no_other() -> None:
    sample = sample_of(3)
    plan = plan_salb(sample, 12)
    filed = Lasp(plan).file(sample.table)
    hot = plan.homes[0] < 0
    starts = sample.table.clause_terms
    alone = 0
    for clause, term in enumerate(filed.tolist()):
        own = sample.table.members[starts[clause] : starts[clause + 1]]
        assert term in own
        if hot[own].all():
            alone += 1
            assert sample.frequencies[term] == sample.frequencies[own].min()
        else:
            assert not hot[term]
    assert 0 < alone < filed.size


def test_a_clause_of_hot_words_is_held_by_every_version() -> None:
    sample = sample_of(3)
    plan = plan_salb(sample, 12)
    placement = Placer(plan).place(sample.table)
    many = 0
    for i in range(len(sample.table)):
        home = plan.homes[0, placement.filed[i]]
        held = set(placement.partitions[placement.offsets[i] : placement.offsets[i + 1]].tolist())
        if home >= 0:
            assert held == {home}
        else:
            many += 1
            assert held == set(
                plan.versions[plan.version_offsets[~home] : plan.version_offsets[~home + 1]].tolist()
            )
    assert many


def test_lasp_keeps_words_together_better_than_any_word_does() -> None:
    sample = sample_of(4, count=2000)
    distinct = []
    for name in ("anycast", "salb"):
        placement = Placer(make_plan(name, sample, 4)).place(sample.table)
        distinct.append(
            sum(np.unique(sample.table.take(placement.rows_of(i)).members).size for i in range(4))
        )
    assert distinct[1] < distinct[0]


def test_word_networks_keep_words_together() -> None:
    """Words in ten cliques that never meet: a cut of nothing, so that every object goes to one partition."""
    draw = np.random.default_rng(5)
    cliques = np.arange(60).reshape(10, 6)
    terms = [np.sort(draw.permutation(cliques[draw.integers(10)])[:4]) for _ in range(500)]
    objects = Objects.of(np.zeros(500), np.zeros(500), 0, np.arange(501) * 4, np.concatenate(terms))
    table = Table.of_rectangles(
        np.tile([-1.0, -1.0, 1.0, 1.0], (60, 1)), np.arange(61), np.arange(61), np.arange(60),
        Vocabulary(f"w{i}" for i in range(60)),
    )  # fmt: skip
    sample = Sample.of(objects, table)
    for name in ("gfc", "gfcl", "gnfcl", "hypergraph"):
        figures = report(make_plan(name, sample, 5), objects, table)
        assert figures.spread == 1.0
        assert figures.imbalance < 1.6
    assert report(make_plan("hash", sample, 5), objects, table).spread > 2


def test_the_dynamic_programme_finds_the_least_sum() -> None:
    root = Workload(sample_of(6)).root()
    nodes = root.parted_by_space(3)
    assert nodes is not None
    numbers = hybrid._numbers_of_parts(nodes, [False, True, False], 7)
    assert sum(numbers) == 7

    def total(parts: tuple[int, ...]) -> float:
        return (
            sum(
                part.load
                for node, by_text, count in zip(nodes, [False, True, False], parts, strict=True)
                for part in hybrid.best_parts(node, by_text, count) or []
            )
            if min(parts) > 1
            else sum(
                node.load
                if count == 1
                else sum(part.load for part in hybrid.best_parts(node, by_text, count) or [])
                for node, by_text, count in zip(nodes, [False, True, False], parts, strict=True)
            )
        )

    every = [parts for parts in itertools.product(range(1, 6), repeat=3) if sum(parts) == 7]
    assert total(tuple(numbers)) == pytest.approx(min(map(total, every)))


def test_parts_of_a_node_have_all_of_it() -> None:
    root = Workload(sample_of(7)).root()
    for parts in (root.parted_by_space(5), root.parted_by_text(5)):
        assert parts is not None
        assert len(parts) == 5
        assert sorted(np.concatenate([part.words for part in parts]).tolist()) == root.words.tolist()
        assert set(np.concatenate([part.clauses for part in parts]).tolist()) == set(root.clauses.tolist())
        assert sum(part.load for part in parts) >= root.load
    assert root.parted_by_text(61) is None


def test_hybrid_keeps_the_loads_within_sigma_where_it_can() -> None:
    sample = sample_of(8, objects=3000, count=1500, words=400, side=32)
    root = Workload(sample).root()
    loads = {}
    for theta in (4, 200):
        plan = hybrid.plan_hybrid(sample, 4, sigma=1.15, theta=theta)
        nodes = root.parted_by_space(4)
        assert nodes is not None
        held = report(plan, sample.objects, sample.table)
        loads[theta] = held.loads.max() / held.loads.mean()
    assert loads[200] <= loads[4]


def test_merging_counts_what_is_shared_once() -> None:
    root = Workload(sample_of(9)).root()
    nodes = root.parted_by_text(6)
    assert nodes is not None
    _, one = hybrid.merge_nodes(nodes, 1)
    assert one[0] == pytest.approx(root.load)
    homes, loads = hybrid.merge_nodes(nodes, 3)
    assert set(homes.tolist()) == {0, 1, 2}
    assert loads.sum() <= sum(node.load for node in nodes) + 1e-12


def test_definition_one() -> None:
    costs = Costs(check_s=2.0, object_s=3.0, insert_s=5.0, delete_s=7.0)
    loads = costs.load(np.array([10, 0]), np.array([4, 4]), np.array([1, 0]))
    assert loads.tolist() == [2 * 40 + 3 * 10 + 12, 0]


def test_a_report_counts_copies_and_routes() -> None:
    objects = Objects.of([0.5, 1.5, 1.5, 1.5], np.full(4, 0.5), 0, [0, 1, 2, 3, 3], [0, 0, 1])
    table = Table.of_rectangles(
        [[0, 0, 2, 1], [1.2, 0, 2, 1]], [0, 1, 2], [0, 1, 2], [0, 1], Vocabulary(["a", "b"])
    )
    halves = space_plan(
        "halves", Grid(0, 0, 2, 1, 2, 1), np.array([0, 1], dtype=np.int32), 2, np.zeros(2, dtype=np.int64)
    )
    figures = report(halves, objects, table)
    assert figures.subscriptions.tolist() == [1, 2]
    assert figures.objects.tolist() == [1, 2]
    assert (figures.replication, figures.spread, figures.dropped) == (1.5, 0.75, 0.25)


def test_lightest_first_is_even() -> None:
    weights = np.array([5.0, 4.0, 3.0, 3.0, 3.0, 0.0, 0.0])
    homes = lightest_first(weights, 2)
    assert np.bincount(homes, weights=weights).tolist() == [8.0, 10.0]
    assert set(homes[5:].tolist()) == {0, 1}


def test_rarest_terms_are_those_of_the_plan() -> None:
    sample = sample_of(10)
    frequencies = np.arange(60, dtype=np.int64)[::-1].copy()
    filed = filing_terms(sample.table, frequencies)
    starts = sample.table.clause_terms
    assert filed.tolist() == [
        int(sample.table.members[a:b].max()) for a, b in itertools.pairwise(starts.tolist())
    ]


def test_wrong_plans_are_refused() -> None:
    homes = np.array([0, 3], dtype=np.int32)
    with pytest.raises(UsageError, match="names partition 3 of 2"):
        space_plan("wrong", Grid(0, 0, 2, 1, 2, 1), homes, 2, np.zeros(0, dtype=np.int64))
    with pytest.raises(UsageError, match="has no cells"):
        Grid(0, 0, 0, 1, 2, 1)
