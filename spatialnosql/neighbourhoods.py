"""Irregular, adjacent areas that cover the land of the generated city: polygons without external data.

Voronoi cells of seeds that crowd where the people do, with their edges cut finely and bent by a smooth
warp. Neighbours are cut at the same vertices, so they share their borders exactly. The water is taken
out, which leaves banks, parts on both sides of the river, and islands; two enclaves make holes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from spatialnosql import city_plan as plan
from spatialnosql.errors import UsageError

MINIMUM, MAXIMUM = 8, 2000
_DECIMALS = 1e-7  # degrees: a centimetre
_ENCLAVES = 2
_STEPS_PER_EDGE = 12


def neighbourhoods(count: int = 60) -> dict[str, Any]:
    """A FeatureCollection of ``count`` areas (Polygon or MultiPolygon), each with a name; always the same."""
    if not MINIMUM <= count <= MAXIMUM:
        raise UsageError(f"{count} neighbourhoods asked for; between {MINIMUM} and {MAXIMUM} can be made")
    water = _water()
    areas = _with_enclaves([shapely.difference(_bend(cell), water) for cell in _cells(count - _ENCLAVES)])
    features = [
        {
            "type": "Feature",
            "properties": {"name": f"{plan.NAME} {number}"},
            # mapping() gives tuples; GeoJSON read from a file has lists, and so should this.
            "geometry": _lists(shapely.geometry.mapping(_to_degrees(area))),
        }
        for number, area in enumerate(areas, 1)
    ]
    return {"type": "FeatureCollection", "features": features}


def _cells(count: int) -> list[Any]:
    """Voronoi cells, small in the centre and large outside, clipped to just beyond the city limit."""
    rng = np.random.default_rng(plan.PLAN_SEED + 2)
    limit = shapely.Polygon(_ellipse(1.02, 240))
    seeds = np.empty((0, 2))
    while len(seeds) < count:
        bearing, radius = rng.uniform(0, 2 * np.pi, 8 * count), rng.uniform(0, 1, 8 * count) ** 1.5
        x, y = plan.HALF_WIDTH_KM * radius * np.cos(bearing), plan.HALF_HEIGHT_KM * radius * np.sin(bearing)
        dry = plan.on_land(x, y, margin_km=0.3)
        seeds = np.concatenate([seeds, np.stack([x[dry], y[dry]], axis=1)])
    cells = shapely.voronoi_polygons(shapely.MultiPoint(seeds[:count]), extend_to=limit)
    clipped = [shapely.intersection(cell, limit) for cell in shapely.get_parts(cells)]
    return sorted(clipped, key=lambda cell: (cell.centroid.x, cell.centroid.y))  # numbered from west to east


def _bend(cell: Any) -> Any:
    """Cut every edge into short ones and warp the vertices."""
    corners = shapely.get_coordinates(cell)
    ring = []
    for a, b in pairwise(corners):
        # Cut from the smaller end, whichever way the ring runs: so the neighbour gets the same vertices.
        forward = tuple(a) < tuple(b)
        low, high = (a, b) if forward else (b, a)
        cuts = low + np.linspace(0, 1, _STEPS_PER_EDGE + 1)[:, None] * (high - low)
        ring.append((cuts if forward else cuts[::-1])[:-1])
    x, y = np.concatenate(ring).T
    return shapely.Polygon(_warp(x, y))


def _warp(x: plan.Floats, y: plan.Floats) -> NDArray[np.float64]:
    """Shift places by up to a few hundred metres; its slope is below 1, so that nothing folds over."""
    east = 0.30 * np.sin(y / 0.9 + 1) + 0.05 * np.sin(y / 0.21) + 0.20 * np.sin(x / 2.1)
    north = 0.30 * np.sin(x / 0.9 + 2) + 0.05 * np.sin(x / 0.21 + 1) + 0.20 * np.sin(y / 2.1)
    # Calm towards the limit: the outermost vertices must not move inwards over the last points.
    calm = np.clip(6 * (1 - np.hypot(x / plan.HALF_WIDTH_KM, y / plan.HALF_HEIGHT_KM)), 0, 1)
    return np.stack([x + calm * east, y + calm * north], axis=1)


def _with_enclaves(areas: list[Any]) -> list[Any]:
    """The areas, with the largest each giving up a round piece in its middle to a new neighbour."""
    areas = list(areas)
    largest = sorted(range(len(areas)), key=lambda i: areas[i].area, reverse=True)[:_ENCLAVES]
    for i in largest:
        middle = areas[i].representative_point()
        enclave = shapely.buffer(middle, 0.5 * middle.distance(areas[i].boundary), quad_segs=8)
        areas[i] = shapely.difference(areas[i], enclave)
        areas.append(enclave)
    return areas


def _water() -> Any:
    """River and bay as a polygon, drawn a few metres inside their banks so that no dry point is lost."""
    y = np.arange(plan.BAY_Y, plan.HALF_HEIGHT_KM * 1.1, 0.12)
    middle, half = plan.river_course(y)
    banks = np.concatenate([np.stack([middle - half, y], axis=1), np.stack([middle + half, y], axis=1)[::-1]])
    bearing = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    radius = plan.bay_radius(bearing)
    shore = np.stack(
        [plan.BAY_X + plan.BAY_STRETCH * radius * np.cos(bearing), plan.BAY_Y + radius * np.sin(bearing)],
        axis=1,
    )
    water = shapely.union(shapely.Polygon(banks), shapely.Polygon(shore))
    return shapely.buffer(water, -0.01, quad_segs=2)


def _ellipse(scale: float, vertices: int) -> NDArray[np.float64]:
    bearing = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    return scale * np.stack(
        [plan.HALF_WIDTH_KM * np.cos(bearing), plan.HALF_HEIGHT_KM * np.sin(bearing)], axis=1
    )


def _to_degrees(area: Any) -> Any:
    """Degrees at a centimetre's precision, rings counter-clockwise as GeoJSON asks."""

    def convert(places: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(plan.to_lng_lat(places[:, 0], places[:, 1]), axis=1)

    precise = shapely.set_precision(shapely.transform(area, convert), _DECIMALS)
    parts = [part for part in shapely.get_parts(precise) if part.geom_type == "Polygon"]
    oriented = [shapely.geometry.polygon.orient(part) for part in parts]
    return oriented[0] if len(oriented) == 1 else shapely.MultiPolygon(oriented)


def _lists(value: Any) -> Any:
    """Tuples to lists, all the way down; coordinates rid of the noise that scaling left."""
    if isinstance(value, (list, tuple)):
        return [_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return round(value, 7) if isinstance(value, float) else value
