"""Polygons too many for every worker: the curve is cut into parts of even load, and each part has only its polygons.

Load is that of points, by a collection's statistics or a sample, and of edges, half each. A cell that has the load of
several parts cannot be cut: it is *salted*, its polygons repeated in several parts and its points spread over them.
Cells are those of the statistics, or of 60 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.geohash_column import cell_column
from spark_jobs.join_polygons import encoded_geometry, identities, shapes_of
from spark_jobs.join_worker import (
    BOUNDS,
    BOX,
    GEOMETRY,
    IDENTITY,
    KIND,
    MIRROR,
    NUMBER,
    PART,
    POLE,
    TABLE,
    X,
    Y,
)
from spark_jobs.screening import CELL
from spatialnosql.cover import Ranges, cover
from spatialnosql.edges import Floats, Ints, ragged
from spatialnosql.geohash import BITS, Cells, cells_to_bounds, merge_ranges
from spatialnosql.histogram import Histogram
from spatialnosql.joins.polygons import Polygons

SAMPLE = 200_000
POINTS_A_PART, EDGES_A_PART = 1_000_000, 200_000
MOST_PARTS = 2_000
_COVER_CELLS = 24
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class Parts:
    """Part i is ``[bounds[i], bounds[i + 1])`` of 60-bit cells, and there are ``copies[i]`` of it."""

    bounds: Cells
    copies: Ints

    @property
    def first(self) -> Ints:
        """The number of the first copy of each part."""
        return np.cumsum(self.copies) - self.copies

    @property
    def count(self) -> int:
        """How many there are, copies included."""
        return int(self.copies.sum())

    @property
    def salted(self) -> int:
        """How many copies share a cell with others."""
        return int(self.copies[self.copies > 1].sum())

    def of_ranges(self, ranges: Ranges) -> Ints:
        """The parts that ranges reach into, without copies."""
        first = np.searchsorted(self.bounds, ranges.lo, side="right") - 1
        last = np.searchsorted(self.bounds, ranges.hi - np.uint64(1), side="right") - 1
        return np.unique(ragged(first, last - first + 1))

    def box(self, part: int) -> tuple[float, float, float, float]:
        """A box that holds all points of a part: that of the smallest cell around it."""
        low, high = int(self.bounds[part]), int(self.bounds[part + 1]) - 1
        bits = BITS - (low ^ high).bit_length()
        return tuple(float(side) for side in cells_to_bounds(low >> (BITS - bits), bits))  # type: ignore[return-value]

    def column(self, cell: Column) -> Column:
        """The number of a row's part by its cell, which may be null; copies are taken in turn."""
        row = F.monotonically_increasing_id()
        numbers = [
            F.lit(int(first)) if copies == 1 else F.lit(int(first)) + F.pmod(row, F.lit(int(copies)))
            for first, copies in zip(self.first, self.copies, strict=True)
        ]
        cuts = self.bounds[1:-1].tolist()
        return F.coalesce(_search(cell, cuts, numbers, 0, len(cuts)), F.lit(0)).cast("int")


def _search(cell: Column, cuts: Sequence[int], numbers: Sequence[Column], low: int, high: int) -> Column:
    """A search by halves, written out as comparisons: compiled, not interpreted."""
    if low == high:
        return F.when(cell.isNotNull(), numbers[low])
    middle = (low + high) // 2
    before, after = _search(cell, cuts, numbers, low, middle), _search(cell, cuts, numbers, middle + 1, high)
    return F.when(cell < F.lit(cuts[middle]), before).otherwise(after)


@dataclass(frozen=True)
class Weights:
    """How many points are expected in cells of one width, given by their first 60-bit cells."""

    cells: Cells
    points: Floats
    width: int = 1

    @classmethod
    def of_histogram(cls, histogram: Histogram) -> Weights:
        """By the statistics of a collection."""
        width = 1 << (BITS - histogram.bits)
        return cls(histogram.cells * np.uint64(width), histogram.counts.astype(np.float64), width)

    @classmethod
    def of_sample(cls, points: DataFrame) -> Weights:
        """By some of the points themselves."""
        rows = points.count()
        share = min(1.0, SAMPLE / max(rows, 1))
        chosen = points if share == 1.0 else points.sample(fraction=share, seed=1)
        found = (
            chosen.select(cell_column(F.col(X), F.col(Y)).alias("cell")).where("cell IS NOT NULL").toArrow()
        )
        cells = found.column("cell").to_numpy().astype(np.uint64)
        return cls(cells, np.full(cells.size, 1 / share))

    def within(self, ranges: Ranges) -> Weights:
        """Those of cells that ranges reach."""
        last = self.cells + np.uint64(self.width - 1)
        at = np.searchsorted(ranges.hi, self.cells, side="right")
        reached = at < len(ranges)
        reached[reached] = ranges.lo[at[reached]] <= last[reached]
        return Weights(self.cells[reached], self.points[reached], self.width)


