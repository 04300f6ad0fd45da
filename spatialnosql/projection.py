"""Projections with the fields that the client needs to settle documents, which are taken out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Widened:
    """What to send instead of a projection, and what to take out of each document that comes."""

    projection: dict[str, Any] | None
    added: tuple[str, ...] = ()

    def strip(self, documents: list[Any]) -> list[Any]:
        """The same documents without what was added."""
        for name in self.added:
            for document in documents:
                document.pop(name, None)
        return documents

    def cuts(self, field: str) -> bool:
        """Whether documents may come with a part of a field, which could be taken for another value."""
        inside = field.partition(".")[0] + "."
        return any(name.startswith(inside) for name in self.projection or ())


def widened(projection: Any, needed: Sequence[str]) -> Widened | None:
    """A projection with some fields of the top level beside what it asks for; None if it is too clever to be sure."""
    if not projection:
        return Widened(None) if projection is None or isinstance(projection, Mapping) else None
    if isinstance(projection, list | tuple):
        asked: dict[str, Any] = dict.fromkeys(projection, 1)
    elif isinstance(projection, Mapping):
        asked = dict(projection)
    else:
        return None
    for name, value in asked.items():
        # Expressions, $slice, $elemMatch, positions: the server knows.
        if not isinstance(name, str) or not isinstance(value, bool | int | float) or "$" in name:
            return None
        if any(name.startswith(f"{field}.") for field in needed):
            return None
    if any("." in field for field in needed):
        return None
    including = [bool(value) for name, value in asked.items() if name != "_id"] or [bool(asked["_id"])]
    if len(set(including)) > 1:
        return None  # the server refuses it, or knows what is meant
    if including[0]:
        added = [field for field in needed if not asked.get(field, field == "_id")]
        asked |= {field: 1 for field in added if field != "_id"}
    else:
        added = [field for field in needed if field in asked and not asked[field]]
        for field in added:
            if field != "_id":
                del asked[field]
    if "_id" in added:
        del asked["_id"]
    return Widened(asked or None, tuple(added))
