"""The points of a join: an adopted collection, and whether it can be read by ``gh``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.own_session import in_own_session
from spatialnosql.steps import Steps, call
from spatialnosql.writes.documents import PLAIN

_STALE = 2.0  # times as many documents as the statistics know
_NOT_IN_A_MATCH = ("$near", "$nearSphere", "$geoNear", "$text", "$where")


@dataclass(frozen=True)
class JoinPoints:
    """A collection of points, what is known of it, and which of its documents are meant."""

    collection: Collection[dict[str, Any]]
    info: CollectionInfo
    filter: Mapping[str, Any]

    @property
    def hint(self) -> dict[str, Any]:
        """The ``gh`` index; with conditions of the caller's own the server chooses, which may know a better one."""
        return {} if self.filter else {"hint": self.info.gh_index}

    def estimated_count(self) -> Steps[int]:
        """About how many documents there are, whatever the filter; not of the caller's moment."""
        # pymongo's own method takes no session, but the one that is bound.
        database, preference = self.collection.database, self.collection.read_preference
        counted = yield from in_own_session(
            database.client,
            lambda session: call(
                database.command, "count", self.collection.name, session=session, read_preference=preference
            ),
        )
        return int(counted["n"])

    def trusted_histogram(self) -> Steps[Histogram | None]:
        """The statistics; None where there are many more documents than they know of.

        Then gaps that seem empty are not, and nobody knows how many keys a command would bring.
        """
        histogram = self.info.histogram
        count = yield from self.estimated_count()
        return None if histogram is None or count > _STALE * histogram.total else histogram

    def matching(self, condition: Mapping[str, Any]) -> dict[str, Any]:
        """A condition and the caller's own."""
        return {"$and": [condition, self.filter]} if self.filter else dict(condition)


def open_points(points: Any, filter: Mapping[str, Any] | None, *, newest: bool = False) -> Steps[JoinPoints]:
    """The points of a `SpatialCollection` or of an adopted pymongo collection; a UsageError says why not.

    With `newest` their statistics are read anew, not taken as they were a minute ago.
    """
    if isinstance(points, Collection):
        points = SpatialCollection(points)
    if not isinstance(points, SpatialCollection):
        raise UsageError(f"points are a SpatialCollection or a pymongo Collection, not {points!r:.60}")
    if newest:
        points.forget()
    info: CollectionInfo = yield from points._load_info()
    if info.why_not is not None:
        raise UsageError(f"{info.namespace} cannot be joined: {info.why_not}")
    if info.gh_index is None or "." in info.gh:
        raise UsageError(
            f"{info.namespace} cannot be joined: no index {{{info.gh}: 1, _id: 1}} to read geohashes from; "
            f"`spatialnosql adopt {info.namespace}` makes one"
        )
    # Geohashes and ids are read here: as what they are, whatever the application makes of its documents.
    plain = points._collection.with_options(codec_options=PLAIN)
    return JoinPoints(plain, info, checked_filter(filter))


def checked_filter(filter: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Conditions beside the place, which a ``$match`` must take."""
    if filter is None:
        return {}
    if not isinstance(filter, Mapping):
        raise UsageError(f"a filter is a document, not {filter!r:.60}")
    found = _operator_in(filter, _NOT_IN_A_MATCH)
    if found:
        raise UsageError(
            f"{found} cannot be beside a join: MongoDB takes it only at the beginning of a query"
        )
    return filter


def _operator_in(value: Any, operators: tuple[str, ...]) -> str | None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            found = key if key in operators else _operator_in(inner, operators)
            if found:
                return str(found)
    elif isinstance(value, list | tuple):
        return next((found for inner in value if (found := _operator_in(inner, operators))), None)
    return None
