"""Covers: outer ranges hold every place of a shape, interior ranges nothing else, within their budgets; never a hang.

shapely is the independent oracle of flat shapes, s2sphere of spherical ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import s2sphere
import shapely
from differential import KINDS, Question, points_for
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialnosql import cover as cover_module
from spatialnosql import testing
from spatialnosql.cover import Cover, Ranges, clear_cache, cover
from spatialnosql.errors import GeometryError, UnsupportedShape, UsageError
from spatialnosql.geohash import BITS, Cells, cells_to_bounds, cells_to_points, points_to_cells
from spatialnosql.geometry import STRICT_WINDING, intersects_to_region, near_to_region, within_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.region import IN, OUT, UNSURE, EdgeRegion, IntersectionRegion, Region, UnionRegion
from spatialnosql.settle import settle_cells, settle_points
from spatialnosql.testing.sphere import travel

Ring = list[list[float]]


@st.composite
def questions(draw: st.DrawFn) -> tuple[Question, Region, np.random.Generator]:
    """A shape of any kind that we take, and a source of randomness for points."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    while True:
        question = KINDS[kind](rng)
        try:
            return question, question.to_region(), rng
        except (GeometryError, UnsupportedShape):
            continue


def polygon(*rings: Any, **more: Any) -> Region:
    return within_to_region({"$geometry": {"type": "Polygon", "coordinates": list(rings), **more}})


def places_in(ranges: Ranges, rng: np.random.Generator, n: int = 200) -> Cells:
    """Random cells of ranges, the first and the last of some of them among others."""
    if not len(ranges):
        return np.zeros(0, dtype=np.uint64)
    which = rng.integers(0, len(ranges), n)
    lo, hi = ranges.lo[which], ranges.hi[which]
    inside = lo + (rng.random(n) * (hi - lo)).astype(np.uint64)
    inside = np.minimum(inside, hi - np.uint64(1))
    return np.where(rng.random(n) < 0.2, lo, np.where(rng.random(n) < 0.2, hi - np.uint64(1), inside))


def check_ranges(ranges: Ranges) -> None:
    """Sorted, disjoint, half-open, not touching, within the world."""
    lo, hi = ranges.lo.tolist(), ranges.hi.tolist()
    assert all(a < b for a, b in zip(lo, hi, strict=True))
    assert all(b < a for b, a in zip(hi, lo[1:], strict=False))
    assert not lo or (lo[0] >= 0 and hi[-1] <= 2**BITS)


def check_cover(made: Cover) -> None:
    for ranges in (made.interior, made.boundary, made.outer):
        check_ranges(ranges)
    assert not made.boundary.contains(made.interior.lo).any()
    assert not made.interior.contains(made.boundary.lo).any()


