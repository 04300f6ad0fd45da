"""What each form of a query is thought to cost, and that the cheapest is taken."""

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
from spatialnosql.rewrite.cost import (
    CLIENT,
    IN_ORDER,
    ONE_SCAN,
    ORIGINAL,
    SERVER,
    Load,
    estimate,
    estimate_count,
    shape_ms,
    test_ms,
)
from spatialnosql.rewrite.own_indexes import names_of
from spatialnosql.rewrite.plan import Wanted
from spatialnosql.rewrite.planning import plan_count, plan_find

test_ms.__test__ = False  # type: ignore[attr-defined]
SQUARE = [[2.0, 48.0], [3.0, 48.0], [3.0, 49.0], [2.0, 49.0], [2.0, 48.0]]


def known(n: int = 50_000, **changed: Any) -> CollectionInfo:
    rng = np.random.default_rng(2)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.3, n), 48.5 + rng.normal(0, 0.3, n), 30)
    indexes = (Index("gh_1__id_1", (("gh", 1), ("_id", 1))), Index("loc", (("loc", "2dsphere"),)))
    given: dict[str, Any] = {"histogram": histogram, "indexes": indexes}
    return CollectionInfo("city.trips", **(given | changed))


def test_costs_are_stored_and_read() -> None:
    own = Costs(command_ms=7.5, settle_ms=0.5)
    assert Costs.of_document(own.to_document()) == own
    strange = {
        "command_ms": -1,
        "key_ms": "much",
        "fetch_ms": None,
        "shard_ms": 0,
        "unheard_of": 3,
        "range_ms": 2,
    }
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
        Costs(settle_ms=5.0, return_ms=0.5, flat_test_ms=0.5, range_ms=0.0001),
    ):
        made = plan(circle, known(costs=costs))
        assert made.estimates_ms is not None
        least = min(made.estimates_ms, key=lambda form: made.estimates_ms[form])
        assert made.form == (CLIENT if least == ONE_SCAN else least)
        chosen.add(made.form)
    assert chosen == {ORIGINAL, SERVER, CLIENT}


def test_estimates_grow_with_what_they_count() -> None:
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    info = known()
    covering = cover(region, weights=info.histogram)
    find, count = estimate(covering, region, info), estimate_count(covering, region, info, others=())
    assert find is not None
    assert count is not None
    servers, ours = {ORIGINAL, SERVER}, {CLIENT, ONE_SCAN}
    for name, of_finds, of_counts in (
        ("command_ms", servers | ours, servers | ours),
        ("shard_ms", servers | ours, servers | ours),
        ("range_ms", {SERVER} | ours, {SERVER} | ours),
        ("key_ms", servers | ours, servers | ours),
        ("fetch_ms", servers | ours, servers),
        ("test_ms", servers, servers),
        ("vertex_ms", servers, servers),
        ("shape_ms", servers, servers),
        ("shape_vertex_ms", servers, servers),
        ("return_ms", servers | ours, set()),
        ("settle_ms", ours, ours),
    ):
        dearer = replace(info, costs=replace(Costs(), **{name: 2.0}))
        for before, after, grown in (
            (find, estimate(covering, region, dearer), of_finds),
            (count, estimate_count(covering, region, dearer, others=()), of_counts),
        ):
            assert after is not None
            assert {form for form in before if after[form] > before[form]} == grown & set(before), name
            assert all(after[form] >= before[form] for form in before)
    limited = estimate(covering, region, info, limit=10)
    fetched = estimate_count(covering, region, info, others=({"kind": "cafe"},))
    few = estimate_count(covering, region, info, limit=10)
    assert limited is not None
    assert few is not None
    # Whoever counts in the client has counted everything before a limit tells.
    assert {form for form in count if few[form] < count[form]} == servers
    assert {form for form in count if few[form] == count[form]} == set(count) - servers
    assert fetched is not None
    assert all(limited[form] < find[form] for form in find)
    assert fetched[CLIENT] > count[CLIENT]
    assert fetched[ORIGINAL] == count[ORIGINAL]
    # An index of the user's own is as dear as what it finds in all of the collection.
    own = known(indexes=(*info.indexes, Index("kind_1", (("kind", 1),))))
    own.experience.learn_share(names_of([{"kind": "cafe"}]), 10, 10_000.0)
    for before, after in (
        (find, estimate(covering, region, own, others=({"kind": "cafe"},))),
        (fetched, estimate_count(covering, region, own, others=({"kind": "cafe"},))),
    ):
        assert after is not None
        assert after[ORIGINAL] < before[ORIGINAL] / 10
        assert all(after[form] == before[form] for form in before if form != ORIGINAL)
    assert estimate(covering, region, known(histogram=None)) is None
    assert estimate_count(covering, region, known(histogram=None), others=()) is None


def test_documents_in_the_order_of_an_index_are_a_form_of_their_own() -> None:
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    info = known()
    covering = cover(region, weights=info.histogram)
    plain = estimate(covering, region, info)
    assert plain is not None
    forms = [
        estimate(covering, region, info, wanted=Wanted(first, (("_id", 1),))) or {}
        for first in (1, 100, 10_000, 0)
    ]
    for made in forms:
        assert set(made) == {ORIGINAL, SERVER, CLIENT, IN_ORDER}
        assert all(one >= 0 for one in made.values())
    walks = [made[IN_ORDER] for made in forms]
    assert walks == sorted(walks)
    assert walks[0] < 0.1 * forms[0][SERVER]
    assert walks[-1] > forms[-1][SERVER] > plain[SERVER]  # all of it: what is sorted costs something too
    assert IN_ORDER not in (estimate(covering, region, info, wanted=Wanted(1, (("n", 1),))) or {})
    # Where the area is on one shard of three, only that one walks through what it has.
    shards = (ShardRange("", "u", "a"), ShardRange("u", "v", "b"), ShardRange("v", "{", "c"))
    alone = estimate(covering, region, known(shards=shards), wanted=Wanted(10_000, (("_id", 1),))) or {}
    assert alone[IN_ORDER] < forms[2][IN_ORDER]


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
