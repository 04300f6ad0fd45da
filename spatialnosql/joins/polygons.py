"""A set of polygons, each with an id: what points are joined with.

A polygon whose inside only the server can tell (a hemisphere, a border along borders of S2 cells, ...) is kept with its
reason, and asked for by a query of its own: `Polygon.region` is None then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import bson

from spatialnosql.cover import Cover
from spatialnosql.errors import GeometryError, UnsupportedShape, UsageError
from spatialnosql.geometry import geometry_to_region
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
        return hashlib.blake2b(bson.encode({"": self.geometry}), digest_size=16).digest()


@dataclass(frozen=True)
class StoredCovers:
    """Covers that were computed before, in the order of their polygons, and by which statistics."""

    histogram: bytes  # its key
    covers: tuple[Cover | None, ...]  # None: none was stored


@dataclass(frozen=True)
class BadPolygon:
    """A polygon that MongoDB would refuse."""

    id: Any
    reason: str


def read_polygon(id: Any, geometry: Any, properties: Mapping[str, Any] | None = None) -> Polygon:
    """One polygon, read; a GeometryError says what MongoDB would refuse it for."""
    if not isinstance(geometry, Mapping):
        raise GeometryError(f"there is no geometry but {geometry!r:.60}")
    if geometry.get("type") not in AREAS:
        raise GeometryError(f"{geometry.get('type')!r} has no inside; it must be one of {', '.join(AREAS)}")
    given = dict(properties or {})
    try:
        region = geometry_to_region(geometry)
    except UnsupportedShape as error:
        return Polygon(id, geometry, None, str(error), given)
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
            name = _hashable(polygon.id)
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
            raise GeometryError(f"polygon {bad[0].id!r}: {bad[0].reason}{more}")
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
            return self._polygons[self._places[_hashable(id)]]
        except KeyError:
            raise UsageError(f"no polygon has the id {id!r}") from None

    @cached_property
    def key(self) -> bytes:
        """Equal for equal geometries in the same order: what caches go by."""
        return hashlib.blake2b(b"".join(polygon.key for polygon in self), digest_size=16).digest()

    def __repr__(self) -> str:
        return f"Polygons({len(self)})"


def sorted_out(source: Any, name: str | None = None) -> tuple[Polygons, list[BadPolygon]]:
    """The polygons of a source that MongoDB would take, and the others with the reason.

    A feature's id is its property `name`, or its ``id``, or its property ``name``, or its number.
    """
    good: list[Polygon] = []
    bad: list[BadPolygon] = []
    seen: set[Hashable] = set()
    for own, geometry, properties in _entries(source, name):
        if _hashable(own) in seen:
            bad.append(BadPolygon(own, "another polygon has the same id"))
            continue
        seen.add(_hashable(own))
        try:
            good.append(read_polygon(own, geometry, properties))
        except GeometryError as error:
            bad.append(BadPolygon(own, str(error)))
    return Polygons(good), bad


def _entries(source: Any, name: str | None) -> Iterator[tuple[Any, Any, Mapping[str, Any]]]:
    if isinstance(source, Mapping) and source.get("type") == "FeatureCollection":
        source = source.get("features")
    elif isinstance(source, Mapping) and source.get("type") == "Feature":
        source = [source]
    elif isinstance(source, Mapping) and "type" not in source:
        yield from ((own, geometry, {}) for own, geometry in source.items())
        return
    if not isinstance(source, Sequence) or isinstance(source, str | bytes):
        raise UsageError(
            "polygons are given as a GeoJSON FeatureCollection, a list of features, geometries by name, or a "
            f"collection of them; not as {source!r:.60}"
        )
    for number, feature in enumerate(source):
        if isinstance(feature, Polygon):
            yield feature.id, feature.geometry, feature.properties
            continue
        if not isinstance(feature, Mapping):
            raise UsageError(f"feature {number} is no GeoJSON feature but {feature!r:.60}")
        properties = feature.get("properties") or {}
        yield _id(feature, properties, name, number), feature.get("geometry"), properties


def _id(feature: Mapping[str, Any], properties: Mapping[str, Any], name: str | None, number: int) -> Any:
    if name is not None:
        if properties.get(name) is None:
            known = ", ".join(map(str, properties)) or "none"
            raise UsageError(f"feature {number} has no property {name!r}; it has: {known}")
        return properties[name]
    for value in (feature.get("_id"), feature.get("id"), properties.get("name")):
        if value is not None:
            return value
    return number


def _hashable(id: Any) -> Hashable:
    # An _id may be a document; and 1, 1.0 and True are not the same polygon, though Python takes them to be.
    if isinstance(id, str | int) and not isinstance(id, bool):
        return id
    return bson.encode({"": id})
