"""Grids: the same points in the same cells as the server's own ``$geoWithin``, cell by cell."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson.decimal128 import Decimal128
from differential import KINDS, Question, points_for
from places import Setup, coordinates, documents, get, make_collection
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import spatialnosql
from spatialnosql.cli import main
from spatialnosql.collection import SpatialCollection
from spatialnosql.cover import Cover
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.examined import examine_aggregate
from spatialnosql.geohash import BITS, cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins import grid_precision, range_reading
from spatialnosql.joins.grid import Grid, GridCell, grid
from spatialnosql.joins.grid_cells import cell_names
from spatialnosql.joins.grid_precision import (
    centre_error,
    choose_bits,
    expected_cells,
    finer_characters,
    statistics_of,
)
from spatialnosql.joins.grid_reading import Reader
from spatialnosql.joins.grid_region import read_region
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.steps import Call, run
from spatialnosql.testing import points_to_documents

PRECISIONS = (0, 7, 12, 25, 30, 33, 40, 60)
WEIGHTS: tuple[Any, ...] = (None, "n", {"$avg": "$score"}, {"$min": "size"}, None, {"$max": "$score"})
FILTERS: tuple[Any, ...] = (None, {"n": {"$gte": 40_000}}, {"kind": "park", "tags": "a"})
CIRCLE = {"$centerSphere": [[2.35, 48.86], 0.01]}
# Its corners are on meridians and parallels that are borders of S2 cells.
ON_S2_BORDERS = {"type": "Polygon", "coordinates": [[[0, 0], [45, 0], [45, 30], [0, 30], [0, 0]]]}
MOMENT = dt.datetime(2026, 5, 17, 3, 0, tzinfo=dt.timezone.utc)


# -- pure -------------------------------------------------------------------------------------------------


def some_points(n: int = 20_000) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return 2.35 + rng.normal(0, 0.3, n), 48.86 + rng.normal(0, 0.3, n)


def test_names_of_cells() -> None:
    cells = np.array([0, 5, 31], dtype=np.uint64)
    assert cell_names(cells, 5) == ["0", "5", "z"]
    assert cell_names(cells, 7) == ["0000000", "0000101", "0011111"]
    assert cell_names(cells[:1], 0) == [""]


def test_expected_cells_are_those_counted_where_statistics_are_as_fine() -> None:
    lng, lat = some_points()
    histogram = Histogram.of_points(lng, lat, 32)
    for bits in (0, 1, 11, 25, 31, 32):
        assert expected_cells(histogram, bits) == np.unique(points_to_cells(lng, lat, bits)).size
    assert expected_cells(Histogram(32, histogram.cells[:0], histogram.counts[:0]), 20) == 0


@pytest.mark.parametrize("bits", [34, 38, 44, 60])
def test_expected_cells_of_a_finer_grid_are_about_right(bits: int) -> None:
    lng, lat = some_points()
    true = np.unique(points_to_cells(lng, lat, bits)).size
    assert expected_cells(Histogram.of_points(lng, lat, 30), bits) == pytest.approx(true, rel=0.05)


@functools.cache
def counted_cells() -> list[int]:
    """How many cells the points have at every precision."""
    lng, lat = some_points()
    return [np.unique(points_to_cells(lng, lat, bits)).size for bits in range(BITS + 1)]


@pytest.mark.parametrize("cells", [1, 3, 50, 500, 5_000, 19_000, 10**6])
def test_the_precision_with_the_nearest_number_of_cells(cells: int) -> None:
    (lng, lat), counts = some_points(), counted_cells()
    nearest = min(abs(count - cells) for count in counts)
    chosen = choose_bits(Histogram.of_points(lng, lat, 40), cells)
    assert abs(counts[chosen] - cells) <= nearest + 0.01 * min(cells, len(lng))
    assert chosen == 0 or abs(counts[chosen - 1] - cells) > abs(counts[chosen] - cells)
    assert chosen < 45  # where hardly two points share a cell


def test_groups_are_finer_only_while_they_are_few() -> None:
    lng, lat = some_points(200_000)
    histogram = Histogram.of_points(lng, lat, 40)
    assert finer_characters(10, histogram, 0) == 4
    assert finer_characters(20, histogram, 0) == 6
    assert finer_characters(25, histogram, 0) == 6  # seven would make 100,000 groups
    assert finer_characters(30, histogram, 0) == 6
    assert finer_characters(40, histogram, 0) == 8
    assert finer_characters(33, None, 1_000) == 9
    assert finer_characters(33, None, 10**7) == 7
    assert finer_characters(60, None, 10) == 12


@pytest.mark.parametrize(
    ("bits", "finer", "error"), [(30, 40, 1 / 64), (30, 35, 1 / 8), (35, 45, 1 / 64), (30, 30, 0.5)]
)
def test_what_centres_are_off_by(bits: int, finer: int, error: float) -> None:
    assert centre_error(bits, finer) == error


def test_statistics_of_a_region_leave_out_what_it_does_not_touch() -> None:
    lng, lat = some_points()
    histogram = Histogram.of_points(lng, lat, 30)
    area = read_region({"$box": [[2.0, 48.5], [2.5, 49.0]]})
    cover = area.cover(CollectionInfo("city.trips", histogram=histogram))
    assert cover is not None
    inside = (lng >= 2.0) & (lng <= 2.5) & (lat >= 48.5) & (lat <= 49.0)
    known = statistics_of(histogram, area, cover)
    wanted = np.unique(points_to_cells(lng[inside], lat[inside], 30))
    assert np.isin(wanted, known.cells).all()
    assert known.cells.size < wanted.size * 1.2


def made_grid(**changed: Any) -> Grid:
    row = GridCell(
        "u09", "u09", "u0b", (1.40625, 47.8125, 2.8125, 49.21875), 7, Decimal128("2.5"), (2.0, 48.0)
    )
    given: dict[str, Any] = {"rows": (row,), "bits": 15, "value": float("nan"), "how": "by hand"}
    return Grid(**(given | changed))


def test_geojson_of_cells_and_of_centres() -> None:
    cells = made_grid().to_geojson()
    assert cells["type"] == "FeatureCollection"
    assert cells["features"][0]["geometry"]["coordinates"][0][2] == [2.8125, 49.21875]
    assert cells["features"][0]["properties"]["count"] == 7
    centres = made_grid().to_geojson(centres=True)
    assert centres["features"][0]["geometry"] == {"type": "Point", "coordinates": [2.0, 48.0]}
    # What JSON has no number for would make a file that no map can read.
    text = json.dumps([cells, centres, made_grid().to_document()], allow_nan=False)
    assert '"value": 2.5' in text
    assert '"value": null' in text


def test_a_grid_without_centres_has_none_to_show() -> None:
    bare = made_grid(rows=(replace(made_grid()[0], centre=None),))
    with pytest.raises(UsageError, match="centre='index'"):
        bare.to_geojson(centres=True)


def test_the_top_of_a_grid() -> None:
    row = made_grid()[0]
    rows = [replace(row, cell=str(i), value=v) for i, v in enumerate([None, 3, 9, float("nan"), 9.5, 3])]
    ranked = made_grid(rows=tuple(rows)).top(6)
    assert [one.cell for one in ranked] == ["4", "2", "1", "5", "3", "0"]


def test_the_export() -> None:
    assert spatialnosql.grid is grid


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "precision in bits, such as 30, or cells"),
        ({"precision": 30, "cells": 500}, "precision in bits, such as 30, or cells"),
        ({"precision": 61}, "61 does not exist; it is a number of bits from 0 to 60"),
        ({"precision": True}, "True does not exist"),
        ({"precision": 6.0}, "6.0 does not exist"),
        ({"cells": 0}, "cells is 0; it must be a number of cells"),
        ({"precision": 30, "most_cells": -1}, "most_cells is -1"),
        ({"precision": 30, "centre": "middle"}, "'index', 'exact', 'none'"),
        ({"precision": 30, "as_of": "yesterday"}, "it must be 'last_analyze'"),
        ({"precision": 30, "borders": "estimated"}, "goes with as_of='last_analyze'"),
        ({"precision": 30, "borders": "none"}, "'read' or 'estimated'"),
        ({"precision": 30, "region": [2, 48]}, "a region is None for everywhere"),
        ({"precision": 30, "region": {"$box": [], "$center": []}}, "a region is None for everywhere"),
        ({"precision": 30, "weight": {"$median": "$fare"}}, "is not understood"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grid(None, **given)


@pytest.mark.parametrize("region", [{"type": "Point", "coordinates": [1, 2]}, {"$disc": [[0, 0], 1]}])
def test_a_region_that_the_server_would_refuse(region: Any) -> None:
    with pytest.raises(GeometryError, match="geoWithin"):
        grid(None, region, 30)


# -- on the server ----------------------------------------------------------------------------------------


QUESTIONS_EACH = 4  # of every kind of shape; the border of each has points on and near it
LEFT_OUT = ("near", "geo_near", "point", "multipoint", "line", "multiline")  # nothing lies within them


def questions() -> list[Question]:
    rng = np.random.default_rng(21)
    made = [KINDS[kind](rng) for kind in KINDS if kind not in LEFT_OUT for _ in range(QUESTIONS_EACH)]
    return [question for question in made if "$geoWithin" in question.condition]


@pytest.fixture(scope="module")
def plain(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    database = client[f"test_joins_grid_{secrets.token_hex(4)}"]
    setup = Setup("loc", "geojson")
    content = documents(2000, 7, setup)
    rng = np.random.default_rng(22)
    for question in questions():
        lng, lat = points_for(question, rng, 30)
        hashes = cells_to_strings(points_to_cells(lng, lat)).tolist()
        for x, y, gh in zip(lng.tolist(), lat.tolist(), hashes, strict=True):
            point = {"type": "Point", "coordinates": [x, y], "accuracy": len(content) % 10}
            one = {"_id": len(content), "n": len(content) * 37, "loc": point, "gh": gh, "score": x / 7}
            content.append(one | {"kind": "park", "tags": ["a"] * (len(content) % 2)})
    collection = make_collection(database, "points", setup, content)
    metadata_collection(collection).update_one({"_id": collection.full_name}, {"$set": {"analyzed": MOMENT}})
    yield collection
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": f"{database.name}.points"})


def known(plain: Any, times: int = 1000, **changed: Any) -> SpatialCollection:
    """The collection with every count of its statistics so many times, so that covers have an interior."""
    info = info_of(plain)
    assert info.histogram is not None
    more = Histogram(info.histogram.bits, info.histogram.cells, info.histogram.counts * times)
    return SpatialCollection(plain, info=replace(info, **({"histogram": more} | changed)))


@functools.cache
def info_of(plain: Any) -> CollectionInfo:
    info = run(load_info(plain))
    assert info.why_not is None
    return info


def within(region: Any) -> dict[str, Any]:
    """The condition of a plain query."""
    if region is None:
        return {}
    return {"loc": {"$geoWithin": {"$geometry": region} if "type" in region else region}}


def expected(plain: Any, region: Any, bits: int, filter: Any = None) -> dict[int, list[Any]]:
    """The documents of each cell, by a plain query and their coordinates."""
    asked = {**within(region), **(filter or {})}
    found = [one for one in plain.find(asked) if one.get("gh")]
    lng, lat = np.array([coordinates(one["loc"]) for one in found]).reshape(-1, 2).T
    by_cell: dict[int, list[Any]] = {}
    for cell, one in zip(points_to_cells(lng, lat, bits).tolist(), found, strict=True):
        by_cell.setdefault(cell, []).append(one)
    return dict(sorted(by_cell.items()))


def measured(found: list[Any], weight: Any) -> Any:
    if weight is None:
        return len(found)
    operator, path = ("$sum", weight) if isinstance(weight, str) else next(iter(weight.items()))
    values = [get(one, path.removeprefix("$")) for one in found]
    values = [value or 0 for value, one in zip(values, found, strict=True) if _is_number(one, path)]
    if operator == "$sum":
        return sum(values)
    if not values:
        return None
    return {
        "$avg": lambda: sum(values) / len(values),
        "$min": lambda: min(values),
        "$max": lambda: max(values),
    }[operator]()


def _is_number(one: Any, path: str) -> bool:
    for name in path.removeprefix("$").split("."):
        one = one.get(name) if isinstance(one, dict) else None
    return isinstance(one, int | float)


def assert_same(made: Grid, wanted: dict[int, list[Any]], weight: Any = None, *, exact: bool = False) -> None:
    """Cells, counts, values and boxes are those wanted, and centres are as near as they claim."""
    assert [row.cell for row in made] == cell_names(np.array(list(wanted), dtype=np.uint64), made.bits)
    assert [row.count for row in made] == [len(found) for found in wanted.values()]
    assert made.total == sum(len(found) for found in wanted.values())
    for row, found in zip(made, wanted.values(), strict=True):
        value = measured(found, weight)
        assert row.value == (
            value if not isinstance(value, float) else pytest.approx(value, rel=1e-9, abs=1e-9)
        )
        pairs = np.array([coordinates(one["loc"]) for one in found])
        west, south, east, north = row.box
        assert (pairs >= [west, south]).all()
        assert (pairs <= [east, north]).all()
        assert all(row.lo <= one["gh"] < row.hi for one in found)
        if row.centre is not None:
            allowed = 1e-9 if exact else made.centre_error * np.array([east - west, north - south]) + 1e-9
            assert (np.abs(pairs.mean(axis=0) - row.centre) <= allowed).all()
    everything = [one for found in wanted.values() for one in found]
    whole = measured(everything, weight)
    assert made.value == (whole if not isinstance(whole, float) else pytest.approx(whole, rel=1e-9, abs=1e-9))


@pytest.mark.parametrize("kind", ["interior", "one scan", "no statistics"])
def test_cells_are_those_of_the_servers_own_documents(
    plain: Any, kind: str, tally: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spatial = known(plain, 1 if kind == "one scan" else 1000)
    if kind == "no statistics":
        spatial = known(plain, histogram=None)
    read: list[Cover] = []
    reading = Reader.read

    def noted(self: Reader, cover: Cover, characters: int, **options: Any) -> Any:
        read.append(cover)
        return reading(self, cover, characters, **options)

    monkeypatch.setattr(Reader, "read", noted)
    turns = itertools.cycle(itertools.product(WEIGHTS, FILTERS))
    centres = itertools.cycle(("index", "exact", "none"))
    found = refused = asked = 0
    chosen = questions()[:: 1 if kind == "interior" else 2]
    for number, question in enumerate(chosen):
        region = question.condition["$geoWithin"]
        bits = PRECISIONS[number % len(PRECISIONS)]
        (weight, condition), centre = next(turns), next(centres)
        try:
            wanted = expected(plain, region, bits, condition)
        except OperationFailure:
            # What cannot be read here is sent as it is: the server says why not.
            with pytest.raises((GeometryError, OperationFailure)):
                grid(spatial, region, bits)
            refused += 1
            continue
        made = grid(spatial, region, bits, filter=condition, weight=weight, centre=centre)
        assert_same(made, wanted, weight, exact=centre == "exact")
        asked += "only the server can tell" in made.how
        found += made.total
    assert found > 1000
    assert (refused and asked) or kind != "interior"
    assert sum(len(cover.boundary) > 0 for cover in read) > 20
    assert (sum(len(cover.interior) > 0 for cover in read) > 10) == (kind != "one scan")
    tally["grids compared with the server"] += len(chosen) - refused


@pytest.mark.parametrize("bits", PRECISIONS)
@pytest.mark.parametrize("centre", ["index", "exact"])
def test_every_precision_everywhere_and_in_a_circle(
    plain: Any, bits: int, centre: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_precision, "MOST_GROUPS", 10**9)
    for region in (None, CIRCLE):
        made = grid(known(plain), region, bits, centre=centre)
        assert_same(made, expected(plain, region, bits), exact=centre == "exact")
        assert made.total > 100
    if centre == "index":
        assert made.centre_error <= (1 / 64 if bits <= 50 else 0.5)
        assert made.how.startswith("from the index alone")


def test_every_weight_and_filter_in_a_region(plain: Any) -> None:
    region = {"type": "Polygon", "coordinates": [[[-10, 35], [20, 35], [20, 60], [-10, 60], [-10, 35]]]}
    weights = (*WEIGHTS, {"$sum": "$score"}, {"$max": "$loc.accuracy"}, "nothing.there")
    for weight, condition in itertools.product(weights, FILTERS):
        made = grid(known(plain), region, 17, weight=weight, filter=condition)
        assert_same(made, expected(plain, region, 17, condition), weight)
        assert made.total


def test_points_on_the_borders_of_cells_and_of_the_region(database: Any) -> None:
    """The region is a cell: the points on its eastern and northern border are in it, and in the next cell."""
    west, south, east, north = 1.40625, 47.8125, 2.8125, 49.21875  # u09
    places = [
        *itertools.product((west, east), (south, north)),
        (west, 48.0),
        (east, 48.0),
        (2.0, north),
        (2, 48),
    ]
    content = []
    for number, (lng, lat) in enumerate(places):
        gh = str(cells_to_strings(points_to_cells([lng], [lat]))[0])
        point = {"type": "Point", "coordinates": [float(lng), float(lat)]}
        content.append({"_id": number, "loc": point, "gh": gh})
    collection = make_collection(database, "corners", Setup(), content)
    region = {"$box": [[west, south], [east, north]]}
    made = grid(collection, region, 15)
    assert_same(made, expected(collection, region, 15))
    assert {row.cell: row.count for row in made}["u09"] == 3
    assert sorted(row.count for row in made) == [1, 2, 2, 3]
    assert made.total == len(places)
    assert "very near to the border" in made.how


@pytest.mark.parametrize(
    "region",
    [
        {"$box": [[200, 0], [210, 10]]},
        {"$centerSphere": [[-140, -40], 1e-6]},
        {"type": "Polygon", "coordinates": [[[-140, -40], [-139.9, -40], [-140, -39.9], [-140, -40]]]},
    ],
    ids=["off the map", "nobody there", "a polygon"],
)
@pytest.mark.parametrize("weight", [None, "n", {"$min": "$n"}])
def test_a_region_without_points(plain: Any, region: Any, weight: Any) -> None:
    made = grid(known(plain), region, 30, weight=weight)
    assert len(made) == 0
    assert made.total == 0
    assert made.value == (None if isinstance(weight, dict) else 0)
    assert made.to_geojson() == {"type": "FeatureCollection", "features": []}


def test_a_region_that_only_the_server_knows(plain: Any) -> None:
    for bits, centre in itertools.product((0, 13, 30), ("index", "exact", "none")):
        made = grid(known(plain), ON_S2_BORDERS, bits, centre=centre, weight="n")
        assert_same(made, expected(plain, ON_S2_BORDERS, bits), "n", exact=centre == "exact")
        assert "documents read: of this region only the server can tell: its border touches" in made.how
    about = grid(known(plain, 1), ON_S2_BORDERS, cells=20)
    assert 10 <= len(about) <= 40
    with pytest.raises(UsageError, match="of this region only the server can tell"):
        grid(known(plain), ON_S2_BORDERS, 20, as_of="last_analyze")
    around = {"$centerSphere": [[0, 0], 3.2]}  # all around the Earth
    assert_same(grid(known(plain), around, 10), expected(plain, around, 10))
    with pytest.raises(UsageError, match="nobody but the server can tell what lies in this region"):
        grid(known(plain), around, cells=20)


@pytest.mark.parametrize("region", [None, CIRCLE, {"$box": [[-20, 30], [30, 70]]}])
@pytest.mark.parametrize("cells", [10, 100, 500])
def test_about_so_many_cells(plain: Any, region: Any, cells: int) -> None:
    made = grid(known(plain, 1), region, cells=cells)
    numbers = [
        len(grid(known(plain), region, bits)) for bits in (max(made.bits - 1, 0), min(made.bits + 1, 60))
    ]
    # The statistics are of these very points, but know a region's border only by their own cells.
    assert abs(len(made) - cells) <= min(abs(number - cells) for number in numbers) + 0.1 * cells
    assert made.bits < 50


# -- what is read -----------------------------------------------------------------------------------------


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    made: list[Call] = []
    read = range_reading.command

    def noted(*arguments: Any, **options: Any) -> Call:
        made.append(read(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(range_reading, "command", noted)
    return made


def test_a_plain_grid_is_read_from_the_index_alone(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_precision, "MOST_GROUPS", 10**9)
    calls = calls_of(monkeypatch)
    made = grid(known(plain), CIRCLE, 30)
    assert made.how.startswith("from the index alone")
    assert len(calls) == 2
    for call in calls:
        examined = examine_aggregate(plain, call.arguments[0], hint=call.options["hint"])
        assert examined.keys
        assert not examined.docs
    inner = plain.aggregate(calls[0].arguments[0]).to_list()
    assert len(inner[0]["_id"]) == 8  # two characters more than the cell's, for its centre


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"filter": {"n": 3}}, "a filter"),
        ({"weight": "n"}, "a weight"),
        ({"centre": "exact"}, "exact centres"),
    ],
)
def test_it_says_when_documents_are_read(plain: Any, asked: dict[str, Any], why: str) -> None:
    assert grid(known(plain), CIRCLE, 30, **asked).how == f"documents read: {why}"


def test_groups_are_coarser_where_they_would_be_too_many(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = grid(known(plain, 1), None, 20)
    monkeypatch.setattr(grid_precision, "MOST_GROUPS", len(fine) + 1)
    coarse = grid(known(plain, 1), None, 20)
    assert (fine.centre_error, coarse.centre_error) == (1 / 64, 0.5)
    assert_same(coarse, expected(plain, None, 20))


def test_keys_in_many_commands(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch)
    monkeypatch.setattr(range_reading, "KEYS_AT_ONCE", 200_000)  # of a thousand times as many as there are
    made = grid(known(plain), None, 60)
    assert_same(made, expected(plain, None, 60))
    assert len(calls) > 8


def test_more_keys_than_a_document_holds(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses documents over 16 MB; statistics that were wrong by so much are not the caller's trouble."""
    real, sizes = range_reading.command, []

    def too_large(points: Any, request: Any, *arguments: Any, whole: bool = True) -> Call:
        call = real(points, request, *arguments, whole=whole)
        sizes.append(whole)
        if not whole or not request.border:
            return call
        many = {"$map": {"input": {"$range": [0, 2_000_000]}, "in": "a string"}}
        return replace(call, arguments=([*call.arguments[0], {"$set": {"keys": many}}],))

    monkeypatch.setattr(range_reading, "command", too_large)
    assert_same(grid(known(plain), CIRCLE, 30), expected(plain, CIRCLE, 30))
    assert sizes == [True, True, False, False]


