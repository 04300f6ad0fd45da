"""Shapes as MongoDB writes them: what is taken, what is refused and how, and that the real server does the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from bson import SON, Decimal128, Int64
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from spatialnosql.errors import GeometryError, UnsupportedShape
from spatialnosql.geometry import (
    EARTH_RADIUS_M,
    STRICT_WINDING,
    geometry_to_region,
    intersects_to_region,
    near_to_region,
    within_to_region,
)
from spatialnosql.region import (
    BoxRegion,
    CapRegion,
    DiscRegion,
    EdgeRegion,
    MirroredRegion,
    Region,
    UnionRegion,
)
from spatialnosql.settle import IN, OUT, UNSURE, settle_points

SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
LARGE = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]
BOW_TIE = [[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]


def geometry(kind: str, coordinates: Any, **more: Any) -> dict[str, Any]:
    return {"$geometry": {"type": kind, "coordinates": coordinates, **more}}


def polygon(*rings: Any, **more: Any) -> dict[str, Any]:
    return geometry("Polygon", list(rings), **more)


def collection_of(*members: Any, **more: Any) -> dict[str, Any]:
    return {"$geometry": {"type": "GeometryCollection", "geometries": list(members), **more}}


def crs(name: Any) -> dict[str, Any]:
    return {"type": "name", "properties": {"name": name}}


STRICT = crs(STRICT_WINDING)
POINT = {"type": "Point", "coordinates": [0.5, 0.2]}
AREA = {"type": "Polygon", "coordinates": [SQUARE]}

Shapes = dict[str, tuple[str, Any]]
WITHIN, INTERSECTS = "$geoWithin", "$geoIntersects"

TAKEN: Shapes = {
    "polygon": (WITHIN, polygon(SQUARE)),
    "clockwise": (WITHIN, polygon(SQUARE[::-1])),
    "tuples": (WITHIN, polygon(tuple(map(tuple, SQUARE)))),
    "numbers of every sort": (WITHIN, polygon([[0, 0], [Decimal128("1"), 0.0], [Int64(1), 1], [0, 0]])),
    "altitudes": (WITHIN, polygon([[0, 0, 5], [1, 0, 6], [1, 1, 7], [0, 0, 8]])),
    "altitudes here and there": (WITHIN, polygon([[0, 0, 5], [1, 0], [1, 1], [0, 0, 6]])),
    "altitudes that are no numbers": (
        WITHIN,
        polygon([[0, 0, "a"], [1, 0, None], [1, 1, True], [0, 0, "b"]]),
    ),
    "a position twice in a row": (WITHIN, polygon([[0, 0], [1, 0], [1, 0], [1, 1], [0, 0], [0, 0]])),
    "hole": (WITHIN, polygon(LARGE, SQUARE_HOLE := [[2, 2], [4, 2], [4, 4], [2, 2]])),
    "two holes": (WITHIN, polygon(LARGE, SQUARE_HOLE, [[6, 6], [8, 6], [8, 8], [6, 6]])),
    "an edge over the pole": (WITHIN, polygon([[0, 80], [180, 80], [90, 60], [0, 80]])),
    "a vertex at the pole": (WITHIN, polygon([[0, 90], [0, 80], [30, 80], [0, 90]])),
    "everything but a square": (WITHIN, polygon(SQUARE[::-1], crs=STRICT)),
    "strict winding, small": (WITHIN, polygon(SQUARE, crs=STRICT)),
    "plain CRS": (WITHIN, polygon(SQUARE, crs=crs("EPSG:4326"))),
    "CRS84": (WITHIN, polygon(SQUARE, crs=crs("urn:ogc:def:crs:OGC:1.3:CRS84"))),
    "parts that overlap": (WITHIN, geometry("MultiPolygon", [[SQUARE], [LARGE], [SQUARE]])),
    "collection with an area": (WITHIN, collection_of(AREA, POINT)),
    "collection with areas": (
        WITHIN,
        collection_of({"type": "MultiPolygon", "coordinates": [[SQUARE]]}, AREA),
    ),
    "collection with a CRS of its own": (INTERSECTS, collection_of(AREA, crs=crs("nonsense"))),
    "intersecting polygon": (INTERSECTS, polygon(SQUARE)),
    "point": (INTERSECTS, {"$geometry": POINT}),
    "point with an altitude": (INTERSECTS, geometry("Point", [0.5, 0.2, 3])),
    "point as a document": (INTERSECTS, geometry("Point", {"x": 0.5, "y": 0.2})),
    "points": (INTERSECTS, geometry("MultiPoint", [[0.5, 0.2], [0.5, 0.2], [1, 1]])),
    "line": (INTERSECTS, geometry("LineString", [[0, 0], [1, 1], [1, 1], [0, 0]])),
    "line across itself": (INTERSECTS, geometry("LineString", BOW_TIE)),
    "line from pole to equator": (INTERSECTS, geometry("LineString", [[0, 90], [0, 0]])),
    "lines": (INTERSECTS, geometry("MultiLineString", [[[0, 0], [1, 1]], [[2, 2], [3, 3]]])),
    "collection": (
        INTERSECTS,
        collection_of(POINT, AREA, {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
    ),
    "$box": (WITHIN, {"$box": [[0, 0], [1, 1]]}),
    "$box from any corner": (WITHIN, {"$box": [[0, 1], [1, 0]]}),
    "$box off the map": (WITHIN, {"$box": [[-500, -500], [500, 500]]}),
    "$box of documents": (WITHIN, {"$box": {"a": {"x": 0, "y": 0}, "b": {"x": 1, "y": 1}}}),
    "$box of nothing": (WITHIN, {"$box": [[3, 3], [3, 3]]}),
    "$polygon": (WITHIN, {"$polygon": SQUARE[:-1]}),
    "$polygon, closed": (WITHIN, {"$polygon": SQUARE}),
    "$polygon, across itself": (WITHIN, {"$polygon": BOW_TIE}),
    "$polygon of documents": (
        WITHIN,
        {"$polygon": {"a": {"x": 0, "y": 0}, "b": {"x": 1, "y": 0}, "c": [1, 1]}},
    ),
    "$polygon off the map": (WITHIN, {"$polygon": [[200, 0], [300, 0], [250, 95], [220, 120]]}),
    "$polygon off the map in the north": (WITHIN, {"$polygon": [[0, 100], [10, 100], [5, 120]]}),
    "$polygon larger than the map": (
        WITHIN,
        {"$polygon": [[-400, -300], [400, -300], [400, 300], [-400, 300]]},
    ),
    "$polygon around the map": (WITHIN, {"$polygon": [[-200, 0], [190, -1], [250, 95], [-300, 120]]}),
    "$polygon of one place": (WITHIN, {"$polygon": [[0, 0], [0, 0], [0, 0]]}),
    "$center": (WITHIN, {"$center": [[0, 0], Decimal128("1")]}),
    "$center off the map": (WITHIN, {"$center": [[200, 100], 150]}),
    "$center as a document": (WITHIN, {"$center": {"c": {"x": 0, "y": 0}, "r": 1}}),
    "$centerSphere": (WITHIN, {"$centerSphere": [[0, 0], 0.1]}),
    "$centerSphere of no radius": (WITHIN, {"$centerSphere": [[0, 0], 0]}),
}

REFUSED: dict[str, tuple[str, Any, str]] = {
    # Rings
    "unclosed ring": (
        WITHIN,
        polygon(SQUARE[:-1]),
        "ring 0 is not closed: its last position must be its first",
    ),
    "closed at another name of the place": (
        WITHIN,
        polygon([[180, 0], [-170, 0], [-170, 9], [-180, 0]]),
        "not closed",
    ),
    "bow tie": (
        WITHIN,
        polygon(BOW_TIE),
        r"edges of ring 0 cross: from \[0, 0\] to \[1, 1\] and from \[1, 0\] to \[0, 1\]",
    ),
    "bow tie at the north pole": (
        WITHIN,
        polygon([[0, 90], [10, 80], [-10, 80], [20, 85], [0, 90]]),
        r"edges of ring 0 cross: from \[-?\d+, \d+\] to \[-?\d+, \d+\] and from \[-?\d+, \d+\] to",
    ),
    "longitude 200": (
        WITHIN,
        polygon([[0, 0], [200, 0], [200, 1], [0, 0]]),
        r"position 1 of ring 0 is \[200, 0\]: longitude must be within 180 degrees, latitude within 90$",
    ),
    "swapped": (WITHIN, polygon([[0, 0], [0, 150], [1, 1], [0, 0]]), r"latitude and longitude swapped\?"),
    "two positions": (
        WITHIN,
        polygon([[0, 0], [1, 1], [0, 0]]),
        "ring 0 has 3 positions; a ring needs at least 4",
    ),
    "two different positions": (
        WITHIN,
        polygon([[0, 0], [1, 1], [1, 1], [0, 0]]),
        "ring 0 has 2 different positions",
    ),
    "one place": (WITHIN, polygon([[0, 0]] * 4), "ring 0 has 0 different positions; a ring needs at least 3"),
    "no rings": (WITHIN, polygon(), "polygon 0 has no rings"),
    "an empty ring": (
        WITHIN,
        polygon([]),
        r"ring 0 is not a list of \[longitude, latitude\] positions: \[\]",
    ),
    "a level missing": (WITHIN, geometry("Polygon", SQUARE), "position 0 of ring 0 must be a list, not 0"),
    "a level too many": (
        WITHIN,
        polygon([SQUARE]),
        r"position 0 of ring 0 holds \[0, 0\], which is no number",
    ),
    "strings": (
        WITHIN,
        polygon([[0, 0], [1, 0], ["1", "1"], [0, 0]]),
        "position 2 of ring 0 holds '1', which is no number",
    ),
    "truth": (WITHIN, polygon([[0, 0], [True, 0], [1, 1], [0, 0]]), "position 1 of ring 0 holds True"),
    "null": (WITHIN, polygon([[0, 0], [None, 0], [1, 1], [0, 0]]), "position 1 of ring 0 holds None"),
    "nan": (WITHIN, polygon([[0, 0], [math.nan, 0], [1, 1], [0, 0]]), r"position 1 of ring 0 is \[nan, 0\]"),
    "infinity": (
        WITHIN,
        polygon([[0, 0], [math.inf, 0], [1, 1], [0, 0]]),
        r"position 1 of ring 0 is \[inf, 0\]",
    ),
    "one coordinate": (WITHIN, polygon([[0], [1], [1], [0]]), "ring 0 is not a list of"),
    "positions as documents": (
        WITHIN,
        polygon([{"x": 0, "y": 0}] * 4),
        "position 0 of ring 0 must be a list",
    ),
    "ring as a document": (WITHIN, polygon({"a": [0, 0]}), "ring 0 must be a list, not {'a'"),
    "a place twice": (
        WITHIN,
        polygon([[0, 0], [2, 0], [1, 1], [2, 2], [0, 2], [1, 1], [0, 0]]),
        r"comes twice to \[1, 1\]",
    ),
    "hole outside": (
        WITHIN,
        polygon(SQUARE, [[5, 5], [6, 5], [6, 6], [5, 5]]),
        "ring 1 is a hole but does not lie inside",
    ),
    "hole larger than its shell": (
        WITHIN,
        polygon(SQUARE, [[-1, -1], [2, -1], [2, 2], [-1, 2], [-1, -1]]),
        "ring 1 is a hole",
    ),
    "hole across its shell": (
        WITHIN,
        polygon(SQUARE, [[0.5, 0.5], [2, 0.5], [2, 0.6], [0.5, 0.5]]),
        "edges of ring 0 cross",
    ),
    "second part bad": (
        WITHIN,
        geometry("MultiPolygon", [[SQUARE], [LARGE, BOW_TIE[:-1]]]),
        "polygon 1 ring 1 is not closed",
    ),
    "no parts": (WITHIN, geometry("MultiPolygon", []), "a MultiPolygon has no polygons"),
    "an empty part": (WITHIN, geometry("MultiPolygon", [[]]), "polygon 0 has no rings"),
    "parts a level missing": (WITHIN, geometry("MultiPolygon", [SQUARE]), "must be a list, not 0"),
    # CRS
    "unknown CRS": (
        WITHIN,
        polygon(SQUARE, crs=crs("EPSG:3857")),
        "unknown CRS 'EPSG:3857'; MongoDB knows urn:ogc",
    ),
    "null CRS": (WITHIN, polygon(SQUARE, crs=None), "unknown CRS None"),
    "CRS without a type": (WITHIN, polygon(SQUARE, crs={"properties": {"name": "EPSG:4326"}}), "unknown CRS"),
    "CRS with a number": (WITHIN, polygon(SQUARE, crs=crs(5)), "unknown CRS 5"),
    "strict winding with a hole": (
        WITHIN,
        polygon(LARGE, SQUARE_HOLE, crs=STRICT),
        "strict-winding CRS has one ring only",
    ),
    "strict winding, two parts": (
        WITHIN,
        geometry("MultiPolygon", [[SQUARE]], crs=STRICT),
        "CRS is for a Polygon, not a Multi",
    ),
    "strict winding, bow tie": (WITHIN, polygon(BOW_TIE, crs=STRICT), "edges of ring 0 cross"),
    "strict winding, unclosed": (WITHIN, polygon(SQUARE[:-1], crs=STRICT), "ring 0 is not closed"),
    "strict winding, line": (
        INTERSECTS,
        geometry("LineString", [[0, 0], [1, 1]], crs=STRICT),
        "not a LineString",
    ),
    # Documents
    "within a point": (
        WITHIN,
        {"$geometry": POINT},
        r"\$geoWithin takes a Polygon or a MultiPolygon, not a Point",
    ),
    "within a line": (WITHIN, geometry("LineString", [[0, 0], [1, 1]]), "not a LineString"),
    "within a collection without areas": (WITHIN, collection_of(POINT), "this one has none"),
    "an area, but another member bad": (
        WITHIN,
        collection_of(AREA, {"type": "Point", "coordinates": [500, 0]}),
        "a point is",
    ),
    "no type": (
        WITHIN,
        {"$geometry": {"coordinates": [SQUARE]}},
        "None is no GeoJSON type; they are Point, MultiPoint",
    ),
    "unknown type": (WITHIN, geometry("Circle", [0, 0]), "'Circle' is no GeoJSON type"),
    "type in lower case": (WITHIN, geometry("polygon", [SQUARE]), "'polygon' is no GeoJSON type"),
    "no coordinates": (
        WITHIN,
        {"$geometry": {"type": "Polygon"}},
        "the coordinates of a Polygon must be a list, not None",
    ),
    "coordinates a string": (
        WITHIN,
        geometry("Polygon", "x"),
        "the coordinates of a Polygon must be a list, not 'x'",
    ),
    "no geometry": (WITHIN, {"$geometry": None}, "a GeoJSON geometry is a document, not None"),
    "no shape": (WITHIN, {}, r"\$geoWithin takes a document with one shape, not {}"),
    "two shapes": (
        WITHIN,
        {"$box": [[0, 0], [1, 1]], "$center": [[0, 0], 1]},
        "takes a document with one shape",
    ),
    "bare GeoJSON": (WITHIN, AREA, "takes a document with one shape"),
    "unknown shape": (
        WITHIN,
        {"$circle": [[0, 0], 1]},
        r"has no \$circle; it has \$geometry, \$box, \$polygon",
    ),
    "intersecting a box": (
        INTERSECTS,
        {"$box": [[0, 0], [1, 1]]},
        r"\$geoIntersects has no \$box; it has \$geometry",
    ),
    "collection in a collection": (
        INTERSECTS,
        collection_of(collection_of(POINT)["$geometry"]),
        "holds another",
    ),
    "empty collection": (INTERSECTS, collection_of(), "a GeometryCollection has no geometries"),
    "no collection": (
        INTERSECTS,
        {"$geometry": {"type": "GeometryCollection"}},
        "geometries must be a list, not None",
    ),
    "member no document": (INTERSECTS, collection_of(5), "a GeoJSON geometry is a document, not 5"),
    # Points and lines
    "point of one number": (
        INTERSECTS,
        geometry("Point", [1]),
        r"a point is \[1\]; it must be a longitude and a latitude",
    ),
    "point of strings": (INTERSECTS, geometry("Point", ["a", 1]), "a point holds 'a', which is no number"),
    "point of nan": (INTERSECTS, geometry("Point", [math.nan, 1]), "a point holds nan, which is no place"),
    "point of a huge decimal": (
        INTERSECTS,
        geometry("Point", [Decimal128("1E+400"), 1]),
        "a point holds inf",
    ),
    "point off the globe": (INTERSECTS, geometry("Point", [0, 91]), r"a point is \[0, 91\]: .*swapped"),
    "no points": (INTERSECTS, geometry("MultiPoint", []), "a MultiPoint has no points"),
    "points, a level missing": (INTERSECTS, geometry("MultiPoint", [1, 2]), "a point must be a list, not 1"),
    "line of one point": (
        INTERSECTS,
        geometry("LineString", [[0, 0]]),
        "line 0 has 1 different positions; a line needs at least 2",
    ),
    "line of one place": (
        INTERSECTS,
        geometry("LineString", [[0, 0], [0, 0]]),
        "line 0 has 1 different positions",
    ),
    "empty line": (INTERSECTS, geometry("LineString", []), "line 0 is not a list of"),
    "no lines": (INTERSECTS, geometry("MultiLineString", []), "a MultiLineString has no lines"),
    "lines, a level missing": (
        INTERSECTS,
        geometry("MultiLineString", [[0, 0], [1, 1]]),
        "position 0 of line 0 must be a list",
    ),
    # Legacy
    "$box of one corner": (WITHIN, {"$box": [[0, 0]]}, r"\$box takes two corners, not 1"),
    "$box of a string": (WITHIN, {"$box": "a"}, r"\$box must be a list, not 'a'"),
    "$box with three coordinates": (
        WITHIN,
        {"$box": [[0, 0, 1], [1, 1, 1]]},
        r"a corner of \$box is \[0, 0, 1\]; .* no more",
    ),
    "$box of strings": (WITHIN, {"$box": [["a", 0], [1, 1]]}, r"a corner of \$box holds 'a'"),
    "$box to infinity": (
        WITHIN,
        {"$box": [[0, 0], [math.inf, 1]]},
        r"a corner of \$box holds inf, which is no place",
    ),
    "$polygon of two": (
        WITHIN,
        {"$polygon": [[0, 0], [1, 1]]},
        r"\$polygon takes at least 3 positions, not 2",
    ),
    "$polygon nested": (WITHIN, {"$polygon": [SQUARE[:2]]}, r"a position of \$polygon holds \[0, 0\]"),
    "$polygon of nan": (
        WITHIN,
        {"$polygon": [[0, 0], [math.nan, 0], [1, 1]]},
        r"a position of \$polygon holds nan",
    ),
    "$center without a radius": (
        WITHIN,
        {"$center": [[0, 0]]},
        r"\$center takes a centre and a radius, not 1 values",
    ),
    "$center with more": (WITHIN, {"$center": [[0, 0], 1, 2]}, "not 3 values"),
    "$center of negative radius": (
        WITHIN,
        {"$center": [[0, 0], -1]},
        r"the radius of \$center is -1.0; it must be",
    ),
    "$center of no radius at all": (
        WITHIN,
        {"$center": [[0, 0], math.nan]},
        r"the radius of \$center is nan",
    ),
    "$center of true": (WITHIN, {"$center": [[0, 0], True]}, r"the radius of \$center holds True"),
    "$center of a GeoJSON point": (WITHIN, {"$center": [POINT, 1]}, r"the centre of \$center holds 'Point'"),
    "$centerSphere off the globe": (
        WITHIN,
        {"$centerSphere": [[200, 0], 1]},
        r"the centre of \$centerSphere is \[200, 0\]",
    ),
    "$centerSphere of null": (WITHIN, {"$centerSphere": None}, r"\$centerSphere must be a list, not None"),
}

LEFT_TO_THE_SERVER: dict[str, tuple[str, Any, str]] = {
    "the antimeridian twice": (
        WITHIN,
        polygon([[180, 0], [170, 0], [170, 10], [-180, 0], [175, -5], [180, 0]]),
        "comes twice",
    ),
    "the pole twice": (
        WITHIN,
        polygon([[0, 90], [40, 90], [40, 80], [0, 80], [0, 90]]),
        r"\[\d+, 90\] and \[\d+, 90\]",
    ),
    "an edge to the opposite side": (
        WITHIN,
        polygon([[0, 10], [180, -10], [90, 45], [0, 10]]),
        "opposite side of the Earth",
    ),
    "hole in a hole": (
        WITHIN,
        polygon(LARGE, [[1, 1], [9, 1], [9, 9], [1, 1]], [[7, 6], [8, 6], [8, 7], [7, 6]]),
        "another hole",
    ),
    "hole equal to its shell": (WITHIN, polygon(SQUARE, SQUARE), "touches itself or another ring"),
    "hole at a vertex": (WITHIN, polygon(SQUARE, [[0, 0], [0.5, 0.2], [0.2, 0.5], [0, 0]]), "touches itself"),
    "a vertex on an edge": (
        WITHIN,
        polygon([[0, 0], [2, 0], [2, 1], [1, 0], [0, 1], [0, 0]]),
        "touches itself",
    ),
    "through both poles": (
        WITHIN,
        polygon([[0, 90], [0, 0], [0, -90], [90, 0], [0, 90]]),
        "runs through both poles",
    ),
    "a hemisphere": (WITHIN, polygon([[0, 0], [120, 0], [-120, 0], [0, 0]]), "a ring is a hemisphere"),
    "around the Earth": (WITHIN, {"$centerSphere": [[0, 0], math.pi]}, "goes around the Earth"),
    "infinite radius": (WITHIN, {"$center": [[0, 0], math.inf]}, r"the radius of \$center is infinite"),
    "infinite decimal": (WITHIN, {"$centerSphere": [[0, 0], Decimal128("Infinity")]}, "infinite"),
    "three corners": (WITHIN, {"$box": [[0, 0], [1, 1], [2, 2]]}, r"\$box takes two corners, not 3"),
    "$uniqueDocs": (WITHIN, SON([("$uniqueDocs", True), ("$box", [[0, 0], [1, 1]])]), r"\$uniqueDocs"),
    "intersecting a circle": (INTERSECTS, {"$centerSphere": [[0, 0], 1]}, "not documented"),
    "line to the opposite side": (
        INTERSECTS,
        geometry("LineString", [[0, 0], [180, 0]]),
        "opposite side of the Earth",
    ),
    # The server itself: not to be asked. It dies of this one.
    "strict winding in a collection": (
        INTERSECTS,
        collection_of({**AREA, "crs": STRICT}),
        "strict-winding CRS",
    ),
}
NEVER_ASKED = {"strict winding in a collection"}


def to_region(predicate: str, operand: Mapping[str, Any]) -> Region:
    return within_to_region(operand) if predicate == WITHIN else intersects_to_region(operand)


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    region = to_region(*TAKEN[name])
    assert region.key == to_region(*TAKEN[name]).key
    assert settle_points(region, [123.0], [-45.0]).tolist() in ([IN], [OUT])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    predicate, operand, message = REFUSED[name]
    with pytest.raises(GeometryError, match=message):
        to_region(predicate, operand)


@pytest.mark.parametrize("name", LEFT_TO_THE_SERVER)
def test_left_to_the_server_with_a_reason(name: str) -> None:
    predicate, operand, message = LEFT_TO_THE_SERVER[name]
    with pytest.raises(UnsupportedShape, match=message):
        to_region(predicate, operand)


# -- what the server says of the same ---------------------------------------------------------------------


@pytest.fixture
def points(database: Database[dict[str, Any]]) -> Collection[dict[str, Any]]:
    database.points.insert_one({"p": POINT})
    return database.points


def asked(points: Collection[dict[str, Any]], predicate: str, operand: Any) -> int | str:
    """How many documents the server returns, or why it refuses."""
    try:
        return points.count_documents({"p": {predicate: operand}})
    except OperationFailure as error:
        return str((error.details or {}).get("errmsg"))


def test_the_server_takes_what_we_take_and_agrees(points: Collection[dict[str, Any]]) -> None:
    answers = {name: asked(points, *shape) for name, shape in TAKEN.items()}
    expected: dict[str, Any] = {}
    for name, shape in TAKEN.items():
        status = int(settle_points(to_region(*shape), [0.5], [0.2])[0])
        # Unsure is unsure: then any count will do.
        expected[name] = answers[name] if status == UNSURE and answers[name] in (0, 1) else int(status == IN)
    assert answers == expected
    assert set(answers.values()) == {0, 1}


def test_the_server_refuses_what_we_refuse(points: Collection[dict[str, Any]]) -> None:
    answers = {name: asked(points, predicate, operand) for name, (predicate, operand, _) in REFUSED.items()}
    assert {name: answer for name, answer in answers.items() if not isinstance(answer, str)} == {}


def test_what_is_left_to_the_server_is_its_own_business(points: Collection[dict[str, Any]]) -> None:
    answers = [
        asked(points, predicate, operand)
        for name, (predicate, operand, _) in LEFT_TO_THE_SERVER.items()
        if name not in NEVER_ASKED
    ]
    # Some it takes and some it refuses: to refuse them all here, or to take them, would be wrong.
    assert len({type(answer) for answer in answers}) == 2


# -- what regions come out --------------------------------------------------------------------------------


def test_kinds_of_regions() -> None:
    kinds = {
        "polygon": EdgeRegion,
        "a vertex at the pole": MirroredRegion,
        "$box": BoxRegion,
        "$center": DiscRegion,
        "$centerSphere": CapRegion,
        "point": CapRegion,
        "points": EdgeRegion,
        "line": EdgeRegion,
        "collection": UnionRegion,
        "collection with an area": UnionRegion,
    }
    assert {name: type(to_region(*TAKEN[name])) for name in kinds} == kinds


def test_different_shapes_have_different_keys() -> None:
    shapes = [*TAKEN.values(), (WITHIN, {"$box": [[0, 0], [1, 2]]}), (WITHIN, {"$center": [[0, 0], 2]})]
    keys = {to_region(*shape).key for shape in shapes}
    same = {
        "tuples": "polygon",
        "a position twice in a row": "numbers of every sort",
        "altitudes": "numbers of every sort",
        "altitudes here and there": "numbers of every sort",
        "altitudes that are no numbers": "numbers of every sort",
        "strict winding, small": "polygon",
        "plain CRS": "polygon",
        "CRS84": "polygon",
        "intersecting polygon": "polygon",
        "point with an altitude": "point",
        "point as a document": "point",
        "$box from any corner": "$box",
        "$box of documents": "$box",
        "$center as a document": "$center",
        "collection with a CRS of its own": "collection with an area",
    }
    for name, other in same.items():
        assert to_region(*TAKEN[name]).key == to_region(*TAKEN[other]).key, name
    assert len(keys) >= len(shapes) - len(same) - 1


def test_a_great_circle_is_not_a_parallel() -> None:
    region = within_to_region(polygon([[0, 50], [60, 50], [60, 60], [0, 60], [0, 50]]))
    # Half-way the southern edge runs at 54 degrees, the northern one at 63.4.
    status = settle_points(region, [30, 30, 30, 30], [52, 55, 62, 64])
    assert status.tolist() == [OUT, IN, IN, OUT]
    flat = within_to_region({"$box": [[0, 50], [60, 60]]})
    assert settle_points(flat, [30, 30, 30], [52, 55, 62]).tolist() == [IN, IN, OUT]


def test_the_smaller_side_and_the_left_side() -> None:
    for ring in (SQUARE, SQUARE[::-1]):
        assert settle_points(within_to_region(polygon(ring)), [0.5, 90], [0.5, 0]).tolist() == [IN, OUT]
    left = within_to_region(polygon(SQUARE, crs=STRICT))
    right = within_to_region(polygon(SQUARE[::-1], crs=STRICT))
    assert settle_points(left, [0.5, 90, 0, 0], [0.5, 0, 90, -90]).tolist() == [IN, OUT, OUT, OUT]
    assert settle_points(right, [0.5, 90, 0, 0], [0.5, 0, 90, -90]).tolist() == [OUT, IN, IN, IN]


def test_near_is_a_ring_in_metres() -> None:
    degree = EARTH_RADIUS_M * math.radians(1)
    region = near_to_region(10, 0, min_distance_m=degree, max_distance_m=2 * degree)
    assert settle_points(region, [10.9, 11.1, 11.9, 12.1], [0] * 4).tolist() == [OUT, IN, IN, OUT]
    assert settle_points(region, [11.0, 12.0], [0, 0]).tolist() == [UNSURE, UNSURE]
    everywhere = near_to_region(10, 0)
    assert settle_points(everywhere, [-170, 10, 0], [0, 0, 90]).tolist() == [IN, IN, IN]
    nowhere = near_to_region(10, 0, min_distance_m=5, max_distance_m=4)
    assert nowhere.bounds == []


@pytest.mark.parametrize(
    ("centre", "limits", "message"),
    [
        ((200, 0), {}, r"the centre is \[200, 0\]"),
        ((0, 0), {"min_distance_m": -1}, "a distance is negative or no number: -1 to inf m"),
        ((0, 0), {"max_distance_m": math.nan}, "a distance is negative or no number: 0.0 to nan m"),
        ((math.nan, 0), {}, "the centre is"),
    ],
)
def test_near_nowhere(centre: tuple[float, float], limits: dict[str, float], message: str) -> None:
    with pytest.raises(GeometryError, match=message):
        near_to_region(*centre, **limits)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(GeometryError, match=r"^a GeoJSON geometry is a document, not .{57}\.\.\.$"):
        geometry_to_region([[0.123456789, 1]] * 100)  # type: ignore[arg-type]


def test_a_numpy_array_is_not_a_list_to_the_driver_either() -> None:
    with pytest.raises(GeometryError, match="ring 0 must be a list"):
        within_to_region(polygon(np.array(SQUARE)))


@pytest.mark.parametrize("upright", [True, False])
def test_one_crossing_among_thousands_of_edges_is_found(upright: bool) -> None:
    """Short edges are compared by themselves, long ones side by side through an index: both ways must see it."""
    tooth = [(0, 0.01), (2e-4, 5), (4e-4, 5), (6e-4, 0.01)]
    top = [[i * 1e-3 + x, y] for i in range(400) for x, y in tooth]
    ring = [[-1e-3, 0], [0.4, 0], *top[::-1], [-1e-3, 0]]
    ring = ring if upright else [[y, x] for x, y in ring]
    assert within_to_region(polygon(ring)).bounds
    at = 2 + 4 * 200
    ring[at + 1], ring[at + 2] = ring[at + 2], ring[at + 1]
    with pytest.raises(GeometryError, match="edges of ring 0 cross"):
        within_to_region(polygon(ring))
