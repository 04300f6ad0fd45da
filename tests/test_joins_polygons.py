"""Polygons: read, sorted out, loaded into a collection with their covers, and kept true there."""

from __future__ import annotations

import copy
import datetime as dt
import gzip
import io
import itertools
import json
import secrets
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError
from spies import answers_of

from spatialnosql.adopt import adopt
from spatialnosql.analyze import analyze
from spatialnosql.city import generate_city
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins import cover_refreshing, covering, polygon_collection, read_shapes
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.cover_refreshing import refresh_covers
from spatialnosql.joins.covering import cover_region, range_keys
from spatialnosql.joins.polygon_collection import cover_to_document, polygons_of
from spatialnosql.joins.polygon_file import read_features
from spatialnosql.joins.polygon_listing import GONE, list_polygons
from spatialnosql.joins.polygon_loading import load_polygons
from spatialnosql.joins.polygons import Polygons, entries_of, hashable_id, read_polygon, sorted_out
from spatialnosql.joins.read_shapes import read_shape
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.neighbourhoods import neighbourhoods
from spatialnosql.steps import run

STRICT = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}


def ring(x: float, y: float, size: float) -> list[list[float]]:
    return [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]


def square(x: float = 10.1, y: float = 50.1, size: float = 1.0, *holes: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [ring(x, y, size), *holes]}


def feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def features(*members: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(members)}


BOW_TIE = {"type": "Polygon", "coordinates": [[[1, 1], [2, 2], [2, 1], [1, 2], [1, 1]]]}
FAR_HOLE = square(1, 1, 1, ring(5, 5, 1))
# What MongoDB refuses, and what is said of it.
BAD = {
    "crossing": (BOW_TIE, "edges of ring 0 cross: from [1, 1] to [2, 2]"),
    "open": ({"type": "Polygon", "coordinates": [ring(1, 1, 1)[:-1]]}, "ring 0 is not closed"),
    "no rings": ({"type": "Polygon", "coordinates": []}, "polygon 0 has no rings"),
    "empty ring": ({"type": "Polygon", "coordinates": [[]]}, "ring 0 "),
    "no parts": ({"type": "MultiPolygon", "coordinates": []}, "no polygons"),
    "triangle of two": ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}, "has 3 positions"),
    "all one place": ({"type": "Polygon", "coordinates": [[[1, 1]] * 4]}, "different positions"),
    "there and back": (
        {"type": "Polygon", "coordinates": [[[1, 1], [2, 2], [3, 1], [2, 2], [1, 1]]]},
        "ring 0 comes twice to [2, 2]",
    ),
    "hole outside": (FAR_HOLE, "ring 1 is a hole but does not lie inside its shell"),
    "hole across": (square(1, 1, 1, ring(1.5, 1.5, 1)), "cross"),
    "off the globe": (square(200, 10), "longitude must be within 180"),
    "swapped": (square(50, 120), "latitude and longitude swapped?"),
    "infinite": ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, float("inf")], [0, 0]]]}, "inf"),
    "words": (
        {"type": "Polygon", "coordinates": [[["0", "0"], ["1", "0"], ["1", "1"], ["0", "0"]]]},
        "no number",
    ),
    "text": ({"type": "Polygon", "coordinates": "POLYGON EMPTY"}, "must be a list"),
    "bad second part": (
        {"type": "MultiPolygon", "coordinates": [[ring(1, 1, 1)], BOW_TIE["coordinates"]]},
        "edges of polygon 1 ring 0 cross",
    ),
    "metres": (
        {**square(), "crs": {"type": "name", "properties": {"name": "EPSG:3857"}}},
        "unknown CRS 'EPSG:3857'",
    ),
}
# What has no inside, or is no geometry: MongoDB would store some of it, but nothing lies in it.
NO_POLYGONS = {
    "point": ({"type": "Point", "coordinates": [1, 2]}, "'Point' has no inside; it must be a Polygon or a"),
    "line": ({"type": "LineString", "coordinates": [[1, 2], [3, 4]]}, "'LineString' has no inside"),
    "collection": ({"type": "GeometryCollection", "geometries": [square()]}, "'GeometryCollection' has no"),
    "nothing": (None, "it has no geometry"),
    "text": ("POLYGON ((0 0))", "its geometry is no document but 'POLYGON ((0 0))'"),
    "no type": ({"coordinates": [ring(0, 0, 1)]}, "None has no inside"),
    "list as type": ({"type": ["Polygon"]}, "has no inside"),
}
DIGITS = {"type": "Polygon", "coordinates": [[[0, 0], [10**400, 0], [1, 1], [0, 0]]]}


