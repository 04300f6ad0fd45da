"""What will be sent instead of a query, what was decided, and why: in words and as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from spatialnosql.cover import Cover
from spatialnosql.errors import UsageError
from spatialnosql.info import CollectionInfo
from spatialnosql.region import Region

Filter: TypeAlias = Mapping[str, Any]
Pipeline: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class QoS:
    """What the caller wants: of time, of ranges, of rewriting at all.

    `prefer` "latency" spends more ranges to examine less, and asks for what is large in parts side by side;
    "throughput" does neither, which costs the servers less planning.
    `max_ranges` caps the ranges of a cover. `max_time_ms` bounds all commands of a plan together. `precision` is "cost"
    (cells of any precision, by what they cost) or "selectivity" (the paper's: cells of one precision over the shape's
    bounding rectangle, the precision with the most distinct keys a row). `form` is "cheapest", or the one to take
    wherever it is possible, whatever it costs: "server" lets the servers test the boundary of a shape, "client" settles
    it here.
    """

    prefer: Literal["latency", "throughput"] = "latency"
    max_ranges: int | None = None
    max_time_ms: int | None = None
    precision: Literal["cost", "selectivity"] = "cost"
    form: Literal["cheapest", "server", "client"] = "cheapest"
    rewrite: bool = True

    def __post_init__(self) -> None:
        if self.prefer not in ("latency", "throughput"):
            raise UsageError(f"prefer is {self.prefer!r}; it must be 'latency' or 'throughput'")
        if self.precision not in ("cost", "selectivity"):
            raise UsageError(f"precision is {self.precision!r}; it must be 'cost' or 'selectivity'")
        if self.form not in ("cheapest", "server", "client"):
            raise UsageError(f"form is {self.form!r}; it must be 'cheapest', 'server' or 'client'")
        for name in ("max_ranges", "max_time_ms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")

    @property
    def max_cells(self) -> int:
        """The budget of a cover."""
        return 512 if self.prefer == "latency" else 64


class UnreadShape:
    """A shape that is still to be read: while servers are busy, or by whoever looks at its region first."""

    def __init__(self, read: Callable[[], Region]) -> None:
        self._read = read
        self._region: Region | None = None

    @property
    def region(self) -> Region:
        """The region; raises what reading it raises."""
        if self._region is None:
            self._region = self._read()
        return self._region

    @property
    def is_read(self) -> bool:
        """Whether it was."""
        return self._region is not None


@dataclass(frozen=True)
class Settled:
    """A shape whose boundary is settled in the client: where it is, and what else documents must meet."""

    shape: Region | UnreadShape
    cover: Cover
    others: tuple[dict[str, Any], ...]  # conditions beside those on the location
    tests: Filter  # all conditions as they came: what the server is asked about the undecided
    expected: float = 0.0  # documents or keys that will come to the client, as predicted
    counted: Filter | None = None  # of a count: what is counted by the servers
    # What is counted, or found, in parts of even weight that may be asked side by side.
    parts: tuple[Filter, ...] = ()
    scanned: Filter | None = None  # of a count: whose keys are settled in the client
    one_scan: bool = False  # of a count: all keys come, those of interior ranges too
    names: tuple[Hashable, ...] = ()  # of the other conditions, for what is learnt of them
    held: float = 0.0  # of a count: what is predicted in all of the cover

    @property
    def region(self) -> Region:
        """Where documents must lie; read now if it was not yet."""
        return self.shape.region if isinstance(self.shape, UnreadShape) else self.shape

    @property
    def unread(self) -> bool:
        """Whether the shape is to be read while the first command is under way; then it may prove to be none."""
        return isinstance(self.shape, UnreadShape) and not self.shape.is_read

    def learn(self, info: CollectionInfo, seen: int, *, counted: int = 0) -> None:
        """Take note of how many documents or keys came, and how many the servers counted."""
        if self.names:
            info.experience.learn_share(self.names, counted + seen, self.held or self.expected)
        elif not self.others:
            info.learn(self.cover, seen, self.expected)

    def reading(self) -> Callable[[], object] | None:
        """What reads the shape, if it is unread."""
        return (lambda: self.region) if self.unread else None


@dataclass(frozen=True)
class Answered:
    """How many documents a shape should hold that the servers answer for alone, if the statistics are right."""

    cover: Cover
    least: float
    most: float
    names: tuple[Hashable, ...] = ()  # of what else is asked of them, for what is learnt of that

    def learn(self, info: CollectionInfo, seen: int) -> None:
        """Take note of how many there were."""
        if self.names:
            info.experience.learn_share(self.names, seen, (self.least + self.most) / 2)
        else:
            info.learn(self.cover, seen, self.least, self.most)


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
class Rings:
    """Documents by their distance from a place: the client asks ring after ring, each wider than the last."""

    lng: float
    lat: float
    min_m: float
    max_m: float  # infinite: to the other side of the Earth
    needed: int  # the nearest so many; 0 = all
    first_m: float  # where the first ring ends
    expected: float  # points in the first ring, as predicted
    regions: tuple[Region, ...]  # what else the location must meet
    others: tuple[dict[str, Any], ...]
    region_tests: Filter  # what the server is asked about documents at the border of a region,
    end_tests: Filter  # and about those at the least or the greatest distance
    hint: str | None
    names: tuple[Hashable, ...] = ()  # of the other conditions, for what is learnt of them
    hinted: float = math.inf  # points: of larger rings another index may find the documents sooner
    max_ranges: int | None = None  # in one ring, as the caller wants it
    whole: Filter | None = (
        None  # the query as it came, where an index of the user's own may find the rest sooner
    )

    def hint_for(self, points: float) -> str | None:
        """The index by which to read a ring of so many points; None to leave it to the servers."""
        return self.hint if points <= self.hinted else None


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
    form: str = "original"
    estimates_ms: Mapping[str, float] | None = (
        None  # what each form was thought to cost; None without statistics
    )
    shards: tuple[str, ...] = ()  # predicted; empty when unknown
    near: NearWindow | None = None
    settled: Settled | None = None
    rings: Rings | None = None
    pruned: Any = None  # by filters of words: a `spatialnosql.stk.planning.Look`
    answered: Answered | None = None  # what there is to be learnt from the number of documents
    hasty: bool = False  # the shape was not even read: if the query comes again, it will be

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
            "form": self.form,
            "estimates_ms": None
            if self.estimates_ms is None
            else {form: round(ms, 2) for form, ms in self.estimates_ms.items()},
        }

    def __str__(self) -> str:
        verdict = "rewritten" if self.rewritten else "sent as it is"
        costs = ""
        if self.estimates_ms:
            listed = ", ".join(f"{form} {ms:.1f} ms" for form, ms in self.estimates_ms.items())
            costs = f" (estimated: {listed})"
        return f"{verdict}: {'; '.join(self.reasons) or 'nothing to rewrite'}{costs}"


@dataclass
class Notes:
    """What the rules found out on the way: the draft of a plan's decision."""

    rules: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    covers: list[Cover] = field(default_factory=list)
    estimates: list[Mapping[str, float]] = field(default_factory=list)
    near: NearWindow | None = None
    answered: Answered | None = None

    def applied(self, rule: str, reason: str) -> None:
        """A rule changed the query."""
        self.rules.append(rule)
        self.reasons.append(reason)

    def declined(self, reason: str) -> None:
        """Something could have been rewritten and was not."""
        self.reasons.append(reason)


@dataclass(frozen=True)
class Wanted:
    """What is wanted of all the documents that are found: the first so many, in an order."""

    first: int = 0  # limit and skip together; 0 = all
    order: tuple[tuple[str, int], ...] = ()  # fields and their directions, 1 or -1; () = any
    in_memory: bool = False  # the servers may not sort on disk


ALL = Wanted()
"""All, in any order."""


@dataclass(frozen=True)
class Context:
    """What a rule may know beside the query."""

    info: CollectionInfo
    qos: QoS = field(default_factory=QoS)
    limit: int = 0  # of a find: how many documents are wanted at most; 0 = all
    skip: int = 0
    again: bool = False  # the query has come before
    wanted: Wanted = ALL

    @property
    def enough(self) -> int:
        """How many documents are read at most, where any of them will do; 0 = all."""
        if self.limit:
            return self.limit + self.skip
        return 0 if self.wanted.order else self.wanted.first

    def with_limit(self, limit: int, skip: int = 0) -> Context:
        """The same with another limit."""
        return replace(self, limit=limit, skip=skip)
