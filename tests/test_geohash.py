"""Cells, strings and ranges: equal to pygeohash to the last bit, and what the borders of the world do."""

from __future__ import annotations

import numpy as np
import pygeohash
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialnosql import testing
from spatialnosql.errors import CoordinateError, UsageError
from spatialnosql.geohash import (
    ALPHABET,
    BITS,
    END_OF_STRINGS,
    bound_to_string,
    cell_children,
    cell_neighbours,
    cell_parents,
    cell_to_string_range,
    cells_to_bounds,
    cells_to_indices,
    cells_to_points,
    cells_to_ranges,
    cells_to_strings,
    indices_to_cells,
    merge_ranges,
    point_to_geohash,
    points_to_cells,
    points_to_cells_masked,
    points_to_strings,
    range_to_strings,
    strings_to_cells,
)

LNGS = st.floats(-180, 180)
LATS = st.floats(-90, 90)
EDGES = [
    (lng, lat)
    for lng in (-180.0, 180.0, 0.0, -0.0, 5e-324, -5e-324, 1e-300, 45.0, -135.0, 179.99999999999997)
    for lat in (-90.0, 90.0, 0.0, -0.0, 5e-324, -5e-324, 1e-300, 22.5, -67.5, 89.99999999999999)
]


def awkward_points() -> tuple[np.ndarray, np.ndarray]:
    """Random places, cell borders of every precision with the doubles beside them, and the borders of the world."""
    parts = [testing.points_on_sphere(3000), testing.points_at_cell_borders(6000), np.array(EDGES).T]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def by_bisection(lng: float, lat: float, bits: int) -> int:
    """The definition of a geohash: halve the longitude, halve the latitude, and so on."""
    sides = {0: [-180.0, 180.0], 1: [-90.0, 90.0]}
    cell = 0
    for bit in range(bits):
        low, high = sides[bit % 2]
        middle, value = (low + high) / 2, (lng, lat)[bit % 2]
        cell = 2 * cell + (value >= middle)
        sides[bit % 2] = [middle, high] if value >= middle else [low, middle]
    return cell


# -- points -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(1, 13))
def test_strings_are_pygeohashs(length: int) -> None:
    lng, lat = awkward_points()
    expected = [pygeohash.encode(y, x, length) for x, y in zip(lng.tolist(), lat.tolist(), strict=True)]
    assert points_to_strings(lng, lat, length).tolist() == expected
    assert point_to_geohash(lng[7], lat[7], length) == expected[7]


@given(LNGS, LATS, st.integers(0, BITS))
def test_cells_of_every_precision_are_what_bisection_gives(lng: float, lat: float, bits: int) -> None:
    assert int(points_to_cells([lng], [lat], bits)[0]) == by_bisection(lng, lat, bits)


