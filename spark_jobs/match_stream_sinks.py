"""Where the matches of micro-batches go; each batch has a number, and one that comes again leaves nothing twice.

Into MongoDB a batch comes again as tasks over objects that are known. In a Parquet folder each has a folder of its own,
exchanged as a whole: ``FOLDER.parquet/batch=12/part-00000-....parquet``, which Spark and pyarrow read as one table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from spark_jobs.match_sinks import ConsoleSink, MongoSink, ParquetFolder, ParquetSink
from spark_jobs.match_worker import Sink
from spatialnosql.errors import UsageError

MANIFEST = "_stream.json"
"""Says which stream a folder belongs to; not the name that a batch job's has, which replaces what it finds."""
MatchInto = Callable[[Sink], list[str]]
"""Matches a micro-batch into a sink, and returns the notes of its tasks."""


class Batches(Protocol):
    """What takes the matches of micro-batches."""

    def store(self, number: int, match: MatchInto) -> None:
        """Take those of one."""


class MongoBatches:
    """Into the collections beside the subscriptions, in one run for as long as the stream lives."""

    def __init__(self, uri: str, subscriptions: str, run: str) -> None:
        self._uri, self._subscriptions, self._run = uri, subscriptions, run
        self.id_type: str | None = None

    def store(self, number: int, match: MatchInto) -> None:
        """Store those of one micro-batch."""
        match(MongoSink(self._uri, self._subscriptions, self._run, self.id_type, number))


class ParquetBatches:
    """Into a folder of folders."""

    def __init__(self, path: str, stream: str) -> None:
        self._path = Path(path.removeprefix("file://")).resolve()
        if "://" in path.removeprefix("file://"):
            raise UsageError(f"--out {path}: matches are written to folders of this file system")
        manifest = self._path / MANIFEST
        if self._path.exists():
            if not manifest.exists() or json.loads(manifest.read_text())["stream"] != stream:
                # Batches are numbered by the checkpoint: with another one they would replace those that are there.
                raise UsageError(
                    f"{path} is there and does not belong to this checkpoint; choose another name"
                )
        else:
            self._path.mkdir(parents=True)
            manifest.write_text(json.dumps({"stream": stream}))
        for left in self._path.glob(".batch=*"):
            shutil.rmtree(left, ignore_errors=True)

    def store(self, number: int, match: MatchInto) -> None:
        """Write the folder of one micro-batch, or replace it."""
        path = self._path / f"batch={number}"
        with ParquetFolder(str(path)) as folder:
            files = match(ParquetSink(str(folder.beside)))
            if files or path.exists():
                folder.commit(files, {"batch": number})


class ConsoleBatches:
    """To the terminal, the first few of each."""

    def __init__(self, limit: int, show: Callable[[dict[str, Any]], None]) -> None:
        self._limit, self._show = limit, show

    def store(self, number: int, match: MatchInto) -> None:
        """Show those of one micro-batch."""
        del number
        found = [one for note in match(ConsoleSink(self._limit)) for one in json.loads(note)]
        for one in found[: self._limit]:
            self._show(one)
