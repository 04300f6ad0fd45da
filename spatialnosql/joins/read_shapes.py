"""Shapes that were read from a collection, remembered by their bytes.

To read a polygon of thousands of vertices and to make sure that its edges do not cross takes milliseconds; to see that
it is the one of the last call takes microseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from spatialnosql.joins.polygons import Polygon, read_polygon, shape_key
from spatialnosql.writes.documents import PLAIN

_MOST_BYTES = 32 << 20  # of shapes that are remembered: a million vertices


@dataclass(frozen=True)
class Shape:
    """A geometry, read; it has no name of its own."""

    polygon: Polygon
    key: bytes
    size: int

    def named(self, id: Any, properties: Mapping[str, Any]) -> Polygon:
        """The polygon of this shape with an id."""
        read = self.polygon
        polygon = Polygon(id, read.geometry, read.region, read.why_not, properties)
        polygon.__dict__["key"] = self.key  # known already: it need not be encoded once more
        return polygon


class _Memory:
    """The shapes used last, as many as have so many bytes together."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._held = most_bytes, 0
        self._shapes: OrderedDict[bytes, Shape] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Shape | None:
        with self._lock:
            found = self._shapes.get(key)
            if found is not None:
                self._shapes.move_to_end(key)
            return found

    def put(self, shape: Shape) -> None:
        with self._lock:
            if shape.key in self._shapes or shape.size > self._most:
                return
            self._shapes[shape.key] = shape
            self._held += shape.size
            while self._held > self._most:
                self._held -= self._shapes.popitem(last=False)[1].size

    def clear(self) -> None:
        with self._lock:
            self._shapes.clear()
            self._held = 0


_memory = _Memory(_MOST_BYTES)


def forget_shapes() -> None:
    """Forget all shapes that were read."""
    _memory.clear()


def read_shape(geometry: Any) -> Shape:
    """The shape of a raw geometry; a GeometryError says what MongoDB would refuse it for."""
    if not isinstance(geometry, RawBSONDocument):
        return Shape(read_polygon(None, geometry), b"", 0)  # an error: it is no document
    raw = bytes(geometry.raw)
    key = shape_key(raw)
    found = _memory.get(key)
    if found is None:
        found = Shape(read_polygon(None, bson.decode(raw, PLAIN)), key, len(raw))
        _memory.put(found)
    return found


def remember_shape(raw: bytes, polygon: Polygon) -> None:
    """A polygon that was read already, and is about to be stored as these bytes."""
    # Its own copy of the geometry: what the caller gave may change under his hands.
    geometry: dict[str, Any] = bson.decode(raw, PLAIN)
    copy = Polygon(None, geometry, polygon.region, polygon.why_not)
    _memory.put(Shape(copy, shape_key(raw), len(raw)))
