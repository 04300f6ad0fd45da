"""The benchmark ``ingest``: both variants write every row, and its numbers are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_options import QUICK_START

from benchmarks import ingest
from benchmarks.options import Options
from spark_jobs.session import build_session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("given", [False, True])
def test_the_numbers(cluster: Any, tmp_path: Path, given: bool) -> None:
    build_session("tests", master="local[2]", config=QUICK_START)  # the one of all tests
    data = None
    if given:  # fewer than asked for: they come over and over; bad ones are left out for both
        data = tmp_path / "given.parquet"
        pq.write_table(
            pa.table({"lng": [1.0, 2.0, None], "lat": [3.0, 91.0, 4.0], "x": ["a", "b", "c"]}), data
        )
    options = Options(data=data, limit=40 if given else 2000, repeats=1, uri=cluster.uri)
    result = ingest.run(options)
    rows = 40 if given else 2000
    part = result["queries"][str(rows)]
    assert result["equal"] is True
    assert set(part["variants"]) == {"script", "ingest"}
    assert all(variant["results"] == rows for variant in part["variants"].values())
    assert set(part["variants"]["ingest"]["phases"]) >= {"count", "place", "load", "index"}
    rates = [part["variants"][name]["docs_per_s"] for name in ("ingest", "script")]
    assert part["ratio_docs_per_s"]["ingest"] == pytest.approx(rates[0] / rates[1], abs=0.001)
    assert result["ratio_docs_per_s"] == part["ratio_docs_per_s"]
    text = ingest.table(result)
    assert f"{rows:,} rows: ingest / script" in text
    assert "both wrote every row" in text
