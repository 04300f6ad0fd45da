"""The benchmarks of the core keep the contract; what they measure is not asserted, only that it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import cover as benchmark
from benchmarks.data import Area
from benchmarks.options import Options
from spatialnosql.geometry import geometry_to_region

VARIANTS = {"ours", "ours-equal-precision", "polygon-geohasher"}


def last_json(text: str) -> dict[str, Any]:
    return json.loads(text.splitlines()[-1])


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarse cells, so that polygon-geohasher is quick."""
    monkeypatch.setattr(benchmark, "KINDS", {"neighborhoods": 6, "boroughs": 6, "countries": 3})
    monkeypatch.setattr(benchmark, "QUICK_BUDGET_S", 0.5)


@pytest.mark.usefixtures("coarse")
def test_cover_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cover", "--limit", "4", "--repeats", "1", "--json"]) == 0
    result = last_json(capsys.readouterr().out)
    assert result["benchmark"] == "cover"
    assert set(result["queries"]) == {"neighborhoods", "boroughs", "countries"}
    for part in result["queries"].values():
        assert set(part["variants"]) == VARIANTS
        assert part["compared"] > 0
        assert part["equal"] in (True, None)
        for name, values in part["variants"].items():
            assert values["ms_median"] > 0
            assert values["cells"] > 0
            assert (values["ranges"] is None) == (name == "polygon-geohasher")
        assert part["ratio"]["cover"]["median"] > 0
    assert result["queries"]["neighborhoods"]["their_cells_in_ours"] == 1.0


@pytest.mark.usefixtures("coarse")
def test_files_are_known_by_what_is_in_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    country = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]}
    blocks = [
        {"type": "Polygon", "coordinates": [[[x, 0], [x + 0.1, 0], [x + 0.1, 0.1], [x, 0]]]}
        for x in range(12)
    ]
    files = [tmp_path / "one.geojson", tmp_path / "two.geojson"]
    for file, geometries in zip(files, ([country], blocks), strict=True):
        features = [{"type": "Feature", "properties": {}, "geometry": g} for g in geometries]
        file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    given = Path(f"{files[0]}:{files[1]}")
    kinds = {kind.name: kind for kind in benchmark.load_kinds(Options(polygons=given, limit=20))}
    assert (kinds["countries"].source, len(kinds["countries"].areas)) == ("one.geojson", 1)
    assert (kinds["neighborhoods"].source, len(kinds["neighborhoods"].areas)) == ("two.geojson", 12)
    assert (kinds["boroughs"].source, len(kinds["boroughs"].areas)) == ("generated", 5)
    assert all(kind.weights is None for kind in kinds.values())
    points = tmp_path / "points.csv"
    points.write_text("lng,lat\n0.05,0.02\n1.05,0.02\n")
    kinds = {k.name: k for k in benchmark.load_kinds(Options(polygons=given, data=points))}
    assert {name for name, kind in kinds.items() if kind.weights} == {"neighborhoods"}
    assert (
        benchmark.table(benchmark.run(Options(polygons=given, limit=1, repeats=1))).count("polygon-geohasher")
        >= 3
    )


@pytest.mark.parametrize("kind", benchmark.KINDS)
def test_generated_shapes_are_shapes(kind: str) -> None:
    areas = benchmark.generated(kind, 1)
    assert benchmark.kind_of(areas) == kind
    assert areas == benchmark.generated(kind, 1)
    vertices = [len(benchmark._positions(area.geometry["coordinates"])) for area in areas]
    assert max(vertices) > {"neighborhoods": 100, "boroughs": 20_000, "countries": 2000}[kind]
    for area in areas[:5]:
        assert geometry_to_region(area.geometry).bounds


def test_a_shape_that_is_left_to_the_server_is_said_to_be() -> None:
    hemisphere = Area("half", {"type": "Polygon", "coordinates": [[[0, 0], [120, 0], [-120, 0], [0, 0]]]})
    square = Area("square", {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]})
    kind = benchmark.Kind("countries", [hemisphere, square], "here", None)
    result = benchmark._measured(kind, Options(repeats=1, limit=2))
    assert result["unsupported"][0].startswith("half: a ring is a hemisphere")
    assert result["variants"]["ours"]["shapes"] == 1


def test_geohash_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["geohash", "--limit", "3000", "--repeats", "1", "--json"]) == 0
    result = last_json(capsys.readouterr().out)
    assert result["equal"] is True
    assert set(result["variants"]) == set(result["ratio"])
    assert all(values["per_cpu_s"] > 0 for values in result["variants"].values())
    assert result["unsure"] < 30
    assert command.main(["geohash", "--limit", "3000", "--repeats", "1"]) == 0
    assert "equal to pygeohash" in capsys.readouterr().out
    assert np.isfinite(result["variants"]["cells"]["per_s"])
