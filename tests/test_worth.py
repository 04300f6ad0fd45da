"""Whether a shape is worth reading, and the costs that decide it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spatialnosql.costs import Costs
from spatialnosql.cover import cover
from spatialnosql.geometry import intersects_to_region, within_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index, ShardRange
from spatialnosql.region import IntersectionRegion, MirroredRegion
from spatialnosql.rewrite import QoS
from spatialnosql.rewrite.cost import (
    CLIENT,
    ONE_SCAN,
    ORIGINAL,
    SERVER,
    Load,
    estimate,
    estimate_count,
    shape_ms,
    test_ms,
)
from spatialnosql.rewrite.planning import plan_count, plan_find
from spatialnosql.rewrite.worth import why_not_worth

test_ms.__test__ = False  # type: ignore[attr-defined]
SQUARE = [[2.0, 48.0], [3.0, 48.0], [3.0, 49.0], [2.0, 49.0], [2.0, 48.0]]
ELSEWHERE = [[12.0, 8.0], [13.0, 8.0], [13.0, 9.0], [12.0, 9.0], [12.0, 8.0]]


def known(n: int = 50_000, **changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.3, n), 48.5 + rng.normal(0, 0.3, n), 30)
    indexes = (Index("gh_1__id_1", (("gh", 1), ("_id", 1))), Index("loc", (("loc", "2dsphere"),)))
    given: dict[str, Any] = {"histogram": histogram, "indexes": indexes}
    return CollectionInfo("city.trips", **(given | changed))


def within(*rings: Any, kind: str = "Polygon", operator: str = "$geoWithin", **more: Any) -> dict[str, Any]:
    return {"loc": {operator: {"$geometry": {"type": kind, "coordinates": list(rings), **more}}}}


@pytest.mark.parametrize("operator", ["$geoWithin", "$within", "$geoIntersects"])
def test_few_points_are_sooner_asked_for(operator: str) -> None:
    info = known()
    assert why_not_worth(within(SQUARE, operator=operator), info) is None
    assert "about 0 points at most" in str(why_not_worth(within(ELSEWHERE, operator=operator), info))
    assert why_not_worth(within([ELSEWHERE], [SQUARE], kind="MultiPolygon"), info) is None
    plan = plan_find(within(ELSEWHERE), info)
    assert not plan.rewritten
    assert "sooner asked than covered" in str(plan)


@pytest.mark.parametrize("plan", [plan_find, plan_count])
def test_a_shape_that_comes_again_is_read(plan: Any) -> None:
    info, few = known(50), within([[2.2, 48.4], [2.6, 48.4], [2.6, 48.6], [2.2, 48.4]])
    first, second, third = (plan(few, info) for _ in range(3))
    assert first.hasty
    assert not second.hasty
    assert second.estimates_ms is not None
    assert third.estimates_ms == second.estimates_ms


def test_a_limit_makes_all_shapes_small() -> None:
    one = known()
    assert why_not_worth(within(SQUARE), one, 3) is not None
    assert why_not_worth(within(SQUARE), one, 100_000) is None
    # Each shard finds as many as are wanted.
    many = replace(one, shards=tuple(ShardRange(chr(97 + i), chr(98 + i), f"s{i}") for i in range(20)))
    limits = [
        min(k for k in range(1, 2_000) if why_not_worth(within(SQUARE), info, k) is None)
        for info in (one, many)
    ]
    assert limits[0] > 10 * limits[1]


def test_many_vertices_are_worse_for_every_shard_than_for_the_client() -> None:
    nobody = known(10)
    turn = np.linspace(0, 2 * np.pi, 2_001)
    round_ = np.stack([12.5 + 0.4 * np.cos(turn), 8.5 + 0.4 * np.sin(turn)], axis=1)
    round_[-1] = round_[0]
    assert why_not_worth(within(ELSEWHERE), nobody) is not None
    assert why_not_worth(within(round_.tolist()), nobody) is None
    slow = replace(nobody, costs=replace(Costs(), read_vertex_ms=0.1))
    assert why_not_worth(within(round_.tolist()), slow) is not None


@pytest.mark.parametrize(
    "condition",
    [
        None,
        5,
        {},
        {"$geoWithin": {"$box": [[12, 8], [13, 9]]}},
        {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ELSEWHERE]}}, "$exists": True},
        {"$geoWithin": {"$geometry": {"type": "Point", "coordinates": [12, 8]}}},
        {"$geoWithin": {"$geometry": {"type": ["Polygon"], "coordinates": [ELSEWHERE]}}},
        {"$geoWithin": {"$geometry": 5}},
        {"$geoWithin": 5},
        {"$nearSphere": [12, 8]},
        *(
            {"$geoWithin": {"$geometry": {"type": kind, "coordinates": coordinates}}}
            for kind in ("Polygon", "MultiPolygon")
            for coordinates in (
                None, 5, "x", [], [[]], [[[]]], [[[[]]]], [[1, 2]], [["x"]], [[[1], [2], [1]]], [[[[1], [2], [1]]]],
                [[[[1, [2]], [2, 3]]]], [[[[[1, 2], [2, 3]]]]], [[[10**400, 1], [2, 3]]],
                [[[float("nan"), 1]]], {"a": 1},
            )
        ),
    ],
    ids=lambda value: str(value)[:80],
)  # fmt: skip
def test_what_is_no_area_is_for_others_to_judge(condition: Any) -> None:
    assert why_not_worth({"loc": condition}, known(10)) is None


@pytest.mark.parametrize(
    "ring",
    [
        [[170, 10], [-170, 10], [-170, 20], [170, 20], [170, 10]],
        [[0, 80], [90, 85], [180, 80], [0, 80]],
        [[-100, 10], [100, 10], [0, 40], [-100, 10]],
        [[181, 10], [182, 10], [182, 11], [181, 10]],
    ],
    ids=["antimeridian", "pole", "wide", "off the map"],
)
def test_where_corners_say_nothing(ring: Any) -> None:
    assert why_not_worth(within(ring), known(10)) is None


def test_without_statistics_or_in_another_crs_nothing_is_said() -> None:
    assert why_not_worth(within(ELSEWHERE), known(histogram=None)) is None
    assert why_not_worth(within(ELSEWHERE, crs={"type": "name"}), known()) is None
    assert why_not_worth({"other": within(ELSEWHERE)["loc"]}, known()) is None


def test_who_insists_on_a_form_gets_it() -> None:
    for form in ("client", "server"):
        assert plan_find(within(ELSEWHERE), known(), qos=QoS(form=form)).form == form


# -- costs ------------------------------------------------------------------------------------------------


def test_costs_are_stored_and_read() -> None:
    own = Costs(command_ms=7.5, settle_ms=0.0)
    assert Costs.of_document(own.to_document()) == own
    strange = {"command_ms": -1, "key_ms": "much", "fetch_ms": None, "unheard_of": 3, "range_ms": 2}
    assert Costs.of_document(strange) == Costs(range_ms=2.0)
    assert Costs.of_document({}) == Costs()


@pytest.mark.parametrize("plan", [plan_find, plan_count])
def test_the_cheapest_form_is_taken(plan: Any) -> None:
    """Whichever coefficient makes a form dear, another one is chosen; and the plan says what each would cost."""
    circle = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.5], 0.004]}}}
    chosen = set()
    for costs in (
        Costs(),
        Costs(settle_ms=5.0, return_ms=5.0),
        Costs(range_ms=50.0),
        Costs(test_ms=0.0, flat_test_ms=0.0, range_ms=5.0),
        Costs(flat_test_ms=1.0),
    ):
        made = plan(circle, known(costs=costs))
        assert made.estimates_ms is not None
        least = min(made.estimates_ms, key=lambda form: made.estimates_ms[form])
        assert made.form == (CLIENT if least == ONE_SCAN else least)
        chosen.add(made.form)
    assert {ORIGINAL, CLIENT} <= chosen


def test_estimates_grow_with_what_they_count() -> None:
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    info = known()
    covering = cover(region, weights=info.histogram)
    find, count = estimate(covering, region, info), estimate_count(covering, region, info, fetched=False)
    assert find is not None
    assert count is not None
    for name in ("command_ms", "key_ms", "fetch_ms", "test_ms", "shape_ms", "shape_vertex_ms"):
        dearer = replace(info, costs=replace(Costs(), **{name: 2.0}))
        for before, after in (
            (find, estimate(covering, region, dearer)),
            (count, estimate_count(covering, region, dearer, fetched=False)),
        ):
            assert after is not None
            assert after[ORIGINAL] > before[ORIGINAL]
            assert all(after[form] >= before[form] for form in before)
    limited = estimate(covering, region, info, limit=10)
    fetched = estimate_count(covering, region, info, fetched=True)
    assert limited is not None
    assert fetched is not None
    assert all(limited[form] < find[form] for form in find)
    assert fetched[CLIENT] > count[CLIENT]
    assert fetched[ORIGINAL] == count[ORIGINAL]
    assert estimate(covering, region, known(histogram=None)) is None
    assert estimate_count(covering, region, known(histogram=None), fetched=False) is None


def test_the_load_is_the_points_of_the_cover_on_the_shards_that_hold_it() -> None:
    info = known(
        shards=(ShardRange("", "u", "a"), ShardRange("u", "v", "b"), ShardRange("v", "{", "a")),
    )
    assert info.histogram is not None
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    load = Load.of(cover(region, weights=info.histogram), info, info.histogram)
    assert (load.shards, load.asked) == (2, 1)
    rng = np.random.default_rng(2)
    lng, lat = 2.35 + rng.normal(0, 0.3, 50_000), 48.5 + rng.normal(0, 0.3, 50_000)
    real = int(((lng >= 2) & (lng <= 3) & (lat >= 48) & (lat <= 49)).sum())
    assert load.interior <= real * 1.01
    assert load.outer >= real * 0.99
    assert load.inside == pytest.approx(real, rel=0.1)
    assert load.outer == load.interior + load.boundary


def test_what_a_shape_and_a_test_cost() -> None:
    info = known()
    square = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    box = within_to_region({"$box": [[2, 48], [3, 49]]})
    flat = within_to_region({"$polygon": SQUARE[:-1]})
    lines = intersects_to_region({"$geometry": {"type": "LineString", "coordinates": SQUARE}})
    assert shape_ms(square, info) == shape_ms(lines, info) > 0
    assert shape_ms(IntersectionRegion((square, square)), info) == 2 * shape_ms(square, info)
    assert shape_ms(MirroredRegion(square), info) == shape_ms(square, info)
    assert shape_ms(flat, info) == shape_ms(box, info) == 0
    assert test_ms(square, info) > test_ms(flat, info) >= test_ms(box, info) > 0
    assert test_ms(lines, info) > 0
    assert SERVER in (estimate(cover(square), square, info) or {})
