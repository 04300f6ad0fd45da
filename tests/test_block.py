"""Blocks of cells around small circles: they hold all of the circle that they say they hold."""

from __future__ import annotations

import numpy as np
import pytest

from spatialnosql.block import block_around
from spatialnosql.geohash import points_to_cells
from spatialnosql.sphere import distances_m
from spatialnosql.testing.sphere import log_uniform, travel

RADIUS_M = 6_378_100.0


def centres(n: int, seed: int) -> np.ndarray:
    """Anywhere; every other one within metres of a corner of cells, of ten one each at the antimeridian and a pole."""
    rng = np.random.default_rng(seed)
    anywhere = rng.uniform([-180, -90], [180, 90], (n, 2))
    anywhere[::10, 0] = np.clip(
        180.0 - 10 ** rng.uniform(-9, 0, len(anywhere[::10])), -180, 180
    ) * rng.choice([-1, 1], len(anywhere[::10]))
    anywhere[5::10, 1] = (90.0 - 10 ** rng.uniform(-9, 1, len(anywhere[5::10]))) * rng.choice(
        [-1, 1], len(anywhere[5::10])
    )
    size = np.array([360.0, 180.0]) / 2.0 ** rng.integers(2, 25, (n, 1))
    corner = np.round(anywhere / size) * size + rng.normal(0, 1e-7, (n, 2)) * rng.integers(0, 2, (n, 1))
    return np.where(np.arange(n)[:, None] % 4 < 2, anywhere, np.clip(corner, [-180, -90], [180, 90]))


MOST_CELLS = (4, 8, 16, 64)


@pytest.mark.parametrize("most_cells", MOST_CELLS)
def test_every_point_of_the_circle_lies_in_the_ranges(most_cells: int) -> None:
    rng = np.random.default_rng(2)
    made = 0
    for lng, lat in centres(400, 1).tolist():
        radius = float(log_uniform(rng, 0.01, 1.2e5))
        found = block_around(lng, lat, radius, most_cells)
        if found is None:
            continue
        made += 1
        ranges, fits = found
        assert 0 < len(ranges) <= most_cells
        assert fits >= radius - 2e-3
        # Up to the rim itself: above all there.
        far = np.concatenate([fits * np.sqrt(rng.random(200)), np.full(200, fits * (1 - 1e-9))])
        x, y = travel(
            np.full(400, lng), np.full(400, lat), rng.uniform(0, 7, 400), np.degrees(far / RADIUS_M)
        )
        inside = distances_m(lng, lat, x, y) <= fits
        assert inside.sum() >= 200
        assert ranges.contains(points_to_cells(x, y))[inside].all()
    assert made > 300


@pytest.mark.parametrize(("most_cells", "most"), [(8, 60), (16, 30), (64, 8)])
def test_the_block_is_not_much_larger_than_its_circle(most_cells: int, most: float) -> None:
    rng = np.random.default_rng(3)
    for lng, lat in centres(200, 4).tolist():
        radius = float(log_uniform(rng, 1, 1e4))
        found = block_around(lng, lat, radius, most_cells)
        if found is not None and abs(lat) < 84:  # around a pole cells are large
            ranges, _ = found
            share = float((ranges.hi - ranges.lo).astype(float).sum()) / 2.0**60
            area = share * 2 * np.pi**2 * RADIUS_M**2 * np.cos(np.radians(lat))
            assert area < most * np.pi * radius**2


@pytest.mark.parametrize(
    ("lng", "lat", "radius_m"),
    [
        (10.0, 10.0, 0.0),
        (10.0, 10.0, 2e5),
        (10.0, 10.0, 2e7),
    ],
)
def test_where_a_block_is_no_good(lng: float, lat: float, radius_m: float) -> None:
    assert all(block_around(lng, lat, radius_m, most) is None for most in MOST_CELLS)


@pytest.mark.parametrize(
    ("lng", "lat"), [(180.0, 0.0), (-180.0, 0.0), (179.99999, 10.0), (-179.99999, -40.0), (180.0, 84.0)]
)
def test_both_sides_of_the_antimeridian(lng: float, lat: float) -> None:
    found = block_around(lng, lat, 500.0, 16)
    assert found is not None
    ranges, fits = found
    assert fits >= 500.0
    beside = np.array([180.0, -180.0, 179.9999, -179.9999])
    assert ranges.contains(points_to_cells(beside, np.full(4, lat))).all()


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_around_a_pole(pole: float) -> None:
    for most_cells in (16, 64):
        found = block_around(123.0, pole, 5_000.0, most_cells)
        assert found is not None
        ranges, fits = found
        assert fits > 5_000.0
        lng = np.linspace(-180, 180, 50)
        assert ranges.contains(points_to_cells(lng, np.full(50, pole * 0.9999))).all()
        assert not ranges.contains(points_to_cells(lng, np.full(50, pole * 0.5))).any()