def test_too_many_cells_are_an_error(plain: Any) -> None:
    with pytest.raises(UsageError, match=r"by the statistics at least [\d,]+ cells here; ask for a coarser"):
        grid(known(plain), None, 40, most_cells=100)
    # Statistics know nothing of a filter, and may be missing: then what comes is counted.
    with pytest.raises(UsageError, match=r"has more than 100 cells here.*most_cells \(now 100\)"):
        grid(known(plain), None, 40, most_cells=100, filter={"n": {"$gte": 0}})
    with pytest.raises(UsageError, match="has more than 100 cells here"):
        grid(known(plain, histogram=None), None, 40, most_cells=100)
    assert len(grid(known(plain), None, 10, most_cells=1024, filter={"n": 0})) < 5
    with pytest.raises(
        UsageError, match=r"run `spatialnosql analyze .*\.points` for statistics, or give it in bits"
    ):
        grid(known(plain, histogram=None), None, cells=500)


@pytest.mark.parametrize("region", [None, CIRCLE, ON_S2_BORDERS], ids=["everywhere", "circle", "server"])
@pytest.mark.parametrize("asked", [{}, {"weight": "n"}, {"centre": "none"}])
def test_just_as_many_cells_as_are_allowed(plain: Any, region: Any, asked: dict[str, Any]) -> None:
    """The servers stop at a number of groups: it must not be one too low, nor cut an answer off in silence."""
    wanted = expected(plain, region, 18)
    made = grid(known(plain, 1), region, 18, most_cells=len(wanted), **asked)
    assert_same(made, wanted, asked.get("weight"))
    with pytest.raises(UsageError, match=f"{len(wanted) - 1:,}"):
        grid(known(plain, 1), region, 18, most_cells=len(wanted) - 1, **asked)


