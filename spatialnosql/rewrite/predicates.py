"""The geo predicates in a filter: which conditions on the location a document must meet.

A filter is a conjunction of conditions. `read` takes it apart into predicates on the location (a region each), at most
one near, and all the rest. It descends into ``$and``, which is a conjunction too, and nowhere else: under ``$nor``,
``$not`` or ``$elemMatch`` a predicate says nothing that a prefilter could use.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import bson
from bson.errors import InvalidDocument

from spatialnosql.errors import GeometryError, SpatialNoSQLError
from spatialnosql.geometry import (
    EARTH_RADIUS_M,
    geojson_point,
    intersects_to_region,
    legacy_point,
    near_to_region,
    within_to_region,
)
from spatialnosql.info import CollectionInfo
from spatialnosql.region import DiscRegion, Region
from spatialnosql.rewrite.plan import Filter

_WITHIN = ("$geoWithin", "$within")
_NEAR = ("$near", "$nearSphere", "$geoNear")
_GEO = {*_WITHIN, *_NEAR, "$geoIntersects"}


@dataclass(frozen=True)
class Predicate:
    """One condition on the location, as it was written, and the region it stands for."""

    condition: dict[str, Any]
    region: Region


@dataclass(frozen=True)
class Near:
    """A near condition: from where and how far; distances in metres if spherical, else in degrees."""

    operator: str
    operand: Any
    lng: float
    lat: float
    min_distance_m: float
    max_distance_m: float  # infinite if not given
    spherical: bool

    @cached_property
    def region(self) -> Region | None:
        """Where it looks; None if the distance is not bounded."""
        low, high = self.min_distance_m, self.max_distance_m
        if not math.isfinite(high):
            return None
        if self.spherical:
            return near_to_region(self.lng, self.lat, min_distance_m=low, max_distance_m=high)
        return DiscRegion(self.lng, self.lat, high, low)


@dataclass
class Conjunction:
    """A filter taken apart: all of these must hold."""

    predicates: list[Predicate] = field(default_factory=list)
    near: Near | None = None
    others: list[dict[str, Any]] = field(default_factory=list)


class Unreadable(SpatialNoSQLError):  # noqa: N818 - a finding, not a fault
    """A geo condition that we do not understand: the server must see the query as it is."""


def is_near(filter: Filter, info: CollectionInfo) -> bool:
    """Whether a filter has a near at its top."""
    condition = filter.get(info.location)
    return isinstance(condition, Mapping) and any(operator in condition for operator in _NEAR)


def read(filter: Filter, info: CollectionInfo) -> Conjunction:
    """Take a filter apart. Raises Unreadable, GeometryError or UnsupportedShape where only the server may judge."""
    found = Conjunction()
    _read(filter, info, found)
    return found


def _read(filter: Filter, info: CollectionInfo, found: Conjunction) -> None:
    for key, value in filter.items():
        if key == "$and":
            if (
                not isinstance(value, list | tuple)
                or not value
                or not all(isinstance(v, Mapping) for v in value)
            ):
                raise Unreadable("an $and that is no list of conditions")  # the server has an error for it
            for part in value:
                _read(part, info, found)
        elif key == info.location and isinstance(value, Mapping) and _GEO & set(value):
            _read_location(value, info, found)
        else:
            found.others.append({key: value})


def _read_location(value: Mapping[str, Any], info: CollectionInfo, found: Conjunction) -> None:
    first = next(iter(value))
    if first in _NEAR:
        if found.near is not None:
            raise Unreadable("several near conditions")
        if set(value) - {first, "$minDistance", "$maxDistance"}:
            raise Unreadable(f"{first} with something beside it but distances")
        found.near = _near(first, value)
        return
    if len(value) != 1:
        raise Unreadable("a geo operator with something beside it")  # the server takes it alone
    operand = value[first]
    region = _region(first in _WITHIN, operand)
    if region.on_s2_borders and info.has_sphere_index:
        raise Unreadable("its border touches borders of S2 cells, where MongoDB's answer depends on its plan")
    found.predicates.append(Predicate({info.location: {first: operand}}, region))


def _region(within: bool, operand: Any) -> Region:
    """The region of an operand; the same shape asked for again is not read and checked again."""
    try:
        key = (within, hashlib.blake2b(bson.encode({"": operand}), digest_size=16).digest())
    except InvalidDocument:
        key = None  # pymongo will refuse it too; until then, read what there is
    region = _regions.get(key)
    if region is None:
        region = within_to_region(operand) if within else intersects_to_region(operand)
        if key is not None:
            _regions[key] = region
            while len(_regions) > _MOST_REGIONS:
                with contextlib.suppress(KeyError):  # another thread was faster
                    _regions.popitem(last=False)
    return region


_MOST_REGIONS = 512
# The regions read last, by a digest of what they were read from.
_regions: OrderedDict[tuple[bool, bytes] | None, Region] = OrderedDict()


def _near(operator: str, value: Mapping[str, Any]) -> Near:
    operand = value[operator]
    geojson = isinstance(operand, Mapping) and "$geometry" in operand
    beside = {key: value[key] for key in ("$minDistance", "$maxDistance") if key in value}
    if geojson:
        unknown = set(operand) - {"$geometry", "$minDistance", "$maxDistance"}
        if beside or unknown:
            raise Unreadable(f"{operator} with {', '.join(sorted([*beside, *unknown]))}")
        lng, lat = geojson_point(operand["$geometry"])
        limits, unit, spherical = operand, 1.0, True
    else:
        if not isinstance(operand, Mapping | list | tuple) or len(operand) != 2:
            raise Unreadable(f"{operator} with a point that is no pair")  # a third number is a distance
        lng, lat = legacy_point(operand)
        # Legacy points: $nearSphere counts in radians on the sphere, $near in degrees of a flat map.
        spherical = operator == "$nearSphere"
        limits, unit = beside, EARTH_RADIUS_M if spherical else 1.0
    low = _distance(limits.get("$minDistance", 0))
    high = _distance(limits["$maxDistance"]) if "$maxDistance" in limits else math.inf
    return Near(operator, operand, lng, lat, low * unit, high * unit, spherical)


def _distance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise GeometryError(f"a distance of {value!r} is no finite number of 0 or more")
    return float(value)
