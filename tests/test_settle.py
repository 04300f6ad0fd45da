"""Settling: certainly in, certainly out or unsure; never wrong about "certainly", and unsure only near a border."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from differential import KINDS, points_for
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialnosql import testing
from spatialnosql.edges import TOLERANCE_DEG, TOLERANCE_RAD
from spatialnosql.errors import GeometryError, UnsupportedShape, UsageError
from spatialnosql.geohash import cells_to_bounds, points_to_cells
from spatialnosql.geometry import within_to_region
from spatialnosql.region import Region
from spatialnosql.settle import IN, OUT, UNSURE, settle_cells, settle_points
from spatialnosql.testing import BruteForce
from spatialnosql.testing.sphere import travel


def region_of(shape: testing.Shape) -> Region:
    return within_to_region({shape.operator: shape.value})


@pytest.mark.parametrize("kind", testing.KINDS)
def test_brute_force_agrees(kind: str) -> None:
    """Every point against every edge, by formulas of its own."""
    tried = 0
    for shape in testing.random_shapes(24, 11, kinds=[kind]):
        lng, lat = testing.points_for(shape, 1500, 3)
        verdicts = BruteForce().decide(shape, lng, lat)
        for status in (
            settle_points(region_of(shape), lng, lat),
            settle_cells(region_of(shape), points_to_cells(lng, lat)),
        ):
            sure = (status != UNSURE) & (verdicts != testing.UNSURE)
            expected = np.where(verdicts == testing.IN, IN, OUT)
            assert status[sure].tolist() == expected[sure].tolist()
            tried += int(sure.sum())
    assert tried > 30_000


@pytest.mark.parametrize("seed", range(12))
def test_shapely_agrees_on_flat_shapes(seed: int) -> None:
    shape = next(testing.random_shapes(1, seed, kinds=[("box", "flat_polygon")[seed % 2]]))
    exact = shapely.Polygon(shape.polygons()[0][0])
    lng, lat = testing.points_for(shape, 3000, seed)
    status = settle_points(region_of(shape), lng, lat)
    inside = shapely.contains_xy(exact, lng, lat)
    away = shapely.distance(exact.boundary, shapely.points(lng, lat))
    assert inside[status == IN].all()
    assert not inside[status == OUT].any()
    # Unsure is not an excuse: only within the tolerance (times the corner of its square) of the border.
    assert (away[status == UNSURE] <= 1.5 * TOLERANCE_DEG).all()
    assert (status[away < 0.5 * TOLERANCE_DEG] == UNSURE).all()


def test_unsure_is_rare() -> None:
    shape = next(testing.random_shapes(1, 4, kinds=["polygon"], around=[(10.0, 50.0)], smallest_deg=1))
    lng, lat = travel(
        np.full(20_000, 10.0),
        np.full(20_000, 50.0),
        np.linspace(0, 50, 20_000),
        np.linspace(0, 1.2 * shape.radius_deg, 20_000),
    )
    status = settle_points(region_of(shape), lng, lat)
    assert (status == UNSURE).sum() <= 2
    assert min((status == IN).sum(), (status == OUT).sum()) > 2000


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32))
def test_a_cell_is_settled_for_all_its_points(kind: str, seed: int) -> None:
    """Whatever point of the cell a document is at, what was said of the cell is not contradicted."""
    rng = np.random.default_rng(seed)
    question = KINDS[kind](rng)
    try:
        region = question.to_region()
    except (GeometryError, UnsupportedShape):
        return
    cells = points_to_cells(*points_for(question, rng, 200))
    by_cell = settle_cells(region, cells)
    west, south, east, north = cells_to_bounds(cells)
    for lng, lat in ((west, south), (east, north), (west, north), (east, south)):
        by_point = settle_points(region, lng, lat)
        assert not ((by_cell == IN) & (by_point == OUT)).any()
        assert not ((by_cell == OUT) & (by_point == IN)).any()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32))
def test_points_are_settled_alone_as_together(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    question = KINDS[kind](rng)
    try:
        region = question.to_region()
    except (GeometryError, UnsupportedShape):
        return
    lng, lat = points_for(question, rng, 60)
    together = settle_points(region, lng, lat)
    alone = [int(settle_points(region, [x], [y])[0]) for x, y in zip(lng, lat, strict=True)]
    assert together.tolist() == alone
    assert together.dtype == np.int8


def test_many_points_against_many_edges_in_pieces() -> None:
    """More pairs of point and edge than are looked at together."""
    rng = np.random.default_rng(1)
    bearing = np.sort(rng.uniform(0, 2 * np.pi, 5000))
    x, y = travel(np.full(5000, 20.0), np.full(5000, 30.0), bearing, rng.uniform(8, 10, 5000))
    ring = np.stack([x, y], axis=1).tolist()
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}})
    lng, lat = rng.uniform(8, 32, 100_000), rng.uniform(20, 40, 100_000)
    whole = settle_points(region, lng, lat)
    parts = [settle_points(region, lng[i : i + 777], lat[i : i + 777]) for i in range(0, 100_000, 777)]
    assert whole.tolist() == np.concatenate(parts).tolist()
    assert set(whole.tolist()) >= {IN, OUT}


@pytest.mark.parametrize("side", [-1, 1])
def test_points_on_the_meridian_of_a_vertex(side: int) -> None:
    """The longitude of a vertex belongs to one of its two edges, whatever rounding makes of it."""
    rng = np.random.default_rng(5)
    for _ in range(100):
        n = int(rng.integers(4, 40))
        bearing = np.linspace(0, 2 * np.pi, n, endpoint=False)[::side] + 0.1
        centre = (float(rng.choice([-180, 180, rng.uniform(-170, 170)])), float(rng.uniform(-60, 60)))
        far = rng.uniform(1, 2, n)
        x, y = travel(np.full(n, centre[0]), np.full(n, centre[1]), bearing, far)
        x, y = x.round(4), y.round(4)
        ring = np.stack([x, y], axis=1).tolist()
        region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}})
        lng = np.repeat(x, 30)
        lat = np.tile(np.linspace(centre[1] - 3, centre[1] + 3, 30), n)
        there = settle_points(region, lng, lat)
        beside = settle_points(region, np.clip(lng + 1e-7, -180, 180), lat)
        sure = (there != UNSURE) & (beside != UNSURE) & (np.abs(lng) < 180)
        # A tenth of a micro-degree aside a sure point is no different, but for those at a nearly vertical edge.
        assert (there[sure] != beside[sure]).sum() == 0


def test_no_points_and_unequal_numbers_of_coordinates() -> None:
    region = within_to_region({"$box": [[0, 0], [1, 1]]})
    assert settle_points(region, [], []).size == settle_cells(region, []).size == 0
    with pytest.raises(UsageError, match="2 longitudes but 1 latitudes"):
        settle_points(region, [1, 2], [3])


def test_the_tolerance_is_as_stated() -> None:
    assert TOLERANCE_RAD == 1e-8
    region = within_to_region({"$box": [[0, 0], [1, 1]]})
    aside = np.array([-1.1, -0.9, 0, 0.9, 1.1]) * TOLERANCE_DEG
    assert settle_points(region, aside, np.full(5, 0.5)).tolist() == [OUT, UNSURE, UNSURE, UNSURE, IN]
    ring = [[0, -1], [1, -1], [1, 1], [0, 1], [0, -1]]
    region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [ring]}})
    assert settle_points(region, aside, np.full(5, 0.0)).tolist() == [OUT, UNSURE, UNSURE, UNSURE, IN]


@pytest.mark.parametrize("lat", [-90.0, -89.9999999, -60.0, 0.0, 60.0, 89.9999999, 90.0])
@pytest.mark.parametrize("lng", [-180.0, -74.0, 0.0, 120.3, 180.0])
def test_a_tiny_ring_is_not_all_the_rest_of_the_world(lng: float, lat: float) -> None:
    """Which side is the smaller hangs on the sign of an area of square millimetres."""
    rng = np.random.default_rng(3)
    far = np.array([[lng, 30.0 if lat <= 0 else -30.0], [50.0, 10.0], [-130.0, -10.0]])
    for _ in range(60):
        n = int(rng.integers(3, 10))
        bearing = (np.arange(n) + rng.uniform(0, 0.5, n)) * 2 * np.pi / n
        size = 10 ** rng.uniform(-8, -4) * rng.uniform(0.5, 1, n)
        x, y = travel(np.full(n, lng), np.full(n, lat), bearing * rng.choice([-1, 1]), size)
        ring = np.stack([x, y], axis=1).tolist()
        try:
            region = within_to_region({"$geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}})
        except (GeometryError, UnsupportedShape):
            continue
        assert settle_points(region, far[:, 0], far[:, 1]).tolist() == [OUT, OUT, OUT]