def test_sessions_snapshots_and_options(plain: Any, client: MongoClient[dict[str, Any]]) -> None:
    wanted = expected(plain, CIRCLE, 25)
    assert_same(grid(known(plain), CIRCLE, 25, consistent=True), wanted)
    assert_same(grid(known(plain), CIRCLE, 25, comment="heat", maxTimeMS=60_000), wanted)
    with client.start_session() as session:
        assert_same(grid(known(plain), CIRCLE, 25, session=session), wanted)
        with session.start_transaction():
            assert_same(grid(known(plain), CIRCLE, 25, session=session, consistent=True), wanted)
    with pytest.raises(UsageError, match="nonsense"):
        grid(known(plain), CIRCLE, 25, nonsense=1)


def test_at_one_moment_while_points_move(database: Any) -> None:
    """Points move about in a box, from inside to its border and back: at any one moment it holds all of them."""
    collection = make_collection(database, "moving", Setup(), documents(600, 6, Setup()))
    rng, reach = np.random.default_rng(8), 0.2
    lng, lat = (middle + rng.uniform(-reach, reach, 200) for middle in (2.35, 48.86))
    moving = points_to_documents(lng, lat, first_id=10_000)
    hashes = cells_to_strings(points_to_cells(lng, lat)).tolist()
    collection.insert_many([one | {"gh": gh} for one, gh in zip(moving, hashes, strict=True)])
    region = {"$box": [[2.35 - 0.21, 48.86 - 0.21], [2.35 + 0.21, 48.86 + 0.21]]}
    spatial, done = known(collection), threading.Event()
    total = grid(spatial, region, 20).total
    assert total > 200

    def move() -> None:
        order = np.random.default_rng(9)
        while not done.is_set():
            x, y = (float(middle + order.uniform(-reach, reach)) for middle in (2.35, 48.86))
            which = {"_id": 10_000 + int(order.integers(200)), "gh": {"$gte": ""}}
            spatial.update_one(which, {"$set": {"loc": {"type": "Point", "coordinates": [x, y]}}})

    mover = threading.Thread(target=move)
    mover.start()
    try:
        grids = [grid(spatial, region, bits, consistent=True) for bits in (0, 12, 20, 25, 33, 60) * 3]
    finally:
        done.set()
        mover.join()
    assert {made.total for made in grids} == {total}
    assert len({tuple(row.count for row in made) for made in grids if made.bits == 25}) > 1  # they did move
    assert_same(grid(spatial, region, 25), expected(collection, region, 25))


