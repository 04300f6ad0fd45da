"""Nearest polygons and nearest points: at the distances that the server's own ``$geoNear`` says."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from bson.codec_options import CodecOptions
from bson.decimal128 import Decimal128
from bson.raw_bson import RawBSONDocument
from differential import KINDS
from join_cases import content, make_points, odd_polygons, polygon, polygons, square
from places import CENTRES, Documents, Setup, coordinates, get, make_collection
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import spatialnosql
from spatialnosql.collection import SpatialCollection
from spatialnosql.cover import cover
from spatialnosql.errors import UsageError
from spatialnosql.geohash import points_to_cells
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.histogram import Histogram
from spatialnosql.joins.distances import Borders, Surroundings, vectors
from spatialnosql.joins.nearest import Nearest, nearest_polygon
from spatialnosql.joins.nearest_point import nearest_point
from spatialnosql.metadata import metadata_collection
from spatialnosql.sphere import ERROR_M, distances_m
from spatialnosql.steps import run
from spatialnosql.testing import points_on_sphere
from spatialnosql.testing.sphere import Floats, to_degrees, to_vectors

CORNERS = np.array(
    [[180, 0], [-180, 0], [0, 90], [50, -90], [179.9999, 10], [-179.9999, 10], [0, 0], [90, 0], [-0.0, 45]]
)


# -- pure -------------------------------------------------------------------------------------------------


def shapes(seed: int, each: int = 5) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    kinds = ("polygon", "sliver", "polar", "antimeridian", "rounded", "tiny", "beside", "gridded", "wide")
    asked = [KINDS[kind](rng).condition for kind in kinds if kind in KINDS for _ in range(each)]
    geometries = [next(iter(condition.values())).get("$geometry") for condition in asked]
    return [one for one in geometries if one and one["type"] in ("Polygon", "MultiPolygon")]


def edges_of(geometries: list[dict[str, Any]]) -> tuple[Floats, Floats, list[int]]:
    """The ends of all edges as vectors, and whose they are; written once more, in another way."""
    starts, ends, owner = [], [], []
    for number, geometry in enumerate(geometries):
        parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
        for ring in (ring for part in parts for ring in part):
            for a, b in pairwise(ring):
                starts.append(to_vectors(*a[:2]))
                ends.append(to_vectors(*b[:2]))
                owner.append(number)
    return np.array(starts), np.array(ends), owner


def distances_by_search(point: Floats, a: Floats, b: Floats) -> Floats:
    """To each edge, by ever closer places along it."""
    low, high = np.zeros(len(a)), np.ones(len(a))
    best = np.full(len(a), np.inf)
    for _ in range(12):
        shares = low + (high - low) * np.linspace(0, 1, 21)[:, None]
        places = (1 - shares)[..., None] * a + shares[..., None] * b
        places /= np.linalg.norm(places, axis=2, keepdims=True)
        away = 2 * np.arcsin(np.minimum(np.linalg.norm(places - point, axis=2) / 2, 1.0))
        nearest = away.argmin(axis=0)
        best = np.minimum(best, away.min(axis=0))
        step = (high - low) / 20
        middle = shares[nearest, np.arange(len(a))]
        low, high = np.maximum(middle - step, 0.0), np.minimum(middle + step, 1.0)
    return best * EARTH_RADIUS_M


def test_distances_are_those_of_a_search_along_every_edge() -> None:
    geometries = [one for one in shapes(1, 2) if len(one["coordinates"]) < 50]
    starts, ends, owner = edges_of(geometries)
    apart = np.einsum("ij,ij->i", starts, ends) > -0.9  # a search along straight lines is no good half around
    assert apart.sum() > 80
    lng, lat = points_on_sphere(40, 2)
    close_lng, close_lat = to_degrees(
        starts[::5] + np.random.default_rng(1).normal(0, 1e-4, starts[::5].shape)
    )
    lng, lat = (
        np.concatenate([lng, CORNERS[:, 0], close_lng]),
        np.concatenate([lat, CORNERS[:, 1], close_lat]),
    )
    found, away = Borders.of(geometries).nearest(lng, lat, math.inf)
    assert (found >= 0).all()
    for point, number, metres in zip(to_vectors(lng, lat), found.tolist(), away.tolist(), strict=True):
        searched = distances_by_search(point, starts, ends)
        if apart[searched.argmin()]:
            # The search is by chords, which say little of very long distances.
            assert metres == pytest.approx(searched.min(), abs=1e-4)
            assert searched[np.array(owner) == number].min() == pytest.approx(searched.min(), abs=1e-4)


@pytest.mark.parametrize("most_m", [0.0, 50.0, 3e3, 2e5, 3e6, 2.1e7])
def test_no_edge_is_overlooked(most_m: float) -> None:
    geometries = shapes(3, 6)
    borders = Borders.of(geometries)
    lng, lat = points_on_sphere(200, 4)
    rng = np.random.default_rng(5)
    chosen = borders.starts[rng.integers(0, len(borders), 200)]
    near = to_degrees(chosen + rng.normal(size=chosen.shape) * 10.0 ** rng.uniform(-9, -1, (200, 1)))
    lng, lat = np.concatenate([lng, CORNERS[:, 0], near[0]]), np.concatenate([lat, CORNERS[:, 1], near[1]])
    found, away = borders.nearest(lng, lat, most_m)
    every = np.repeat(np.arange(lng.size), len(borders)), np.tile(np.arange(len(borders)), lng.size)
    all_m = borders._distances(vectors(lng, lat), *every).reshape(lng.size, -1) * EARTH_RADIUS_M
    within = all_m.min(axis=1) <= most_m
    np.testing.assert_array_equal(found >= 0, within)
    np.testing.assert_array_equal(away[within], all_m.min(axis=1)[within])
    np.testing.assert_array_equal(found[within], borders.polygon[all_m.argmin(axis=1)][within])
    assert np.isinf(away[~within]).all()
    if most_m:
        assert within.any()
    around = cover(Surroundings(borders, most_m), max_cells=500).outer
    assert around.contains(points_to_cells(lng, lat))[within].all()


def test_of_equally_near_polygons_it_is_the_first() -> None:
    far, one = square(11, 1, 12, 2), square(1, 1, 2, 2)
    lng, lat = points_on_sphere(200, 6)
    borders = Borders.of([polygon(far), polygon(one), polygon(one[::-1]), polygon(one[2:] + one[1:3])])
    assert set(borders.nearest(lng, lat, math.inf)[0].tolist()) == {0, 1}


def test_polygons_as_few_write_them() -> None:
    ring = [[Decimal128("1"), 1, 50.0], [2, 1], [2, 1], [2.0, 2.0], [1, 1]]
    borders = Borders.of([{"type": "Polygon", "coordinates": [ring]}])
    assert len(borders) == 3
    found, away = borders.nearest(np.array([1.5]), np.array([0.0]), 1e6)
    assert found.tolist() == [0]
    assert away[0] == pytest.approx(math.radians(1) * EARTH_RADIUS_M, rel=1e-3)


def test_no_polygons_are_near_nothing() -> None:
    found, away = Borders.of([]).nearest(np.array([1.0]), np.array([1.0]), 1e9)
    assert (found.tolist(), away.tolist()) == ([-1], [math.inf])
    assert len(cover(Surroundings(Borders.of([]), 100.0)).outer) == 0


# -- the nearest polygon ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Points, polygons in a collection, and the server's own distances from each point to each polygon."""

    points: Documents
    areas: Documents
    away: dict[Any, dict[Any, float]]
    setup: Setup

    def check(self, rows: list[Nearest], within_m: float, ids: Any) -> None:
        """Assert that the rows are what the server says, each point once."""
        found = {row.document["_id"]: row for row in rows if row.polygon is not None}
        assert len(found) == sum(row.polygon is not None for row in rows)
        for key, every in self.away.items():
            known = {name: metres for name, metres in every.items() if name in ids}
            least = min(known.values(), default=math.inf)
            if abs(least - within_m) <= ERROR_M:
                continue
            assert (key in found) == (least <= within_m), (key, least)
            if key in found:
                row = found[key]
                assert row.distance_m == pytest.approx(least, abs=ERROR_M), (key, row.polygon)
                assert known[row.polygon] == pytest.approx(least, abs=ERROR_M), (key, row.polygon)
        assert set(found) <= set(self.away)


