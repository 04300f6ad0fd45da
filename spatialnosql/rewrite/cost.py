"""What each form of a query costs, estimated from the histogram of cells: the cheapest is sent.

A query has three forms: the original; *server*, ranges of ``gh`` with the boundary tested by the servers; *client*,
ranges only, with the boundary settled here. Coefficients are in `spatialnosql.costs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spatialnosql.cover import Cover
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.region import EdgeRegion, IntersectionRegion, MirroredRegion, Region, UnionRegion

ORIGINAL, SERVER, CLIENT = "original", "server", "client"
ONE_SCAN = "client, in one scan"
SPILL = 1.15  # MongoDB's own covering of a shape holds about this many times the points inside it


def estimate(
    cover: Cover, region: Region, info: CollectionInfo, *, limit: int = 0
) -> dict[str, float] | None:
    """The milliseconds of a find in each form; None without statistics. `limit` is what it wants at most; 0 = all."""
    if info.histogram is None:
        return None
    costs, load = info.costs, Load.of(cover, info, info.histogram)
    test, shape = test_ms(region, info), shape_ms(region, info)
    # Of a limited find every form reads only until it has enough. Each shard finds that many, whoever needs them.
    share = min(1.0, limit / load.inside) if limit and load.inside else 1.0
    seeks = load.asked * (costs.shard_ms + (len(cover.interior) + len(cover.boundary)) * costs.range_ms)
    fewer_seeks = load.asked * (costs.shard_ms + len(cover.outer) * costs.range_ms)
    read = costs.key_ms + costs.fetch_ms
    wanted = load.inside * costs.return_ms
    return {
        ORIGINAL: costs.command_ms
        + load.shards * (costs.shard_ms + shape)
        + share * (load.inside * SPILL * (read + test) + wanted),
        SERVER: costs.command_ms
        + seeks
        + (load.asked * shape if len(cover.boundary) else 0.0)
        + share * (load.outer * read + load.boundary * test + wanted),
        CLIENT: costs.command_ms
        + fewer_seeks
        + share * (load.outer * (read + costs.return_ms) + load.boundary * costs.settle_ms),
    }


def estimate_count(
    cover: Cover, region: Region, info: CollectionInfo, *, fetched: bool
) -> dict[str, float] | None:
    """The milliseconds of a count in each form, the last one in one command or in two; None without statistics.

    `fetched`: there are other conditions, so the index alone does not do.
    """
    if info.histogram is None:
        return None
    costs, load = info.costs, Load.of(cover, info, info.histogram)
    test, shape = test_ms(region, info), shape_ms(region, info)
    key = costs.key_ms + (costs.fetch_ms if fetched else 0.0)
    read = costs.key_ms + costs.fetch_ms
    ranges = len(cover.interior) + len(cover.boundary)
    two = bool(len(cover.interior)) + bool(len(cover.boundary))
    return {
        ORIGINAL: costs.command_ms
        + load.shards * (costs.shard_ms + shape)
        + load.inside * SPILL * (read + test),
        SERVER: costs.command_ms
        + load.asked * (costs.shard_ms + ranges * costs.range_ms + (shape if len(cover.boundary) else 0.0))
        + load.outer * read
        + load.boundary * test,
        CLIENT: two * (costs.command_ms + load.asked * costs.shard_ms)
        + load.asked * ranges * costs.range_ms
        + load.outer * key
        + load.boundary * costs.settle_ms,
        ONE_SCAN: costs.command_ms
        + load.asked * (costs.shard_ms + len(cover.outer) * costs.range_ms)
        + load.outer * (key + costs.settle_ms),
    }


@dataclass(frozen=True)
class Load:
    """The points expected in a cover, and the shards that hold it."""

    interior: float
    boundary: float
    shards: int  # all there are
    asked: int

    @classmethod
    def of(cls, cover: Cover, info: CollectionInfo, histogram: Histogram) -> Load:
        """By the histogram, corrected by what was seen of such covers."""
        factor = info.experience.factor(cover)
        interior = float(histogram.points_in(cover.interior.lo, cover.interior.hi).sum())
        boundary = float(histogram.points_in(cover.boundary.lo, cover.boundary.hi).sum())
        shards = len({part.shard for part in info.shards}) or 1
        asked = len(predicted_shards(cover, info)) or shards
        return cls(interior * factor, boundary * factor, shards, asked)

    @property
    def outer(self) -> float:
        """All points in the cover."""
        return self.interior + self.boundary

    @property
    def inside(self) -> float:
        """The points in the region itself, more or less."""
        return self.interior + self.boundary / 2


def test_ms(region: Region, info: CollectionInfo) -> float:
    """What it costs a server to test one point."""
    if isinstance(region, MirroredRegion):
        return test_ms(region.image, info)
    if isinstance(region, UnionRegion | IntersectionRegion):
        return sum(test_ms(part, info) for part in region.parts)
    costs = info.costs
    if isinstance(region, EdgeRegion):
        base = costs.test_ms if region.edges.geodesic else costs.flat_test_ms
        return base + len(region.edges) * costs.vertex_ms
    return costs.flat_test_ms


def shape_ms(region: Region, info: CollectionInfo) -> float:
    """What it costs a server to read and cover a region before it looks at a point; flat ones are as good as free."""
    if isinstance(region, MirroredRegion):
        return shape_ms(region.image, info)
    if isinstance(region, UnionRegion | IntersectionRegion):
        return sum(shape_ms(part, info) for part in region.parts)
    if isinstance(region, EdgeRegion) and region.edges.geodesic:
        return info.costs.shape_ms + len(region.edges) * info.costs.shape_vertex_ms
    return 0.0


def predicted_shards(cover: Cover, info: CollectionInfo) -> tuple[str, ...]:
    """The shards that hold any range of a cover; empty when it is not known where the chunks lie."""
    ranges = cover.outer.to_strings()
    if not ranges:
        return ()
    first, last = ranges[0][0], ranges[-1][1]
    near = [part for part in info.shards if first < part.hi and part.lo < last]
    asked = {part.shard for part in near if any(lo < part.hi and part.lo < hi for lo, hi in ranges)}
    return tuple(sorted(asked))
