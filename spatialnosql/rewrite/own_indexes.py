"""Indexes of the user's own: whether they find documents sooner than ranges of ``gh`` do.

That depends on how many documents meet the other conditions of a query, which no statistics say. It is learnt: where
nothing is known yet a query goes as it is, and the number of its answers tells. What was seen in one area may be wrong
of another, so ranges are hinted only where such documents are surely common; else MongoDB's planner tries both ways.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bson
from bson.errors import InvalidDocument

from spatialnosql.density import enough
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index
from spatialnosql.rewrite.plan import Context, Filter, QoS

WITH_PLACE = "an index of the user's own finds by the place and another condition together"
UNKNOWN = "another condition has an index of its own, and it is not known yet how many documents meet it"
_WILDCARD = "$**"
_LOGICAL = ("$and", "$or", "$nor")
SURELY = 2.0  # ranges of no more than so many points for each document that is surely there are hinted


def fields_of(conditions: Iterable[Filter]) -> set[str]:
    """The fields that some conditions are about, those in branches of an ``$or`` too."""
    return {field for condition in conditions for field in _fields(condition)}


def _fields(condition: Any) -> Iterator[str]:
    if not isinstance(condition, Mapping):
        return
    for key, value in condition.items():
        if key in _LOGICAL and isinstance(value, list | tuple):
            for part in value:
                yield from _fields(part)
        elif key == "$expr":
            yield from _paths(value)
        elif not str(key).startswith("$"):
            yield key


def _paths(expression: Any) -> Iterator[str]:
    """The fields that an expression names."""
    if isinstance(expression, str):
        if expression.startswith("$") and not expression.startswith("$$"):
            yield expression[1:]
    elif isinstance(expression, Mapping):
        for part in expression.values():
            yield from _paths(part)
    elif isinstance(expression, list | tuple):
        for part in expression:
            yield from _paths(part)


def have_index(conditions: Iterable[Filter], info: CollectionInfo) -> bool:
    """Whether an index of the user's own begins with a field that some conditions are about."""
    fields = fields_of(conditions) - {info.gh, info.location}
    return bool(fields) and any(_leads(index, field) for index in info.indexes for field in fields)


def _leads(index: Index, field: str) -> bool:
    """Whether an index begins with a field, as far as conditions go: words are found by ``$text`` only."""
    first = index.keys[0][0]
    if first.endswith(_WILDCARD):
        return f"{field}.".startswith(first.removesuffix(_WILDCARD)) and field != "_id"
    return first == field and not any(kind == "text" for _, kind in index.keys)


def fields_behind_gh(info: CollectionInfo) -> set[str]:
    """The fields by which an index of the user's own finds documents within ranges of ``gh``."""
    behind = {field for index in info.indexes if index.keys[0][0] == info.gh for field, _ in index.keys}
    # The index of the shard key has _id too, and finds none by it.
    return behind - {info.gh, info.location, "_id"}


def found_with_place(conditions: Iterable[Filter], info: CollectionInfo) -> bool:
    """Whether an index of the user's own finds documents by the location and one of some conditions together.

    The server uses such an index only for a shape or a near that is sent as a condition of its own.
    """
    fields = fields_of(conditions) - {info.location}
    return bool(fields) and any(_has_place(index, fields, info) for index in info.indexes)


def _has_place(index: Index, fields: set[str], info: CollectionInfo) -> bool:
    keys = dict(index.keys)
    first = index.keys[0][0]
    by_place = str(keys.get(info.location)).startswith("2d")
    return by_place and bool(fields & keys.keys()) and (first == info.location or first in fields)


def why_not_by_ranges(conditions: tuple[Filter, ...], info: CollectionInfo, qos: QoS) -> str | None:
    """Why documents that meet some conditions had better not be looked for by ranges; None if they may be."""
    if not conditions or qos.form != "cheapest" or qos.precision != "cost":
        return None  # or so it was asked for, whatever it costs
    if found_with_place(conditions, info):
        return WITH_PLACE
    return UNKNOWN if may_be_rare(conditions, info) else None


def may_be_rare(conditions: Sequence[Filter], info: CollectionInfo) -> bool:
    """Whether an index of the user's own finds some conditions, and nobody knows yet how many documents meet them."""
    return have_index(conditions, info) and info.experience.share(names_of(conditions)) is None


def hint_for(conditions: Sequence[Filter], points: float, info: CollectionInfo) -> str | None:
    """The index of ``gh``, for ranges of so many points; None where another one may find the documents sooner."""
    if not have_index(conditions, info):
        return info.gh_index
    surely = info.experience.most_found(names_of(conditions))
    return info.gh_index if points <= SURELY * surely else None


def own_index_ms(conditions: Sequence[Filter], info: CollectionInfo, test_ms: float) -> float:
    """What it costs to find all that meets some conditions by an index of the user's own, and to test where it is.

    Infinite where that is not known: of conditions that no index finds all together only their common share is.
    """
    share = info.experience.share(names_of(conditions))
    if info.histogram is None or share is None or not _found_by_one(fields_of(conditions), info):
        return math.inf
    costs, shards = info.costs, len({part.shard for part in info.shards}) or 1
    found = info.histogram.total * share
    return costs.command_ms + shards * costs.shard_ms + found * (costs.key_ms + costs.fetch_ms + test_ms)


def _found_by_one(fields: set[str], info: CollectionInfo) -> bool:
    """Whether one index of the user's own has all of some fields, and begins with one of them."""
    return any(
        any(_leads(index, field) for field in fields)
        and (len(fields) == 1 or fields <= dict(index.keys).keys())
        for index in info.indexes
    )


def names_of(conditions: Sequence[Filter]) -> tuple[Hashable, ...]:
    """The names under which is learnt what share of the points meets some conditions.

    The first is theirs alone, the second that of all with other values: what is asked of the last hour has never been
    asked before.
    """
    if not conditions:
        return ()
    try:
        exact = b"".join([bson.encode(condition) for condition in conditions])
    except (InvalidDocument, OverflowError, TypeError, ValueError):
        exact = repr(conditions).encode()  # only the caller's codec can encode them
    return hashlib.blake2b(exact, digest_size=16).digest(), _without_values(conditions)


def _without_values(condition: Any) -> Hashable:
    if isinstance(condition, Mapping):
        return tuple([(str(key), _without_values(value)) for key, value in condition.items()])
    if isinstance(condition, list | tuple) and all(isinstance(part, Mapping) for part in condition):
        return tuple([_without_values(part) for part in condition])
    return None


def share_of(conditions: Sequence[Filter], info: CollectionInfo) -> float:
    """The share of points that met some conditions so far; 1 if nothing is known of these very conditions."""
    known = info.experience.share(names_of(conditions)[:1])
    return 1.0 if known is None else max(known, 1e-6)


def rather_by_own_index(conditions: Sequence[Filter], context: Context) -> bool:
    """Whether an index of the user's own finds the nearest few that meet some conditions sooner than rings do."""
    histogram, needed = context.info.histogram, context.limit + context.skip
    if not context.limit or histogram is None or not found_with_place(conditions, context.info):
        return False
    return fewer_in_all(share_of(conditions, context.info), needed, histogram)


def fewer_in_all(share: float, missing: int, histogram: Histogram) -> bool:
    """Whether the documents that meet some conditions are fewer than the points of rings that hold enough of them.

    Rings read all points around a place. An index of the user's own on the place and the conditions reads only what
    meets them, but on geohash shards it walks through nearly all of it, wherever it is.
    """
    return histogram.total * share < enough(missing) / share
