"""The three parts of a query, read from a filter: a region, an interval of time, and words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import bson
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.info import CollectionInfo
from spatialnosql.region import Region
from spatialnosql.rewrite.predicates import Conjunction, read
from spatialnosql.rewrite.settled import region_of
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.wording import All, Wording, of_filter

EARLIEST_MS, LATEST_MS = -(1 << 62), 1 << 62


@dataclass(frozen=True)
class Asked:
    """What a query wants: documents in a region, from `first_ms` to `last_ms` (both included), with such words."""

    region: Region
    first_ms: int
    last_ms: int
    wording: Wording
    others: tuple[dict[str, Any], ...]  # every condition but those on the place


def asked_by(filter: Mapping[str, Any], info: CollectionInfo, settings: StkSettings) -> Asked | str:
    """The parts of a filter; or why it is not such a query."""
    try:
        conjunction = read(filter, info)
        if conjunction.near is not None or not conjunction.predicates:
            return "no region"
        region = region_of(conjunction)
    except SpatialNoSQLError as error:
        return str(error)
    interval = _interval(conjunction, settings.time)
    if interval is None:
        return f"no interval of {settings.time}"
    if any("$where" in other or "$text" in other for other in conjunction.others):
        return "a condition that only the server may place"
    wording = All(tuple(of_filter(other, settings.words) for other in conjunction.others))
    return Asked(region, *interval, wording, tuple(conjunction.others))


def _interval(conjunction: Conjunction, field: str) -> tuple[int, int] | None:
    """The narrowest interval that all conditions on the time allow; None if none of them bounds it."""
    low, high, bounded = EARLIEST_MS, LATEST_MS, False
    for other in conjunction.others:
        for condition in _conditions(other.get(field)):
            for operator, value in condition.items():
                moment = _moment(value)
                if moment is None or operator not in _BOUNDS:
                    continue
                bounded = True
                low_step, high_step = _BOUNDS[operator]
                low = max(low, moment + low_step) if low_step is not None else low
                high = min(high, moment + high_step) if high_step is not None else high
    return (low, high) if bounded else None


# What an operator adds to a moment to make the first and the last millisecond it allows; None: it does not bound there.
_BOUNDS: dict[str, tuple[int | None, int | None]] = {
    "$gte": (0, None),
    "$gt": (1, None),
    "$lte": (None, 0),
    "$lt": (None, -1),
    "$eq": (0, 0),
}


_ONE = {"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"}
_SEVERAL = {"$in", "$nin", "$all"}
_NESTS = {"$and", "$or", "$nor"}
_MOST_NESTED = 10
_PLAIN = str | bool | int | float | dt.datetime | DatetimeMS | ObjectId | None


def is_surely_accepted(filters: Sequence[Mapping[str, Any]], depth: int = 0) -> bool:
    """Whether a server takes these conditions for certain. One that it may refuse, it must see, or nobody is told."""
    conditions = list(chain.from_iterable(one.items() for one in filters))
    if depth == 0:
        bson.encode({"": list(filters)})  # raises what sending them would
    return depth <= _MOST_NESTED and all(_is_accepted(key, value, depth) for key, value in conditions)


def _is_accepted(key: str, value: Any, depth: int) -> bool:
    if "$" in key:
        parts = value if key in _NESTS and isinstance(value, list) else []
        return (
            bool(parts)
            and all(isinstance(part, Mapping) for part in parts)
            and is_surely_accepted(parts, depth + 1)
        )
    if not isinstance(value, Mapping):
        return isinstance(value, _PLAIN)
    return all(
        isinstance(operand, _PLAIN)
        if name in _ONE
        else name in _SEVERAL
        and isinstance(operand, list)
        and all(isinstance(one, _PLAIN) for one in operand)
        for name, operand in value.items()
    )


def _conditions(value: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        return (value,)
    return () if value is None else ({"$eq": value},)


def _moment(value: Any) -> int | None:
    if isinstance(value, dt.datetime | DatetimeMS):
        return int(value) if isinstance(value, DatetimeMS) else int(DatetimeMS(value))
    return None
