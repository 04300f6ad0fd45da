"""Outlines: they hold every place of the shape, and not much more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import KINDS, points_for

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.geohash import points_to_cells
from spatialnosql.geometry import geometry_to_region
from spatialnosql.outline import Outline, outline_of
from spatialnosql.region import IN, OUT
from spatialnosql.testing import points_for as points_for_shape
from spatialnosql.testing import random_shapes

MOST_CELLS = (16, 128, 1000)


def polygons_of(geometry: dict[str, Any]) -> Any:
    return [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]


@pytest.mark.parametrize("most_cells", MOST_CELLS)
@pytest.mark.parametrize("largest_deg", [0.01, 1.0, 40.0])
def test_every_place_of_a_shape_lies_in_its_outline(most_cells: int, largest_deg: float) -> None:
    kinds = ("polygon", "polygon_with_holes", "multipolygon")
    made = held = 0
    for number, shape in enumerate(random_shapes(120, 5, kinds=kinds, largest_deg=largest_deg)):
        outline = outline_of(shape.polygons(), most_cells)
        if outline is None:
            continue
        made += 1
        lng, lat = points_for_shape(shape, 300, number)
        status = geometry_to_region(shape.value).settle(lng, lat)
        inside = outline.ranges.contains(points_to_cells(lng, lat))
        assert inside[status != OUT].all()
        held += int((status == IN).sum())
    assert made > 60
    assert held > 1_000


def test_every_question_of_the_differential_tests_too() -> None:
    rng = np.random.default_rng(3)
    made = 0
    for kind, make in KINDS.items():
        for _ in range(15):
            operand = make(rng).condition
            geometry = next(iter(operand.values()), {})
            geometry = geometry.get("$geometry", {}) if isinstance(geometry, dict) else {}
            if geometry.get("type") not in ("Polygon", "MultiPolygon") or "crs" in geometry:
                continue
            outline = outline_of(polygons_of(geometry), 128)
            try:
                region = geometry_to_region(geometry)
            except SpatialNoSQLError:
                continue  # whoever reads it will say so
            if outline is None:
                continue
            made += 1
            lng, lat = points_for(KINDS[kind](rng), rng, 60)
            own_lng, own_lat = points_for_polygon(geometry, rng)
            lng, lat = np.concatenate([lng, own_lng]), np.concatenate([lat, own_lat])
            status = region.settle(lng, lat)
            assert outline.ranges.contains(points_to_cells(lng, lat))[status != OUT].all(), geometry
    assert made > 80


def points_for_polygon(geometry: dict[str, Any], rng: np.random.Generator) -> tuple[Any, Any]:
    """Its vertices, and places in and around its box."""
    corners = np.array([p[:2] for polygon in polygons_of(geometry) for p in polygon[0]], dtype=float)
    low, high = corners.min(axis=0), corners.max(axis=0)
    size = np.maximum(high - low, 1e-9)
    around = rng.uniform(low - size / 10, high + size / 10, (200, 2))
    lng, lat = np.concatenate([corners, around]).T
    return np.clip(lng, -180, 180), np.clip(lat, -90, 90)


def test_a_great_circle_rises_above_its_ends() -> None:
    """The edge from [-40, 50] to [40, 50] reaches 57 degrees north."""
    ring = [[-40.0, 50.0], [-40.0, 40.0], [40.0, 40.0], [40.0, 50.0], [-40.0, 50.0]]
    outline = outline_of([[ring]], 128)
    assert outline is not None
    region = geometry_to_region({"type": "Polygon", "coordinates": [ring]})
    lat = np.linspace(50.0, 57.2, 50)
    assert (region.settle(np.zeros(50), lat) == IN).all()
    assert outline.ranges.contains(points_to_cells(np.zeros(50), lat)).all()


def share_of_cells(outline: Outline) -> float:
    return float((outline.ranges.hi - outline.ranges.lo).astype(float).sum()) / 2.0**60


@pytest.mark.parametrize("vertices", [12, 200])
def test_a_round_shape_fills_most_of_its_outline(vertices: int) -> None:
    rng = np.random.default_rng(4)
    turn = np.linspace(0, 2 * np.pi, vertices + 1)
    for _ in range(50):
        x, y, size = rng.uniform(-170, 170), rng.uniform(-70, 70), 10 ** rng.uniform(-4, 0)
        ring = np.stack([x + size * np.cos(turn), y + size * np.sin(turn)], axis=1)
        ring[-1] = ring[0]
        outline = outline_of([[ring.tolist()]], 128)
        assert outline is not None
        assert 1 <= len(outline.ranges) <= 128
        assert outline.vertices == vertices + 1
        area = np.pi * size**2 / 64_800
        assert area < share_of_cells(outline) < 2.6 * area
        assert outline.filled == pytest.approx(area / share_of_cells(outline), rel=0.15)


def test_a_sliver_fills_little_of_it() -> None:
    sliver = [[2.0, 48.0], [3.0, 49.0], [3.001, 49.0], [2.0, 48.0]]
    outline = outline_of([[sliver]], 128)
    assert outline is not None
    assert outline.filled < 0.01


@pytest.mark.parametrize(
    "ring",
    [
        [[170, 10], [-170, 10], [-170, 20], [170, 20], [170, 10]],
        [[0, 80], [90, 85], [180, 80], [0, 80]],
        [[-100, 10], [100, 10], [0, 40], [-100, 10]],
        [[181, 10], [182, 10], [182, 11], [181, 10]],
    ],
    ids=["antimeridian", "pole", "wide", "off the map"],
)
def test_where_corners_say_nothing(ring: Any) -> None:
    assert outline_of([[ring]], 128) is None


@pytest.mark.parametrize(
    "polygons",
    [
        None, 5, "x", [], [[]], [[[]]], [[[[]]]], [[1, 2]], [["x"]], [[[1], [2], [1]]], [[[[1], [2], [1]]]],
        [[[[1, [2]], [2, 3]]]], [[[[[1, 2], [2, 3]]]]], [[[[10**400, 1], [2, 3]]]],
        [[[[float("nan"), 1], [2, 3]]]], [[[[2, 3], [2, float("inf")]]]], {"a": 1},
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_are_no_coordinates_has_no_outline(polygons: Any) -> None:
    assert outline_of(polygons, 128) is None


@pytest.mark.parametrize("west", [-180.0, -180.0 + 1e-11, -180.0 + 1e-6, 179.0, 179.0 - 1e-11, 179.0 - 1e-6])
def test_a_shape_at_the_antimeridian_has_a_border_on_the_other_side(west: float) -> None:
    east = west + 1.0
    ring = [[west, 10.0], [east, 10.0], [east, 11.0], [west, 11.0], [west, 10.0]]
    assert outline_of([[ring]], 64) is None
    inland = [[x * 0.99, y] for x, y in ring]
    assert outline_of([[inland]], 64) is not None


def test_many_vertices_are_sooner_read() -> None:
    for vertices, has_outline in ((1_999, True), (2_000, False)):
        angles = np.linspace(0, 2 * np.pi, vertices)
        ring = np.column_stack([10 + np.cos(angles), 50 + np.sin(angles)]).tolist()
        assert (outline_of([[[*ring, ring[0]]]], 64) is not None) is has_outline
