"""What a caller of `count_by_polygon` or `grid` wants beside points and places: checked once, for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.points import JoinPoints, checked_filter, open_points
from spatialnosql.joins.weights import Weight
from spatialnosql.one_moment import at_one_moment, with_session
from spatialnosql.steps import Steps

T = TypeVar("T")

AS_OF = "last_analyze"
BORDERS = ("read", "estimated")
_OPTIONS = ("session", "comment", "maxTimeMS", "let")


@dataclass(frozen=True)
class Asked:
    """Which documents, what of them, of which moment, and the options that go with every command."""

    filter: Mapping[str, Any]
    weight: Weight | None
    stored: bool  # what lies inside is taken from the statistics,
    estimated: bool  # and so are the borders
    consistent: bool
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        filter: Mapping[str, Any] | None,
        weight: Any,
        as_of: str | None,
        borders: str,
        consistent: bool,
        options: Mapping[str, Any],
    ) -> Asked:
        """As it was given; a UsageError says what cannot be meant so."""
        if borders not in BORDERS:
            raise UsageError(f"borders is {borders!r}; it must be 'read' or 'estimated'")
        if as_of not in (None, AS_OF):
            raise UsageError(f"as_of is {as_of!r}; it must be {AS_OF!r}, or None for now")
        if borders == "estimated" and as_of is None:
            raise UsageError(f"borders='estimated' goes with as_of={AS_OF!r}: what is of now is read")
        return cls(
            checked_filter(filter),
            Weight.of(weight),
            as_of is not None,
            borders == "estimated",
            consistent,
            checked_options(options),
        )

    def opened(self, points: Any) -> Steps[JoinPoints]:
        """The points, if they can answer what is asked."""
        found = yield from open_points(points, self.filter, newest=self.stored)
        if self.stored:
            self._check_statistics(found.info)
        return found

    def _check_statistics(self, info: CollectionInfo) -> None:
        if self.filter or self.weight is not None:
            raise UsageError(
                "as_of knows how many points lie where, not what their fields are: no filter, no weight"
            )
        if info.histogram is None or info.analyzed is None:
            raise UsageError(
                f"{info.namespace} has no statistics; run `spatialnosql analyze {info.namespace}`"
            )
        if info.unhashed:
            raise UsageError(
                f"{info.namespace} may hold documents without a geohash, of which no statistics tell"
            )

    def in_session(self, points: JoinPoints, work: Callable[[dict[str, Any]], Steps[T]]) -> Steps[T]:
        """The work with the options of its commands: in a session in which all is read at one moment, if so asked."""
        client = points.collection.database.client
        options = with_session(client, self.options)
        if not self.consistent:
            return (yield from work(options))
        return (
            yield from at_one_moment(
                client, lambda session: work({**options, "session": session}), options.get("session")
            )
        )


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that go with every command, under the names that an aggregation has for them."""
    names = {"max_time_ms": "maxTimeMS"}
    given = {names.get(name, name): value for name, value in options.items()}
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(f"there is no option {name!r} here; there are {', '.join(_OPTIONS)}")
    return given
