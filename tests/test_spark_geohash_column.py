"""The geohash columns against pygeohash and against our own vectorised geohash."""

from __future__ import annotations

import math
import random

import numpy as np
import pygeohash
import pytest
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_options import QUICK_START

from spark_jobs.geohash_column import cell_at, cell_column, cell_string, geohash_column
from spark_jobs.session import build_session
from spatialnosql import geohash

pytestmark = pytest.mark.spark


def point() -> tuple[Column, Column]:
    return F.col("lng"), F.col("lat")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    # One JVM serves every module of a run: the second call adopts what the first has started.
    return build_session("tests", master="local[2]", config=QUICK_START)


def around(values: list[float], limit: float) -> list[float]:
    """Each value and the doubles next to it, as far as they are on the axis."""
    steps = [math.nextafter(value, to) for value in values for to in (-math.inf, math.inf)]
    return [value for value in values + steps if -limit <= value <= limit]


def hard_values(limit: float, seed: int) -> list[float]:
    """Random coordinates, cell borders of every precision, their neighbours, and what is special."""
    chance = random.Random(seed)
    borders = [
        chance.randrange(2**bits + 1) * 2 * limit / 2**bits - limit for bits in range(31) for _ in range(20)
    ]
    special = [0.0, -0.0, limit, -limit, 1e-17, -1e-17, 5e-324, -5e-324, 1e-300, -1e-300, 45.0, -45.0]
    return around(borders + special, limit) + [chance.uniform(-limit, limit) for _ in range(1000)]


@pytest.fixture(scope="module")
def points() -> list[tuple[float, float]]:
    lngs, lats = hard_values(180.0, 1), hard_values(90.0, 2)
    random.Random(3).shuffle(lats)
    return list(zip(lngs, lats, strict=False))


def test_every_length_equals_pygeohash(spark: SparkSession, points: list[tuple[float, float]]) -> None:
    frame = spark.createDataFrame(points, "lng double, lat double")
    columns = [geohash_column(*point(), length).alias(f"gh{length}") for length in range(1, 13)]
    rows = frame.select("lng", "lat", *columns).collect()
    assert len(rows) == len(points) > 2000
    for row in rows:
        expected = pygeohash.encode(latitude=row["lat"], longitude=row["lng"], precision=12)
        assert [row[f"gh{length}"] for length in range(1, 13)] == [
            expected[:length] for length in range(1, 13)
        ], row


def test_cells_equal_the_library(spark: SparkSession, points: list[tuple[float, float]]) -> None:
    frame = spark.createDataFrame(points, "lng double, lat double")
    bits = (1, 2, 29, 30, 31, 59, 60)
    cells = [cell_at(cell_column(*point()), precision).alias(f"b{precision}") for precision in bits]
    rows = frame.select("lng", "lat", *cells).collect()
    lng, lat = np.array([row["lng"] for row in rows]), np.array([row["lat"] for row in rows])
    for precision in bits:
        got = np.array([row[f"b{precision}"] for row in rows], dtype=np.uint64)
        assert np.array_equal(got, geohash.points_to_cells(lng, lat, precision)), precision


@pytest.mark.parametrize(
    ("lng", "lat"),
    [
        (None, 1.0),
        (1.0, None),
        (math.nan, 1.0),
        (1.0, math.nan),
        (math.inf, 1.0),
        (1.0, -math.inf),
        (math.nextafter(180.0, 181.0), 1.0),
        (math.nextafter(-180.0, -181.0), 1.0),
        (1.0, math.nextafter(90.0, 91.0)),
        (1.0, -91.0),
    ],
)
def test_no_place_has_no_cell(spark: SparkSession, lng: float | None, lat: float | None) -> None:
    frame = spark.createDataFrame([(lng, lat), (1.0, 1.0)], "lng double, lat double")
    rows = frame.select(cell_column(*point()), geohash_column(*point(), 5)).collect()
    assert rows[0] == Row(None, None)
    assert None not in rows[1]


def test_text_is_read_as_numbers_or_as_null(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("-74.0", "40.7"), ("here", "40.7")], "lng string, lat string")
    rows = frame.select(geohash_column(*point(), 5)).collect()
    assert [row[0] for row in rows] == [pygeohash.encode(40.7, -74.0, 5), None]


@pytest.mark.parametrize("bits", [0, 61])
def test_precision_out_of_range(spark: SparkSession, bits: int) -> None:
    with pytest.raises(ValueError, match=f"{bits} bits"):
        cell_at(F.col("cell"), bits)


@pytest.mark.parametrize("length", [0, 13])
def test_length_out_of_range(spark: SparkSession, length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} characters"):
        cell_string(F.col("cell"), length)
