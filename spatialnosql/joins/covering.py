"""The covers of polygons by where the points are, laid over each other; remembered, and taken from storage if there.

Cells of a cover are never finer than those of the statistics: so what lies inside can be counted from either.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from spatialnosql.costs import Costs
from spatialnosql.cover import Cover, cover
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.overlay import Overlay
from spatialnosql.joins.polygons import Polygons
from spatialnosql.region import Region

MAX_CELLS = 512
FINEST_BITS = 40  # without statistics: cells of 38 m at most, which are eight characters
_MOST_REMEMBERED = 32


def range_keys(costs: Costs) -> float:
    """What one more range costs, in keys that come to the client."""
    return costs.range_ms / (costs.key_ms + costs.settle_ms)


def cover_region(region: Region, histogram: Histogram | None, range_cost: float) -> Cover:
    """The cover of one polygon of a set."""
    bits = FINEST_BITS if histogram is None else min(histogram.bits, FINEST_BITS)
    return cover(region, max_cells=MAX_CELLS, weights=histogram, range_cost=range_cost, max_bits=bits)


def covers_of(polygons: Polygons, info: CollectionInfo) -> tuple[Cover | None, ...]:
    """The covers of polygons: those that were stored, where they were made by the same statistics."""
    histogram, stored = info.histogram, polygons.stored
    usable = stored is not None and histogram is not None and stored.histogram == histogram.key
    known = stored.covers if stored is not None and usable else (None,) * len(polygons)
    cost = range_keys(info.costs)
    return tuple(
        None if polygon.region is None else found or cover_region(polygon.region, histogram, cost)
        for polygon, found in zip(polygons, known, strict=True)
    )


def overlay_of(polygons: Polygons, info: CollectionInfo) -> Overlay:
    """The covers of polygons over each other."""
    key = (polygons.key, info.histogram.key if info.histogram is not None else None, range_keys(info.costs))
    with _lock:
        found = _overlays.get(key)
        if found is not None:
            _overlays.move_to_end(key)
    if found is None:
        found = Overlay.of(covers_of(polygons, info))
        with _lock:
            _overlays[key] = found
            while len(_overlays) > _MOST_REMEMBERED:
                _overlays.popitem(last=False)
    return found


def forget_overlays() -> None:
    """Forget all that were remembered."""
    with _lock:
        _overlays.clear()


_overlays: OrderedDict[object, Overlay] = OrderedDict()
_lock = threading.Lock()
