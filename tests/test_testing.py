"""The helpers that other tests trust: they must fail when they should."""

import numpy as np
import pytest

import spatialnosql.testing as testing
from spatialnosql.errors import UsageError
from spatialnosql.testing import (
    IN,
    KINDS,
    OUT,
    UNSURE,
    BruteForce,
    ServerOracle,
    Shape,
    assert_same_documents,
    disagreements,
    points_at_cell_borders,
    points_clustered,
    points_for,
    points_near,
    points_on_sphere,
    random_shapes,
)

DOCS = [{"_id": i, "a": i % 3, "loc": [1.0, 2.0]} for i in range(10)]


def test_all_is_sorted_and_true() -> None:
    assert sorted(testing.__all__) == sorted(set(testing.__all__))
    for name in testing.__all__:
        assert hasattr(testing, name)


# --- both give the same -----------------------------------------------------------------------------------


def test_the_same_documents_pass_in_any_order() -> None:
    assert_same_documents(DOCS, DOCS[::-1])
    assert_same_documents(iter(DOCS), iter(DOCS), ordered=True)


def with_change(index: int, **fields: object) -> list[dict]:
    return [d if i != index else {**d, **fields} for i, d in enumerate(DOCS)]


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (DOCS[:-1], r"10 documents expected, 9 found\n  missing: 1\n    \{'_id': 9, "),
        ([], "missing: 10\n(.*\n){5}    ... and 5 more"),
        ([*DOCS, {"_id": 10}], r"not expected: 1\n    \{'_id': 10\}"),
        ([*DOCS, DOCS[4]], r"not expected: 1\n    \{'_id': 4.*expected 1 times, found 2"),
        ([*DOCS[:-1], DOCS[0]], r"missing: 1\n.*'_id': 9(.*\n)+  not expected: 1\n.*'_id': 0"),
        (with_change(3, a=7), r"changed: 1\n    3: 'a' 0 -> 7$"),
        (with_change(3, a=0.0), r"changed: 1\n    3: 'a' 0 -> 0.0$"),
        (with_change(3, b=1), r"changed: 1\n    3: with 'b' = 1$"),
        (with_change(3, loc=[2.0, 1.0]), r"3: 'loc' \[1.0, 2.0\] -> \[2.0, 1.0\]"),
        ([{"_id": 0, "loc": [1.0, 2.0], "a": 0}, *DOCS[1:]], "0: fields in another order"),
        ([{"_id": 0, "loc": [1.0, 2.0]}, *DOCS[1:]], "0: without 'a'"),
    ],
)
def test_it_fails_and_says_how_documents_differ(actual: list[dict], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same_documents(DOCS, actual)


def test_it_fails_on_a_wrong_order_only_when_order_counts() -> None:
    swapped = [DOCS[1], DOCS[0], *DOCS[2:]]
    assert_same_documents(DOCS, swapped)
    with pytest.raises(AssertionError, match="in the wrong order: 2\n    at 0: 0 expected, 1 found"):
        assert_same_documents(DOCS, swapped, ordered=True)


def test_it_fails_when_there_is_nothing_to_compare() -> None:
    with pytest.raises(AssertionError, match="only 0 documents expected, at least 1"):
        assert_same_documents([], [])
    with pytest.raises(AssertionError, match="only 10 documents expected, at least 11"):
        assert_same_documents(DOCS, DOCS, at_least=11)
    assert_same_documents([], [], at_least=0)


def test_ties_may_come_in_any_order_but_nothing_else() -> None:
    near = [{"_id": i, "m": m} for i, m in enumerate([1.0, 2.0, 2.0, 3.0])]
    assert_same_documents(near, [near[0], near[2], near[1], near[3]], tie_key="m")
    assert_same_documents(near, [near[0], near[2], near[1], near[3]], tie_key=lambda d: d["m"])
    with pytest.raises(AssertionError, match=r"at 0: 0 \(1.0\) expected, 1 \(2.0\) found"):
        assert_same_documents(near, [near[1], near[0], near[2], near[3]], tie_key="m")


def test_at_a_limit_any_of_those_tied_with_the_last_will_do() -> None:
    near = [{"_id": i, "m": m} for i, m in enumerate([1.0, 2.0, 3.0, 3.0, 3.0])]
    expected, actual = near[:4], [*near[:3], near[4]]
    assert_same_documents(expected, actual, tie_key="m", cut_by_limit=True)
    with pytest.raises(AssertionError, match="missing: 1"):
        assert_same_documents(expected, actual, tie_key="m")
    with pytest.raises(AssertionError, match="4 documents expected, 3 found"):
        assert_same_documents(expected, actual[:3], tie_key="m", cut_by_limit=True)
    with pytest.raises(AssertionError, match="missing: 1"):
        assert_same_documents(expected, [near[0], near[2], near[3], near[4]], tie_key="m", cut_by_limit=True)
    with pytest.raises(ValueError, match="cut_by_limit needs tie_key"):
        assert_same_documents(expected, actual, cut_by_limit=True)


# --- shapes and points ------------------------------------------------------------------------------------


def test_shapes_are_seeded_and_of_every_kind() -> None:
    shapes = list(random_shapes(64, seed=5))
    assert shapes == list(random_shapes(64, seed=5))
    assert shapes != list(random_shapes(64, seed=6))
    assert {shape.kind for shape in shapes} == set(KINDS)
    assert min(s.radius_deg for s in shapes) < 0.01
    assert max(s.radius_deg for s in shapes) > 10


def test_shapes_can_be_drawn_around_given_places() -> None:
    assert {s.centre for s in random_shapes(16, around=[(11.25, 56.25)], largest_deg=1)} == {(11.25, 56.25)}


def test_shapes_come_to_the_antimeridian_and_the_poles() -> None:
    crossing = poles = holes = 0
    for shape in random_shapes(200, seed=3, kinds=("polygon", "polygon_with_holes", "multipolygon")):
        rings = [np.array(ring) for polygon in shape.polygons() for ring in polygon]
        crossing += any((np.abs(np.diff(ring[:, 0])) > 180).any() for ring in rings)
        poles += abs(shape.centre[1]) + shape.radius_deg * 0.4 > 90
        holes += any(len(polygon) > 1 for polygon in shape.polygons())
    assert min(crossing, poles, holes) > 20


def test_only_geometries_intersect() -> None:
    shape = next(random_shapes(1, kinds=["box"]))
    assert shape.query("place") == {"place": {"$geoWithin": {"$box": shape.value}}}
    with pytest.raises(UsageError, match=r"\$geoIntersects takes only \$geometry, not \$box"):
        shape.query(predicate="$geoIntersects")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="no such kind of shape: 'blob'; there are polygon"):
        next(random_shapes(1, kinds=["blob"]))


