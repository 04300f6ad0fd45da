"""What an ingest is asked to do, and what its phases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymongo.collection import Collection
from pyspark.sql import SparkSession

from spark_jobs.phases import Phased
from spark_jobs.screening import Box
from spatialnosql.cluster.deployment import Deployment
from spatialnosql.errors import UsageError
from spatialnosql.info import GH_FIELD, CollectionInfo
from spatialnosql.subscriptions.text import StopWords

Documents = Collection[dict[str, Any]]


@dataclass(frozen=True)
class StkColumns:
    """What documents are sealed by, for queries by place, time and words; None: as the collection has it, or chosen."""

    time: str
    text: str | None = None
    words: str | None = None
    bin_s: int | None = None
    cell_bits: int | None = None
    stem: str | None = None
    stop_words: StopWords | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.words is None):
            raise UsageError("--time needs words beside it: give either --text COLUMN or --words COLUMN")
        if (self.bin_s is None) != (self.cell_bits is None):
            raise UsageError("give both --time-bin and --time-cell, or neither")


@dataclass(frozen=True)
class Job:
    """What is to be done; the names are those of the command line's options."""

    into: str
    inputs: tuple[str, ...] = ()
    source: str | None = None  # a staging collection, in the place of files
    file_format: str | None = None
    read_options: Mapping[str, str] = field(default_factory=dict)
    scratch: str | None = None
    lon: str | None = None
    lat: str | None = None
    point: str | None = None
    select: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    location: str = "loc"
    gh: str = GH_FIELD
    mark: str | None = None
    limit: int | None = None
    batch: str | None = None
    max_bad: float = 0.05
    bounds: Box | None = None
    reject_zero: bool = False
    find_swapped: bool = True
    precision: int | None = None
    drift: float = 1.1
    reshard: bool = False
    validator: bool = True
    write_concern: str | None = None
    dry_run: bool = False
    stk: StkColumns | None = None


@dataclass
class Work(Phased):
    """What the phases share."""

    spark: SparkSession
    uri: str
    collection: Documents
    job: Job
    deployment: Deployment
    stored: dict[str, Any]  # the metadata as found at the start
    present: int  # documents in the collection, at the start

    @property
    def info(self) -> CollectionInfo:
        """The fields of the collection, as they are or will be."""
        form = self.stored.get("form", "geojson")
        unhashed = bool(self.stored.get("unhashed", False))
        return CollectionInfo(self.collection.full_name, self.job.location, self.job.gh, form, unhashed)

    @property
    def mark(self) -> str | None:
        """The field of the batch's name: as asked for, else as earlier batches have it."""
        stored: str | None = self.stored.get("mark")
        return self.job.mark or stored

    @property
    def shard_count(self) -> int:
        """How many shards there are; 1 where there are none."""
        return max(len(self.deployment.shards), 1)
