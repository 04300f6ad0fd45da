"""BSON written by compiled loops: documents of arrays, without a Python object for any of their values.

A writer is a byte array and a position; every function writes one thing at a position and returns the one behind it.
Names of fields come as bytes with their closing zero, made once by `name_bytes`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled

Bytes = NDArray[np.uint8]

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, OBJECT_ID, DATE, INT32, INT64 = 1, 2, 3, 4, 5, 7, 9, 16, 18
"""The types of BSON that are written here."""


def name_bytes(name: str) -> Bytes:
    """The name of a field, with the zero behind it."""
    return np.frombuffer(name.encode() + b"\0", dtype=np.uint8).copy()


@compiled
def put_bytes(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Bytes ``[start, end)`` as they are."""
    for k in range(start, end):
        out[at] = data[k]
        at += 1
    return at


@compiled
def put_number(out: Bytes, at: int, value: int, size: int) -> int:
    """A whole number in so many bytes, the lowest first."""
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 0xFF
    return at + size


@compiled
def put_field(out: Bytes, at: int, kind: int, name: Bytes) -> int:
    """The beginning of an element: its type and its name."""
    out[at] = kind
    return put_bytes(out, at + 1, name, 0, name.size)


@compiled
def put_string(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """The value of a string: its length, its bytes, a zero."""
    at = put_number(out, at, end - start + 1, 4)
    at = put_bytes(out, at, data, start, end)
    out[at] = 0
    return at + 1


@compiled
def put_index(out: Bytes, at: int, kind: int, number: int) -> int:
    """The beginning of an element of an array: its type, and its number in decimal digits."""
    out[at] = kind
    digits = 1
    power = 10
    while number >= power:
        digits += 1
        power *= 10
    rest = number
    for k in range(digits):
        out[at + digits - k] = 48 + rest % 10
        rest //= 10
    out[at + digits + 1] = 0
    return at + digits + 2


@compiled
def close(out: Bytes, begin: int, at: int) -> int:
    """The end of a document or an array that began at `begin`, where four bytes were left for its length."""
    out[at] = 0
    put_number(out, begin, at + 1 - begin, 4)
    return at + 1
