"""The picture of a choice of precision: drawn in every format, and refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.precision_plot import FORMATS, check_plot, draw_precisions
from spatialnosql.skew import Choice, choose_precision


def choice(points: int) -> Choice:
    rng = np.random.default_rng(3)
    lng, lat = rng.normal(2.35, 0.05, points), rng.normal(48.86, 0.05, points)
    return choose_precision(Histogram.of_points(lng, lat, 40), 3)


@pytest.mark.parametrize("points", [0, 1, 5000])
@pytest.mark.parametrize("suffix", FORMATS)
def test_it_is_drawn(suffix: str, points: int, tmp_path: Path) -> None:
    path = tmp_path / f"precisions{suffix}"
    draw_precisions(choice(points), path, "city.trips")
    assert path.stat().st_size > 2_000


def test_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    made = choice(5000)
    path = tmp_path / "precisions.svg"
    draw_precisions(made, path, "city.trips")
    drawn = path.read_text()
    assert f"city.trips: {made.bits} bits chosen for 3 shards" in drawn
    for row in made.table:
        assert f"{row.imbalance:.2f}" in drawn


def test_what_cannot_be_drawn_is_refused_at_once(tmp_path: Path) -> None:
    check_plot(None)
    with pytest.raises(UsageError, match=r"must end with \.png"):
        check_plot(tmp_path / "precisions.jpeg")
    with pytest.raises(UsageError, match="there is no folder"):
        check_plot(tmp_path / "nowhere" / "precisions.png")
