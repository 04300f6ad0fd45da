"""What a matching is asked to do, and what it did."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_jobs.join_work import is_file
from spark_jobs.match_worker import Tally
from spark_jobs.phases import Phased
from spatialnosql.errors import UsageError

CONSOLE = "console"
AUTO = "auto"
"""The index is shared if it fits a worker, and else parted by the planner that is best on average."""
COUNTED = ("rows", "no_place", "no_time", "matched", "known", "pairs", "buckets")
SHARES = ("text", "kernel", "write")


@dataclass(frozen=True)
class Objects:
    """Where objects come from, and in which columns or fields what of them is."""

    sources: tuple[str, ...]
    text: tuple[str, ...]
    file_format: str | None = None
    lon: str | None = None
    lat: str | None = None
    point: str | None = None
    time: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if not self.text:
            raise UsageError("which columns have the text? Give --text NAME, or several with commas between")
        if self.point and (self.lon or self.lat):
            raise UsageError("give either --point or --lon and --lat")
        if self.collection is not None and (self.lon or self.lat or self.id):
            raise UsageError("documents have a location and an _id: no --lon, --lat or --id for a collection")

    @property
    def collection(self) -> str | None:
        """The collection that the objects are in, if they are not in files."""
        if self.file_format is None and len(self.sources) == 1 and not is_file(self.sources[0]):
            return self.sources[0]
        return None


@dataclass(frozen=True)
class Job:
    """What is to be done; the names are those of the command line's options."""

    subscriptions: str
    objects: Objects
    out: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    everything: bool = False
    filter: Mapping[str, Any] | None = None
    index: str | None = None
    limit: int = 20
    partitioner: str = AUTO
    partitions: int | None = None
    worker_memory_mb: float | None = None

    def __post_init__(self) -> None:
        ranged = self.since is not None or self.until is not None
        if ranged and self.objects.time is None:
            raise UsageError("--since and --until go by a time: give --time NAME")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(
                f"--since {self.since:%Y-%m-%d %H:%M:%S} is not before --until {self.until:%Y-%m-%d %H:%M:%S}"
            )
        if ranged and self.everything:
            raise UsageError("give either --all or --since and --until")
        if self.filter is not None and self.objects.collection is None:
            raise UsageError("--filter is a MongoDB filter; the objects of files have none")
        if self.out is not None and self.out != CONSOLE and not self.out.endswith(".parquet"):
            raise UsageError(f"--out {self.out}: give FOLDER.parquet or {CONSOLE}, or nothing for MongoDB")
        if self.subscriptions == self.objects.collection:
            raise UsageError(f"{self.subscriptions} has the subscriptions; the objects must be elsewhere")

    @property
    def out_file(self) -> str | None:
        """The Parquet folder that is written, if any."""
        return self.out if self.out not in (None, CONSOLE) else None

    @property
    def into_mongodb(self) -> bool:
        """Whether matches are stored beside the subscriptions."""
        return self.out is None


@dataclass(kw_only=True)
class Counts(Phased):
    """What matchings count, in one go or in many."""

    subscriptions_count: int = 0
    index_mb: float = 0.0
    rows: int = 0
    no_place: int = 0
    no_time: int = 0
    matched: int = 0
    known: int = 0
    pairs: int = 0
    buckets: int = 0
    undone: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the workers' Python by what they did."""

    def add(self, tally: Tally) -> None:
        """Take in what some tasks did."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(tally, name))
        self.shares = {name: self.shares.get(name, 0.0) + getattr(tally, name) for name in SHARES}

    def clear(self) -> None:
        """Forget what was added."""
        for name in COUNTED:
            setattr(self, name, 0)
        self.shares = {}

    def table(self, *, stored: bool) -> list[str]:
        """The counts, for people."""
        table = [
            ("objects read", self.rows),
            ("without a valid place", self.no_place),
            ("without a time: taken as now", self.no_time),
            ("objects that somebody wanted", self.matched),
            ("of these, told of before", self.known),
            ("matches stored" if stored else "matches", self.pairs),
            ("buckets they are in", self.buckets),
        ]
        always = {"objects read", "objects that somebody wanted"}
        lines = [f"  {label:<40}{count:>14,}" for label, count in table if count or label in always]
        if self.undone:
            lines.append(f"  {self.undone} tasks of a run that died were removed first")
        return lines

    def workers(self) -> str:
        """What the workers spent, for people."""
        shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.shares.items())
        return f"CPU seconds in the workers: {shares}; the index: {self.index_mb:,.0f} MB a machine"


@dataclass
class Matched(Counts):
    """What a matching did."""

    subscriptions: str
    objects: str
    out: str
    read: str = ""
    """How the objects were read: which of them, and what was left to the server."""
    held: str = ""
    """How the subscriptions were held: by every worker, or in partitions; and why."""
    attempts: int = 1
    found: list[dict[str, Any]] | None = None

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        document = asdict(self)
        document["shares"] = {name: round(seconds, 3) for name, seconds in self.shares.items()}
        if self.found is None:
            del document["found"]
        return document | self.timings() | {"objects_per_s": self._rate()}

    def _rate(self) -> float | None:
        seconds = self.phases.get("match", 0.0)
        return round(self.rows / seconds, 1) if seconds else None

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"{self.objects} against {self.subscriptions_count:,} subscriptions of {self.subscriptions} -> {self.out}",
            f"  {self.read}",
            *([f"  {self.held}"] if self.held else []),
        ]
        lines += self.table(stored=self.out != CONSOLE)
        lines.append(self.timings_line())
        if self.shares:
            lines.append(self.workers())
        lines.append(f"{self._rate() or 0:,.0f} objects/s")
        return lines
