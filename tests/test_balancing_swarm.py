"""SWARM's statistics and decisions, each against a count of what is really there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.decision import Decision, Stage, decide
from spatialnosql.subscriptions.balancing.extents import Extent, Spans
from spatialnosql.subscriptions.balancing.layout import Layout, merge_neighbours
from spatialnosql.subscriptions.balancing.reduction import find_split, find_subset, nearest_cut
from spatialnosql.subscriptions.balancing.statistics import (
    Axis,
    Cost,
    Statistics,
    join_statistics,
    part_statistics,
)
from spatialnosql.subscriptions.balancing.swarm import MERGED_EVERY, Swarm
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.grid_cells import Grid


def random_spans(draw: np.random.Generator, count: int, columns: int, rows: int) -> Spans:
    lows = draw.integers([columns, rows], size=(count, 2))
    sizes = draw.integers(0, [max(columns // 2, 1), max(rows // 2, 1)], size=(count, 2))
    highs = np.minimum(lows + sizes, [columns - 1, rows - 1])
    return np.stack([lows[:, 0], highs[:, 0], lows[:, 1], highs[:, 1]], axis=1).astype(np.int64)


def random_layout(draw: np.random.Generator, columns: int = 12, rows: int = 9, workers: int = 4) -> Layout:
    layout = Layout.even(columns, rows, workers)
    for _ in range(int(draw.integers(12))):
        number = int(draw.choice(layout.numbers))
        extent = layout.extent(number)
        upright = bool(draw.integers(2))
        side = extent.columns if upright else extent.rows
        if side > 1:
            layout, first, _ = layout.split(number, upright, int(draw.integers(1, side)))
            layout = layout.moved([first], int(draw.integers(workers)))
    return layout


# -- the layout --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "rows", "workers"), [(8, 8, 1), (8, 8, 5), (7, 3, 4), (2, 2, 9), (100, 1, 7)]
)
def test_an_even_layout_gives_every_cell_to_one_partition(columns: int, rows: int, workers: int) -> None:
    layout = Layout.even(columns, rows, workers)
    assert len(layout.numbers) == min(workers, columns * rows)
    check_cells(layout)
    sizes = [layout.extent(number).columns * layout.extent(number).rows for number in layout.numbers]
    assert max(sizes) <= 4 * max(min(sizes), 1)


def check_cells(layout: Layout) -> None:
    cells = layout.partition_of_cell.reshape(layout.rows, layout.columns)
    covered = np.zeros_like(cells)
    for number in layout.numbers:
        left, right, bottom, top = layout.extent(number)
        assert (cells[bottom:top, left:right] == number).all()
        covered[bottom:top, left:right] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_are_found_by_borders_as_by_looking_at_every_cell(seed: int) -> None:
    draw = np.random.default_rng(seed)
    layout = random_layout(draw)
    check_cells(layout)
    spans = random_spans(draw, 60, layout.columns, layout.rows)
    queries, partitions = layout.overlapping(spans)
    cells = layout.partition_of_cell.reshape(layout.rows, layout.columns)
    for row, (left, right, bottom, top) in enumerate(spans):
        found = partitions[queries == row].tolist()
        assert sorted(found) == np.unique(cells[bottom : top + 1, left : right + 1]).tolist()


def test_a_partition_reached_in_its_middle_is_left_at_its_first_row() -> None:
    """Algorithm 1 as it is printed finds four of these five: the middle column is reached from below first."""
    layout = Layout.even(3, 4, 1)
    layout, first, rest = layout.split(0, True, 1)
    layout, _, third = layout.split(rest, True, 1)
    layout, _, _ = layout.split(first, False, 1)
    layout, _, _ = layout.split(third, False, 1)
    _, partitions = layout.overlapping(np.array([[0, 2, 0, 3]]))
    assert sorted(partitions.tolist()) == layout.numbers
    assert len(layout.numbers) == 5


def test_neighbours_of_one_worker_are_merged_and_others_are_not() -> None:
    layout = Layout.even(8, 8, 1)
    layout, first, second = layout.split(0, True, 3)
    layout, low, high = layout.split(second, False, 4)
    assert merge_neighbours(layout)[0].extent(merge_neighbours(layout)[1][-1][2]) == Extent(0, 8, 0, 8)
    apart = Layout(8, 8, 2, layout.extents, layout.homes, layout.partition_of_cell).moved([low], 1)
    merged, done = merge_neighbours(apart)
    assert done == []
    assert merged.numbers == [first, low, high]
    check_cells(merge_neighbours(layout)[0])


def test_merging_keeps_every_cell_at_its_worker() -> None:
    for seed in range(20):
        layout = random_layout(np.random.default_rng(seed))
        merged, done = merge_neighbours(layout)
        check_cells(merged)
        homes = [np.array(one.homes)[one.partition_of_cell] for one in (layout, merged)]
        assert np.array_equal(*homes)
        assert len(merged.numbers) == len(layout.numbers) - len(done)


def test_what_cannot_be_cut_is_named() -> None:
    layout = Layout.even(4, 4, 1)
    with pytest.raises(UsageError, match="cannot be cut at 4"):
        layout.split(0, True, 4)
    split = layout.split(0, True, 2)[0]
    with pytest.raises(UsageError, match="partition 0 was split or merged"):
        split.extent(0)
    with pytest.raises(UsageError, match="0 workers"):
        Layout.even(4, 4, 0)


def test_a_plan_of_the_layout_sends_every_place_to_its_worker() -> None:
    draw = np.random.default_rng(3)
    layout = random_layout(draw)
    grid = Grid(0.0, 0.0, 12.0, 9.0, 12, 9)
    plan = layout.to_plan(grid, np.zeros(1, dtype=np.int64))
    lng, lat = draw.uniform(0, 12, 200), draw.uniform(0, 9, 200)
    objects = Objects.of(lng, lat, 0, np.zeros(201, dtype=np.int64), np.zeros(0, dtype=np.int32))
    cells = lat.astype(int) * 12 + lng.astype(int)
    expected = np.array(layout.homes)[layout.partition_of_cell[cells]]
    assert np.array_equal(plan.leaf_home[plan.leaf_of_cell[grid.cells_of(objects)]], expected)
    with pytest.raises(UsageError, match="does not fit"):
        layout.to_plan(Grid.whole(), np.zeros(1, dtype=np.int64))


# -- statistics --------------------------------------------------------------------------------------------


class Seen:
    """What a partition has received, kept one by one: the brute force beside the statistics."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.points: list[tuple[int, int, int]] = []  # column, row, round
        self.queries: list[tuple[int, int, int, int, int]] = []  # span, round
        self.round = 0

    def counts(self, extent: Extent, decay: float) -> tuple[float, ...]:
        """N, Q, R and the work of any part of the partition; a point's work is its column and one."""
        columns, rows = range(extent.left, extent.right), range(extent.bottom, extent.top)
        inside = [turn for column, row, turn in self.points if column in columns and row in rows]
        touching = [
            turn
            for left, right, bottom, top, turn in self.queries
            if left < extent.right and right >= extent.left and bottom < extent.top and top >= extent.bottom
        ]
        last = self.round - 1
        points = sum(decay ** (last - turn) for turn in inside)
        received = sum(turn == last for turn in inside) + sum(turn == last for turn in touching)
        work = sum(
            decay ** (last - turn) * (column + 1)
            for column, row, turn in self.points
            if column in columns and row in rows
        )
        return points, float(len(touching)), float(received), float(work)