# -- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BAD, *(f"no polygon: {name}" for name in NO_POLYGONS)])
def test_what_is_bad_is_listed_by_name_with_the_reason_and_the_rest_is_read(name: str) -> None:
    geometry, reason = BAD[name] if name in BAD else NO_POLYGONS[name.removeprefix("no polygon: ")]
    good, (bad,) = sorted_out(features(feature(square(), name="a"), feature(geometry, name=name)))
    assert [one.id for one in good] == ["a"]
    assert (bad.id, bad.number, bad.name) == (name, 1, f"feature 1 ({name!r})")
    assert reason in bad.reason


def test_features_that_are_none() -> None:
    given = [feature(square()), 5, "hello", None, {**feature(square()), "properties": [1]}, feature(DIGITS)]
    good, bad = sorted_out(given)
    assert [one.id for one in good] == [0]
    assert [one.number for one in bad] == [1, 2, 3, 4, 5]
    assert bad[0].name == "feature 1"
    assert "it is no GeoJSON feature but 5" in bad[0].reason
    assert "its properties are no document but [1]" in bad[3].reason
    assert "no place" in bad[4].reason


def test_ids_come_from_the_property_the_feature_its_name_or_its_number() -> None:
    given = features(
        {**feature(square(), name="n", code=7), "id": "f", "_id": "m"},
        {**feature(square(), name="n", code=8), "id": "f"},
        feature(square(), name="n", code=9),
        feature(square(), code=10),
        square(),
    )
    assert [one.id for one in Polygons.of(given)] == ["m", "f", "n", 3, 4]
    good, bad = sorted_out(given, "code")
    assert [one.id for one in good] == [7, 8, 9, 10]
    assert bad[0].reason == "no property 'code'; it has: none"
    with pytest.raises(
        UsageError, match=r"feature 0: no property 'cod'; it has: name, code; nor is there one that"
    ):
        sorted_out(given, "cod")
    assert good[0].properties == {"name": "n", "code": 7}


def test_ids_are_the_same_when_they_are_to_mongodb() -> None:
    ids = [1, 1.0, True, "1", Decimal128("1"), {"a": 1}, {"a": 1.0}, [1], None, float("nan"), 2**62]
    good, bad = sorted_out([{**feature(square()), "id": {"x": one}} for one in ids])
    assert [one.id["x"] for one in bad] == [1.0, Decimal128("1"), {"a": 1.0}]
    assert bad[0].reason == "feature 0 has the same id; ids must be different"
    assert good.by_id({"x": 1.0}) is good[0]
    assert hashable_id(float("nan")) == hashable_id(float("nan"))
    assert hashable_id(object) == hashable_id(object)


def test_polygons_of_anything() -> None:
    by_name = Polygons.of({"a": square(), "b": square(20.1)})
    assert [one.id for one in by_name] == ["a", "b"]
    assert Polygons.of(by_name) is by_name
    assert [one.id for one in Polygons.of(list(by_name))] == ["a", "b"]
    assert len(Polygons.of(feature(square()))) == len(Polygons.of(square())) == 1
    assert by_name.key != Polygons.of({"a": square(20.1), "b": square()}).key
    assert by_name.key == Polygons.of({"c": square(), "d": square(20.1)}).key
    assert len(entries_of(by_name)) == 2
    with pytest.raises(GeometryError, match=r"polygon 'b': edges of ring 0 cross.*\(1 more are bad\)"):
        Polygons.of({"a": square(), "b": BOW_TIE, "c": None})
    with pytest.raises(GeometryError, match="polygon 'x': it has no geometry"):
        Polygons.of([feature(square()), feature(None, name="x")])
    with pytest.raises(UsageError, match="polygons are given as"):
        Polygons.of("city.neighborhoods")
    with pytest.raises(UsageError, match="no polygon has the id 'z'"):
        by_name.by_id("z")


def test_shapes_that_only_the_server_can_tell_are_kept_with_the_reason() -> None:
    touching = square(10.1, 50.1, 1, [[10.1, 50.1], [10.6, 50.3], [10.4, 50.5], [10.1, 50.1]])
    assert "touches itself or another ring" in str(read_polygon("a", touching).why_not)
    assert read_polygon("a", touching).region is None
    assert read_polygon("a", square()).why_not is None
    assert "S2 cells" in str(read_polygon("a", square(0, 50, 1)).why_not)


# -- files ------------------------------------------------------------------------------------------------

