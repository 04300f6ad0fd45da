"""PS2Stream's adjustments: what is chosen against trying everything, and no match is ever lost by them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from partition_samples import sample_of

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.cell_loads import CellCounter, CellLoads, Touching, row_bytes
from spatialnosql.subscriptions.balancing.local import MARGINAL, LocalRules, adjust_all
from spatialnosql.subscriptions.balancing.marginal import by_marginal_cost
from spatialnosql.subscriptions.balancing.migration import SELECTIONS, by_dynamic_programme, by_relative_cost
from spatialnosql.subscriptions.balancing.plan_edits import move_cells, split_cell_by_text
from spatialnosql.subscriptions.balancing.policies import (
    GlobalPolicy,
    LocalPolicy,
    Round,
    SwarmPolicy,
    make_policy,
)
from spatialnosql.subscriptions.balancing.repartition import (
    GlobalRules,
    considered,
    drained,
    partition_loads,
)
from spatialnosql.subscriptions.balancing.strategies import Strategy, hold, strategy_rows
from spatialnosql.subscriptions.balancing.swarm import Swarm
from spatialnosql.subscriptions.balancing.timeline import Workers
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.dispatcher import Dispatcher
from spatialnosql.subscriptions.partitioning.hybrid import plan_hybrid
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.plan import Plan, space_plan
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import merge_matches
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table

# -- which cells to move -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_dynamic_programme_is_the_cheapest_of_all_choices(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 11))
    loads, sizes = draw.integers(0, 30, count).astype(float), draw.integers(0, 40, count)
    least = float(draw.uniform(0, loads.sum()))
    enough = [
        sum(int(sizes[i]) for i in chosen)
        for size in range(count + 1)
        for chosen in itertools.combinations(range(count), size)
        if sum(loads[i] for i in chosen) >= least
    ]
    chosen = by_dynamic_programme(loads, sizes, least)
    assert loads[chosen].sum() >= least
    assert sizes[chosen].sum() == min(enough)


@pytest.mark.parametrize("name", SELECTIONS)
def test_every_choice_suffices_and_none_is_cheaper_than_the_best(name: str) -> None:
    draw = np.random.default_rng(3)
    costs = []
    for _ in range(50):
        loads, sizes = draw.exponential(1.0, 30), draw.integers(1, 200, 30)
        least = float(draw.uniform(0.1, 0.9) * loads.sum())
        chosen = SELECTIONS[name](loads, sizes, least)
        best = by_dynamic_programme(loads, sizes, least)
        assert np.array_equal(chosen, np.unique(chosen))
        assert loads[chosen].sum() >= least - 1e-9
        assert sizes[chosen].sum() >= sizes[best].sum()
        costs.append(sizes[chosen].sum() / sizes[best].sum())
    if name == "GR":
        assert np.mean(costs) < 1.1
    assert SELECTIONS[name](loads, sizes, 0.0).size == 0
    everything = SELECTIONS[name](loads, sizes, 2 * float(loads.sum()))
    assert everything.size == 30


def test_gr_tries_single_cells_behind_what_it_has_taken() -> None:
    """The first that suffices is not the cheapest: a later candidate is."""
    loads, sizes = np.array([4.0, 10.0, 3.0, 9.0]), np.array([4, 30, 12, 28])
    assert by_relative_cost(loads, sizes, 12.0).tolist() == [0, 3]


def test_bad_loads_are_named() -> None:
    with pytest.raises(UsageError, match="3 loads and 2 sizes"):
        by_relative_cost(np.ones(3), np.ones(2), 1.0)
    with pytest.raises(UsageError, match="too many for the dynamic programme"):
        by_dynamic_programme(np.ones(1000), np.full(1000, 10**7), 500.0)


# -- what cells cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1.1])
def test_cell_loads_are_what_counting_pair_by_pair_gives(delta: float) -> None:
    sample = sample_of(2, objects=120, count=60, side=6)
    plan = plan_hybrid(sample, 3, delta=delta)
    table, objects = sample.table, sample.objects
    dispatcher = Dispatcher(plan)
    placement = dispatcher.insert(table)
    spans, cells = plan.grid.spans_of(table.bounds), plan.grid.cells_of(objects)
    seen = 0
    for partition in range(3):
        loads = CellCounter(dispatcher, objects, table).loads_of(partition)
        held: dict[int, set[int]] = {}
        filed: dict[tuple[int, int], int] = {}
        for row in range(len(table)):
            for clause in range(table.clauses[row], table.clauses[row + 1]):
                term = int(placement.filed[clause])
                for y, x in itertools.product(
                    range(spans[row, 2], spans[row, 3] + 1), range(spans[row, 0], spans[row, 1] + 1)
                ):
                    cell = y * plan.grid.columns + x
                    leaf = plan.leaf_of_cell[cell]
                    home = plan.leaf_home[leaf]
                    if home < 0:
                        home = plan.homes[plan.leaf_map[leaf], term]
                    if home == partition:
                        held.setdefault(cell, set()).add(row)
                        filed[cell, term] = filed.get((cell, term), 0) + 1
        for cell in range(plan.grid.cells):
            rows = held.get(cell, set())
            assert loads.subscriptions[cell] == len(rows)
            assert loads.sizes[cell] == row_bytes(table)[sorted(rows)].sum()
            checks = sent = 0
            for thing in np.flatnonzero(cells == cell):
                terms = objects.terms[objects.offsets[thing] : objects.offsets[thing + 1]].tolist()
                found = sum(filed.get((cell, term), 0) for term in terms)
                checks += found
                sent += found > 0
            assert (loads.checks[cell], loads.objects[cell]) == (checks, sent)
            seen += checks
    assert seen > 100
    if delta > 1:
        assert (plan.leaf_home < 0).any()


# -- plans that change -------------------------------------------------------------------------------------


def everything_found(sample: Sample, plan: Plan) -> bool:
    """Whether a plan finds what one index of all finds."""
    held = hold((Strategy(plan),), sample.table)
    workers = Workers.of(sample.table, plan.partitions)
    workers.hold(held.rows)
    rows, numbers = Index.build(sample.table).match_objects(sample.objects)
    expected = merge_matches([(rows, numbers.astype(np.int64))])
    assert expected[0].size > 20
    found = workers.match(held, sample.objects)
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("delta", [0.0, 1.1])
def test_cells_moved_and_split_at_random_lose_nothing(delta: float) -> None:
    sample = sample_of(5)
    plan = plan_hybrid(sample, 4, delta=delta)
    draw = np.random.default_rng(1)
    for _ in range(12):
        source, target = draw.choice(4, 2, replace=False).tolist()
        cells = draw.choice(plan.grid.cells, 40, replace=False)
        plan = move_cells(plan, cells, source, target)
        whole = np.flatnonzero(plan.leaf_home[plan.leaf_of_cell] >= 0)
        if whole.size:
            cell = int(draw.choice(whole))
            home = int(plan.leaf_home[plan.leaf_of_cell[cell]])
            moving = draw.random(plan.frequencies.size) < 0.5
            plan = split_cell_by_text(plan, cell, moving, (home + 1) % 4)
        assert everything_found(sample, plan)
        assert set(np.unique(plan.leaf_of_cell)) == set(range(plan.leaves))


def test_a_move_moves_all_that_a_partition_has_of_a_cell() -> None:
    sample = sample_of(6, side=4)
    plan = make_plan("kdtree", sample, 3)
    cells = np.flatnonzero(plan.leaf_home[plan.leaf_of_cell] == 0)
    moved = move_cells(plan, cells, 0, 2)
    assert 0 not in moved.leaf_home[moved.leaf_of_cell]
    assert move_cells(plan, cells, 1, 2).leaf_home[plan.leaf_of_cell[cells[0]]] == 0  # it has nothing of them
    with pytest.raises(UsageError, match="two different ones"):
        move_cells(plan, cells, 1, 1)
    text = make_plan("hash", sample, 3)
    with pytest.raises(UsageError, match="parted by text already"):
        split_cell_by_text(text, 0, np.ones(text.frequencies.size, dtype=bool), 1)
    with pytest.raises(UsageError, match="cells of it cannot be moved"):
        move_cells(make_plan("salb", sample, 3), np.array([0]), 0, 1)


def really_moved(chosen: np.ndarray, ours: Touching, theirs: Touching, sizes: np.ndarray) -> int:
    """Bytes of the subscriptions that the target gets, each once, if it has them not."""
    rows = np.unique(ours.rows[np.isin(ours.cells, chosen)])
    return int(sizes[np.setdiff1d(rows, theirs.rows)].sum())


def marginal_problem(seed: int) -> tuple[CellLoads, np.ndarray, Touching, np.ndarray]:
    """What a partition has, its cells' loads, what the other has, and the subscriptions' sizes."""
    sample = sample_of(seed, objects=2000, count=600, side=24)
    dispatcher = Dispatcher(make_plan("kdtree", sample, 2))
    dispatcher.insert(sample.table)
    counter = CellCounter(dispatcher, sample.objects, sample.table)
    loads = counter.loads_of(0)
    return loads, loads.loads(Costs()), counter.touching(1), counter.sizes


@pytest.mark.parametrize("seed", range(4))
def test_by_marginal_cost_every_choice_is_the_best(seed: int) -> None:
    """The same by hand: what is left of every cell's size is counted anew from the pairs, before each choice."""
    loads, weights, theirs, sizes = marginal_problem(seed)
    least = 0.3 * float(weights.sum())
    chosen = by_marginal_cost(weights, least, loads.touching, theirs, sizes)
    assert weights[chosen].sum() >= least
    taken: list[int] = []
    while weights[taken].sum() < least:
        here = really_moved(np.array(taken), loads.touching, theirs, sizes)
        left = {
            cell: really_moved(np.array([*taken, cell]), loads.touching, theirs, sizes) - here
            for cell in np.flatnonzero(weights).tolist()
            if cell not in taken
        }
        best = min(left, key=lambda cell: (left[cell] / weights[cell], cell))
        if weights[[*taken, best]].sum() >= least:
            enough = [cell for cell in left if weights[[*taken, cell]].sum() >= least]
            best = min(enough, key=lambda cell: (left[cell], cell))
        taken.append(best)
    assert set(taken) == set(chosen[weights[chosen] > 0].tolist())
    moved = really_moved(np.array(taken), loads.touching, theirs, sizes)
    assert really_moved(chosen, loads.touching, theirs, sizes) == moved > 0  # cells without load cost nothing