@pytest.mark.parametrize("decay", [0.5, 1.0])
def test_statistics_tell_of_every_cut_what_counting_tells(decay: float) -> None:
    draw = np.random.default_rng(5)
    extent = Extent(3, 13, 2, 9)
    statistics, seen = Statistics.empty(extent), Seen(extent)
    for turn in range(4):
        columns, rows = draw.integers(3, 13, 40), draw.integers(2, 9, 40)
        spans = random_spans(draw, 15, 16, 12)
        spans = spans[extent.touched_by(spans)]
        assert len(spans) > 3
        for part in range(2):  # in any number of batches
            own = slice(part, None, 2)
            work = columns[own] + 1.0
            statistics = statistics.with_points(extent, columns[own], rows[own], work=work)
            statistics = statistics.with_queries(extent, spans[own])
        seen.points += [(int(c), int(r), turn) for c, r in zip(columns, rows, strict=True)]
        seen.queries += [(*map(int, span), turn) for span in spans]
        if turn == 2:  # some go: one of the first round and one that has just come
            gone = [seen.queries.pop(0), seen.queries.pop()]
            statistics = statistics.without_queries(extent, np.array(gone, dtype=np.int64)[:, :4])
        statistics = statistics.folded(decay)
        seen.round += 1
        for upright in (True, False):
            axis = statistics.axis(upright)
            for cut in range(1, axis.size):
                for side, half in zip(
                    (axis.before(cut), axis.after(cut)), extent.parted(upright, cut), strict=True
                ):
                    expected = seen.counts(half, decay)
                    if turn == 2:  # the one that came and went was received all the same
                        expected = (*expected[:2], side.received, expected[3])
                    assert side == pytest.approx(expected)
        assert statistics.rows.totals == pytest.approx(statistics.columns.totals)


