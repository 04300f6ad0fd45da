"""Covers as filters: conditions on ``gh`` that an index can seek by."""

from __future__ import annotations

from typing import Any

import numpy as np
from bson.codec_options import DatetimeConversion
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument

from spatialnosql.cover import DEFAULT_RANGE_COST, Cover, Ranges, cover
from spatialnosql.geohash import Cells, cells_to_ranges, indices_to_cells, merge_ranges
from spatialnosql.info import CollectionInfo
from spatialnosql.region import Box, Region
from spatialnosql.rewrite.plan import Context

SELECTIVITY_BITS = (25, 30, 35)  # the precisions of the paper
_MAX_PAPER_CELLS = 1 << 16
_ANY_DATE = DEFAULT_RAW_BSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)


def cover_of(region: Region, context: Context, range_cost: float = DEFAULT_RANGE_COST) -> Cover:
    """The cover of a region as the caller wants it; `range_cost` is what a range costs, in points."""
    if context.qos.precision == "selectivity":
        paper = _rectangle_cover(region, context)
        if paper is not None:
            return paper
    histogram = context.info.histogram
    return cover(
        region,
        max_cells=context.qos.max_cells,
        max_ranges=context.qos.max_ranges,
        weights=histogram,
        range_cost=range_cost,
    )


def _rectangle_cover(region: Region, context: Context) -> Cover | None:
    """The paper's cover: all cells of one precision over the bounding rectangle, none of them interior.

    The precision is the one with the highest index selectivity, distinct keys / rows (its algorithm 2). None when the
    rectangle holds too many cells.
    """
    bits = most_selective(context.info)
    parts = [cells for box in region.bounds if (cells := _cells_over(box, bits)) is not None]
    if len(parts) < len(region.bounds):
        return None
    nothing = np.zeros(0, dtype=np.uint64)
    cells = np.unique(np.concatenate([nothing, *parts]))
    lo, hi = cells_to_ranges(cells, bits)
    return Cover(Ranges(nothing, nothing), Ranges(*merge_ranges(lo, hi)), len(cells))


def most_selective(info: CollectionInfo, candidates: tuple[int, ...] = SELECTIVITY_BITS) -> int:
    """The precision with the most distinct keys a row; 30 bits without statistics, as the paper's default."""
    histogram = info.histogram
    if histogram is None or not histogram.total:
        return 30
    known = [bits for bits in candidates if bits <= histogram.bits] or [histogram.bits]
    return max(known, key=lambda bits: len(histogram.coarsened(bits).cells) / histogram.total)


def _cells_over(box: Box, bits: int) -> Cells | None:
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    west, south, east, north = box
    x0, x1 = (
        min(columns - 1, max(0, int((v + 180.0) / 360.0 * columns))) for v in (west - 1e-9, east + 1e-9)
    )
    y0, y1 = (min(rows - 1, max(0, int((v + 90.0) / 180.0 * rows))) for v in (south - 1e-9, north + 1e-9))
    if (x1 - x0 + 1) * (y1 - y0 + 1) > _MAX_PAPER_CELLS:
        return None
    x, y = np.meshgrid(np.arange(x0, x1 + 1), np.arange(y0, y1 + 1))
    return indices_to_cells(x.ravel(), y.ravel(), bits)


def conditions(ranges: Ranges, gh: str) -> list[dict[str, Any]]:
    """One condition a range."""
    # Strings only: `$gte: ""` keeps out the nulls of documents without a place, which sort before.
    return [{gh: {"$gte": lo, "$lt": hi}} for lo, hi in ranges.to_strings()]


def any_of(parts: list[dict[str, Any]], gh: str) -> dict[str, Any]:
    """One of several conditions; what no document meets if there are none."""
    if not parts:
        return {gh: {"$in": []}}
    return parts[0] if len(parts) == 1 else {"$or": parts}


def all_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All of several conditions."""
    return parts[0] if len(parts) == 1 else {"$and": parts}


def encoded_as(encoded: bytes) -> RawBSONDocument:
    """A filter that was encoded, to be sent as it is; its fields can be read, whatever dates are among them."""
    return RawBSONDocument(encoded, _ANY_DATE)


def snapshot(value: Any) -> Any:
    """A filter as it is now, whatever the caller does to it later."""
    if isinstance(value, dict):
        return {key: snapshot(part) for key, part in value.items()}
    return [snapshot(part) for part in value] if isinstance(value, list) else value