TWO = [feature(square(), name="a"), feature(square(20.1), name="b")]
LINES = "\n".join(json.dumps(one) for one in TWO)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(features(*TWO)),
        json.dumps(features(*TWO), indent=1),
        json.dumps(features(*TWO)) + "\n\n",
        json.dumps(TWO),
        LINES,
        LINES.replace("\n", "\r\n\r\n") + "\r\n",
        "".join(f"\x1e{line}\n" for line in LINES.split("\n")),
        "\ufeff" + json.dumps(features(*TWO)),
        json.dumps({**features(*TWO), "crs": {"type": "name", "properties": {"name": "EPSG:4326"}}}),
        "\n".join(json.dumps(features(one)) for one in TWO),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_forms_of_files(tmp_path: Path, content: str, zipped: bool) -> None:
    file = tmp_path / "zones.geojson"
    file.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert read_features(str(file)) == TWO


def test_lines_of_an_export_and_bare_geometries(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        {"_id": {"$oid": "55cb9c666c522cafdb053a1a"}, "geometry": square(), "name": "Bedford", "zone": 4},
        {"_id": 5, "geometry": square(20.1), "name": "Midwood"},
        square(30.1),
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = read_features("-")
    polygons = Polygons.of(found)
    assert [one.id for one in polygons] == [ObjectId("55cb9c666c522cafdb053a1a"), 5, 2]
    assert polygons[0].properties == {"name": "Bedford", "zone": 4}
    named, (bad,) = sorted_out(found, "name")
    assert [one.id for one in named] == ["Bedford", "Midwood"]
    assert bad.number == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no GeoJSON: Expecting value"),
        ("hello", "is no GeoJSON: Expecting value"),
        (json.dumps(features(*TWO))[:-9], "is no GeoJSON: "),
        (f"{LINES}\n{LINES[:50]}", "is no GeoJSON: line 3: "),
        (b"\xff\xfe\x00", "is no GeoJSON: "),
        (gzip.compress(LINES.encode())[:-20], "is no GeoJSON: "),
        (gzip.compress(LINES.encode())[:20] + b"xxxxxxxxx", "is no GeoJSON: "),
        ("[" * 100_000, "is no GeoJSON: "),
        ("5", "is no GeoJSON: it holds 5, not an object"),
        ('{"type": "Topology", "objects": {}}', "is no GeoJSON: it holds an object of type 'Topology'"),
        ('{"type": "FeatureCollection"}', "is no GeoJSON: its features are None, not a list"),
        (json.dumps(features()), "there is no feature in "),
        (
            json.dumps({**features(*TWO), "crs": {"properties": {"name": "urn:ogc:def:crs:EPSG::2263"}}}),
            "are in urn:ogc:def:crs:EPSG::2263; MongoDB takes longitude and latitude",
        ),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "zones.geojson"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        read_features(str(file))
    assert message in str(error.value)
    with pytest.raises(UsageError, match="no such file"):
        read_features(str(tmp_path / "none.geojson"))


# -- stored covers, without a server ----------------------------------------------------------------------


def known(histogram: Histogram | None = None) -> CollectionInfo:
    rng = np.random.default_rng(3)
    made = Histogram.of_points(10.6 + rng.normal(0, 0.3, 5_000), 50.6 + rng.normal(0, 0.3, 5_000), 40)
    return CollectionInfo("city.trips", histogram=histogram or made)


def test_a_stored_cover_is_the_cover() -> None:
    world = {
        **square(),
        "coordinates": [square()["coordinates"][0][::-1]],
        "crs": STRICT,
    }  # all but the square
    info = known()
    assert info.histogram is not None
    polygons = Polygons.of({"a": square(), "world": world, "tiny": square(10.5, 50.5, 1e-7)})
    covers = [cover_region(one.region, info.histogram, 5.0) for one in polygons]
    stored = [
        bson.decode(bson.encode(cover_to_document(cover, one, info, info.histogram.key)))
        for cover, one in zip(covers, polygons, strict=True)
    ]
    back = polygon_collection._covers([stored[0], None, stored[1], stored[2]])
    assert back[1] is None
    for cover, found in zip(covers, (back[0], *back[2:]), strict=True):
        assert found is not None
        for kind in ("interior", "boundary"):
            one, other = getattr(cover, kind), getattr(found, kind)
            assert (one.lo.tolist(), one.hi.tolist()) == (other.lo.tolist(), other.hi.tolist())
    assert polygon_collection._covers([None, None]) == [None, None]


def test_shapes_are_remembered_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = [RawBSONDocument(bson.encode(square(10.1 + n))) for n in range(5)]
    size = len(raw[0].raw)
    monkeypatch.setattr(read_shapes, "_memory", read_shapes._Memory(3 * size))
    first = [read_shape(one) for one in raw]
    assert [one.polygon.geometry for one in first] == [square(10.1 + n) for n in range(5)]
    assert read_shape(raw[4]) is first[4]
    assert read_shape(raw[2]) is first[2]
    assert read_shape(raw[0]) is not first[0]  # the oldest went
    assert read_shape(raw[3]) is not first[3]  # and then the one not used since
    read_shapes.forget_shapes()
    assert read_shape(raw[2]) is not first[2]
    named = first[2].named("x", {"a": 1})
    assert (named.id, named.properties, named.region) == ("x", {"a": 1}, first[2].polygon.region)
    assert named.key == read_polygon("y", square(12.1)).key
    monkeypatch.setattr(read_shapes, "_memory", read_shapes._Memory(size - 1))
    assert read_shape(raw[0]).polygon.geometry == read_shape(raw[0]).polygon.geometry == square(10.1)
    for wrong in (None, 5, RawBSONDocument(bson.encode(BOW_TIE))):
        with pytest.raises(GeometryError):
            read_shape(wrong)


# -- loaded into a server ---------------------------------------------------------------------------------

Documents = Collection[dict[str, Any]]


@pytest.fixture(scope="module")
def trips(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    """Points of the generated city, adopted."""
    name = f"test_{secrets.token_hex(6)}"
    points = client[name].trips
    for batch in generate_city(6_000, seed=5).to_documents():
        points.insert_many(batch)
    adopt(points, "loc")
    yield points
    client.drop_database(name)
    metadata_collection(points).delete_one({"_id": points.full_name})


@pytest.fixture
def zones(database: Database[dict[str, Any]]) -> Documents:
    return database.zones


def counted(points: Documents, polygons: Documents) -> dict[Any, int]:
    """By the server itself, one polygon at a time."""
    return {
        one["_id"]: points.count_documents({"loc": {"$geoWithin": {"$geometry": one["geometry"]}}})
        for one in polygons.find().sort("_id")
    }


def joined(points: Documents, polygons: Documents) -> dict[Any, int]:
    """By us, with what is known of the points read anew."""
    spatial = SpatialCollection(points)
    spatial.forget()
    return count_by_polygon(spatial, polygons).to_dict()


def covers(polygons: Documents) -> dict[Any, list[Any]]:
    return {one["_id"]: one.get("covers", []) for one in polygons.find()}


def histogram_key(points: Documents) -> bytes:
    histogram = run(load_info(points)).histogram
    assert histogram is not None
    return histogram.key


def test_a_loaded_file_serves_us_and_plain_mongodb(trips: Documents, zones: Documents) -> None:
    city = neighbourhoods(24)
    loaded = load_polygons(zones, city, points=[trips])
    assert (loaded.added, loaded.loaded, loaded.bad) == (24, 24, ())
    documents = list(zones.find())
    assert [list(one) for one in documents] == [["_id", "geometry", "properties", "covers"]] * 24
    assert {one["_id"]: one["geometry"] for one in documents} == {
        one["properties"]["name"]: one["geometry"] for one in city["features"]
    }
    assert {tuple(index["key"].items()) for index in zones.list_indexes()} >= {(("geometry", "2dsphere"),)}
    place = trips.find_one()["loc"]
    inside = {"geometry": {"$geoIntersects": {"$geometry": place}}}
    assert zones.count_documents(inside) == 1
    assert "2dsphere" in json.dumps(zones.find(inside).explain()["queryPlanner"], default=str)
    expected = counted(trips, zones)
    assert sum(expected.values()) > 5_000
    assert joined(trips, zones) == expected


def test_loading_again_changes_nothing_and_a_changed_file_updates(trips: Documents, zones: Documents) -> None:
    city = neighbourhoods(12)
    load_polygons(zones, city, points=[trips])
    before = list(zones.find().sort("_id"))
    again = load_polygons(zones, copy.deepcopy(city), points=[trips])
    assert (again.added, again.changed, again.unchanged, again.others) == (0, 0, 12, 0)
    assert (again.covers[0].made, again.covers[0].fresh) == (0, 12)
    assert list(zones.find().sort("_id")) == before
    # One moves, one gets other properties, one goes, one comes; a field of somebody else's stays.
    first, second, gone, *rest = city["features"]
    zones.update_one({"_id": first["properties"]["name"]}, {"$set": {"mayor": "x"}})
    first["geometry"] = square(10.9, 56.0, 0.4)
    second["properties"]["people"] = 5
    changed = load_polygons(
        zones, features(first, second, *rest, feature(square(10.7, 56.1, 0.3), name="new"))
    )
    assert (changed.added, changed.changed, changed.unchanged) == (1, 2, 10 - 1)
    assert (changed.removed, changed.others) == (0, 1)
    # Covers are made for the points that there were covers for.
    assert (changed.covers[0].points, changed.covers[0].made, changed.covers[0].fresh) == (
        trips.full_name,
        2,
        11,
    )
    found = {one["_id"]: one for one in zones.find()}
    assert found[first["properties"]["name"]]["mayor"] == "x"
    assert found[first["properties"]["name"]]["geometry"] == first["geometry"]
    assert found[second["properties"]["name"]]["properties"]["people"] == 5
    assert gone["properties"]["name"] in found
    assert joined(trips, zones) == counted(trips, zones)
    replaced = load_polygons(zones, features(first, second, *rest), replace=True)
    assert (replaced.removed, replaced.others, replaced.unchanged) == (2, 0, 11)
    assert {one["_id"] for one in zones.find()} == {
        one["properties"]["name"] for one in (first, second, *rest)
    }


def test_what_is_listed_as_bad_is_what_the_server_refuses(zones: Documents, database: Any) -> None:
    geometries = {f"good {n}": square(n + 0.1, n + 0.1) for n in range(3)}
    geometries |= {name: geometry for name, (geometry, _) in BAD.items()}
    loaded = load_polygons(zones, geometries)
    assert loaded.added == 3
    assert {one.id for one in loaded.bad} == set(BAD)
    plain = database.plain
    plain.create_index([("geometry", "2dsphere")])
    for name, geometry in geometries.items():
        document = {"_id": name, "geometry": geometry}
        if name in BAD:
            with pytest.raises(WriteError) as error:
                plain.insert_one(document)
            assert error.value.code == 16755
        else:
            plain.insert_one(document)
    lines = list(loaded.lines())
    assert any(line.startswith("  'crossing': edges of ring 0 cross: from [1, 1]") for line in lines)
    assert f"bad, and not loaded: {len(BAD)}" in lines


def test_what_only_the_server_refuses_is_listed_too(zones: Documents) -> None:
    content = {
        "good": square(),
        "larger than half the Earth": {**square(), "crs": STRICT},
        "also good": square(30.1),
    }
    loaded = load_polygons(zones, content)
    assert loaded.added == 2
    (bad,) = loaded.bad
    assert bad.id == "larger than half the Earth"
    assert bad.reason.startswith("MongoDB refuses it: ")
    assert "{" not in bad.reason
    assert len(bad.reason) < 330
    assert load_polygons(zones, content).unchanged == 2


def deep(levels: int) -> Any:
    return {"x": deep(levels - 1)} if levels else 1


def test_what_cannot_be_stored_is_listed_and_does_not_stop_the_rest(zones: Documents) -> None:
    wrong: list[Any] = [
        {**feature(square()), "id": [1, 2]},
        {**feature(square()), "id": {"$gt": ""}},
        {**feature(square()), "id": 10**30},
        {**feature(square()), "id": "deep", "properties": deep(190)},
        {**feature(square()), "id": "long number", "properties": {"n": 10**30}},
        {**feature(square()), "id": "half a character", "properties": {"n": "\ud800"}},
        {**feature(square()), "id": "nul", "properties": {"a\0b": 1}},
        {**feature({**square(), "bbox": [10**30]}), "id": "long number in the geometry"},
    ]
    odd: list[Any] = [
        {**feature(square()), "id": {"a": 1}},
        {**feature(square()), "id": True},
        {**feature(square(), **{"$set": 1, "a.b": 2, "": 3}), "id": "names like operators"},
        {**feature({**square(), "bbox": [1, 2, 3, 4]}), "id": "box"},
    ]
    given = [one for pair in itertools.zip_longest(wrong, odd) for one in pair if one is not None]
    loaded = load_polygons(zones, given)
    assert loaded.added == len(odd)
    assert sorted(map(repr, (one.id for one in loaded.bad))) == sorted(repr(one["id"]) for one in wrong)
    assert zones.find_one({"_id": "names like operators"})["properties"] == {"$set": 1, "a.b": 2, "": 3}
    again = load_polygons(zones, given)
    assert (again.unchanged, again.added, again.changed) == (len(odd), 0, 0)


def many_sided(vertices: int) -> dict[str, Any]:
    bearing = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    places = np.stack([10 + np.cos(bearing), 50 + np.sin(bearing)], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*places, places[0]]]}


