"""MongoDB's own geographic behaviour, case by case from its documentation, and malformed queries: spatial as plain.

Each case says which documents the server must return, so that the case itself is checked; then the spatial collection
must return the same, rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from places import Documents, Setup, make_collection, register
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from spatialnosql.collection import SpatialCollection
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.rewrite import QoS, rewrite_pipeline
from spatialnosql.steps import run

DATABASE = "test_mongo_semantics"
STRICT = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}
PLACES = {
    "origin": (0, 0),
    "corner": (10, 10),
    "edge": (10, 5),
    "centre": (5, 5),
    "outside": (10.001, 5),
    "south edge": (5, 0),
    "under the arc": (5, 10.01),
    "over the arc": (5, 10.06),
    "greenwich north": (0, 60),
    "north pole": (0, 90),
    "north pole again": (135, 90),
    "near the north pole": (-100, 89.5),
    "south pole": (20, -90),
    "east of the line": (-179.5, 1),
    "west of the line": (179.5, 1),
    "on the line": (180, 1),
    "on the line, east": (-180, 1),
    "antipode": (180, 0),
    "tokyo": (139.7, 35.7),
    "lima": (-77, -12),
}


def polygon(*ring: tuple[float, float], crs: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "Polygon", "coordinates": [[*map(list, ring), list(ring[0])]]}
    return {**made, "crs": crs} if crs else made


def within(geometry: dict[str, Any]) -> dict[str, Any]:
    return {"loc": {"$geoWithin": {"$geometry": geometry}}}


def crossing(geometry: dict[str, Any]) -> dict[str, Any]:
    return {"loc": {"$geoIntersects": {"$geometry": geometry}}}


SQUARE = polygon((0, 0), (10, 0), (10, 10), (0, 10))
FROM_SQUARE = {"origin", "corner", "edge", "centre", "south edge", "under the arc"}
AROUND_NORTH = polygon((0, 80), (90, 80), (180, 80), (-90, 80))
NORTH = {"north pole", "north pole again", "near the north pole"}
LINE = {"east of the line", "west of the line", "on the line", "on the line, east"}
NOT_IN_SQUARE = set(PLACES) - {"centre", "under the arc"}

CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a border is inside, and the edge to the north bends up to 10.037 degrees": (within(SQUARE), FROM_SQUARE),
    "points intersect where they are within": (crossing(SQUARE), FROM_SQUARE),
    "a ring in the other direction is the same polygon": (
        within(polygon((0, 10), (10, 10), (10, 0), (0, 0))),
        FROM_SQUARE,
    ),
    "a flat polygon does not bend": (
        {"loc": {"$geoWithin": {"$polygon": [[0, 0], [10, 0], [10, 10], [0, 10]]}}},
        FROM_SQUARE - {"under the arc"},
    ),
    "a box has its border, from any two corners": (
        {"loc": {"$geoWithin": {"$box": [[10, 0], [0, 10]]}}},
        FROM_SQUARE - {"under the arc"},
    ),
    "a flat circle has its border": (
        {"loc": {"$geoWithin": {"$center": [[5, 5], 5]}}},
        {"centre", "edge", "south edge"},
    ),
    "a circle of no radius has its centre": (
        {"loc": {"$geoWithin": {"$center": [[5, 5], 0]}}},
        {"centre"},
    ),
    "a hole is outside": (
        within(
            {
                "type": "Polygon",
                "coordinates": [
                    SQUARE["coordinates"][0],
                    [[4, 4], [6, 4], [6, 6], [4, 6], [4, 4]],
                ],
            }
        ),
        FROM_SQUARE - {"centre"},
    ),
    "several polygons": (
        within({"type": "MultiPolygon", "coordinates": [SQUARE["coordinates"], AROUND_NORTH["coordinates"]]}),
        FROM_SQUARE | NORTH,
    ),
    "a pole has every longitude": (within(AROUND_NORTH), NORTH),
    "a spherical circle over a pole": (
        {"loc": {"$geoWithin": {"$centerSphere": [[77, 89], 0.05]}}},
        NORTH,
    ),
    "a spherical circle over the antimeridian": (
        {"loc": {"$geoWithin": {"$centerSphere": [[180, 1], 0.01]}}},
        LINE,
    ),
    "a polygon over the antimeridian goes the short way": (
        within(polygon((179, 0.5), (-179, 0.5), (-179, 1.5), (179, 1.5))),
        LINE,
    ),
    "a point on the antimeridian is met where it is written": (
        crossing({"type": "Point", "coordinates": [180, 1]}),
        {"on the line"},
    ),
    "a flat box knows no antimeridian": (
        {"loc": {"$geoWithin": {"$box": [[179, 0.5], [180, 1.5]]}}},
        {"west of the line", "on the line"},
    ),
    "a polygon of more than a hemisphere is the smaller side": (
        within(polygon((0, -80), (90, -80), (180, -80), (-90, -80))),
        {"south pole"},
    ),
    "unless the winding is strict: clockwise means all the rest": (
        within(polygon((0, 10), (10, 10), (10, 0), (0, 0), crs=STRICT)),
        NOT_IN_SQUARE,
    ),
    "strict and counter-clockwise is the square": (
        within(polygon((0, 0), (10, 0), (10, 10), (0, 10), crs=STRICT)),
        FROM_SQUARE,
    ),
    "a hemisphere by strict winding, whose last corner is a hair outside": (
        within(polygon((-180, 0), (-90, 0), (0, 0), (90, 0), crs=STRICT)),
        {name for name, (_, lat) in PLACES.items() if lat >= 0} - {"antipode"},
    ),
    "a line meets the points on it": (
        crossing({"type": "LineString", "coordinates": [[0, 0], [10, 0]]}),
        {"origin", "south edge"},
    ),
    "a collection of geometries": (
        crossing(
            {
                "type": "GeometryCollection",
                "geometries": [{"type": "Point", "coordinates": [5, 5]}, AROUND_NORTH],
            }
        ),
        {"centre"} | NORTH,
    ),
    "two regions: the places of both": (
        {"$and": [within(SQUARE), {"loc": {"$geoWithin": {"$center": [[5, 5], 1]}}}]},
        {"centre"},
    ),
    "one region and not another": (
        {**within(SQUARE), "$nor": [{"loc": {"$geoWithin": {"$center": [[5, 5], 1]}}}]},
        FROM_SQUARE - {"centre"},
    ),
    "near, with both distances": (
        {
            "loc": {
                "$nearSphere": {
                    "$geometry": {"type": "Point", "coordinates": [180, 1]},
                    "$minDistance": 1000,
                    "$maxDistance": 60_000,
                }
            }
        },
        {"east of the line", "west of the line"},
    ),
    "near a pole": (
        {
            "loc": {
                "$near": {"$geometry": {"type": "Point", "coordinates": [17, 90]}, "$maxDistance": 100_000}
            }
        },
        NORTH,
    ),
    "near in radians": ({"loc": {"$nearSphere": [180, 1], "$maxDistance": 0.01}}, LINE),
}


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    client.drop_database(DATABASE)
    content = []
    for name, (lng, lat) in PLACES.items():
        hashed = str(cells_to_strings(points_to_cells([lng], [lat]))[0])
        content.append({"_id": name, "loc": {"type": "Point", "coordinates": [lng, lat]}, "gh": hashed})
    content.append({"_id": "nowhere", "n": 1})
    collection = make_collection(client[DATABASE], "places", Setup(), content)
    register(collection, Setup(), None)  # without statistics everything that can be is rewritten
    yield collection
    client.drop_database(DATABASE)
    metadata_collection(collection).delete_one({"_id": collection.full_name})


@pytest.fixture
def spatial(plain: Documents) -> SpatialCollection:
    return SpatialCollection(plain)


@pytest.mark.parametrize("case", CASES)
def test_the_documented_behaviour(case: str, plain: Documents, spatial: SpatialCollection) -> None:
    query, expected = CASES[case]
    assert {d["_id"] for d in plain.find(query)} == expected
    for qos in (QoS(), QoS(max_ranges=2), QoS(prefer="throughput"), QoS(precision="selectivity")):
        wished = SpatialCollection(plain, qos=qos)
        cursor = wished.find(query)
        assert {d["_id"] for d in cursor} == expected
        assert cursor.plan is not None
        # Left alone only where the server's own answer depends on whether it uses its index.
        assert cursor.plan.rewritten or "S2" in cursor.plan.reasons[0]
    assert set(spatial.distinct("_id", query)) == expected
    if "near" not in str(query):
        assert spatial.count_documents(query) == len(expected)
        assert {d["_id"] for d in spatial.aggregate([{"$match": query}])} == expected


def test_most_cases_are_rewritten(spatial: SpatialCollection) -> None:
    assert sum(spatial.plan(query).rewritten for query, _ in CASES.values()) >= len(CASES) / 3


def test_near_sorts_by_distance_over_the_antimeridian(plain: Documents, spatial: SpatialCollection) -> None:
    stage = {"near": {"type": "Point", "coordinates": [-179.6, 1]}, "distanceField": "d", "maxDistance": 1e6}
    pipeline = [{"$geoNear": stage}, {"$project": {"d": 1}}]
    expected, actual = list(plain.aggregate(pipeline)), list(spatial.aggregate(pipeline))
    assert [d["_id"] for d in expected][:1] == ["east of the line"]
    assert {d["_id"] for d in expected} == LINE | {"antipode"}
    assert [d["d"] for d in expected] == [d["d"] for d in actual]
    assert {d["_id"] for d in expected} == {d["_id"] for d in actual}


# -- malformed --------------------------------------------------------------------------------------------

CENTRE = {"$centerSphere": [[0, 0], 0.1]}
POINT = {"type": "Point", "coordinates": [0, 0]}
MALFORMED: dict[str, Any] = {
    "no such shape": {"loc": {"$geoWithin": {"$circle": [[0, 0], 1]}}},
    "no shape": {"loc": {"$geoWithin": {}}},
    "two shapes": {"loc": {"$geoWithin": {**CENTRE, "$box": [[0, 0], [1, 1]]}}},
    "a number for a shape": {"loc": {"$geoWithin": 5}},
    "a list for a shape": {"loc": {"$geoWithin": [1, 2]}},
    "nothing for a shape": {"loc": {"$geoWithin": None}},
    "box of one corner": {"loc": {"$geoWithin": {"$box": [[0, 0]]}}},
    "box of texts": {"loc": {"$geoWithin": {"$box": [["0", "0"], ["1", "1"]]}}},
    "box of a number": {"loc": {"$geoWithin": {"$box": 5}}},
    "polygon of two": {"loc": {"$geoWithin": {"$polygon": [[0, 0], [1, 1]]}}},
    "circle without a radius": {"loc": {"$geoWithin": {"$center": [[0, 0]]}}},
    "negative radius": {"loc": {"$geoWithin": {"$centerSphere": [[0, 0], -1]}}},
    "radius of text": {"loc": {"$geoWithin": {"$center": [[0, 0], "1"]}}},
    "centre off the globe": {"loc": {"$geoWithin": {"$centerSphere": [[200, 0], 1]}}},
    "latitude beyond the pole": within(polygon((0, 0), (10, 0), (10, 91))),
    "open ring": within({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}),
    "ring of three": within({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]}),
    "ring that crosses itself": within(polygon((0, 0), (10, 10), (10, 0), (0, 10))),
    "no rings": within({"type": "Polygon", "coordinates": []}),
    "no coordinates": within({"type": "Polygon"}),
    "coordinates of text": within({"type": "Polygon", "coordinates": "x"}),
    "no type": within({"coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}),
    "no such type": within({"type": "Circle", "coordinates": [0, 0]}),
    "within a point": within(POINT),
    "within a line": within({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
    "unknown CRS": within(polygon((0, 0), (1, 0), (1, 1), crs={"type": "name", "properties": {"name": "x"}})),
    "line of one": crossing({"type": "LineString", "coordinates": [[0, 0]]}),
    "empty collection": crossing({"type": "GeometryCollection", "geometries": []}),
    "intersects a box": {"loc": {"$geoIntersects": {"$box": [[0, 0], [1, 1]]}}},
    "intersects nothing": {"loc": {"$geoIntersects": {}}},
    "no such operator": {"loc": {"$geoNearby": CENTRE}},
    "operator and something": {"loc": {"$geoWithin": CENTRE, "$exists": True}},
    "two operators": {"loc": {"$geoWithin": CENTRE, "$geoIntersects": {"$geometry": POINT}}},
    "operator and distance": {"loc": {"$geoWithin": CENTRE, "$maxDistance": 5}},
    "empty $and": {"loc": {"$geoWithin": CENTRE}, "$and": []},
    "$and of a document": {"loc": {"$geoWithin": CENTRE}, "$and": {"n": 1}},
    "$and of numbers": {"loc": {"$geoWithin": CENTRE}, "$and": [1]},
    "$and of nothing": {"loc": {"$geoWithin": CENTRE}, "$and": None},
    "empty $or": {"loc": {"$geoWithin": CENTRE}, "$or": []},
    "$or of numbers": {"loc": {"$geoWithin": CENTRE}, "$or": [1]},
    "$or of a wrong branch": {"$or": [{"loc": {"$geoWithin": CENTRE}}, {"loc": {"$geoWithin": {"$x": 1}}}]},
    "empty $nor": {"loc": {"$geoWithin": CENTRE}, "$nor": []},
    "no such top operator": {"loc": {"$geoWithin": CENTRE}, "$nand": [{"n": 1}]},
    "no such operator beside": {"loc": {"$geoWithin": CENTRE}, "n": {"$bigger": 1}},
    "wrong regular expression": {"loc": {"$geoWithin": CENTRE}, "n": {"$regex": "("}},
    "wrong expression": {"loc": {"$geoWithin": CENTRE}, "$expr": {"$nonsense": 1}},
    "$in of a number": {"loc": {"$geoWithin": CENTRE}, "n": {"$in": 5}},
    "near a number": {"loc": {"$near": 5}},
    "near nothing": {"loc": {"$nearSphere": {}}},
    "near a line": {"loc": {"$near": {"$geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}}},
    "near off the globe": {"loc": {"$nearSphere": {"$geometry": {"type": "Point", "coordinates": [200, 0]}}}},
    "near with a negative distance": {"loc": {"$nearSphere": {"$geometry": POINT, "$maxDistance": -1}}},
    "near with a distance of text": {"loc": {"$nearSphere": {"$geometry": POINT, "$maxDistance": "1"}}},
    "near with the distance outside": {"loc": {"$nearSphere": {"$geometry": POINT}, "$maxDistance": 5}},
    "near with something beside": {"loc": {"$nearSphere": [0, 0], "$exists": True}},
    "near not first": {"loc": {"$maxDistance": 1, "$nearSphere": [0, 0]}},
    "two nears": {"$and": [{"loc": {"$nearSphere": [0, 0]}}, {"loc": {"$nearSphere": [0, 0]}}]},
    "near under $not": {"loc": {"$not": {"$nearSphere": [0, 0]}}},
    "near in $nor": {"$nor": [{"loc": {"$nearSphere": [0, 0]}}]},
    "near in two branches": {"$or": [{"loc": {"$nearSphere": [0, 0], "$maxDistance": 1}}, {"n": 1}]},
    "flat near without a flat index": {"loc": {"$near": [0, 0], "$maxDistance": 5}},
}


def geo_near(**options: Any) -> dict[str, Any]:
    return {"$geoNear": {"near": POINT, "distanceField": "d", **options}}


MALFORMED_PIPELINES: dict[str, list[dict[str, Any]]] = {
    "$match of a number": [{"$match": 5}],
    "$match with near": [{"$match": {"loc": {"$nearSphere": [0, 0], "$maxDistance": 0.1}}}],
    "no such stage": [{"$match": {"loc": {"$geoWithin": CENTRE}}}, {"$nonsense": 1}],
    "two keys": [{"$match": {"loc": {"$geoWithin": CENTRE}}, "$limit": 5}],
    "wrong group": [{"$match": {"loc": {"$geoWithin": CENTRE}}}, {"$group": {"n": 1}}],
    "$geoNear of a number": [{"$geoNear": 5}],
    "without a point": [{"$geoNear": {"distanceField": "d", "maxDistance": 5}}],
    "near a line": [geo_near(near={"type": "LineString", "coordinates": [[0, 0], [1, 1]]})],
    "off the globe": [geo_near(near={"type": "Point", "coordinates": [0, 100]})],
    "a negative distance": [geo_near(maxDistance=-5)],
    "a distance of text": [geo_near(maxDistance="5")],
    "a query of text": [geo_near(maxDistance=5, query="x")],
    "a wrong query": [geo_near(maxDistance=5, query={"$x": 1})],
    "a query of an empty $and": [geo_near(maxDistance=5, query={"$and": []})],
    "a near in the query": [geo_near(maxDistance=5, query={"loc": {"$nearSphere": [0, 0]}})],
    "by no field": [geo_near(maxDistance=5, key="nowhere")],
    "by a number": [geo_near(maxDistance=5, key=5)],
    "a wrong distance field": [geo_near(maxDistance=5, distanceField=5)],
    "a wrong multiplier": [geo_near(maxDistance=5, distanceMultiplier=-1)],
    "a second key": [{**geo_near(maxDistance=5), "$limit": 5}],
    "flat, without a flat index": [geo_near(near=[0, 0], maxDistance=5)],
    "$geoNear second": [{"$match": {"n": 1}}, geo_near(maxDistance=5)],
    "$limit of nothing": [geo_near(), {"$limit": 0}],
    "negative $limit": [geo_near(), {"$limit": -5}],
    "$limit of text": [geo_near(), {"$limit": "5"}],
    "negative $skip": [geo_near(), {"$skip": -5}, {"$limit": 5}],
}


def failure(function: Any) -> OperationFailure | None:
    try:
        function()
    except OperationFailure as error:
        return error
    return None


def told(error: OperationFailure | None) -> tuple[Any, ...] | None:
    """Type, code and message; what the message quotes of the query is the server's business."""
    if error is None:
        return None
    message = str((error.details or {}).get("errmsg"))
    # The planner quotes the whole query, as it was sent.
    return type(error), error.code, message if "error processing query" not in message else "..."


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_filter_raises_what_pymongo_raises(
    case: str, plain: Documents, spatial: SpatialCollection
) -> None:
    query = MALFORMED[case]
    asked: dict[str, Any] = {
        "find": lambda one: list(one.find(query)),
        "find with a limit": lambda one: list(one.find(query).limit(3)),
        "find_one": lambda one: one.find_one(query),
        "count": lambda one: one.count_documents(query),
        "distinct": lambda one: one.distinct("n", query),
        "aggregate": lambda one: list(one.aggregate([{"$match": query}])),
        "delete_many": lambda one: one.delete_many({**query, "_id": "no such"}),
    }
    failures = 0
    for method, ask in asked.items():
        expected = failure(lambda ask=ask: ask(plain))
        assert told(failure(lambda ask=ask: ask(spatial))) == told(expected), method
        failures += expected is not None
    assert failures >= 1


@pytest.mark.parametrize("case", MALFORMED_PIPELINES)
def test_a_malformed_pipeline_raises_what_pymongo_raises(
    case: str, plain: Documents, spatial: SpatialCollection
) -> None:
    pipeline = MALFORMED_PIPELINES[case]
    expected = failure(lambda: list(plain.aggregate(pipeline)))
    assert expected is not None
    assert told(failure(lambda: list(spatial.aggregate(pipeline)))) == told(expected)


def test_a_malformed_query_is_planned_without_an_error(spatial: SpatialCollection) -> None:
    """Whatever comes: the plan says that it goes as it is, or what will be sent; it never raises."""
    for query in MALFORMED.values():
        assert spatial.plan(query).reasons
    info = run(load_info(spatial._collection))
    for pipeline in MALFORMED_PIPELINES.values():
        assert rewrite_pipeline(pipeline, info).reasons
