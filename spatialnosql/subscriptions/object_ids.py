"""The identifiers of objects as BSON values, whatever they are: a column of an Arrow batch, made bytes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import bson_bytes
from spatialnosql.subscriptions.bson_bytes import Bytes
from spatialnosql.subscriptions.strings import Strings

OBJECT_ID = "objectId"
"""The BSON type whose values come from the connector as text of 24 digits."""


@dataclass(frozen=True, eq=False)
class ObjectIds:
    """Identifiers of one BSON type; the value of number i is ``data[offsets[i]:offsets[i + 1]]``, as in a document."""

    kind: int
    data: Bytes
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    @classmethod
    def of(cls, column: Any, bson_type: str | None = None) -> ObjectIds:
        """The identifiers of an Arrow array; `bson_type` says that its texts stand for ObjectIds."""
        import pyarrow as pa

        if column.null_count:
            raise UsageError("an object has no identifier: the column of identifiers has nulls")
        kind = column.type
        if pa.types.is_boolean(kind) or pa.types.is_dictionary(kind):
            column, kind = column.cast(pa.string()), pa.string()
        if pa.types.is_integer(kind):
            values = column.cast(pa.int64()).to_numpy().astype("<i8", copy=False)
            narrow = kind.bit_width <= 32 and not pa.types.is_uint32(kind)
            return cls._fixed(
                bson_bytes.INT32 if narrow else bson_bytes.INT64, values.astype("<i4") if narrow else values
            )
        if pa.types.is_floating(kind):
            return cls._fixed(bson_bytes.DOUBLE, column.cast(pa.float64()).to_numpy().astype("<f8"))
        if pa.types.is_timestamp(kind):
            moments = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
            return cls._fixed(bson_bytes.DATE, moments.to_numpy().astype("<i8"))
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return cls._sized(bson_bytes.BINARY, column.cast(pa.large_binary()), before=5, behind=0)
        texts = (
            column if pa.types.is_string(kind) or pa.types.is_large_string(kind) else column.cast(pa.string())
        )
        if bson_type == OBJECT_ID:
            raw = b"".join(bytes.fromhex(text) for text in texts.to_pylist())
            return cls._fixed(bson_bytes.OBJECT_ID, np.frombuffer(raw, dtype="S12"))
        return cls._sized(bson_bytes.STRING, texts.cast(pa.large_binary()), before=4, behind=1)

    @classmethod
    def _fixed(cls, kind: int, values: NDArray[Any]) -> ObjectIds:
        data = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8)
        return cls(kind, data, np.arange(len(values) + 1, dtype=np.int64) * values.dtype.itemsize)

    @classmethod
    def _sized(cls, kind: int, column: Any, before: int, behind: int) -> ObjectIds:
        """Values with their length before them; of strings that counts the zero behind."""
        contents = Strings.from_arrow(column)
        lengths = np.diff(contents.offsets)
        offsets = np.zeros(len(contents) + 1, dtype=np.int64)
        np.cumsum(lengths + before + behind, out=offsets[1:])
        data = np.zeros(int(offsets[-1]), dtype=np.uint8)
        counted = (lengths + behind).astype("<i4").view(np.uint8).reshape(-1, 4)
        data[offsets[:-1, None] + np.arange(4)] = counted
        source = np.repeat(offsets[:-1] + before - contents.offsets[:-1], lengths)
        data[np.arange(contents.data.size) + source] = contents.data
        return cls(kind, data, offsets)

    def take(self, rows: NDArray[np.int64]) -> ObjectIds:
        """Those of some rows."""
        part = Strings(self.data, self.offsets).pick(rows)
        return ObjectIds(self.kind, part.data, part.offsets)

    @classmethod
    def joined(cls, parts: list[ObjectIds]) -> ObjectIds:
        """Those of several batches, one after the other; of one type."""
        kinds = {part.kind for part in parts}
        if len(kinds) != 1:
            raise UsageError(f"identifiers of {len(kinds)} types; they must be of one")
        whole = Strings.joined([Strings(part.data, part.offsets) for part in parts])
        return cls(kinds.pop(), whole.data, whole.offsets)

    def values(self) -> list[Any]:
        """The identifiers as pymongo has them."""
        bounds, held = self.offsets.tolist(), self.data.tobytes()
        return [self._value(held[a:b]) for a, b in itertools.pairwise(bounds)]

    def _value(self, value: bytes) -> Any:
        document = bytes([self.kind]) + b"v\0" + value + b"\0"
        return bson.decode((len(document) + 4).to_bytes(4, "little") + document)["v"]
