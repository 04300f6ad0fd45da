"""Regions of subscriptions: which points lie in them, against plain comparisons and against the server itself."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from typing import Any

import numpy as np
import pytest
from pymongo.database import Database

from spatialnosql.errors import GeometryError, SpatialNoSQLError, UsageError
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.subscriptions.areas import MOST_POSITIONS, Area, Circle, Polygon, Rectangle, area_of
from spatialnosql.subscriptions.model import (
    NEVER_MS,
    Object,
    Subscription,
    moment_of,
    moment_to_ms,
    name_of,
)
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.testing import points_for, random_shapes
from spatialnosql.testing.sphere import travel

RULES = TextRules(stem="english")
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
UTC = dt.timezone.utc


def test_borders_belong_to_a_rectangle() -> None:
    area = Rectangle(-1.5, 50, 0.1, 51)
    lng = [-1.5, 0.1, -1.5, 0.1, -0.5, np.nextafter(-1.5, -2), np.nextafter(0.1, 1), -0.5, -0.5]
    lat = [50, 51, 51, 50, 50, 50.5, 50.5, np.nextafter(50, 0), np.nextafter(51, 90)]
    assert area.inside(lng, lat).tolist() == [True] * 5 + [False] * 4
    assert area.bounds == [(-1.5, 50.0, 0.1, 51.0)]


def test_rectangles_of_no_width_and_of_the_world() -> None:
    assert Rectangle(3, 4, 3, 4).inside([3, 3.0000001], [4, 4]).tolist() == [True, False]
    world = Rectangle(-180, -90, 180, 90)
    assert world.inside([-180, 180, 0, 0], [0, 0, 90, -90]).all()


@pytest.mark.parametrize("area", [Rectangle(-180, -90, 180, 90), Circle(0, 0, 1e7), Polygon(SQUARE)])
def test_what_is_no_place_is_nowhere(area: Area) -> None:
    nowhere = [math.nan, math.inf, -math.inf, 181.0, 1.0, 1.0]
    assert not area.inside(nowhere, [1.0, 1.0, 1.0, 1.0, 91.0, math.nan]).any()
    assert area.inside([], []).tolist() == []
    assert area.inside(1.0, 1.0).tolist() == [True]


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ((1, 0, -1, 1), "west 1 is greater than east -1.*antimeridian use two subscriptions"),
        ((0, 5, 1, 4), "south 5 is greater than north 4"),
        ((-181, 0, 0, 1), "west of a rectangle is -181.*within 180"),
        ((0, 0, 1, 91), "north of a rectangle is 91.*within 90"),
        ((0, math.nan, 1, 1), "south is nan"),
        (("0", 0, 1, 1), "west is '0', which is no number"),
        ((True, 0, 1, 1), "west is True, which is no number"),
    ],
)
def test_wrong_rectangles(sides: tuple[Any, ...], message: str) -> None:
    with pytest.raises(GeometryError, match=message):
        Rectangle(*sides)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 0, -1), "radius of a circle is -1 m"),
        ((0, 0, 3e7), "radius of a circle is 30000000 m.*20,037,"),
        ((0, 0, math.inf), "radius_m is inf"),
        ((51, 181, 5), r"centre of a circle is \[51, 181\].*longitude comes first"),
    ],
)
def test_wrong_circles(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(GeometryError, match=message):
        Circle(*values)


@pytest.mark.parametrize(
    ("value", "area"),
    [
        ([0, 1, 2, 3], Rectangle(0, 1, 2, 3)),
        ((0, 1, 500), Circle(0, 1, 500)),
        (np.array([0.0, 1, 2, 3]), Rectangle(0, 1, 2, 3)),
        ({"type": "Rectangle", "bounds": [0, 1, 2, 3]}, Rectangle(0, 1, 2, 3)),
        ({"type": "Circle", "center": [0, 1], "radius_m": 500}, Circle(0, 1, 500)),
        (SQUARE, Polygon(SQUARE)),
        ({"type": "Feature", "properties": {}, "geometry": SQUARE}, Polygon(SQUARE)),
        (Circle(0, 1, 500), Circle(0, 1, 500)),
    ],
)
def test_areas_of_documents(value: Any, area: Area) -> None:
    found = area_of(value)
    assert found == area
    assert hash(found) == hash(area)
    assert area_of(found.to_document()) == area
    assert pickle.loads(pickle.dumps(found)) == area


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "0,1,2,3",
        [1, 2],
        [1, 2, 3, 4, 5],
        {},
        {"type": "Point", "coordinates": [0, 0]},
        {"type": "Rectangle"},
        {"type": "Rectangle", "bounds": [1, 2]},
        {"type": "Circle", "center": 5, "radius_m": 1},
        {"type": "Circle", "center": [5], "radius_m": 1},
        {"type": "Feature", "geometry": None},
        {"type": "Polygon"},
        {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]},
        {"type": "MultiPolygon", "coordinates": []},
    ],
)
def test_what_is_no_region(value: Any) -> None:
    with pytest.raises((UsageError, GeometryError), match=r"region|MultiPolygon|ring|coordinates"):
        area_of(value)


def test_polygons_are_kept_plain() -> None:
    given = {
        "type": "Polygon",
        "name": object(),
        "coordinates": [[(0, 0, 7), (np.float32(2), 0), (2, 2), (0, 0, 7)]],
    }
    document = area_of(given).to_document()
    assert document == {"type": "Polygon", "coordinates": [[[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 0.0]]]}
    assert {type(number) for ring in document["coordinates"] for pair in ring for number in pair} == {float}


def test_polygons_too_large_to_store() -> None:
    turns = np.linspace(0, 2 * np.pi, MOST_POSITIONS + 1)
    ring = np.stack([np.cos(turns), np.sin(turns)], axis=1).tolist()
    ring[-1] = ring[0]
    with pytest.raises(GeometryError, match=r"100,001 positions.*simplify"):
        area_of({"type": "Polygon", "coordinates": [ring]})


@pytest.mark.parametrize("area", [Rectangle(-0.2, 51, 0.3, 52), Circle(179.99, -17, 50_000), Polygon(SQUARE)])
def test_bounds_hold_all_that_is_inside(area: Area) -> None:
    rng = np.random.default_rng(3)
    boxes = np.array(area.bounds)
    near = boxes[rng.integers(len(boxes), size=20_000)]
    lng = np.clip(near[:, 0] + rng.normal(0.5, 0.6, 20_000) * (near[:, 2] - near[:, 0]), -180, 180)
    lat = np.clip(near[:, 1] + rng.normal(0.5, 0.6, 20_000) * (near[:, 3] - near[:, 1]), -90, 90)
    held = np.zeros(lng.size, dtype=bool)
    for west, south, east, north in boxes:
        held |= (west <= lng) & (lng <= east) & (south <= lat) & (lat <= north)
    inside = area.inside(lng, lat)
    assert inside.any()
    assert not inside.all()
    assert not (inside & ~held).any()


# -- as the server has it ---------------------------------------------------------------------------------


def server_says(
    database: Database[dict[str, Any]], lng: Any, lat: Any, operand: dict[str, Any]
) -> np.ndarray:
    """What ``$geoWithin`` says of points, without any index."""
    points = database.points
    points.drop()
    points.insert_many(
        {"_id": number, "at": {"type": "Point", "coordinates": [float(x), float(y)]}}
        for number, (x, y) in enumerate(zip(lng, lat, strict=True))
    )
    inside = np.zeros(len(lng), dtype=bool)
    inside[[found["_id"] for found in points.find({"at": {"$geoWithin": operand}}, {"_id": 1})]] = True
    return inside


def test_circles_as_the_server_has_them(database: Database[dict[str, Any]]) -> None:
    """Random circles of all sizes; most points within centimetres of the border, many exactly on it."""
    rng = np.random.default_rng(17)
    for _ in range(25):
        lng, lat = float(rng.uniform(-180, 180)), float(np.degrees(np.arcsin(rng.uniform(-1, 1))))
        radius_m = float(10 ** rng.uniform(-3, 6.5))
        off_m = rng.choice([0.0, 0.001, 0.004, 0.01, 0.03, 1.0, radius_m / 2], 400) * rng.uniform(-1, 1, 400)
        away = np.degrees(np.maximum(radius_m + off_m, 0) / EARTH_RADIUS_M)
        x, y = travel(np.full(400, lng), np.full(400, lat), rng.uniform(0, 2 * np.pi, 400), away)
        operand = {"$centerSphere": [[lng, lat], radius_m / EARTH_RADIUS_M]}
        wanted, found = server_says(database, x, y, operand), Circle(lng, lat, radius_m).inside(x, y)
        assert found.tolist() == wanted.tolist(), (lng, lat, radius_m, off_m[found != wanted])
        assert 0 < wanted.sum() < 400


def test_polygons_as_the_server_has_them(database: Database[dict[str, Any]]) -> None:
    """Where nothing is decided by the fixed rule, and that happens to hardly any point even near edges."""
    ruled = total = 0
    for number, shape in enumerate(
        random_shapes(30, seed=5, kinds=("polygon", "polygon_with_holes", "multipolygon"))
    ):
        x, y = points_for(shape, 300, seed=number)
        wanted = server_says(database, x, y, {"$geometry": shape.value})
        found = Polygon(shape.value).inside(x, y)
        assert not (wanted & ~found).any()
        ruled, total = ruled + int((found & ~wanted).sum()), total + len(x)
    assert ruled <= total // 200


def test_rectangles_as_the_server_has_them(database: Database[dict[str, Any]]) -> None:
    """As ``$box``, whose points are flat; on borders too."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        west, east = sorted(rng.uniform(-180, 180, 2))
        south, north = sorted(rng.uniform(-90, 90, 2))
        x = rng.choice(
            [west, east, np.nextafter(west, -999), np.nextafter(east, 999), *rng.uniform(-180, 180, 3)], 200
        )
        y = rng.choice(
            [south, north, np.nextafter(south, -99), np.nextafter(north, 99), *rng.uniform(-90, 90, 3)], 200
        )
        wanted = server_says(database, x, y, {"$box": [[west, south], [east, north]]})
        assert Rectangle(west, south, east, north).inside(x, y).tolist() == wanted.tolist()


