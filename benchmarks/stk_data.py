"""Documents for the benchmarks `stk` and `stk_growth`: tweets, or a Parquet file with places, times and texts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import find_columns
from benchmarks.options import Options
from spatialnosql.errors import UsageError
from spatialnosql.geohash import Cells, points_to_cells
from spatialnosql.stk.sizes import Sizes, chosen_sizes
from spatialnosql.stk.word_batches import WordReader, Words
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.tweets import World as Language
from spatialnosql.subscriptions.tweets import generate_tweets

ROWS = 2_000_000
DAYS = 1
"""That the generated tweets span, however many they are; the paper counts 500 million a day."""
_TIMES = ("at", "time", "timestamp", "date", "month")
_BATCH = 2_000


@dataclass(frozen=True, eq=False)
class World:
    """Documents as arrays, in order of time: places, times, and the distinct words of each."""

    name: str
    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at_ms: NDArray[np.int64]
    words: Words

    def __len__(self) -> int:
        return len(self.lng)

    @property
    def cells(self) -> Cells:
        """60-bit cells."""
        return points_to_cells(self.lng, self.lat)

    def words_of(self, row: int) -> list[str]:
        """The words of a document."""
        first, last = self.words.offsets[row : row + 2].tolist()
        return [self.words.distinct[code] for code in self.words.codes[first:last].tolist()]

    def part(self, rows: NDArray[np.int64]) -> World:
        """A world of some documents, ascending."""
        return World(self.name, self.lng[rows], self.lat[rows], self.at_ms[rows], self.words.taken(rows))

    @cached_property
    def vocabulary(self) -> list[str]:
        """All words that any document has."""
        return [self.words.distinct[code] for code in np.unique(self.words.codes).tolist()]

    @cached_property
    def sizes(self) -> Sizes:
        """Of bins, cells and filter cubes, as `stk enable` chooses them."""
        some = slice(0, None, max(1, len(self) // 50_000))
        mean = len(self.words.codes) / max(1, len(self))
        return chosen_sizes(self.at_ms[some], self.cells[some], len(self), mean)

    @property
    def unit_s(self) -> int:
        """An hour; or the length of a bin where times are coarser, so that queries span as many of those."""
        return max(3600, self.sizes["bin_s"])

    def documents(self, *, first: int = 0, **columns: NDArray[Any]) -> Iterator[list[dict[str, Any]]]:
        """Documents in batches, in order of time, as they would have come, with further columns.

        Their ``_id`` counts from `first`.
        """
        words, offsets = self.words, self.words.offsets
        for start in range(0, len(self), _BATCH):
            part = slice(start, start + _BATCH)
            ends = offsets[start : start + _BATCH + 1].tolist()
            names = [words.distinct[code] for code in words.codes[ends[0] : ends[-1]].tolist()]
            documents: list[dict[str, Any]] = [
                {
                    "_id": first + row,
                    "loc": {"type": "Point", "coordinates": [lng, lat]},
                    "at": moment(at_ms),
                    "words": names[begin - ends[0] : end - ends[0]],
                }
                for row, lng, lat, at_ms, begin, end in zip(
                    range(start, len(self)), self.lng[part].tolist(), self.lat[part].tolist(),
                    self.at_ms[part].tolist(), ends, ends[1:], strict=False
                )
            ]  # fmt: skip
            for name, column in columns.items():
                for document, value in zip(documents, column[part].tolist(), strict=True):
                    document[name] = value
            yield documents


def moment(at_ms: int) -> dt.datetime:
    """Milliseconds as a date."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.timezone.utc)


def load_world(options: Options) -> World:
    """The documents of ``--data``, or generated tweets."""
    return _given(options) if options.data else _tweets(options.limit or ROWS, options.seed)


def _tweets(count: int, seed: int) -> World:
    language = Language.of(seed)
    parts = [
        (batch.lng, batch.lat, batch.at_ms, *_distinct(batch.offsets, batch.words, language.stop_words))
        for batch in generate_tweets(count, seed, per_second=count / (DAYS * 86_400), world=language)
    ]
    lng, lat, at_ms, counts, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    words = Words(list(language.words), codes, offsets, np.ones(len(lng), dtype=np.bool_))
    return World("synthetic tweets", lng, lat, at_ms, words)


def _distinct(
    offsets: NDArray[np.int64], words: NDArray[np.int32], stopped: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """How many distinct words each tweet has, stop words left out; and the words, each where it first stood."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    _, first = np.unique((owners << 32) | words, return_index=True)
    kept = np.sort(first)
    kept = kept[~stopped[words[kept]]]
    return np.bincount(owners[kept], minlength=len(offsets) - 1), words[kept]


def _given(options: Options) -> World:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if options.data is None or options.data.suffix != ".parquet":
        raise UsageError(f"--data {options.data}: this benchmark reads .parquet")
    table = pq.read_table(options.data)
    lng, lat = find_columns(table.schema.names)
    time = next((name for name in _TIMES if name in table.schema.names), None)
    if time is None:
        raise UsageError(f"{options.data} has no column of times ({', '.join(_TIMES)})")
    table = table.filter(pc.and_(pc.is_finite(table[lng]), pc.is_finite(table[lat])))
    table = table.slice(0, options.limit or table.num_rows)
    table = table.take(np.argsort(_milliseconds(table[time]), kind="stable"))
    kinds = {name: table.schema.field(name).type for name in table.schema.names if name != time}
    texts = [
        name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ]
    if not texts:
        raise UsageError(f"{options.data} has no column of text")
    joined = pc.binary_join_element_wise(
        *(pc.fill_null(table[name].cast(pa.string()), "") for name in texts), " "
    )
    words = WordReader(TextRules()).read(joined.combine_chunks())
    return World(
        options.data.stem, table[lng].to_numpy(), table[lat].to_numpy(), _milliseconds(table[time]), words
    )


def _milliseconds(column: Any) -> NDArray[np.int64]:
    """Times, or months as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.strptime(column.cast(pa.string()), format="%Y-%m", unit="ms")
    at_ms: NDArray[np.int64] = column.cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
    return at_ms
