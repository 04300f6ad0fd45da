"""``spatialnosql cover``: ranges of the shapes of a file, and errors that name the feature."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spatialnosql.cli import main
from spatialnosql.cover import Ranges, cover
from spatialnosql.cover_command import ranges_to_cells
from spatialnosql.geohash import cells_to_ranges, merge_ranges
from spatialnosql.geometry import geometry_to_region

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
BOW_TIE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
LINE = {"type": "LineString", "coordinates": [[5, 5], [6, 7]]}


def feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def collection(*features: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


BOTH = collection(feature(SQUARE, name="Square", nickname="S"), feature(LINE, NAME="Line"))


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on a document; what it printed, or its one line of error."""

    def run(content: Any, *options: str, code: int = 0) -> str:
        file = tmp_path / "shapes.geojson"
        data = (
            content
            if isinstance(content, bytes)
            else (content if isinstance(content, str) else json.dumps(content)).encode()
        )
        file.write_bytes(data)
        assert main(["cover", str(file), *options]) == code
        captured = capsys.readouterr()
        assert (captured.out == "") == (code != 0)
        return captured.out if code == 0 else captured.err

    return run


def test_ranges_for_people(ask: Any) -> None:
    made = cover(geometry_to_region(SQUARE))
    lines = ask(BOTH).splitlines()
    interior, boundary = len(made.interior), len(made.boundary)
    title = f"feature 0 (Square): {interior} interior and {boundary} boundary ranges, {made.cells} cells"
    assert lines[0] == title
    assert (
        f"feature 1 (Line): 0 interior and {len(lines) - interior - boundary - 2} boundary"
        in lines[interior + boundary + 1]
    )
    rows = [line.split() for line in lines[1 : interior + boundary + 1]]
    expected = [("interior", *r) for r in made.interior.to_strings()] + [
        ("boundary", *r) for r in made.boundary.to_strings()
    ]
    assert sorted(map(tuple, rows)) == sorted(expected)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


def test_json(ask: Any) -> None:
    result = json.loads(ask(BOTH, "--json", "--max-cells", "40"))
    made = cover(geometry_to_region(SQUARE), max_cells=40)
    assert result["shapes"][0] == {
        "name": "feature 0 (Square)",
        "interior": [list(r) for r in made.interior.to_strings()],
        "boundary": [list(r) for r in made.boundary.to_strings()],
        "cells": made.cells,
    }
    assert [shape["name"] for shape in result["shapes"]] == ["feature 0 (Square)", "feature 1 (Line)"]


def test_a_budget_of_ranges(ask: Any) -> None:
    shape = json.loads(ask(SQUARE, "--json", "--max-ranges", "5"))["shapes"][0]
    assert len(shape["interior"]) + len(shape["boundary"]) <= 5


def test_cells_for_a_map(ask: Any) -> None:
    features = json.loads(ask(SQUARE, "--geojson", "--max-cells", "64"))["features"]
    made = cover(geometry_to_region(SQUARE), max_cells=64)
    for kind, ranges in (("interior", made.interior), ("boundary", made.boundary)):
        own = [f for f in features if f["properties"]["kind"] == kind]
        assert len(own) == len(list(ranges_to_cells(ranges))) > 0
    inner = [f["geometry"]["coordinates"][0] for f in features if f["properties"]["kind"] == "interior"]
    assert all(0 < x < 1 and 0 < y < 1.0001 for ring in inner for x, y in ring)
    assert all(ring[0] == ring[-1] for ring in inner)


def test_cells_of_ranges_are_the_ranges() -> None:
    made = cover(geometry_to_region(SQUARE))
    parts = [cells_to_ranges([cell], bits) for cell, bits in ranges_to_cells(made.outer)]
    lo, hi = merge_ranges(*(np.concatenate(bounds) for bounds in zip(*parts, strict=True)))
    assert (lo.tolist(), hi.tolist()) == (made.outer.lo.tolist(), made.outer.hi.tolist())
    whole = Ranges(np.array([0], dtype=np.uint64), np.array([2**60], dtype=np.uint64))
    assert list(ranges_to_cells(whole)) == [(0, 0)]
    odd = Ranges(np.array([3], dtype=np.uint64), np.array([9], dtype=np.uint64))
    assert list(ranges_to_cells(odd)) == [(3, 60), (1, 58), (8, 60)]


@pytest.mark.parametrize(
    "content",
    [
        SQUARE,
        feature(SQUARE),
        collection(feature(SQUARE)),
        f"{json.dumps(feature(SQUARE))}\n\n{json.dumps(LINE)}\n",
        gzip.compress(json.dumps(SQUARE).encode()),
        collection(feature(None), feature(SQUARE)),
    ],
)
def test_forms_of_geojson(ask: Any, content: Any) -> None:
    shapes = json.loads(ask(content, "--json"))["shapes"]
    assert shapes[0]["interior"] == [list(r) for r in cover(geometry_to_region(SQUARE)).interior.to_strings()]


def test_the_world_has_a_first_and_a_last(ask: Any) -> None:
    outside = {**SQUARE, "coordinates": [SQUARE["coordinates"][0][::-1]]}
    outside["crs"] = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}
    lines = ask(outside).splitlines()
    assert "(first)" in lines[1]
    assert lines[-1].endswith("(last)")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(LINE).encode())))
    assert main(["cover", "-"]) == 0
    assert capsys.readouterr().out.startswith("feature 0: 0 interior and ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (collection(feature(SQUARE), feature(BOW_TIE, name="Tie")), "feature 1 (Tie): edges of ring 0 cross"),
        (collection(feature(SQUARE), feature({"type": "Blob"})), "feature 1: 'Blob' is no GeoJSON type"),
        (
            collection(feature({**SQUARE, "coordinates": SQUARE["coordinates"] * 2})),
            "feature 0: ring 0 touches itself",
        ),
        (collection(SQUARE, 5), "feature 1 of "),
        (collection(), "there is no shape in "),
        ([1, 2], "is no GeoJSON: it holds a list, not an object"),
        ("hello", "is no GeoJSON: Expecting value"),
        (b"\xff\xfe", "is no GeoJSON: "),
        (gzip.compress(b"{}")[:-5], "is no GeoJSON: "),
    ],
)
def test_errors_name_the_feature(ask: Any, content: Any, message: str) -> None:
    error = ask(content, code=1)
    assert error.startswith("spatialnosql: ")
    assert message in error
    assert len(error.splitlines()) == 1


def test_wrong_usage(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ask for one" in ask(SQUARE, "--json", "--geojson", code=1)
    assert main(["cover", str(tmp_path / "none.geojson")]) == 1
    assert f"no such file: {tmp_path / 'none.geojson'}" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["cover", "-", "--max-cells", "0"])
    assert "0 is not above zero" in capsys.readouterr().err
