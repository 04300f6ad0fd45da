"""What an upsert inserts when nothing matches, as far as the location goes.

The server begins with the equalities of the filter, then applies the update to them. So a filter may give
the new document its location though the update says nothing of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

import bson
from bson.codec_options import CodecOptions

from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.writes.documents import as_stored, gh_of
from spatialnosql.writes.simulate import NotViable, Operation, apply, put

_Equality = tuple[str, Any]


def equalities(filter: Mapping[str, Any]) -> Iterator[_Equality]:
    """The paths and values that an upsert with this filter begins with."""
    for name, condition in filter.items():
        if not isinstance(name, str):
            continue  # pymongo will refuse it
        if name == "$and" and isinstance(condition, (list, tuple)):
            for part in condition:
                yield from equalities(part) if isinstance(part, Mapping) else ()
        elif name == "$or" and isinstance(condition, (list, tuple)):
            if len(condition) == 1 and isinstance(condition[0], Mapping):  # no choice: as good as $and
                yield from equalities(condition[0])
        elif not name.startswith("$"):
            yield from _of_field(name, condition)


def _of_field(path: str, condition: Any) -> Iterator[_Equality]:
    if isinstance(condition, bson.Regex) or type(condition).__name__ == "Pattern":
        return
    if not isinstance(condition, Mapping) or not _is_operators(condition):
        yield path, condition
        return
    for operator, value in condition.items():
        if operator == "$eq":
            yield path, value
        elif operator in ("$in", "$all") and isinstance(value, (list, tuple)) and len(value) == 1:
            yield from _of_field(path, value[0]) if not isinstance(value[0], Mapping) else [(path, value[0])]


def _is_operators(condition: Mapping[str, Any]) -> bool:
    # {$ref, $id} is a DBRef, a value.
    first = next(iter(condition), "")
    return first.startswith("$") and first not in ("$ref", "$id", "$db")


def inserted_by(
    filter: Mapping[str, Any],
    operations: Iterable[Operation],
    info: CollectionInfo,
    codec_options: CodecOptions[Any],
) -> tuple[dict[str, Any], str | None]:
    """The fields of interest of the document that an upsert would insert, and its ``gh``."""
    operations = list(operations)
    tops = tops_of(info, operations)
    found = [
        (path, as_stored(value, codec_options))
        for path, value in equalities(filter)
        if path.split(".")[0] in tops
    ]
    # The server sets dotted equalities in no certain order, and so the longitude and the latitude of a legacy
    # pair may change places.
    orders = permutations(found) if len(found) <= 4 else iter([tuple(found), tuple(reversed(found))])
    results = [_made(order, operations) for order in orders]
    hashes = {gh_of(document, info) for document in results}
    if len(hashes) > 1:
        raise UsageError(
            f"an upsert by {', '.join(repr(path) for path, _ in found)} does not say in which order the coordinates of "
            f"{info.location!r} are stored; give the location as one value, in the filter or in $setOnInsert"
        )
    return results[0], hashes.pop()


def _made(found: Iterable[_Equality], operations: list[Operation]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    try:
        for path, value in found:
            put(document, path.split("."), value)
        return apply(document, operations)
    except NotViable:  # the server will refuse it
        return {}


def tops_of(info: CollectionInfo, operations: Iterable[Operation]) -> set[str]:
    """The top-level fields that decide about the location: its own, and those a value is renamed from."""
    renamed = (str(one.argument) for one in operations if one.operator == "$rename")
    return {path.split(".")[0] for path in (info.location, *renamed)}
