"""The seals of many documents at once: the same as `seal_of`, with all but the hash itself done by Arrow."""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spatialnosql.geohash import LENGTH, Cells, cells_to_strings
from spatialnosql.stk.seals import ARRAY, DATE, END, NUMBER, SEED, STRING, string_bytes
from spatialnosql.stk.settings import Ints
from spatialnosql.stk.word_batches import Words

_md5 = functools.partial(hashlib.md5, usedforsecurity=False)
_BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", _BYTES)

_CUBE = SEED + ARRAY + NUMBER + b"0\0"
_AT = DATE + b"1\0"
_GH = STRING + b"2\0" + struct.pack("<i", LENGTH + 1)
_WORDS = b"\0" + ARRAY + b"3\0"


def seals_of(cubes: Ints, at_ms: Ints, cells: Cells, words: Words) -> Ints:
    """The seals of documents in data cubes, at moments, in 60-bit cells, with words."""
    if not len(cubes):
        return np.zeros(0, dtype=np.int64)
    ends = pa.scalar(END + END, _BYTES)
    messages = pc.binary_join_element_wise(_heads(cubes, at_ms, cells), _bodies(words), ends, _NOTHING)
    digests = b"".join([_md5(one).digest() for one in messages.to_pylist()])
    seals: Ints = np.frombuffer(digests, dtype="<i8")[::2].astype(np.int64)
    return seals


def _heads(cubes: Ints, at_ms: Ints, cells: Cells) -> Any:
    """What is hashed before the words; of the same length for all documents."""
    count = len(cubes)
    codes = np.ascontiguousarray(cells_to_strings(cells)).view(np.uint32).reshape(count, LENGTH)
    parts = [
        _constant(_CUBE, count), _little(cubes), _constant(_AT, count), _little(at_ms), _constant(_GH, count),
        codes.astype(np.uint8), _constant(_WORDS, count),
    ]  # fmt: skip
    table = np.concatenate(parts, axis=1)
    return _binary(table, np.arange(count + 1, dtype=np.int64) * table.shape[1])


def _bodies(words: Words) -> Any:
    """For each document what is hashed of its words: for each its place and its bytes."""
    counts = np.diff(words.offsets)
    places = np.arange(len(words.codes)) - np.repeat(words.offsets[:-1], counts)
    names = pa.array([STRING + b"%d\0" % at for at in range(int(counts.max(initial=0)))], _BYTES)
    values = pa.array([string_bytes(word) for word in words.distinct], _BYTES)
    parts = pc.binary_join_element_wise(
        names.take(pa.array(places)), values.take(pa.array(words.codes)), _NOTHING
    )
    lists = pa.LargeListArray.from_arrays(pa.array(words.offsets), parts)
    return pc.binary_join(lists, _NOTHING)


def _constant(part: bytes, count: int) -> NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(part, dtype=np.uint8), (count, len(part)))


def _little(numbers: Ints) -> NDArray[np.uint8]:
    return np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8).reshape(len(numbers), 8)


def _binary(table: NDArray[np.uint8], offsets: Ints) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.LargeBinaryArray.from_buffers(_BYTES, len(offsets) - 1, buffers)