# -- from the statistics ----------------------------------------------------------------------------------


def fine_statistics(plain: Any, bits: int = 35) -> SpatialCollection:
    found = [one["gh"] for one in plain.find({"gh": {"$gte": ""}}, {"gh": 1})]
    lng, lat = np.array([coordinates(one["loc"]) for one in plain.find({"gh": {"$gte": ""}})]).T
    histogram = Histogram.of_points(lng, lat, bits)
    assert histogram.total == len(found)
    info = replace(info_of(plain), histogram=histogram, analyzed=MOMENT)
    return SpatialCollection(plain, info=info)


def test_as_of_is_equal_when_nothing_changed(plain: Any) -> None:
    spatial = fine_statistics(plain)
    for question, bits in zip(questions()[::2], itertools.cycle((0, 7, 12, 25, 30, 33, 35)), strict=False):
        region = question.condition["$geoWithin"]
        try:
            now = grid(spatial, region, bits)
        except GeometryError:
            continue
        if "only the server" in now.how:
            continue
        then = grid(spatial, region, bits, as_of="last_analyze")
        assert [(row.cell, row.count) for row in then] == [(row.cell, row.count) for row in now]
        assert_same(then, expected(plain, region, bits))
        assert then.as_of is not None
        assert then.as_of.moment == MOMENT


