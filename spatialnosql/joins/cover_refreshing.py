"""Covers of stored polygons made anew: for points whose statistics have changed, and for shapes that have."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.polygon_collection import read_polygons, stale_covers, store_covers, with_covers
from spatialnosql.joins.polygons import BadPolygon, Polygons
from spatialnosql.metadata import load_info
from spatialnosql.progress import Progress
from spatialnosql.steps import run
from spatialnosql.target import split_namespace

Documents = Collection[dict[str, Any]]
_MADE_AT_ONCE = 64  # what is lost when it is cut off


@dataclass(frozen=True)
class Refreshed:
    """The covers of a collection of polygons for some points."""

    points: str
    made: int
    fresh: int  # were there already
    failed: tuple[BadPolygon, ...] = ()  # could not be stored: they are made anew whenever they are needed

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        failed = [{"id": one.id, "reason": one.reason} for one in self.failed]
        return {"points": self.points, "made": self.made, "fresh": self.fresh, "failed": failed}

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"covers for {self.points}: {self.made:,} made, {self.fresh:,} as before"
        yield from (f"  not stored: {one.name}: {one.reason:.200}" for one in self.failed)


def refresh_covers(collection: Documents, info: CollectionInfo, *, progress: bool = False) -> Refreshed:
    """Make and store those covers for some points that are missing, or of other statistics, or of another shape."""
    polygons = run(read_polygons(collection, info))
    stale = stale_covers(polygons, info)
    covered = sum(polygon.region is not None for polygon in polygons)
    failed: list[BadPolygon] = []
    with bar(f"covering for {info.namespace}", len(stale), progress) as shown:
        for start in range(0, len(stale), _MADE_AT_ONCE):
            some = Polygons([polygons[number] for number in stale[start : start + _MADE_AT_ONCE]])
            failed += run(store_covers(collection, with_covers(some, info), info))
            shown.advance(len(some))
    return Refreshed(info.namespace, len(stale) - len(failed), covered - len(stale), tuple(failed))


def points_info(points: Documents) -> CollectionInfo:
    """What covers are made by; a UsageError says why there can be none."""
    # Covers hold whatever geohashes there are: whether those are true is for the join to ask.
    info = run(load_info(points, trust_gh=True))
    if info.why_not is not None:
        raise UsageError(f"{info.namespace} cannot be joined: {info.why_not}; see `spatialnosql adopt`")
    if info.histogram is None:
        raise UsageError(
            f"{info.namespace} has no statistics to make covers by; run `spatialnosql analyze {info.namespace}`"
        )
    return info


def points_of_covers(collection: Documents) -> tuple[list[CollectionInfo], dict[str, str]]:
    """The points that a collection of polygons has covers for; of those that cannot be joined any more, why."""
    found: list[CollectionInfo] = []
    gone: dict[str, str] = {}
    for namespace in collection.distinct("covers.points"):
        try:
            database, name = split_namespace(str(namespace))
            found.append(points_info(collection.database.client[database][name]))
        except UsageError as error:
            gone[str(namespace)] = str(error)
    return found, gone


def infos_of(collection: Documents, points: Sequence[Documents]) -> list[CollectionInfo]:
    """Of the points that are named, and of those that there are covers for already."""
    named = [points_info(one) for one in points]
    known = {info.namespace for info in named}
    return named + [info for info in points_of_covers(collection)[0] if info.namespace not in known]


def bar(label: str, total: int, shown: bool) -> Progress:
    """A progress bar, if somebody is looking and there is anything to do."""
    return Progress(label, total, unit="polygons", stream=sys.stderr if shown and total else io.StringIO())
