"""How long a shape takes to become ranges, beside polygon-geohasher from PyPI.

Three kinds of shapes: `neighborhoods` (hundreds of vertices), `boroughs` (tens of thousands) and `countries` (long
edges, many parts, both ends of the map). ``--polygons`` takes one file or several, separated as in PATH; of what kind
a file is, is seen from it. Kinds without a file are generated. ``--data`` are the points of the histogram that weighs
the covers.

- ``ours``: what a query does, from GeoJSON to at most 256 cells, weighted by the histogram if the points lie there
- ``ours-equal-precision``: every cell of one geohash length that meets the shape, as ranges
- ``polygon-geohasher``: the same cells as strings, for as many shapes as fit a budget of time
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Area, load_points, read_polygons
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from spatialnosql.city import generate_city
from spatialnosql.cover import Cover, clear_cache, cover
from spatialnosql.errors import UnsupportedShape
from spatialnosql.geohash import strings_to_cells
from spatialnosql.geometry import geometry_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.progress import Progress
from spatialnosql.testing.sphere import travel

KINDS = {"neighborhoods": 8, "boroughs": 7, "countries": 5}
"""The kinds, and the geohash length at which each is compared: about the finest cells of our covers."""
HISTOGRAM_BITS = 35
BUDGET_S, QUICK_BUDGET_S = 60.0, 3.0  # for polygon-geohasher, a kind; the second with --limit
FLAT_SHARE = 0.999  # of its cells must be in ours where its flat edges are as good as great circles


@dataclass(frozen=True)
class Kind:
    """Shapes of one kind, where they come from, and the histogram their covers are weighted by."""

    name: str
    areas: list[Area]
    source: str
    weights: Histogram | None

    @property
    def length(self) -> int:
        """The geohash length at which variants are compared."""
        return KINDS[self.name]


@dataclass
class Timed:
    """Milliseconds of one shape: to understand it, and to cover it; wall and CPU."""

    parse_ms: float
    cover_ms: float
    cpu_ms: float
    answer: Any


def run(options: Options) -> dict[str, Any]:
    kinds = load_kinds(options)
    queries = {}
    for kind in kinds:
        queries[kind.name] = _measured(kind, options)
    points = {kind.weights.total for kind in kinds if kind.weights}
    return {"benchmark": "cover", "n_points": max(points, default=0), "n_shards": 0, "queries": queries}


# -- shapes -----------------------------------------------------------------------------------------------


def load_kinds(options: Options) -> list[Kind]:
    """All kinds, from the files that were given, else generated."""
    files = [Path(name) for name in str(options.polygons).split(os.pathsep)] if options.polygons else []
    found = {kind_of(areas): (areas, file.name) for file in files if (areas := read_polygons(file))}
    histogram = None
    if options.data is not None or not files:
        points = load_points(options)
        histogram = Histogram.of_points(points.lng, points.lat, HISTOGRAM_BITS)
    kinds = []
    for name in KINDS:
        areas, source = found.get(name) or (generated(name, options.seed), "generated")
        # Points of one city say nothing about countries, nor those of a file about generated shapes.
        matches = name != "countries" and (source == "generated") == (options.data is None)
        kinds.append(Kind(name, areas[: options.limit], source, histogram if matches else None))
    return kinds


def kind_of(areas: list[Area]) -> str:
    """What sort of shapes these are, by their extent and their number."""
    coordinates = [np.array(_positions(area.geometry["coordinates"])) for area in areas]
    reach = max(float(np.ptp(places[:, 1])) for places in coordinates)
    if reach > 5:
        return "countries"
    return "boroughs" if len(areas) <= 10 else "neighborhoods"


def _positions(coordinates: Any) -> list[list[float]]:
    if not isinstance(coordinates[0], list):
        return [coordinates[:2]]
    return [position for part in coordinates for position in _positions(part)]


def generated(kind: str, seed: int) -> list[Area]:
    """Shapes of about as many vertices as the real ones have."""
    rng = np.random.default_rng(seed)
    if kind == "neighborhoods":
        features = generate_city(0).neighbourhoods(195)["features"]
        return [Area(feature["properties"]["name"], feature["geometry"]) for feature in features]
    if kind == "boroughs":
        sizes = (27_000, 17_600, 9_000, 8_700, 6_300)
        middle = generate_city(0).bounds
        lng, lat = (middle[0] + middle[2]) / 2, (middle[1] + middle[3]) / 2
        return [
            Area(f"borough {i}", coast(rng, lng + 0.05 * i, lat, 0.1, size, parts=20))
            for i, size in enumerate(sizes)
        ]
    areas = []
    for number in range(242):
        lng, lat = float(rng.uniform(-180, 180)), float(np.degrees(np.arcsin(rng.uniform(-0.95, 0.95))))
        size, radius = int(np.exp(rng.uniform(3, 8))), float(np.exp(rng.uniform(-3, 3.3)))
        areas.append(
            Area(f"country {number}", coast(rng, lng, lat, radius, size, parts=int(rng.integers(1, 30))))
        )
    return areas


def coast(
    rng: np.random.Generator, lng: float, lat: float, radius_deg: float, vertices: int, parts: int
) -> dict[str, Any]:
    """A ragged island of half of the vertices, and smaller ones around it."""
    polygons = []
    for part in range(parts):
        count = max(8, vertices // 2 if part == 0 else vertices // (2 * parts))
        far = 0.0 if part == 0 else radius_deg * float(rng.uniform(1.4, 2))
        radius = radius_deg if part == 0 else 0.05 * radius_deg
        x, y = travel(lng, lat, part * 2 * np.pi / parts, far)
        bearing = np.linspace(2 * np.pi, 0, count, endpoint=False)
        waves = sum(np.sin(k * bearing + rng.uniform(0, 7)) / k for k in (3, 7, 17, 40))
        reach = radius * (0.7 + 0.15 * waves * rng.uniform(0.98, 1, count))
        ring = np.stack(travel(np.full(count, x), np.full(count, y), bearing, reach), axis=1).tolist()
        polygons.append([[*ring, ring[0]]])
    return {"type": "MultiPolygon", "coordinates": polygons}


# -- measuring --------------------------------------------------------------------------------------------


def _measured(kind: Kind, options: Options) -> dict[str, Any]:
    ours: list[Timed] = []
    equal: list[Timed] = []
    theirs: list[Timed] = []
    unsupported = []
    spent = 0.0
    bits, budget_s = 5 * kind.length, BUDGET_S if options.limit is None else QUICK_BUDGET_S
    with Progress(f"covering {kind.name}", len(kind.areas), unit="shapes") as progress:
        # Small shapes first, so that the budget for the slow variant reaches as many as it can.
        for area in sorted(kind.areas, key=lambda area: _extent(area.geometry)):
            try:
                ours.append(_ours(area, options.repeats, lambda region: cover(region, weights=kind.weights)))
            except UnsupportedShape as error:
                # Left to the server: a query with it is sent as it is.
                unsupported.append(f"{area.name}: {error}")
                continue
            finally:
                progress.advance()
            equal.append(
                _ours(
                    area,
                    options.repeats,
                    lambda region: cover(region, max_bits=bits, max_cells=10**7, range_cost=0),
                )
            )
            if spent < budget_s:
                theirs.append(_theirs(area, kind.length))
                spent += theirs[-1].cpu_ms / 1000
    return _result(kind, ours, equal, theirs, unsupported)


def _extent(geometry: dict[str, Any]) -> float:
    places = np.array(_positions(geometry["coordinates"]))
    return float(np.prod(np.ptp(places, axis=0)))


def _ours(area: Area, repeats: int, make: Callable[[Any], Cover]) -> Timed:
    runs = []
    for _ in range(repeats):
        clear_cache()
        cpu, started = time.process_time(), time.perf_counter()
        region = geometry_to_region(area.geometry)
        parsed = time.perf_counter()
        answer = make(region)
        ended, cpu_ended = time.perf_counter(), time.process_time()
        runs.append(((parsed - started) * 1e3, (ended - parsed) * 1e3, (cpu_ended - cpu) * 1e3))
    parse, covered, cpu_ms = (statistics.median(column) for column in zip(*runs, strict=True))
    return Timed(parse, covered, cpu_ms, answer)


def _theirs(area: Area, length: int) -> Timed:
    """Once only: it takes long enough to be measured well."""
    from polygon_geohasher.polygon_geohasher import polygon_to_geohashes
    from shapely.geometry import shape

    cpu, started = time.process_time(), time.perf_counter()
    polygon = shape(area.geometry)
    parsed = time.perf_counter()
    answer = polygon_to_geohashes(polygon, length, inner=False)
    ended = time.perf_counter()
    return Timed((parsed - started) * 1e3, (ended - parsed) * 1e3, (time.process_time() - cpu) * 1e3, answer)


def _result(
    kind: Kind, ours: list[Timed], equal: list[Timed], theirs: list[Timed], unsupported: list[str]
) -> dict[str, Any]:
    compared = list(zip(equal[: len(theirs)], theirs, strict=True))
    cells = [strings_to_cells(sorted(their.answer)) for _, their in compared]
    held = [own.answer.outer.contains(found) for (own, _), found in zip(compared, cells, strict=True)]
    covered = float(np.concatenate(held).mean()) if held else None
    ratios = {
        "cover": _ratio(compared, lambda timed: timed.cover_ms),
        "cpu": _ratio(compared, lambda timed: timed.cpu_ms),
    }
    for line in unsupported:
        print(f"left to the server: {line}", file=sys.stderr)
    return {
        "n_queries": len(kind.areas),
        "source": kind.source,
        "length": kind.length,
        "weighted": kind.weights is not None,
        "compared": len(compared),
        "unsupported": unsupported,
        "variants": {
            "ours": _summary(ours),
            "ours-equal-precision": _summary(equal),
            "polygon-geohasher": {
                **_summary(theirs),
                "cells": int(statistics.median(map(len, cells))) if cells else 0,
                "ranges": None,
            },
        },
        "ratio": ratios,
        "their_cells_in_ours": covered,
        # Over a continent a flat edge is not a great circle: there the two need not agree.
        "equal": None if kind.name == "countries" else covered is None or covered >= FLAT_SHARE,
    }


def _ratio(compared: list[tuple[Timed, Timed]], value: Callable[[Timed], float]) -> dict[str, float | None]:
    """How many times faster, at equal precision: the median over shapes, and all of them together."""
    if not compared:
        return {"median": None, "total": None}
    each = [value(theirs) / max(value(ours), 1e-6) for ours, theirs in compared]
    total = sum(value(theirs) for _, theirs in compared) / max(sum(value(ours) for ours, _ in compared), 1e-6)
    return {"median": round(statistics.median(each), 2), "total": round(total, 2)}


def _summary(timed: list[Timed]) -> dict[str, Any]:
    if not timed:
        return {}
    total = [one.parse_ms + one.cover_ms for one in timed]
    made = [one.answer for one in timed if isinstance(one.answer, Cover)]
    return {
        "ms_median": round(statistics.median(total), 3),
        "ms_max": round(max(total), 3),
        "parse_ms_median": round(statistics.median(one.parse_ms for one in timed), 3),
        "parse_ms_max": round(max(one.parse_ms for one in timed), 3),
        "cover_ms_median": round(statistics.median(one.cover_ms for one in timed), 3),
        "cover_ms_max": round(max(one.cover_ms for one in timed), 3),
        "cpu_ms_median": round(statistics.median(one.cpu_ms for one in timed), 3),
        "cpu_ms_max": round(max(one.cpu_ms for one in timed), 3),
        "cells": int(statistics.median(one.cells for one in made)) if made else None,
        "ranges": int(statistics.median(len(one.interior) + len(one.boundary) for one in made))
        if made
        else None,
        "shapes": len(timed),
    }


# -- the table for people ---------------------------------------------------------------------------------

COLUMNS = (
    "shapes",
    "ms_median",
    "ms_max",
    "parse_ms_median",
    "cover_ms_median",
    "cpu_ms_median",
    "cells",
    "ranges",
)


def table(result: dict[str, Any]) -> str:
    lines = [f"cover: {result['n_points']:,} points in the histogram"]
    for name, part in result["queries"].items():
        weighted = "weighted by the histogram" if part["weighted"] else "weighted by area"
        lines += [
            "",
            f"{name} ({part['source']}): {part['n_queries']} shapes, {weighted}; geohash length {part['length']}",
        ]
        rows = [["variant", *(column.replace("_", " ") for column in COLUMNS)]]
        rows += [[v, *(cell_text(values.get(c)) for c in COLUMNS)] for v, values in part["variants"].items()]
        lines += aligned(rows)
        ratio = part["ratio"]["cover"]
        if ratio["median"] is not None:
            lines.append(
                f"at equal precision {ratio['median']:.1f} times polygon-geohasher (median), {ratio['total']:.1f} "
                f"(total of {part['compared']} shapes)"
            )
            lines.append(f"{100 * (part['their_cells_in_ours'] or 0):.2f} % of its cells are in ours")
        lines += [f"left to the server: {line}" for line in part["unsupported"]]
    return "\n".join([*lines, ""])