def test_as_of_is_dated_when_something_changed(database: Any) -> None:
    collection = make_collection(database, "moving", Setup(), documents(1500, 5, Setup()))
    spatial = fine_statistics(collection)
    before = grid(spatial, None, 20)
    collection.delete_many({"_id": {"$lt": 400}})
    then = grid(spatial, None, 20, as_of="last_analyze")
    assert then.rows == replace(before, rows=then.rows).rows
    assert [row.count for row in then] == [row.count for row in before]
    now = grid(spatial, None, 20)
    assert_same(now, expected(collection, None, 20))
    assert now.total < then.total
    assert now.as_of is None
    assert (
        str(then.as_of)
        == f"as of 2026-05-17 03:00:00 UTC, of {before.total:,} points; 0 keys at the borders read now"
    )
    assert then.how == "from the statistics alone"


def test_estimated_borders_have_bounds_that_hold(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spatial = fine_statistics(plain)
    wide = 0
    monkeypatch.setattr(Reader, "read", None)  # nothing is read
    for question, bits in zip(questions()[::2], itertools.cycle((0, 7, 12, 25, 30, 35)), strict=False):
        region = question.condition["$geoWithin"]
        try:
            made = grid(spatial, region, bits, as_of="last_analyze", borders="estimated")
        except (GeometryError, UsageError):
            continue
        wanted = expected(plain, region, bits)
        names = cell_names(np.array(list(wanted), dtype=np.uint64), bits)
        truth = dict(zip(names, map(len, wanted.values()), strict=True))
        assert truth.keys() <= {row.cell for row in made}
        for row in made:
            assert row.low <= truth.get(row.cell, 0) <= row.high
            assert row.low <= row.count <= row.high
            west, south, east, north = row.box
            assert west <= row.centre[0] <= east
            assert south <= row.centre[1] <= north
            wide += row.low < row.high
        assert made.as_of is not None
        assert made.as_of.keys_read is None
    assert wide > 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"filter": {"n": 1}}, "no filter, no weight"),
        ({"weight": "n"}, "no filter, no weight"),
        ({"centre": "exact"}, "no exact centre"),
        ({"precision": 36}, "have cells of 35 bits and cannot make a grid of 36"),
    ],
)
def test_what_statistics_cannot_answer(plain: Any, given: dict[str, Any], message: str) -> None:
    asked = {"precision": 20, "as_of": "last_analyze"} | given
    with pytest.raises(UsageError, match=message):
        grid(fine_statistics(plain), None, **asked)


