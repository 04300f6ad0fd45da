"""The polygons with most points, or with most of a field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialnosql.errors import UsageError
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.tallies import Tallies, Tally
from spatialnosql.joins.weights import sort_key


def top_n(
    points: Any,
    polygons: Any,
    n: int,
    *,
    filter: Mapping[str, Any] | None = None,
    weight: Any = None,
    least: bool = False,
    as_of: str | None = None,
    borders: str = "read",
    consistent: bool = False,
    **options: Any,
) -> Tallies:
    """The `n` polygons with the greatest count, or measure of a field; with `least`, the smallest.

    Equal ones come in the order of the polygons; those without any number are last. Everything else is as for
    `count_by_polygon`.

    >>> for tally in top_n(trips, neighborhoods, 10, weight={"$avg": "$fare"}):
    ...     print(tally.id, tally.value)
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise UsageError(f"n is {n!r}; it must be a number of polygons, 1 or more")
    tallies = count_by_polygon(
        points,
        polygons,
        filter=filter,
        weight=weight,
        as_of=as_of,
        borders=borders,
        consistent=consistent,
        **options,
    )
    return Tallies(tuple(_ranked(tallies, least)[:n]), tallies.as_of)


def _ranked(tallies: Tallies, least: bool) -> list[Tally]:
    valued = [tally for tally in tallies if tally.value is not None]
    # `reverse` keeps the order of equal ones.
    ranked = sorted(valued, key=lambda tally: sort_key(tally.value), reverse=not least)
    return ranked + [tally for tally in tallies if tally.value is None]
