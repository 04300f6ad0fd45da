"""Radii by the histogram, against the points themselves."""

from __future__ import annotations

import numpy as np
import pytest

from spatialnosql import density
from spatialnosql.density import HALF_EARTH_M, radius_m
from spatialnosql.geohash import cells_to_points
from spatialnosql.histogram import Histogram
from spatialnosql.sphere import distances_m
from spatialnosql.testing import points_clustered, points_on_sphere
from spatialnosql.testing.sphere import Floats, travel

CITY = (2.35, 48.86)
PLACES = {
    "city": CITY,
    "ocean": (-140.0, -35.0),
    "pole": (17.0, 90.0),
    "antimeridian": (180.0, 10.0),
    "other side": (-177.65, -48.86),
}


def city(n: int = 20_000) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(1)
    return CITY[0] + rng.normal(0, 0.1, n), CITY[1] + rng.normal(0, 0.1, n)


DATA = {
    "city": city(),
    "clusters": points_clustered(20_000, 3),
    "everywhere": points_on_sphere(20_000, 4),
    "both sides of 180": travel(180.0, 10.0, np.linspace(0, 7, 5000), np.linspace(0.001, 2, 5000)),
    "around a pole": travel(0.0, 90.0, np.linspace(0, 70, 5000), np.linspace(0.001, 5, 5000)),
}


@pytest.mark.parametrize("bits", [11, 20, 30, 35])
@pytest.mark.parametrize("data", DATA)
def test_about_so_many_points_lie_within_the_radius(data: str, bits: int) -> None:
    """As many as are wanted, but for the size of the cells: not a ring of them too few, not one too many."""
    lng, lat = DATA[data]
    histogram = Histogram.of_points(lng, lat, bits)
    for x, y in PLACES.values():
        real = np.sort(distances_m(x, y, lng, lat))
        for wanted in (16.5, 100.0, 3000.0):
            radius = radius_m(x, y, wanted, histogram)
            assert 0 < radius <= HALF_EARTH_M
            kth = real[int(wanted) - 1]
            # No cell is larger than this; near a pole only its height counts.
            slack = cell_diagonal_m(bits)
            assert radius <= 2.5 * kth + 2 * slack
            assert radius >= 0.25 * kth - 2 * slack


def cell_diagonal_m(bits: int) -> float:
    width, height = 2 / 2 ** ((bits + 1) // 2), 1 / 2 ** (bits // 2)
    return float(np.hypot(width, height) * HALF_EARTH_M)


@pytest.mark.parametrize("data", DATA)
def test_beyond_a_distance_only_what_is_farther_counts(data: str) -> None:
    lng, lat = DATA[data]
    histogram = Histogram.of_points(lng, lat, 30)
    for x, y in PLACES.values():
        real = np.sort(distances_m(x, y, lng, lat))
        for skipped in (10, 500, 2500):
            beyond = float(real[skipped])
            radius = radius_m(x, y, 100.0, histogram, beyond_m=beyond)
            assert beyond <= radius <= HALF_EARTH_M
            slack = cell_diagonal_m(30)
            assert radius <= beyond + 3 * (real[skipped + 100] - beyond) + 3 * slack


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [5, 12, 30])
def test_without_enough_points_all_around_the_earth(place: str, bits: int) -> None:
    nothing = Histogram.of_points([], [], bits)
    few = Histogram.of_points([CITY[0]] * 3, [CITY[1]] * 3, bits)
    for histogram in (nothing, few):
        assert radius_m(*PLACES[place], 16.5, histogram) == HALF_EARTH_M
        assert radius_m(*PLACES[place], 16.5, histogram, beyond_m=5e6) == HALF_EARTH_M
    assert radius_m(*PLACES[place], 1, few, beyond_m=3e7) >= HALF_EARTH_M


@pytest.mark.parametrize("place", PLACES)
def test_one_cell_is_reached_and_not_much_more(place: str) -> None:
    one = Histogram(30, Histogram.of_points([CITY[0]], [CITY[1]], 30).cells, np.array([1000]))
    at = cells_to_points(one.cells << np.uint64(30))
    centre = float(distances_m(*PLACES[place], *at)[0])
    radius = radius_m(*PLACES[place], 500.0, one)
    assert abs(radius - centre) <= cell_diagonal_m(30)


def test_an_even_density_gives_the_radius_of_its_area() -> None:
    """N points on a square: the circle that holds k of them has k / N of its area."""
    rng = np.random.default_rng(6)
    lng, lat = rng.uniform(-1, 1, 200_000), rng.uniform(-1, 1, 200_000)
    histogram = Histogram.of_points(lng, lat, 30)
    for wanted in (16.5, 200.0, 5000.0):
        area = (2 * HALF_EARTH_M / 180) ** 2 * wanted / 200_000
        assert radius_m(0.1, 0.05, wanted, histogram) == pytest.approx(np.sqrt(area / np.pi), rel=0.25)


@pytest.mark.parametrize("bits", [20, 30])
def test_an_even_density_beyond_a_distance(bits: int) -> None:
    """The same for a ring: its area is that of both circles' difference, whether or not cells lie across its border."""
    rng = np.random.default_rng(6)
    lng, lat = rng.uniform(-1, 1, 200_000), rng.uniform(-1, 1, 200_000)
    histogram = Histogram.of_points(lng, lat, bits)
    for beyond in (20_000.0, 50_000.0):
        radius = radius_m(0.1, 0.05, 20_000.0, histogram, beyond_m=beyond)
        within = (distances_m(0.1, 0.05, lng, lat) <= radius) & (distances_m(0.1, 0.05, lng, lat) > beyond)
        assert within.sum() == pytest.approx(20_000, rel=0.5)


def test_no_more_places_are_remembered_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "_MOST_REMEMBERED", 10)
    histogram = Histogram.of_points([2.0] * 50, [3.0] * 50, 30)
    for number in range(25):
        density.learn_radius(2.0 + number, 3.0, 5.0, histogram, 1000.0 + number)
    kept = [density.remembered_radius_m(2.0 + number, 3.0, 5.0, histogram) for number in range(25)]
    assert kept[-1] == 1024.0
    assert 0 < sum(one is not None for one in kept) <= 10
