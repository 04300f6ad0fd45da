"""Indexes of the user's own: whether they find documents sooner than ranges of ``gh`` do.

That depends on how many documents meet the other conditions of a query, which no statistics say. It is learnt: where
nothing is known yet a query goes as it is, and the number of its answers tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import bson
from bson.errors import InvalidDocument

from spatialnosql.density import enough
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.plan import Context, Filter, QoS

WITH_PLACE = "an index of the user's own finds by the place and another condition together"
UNKNOWN = "another condition has an index of its own, and it is not known yet how many documents meet it"


def fields_of(conditions: Iterable[Filter]) -> set[str]:
    """The fields that some conditions are about."""
    return {key for condition in conditions for key in condition}


def leading_fields(info: CollectionInfo) -> set[str]:
    """The fields that an index of the user's own begins with."""
    return {index.keys[0][0] for index in info.indexes} - {info.gh, info.location}


def fields_behind_gh(info: CollectionInfo) -> set[str]:
    """The fields by which an index of the user's own finds documents within ranges of ``gh``."""
    behind = {field for index in info.indexes if index.keys[0][0] == info.gh for field, _ in index.keys}
    # The index of the shard key has _id too, and finds none by it.
    return behind - {info.gh, info.location, "_id"}


def found_with_place(conditions: Iterable[Filter], info: CollectionInfo) -> bool:
    """Whether an index of the user's own finds documents by the location and one of some conditions together.

    The server uses such an index only for a shape or a near that is sent as a condition of its own.
    """
    fields = fields_of(conditions)
    if not fields:
        return False
    keys = [{key for key, _ in index.keys} for index in info.indexes]
    return any(info.location in own and fields & own for own in keys)


def why_not_by_ranges(conditions: tuple[Filter, ...], info: CollectionInfo, qos: QoS) -> str | None:
    """Why documents that meet some conditions had better not be looked for by ranges; None if they may be."""
    if not conditions or qos.form != "cheapest" or qos.precision != "cost":
        return None  # or so it was asked for, whatever it costs
    if found_with_place(conditions, info):
        return WITH_PLACE
    return UNKNOWN if may_be_rare(conditions, info) else None


def may_be_rare(conditions: tuple[Filter, ...], info: CollectionInfo) -> bool:
    """Whether an index of the user's own finds some conditions, and nobody knows yet how many documents meet them."""
    return bool(fields_of(conditions) & leading_fields(info)) and not info.experience.knows(
        key_of(conditions)
    )


def own_index_ms(conditions: tuple[Filter, ...], info: CollectionInfo, test_ms: float) -> float:
    """What it costs to find all that meets some conditions by an index of the user's own, and to test where it is."""
    if info.histogram is None or not fields_of(conditions) & leading_fields(info):
        return math.inf
    costs, shards = info.costs, len({part.shard for part in info.shards}) or 1
    found = info.histogram.total * share_of(conditions, info)
    return costs.command_ms + shards * costs.shard_ms + found * (costs.key_ms + costs.fetch_ms + test_ms)


def key_of(conditions: Iterable[Filter]) -> bytes:
    """The name under which is learnt what share of the points meets some conditions."""
    try:
        return b"".join(bson.encode(condition) for condition in conditions)
    except (InvalidDocument, OverflowError, TypeError, ValueError):
        return b""  # nothing is learnt of conditions that only the caller's codec can encode


def share_of(conditions: tuple[Filter, ...], info: CollectionInfo) -> float:
    """The share of points that met some conditions the last time; 1 if nothing is known."""
    return max(info.experience.thinning(key_of(conditions)), 1e-6) if conditions else 1.0


def rather_by_own_index(conditions: Sequence[Filter], context: Context) -> bool:
    """Whether an index of the user's own finds the nearest few that meet some conditions sooner than rings do."""
    histogram, needed = context.info.histogram, context.limit + context.skip
    if not context.limit or histogram is None or not found_with_place(conditions, context.info):
        return False
    return fewer_in_all(share_of(tuple(conditions), context.info), needed, histogram)


def fewer_in_all(share: float, missing: int, histogram: Histogram) -> bool:
    """Whether the documents that meet some conditions are fewer than the points of rings that hold enough of them.

    Rings read all points around a place. An index of the user's own on the place and the conditions reads only what
    meets them, but on geohash shards it walks through nearly all of it, wherever it is.
    """
    return histogram.total * share < enough(missing) / share
