"""``{$stk: {region, start, end, words}}`` in a filter: the same query in plain MongoDB, for whoever runs it.

``region`` is a GeoJSON geometry, or what ``$geoWithin`` takes (``{$box: ...}``, ``{$centerSphere: ...}``); the interval
is half-open, ``[start, end)``; ``words`` is an expression with AND, OR and NOT, or a list of words that must all be
there. Each of them may be left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.wording import parse_words, to_filter

OPERATOR = "$stk"
STK_PARTS = ("region", "start", "end", "words")
_NESTS = ("$and", "$or", "$nor")


def stk_filter(
    info: CollectionInfo,
    region: Mapping[str, Any] | None = None,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    words: str | Sequence[str] | None = None,
) -> dict[str, Any]:
    """The plain filter of a query; UsageError where a part cannot be meant."""
    settings = _settings(info)
    parts: list[dict[str, Any]] = []
    if region is not None:
        if not isinstance(region, Mapping) or not region:
            raise UsageError(f"region is {region!r:.60}; give a GeoJSON geometry, or what $geoWithin takes")
        shape = {"$geometry": region} if "type" in region else region
        parts.append({info.location: {"$geoWithin": shape}})
    interval = {
        operator: _moment(name, value)
        for operator, name, value in (("$gte", "start", start), ("$lt", "end", end))
        if value is not None
    }
    if interval:
        if len(interval) == 2 and int(DatetimeMS(start)) >= int(DatetimeMS(end)):  # type: ignore[arg-type]
            raise UsageError(f"start {start} is not before end {end}; the interval is [start, end)")
        parts.append({settings.time: interval})
    if words is not None:
        parts.append(to_filter(parse_words(words, settings.rules), settings.words))
    if not parts:
        raise UsageError(f"{OPERATOR} is empty; give region, start, end or words")
    return _merged(parts)


def expand(filter: Any, info: CollectionInfo) -> Any:
    """A filter with every ``$stk`` in it put in plain words; the same object if there is none."""
    if not isinstance(filter, Mapping) or not _mentions(filter):
        return filter
    plain = {key: value for key, value in filter.items() if key != OPERATOR}
    for key in _NESTS:
        if isinstance(plain.get(key), list | tuple):
            plain[key] = [expand(part, info) for part in plain[key]]
    if OPERATOR not in filter:
        return plain
    given = filter[OPERATOR]
    if not isinstance(given, Mapping) or (unknown := set(given) - set(STK_PARTS)):
        what = (
            f"unknown {', '.join(sorted(map(str, unknown)))}"
            if isinstance(given, Mapping)
            else f"{given!r:.60}"
        )
        raise UsageError(f"{OPERATOR}: {what}; it takes {', '.join(STK_PARTS)}")
    made = stk_filter(info, **given)
    return _merged([plain, made] if plain else [made])


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All of several filters: in one document where no two speak of the same field."""
    names = [name for part in parts for name in part]
    if len(names) == len(set(names)):
        return {name: value for part in parts for name, value in part.items()}
    return {"$and": parts}


def _mentions(filter: Mapping[str, Any]) -> bool:
    if OPERATOR in filter:
        return True
    nested = (filter[key] for key in _NESTS if isinstance(filter.get(key), list | tuple))
    return any(isinstance(part, Mapping) and _mentions(part) for parts in nested for part in parts)


def _moment(name: str, value: Any) -> Any:
    if not isinstance(value, dt.datetime | DatetimeMS):
        raise UsageError(f"{name} is {value!r:.60}; give a datetime (without a zone it is UTC)")
    return value


def _settings(info: CollectionInfo) -> StkSettings:
    if info.stk is None:
        why = info.why_no_stk or "see `spatialnosql stk enable`"
        raise UsageError(f"{info.namespace} is not set up for queries by place, time and words: {why}")
    return info.stk
