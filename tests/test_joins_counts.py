"""Counts and measures by polygon: the same numbers as one query of the server for each polygon."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bson.decimal128 import Decimal128
from places import CENTRES, Setup, documents, make_collection, register
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from spies import answers_of

from spatialnosql.analyze import analyze
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.geohash import points_to_strings
from spatialnosql.histogram import Histogram
from spatialnosql.joins import range_reading, undecided
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.tallies import Tallies
from spatialnosql.joins.top_n import top_n
from spatialnosql.joins.weights import Total, Weight
from spatialnosql.testing import random_shapes

Points = SpatialCollection
GRID = 6  # squares to a side, which share their borders
WEST, SOUTH, SIDE = 2.3, 48.8, 0.02


def square(west: float, south: float, side: float) -> dict[str, Any]:
    east, north = west + side, south + side
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def tiles() -> dict[str, Any]:
    """Squares side by side: every border but the outer is shared by two of them, every corner by four."""
    return {
        f"tile {x} {y}": square(WEST + x * SIDE, SOUTH + y * SIDE, SIDE)
        for x in range(GRID)
        for y in range(GRID)
    }


def shapes(count: int, seed: int) -> dict[str, Any]:
    """Overlapping, nested, with holes, in parts; from metres to continents; poles and antimeridian."""
    kinds = ("polygon", "polygon_with_holes", "multipolygon", "big_polygon")
    made = random_shapes(count, seed, kinds=kinds, around=list(CENTRES), smallest_deg=0.001, largest_deg=30.0)
    return {f"shape {number}": shape.value for number, shape in enumerate(made)}


def on_borders(areas: dict[str, Any], seed: int) -> list[list[float]]:
    """Vertices of the areas, and places on their edges as far as doubles go."""
    rng = np.random.default_rng(seed)
    found: list[list[float]] = []
    for geometry in areas.values():
        parts = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
        ring = parts[0][0]
        at = int(rng.integers(len(ring) - 1))
        (x1, y1), (x2, y2) = ring[at], ring[at + 1]
        found.append(list(map(float, ring[at])))
        if abs(x1 - x2) < 90:
            share = float(rng.random())
            found.append([x1 + share * (x2 - x1), y1 + share * (y2 - y1)])
    return found


def with_borders(content: list[dict[str, Any]], places: list[list[float]]) -> list[dict[str, Any]]:
    lng, lat = np.array(places).T
    hashes = points_to_strings(lng, lat).tolist()
    more = [
        {"_id": 1_000_000 + number, "loc": {"type": "Point", "coordinates": place}, "gh": gh, "score": 1.5}
        for number, (place, gh) in enumerate(zip(places, hashes, strict=True))
    ]
    return [*content, *more]


@pytest.fixture(scope="module")
def areas() -> dict[str, Any]:
    return {**tiles(), **shapes(60, 4)}


@pytest.fixture(scope="module")
def points(client: MongoClient[dict[str, Any]], areas: dict[str, Any]) -> Iterator[Points]:
    database = client["test_joins_counts"]
    client.drop_database(database)
    content = with_borders(documents(6_000, 11, Setup()), on_borders(areas, 3))
    collection = make_collection(database, "points", Setup(), content)
    analyze(collection)
    yield SpatialCollection(collection)
    client.drop_database(database)


def asked_one_by_one(
    points: Any, areas: dict[str, Any], filter: dict[str, Any] | None = None
) -> dict[str, int]:
    """What the server says of each polygon alone, without an index on places: by its own test."""
    plain = points._collection
    return {
        name: plain.count_documents({"loc": {"$geoWithin": {"$geometry": geometry}}, **(filter or {})})
        for name, geometry in areas.items()
    }


def counts(tallies: Tallies) -> dict[str, int]:
    return {tally.id: tally.count for tally in tallies}


def test_every_polygon_has_the_server_s_own_count(
    points: Points, areas: dict[str, Any], tally: Counter[str]
) -> None:
    found = count_by_polygon(points, areas)
    assert [one.id for one in found] == list(areas)
    expected = asked_one_by_one(points, areas)
    assert counts(found) == expected
    assert all(one.value == one.count for one in found)
    assert found.as_of is None
    assert sum(value > 0 for value in expected.values()) > 60
    tally["polygons counted in one pass, as the server counts each"] += len(areas)


@pytest.mark.parametrize(
    "filter",
    [
        {"kind": "cafe"},
        {"score": {"$gt": 50}, "tags": "a"},
        {"$or": [{"kind": "park"}, {"size": None}]},
        {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}},
        {"kind": "no such kind"},
    ],
)
def test_with_other_conditions(points: Points, areas: dict[str, Any], filter: dict[str, Any]) -> None:
    if "loc" in filter:
        chosen = dict(list(tiles().items())[:4])
        expected = {
            name: points._collection.count_documents(
                {"$and": [filter, {"loc": {"$geoWithin": {"$geometry": geometry}}}]}
            )
            for name, geometry in chosen.items()
        }
        assert counts(count_by_polygon(points, chosen, filter=filter)) == expected
        return
    assert counts(count_by_polygon(points, areas, filter=filter)) == asked_one_by_one(points, areas, filter)


@pytest.mark.parametrize(
    "weight", [{"$sum": "$score"}, {"$avg": "$score"}, {"$min": "score"}, {"$max": "$n"}, "size"]
)
def test_measures_of_a_field(points: Points, areas: dict[str, Any], weight: Any) -> None:
    given = {"$sum": "$size"} if weight == "size" else weight
    operator, path = next(iter(given.items()))
    accumulator = {operator: f"${path.removeprefix('$')}"}
    found = count_by_polygon(points, areas, weight=weight)
    for tally, geometry in zip(found, areas.values(), strict=True):
        groups = list(
            points._collection.aggregate(
                [
                    {"$match": {"loc": {"$geoWithin": {"$geometry": geometry}}}},
                    {"$group": {"_id": None, "n": {"$sum": 1}, "value": accumulator}},
                ]
            )
        )
        expected = groups[0] if groups else {"n": 0, "value": 0 if operator == "$sum" else None}
        assert tally.count == expected["n"]
        if isinstance(expected["value"], float):
            assert math.isclose(tally.value, expected["value"], rel_tol=1e-12, abs_tol=1e-12)
        else:
            assert tally.value == expected["value"]


def test_a_weight_within_the_location(database: Database[dict[str, Any]]) -> None:
    areas = tiles()
    places = on_borders(areas, 9)
    content = with_borders([], places)
    for number, document in enumerate(content):
        document["loc"]["accuracy"] = number
    collection = make_collection(database, "points", Setup(), content)
    found = count_by_polygon(collection, areas, weight={"$max": "$loc.accuracy"})
    for tally, geometry in zip(found, areas.values(), strict=True):
        inside = collection.find({"loc": {"$geoWithin": {"$geometry": geometry}}})
        assert tally.value == max((d["loc"]["accuracy"] for d in inside), default=None)


def test_top_n_is_ranked_and_equal_ones_keep_their_order(points: Points) -> None:
    areas = tiles()
    expected = asked_one_by_one(points, areas)
    ranked = sorted(expected.items(), key=lambda pair: -pair[1])
    assert list(counts(top_n(points, areas, 10)).items()) == ranked[:10]
    assert len(top_n(points, areas, 1000)) == len(areas)
    least = sorted(expected.items(), key=lambda pair: pair[1])
    assert list(counts(top_n(points, areas, 5, least=True)).items()) == least[:5]
    empty = {"nowhere": square(-40.5, 30.5, 0.01), **areas}
    last = top_n(points, empty, len(empty), weight={"$avg": "$score"})[-1]
    assert last.value is None


def test_a_pymongo_collection_will_do_and_any_way_to_give_polygons(points: Points) -> None:
    areas = dict(list(tiles().items())[:3])
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": geometry}
        for name, geometry in areas.items()
    ]
    expected = asked_one_by_one(points, areas)
    for polygons in (
        areas,
        features,
        {"type": "FeatureCollection", "features": features},
        Polygons.of(areas),
    ):
        assert counts(count_by_polygon(points._collection, polygons)) == expected


def test_nothing_is_fetched_and_only_borders_come(points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    areas = tiles()
    sent = answers_of(monkeypatch, range_reading, "command")
    found = count_by_polygon(points, areas)
    assert sum(one.count for one in found) > 200
    pipelines = [call.arguments[0] for call in sent]
    assert pipelines
    assert all("loc" not in str(pipeline) for pipeline in pipelines)
    told = points._collection.database.command(
        "explain",
        {
            "aggregate": points._collection.name,
            "pipeline": pipelines[0],
            "hint": "gh_1__id_1",
            "cursor": {},
        },
        verbosity="executionStats",
    )
    assert "FETCH" not in str(told)


def test_as_of_the_last_analysis(
    client: MongoClient[dict[str, Any]], database: Database[dict[str, Any]]
) -> None:
    areas = {**tiles(), **shapes(20, 8)}
    known = {name: shape for name, shape in areas.items() if Polygons.of({name: shape})[0].region is not None}
    collection = make_collection(database, "points", Setup(), documents(4_000, 5, Setup()))
    analysis = analyze(collection)
    points = SpatialCollection(collection)
    expected = asked_one_by_one(points, known)
    found = count_by_polygon(points, known, as_of="last_analyze")
    assert counts(found) == expected
    assert found.as_of is not None
    assert found.as_of.points == analysis.documents
    assert abs(found.as_of.moment - analysis.at.replace(tzinfo=None)) < dt.timedelta(seconds=1)
    assert f"of {analysis.documents:,} points" in str(found.as_of)
    guess = count_by_polygon(points, known, as_of="last_analyze", borders="estimated")
    assert guess.as_of is not None
    assert guess.as_of.keys_read is None
    assert "nothing read" in str(guess.as_of)
    for tally in guess:
        assert tally.low is not None
        assert tally.high is not None
        assert tally.low <= tally.count <= tally.high
        assert tally.low <= expected[tally.id] <= tally.high
    # What is new since then is not in the answer, unless it lies at a border; and the answer says of when it is.
    place = [WEST + SIDE * 1.5, SOUTH + SIDE * 1.5]
    collection.insert_many(
        [
            {
                "loc": {"type": "Point", "coordinates": place},
                "gh": points_to_strings([place[0]], [place[1]])[0],
            }
            for _ in range(50)
        ]
    )
    later = count_by_polygon(points, known, as_of="last_analyze")
    assert later.as_of is not None
    assert later.as_of.moment == found.as_of.moment
    assert count_by_polygon(points, known)[0] is not None
    assert counts(count_by_polygon(points, known)) == asked_one_by_one(points, known)


def test_as_of_refuses_what_it_cannot_know(points: Points) -> None:
    with pytest.raises(UsageError, match="no filter, no weight"):
        count_by_polygon(points, tiles(), as_of="last_analyze", filter={"kind": "cafe"})
    with pytest.raises(UsageError, match="no filter, no weight"):
        count_by_polygon(points, tiles(), as_of="last_analyze", weight="score")
    with pytest.raises(UsageError, match="as_of is 'yesterday'"):
        count_by_polygon(points, tiles(), as_of="yesterday")
    with pytest.raises(UsageError, match="goes with as_of"):
        count_by_polygon(points, tiles(), borders="estimated")
    with pytest.raises(UsageError, match="borders is 'maybe'"):
        count_by_polygon(points, tiles(), borders="maybe", as_of="last_analyze")
    on_equator = {"a": square(10, 0, 5)}
    with pytest.raises(UsageError, match="only the server can tell"):
        count_by_polygon(points, on_equator, as_of="last_analyze")


@pytest.mark.parametrize(
    "setup",
    [
        Setup(form="any"),
        Setup(location="where.place", unhashed=True),
        Setup(unhashed=True, form="any"),
    ],
)
def test_other_collections(database: Database[dict[str, Any]], setup: Setup) -> None:
    collection = make_collection(database, "points", setup, documents(2_000, 7, setup))
    areas = {**dict(list(tiles().items())[:6]), **shapes(24, 12)}
    expected = {
        name: collection.count_documents({setup.location: {"$geoWithin": {"$geometry": geometry}}})
        for name, geometry in areas.items()
    }
    assert counts(count_by_polygon(collection, areas)) == expected
    assert sum(expected.values()) > 100


def test_without_statistics(database: Database[dict[str, Any]]) -> None:
    collection = make_collection(database, "points", Setup(), documents(1_500, 3, Setup()))
    register(collection, Setup(), None)
    areas = {**tiles(), **shapes(12, 2)}
    points = SpatialCollection(collection)
    assert counts(count_by_polygon(points, areas)) == asked_one_by_one(points, areas)
    with pytest.raises(UsageError, match="has no statistics; run `spatialnosql analyze"):
        count_by_polygon(points, tiles(), as_of="last_analyze")


def test_a_collection_that_was_never_adopted_is_refused(database: Database[dict[str, Any]]) -> None:
    database["plain"].insert_one({"loc": {"type": "Point", "coordinates": [2.35, 48.86]}})
    with pytest.raises(UsageError, match="never adopted"):
        count_by_polygon(database["plain"], tiles())
    with pytest.raises(UsageError, match="points are a SpatialCollection"):
        count_by_polygon("city.trips", tiles())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"filter": {"loc": {"$near": [1, 2]}}}, r"\$near cannot be beside a join"),
        ({"filter": {"$or": [{"$where": "1"}]}}, r"\$where cannot"),
        ({"filter": 5}, "a filter is a document"),
        ({"weight": {"$median": "x"}}, "not understood"),
        ({"weight": {"$sum": 5}}, "not understood"),
        ({"weight": {"$sum": "$$ROOT"}}, "not understood"),
    ],
)
def test_bad_arguments(points: Points, given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        count_by_polygon(points, tiles(), **given)
    for n in (0, -1, True, 1.5):
        with pytest.raises(UsageError, match="n is"):
            top_n(points, tiles(), n)  # type: ignore[arg-type]


def test_many_keys_come_in_several_commands(
    points: Points, areas: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reading, "KEYS_AT_ONCE", 100)
    sent = answers_of(monkeypatch, range_reading, "command")
    assert counts(count_by_polygon(points, areas)) == asked_one_by_one(points, areas)
    assert len(sent) > 8


def test_keys_that_do_not_fit_into_one_document_come_one_by_one(
    points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = range_reading.together, []

    def together(calls: Any, **options: Any) -> Any:
        if not failed:
            failed.append(calls)
            raise OperationFailure("too large", 10334)
        return real(calls, **options)

    monkeypatch.setattr(range_reading, "together", together)
    sent = answers_of(monkeypatch, range_reading, "command")
    assert counts(count_by_polygon(points, tiles())) == asked_one_by_one(points, tiles())
    assert failed
    assert any(call.arguments[0][1]["$group"]["_id"] == "$gh" for call in sent)


def test_at_one_moment_while_points_move(client: MongoClient[dict[str, Any]]) -> None:
    database = client["test_joins_moving"]
    client.drop_database(database)
    areas = tiles()
    content = [one for one in documents(1_500, 21, Setup()) if "gh" in one]
    collection = make_collection(database, "points", Setup(), content)
    rng = np.random.default_rng(1)
    lng, lat = rng.uniform(WEST, WEST + GRID * SIDE, 300), rng.uniform(SOUTH, SOUTH + GRID * SIDE, 300)
    moving = [
        {
            "_id": f"moving {number}",
            "loc": {"type": "Point", "coordinates": [float(x), float(y)]},
            "gh": str(gh),
        }
        for number, (x, y, gh) in enumerate(zip(lng, lat, points_to_strings(lng, lat), strict=True))
    ]
    collection.insert_many(moving)
    analyze(collection)
    points = SpatialCollection(collection)
    whole = {"city": square(WEST - 0.001, SOUTH - 0.001, GRID * SIDE + 0.002)}
    total = count_by_polygon(points, whole)[0].count
    done = threading.Event()

    def move() -> None:
        order = np.random.default_rng(2)
        while not done.is_set():
            number = int(order.integers(300))
            x = float(order.uniform(WEST + 0.001, WEST + GRID * SIDE - 0.001))
            y = float(order.uniform(SOUTH + 0.001, SOUTH + GRID * SIDE - 0.001))
            points.update_one(
                {"_id": f"moving {number}", "gh": {"$gte": ""}},
                {"$set": {"loc": {"type": "Point", "coordinates": [x, y]}}},
            )

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(10):
            # Points move about inside the city all the time: at any one moment it holds all of them.
            assert count_by_polygon(points, whole, consistent=True)[0].count == total
            assert count_by_polygon(points, areas) is not None
    finally:
        done.set()
        mover.join()
    # The last move may still be under way between the shards: of one moment both are the same.
    with client.start_session() as session, session.start_transaction(ReadConcern("snapshot")):
        found = count_by_polygon(points, areas, session=session, consistent=True)
        expected = {
            name: collection.count_documents(
                {"loc": {"$geoWithin": {"$geometry": geometry}}}, session=session
            )
            for name, geometry in areas.items()
        }
    assert counts(found) == expected
    client.drop_database(database)


def test_what_is_refused_and_why(client: MongoClient[dict[str, Any]], points: Points) -> None:
    with pytest.raises(UsageError, match="there is no option 'collation' here"):
        count_by_polygon(points, tiles(), collation={"locale": "en"})
    with client.start_session() as session:
        whole = counts(count_by_polygon(points, tiles(), session=session, consistent=True))
        assert whole == counts(count_by_polygon(points, tiles()))
        assert not session.in_transaction
    on_equator = {"a": square(10, 0, 5)}
    for borders in ("read", "estimated"):
        with pytest.raises(UsageError, match="only the server can tell"):
            count_by_polygon(points, on_equator, as_of="last_analyze", borders=borders)
    timed = count_by_polygon(points, tiles(), max_time_ms=60_000, comment="by tile")
    assert counts(timed) == asked_one_by_one(points, tiles())


def test_many_documents_at_one_place_on_a_border_are_one_answer(
    database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corner = [WEST + SIDE, SOUTH + SIDE]  # of four tiles
    collection = make_collection(database, "points", Setup(), with_borders([], [corner] * 3_000))
    settled = answers_of(monkeypatch, undecided, "settled_by_place")
    found = count_by_polygon(collection, tiles(), weight="score")
    expected = asked_one_by_one(SpatialCollection(collection), tiles())
    assert counts(found) == expected
    assert sum(expected.values()) >= 3_000
    assert found.to_dict() == {name: 1.5 * count for name, count in expected.items()}
    assert settled
    assert all(len(one) == 1 for one in settled)


def test_statistics_that_are_far_behind_do_not_decide_what_is_read(
    database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [one for one in documents(3_000, 5, Setup()) if "gh" in one]
    collection = make_collection(database, "points", Setup(), content)
    register(collection, Setup(), Histogram.of_cells(np.zeros(0, dtype=np.uint64), 40))  # while it was empty
    areas = {"small": square(2.3500, 48.8600, 0.0004), "far": square(-73.9800, 40.7500, 0.0004)}
    sent = answers_of(monkeypatch, range_reading, "command")
    points = SpatialCollection(collection)
    assert counts(count_by_polygon(points, areas)) == asked_one_by_one(points, areas)
    assert sent
    assert all(collection.count_documents(call.arguments[0][0]["$match"]) < 1_500 for call in sent)


def test_an_old_analysis_is_not_taken_for_the_last(database: Database[dict[str, Any]]) -> None:
    collection = make_collection(database, "points", Setup(), documents(1_000, 5, Setup()))
    analyze(collection)
    points = SpatialCollection(collection)
    before = count_by_polygon(points, tiles(), as_of="last_analyze")
    collection.delete_many({})
    analyze(collection)
    after = count_by_polygon(points, tiles(), as_of="last_analyze")
    assert before.as_of is not None
    assert after.as_of is not None
    assert after.as_of.points == 0
    assert after.as_of.moment > before.as_of.moment
    assert sum(counts(after).values()) == 0


# -- adding up --------------------------------------------------------------------------------------------


def total(measure: str, *values: Any) -> Total:
    made = Total(Weight(measure, "x"))
    for value in values:
        number = isinstance(value, int | float | Decimal128) and not isinstance(value, bool)
        made.add_group({"n": 1, "v": value if number else None, "m": int(number)})
    return made


@pytest.mark.parametrize(
    ("measure", "values", "expected"),
    [
        ("sum", (), 0),
        ("sum", (1, 2, 3), 6),
        ("sum", (1, 2.5, None, "x", True), 3.5),
        ("sum", (Decimal128("0.1"), 1), Decimal128("1.1")),
        ("sum", (math.inf, -math.inf), math.nan),
        ("avg", (), None),
        ("avg", (1, 2, None), 1.5),
        ("avg", (Decimal128("1"), 2), Decimal128("1.5")),
        ("min", (3, 1.5, Decimal128("2")), 1.5),
        ("min", (3, math.nan), math.nan),
        ("max", (3, math.nan), 3),
        ("max", ("x", None), None),
    ],
)
def test_measures(measure: str, values: tuple[Any, ...], expected: Any) -> None:
    made = total(measure, *values)
    assert made.count == len(values)
    result = made.result
    if isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(result)
    else:
        assert result == expected
