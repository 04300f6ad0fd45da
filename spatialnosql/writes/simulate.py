"""Update operators applied to a document on the client, as the server applies them.

Only what can touch a location is simulated, to learn its new ``gh`` before the server makes the change; the server
is told the user's own update. Where the server would refuse an operator `NotViable` says so, and the update is sent
for it to do that.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bson.decimal128 import Decimal128, create_decimal128_context
from bson.int64 import Int64

from spatialnosql.errors import UsageError

ARRAY_OPERATORS = {"$push", "$addToSet", "$pull", "$pullAll", "$pop"}
ARITHMETIC = {"$inc", "$mul", "$min", "$max", "$bit"}


class NotViable(Exception):  # noqa: N818 - no error of ours: the server's to raise
    """The server will refuse this operator on this document."""


class Unknown:
    """A value that is not simulated: the result of an array operator or of ``$bit``."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Unknown:
        return self


UNKNOWN = Unknown()
_MISSING: Any = object()
_MOST_NULLS = 1_500_000  # the server's own limit


@dataclass(frozen=True)
class Operation:
    """One operator on one path. Of ``$rename`` the path is the new one and the argument the old."""

    operator: str
    path: str
    argument: Any


def apply(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """A changed deep copy of the document, which must hold the top-level fields of all paths, old names too."""
    changed = copy.deepcopy(document)
    # The server creates new fields in this order whatever the order in the update, and in a legacy
    # pair {lng, lat} the order of fields says which is which.
    for operation in sorted(operations, key=lambda one: _sort_key(one.path)):
        _apply(changed, operation)
    return changed


def _sort_key(path: str) -> list[tuple[int, int, str]]:
    """Numbers by their value and before names."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in path.split(".")]


def _apply(document: dict[str, Any], operation: Operation) -> None:
    operator, parts, argument = operation.operator, operation.path.split("."), operation.argument
    if operator in ("$set", "$setOnInsert"):
        put(document, parts, copy.deepcopy(argument))
    elif operator == "$unset":
        _remove(document, parts)
    elif operator == "$rename":
        _rename(document, str(argument).split("."), parts)
    elif operator == "$currentDate":
        put(document, parts, dt.datetime(1970, 1, 1))  # any date: it is no coordinate
    else:
        current = _get(document, parts)
        if operator in ("$pull", "$pullAll", "$pop") and current is _MISSING:
            return
        put(document, parts, _combined(operator, current, argument))


def _combined(operator: str, current: Any, argument: Any) -> Any:
    """The value that an operator makes of the one that is there."""
    if operator in ARRAY_OPERATORS:
        # Whatever is in it then, it is an array.
        if current is not _MISSING and not isinstance(current, list):
            raise NotViable
        return [UNKNOWN, UNKNOWN]
    if operator == "$bit":
        return UNKNOWN
    if operator in ("$min", "$max"):
        if current is _MISSING:
            return argument
        order = _compare(argument, current, operator)
        return argument if (order < 0) == (operator == "$min") and order else current
    if not _is_number(argument) or not (current is _MISSING or _is_number(current)):
        raise NotViable
    if current is _MISSING:
        return argument if operator == "$inc" else 0
    return _arithmetic(operator, current, argument)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal128)) and not isinstance(value, bool)


def _arithmetic(operator: str, left: Any, right: Any) -> Any:
    if isinstance(left, Decimal128) or isinstance(right, Decimal128):
        with decimal.localcontext(create_decimal128_context()) as context:
            a, b = _as_decimal(left), _as_decimal(right)
            return Decimal128(context.add(a, b) if operator == "$inc" else context.multiply(a, b))
    result = left + right if operator == "$inc" else left * right
    if isinstance(result, int) and not -(2**63) <= result < 2**63:
        raise NotViable
    return Int64(result) if isinstance(result, int) else result


def _as_decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, Decimal128):
        return value.to_decimal()
    # The server takes a double for the 15 digits that it surely stands for.
    return decimal.Decimal(f"{value:.14e}") if isinstance(value, float) else decimal.Decimal(value)


def _compare(left: Any, right: Any, operator: str) -> int:
    """Negative, zero or positive, as BSON orders values; of like kinds numbers only."""
    ranks = _rank(left), _rank(right)
    if ranks[0] != ranks[1]:
        return ranks[0] - ranks[1]
    if not _is_number(left):
        raise UsageError(
            f"{operator} would compare {left!r} with the {right!r} in a location; in a location only numbers can be "
            "compared. Use an update pipeline instead, whose gh the server computes"
        )
    a, b = _exact(left), _exact(right)
    if a.is_nan() or b.is_nan():  # NaN is below all numbers, and equal to itself
        return int(b.is_nan()) - int(a.is_nan())
    return (a > b) - (a < b)


def _exact(value: Any) -> decimal.Decimal:
    return value.to_decimal() if isinstance(value, Decimal128) else decimal.Decimal(value)


def _rank(value: Any) -> int:
    """The place of a value's type in BSON's order."""
    if value is None:
        return 1
    if _is_number(value):
        return 2
    kinds: list[tuple[type, int]] = [(str, 3), (dict, 4), (list, 5), (bytes, 6), (bool, 8), (dt.datetime, 9)]
    for kind, rank in kinds:
        if isinstance(value, kind):
            return rank
    raise UsageError(f"$min and $max of {value!r} in a location; only numbers can be compared there")


# -- paths ------------------------------------------------------------------------------------------------


def put(document: dict[str, Any], parts: list[str], value: Any) -> None:
    """Set what a dotted path leads to; missing documents on the way are made, arrays are filled with nulls."""
    holder: Any = document
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if isinstance(holder, list):
            index = _index(part)
            if index is None or index > len(holder) + _MOST_NULLS:
                raise NotViable
            key: Any = index
            missing = index >= len(holder)
            holder.extend([None] * (index + 1 - len(holder)))
        elif isinstance(holder, dict):
            key, missing = part, part not in holder
        else:
            raise NotViable
        if following is None:
            holder[key] = value
        else:
            if missing:
                holder[key] = {}
            holder = holder[key]


def _get(document: dict[str, Any], parts: list[str]) -> Any:
    holder: Any = document
    for part in parts:
        if isinstance(holder, list):
            index = _index(part)
            if index is None or index >= len(holder):
                return _MISSING
            holder = holder[index]
        elif isinstance(holder, dict) and part in holder:
            holder = holder[part]
        else:
            return _MISSING
    return holder


def _index(part: str) -> int | None:
    return int(part) if part.isdecimal() else None


def _remove(document: dict[str, Any], parts: list[str]) -> None:
    """Take away a field, or make an element of an array null; nothing where there is nothing."""
    holder = _get(document, parts[:-1]) if len(parts) > 1 else document
    if isinstance(holder, dict):
        holder.pop(parts[-1], None)
    elif isinstance(holder, list):
        index = _index(parts[-1])
        if index is not None and index < len(holder):
            holder[index] = None


def _rename(document: dict[str, Any], old: list[str], new: list[str]) -> None:
    """Move a value; the server moves none out of or into arrays, but does not mind where there is none to move."""
    _check_documents(document, old)
    value = _get(document, old)
    if value is not _MISSING:
        _check_documents(document, new)
        put(document, new, value)
        _remove(document, old)


def _check_documents(document: dict[str, Any], parts: list[str]) -> None:
    """All that a path leads through must be documents, as far as it is there."""
    for length in range(1, len(parts)):
        holder = _get(document, parts[:length])
        if holder is not _MISSING and not isinstance(holder, dict):
            raise NotViable
