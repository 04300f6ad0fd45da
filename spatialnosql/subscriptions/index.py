"""The index of subscriptions that a worker keeps: match objects, add subscriptions, remove them.

>>> index = Index.build(Table.of(subscriptions))
>>> rows, numbers = index.match(lng, lat, at_ms, offsets, terms)

It is a list of segments. The first holds what it was built from and is never rebuilt by an insertion; added
subscriptions make a small segment at the end, which is merged with its neighbour when that is hardly larger, so that
there are few (at most about the logarithm of what was added) and each subscription is filed again only so often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import kernel
from spatialnosql.subscriptions.areas import Area
from spatialnosql.subscriptions.cells import FINEST
from spatialnosql.subscriptions.model import Subscription
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.segment import Segment
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.table import Table, distinct
from spatialnosql.subscriptions.vocabulary import Vocabulary

GROWTH = 4
"""A segment is merged with the one before it unless that is so many times larger."""

Rows = NDArray[np.int64]
Numbers = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Names:
    """What the numbers of subscriptions stand for."""

    ids: Strings
    owner: Numbers
    """Rows of `owners`, by number of subscription."""
    owners: Strings


class Index:
    """Subscriptions, numbered in the order in which they came; a number, once given, stays.

    Several threads may match at once, also while one inserts or removes.
    """

    def __init__(self, segments: Sequence[Segment], vocabulary: Vocabulary) -> None:
        self.segments = list(segments)
        self.vocabulary = vocabulary
        self._spare: list[tuple[NDArray[np.int32], int]] = []

    @classmethod
    def build(
        cls, table: Table, frequencies: NDArray[np.int64] | None = None, bits: int | None = None
    ) -> Index:
        """The index of a table; `frequencies` are those of its vocabulary unless others are given.

        `bits` sets the size of the finest cells as that of geohashes of so many bits, an even number from 2 to 32;
        otherwise the subscriptions' sizes decide. Numbers are the rows of the table; a large one is best taken
        `Table.by_place`.
        """
        if bits is not None and not (2 <= bits <= 2 * FINEST and bits % 2 == 0):
            raise UsageError(f"{bits} bits for the finest cells; give an even number from 2 to {2 * FINEST}")
        known = _frequencies(table) if frequencies is None else np.asarray(frequencies, dtype=np.int64)
        finest = None if bits is None else bits // 2
        return cls([Segment.build(table, known, finest)], table.vocabulary)

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        shared = self.vocabulary.nbytes
        return sum(segment.nbytes - shared for segment in self.segments) + shared

    @property
    def live(self) -> int:
        """How many subscriptions have not been removed; the expired ones are counted."""
        return sum(int((segment.state & kernel.GONE == 0).sum()) for segment in self.segments)

    def match(
        self, lng: ArrayLike, lat: ArrayLike, at_ms: ArrayLike, offsets: ArrayLike, terms: ArrayLike
    ) -> tuple[Rows, Numbers]:
        """The distinct pairs of object and subscription that match, sorted by object.

        Object i has the sorted distinct terms ``terms[offsets[i]:offsets[i + 1]]``, as numbers of the vocabulary. Take
        some ten thousand objects at a time: they are looked up cell by cell.
        """
        return self.match_objects(Objects.of(lng, lat, at_ms, offsets, terms))

    def match_objects(self, objects: Objects) -> tuple[Rows, Numbers]:
        """As `match`, of a batch made before."""
        segments = self.segments  # as they are now: an insertion makes another list
        finest = max((int(segment.levels[0]) for segment in segments if segment.levels.size), default=0)
        order = objects.order(finest)
        seen, stamp = self._take_seen(max(map(len, segments), default=0), len(objects) * len(segments))
        parts: list[tuple[Rows, Rows, Numbers]] = []  # objects, how many matches each has, the matches
        start = 0
        for segment in segments:
            counts, found, rows, numbers = segment.match(objects, order, seen, stamp)
            stamp += len(objects)
            parts.append((order, counts, found + np.int32(start) if start else found))
            if rows.size:
                kept = segment.settle(objects, rows, numbers)
                parts.append(_grouped(rows[kept], numbers[kept] + np.int32(start)))
            start += len(segment)
        self._spare.append((seen, stamp))
        return _in_order(parts, len(objects))

    def insert(self, subscriptions: Iterable[Subscription] | Table) -> Numbers:
        """Add subscriptions; one whose id is there already replaces that one. Returns their numbers."""
        table = (
            subscriptions
            if isinstance(subscriptions, Table)
            else Table.of(_last_of_each(subscriptions), self.vocabulary)
        )
        if table.vocabulary is not self.vocabulary:
            raise UsageError(
                "the table to insert has another vocabulary than the index; make it with the index's"
            )
        first = len(self)
        if len(table):
            earlier = self.find(list(table.ids))
            sizes = [*map(len, self.segments), len(table)]
            while len(sizes) > 2 and sizes[-2] < GROWTH * sizes[-1]:
                sizes[-2:] = [sum(sizes[-2:])]
            self._merge(len(sizes) - 1, table)
            self.remove(earlier[earlier >= 0])
        return np.arange(first, len(self), dtype=np.int32)

    def remove(self, numbers: ArrayLike) -> int:
        """Mark subscriptions as gone: they match nothing from now on. Returns how many were there."""
        chosen = np.sort(np.asarray(numbers, dtype=np.int64).reshape(-1))
        chosen = chosen[np.diff(chosen, prepend=-1) != 0]  # np.unique would hash them, which takes longer
        if chosen.size and not 0 <= chosen[0] <= chosen[-1] < len(self):
            raise UsageError(
                f"subscription numbers from {chosen[0]} to {chosen[-1]}, but there are {len(self):,}"
            )
        removed = start = 0
        for segment in self.segments:
            own = chosen[(chosen >= start) & (chosen < start + len(segment))] - start
            removed += int((segment.state[own] & kernel.GONE == 0).sum())
            segment.state[own] |= kernel.GONE
            start += len(segment)
        return removed

    def compact(self) -> None:
        """Make one segment of all, without the postings of what is gone; numbers stay as they are."""
        self._merge(0, None)

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of subscriptions by id; -1 for those never added or gone."""
        numbers = np.full(len(ids), -1, dtype=np.int64)
        start = 0
        for segment in self.segments:
            rows = segment.table.ids.find(ids)
            there = np.flatnonzero(rows >= 0)
            there = there[segment.state[rows[there]] & kernel.GONE == 0]
            numbers[there] = rows[there] + start
            start += len(segment)
        return numbers

    def ids(self, numbers: ArrayLike) -> list[str]:
        """The ids of subscriptions by number."""
        return self._strings(np.asarray(numbers), lambda table, rows: table.ids.take(rows))

    def owners(self, numbers: ArrayLike) -> list[str]:
        """The owners of subscriptions by number."""
        return self._strings(np.asarray(numbers), lambda table, rows: table.owners.take(table.owner[rows]))

    def live_table(self) -> tuple[Table, NDArray[np.int64]]:
        """The subscriptions that are not gone, and their numbers."""
        tables = [segment.table for segment in self.segments]
        table = Table.joined(tables) if len(tables) > 1 else tables[0]
        live = np.flatnonzero(np.concatenate([part.state & kernel.GONE == 0 for part in self.segments]))
        return (table, live) if live.size == len(table) else (table.take(live), live)

    def names(self) -> Names:
        """The ids and owners of all subscriptions; of an index that was only built or opened they are not copied."""
        tables = [segment.table for segment in self.segments]
        if len(tables) == 1:
            return Names(tables[0].ids, tables[0].owner, tables[0].owners)
        known, own = distinct([table.owners for table in tables])
        owner = [rows[table.owner] for rows, table in zip(own, tables, strict=True)]
        ids = Strings.joined([table.ids for table in tables])
        return Names(ids, np.concatenate(owner).astype(np.int32), Strings.of(known))

    def ids_to_arrow(self) -> Any:
        """The ids of all subscriptions in the order of their numbers, as an Arrow array to take from."""
        import pyarrow as pa

        return pa.chunked_array([part.table.ids.to_arrow() for part in self.segments], type=pa.large_string())

    def owners_to_arrow(self) -> Any:
        """The owners of all subscriptions in the order of their numbers, as an Arrow array of dictionaries."""
        import pyarrow as pa

        return pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(pa.array(part.table.owner), part.table.owners.to_arrow())
                for part in self.segments
            ],
            type=pa.dictionary(pa.int32(), pa.large_string()),
        ).unify_dictionaries()

    def subscription(self, number: int) -> Subscription:
        """A subscription by number, gone or not."""
        segment, row = self._at(number)
        return segment.table.subscription(row)

    def area(self, number: int) -> Area:
        """The area of a subscription by number."""
        segment, row = self._at(number)
        return segment.table.area(row)

    def save(self, folder: str | Path) -> None:
        """Write the index as plain arrays that `open` maps; a folder that is there is replaced."""
        from spatialnosql.subscriptions.index_store import save

        save(self, Path(folder))

    @classmethod
    def open(cls, folder: str | Path) -> Index:
        """Map a saved index into memory: pages are read when needed and shared by all processes that map it."""
        from spatialnosql.subscriptions.index_store import load

        segments, vocabulary = load(Path(folder))
        return cls(segments, vocabulary)

    def _merge(self, first: int, added: Table | None) -> None:
        """Make one segment of all from the first given and what is added."""
        parts = self.segments[first:]
        tables = [*(segment.table for segment in parts), *([] if added is None else [added])]
        if not tables:
            return
        table = Table.joined(tables) if len(tables) > 1 else tables[0]
        gone = np.zeros(len(table), dtype=np.bool_)
        if parts:
            states = np.concatenate([segment.state for segment in parts])
            gone[: states.size] = states & kernel.GONE != 0
        self.segments = [*self.segments[:first], Segment.build(table, _frequencies(table), gone=gone)]

    def _at(self, number: int) -> tuple[Segment, int]:
        if number >= 0:
            for segment in self.segments:
                if number < len(segment):
                    return segment, number
                number -= len(segment)
        raise UsageError(f"there is no subscription of that number; there are {len(self):,}")

    def _strings(
        self, numbers: NDArray[np.int64], read: Callable[[Table, NDArray[np.int64]], list[str]]
    ) -> list[str]:
        strings = np.empty(numbers.size, dtype=object)
        start = 0
        for segment in self.segments:
            own = np.flatnonzero((numbers >= start) & (numbers < start + len(segment)))
            strings[own] = read(segment.table, numbers[own] - start)
            start += len(segment)
        return list(strings)

    def _take_seen(self, size: int, stamps: int) -> tuple[NDArray[np.int32], int]:
        """An array that remembers who met which subscription, for one caller at a time, and its next stamp."""
        while self._spare:
            try:
                seen, stamp = self._spare.pop()
            except IndexError:  # another thread took it
                break
            if seen.size >= size and stamp + stamps < np.iinfo(np.int32).max:
                return seen, stamp
        return np.zeros(size, dtype=np.int32), 1