def test_by_marginal_cost_less_is_really_moved_than_by_gr() -> None:
    ours, greedy = 0, 0
    for seed in range(8):
        loads, weights, theirs, sizes = marginal_problem(seed)
        least = 0.3 * float(weights.sum())
        chosen = by_marginal_cost(weights, least, loads.touching, theirs, sizes)
        ours += really_moved(chosen, loads.touching, theirs, sizes)
        chosen = by_relative_cost(weights, loads.sizes, least)
        greedy += really_moved(chosen, loads.touching, theirs, sizes)
    assert ours < 0.95 * greedy


# -- local adjustment --------------------------------------------------------------------------------------


def loads_of(plan: Plan, objects: Objects, table: Table) -> np.ndarray:
    return partition_loads(hold((Strategy(plan),), table), objects, plan.partitions, Costs())


@pytest.mark.parametrize("select", [MARGINAL, *SELECTIONS])
def test_adjusting_until_it_stops_evens_the_loads(select: str) -> None:
    sample = sample_of(7, objects=2000, count=600, side=32)
    skewed = space_plan(
        "skewed", sample.grid, np.zeros(sample.grid.cells, dtype=np.int32), 3, sample.frequencies
    )
    plan, loads, done = skewed, loads_of(skewed, sample.objects, sample.table), []
    assert loads.tolist()[1:] == [0.0, 0.0]
    for _ in range(60):
        dispatcher = Dispatcher(plan)
        dispatcher.insert(sample.table)
        plan, now = adjust_all(
            plan, dispatcher, sample.objects, sample.table, loads, LocalRules(select=select, sigma=1.3)
        )
        if not now:
            break
        done += now
        loads = loads_of(plan, sample.objects, sample.table)
    assert done
    assert everything_found(sample, plan)
    assert loads.max() <= 1.3 * loads.min() or select in ("SI", "RA")
    assert loads.max() < 0.6 * loads.sum()


