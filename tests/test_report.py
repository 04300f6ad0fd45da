"""The report without a server: what is drawn of which values, and that values stay values."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from spatialnosql.cover import Ranges, cover
from spatialnosql.errors import MissingProgram, UsageError
from spatialnosql.examined import Examined
from spatialnosql.geohash import BITS, points_to_cells
from spatialnosql.geometry import geometry_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.report import charts, library, maps, parts
from spatialnosql.report.gather import batch_of, choice_of
from spatialnosql.report.gather_queries import Asked, ranges_in, read_asked
from spatialnosql.report.hotspots import hot_spots
from spatialnosql.report.html import script_json, table, text
from spatialnosql.report.model import (
    Answers,
    Area,
    Batch,
    Chunk,
    CollectionFacts,
    PartitionFacts,
    QueryFacts,
    Report,
    ShardLoad,
    SubscriptionFacts,
    TopFacts,
)
from spatialnosql.report.shapes import area_rings, outlines_of, ranges_to_area, ranges_to_boxes
from spatialnosql.report.style import label, log_ticks, short, size
from spatialnosql.report.view import View, raster_of, view_of
from spatialnosql.report.write import check_out, explain_page, report_page, write_page
from spatialnosql.skew import choose_precision

NASTY = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2> & %{x} <b>\u2028"
BEGUN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
SQUARE = {"type": "Polygon", "coordinates": [[[1, 1], [2, 1], [2, 2], [1, 2], [1, 1]]]}


def histogram_of(lng: Any, lat: Any, bits: int = 40) -> Histogram:
    return Histogram.of_points(lng, lat, bits)


def city(points: int = 20_000, seed: int = 1) -> Histogram:
    draw = np.random.default_rng(seed)
    return histogram_of(draw.normal(-73.98, 0.05, points), draw.normal(40.75, 0.04, points))


def world(points: int = 20_000) -> Histogram:
    draw = np.random.default_rng(2)
    return histogram_of(draw.uniform(-180, 180, points), np.degrees(np.arcsin(draw.uniform(-1, 1, points))))


def facts_of(histogram: Histogram, *, chunks: int = 3, name: str = "shard") -> CollectionFacts:
    cells = np.repeat(histogram.cells, histogram.counts) << np.uint64(BITS - histogram.bits)
    cuts = [int(cells[len(cells) * part // chunks]) for part in range(1, chunks)]
    ends = [0, *cuts, 1 << BITS]
    made = tuple(
        Chunk(f"{name}{place % 3}", lo, hi, float(histogram.points_in([lo], [hi])[0]))
        for place, (lo, hi) in enumerate(pairwise(ends))
    )
    shards = tuple(
        ShardLoad(
            f"{name}{n}",
            round(sum(c.documents for c in made if c.shard == f"{name}{n}")),
            2**20,
            2**19,
            2**18,
            1,
        )
        for n in range(3)
    )
    choice = choose_precision(histogram, 3)
    return CollectionFacts(
        "city.trips", "sharded", "8.2.0", "loc", "gh", histogram, choice, shards, made, ("gh", "_id")
    )


def query_of(shape: Any = None, **changed: Any) -> QueryFacts:
    geometry = shape or SQUARE
    made = cover(geometry_to_region(geometry), max_cells=64)
    return replace(
        QueryFacts(
            "A query", "find", "{}", "Rewritten.", True, Examined(1000, 900, 3, returned=500, ms=40),
            Examined(300, 250, 1, returned=510, ms=8), outlines_of({"loc": {"$geoWithin": {"$geometry": geometry}}}),
            made.interior, made.boundary, Answers(500, 500, 41.0, 9.5, True),
        ),
        **changed,
    )  # fmt: skip


def whole_report(histogram: Histogram | None = None) -> Report:
    facts = replace(
        facts_of(histogram or city()),
        batches=(
            Batch(
                "night-1",
                "done",
                dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
                1000,
                990,
                quarantined=10,
                seconds=2.5,
            ),
            Batch("night-2", "failed", None, 10, error="the disk is full"),
        ),
    )
    rings = area_rings(
        {"type": "Polygon", "coordinates": [[[-74, 40.7], [-73.9, 40.7], [-73.9, 40.8], [-74, 40.7]]]}
    )
    top = TopFacts("city.areas", (Area("north", 70, rings), Area("south", 7, rings)), 2, 0.25)
    plan = PartitionFacts(
        "hybrid", np.array([0.001, 0.003]), np.array([10, 30]), np.array([5, 6]), 1.1, 0.9, 0.25, "40 objects",
        (-74.0, 40.0, -73.0, 41.0, 2, 2), np.array([0, 1, -1, 1], dtype=np.int32),
    )  # fmt: skip
    alerts = SubscriptionFacts("city.alerts", 11, 3, 100, 40, plan)
    return Report(facts, [query_of()], top, alerts)


# --- views ------------------------------------------------------------------------------------------------


def test_a_view_shows_all_points_and_a_degree_as_long_as_it_is_there() -> None:
    view = view_of(city())
    assert view.west < -74.1 < -73.85 < view.east
    assert view.stretch == pytest.approx(1 / math.cos(math.radians(40.75)), rel=0.01)
    assert view_of(world()).stretch == 1.0
    assert view_of(histogram_of([], [])) == View(-180.0, -90.0, 180.0, 90.0)


def test_strays_do_not_make_a_city_a_dot_and_are_counted() -> None:
    near = city(20_000)
    lng, lat = np.random.default_rng(1).normal(-73.98, 0.05, 20_000), np.full(20_000, 40.75)
    with_strays = histogram_of(np.append(lng, [0.0, 120.0]), np.append(lat, [0.0, -30.0]))
    view = view_of(with_strays)
    assert view.width < 1.0
    assert raster_of(with_strays, view).outside >= 2
    assert raster_of(near, view_of(near)).outside == 0


@pytest.mark.parametrize("histogram", [city(), world()], ids=["city", "world"])
def test_no_point_is_lost_between_histogram_and_map(histogram: Histogram) -> None:
    raster = raster_of(histogram, view_of(histogram))
    assert int(raster.counts.sum()) + raster.outside == histogram.total
    assert raster.counts.size <= 23_000
    # The cell of a point is where the point is.
    lng, lat = raster.lng[None, :].repeat(len(raster.lat), 0), raster.lat[:, None].repeat(len(raster.lng), 1)
    here = raster.counts > 0
    shown = Histogram.of_points(lng[here], lat[here], raster.bits)
    assert set(shown.cells.tolist()) <= set(histogram.coarsened(raster.bits).cells.tolist())


def test_cells_have_the_shard_that_holds_most_of_them() -> None:
    histogram = city()
    facts = facts_of(histogram)
    raster = raster_of(histogram, view_of(histogram), facts.chunks, facts.shard_names)
    assert set(raster.owner[raster.counts > 0].tolist()) == {0, 1, 2}
    assert (raster.owner[raster.counts == 0] == -1).all()
    held = [int(raster.counts[raster.owner == number].sum()) for number in range(3)]
    assert max(held) < 1.05 * histogram.total / 3


@pytest.mark.parametrize("view", [View(0, 0, 1, 1), View(0, 50, 8, 51), View(-180, -60, 180, 80)])
def test_a_view_is_fitted_without_losing_anything(view: View) -> None:
    fitted = view.fitted(0.4, 0.6)
    assert fitted.west <= view.west
    assert fitted.east >= view.east
    assert fitted.south <= view.south
    assert fitted.north >= view.north
    assert 0.399 <= fitted.ratio <= 0.601 or fitted.north == 90.0


def test_the_heaviest_cells_come_first_and_know_their_shards() -> None:
    histogram = city()
    facts = facts_of(histogram)
    found = hot_spots(histogram, 30, facts.chunks, 5)
    counts = histogram.coarsened(30).counts
    assert [spot.documents for spot in found] == sorted(counts.tolist(), reverse=True)[:5]
    for spot in found:
        cell = int(points_to_cells(spot.lng, spot.lat))
        owner = next(chunk.shard for chunk in facts.chunks if chunk.lo <= cell < chunk.hi)
        assert owner in spot.shards
        assert len(spot.name) == 6
    assert hot_spots(histogram_of([], []), 30) == []


# --- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operand", "kind", "width"),
    [
        ({"$geoWithin": {"$geometry": SQUARE}}, "area", 1.0),
        ({"$geoWithin": {"$box": [[1, 1], [3, 2]]}}, "area", 2.0),
        ({"$geoWithin": {"$polygon": [[1, 1], [3, 1], [2, 2]]}}, "area", 2.0),
        ({"$geoWithin": {"$center": [[1, 1], 2]}}, "area", 4.0),
        ({"$geoWithin": {"$centerSphere": [[0, 0], math.radians(1)]}}, "area", 2.0),
        (
            {"$geoIntersects": {"$geometry": {"type": "LineString", "coordinates": [[0, 0], [3, 0]]}}},
            "line",
            3.0,
        ),
        ({"$nearSphere": {"$geometry": {"type": "Point", "coordinates": [5, 6]}}}, "place", 0.0),
        ({"$nearSphere": [5, 6], "$maxDistance": math.radians(0.5)}, "area", 1.0),
    ],
)
def test_the_shapes_of_a_query(operand: dict[str, Any], kind: str, width: float) -> None:
    for query in ({"loc": operand}, [{"$match": {"$and": [{"n": 1}, {"loc": operand}]}}]):
        outline = outlines_of(query)[-1]
        assert outline.kind == kind
        x = np.concatenate(outline.rings)[:, 0]
        assert x.max() - x.min() == pytest.approx(width, abs=0.01)


def test_the_circle_of_a_geo_near_stage_and_what_is_no_shape() -> None:
    near = {"near": {"type": "Point", "coordinates": [5, 60]}, "maxDistance": 111_000, "distanceField": "d"}
    place, circle = outlines_of([{"$geoNear": near}])
    assert place.kind == "place"
    assert np.ptp(circle.rings[0][:, 1]) == pytest.approx(2.0, abs=0.02)
    assert outlines_of({"loc": {"$geoWithin": {"$geometry": {"type": "Polygon"}}}}) == ()
    assert outlines_of({"loc": {"$geoWithin": 7}, "n": {"$near": None}}) == ()


def test_long_edges_are_great_circles() -> None:
    (ring,) = area_rings({"type": "Polygon", "coordinates": [[[-60, 40], [60, 40], [0, 10], [-60, 40]]]})
    assert ring[:, 1].max() > 58  # not 40: the way from west to east bends north


def test_a_shape_across_the_antimeridian_is_cut_there() -> None:
    rings = area_rings(
        {"type": "Polygon", "coordinates": [[[170, 0], [-170, 0], [-170, 10], [170, 10], [170, 0]]]}
    )
    assert len(rings) == 2
    areas = sorted(shapely.Polygon(ring).bounds for ring in rings)
    assert areas[0][0] == -180.0
    assert areas[1][2] == 180.0
    assert sum(shapely.Polygon(ring).area for ring in rings) == pytest.approx(200, rel=0.02)


def test_a_shape_around_a_pole_reaches_it() -> None:
    (outline,) = outlines_of({"loc": {"$geoWithin": {"$centerSphere": [[20, 85], 0.3]}}})
    places = np.concatenate(outline.rings)
    assert places[:, 1].max() == 90.0
    assert (places[:, 0].min(), places[:, 0].max()) == (-180.0, 180.0)


def test_holes_run_the_other_way() -> None:
    hole = [[1.2, 1.2], [1.8, 1.2], [1.8, 1.8], [1.2, 1.8], [1.2, 1.2]]
    outer, inner = area_rings({"type": "Polygon", "coordinates": [*SQUARE["coordinates"], hole]})
    assert shapely.LinearRing(outer).is_ccw
    assert not shapely.LinearRing(inner).is_ccw


def test_ranges_as_areas() -> None:
    made = cover(geometry_to_region(SQUARE), max_cells=200)
    boxes = ranges_to_boxes(made.outer)
    area = shapely.union_all(shapely.box(*boxes.T))
    assert area.buffer(1e-3).covers(shapely.box(1, 1, 2, 2))
    inside = ranges_to_area(made.interior, View(0, 0, 3, 3), 0.0)
    assert (
        shapely.box(1, 1, 2, 2).buffer(1e-3).covers(shapely.union_all([shapely.Polygon(r) for r in inside]))
    )
    assert ranges_to_area(made.interior, View(50, 50, 51, 51), 0.0) == ()


# --- queries ----------------------------------------------------------------------------------------------


def test_the_ranges_that_are_sent_and_which_of_them_are_tested() -> None:
    geo = {"loc": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}
    tested = {"$and": [{"gh": {"$gte": "s2", "$lt": "s3"}}, geo]}
    sent = {"$and": [{"$or": [{"gh": {"$gte": "s0", "$lt": "s1"}}, tested]}, {"n": 1}]}
    found = [(lo >> 50, hi >> 50, is_tested) for lo, hi, is_tested in ranges_in(sent, "gh")]
    assert found == [(24 * 32, 24 * 32 + 1, False), (24 * 32 + 2, 24 * 32 + 3, True)]
    assert [one[2] for one in ranges_in([{"$match": {"gh": {"$gte": "", "$lt": "{"}, **geo}}], "gh")] == [
        True
    ]
    assert list(ranges_in({"gh": {"$in": []}, "other": {"$gte": "a", "$lt": "b"}}, "gh")) == []


def test_queries_as_they_are_given(tmp_path: Path) -> None:
    query = {"loc": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}
    assert read_asked(json.dumps(query)) == [Asked(query)]
    assert read_asked(json.dumps([{"$match": query}])) == [Asked([{"$match": query}])]
    entries = [{"name": "one", "query": query, "count": True}, {"query": query, "limit": 5}]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps(entries))
    wanted = [Asked(query, "one", True), Asked(query, limit=5)]
    assert read_asked(str(file)) == read_asked(f"@{file}") == wanted
    # A field that is called query is no wrapper.
    assert read_asked('{"query": "text"}') == [Asked({"query": "text"})]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{not json", "is no JSON"),
        ("nowhere.json", "neither JSON .* nor a file"),
        ("[1]", "must be a filter|a pipeline"),
        ('[{"$match": {}}, {"$out": "x"}]', "a report only reads"),
        ('{"query": [{"$match": {}}], "count": true}', "a count is of a filter"),
        ('{"query": {}, "limit": -1}', "the limit of a query is -1"),
        ('{"query": {}, "limit": "ten"}', "whole number"),
    ],
)
def test_queries_that_cannot_be_meant(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_asked(given)


# --- values of the cluster --------------------------------------------------------------------------------


def test_a_choice_as_it_was_stored() -> None:
    choice = choose_precision(city(), 3)
    assert choice_of(choice.to_document()) == choice
    assert choice_of(None) is None


def test_batches_that_are_done_and_others() -> None:
    outcome = {"rows": 10, "written": 7, "quarantined": 3, "seconds": 1.5}
    done = batch_of({"batch": "a", "state": "done", "outcome": outcome, "attempts": 2})
    assert (done.rows, done.written, done.quarantined, done.seconds, done.attempts) == (10, 7, 3, 1.5, 2)
    failed = batch_of({"batch": "b", "state": "failed", "rows": 5, "quarantined": 1, "error": "no disk"})
    assert (failed.rows, failed.written, failed.quarantined, failed.error) == (5, 0, 1, "no disk")


# --- figures and words ------------------------------------------------------------------------------------


def figures_of(report: Report) -> dict[str, maps.Figure]:
    page = "".join(section.body for section in parts.sections(report))
    found = re.findall(r'<figure[^>]* id="([^"]+)">.*?application/json">(.*?)</script>', page, re.DOTALL)
    return {name: json.loads(values) for name, values in found}


def test_every_figure_is_one_that_the_library_takes() -> None:
    from plotly.graph_objects import Figure

    found = {**figures_of(whole_report()), "world": figures_of(whole_report(world()))["fig-map"]}
    assert set(found) == {
        "fig-map", "fig-documents", "fig-bytes", "fig-skewness", "fig-imbalance", "fig-query-1", "fig-query-1-bars",
        "fig-choropleth", "fig-top", "fig-load", "fig-partitions", "fig-batches", "world",
    }  # fmt: skip
    for figure in found.values():
        Figure({"data": figure["data"], "layout": figure["layout"]})  # refuses what it does not know


def test_the_figures_hold_the_numbers() -> None:
    report = whole_report()
    found = figures_of(report)
    assert found["fig-documents"]["data"][0]["y"] == [shard.documents for shard in report.facts.shards]
    heat = [trace for trace in found["fig-map"]["data"] if trace["type"] == "heatmap"]
    shown = sum(count or 0 for trace in heat for row in trace["customdata"] for count in row)
    assert shown == report.facts.histogram.total
    chosen = found["fig-skewness"]["data"][0]
    assert chosen["name"] == "chosen"
    assert chosen["x"] == [str(report.facts.choice.bits)]
    assert found["fig-top"]["data"][0]["x"] == [7, 70]
    assert found["fig-load"]["data"][0]["y"] == [1.0, 3.0]
    interior = next(trace for trace in found["fig-query-1"]["data"] if trace.get("name") == "interior")
    assert interior["x"].count(None) == len(ranges_to_boxes(report.queries[0].interior)) - 1


def test_very_many_chunks_are_drawn_by_shard() -> None:
    facts = facts_of(city(), chunks=90)
    figure, _ = maps.collection_map(facts)
    areas = [trace for trace in figure["data"] if trace.get("fill") == "toself"]
    assert len(areas) == 3
    assert "90 chunks; the lines are the borders of shards" in parts.map_section(facts, ()).body


def test_classes_of_a_choropleth() -> None:
    breaks = maps.class_breaks([0, 1, 5, 12, 123, 1234, 12345])
    assert breaks[0] == 1
    assert breaks == sorted(set(breaks))
    texts = maps.class_texts(breaks)
    assert texts[0] == "0"
    assert len(texts) == len(breaks) + 1
    assert maps.class_breaks([0, 0]) == [1]


def test_a_query_that_is_sent_as_it_is() -> None:
    query = query_of(rewritten=False, sent=None, interior=Ranges(*np.zeros((2, 0), np.uint64)), answers=None)
    query = replace(query, boundary=query.interior)
    section = parts.query_section(query, facts_of(city()), 1)
    assert charts.query_chart(query) is None
    assert "sent as it is: no cells are asked for" in section.body
    assert maps.query_map(replace(query, outlines=()), facts_of(city())) is None


def test_answers_that_differ_are_said_loudly() -> None:
    query = query_of(answers=Answers(500, 499, 1.0, 1.0, False))
    assert "THE ANSWERS DIFFER" in parts.query_section(query, facts_of(city()), 1).body


def test_the_summary_says_it_in_one_paragraph() -> None:
    said = parts.summary(whole_report())
    assert said.startswith(
        "city.trips holds 20,000 documents on a sharded MongoDB 8.2.0, in 3 chunks by geohash on 3 shards."
    )
    assert "Of 1 query explained here, 1 is rewritten; those examine 250 documents instead of 900." in said
    assert "Of 2 polygons, north holds most points, 70." in said
    hashed = replace(facts_of(city()), chunks=(), key=("_id",))
    assert "sharded by _id and not by geohash" in parts.summary(Report(hashed))
    stale = replace(facts_of(city()), shards=(ShardLoad("a", 50_000, 0, 0, 0, 1),), without_gh=3)
    assert "there are 50,000 now" in parts.notes(stale)[0]
    assert parts.notes(facts_of(city())) == []


def test_small_words() -> None:
    assert [short(n) for n in (5, 1000, 1500, 20_000, 3_000_000)] == ["5", "1k", "1.5k", "20k", "3M"]
    assert [size(n) for n in (5, 2048, 5 * 2**20, 200 * 2**30)] == ["5 B", "2.0 KiB", "5.0 MiB", "200 GiB"]
    assert log_ticks(1234) == ([0.0, 1.0, 2.0, 3.0], ["1", "10", "100", "1k"])


# --- the page ---------------------------------------------------------------------------------------------


def test_whatever_comes_from_the_database_stays_text() -> None:
    assert "<" not in script_json([NASTY])
    assert json.loads(script_json([NASTY])) == [NASTY]
    assert "<" not in text(NASTY)
    assert "<img" not in label(NASTY)
    assert "<img" not in table([NASTY], [[NASTY]])
    report = whole_report()
    assert report.top is not None
    facts = replace(
        facts_of(city(), name=NASTY), namespace=NASTY, batches=(Batch(NASTY, NASTY, None, 1, error=NASTY),)
    )
    top = replace(
        report.top, source=NASTY, areas=tuple(replace(area, name=NASTY) for area in report.top.areas)
    )
    alerts = replace(report.subscriptions, namespace=NASTY)
    page = report_page(
        Report(facts, [query_of(title=NASTY, text=NASTY, verdict=NASTY)], top, alerts, NASTY, [NASTY])
    )
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2 + page.count('type="application/json"')
    assert "window.pwned" in page  # it is there, as text


def test_a_million_points_do_not_make_a_heavy_page() -> None:
    few, many = (len(report_page(whole_report(city(n))).encode()) for n in (20_000, 1_000_000))
    assert many < 2_700_000
    assert many < few + 300_000


def test_a_page_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    report = whole_report()
    page = report_page(report)
    assert page == report_page(report)
    path = tmp_path / "report.html"
    path.write_text("an older one")
    assert write_page(page, path) == path.stat().st_size
    assert path.read_text(encoding="utf-8") == page
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    # No address of a page or script but in the library itself, which is packed.
    assert "://" not in re.sub(r'id="library">[^<]*<', "", page)


def test_a_page_of_a_query_alone() -> None:
    page = explain_page(Report(facts_of(city()), [query_of()]))
    assert page.count("<section") == 1
    assert "1,000" in page


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.txt", "must end with .html"),
        ("nowhere/report.html", "there is no folder"),
        ("folder.html", "is a folder"),
    ],
)
def test_where_a_page_cannot_be_written(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UsageError, match=message):
        check_out(tmp_path / name)


def test_without_the_library_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> Any:
        raise ModuleNotFoundError("plotly")

    monkeypatch.setattr(library.resources, "files", missing)
    library.plotly_script.cache_clear()
    try:
        with pytest.raises(MissingProgram, match=r"pip install 'spatialnosql\[report\]'"):
            check_out(tmp_path / "report.html")
    finally:
        library.plotly_script.cache_clear()