def test_statistics_choose_no_precision_that_they_do_not_know(plain: Any) -> None:
    made = grid(fine_statistics(plain), None, cells=10**9, as_of="last_analyze")
    assert made.bits <= 35
    assert len(made) >= 0.98 * len(grid(fine_statistics(plain), None, 35))


def test_without_statistics_there_is_nothing_to_be_as_of(plain: Any) -> None:
    with pytest.raises(UsageError, match="run `spatialnosql analyze"):
        grid(known(plain, histogram=None), None, 20, as_of="last_analyze")


# -- other collections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["loc", "place.loc"])
def test_documents_without_one_place_are_in_no_cell(database: Any, location: str) -> None:
    setup = Setup(location, "any", unhashed=True)
    collection = make_collection(database, "several", setup, documents(1500, 9, setup))
    hashed = {one["_id"]: one for one in collection.find({"gh": {"$ne": None}})}
    unplaced = 0
    for region, other in itertools.product(
        (None, CIRCLE, ON_S2_BORDERS, {"$box": [[-90, 0], [90, 80]]}), FILTERS
    ):
        condition = {location: within(region)["loc"]} if region else {}
        everything = [one["_id"] for one in collection.find({**condition, **(other or {})})]
        made = grid(collection, region, 12, filter=other, centre="exact")
        in_cells = [hashed[one] for one in everything if one in hashed]
        lng, lat = np.array([coordinates(get(one, location)) for one in in_cells]).T
        cells, counts = np.unique(points_to_cells(lng, lat, 12), return_counts=True)
        assert [(row.cell, row.count) for row in made] == list(
            zip(cell_names(cells, 12), counts.tolist(), strict=True)
        )
        assert made.total == len(in_cells)
        for row, cell in zip(made, cells, strict=True):
            own = points_to_cells(lng, lat, 12) == cell
            assert row.centre == pytest.approx((lng[own].mean(), lat[own].mean()), abs=1e-9)
        if region is not None:
            assert made.unplaced == len(everything) - len(in_cells)
        else:  # where documents without any location are found too
            placed = collection.count_documents({location: {"$type": ["object", "array"]}, **(other or {})})
            assert made.unplaced == placed - len(in_cells)
        unplaced += made.unplaced
    assert unplaced > 100
    with pytest.raises(UsageError, match="documents without a geohash"):
        grid(fine_grained(collection), None, 12, as_of="last_analyze")


