"""Geohash computed by the server: equal to the numpy encoder to the last character, null for what is no point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bson import Decimal128, Int64
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, WriteError

from spatialnosql import testing
from spatialnosql.errors import UsageError
from spatialnosql.expression import Form, geohash_expression
from spatialnosql.geohash import points_to_strings

EDGES = [
    (lng, lat)
    for lng in (-180.0, 180.0, 0.0, -0.0, 5e-324, -5e-324, 1e-300, 45.0, -135.0, 179.99999999999997)
    for lat in (-90.0, 90.0, 0.0, -0.0, 5e-324, -5e-324, 1e-300, 22.5, -67.5, 89.99999999999999)
]


def computed(collection: Collection[dict[str, Any]], field: str, form: Form = "any") -> dict[Any, str | None]:
    """What the server makes of every document, by ``_id``."""
    found = collection.aggregate([{"$project": {"gh": geohash_expression(field, form)}}])
    return {document["_id"]: document["gh"] for document in found}


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray]:
    """Random places, cell borders of every precision with the doubles beside them, and the borders of the world."""
    parts = [testing.points_on_sphere(3000), testing.points_at_cell_borders(6000), np.array(EDGES).T]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def test_every_form_is_equal_to_the_encoder(
    database: Database[dict[str, Any]], points: tuple[np.ndarray, np.ndarray]
) -> None:
    expected = dict(enumerate(points_to_strings(*points).tolist()))
    pairs = list(zip(points[0].tolist(), points[1].tolist(), strict=True))
    database.points.insert_many(
        {
            "_id": i,
            "geojson": {"type": "Point", "coordinates": [x, y]},
            "array": [x, y],
            "document": {"lng": x, "lat": y},
            "deep": {"er": {"loc": [x, y]}},
        }
        for i, (x, y) in enumerate(pairs)
    )
    assert len(expected) == 9100
    forms: dict[str, tuple[Form, ...]] = {
        "geojson": ("geojson", "any"),
        "array": ("legacy", "any"),
        "document": ("legacy", "any"),
        "deep.er.loc": ("legacy", "any"),
    }
    for field, accepted in forms.items():
        for form in accepted:
            assert computed(database.points, field, form) == expected, (field, form)


def test_a_form_takes_no_other(database: Database[dict[str, Any]]) -> None:
    database.points.insert_many(
        [
            {"_id": "geojson", "loc": {"type": "Point", "coordinates": [1, 2]}},
            {"_id": "array", "loc": [1, 2]},
            {"_id": "document", "loc": {"x": 1, "y": 2}},
        ]
    )
    gh = str(points_to_strings([1], [2])[0])
    assert computed(database.points, "loc") == {"geojson": gh, "array": gh, "document": gh}
    assert computed(database.points, "loc", "geojson") == {"geojson": gh, "array": None, "document": None}
    assert computed(database.points, "loc", "legacy") == {"geojson": None, "array": gh, "document": gh}


def test_every_sort_of_number_is_one(database: Database[dict[str, Any]]) -> None:
    pairs = [
        (1, 2),
        (Int64(1), Int64(-2)),
        (Decimal128("1.25"), Decimal128("-2.5")),
        (Decimal128("0.1"), Decimal128("-0.3")),
        (Decimal128("-180"), Decimal128("90")),
        (Decimal128("1E-6000"), Decimal128("-1E-6000")),
        (Int64(180), -90),
        (1, 2.5),
    ]
    database.points.insert_many({"_id": i, "loc": list(pair)} for i, pair in enumerate(pairs))

    def number(value: Any) -> float:
        return float(value.to_decimal()) if isinstance(value, Decimal128) else float(value)

    expected = [str(points_to_strings([number(x)], [number(y)])[0]) for x, y in pairs]
    assert computed(database.points, "loc") == dict(enumerate(expected))


NO_POINTS: dict[str, Any] = {
    "missing": ...,
    "null": None,
    "number": 5,
    "string": "dr5ru",
    "empty array": [],
    "empty document": {},
    "one number": [1],
    "one field": {"lng": 1},
    "strings": ["1", "2"],
    "one string": [1, "2"],
    "truth": [True, 2],
    "nulls": [None, None],
    "nan": [math.nan, 2],
    "nan latitude": [1, math.nan],
    "infinity": [math.inf, 2],
    "minus infinity": [1, -math.inf],
    "decimal nan": [Decimal128("NaN"), 2],
    "decimal infinity": [1, Decimal128("Infinity")],
    "decimal beyond a double": [Decimal128("1E+400"), 2],
    "off the globe": [180.00000000000003, 2],
    "off the globe north": [1, 90.00000000000001],
    "far off": [1e300, -1e300],
    "big integer": [Int64(2**62), 1],
    "array of pairs": [[1, 2], [3, 4]],
    "array of points": [{"type": "Point", "coordinates": [1, 2]}],
    "polygon": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]},
    "line": {"type": "LineString", "coordinates": [[0, 0], [1, 0]]},
    "multipoint": {"type": "MultiPoint", "coordinates": [[1, 2]]},
    "point without coordinates": {"type": "Point"},
    "point with null": {"type": "Point", "coordinates": None},
    "point with a string": {"type": "Point", "coordinates": "1,2"},
    "point with one number": {"type": "Point", "coordinates": [1]},
    "point with nested pairs": {"type": "Point", "coordinates": [[1, 2]]},
    "point off the globe": {"type": "Point", "coordinates": [200, 0]},
    "fields in an odd order": {"coordinates": [1, 2], "kind": "Point"},
}


@pytest.mark.parametrize("form", ["geojson", "legacy", "any"])
def test_what_is_no_point_gives_null(database: Database[dict[str, Any]], form: Form) -> None:
    database.points.insert_many(
        {"_id": name, **({} if value is ... else {"loc": value})} for name, value in NO_POINTS.items()
    )
    assert computed(database.points, "loc", form) == dict.fromkeys(NO_POINTS)


def test_geojson_with_its_fields_in_another_order_or_an_altitude(database: Database[dict[str, Any]]) -> None:
    database.points.insert_many(
        [
            {"_id": 0, "loc": {"coordinates": [1, 2], "type": "Point"}},
            {"_id": 1, "loc": {"type": "Point", "coordinates": [1, 2, 300.5]}},
            {"_id": 2, "loc": {"type": "Point", "coordinates": [1, 2], "crs": {"type": "name"}}},
        ]
    )
    gh = str(points_to_strings([1], [2])[0])
    # A CRS without a name is none that the server knows: it never finds such a point.
    assert computed(database.points, "loc", "geojson") == {0: gh, 1: gh, 2: None}


def test_an_existing_collection_gets_its_geohashes_and_stale_ones_are_found(
    database: Database[dict[str, Any]], points: tuple[np.ndarray, np.ndarray]
) -> None:
    documents = testing.points_to_documents(*points)
    database.points.insert_many(documents)
    expression = geohash_expression("loc")
    result = database.points.update_many({}, [{"$set": {"gh": expression}}])
    assert result.modified_count == len(documents)
    stale = {"$expr": {"$ne": ["$gh", expression]}}
    assert database.points.count_documents(stale) == 0
    database.points.update_one({"_id": 5}, {"$set": {"loc.coordinates": [0.5, 0.5]}})
    database.points.update_one({"_id": 6}, {"$unset": {"gh": 1}})
    assert {document["_id"] for document in database.points.find(stale)} == {5, 6}


def test_as_a_validator_it_rejects_wrong_geohashes(database: Database[dict[str, Any]]) -> None:
    expression = geohash_expression("loc")
    database.create_collection("points", validator={"$expr": {"$eq": ["$gh", expression]}})
    gh = str(points_to_strings([1.5], [2.5])[0])
    point = {"type": "Point", "coordinates": [1.5, 2.5]}
    database.points.insert_one({"loc": point, "gh": gh})
    with pytest.raises(WriteError, match="Document failed validation"):
        database.points.insert_one({"loc": point, "gh": gh[:-1] + "1"})
    with pytest.raises(WriteError, match="Document failed validation"):
        database.points.insert_one({"loc": point})
    with pytest.raises(WriteError, match="Document failed validation"):
        database.points.update_one({}, {"$set": {"loc.coordinates": [3, 4]}})
    with pytest.raises(BulkWriteError, match="Document failed validation"):
        database.points.insert_many([{"loc": point, "gh": gh}, {"loc": [math.nan, 0], "gh": gh}])
    assert database.points.count_documents({}) == 2


@pytest.mark.parametrize("name", ["", "$loc", "a\0b"])
def test_names_that_are_no_fields(name: str) -> None:
    with pytest.raises(UsageError, match="is no field name"):
        geohash_expression(name)


def test_an_unknown_form() -> None:
    with pytest.raises(UsageError, match="form is 'wkt'; it must be 'geojson', 'legacy' or 'any'"):
        geohash_expression("loc", "wkt")  # type: ignore[arg-type]