@pytest.fixture(scope="module")
def case(client: MongoClient[dict[str, Any]]) -> Iterator[Case]:
    database = client[f"test_{secrets.token_hex(6)}"]
    setup = Setup()
    points = make_points(database, "points", setup, 250)
    points.delete_many({"kind": "border", "n": {"$mod": [2, 1]}})
    areas = database["areas"]
    areas.create_index([("geometry", "2dsphere")])
    every = {**polygons(), **odd_polygons()}
    areas.insert_many([{"_id": key, "geometry": geometry} for key, geometry in every.items()])
    away = {}
    for one in points.find({"gh": {"$ne": None}}):
        stage = {"near": one["loc"], "distanceField": "d", "key": "geometry"}
        answer = areas.aggregate([{"$geoNear": stage}, {"$project": {"d": 1}}])
        away[one["_id"]] = {area["_id"]: area["d"] for area in answer}
    yield Case(points, areas, away, setup)
    client.drop_database(database.name)
    metadata_collection(points).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


@pytest.mark.parametrize("within_m", [0.0, 0.5, 300.0, 20_000.0, 3e6, math.inf])
def test_the_nearest_polygon_is_the_servers(case: Case, within_m: float) -> None:
    rows = nearest_polygon(case.points, polygons(), within_m).to_list()
    case.check(rows, within_m, polygons())
    assert any(row.distance_m == 0 for row in rows)
    if 300 <= within_m < 1e6:
        assert 0 < sum(row.distance_m > 0 for row in rows) < len(rows) < len(case.away)


