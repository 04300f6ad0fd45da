"""What is added up for each polygon or cell: the number of points, and of one field its sum, mean, least or greatest.

The servers add up what lies in one place, the client adds up places. Values that are no numbers are left out, as
MongoDB's ``$sum`` and ``$avg`` do.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson.decimal128 import Decimal128, create_decimal128_context

from spatialnosql.errors import UsageError

MEASURES = ("sum", "avg", "min", "max")
_FOLDED = 4_096  # values that are kept apart: so a sum is exact to the last digits, and memory bounded


@dataclass(frozen=True)
class Weight:
    """A measure of a field."""

    measure: str
    field: str

    @classmethod
    def of(cls, given: Any) -> Weight | None:
        """``{"$sum": "$fare"}``, or ``"fare"`` for short; None is none, so that points are counted."""
        if given is None or isinstance(given, Weight):
            return given
        if isinstance(given, str):
            given = {"$sum": given}
        if isinstance(given, Mapping) and len(given) == 1:
            operator, path = next(iter(given.items()))
            if isinstance(operator, str) and operator.removeprefix("$") in MEASURES and isinstance(path, str):
                name = path.removeprefix("$")
                if name and not name.startswith("$"):
                    return cls(operator.removeprefix("$"), name)
        raise UsageError(
            f"a weight of {given!r:.80} is not understood; give a field, or "
            '{"$sum": "$fare"}, with $sum, $avg, $min or $max'
        )

    @property
    def accumulators(self) -> dict[str, Any]:
        """What a ``$group`` adds up of it."""
        path = f"${self.field}"
        number = {"$cond": [{"$isNumber": path}, path, None]}
        if self.measure in ("min", "max"):
            return {"v": {f"${self.measure}": number}}
        counted = {"$sum": {"$cond": [{"$isNumber": path}, 1, 0]}}
        return {"v": {"$sum": path}, "m": counted}


@dataclass
class Total:
    """What has been added up so far."""

    weight: Weight
    count: int = 0
    numbers: int = 0
    _values: list[Any] = field(default_factory=list)

    def add_group(self, group: Mapping[str, Any]) -> None:
        """Add what a ``$group`` made of `Weight.accumulators`, with ``n`` for the number of documents."""
        self.count += int(group["n"])
        if group.get("v") is not None and group.get("m", 1):
            self.numbers += int(group.get("m", 1))
            self._put([group["v"]])

    def add(self, other: Total) -> None:
        """Add what another has added up."""
        self.count += other.count
        self.numbers += other.numbers
        self._put(other._values)

    def _put(self, values: list[Any]) -> None:
        self._values += values
        if len(self._values) > _FOLDED:
            self._values = [self._folded()]

    def _folded(self) -> Any:
        if self.weight.measure in ("sum", "avg"):
            return _summed(self._values)
        return (min if self.weight.measure == "min" else max)(self._values, key=sort_key)

    @property
    def result(self) -> Any:
        """The measure; None where there is no number, but a sum of none is 0."""
        if not self._values:
            return 0 if self.weight.measure == "sum" else None
        total = self._folded()
        if self.weight.measure != "avg":
            return total
        if isinstance(total, Decimal128):
            with decimal.localcontext(create_decimal128_context()):
                return Decimal128(total.to_decimal() / self.numbers)
        return total / self.numbers


def _summed(values: list[Any]) -> Any:
    if any(isinstance(value, Decimal128) for value in values):
        with decimal.localcontext(create_decimal128_context()):
            return Decimal128(sum((_decimal(value) for value in values), start=decimal.Decimal(0)))
    if all(isinstance(value, int) for value in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)  # infinities of both signs, or beyond all doubles


def _decimal(value: Any) -> decimal.Decimal:
    return value.to_decimal() if isinstance(value, Decimal128) else decimal.Decimal(value)


def sort_key(value: Any) -> Any:
    """Numbers of all kinds in MongoDB's order."""
    # NaN is the least number to MongoDB.
    number = _decimal(value)
    return (0, 0) if number.is_nan() else (1, number)
