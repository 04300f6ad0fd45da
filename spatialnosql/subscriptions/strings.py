"""Many strings as two flat arrays: their UTF-8 bytes one after the other, and where each begins.

A list of a million Python strings takes 60 MB and a second to load; this takes their bytes, and is mapped from a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.edges import ragged
from spatialnosql.subscriptions.compiled import compiled

# Lone surrogates are no characters, but a Python string may hold them.
_ERRORS = "surrogatepass"


@dataclass(frozen=True, eq=False)
class Strings:
    """An immutable sequence of strings; string i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """The strings, packed."""
        encoded = [string.encode("utf-8", _ERRORS) for string in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in encoded], out=offsets[1:])
        return cls(np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8), offsets)

    @classmethod
    def of_numbers(cls, first: int, end: int) -> Strings:
        """The whole numbers ``[first, end)`` in decimal digits."""
        digits = np.arange(first, end).astype(f"S{len(str(max(end, 1)))}")
        lengths = np.char.str_len(digits)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
        grid = digits.view(np.uint8).reshape(len(digits), -1)
        return cls(grid[np.arange(grid.shape[1]) < lengths[:, None]], offsets)

    @classmethod
    def from_arrow(cls, array: Any) -> Strings:
        """The strings, or bytes, of an Arrow array of large ones, without nulls; the same memory, not a copy."""
        if not len(array):
            return cls(np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        _, bounds, content = array.buffers()
        offsets = np.frombuffer(bounds, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.zeros(0, dtype=np.uint8)
        return cls(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    @classmethod
    def joined(cls, parts: Sequence[Strings]) -> Strings:
        """The strings of all parts, one part after the other."""
        shifts = np.cumsum([0] + [part.data.size for part in parts])
        offsets = [part.offsets[:-1] + shift for part, shift in zip(parts, shifts, strict=False)]
        return cls(
            np.concatenate([np.empty(0, dtype=np.uint8), *(part.data for part in parts)]),
            np.concatenate([*offsets, shifts[-1:]]).astype(np.int64),
        )

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"string {row} of {len(self)}")
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes().decode("utf-8", _ERRORS)

    def __iter__(self) -> Iterator[str]:
        return iter(self.take(np.arange(len(self))))

    def take(self, rows: NDArray[Any]) -> list[str]:
        """The strings of some rows."""
        starts, ends = self.offsets[rows].tolist(), self.offsets[np.asarray(rows) + 1].tolist()
        held = np.ascontiguousarray(self.data).data
        return [str(held[a:b], "utf-8", _ERRORS) for a, b in zip(starts, ends, strict=True)]

    def pick(self, rows: NDArray[Any]) -> Strings:
        """The strings of some rows, packed."""
        offsets, bytes_ = ragged_rows(self.offsets, rows)
        return Strings(self.data[bytes_], offsets)

    def find(self, strings: Sequence[str]) -> NDArray[np.int64]:
        """The last row in which each string stands, or -1."""
        order, hashes = self._by_hash
        wanted = Strings.of(strings)
        keys = _hashes(wanted.data, wanted.offsets)
        # The sort is stable: of equal strings the last row comes last.
        at = np.searchsorted(hashes, keys, side="right") - 1
        rows = np.full(len(wanted), -1, dtype=np.int64)
        for i in np.flatnonzero(at >= 0):
            k = int(at[i])
            while k >= 0 and hashes[k] == keys[i]:
                if self[int(order[k])] == strings[int(i)]:
                    rows[i] = order[k]
                    break
                k -= 1
        return rows

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        hashes = _hashes(np.ascontiguousarray(self.data), np.ascontiguousarray(self.offsets))
        order = np.argsort(hashes, kind="stable")
        return order, hashes[order]

    def to_arrow(self) -> Any:
        """The same as an Arrow array over the same bytes: `take` of it is how a million names are looked up at once."""
        import pyarrow as pa

        buffers = [pa.py_buffer(np.ascontiguousarray(array)) for array in (self.offsets, self.data)]
        return pa.LargeStringArray.from_buffers(len(self), *buffers)

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return int(self.data.nbytes + self.offsets.nbytes)


def ragged_rows(
    offsets: NDArray[np.int64], rows: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some rows of a list of lists: their offsets, and where their elements are in the old one."""
    counts = np.diff(offsets)[rows]
    picked = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    return picked, ragged(offsets[rows], counts)


@compiled
def _hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """FNV-1a of each string, to find it again."""
    hashes = np.empty(offsets.size - 1, np.int64)
    for i in range(hashes.size):
        mixed = np.int64(-3750763034362895579)
        for k in range(offsets[i], offsets[i + 1]):
            mixed = (mixed ^ np.int64(data[k])) * np.int64(1099511628211)
        hashes[i] = mixed
    return hashes
