"""Geohash keys straight from the wire: raw batches of ``{gh: "..."}`` to 60-bit cells.

A covered scan returns documents that all look alike to the byte, so a batch is a table: its rows are as long as the
first document, and the characters of ``gh`` stand in the same columns of each. No document is decoded.
"""

from __future__ import annotations

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.geohash import ALPHABET, BITS, LENGTH, Cells, strings_to_cells

_VALUES: NDArray[np.uint64] = np.full(256, 255, dtype=np.uint64)
_VALUES[[ord(character) for character in ALPHABET]] = np.arange(32, dtype=np.uint64)


def batch_to_cells(batch: bytes, field: str) -> Cells:
    """The cells of one raw batch of documents that have only `field`, a 12-character geohash."""
    name = field.encode() + b"\0"
    # int32 length, type byte, name, int32 string length, characters and a zero, end byte
    first = 4 + 1 + len(name) + 4
    stride = first + LENGTH + 1 + 1
    if not batch:
        return np.zeros(0, dtype=np.uint64)
    if len(batch) % stride == 0:
        rows = np.frombuffer(batch, dtype=np.uint8).reshape(-1, stride)
        head = stride.to_bytes(4, "little") + b"\x02" + name + (LENGTH + 1).to_bytes(4, "little")
        if bool((rows[:, :first] == np.frombuffer(head, dtype=np.uint8)).all()):
            values = _VALUES[rows[:, first : first + LENGTH]]
            if int(values.max()) < 32:
                return _packed(values)
    # Not what we wrote: some other client's documents. Slower, and as right.
    return strings_to_cells([str(document[field]) for document in bson.decode_all(batch)])


def _packed(values: NDArray[np.uint64]) -> Cells:
    cells = np.zeros(len(values), dtype=np.uint64)
    for position in range(LENGTH):
        cells |= values[:, position] << np.uint64(BITS - 5 * (position + 1))
    return cells
