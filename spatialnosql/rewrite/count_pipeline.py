"""Pipelines that only count: ``$match`` and then ``$count``, or a ``$group`` of everything that sums a constant.

Before: ``[{$match: {loc: {$geoWithin: SHAPE}}}, {$group: {_id: null, n: {$sum: 1}}}]``
After: a count as `settle_count` does it, and the document that the pipeline would have made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.int64 import Int64

from spatialnosql.rewrite.plan import Filter

_INT32, _INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class CountPipeline:
    """What a pipeline counts, and what it makes of a number that is not 0."""

    filter: Filter
    to_document: Callable[[int], dict[str, Any]]

    def answer(self, count: int) -> list[dict[str, Any]]:
        """The documents of the pipeline's answer: none when there was nothing to count."""
        return [self.to_document(count)] if count else []


def read_count_pipeline(pipeline: Sequence[Mapping[str, Any]]) -> CountPipeline | None:
    """The count that a pipeline is; None if it is anything else, or wrong in a way that the server should tell."""
    if len(pipeline) < 2 or any(len(stage) != 1 for stage in pipeline):
        return None
    *matches, last = pipeline
    filters = [stage.get("$match") for stage in matches]
    if not all(isinstance(part, Mapping) and part for part in filters):
        return None
    asked: Any = filters[0] if len(filters) == 1 else {"$and": filters}
    operator, operand = next(iter(last.items()))
    if operator == "$count" and isinstance(operand, str) and _is_name(operand):
        return CountPipeline(asked, lambda count: {operand: _number(count)})
    if operator == "$group" and isinstance(operand, Mapping):
        return _read_group(asked, operand)
    return None


def _read_group(filter: Filter, group: Mapping[str, Any]) -> CountPipeline | None:
    fields = {name: value for name, value in group.items() if name != "_id"}
    if "_id" not in group or not _is_constant(group["_id"]):
        return None
    factors = {name: _factor(value) for name, value in fields.items()}
    if any(factor is None or not _is_name(name) for name, factor in factors.items()):
        return None
    known = {name: int(factor or 0) for name, factor in factors.items()}
    return CountPipeline(
        filter,
        lambda count: {
            "_id": group["_id"],
            **{name: _number(factor * count) for name, factor in known.items()},
        },
    )


def _number(value: int) -> int:
    """As the server would send it: of 64 bits where 32 do not do."""
    return value if abs(value) <= _INT32 else Int64(value)


def _factor(accumulator: Any) -> int | None:
    """What each document adds; None if that is no whole number, or not known."""
    if not isinstance(accumulator, Mapping) or len(accumulator) != 1:
        return None
    operator, operand = next(iter(accumulator.items()))
    if operator == "$count" and operand == {}:
        return 1
    small = type(operand) is int and abs(operand) <= _INT32
    return operand if operator == "$sum" and small else None


def _is_constant(value: Any) -> bool:
    """Whether it is the same for every document, and comes back as it went."""
    return (
        value is None
        or type(value) is bool
        or (type(value) is int and abs(value) <= _INT64)
        or (isinstance(value, str) and not value.startswith("$"))
    )


def _is_name(name: str) -> bool:
    return bool(name) and "$" not in name and "." not in name and "\0" not in name and name != "_id"
