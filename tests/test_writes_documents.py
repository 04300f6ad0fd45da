"""The gh of a document is what the server's expression computes for it, whatever the document is made of."""

from __future__ import annotations

import decimal
import random
from collections.abc import Iterator, Mapping
from typing import Any

import bson
import numpy as np
import pytest
from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, TypeEncoder, TypeRegistry
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from pymongo.database import Database

from spatialnosql.expression import geohash_expression
from spatialnosql.geohash import point_to_geohash
from spatialnosql.info import CollectionInfo
from spatialnosql.writes import gh_of, to_insert, with_gh

INFO = CollectionInfo("test.points")
NESTED = CollectionInfo("test.points", location="place.point", gh="hash")
POINT = {"type": "Point", "coordinates": [10.5, 20.25]}
GH = point_to_geohash(10.5, 20.25)


class OnlyMapping(Mapping[str, Any]):
    """A document type of the user's own, neither a dict nor mutable."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Degrees:
    """A coordinate type of the user's own."""

    def __init__(self, value: float) -> None:
        self.value = value


class DegreesEncoder(TypeEncoder):
    python_type = Degrees

    def transform_python(self, value: Degrees) -> float:
        return value.value


OWN_TYPES: CodecOptions[dict[str, Any]] = CodecOptions(type_registry=TypeRegistry([DegreesEncoder()]))

POINTS = {
    "geojson": POINT,
    "geojson with a tuple": {"type": "Point", "coordinates": (10.5, 20.25)},
    "geojson in the other order": {"coordinates": [10.5, 20.25], "type": "Point"},
    "geojson with a height": {"type": "Point", "coordinates": [10.5, 20.25, 99.0]},
    "legacy pair": [10.5, 20.25],
    "legacy tuple": (10.5, 20.25),
    "legacy document": {"lng": 10.5, "lat": 20.25},
    "legacy document of other names": {"x": 10.5, "y": 20.25, "z": "more"},
    "ordered": SON([("type", "Point"), ("coordinates", [10.5, 20.25])]),
    "raw": RawBSONDocument(bson.encode(POINT)),
    "custom mapping": OnlyMapping(type="Point", coordinates=[10.5, 20.25]),
    "decimals": [Decimal128("10.5"), Decimal128("20.25")],
    "numpy floats": [np.float64(10.5), np.float64(20.25)],
}


@pytest.mark.parametrize("name", POINTS)
def test_gh_of_every_way_to_write_a_point(name: str) -> None:
    assert with_gh({"loc": POINTS[name]}, INFO)["gh"] == GH
    assert with_gh({"place": {"point": POINTS[name]}}, NESTED)["hash"] == GH


@pytest.mark.parametrize(
    "location",
    [
        None,
        "10.5,20.25",
        5,
        [],
        [10.5],
        [[10.5, 20.25], [1.0, 2.0]],
        [POINT, POINT],
        ["10.5", "20.25"],
        [True, False],
        [float("nan"), 1.0],
        [float("inf"), 1.0],
        [180.0000001, 1.0],
        [1.0, -90.0000001],
        [10**30, 1],
        [Decimal128("NaN"), 1],
        {},
        {"lng": 10.5},
        {"lng": "10.5", "lat": 20.25},
        {"type": "Point"},
        {"type": "Point", "coordinates": {"lng": 10.5, "lat": 20.25}},
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]},
    ],
)
def test_no_single_point_no_gh_and_a_wrong_one_is_taken_away(location: Any) -> None:
    assert with_gh({"loc": location, "gh": "wrong", "n": 1}, INFO) == {"loc": location, "n": 1}


def test_missing_location_and_arrays_on_the_way() -> None:
    assert gh_of({"n": 1}, INFO) is None
    assert gh_of({"place": {"name": "x"}}, NESTED) is None
    assert gh_of({"place": [{"point": POINT}]}, NESTED) is None
    assert gh_of({"place": [10.5, 20.25]}, NESTED) is None


def test_form_decides_what_counts() -> None:
    geojson, legacy = (CollectionInfo("t.c", form=form) for form in ("geojson", "legacy"))
    assert gh_of({"loc": POINT}, geojson) == GH
    assert gh_of({"loc": [10.5, 20.25]}, geojson) is None
    assert gh_of({"loc": {"lng": 10.5, "lat": 20.25}}, geojson) is None
    assert gh_of({"loc": POINT}, legacy) is None
    assert gh_of({"loc": [10.5, 20.25]}, legacy) == GH


def test_copy_is_shallow_and_the_original_stays() -> None:
    document = {"loc": POINT, "gh": "wrong"}
    copy = with_gh(document, INFO)
    assert document == {"loc": POINT, "gh": "wrong"}
    assert copy == {"loc": POINT, "gh": GH}
    assert copy["loc"] is POINT