def cut(cells: Cells, load: Floats, wanted: int, width: int = 1) -> Parts:
    """Parts of even load; `cells` in any order, each with its load, and all so wide.

    Where several cuts fall into one cell, it becomes a part of its own, with as many copies.
    """
    ends = np.array([0, 1 << BITS], dtype=np.uint64)
    if not cells.size or wanted < 2:
        return Parts(ends, np.ones(1, dtype=np.intp))
    order = np.argsort(cells)
    places, total = cells[order], np.cumsum(load[order])
    at = np.searchsorted(total, np.arange(1, wanted) * (total[-1] / wanted))
    cuts, times = np.unique(places[np.minimum(at, places.size - 1)], return_counts=True)
    hot, copies_of_hot = cuts[times > 1], times[times > 1]
    after = hot + np.uint64(width)
    # No other cut within a hot cell: its polygons are those of all of it.
    inside = Ranges(hot, after).contains(cuts) & (times == 1)
    bounds = np.unique(np.concatenate([ends, cuts[~inside], after]))
    copies = np.ones(bounds.size - 1, dtype=np.intp)
    copies[np.searchsorted(bounds, hot)] = copies_of_hot
    return Parts(bounds, copies)


def plan_parts(weights: Weights, covers: Sequence[Ranges], edges: Ints, cores: int) -> Parts:
    """The parts for points, as far as polygons with so many edges each reach: half of the load are the edges."""
    reached = weights.within(Ranges(*_merged(covers)))
    total, all_edges = float(reached.points.sum()), int(edges.sum())
    wanted = max(2 * cores, total / POINTS_A_PART, all_edges / EDGES_A_PART)
    sizes = [len(one) for one in covers]
    starts = np.concatenate([np.zeros(0, dtype=np.uint64), *(one.lo for one in covers)])
    starts -= starts % np.uint64(weights.width)  # cut between the same cells
    of_edges = np.repeat(edges / np.maximum(sizes, 1), sizes) / max(all_edges, 1)
    cells = np.concatenate([reached.cells, starts])
    load = np.concatenate([reached.points / max(total, 1.0), of_edges])
    return cut(cells, load, int(np.ceil(min(wanted, MOST_PARTS))), weights.width)


def _merged(covers: Sequence[Ranges]) -> tuple[Cells, Cells]:
    nothing = np.zeros(0, dtype=np.uint64)
    return merge_ranges(
        np.concatenate([nothing, *(one.lo for one in covers)]),
        np.concatenate([nothing, *(one.hi for one in covers)]),
    )


def coarse_covers(polygons: Polygons) -> list[Ranges]:
    """Ranges that hold the polygons, few for each: enough to say in which parts they lie."""
    return [
        cover(polygon.region, max_cells=_COVER_CELLS).outer
        for polygon in polygons
        if polygon.region is not None
    ]


def polygon_rows(
    spark: SparkSession, polygons: Polygons, covers: Sequence[Ranges], parts: Parts, *, geometries: bool
) -> DataFrame:
    """One row for each polygon and each part that it reaches into."""
    numbers, shapes = shapes_of(polygons)
    ids = identities(polygons)
    columns: dict[str, list[Any]] = {name: [] for name in _POLYGON_TYPES}
    first = parts.first
    boxes: dict[int, bytes] = {}
    for number, shape, ranges in zip(numbers, shapes, covers, strict=True):
        for part in parts.of_ranges(ranges).tolist():
            box = boxes.setdefault(part, np.array(parts.box(part)).tobytes())
            for copy in range(int(parts.copies[part])):
                columns[PART].append(int(first[part]) + copy)
                columns[NUMBER].append(number)
                columns[IDENTITY].append(ids[number])
                columns[TABLE].append(np.ascontiguousarray(shape.table).tobytes())
                columns[POLE].append(shape.pole)
                columns[MIRROR].append(shape.north)
                columns[BOUNDS].append(np.array(shape.bounds).tobytes())
                columns[BOX].append(box)
                columns[GEOMETRY].append(encoded_geometry(polygons, number) if geometries else None)
    kinds = _POLYGON_TYPES | {IDENTITY: pa.int64() if ids and isinstance(ids[0], int) else pa.string()}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    # In pieces, because what a frame is made of goes to its tasks with their code.
    each = max(1, table.num_rows * _PIECE_BYTES // max(table.nbytes, 1))
    pieces = [table.slice(start, each) for start in range(0, max(table.num_rows, 1), each)]
    frames = [spark.createDataFrame(piece) for piece in pieces]
    return functools.reduce(DataFrame.unionAll, frames).withColumn(KIND, F.lit(0))


_POLYGON_TYPES: dict[str, Any] = {
    PART: pa.int32(),
    NUMBER: pa.int64(),
    IDENTITY: pa.string(),
    TABLE: pa.binary(),
    POLE: pa.int64(),
    MIRROR: pa.int64(),
    BOUNDS: pa.binary(),
    BOX: pa.binary(),
    GEOMETRY: pa.binary(),
}


def co_partitioned(points: DataFrame, polygons: DataFrame, parts: Parts) -> DataFrame:
    """Points and polygons in one frame, each part a partition of its own, polygons first."""
    celled = points.withColumn(CELL, cell_column(F.col(X), F.col(Y)))
    placed = celled.withColumn(PART, parts.column(F.col(CELL))).withColumn(KIND, F.lit(1)).drop(CELL)
    both = polygons.unionByName(placed, allowMissingColumns=True)
    return both.repartitionById(parts.count, F.col(PART)).sortWithinPartitions(PART, KIND)
