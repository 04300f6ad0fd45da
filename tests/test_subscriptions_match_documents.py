"""Matches as documents: what compiled loops write is what bson.encode would."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import numpy as np
import pyarrow as pa
import pytest
from bson import ObjectId

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import match_documents
from spatialnosql.subscriptions.index import Names
from spatialnosql.subscriptions.match_documents import Things, bucket_documents, object_documents
from spatialnosql.subscriptions.object_ids import OBJECT_ID, ObjectIds
from spatialnosql.subscriptions.strings import Strings

NOW_MS = 1_767_225_600_123
HEX = [f"{k:024x}" for k in (1, 255, 1 << 90)]


def moment(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


COLUMNS: dict[str, tuple[Any, str | None, list[Any]]] = {
    "longs": (pa.array([1, -(1 << 40), 1 << 62]), None, [1, -(1 << 40), 1 << 62]),
    "ints": (pa.array([1, -5, 7], pa.int32()), None, [1, -5, 7]),
    "texts": (pa.array(["", "é☂", "x" * 300]), None, ["", "é☂", "x" * 300]),
    "large texts": (pa.array(["a", "b", "c"], pa.large_string()), None, ["a", "b", "c"]),
    "bytes": (pa.array([b"", b"\0\1", b"z" * 16]), None, [b"", b"\0\1", b"z" * 16]),
    "object ids": (pa.array(HEX), OBJECT_ID, [ObjectId(one) for one in HEX]),
    "doubles": (pa.array([0.5, -1.0, 1e300]), None, [0.5, -1.0, 1e300]),
    "moments": (
        pa.array([0, 1_500_000, -7_000], pa.timestamp("us", "UTC")),
        None,
        [moment(0), moment(1500), moment(-7)],
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_identifiers_of_any_type(name: str) -> None:
    column, bson_type, expected = COLUMNS[name]
    for array in (column, pa.concat_arrays([column, column]).slice(3)):
        ids = ObjectIds.of(array, bson_type)
        assert ids.values() == expected
        assert ids.take(np.array([2, 0])).values() == [expected[2], expected[0]]
        assert ObjectIds.joined([ids, ids]).values() == expected * 2


def test_an_object_without_identifier_is_an_error() -> None:
    with pytest.raises(UsageError, match="no identifier"):
        ObjectIds.of(pa.array([1, None]))


def test_identifiers_of_two_types_are_not_joined() -> None:
    with pytest.raises(UsageError, match="2 types"):
        ObjectIds.joined([ObjectIds.of(pa.array([1])), ObjectIds.of(pa.array(["1"]))])


def things(name: str, count: int, rng: np.random.Generator) -> tuple[Things, list[Any]]:
    """Objects with identifiers of a kind, and those identifiers."""
    column, bson_type, expected = COLUMNS[name]
    picks = rng.integers(3, size=count)
    texts = [("Flut Straße " * int(k))[: int(k) * 3] for k in rng.integers(0, 9, count)]
    made = Things(
        ObjectIds.of(column, bson_type).take(picks),
        Strings.of(texts),
        rng.uniform(-180, 180, count),
        rng.uniform(-90, 90, count),
        rng.integers(-(10**12), 10**12, count),
    )
    return made, [expected[k] for k in picks]


@pytest.mark.parametrize("name", COLUMNS)
def test_documents_of_objects(name: str) -> None:
    made, ids = things(name, 50, np.random.default_rng(1))
    documents = [bson.decode(one.raw) for one in object_documents(made, "täsk-1")]
    digests = made.digests().tolist()
    assert documents == [
        {
            "_id": ids[i],
            "text": made.text[i],
            "loc": {"type": "Point", "coordinates": [made.lng[i], made.lat[i]]},
            "at": moment(int(made.at[i])),
            "digest": digests[i],
            "task": "täsk-1",
        }
        for i in range(50)
    ]


def test_digests_tell_text_place_and_time_apart() -> None:
    made, _ = things("longs", 20, np.random.default_rng(2))
    same = Things(made.ids, made.text, made.lng.copy(), made.lat.copy(), made.at.copy())
    assert (same.digests() == made.digests()).all()
    for field in ("lng", "lat", "at"):
        changed = Things(made.ids, made.text, made.lng.copy(), made.lat.copy(), made.at.copy())
        getattr(changed, field)[:] += 1
        assert (changed.digests() != made.digests()).all()
    other = Things(made.ids, Strings.of(f"{one}." for one in made.text), made.lng, made.lat, made.at)
    assert (other.digests() != made.digests()).all()


@pytest.mark.parametrize("name", COLUMNS)
def test_buckets_hold_every_match_once_by_owner_and_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_documents, "MOST_IN_BUCKET", 12)  # so that some numbers have two digits
    rng = np.random.default_rng(3)
    made, ids = things(name, 40, rng)
    names = Names(
        Strings.of(f"sub-{k}" for k in range(90)), rng.integers(5, size=90).astype(np.int32),
        Strings.of(["ann", "bob", "", "Zoë", "nobody's"]),
    )  # fmt: skip
    rows = np.sort(rng.integers(40, size=300))
    numbers = rng.integers(90, size=300).astype(np.int32)
    documents = [bson.decode(one.raw) for one in bucket_documents(made, rows, numbers, names, "t", NOW_MS)]
    assert all(
        list(one) == ["_id", "owner", "task", "stored", "first", "last", "matches"] for one in documents
    )
    expected = sorted(
        (names.owners[int(names.owner[k])], f"sub-{k}", repr(ids[row]), moment(int(made.at[row])))
        for row, k in zip(rows.tolist(), numbers.tolist(), strict=True)
    )
    found = sorted(
        (one["owner"], match["id"], repr(match["object"]), match["at"])
        for one in documents
        for match in one["matches"]
    )
    assert found == expected
    assert len({one["_id"] for one in documents}) == len(documents)
    for one in documents:
        times = [match["at"] for match in one["matches"]]
        assert times == sorted(times)
        assert (one["first"], one["last"]) == (times[0], times[-1])
        assert one["stored"] == moment(NOW_MS)
        assert one["task"] == "t"
    first = [one["_id"] for one in documents if one["owner"] == "Zoë"]
    assert first == ["t/1/Zoë", *(f"t/1.{k}/Zoë" for k in range(2, len(first) + 1))]
    assert len(first) > 1


def test_nothing_makes_nothing() -> None:
    made, _ = things("longs", 0, np.random.default_rng(1))
    names = Names(Strings.of([]), np.zeros(0, dtype=np.int32), Strings.of([]))
    nothing = np.zeros(0, dtype=np.int64)
    assert bucket_documents(made, nothing, nothing.astype(np.int32), names, "t", 0) == []
    assert object_documents(made, "t") == []
