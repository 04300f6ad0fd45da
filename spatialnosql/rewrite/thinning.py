"""Near with other conditions: how much they thin out the points, and when an index of the user's own finds them sooner.

Rings read all points around a place, whatever else is asked of them: of documents that are rare, very many for each. An
index of the user's own on the place and those conditions together reads only the rare ones, but on geohash shards it
walks through nearly all of them wherever they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import bson
from bson.errors import InvalidDocument

from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.plan import Filter
from spatialnosql.rewrite.settled import found_with_place


def enough(needed: int) -> float:
    """How many points a ring should hold in the mean, that `needed` are found: points come in clumps."""
    return needed + 2.0 * math.sqrt(needed) + 3.0


def key_of(conditions: Iterable[Filter]) -> bytes:
    """The name under which is learnt how much some conditions thin out."""
    try:
        return b"".join(bson.encode(condition) for condition in conditions)
    except (InvalidDocument, OverflowError, TypeError, ValueError):
        return b""  # nothing is learnt of conditions that only the caller's codec can encode


def share_of(conditions: tuple[Filter, ...], info: CollectionInfo) -> float:
    """The share of points that met some conditions the last time; 1 if nothing is known."""
    return max(info.experience.thinning(key_of(conditions)), 1e-6) if conditions else 1.0


def sooner_by_own_index(
    conditions: tuple[Filter, ...], needed: int, info: CollectionInfo, histogram: Histogram
) -> bool:
    """Whether an index of the user's own finds the nearest few sooner than rings do."""
    if not conditions or not found_with_place(conditions, info):
        return False
    return fewer_as_it_is(share_of(conditions, info), needed, histogram)


def fewer_as_it_is(share: float, missing: int, histogram: Histogram) -> bool:
    """Whether all documents that meet the conditions are fewer than the points of rings that hold enough of them."""
    return histogram.total * share < enough(missing) / share
