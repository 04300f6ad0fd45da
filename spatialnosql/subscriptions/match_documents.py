"""Matches as documents: a *bucket* for the matches of one owner, and every matched object once.

    {_id: "TASK/1/ann", owner: "ann", task: "TASK", stored, first, last, matches: [{id: "ann-1", object: 17, at}, ...]}
    {_id: 17, text: "Road closed: FLOOD!", loc: {type: "Point", coordinates: [lng, lat]}, at, digest, task: "TASK"}

Why so: the benchmark `match_layouts` writes and reads the same matches in other ways. A document for every pair costs
the servers some twenty times as much to write; one an object, found by an index over its owners, five times, and more
to read, since an entry of that index costs as much as a small document.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray

from spatialnosql.subscriptions import bson_bytes as b
from spatialnosql.subscriptions.bson_bytes import Bytes
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.kernel import by_group
from spatialnosql.subscriptions.object_ids import ObjectIds
from spatialnosql.subscriptions.strings import Strings

MOST_IN_BUCKET = 5_000
"""Matches of a bucket: some 400 kB."""
_NAMES = {
    name: b.name_bytes(name)
    for name in (
        "_id", "owner", "task", "stored", "first", "last", "matches", "id", "object", "at",
        "text", "loc", "type", "coordinates", "digest",
    )
}  # fmt: skip
_FIXED = 160
"""More than the bytes of a document that are not its strings and its matches."""
_A_MATCH = 64
"""More than those of a match that are not its identifiers."""


@dataclass(frozen=True, eq=False)
class Things:
    """Objects as they are stored: an element of each array for each."""

    ids: ObjectIds
    text: Strings
    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at: NDArray[np.int64]
    timed: NDArray[np.bool_] | None = None
    """Which say their time themselves; of the others `at` is when they were matched. None: all do."""

    def __len__(self) -> int:
        return int(self.at.size)

    def take(self, rows: NDArray[np.int64]) -> Things:
        """Some of them."""
        timed = None if self.timed is None else self.timed[rows]
        return Things(
            self.ids.take(rows), self.text.pick(rows), self.lng[rows], self.lat[rows], self.at[rows], timed
        )

    @classmethod
    def joined(cls, parts: list[Things]) -> Things:
        """Several batches, one after the other."""
        return cls(
            ObjectIds.joined([part.ids for part in parts]),
            Strings.joined([part.text for part in parts]),
            np.concatenate([part.lng for part in parts]),
            np.concatenate([part.lat for part in parts]),
            np.concatenate([part.at for part in parts]),
            np.concatenate(
                [np.ones(len(part), np.bool_) if part.timed is None else part.timed for part in parts]
            ),
        )

    def digests(self) -> NDArray[np.int64]:
        """What tells whether an object is the same as one that was matched before: of text, place and time.

        When it was matched is not part of it: the same object is matched at another time when a job is run again.
        """
        at = self.at if self.timed is None else np.where(self.timed, self.at, 0)
        return _digests(
            self.text.data, self.text.offsets, self.lng.view(np.int64), self.lat.view(np.int64), at
        )


def object_documents(things: Things, task: str) -> list[RawBSONDocument]:
    """The documents of objects."""
    text, ids = things.text, things.ids
    size = len(things) * (_FIXED + len(task.encode())) + text.data.size + ids.data.size
    out, ends = np.empty(size, dtype=np.uint8), np.zeros(len(things) + 1, dtype=np.int64)
    _write_objects(
        out, ends, ids.kind, ids.data, ids.offsets, text.data, text.offsets,
        things.lng.view(np.int64), things.lat.view(np.int64), things.at, things.digests(), _bytes(task),
        _NAMES["_id"], _NAMES["text"], _NAMES["loc"], _NAMES["type"], _NAMES["coordinates"],
        _NAMES["at"], _NAMES["digest"], _NAMES["task"], _bytes("Point"),
    )  # fmt: skip
    return list(_documents(out, ends))


def bucket_documents(
    things: Things,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    names: Names,
    task: str,
    stored_ms: int,
    flush: int = 1,
) -> list[RawBSONDocument]:
    """The buckets of matches: object ``rows[k]`` and subscription ``numbers[k]``; each owner's ordered by time.

    `flush` tells the buckets apart that a task makes at several times.
    """
    label = f"{task}/{flush}"
    rank = np.empty(len(things), dtype=np.int64)
    rank[np.argsort(things.at, kind="stable")] = np.arange(len(things))
    order = by_group(
        rank[rows], len(things)
    )  # and then by owner, which leaves each one's in the order of time
    order = order[by_group(names.owner[numbers[order]], len(names.owners))]
    rows, numbers = rows[order], numbers[order]
    owner = names.owner[numbers]
    starts = _bucket_starts(owner, MOST_IN_BUCKET)
    lengths = np.diff(names.ids.offsets)[numbers].sum() + np.diff(things.ids.offsets)[rows].sum()
    owners = 2 * np.diff(names.owners.offsets)[owner[starts[:-1]]].sum()
    count = starts.size - 1
    size = int(rows.size * _A_MATCH + lengths + owners + count * (_FIXED + 2 * len(label.encode())))
    out, ends = np.empty(size, dtype=np.uint8), np.zeros(count + 1, dtype=np.int64)
    _write_buckets(
        out, ends, starts, rows, numbers, owner,
        names.ids.data, names.ids.offsets, names.owners.data, names.owners.offsets,
        things.ids.kind, things.ids.data, things.ids.offsets, things.at, _bytes(label), _bytes(task), stored_ms,
        _NAMES["_id"], _NAMES["owner"], _NAMES["task"], _NAMES["stored"], _NAMES["first"], _NAMES["last"],
        _NAMES["matches"], _NAMES["id"], _NAMES["object"], _NAMES["at"],
    )  # fmt: skip
    return list(_documents(out, ends))


def _bytes(text: str) -> Bytes:
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


def _documents(out: Bytes, ends: NDArray[np.int64]) -> Iterator[RawBSONDocument]:
    held, bounds = out.data, ends.tolist()
    for begin, end in itertools.pairwise(bounds):
        yield RawBSONDocument(bytes(held[begin:end]))


@compiled
def _bucket_starts(owner: NDArray[np.int32], most: int) -> NDArray[np.int64]:
    """Where buckets begin in matches sorted by owner, and where the last one ends."""
    starts = np.empty(owner.size + 1, np.int64)
    count = 0
    for k in range(owner.size):
        if k == 0 or owner[k] != owner[k - 1] or k - starts[count - 1] == most:
            starts[count] = k
            count += 1
    starts[count] = owner.size
    return starts[: count + 1].copy()


@compiled
def _digests(
    data: Bytes,
    offsets: NDArray[np.int64],
    lng: NDArray[np.int64],
    lat: NDArray[np.int64],
    at: NDArray[np.int64],
) -> NDArray[np.int64]:
    """FNV-1a, 64 bits, of the text's bytes and then of the three numbers."""
    found = np.empty(at.size, np.int64)
    for i in range(at.size):
        digest = np.uint64(14695981039346656037)
        for k in range(offsets[i], offsets[i + 1]):
            digest = (digest ^ np.uint64(data[k])) * np.uint64(1099511628211)
        for number in (lng[i], lat[i], at[i]):
            for shift in range(0, 64, 8):
                digest = (digest ^ np.uint64((number >> shift) & 0xFF)) * np.uint64(1099511628211)
        found[i] = np.int64(digest)
    return found