def warm_up() -> None:
    """Compile the loops, or read them from the cache: some seconds once a machine, then a quarter of one a process."""
    table = Table.of_rectangles([[0, 0, 1, 1]], [0, 1], [0, 1], [0], Vocabulary(["a"]))
    index = Index.build(table)
    index.match([0.5], [0.5], 0, [0, 1], [0])
    index.find(["0"])


def _frequencies(table: Table) -> NDArray[np.int64]:
    """How often objects have each term; as long as nothing is known of them, how often subscriptions do."""
    known = table.vocabulary.frequencies
    return known if known.any() else np.bincount(table.members, minlength=known.size).astype(np.int64)


def _last_of_each(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """The subscriptions without those that a later one of the same id replaces."""
    return list({subscription.id: subscription for subscription in subscriptions}.values())


def _grouped(rows: Rows, numbers: Numbers) -> tuple[Rows, Rows, Numbers]:
    """Pairs as objects, how many matches each has, and the matches."""
    order = np.argsort(rows, kind="stable")
    distinct, counts = np.unique(rows, return_counts=True)
    return distinct, counts.astype(np.int64), numbers[order]


def _in_order(parts: Sequence[tuple[Rows, Rows, Numbers]], count: int) -> tuple[Rows, Numbers]:
    """The matches of all parts, object by object."""
    totals = np.zeros(count, dtype=np.int64)
    for objects, counts, _ in parts:
        totals[objects] += counts
    starts = np.cumsum(totals) - totals
    numbers = np.empty(int(totals.sum()), dtype=np.int32)
    for objects, counts, found in parts:
        kernel.in_row_order(objects, counts, found, starts, numbers)
        starts[objects] += counts
    return np.repeat(np.arange(count), totals), numbers
