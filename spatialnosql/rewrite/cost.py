"""Is the rewritten query cheaper? An estimate from the histogram of cells.

Coefficients are server milliseconds as measured on MongoDB 8.2 (documents of 150 bytes, in memory). Their ratios
matter, not their size: a polygon test costs as much as ten keys, a range as much as a dozen.
"""

from __future__ import annotations

from spatialnosql.cover import Cover
from spatialnosql.info import CollectionInfo
from spatialnosql.rewrite.plan import Cost

RANGE_MS = 0.018
KEY_MS = 0.0015
FETCH_MS = 0.003
TEST_MS = 0.022
SHARD_MS = 0.4
SPILL = 1.15  # MongoDB's own covering of a shape holds about this many times the points inside it


def estimate(cover: Cover, info: CollectionInfo) -> Cost | None:
    """What the original and the rewritten query cost the servers; None without statistics."""
    histogram = info.histogram
    if histogram is None:
        return None
    interior = float(histogram.points_in(cover.interior.lo, cover.interior.hi).sum())
    boundary = float(histogram.points_in(cover.boundary.lo, cover.boundary.hi).sum())
    shards = len({part.shard for part in info.shards}) or 1
    asked = len(predicted_shards(cover, info)) or shards
    inside = interior + boundary / 2
    original = shards * SHARD_MS + inside * SPILL * (KEY_MS + FETCH_MS + TEST_MS)
    ranges = len(cover.interior) + len(cover.boundary)
    rewritten = (
        asked * (SHARD_MS + ranges * RANGE_MS)
        + (interior + boundary) * (KEY_MS + FETCH_MS)
        + boundary * TEST_MS
    )
    return Cost(original, rewritten)


def predicted_shards(cover: Cover, info: CollectionInfo) -> tuple[str, ...]:
    """The shards that hold any range of a cover; empty when it is not known where the chunks lie."""
    asked = {
        part.shard
        for lo, hi in cover.outer.to_strings()
        for part in info.shards
        if lo < part.hi and part.lo < hi
    }
    return tuple(sorted(asked))
