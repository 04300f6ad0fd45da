"""What Spark's workers do for queries by place, time and words: read words, seal, and add keys to the filters.

The keys of a task are added before the last of its rows is given back. So when Spark has all rows of a task, the server
has all its keys, and the driver may publish them. Tasks have parts of the curve, and so have filter cubes: there is
about one piece a cube. A task that is done again adds nothing, for its keys are there; unless the source has changed
meanwhile, and then it publishes them itself.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pymongo import MongoClient
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

from spark_jobs.documents import SEAL
from spark_jobs.screening import AT, CELL
from spatialnosql.geohash import Cells
from spatialnosql.steps import run
from spatialnosql.stk.filter_store import GRACE_S, add_missing, has_published, publish, read_state
from spatialnosql.stk.keys import Keys, keys_by_cube, union
from spatialnosql.stk.seal_batches import seals_of
from spatialnosql.stk.settings import Ints, StkSettings
from spatialnosql.stk.word_batches import WordReader, Words, words_of_lists
from spatialnosql.subscriptions.text import TextRules

_SCHEMA = "words array<string>, c long, s long, added long"
"""Of `SEAL`: words if they were read from a text, cube and seal (null if the row stays fresh), and in the last row of a
task how many keys it has added."""
MOST_KEYS = 8_000_000
"""That a task holds before it adds them: 32 MB, some 100,000 long texts."""
FIRST_MS = -2_208_988_800_000
"""1900. Of earlier times calendars differ, and the connector does not always store what Spark has; they stay fresh."""


@dataclass(frozen=True)
class Filters:
    """The filters that keys are added to."""

    uri: str
    database: str
    collection: str
    writer: str  # for whom
    filters: Any  # ObjectId of the set
    settings: dict[str, Any]
    from_text: bool


def with_seals(rows: DataFrame, words: Column, filters: Filters) -> DataFrame:
    """The rows with `SEAL`, their keys added to the filters; only time, place and text go to Python."""

    def run(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return _sealed(batches, filters)

    seal = arrow_udf(run, _SCHEMA).asNondeterministic()
    return rows.withColumn(SEAL, seal(F.col(AT), F.col(CELL), words))


@functools.lru_cache(maxsize=1)
def _reader(rules: TextRules) -> WordReader:
    """One a worker: what it remembers of words is worth as much to the next task."""
    return WordReader(rules)


def _sealed(batches: Iterator[Any], filters: Filters) -> Iterator[Any]:
    settings = StkSettings.from_document(filters.settings)
    reader = _reader(settings.rules) if filters.from_text else None
    with MongoClient[dict[str, Any]](filters.uri) as client:
        gathered = _Gathered(client[filters.database][filters.collection], filters)
        held: Any = None
        for at, cells, texts in batches:
            words = words_of_lists(texts) if reader is None else reader.read(texts)
            sealed = _seal(settings, at, cells.to_numpy().astype(np.uint64), words)
            gathered.add(*sealed.keys(settings))
            if held is not None:
                yield held.answer(0)
            held = _Answer(len(at), sealed, None if reader is None else words)
        if held is not None:
            yield held.answer(gathered.finish())


@dataclass(frozen=True, eq=False)
class _Sealed:
    """The rows that could be sealed."""

    rows: NDArray[np.int64]
    bins: Ints
    cells: Ints
    cubes: Ints
    seals: Ints
    words: Words

    def keys(self, settings: StkSettings) -> tuple[Ints, list[Keys]]:
        return keys_by_cube(settings, self.bins, self.cells, self.words.offsets, self.words.hashes())


def _seal(settings: StkSettings, at: Any, places: Cells, words: Words) -> _Sealed:
    at_ms = at.fill_null(FIRST_MS - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    bins = settings.bins_of(at_ms)
    rows = np.flatnonzero((at_ms >= FIRST_MS) & settings.has_bins(bins) & words.usable)
    at_ms, bins, places, words = at_ms[rows], bins[rows], places[rows], words.taken(rows)
    cells = settings.cells_of(places)
    cubes = settings.data_cubes(bins, cells)
    return _Sealed(rows, bins, cells, cubes, seals_of(cubes, at_ms, places, words), words)


@dataclass(frozen=True, eq=False)
class _Answer:
    count: int
    sealed: _Sealed
    words: Words | None

    def answer(self, added: int) -> Any:
        """The column `SEAL` of a batch."""
        fresh = np.ones(self.count, dtype=np.bool_)
        fresh[self.sealed.rows] = False
        columns = []
        for values in (self.sealed.cubes, self.sealed.seals):
            column = np.zeros(self.count, dtype=np.int64)
            column[self.sealed.rows] = values
            columns.append(pa.array(column, mask=fresh))
        none = pa.nulls(self.count, pa.list_(pa.string()))
        counted = np.zeros(self.count, dtype=np.int64)
        counted[-1:] = added
        lists = none if self.words is None else self.words.lists()
        return pa.StructArray.from_arrays(
            [lists, *columns, pa.array(counted)], names=["words", "c", "s", "added"]
        )


class _Gathered:
    """The keys of a task, by filter cube, until they are added."""

    def __init__(self, collection: Any, filters: Filters) -> None:
        self._collection, self._filters = collection, filters
        self._keys: dict[int, list[Keys]] = {}
        self._held = self._added = 0

    def add(self, cubes: Ints, keys: list[Keys]) -> None:
        for cube, some in zip(cubes.tolist(), keys, strict=True):
            self._keys.setdefault(cube, []).append(some)
            self._held += len(some)
        if self._held > MOST_KEYS:
            self.finish()

    def finish(self) -> int:
        """Add what is held; how many keys were new, of all that were held so far."""
        keys = [union(several) for several in self._keys.values()]
        added = add_missing(self._collection, self._filters.filters, list(self._keys), keys)
        if added and has_published(self._collection, self._filters.writer):
            publish(self._collection, self._filters.filters, np.array(sorted(self._keys), dtype=np.int64))
            state = run(read_state(self._collection))
            time.sleep(state.grace_s if state is not None else GRACE_S)  # as after every publication
        self._added += added
        self._keys, self._held = {}, 0
        return self._added
