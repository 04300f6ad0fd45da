"""Points to cells, to strings, and candidates settled: per second, on one core, beside pygeohash in a loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pygeohash

from benchmarks.data import load_points
from benchmarks.frame import aligned
from benchmarks.options import Options
from spatialnosql.geohash import cells_to_strings, points_to_cells, points_to_strings
from spatialnosql.geometry import geometry_to_region
from spatialnosql.settle import UNSURE, settle_cells, settle_points
from spatialnosql.testing.sphere import travel

ROWS, IN_A_LOOP = 1_000_000, 50_000
VERTICES = 500  # of the neighbourhood that candidates are settled against


def run(options: Options) -> dict[str, Any]:
    points = load_points(options, ROWS)
    lng, lat = points.lng, points.lat
    cells = points_to_cells(lng, lat)
    region = geometry_to_region(neighbourhood(float(np.median(lng)), float(np.median(lat))))
    # Candidates are what a boundary range holds: points around the shape, not of the whole world.
    rng = np.random.default_rng(options.seed)
    n = len(lng)
    near_lng = float(np.median(lng)) + rng.uniform(-0.03, 0.03, n)
    near_lat = float(np.median(lat)) + rng.uniform(-0.02, 0.02, n)
    near = points_to_cells(near_lng, near_lat)
    few_lng, few_lat = lng[:IN_A_LOOP].tolist(), lat[:IN_A_LOOP].tolist()

    def loop() -> list[str]:
        return [pygeohash.encode(y, x, 12) for x, y in zip(few_lng, few_lat, strict=True)]

    variants = {
        "pygeohash": _per_second(loop, len(few_lng), options.repeats),
        "cells": _per_second(lambda: points_to_cells(lng, lat), n, options.repeats),
        "strings": _per_second(lambda: points_to_strings(lng, lat), n, options.repeats),
        "cells_to_strings": _per_second(lambda: cells_to_strings(cells), n, options.repeats),
        "settle_cells": _per_second(lambda: settle_cells(region, near), n, options.repeats),
        "settle_points": _per_second(lambda: settle_points(region, near_lng, near_lat), n, options.repeats),
    }
    base = variants["pygeohash"]["per_cpu_s"]
    return {
        "benchmark": "geohash",
        "n_points": n,
        "n_shards": 0,
        "vertices": VERTICES,
        "unsure": int((settle_cells(region, near) == UNSURE).sum()),
        "variants": variants,
        "ratio": {name: round(values["per_cpu_s"] / base, 2) for name, values in variants.items()},
        "equal": points_to_strings(few_lng, few_lat).tolist() == loop(),
    }


def neighbourhood(lng: float, lat: float) -> dict[str, Any]:
    """A ragged polygon a few kilometres wide."""
    rng = np.random.default_rng(1)
    bearing = np.linspace(2 * np.pi, 0, VERTICES, endpoint=False)
    far = 0.015 * (1 + 0.2 * np.sin(5 * bearing) + 0.02 * rng.random(VERTICES))
    x, y = travel(np.full(VERTICES, lng), np.full(VERTICES, lat), bearing, far)
    ring = np.stack([x, y], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def _per_second(call: Callable[[], Any], n: int, repeats: int) -> dict[str, float]:
    walls, cpus = [], []
    call()  # the first touches the memory
    for _ in range(repeats):
        cpu, started = time.process_time(), time.perf_counter()
        call()
        walls.append(time.perf_counter() - started)
        cpus.append(time.process_time() - cpu)
    wall, cpu_s = statistics.median(walls), statistics.median(cpus)
    return {
        "wall_s": round(wall, 5),
        "client_cpu_s": round(cpu_s, 5),
        "per_s": round(n / max(wall, 1e-9)),
        "per_cpu_s": round(n / max(cpu_s, 1e-9)),
        "results": n,
    }


def table(result: dict[str, Any]) -> str:
    rows = [["variant", "points", "per second", "per CPU second", "pygeohash"]]
    for name, values in result["variants"].items():
        counts = (values["results"], values["per_s"], values["per_cpu_s"])
        rows.append([name, *(f"{count:,}" for count in counts), f"{result['ratio'][name]:,.1f}x"])
    lines = [
        f"geohash: {result['n_points']:,} points; settled against {result['vertices']} vertices",
        *aligned(rows),
    ]
    lines.append("equal to pygeohash" if result["equal"] else "NOT EQUAL TO PYGEOHASH")
    return "\n".join([*lines, ""])