def test_a_polygon_larger_than_a_document(zones: Documents) -> None:
    fat = {"type": "Feature", "id": "fat", "geometry": square(), "properties": {"text": "x" * (16 << 20)}}
    fits = {**fat, "id": "fits", "properties": {"text": "x" * ((16 << 20) - 2000)}}
    long = {"type": "Feature", "id": "i" * 3_000, "geometry": square(), "properties": fits["properties"]}
    loaded = load_polygons(zones, [fat, feature(square(), name="a"), fits, long])
    assert [one.id for one in loaded.bad] == ["fat", "i" * 3_000]
    assert "bytes, and a document of MongoDB has at most 16,777,216; simplify" in loaded.bad[0].reason
    assert loaded.added == 2
    big = load_polygons(zones, {"big": many_sided(20_000)})
    assert (big.added, big.others) == (1, 2)


def test_a_cover_that_does_not_fit_is_made_whenever_it_is_needed(trips: Documents, zones: Documents) -> None:
    city = neighbourhoods(8)["features"]
    info = run(load_info(trips))

    def size(one: Any) -> int:
        cover = cover_region(read_polygon(1, one["geometry"]).region, info.histogram, range_keys(info.costs))
        return len(cover.interior) + len(cover.boundary)

    largest = max(city, key=size)
    assert size(largest) > 40
    held = len(bson.encode(largest))
    largest["properties"]["text"] = "x" * ((16 << 20) - held - 1_100)
    loaded = load_polygons(zones, features(*city), points=[trips])
    assert loaded.added == 8
    (failed,) = loaded.covers[0].failed
    assert failed.id == largest["properties"]["name"]
    assert len(failed.reason) < 330
    assert loaded.covers[0].made == 7
    assert joined(trips, zones) == counted(trips, zones)


