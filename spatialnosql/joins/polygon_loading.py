"""Load polygons into a collection: the good ones with their covers, the bad ones into a list with the reasons.

Safe to repeat, also after a run that was cut off: what is there already is left as it is, what has changed is
replaced, and a polygon that is bad now but was good before stays as it was. Polygons that are no longer among those
given stay too, unless they are to be removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.errors import UsageError
from spatialnosql.joins.cover_refreshing import Refreshed, bar, infos_of, points_info, refresh_covers
from spatialnosql.joins.polygon_writing import (
    ensure_index,
    refused_on_trial,
    remove_polygons,
    stored_polygons,
    to_stored,
    write_polygons,
)
from spatialnosql.joins.polygons import AREAS, BadPolygon, Polygons, entries_of, hashable_id, sorted_out
from spatialnosql.metadata import metadata_collection
from spatialnosql.writes.documents import PLAIN

Documents = Collection[dict[str, Any]]
_MOST_NAMED = 12


@dataclass(frozen=True)
class Loaded:
    """What came of it."""

    namespace: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    others: int = 0  # in the collection, not among those given
    bad: tuple[BadPolygon, ...] = ()
    by_server: tuple[BadPolygon, ...] = ()  # loaded, but of these only the server can tell what lies inside
    properties: tuple[str, ...] = ()  # that ids could be taken from, if they are only numbers of features
    covers: tuple[Refreshed, ...] = ()

    @property
    def loaded(self) -> int:
        """How many of those given are in the collection as they were given."""
        return self.added + self.changed + self.unchanged

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "namespace": self.namespace,
            "loaded": self.loaded,
            "added": self.added,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "removed": self.removed,
            "others": self.others,
            "bad": [{"id": one.id, "feature": one.number, "reason": one.reason} for one in self.bad],
            "by_server": [{"id": one.id, "reason": one.reason} for one in self.by_server],
            "covers": [one.to_document() for one in self.covers],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        what = "polygon" if self.loaded == 1 else "polygons"
        yield (
            f"{self.namespace}: {self.loaded:,} {what} loaded ({self.added:,} new, {self.changed:,} changed, "
            f"{self.unchanged:,} as before)"
        )
        if self.removed:
            yield f"removed, since they were not given: {self.removed:,}"
        elif self.others:
            yield f"not given, but still in the collection: {self.others:,} (--replace removes them)"
        if self.properties:
            some = ", ".join(self.properties[:_MOST_NAMED]) + (
                ", ..." if self.properties[_MOST_NAMED:] else ""
            )
            yield f"their ids are their numbers; --id PROPERTY takes a property instead: {some}"
        for one in self.covers:
            yield from one.lines()
        if self.by_server:
            yield f"counted by the server itself, one by one: {len(self.by_server):,}"
            yield from (f"  {one.name}: {one.reason}" for one in self.by_server)
        if self.bad:
            yield f"bad, and not loaded: {len(self.bad):,}"
            yield from (f"  {one.name}: {one.reason}" for one in self.bad)


def load_polygons(
    collection: Documents,
    source: Any,
    *,
    id: str | None = None,
    points: Sequence[Documents] = (),
    replace: bool = False,
    strict: bool = False,
    progress: bool = False,
) -> Loaded:
    """Load polygons (GeoJSON, features, geometries by name), indexed for plain MongoDB too, with covers for `points`.

    `id` is the property that ids are taken from. `replace` removes polygons that are not among those given. With
    `strict` nothing is changed if any polygon is bad; otherwise the others are loaded. Covers for points that the
    collection has covers for already are made anew with the rest.
    """
    collection = collection.with_options(codec_options=PLAIN)
    check_target(collection, points)
    for one in points:
        points_info(one)  # or an error, before anything is done
    total = len(entries_of(source))
    with bar("checking polygons", total, progress) as shown:
        polygons, bad = sorted_out(source, id, shown.advance)
    ready, unfit = to_stored(polygons)
    bad += unfit
    given = {hashable_id(one.id) for one in (*polygons, *bad)}
    if not ready or (strict and bad):
        return Loaded(collection.full_name, bad=tuple(bad))
    before = stored_polygons(collection)
    new = [one for one in ready if hashable_id(one.id) not in before]
    changed = [one for one in ready if before.get(hashable_id(one.id), one).key != one.key]
    if strict and (new or changed):
        bad = refused_on_trial(collection, new + changed)
        if bad:
            return Loaded(collection.full_name, bad=tuple(bad))
    ensure_index(collection)
    with bar(f"writing {collection.full_name}", len(new) + len(changed), progress) as shown:
        new_refused = write_polygons(collection, new, shown)
        refused = [*new_refused, *write_polygons(collection, changed, shown)]
    others = [one.id for key, one in before.items() if key not in given]
    if replace:
        remove_polygons(collection, others)
    not_in_it = {hashable_id(one.id) for one in [*unfit, *refused]}
    return Loaded(
        collection.full_name,
        added=len(new) - len(new_refused),
        changed=len(changed) - len(refused) + len(new_refused),
        unchanged=len(ready) - len(new) - len(changed),
        removed=len(others) if replace else 0,
        others=0 if replace else len(others),
        bad=(*bad, *refused),
        by_server=tuple(
            BadPolygon(one.id, one.why_not)
            for one in polygons
            if one.why_not is not None and hashable_id(one.id) not in not_in_it
        ),
        properties=tuple(map(str, polygons[0].properties))
        if id is None and _are_numbers(polygons, total)
        else (),
        covers=tuple(
            refresh_covers(collection, info, progress=progress) for info in infos_of(collection, points)
        ),
    )


def _are_numbers(polygons: Polygons, total: int) -> bool:
    return all(isinstance(one.id, int) and one.id in range(total) for one in polygons)


def check_target(collection: Documents, points: Sequence[Documents]) -> None:
    """Polygons have a collection of their own: others may not be mixed with them, nor removed by `replace`."""
    name = collection.full_name
    is_points = name in {one.full_name for one in points}
    with contextlib.suppress(OperationFailure):  # who may not read the metadata is stopped by what follows
        is_points |= metadata_collection(collection).find_one({"_id": name}, {"_id": 1}) is not None
    if is_points:
        raise UsageError(f"{name} is a collection of points; load polygons into another")
    other = collection.find_one({"geometry.type": {"$nin": list(AREAS)}}, {"_id": 1})
    if other is not None:
        raise UsageError(
            f"{name} holds what are no polygons, such as the document with _id {other['_id']!r:.60}; "
            "load polygons into a collection of their own"
        )
