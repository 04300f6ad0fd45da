"""Edges laid over a grid of boxes: which boxes lie inside which polygons, and which edges matter in the others.

Boxes are numbered column by column, from the west, each from the south. An edge *touches* a box if it comes within the
tolerance of it. In a column, whatever does not touch a box lies north or south of it over the whole width: so all that
a point's winding number needs is the edges that touch its box, and the sum of those north of it. The latter is the same
all over a box's width but for the places where the chain of edges dips into the box: there a *step* stands, which is an
edge from that longitude on, north of everything.

Sent to workers as it is: numpy only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark import cloudpickle

import spatialnosql.leaf_cells  # noqa: F401 - sent along
from spatialnosql.edges import (
    C0,
    C2,
    HI,
    HI_NEAR,
    LO,
    LO_NEAR,
    NORTH,
    SIGN,
    SOUTH,
    STEEP,
    TOLERANCE_DEG,
    TURN_LAT,
    TURN_LNG,
    Floats,
    Ints,
    ragged,
)

_SLACK_DEG = 1e-9
"""The box of a point is found by rounded arithmetic, so every box is taken to be so much wider."""

for _module in (__name__, "spatialnosql.edges", "spatialnosql.leaf_cells"):
    cloudpickle.register_pickle_by_value(sys.modules[_module])  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Frame:
    """A grid of boxes."""

    west: float
    south: float
    width: float  # of a box, in degrees
    height: float
    columns: int
    rows: int


@dataclass(frozen=True)
class Runs:
    """Boxes in a row that lie in a polygon, or touch its border; sorted by polygon."""

    polygon: Ints
    start: Ints
    length: Ints


@dataclass(frozen=True)
class Spots:
    """Boxes that the border of a polygon touches, sorted by box and polygon.

    `base` is the winding number that edges north of the box sum up to at its western side; `edges` has `sizes` members
    for each spot: numbers of edges, and from their number on, of steps.
    """

    box: Ints
    polygon: Ints
    base: Ints
    sizes: Ints
    edges: Ints


@dataclass(frozen=True)
class Raster:
    """What became of the edges; `steps` are rows as those of edges."""

    runs: Runs
    spots: Spots
    steps: Floats


@dataclass(frozen=True)
class _Spans:
    """An edge in a column: it touches the rows from `low` to `high`; `low` is the number of rows if it is above."""

    edge: Ints
    column: Ints
    low: Ints
    high: Ints
    group: Ints  # of column and polygon


def rasterize(table: Floats, owner: Ints, base: NDArray[np.int64], frame: Frame) -> Raster:
    """Lay the edges of polygons over a grid: edge i is one of polygon ``owner[i]``.

    `base` is the winding number of each polygon north of everything.
    """
    polygons = base.size
    spans = _spans(table, owner, frame, polygons)
    keys, sums = _windings(table, spans, base, frame, polygons)
    return _raster(table, spans, keys, sums, frame, polygons)


def _spans(table: Floats, owner: Ints, frame: Frame, polygons: int) -> _Spans:
    tolerance = TOLERANCE_DEG + _SLACK_DEG
    first = np.floor((table[:, LO_NEAR] - _SLACK_DEG - frame.west) / frame.width)
    last = np.floor((table[:, HI_NEAR] + _SLACK_DEG - frame.west) / frame.width)
    there = np.flatnonzero((last >= 0) & (first < frame.columns))
    begin = np.maximum(first[there], 0).astype(np.intp)
    sizes = np.minimum(last[there], frame.columns - 1).astype(np.intp) - begin + 1
    edge, column = np.repeat(there, sizes), ragged(begin, sizes)
    south, north = table[edge, SOUTH], table[edge, NORTH]
    # Over several columns an edge reaches only some of its latitudes in each.
    wide = np.flatnonzero((first != last)[edge] & (table[edge, STEEP] == 0) & np.isfinite(south))
    south[wide], north[wide] = _latitudes(table[edge[wide]], column[wide], frame)
    low = np.floor((south - tolerance - frame.south) / frame.height)
    high = np.floor((north + tolerance - frame.south) / frame.height)
    kept = np.flatnonzero(high >= 0)  # what is south of everything says nothing
    edge, column = edge[kept], column[kept]
    low, high = np.clip(low[kept], 0, frame.rows), np.minimum(high[kept], frame.rows)
    return _Spans(edge, column, low.astype(np.intp), high.astype(np.intp), column * polygons + owner[edge])


def _latitudes(part: Floats, column: Ints, frame: Frame) -> tuple[Floats, Floats]:
    """The southernmost and the northernmost latitude of each edge in a column, and a little to its sides."""
    reach = part[:, HI_NEAR] - part[:, HI] + _SLACK_DEG
    west = frame.west + column * frame.width
    left = np.maximum(west - reach, part[:, LO])
    right = np.maximum(np.minimum(west + frame.width + reach, part[:, HI]), part[:, LO])
    left = np.minimum(left, right)
    a, b = _latitude_at(part, left), _latitude_at(part, right)
    south, north = np.minimum(a, b), np.maximum(a, b)
    turns = (part[:, TURN_LNG] >= left) & (part[:, TURN_LNG] <= right)
    return (
        np.where(turns, np.minimum(south, part[:, TURN_LAT]), south),
        np.where(turns, np.maximum(north, part[:, TURN_LAT]), north),
    )


def _latitude_at(rows: Floats, lng: Floats) -> Floats:
    angle = np.radians(lng)
    c0, c1, c2 = rows[:, C0 : C2 + 1].T
    latitude: Floats = np.degrees(np.arctan2(-(c0 * np.cos(angle) + c1 * np.sin(angle)), c2))
    return latitude


def _windings(
    table: Floats, spans: _Spans, base: NDArray[np.int64], frame: Frame, polygons: int
) -> tuple[Ints, Ints]:
    """On the western side of each column, from the north: where winding numbers change, and what they become.

    A key is the group and the number of rows down to the edge. All rows south of it, up to the next key, have the sum.
    """
    west = _western_sides(spans.column, frame)
    crossing = np.flatnonzero((table[spans.edge, LO] <= west) & (west < table[spans.edge, HI]))
    down = frame.rows - spans.low[crossing]
    keys = spans.group[crossing] * (frame.rows + 1) + down
    signs = np.rint(table[spans.edge[crossing], SIGN]).astype(np.intp)
    around = np.flatnonzero(base)
    groups = (np.arange(frame.columns)[:, None] * polygons + around[None, :]).ravel()
    keys = np.concatenate([keys, groups * (frame.rows + 1)])
    signs = np.concatenate([signs, np.tile(base[around].astype(np.intp), frame.columns)])
    order = np.argsort(keys, kind="stable")
    keys, total = keys[order], np.cumsum(signs[order])
    group = keys // (frame.rows + 1)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    before = np.concatenate([[0], total])[first]
    return keys, total - np.repeat(before, np.diff(np.append(first, keys.size)))


def _western_sides(column: Ints, frame: Frame) -> Floats:
    return frame.west + column.astype(np.float64) * frame.width - _SLACK_DEG


def _raster(table: Floats, spans: _Spans, keys: Ints, sums: Ints, frame: Frame, polygons: int) -> Raster:
    spots, names = _spots(spans, frame, polygons)
    # The sum of what is north of a spot: the last key before its row.
    row, group = spots.box % frame.rows, spots.box // frame.rows * polygons + spots.polygon
    at = np.searchsorted(keys, group * (frame.rows + 1) + frame.rows - row, side="left") - 1
    at = np.maximum(at, 0) if keys.size else np.zeros(0, dtype=np.intp)
    if keys.size:
        base = np.where(keys[at] // (frame.rows + 1) == group, sums[at], 0)
        base[keys[at] >= group * (frame.rows + 1) + frame.rows - row] = 0
    else:
        base = np.zeros(spots.box.size, dtype=np.intp)
    steps, step_spot, step_number = _steps(table, spans, names, frame, polygons)
    edges = np.concatenate([spots.edges, step_number + len(table)])
    of_spot = np.concatenate([np.repeat(np.arange(spots.box.size), spots.sizes), step_spot])
    order = np.argsort(of_spot, kind="stable")
    sizes = np.bincount(of_spot, minlength=spots.box.size)
    return Raster(
        _runs(keys, sums, frame, polygons),
        Spots(spots.box, spots.polygon, base, sizes, edges[order]),
        steps,
    )


def _spots(spans: _Spans, frame: Frame, polygons: int) -> tuple[Spots, Ints]:
    """The boxes that edges touch, without their bases; and what the spots are called: box and polygon as one number."""
    touching = np.flatnonzero(spans.low < frame.rows)
    sizes = np.minimum(spans.high[touching], frame.rows - 1) - spans.low[touching] + 1
    row, which = ragged(spans.low[touching], sizes), np.repeat(touching, sizes)
    box, polygon = spans.column[which] * frame.rows + row, spans.group[which] % polygons
    name = box * polygons + polygon
    order = np.argsort(name, kind="stable")
    name = name[order]
    first = np.flatnonzero(np.diff(name, prepend=-1))
    names = name[first]
    counts = np.diff(np.append(first, name.size))
    nothing = np.zeros(names.size, dtype=np.intp)
    return Spots(names // polygons, names % polygons, nothing, counts, spans.edge[which[order]]), names


def _runs(keys: Ints, sums: Ints, frame: Frame, polygons: int) -> Runs:
    """Boxes between two changes of a winding number, where that is positive."""
    group, top = keys // (frame.rows + 1), frame.rows - keys % (frame.rows + 1)
    last = np.concatenate([group[1:] != group[:-1], np.ones(min(1, group.size), dtype=np.bool_)])
    bottom = np.where(last, 0, np.concatenate([top[1:], top[:0] if not top.size else top[:1]]))
    inside = np.flatnonzero((sums > 0) & (bottom < top))
    polygon = group[inside] % polygons
    order = np.argsort(polygon, kind="stable")
    inside, polygon = inside[order], polygon[order]
    start = group[inside] // polygons * frame.rows + bottom[inside]
    return Runs(polygon, start, (top - bottom)[inside])


def _steps(
    table: Floats, spans: _Spans, names: Ints, frame: Frame, polygons: int
) -> tuple[Floats, Ints, Ints]:
    """Steps, and in which spots which of them stand.

    Where one edge ends another of the same ring begins, at the very same longitude, so their sum stays as it is: but
    not in boxes to the north of which only one of them lies, because the other touches them.
    """
    west = _western_sides(spans.column, frame)
    east = west + frame.width + 2 * _SLACK_DEG
    sign = np.rint(table[spans.edge, SIGN]).astype(np.intp)
    parts = []
    for side, change in ((LO, sign), (HI, -sign)):
        at = table[spans.edge, side]
        inside = np.flatnonzero((west < at) & (at <= east))
        parts.append((spans.group[inside], at[inside], spans.low[inside], change[inside]))
    group, at, low, change = (np.concatenate(both) for both in zip(*parts, strict=True))
    # Longitudes that are the same double are the same vertex; from the north, so that sums are of what is above.
    order = np.lexsort((-low, at, group))
    group, at, low, change = group[order], at[order], low[order], change[order]
    same = (group[1:] == group[:-1]) & (at[1:] == at[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(1, group.size), dtype=np.bool_), ~same]))
    total = np.cumsum(change)
    before = np.concatenate([[0], total])[first]
    net = total - np.repeat(before, np.diff(np.append(first, group.size)))
    # From here down to the next of this vertex; what the last leaves is 0, for rings are closed.
    here = np.flatnonzero((net[:-1] != 0) & same & (low[1:] < low[:-1])) if group.size else first
    sizes = low[here] - low[here + 1] if here.size else here
    row, number = ragged(low[here + 1] if here.size else here, sizes), np.repeat(np.arange(here.size), sizes)
    owner = group[here][number]
    name = (owner // polygons * frame.rows + row) * polygons + owner % polygons
    steps = np.full((here.size, table.shape[1]), np.inf)
    steps[:, [LO, LO_NEAR]] = at[here][:, None]
    steps[:, [TURN_LNG, TURN_LAT]] = np.nan
    steps[:, C0 : C2 + 1] = 0.0
    steps[:, SIGN], steps[:, STEEP] = net[here], 0.0
    return steps, np.searchsorted(names, name), number
