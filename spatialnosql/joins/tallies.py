"""The answers: how many points, or how much of a field, for each polygon."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tally:
    """One polygon: its points, and the measure that was asked for (the number of points where none was)."""

    id: Any
    count: int
    value: Any
    low: int | None = None  # of an estimate: there were at least so many,
    high: int | None = None  # and at most so many

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        bounds = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"id": self.id, "count": self.count, "value": self.value, **bounds}


@dataclass(frozen=True)
class AsOf:
    """Which state of the points an answer from stored statistics is of."""

    moment: dt.datetime  # of the last analysis
    points: int  # that were counted then
    keys_read: int | None  # at the borders, of now; None if the borders were estimated

    def __str__(self) -> str:
        estimated = self.keys_read is None
        read = "nothing read now" if estimated else f"{self.keys_read:,} keys at the borders read now"
        moment = self.moment if self.moment.tzinfo is None else self.moment.astimezone(dt.timezone.utc)
        return f"as of {moment:%Y-%m-%d %H:%M:%S} UTC, of {self.points:,} points; {read}"


@dataclass(frozen=True)
class Tallies(Sequence[Tally]):
    """Tallies in an order. `as_of` is None when they are of now."""

    rows: tuple[Tally, ...]
    as_of: AsOf | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Tally]:
        return iter(self.rows)

    def __getitem__(self, position: Any) -> Any:
        return self.rows[position]

    def to_dict(self) -> dict[Any, Any]:
        """The values by polygon."""
        return {row.id: row.value for row in self.rows}
