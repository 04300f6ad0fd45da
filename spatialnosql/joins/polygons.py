"""A set of polygons, each with an id: what points are joined with.

A polygon whose inside only the server can tell (a hemisphere, a border along borders of S2 cells, ...) is kept with its
reason, and asked for by a query of its own: `Polygon.region` is None then.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import bson
from bson.decimal128 import Decimal128
from bson.errors import BSONError

from spatialnosql.cover import Cover
from spatialnosql.errors import GeometryError, UnsupportedShape, UsageError
from spatialnosql.geometry import GEOJSON_TYPES, geometry_to_region
from spatialnosql.region import Region

AREAS = ("Polygon", "MultiPolygon")


@dataclass(frozen=True, eq=False)
class Polygon:
    """One polygon or multipolygon."""

    id: Any
    geometry: Mapping[str, Any]
    region: Region | None = None
    why_not: str | None = None  # why there is no region
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def within(self) -> dict[str, Any]:
        """The condition on a location: what the server is asked."""
        return {"$geoWithin": {"$geometry": self.geometry}}

    @cached_property
    def key(self) -> bytes:
        """Equal for equal geometries: what caches go by."""
        try:
            return shape_key(bson.encode(self.geometry))
        except (BSONError, OverflowError) as error:  # numbers of numpy, say, of which MongoDB knows nothing
            raise GeometryError(f"polygon {self.id!r} cannot be sent to MongoDB: {error}") from None


def shape_key(geometry: bytes) -> bytes:
    """The key of a geometry as BSON: so a stored one need not be decoded to be recognised."""
    return hashlib.blake2b(geometry, digest_size=16).digest()


@dataclass(frozen=True)
class StoredCovers:
    """Covers that were computed before, in the order of their polygons, and by which statistics."""

    histogram: bytes  # its key
    covers: tuple[Cover | None, ...]  # None: none was stored


@dataclass(frozen=True)
class BadPolygon:
    """A polygon that cannot be used, or that MongoDB would refuse."""

    id: Any  # None if it has none
    reason: str
    number: int | None = None  # its place in what it came from, from 0

    @property
    def name(self) -> str:
        """What to call it in front of people."""
        if self.number is None:
            return repr(self.id)
        return f"feature {self.number}" + ("" if self.id is None else f" ({self.id!r})")


def read_polygon(id: Any, geometry: Any, properties: Mapping[str, Any] | None = None) -> Polygon:
    """One polygon, read; a GeometryError says what MongoDB would refuse it for."""
    if geometry is None:
        raise GeometryError("it has no geometry")
    if not isinstance(geometry, Mapping):
        raise GeometryError(f"its geometry is no document but {geometry!r:.60}")
    if geometry.get("type") not in AREAS:
        raise GeometryError(
            f"a {geometry.get('type')!r:.60} has no inside; it must be a {' or a '.join(AREAS)}"
        )
    given = dict(properties or {})
    try:
        region = geometry_to_region(geometry)
    except UnsupportedShape as error:
        return Polygon(id, geometry, None, str(error), given)
    except OverflowError as error:  # an integer of hundreds of digits
        raise GeometryError(f"a coordinate is no place: {error}") from None
    if region.on_s2_borders:
        why = "its border touches borders of S2 cells, where MongoDB's answer depends on its plan"
        return Polygon(id, geometry, None, why, given)
    return Polygon(id, geometry, region, None, given)


class Polygons(Sequence[Polygon]):
    """Polygons in an order, found by their ids too; with their covers, where those were stored.

    >>> polygons = Polygons.of({"park": {"type": "Polygon", "coordinates": [...]}})
    >>> polygons.by_id("park").geometry["type"]
    'Polygon'
    """

    def __init__(self, polygons: Sequence[Polygon], stored: StoredCovers | None = None) -> None:
        self._polygons = tuple(polygons)
        self.stored = stored
        self._places: dict[Hashable, int] = {}
        for number, polygon in enumerate(self._polygons):
            name = hashable_id(polygon.id)
            if name in self._places:
                raise UsageError(f"two polygons have the id {polygon.id!r}; ids must be different")
            self._places[name] = number

    @classmethod
    def of(cls, source: Any) -> Polygons:
        """Polygons of `Polygons`, a GeoJSON FeatureCollection, features, or geometries by name.

        The first polygon that MongoDB would refuse is a GeometryError; `sorted_out` lists all of them.
        """
        if isinstance(source, Polygons):
            return source
        good, bad = sorted_out(source)
        if bad:
            more = f" ({len(bad) - 1} more are bad)" if len(bad) > 1 else ""
            named = bad[0].name if bad[0].id is None else repr(bad[0].id)
            raise GeometryError(f"polygon {named}: {bad[0].reason}{more}")
        return good

    def __len__(self) -> int:
        return len(self._polygons)

    def __iter__(self) -> Iterator[Polygon]:
        return iter(self._polygons)

    def __getitem__(self, position: Any) -> Any:
        return self._polygons[position]

    def by_id(self, id: Any) -> Polygon:
        """The polygon of an id."""
        try:
            return self._polygons[self._places[hashable_id(id)]]
        except KeyError:
            raise UsageError(f"no polygon has the id {id!r}") from None

    @cached_property
    def key(self) -> bytes:
        """Equal for equal geometries in the same order: what caches go by."""
        return hashlib.blake2b(b"".join(polygon.key for polygon in self), digest_size=16).digest()

    def __repr__(self) -> str:
        return f"Polygons({len(self)})"


def sorted_out(
    source: Any, name: str | None = None, seen: Callable[[], Any] | None = None
) -> tuple[Polygons, list[BadPolygon]]:
    """The polygons of a source that MongoDB would take, and the others with the reason.

    A feature's id is its property `name`, or else its ``_id``, its ``id``, its property ``name``, or its number. `seen`
    is called after each.
    """
    good: list[Polygon] = []
    bad: list[BadPolygon] = []
    first: dict[Hashable, int] = {}
    entries = entries_of(source)
    for number, (own, entry) in enumerate(entries):
        named = own
        try:
            feature = _read_entry(entry)
            named = own if own is not None else _id(feature, name, number)
            before = first.get(hashable_id(named))
            if before is not None:
                raise UsageError(f"feature {before} has the same id; ids must be different")
            good.append(read_polygon(named, feature["geometry"], feature["properties"]))
            first[hashable_id(named)] = number
        except (GeometryError, UsageError) as error:
            bad.append(BadPolygon(named, str(error), None if own is not None else number))
        if seen is not None:
            seen()
    if name is not None and not first and bad:
        raise UsageError(f"{bad[0].name}: {bad[0].reason}; nor is there one that has it")
    return Polygons(good), bad


def entries_of(source: Any) -> list[tuple[Any, Any]]:
    """The id of each polygon, None if it is still to be found; and the polygon, a feature or a geometry."""
    if isinstance(source, Mapping) and "type" not in source:
        return [(own, {"geometry": geometry}) for own, geometry in source.items()]
    if isinstance(source, Mapping):
        source = source.get("features") if source["type"] == "FeatureCollection" else [source]
    if not isinstance(source, Sequence) or isinstance(source, str | bytes):
        raise UsageError(
            "polygons are given as a GeoJSON FeatureCollection, a list of features, geometries by name, or a "
            f"collection of them; not as {source!r:.60}"
        )
    return [(None, feature) for feature in source]


def _read_entry(entry: Any) -> dict[str, Any]:
    """A feature with its geometry and its properties, whatever it was before."""
    if isinstance(entry, Polygon):
        return {"_id": entry.id, "geometry": entry.geometry, "properties": entry.properties}
    if not isinstance(entry, Mapping):
        raise GeometryError(f"it is no GeoJSON feature but {entry!r:.60}")
    if entry.get("type") in GEOJSON_TYPES:
        return {"geometry": entry, "properties": {}}
    properties = entry.get("properties")
    if properties is not None and not isinstance(properties, Mapping):
        raise GeometryError(f"its properties are no document but {properties!r:.60}")
    return {**entry, "geometry": entry.get("geometry"), "properties": properties or {}}


def _id(feature: Mapping[str, Any], name: str | None, number: int) -> Any:
    properties = feature["properties"]
    if name is not None:
        if properties.get(name) is None:
            known = ", ".join(map(str, properties)) or "none"
            raise UsageError(f"no property {name!r}; it has: {known}")
        return properties[name]
    for value in (feature.get("_id"), feature.get("id"), properties.get("name")):
        if value is not None:
            return value
    return number


def hashable_id(id: Any) -> Hashable:
    """Equal for ids that are the same ``_id`` to MongoDB: 1 and 1.0 are, 1 and True are not."""
    if isinstance(id, bool):
        return (bool, id)
    if isinstance(id, Decimal128):
        return hashable_id(id.to_decimal())
    if isinstance(id, str | int) or (isinstance(id, float | Decimal) and not math.isnan(id)):
        return id
    if isinstance(id, Mapping):
        return (dict, tuple((name, hashable_id(value)) for name, value in id.items()))
    if isinstance(id, list | tuple):
        return (list, tuple(map(hashable_id, id)))
    try:
        return (bytes, bson.encode({"": id}))
    except BSONError:
        return (type(id), repr(id))  # no _id at all: whoever stores it is told so
