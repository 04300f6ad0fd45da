"""``gh`` says where the server sees a document: nowhere else, and not only there if it sees it in several places."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from spatialnosql.expression import Form, geohash_expression
from spatialnosql.geohash import point_to_geohash
from spatialnosql.geometry import STRICT_WINDING
from spatialnosql.writes.documents import gh_of_location

HERE, THERE = (30.0, 40.0), (1.0, 2.0)


def crs(name: Any) -> dict[str, Any]:
    return {"type": "name", "properties": {"name": name}}


def point(**more: Any) -> dict[str, Any]:
    return {"type": "Point", "coordinates": list(HERE), **more}


ODD: dict[str, Any] = {
    "a pair with a number more": [30, 40, 5],
    "a pair with a word": [30, 40, "home"],
    "a pair with a pair in it": [30, 40, [1, 2]],
    "a pair with a document in it": [30, 40, {"x": 1, "y": 2}],
    "a pair with a point in it": [30, 40, {"type": "Point", "coordinates": [1, 2]}],
    "pairs": [[30, 40], [1, 2]],
    "a document with a number more": {"lng": 30, "lat": 40, "accuracy": 5},
    "a document with a word": {"lng": 30, "lat": 40, "kind": "home"},
    "a document with a document in it": {"lng": 30, "lat": 40, "more": {"x": 1, "y": 2}},
    "a document with a type of its own": {"lng": 30, "lat": 40, "type": "home"},
    "a point after a pair": {"x": 1, "y": 2, "type": "Point", "coordinates": [30, 40]},
    "a line after a pair": {"x": 1, "y": 2, "type": "LineString", "coordinates": [[30, 40], [31, 41]]},
    "a point": point(),
    "a point with an altitude": {"type": "Point", "coordinates": [30, 40, 100]},
    "a point of the usual CRS": point(crs=crs("EPSG:4326")),
    "a point of the usual CRS by its long name": point(crs=crs("urn:ogc:def:crs:OGC:1.3:CRS84")),
    "a point of another CRS": point(crs=crs("EPSG:3857")),
    "a point of the strict CRS": point(crs=crs(STRICT_WINDING)),
    "a point whose CRS is null": point(crs=None),
    "a point whose CRS is a word": point(crs="EPSG:4326"),
    "a point whose CRS is of another type": point(crs={"type": "link", "properties": {"name": "EPSG:4326"}}),
    "several points": {"type": "MultiPoint", "coordinates": [[30, 40], [1, 2]]},
}


@pytest.mark.parametrize("form", ["geojson", "legacy", "any"])
def test_gh_is_where_the_server_sees_it(database: Database[dict[str, Any]], form: Form) -> None:
    collection = database.odd  # without a geo index, which would refuse most of them
    collection.insert_many([{"_id": name, "loc": value} for name, value in ODD.items()])
    computed = {
        found["_id"]: found["gh"]
        for found in collection.aggregate([{"$project": {"gh": geohash_expression("loc", form)}}])
    }
    assert computed == {name: gh_of_location(value, form) for name, value in ODD.items()}
    assert {computed["a point"], computed["a pair with a number more"]} >= {point_to_geohash(*HERE)}
    for place in (HERE, THERE):
        circle = {"$geoWithin": {"$centerSphere": [list(place), 1e-6]}}
        seen = {found["_id"] for found in collection.find({"loc": circle}, {"_id": 1})}
        hashed = {name for name, gh in computed.items() if gh is not None}
        there = {name for name in hashed if computed[name] == point_to_geohash(*place)}
        assert there == seen & hashed, place