def test_a_round_without_anything_halves_the_points_and_keeps_the_queries() -> None:
    extent = Extent(0, 4, 0, 4)
    statistics = Statistics.empty(extent).with_points(extent, np.array([1, 2]), np.array([0, 3]))
    statistics = statistics.with_queries(extent, np.array([[0, 3, 0, 3]])).folded().folded()
    assert statistics.totals == (1.0, 1.0, 0.0, 1.0)


def test_parts_of_a_partition_and_their_union() -> None:
    draw = np.random.default_rng(8)
    extent = Extent(0, 9, 0, 7)
    spans = random_spans(draw, 30, 9, 7)
    columns, rows = draw.integers(0, 9, 200), draw.integers(0, 7, 200)
    whole = Statistics.empty(extent).with_queries(extent, spans).with_points(extent, columns, rows).folded()
    for upright, cut in ((True, 4), (False, 2)):
        halves = extent.parted(upright, cut)
        parts = part_statistics(whole, extent, upright, cut, spans)
        for half, part in zip(halves, parts, strict=True):
            own = half.touched_by(spans)
            inside = (
                (columns >= half.left) & (columns < half.right) & (rows >= half.bottom) & (rows < half.top)
            )
            counted = (
                Statistics.empty(half)
                .with_queries(half, spans[own])
                .with_points(half, columns[inside], rows[inside])
                .folded()
            )
            assert part.totals == pytest.approx(counted.totals)
            for name in ("n", "q", "r", "w", "span_q", "pre_span_q"):  # exact across the cut
                mine, theirs = part.axis(upright), counted.axis(upright)
                assert getattr(mine, name) == pytest.approx(getattr(theirs, name))
            for name in ("q", "span_q"):  # and of queries along the other side
                mine, theirs = part.axis(not upright), counted.axis(not upright)
                assert getattr(mine, name) == pytest.approx(getattr(theirs, name))
            assert part.axis(not upright).totals == pytest.approx(counted.totals)
        for pair in itertools.permutations(zip(halves, parts, strict=True)):
            joined = join_statistics(*pair, spans)
            for upright_axis in (True, False):
                for name in ("n", "q", "span_q"):
                    assert getattr(joined.axis(upright_axis), name)[-1] == pytest.approx(
                        getattr(whole.axis(upright_axis), name)[-1]
                    )
                assert joined.axis(upright_axis).q == pytest.approx(whole.axis(upright_axis).q)
            assert joined.axis(upright).n == pytest.approx(whole.axis(upright).n)


# -- decisions ---------------------------------------------------------------------------------------------


def test_the_five_stages() -> None:
    decision = decide(Decision(), 10.0)
    assert (decision.rebalance, decision.stage) == (False, Stage.GOOD)
    decision = decide(decide(decision, 11.0), 12.0)  # GREAT, and no further
    assert decision.stage == Stage.GREAT
    for expected in (Stage.GOOD, Stage.START, Stage.BAD):
        decision = decide(decision, 12.0)  # not more is not better
        assert (decision.rebalance, decision.stage) == (False, expected)
    decision = decide(decision, 11.0)
    assert (decision.rebalance, decision.stage, decision.rounds) == (True, Stage.START, 1)
    decision = decide(decide(decision, 10.0), 9.0)  # two bad rounds, and it is undone
    assert (decision.rebalance, decision.stage) == (False, Stage.START)


def test_no_decision_is_taken_more_than_beta_times() -> None:
    decision, lasted = Decision(), []
    received = itertools.count(1.0)
    for _ in range(30):
        decision = decide(decision, next(received), beta=7)
        lasted.append(decision.rebalance)
    assert [len(list(group)) for _, group in itertools.groupby(lasted)] == [7, 7, 7, 7, 2]


# -- what is moved -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_the_greedy_subset_is_at_least_half_of_the_best(seed: int) -> None:
    draw = np.random.default_rng(seed)
    costs = dict(enumerate(draw.exponential(1.0, int(draw.integers(1, 10))).tolist()))
    target = float(draw.uniform(0, sum(costs.values())))
    most = (sum(costs.values()) - target) / 2
    chosen = find_subset(costs, target)
    moved = sum(costs[number] for number in chosen)
    best = max(
        sum(subset)
        for size in range(len(costs) + 1)
        for subset in itertools.combinations(costs.values(), size)
        if sum(subset) <= most
    )
    assert moved <= most + 1e-12
    assert moved >= best / 2
    if any(cost <= most for cost in costs.values()):
        assert chosen