def test_doubles_beside_every_sort_of_border() -> None:
    rng = np.random.default_rng(3)
    index = np.concatenate([rng.integers(0, 2**30, 2000), [0, 1, 2**29, 2**30 - 1]])
    lng, lat = -180 + index * (360 / 2**30), -90 + index * (180 / 2**30)
    for side in (-1, 0, 1):
        x = np.clip(np.nextafter(lng, side * 1e3) if side else lng, -180, 180)
        y = np.clip(np.nextafter(lat, side * 1e3) if side else lat, -90, 90)
        expected = [by_bisection(a, b, 60) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert points_to_cells(x, y).tolist() == expected


def test_any_shape_and_no_points_at_all() -> None:
    lng, lat = testing.points_on_sphere(24)
    cells = points_to_cells(lng.reshape(2, 3, 4), lat.reshape(2, 3, 4))
    assert cells.shape == (2, 3, 4)
    assert cells.dtype == np.uint64
    assert cells.ravel().tolist() == points_to_cells(lng, lat).tolist()
    assert cells_to_strings(cells).shape == (2, 3, 4)
    assert strings_to_cells(cells_to_strings(cells)).tolist() == cells.tolist()
    assert points_to_cells(5.5, 7.5).shape == ()
    assert points_to_cells([], []).size == cells_to_strings([]).size == strings_to_cells([]).size == 0
    assert points_to_cells([1, 2], [3, 4]).tolist() == points_to_cells([1.0, 2.0], [3.0, 4.0]).tolist()


def test_more_points_than_are_worked_on_at_a_time() -> None:
    lng, lat = testing.points_on_sphere(30_000)
    cells = points_to_cells(lng, lat)
    for at in (0, 8191, 8192, 16383, 16384, 29_999):
        assert int(cells[at]) == by_bisection(float(lng[at]), float(lat[at]), 60)
    assert strings_to_cells(cells_to_strings(cells)).tolist() == cells.tolist()


@pytest.mark.parametrize(
    ("lng", "lat", "message"),
    [
        (
            [0, 200, 300],
            [0, 0, 0],
            "longitude 200.0 at position 1 is no place on Earth; it must be between -180 and 180",
        ),
        (
            [0, 0],
            [90, np.nextafter(90, 100)],
            "latitude 90.00000000000001 at position 1 is no place on Earth; .* -90",
        ),
        ([0, float("nan")], [0, 0], "longitude nan at position 1"),
        ([0, 0], [float("nan"), 0], "latitude nan at position 0"),
        ([float("inf")], [0], "longitude inf at position 0"),
        ([0], [float("-inf")], "latitude -inf at position 0"),
    ],
)
def test_what_is_no_place_is_named_with_its_position(
    lng: list[float], lat: list[float], message: str
) -> None:
    with pytest.raises(CoordinateError, match=message):
        points_to_cells(lng, lat)


def test_one_point_that_is_no_place() -> None:
    with pytest.raises(CoordinateError, match=r"latitude 91.0 at position 0"):
        point_to_geohash(0, 91)
    with pytest.raises(CoordinateError, match="longitude nan at position 0"):
        point_to_geohash(float("nan"), 0)


def test_the_mask_says_which_points_are_places() -> None:
    cells, valid = points_to_cells_masked([1.0, np.nan, 3.0, 181.0], [2.0, 0.0, np.inf, 0.0])
    assert valid.tolist() == [True, False, False, False]
    assert cells.tolist() == [by_bisection(1, 2, 60), 0, 0, 0]


def test_arguments_that_cannot_be_meant_so() -> None:
    with pytest.raises(UsageError, match="2 longitudes but 1 latitudes"):
        points_to_cells([1, 2], [3])
    with pytest.raises(
        UsageError, match="a precision of 61 bits does not exist; it must be between 0 and 60"
    ):
        points_to_cells([1], [2], 61)
    with pytest.raises(UsageError, match="a precision of -1 bits"):
        cells_to_bounds([1], -1)
    with pytest.raises(UsageError, match="a geohash of 13 characters does not exist; between 1 and 12"):
        points_to_strings([1], [2], 13)
    with pytest.raises(UsageError, match="a geohash of 0 characters"):
        point_to_geohash(1, 2, 0)


# -- cells ------------------------------------------------------------------------------------------------


@given(LNGS, LATS, st.integers(0, BITS))
def test_bounds_hold_the_point_and_are_exact(lng: float, lat: float, bits: int) -> None:
    cell = points_to_cells([lng], [lat], bits)
    west, south, east, north = (float(side[0]) for side in cells_to_bounds(cell, bits))
    assert west <= lng
    assert lng < east or lng == east == 180
    assert south <= lat
    assert lat < north or lat == north == 90
    assert east - west == 360 / 2 ** ((bits + 1) // 2)
    assert north - south == 180 / 2 ** (bits // 2)
    # The corner is the cell's own, the double before it is not: nothing was rounded.
    assert points_to_cells([west], [south], bits) == cell
    if west > -180:
        assert points_to_cells([np.nextafter(west, -1e3)], [south], bits) != cell
    assert points_to_cells(*cells_to_points(cell, bits), bits) == cell


def test_bounds_of_known_cells() -> None:
    assert [float(side) for side in cells_to_bounds(0, 0)] == [-180, -90, 180, 90]
    assert [float(side) for side in cells_to_bounds(1, 1)] == [0, -90, 180, 90]
    assert [float(side) for side in cells_to_bounds(0b10, 2)] == [0, -90, 180, 0]
    middle = pygeohash.decode_exactly("dr5ru")
    lng, lat = cells_to_points(strings_to_cells(["dr5ru"]) >> np.uint64(35), 25)
    assert (float(lng[0]), float(lat[0])) == pytest.approx((middle.longitude, middle.latitude), abs=1e-12)


@given(st.integers(0, BITS), st.data())
def test_indices_and_back(bits: int, data: st.DataObject) -> None:
    cell = data.draw(st.integers(0, 2**bits - 1))
    x, y = cells_to_indices([cell], bits)
    assert x[0] < 2 ** ((bits + 1) // 2)
    assert y[0] < 2 ** (bits // 2)
    assert indices_to_cells(x, y, bits).tolist() == [cell]


@given(LNGS, LATS, st.integers(0, BITS), st.integers(0, BITS))
def test_parents_are_the_cells_of_a_coarser_precision(lng: float, lat: float, one: int, other: int) -> None:
    coarse, fine = sorted((one, other))
    cells = points_to_cells([lng], [lat], fine)
    assert cell_parents(cells, fine, coarse).tolist() == points_to_cells([lng], [lat], coarse).tolist()


@pytest.mark.parametrize(("bits", "finer"), [(0, 1), (7, 8), (7, 12), (58, 60), (5, 5)])
def test_children_fill_their_parent(bits: int, finer: int) -> None:
    cell = 2**bits // 3
    children = cell_children(cell, bits, finer)
    assert len(children) == 2 ** (finer - bits)
    assert set(cell_parents(children, finer, bits).tolist()) == {cell}
    lo, hi = merge_ranges(*cells_to_ranges(children, finer))
    assert (lo.tolist(), hi.tolist()) == tuple(bound.tolist() for bound in cells_to_ranges([cell], bits))
    assert cell_children(cell, bits, bits + 1).tolist() == [2 * cell, 2 * cell + 1]


def test_families_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="parent_bits is 11; a parent of 10 bits has between 0 and 10"):
        cell_parents([1], 10, 11)
    with pytest.raises(UsageError, match="child_bits is 9; at most 24 bits more than the cell's 10"):
        cell_children(1, 10, 9)
    with pytest.raises(UsageError, match="child_bits is 35"):
        cell_children(1, 10, 35)
    with pytest.raises(UsageError, match="a precision of 61 bits"):
        cell_children(1, 60)


STEPS = {
    "N": (0, 1),
    "NE": (1, 1),
    "E": (1, 0),
    "SE": (1, -1),
    "S": (0, -1),
    "SW": (-1, -1),
    "W": (-1, 0),
    "NW": (-1, 1),
}


@pytest.mark.parametrize("bits", [5, 10, 23, 30, 59, 60])
def test_neighbours_are_a_step_away(bits: int) -> None:
    lng, lat = testing.points_on_sphere(300)
    lat = lat * 0.8
    cells = points_to_cells(lng, lat, bits)
    west, south, east, north = cells_to_bounds(cells, bits)
    x, y = (west + east) / 2, (south + north) / 2
    for number, (dx, dy) in enumerate(STEPS.values()):
        to_lng = (x + dx * (east - west) + 180) % 360 - 180
        to_lat = y + dy * (north - south)
        there = np.abs(to_lat) < 90
        expected = points_to_cells(to_lng[there], to_lat[there], bits)
        assert cell_neighbours(cells, bits)[there, number].tolist() == expected.tolist()


@pytest.mark.parametrize("length", [3, 5, 6, 8])
def test_neighbours_are_pygeohashs(length: int) -> None:
    for text in ("dr5ru7zz", "u4pruydq", "6gkzwgjz", "zzpgxczb"):
        cells = strings_to_cells([text[:length]]) >> np.uint64(BITS - 5 * length)
        found = cells_to_strings(
            cell_neighbours(cells, 5 * length)[0] << np.uint64(BITS - 5 * length), length
        )
        names = dict(zip(STEPS, found.tolist(), strict=True))
        for name, direction in {"N": "top", "S": "bottom", "E": "right", "W": "left"}.items():
            assert names[name] == pygeohash.get_adjacent(text[:length], direction)


def test_neighbours_across_the_antimeridian_and_beyond_the_poles() -> None:
    bits = 20

    def at(lng: float, lat: float) -> int:
        return int(points_to_cells([lng], [lat], bits)[0])

    east, west = at(179.99, 10), at(-179.99, 10)
    names = dict(zip(STEPS, cell_neighbours(east, bits).tolist(), strict=True))
    assert names["E"] == west
    assert dict(zip(STEPS, cell_neighbours(west, bits).tolist(), strict=True))["W"] == east
    top = dict(zip(STEPS, cell_neighbours(at(10, 89.99), bits).tolist(), strict=True))
    assert top["N"] == at(-170, 89.99)
    assert top["S"] == at(10, 89.7)
    width = 360 / 2**10
    assert top["NE"] == at(-170 + width, 89.99)
    bottom = dict(zip(STEPS, cell_neighbours(at(10, -89.99), bits).tolist(), strict=True))
    assert bottom["S"] == at(-170, -89.99)
    assert bottom["SW"] == at(-170 - width, -89.99)
    # In a grid of one cell every neighbour is the cell itself.
    assert cell_neighbours(0, 0).tolist() == [0] * 8


@pytest.mark.parametrize("bits", [8, 9])
def test_to_be_a_neighbour_is_mutual(bits: int) -> None:
    every = np.arange(2**bits)
    neighbours = cell_neighbours(every, bits)
    for cell in every.tolist():
        for other in neighbours[cell].tolist():
            assert cell in neighbours[other]


# -- ranges -----------------------------------------------------------------------------------------------


@given(LNGS, LATS, LNGS, LATS, st.integers(0, BITS))
def test_a_cell_is_a_range_of_cells_and_of_strings(
    lng: float, lat: float, other_lng: float, other_lat: float, bits: int
) -> None:
    cell = int(points_to_cells([lng], [lat], bits)[0])
    fine = points_to_cells([lng, other_lng], [lat, other_lat])
    lo, hi = (int(bound[0]) for bound in cells_to_ranges([cell], bits))
    first, last = cell_to_string_range(cell, bits)
    for number, text in zip(fine.tolist(), cells_to_strings(fine).tolist(), strict=True):
        inside = number >> (BITS - bits) == cell
        assert (lo <= number < hi) == inside
        assert (first <= text < last) == inside


def test_bounds_as_strings_are_short_and_end_after_everything() -> None:
    assert bound_to_string(0) == ""
    assert bound_to_string(2**60) == END_OF_STRINGS > "zzzzzzzzzzzz"
    assert bound_to_string(int(strings_to_cells(["dr5"])[0])) == "dr5"
    assert bound_to_string(int(strings_to_cells(["dr5000000001"])[0])) == "dr5000000001"
    assert cell_to_string_range(0, 0) == ("", END_OF_STRINGS)
    assert cell_to_string_range(0b01100, 5) == ("d", "e")
    assert cell_to_string_range(31, 5) == ("z", END_OF_STRINGS)
    assert range_to_strings(1, 2**60) == ("000000000001", END_OF_STRINGS)


@given(st.lists(st.integers(0, 2**60), min_size=2, max_size=40, unique=True))
def test_bounds_sort_as_cells_do(bounds: list[int]) -> None:
    assert [bound_to_string(bound) for bound in sorted(bounds)] == sorted(map(bound_to_string, bounds))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20))))
