"""Covers of many polygons over each other, what is asked so that every point is looked at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from spatialnosql.cover import Cover, Ranges, cover
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.geohash import BITS, cells_to_points, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.joins.covering import cover_region
from spatialnosql.joins.overlay import Overlay
from spatialnosql.joins.passes import SCANNED, passes, split
from spatialnosql.joins.polygons import Polygons, read_polygon, sorted_out
from spatialnosql.neighbourhoods import neighbourhoods
from spatialnosql.region import IN, UNSURE
from spatialnosql.settle import settle_cells
from spatialnosql.testing import points_on_sphere, random_shapes

MIDDLE = (2.35, 48.86)


def square(west: float, south: float, side: float) -> dict[str, Any]:
    east, north = west + side, south + side
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def some_polygons(count: int, seed: int) -> Polygons:
    """Overlapping, nested, with holes and in parts, from metres to degrees, around one place."""
    shapes = random_shapes(
        count,
        seed,
        kinds=("polygon", "polygon_with_holes", "multipolygon"),
        around=[MIDDLE, (2.4, 48.9)],
        smallest_deg=0.001,
        largest_deg=2.0,
    )
    return Polygons.of({number: shape.value for number, shape in enumerate(shapes)})


def some_cells(count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    far = 10 ** rng.uniform(-4, 0.5, count)
    turn = rng.uniform(0, 2 * np.pi, count)
    return points_to_cells(MIDDLE[0] + far * np.cos(turn), MIDDLE[1] + far * np.sin(turn) / 2)


@pytest.mark.parametrize("seed", range(6))
def test_pairs_are_those_of_each_polygon_alone(seed: int) -> None:
    polygons, cells = some_polygons(30, seed), some_cells(3_000, seed)
    histogram = Histogram.of_cells(cells, 35)
    overlay = Overlay.of([cover_region(p.region, histogram, 10.0) for p in polygons])
    certain, unsure = overlay.pairs(cells, [p.region for p in polygons])
    found = set(zip(certain.point.tolist(), certain.polygon.tolist(), strict=True))
    asked = set(zip(unsure.point.tolist(), unsure.polygon.tolist(), strict=True))
    assert len(found) == certain.point.size  # none twice
    for number, polygon in enumerate(polygons):
        status = settle_cells(polygon.region, cells)
        assert {p for p, n in found if n == number} == set(np.flatnonzero(status == IN).tolist())
        assert {p for p, n in asked if n == number} == set(np.flatnonzero(status == UNSURE).tolist())


def test_segments_are_sorted_disjoint_and_none_is_without_a_polygon() -> None:
    overlay = Overlay.of([cover(p.region) for p in some_polygons(40, 7)])
    assert (overlay.lo < overlay.hi).all()
    assert (overlay.hi[:-1] <= overlay.lo[1:]).all()
    assert (overlay.inside.counts + overlay.border.counts > 0).all()


def test_a_polygon_without_a_cover_is_left_out_and_an_overlay_of_none_is_empty() -> None:
    inner = cover(read_polygon("a", square(2, 48, 1)).region)  # type: ignore[arg-type]
    overlay = Overlay.of([None, inner, None])
    assert set(overlay.inside.members.tolist()) | set(overlay.border.members.tolist()) == {1}
    for empty in (
        Overlay.of([]),
        Overlay.of([None]),
        Overlay.of([Cover(Ranges(*_none()), Ranges(*_none()), 0)]),
    ):
        assert len(empty) == 0
        assert empty.segments_of(some_cells(5, 1)).tolist() == [-1] * 5
        pairs, unsure = empty.pairs(some_cells(5, 1), [])
        assert not pairs.point.size
        assert not unsure.point.size


def _none() -> tuple[Any, Any]:
    return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64)


def test_the_ends_of_the_world_are_in_their_segments() -> None:
    whole = Cover(Ranges(np.array([0], np.uint64), np.array([1 << BITS], np.uint64)), Ranges(*_none()), 1)
    overlay = Overlay.of([whole])
    assert overlay.segments_of(np.array([0, (1 << BITS) - 1], dtype=np.uint64)).tolist() == [0, 0]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("with_histogram", [False, True])
@pytest.mark.parametrize("range_cost", [0.0, 10.0, 1000.0])
def test_every_point_is_read_by_exactly_one_pass(
    stored: bool, with_histogram: bool, range_cost: float
) -> None:
    cells = some_cells(20_000, 3)
    histogram = Histogram.of_cells(cells, 40) if with_histogram else None
    polygons = some_polygons(40, 5)
    overlay = Overlay.of([cover_region(p.region, histogram, 10.0) for p in polygons])
    reading = passes(overlay, histogram, range_cost, stored=stored)
    inside = overlay.segments_of(cells) >= 0
    overlay = reading.overlay
    segment = overlay.segments_of(cells)
    assert ((segment >= 0) == inside).all()
    for characters, ranges in reading.ranges.items():
        mine = inside & (reading.characters[np.maximum(segment, 0)] == characters)
        assert ranges.contains(cells[mine]).all()
        # The group of a key, by its first characters, lies in one segment: the servers may count it.
        first = cells[mine] >> np.uint64(BITS - 5 * characters) << np.uint64(BITS - 5 * characters)
        last = first + np.uint64((1 << (BITS - 5 * characters)) - 1)
        assert (overlay.segments_of(first) == segment[mine]).all()
        assert (overlay.segments_of(last) == segment[mine]).all()
    assert (reading.characters[overlay.has_border] == SCANNED).all()
    unread = inside & ~np.isin(reading.characters[np.maximum(segment, 0)], list(reading.ranges))
    assert not unread.any() or stored


def test_segments_that_are_cut_have_the_same_polygons() -> None:
    cells = some_cells(2_000, 6)
    overlay = Overlay.of([cover(p.region) for p in some_polygons(20, 6)])
    rng = np.random.default_rng(3)
    ends = np.concatenate([overlay.lo[::7], overlay.hi[::5]])  # at its own ends nothing is cut
    between = overlay.lo[::3] + (overlay.hi[::3] - overlay.lo[::3]) // np.uint64(3)
    cut = overlay.cut(
        np.unique(np.concatenate([ends, between, rng.integers(0, 1 << BITS, 50).astype(np.uint64)]))
    )
    assert (cut.lo < cut.hi).all()
    assert (cut.hi[:-1] <= cut.lo[1:]).all()
    assert len(cut) >= len(overlay)
    for one, other in ((overlay.inside, cut.inside), (overlay.border, cut.border)):
        before, after = overlay.segments_of(cells), cut.segments_of(cells)
        assert ((before >= 0) == (after >= 0)).all()
        known = before >= 0
        for old, new in zip(one.expanded(before[known]), other.expanded(after[known]), strict=True):
            assert old.tolist() == new.tolist()


def test_passes_by_the_server_are_few_and_ranges_too() -> None:
    cells = some_cells(50_000, 3)
    histogram = Histogram.of_cells(cells, 40)
    overlay = Overlay.of([cover_region(p.region, histogram, 10.0) for p in some_polygons(40, 5)])
    reading = passes(overlay, histogram, 10.0)
    assert len(reading.ranges) <= 8
    assert sum(map(len, reading.ranges.values())) < len(overlay)


@pytest.mark.parametrize("most", [100.0, 1_000.0, 1e9])
def test_ranges_in_parts_are_the_same_ranges(most: float) -> None:
    cells = some_cells(20_000, 4)
    histogram = Histogram.of_cells(cells, 40)
    overlay = Overlay.of([cover_region(p.region, histogram, 10.0) for p in some_polygons(10, 2)])
    whole = overlay.ranges()
    parts = split(whole, histogram, most)
    assert sum(part.contains(cells).astype(int) for part in parts).max() == 1
    assert (sum(part.contains(cells) for part in parts).astype(bool) == whole.contains(cells)).all()
    for before, after in pairwise(parts):
        assert before.hi[-1] <= after.lo[0]
    held = [float(histogram.points_in(part.lo, part.hi).sum()) for part in parts]
    assert max(held) <= most + 2 * histogram.counts.max()
    assert split(Ranges(*_none()), histogram, most) == []


def test_many_ranges_are_never_one_command() -> None:
    lo = np.arange(0, 5_000, dtype=np.uint64) << np.uint64(20)
    parts = split(Ranges(lo, lo + np.uint64(5)), None, np.inf)
    assert [len(part) for part in parts] == [2_000, 2_000, 1_000]


def test_neighbours_share_their_border_and_no_point_is_in_two_of_them() -> None:
    features = neighbourhoods(60)
    polygons = Polygons.of(features)
    boxes = np.array([p.region.bounds[0] for p in polygons])
    rng = np.random.default_rng(5)
    lng = rng.uniform(boxes[:, 0].min(), boxes[:, 2].max(), 20_000)
    lat = rng.uniform(boxes[:, 1].min(), boxes[:, 3].max(), 20_000)
    cells = points_to_cells(lng, lat)
    overlay = Overlay.of([cover(p.region) for p in polygons])
    certain, _ = overlay.pairs(cells, [p.region for p in polygons])
    assert np.bincount(certain.point, minlength=cells.size).max() == 1
    assert certain.point.size > 1_000


def test_points_of_the_whole_world() -> None:
    lng, lat = points_on_sphere(5_000, 3)
    cells = points_to_cells(lng, lat)
    shapes = random_shapes(24, 9, kinds=("polygon", "multipolygon"), largest_deg=40.0)
    polygons, _ = sorted_out({number: shape.value for number, shape in enumerate(shapes)})
    known = Polygons([p for p in polygons if p.region is not None])
    overlay = Overlay.of([cover(p.region) for p in known])
    certain, _ = overlay.pairs(cells, [p.region for p in known])
    for number, polygon in enumerate(known):
        inside = np.flatnonzero(polygon.region.settle(*cells_to_points(cells)) == IN)
        assert sorted(certain.point[certain.polygon == number].tolist()) == inside.tolist()


# -- polygons ---------------------------------------------------------------------------------------------


def feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def test_polygons_of_features_by_id_and_name_and_number() -> None:
    a, b, c = (square(x, 48, 1) for x in (0, 1, 2))
    given = {
        "type": "FeatureCollection",
        "features": [{**feature(a, name="A"), "id": 7}, feature(b, name="B"), feature(c)],
    }
    polygons = Polygons.of(given)
    assert [polygon.id for polygon in polygons] == [7, "B", 2]
    assert polygons.by_id("B").geometry == b
    assert polygons[0].properties == {"name": "A"}
    assert [polygon.id for polygon in sorted_out(given["features"][:2], "name")[0]] == ["A", "B"]
    assert Polygons.of(polygons) is polygons
    with pytest.raises(UsageError, match="no polygon has the id 'C'"):
        polygons.by_id("C")
    with pytest.raises(UsageError, match="no property 'nome'; it has: name"):
        sorted_out(given, "nome")


def test_bad_polygons_are_listed_by_name_with_the_reason_and_the_rest_are_read() -> None:
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
    unclosed = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}
    given = [
        feature(square(0, 48, 1), name="good"),
        feature(bow, name="bow"),
        feature(unclosed, name="unclosed"),
        feature(None, name="nowhere"),
        feature({"type": "Point", "coordinates": [0, 0]}, name="point"),
        feature(square(0, 50, 1), name="good"),
    ]
    good, bad = sorted_out(given)
    assert [polygon.id for polygon in good] == ["good"]
    reasons = {one.id: one.reason for one in bad}
    assert "cross" in reasons["bow"]
    assert "not closed" in reasons["unclosed"]
    assert "no geometry" in reasons["nowhere"]
    assert "has no inside" in reasons["point"]
    assert "same id" in reasons["good"]
    with pytest.raises(GeometryError, match=r"polygon 'bow': .*\(4 more are bad\)"):
        Polygons.of(given)


def test_what_only_the_server_can_tell_is_kept_with_the_reason() -> None:
    on_equator = read_polygon("a", square(10, 0, 5))
    assert on_equator.region is None
    assert on_equator.why_not is not None
    assert "S2" in on_equator.why_not


def test_ids_that_python_takes_for_equal_are_different_polygons() -> None:
    made = [read_polygon(own, square(0, 48, 1)) for own in (1, True, {"a": 1}, "1")]
    polygons = Polygons(made)
    assert polygons.by_id(True) is made[1]
    assert polygons.by_id({"a": 1}) is made[2]
    with pytest.raises(UsageError, match="two polygons have the id"):
        Polygons([*made, made[0]])


def test_numbers_that_mongodb_does_not_know_are_a_clear_error() -> None:
    ring = np.array([[2, 48], [3, 48], [3, 49], [2, 48]], dtype=np.int64)
    polygons = Polygons.of({"a": {"type": "Polygon", "coordinates": [list(map(list, ring))]}})
    with pytest.raises(GeometryError, match="polygon 'a' cannot be sent to MongoDB"):
        _ = polygons.key


@pytest.mark.parametrize("source", [None, 5, "a file", [1], {"type": "Polygon"}])
def test_what_is_no_set_of_polygons_is_refused(source: Any) -> None:
    with pytest.raises((UsageError, GeometryError)):
        Polygons.of(source)
