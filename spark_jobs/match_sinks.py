"""Where a task's matches go: into MongoDB, into a Parquet file, or back to the driver for the console.

Into MongoDB by `MatchStore`. A Parquet file is written under a name that only its task knows, in a folder beside the
one that is meant; when all tasks have succeeded the driver removes what others have left and exchanges the folders.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pymongo import MongoClient

from spark_jobs.match_worker import AT, ID, TEXT, Found
from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.match_documents import Things
from spatialnosql.subscriptions.match_store import MatchStore, Stored, Task
from spatialnosql.subscriptions.object_ids import ObjectIds
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.target import split_namespace

MOST_HELD = 4_000_000
"""Matches that a task holds before it writes them: the more, the fewer buckets; some 200 MB."""
MANIFEST = "_matches.json"
"""Of a folder of matches; a folder without it is never replaced."""


# -- MongoDB -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MongoSink:
    """Into the collections beside the subscriptions."""

    uri: str = field(repr=False)
    subscriptions: str
    run: str
    id_type: str | None = None
    """The BSON type of objects' identifiers, where they come as text."""
    batch: int | None = None
    """Of a run with several batches, which: each has a part 0."""

    def open(self, part: int) -> MongoWriter:
        """The writer of a task."""
        return MongoWriter(self, part if self.batch is None else f"{self.batch}-{part}")


class MongoWriter:
    """Holds the matches of a task, so that an owner's are in few buckets, and writes them by the million."""

    note: str | None = None

    def __init__(self, sink: MongoSink, part: int | str) -> None:
        self._sink, self._part = sink, part
        self._names: Names | None = None
        self._task: Task
        self._begin()

    def _begin(self) -> None:
        self._things: list[Things] = []
        self._rows: list[NDArray[np.int64]] = []
        self._numbers: list[NDArray[np.int32]] = []
        self._count = self._held = 0

    def __enter__(self) -> MongoWriter:
        with ExitStack() as stack:
            client: MongoClient[dict[str, Any]] = stack.enter_context(MongoClient(self._sink.uri))
            database, name = split_namespace(self._sink.subscriptions)
            store = MatchStore(client[database][name])
            self._task = stack.enter_context(store.task(self._sink.run, self._part))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with self._stack:
            if kind is not None:
                raise error  # so that the task is not taken for finished
            self._flush()

    def write(self, found: Found, names: Names) -> None:
        """Hold the objects that have matches, and the matches."""
        first = np.diff(found.rows, prepend=-1) != 0
        matched = found.rows[first]
        texts = found.batch.column(TEXT).cast(pa.large_string()).fill_null("").take(pa.array(matched))
        ids = ObjectIds.of(found.batch.column(ID).take(pa.array(matched)), self._sink.id_type)
        places = (found.lng[matched], found.lat[matched], found.at[matched])
        timed = found.batch.column(AT).is_valid().to_numpy(zero_copy_only=False)[matched]
        self._things.append(Things(ids, Strings.from_arrow(texts), *places, timed))
        self._rows.append(np.cumsum(first) - 1 + self._count)
        self._numbers.append(found.numbers)
        self._count += matched.size
        self._held += found.rows.size
        self._names = names
        if self._held >= MOST_HELD:
            self._flush()

    def _flush(self) -> None:
        if self._names is not None and self._held:
            rows, numbers = np.concatenate(self._rows), np.concatenate(self._numbers)
            self._task.write(Things.joined(self._things), rows, numbers, self._names)
        self._begin()

    @property
    def stored(self) -> Stored:
        """What was stored."""
        return self._task.stored


# -- Parquet -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetSink:
    """Into files of a folder that all workers see."""

    folder: str

    def open(self, part: int) -> ParquetWriter:
        """The writer of a task."""
        return ParquetWriter(Path(self.folder), f"part-{part:05d}-{secrets.token_hex(4)}.parquet")


