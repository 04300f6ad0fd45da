"""The seal of a document: the server's own word that its place, time and words are those that went into the filters.

``stk: {c, s}`` has the number of the data cube and a hash of it together with the time, the geohash and the words. A
validator makes the server refuse any write, by any client, after which the hash is not true. So a document either has a
true seal, and then its keys were published before; or it has none, and then every query looks at it (it is *fresh*).
Whoever changes a sealed document takes the seal away, ``{$unset: {stk: ""}}``: `SpatialCollection` does so by itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import bson
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from spatialnosql.geohash import ALPHABET
from spatialnosql.stk.settings import CUBE_FIELD, SEAL_FIELD, StkSettings

# How MongoDB's `$toHashedIndexKey` hashes values (MD5, the first 64 bits): a seed, then for each value the class of its
# type, its name if it stands in an array, and its bytes.
SEED, END = struct.pack("<i", 0), struct.pack("<i", 0)
NUMBER, STRING, ARRAY, DATE = (struct.pack("<i", kind) for kind in (10, 15, 25, 45))


_FRESH = {"$in": [{"$type": f"${CUBE_FIELD}"}, ["missing", "null"]]}


def seal_expression(settings: StkSettings, gh: str, cube: Any = f"${CUBE_FIELD}") -> dict[str, Any]:
    """What the server computes as the seal; of a document that has no cube yet, with that of `cube`."""
    # One list is one value here, unlike with other operators.
    return {"$toHashedIndexKey": [cube, f"${settings.time}", f"${gh}", f"${settings.words}"]}


def cube_expression(settings: StkSettings, gh: str) -> dict[str, Any]:
    """What the server computes as the number of the data cube, ``bin << cell_bits | cell``."""
    length = -(-settings.cell_bits // 5)
    digits = [
        {"$multiply": [{"$indexOfCP": [ALPHABET, {"$substrCP": [f"${gh}", at, 1]}]}, 32 ** (length - 1 - at)]}
        for at in range(length)
    ]
    cell = {"$floor": {"$divide": [{"$add": digits}, 2 ** (5 * length - settings.cell_bits)]}}
    time_bin = {"$floor": {"$divide": [{"$toLong": f"${settings.time}"}, settings.bin_ms]}}
    # Integers before they are multiplied: a double has 53 bits only.
    return {
        "$add": [{"$multiply": [{"$toLong": time_bin}, Int64(1 << settings.cell_bits)]}, {"$toLong": cell}]
    }


def true_seal(settings: StkSettings, gh: str) -> dict[str, Any]:
    """The filter that documents without a seal, or with a true one, pass: a clause of the validator."""
    return {"$expr": {"$or": [_FRESH, {"$eq": [f"${SEAL_FIELD}", seal_expression(settings, gh)]}]}}


def only_sealed_before(settings: StkSettings, shut_ms: int) -> dict[str, Any]:
    """The filter that fresh documents of a time before a moment do not pass: a clause of the validator (`shutting`).

    What is neither a date nor a list, in which there may be dates, meets no query by time, and may stay fresh. A list
    is less than any date.
    """
    at = f"${settings.time}"
    no_time = {"$not": [{"$in": [{"$type": at}, ["date", "array"]]}]}
    return {"$expr": {"$or": [{"$not": [_FRESH]}, no_time, {"$gte": [at, DatetimeMS(shut_ms)]}]}}


def shut_by(clause: Mapping[str, Any], settings: StkSettings) -> int | None:
    """The moment of a clause of that kind; None if it is none."""
    try:
        moment = clause["$expr"]["$or"][2]["$gte"][1]
    except (KeyError, IndexError, TypeError):
        return None
    if not isinstance(moment, dt.datetime | DatetimeMS):
        return None
    shut_ms = int(DatetimeMS(moment)) if isinstance(moment, dt.datetime) else int(moment)
    wanted = only_sealed_before(settings, shut_ms)
    return shut_ms if bson.encode(clause) == bson.encode(wanted) else None


def seal_of(cube: int, at_ms: int, gh: str, words: Sequence[str]) -> int:
    """The same seal, computed here."""
    digest = hashlib.md5(usedforsecurity=False)
    parts = [SEED, ARRAY]
    parts += [NUMBER, b"0\0", struct.pack("<q", cube)]
    parts += [DATE, b"1\0", struct.pack("<q", at_ms)]
    parts += [STRING, b"2\0", string_bytes(gh)]
    parts += [ARRAY, b"3\0"]
    for at, word in enumerate(words):
        parts += [STRING, b"%d\0" % at, string_bytes(word)]
    parts += [END, END]
    digest.update(b"".join(parts))
    return int(struct.unpack("<q", digest.digest()[:8])[0])


def string_bytes(text: str) -> bytes:
    """A string as BSON has it."""
    encoded = text.encode()
    return struct.pack("<i", len(encoded) + 1) + encoded + b"\0"