def test_strict_changes_nothing_if_anything_is_bad(zones: Documents, database: Any) -> None:
    load_polygons(zones, {"a": square()})
    before = list(zones.find())
    for bad in (BOW_TIE, {**square(), "crs": STRICT}):
        refused = load_polygons(zones, {"a": square(20.1), "b": bad}, strict=True, replace=True)
        assert (refused.loaded, [one.id for one in refused.bad]) == (0, ["b"])
        assert list(zones.find()) == before
    assert database.list_collection_names() == ["zones"]
    loaded = load_polygons(zones, {"b": square(20.1)}, strict=True, replace=True)
    assert (loaded.added, loaded.removed) == (1, 1)


def test_one_that_is_bad_now_stays_as_it_was(zones: Documents) -> None:
    load_polygons(zones, {"a": square(), "b": square(20.1), "c": square(30.1)})
    loaded = load_polygons(zones, {"a": BOW_TIE, "b": square(21.1)}, replace=True)
    assert (loaded.changed, loaded.removed) == (1, 1)
    assert {one["_id"]: one["geometry"] for one in zones.find()} == {"a": square(), "b": square(21.1)}
    nothing = load_polygons(zones, {"b": BOW_TIE}, replace=True)
    assert (nothing.loaded, nothing.removed, zones.count_documents({})) == (0, 0, 2)


