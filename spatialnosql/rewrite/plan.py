"""What will be sent instead of a query, what was decided, and why: in words and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from spatialnosql.cover import Cover
from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo

Filter: TypeAlias = Mapping[str, Any]
Pipeline: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class QoS:
    """What the caller wants: of time, of ranges, of rewriting at all.

    `prefer` "latency" spends more ranges to examine less, "throughput" fewer, which costs the servers less planning.
    `max_ranges` caps the ranges of a cover. `max_time_ms` bounds all commands of a plan together. `precision` is "cost"
    (cells of any precision, by what they cost) or "selectivity" (the paper's: cells of one precision over the shape's
    bounding rectangle, the precision with the most distinct keys a row).
    """

    prefer: Literal["latency", "throughput"] = "latency"
    max_ranges: int | None = None
    max_time_ms: int | None = None
    precision: Literal["cost", "selectivity"] = "cost"
    rewrite: bool = True

    def __post_init__(self) -> None:
        if self.prefer not in ("latency", "throughput"):
            raise UsageError(f"prefer is {self.prefer!r}; it must be 'latency' or 'throughput'")
        if self.precision not in ("cost", "selectivity"):
            raise UsageError(f"precision is {self.precision!r}; it must be 'cost' or 'selectivity'")
        for name in ("max_ranges", "max_time_ms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")

    @property
    def max_cells(self) -> int:
        """The budget of a cover."""
        return 256 if self.prefer == "latency" else 64


@dataclass(frozen=True)
class Cost:
    """Estimated milliseconds on the servers, as far as statistics tell."""

    original_ms: float
    rewritten_ms: float


@dataclass(frozen=True)
class NearWindow:
    """The nearest `needed` documents are wanted and no distance was given: ask within a radius, and wider if short."""

    operator: str
    lng: float
    lat: float
    min_distance_m: float
    needed: int
    first_radius_m: float


@dataclass(frozen=True)
class Plan:
    """A query as it came, as it will be sent, and the decision.

    `filter` (of a find, count, ...) or `pipeline` (of an aggregate) is what will be sent, in `commands` commands, or up
    to that many when a near query has to be widened.
    """

    original: Any
    filter: Filter | None = None
    pipeline: Pipeline | None = None
    hint: str | None = None
    rewritten: bool = False
    rules: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    commands: int = 1
    ranges: int = 0
    interior_ranges: int = 0
    cost: Cost | None = None
    shards: tuple[str, ...] = ()  # predicted; empty when unknown
    near: NearWindow | None = None

    def describe(self) -> dict[str, Any]:
        """The decision as data."""
        return {
            "rewritten": self.rewritten,
            "rules": list(self.rules),
            "reasons": list(self.reasons),
            "hint": self.hint,
            "commands": self.commands,
            "ranges": self.ranges,
            "interior_ranges": self.interior_ranges,
            "predicted_shards": list(self.shards),
            "cost": None
            if self.cost is None
            else {
                "original_ms": round(self.cost.original_ms, 2),
                "rewritten_ms": round(self.cost.rewritten_ms, 2),
            },
        }

    def __str__(self) -> str:
        verdict = "rewritten" if self.rewritten else "sent as it is"
        return f"{verdict}: {'; '.join(self.reasons) or 'nothing to rewrite'}"


@dataclass
class Notes:
    """What the rules found out on the way: the draft of a plan's decision."""

    rules: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    covers: list[Cover] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    near: NearWindow | None = None

    def applied(self, rule: str, reason: str) -> None:
        """A rule changed the query."""
        self.rules.append(rule)
        self.reasons.append(reason)

    def declined(self, reason: str) -> None:
        """Something could have been rewritten and was not."""
        self.reasons.append(reason)


@dataclass(frozen=True)
class Context:
    """What a rule may know beside the query."""

    info: CollectionInfo
    qos: QoS = field(default_factory=QoS)
    limit: int = 0  # of a find: how many documents are wanted at most; 0 = all
    skip: int = 0

    def with_limit(self, limit: int, skip: int = 0) -> Context:
        """The same with another limit."""
        return replace(self, limit=limit, skip=skip)