# -- properties -------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    questions(),
    st.sampled_from([1, 2, 5, 33, 256, 700]),
    st.sampled_from([None, 1, 2, 3, 10, 60]),
    st.booleans(),
)
def test_covers_hold_their_shape_and_keep_their_budgets(
    drawn: tuple[Question, Region, np.random.Generator],
    max_cells: int,
    max_ranges: int | None,
    weighted: bool,
) -> None:
    question, region, rng = drawn
    lng, lat = points_for(question, rng, 300)
    cells = points_to_cells(lng, lat)
    weights = Histogram.of_cells(cells, int(rng.integers(10, 50))) if weighted else None
    made = cover(region, max_cells=max_cells, max_ranges=max_ranges, weights=weights)
    check_cover(made)
    assert made.cells <= max_cells
    if max_ranges is not None:
        assert len(made.interior) + len(made.boundary) <= max_ranges
    by_cell, by_point = settle_cells(region, cells), settle_points(region, lng, lat)
    # Every place of the shape is in the outer ranges ...
    assert made.outer.contains(cells[(by_cell == IN) | (by_point == IN)]).all()
    # ... no place outside it in an interior one ...
    assert not made.interior.contains(cells[(by_cell == OUT) | (by_point == OUT)]).any()
    # ... what is too near a border to say is neither left out nor called interior ...
    assert made.outer.contains(cells[by_point == UNSURE]).all()
    assert not made.interior.contains(cells[by_point == UNSURE]).any()
    # ... cells and coordinates never contradict each other ...
    assert not ((by_cell == IN) & (by_point == OUT)).any()
    assert not ((by_cell == OUT) & (by_point == IN)).any()
    # ... and what fills the interior ranges is certainly in, what fills the gaps between ranges certainly out.
    assert (settle_cells(region, places_in(made.interior, rng)) != OUT).all()
    bounds = np.concatenate(
        [[np.uint64(0)], np.stack([made.outer.lo, made.outer.hi], axis=1).ravel(), [np.uint64(2**BITS)]]
    )
    gaps = bounds.reshape(-1, 2)
    gaps = gaps[gaps[:, 0] < gaps[:, 1]]
    assert (settle_cells(region, places_in(Ranges(gaps[:, 0], gaps[:, 1]), rng)) != IN).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_near_a_border_to_say_is_boundary(kind: str) -> None:
    """The tolerance of cells and of points is one: that is what makes covers and settling agree by construction."""
    unsure = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        question = KINDS[kind](rng)
        try:
            region = question.to_region()
        except (GeometryError, UnsupportedShape):
            continue
        lng, lat = points_for(question, rng, 240)
        status, cells = settle_points(region, lng, lat), points_to_cells(lng, lat)
        made = cover(region)
        assert made.outer.contains(cells[status != OUT]).all()
        assert not made.interior.contains(cells[status != IN]).any()
        unsure += int((status == UNSURE).sum())
    assert unsure > 0


@settings(max_examples=60, deadline=None)
@given(questions())
def test_more_cells_never_hold_less(drawn: tuple[Question, Region, np.random.Generator]) -> None:
    """Each refinement lies within the outer ranges of the coarser, and keeps its interior."""
    _, region, rng = drawn
    coarse, fine = cover(region, max_cells=20), cover(region, max_cells=500)
    assert coarse.outer.contains(places_in(fine.outer, rng)).all()
    assert fine.interior.contains(places_in(coarse.interior, rng)).all()


@settings(max_examples=60, deadline=None)
@given(questions(), questions())
def test_compound_regions(
    one: tuple[Question, Region, np.random.Generator], other: tuple[Question, Region, np.random.Generator]
) -> None:
    rng = one[2]
    lng, lat = (
        np.concatenate(part)
        for part in zip(*(points_for(q, rng, 100) for q, _, _ in (one, other)), strict=True)
    )
    cells = points_to_cells(lng, lat)
    statuses = [settle_cells(region, cells) for _, region, _ in (one, other)]
    parts = (one[1], other[1])
    for region, inside in (
        (UnionRegion(parts), (statuses[0] == IN) | (statuses[1] == IN)),
        (IntersectionRegion(parts), (statuses[0] == IN) & (statuses[1] == IN)),
    ):
        made = cover(region, max_cells=100)
        check_cover(made)
        assert made.outer.contains(cells[inside]).all()
        assert not made.interior.contains(cells[settle_cells(region, cells) == OUT]).any()
        assert (settle_cells(region, places_in(made.interior, rng)) != OUT).all()
    assert len(cover(UnionRegion(())).outer) == 0
    assert cover(IntersectionRegion(())).interior.hi.tolist() == [2**BITS]


# -- independent oracles ----------------------------------------------------------------------------------


def boxes_of(ranges: Ranges) -> np.ndarray:
    """The geohash cells that make up ranges, as west, south, east, north."""
    boxes = []
    for lo, hi in zip(ranges.lo.tolist(), ranges.hi.tolist(), strict=True):
        at = lo
        while at < hi:
            size = (at & -at) or 1 << BITS
            while at + size > hi:
                size //= 2
            bits = BITS - (size.bit_length() - 1)
            boxes.append([float(side) for side in cells_to_bounds(at >> (BITS - bits), bits)])
            at += size
    return np.array(boxes).reshape(-1, 4)