@compiled
def _write_objects(
    out: Bytes,
    ends: NDArray[np.int64],
    id_kind: int,
    id_data: Bytes,
    id_offsets: NDArray[np.int64],
    text: Bytes,
    text_offsets: NDArray[np.int64],
    lng: NDArray[np.int64],
    lat: NDArray[np.int64],
    times: NDArray[np.int64],
    digests: NDArray[np.int64],
    task: Bytes,
    n_id: Bytes,
    n_text: Bytes,
    n_loc: Bytes,
    n_type: Bytes,
    n_coordinates: Bytes,
    n_at: Bytes,
    n_digest: Bytes,
    n_task: Bytes,
    point: Bytes,
) -> None:
    at = 0
    for i in range(times.size):
        begin = at
        at = b.put_field(out, at + 4, id_kind, n_id)
        at = b.put_bytes(out, at, id_data, id_offsets[i], id_offsets[i + 1])
        at = b.put_field(out, at, b.STRING, n_text)
        at = b.put_string(out, at, text, text_offsets[i], text_offsets[i + 1])
        loc = b.put_field(out, at, b.DOCUMENT, n_loc)
        at = b.put_field(out, loc + 4, b.STRING, n_type)
        at = b.put_string(out, at, point, 0, point.size)
        pair = b.put_field(out, at, b.ARRAY, n_coordinates)
        at = b.put_number(out, b.put_index(out, pair + 4, b.DOUBLE, 0), lng[i], 8)
        at = b.put_number(out, b.put_index(out, at, b.DOUBLE, 1), lat[i], 8)
        at = b.close(out, loc, b.close(out, pair, at))
        at = b.put_number(out, b.put_field(out, at, b.DATE, n_at), times[i], 8)
        at = b.put_number(out, b.put_field(out, at, b.INT64, n_digest), digests[i], 8)
        at = b.put_string(out, b.put_field(out, at, b.STRING, n_task), task, 0, task.size)
        at = b.close(out, begin, at)
        ends[i + 1] = at