def test_even_loads_are_left_alone() -> None:
    sample = sample_of(8)
    plan = make_plan("kdtree", sample, 3)
    dispatcher = Dispatcher(plan)
    dispatcher.insert(sample.table)
    same, done = adjust_all(plan, dispatcher, sample.objects, sample.table, np.array([1.0, 1.1, 1.2]))
    assert same is plan
    assert done == []


def test_several_pairs_are_adjusted_at_once_and_no_partition_is_in_two() -> None:
    sample = sample_of(8, objects=2000, count=600, side=32)
    homes = (np.arange(sample.grid.cells) % 10).astype(np.int32) // 5  # all of it at two of six
    plan = space_plan("two", sample.grid, homes, 6, sample.frequencies)
    dispatcher = Dispatcher(plan)
    dispatcher.insert(sample.table)
    loads = loads_of(plan, sample.objects, sample.table)
    after, done = adjust_all(plan, dispatcher, sample.objects, sample.table, loads, LocalRules(sigma=1.2))
    assert sorted(one.source for one in done) == [0, 1]
    taking = {one.target for one in done}
    assert len(taking) == 2
    assert not taking & {0, 1}
    assert everything_found(sample, after)
    evened = loads_of(after, sample.objects, sample.table)
    for one in done:
        assert evened[one.source] == pytest.approx(loads[one.source] / 2, rel=0.2)
        assert evened[one.target] == pytest.approx(loads[one.source] / 2, rel=0.2)