def fine_grained(collection: Any) -> SpatialCollection:
    return SpatialCollection(collection, info=replace(run(load_info(collection)), analyzed=MOMENT))


def test_a_collection_that_was_never_adopted(database: Any) -> None:
    database["raw"].insert_one({"loc": [1, 2]})
    with pytest.raises(UsageError, match="never adopted"):
        grid(database["raw"], None, 20)


def test_decimals_are_added_as_decimals(database: Any) -> None:
    content = documents(300, 4, Setup())
    for one in content:
        one["fare"] = Decimal128(f"{one['_id'] % 7}.{one['_id'] % 10}")
    collection = make_collection(database, "fares", Setup(), content)
    made = grid(collection, None, 5, weight="fare")
    for row, found in zip(made, expected(collection, None, 5).values(), strict=True):
        assert row.value.to_decimal() == sum(one["fare"].to_decimal() for one in found)
    assert made.top(1)[0].value == max(made, key=lambda row: row.value.to_decimal()).value


# -- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def command(plain: Any, cluster: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*options: str, code: int = 0) -> str:
        assert main(["grid", plain.full_name, "--uri", cluster.uri, *options]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return ask


def test_the_table(command: Any, plain: Any) -> None:
    lines = command("--bits", "10", "--weight", "avg:score").splitlines()
    made = grid(known(plain), None, 10, weight={"$avg": "$score"})
    assert lines[0].startswith(f"{plain.full_name}: {made.total:,} points in {len(made):,} cells of 10 bits")
    assert lines[1].startswith("avg:score of all: ")
    assert lines[3].split() == ["cell", "count", "avg:score", "centre"]
    assert [line.split()[0] for line in lines[4:24]] == [row.cell for row in made.top(20)]
    assert lines[24] == f"  and {len(made) - 20:,} more"


def test_the_file_and_the_json(command: Any, plain: Any, tmp_path: Path) -> None:
    shape = {"type": "Polygon", "coordinates": [[[-10, 35], [20, 35], [20, 60], [-10, 60], [-10, 35]]]}
    other = {"type": "Polygon", "coordinates": [[[-80, 35], [-60, 35], [-60, 45], [-80, 35]]]}
    features = [{"type": "Feature", "properties": {}, "geometry": one} for one in (shape, other)]
    file, out = tmp_path / "two.geojson", tmp_path / "out.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    told = json.loads(command("--region", str(file), "--bits", "20", "--out", str(out), "--json"))
    region = {"type": "GeometryCollection", "geometries": [shape, other]}
    assert_same(grid(known(plain), region, 20), expected(plain, region, 20))
    assert told["total"] == plain.count_documents(within(region))
    written = json.loads(out.read_text())
    assert len(written["features"]) == len(told["cells"])
    assert {one["geometry"]["type"] for one in written["features"]} == {"Polygon"}
    text = command("--within", json.dumps(CIRCLE), "--bits", "25", "--out", str(out), "--points")
    assert text.endswith(f"Written: {out}\n")
    assert {one["geometry"]["type"] for one in json.loads(out.read_text())["features"]} == {"Point"}


def test_as_of_in_the_command(command: Any) -> None:
    lines = command(
        "--as-of", "last_analyze", "--borders", "estimated", "--within", json.dumps(CIRCLE)
    ).splitlines()
    assert "the border estimated" in lines[0]
    assert lines[1].startswith("As of 2026-05-17 03:00:00 UTC, of ")
    assert lines[3].split() == ["cell", "count", "at", "least", "at", "most", "centre"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", "77"], "77 does not exist"),
        (["--within", "no"], "--within: the query is no JSON"),
        (["--filter", "[1]"], "--filter takes a document ({...}), not a pipeline"),
        (["--points"], "give --out"),
        (["--bits", "40", "--most-cells", "10"], "cells here; ask for a coarser one"),
    ],
)
def test_errors_of_the_command(command: Any, options: list[str], message: str) -> None:
    assert message in command(*options, code=1)


def test_a_measure_that_does_not_exist(plain: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["grid", plain.full_name, "--weight", "median:fare"])
    assert "'median:fare' is not one of sum, avg, min, max" in capsys.readouterr().err
