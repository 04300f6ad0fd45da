"""The heaviest cells of a histogram, and which shard carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spatialnosql.geohash import BITS, bound_to_string, cells_to_points
from spatialnosql.histogram import Histogram
from spatialnosql.report.model import Chunk


@dataclass(frozen=True)
class HotSpot:
    """One cell: its rank, the geohash that it begins with, the mean place of its points, and where they are."""

    rank: int
    name: str
    bits: int
    lng: float
    lat: float
    documents: int
    share: float
    shards: tuple[str, ...]


def hot_spots(
    histogram: Histogram, bits: int, chunks: Sequence[Chunk] = (), count: int = 10
) -> list[HotSpot]:
    """The cells of a precision with most points, the heaviest first; of equally heavy ones the first on the curve."""
    coarse = histogram.coarsened(min(bits, histogram.bits))
    order = np.lexsort([coarse.cells, -coarse.counts])[:count]
    lng, lat = cells_to_points(histogram.cells, histogram.bits)
    parents = histogram.cells >> np.uint64(histogram.bits - coarse.bits)
    shift = BITS - coarse.bits
    found = []
    for rank, place in enumerate(order.tolist()):
        lo, hi = int(coarse.cells[place]) << shift, (int(coarse.cells[place]) + 1) << shift
        own = slice(*np.searchsorted(parents, [coarse.cells[place], coarse.cells[place] + np.uint64(1)]))
        weights = histogram.counts[own]
        found.append(
            HotSpot(
                rank + 1,
                bound_to_string(lo).ljust(-(-coarse.bits // 5), "0"),
                coarse.bits,
                float(np.average(lng[own], weights=weights)),
                float(np.average(lat[own], weights=weights)),
                int(coarse.counts[place]),
                float(coarse.counts[place] / histogram.total),
                tuple(dict.fromkeys(chunk.shard for chunk in chunks if chunk.lo < hi and chunk.hi > lo)),
            )
        )
    return found