class ParquetWriter:
    """One row for each matched object: ``object, at, lng, lat``, and as lists its ``subscriptions`` and ``owners``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.note: str | None = name
        self._writer: Any = None
        self.stored = Stored()
        self._names: Names | None = None

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, found: Found, names: Names) -> None:
        """Write the objects that have matches."""
        if self._names is not names:
            owners = pa.DictionaryArray.from_arrays(pa.array(names.owner), names.owners.to_arrow())
            self._names, self._columns = names, (names.ids.to_arrow(), owners)
        table = match_table(found, *self._columns)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._folder / str(self.note), table.schema, compression="zstd", compression_level=1
            )
        self._writer.write_table(table)
        self.stored.add(Stored(table.num_rows, 0, int(found.rows.size)))


def match_table(found: Found, ids: Any, owners: Any) -> Any:
    """The objects that have a match, with `ids` and `owners` of subscriptions by number."""
    starts = np.flatnonzero(np.diff(found.rows, prepend=-1))
    bounds = pa.array(np.append(starts, found.rows.size), pa.int64())
    matched, taken = found.rows[starts], pa.array(found.numbers)
    return pa.table(
        {
            "object": found.batch.column(ID).take(pa.array(matched)),
            "at": pa.array(found.at[matched], pa.timestamp("ms", "UTC")),
            "lng": found.lng[matched],
            "lat": found.lat[matched],
            "subscriptions": pa.LargeListArray.from_arrays(bounds, ids.take(taken)),
            "owners": pa.LargeListArray.from_arrays(bounds, owners.take(taken)),
        }
    )


class ParquetFolder:
    """A folder of matches that is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self._path = Path(path.removeprefix("file://")).resolve()
        if "://" in path.removeprefix("file://"):
            raise UsageError(f"--out {path}: matches are written to folders of this file system")
        if self._path.exists() and not (self._path / MANIFEST).exists():
            raise UsageError(
                f"{path} is there and was not made by a matching; it would be replaced: choose another name"
            )
        self.beside = self._path.with_name(f".{self._path.name}-{secrets.token_hex(4)}")

    def __enter__(self) -> ParquetFolder:
        self.beside.mkdir(parents=True)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        shutil.rmtree(self.beside, ignore_errors=True)

    def commit(self, files: Iterable[str], summary: dict[str, Any]) -> None:
        """Put the files of the tasks that succeeded into place, and nothing else."""
        meant = set(files)
        for path in self.beside.iterdir():
            if path.name not in meant:
                path.unlink()
        (self.beside / MANIFEST).write_text(json.dumps(summary, default=str))
        old = self.beside.with_name(f"{self.beside.name}-old")
        if self._path.exists():
            self._path.rename(old)
        self.beside.rename(self._path)
        shutil.rmtree(old, ignore_errors=True)


# -- the console -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConsoleSink:
    """Back to the driver, the first few of each task."""

    limit: int

    def open(self, part: int) -> ConsoleWriter:
        """The writer of a task."""
        del part
        return ConsoleWriter(self.limit)


class ConsoleWriter:
    """Keeps the first few matches."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[dict[str, Any]] = []
        self.stored = Stored()

    def __enter__(self) -> ConsoleWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None

    @property
    def note(self) -> str | None:
        """The matches, as JSON."""
        return json.dumps(self._kept, default=str)

    def write(self, found: Found, names: Names) -> None:
        """Keep some, count all."""
        self.stored.add(Stored(np.unique(found.rows).size, 0, int(found.rows.size)))
        room = self._limit - len(self._kept)
        for row, number in zip(found.rows[:room].tolist(), found.numbers[:room].tolist(), strict=True):
            thing = {name: found.batch.column(name)[row].as_py() for name in (ID, TEXT)}
            self._kept.append(
                {
                    "owner": names.owners[int(names.owner[number])],
                    "subscription": names.ids[number],
                    "object": thing[ID] if isinstance(thing[ID], int | float | str) else str(thing[ID]),
                    "at_ms": int(found.at[row]),
                    "lng": float(found.lng[row]),
                    "lat": float(found.lat[row]),
                    "text": thing[TEXT],
                }
            )
