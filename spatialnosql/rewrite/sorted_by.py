"""Documents in an order that an index has: whether they are read by it until there are enough, or sorted.

A server that walks such an index tests one document after the other, and stops at the limit: for each one wanted it
looks at ``total / inside`` documents, and each shard that holds some of the region finds as many as are wanted. Whoever
asks by ranges has all of them read and sorted. So ranges are for regions of few documents, or limits that are large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bson.regex import Regex

from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.own_indexes import fields_of, share_of
from spatialnosql.rewrite.plan import ALL, Filter, Pipeline, Wanted

_ID: tuple[tuple[str, Any], ...] = (("_id", 1),)  # always there, whatever is listed
_MOST_IN = 200  # so many values of an $in a server reads one after the other, each in order
# A server sorts 100 MB in memory: so many documents of 1 kB. What it has to sort on disk an index had better deliver.
_MOST_SORTED = 100_000
# Stages that hand on each document as it comes; a limit behind them is one on what comes first.
_STREAMING = (
    "$addFields",
    "$graphLookup",
    "$lookup",
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$skip",
    "$unset",
    "$unwind",
)


def wanted_of_sort(sort: Any, first: int = 0, *, in_memory: bool = False) -> Wanted:
    """What a sort as pymongo takes it wants; any order if it is none that an index could have."""
    if isinstance(sort, str):
        pairs: list[Any] = [(sort, 1)]
    elif isinstance(sort, Mapping):
        pairs = list(sort.items())
    else:
        given = sort if isinstance(sort, Sequence) else ()
        pairs = [(one, 1) if isinstance(one, str) else one for one in given]
    if not all(isinstance(one, list | tuple) and len(one) == 2 and one[1] in (1, -1) for one in pairs):
        return ALL
    order = tuple((str(field), int(direction)) for field, direction in pairs)
    return Wanted(first, order, in_memory=in_memory) if order else ALL


def wanted_of_pipeline(pipeline: Pipeline, *, in_memory: bool = False) -> Wanted:
    """What a pipeline wants of the documents that its first ``$match`` stages find."""
    sort: Any = None
    skip, stored = 0, True  # documents come as they are stored
    for stage in pipeline:
        operator, operand = next(iter(stage.items()), ("", None))
        if operator == "$limit" and isinstance(operand, int):
            first = skip + operand
            return wanted_of_sort(sort, first, in_memory=in_memory) if sort else Wanted(first)
        if operator == "$sort" and stored and isinstance(operand, Mapping):
            sort = operand
        elif operator not in _STREAMING:
            break
        elif operator == "$skip" and isinstance(operand, int):
            skip, stored = skip + operand, False
        elif operator != "$match":
            stored = False
    return wanted_of_sort(sort, in_memory=in_memory)


def known_order(wanted: Wanted, info: CollectionInfo) -> Wanted:
    """The same; all in any order if no index has the order, for then every plan sorts, or if ranges are read in it."""
    if not wanted.order:
        return wanted
    fields = {"_id"} | {field for index in info.indexes for field, _ in index.keys}
    by_ranges = _has_order(((info.gh, 1), ("_id", 1)), list(wanted.order), set())
    return wanted if wanted.order[0][0] in fields and not by_ranges else ALL


def walk_ms(
    wanted: Wanted,
    others: tuple[Filter, ...],
    info: CollectionInfo,
    *,
    inside: float,
    asked: int,
    test_ms: float,
    shape_ms: float,
) -> float:
    """What it costs to read documents in their order until enough of a region are found; infinite without an index.

    `inside` documents lie in the region, on `asked` shards; shards are taken to hold equally many.
    """
    fields = _fields_with(wanted, others, info)
    if fields is None or info.histogram is None:
        return math.inf
    costs, shards = info.costs, len({part.shard for part in info.shards}) or 1
    share = share_of(others, info)
    met = inside * share
    # Conditions on fields of the index bound the walk: what meets the others is thought to be found with it.
    read = info.histogram.total * (share if fields_of(others) & fields else 1.0)
    until = min(1.0, wanted.first * asked / met) if wanted.first and met else 1.0
    sent = min(met, wanted.first * asked) if wanted.first else met
    return (
        costs.command_ms
        + shards * (costs.shard_ms + shape_ms)
        + read * until * asked / shards * (costs.key_ms + costs.fetch_ms + test_ms)
        + sent * costs.return_ms
    )


def why_not_sorted(
    wanted: Wanted, others: tuple[Filter, ...], held: float | None, info: CollectionInfo
) -> str | None:
    """Why documents had better come in the order of an index, whatever it costs; None if they may be sorted.

    `held` is how many a shard would have to sort, if anybody knows.
    """
    if _fields_with(wanted, others, info) is None:
        return None
    if held is None:
        return "an index has the order that is wanted, and there are no statistics to tell if it is the better way"
    if wanted.in_memory:
        return "an index has the order that is wanted, and to sort on disk is forbidden"
    if min(held, wanted.first or held) > _MOST_SORTED:
        return "an index has the order that is wanted, and so many would be sorted on disk"
    return None


def _fields_with(wanted: Wanted, others: tuple[Filter, ...], info: CollectionInfo) -> set[str] | None:
    """The fields of the indexes that have the order; None if there is none."""
    if not wanted.order:
        return None
    equal, few = _fixed(others)
    order = [(field, direction) for field, direction in wanted.order if field not in equal]
    if not order:
        return None  # all documents are equal
    indexes = [_ID, *(index.keys for index in info.indexes if not index.partial)]
    fields = {field for keys in indexes if _has_order(keys, order, few) for field, _ in keys}
    return fields or None


def _has_order(keys: tuple[tuple[str, Any], ...], order: list[tuple[str, int]], few: set[str]) -> bool:
    """Whether an index with these fields has an order, read in either direction."""
    left, ways = list(order), set()
    for field, kind in keys:
        if not left:
            break
        if field == left[0][0] and kind in (1, -1):
            ways.add(kind * left.pop(0)[1])
        elif field not in few:
            return False
    return not left and len(ways) == 1


def _fixed(conditions: tuple[Filter, ...]) -> tuple[set[str], set[str]]:
    """The fields that must be equal to a value, and those that must be to one of a few."""
    equal, few = set(), set()
    for condition in conditions:
        for field, value in condition.items():
            if str(field).startswith("$") or isinstance(value, re.Pattern | Regex):
                continue
            operators = set(value) if isinstance(value, Mapping) else set()
            if not any(str(name).startswith("$") for name in operators) or "$eq" in operators:
                equal.add(field)
            elif isinstance(value.get("$in"), list | tuple) and len(value["$in"]) <= _MOST_IN:
                few.add(field)
    return equal, equal | few