def test_merged_ranges_hold_the_same_cells(parts: list[tuple[int, int]]) -> None:
    lo, hi = [a for a, _ in parts], [a + size for a, size in parts]
    merged_lo, merged_hi = (bound.tolist() for bound in merge_ranges(lo, hi))
    members = {cell for a, b in zip(lo, hi, strict=True) for cell in range(a, b)}
    found = [cell for a, b in zip(merged_lo, merged_hi, strict=True) for cell in range(a, b)]
    assert found == sorted(members)
    # As few as can be: none empty, none touching the next.
    assert all(a < b for a, b in zip(merged_lo, merged_hi, strict=True))
    assert all(b < a for b, a in zip(merged_hi, merged_lo[1:], strict=False))


def test_ranges_merge_to_the_end_of_the_world() -> None:
    lo, hi = merge_ranges(*cells_to_ranges([3, 0, 1, 2], 2))
    assert (lo.tolist(), hi.tolist()) == ([0], [2**60])


# -- strings ----------------------------------------------------------------------------------------------


@given(st.text(ALPHABET, max_size=12))
def test_strings_to_cells_and_back(text: str) -> None:
    cells = strings_to_cells([text])
    assert str(cells_to_strings(cells)[0]) == text.ljust(12, "0")
    if text:
        assert str(cells_to_strings(cells, len(text))[0]) == text


