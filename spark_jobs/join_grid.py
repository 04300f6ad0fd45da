"""Polygons on a grid, so that a point is looked up, not searched for: what workers are sent in the place of shapes.

Each box of a grid of longitudes and latitudes knows its *class*, the polygons that hold all of it, and its *spots*: the
polygons whose border may pass through it, each with the few edges that do (`join_raster`). A point in a box without
spots needs one look-up. A box with very many edges is a grid of its own.

Edges are never cut and never bent, and boxes are told from edges with the tolerance of `spatialnosql.edges`: so the
answer is that of `Region.settle`, for every tolerance up to that one.

Sent to workers as it is: numpy only. A grid is a dictionary of arrays, which anyone can unpickle.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyspark import cloudpickle

from spark_jobs.join_raster import Frame, Raster, rasterize
from spatialnosql.edges import (
    C0,
    C1,
    C2,
    HI,
    HI_NEAR,
    LO,
    LO_NEAR,
    NORTH,
    SIGN,
    SOUTH,
    Edges,
    Floats,
    Ints,
    ragged,
)
from spatialnosql.region import IN, OUT, UNSURE, Status

Arrays: TypeAlias = dict[str, NDArray[Any]]
Box: TypeAlias = tuple[float, float, float, float]  # west, south, east, north

KEPT = [LO, HI, LO_NEAR, HI_NEAR, SOUTH, NORTH, C0, C1, C2, SIGN]
"""What looking up needs of an edge, in this order."""
MOST_BOXES = 1 << 22

_BOXES_PER_EDGE = 40
_FEWEST_BOXES = 1 << 8
_MANY_EDGES = 40  # of one box: then it becomes a grid
_MOST_GRIDS = 2_000
_NARROWEST_DEG = 1e-5  # of a box: more than the tolerance by far
_MARGIN_DEG = 1e-8

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class _Task(NamedTuple):
    """A grid to be made: over which box, of which edges and polygons."""

    box: Box
    edges: Ints  # numbers of edges
    owner: Ints  # of each, a position in `polygons`
    polygons: Ints
    base: NDArray[np.int64]
    inside: int  # the class of everything in it
    code: int  # where the number of this grid is to be written


def build_grid(
    tables: Sequence[Floats], poles: Sequence[int], box: Box, *, most_boxes: int = MOST_BOXES
) -> Arrays:
    """The grid over a box for polygons, each given by its table of edges and its winding number at the north pole.

    What lies outside the box is in no polygon, as far as the grid knows.
    """
    grid = _Builder(np.concatenate([np.zeros((0, 13)), *tables])).built(tables, poles, box, most_boxes)
    return grid | {"table_starts": _starts([len(one) for one in tables]), "poles": np.asarray(poles)}


class _Builder:
    """Grids as they are made; all lists have one part for each of them."""

    def __init__(self, edges: Floats) -> None:
        self._edges = [edges]
        self._edge_count = len(edges)
        self._sets: list[tuple[int, ...]] = [()]
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._frames: list[Frame] = []
        self._codes: list[NDArray[np.int32]] = []
        self._code_count = 0
        self._spots: list[Arrays] = []
        self._border_count = 0
        self._tasks: list[_Task] = []
        self._grid_codes: list[int] = []

    def built(self, tables: Sequence[Floats], poles: Sequence[int], box: Box, most_boxes: int) -> Arrays:
        owner = np.repeat(np.arange(len(tables)), [len(one) for one in tables])
        # A hair wider, so that a point on the eastern or northern side is in the last box.
        wider = (box[0] - _MARGIN_DEG, box[1] - _MARGIN_DEG, box[2] + _MARGIN_DEG, box[3] + _MARGIN_DEG)
        base = np.asarray(poles, dtype=np.int64)
        self._add(_Task(wider, np.arange(owner.size), owner, np.arange(base.size), base, 0, -1), most_boxes)
        while self._tasks:
            self._add(self._tasks.pop(), most_boxes)
        return self._arrays()

    def _add(self, task: _Task, most_boxes: int) -> None:
        frame = _frame(task.box, task.edges.size, most_boxes)
        table = self._table()[task.edges]
        raster = rasterize(table, task.owner, task.base, frame)
        # Numbers of edges and steps as they are in the whole.
        known = np.concatenate([task.edges, self._edge_count + np.arange(len(raster.steps))])
        self._edges.append(raster.steps)
        self._edge_count += len(raster.steps)
        codes = np.full(frame.columns * frame.rows, task.inside, dtype=np.int32)
        self._fill(codes, raster, task.polygons)
        border, first = np.unique(raster.spots.box, return_index=True)
        sizes = np.diff(np.append(first, raster.spots.box.size))
        inside = codes[border].astype(np.int64)
        start = self._code_count
        codes[border] = -1 - self._border_count - np.arange(border.size)
        self._frames.append(frame)
        self._grid_codes.append(task.code)
        self._codes.append(codes)
        self._code_count += codes.size
        self._border_count += border.size
        self._spots.append(
            {
                "border_class": inside,
                "border_sizes": sizes,
                "spot_polygon": task.polygons[raster.spots.polygon],
                "spot_base": raster.spots.base,
                "spot_sizes": raster.spots.sizes,
                "spot_edges": known[raster.spots.edges],
            }
        )
        if min(frame.width, frame.height) / 2 > _NARROWEST_DEG:
            self._split(raster, task, frame, known, border, first, sizes, inside, start)

    def _table(self) -> Floats:
        if len(self._edges) > 1:
            self._edges = [np.concatenate(self._edges)]
        return self._edges[0]

    def _fill(self, codes: NDArray[np.int32], raster: Raster, polygons: Ints) -> None:
        """Give the boxes of each polygon the class with that polygon in it; but not those that its border touches."""
        runs, spots = raster.runs, raster.spots
        first = np.flatnonzero(np.diff(runs.polygon, prepend=-1))
        ends = np.append(first[1:], runs.polygon.size)[: first.size]
        by_polygon = np.argsort(spots.polygon, kind="stable")
        touched, owner = spots.box[by_polygon], spots.polygon[by_polygon]
        for begin, end in zip(first.tolist(), ends.tolist(), strict=True):
            polygon = int(runs.polygon[begin])
            own = touched[slice(*np.searchsorted(owner, [polygon, polygon + 1]))]
            kept = codes[own]
            boxes = ragged(runs.start[begin:end], runs.length[begin:end])
            before = codes[boxes]
            if (before == before[:1]).all():
                codes[boxes] = self._class(int(before[0]), int(polygons[polygon]))
            else:
                present = np.flatnonzero(np.bincount(before))
                after = np.zeros(int(present[-1]) + 1, dtype=np.int32)
                after[present] = [self._class(one, int(polygons[polygon])) for one in present.tolist()]
                codes[boxes] = after[before]
            codes[own] = kept

    def _class(self, number: int, polygon: int) -> int:
        """The number of a set with a polygon more."""
        members = (*self._sets[number], polygon)
        found = self._numbers.get(members)
        if found is None:
            found = self._numbers[members] = len(self._sets)
            self._sets.append(members)
        return found

    def _split(
        self,
        raster: Raster,
        task: _Task,
        frame: Frame,
        known: Ints,
        border: Ints,
        first: Ints,
        sizes: Ints,
        inside: NDArray[np.int64],
        start: int,
    ) -> None:
        """Make grids of the boxes with very many edges: those with most first, and not too many."""
        spots = raster.spots
        ends = np.concatenate([[0], np.cumsum(spots.sizes)])
        held = ends[first + sizes] - ends[first]
        heavy = np.flatnonzero(held > _MANY_EDGES)
        room = _MOST_GRIDS - len(self._frames) - len(self._tasks)
        heavy = heavy[np.argsort(-held[heavy], kind="stable")[: max(room, 0)]]
        for number in heavy.tolist():
            own = slice(int(first[number]), int(first[number] + sizes[number]))
            edges = known[spots.edges[ends[own.start] : ends[own.stop]]]
            owner = np.repeat(np.arange(own.stop - own.start), spots.sizes[own])
            column, row = divmod(int(border[number]), frame.rows)
            west, south = frame.west + column * frame.width, frame.south + row * frame.height
            self._tasks.append(
                _Task(
                    (west, south, west + frame.width, south + frame.height),
                    edges,
                    owner,
                    task.polygons[spots.polygon[own]],
                    spots.base[own].astype(np.int64),
                    int(inside[number]),
                    start + int(border[number]),
                )
            )

    def _arrays(self) -> Arrays:
        # The last code is that of points outside of everything.
        codes = np.concatenate([*self._codes, np.zeros(1, dtype=np.int32)])
        starts = np.cumsum([0, *(part.size for part in self._codes)])
        for number, code in enumerate(self._grid_codes):
            if code >= 0:
                codes[code] = -1 - self._border_count - number
        frames = [
            (one.west, one.south, 1 / one.width, 1 / one.height, one.columns, one.rows, start)
            for one, start in zip(self._frames, starts.tolist(), strict=False)
        ]
        spots = {key: np.concatenate([part[key] for part in self._spots]) for key in self._spots[0]}
        return {
            "frames": np.array(frames, dtype=np.float64).T.copy(),
            "codes": codes,
            "class_starts": _starts([len(members) for members in self._sets]),
            "class_members": np.array([one for members in self._sets for one in members], dtype=np.int64),
            "border_class": spots["border_class"],
            "border_starts": _starts(spots["border_sizes"]),
            "spot_polygon": spots["spot_polygon"],
            "spot_base": spots["spot_base"],
            "spot_starts": _starts(spots["spot_sizes"]),
            "spot_edges": spots["spot_edges"],
            "edges": self._table()[:, KEPT].T.copy(),
        }


class SentRegion:
    """What `EdgeRegion` is to those who settle points, in a form that can be sent to workers."""

    rule = "positive"

    def __init__(self, edges: Edges, pole: int) -> None:
        self.edges, self._pole = edges, pole

    @classmethod
    def of(cls, grid: Arrays, polygon: int) -> SentRegion:
        """A polygon again, by what a grid has of it."""
        first, last = grid["table_starts"][polygon : polygon + 2].tolist()
        table = np.zeros((last - first, 13))
        table[:, KEPT] = grid["edges"][:, first:last].T
        return cls(Edges(table, geodesic=True), int(grid["poles"][polygon]))

    def settle(self, lng: Floats, lat: Floats, tolerance_rad: float) -> Status:
        """Points by their winding number; unsure within the tolerance of an edge."""
        total, near = self.edges.crossings(lng, lat, tolerance_rad)
        return np.where(near, UNSURE, np.where(total + self._pole > 0, IN, OUT)).astype(np.int8)


def _frame(box: Box, edges: int, most_boxes: int) -> Frame:
    """Boxes about as high as wide, on the ground; more of them for more edges."""
    west, south, east, north = box
    wanted = max(_FEWEST_BOXES, min(_BOXES_PER_EDGE * edges, most_boxes))
    middle = np.cos(np.radians(min(abs(south), abs(north)) if south * north > 0 else 0.0))
    ratio = (east - west) * max(float(middle), 0.05) / (north - south)
    columns = int(np.clip(np.sqrt(wanted * ratio), 1, wanted))
    rows = max(1, wanted // columns)
    # Boxes that are hardly wider than the tolerance would all be touched.
    columns = max(1, min(columns, int((east - west) / _NARROWEST_DEG)))
    rows = max(1, min(rows, int((north - south) / _NARROWEST_DEG)))
    return Frame(west, south, (east - west) / columns, (north - south) / rows, columns, rows)


def _starts(sizes: Any) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