def test_polygons_are_not_mixed_with_other_things(trips: Documents, database: Any) -> None:
    with pytest.raises(UsageError, match="is a collection of points; load polygons into another"):
        load_polygons(trips, {"a": square()}, replace=True)
    with pytest.raises(UsageError, match="is a collection of points"):
        load_polygons(database.same, {"a": square()}, points=[database.same])
    database.shops.insert_one({"_id": 7, "name": "bakery"})
    with pytest.raises(UsageError, match="holds what are no polygons, such as the document with _id 7"):
        load_polygons(database.shops, {"a": square()})
    with pytest.raises(UsageError, match="cannot be joined: it does not exist"):
        load_polygons(database.zones, {"a": square()}, points=[database.nowhere])
    assert database.list_collection_names() == ["shops"]
    database.old.insert_one({"_id": 1, "geometry": BOW_TIE})
    with pytest.raises(UsageError, match=r"that .*old held before cannot be indexed \(_id: 1\): Edges"):
        load_polygons(database.old, {"a": square()})


# -- kept true --------------------------------------------------------------------------------------------


def test_covers_follow_the_statistics_of_the_points(trips: Documents, zones: Documents) -> None:
    load_polygons(zones, neighbourhoods(12), points=[trips])
    first = covers(zones)
    assert {one["histogram"] for (one,) in first.values()} == {histogram_key(trips)}
    assert joined(trips, zones) == counted(trips, zones)
    assert covers(zones) == first
    number = trips.count_documents({})
    extra = next(generate_city(1_000, seed=9).to_documents())
    SpatialCollection(trips).insert_many([{**one, "_id": number + 100_000 + one["_id"]} for one in extra])
    # Stale statistics: answers are those of now all the same.
    assert joined(trips, zones) == counted(trips, zones)
    assert covers(zones) == first
    analyze(trips)
    assert joined(trips, zones) == counted(trips, zones)
    second = covers(zones)
    assert (
        {one["histogram"] for (one,) in second.values()}
        == {histogram_key(trips)}
        != {one["histogram"] for (one,) in first.values()}
    )
    assert any(first[name][0]["boundary"] != second[name][0]["boundary"] for name in first)


