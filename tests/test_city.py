"""The generated city: seeded, dry, hot in places, with bad rows that are known and found."""

from datetime import datetime

import numpy as np
import pytest
import shapely

from spatialnosql import city_plan as plan
from spatialnosql.city import KINDS, City, generate_city
from spatialnosql.errors import UsageError
from spatialnosql.quality import coordinate_faults, count_faults


@pytest.fixture(scope="module")
def city() -> City:
    return generate_city(100_000, seed=7)


def columns(city: City) -> list[np.ndarray]:
    return [city.lng, city.lat, city.at, city.kind, city.amount, city.fault]


def test_equal_seeds_give_equal_cities_and_others_do_not() -> None:
    first, again, other = (
        generate_city(5000, seed=3),
        generate_city(5000, seed=3),
        generate_city(5000, seed=4),
    )
    for a, b in zip(columns(first), columns(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.lng, other.lng, equal_nan=True)


@pytest.mark.parametrize("n", [0, 1, 2, 777])
def test_it_has_as_many_rows_as_asked_for(n: int) -> None:
    assert len(generate_city(n)) == n
    assert sum(len(batch) for batch in generate_city(n).to_documents(100, rows="all")) == n


def test_good_points_are_dry_and_inside_the_limit(city: City) -> None:
    x, y = plan.to_km(city.lng[city.good], city.lat[city.good])
    assert plan.on_land(x, y).all()


def test_water_would_have_been_hit_by_chance() -> None:
    # Otherwise "no point in the water" would say nothing: the wet part of the ellipse is large.
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-plan.HALF_WIDTH_KM, plan.HALF_WIDTH_KM, 10_000), rng.uniform(-20, 20, 10_000)
    assert plan.in_water(x, y).mean() > 0.1


def test_some_places_are_much_hotter_than_others(city: City) -> None:
    x, y = plan.to_km(city.lng[city.good], city.lat[city.good])
    counts, _, _ = np.histogram2d(x, y, bins=(52, 40), range=((-26, 26), (-20, 20)))
    occupied = counts[counts > 0]
    assert occupied.max() > 100 * np.median(occupied)
    near = {s.name: np.hypot(x - s.x, y - s.y) < 0.3 for s in plan.HOT_SPOTS}
    assert near["central station"].sum() > 3000
    assert near["airport, terminal A"].sum() > 2000


def test_suburbs_thin_out(city: City) -> None:
    x, y = plan.to_km(city.lng[city.good], city.lat[city.good])
    rings = np.histogram(np.hypot(x, y), bins=(0, 4, 8, 12, 20))[0] / (np.pi * np.diff([0, 16, 64, 144, 400]))
    assert (np.diff(rings) < 0).all()


def test_points_lie_on_streets(city: City) -> None:
    """Downtown, the distance to the nearest street across the local grid is mostly a few metres."""
    x, y = plan.to_km(city.lng[city.good], city.lat[city.good])
    downtown = np.hypot(x - 2.5, y - 2.5) < 1.0
    angle = np.radians(29)
    v = -x[downtown] * np.sin(angle) + y[downtown] * np.cos(angle)
    off_street = np.abs(v / 0.085 - np.round(v / 0.085)) * 0.085
    assert np.mean(off_street < 0.012) > 0.5  # evenly spread points: 0.28


def test_some_places_repeat_exactly(city: City) -> None:
    places = np.stack([city.lng[city.good], city.lat[city.good]], axis=1)
    _, counts = np.unique(places, axis=0, return_counts=True)
    assert counts.max() > 15


def test_bad_rows_have_known_counts(city: City) -> None:
    assert city.bad_counts == {"missing": 80, "null_island": 60, "swapped": 30, "out_of_range": 30}
    assert generate_city(1000, bad_share=0).bad_counts == {}
    assert sum(generate_city(1000, bad_share=1).bad_counts.values()) == 1000


def test_bad_rows_are_found_from_their_coordinates_alone(city: City) -> None:
    np.testing.assert_array_equal(coordinate_faults(city.lng, city.lat, city.bounds), city.fault)


def test_without_bounds_a_swapped_row_cannot_be_told(city: City) -> None:
    faults = coordinate_faults(city.lng, city.lat)
    assert count_faults(faults) == {"missing": 80, "out_of_range": 30, "null_island": 60}


