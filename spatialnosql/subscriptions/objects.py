"""A batch of objects as the matching loop reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import kernel


@dataclass(frozen=True, eq=False)
class Objects:
    """Places, times and terms of objects; object i has the terms ``terms[offsets[i]:offsets[i + 1]]``, sorted."""

    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at: NDArray[np.int64]
    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    x: NDArray[np.int64]
    """The longitude in 32 bits, as `cells` has it; -1 for what is no place."""
    y: NDArray[np.int64]

    @classmethod
    def of(
        cls, lng: ArrayLike, lat: ArrayLike, at_ms: ArrayLike, offsets: ArrayLike, terms: ArrayLike
    ) -> Objects:
        """The objects, in arrays of one kind, so that the loop is compiled once; copied only where that needs it."""
        lngs, lats = _ready(lng, np.float64), _ready(lat, np.float64)
        times, bounds = _ready(np.broadcast_to(at_ms, lngs.shape), np.int64), _ready(offsets, np.int64)
        members = _ready(terms, np.int32)
        if not (lngs.size == lats.size == bounds.size - 1):
            raise UsageError(
                f"{lngs.size:,} longitudes, {lats.size:,} latitudes and {bounds.size:,} offsets of terms; there must "
                "be as many latitudes as longitudes, and one offset more"
            )
        if bounds[0] != 0 or bounds[-1] > members.size or (np.diff(bounds) < 0).any():
            raise UsageError(
                f"offsets of terms run from {bounds[0]:,} to {bounds[-1]:,} over {members.size:,} terms; they must "
                "begin at 0, ascend and stay within the terms"
            )
        unsorted = kernel.first_unsorted(bounds, members)
        if unsorted >= 0:
            own = members[bounds[unsorted] : bounds[unsorted + 1]].tolist()
            raise UsageError(f"the terms of object {unsorted:,} are {own}; they must ascend, each once")
        x, y = np.empty(lngs.size, dtype=np.int64), np.empty(lngs.size, dtype=np.int64)
        kernel.place(lngs, lats, x, y)
        return cls(lngs, lats, times, bounds, members, x, y)

    def __len__(self) -> int:
        return int(self.lng.size)

    def order(self, level: int) -> NDArray[np.int64]:
        """The objects cell by cell: what the loop reads of the index for one is then at hand for the next."""
        keys = np.empty(len(self), dtype=np.int64)
        kernel.curve(self.x, self.y, level, keys)
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _ready(values: Any, kind: Any) -> NDArray[Any]:
    array = np.ascontiguousarray(values, dtype=kind).reshape(-1)
    return array if array.flags.writeable and array.flags.aligned else array.copy()
