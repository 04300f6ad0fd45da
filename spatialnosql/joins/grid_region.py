"""Where a grid is asked for: everywhere, in a GeoJSON geometry, or in whatever ``$geoWithin`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialnosql.cover import NOTHING, Cover, Ranges
from spatialnosql.errors import UnsupportedShape, UsageError
from spatialnosql.geohash import BITS
from spatialnosql.geometry import within_to_region
from spatialnosql.info import CollectionInfo
from spatialnosql.joins.covering import cover_region, range_keys
from spatialnosql.joins.polygons import Polygon
from spatialnosql.region import Region

_WHOLE = Ranges(np.zeros(1, dtype=np.uint64), np.full(1, 1 << BITS, dtype=np.uint64))
EVERYWHERE = Cover(_WHOLE, NOTHING, 1)


@dataclass(frozen=True, eq=False)
class Area(Polygon):
    """The region of a grid: a set of one polygon, which need not be one but any shape of ``$geoWithin``.

    Everywhere has no operand. `region` is None where only the server can tell who is inside; `outline` is there then
    too if the shape could be read: good enough to expect by.
    """

    operand: Mapping[str, Any] | None = None
    outline: Region | None = None

    @property
    def within(self) -> dict[str, Any]:
        """The condition on a location: what the server is asked."""
        return {"$geoWithin": self.operand}

    @property
    def is_everywhere(self) -> bool:
        """Whether there is no condition at all."""
        return self.operand is None

    @property
    def only_the_server_knows(self) -> bool:
        """Whether nobody else can tell who is inside."""
        return self.operand is not None and self.region is None

    def cover(self, info: CollectionInfo) -> Cover | None:
        """The ranges that hold the region; None if they cannot be had at all.

        For a region that only the server knows they are for expectations, and not to be read by.
        """
        if self.is_everywhere:
            return EVERYWHERE
        if self.outline is None:
            return None
        return cover_region(self.outline, info.histogram, range_keys(info.costs))


def read_region(region: Any) -> Area:
    """A region as it was given; a GeometryError says what MongoDB would refuse it for."""
    if region is None:
        return Area("region", {})
    operand = _operand(region)
    try:
        outline = within_to_region(operand)
    except UnsupportedShape as error:
        return Area("region", {}, None, str(error), operand=operand)
    if outline.on_s2_borders:
        why = "its border touches borders of S2 cells, where MongoDB's answer depends on its plan"
        return Area("region", {}, None, why, operand=operand, outline=outline)
    return Area("region", {}, outline, operand=operand, outline=outline)


def _operand(region: Any) -> Mapping[str, Any]:
    if isinstance(region, Mapping):
        if region.get("type") == "Feature":
            region = region.get("geometry")
        if isinstance(region, Mapping) and "type" in region:
            return {"$geometry": region}
        if isinstance(region, Mapping) and len(region) == 1 and str(next(iter(region))).startswith("$"):
            return region
    raise UsageError(
        'a region is None for everywhere, a GeoJSON geometry, or what $geoWithin takes, such as {"$box": ...}; '
        f"not {region!r:.80}"
    )