@compiled
def _write_buckets(
    out: Bytes,
    ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    owner: NDArray[np.int32],
    sub_data: Bytes,
    sub_offsets: NDArray[np.int64],
    owner_data: Bytes,
    owner_offsets: NDArray[np.int64],
    id_kind: int,
    id_data: Bytes,
    id_offsets: NDArray[np.int64],
    times: NDArray[np.int64],
    label: Bytes,
    task: Bytes,
    stored: int,
    n_id: Bytes,
    n_owner: Bytes,
    n_task: Bytes,
    n_stored: Bytes,
    n_first: Bytes,
    n_last: Bytes,
    n_matches: Bytes,
    n_sub: Bytes,
    n_object: Bytes,
    n_at: Bytes,
) -> None:
    at = 0
    part = 0
    for bucket in range(starts.size - 1):
        first, end = starts[bucket], starts[bucket + 1]
        own = owner[first]
        part = part + 1 if bucket and owner[first - 1] == own else 1
        begin = at
        # TASK/1/ann, and of an owner's second bucket TASK/1.2/ann: the owner, who may have any name, last
        length = b.put_field(out, at + 4, b.STRING, n_id)
        at = b.put_bytes(out, length + 4, label, 0, label.size)
        if part > 1:
            at = b.put_index(out, at, 46, part) - 1  # a dot, and the number without the zero behind it
        out[at] = 47
        at = b.put_bytes(out, at + 1, owner_data, owner_offsets[own], owner_offsets[own + 1])
        out[at] = 0
        b.put_number(out, length, at + 1 - length - 4, 4)
        at = b.put_field(out, at + 1, b.STRING, n_owner)
        at = b.put_string(out, at, owner_data, owner_offsets[own], owner_offsets[own + 1])
        at = b.put_string(out, b.put_field(out, at, b.STRING, n_task), task, 0, task.size)
        at = b.put_number(out, b.put_field(out, at, b.DATE, n_stored), stored, 8)
        at = b.put_number(out, b.put_field(out, at, b.DATE, n_first), times[rows[first]], 8)
        at = b.put_number(out, b.put_field(out, at, b.DATE, n_last), times[rows[end - 1]], 8)
        array = b.put_field(out, at, b.ARRAY, n_matches)
        at = array + 4
        for k in range(first, end):
            row, number = rows[k], numbers[k]
            match = b.put_index(out, at, b.DOCUMENT, k - first)
            at = b.put_field(out, match + 4, b.STRING, n_sub)
            at = b.put_string(out, at, sub_data, sub_offsets[number], sub_offsets[number + 1])
            at = b.put_field(out, at, id_kind, n_object)
            at = b.put_bytes(out, at, id_data, id_offsets[row], id_offsets[row + 1])
            at = b.put_number(out, b.put_field(out, at, b.DATE, n_at), times[row], 8)
            at = b.close(out, match, at)
        at = b.close(out, begin, b.close(out, array, at))
        ends[bucket + 1] = at