def test_a_shape_that_changes_after_it_was_loaded(trips: Documents, zones: Documents) -> None:
    # What was read is remembered: not the caller's own lists, which he may go on working with.
    content = {"a": square(11.2, 56.2, 0.08), "b": square(0, 56.1, 12.0)}
    load_polygons(zones, content, points=[trips])
    for geometry in content.values():
        geometry["coordinates"][0][1][0] += 0.5
    expected = counted(trips, zones)
    assert min(expected.values()) > 0
    assert joined(trips, zones) == expected
    assert load_polygons(zones, content).changed == 2
    assert joined(trips, zones) == counted(trips, zones) != expected


def test_a_sharded_collection_of_polygons(trips: Documents, zones: Documents) -> None:
    client = zones.database.client
    client.admin.command("shardCollection", zones.full_name, key={"_id": "hashed"})
    loaded = load_polygons(zones, neighbourhoods(12), points=[trips])
    assert (loaded.added, loaded.covers[0].made) == (12, 12)
    assert load_polygons(zones, neighbourhoods(12), points=[trips], strict=True).unchanged == 12
    assert joined(trips, zones) == counted(trips, zones)
    assert load_polygons(zones, {"one": square(11.2, 56.2, 0.08)}, replace=True).removed == 12
    assert joined(trips, zones) == counted(trips, zones)


def test_a_cover_edited_by_somebody_else_is_not_believed(trips: Documents, zones: Documents) -> None:
    load_polygons(zones, neighbourhoods(8), points=[trips])
    expected = counted(trips, zones)
    for change in (
        {"covers.0.interior": []},
        {"covers.0.boundary": []},
        {"covers.0.interior": [[1, 2]]},
        {"covers.0.boundary": [["u", "b"], ["x"]]},
        {"covers.0.boundary": [None]},
    ):
        zones.update_many({}, {"$set": change})
        covering.forget_overlays()
        assert joined(trips, zones) == expected


def test_a_shape_edited_by_somebody_else(trips: Documents, zones: Documents) -> None:
    load_polygons(zones, neighbourhoods(12), points=[trips])
    before = covers(zones)
    chosen = zones.find_one()["_id"]
    zones.update_one({"_id": chosen}, {"$set": {"geometry": square(11.2, 56.2, 0.08)}})
    expected = counted(trips, zones)
    assert expected[chosen] > 0
    assert joined(trips, zones) == expected
    after = covers(zones)
    assert {name for name in before if before[name] != after[name]} == {chosen}
    zones.insert_one({"_id": "by hand", "geometry": square(11.25, 56.2, 0.1)})
    # Of these only the server can tell.
    corner = [[11.1, 56.1], [11.3, 56.2], [11.2, 56.3], [11.1, 56.1]]
    zones.insert_one({"_id": "touching", "geometry": square(11.1, 56.1, 0.4, corner)})
    zones.insert_one({"_id": "S2", "geometry": square(0, 56.1, 12.0)})
    assert joined(trips, zones) == counted(trips, zones)
    assert [len(covers(zones)[name]) for name in ("by hand", "touching", "S2")] == [1, 0, 0]


@pytest.mark.parametrize("rubbish", ["hello", 5, [], ["hello", 7, None], [{}], [{"points": 5}], None])
def test_covers_that_somebody_else_spoiled(trips: Documents, zones: Documents, rubbish: Any) -> None:
    load_polygons(zones, neighbourhoods(8), points=[trips])
    chosen = zones.find_one()["_id"]
    zones.update_one({"_id": chosen}, {"$set": {"covers": rubbish}})
    assert joined(trips, zones) == counted(trips, zones)
    assert [
        one for one in covers(zones)[chosen] if isinstance(one, dict) and one.get("points") == trips.full_name
    ]


def test_half_of_a_cover_is_none(trips: Documents, zones: Documents) -> None:
    load_polygons(zones, neighbourhoods(8), points=[trips])
    for change in ({"$unset": {"covers.0.boundary": 1}}, {"$set": {"covers.0.made": -1}}):
        zones.update_many({}, change)
        assert joined(trips, zones) == counted(trips, zones)
    assert {one["made"] for (one,) in covers(zones).values()} == {polygon_collection.MADE}