def test_phase_one_splits_by_text_where_the_product_says_so_and_merges_again() -> None:
    """By definition 3 half the objects times half the subscriptions is a quarter; an index never gains by it."""
    sample = sample_of(9, objects=800, count=400, words=200, side=2)
    plan = space_plan("one", sample.grid, np.zeros(4, dtype=np.int32), 2, sample.frequencies)
    costs = replace(Costs(), check_s=1e-6)  # so that pairs are what costs
    dispatcher = Dispatcher(plan)
    dispatcher.insert(sample.table)
    busy = np.array([1.0, 0.0])
    product = LocalRules(product=True, costs=costs)
    split, done = adjust_all(plan, dispatcher, sample.objects, sample.table, busy, product)
    assert done[0].split
    assert everything_found(sample, split)
    pairs = LocalRules(costs=costs)
    _, other = adjust_all(plan, dispatcher, sample.objects, sample.table, busy, pairs)
    assert other
    assert not other[0].split
    # Parted cells, of which both have a part: together they cost less by what an index does.
    again = Dispatcher(split)
    again.insert(sample.table)
    merged, done = adjust_all(split, again, sample.objects, sample.table, busy, pairs)
    assert done[0].merged
    assert everything_found(sample, merged)


# -- global adjustment -------------------------------------------------------------------------------------


def test_strategies_side_by_side_find_everything() -> None:
    sample = sample_of(10)
    plans = [make_plan(name, sample, 4) for name in ("kdtree", "hash", "hybrid")]
    strategies = tuple(Strategy(plan, first) for plan, first in zip(plans, (0, 90, 200), strict=True))
    held = hold(strategies, sample.table)
    workers = Workers.of(sample.table, 4)
    workers.hold(held.rows)
    rows, numbers = Index.build(sample.table).match_objects(sample.objects)
    expected = merge_matches([(rows, numbers.astype(np.int64))])
    for mine, theirs in zip(workers.match(held, sample.objects), expected, strict=True):
        assert np.array_equal(mine, theirs)
    routes = held.route(sample.objects)
    each = [dispatcher.route(sample.objects) for dispatcher in held.dispatchers]
    for partition in range(4):
        union = np.unique(np.concatenate([one.rows_of(partition) for one in each]))
        assert np.array_equal(routes.rows_of(partition), union)
    assert routes.dropped + np.unique(routes.rows).size == len(sample.objects)
    assert [rows.size for rows in strategy_rows(strategies, np.arange(300))] == [90, 110, 100]


def test_strategies_must_begin_at_zero() -> None:
    sample = sample_of(10)
    plan = make_plan("hash", sample, 4)
    with pytest.raises(UsageError, match="the first must begin at 0"):
        hold((Strategy(plan, 5),), sample.table)
    with pytest.raises(UsageError, match="they must have as many"):
        hold((Strategy(plan), Strategy(make_plan("hash", sample, 3), 9)), sample.table)


def test_an_old_strategy_ends_when_few_follow_it() -> None:
    sample = sample_of(11)
    old, new = (Strategy(make_plan("hash", sample, 2)), Strategy(make_plan("kdtree", sample, 2), 100))
    rules = GlobalRules(drained=0.2)
    assert drained((old, new), np.arange(300), rules) == (old, new)
    (left,) = drained((old, new), np.arange(80, 300), rules)
    assert (left.plan, left.first) == (new.plan, 0)


def test_a_new_strategy_only_where_it_pays() -> None:
    sample = sample_of(12, objects=2000, count=500)
    one = space_plan("one", sample.grid, np.zeros(sample.grid.cells, dtype=np.int32), 4, sample.frequencies)
    bad = (Strategy(one),)
    rules = GlobalRules()
    found = considered(bad, hold(bad, sample.table), sample.objects, sample.table, 500, rules)
    assert len(found) == 2
    assert found[1].first == 500
    good = (Strategy(found[1].plan),)
    assert considered(good, hold(good, sample.table), sample.objects, sample.table, 500, rules) is good
    held = hold(found, sample.table)
    for next_number in (500, 600):  # nobody follows the second yet, or some do
        assert considered(found, held, sample.objects, sample.table, next_number, rules) is found
    twice = (*bad, Strategy(one, 500))
    better = considered(twice, hold(twice, sample.table), sample.objects, sample.table, 500, rules)
    assert [strategy.first for strategy in better] == [0, 500]
    assert better[1].plan is not one
    assert considered(twice, hold(twice, sample.table), sample.objects, sample.table, 600, rules) is twice