def random_axis(draw: np.random.Generator, size: int) -> Axis:
    firsts = draw.integers(0, size, 30)
    lasts = np.minimum(firsts + draw.integers(0, 4, 30), size - 1)
    axis = Axis.empty(size).with_queries(firsts[:20], lasts[:20]).folded()
    axis = axis.with_queries(firsts[20:], lasts[20:])
    return axis.with_points(draw.integers(0, size, 50), 2.0, draw.random(50)).folded()


@pytest.mark.parametrize("kind", ["product", "work"])
@pytest.mark.parametrize("moves_first", [True, False])
def test_the_search_by_halves_finds_what_trying_every_cut_finds(moves_first: bool, kind: Cost) -> None:
    draw = np.random.default_rng(4)
    for _ in range(200):
        axis = random_axis(draw, int(draw.integers(2, 20)))
        rest, target = draw.uniform(0, 2 * axis.totals.cost(kind), 2)
        differences = []
        for cut in range(1, axis.size):
            sides = [axis.before(cut).cost(kind), axis.after(cut).cost(kind)]
            moved, kept = sides if moves_first else sides[::-1]
            differences.append(abs((rest + kept) - (target + moved)))
        cut, difference = nearest_cut(axis, float(rest), float(target), moves_first, kind)
        assert abs(difference) == pytest.approx(min(differences))
        assert differences[cut - 1] == pytest.approx(min(differences))


def test_a_single_cell_is_not_split_but_the_next_partition_is() -> None:
    cell, wide = Extent(0, 1, 0, 1), Extent(1, 9, 0, 1)
    hot = Statistics.empty(cell).with_points(cell, np.zeros(50, dtype=int), np.zeros(50, dtype=int))
    hot = hot.with_queries(cell, np.array([[0, 0, 0, 0]] * 5)).folded()
    columns = np.arange(1, 9)
    other = Statistics.empty(wide).with_points(wide, columns, np.zeros(8, dtype=int))
    other = other.with_queries(wide, np.array([[column, column, 0, 0] for column in columns])).folded()
    statistics = {0: hot, 1: other}
    costs = {number: one.totals.cost("product") for number, one in statistics.items()}
    split = find_split(statistics, costs, 0.0)
    assert split is not None
    assert (split.partition, split.upright) == (1, True)
    assert find_split({0: hot}, {0: costs[0]}, 0.0) is None


# -- rounds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 2])
@pytest.mark.parametrize("cost", ["product", "work"])
def test_rounds_spread_a_hot_spot_and_keep_their_books(cost: Cost, pairs: int) -> None:
    draw = np.random.default_rng(6)
    side, workers = 32, 4
    state = Swarm.start(side, side, workers, beta=3, cost=cost, pairs=pairs)
    lows = draw.integers(0, 8, size=(300, 2))
    spans = np.stack([lows[:, 0], lows[:, 0] + 1, lows[:, 1], lows[:, 1] + 1], axis=1)
    state = state.with_queries(spans)
    shares, moved, most_between = [], 0, 0
    for _ in range(MERGED_EVERY + 20):
        columns, rows = draw.integers(0, 8, 400), draw.integers(0, 8, 400)  # one worker has all of it
        homes = np.array(state.layout.homes)[state.layout.partition_of_cell[rows * side + columns]]
        most = np.bincount(homes, minlength=workers).max() / 400
        shares.append(most)
        state = state.with_points(columns, rows)
        state, moves = state.ended_round(spans, throughput=1 / most)
        moved += len(moves)
        between = {(move.source, move.target) for move in moves}
        most_between = max(most_between, len(between))
        assert len({worker for pair in between for worker in pair}) == 2 * len(
            between
        )  # none is in two pairs
        check_cells(state.layout)
        assert all(0 <= worker < workers for worker in state.layout.homes)
        assert set(state.statistics) == set(state.layout.numbers)
        for number, one in state.statistics.items():  # queries are never lost on the way
            assert one.totals.queries == state.layout.extent(number).touched_by(spans).sum()
        assert len(state.reports()) == workers
        assert sum(one.received for one in state.reports()) >= 400
    assert shares[0] == 1.0
    assert min(shares[-20:]) < 0.4
    assert moved >= 3
    assert most_between == pairs