def test_covers_cut_off_half_way_are_completed(
    trips: Documents, zones: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cover_refreshing, "_MADE_AT_ONCE", 4)
    stored = cover_refreshing.store_covers
    calls: list[int] = []

    def cut_off(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return stored(*arguments, **options)

    monkeypatch.setattr(cover_refreshing, "store_covers", cut_off)
    with pytest.raises(KeyboardInterrupt):
        load_polygons(zones, neighbourhoods(12), points=[trips])
    assert sum(len(one) for one in covers(zones).values()) == 8
    made = answers_of(monkeypatch, covering, "cover_region")
    expected = counted(trips, zones)
    assert joined(trips, zones) == expected
    assert len(made) == 4
    assert sum(len(one) for one in covers(zones).values()) == 12
    assert joined(trips, zones) == expected
    assert len(made) == 4


def test_who_may_not_write_may_still_read(
    trips: Documents, zones: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_polygons(zones, neighbourhoods(8))
    # A view cannot be written to by anybody.
    view = zones.database.create_collection("view", viewOn="zones", pipeline=[])
    expected = counted(trips, zones)
    assert joined(trips, view) == expected
    assert not any(covers(zones).values())

    def refused(*_: Any, **__: Any) -> None:
        raise OperationFailure("not authorized on city to execute command", 13)

    with monkeypatch.context() as patched:
        patched.setattr(Collection, "bulk_write", refused)
        assert joined(trips, zones) == expected
        with pytest.raises(OperationFailure, match="not authorized"):
            load_polygons(zones, {"a": square()})
        with pytest.raises(OperationFailure, match="not authorized"):
            load_polygons(zones, neighbourhoods(8), points=[trips])
    assert not any(covers(zones).values())
    assert joined(trips, zones) == expected
    assert all(covers(zones).values())


def test_who_knows_an_older_analysis_does_not_undo_the_newer(trips: Documents, zones: Documents) -> None:
    load_polygons(zones, neighbourhoods(8), points=[trips])
    newest, info = covers(zones), run(load_info(trips))
    assert info.histogram is not None
    assert info.analyzed is not None
    old = replace(
        info, histogram=info.histogram.coarsened(30), analyzed=info.analyzed - dt.timedelta(seconds=50)
    )
    polygons = run(polygons_of(zones, old))
    assert polygons.stored is not None
    assert polygons.stored.histogram == old.histogram.key
    assert covers(zones) == newest
    new = replace(old, analyzed=info.analyzed + dt.timedelta(seconds=1))
    run(polygons_of(zones, new))
    assert {one["histogram"] for (one,) in covers(zones).values()} == {old.histogram.key}
    # And the command obeys.
    assert refresh_covers(zones, info).made == 8
    assert covers(zones) == newest


def test_covers_for_several_collections_of_points(trips: Documents, zones: Documents) -> None:
    other = zones.database.other
    other.insert_many(next(generate_city(500, seed=2).to_documents()))
    adopt(other, "loc", shard=False)
    try:
        loaded = load_polygons(zones, neighbourhoods(8), points=[trips, other])
        assert [one.made for one in loaded.covers] == [8, 8]
        both = covers(zones)
        assert {tuple(one["points"] for one in pair) for pair in both.values()} == {
            (trips.full_name, other.full_name)
        }
        assert joined(trips, zones) == counted(trips, zones)
        assert joined(other, zones) == counted(other, zones)
        assert covers(zones) == both
        listed = list(list_polygons(zones))
        assert {cover.state for row in listed for cover in row.covers} == {"fresh"}
    finally:
        metadata_collection(other).delete_one({"_id": other.full_name})
    states = {cover.points: cover.state for row in list_polygons(zones) for cover in row.covers}
    assert states == {trips.full_name: "fresh", other.full_name: GONE}


def test_many_polygons_overlapping_nested_with_holes_and_parts(trips: Documents, zones: Documents) -> None:
    rng = np.random.default_rng(8)
    west, south, east, north = generate_city(1).bounds
    places = np.stack([rng.uniform(west, east, 300), rng.uniform(south, north, 300)], axis=1)
    content: dict[str, Any] = {}
    for number, ((x, y), size) in enumerate(
        zip(places.tolist(), rng.uniform(0.001, 0.1, 300).tolist(), strict=True)
    ):
        hole = ring(x + size / 4, y + size / 4, size / 2)
        content[f"square {number:04}"] = square(x, y, size)
        if number % 3 == 0:
            content[f"ring {number:04}"] = square(x, y, size, hole)
        if number % 5 == 0:
            parts = [
                [ring(x, y, size), hole],
                [ring(x + size / 3, y + size / 3, size / 3)],
                [ring(x + 1.1 * size, y, size)],
            ]
            content[f"parts {number:04}"] = {"type": "MultiPolygon", "coordinates": parts}
    loaded = load_polygons(zones, content, points=[trips])
    assert loaded.added == len(content) == 460
    found = joined(trips, zones)
    chosen = [
        *rng.choice(sorted(content), 40, replace=False).tolist(),
        *(f"parts {n:04}" for n in range(0, 300, 10)),
    ]
    assert sum(found[name] for name in chosen) > 100
    for name in chosen:
        geometry = content[name]
        assert found[name] == trips.count_documents({"loc": {"$geoWithin": {"$geometry": geometry}}}), name
