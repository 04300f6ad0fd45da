"""What each form of a query costs, estimated from the histogram of cells: the cheapest is sent.

A query has three forms: the original; *server*, ranges of ``gh`` with the boundary tested by the servers; *client*,
ranges only, with the boundary settled here. Coefficients are in `spatialnosql.costs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spatialnosql.cover import Cover, Ranges
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.region import EdgeRegion, IntersectionRegion, MirroredRegion, Region, UnionRegion
from spatialnosql.rewrite.own_indexes import have_index, names_of, own_index_ms
from spatialnosql.rewrite.plan import ALL, Answered, Filter, Wanted
from spatialnosql.rewrite.sorted_by import walk_ms

ORIGINAL, SERVER, CLIENT = "original", "server", "client"
ONE_SCAN = "client, in one scan"
IN_ORDER = "original, in the order of an index"
SPILL = 1.15  # MongoDB's own covering of a shape holds about this many times the points inside it


def estimate(
    cover: Cover,
    region: Region,
    info: CollectionInfo,
    *,
    limit: int = 0,
    load: Load | None = None,
    others: tuple[Filter, ...] = (),
    wanted: Wanted = ALL,
) -> dict[str, float] | None:
    """The milliseconds of a find in each form; None without statistics.

    `limit` is what it wants at most; 0 = all. `load` is the cover's, where it is known already. `others` are conditions
    beside those on the location, for which the servers may have an index. `wanted` says in which order, if in any:
    where an index has it, that is a form of its own.
    """
    if info.histogram is None:
        return None
    costs, load = info.costs, load or Load.of(cover, info, info.histogram)
    test, shape = test_ms(region, info), shape_ms(region, info)
    # Of a limited find every form reads only until it has enough. Each shard finds that many, whoever needs them.
    share = min(1.0, limit / load.inside) if limit and load.inside else 1.0
    seeks = load.asked * (costs.shard_ms + (len(cover.interior) + len(cover.boundary)) * costs.range_ms)
    fewer_seeks = load.asked * (costs.shard_ms + len(cover.outer) * costs.range_ms)
    read = costs.key_ms + costs.fetch_ms
    sort_ms = costs.key_ms if wanted.order else 0.0  # a document: about as long as to read a key
    first = wanted.first if wanted.order and wanted.first else load.inside
    returned = min(load.inside, first) * costs.return_ms + load.inside * sort_ms
    in_order = walk_ms(
        wanted, others, info, inside=load.inside, asked=load.asked, test_ms=test, shape_ms=shape
    )
    return {
        ORIGINAL: min(
            costs.command_ms
            + load.shards * (costs.shard_ms + shape)
            + share * (load.inside * SPILL * (read + test) + returned),
            own_index_ms(others, info, test),
        ),
        SERVER: costs.command_ms
        + seeks
        + (load.asked * shape if len(cover.boundary) else 0.0)
        + share * (load.outer * read + load.boundary * test + returned),
        CLIENT: costs.command_ms
        + fewer_seeks
        + share * (load.outer * (read + sort_ms + costs.return_ms) + load.boundary * costs.settle_ms),
        **({IN_ORDER: in_order} if in_order < math.inf else {}),
    }


def as_it_is(estimates: Mapping[str, float]) -> str:
    """The cheaper of the ways in which servers may answer a query as it came."""
    return min((form for form in (ORIGINAL, IN_ORDER) if form in estimates), key=lambda form: estimates[form])


def why_as_it_is(estimates: Mapping[str, float], rewritten_ms: float) -> str:
    """Why a query goes as it came, in words."""
    form = as_it_is(estimates)
    ordered = "an index has the order that is wanted, and finds enough sooner"
    why = ordered if form == IN_ORDER else "the cover would cost more than it saves"
    return f"{why} ({rewritten_ms:.1f} ms against {estimates[form]:.1f} ms)"


def estimate_count(
    cover: Cover,
    region: Region,
    info: CollectionInfo,
    *,
    load: Load | None = None,
    others: tuple[Filter, ...] = (),
    limit: int = 0,
) -> dict[str, float] | None:
    """The milliseconds of a count in each form, the last one in one command or in two; None without statistics.

    With `others`, conditions beside those on the location, the index alone does not do. `load` is the cover's, where it
    is known. `limit` is how many are counted at most; 0 = all.
    """
    if info.histogram is None:
        return None
    costs, load = info.costs, load or Load.of(cover, info, info.histogram)
    test, shape = test_ms(region, info), shape_ms(region, info)
    key = costs.key_ms + (costs.fetch_ms if others else 0.0)
    read = costs.key_ms + costs.fetch_ms
    ranges = len(cover.interior) + len(cover.boundary)
    two = bool(len(cover.interior)) + bool(len(cover.boundary))
    # Servers stop at the limit, each by itself. Whoever counts here has counted everything before he knows.
    share = min(1.0, limit * load.asked / load.inside) if limit and load.inside else 1.0
    return {
        ORIGINAL: min(
            costs.command_ms
            + load.shards * (costs.shard_ms + shape)
            + share * load.inside * SPILL * (read + test),
            own_index_ms(others, info, test),
        ),
        SERVER: costs.command_ms
        + load.asked * (costs.shard_ms + ranges * costs.range_ms + (shape if len(cover.boundary) else 0.0))
        + share * (load.outer * read + load.boundary * test),
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
    held_by: tuple[str, ...]  # empty when it is not known where the chunks lie

    @classmethod
    def of(cls, cover: Cover, info: CollectionInfo, histogram: Histogram) -> Load:
        """By the histogram, corrected by what was seen of such covers."""
        factor = info.experience.factor(cover)
        parts = cover.interior, cover.boundary
        points = histogram.points_in(
            np.concatenate([part.lo for part in parts]), np.concatenate([part.hi for part in parts])
        )
        interior = float(points[: len(cover.interior)].sum())
        boundary = float(points[len(cover.interior) :].sum())
        shards = len({part.shard for part in info.shards}) or 1
        return cls(interior * factor, boundary * factor, shards, predicted_shards(cover.outer, info))

    @property
    def asked(self) -> int:
        """How many shards will be asked: all of them if nobody knows."""
        return len(self.held_by) or self.shards

    @property
    def outer(self) -> float:
        """All points in the cover."""
        return self.interior + self.boundary

    def answered(self, cover: Cover, others: tuple[Filter, ...], info: CollectionInfo) -> Answered | None:
        """What there is to be learnt from the servers' own answer; None if nothing."""
        if info.unhashed:
            return None
        if others and not have_index(others, info):
            return None
        return Answered(cover, self.interior, self.outer, names_of(others))

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


def predicted_shards(ranges: Ranges, info: CollectionInfo) -> tuple[str, ...]:
    """The shards that hold any of some ranges; empty when it is not known where the chunks lie."""
    strings = ranges.to_strings()
    if not strings:
        return ()
    first, last = strings[0][0], strings[-1][1]
    near = [part for part in info.shards if first < part.hi and part.lo < last]
    asked = {part.shard for part in near if any(lo < part.hi and part.lo < hi for lo, hi in strings)}
    return tuple(sorted(asked))