def test_faults_at_the_limits() -> None:
    lng = np.array([180.0, -180.0, 180.0000001, np.inf, 0.0, 0.0])
    lat = np.array([90.0, -90.0, 0.0, 0.0, 0.0, 1.0])
    assert coordinate_faults(lng, lat).tolist() == [0, 0, 2, 1, 3, 0]
    assert coordinate_faults(lng[-1:], lat[-1:], (10, 50, 12, 57)).tolist() == [5]


def test_time_has_a_daily_rhythm_within_one_month(city: City) -> None:
    assert (np.diff(city.at) >= np.timedelta64(0)).all()
    assert {str(month) for month in np.unique(city.at.astype("datetime64[M]"))} == {"2024-05"}
    hours = np.bincount(city.at.astype("datetime64[h]").astype(int) % 24, minlength=24)
    assert hours[18] > 5 * hours[3]


def test_documents_are_what_they_say(city: City) -> None:
    batches = list(city.to_documents(30_000))
    assert [len(batch) for batch in batches] == [30_000, 30_000, 30_000, 9_800]
    document = batches[0][0]
    assert set(document) == {"_id", "loc", "at", "kind", "amount"}
    row = document["_id"]
    assert document["loc"] == {"type": "Point", "coordinates": [city.lng[row], city.lat[row]]}
    assert isinstance(document["at"], datetime)
    assert document["kind"] in KINDS
    assert all(d["amount"] == 0 for d in batches[0] if d["kind"] == "report")
    assert len({d["_id"] for batch in batches for d in batch}) == 99_800


def test_bad_documents_can_be_had_and_extra_fields_added(city: City) -> None:
    (bad,) = city.to_documents(rows="bad", extra={"row": np.arange(len(city))})
    assert len(bad) == 200
    assert sum(d["loc"] is None for d in bad) == 80
    assert all(d["row"] == d["_id"] for d in bad)


def test_an_extra_column_of_another_length_is_refused(city: City) -> None:
    with pytest.raises(UsageError, match="has 3 rows, the city has 100000"):
        next(city.to_documents(extra={"gh": ["a", "b", "c"]}))


@pytest.mark.parametrize(("n", "bad_share", "message"), [(-1, 0.1, "-1 rows"), (1, 1.5, "bad_share is 1.5")])
def test_impossible_cities_are_refused(n: int, bad_share: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate_city(n, bad_share=bad_share)


@pytest.mark.parametrize("count", [8, 60, 200])
def test_neighbourhoods_cover_every_good_point_exactly_once(city: City, count: int) -> None:
    features = city.neighbourhoods(count)["features"]
    areas = [shapely.geometry.shape(feature["geometry"]) for feature in features]
    assert len(areas) == count == len({feature["properties"]["name"] for feature in features})
    assert all(area.is_valid and not area.is_empty for area in areas)
    points = shapely.points(city.lng[city.good], city.lat[city.good])
    hits = np.bincount(shapely.STRtree(areas).query(points, predicate="within")[0], minlength=points.size)
    assert (hits == 1).all()


def test_neighbourhoods_are_irregular_adjacent_and_some_have_holes_or_parts(city: City) -> None:
    areas = [shapely.geometry.shape(f["geometry"]) for f in city.neighbourhoods()["features"]]
    assert min(shapely.get_num_coordinates(areas)) >= 20
    assert sum(area.geom_type == "MultiPolygon" for area in areas) >= 3
    assert sum(len(part.interiors) for area in areas for part in shapely.get_parts(area)) == 2
    pairs = [(a, b) for a, b in shapely.STRtree(areas).query(areas, predicate="intersects").T if a < b]
    assert sum(areas[a].intersection(areas[b]).length > 0 for a, b in pairs) > 100
    assert sum(areas[a].intersection(areas[b]).area for a, b in pairs) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [0, 7, 2001])
def test_too_few_or_too_many_neighbourhoods_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} neighbourhoods asked for; between 8 and 2000"):
        generate_city(1).neighbourhoods(count)


@pytest.mark.mongo
def test_mongodb_takes_every_neighbourhood_and_finds_every_point_in_one(database, city: City) -> None:
    small = generate_city(3000, seed=2)
    for batch in small.to_documents():
        database.points.insert_many(batch)
    total = 0
    for feature in small.neighbourhoods()["features"]:
        total += database.points.count_documents({"loc": {"$geoWithin": {"$geometry": feature["geometry"]}}})
    # Great-circle edges are not straight in the plane, so a point at a border may change sides: few do.
    assert abs(total - int(small.good.sum())) <= 3