# -- the model --------------------------------------------------------------------------------------------


def test_what_matches() -> None:
    expires = dt.datetime(2026, 11, 30, 18, tzinfo=UTC)
    one = Subscription.of("ann", "(floods AND roads) OR landslide", [0, 0, 2, 2], RULES, expires, "a")
    before = expires - dt.timedelta(milliseconds=1)

    def matches(text: str, lng: float = 1.0, at: dt.datetime = before) -> bool:
        return one.matches(Object(1, text, lng, 1.0, at), RULES)

    assert matches("Road FLOODED again")
    assert matches("Landslides!")
    assert matches("landslide", lng=2.0)
    assert not matches("flood")
    assert not matches("landslide", lng=2.1)
    assert not matches("landslide", at=expires)
    assert matches("landslide", at=before.replace(tzinfo=None))
    assert matches("landslide", at=before.astimezone(dt.timezone(dt.timedelta(hours=5))))
    assert matches("landslide", at=expires - dt.timedelta(microseconds=1))


def test_documents_of_subscriptions() -> None:
    one = Subscription.of("ann", "flood OR road", SQUARE, RULES, "2026-11-30T18:00:00.123456Z", 17)
    assert (one.id, one.expires) == ("17", dt.datetime(2026, 11, 30, 18, 0, 0, 123_000, UTC))
    document = one.to_document()
    assert document["clauses"] == [["flood"], ["road"]]
    assert Subscription.from_document(document) == one
    never = Subscription.of("ann", "flood", [0, 0, 1], RULES)
    assert never.expires_ms == NEVER_MS
    assert "expires" not in never.to_document()
    assert len(never.id) == 24


def test_moments() -> None:
    assert moment_to_ms(dt.datetime(1970, 1, 1, 0, 0, 1, 999)) == 1000
    assert moment_to_ms(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)) == -1
    assert moment_of("2026-11-30T19:00:00+01:00") == dt.datetime(2026, 11, 30, 18, tzinfo=UTC)
    for wrong in ("tomorrow", "", 5, None):
        with pytest.raises(UsageError, match="2026-11-30T18:00:00Z"):
            moment_of(wrong, "expires")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no year from 1 to 9999"):
        moment_of("9999-12-31T23:00:00-05:00")


@pytest.mark.parametrize("wrong", ["", "  ", None, 1.5, True, "x" * 501, "a\0b", "\ud800"])
def test_names(wrong: Any) -> None:
    with pytest.raises(SpatialNoSQLError, match="the owner of a subscription"):
        name_of(wrong, "owner")
