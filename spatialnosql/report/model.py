"""What a report says, as plain values: gathered by those who ask the servers, drawn by those who do not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.examined import Examined
from spatialnosql.histogram import Histogram
from spatialnosql.skew import Choice

Ring: TypeAlias = NDArray[np.float64]
"""Places of a line or of a border, one a row: longitude, latitude."""


@dataclass(frozen=True)
class Chunk:
    """The half-open range ``[lo, hi)`` of 60-bit cells on one shard, with the documents that the statistics expect."""

    shard: str
    lo: int
    hi: int
    documents: float


@dataclass(frozen=True)
class ShardLoad:
    """What one shard holds of the collection."""

    name: str
    documents: int
    data_bytes: int
    stored_bytes: int  # on disk, compressed
    index_bytes: int
    chunks: int


@dataclass(frozen=True)
class Batch:
    """One batch of the ledger of ingests."""

    name: str
    state: str
    started: dt.datetime | None
    rows: int
    written: int = 0
    replaced: int = 0
    already_there: int = 0
    superseded: int = 0
    quarantined: int = 0
    seconds: float | None = None
    attempts: int = 1
    error: str | None = None


@dataclass(frozen=True)
class CollectionFacts:
    """A collection as it is now, and as its last analysis found it."""

    namespace: str
    deployment: str  # "sharded", "replica set", "standalone"
    version: str
    location: str
    gh: str
    histogram: Histogram
    choice: Choice | None
    shards: tuple[ShardLoad, ...]
    chunks: tuple[Chunk, ...]  # none unless it is sharded by geohash
    key: tuple[str, ...] = ()  # the fields of the shard key
    batches: tuple[Batch, ...] = ()
    why_not: str | None = None  # why queries are not rewritten
    analyzed: dt.datetime | None = None
    without_gh: int = 0
    made: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc))

    @property
    def documents(self) -> int:
        """Documents on all shards, now."""
        return sum(shard.documents for shard in self.shards)

    @property
    def imbalance(self) -> float:
        """The fullest shard over the mean."""
        most = max((shard.documents for shard in self.shards), default=0)
        return most * len(self.shards) / self.documents if self.documents else 1.0

    @property
    def shard_names(self) -> tuple[str, ...]:
        """All shards in order: what colours go by."""
        return tuple(shard.name for shard in self.shards)


@dataclass(frozen=True)
class Outline:
    """A shape of a query: an area (rings, outer and holes alike), a line, or places."""

    kind: str  # "area", "line", "place"
    rings: tuple[Ring, ...]
    name: str = "the shape"


@dataclass(frozen=True)
class Answers:
    """Both ways to ask, really asked: how many came, and how long that took, by the client's clock."""

    original: int
    rewritten: int
    original_ms: float
    rewritten_ms: float
    equal: bool


@dataclass(frozen=True)
class QueryFacts:
    """A query explained: its shapes, the cover that is sent, and what the servers examined both ways."""

    title: str
    kind: str  # "find", "count" or "aggregate"
    text: str  # as JSON
    verdict: str
    rewritten: bool
    original: Examined
    sent: Examined | None
    outlines: tuple[Outline, ...] = ()
    interior: Ranges = NOTHING
    boundary: Ranges = NOTHING
    answers: Answers | None = None
    whole_border: bool = True  # False: the cover is of the first ring of several


@dataclass(frozen=True)
class Area:
    """One polygon of a Top-N."""

    name: str
    points: int
    rings: tuple[Ring, ...]


@dataclass(frozen=True)
class TopFacts:
    """Points by polygon, the fullest first."""

    source: str
    areas: tuple[Area, ...]
    total: int  # polygons there are
    seconds: float
    shown: int = 10


@dataclass(frozen=True)
class PartitionFacts:
    """What a plan of partitions does with a sample of objects."""

    planner: str
    loads_s: NDArray[np.float64]
    objects: NDArray[np.int64]
    subscriptions: NDArray[np.int64]
    replication: float
    spread: float
    dropped: float
    sample: str  # in words: whose objects
    grid: tuple[float, float, float, float, int, int] | None = None  # west, south, east, north, columns, rows
    homes: NDArray[np.int32] | None = None  # the partition of each cell; -1 where text decides

    @property
    def imbalance(self) -> float:
        """The greatest load over the mean."""
        mean = float(self.loads_s.mean()) if self.loads_s.size else 0.0
        return float(self.loads_s.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class SubscriptionFacts:
    """A collection of subscriptions, and how they would be spread over workers."""

    namespace: str
    count: int
    owners: int
    matches: int
    matched_objects: int
    partitions: PartitionFacts | None
    note: str | None = None  # why there are none


@dataclass(frozen=True)
class Report:
    """Everything that is shown."""

    facts: CollectionFacts
    queries: Sequence[QueryFacts] = ()
    top: TopFacts | None = None
    subscriptions: SubscriptionFacts | None = None
    title: str | None = None
    notes: Sequence[str] = ()
