"""Points within centimetres of a border: by their leaf cells, as MongoDB says; and how few are left to ask about."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import s2sphere
from pymongo.database import Database

from spatialnosql.geometry import geometry_to_region, within_to_region
from spatialnosql.leaf_cells import leaf_corners, settle_leaf_cells
from spatialnosql.region import IN, OUT, UNSURE, EdgeRegion, IntersectionRegion, UnionRegion
from spatialnosql.settle import settle_closely
from spatialnosql.testing import ServerOracle, points_near_edges, points_on_sphere, random_shapes
from spatialnosql.testing.points import points_near

KINDS = ("polygon", "polygon_with_holes", "multipolygon")


def test_corners_are_those_of_s2() -> None:
    lng, lat = points_on_sphere(300, 5)
    corners, certain = leaf_corners(lng, lat)
    assert certain.mean() > 0.99
    for number in np.flatnonzero(certain).tolist():
        place = s2sphere.LatLng.from_degrees(float(lat[number]), float(lng[number]))
        cell = s2sphere.Cell(s2sphere.CellId.from_lat_lng(place))
        theirs = np.array([[cell.get_vertex(k)[axis] for axis in range(3)] for k in range(4)])
        for corner in corners[number]:
            assert np.abs(theirs - corner).max(axis=1).min() < 1e-15


def very_near(shape: Any, n: int, seed: int) -> tuple[Any, Any]:
    """Points on the edges and vertices, and up to five centimetres beside them."""
    lng, lat = points_near_edges(shape, n, seed)
    vertices = np.array([vertex for part in shape.polygons() for ring in part for vertex in ring])
    at = points_near(vertices[:, 0], vertices[:, 1], n, seed, nearest_m=1e-4, farthest_m=0.05)
    ring = np.array(shape.polygons()[0][0])
    # Of short edges the middle of the chord is near enough to the arc.
    middle = (ring[:-1] + ring[1:]) / 2
    beside = points_near(middle[:, 0], middle[:, 1], n, seed, nearest_m=1e-4, farthest_m=0.05)
    return np.concatenate([lng, at[0], beside[0]]), np.concatenate([lat, at[1], beside[1]])


@pytest.mark.parametrize("size", [(0.0001, 0.001), (0.001, 0.05), (0.05, 10.0)])
def test_the_server_says_the_same(
    database: Database[dict[str, Any]], tally: Counter[str], size: tuple[float, float]
) -> None:
    oracle = ServerOracle(database["scratch"])
    asked = left = 0
    for number, shape in enumerate(
        random_shapes(15, 31, kinds=KINDS, smallest_deg=size[0], largest_deg=size[1])
    ):
        region = geometry_to_region(shape.value)
        if not isinstance(region, EdgeRegion) or region.on_s2_borders:
            continue
        lng, lat = very_near(shape, 150, number)
        valid = (np.abs(lng) <= 180) & (np.abs(lat) <= 90)
        lng, lat = lng[valid], lat[valid]
        near = np.flatnonzero(region.settle(lng, lat, 4e-9) == UNSURE)
        lng, lat = lng[near], lat[near]
        said = oracle.decide(shape, lng, lat)
        status = settle_leaf_cells(region, lng, lat)
        assert (said[status == IN] == 1).all()
        assert (said[status == OUT] == 0).all()
        assert (settle_closely(region, lng, lat) == status).all()
        asked, left = asked + near.size, left + int((status == UNSURE).sum())
    assert asked > 200
    tally["points within 3 cm of a border, settled as the server does"] += asked - left
    tally["and left to the server"] += left
    # On an edge or a vertex itself there is no certainty; beside it there is.
    assert left < asked * 0.5


def test_few_are_left_beside_an_edge() -> None:
    ring = [[2.0, 48.0], [2.3, 48.05], [2.4, 48.4], [2.0, 48.3], [2.0, 48.0]]
    region = geometry_to_region({"type": "Polygon", "coordinates": [ring]})
    assert isinstance(region, EdgeRegion)
    rng = np.random.default_rng(1)
    # Along the western side, which is a meridian: degrees of longitude are distances from it.
    lat = rng.uniform(48.01, 48.29, 4_000)
    lng = 2.0 + rng.uniform(-3e-7, 3e-7, 4_000)
    before = region.settle(lng, lat, 4e-9) == UNSURE
    after = settle_closely(region, lng, lat) == UNSURE
    assert before.sum() > 2_000
    assert after.sum() < before.sum() / 20


def test_shapes_without_great_circles_are_left_as_they_are() -> None:
    flat = within_to_region({"$polygon": [[0.5, 0.5], [1.5, 0.5], [1.0, 1.5]]})
    line = geometry_to_region({"type": "LineString", "coordinates": [[0.5, 0.5], [1.5, 0.7]]})
    for region in (flat, line):
        assert isinstance(region, EdgeRegion)
        assert settle_leaf_cells(region, np.array([0.5]), np.array([0.5])).tolist() == [UNSURE]
        assert settle_closely(region, [0.5], [0.5]).tolist() == [UNSURE]
    assert settle_closely(flat, [], []).size == 0


def test_of_several_shapes_each_is_settled_closely() -> None:
    west = geometry_to_region(
        {"type": "Polygon", "coordinates": [[[2, 48], [2.1, 48], [2.1, 48.1], [2, 48.1], [2, 48]]]}
    )
    east = geometry_to_region(
        {"type": "Polygon", "coordinates": [[[2.1, 48], [2.2, 48], [2.2, 48.1], [2.1, 48.1], [2.1, 48]]]}
    )
    lng, lat = 2.1 + np.linspace(-3e-7, 3e-7, 101), np.full(101, 48.05)
    statuses = [settle_closely(part, lng, lat) for part in (west, east)]
    assert (settle_closely(IntersectionRegion((west, east)), lng, lat) == np.min(statuses, axis=0)).all()
    assert (settle_closely(UnionRegion((west, east)), lng, lat) == np.max(statuses, axis=0)).all()
    assert OUT in statuses[0]
    assert IN in statuses[0]