def test_raw_documents_stay_raw_to_the_byte() -> None:
    body = {"_id": 1, "loc": POINT, "inner": {"a": Int64(1)}}
    right = RawBSONDocument(bson.encode({**body, "gh": GH}))
    assert with_gh(right, INFO) is right
    for given in (body, {"gh": "wrong", **body}):
        copy = with_gh(RawBSONDocument(bson.encode(given)), INFO)
        assert isinstance(copy, RawBSONDocument)
        assert bytes(copy.raw) == bson.encode({**body, "gh": GH})
    without = with_gh(RawBSONDocument(bson.encode({"_id": 1, "gh": "wrong"})), INFO)
    assert bytes(without.raw) == bson.encode({"_id": 1})


def test_types_of_the_users_own_codec() -> None:
    document = {"loc": {"type": "Point", "coordinates": [Degrees(10.5), Degrees(20.25)]}}
    assert gh_of(document, INFO, OWN_TYPES) == GH
    assert gh_of(document, INFO) is None  # cannot be stored so: pymongo will say it


def test_insertion_gives_the_callers_document_its_id() -> None:
    document: dict[str, Any] = {"loc": POINT}
    copy = to_insert(document, INFO)
    assert isinstance(document["_id"], ObjectId)
    assert copy == {**document, "gh": GH}
    assert "gh" not in document
    kept = {"_id": 5}
    assert to_insert(kept, INFO) == {"_id": 5}


@pytest.mark.parametrize("wrong", [None, 5, "text", [1, 2], OnlyMapping(loc=POINT)])
def test_what_pymongo_refuses_to_insert_is_left_to_it(wrong: Any) -> None:
    assert to_insert(wrong, INFO) is wrong


def test_replacement_may_be_any_mapping() -> None:
    assert with_gh(OnlyMapping(loc=POINT), INFO) == {"loc": POINT, "gh": GH}
    assert with_gh("text", INFO) == "text"


# -- against the server -----------------------------------------------------------------------------------


def _number(rng: random.Random, limit: float) -> Any:
    value = rng.choice(
        [
            rng.uniform(-limit, limit),
            rng.uniform(-limit, limit) * 1.2,
            rng.randint(-200, 200),
            rng.choice([-limit, limit, 0.0, -0.0, 5e-324, limit + 1e-13, float("nan"), float("inf")]),
            # The border of a cell, and its neighbours
            rng.randrange(2**30) * (2 * limit / 2**30) - limit,
        ]
    )
    kind = rng.randrange(8)
    if kind == 0 and value == value and abs(value) != float("inf"):
        return Int64(int(value))
    if kind == 1:
        digits = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
        # A decimal below the least double is an error to the server, not a number.
        return Decimal128(digits) if not digits.is_finite() or abs(digits) > decimal.Decimal("1e-300") else 0
    if kind == 2 and isinstance(value, float):
        return float(np.nextafter(value, rng.choice([-400.0, 400.0])))
    return value


def _location(rng: random.Random) -> Any:
    lng, lat = _number(rng, 180.0), _number(rng, 90.0)
    odd = [None, "x", True, [lng, lat], {"a": lng}, ObjectId(), 5]
    if rng.random() < 0.15:
        lng = rng.choice(odd)
    extra = [rng.choice(odd)] if rng.random() < 0.2 else []
    pair = [lng, lat, *extra][: rng.choice([3, 3, 3, 3, 1])]
    return rng.choice(
        [
            {"type": "Point", "coordinates": pair},
            {"coordinates": pair, "type": rng.choice(["Point", "Point", "point", 5, 7.5])},
            {"type": "Point", "coordinates": {"lng": lng, "lat": lat}},
            {"type": lng, "coordinates": lat},
            pair,
            dict(zip(("lng", "lat", "more"), pair, strict=False)),
            [pair, pair],
            [{"type": "Point", "coordinates": pair}],
            rng.choice(odd),
        ]
    )


@pytest.mark.parametrize("form", ["any", "geojson", "legacy"])
@pytest.mark.parametrize("path", ["loc", "place.point", "a.b.c"])
def test_as_the_server_computes_it(database: Database[dict[str, Any]], form: Any, path: str) -> None:
    rng = random.Random(f"{form} {path}")
    info = CollectionInfo("t.c", location=path, form=form)
    documents: list[dict[str, Any]] = []
    for number in range(600):
        value = _location(rng)
        for name in reversed(path.split(".")):
            kind = rng.random()
            value = {"before": 1, name: value} if kind < 0.9 else {name: value}
            if kind > 0.96:
                value = {name: [value[name]]}
        documents.append({"_id": number, **value})
    database["points"].insert_many(documents)
    computed = database["points"].aggregate([{"$project": {"gh": geohash_expression(path, form)}}])
    wanted = {one["_id"]: one["gh"] for one in computed}
    wrong = [
        (one, wanted[one["_id"]], gh_of(one, info))
        for one in documents
        if gh_of(one, info, DEFAULT_CODEC_OPTIONS) != wanted[one["_id"]]
    ]
    assert wrong == []
    if form == "any":  # the test means something: there are many of both
        assert 100 < sum(gh is not None for gh in wanted.values()) < 450