@pytest.mark.parametrize("seed", range(40))
def test_flat_shapes_against_shapely(seed: int) -> None:
    shape = next(testing.random_shapes(1, seed, kinds=[("box", "flat_polygon", "center")[seed % 3]]))
    if shape.kind == "center":
        (lng, lat), radius = shape.value
        exact = shapely.Point(lng, lat).buffer(radius, quad_segs=512)
        slack = radius * 1e-5  # a polygon of 2,048 edges inside the circle
    else:
        exact, slack = shapely.Polygon(shape.polygons()[0][0]), 0.0
    made = cover(within_to_region({shape.operator: shape.value}), max_cells=200)
    outer, inner = (shapely.union_all(shapely.box(*boxes_of(part).T)) for part in (made.outer, made.interior))
    world = shapely.box(-180, -90, 180, 90)
    assert exact.intersection(world).difference(outer.buffer(1e-9)).area == 0
    assert inner.difference(exact.buffer(1e-9 + slack)).area == pytest.approx(0, abs=1e-9)
    # And it is no cover of the whole world either.
    assert outer.area < 4 * exact.area + 1e-3 * exact.length**2 + 1e-9
    if shape.radius_deg > 1e-3:
        assert inner.area > 0


def s2_point(lng: float, lat: float) -> s2sphere.Point:
    return s2sphere.LatLng.from_degrees(lat, lng).to_point()


def s2_contains(loop: list[s2sphere.Point]) -> Callable[[s2sphere.Point], bool]:
    """Whether the smaller side of a loop holds a point: by area, and by edges crossed on the way from a known one."""
    edges = list(zip(loop, [*loop[1:], loop[0]], strict=True))
    signs = [1 if s2sphere.simple_ccw(loop[0], a, b) else -1 for a, b in edges[1:-1]]
    areas = [s2sphere.area(loop[0], a, b) for a, b in edges[1:-1]]
    left_area = sum(sign * area for sign, area in zip(signs, areas, strict=True)) % (4 * math.pi)
    # A place just left of the longest edge is inside if the left side is the smaller. Not of its middle: the way from
    # there may lead through a vertex, which the simple test of S2 does not count.
    a, b = max(edges, key=lambda edge: edge[0].angle(edge[1]))
    known = (a * 0.61803 + b * 0.38197 + a.cross_prod(b).normalize() * (1.7e-5 * a.angle(b))).normalize()
    known_is_inside = left_area < 2 * math.pi

    def contains(point: s2sphere.Point) -> bool:
        crossed = sum(s2sphere.simple_crossing(known, point, c, d) for c, d in edges)
        return (crossed % 2 == 0) == known_is_inside

    return contains


@pytest.mark.parametrize("seed", range(30))
def test_spherical_polygons_against_s2(seed: int) -> None:
    rng = np.random.default_rng(seed)
    question = KINDS[("polygon", "wide", "polar", "rounded", "gridded")[seed % 5]](rng)
    try:
        region = question.to_region()
    except (GeometryError, UnsupportedShape):
        region = polygon(ring := [[0.0, 80.0], [120.0, 80.0], [-120.0, 80.0], [0.0, 80.0]])
        question = Question({}, lambda: region, [np.array(ring)])
    contains = s2_contains([s2_point(*vertex) for vertex in question.outline[0][:-1].tolist()])
    lng, lat = points_for(question, rng, 400)
    inside = np.array([contains(s2_point(x, y)) for x, y in zip(lng.tolist(), lat.tolist(), strict=True)])
    check_against(region, lng, lat, inside, rng)


