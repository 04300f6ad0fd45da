"""Which documents of a batch lie in which polygons, exactly as the server's ``$geoWithin`` says.

Geohashes settle nearly all, coordinates most of the rest; the server is asked of what lies within centimetres of a
border. It is also asked, batch by batch so that memory stays constant, of polygons that only it understands and of
documents that have a place but no geohash: one query for each such polygon, or for each polygon.
"""

from __future__ import annotations

from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import TOLERANCE_DEG, Ints
from spatialnosql.errors import SpatialNoSQLError, UnsupportedShape
from spatialnosql.geohash import Cells, strings_to_cells
from spatialnosql.geometry import geometry_to_region
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.covering import covers_of, overlay_of
from spatialnosql.joins.overlay import Overlay, Pairs
from spatialnosql.joins.polygons import Polygon, Polygons
from spatialnosql.places import places, settled_by_place
from spatialnosql.reading import Reader
from spatialnosql.region import IN, UNSURE, Region
from spatialnosql.steps import Call, Steps, together

_ASKED_AT_ONCE = 1_000
_SIDE_BY_SIDE = 4  # commands
NO_PAIRS = Pairs(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))


class Membership:
    """Polygons against batches of documents."""

    def __init__(self, polygons: Polygons, reader: Reader, *, in_turn: bool) -> None:
        self.polygons, self.info = polygons, reader.info
        self._reader, self._in_turn = reader, in_turn
        self.regions = [polygon.region or _region_at_s2_borders(polygon) for polygon in polygons]
        self.overlay = _overlay(polygons, self.regions, self.info)
        self.servers_own = [number for number, region in enumerate(self.regions) if region is None]
        """Polygons that only the server understands."""
        sphere = (self.info.location, "2dsphere")
        self._sphere_index = next((one.name for one in self.info.indexes if one.keys[0] == sphere), None)

    def hashed(self, documents: list[Any]) -> tuple[Ints, Cells]:
        """The documents that have a geohash, and their cells."""
        hashes = [document.get(self.info.gh) for document in documents]
        which = np.array([number for number, one in enumerate(hashes) if isinstance(one, str)], dtype=np.intp)
        if which.size == len(hashes):
            return which, strings_to_cells(hashes) if hashes else np.zeros(0, dtype=np.uint64)
        return which, strings_to_cells(
            [hashes[number] for number in which.tolist()] or np.zeros(0, dtype="U1")
        )

    def pairs(self, documents: list[Any]) -> Steps[Pairs]:
        """Which documents lie in which polygons; in no particular order."""
        which, cells = self.hashed(documents)
        certain, unsure = self.overlay.pairs(cells, self.regions)
        parts = [Pairs(which[certain.point], certain.polygon)]
        for number in np.unique(unsure.polygon).tolist():
            near = which[unsure.point[unsure.polygon == number]]
            parts.append((yield from self._decided(documents, near, number)))
        parts.append((yield from self.asked_of_server(documents, which)))
        if self.info.unhashed and which.size < len(documents):
            rest = np.setdiff1d(np.arange(len(documents)), which)
            parts.append((yield from self._unhashed(documents, rest)))
        return joined_pairs(parts)

    def asked_of_server(self, documents: list[Any], which: Ints) -> Steps[Pairs]:
        """Those of some hashed documents that lie in polygons that only the server understands."""
        parts = [NO_PAIRS]
        for number in self.servers_own:
            inside = yield from self._confirmed(documents, which, number)
            parts.append(_with(which[inside], number))
        return joined_pairs(parts)

    def _decided(self, documents: list[Any], near: Ints, number: int) -> Steps[Pairs]:
        """Those of some documents near a polygon's border that lie in it."""
        region = self.regions[number]
        assert region is not None  # it has a border
        status = np.full(near.size, UNSURE, dtype=np.int8)
        if not self._reader.widened.cuts(self.info.location):
            status = settled_by_place(region, [documents[at] for at in near.tolist()], self.info.location)
        inside = status == IN
        doubtful = np.flatnonzero(status == UNSURE)
        if doubtful.size:
            inside[doubtful] = yield from self._confirmed(documents, near[doubtful], number)
        return _with(near[inside], number)

    def _confirmed(self, documents: list[Any], which: Ints, number: int) -> Steps[NDArray[np.bool_]]:
        """Which of some documents lie in a polygon: the server says so."""
        polygon = self.polygons[number]
        tests = {self.info.location: polygon.within}
        asked = [documents[at] for at in which.tolist()]
        inside = np.zeros(which.size, dtype=np.bool_)
        if asked:
            inside[:] = yield from self._reader.confirmed(asked, tests, self.info.gh_index)
        if polygon.region is None and self._sphere_index is not None:
            # On borders of S2 cells MongoDB's answer depends on the index; the plain query has that of the sphere.
            cut = self._reader.widened.cuts(self.info.location)
            doubtful = np.flatnonzero(inside & (cut | _at_s2_borders(asked, self.info.location)))
            again = [asked[at] for at in doubtful.tolist()]
            if again:
                inside[doubtful] = yield from self._reader.confirmed(again, tests, self._sphere_index)
        return inside

    def _unhashed(self, documents: list[Any], which: Ints) -> Steps[Pairs]:
        """Documents without a geohash against all polygons."""
        parts = [NO_PAIRS]
        for start in range(0, which.size, _ASKED_AT_ONCE):
            some = which[start : start + _ASKED_AT_ONCE]
            ids = [documents[at]["_id"] for at in some.tolist()]
            at_id = {self._name(one): at for one, at in zip(ids, some.tolist(), strict=True)}
            for first in range(0, len(self.polygons), _SIDE_BY_SIDE):
                numbers = range(first, min(first + _SIDE_BY_SIDE, len(self.polygons)))
                calls = [Call(self._find(ids, self.polygons[number]).to_list) for number in numbers]
                answers = yield from together(calls, in_turn=self._in_turn)
                for number, answer in zip(numbers, answers, strict=True):
                    found = [at_id[self._name(one["_id"])] for one in answer]
                    parts.append(_with(np.array(found, dtype=np.intp), number))
        return joined_pairs(parts)

    def _find(self, ids: list[Any], polygon: Polygon) -> Any:
        asked = {self.info.gh: None, "_id": {"$in": ids}, self.info.location: polygon.within}
        hint = self.info.gh_index if polygon.region is not None else self._sphere_index
        return self._reader.find(asked, hint, projection={"_id": 1})

    def _name(self, id: Any) -> bytes:
        return bson.encode({"": id}, codec_options=self._reader.collection.codec_options)