@pytest.mark.parametrize("within_m", [1.0, 50_000.0])
def test_polygons_that_only_the_server_understands(case: Case, within_m: float) -> None:
    every = {**odd_polygons(), **polygons()}
    rows = nearest_polygon(case.points, every, within_m).to_list()
    # Inside "touching" it is $geoWithin that says so, which takes in what lies a centimetre beside the border.
    sure = [row for row in rows if row.polygon != "touching"]
    close = {row.document["_id"] for row in rows if row.polygon == "touching"}
    left = Case(case.points, case.areas, {k: v for k, v in case.away.items() if k not in close}, case.setup)
    left.check(sure, within_m, every)
    for row in rows:
        if row.polygon == "touching":
            least = min(case.away[row.document["_id"]].values())
            assert row.distance_m == pytest.approx(least, abs=0.02)
    assert close


def test_no_polygons_are_nobodys_nearest(case: Case) -> None:
    assert nearest_polygon(case.points, {}, 1e6).to_list() == []
    rows = nearest_polygon(case.points, {}, 1e6, how="left").to_list()
    assert {row[1:] for row in rows} == {(None, None)}
    assert len(rows) == case.points.count_documents({})


def test_random_polygons_of_every_kind(
    client: MongoClient[dict[str, Any]], database: Any, examples: int
) -> None:
    geometries = dict(enumerate(shapes(17, max(5, examples // 400))))
    rng = np.random.default_rng(18)
    borders = Borders.of(list(geometries.values()))
    chosen = borders.starts[rng.integers(0, len(borders), 120)]
    lng, lat = to_degrees(chosen + rng.normal(size=chosen.shape) * 10.0 ** rng.uniform(-9, 0, (120, 1)))
    points = make_collection(
        database, "points", Setup(), content(80, 19, Setup(), list(zip(lng, lat, strict=True)))
    )
    areas = database["areas"]
    areas.create_index([("geometry", "2dsphere")])
    for key, geometry in list(geometries.items()):
        try:
            areas.insert_one({"_id": key, "geometry": geometry})
        except OperationFailure:
            del geometries[key]  # MongoDB takes some shapes in a query only
    found = {
        within_m: {row.document["_id"]: row for row in nearest_polygon(points, areas, within_m)}
        for within_m in (1e3, 1e6, math.inf)
    }
    metadata_collection(points).delete_one({"_id": points.full_name})
    assert len(geometries) > 30
    for one in points.find({"gh": {"$ne": None}}):
        stage = {"near": one["loc"], "distanceField": "d", "key": "geometry"}
        away = {
            area["_id"]: area["d"] for area in areas.aggregate([{"$geoNear": stage}, {"$project": {"d": 1}}])
        }
        least = min(away.values())
        for within_m, rows in found.items():
            assert (one["_id"] in rows) == (least <= within_m), (one, least)
            if one["_id"] in rows:
                row = rows[one["_id"]]
                # Where only $geoWithin can say what is inside, it takes in a centimetre more.
                assert row.distance_m == pytest.approx(least, abs=ERROR_M if row.distance_m else 0.02), one
                assert away[row.polygon] == pytest.approx(least, abs=ERROR_M if row.distance_m else 0.02), one


def test_polygons_of_a_collection(case: Case) -> None:
    rows = nearest_polygon(
        SpatialCollection(case.points), case.areas, 1000.0, filter={"kind": "cafe"}
    ).to_list()
    assert rows
    assert all(row.document["kind"] == "cafe" for row in rows)
    near = {key for key, every in case.away.items() if min(every.values()) <= 1000.0}
    assert {row.document["_id"] for row in rows} == near & set(case.points.distinct("_id", {"kind": "cafe"}))


def test_with_left_every_document_comes(case: Case) -> None:
    rows = nearest_polygon(case.points, polygons(), 500.0, how="left", batch_size=37).to_list()
    case.check(rows, 500.0, polygons())
    assert sorted(str(row.document["_id"]) for row in rows) == sorted(map(str, case.points.distinct("_id")))
    assert {row.distance_m for row in rows if row.polygon is None} == {None}
    assert any("gh" not in row.document for row in rows)


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_batches_and_projections(case: Case, batch_size: int) -> None:
    sort = [("n", 1), ("_id", 1)]
    few = {"n": {"$lt": 60}, "gh": {"$ne": None}}
    for projection in ({"n": 1, "_id": 0}, {"loc": 0, "gh": 0}, None):
        rows = nearest_polygon(
            case.points,
            polygons(),
            1e9,
            filter=few,
            projection=projection,
            sort=sort,
            batch_size=batch_size,
        ).to_list()
        assert [row.document for row in rows] == case.points.find(few, projection, sort=sort).to_list()
        assert len(rows) > 25


@pytest.mark.parametrize("statistics", ["none", "elsewhere"])
def test_statistics_make_no_difference(case: Case, statistics: str) -> None:
    info = run(SpatialCollection(case.points)._load_info())
    other = None if statistics == "none" else Histogram.of_points(np.full(9, 20.0), np.full(9, 20.0), 30)
    spatial = SpatialCollection(case.points, info=replace(info, histogram=other))
    case.check(nearest_polygon(spatial, polygons(), 2000.0).to_list(), 2000.0, polygons())


def test_only_points_in_reach_are_read(case: Case) -> None:
    source = nearest_polygon(case.points, {"nested": polygons()["nested"]}, 10.0)._source
    explained = run(source.explained())
    assert explained["executionStats"]["totalDocsExamined"] < len(case.away) / 2
    assert "gh_1__id_1" in str(explained)


def test_in_a_collection_of_other_forms(client: MongoClient[dict[str, Any]], database: Any) -> None:
    setup = Setup("place.point", "any", unhashed=True)
    points = make_points(database, "points", setup, 200)
    with pytest.raises(UsageError, match="'place' as a whole"):
        nearest_polygon(points, polygons(), 5000.0, projection={"place.floor": 0})
    rows = nearest_polygon(points, polygons(), 5000.0, projection={"n": 0}, how="left").to_list()
    metadata_collection(points).delete_one({"_id": points.full_name})
    assert len(rows) == points.count_documents({})
    ids = list(polygons())
    borders = Borders.of(list(polygons().values()))
    for row in rows:
        if "gh" in row.document and row.distance_m:
            lng, lat = coordinates(get(row.document, setup.location))
            number, metres = borders.nearest(np.array([lng]), np.array([lat]), 1e9)
            assert (ids[number[0]], metres[0]) == (row.polygon, row.distance_m)
    assert all(row.polygon is None for row in rows if "gh" not in row.document)


@pytest.mark.parametrize("within_m", [-1, "far", math.nan, None, True])
def test_distances_that_cannot_be_meant(case: Case, within_m: Any) -> None:
    with pytest.raises(UsageError, match="within_m is"):
        nearest_polygon(case.points, polygons(), within_m)


# -- the nearest points -----------------------------------------------------------------------------------


def servers_nearest(points: Documents, place: Any, limit: int, **options: Any) -> list[tuple[Any, float]]:
    stage = {
        "near": {"type": "Point", "coordinates": list(place)},
        "distanceField": "d",
        "key": "loc",
        **options,
    }
    answer = points.aggregate([{"$geoNear": stage}, {"$limit": limit}])
    return [(one["_id"], one["d"]) for one in answer]


@pytest.mark.parametrize(
    ("k", "within_m", "filter"),
    [
        (1, None, None),
        (3, 20_000, None),
        (5, 500, {"kind": "border"}),
        (2, None, {"kind": "cafe"}),
        (1, 0, None),
    ],
)
def test_nearest_points_are_the_servers(case: Case, k: int, within_m: Any, filter: Any) -> None:
    lng, lat = points_on_sphere(20, 3)
    places = [*map(list, CENTRES), *np.stack([lng, lat], axis=1).tolist(), [2.3501, 48.8603]]
    options: dict[str, Any] = {} if within_m is None else {"maxDistance": within_m}
    if filter:
        options["query"] = filter
    found = list(nearest_point(case.points, places, within_m, k=k, filter=filter))
    assert [one.place for one in found] == places
    for place, nearest in found:
        truth = servers_nearest(case.points, place, k, **options)
        assert [metres for _, metres in nearest] == pytest.approx([d for _, d in truth], abs=ERROR_M)
        for document, metres in nearest:
            own = distances_m(*place, *document["loc"]["coordinates"])
            assert metres == pytest.approx(float(own[0]), abs=ERROR_M)
    assert any(nearest for _, nearest in found)


def test_places_of_every_form_one_after_the_other(case: Case) -> None:
    place = [2.35, 48.86]
    point = {"type": "Point", "coordinates": place}
    forms: list[Any] = [
        place,
        tuple(place),
        np.array(place),
        point,
        {"type": "Feature", "geometry": point, "properties": {}},
        {"_id": 5, "loc": point},
        {"_id": 6, "loc": place},
    ]
    wanted = servers_nearest(case.points, place, 1)[0][1]
    answers = list(nearest_point(SpatialCollection(case.points), forms))
    assert [one.place is form for one, form in zip(answers, forms, strict=True)] == [True] * len(forms)
    assert [nearest[0].distance_m for _, nearest in answers] == pytest.approx([wanted] * 7, abs=ERROR_M)
    elsewhere = [{"at": {"home": place}}]
    assert next(nearest_point(case.points, elsewhere, location="at.home")).nearest[0].distance_m == (
        pytest.approx(wanted, abs=ERROR_M)
    )


def test_places_are_taken_as_they_are_needed(case: Case) -> None:
    taken: list[int] = []

    def places() -> Iterator[list[float]]:
        for number in range(1000):
            taken.append(number)
            yield [2.35, 48.86]

    with nearest_point(case.points, places()) as answers:
        assert next(answers).nearest
        assert len(taken) < 10
    assert len(taken) < 10
    assert next(answers, None) is None
    assert not any("spatialnosql-near" in thread.name for thread in threading.enumerate())


def test_a_place_that_is_none_is_named_in_its_turn(case: Case) -> None:
    answers = nearest_point(case.points, [[2.35, 48.86], [2.35, 48.86], [200, 10], [2, 3]])
    assert next(answers).nearest
    assert next(answers).nearest
    with pytest.raises(UsageError, match="place 2 is"):
        next(answers)
    assert next(answers).nearest
    assert next(answers, None) is None
    missing = nearest_point(case.points, [{"_id": 1, "name": "nowhere"}])
    with pytest.raises(UsageError, match="place 0 is"):
        next(missing)


def test_in_a_session_and_with_projections(case: Case) -> None:
    places = [[2.35, 48.86], [-73.98, 40.75]]
    with case.points.database.client.start_session(snapshot=True) as session:
        found = list(nearest_point(case.points, places, k=2, session=session, projection={"n": 1, "_id": 0}))
    plain = list(nearest_point(case.points, places, k=2))
    for one, other in zip(found, plain, strict=True):
        assert [row.distance_m for row in one.nearest] == [row.distance_m for row in other.nearest]
        assert [list(row.document) for row in one.nearest] == [["n"], ["n"]]


def test_documents_of_the_callers_own_class(case: Case) -> None:
    raw: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
    answer = next(nearest_point(case.points.with_options(codec_options=raw), [[2.35, 48.86]]))
    assert isinstance(answer.nearest[0].document, RawBSONDocument)
    assert answer.nearest[0].distance_m == pytest.approx(
        servers_nearest(case.points, [2.35, 48.86], 1)[0][1], abs=ERROR_M
    )


def test_documents_that_are_more_than_points(client: MongoClient[dict[str, Any]], database: Any) -> None:
    points = make_points(database, "points", Setup("loc", "any", unhashed=True), 300)
    places = [*map(list, CENTRES), [10.0, 10.0]]
    found = list(nearest_point(points, places, k=4, projection=["n"]))
    metadata_collection(points).delete_one({"_id": points.full_name})
    for place, nearest in found:
        truth = servers_nearest(points, place, 4)
        assert [metres for _, metres in nearest] == pytest.approx([d for _, d in truth], abs=ERROR_M)
        assert {tuple(sorted(document)) for document, _ in nearest} == {("_id", "n")}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": True}, "k is True"),
        ({"within_m": -3}, "within_m is -3"),
        ({"sort": [("n", 1)]}, "no option 'sort'"),
        ({"filter": {"loc": {"$near": [1, 2]}}}, "near"),
        ({"places": {"type": "Point", "coordinates": [1, 2]}}, "as a list"),
        ({"points": [1]}, "SpatialCollection"),
    ],
)
def test_what_cannot_be_meant(case: Case, given: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        nearest_point(**{"points": case.points, "places": [[1, 2]], **given})


def test_names_of_the_package() -> None:
    assert spatialnosql.nearest_polygon is nearest_polygon
    assert spatialnosql.nearest_point is nearest_point