# -- policies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "swarm", "local", "global"])
def test_policies_move_subscriptions_and_lose_none(name: str) -> None:
    """Subscriptions come and go, the load is at one place only; after every round all is found."""
    sample = sample_of(13, objects=900, count=400, side=16)
    table = sample.table
    grid = sample.grid
    start = space_plan("one", grid, np.zeros(grid.cells, dtype=np.int32), 3, sample.frequencies)
    policy = make_policy(name, start)
    if isinstance(policy, GlobalPolicy):
        policy = GlobalPolicy(start, GlobalRules(every=3))
    if isinstance(policy, SwarmPolicy):
        quick = Swarm.start(grid.columns, grid.rows, 3, beta=2, cost="work")
        policy = SwarmPolicy(grid, 3, sample.frequencies, quick)
    workers = Workers.of(table, 3)
    nothing = np.zeros((0, 4))
    before = np.arange(0)
    said = []
    for turn in range(14):
        live = np.arange(20 * turn, 20 * turn + 120)
        own = table.take(live)
        held = hold(policy.strategies, own, live)
        workers.hold(tuple(live[rows] for rows in held.rows))
        rows, numbers = Index.build(own).match_objects(sample.objects)
        expected = merge_matches([(rows, live[numbers])])
        for mine, theirs in zip(workers.match(held, sample.objects), expected, strict=True):
            assert np.array_equal(mine, theirs)
        busy = partition_loads(held, sample.objects, 3, Costs())
        gone = table.bounds[np.setdiff1d(before, live)] if turn else nothing
        seen = Round(
            sample.objects, 1.0, own, live, 20 * turn + 120, table.bounds[np.setdiff1d(live, before)], gone,
            busy, 1 / busy.max(), held,
        )  # fmt: skip
        said += policy.end_round(seen)
        before = live
    assert bool(said) == (name != "none")
    if isinstance(policy, LocalPolicy):
        assert len(policy.adjustments) == len(said)
    if name == "global":
        assert any("has ended" in one for one in said)


def round_of(plan: Plan, sample: Sample, hot: float = 1.0) -> Round:
    """A round in which nothing comes or goes; the first partition takes so many times what is counted."""
    held = hold((Strategy(plan),), sample.table)
    busy = partition_loads(held, sample.objects, plan.partitions, Costs())
    busy[0] *= hot
    nothing = np.zeros((0, 4))
    numbers = np.arange(len(sample.table))
    return Round(
        sample.objects, 1.0, sample.table, numbers, numbers.size, nothing, nothing, busy, 1 / busy.max(), held
    )


def test_local_adjustment_moves_only_what_is_repaid_and_tries_again_when_it_gets_worse() -> None:
    sample = sample_of(15, objects=2000, count=600, side=32)
    plan = make_plan("kdtree", sample, 4)
    dear, free = (LocalRules(sigma=1.01, costs=replace(Costs(), insert_s=cost)) for cost in (1e3, 0.0))
    eager, careful = LocalPolicy(plan, free), LocalPolicy(plan, dear)
    before = round_of(plan, sample).busy_s.max()
    assert eager.end_round(round_of(plan, sample))
    assert round_of(eager.strategies[0].plan, sample).busy_s.max() < before
    assert careful.end_round(round_of(plan, sample)) == []
    assert careful.strategies[0].plan is plan
    resting = LocalPolicy(plan, dear)
    resting.end_round(round_of(plan, sample))
    resting._rules = free
    assert resting.end_round(round_of(plan, sample)) == []  # not yet
    assert resting.end_round(round_of(plan, sample, hot=8.0))


def test_local_adjustment_goes_by_what_partitions_really_take() -> None:
    """One on a slow machine gives, though by what is counted it has no more than the others."""
    sample = sample_of(16, objects=2000, count=600, side=32)
    policy = LocalPolicy(make_plan("hybrid", sample, 4), LocalRules(costs=replace(Costs(), insert_s=0.0)))
    policy.end_round(round_of(policy.strategies[0].plan, sample, hot=3.0))
    assert policy.adjustments
    assert policy.adjustments[0].source == 0


def test_an_unknown_policy_is_named() -> None:
    sample = sample_of(14)
    with pytest.raises(UsageError, match="no balance 'magic'; there are none, swarm"):
        make_policy("magic", make_plan("hash", sample, 2))