def test_strings_of_several_lengths_together() -> None:
    texts = ["dr5ru", "z", "", "u4pruydqqvj8"]
    assert strings_to_cells(texts).tolist() == [int(strings_to_cells([text])[0]) for text in texts]
    assert strings_to_cells(np.array(texts[:2])).tolist() == strings_to_cells(texts)[:2].tolist()


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (
            ["dr5", "dra"],
            "'a' in 'dra' at position 1 is no geohash character; they are 0123456789bcdefghjkmnpqrstuvwxyz",
        ),
        (["DR5"], "'D' in 'DR5' at position 0"),
        (["dr5é"], "'é' in 'dr5é'"),
        (["dr5 "], "' ' in 'dr5 '"),
        (["0123456789bcd"], "a geohash of 13 characters is too long; at most 12"),
    ],
)
def test_what_is_no_geohash_is_named(strings: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        strings_to_cells(strings)


@pytest.mark.parametrize("n", [1, 2, 63, 1000])
def test_lists_are_read_as_arrays_are(n: int) -> None:
    cells = np.random.default_rng(n).integers(0, 1 << BITS, n, dtype=np.uint64)
    strings = cells_to_strings(cells)
    assert strings_to_cells(strings.tolist()).tolist() == strings_to_cells(strings).tolist() == cells.tolist()
    shorter = [*strings.tolist(), "dr5", "u"]
    assert strings_to_cells(shorter).tolist() == strings_to_cells(np.array(shorter)).tolist()
    assert strings_to_cells(["dr5ru"] * 12).tolist() == [strings_to_cells("dr5ru").item()] * 12


@pytest.mark.parametrize("wrong", ["dr5ruaaaaaaa", "DR5RU0000000", "dr5rué000000", "dr5ru 000000"])
def test_a_list_with_a_wrong_character_says_where(wrong: str) -> None:
    good = "dr5ru0000000"
    with pytest.raises(UsageError, match="at position 1 is no geohash"):
        strings_to_cells([good, wrong])


def test_lengths_that_add_up_are_not_taken_for_twelve_each() -> None:
    with pytest.raises(UsageError, match="13 characters is too long"):
        strings_to_cells(["dr5ru000000", "dr5ru00000000"])
