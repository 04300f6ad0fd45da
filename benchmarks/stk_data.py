"""Documents and queries for the benchmark `stk`: tweets, or a Parquet file with places, times and texts.

Queries are those of KV-STK's table 3: 1 to 5 hours, squares of 1 to 5 km, 1 to 5 words, AND and OR, around a document
each. Half of them ask for words of documents that are there, the others for any words, and mostly find nothing.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import find_columns
from benchmarks.options import Options
from spatialnosql.errors import UsageError
from spatialnosql.geohash import Cells, points_to_cells, points_to_strings
from spatialnosql.stk.sizes import chosen_sizes
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.tweets import World as Language
from spatialnosql.subscriptions.tweets import generate_tweets

ROWS = 2_000_000
DAYS = 1
"""That the generated tweets span, however many they are; the paper counts 500 million a day."""
_TIMES = ("at", "time", "timestamp", "date", "month")
_BATCH = 2_000
_KM_PER_DEGREE = 111.2


@dataclass(frozen=True, eq=False)
class World:
    """Documents as arrays: places, times, and the distinct words of each."""

    name: str
    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at_ms: NDArray[np.int64]
    words: list[list[str]]

    def __len__(self) -> int:
        return len(self.lng)

    @property
    def cells(self) -> Cells:
        """60-bit cells."""
        return points_to_cells(self.lng, self.lat)

    def mean_words(self) -> float:
        """Words of a document."""
        return float(np.mean([len(words) for words in self.words[:100_000]]))

    @cached_property
    def unit_s(self) -> int:
        """An hour; or the length of a bin where times are coarser, so that queries span as many of those."""
        some = slice(0, None, max(1, len(self) // 50_000))
        return max(
            3600, chosen_sizes(self.at_ms[some], self.cells[some], len(self), self.mean_words())["bin_s"]
        )

    def documents(self, *, gh: bool) -> Iterator[list[dict[str, Any]]]:
        """Documents in batches, in order of time, as they would have come."""
        order = np.argsort(self.at_ms, kind="stable")
        hashes = points_to_strings(self.lng, self.lat) if gh else None
        for start in range(0, len(self), _BATCH):
            yield [self._document(int(row), hashes) for row in order[start : start + _BATCH]]

    def _document(self, row: int, hashes: Any) -> dict[str, Any]:
        document = {
            "_id": row,
            "loc": {"type": "Point", "coordinates": [float(self.lng[row]), float(self.lat[row])]},
            "at": moment(int(self.at_ms[row])),
            "words": self.words[row],
        }
        return document if hashes is None else {**document, "gh": str(hashes[row])}


def moment(at_ms: int) -> dt.datetime:
    """Milliseconds as a date."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.timezone.utc)


def load_world(options: Options) -> World:
    """The documents of ``--data``, or generated tweets."""
    return _given(options) if options.data else _tweets(options.limit or ROWS, options.seed)


def _tweets(count: int, seed: int) -> World:
    language = Language.of(seed)
    lexicon, stopped = list(language.words), language.stop_words
    parts: list[Any] = []
    words: list[list[str]] = []
    rate = count / (DAYS * 86_400)
    for batch in generate_tweets(count, seed, per_second=rate, world=language):
        parts.append((batch.lng, batch.lat, batch.at_ms))
        bounds, ids = batch.offsets.tolist(), batch.words.tolist()
        words += [
            list(
                dict.fromkeys(lexicon[one] for one in ids[bounds[row] : bounds[row + 1]] if not stopped[one])
            )
            for row in range(len(batch.lng))
        ]
    lng, lat, at_ms = (np.concatenate(column) for column in zip(*parts, strict=True))
    return World("synthetic tweets", lng, lat, at_ms, words)


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
    kinds = {name: table.schema.field(name).type for name in table.schema.names if name != time}
    texts = [
        name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ]
    if not texts:
        raise UsageError(f"{options.data} has no column of text")
    column = table[time]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.strptime(column.cast(pa.string()), format="%Y-%m", unit="ms")
    at_ms = column.cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
    joined = pc.binary_join_element_wise(
        *(pc.fill_null(table[name].cast(pa.string()), "") for name in texts), " "
    )
    rules = TextRules()
    words = [list(rules.terms(text)) for text in joined.to_pylist()]
    return World(options.data.stem, table[lng].to_numpy(), table[lat].to_numpy(), at_ms, words)


# -- queries -----------------------------------------------------------------------------------------------

Semantics = Literal["or", "and"]


@dataclass(frozen=True)
class Kind:
    """A kind of query: the paper's defaults but for what its name says."""

    name: str
    hours: int = 3
    side_km: int = 3
    words: int = 3
    semantics: Semantics = "or"


KINDS: tuple[Kind, ...] = (
    Kind("or"),
    Kind("and", semantics="and"),
    *(Kind(f"hours_{n}", hours=n) for n in (1, 5)),
    *(Kind(f"km2_{n * n}", side_km=n) for n in (1, 5)),
    *(Kind(f"or_{n}_words", words=n) for n in (1, 2, 5)),
    *(Kind(f"and_{n}_words", words=n, semantics="and") for n in (1, 2, 5)),
)


@dataclass(frozen=True)
class Asked:
    """A query as an application writes it."""

    filter: dict[str, Any]


def make_queries(world: World, kind: Kind, count: int, seed: int) -> list[Asked]:
    """So many queries of a kind; every second one has words of documents that are there."""
    draw = np.random.default_rng([seed, 7, kind.hours, kind.side_km, kind.words, kind.semantics == "and"])
    rows = draw.integers(len(world), size=count)
    unit_ms = world.unit_s * 1000
    return [
        _query(
            world, kind, int(row), float(draw.random()) * unit_ms, unit_ms, related=number % 2 == 0, draw=draw
        )
        for number, row in enumerate(rows)
    ]


def _query(
    world: World,
    kind: Kind,
    row: int,
    shift_ms: float,
    unit_ms: int,
    *,
    related: bool,
    draw: np.random.Generator,
) -> Asked:
    lng, lat = float(world.lng[row]), float(world.lat[row])
    high = kind.side_km / _KM_PER_DEGREE
    wide = high / max(0.1, math.cos(math.radians(lat)))
    west, south = lng - float(draw.random()) * wide, lat - float(draw.random()) * high
    ring = [
        [west, south],
        [west + wide, south],
        [west + wide, south + high],
        [west, south + high],
        [west, south],
    ]
    start_ms = int(world.at_ms[row] - shift_ms * kind.hours)
    if related and kind.semantics == "and":
        pool = world.words[row]  # that all are there one document must have them
    elif related:
        near = np.flatnonzero(
            (world.lng >= west) & (world.lng <= west + wide) & (world.lat >= south) & (world.lat <= south + high)
            & (world.at_ms >= start_ms) & (world.at_ms < start_ms + kind.hours * unit_ms)
        )  # fmt: skip
        pool = sorted({word for one in near[:200].tolist() for word in world.words[one]}) or world.words[row]
    else:
        pool = [word for one in draw.integers(len(world), size=20).tolist() for word in world.words[one]]
    chosen = list(dict.fromkeys(pool[int(at)] for at in draw.permutation(len(pool))[: kind.words]))
    wanted: dict[str, Any] = {"$in": chosen} if kind.semantics == "or" else {"$all": chosen}
    return Asked(
        {
            "loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}},
            "at": {"$gte": moment(start_ms), "$lt": moment(start_ms + kind.hours * unit_ms)},
            "words": wanted if len(chosen) != 1 else chosen[0],
        }
    )