def joined_pairs(parts: list[Pairs]) -> Pairs:
    """All of some pairs."""
    return Pairs(
        np.concatenate([part.point for part in parts]), np.concatenate([part.polygon for part in parts])
    )


def _with(points: Ints, polygon: int) -> Pairs:
    return Pairs(points, np.full(points.size, polygon, dtype=np.intp))


def _region_at_s2_borders(polygon: Polygon) -> Region | None:
    """The region of a polygon that was set aside, if away from its border it says what the server says."""
    try:
        return geometry_to_region(polygon.geometry)
    except UnsupportedShape:
        return None


def _overlay(polygons: Polygons, regions: list[Region | None], info: CollectionInfo) -> Overlay:
    changed = [
        polygon if polygon.region is region else Polygon(polygon.id, polygon.geometry, region)
        for polygon, region in zip(polygons, regions, strict=True)
    ]
    if all(one is other for one, other in zip(changed, polygons, strict=True)):
        return overlay_of(polygons, info)
    # Not to be remembered under the name of the polygons as they are.
    return Overlay.of(covers_of(Polygons(changed, polygons.stored), info))


def _at_s2_borders(documents: list[Any], location: str) -> NDArray[np.bool_]:
    """Which documents lie on borders of large S2 cells, or within centimetres; all if their places are not known."""
    try:
        lng, lat = places(documents, location)
    except (KeyError, TypeError, SpatialNoSQLError):
        return np.ones(len(documents), dtype=np.bool_)
    beside = np.abs(lng - 45.0 * np.rint(lng / 45.0)) * np.cos(np.radians(lat))
    above = np.abs(lat - 90.0 * np.rint(lat / 90.0))
    at_border: NDArray[np.bool_] = np.minimum(beside, above) <= 2 * TOLERANCE_DEG
    return at_border
