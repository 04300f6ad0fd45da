"""What a worker is given of the polygons, and its answers for batches of points: pairs, or counts alone.

Sent to workers as it is: numpy only, and pymongo where a server is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark import cloudpickle

from spark_jobs.join_grid import Arrays, Box, SentRegion, build_grid
from spark_jobs.join_kernel import Found, codes_of, members_of, near_borders
from spatialnosql.edges import CLOSE_RAD, Bools, Floats, Ints
from spatialnosql.leaf_cells import settle_leaf_cells
from spatialnosql.region import IN, OUT, UNSURE

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Ask = Callable[[bytes, Floats, Floats], Bools]
"""Whether points lie in a geometry, given as BSON: the server says so."""


@dataclass(frozen=True)
class Shape:
    """A polygon as a grid needs it: its edges, and its winding number at the north pole."""

    table: Floats
    pole: int
    north: int  # -1: all this is of its mirror image in the equator
    bounds: tuple[Box, ...]  # of the polygon itself, not its image


@dataclass
class Notes:
    """What a join met with on its way."""

    points: int = 0
    invalid: int = 0  # no place on Earth
    matched: int = 0  # points that lie in any polygon
    asked: int = 0  # pairs that the server has decided
    unasked: int = 0  # pairs that it would have decided


NOTES = tuple(Notes.__dataclass_fields__)


def make_layers(shapes: Sequence[Shape], box: Box | None = None) -> list[Arrays]:
    """The grids of shapes, at most two: the mirrored ones have their own. A box limits what they are asked for."""
    layers = []
    for north in (1, -1):
        members = [number for number, shape in enumerate(shapes) if shape.north == north]
        bounds = np.array([one for number in members for one in shapes[number].bounds]).reshape(-1, 4)
        if not bounds.size:
            continue
        west, south = bounds[:, :2].min(axis=0).tolist()
        east, top = bounds[:, 2:].max(axis=0).tolist()
        if box is not None:
            west, south = max(west, box[0]), max(south, box[1])
            east, top = min(east, box[2]), min(top, box[3])
        if west > east or south > top:
            continue
        if north < 0:
            south, top = -top, -south
        tables, poles = [shapes[n].table for n in members], [shapes[n].pole for n in members]
        grid = build_grid(tables, poles, (west, south, east, top))
        layers.append({**grid, "north": np.array(float(north)), "members": np.array(members)})
    return layers


class Doubts:
    """Pairs of a point and a polygon within centimetres of its border: their leaf cells tell, or else the server.

    Without a server, what is still undecided is decided by the side that rounded arithmetic says, and counted.
    """

    def __init__(
        self,
        geometries: Sequence[bytes],
        ask: Ask | None,
        notes: Notes,
        regions: dict[tuple[int, int], Any] | None = None,
    ) -> None:
        self._geometries, self._ask, self._notes = geometries, ask, notes
        self._regions = {} if regions is None else regions  # made when needed, and kept there

    def decided(self, layer: int, grid: Arrays, found: Found, lng: Floats, lat: Floats) -> Bools:
        """Whether the point of each pair is inside; coordinates are of all points that were looked up."""
        unsure = np.flatnonzero(found.unsure)
        for number in np.unique(found.polygon[unsure]).tolist():
            own = unsure[found.polygon[unsure] == number]
            if grid["north"] > 0:
                key = (layer, number)
                region = self._regions.get(key) or self._regions.setdefault(key, SentRegion.of(grid, number))
                status = settle_leaf_cells(region, lng[found.point[own]], lat[found.point[own]])
                found.inside[own[status == IN]] = True
                found.inside[own[status == OUT]] = False
                own = own[status == UNSURE]
            if self._ask is None:
                self._notes.unasked += own.size
            elif own.size:
                self._notes.asked += own.size
                geometry = self._geometries[int(grid["members"][number])]
                point = found.point[own]
                found.inside[own] = self._ask(geometry, lng[point], lat[point])
        return found.inside


def find_pairs(
    layers: Sequence[Arrays], lng: Floats, lat: Floats, doubts: Doubts, notes: Notes
) -> tuple[Ints, Ints]:
    """Which points lie in which polygons, as two arrays in the order of the points."""
    points, polygons = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for layer, grid in enumerate(layers):
        y = lat if grid["north"] > 0 else -lat
        codes = codes_of(grid, lng, y)
        inner, border = np.flatnonzero(codes > 0), np.flatnonzero(codes < 0)
        at, polygon = members_of(grid, codes[inner])
        boxes = -1 - codes[border].astype(np.intp)
        found = near_borders(grid, boxes, lng[border], y[border], CLOSE_RAD)
        inside = doubts.decided(layer, grid, found, lng[border], lat[border])
        around, holder = members_of(grid, grid["border_class"][boxes])
        points += [inner[at], border[around], border[found.point[inside]]]
        polygons += [grid["members"][one] for one in (polygon, holder, found.polygon[inside])]
    point, polygon = np.concatenate(points), np.concatenate(polygons)
    order = np.argsort(point, kind="stable")
    point, polygon = point[order], polygon[order]
    notes.matched += int(np.count_nonzero(np.diff(point, prepend=-1)))
    _note_points(lng, lat, notes)
    return point, polygon


def _note_points(lng: Floats, lat: Floats, notes: Notes) -> None:
    notes.points += lng.size
    # What is no number compares as false.
    notes.invalid += lng.size - int(np.count_nonzero((np.abs(lng) <= 180.0) & (np.abs(lat) <= 90.0)))


class Counter:
    """The number of points in each polygon, added up batch by batch; doubts are put off to the end, together."""

    def __init__(self, layers: Sequence[Arrays], polygons: int, doubts: Doubts, notes: Notes) -> None:
        self._layers, self._doubts, self._notes = layers, doubts, notes
        self._classes = [np.zeros(grid["class_starts"].size - 1, dtype=np.int64) for grid in layers]
        self._counts = np.zeros(polygons, dtype=np.int64)
        self._unsure: list[list[tuple[Any, ...]]] = [[] for _ in layers]

    def add(self, lng: Floats, lat: Floats) -> None:
        """Count some points more."""
        matched = np.zeros(lng.size, dtype=np.bool_)
        waiting = []
        for number, (grid, classes) in enumerate(zip(self._layers, self._classes, strict=True)):
            y = lat if grid["north"] > 0 else -lat
            codes = codes_of(grid, lng, y)
            border = np.flatnonzero(codes < 0)
            boxes = -1 - codes[border].astype(np.intp)
            codes[border] = grid["border_class"][boxes]
            classes += np.bincount(codes, minlength=classes.size)
            found = near_borders(grid, boxes, lng[border], y[border], CLOSE_RAD)
            inside = found.inside & ~found.unsure
            polygon = grid["members"][found.polygon[inside]]
            self._counts += np.bincount(polygon, minlength=self._counts.size)
            codes[border[found.point[inside]]] = 1
            matched |= codes > 0
            unsure = np.flatnonzero(found.unsure)
            point = border[found.point[unsure]]
            waiting.append((number, point, found.polygon[unsure], found.inside[unsure]))
        for number, point, polygon, inside in waiting:
            if point.size:
                name = self._notes.points + point
                self._unsure[number].append((name, polygon, inside, lng[point], lat[point], matched[point]))
        self._notes.matched += int(np.count_nonzero(matched))
        _note_points(lng, lat, self._notes)

    def counts(self) -> NDArray[np.int64]:
        """What has been counted; the last that is asked of it."""
        counts = self._counts.copy()
        also = [np.zeros(0, dtype=np.intp)]
        for number, (grid, classes) in enumerate(zip(self._layers, self._classes, strict=True)):
            at, polygon = members_of(grid, np.arange(classes.size))
            np.add.at(counts, grid["members"][polygon], classes[at])
            if self._unsure[number]:
                parts = zip(*self._unsure[number], strict=True)
                name, polygon, inside, lng, lat, matched = (np.concatenate(part) for part in parts)
                pairs = Found(np.arange(name.size), polygon, inside, np.ones(name.size, dtype=np.bool_))
                inside = self._doubts.decided(number, grid, pairs, lng, lat)
                counts += np.bincount(grid["members"][polygon[inside]], minlength=counts.size)
                also.append(name[inside & ~matched])
        self._notes.matched += np.unique(np.concatenate(also)).size
        return counts


@dataclass(frozen=True)
class Server:
    """The deployment that is asked of points within centimetres of a border, by its own ``$geoWithin``."""

    uri: str
    database: str

    def asker(self) -> Ask:
        """A function that asks; its connection is made when it is first needed."""
        import bson
        from pymongo import MongoClient

        clients: list[Any] = []

        def ask(geometry: bytes, lng: Floats, lat: Floats) -> Bools:
            if not clients:
                clients.append(MongoClient(self.uri))
            database = clients[0][self.database]
            inside = np.zeros(lng.size, dtype=np.bool_)
            for start in range(0, lng.size, 1_000):
                places = zip(
                    lng[start : start + 1_000].tolist(), lat[start : start + 1_000].tolist(), strict=True
                )
                # No collection is read: the points come with the question.
                documents = [
                    {"i": number, "at": {"type": "Point", "coordinates": list(place)}}
                    for number, place in enumerate(places, start)
                ]
                within = {"$geoWithin": {"$geometry": bson.decode(geometry)}}
                pipeline = [{"$documents": documents}, {"$match": {"at": within}}, {"$project": {"i": 1}}]
                inside[[answer["i"] for answer in database.aggregate(pipeline)]] = True
            return inside

        return ask