@pytest.mark.parametrize("make", [points_on_sphere, points_clustered, points_at_cell_borders])
def test_points_are_seeded_and_on_the_globe(make) -> None:
    lng, lat = make(2000, seed=4)
    assert lng.size == lat.size == 2000
    assert (np.abs(lng) <= 180).all()
    assert (np.abs(lat) <= 90).all()
    np.testing.assert_array_equal(make(2000, seed=4), (lng, lat))
    assert not np.array_equal(make(2000, seed=5)[0], lng)


def test_points_lie_exactly_on_cell_borders_and_beside_them() -> None:
    lng, _ = points_at_cell_borders(2000, seed=1, bits=(9, 9))  # five bits of longitude: every 11.25 degrees
    off = np.abs(lng / 11.25 - np.round(lng / 11.25)) * 11.25
    assert (off == 0).sum() > 300
    assert ((off > 0) & (off < 1e-12)).sum() > 300


def test_points_near_are_near_and_sometimes_exact() -> None:
    lng, lat = points_near([10.0], [50.0], 1000, farthest_m=1000)
    assert ((lng == 10.0) & (lat == 50.0)).sum() > 50
    assert np.hypot((lng - 10) * np.cos(np.radians(50)), lat - 50).max() < 0.0091


# --- the oracle -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_has_points_inside_outside_and_at_its_border(kind: str) -> None:
    for number, shape in enumerate(random_shapes(12, seed=8, kinds=[kind])):
        lng, lat = points_for(shape, 1000, seed=number)
        assert (np.abs(lng) <= 180).all()
        assert (np.abs(lat) <= 90).all()
        verdicts = BruteForce().decide(shape, lng, lat)
        assert (verdicts == IN).sum() > 50
        assert (verdicts == OUT).sum() > 50
        assert (BruteForce(flat_deg=999, sphere_deg=999).decide(shape, lng, lat) == UNSURE).all()


def test_the_oracle_knows_great_circles_from_straight_lines() -> None:
    ring = [[-40.0, 0.0], [40.0, 0.0], [40.0, 40.0], [-40.0, 40.0]]
    sphere = Shape("polygon", {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, (0.0, 20.0), 40.0)
    flat = Shape("flat_polygon", ring, (0.0, 20.0), 40.0)
    lng, lat = np.array([0.0, 0.0, 0.0, 40.0]), np.array([45.0, 39.0, 49.0, 20.0])
    assert BruteForce().decide(sphere, lng, lat).tolist() == [IN, IN, OUT, UNSURE]
    assert BruteForce().decide(flat, lng, lat).tolist() == [OUT, IN, OUT, UNSURE]


def test_holes_are_outside_and_parts_are_inside() -> None:
    def square(west: float, east: float) -> list[list[float]]:
        return [[west, west], [east, west], [east, east], [west, east], [west, west]]

    value = {"type": "MultiPolygon", "coordinates": [[square(0, 10), square(4, 6)], [square(20, 21)]]}
    shape = Shape("multipolygon", value, (10.0, 10.0), 15.0)
    places = np.array([2.0, 5.0, 15.0, 20.5, 4.0])
    assert BruteForce().decide(shape, places, places).tolist() == [IN, OUT, OUT, IN, UNSURE]


def test_disagreements_are_found_only_where_both_are_sure() -> None:
    first, second = np.array([IN, OUT, UNSURE, IN], np.int8), np.array([IN, IN, IN, UNSURE], np.int8)
    assert disagreements(first, second).tolist() == [1]


@pytest.mark.mongo
@pytest.mark.parametrize("kind", KINDS)
def test_brute_force_agrees_with_mongodb(database, kind: str) -> None:
    server, brute = ServerOracle(database.scratch), BruteForce()
    unsure = 0
    for number, shape in enumerate(random_shapes(16, seed=21, kinds=[kind])):
        lng, lat = points_for(shape, 400, seed=number)
        theirs, ours = server.decide(shape, lng, lat), brute.decide(shape, lng, lat)
        assert theirs.any()
        assert disagreements(ours, theirs).tolist() == [], shape
        unsure += int((ours == UNSURE).sum())
    assert unsure < 0.2 * 16 * 400  # an oracle that is never sure proves nothing


@pytest.mark.mongo
def test_intersects_is_within_for_points(database) -> None:
    shapes = random_shapes(8, seed=2, kinds=["polygon", "multipolygon"], around=[(11.25, 56.25)])
    for number, shape in enumerate(shapes):
        database.points.delete_many({})
        database.points.insert_many(testing.points_to_documents(*points_for(shape, 200, seed=number)))
        assert_same_documents(
            database.points.find(shape.query()), database.points.find(shape.query(predicate="$geoIntersects"))
        )
