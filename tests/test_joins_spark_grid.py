"""The grid that the Spark join looks points up in: the same answers as the regions themselves; parts of the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from differential import KINDS, Question, points_for

from spark_jobs import join_kernel, join_parts
from spark_jobs.join_polygons import identities, shape_of, shapes_of
from spark_jobs.join_served import Counter, Doubts, Notes, find_pairs, make_layers
from spark_jobs.join_work import Job, is_file
from spark_jobs.join_worker import read_row_groups
from spatialnosql.cover import Ranges
from spatialnosql.edges import CLOSE_RAD, TOLERANCE_RAD
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.geohash import BITS, points_to_cells
from spatialnosql.geometry import geometry_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.joins.polygons import Polygons
from spatialnosql.region import IN, OUT, UNSURE, EdgeRegion, MirroredRegion, Region
from spatialnosql.settle import settle_closely
from spatialnosql.testing import KINDS as PLAIN_KINDS

AREAS = [
    *PLAIN_KINDS,
    *(
        "tiny",
        "sliver",
        "rounded",
        "gridded",
        "beside",
        "wide",
        "strict",
        "polar",
        "antimeridian",
        "overlapping",
    ),
]


def random_areas(rng: np.random.Generator, count: int) -> tuple[list[Region], list[Question]]:
    regions: list[Region] = []
    questions: list[Question] = []
    while len(regions) < count:
        question = KINDS[str(rng.choice(AREAS))](rng)
        geometry = question.condition.get("$geoWithin", {}).get("$geometry")
        if geometry is None or geometry["type"] not in ("Polygon", "MultiPolygon"):
            continue
        try:
            regions.append(geometry_to_region(geometry))
        except SpatialNoSQLError:
            continue
        questions.append(question)
    return regions, questions


def statuses(layers: list[Any], count: int, lng: Any, lat: Any, tolerance: float) -> Any:
    """What the grid says of every pair of a polygon and a point."""
    found = np.full((count, lng.size), OUT, dtype=np.int8)
    for grid in layers:
        y = lat if grid["north"] > 0 else -lat
        codes = join_kernel.codes_of(grid, lng, y)
        border = np.flatnonzero(codes < 0)
        boxes = -1 - codes[border].astype(np.intp)
        codes[border] = grid["border_class"][boxes]
        at, polygon = join_kernel.members_of(grid, codes)
        found[grid["members"][polygon], at] = IN
        near = join_kernel.near_borders(grid, boxes, lng[border], y[border], tolerance)
        status = np.where(near.unsure, UNSURE, np.where(near.inside, IN, OUT))
        found[grid["members"][near.polygon], border[near.point]] = status
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_grid_says_what_regions_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    regions, questions = random_areas(rng, int(rng.choice([1, 3, 12, 30])))
    places = [points_for(question, rng, 200) for question in questions]
    lng, lat = (np.concatenate(parts) for parts in zip(*places, strict=True))
    box = None
    if seed % 3 == 0:  # of a part of the curve: edges beyond it still count
        centre, size = int(rng.integers(0, lng.size)), 10 ** rng.uniform(-7, 1.5)
        west, south = max(lng[centre] - size, -180.0), max(lat[centre] - size, -90.0)
        east, north = min(lng[centre] + size, 180.0), min(lat[centre] + size, 90.0)
        box = (float(west), float(south), float(east), float(north))
        inside = (lng >= west) & (lng <= east) & (lat >= south) & (lat <= north)
        lng = np.concatenate([lng[inside], rng.uniform(west, east, 100)])
        lat = np.concatenate([lat[inside], rng.uniform(south, north, 100)])
    layers = make_layers([shape_of(region) for region in regions], box)
    for tolerance in (CLOSE_RAD, TOLERANCE_RAD):
        found = statuses(layers, len(regions), lng, lat, tolerance)
        for number, region in enumerate(regions):
            assert (found[number] == region.settle(lng, lat, tolerance)).all(), (seed, number)


def star(lng: float, lat: float, radius: float, vertices: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    away = radius * rng.uniform(0.6, 1.0, vertices)
    ring = np.stack([lng + away * np.cos(angle), lat + away * np.sin(angle)], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def test_a_small_town_in_a_large_country_is_a_grid_of_its_own() -> None:
    shapes = {"country": star(10.0, 50.0, 30.0, 40, 1), "town": star(10.3, 50.2, 0.02, 3000, 2)}
    polygons = Polygons.of(shapes)
    layers = make_layers(shapes_of(polygons)[1])
    assert layers[0]["frames"].shape[1] > 1
    rng = np.random.default_rng(3)
    lng, lat = rng.uniform(10.27, 10.33, 20_000), rng.uniform(50.17, 50.23, 20_000)
    found = statuses(layers, 2, lng, lat, CLOSE_RAD)
    for number, polygon in enumerate(polygons):
        assert polygon.region is not None
        assert (found[number] == polygon.region.settle(lng, lat, CLOSE_RAD)).all()
    assert {IN, OUT} <= set(found[1].tolist())
    # A point is tested against the edges beside it, not against all 3,000.
    assert np.diff(layers[0]["spot_starts"]).mean() < 10


def test_an_edge_just_beside_a_box_makes_its_points_unsure() -> None:
    outer = star(5.0, 45.0, 1.0, 60, 1)

    def grid_with(west: float, south: float) -> tuple[Any, Region]:
        east, north = west + 0.001, south + 0.001  # so small that great circles hardly bend
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        polygons = Polygons.of({"outer": outer, "inner": {"type": "Polygon", "coordinates": [ring]}})
        assert polygons[1].region is not None
        return make_layers(shapes_of(polygons)[1]), polygons[1].region

    frames = grid_with(5.0, 45.0)[0][0]["frames"][:, 0]
    west, south, per_x, per_y, columns, rows, _ = frames.tolist()
    side, floor = west + (columns // 2) / per_x, south + (rows // 2) / per_y
    for away in (-2e-8, 0.0, 2e-8):  # 2 mm to either side of where boxes meet
        layers, region = grid_with(side + away, floor + away)
        assert (layers[0]["frames"][:, 0] == frames).all()
        beside = np.array([-1e-7, -3e-8, -1e-9, 0.0, 1e-9, 3e-8, 1e-7])
        lng = np.concatenate([side + beside, np.full(7, side + 0.0005)])
        lat = np.concatenate([np.full(7, floor + 0.0005), floor + beside])
        for tolerance in (CLOSE_RAD, TOLERANCE_RAD):
            found = statuses(layers, 2, lng, lat, tolerance)[1]
            assert (found == region.settle(lng, lat, tolerance)).all()
        assert (found == UNSURE).all()


def test_a_border_through_the_north_pole_has_a_layer_of_its_own() -> None:
    over = {"type": "Polygon", "coordinates": [[[10, 80], [100, 80], [-170, 85], [10, 80]]]}
    regions = [geometry_to_region(over), geometry_to_region(star(0.0, 70.0, 5.0, 9, 4))]
    assert isinstance(regions[0], MirroredRegion)
    assert isinstance(regions[1], EdgeRegion)
    layers = make_layers([shape_of(region) for region in regions])
    assert [float(layer["north"]) for layer in layers] == [1.0, -1.0]
    rng = np.random.default_rng(5)
    lng, lat = rng.uniform(-180, 180, 5000), rng.uniform(60, 90, 5000)
    for number, region in enumerate(regions):
        assert (statuses(layers, 2, lng, lat, CLOSE_RAD)[number] == region.settle(lng, lat, CLOSE_RAD)).all()


def test_counts_and_pairs_agree_and_nothing_goes_unnoted() -> None:
    polygons = Polygons.of({str(n): star(n * 0.5, 45.0, 1.0, 12, n) for n in range(6)})
    layers = make_layers(shapes_of(polygons)[1])
    rng = np.random.default_rng(6)
    lng, lat = rng.uniform(-3, 6, 30_000), rng.uniform(43, 47, 30_000)
    lng[:4], lat[:4] = [np.nan, 200.0, 1.0, np.inf], [45.0, 45.0, np.nan, 45.0]
    corner = np.array(polygons[0].geometry["coordinates"][0][0])
    lng[4], lat[4] = corner
    counted, notes = Notes(), Notes()
    counter = Counter(layers, 6, Doubts([], None, counted), counted)
    for part in np.array_split(np.arange(lng.size), 7):
        counter.add(lng[part], lat[part])
    point, polygon = find_pairs(layers, lng, lat, Doubts([], None, notes), notes)
    assert (counter.counts() == np.bincount(polygon, minlength=6)).all()
    assert counted == notes
    assert (notes.points, notes.invalid) == (30_000, 4)
    assert notes.matched == np.unique(point).size < point.size  # they overlap


def test_the_server_is_asked_where_settle_closely_is_unsure_and_nowhere_else() -> None:
    shape = star(5.0, 45.0, 1.0, 400, 1)
    polygons = Polygons.of({"a": shape})
    layers, region = make_layers(shapes_of(polygons)[1]), polygons[0].region
    assert region is not None
    corners = np.array(shape["coordinates"][0])
    rng = np.random.default_rng(2)
    middle = (corners[:-1] + corners[1:]) / 2
    lng, lat = np.repeat(middle, 50, axis=0).T + rng.normal(0, 2e-7, (2, 50 * len(middle)))
    status, notes = settle_closely(region, lng, lat), Notes()
    unsure: list[float] = []

    def ask(geometry: bytes, some_lng: Any, some_lat: Any) -> Any:
        unsure.extend(some_lng.tolist())
        return np.zeros(some_lng.size, dtype=np.bool_)

    point, _ = find_pairs(layers, lng, lat, Doubts([b""], ask, notes), notes)
    assert np.array_equal(point, np.flatnonzero(status == IN))
    assert sorted(unsure) == sorted(lng[status == UNSURE].tolist())
    assert 0 < notes.asked < np.count_nonzero(region.settle(lng, lat, CLOSE_RAD) == UNSURE) / 2
    # Without a server they are decided somehow, and counted.
    alone = Notes()
    found, _ = find_pairs(layers, lng, lat, Doubts([], None, alone), alone)
    assert (alone.asked, alone.unasked) == (0, notes.asked)
    assert set(point.tolist()) <= set(found.tolist())


# -- parts of the curve ------------------------------------------------------------------------------------


def test_parts_are_even_and_a_hot_cell_is_salted() -> None:
    rng = np.random.default_rng(1)
    cells = points_to_cells(rng.normal(2.35, 0.1, 9000), rng.normal(48.86, 0.1, 9000))
    hot = np.full(3000, points_to_cells([2.3], [48.8])[0])
    everything = np.concatenate([cells, hot])
    parts = join_parts.cut(everything, np.ones(everything.size), 12)
    own = np.searchsorted(parts.bounds, everything, side="right") - 1
    held = np.bincount(own, minlength=parts.copies.size)
    inside = np.searchsorted(parts.bounds, hot[0], side="right") - 1
    assert parts.bounds[inside : inside + 2].tolist() == [hot[0], hot[0] + 1]
    assert parts.copies[inside] == parts.salted > 1
    assert (held / parts.copies).max() <= 1.6 * everything.size / 12
    assert parts.count == int(parts.copies.sum())


def test_a_part_has_the_polygons_that_reach_into_it() -> None:
    parts = join_parts.Parts(np.array([0, 100, 200, 1 << BITS], dtype=np.uint64), np.array([1, 3, 1]))
    assert parts.first.tolist() == [0, 1, 4]

    def reached(*pairs: tuple[int, int]) -> list[int]:
        lo, hi = np.array(pairs, dtype=np.uint64).T
        found: list[int] = parts.of_ranges(Ranges(lo, hi)).tolist()
        return found

    assert reached((0, 100)) == [0]
    assert reached((99, 101)) == [0, 1]
    assert reached((0, 1), (200, 1 << BITS)) == [0, 2]
    west, south, east, north = parts.box(1)
    assert (west, south) == (-180.0, -90.0)
    assert east < -179.99 and north < -89.99  # noqa: PT018 - one corner
    assert parts.box(2) == (-180.0, -90.0, 180.0, 90.0)


def test_no_points_and_no_polygons_are_one_part() -> None:
    nothing = np.zeros(0, dtype=np.uint64)
    assert join_parts.cut(nothing, np.zeros(0), 5).count == 1
    none = join_parts.Weights(nothing, np.zeros(0))
    assert join_parts.plan_parts(none, [], np.zeros(0, dtype=np.intp), 2).count == 1


def test_statistics_cut_between_their_cells_and_salt_whole_ones() -> None:
    width = 1 << (BITS - 30)
    cells = np.arange(10, dtype=np.uint64) + np.uint64(500)
    counts = np.array([10, 10, 10, 2000, 10, 10, 1000, 10, 10, 10])
    weights = join_parts.Weights.of_histogram(Histogram(30, cells, counts))
    reached = Ranges(
        np.array([503 * width + 7], dtype=np.uint64), np.array([507 * width + 1], dtype=np.uint64)
    )
    assert (weights.within(reached).cells // width).tolist() == [503, 504, 505, 506, 507]
    parts = join_parts.plan_parts(weights, [reached], np.array([1]), 4)
    assert (parts.bounds[:-1] % width == 0).all()
    hot = int(np.searchsorted(parts.bounds, 503 * width))
    assert parts.bounds[hot : hot + 2].tolist() == [503 * width, 504 * width]
    assert parts.copies[hot] > 1


# -- what is asked for -------------------------------------------------------------------------------------


def test_a_source_is_files_or_a_collection_by_its_name(tmp_path: Path) -> None:
    assert is_file("points.parquet") and is_file("a/b") and is_file("x.geojson.gz") and is_file("*.csv")  # noqa: PT018
    assert is_file(str(tmp_path))
    assert not is_file("city.trips")
    job = Job(("city.trips",), "zones.geojson", "city.joined")
    assert (job.points_collection, job.polygon_collection, job.out_collection) == (
        "city.trips",
        None,
        "city.joined",
    )
    assert job.needs_server
    assert not Job(("a.parquet", "b.parquet"), "zones.geojson", "out.parquet").needs_server


def test_ids_are_numbers_or_texts() -> None:
    shape = star(0.5, 45.0, 0.1, 5, 1)
    assert identities(Polygons.of({1: shape, 2: shape})) == [1, 2]
    assert identities(Polygons.of({1: shape, "b": shape})) == ["1", "b"]


def test_row_groups_are_read_in_pieces(tmp_path: Path) -> None:
    path = str(tmp_path / "p.parquet")
    table = pa.table({"x": pa.array([1.0, None, 3.0, 4.0, 5.0], pa.float32()), "y": [1, 2, 3, 4, 5]})
    pq.write_table(table, path, row_group_size=2)
    read = [batch.column(0).to_pylist() for batch in read_row_groups(path, 1, 2, "x", "y")]
    assert [value for part in read for value in part] == [3.0, 4.0, 5.0]
    assert sum(batch.num_rows for batch in read_row_groups(path, 0, 0, "x", "y")) == 5
    # Of a file without the columns there are rows, and none of them is a place.
    (missing,) = read_row_groups(path, 0, 2, "lng", "y")
    assert (missing.num_rows, missing.column(0).null_count) == (4, 4)
