"""What a collection of polygons holds: their sizes, their covers, and whether those are still good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from spatialnosql.errors import GeometryError
from spatialnosql.joins.cover_refreshing import points_of_covers
from spatialnosql.joins.polygon_collection import RAW, is_of, plain
from spatialnosql.joins.read_shapes import read_shape

FRESH, OTHER_SHAPE, OTHER_STATISTICS = (
    "fresh",
    "stale: the shape has changed",
    "stale: the statistics have changed",
)
MISSING = "missing"
GONE = "useless: the points cannot be joined any more"
OTHER_WAY = "stale: covers are made in another way now"


@dataclass(frozen=True)
class ListedCover:
    """A cover for some points: how many ranges it has, and whether it is used as it is."""

    points: str
    interior: int
    boundary: int
    state: str

    def __str__(self) -> str:
        ranges = "" if self.state == MISSING else f"{self.interior} + {self.boundary} ranges, "
        return f"{self.points} {ranges}{self.state}"


@dataclass(frozen=True)
class ListedPolygon:
    """One polygon. `note` says what is the matter with it, if anything is."""

    id: Any
    vertices: int
    parts: int
    holes: int
    covers: tuple[ListedCover, ...]
    note: str | None = None

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        covers = [
            {"points": one.points, "interior": one.interior, "boundary": one.boundary, "state": one.state}
            for one in self.covers
        ]
        return {
            "id": self.id,
            "vertices": self.vertices,
            "parts": self.parts,
            "holes": self.holes,
            "covers": covers,
            "note": self.note,
        }


def list_polygons(collection: Collection[dict[str, Any]]) -> Iterator[ListedPolygon]:
    """All polygons in the order of their ids, also those that cannot be used."""
    infos, gone = points_of_covers(collection)
    now = {info.namespace: info.histogram.key for info in infos if info.histogram is not None}
    raw = collection.with_options(codec_options=RAW)
    for document in raw.find({}, {"geometry": 1, "covers": 1}, sort=[("_id", 1)]):
        key, geometry, note, coverable = b"", document.get("geometry"), None, True
        try:
            shape = read_shape(geometry)
            key, coverable = shape.key, shape.polygon.region is not None
            if not coverable:
                note = f"counted by the server itself: {shape.polygon.why_not}"
        except GeometryError as error:
            coverable, note = False, f"bad: {error}"
        found = document.get("covers")
        covers = [
            _cover(one, key, now, gone)
            for one in (found if isinstance(found, list) else [])
            if isinstance(one, Mapping)
        ]
        known = {one.points for one in covers}
        missing = [ListedCover(name, 0, 0, MISSING) for name in now if name not in known and coverable]
        yield ListedPolygon(plain(document["_id"]), *_sizes(plain(geometry)), (*covers, *missing), note)


def _cover(stored: Mapping[str, Any], shape: bytes, now: Mapping[str, bytes], gone: Any) -> ListedCover:
    points = str(stored.get("points"))
    interior, boundary = (
        len(part) if isinstance(part := stored.get(kind), list) else 0 for kind in ("interior", "boundary")
    )
    if points in gone:
        state = GONE
    elif not is_of(stored, shape):
        state = OTHER_SHAPE if stored.get("shape") != shape else OTHER_WAY
    else:
        state = FRESH if stored.get("histogram") == now.get(points) else OTHER_STATISTICS
    return ListedCover(points, interior, boundary, state)


def _sizes(geometry: Any) -> tuple[int, int, int]:
    """Vertices, parts and holes; zeros of what is no polygon."""
    try:
        coordinates = geometry["coordinates"]
        parts = [coordinates] if geometry["type"] == "Polygon" else coordinates
        rings = [len(part) for part in parts]
        # A ring ends where it began: that is one vertex.
        vertices = sum(len(ring) - 1 for part in parts for ring in part)
    except (KeyError, TypeError):
        return 0, 0, 0
    return vertices, len(parts), sum(rings) - len(rings)
