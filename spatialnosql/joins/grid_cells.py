"""The answer of `grid`: cells with what is in them, as rows or as GeoJSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bson.decimal128 import Decimal128
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geohash import (
    BITS,
    Cells,
    bounds_to_strings,
    cells_to_bounds,
    cells_to_ranges,
    cells_to_strings,
)
from spatialnosql.joins.tallies import AsOf
from spatialnosql.joins.weights import sort_key

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class GridCell:
    """One cell that is not empty."""

    cell: str  # its geohash where bits are a multiple of 5, else its bits: "0110..."
    lo: str  # its documents are those with lo <= gh < hi
    hi: str
    box: Box  # west, south, east, north
    count: int
    value: Any  # the measure that was asked for; the count where none was
    centre: tuple[float, float] | None  # longitude and latitude: the mean of its points
    low: int | None = None  # of an estimate: there were at least so many,
    high: int | None = None  # and at most so many

    def to_document(self) -> dict[str, Any]:
        """For JSON: decimals as doubles, and what is no finite number as null."""
        bounds = {} if self.low is None else {"low": self.low, "high": self.high}
        return {
            "cell": self.cell,
            "lo": self.lo,
            "hi": self.hi,
            "box": list(self.box),
            "count": self.count,
            "value": _for_json(self.value),
            "centre": None if self.centre is None else list(self.centre),
            **bounds,
        }

    def to_feature(self, *, centres: bool = False) -> dict[str, Any]:
        """As a GeoJSON feature: the cell's polygon, or with `centres` a point."""
        document = self.to_document()
        west, south, east, north = document.pop("box")
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        geometry: dict[str, Any] = {"type": "Polygon", "coordinates": [ring]}
        if centres:
            geometry = {"type": "Point", "coordinates": document.pop("centre")}
        name = document.pop("cell")
        return {"type": "Feature", "id": name, "properties": {"cell": name, **document}, "geometry": geometry}


@dataclass(frozen=True)
class Grid(Sequence[GridCell]):
    """The cells of a grid that are not empty, along the curve. `as_of` is None when they are of now."""

    rows: tuple[GridCell, ...]
    bits: int
    value: Any  # the measure of all cells together; the count where none was asked for
    how: str
    """In words: whether documents were read, and why."""
    centre_error: float | None = None
    """How far a centre may be off, in widths of its cell and as many heights; None: exact, or there are no centres."""
    unplaced: int = 0
    """Documents of the region that have no one place (several points, an area) and so are in no cell."""
    as_of: AsOf | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[GridCell]:
        return iter(self.rows)

    def __getitem__(self, position: Any) -> Any:
        return self.rows[position]

    @property
    def total(self) -> int:
        """The points of all cells together."""
        return sum(row.count for row in self.rows)

    def top(self, n: int) -> list[GridCell]:
        """The `n` cells of the greatest values; equal ones in the order of the grid, those without a value last."""
        valued = [row for row in self.rows if row.value is not None]
        ranked = sorted(valued, key=lambda row: sort_key(row.value), reverse=True)
        return (ranked + [row for row in self.rows if row.value is None])[:n]

    def to_geojson(self, *, centres: bool = False) -> dict[str, Any]:
        """A FeatureCollection of the cells as polygons, or with `centres` of their centres as points."""
        if centres and any(row.centre is None for row in self.rows):
            raise UsageError("this grid has no centres; ask for it with centre='index' or centre='exact'")
        features = [row.to_feature(centres=centres) for row in self.rows]
        return {"type": "FeatureCollection", "features": features}

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        as_of = None
        if self.as_of is not None:
            as_of = {
                "moment": self.as_of.moment.isoformat(),
                "points": self.as_of.points,
                "keys_read": self.as_of.keys_read,
            }
        return {
            "bits": self.bits,
            "total": self.total,
            "value": _for_json(self.value),
            "how": self.how,
            "centre_error": self.centre_error,
            "unplaced": self.unplaced,
            "as_of": as_of,
            "cells": [row.to_document() for row in self.rows],
        }


def _for_json(value: Any) -> Any:
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    return None if isinstance(number, float) and not math.isfinite(number) else number


def cell_names(cells: Cells, bits: int) -> list[str]:
    """Geohashes where bits are a multiple of 5, else the bits themselves; the one cell of 0 bits is ""."""
    if bits == 0:
        return [""] * len(cells)
    if bits % 5 == 0:
        names: list[str] = cells_to_strings(cells << np.uint64(BITS - bits), length=bits // 5).tolist()
        return names
    return [f"{cell:0{bits}b}" for cell in cells.tolist()]


def make_rows(
    cells: Cells,
    bits: int,
    counts: NDArray[np.int64],
    values: Sequence[Any] | None,
    centres: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> tuple[GridCell, ...]:
    """Rows of cells of a precision and what is known of each."""
    lo, hi = cells_to_ranges(cells, bits)
    numbers = counts.tolist()
    nothing: list[None] = [None] * len(numbers)
    places: Sequence[Any] = nothing
    if centres is not None:
        places = list(zip(centres[0].tolist(), centres[1].tolist(), strict=True))
    low, high = (nothing, nothing) if bounds is None else (bounds[0].tolist(), bounds[1].tolist())
    return tuple(
        map(
            GridCell,
            cell_names(cells, bits),
            bounds_to_strings(lo),
            bounds_to_strings(hi),
            zip(*(side.tolist() for side in cells_to_bounds(cells, bits)), strict=True),
            numbers,
            numbers if values is None else values,
            places,
            low,
            high,
        )
    )
