"""The cells of a plan: a grid over the extent of the objects it was made from.

A place outside belongs to the nearest cell of the border. Every step from a coordinate to a column keeps order, so that
a place within a box is in one of the columns between those of its west and its east.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.objects import Objects


@dataclass(frozen=True)
class Grid:
    """`columns` x `rows` equal cells; cell number ``row * columns + column``."""

    west: float
    south: float
    east: float
    north: float
    columns: int
    rows: int

    def __post_init__(self) -> None:
        if not (self.west < self.east and self.south < self.north and self.columns > 0 and self.rows > 0):
            raise UsageError(f"{self} has no cells; east must be east of west, north north of south")

    @classmethod
    def whole(cls) -> Grid:
        """The world as one cell."""
        return cls(-180.0, -90.0, 180.0, 90.0, 1, 1)

    @classmethod
    def around(cls, objects: Objects, side: int) -> Grid:
        """`side` x `side` cells over the objects that have a place."""
        there = objects.x >= 0
        if not there.any():
            return cls(-180.0, -90.0, 180.0, 90.0, side, side)
        lng, lat = objects.lng[there], objects.lat[there]
        west, south = float(lng.min()), float(lat.min())
        # One place only still makes a grid.
        east, north = max(float(lng.max()), west + 1e-6), max(float(lat.max()), south + 1e-6)
        return cls(west, south, east, north, side, side)

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.columns * self.rows

    @property
    def frame(self) -> NDArray[np.float64]:
        """What the loops read: west, south, columns and rows a degree, columns, rows."""
        return np.array(
            [
                self.west,
                self.south,
                self.columns / (self.east - self.west),
                self.rows / (self.north - self.south),
                self.columns,
                self.rows,
            ]
        )

    def cells_of(self, objects: Objects) -> NDArray[np.int32]:
        """The cell of every object; -1 for one that has no place."""
        cells = np.empty(len(objects), dtype=np.int32)
        _cells_of(objects.x, objects.lng, objects.lat, self.frame, cells)
        return cells

    def spans_of(self, bounds: NDArray[np.float64]) -> NDArray[np.int32]:
        """The columns and rows that boxes touch, both ends included.

        First and last column, first and last row, and first and last column of the part beyond the antimeridian (0, -1
        where there is none).
        """
        spans = np.empty((len(bounds), 6), dtype=np.int32)
        _spans_of(bounds, self.frame, spans)
        return spans

    def to_document(self) -> dict[str, Any]:
        """The grid as JSON has it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Grid:
        """What `to_document` gave."""
        return cls(**document)


@compiled
def along(value: float, least: float, per_degree: float, count: int) -> int:
    """The column (or row) of a coordinate."""
    place = (value - least) * per_degree
    if place < 1.0:
        return 0
    if place >= count:
        return count - 1
    return int(place)


@compiled
def _cells_of(x: Array, lng: Array, lat: Array, frame: Array, cells: Array) -> None:
    columns, rows = int(frame[4]), int(frame[5])
    for i in range(lng.size):
        cells[i] = -1
        if x[i] >= 0:
            row = along(lat[i], frame[1], frame[3], rows)
            cells[i] = row * columns + along(lng[i], frame[0], frame[2], columns)


@compiled
def _spans_of(bounds: Array, frame: Array, spans: Array) -> None:
    columns, rows = int(frame[4]), int(frame[5])
    for i in range(bounds.shape[0]):
        spans[i, 0] = along(bounds[i, 0], frame[0], frame[2], columns)
        spans[i, 1] = along(bounds[i, 2], frame[0], frame[2], columns)
        spans[i, 2] = along(bounds[i, 1], frame[1], frame[3], rows)
        spans[i, 3] = along(bounds[i, 3], frame[1], frame[3], rows)
        spans[i, 4], spans[i, 5] = 0, -1
        if bounds[i, 0] > bounds[i, 2]:  # across the antimeridian
            spans[i, 5] = spans[i, 1]
            spans[i, 1] = columns - 1
