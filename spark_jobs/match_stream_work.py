"""What a stream of matchings is asked to do, what it did, and what it remembers beside Spark's checkpoint."""

from __future__ import annotations

import json
import re
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spark_jobs.match_balance_state import Balanced
from spark_jobs.match_work import CONSOLE, Counts, Objects
from spark_jobs.match_worker import Tally
from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.balancing.policies import BALANCES
from spatialnosql.subscriptions.balancing.shedding import Utility
from spatialnosql.subscriptions.index_keeper import Refreshed
from spatialnosql.target import split_namespace

STATE = "spatialnosql.json"
NO_BALANCE = "none"
UNMOVABLE = ("anycast", "salb")
"""Planners whose plans local adjustment cannot change: see `plan_edits`."""
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000}


@dataclass(frozen=True)
class StreamJob:
    """What is to be done; the names are those of the command line's options."""

    subscriptions: str
    objects: Objects
    out: str | None = None
    checkpoint: str | None = None
    schema: str | None = None
    """Of files, as DDL, while there are none to look at."""
    trigger_ms: int = 2_000
    once: bool = False
    all_first: bool = False
    readers: int = 1
    index: str | None = None
    limit: int = 20
    balance: str = NO_BALANCE
    partitions: int | None = None
    """So many; None for one index that all share, unless they are balanced: then as many as there are cores."""
    partitioner: str = "hybrid"
    shed: Utility | None = None
    shed_buffer: int = 100_000
    """Objects that may wait, in a micro-batch, before some are shed."""

    def __post_init__(self) -> None:
        if len(self.objects.sources) != 1:
            raise UsageError("a stream has one source: give one folder, or one DB.COLLECTION")
        split_namespace(self.subscriptions)
        if self.out is not None and self.out != CONSOLE and not self.out.endswith(".parquet"):
            raise UsageError(f"--out {self.out}: give FOLDER.parquet or {CONSOLE}, or nothing for MongoDB")
        if self.checkpoint is None and self.out != CONSOLE:
            raise UsageError("give --checkpoint FOLDER, in which the stream notes how far it has come")
        if self.checkpoint is not None and "://" in self.checkpoint.removeprefix("file://"):
            raise UsageError(f"--checkpoint {self.checkpoint}: give a folder of this file system")
        if self.subscriptions == self.objects.collection:
            raise UsageError(f"{self.subscriptions} has the subscriptions; the objects must be elsewhere")
        if self.balance not in BALANCES:
            raise UsageError(f"--balance {self.balance}: there are {', '.join(BALANCES)}")
        if self.balance == "local" and self.partitioner in UNMOVABLE:
            raise UsageError(
                f"--balance local moves cells and terms; {self.partitioner} places by more. Use --partitioner hybrid"
            )
        if self.shed is not None and not self.in_partitions:
            raise UsageError("--shed leaves out partitions: give --partitions N or --balance")
        if self.objects.collection is None:
            if self.all_first:
                raise UsageError("--all-first is for collections: of a folder, all files are read anyway")
            if self.objects.file_format == "geojson":
                raise UsageError("GeoJSON files cannot be streamed; give Parquet, CSV or JSON lines")
            return
        split_namespace(self.objects.collection)
        if self.schema is not None:
            raise UsageError("--schema is for files; the fields of documents are known")

    @property
    def in_partitions(self) -> bool:
        """Whether the subscriptions are held in partitions."""
        return self.partitions is not None or self.balance != NO_BALANCE

    @property
    def source(self) -> str:
        """The folder or collection that objects come from."""
        return self.objects.sources[0]

    @property
    def into_mongodb(self) -> bool:
        """Whether matches are stored beside the subscriptions."""
        return self.out is None


def milliseconds_of(text: str) -> int:
    """A time between micro-batches: ``500ms``, ``2s``, ``1m``."""
    found = re.fullmatch(r"(\d+)(ms|s|m)", text.strip())
    if found is None:
        raise UsageError(f"--trigger {text}: give a number and ms, s or m, as in 2s")
    return int(found[1]) * _UNITS_MS[found[2]]


class StreamState:
    """What must be the same when a stream is taken up again; in a file of the folder of its checkpoint."""

    def __init__(self, folder: Path, job: StreamJob) -> None:
        self._path = folder / STATE
        asked = {"subscriptions": job.subscriptions, "objects": job.source, "out": job.out}
        if self._path.exists():
            self._values: dict[str, Any] = json.loads(self._path.read_text())
            for name, value in asked.items():
                if self._values[name] != value:
                    raise UsageError(
                        f"{folder} is the checkpoint of a stream with other {name} ({self._values[name]}, not "
                        f"{value}); give another folder"
                    )
        else:
            if folder.is_dir() and any(folder.iterdir()):
                raise UsageError(f"{folder} is not empty and holds no checkpoint; give a folder for it alone")
            self._values = {"stream": secrets.token_hex(6), **asked}
            if job.all_first:
                self._values["all_first"] = "wanted"
            folder.mkdir(parents=True, exist_ok=True)
            self._write()

    @property
    def name(self) -> str:
        """What tells this stream from all others."""
        return str(self._values["stream"])

    def get(self, key: str) -> Any:
        """What was noted, or None."""
        return self._values.get(key)

    def note(self, **values: Any) -> None:
        """Note something for the next start."""
        self._values |= values
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self._values))
        fresh.replace(self._path)


@dataclass
class Streamed(Counts):
    """What a stream did."""

    subscriptions: str
    objects: str
    out: str
    batches: int = 0
    """Micro-batches with objects in them."""
    added: int = 0
    removed: int = 0
    restarts: int = 0
    latency_s: float | None = None
    """The longest time from when an object was written until its matches were stored."""
    seconds: float = 0.0
    interrupted: bool = False
    balanced: Balanced | None = None

    def take(
        self, number: int, tally: Tally, refreshed: Refreshed, seconds: float, latency_s: float | None
    ) -> None:
        """Add a micro-batch, and say what it did, if anything."""
        self.add(tally)
        self.added += refreshed.added
        self.removed += refreshed.removed
        self.batches += tally.rows > 0
        if latency_s is not None:
            self.latency_s = max(latency_s, self.latency_s or 0.0)
        if not (tally.rows or refreshed):
            return
        late = f", stored {latency_s:.1f} s after the oldest was written" if latency_s is not None else ""
        print(
            f"batch {number}: {tally.rows:,} objects, {tally.pairs:,} matches, "
            f"subscriptions +{refreshed.added:,} -{refreshed.removed:,}, {seconds:.1f} s{late}",
            file=sys.stderr,
            flush=True,
        )

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        document = asdict(self)
        for name in ("phases", "shares"):
            document[name] = {key: round(seconds, 3) for key, seconds in document[name].items()}
        for name in ("seconds", "spark_start_s", "latency_s"):
            document[name] = None if document[name] is None else round(document[name], 3)
        return document

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"{self.objects} against the subscriptions of {self.subscriptions} -> {self.out}",
            f"  {self.batches:,} micro-batches with objects; subscriptions +{self.added:,} -{self.removed:,}, "
            f"now {self.subscriptions_count:,}",
            *self.table(stored=self.out != CONSOLE),
        ]
        if self.balanced is not None:
            lines += self.balanced.lines()
        if self.restarts:
            lines.append(f"  taken up again {self.restarts} times after a server was lost")
        if self.latency_s is not None:
            lines.append(f"At the latest stored {self.latency_s:.1f} s after an object was written")
        if self.shares:
            lines.append(self.workers())
        lines.append(f"Seconds: {self.seconds:.1f}, Spark's start {self.spark_start_s:.1f}")
        return lines
