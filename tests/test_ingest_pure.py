"""What of the ingest needs neither Spark nor a server: streams of features, cuts, homes, names, numbers."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from spark_jobs import geojson
from spark_jobs.cell_counts import merged
from spark_jobs.documents import shape_of
from spark_jobs.parts import interleaved
from spark_jobs.screening import Box, home_of, parse_bounds, points_inside
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS
from spatialnosql.histogram import Histogram
from spatialnosql.ingestion import Ingestion
from spatialnosql.skew import choose_precision
from spatialnosql.spreading import layout, unevenness_of

FEATURES = [
    {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [number * 1.5, -2]},
        "properties": {"features": ["[", '"]}'], "n": number, "text": 'a\n\\"é'},
    }
    for number in range(40)
]


def points(seed: int, lng: float, lat: float, count: int = 5000, spread: float = 0.2) -> Histogram:
    chance = np.random.default_rng(seed)
    return Histogram.of_points(chance.normal(lng, spread, count), chance.normal(lat, spread, count), 35)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
def test_features_of_a_collection(monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None) -> None:
    monkeypatch.setattr(geojson, "CHUNK", chunk)
    whole = {"type": "FeatureCollection", "bbox": [1, 2], "features": FEATURES, "more": {"features": [1]}}
    found = list(geojson.features_of(io.StringIO(json.dumps(whole, indent=indent))))
    assert [json.loads(line) for line in found] == FEATURES
    assert not any("\n" in line for line in found)


@pytest.mark.parametrize("separator", ["\n", "\n\x1e", ""])
def test_features_one_after_the_other(separator: str) -> None:
    text = separator.join(json.dumps(feature) for feature in FEATURES)
    assert [json.loads(line) for line in geojson.features_of(io.StringIO(text))] == FEATURES


@pytest.mark.parametrize("text", ['{"features": []}', "", "  \n"])
def test_no_features(text: str) -> None:
    assert list(geojson.features_of(io.StringIO(text))) == []


@pytest.mark.parametrize(
    "text", ['{"features": [{"type": "Fea', '{"features": [{}', "[1]", '{"a" 1}', "null"]
)
def test_what_is_no_geojson(text: str) -> None:
    with pytest.raises(UsageError, match=r"here\.geojson is no GeoJSON"):
        list(geojson.features_of(io.StringIO(text), "here.geojson"))


def test_a_layout_is_even_and_cut_inside_its_shards() -> None:
    histogram = merged(points(1, -74, 40.7), points(2, 2.3, 48.8, 2500))
    plan = layout(histogram, 30, 3, lambda documents: 4)
    assert len(plan.cuts) == 2
    assert unevenness_of(histogram, plan.cuts) < 1.1
    assert [len(inner) for inner in plan.inner] == [3, 3, 3]
    assert plan.bounds == sorted(set(plan.bounds))
    assert len(plan.bounds) == 11
    assert all(0 < cut < 1 << BITS for cut in plan.bounds)
    weights = histogram.points_in([0, *plan.bounds], [*plan.bounds, 1 << BITS])
    assert weights.sum() == pytest.approx(7500)
    assert weights.max() < 1.3 * weights.mean()


@pytest.mark.parametrize("cells", [[], [5], [5] * 100])
def test_a_layout_of_degenerate_data_has_no_cuts(cells: list[int]) -> None:
    plan = layout(Histogram.of_cells(cells, 35), 30, 3)
    assert plan.bounds == []


def test_interleaved_numbers() -> None:
    assert interleaved([2, 2]) == [0, 2, 1, 3]
    assert sorted(interleaved([3, 1, 2])) == list(range(6))
    assert interleaved([]) == []


def test_the_home_of_a_batch() -> None:
    home = home_of(points(1, -74, 40.7))
    assert home is not None
    assert home.west < -74 < home.east
    assert home.south < 40.7 < home.north
    assert not home.meets(home.mirrored)
    assert points_inside(points(1, 40.7, -74), home.mirrored) > 4000
    assert points_inside(points(1, -74, 40.7), home.mirrored) == 0
    # No home: half the world; a place that is its own mirror image; nothing.
    assert home_of(points(1, 0, 0, spread=12)) is None
    assert home_of(points(1, 10.5, 10)) is None
    assert home_of(Histogram.of_cells([], 35)) is None


def test_sums_of_histograms() -> None:
    fine, coarse = points(1, 1, 1), points(2, 1.1, 1).coarsened(30)
    both = merged(fine, coarse)
    assert (both.bits, both.total) == (30, 10_000)
    assert merged(fine, fine).counts.tolist() == (2 * fine.counts).tolist()


def test_bounds() -> None:
    assert parse_bounds("-75,40,-73,41.5") == Box(-75, 40, -73, 41.5)
    with pytest.raises(UsageError, match="west must be less than east"):
        parse_bounds("3,0,2,1")


COLUMNS = ("a", "b", "lon", "lat")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {"a": "a", "b": "b"}),
        ({"rename": {"b": "c"}}, {"a": "a", "b": "c"}),
        ({"select": ("lat", "A")}, {"lat": "lat", "a": "a"}),
        ({"keys": ("a",), "rename": {"a": "_id"}}, {"b": "b"}),
    ],
)
def test_fields(options: dict[str, Any], fields: dict[str, str]) -> None:
    assert shape_of(COLUMNS, coordinates=("lon", "lat"), **options).fields == fields


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (COLUMNS, {"select": ("c",)}, "no column 'c'; name it with --select"),
        (COLUMNS, {"select": ("a",), "rename": {"b": "c"}}, "b is not among the columns that are stored"),
        (COLUMNS, {"rename": {"b": "a"}}, "two columns would be stored under one name"),
        (COLUMNS, {"rename": {"b": "gh"}}, "which is kept for the location, gh, the mark or the digest"),
        (("_id", *COLUMNS), {}, "a column is called _id"),
        (("a.b", *COLUMNS), {}, "'a.b' is no name for a field; rename it"),
        (COLUMNS, {"location": "geo.at"}, "without dots"),
    ],
)
def test_fields_that_cannot_be(columns: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shape_of(columns, coordinates=("lon", "lat"), **options)


def test_an_outcome_in_words() -> None:
    choice = choose_precision(points(1, -74, 40.7), 3)
    outcome = Ingestion(
        "city.trips", "monday", 110, written=90, replaced=4, already_there=3, superseded=2, quarantined=11,
        reasons={"missing": 11}, choice=choice, chunks=3, shards={"a": 50, "b": 40}, documents=90,
        phases={"load": 2.0},
    )  # fmt: skip
    text = "\n".join(outcome.lines())
    assert outcome.accounted == 110
    assert "every row is accounted for" in text
    assert "max/mean 1.111" in text
    assert "50 documents/s" in text
    document = outcome.to_document()
    assert document["precision"]["table"]
    assert document["docs_per_s"] == 49.5
    json.dumps(document)