@pytest.mark.parametrize("north", [1, -1])
@pytest.mark.parametrize("rise_deg", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("middle", [1.875, 176.25, -31.875])
def test_the_bulge_of_a_long_edge_is_not_lost(north: int, rise_deg: float, middle: float) -> None:
    """An edge that rises into a cell and falls again, between its corners: only its turning point is in there."""
    top, half = (
        56.25 + rise_deg,
        2.7,
    )  # a parallel along which cells end; no cell ends at a third of 5.625 degrees
    ends = math.degrees(math.atan(math.tan(math.radians(top)) * math.cos(math.radians(half))))
    ring = [[middle - half, ends], [middle + half, ends], [middle + half, 50.0], [middle - half, 50.0]]
    region = polygon([[x, north * y] for x, y in [*ring, ring[0]]])
    inside = points_to_cells([middle, middle], [north * (56.25 + 0.5 * rise_deg), north * (56.25 + 1e-9)])
    for max_cells in (40, 256, 1000):
        made = cover(region, max_cells=max_cells)
        assert made.outer.contains(inside).all()
        assert not made.interior.contains(points_to_cells([middle], [north * (top + 1e-5)])).any()


@pytest.mark.parametrize("seed", range(20))
def test_spherical_circles_against_s2(seed: int) -> None:
    rng = np.random.default_rng(seed)
    question = KINDS["cap"](rng)
    (lng, lat), radius = question.condition["$geoWithin"]["$centerSphere"]
    centre = s2sphere.LatLng.from_degrees(lat, lng)
    x, y = points_for(question, rng, 400)
    away = [
        centre.get_distance(s2sphere.LatLng.from_degrees(b, a)).radians
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    check_against(question.to_region(), x, y, np.array(away) <= radius, rng)


def check_against(
    region: Region, lng: np.ndarray, lat: np.ndarray, inside: np.ndarray, rng: np.random.Generator
) -> None:
    """Wherever we are certain, the oracle agrees; where we are not, it is free to say what it likes."""
    cells = points_to_cells(lng, lat)
    made = cover(region)
    sure = settle_points(region, lng, lat)
    assert (inside[sure == IN]).all()
    assert not (inside[sure == OUT]).any()
    assert ((sure == IN) | (sure == OUT)).mean() > 0.25
    assert made.outer.contains(cells[inside & (sure != OUT)]).all()
    assert not made.interior.contains(cells[~inside & (sure != IN)]).any()


# -- shapes that were thought up to be nasty --------------------------------------------------------------


def coast(
    lng: float, lat: float, radius_deg: float, vertices: int, roughness: float = 0.2, seed: int = 1
) -> Ring:
    """A ring with so many vertices, wild but simple."""
    rng = np.random.default_rng(seed)
    bearing = np.linspace(2 * np.pi, 0, vertices, endpoint=False)
    far = radius_deg * (1 + roughness * (np.sin(7 * bearing) + rng.uniform(-0.05, 0.05, vertices)))
    x, y = travel(np.full(vertices, lng), np.full(vertices, lat), bearing, far)
    ring: Ring = np.stack([x, y], axis=1).tolist()
    return [*ring, ring[0]]


def comb(teeth: int) -> Ring:
    """Long thin teeth, side by side."""
    top = [
        [i * 1e-3 + side, y]
        for i in range(teeth)
        for side, y in ((0, 0.01), (2e-4, 5), (4e-4, 5), (6e-4, 0.01))
    ]
    return (
        [[0, 0], *top[::-1], [0, 0]]
        if teeth == 0
        else [[-1e-3, 0], [teeth * 1e-3, 0], *top[::-1], [-1e-3, 0]]
    )


ANTARCTICA = coast(20, -88, 24, 2000)
RUSSIA = coast(120, 65, 30, 3000)  # from 20 degrees east to beyond the antimeridian
SLIVER = [[0, 40], [35, 40], [35, 40.0001], [0, 40.0001], [0, 40]]  # 10 m by 3,000 km
NASTY: dict[str, Callable[[], Region]] = {
    "Antarctica": lambda: polygon(ANTARCTICA),
    "Russia": lambda: polygon(RUSSIA),
    "the whole world": lambda: near_to_region(0, 0),
    "the world but for a speck": lambda: polygon(
        coast(0, 0, 1e-4, 12)[::-1], crs={"type": "name", "properties": {"name": STRICT_WINDING}}
    ),
    "sliver": lambda: polygon(SLIVER),
    "sliver along a meridian": lambda: polygon(
        [[10, -40], [10.00001, -40], [10.00001, 40], [10, 40], [10, -40]]
    ),
    "27,000 vertices": lambda: polygon(coast(-74, 40.7, 0.3, 27_000)),
    "comb": lambda: polygon(comb(300)),
    "comb on its side": lambda: polygon([[y, x] for x, y in comb(300)][::-1]),
    "a point": lambda: intersects_to_region({"$geometry": {"type": "Point", "coordinates": [11.25, 45.0]}}),
    "a pole": lambda: intersects_to_region({"$geometry": {"type": "Point", "coordinates": [11.25, 90.0]}}),
    "a line around the world": lambda: intersects_to_region(
        {"$geometry": {"type": "LineString", "coordinates": [[x, 0] for x in range(-180, 181, 60)]}}
    ),
    "nowhere": lambda: near_to_region(0, 0, min_distance_m=2, max_distance_m=1),
    "off the map": lambda: within_to_region({"$box": [[200, 0], [300, 10]]}),
    "no members": lambda: UnionRegion(()),
    "a box of nothing": lambda: within_to_region({"$box": [[45, 45], [45, 45]]}),
    "a ring of a millimetre": lambda: near_to_region(5, 5, min_distance_m=99.999, max_distance_m=100),
    "a flat polygon of one place": lambda: within_to_region({"$polygon": [[3, 3], [3, 3], [3, 3]]}),
    "a thousand points": lambda: intersects_to_region(
        {
            "$geometry": {
                "type": "MultiPoint",
                "coordinates": np.stack(testing.points_on_sphere(1000), axis=1).tolist(),
            }
        }
    ),
}


class Counting:
    """A region that counts the boxes it is asked about."""

    def __init__(self, region: Region) -> None:
        self.region, self.asked = region, 0
        self.key, self.bounds, self.settle = region.key, region.bounds, region.settle

    def refine(self, boxes: np.ndarray, state: Any = None, parents: Any = None) -> Any:
        self.asked += len(boxes)
        return self.region.refine(boxes, state, parents)


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("max_cells", [1, 30, 256, 4000])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_shape_makes_it_work_too_hard(name: str, max_cells: int, weighted: bool) -> None:
    clear_cache()
    region = Counting(NASTY[name]())
    weights = Histogram.of_points(*testing.points_clustered(5000), 40) if weighted else None
    made = cover(region, max_cells=max_cells, weights=weights)
    check_cover(made)
    assert made.cells <= max_cells
    # A cell that is split makes four. A thin shape may keep one of the four, thirty times over; no shape does worse.
    assert region.asked <= 32 + 4 * 30 * max_cells


def test_the_nasty_ones_are_what_they_say() -> None:
    assert cover(NASTY["the whole world"]()).interior.hi.tolist() == [2**BITS]
    for name in ("nowhere", "off the map", "no members"):
        assert len(cover(NASTY[name]()).outer) == 0
    for name, inside in {
        "Antarctica": [0, -90],
        "Russia": [-179, 68],
        "sliver": [17, 42.05],
        "comb": [0.1503, 4],
    }.items():
        region = NASTY[name]()
        status = settle_points(region, [inside[0], 100], [inside[1], 10])
        assert status[1] == OUT
        if name in ("Antarctica", "Russia", "comb"):
            assert status[0] == IN, name
    speck = cover(NASTY["the world but for a speck"]())
    assert not speck.interior.contains(points_to_cells([0.0], [0.0])).any()
    assert speck.interior.contains(points_to_cells([0.1, 90], [0.1, 90])).all()


def test_a_sliver_is_covered_closely() -> None:
    made = cover(NASTY["sliver along a meridian"](), max_cells=4000)
    west, _, east, _ = boxes_of(made.outer).T
    assert (east - west).max() < 0.1


# -- best first -------------------------------------------------------------------------------------------

CITY = polygon(coast(-73.95, 40.75, 0.1, 400))


def crowd() -> tuple[np.ndarray, np.ndarray]:
    """Most points at one side of the city."""
    rng = np.random.default_rng(2)
    lng = np.concatenate([rng.normal(-73.82, 0.01, 20_000), rng.uniform(-74.1, -73.8, 2000)])
    return lng, np.concatenate([rng.normal(40.77, 0.02, 20_000), rng.uniform(40.6, 40.9, 2000)])


def test_a_histogram_puts_the_cells_where_the_points_are() -> None:
    lng, lat = crowd()
    cells = points_to_cells(lng, lat)
    weights = Histogram.of_cells(cells, 34)
    by_area, by_points = cover(CITY), cover(CITY, weights=weights)
    on_border = [int(made.boundary.contains(cells).sum()) for made in (by_area, by_points)]
    assert on_border[1] < on_border[0] / 2
    assert by_points.cells <= 256


def test_a_range_that_does_not_pay_is_not_made() -> None:
    weights = Histogram.of_points(*crowd(), 34)
    counts = [len(cover(CITY, weights=weights, range_cost=cost).outer) for cost in (0.0, 5.0, 50.0, 1e9)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert len(cover(CITY, weights=weights, range_cost=1e9).boundary) <= 2


@pytest.mark.parametrize(("points", "looks"), [(100, 0), (100_000, 2)])
def test_a_shape_of_few_points_is_not_looked_at(
    points: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    weights = Histogram.of_points(rng.uniform(12.4, 12.7, points), rng.uniform(55.6, 55.8, points), 40)
    region = polygon([[12.5, 55.65], [12.6, 55.65], [12.55, 55.75], [12.5, 55.65]])
    asked: list[int] = []
    refine = EdgeRegion.refine
    monkeypatch.setattr(
        EdgeRegion, "refine", lambda self, boxes, *more: asked.append(1) or refine(self, boxes, *more)
    )
    clear_cache()
    made = cover(region, weights=weights)
    assert len(asked) >= looks if looks else not asked
    lng, lat = rng.uniform(12.4, 12.7, 5000), rng.uniform(55.6, 55.8, 5000)
    cells, status = points_to_cells(lng, lat), settle_points(region, lng, lat)
    assert made.outer.contains(cells[status != OUT]).all()
    assert (status[made.interior.contains(cells)] == IN).all()


def test_an_empty_histogram_refines_nothing_and_still_holds_everything() -> None:
    made = cover(CITY, weights=Histogram.of_cells([], 30))
    lng, lat = travel(
        np.full(100, -73.95), np.full(100, 40.75), np.linspace(0, 6, 100), np.linspace(0, 0.07, 100)
    )
    assert made.outer.contains(points_to_cells(lng, lat)).all()
    assert made.cells <= 32


@pytest.mark.parametrize("bits", [0, 1, 7, 20, 25, 31])
def test_no_cell_is_finer_than_allowed(bits: int) -> None:
    made = cover(CITY, max_bits=bits, max_cells=5000)
    unit = 1 << (BITS - bits)
    for ranges in (made.interior, made.boundary):
        assert all(bound % unit == 0 for bound in [*ranges.lo.tolist(), *ranges.hi.tolist()])


@pytest.mark.parametrize("length", [5, 6])
def test_at_one_precision_it_finds_the_cells_that_shapely_finds(length: int) -> None:
    """All geohashes of a length that meet a shape, by brute force over its box; flat, so that shapely is exact."""
    ring = coast(-73.95, 40.75, 0.1, 60)
    made = cover(within_to_region({"$polygon": ring}), max_bits=5 * length, max_cells=10**6, range_cost=0)
    shift = np.uint64(BITS - 5 * length)
    lng, lat = np.meshgrid(np.arange(-74.2, -73.7, 0.004), np.arange(40.5, 41.0, 0.004))
    cells = np.unique(points_to_cells(lng, lat, 5 * length))
    boxes = shapely.box(*cells_to_bounds(cells, 5 * length))
    exact = shapely.Polygon(ring)
    meeting, within = shapely.intersects(exact, boxes), shapely.contains_properly(exact, boxes)
    assert made.outer.contains(cells << shift).tolist() == meeting.tolist()
    assert made.interior.contains(cells << shift).tolist() == within.tolist()


# -- ranges, budgets, cache -------------------------------------------------------------------------------


def test_ranges_contain_their_first_cell_and_not_their_end() -> None:
    ranges = Ranges(np.array([5, 20], dtype=np.uint64), np.array([10, 21], dtype=np.uint64))
    cells = np.array([0, 4, 5, 9, 10, 19, 20, 21, 2**60 - 1], dtype=np.uint64)
    assert ranges.contains(cells).tolist() == [False, False, True, True, False, False, True, False, False]
    assert len(ranges) == 2
    nothing = Ranges(ranges.lo[:0], ranges.hi[:0])
    assert not nothing.contains(cells).any()
    assert nothing.to_strings() == []


def test_ranges_as_strings() -> None:
    made = cover(within_to_region({"$box": [[-180, -90], [180, 90]]}), max_cells=16)
    strings = made.outer.to_strings()
    assert strings == [("", "{")]
    for lo, hi in cover(CITY).boundary.to_strings():
        assert lo < hi
        assert len(lo) <= 12


@pytest.mark.parametrize("max_ranges", [1, 2, 3, 5, 9, 20, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_budget_of_ranges_is_kept_and_used(max_ranges: int, weighted: bool) -> None:
    weights = Histogram.of_points(*crowd(), 34) if weighted else None
    free = cover(CITY, weights=weights)
    made = cover(CITY, max_ranges=max_ranges, weights=weights)
    check_cover(made)
    wanted = len(free.interior) + len(free.boundary)
    assert min(max_ranges, wanted) * 0.3 <= len(made.interior) + len(made.boundary) <= max_ranges
    assert made.outer.contains(free.outer.lo).all()
    assert made.outer.contains(free.outer.hi - np.uint64(1)).all()
    assert free.interior.contains(made.interior.lo).all()


def test_covers_are_cached_by_shape_budget_and_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_cache()
    weights, other = (Histogram.of_points(*testing.points_clustered(50, seed), 30) for seed in (1, 2))
    first = cover(polygon(RUSSIA), weights=weights)
    assert cover(polygon(RUSSIA), weights=weights) is first
    different = [
        cover(polygon(RUSSIA)),
        cover(polygon(RUSSIA), weights=other),
        cover(polygon(RUSSIA), weights=weights, max_cells=100),
        cover(polygon(RUSSIA), weights=weights, max_ranges=100),
        cover(polygon(RUSSIA), weights=weights, range_cost=1),
        cover(polygon(RUSSIA), weights=weights, max_bits=30),
        cover(polygon(ANTARCTICA), weights=weights),
    ]
    assert len({id(made) for made in (first, *different)}) == 8
    clear_cache()
    assert cover(polygon(RUSSIA), weights=weights) is not first


def test_the_cache_forgets_what_was_not_used_for_long() -> None:
    cache = cover_module._Cache(2)
    covers = [cover(near_to_region(0, 0, max_distance_m=m)) for m in (1, 2, 3)]
    cache.put("a", covers[0])
    cache.put("b", covers[1])
    assert cache.get("a") is covers[0]
    cache.put("c", covers[2])
    assert cache.get("b") is None
    assert cache.get("a") is covers[0]
    assert cache.get("c") is covers[2]


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"max_cells": 0}, "max_cells is 0; a cover needs at least one cell"),
        ({"max_ranges": 0}, "max_ranges is 0; a cover needs at least one range"),
        ({"max_bits": 61}, "max_bits is 61; it must be between 0 and 60"),
        ({"max_bits": -1}, "max_bits is -1"),
    ],
)
def test_budgets_that_cannot_be_meant_so(budget: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cover(CITY, **budget)


def test_the_centres_of_interior_cells_are_in_the_shape_and_fill_most_of_it() -> None:
    made = cover(CITY, max_cells=2000)
    boxes = boxes_of(made.interior)
    assert (settle_points(CITY, boxes[:, 0], boxes[:, 1]) == IN).all()
    assert (settle_points(CITY, boxes[:, 2], boxes[:, 3]) == IN).all()
    area = [
        float(((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])).sum()) for b in (boxes, boxes_of(made.boundary))
    ]
    assert area[0] > 10 * area[1]
    assert math.isfinite(sum(cells_to_points(made.interior.lo)[0]))
