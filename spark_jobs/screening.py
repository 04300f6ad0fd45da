"""Which rows are fit to be stored, and what is wrong with the others: columns of native Spark, nothing dropped.

The names of the faults are those of `spatialnosql.quality`, and a few that only a source of rows can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.geohash_column import cell_column
from spark_jobs.moments import moment_ms
from spark_jobs.points import LAT_NAMES, LNG_NAMES, find_column, location_columns, quoted
from spark_jobs.sources import CORRUPT
from spatialnosql.errors import UsageError
from spatialnosql.geohash import cells_to_points
from spatialnosql.histogram import Histogram

X, Y, CELL, FAULT = "__lng", "__lat", "__cell", "__fault"
AT = "__at_ms"
"""The time of a row in milliseconds since 1970, where rows have one."""

MALFORMED, MISSING, NOT_A_NUMBER, NOT_A_POINT = "malformed", "missing", "not_a_number", "not_a_point"
OUT_OF_RANGE, SWAPPED, NULL_ISLAND, OUTSIDE = "out_of_range", "swapped", "null_island", "outside"
MISSING_KEY, BAD_TIME = "missing_key", "bad_time"

WORDS = {
    MALFORMED: "the line is no row",
    MISSING: "no coordinates",
    NOT_A_NUMBER: "coordinates that are no numbers",
    NOT_A_POINT: "a location that is no point",
    OUT_OF_RANGE: "off the globe",
    SWAPPED: "longitude and latitude have changed places",
    NULL_ISLAND: "at 0, 0",
    OUTSIDE: "outside the bounds",
    MISSING_KEY: "no key",
    BAD_TIME: "a time that is none",
}

HOME_SHARE = 0.98
"""The home of a batch is the box around this share of its points, in each direction."""
HOME_DEGREES = 20.0
"""A home larger than that is no home: in data of half the world any place may be meant."""
HOME_MARGIN = 1.0


@dataclass(frozen=True)
class Box:
    """Bounds in degrees, closed."""

    west: float
    south: float
    east: float
    north: float

    def holds(self, x: Column, y: Column) -> Column:
        """Whether points are inside."""
        return x.between(self.west, self.east) & y.between(self.south, self.north)

    @property
    def mirrored(self) -> Box:
        """Where its points come to lie when longitude and latitude change places."""
        return Box(self.south, self.west, self.north, self.east)

    def meets(self, other: Box) -> bool:
        """Whether two boxes have a point in common."""
        return not (
            self.east < other.west or other.east < self.west
            or self.north < other.south or other.north < self.south
        )  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """How strict to be."""

    bounds: Box | None = None
    reject_zero: bool = False
    find_swapped: bool = True
    keys: tuple[str, ...] = ()
    home: Box | None = None
    """Where the points of this batch lie, if they lie together (`home_of`)."""
    time: str | None = None
    """The column of times, if they matter: then rows have `AT` too, null for those without a time."""


def screened(
    rows: DataFrame,
    rules: Rules,
    *,
    lng: str | None = None,
    lat: str | None = None,
    point: str | None = None,
) -> DataFrame:
    """The rows with `X`, `Y`, their 60-bit `CELL`, and `FAULT`: null for those that are fit to be stored."""
    if point is not None:
        raw_x, raw_y = location_columns(rows, point, "--point")
        given = F.col(quoted(find_column(rows.columns, point, (), "--point")))
        absent, present = given.isNull(), NOT_A_POINT
    else:
        raw_x, raw_y = (F.col(quoted(name)) for name in coordinate_columns(rows.columns, lng, lat))
        absent, present = raw_x.isNull() | raw_y.isNull(), NOT_A_NUMBER
    placed = rows.withColumns({X: raw_x.try_cast("double"), Y: raw_y.try_cast("double")})
    x, y = F.col(X), F.col(Y)
    fault = F.lit(None).cast("string")
    # From the least grave to the gravest: the last one that applies is said.
    if rules.time is not None:
        given = F.col(quoted(rules.time))
        placed = placed.withColumn(AT, moment_ms(given, rows.schema[rules.time].dataType, rules.time))
        fault = F.when(given.isNotNull() & F.col(AT).isNull(), BAD_TIME).otherwise(fault)
    for key in rules.keys:
        fault = F.when(F.col(quoted(key)).isNull(), MISSING_KEY).otherwise(fault)
    if rules.bounds is not None:
        fault = F.when(~rules.bounds.holds(x, y), OUTSIDE).otherwise(fault)
    home = rules.bounds or rules.home
    if rules.find_swapped and home is not None:
        fault = F.when(~home.holds(x, y) & home.holds(y, x), SWAPPED).otherwise(fault)
    if rules.reject_zero:
        fault = F.when((x == 0) & (y == 0), NULL_ISLAND).otherwise(fault)
    off = (F.abs(x) > 180) | (F.abs(y) > 90)
    likely = home.holds(y, x) if home is not None else (F.abs(x) <= 90) & (F.abs(y) <= 180)
    wrong = F.when(likely, SWAPPED).otherwise(OUT_OF_RANGE)
    fault = F.when(off, wrong if rules.find_swapped else OUT_OF_RANGE).otherwise(fault)
    # Spark takes NaN for greater than every number, so it is told apart here, above all the rest.
    fault = F.when(x.isNull() | y.isNull() | F.isnan(x) | F.isnan(y), present).otherwise(fault)
    fault = F.when(absent, MISSING).otherwise(fault)
    if CORRUPT in rows.columns:
        fault = F.when(F.col(CORRUPT).isNotNull(), MALFORMED).otherwise(fault)
    return placed.withColumn(CELL, cell_column(x, y)).withColumn(FAULT, fault)


def coordinate_columns(columns: Sequence[str], lng: str | None, lat: str | None) -> tuple[str, str]:
    """The names of the two columns: given, or the usual ones."""
    return find_column(columns, lng, LNG_NAMES, "--lon"), find_column(columns, lat, LAT_NAMES, "--lat")


def home_of(histogram: Histogram) -> Box | None:
    """The box in which nearly all points lie, if it is small and apart from its own mirror image.

    Only then is a point of the mirror image more likely swapped than far from home: 40.7 E, 74 S in data of New York.
    """
    if not histogram.total:
        return None
    lngs, lats = cells_to_points(histogram.cells, histogram.bits)
    edges = []
    for values in (lngs, lats):
        order = np.argsort(values)
        sums = np.cumsum(histogram.counts[order])
        tail = histogram.total * (1 - HOME_SHARE) / 2
        low, high = np.searchsorted(sums, [tail, histogram.total - tail])
        edges.append((float(values[order][low]), float(values[order][min(high, len(sums) - 1)])))
    (west, east), (south, north) = edges
    if east - west > HOME_DEGREES or north - south > HOME_DEGREES:
        return None
    box = Box(west - HOME_MARGIN, south - HOME_MARGIN, east + HOME_MARGIN, north + HOME_MARGIN)
    return None if box.meets(box.mirrored) else box


def points_inside(histogram: Histogram, box: Box) -> int:
    """How many points are in cells that a box may touch."""
    lngs, lats = cells_to_points(histogram.cells, histogram.bits)
    slack = 360.0 / 2 ** (histogram.bits // 2)
    inside = (
        (lngs >= box.west - slack) & (lngs <= box.east + slack)
        & (lats >= box.south - slack) & (lats <= box.north + slack)
    )  # fmt: skip
    return int(histogram.counts[inside].sum())


def parse_bounds(text: str) -> Box:
    """``WEST,SOUTH,EAST,NORTH`` in degrees."""
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--bounds {text}: four numbers are needed, WEST,SOUTH,EAST,NORTH") from None
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise UsageError(f"--bounds {text}: west must be less than east, south less than north, on the globe")
    return Box(west, south, east, north)
