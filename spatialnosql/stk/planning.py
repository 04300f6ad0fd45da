"""Spatio-temporal keyword queries to plans: the data cubes that can hold an answer, and nothing else, are read.

Before: ``{loc: {$geoWithin: SHAPE}, at: {$gte: T1, $lt: T2}, words: {$all: [...]}}``
After: ``{"stk.c": {$in: [null, CUBES...]}, gh: {$gte: LO, $lt: HI}, at: ..., words: ...}``, and the client settles the
shape. One scan of one index: a cube is a point in it, and null is where the fresh documents are, which no filter knows
yet. ``gh`` lets the router choose shards, and keeps the fresh ones of other places out. Where all is sealed
(`shutting`) there is no null, and without cubes nothing is sent at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialnosql.cover import NOTHING, Cover, cells_over, cover
from spatialnosql.geohash import BITS, cells_to_bounds, cells_to_ranges, range_to_strings
from spatialnosql.info import CollectionInfo
from spatialnosql.region import OUT, Region
from spatialnosql.rewrite.fragments import all_of, any_of
from spatialnosql.rewrite.plan import Plan, Settled
from spatialnosql.steps import Steps
from spatialnosql.stk.filter_cache import FilterCache
from spatialnosql.stk.pruning import Window, cells_of_ranges, filter_cubes_of, surviving
from spatialnosql.stk.reading import Asked, asked_by, is_surely_accepted
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME, Ints, StkSettings

MOST_CUBES = 20_000
"""Of a query, before pruning; one that meets more is planned as any other spatial query."""
_MOST_CELLS = 2_000
_FEW_CELLS = 4  # so few are not worth a look at which of them the shape meets,
_SOME_CELLS = 64  # and of so many it is taken when it is known which of them survive
_MOST_GROUPS = 4  # parts of the curve that are asked for apart
_FAR = 256  # data cells between two parts
_SEEK_MS = 0.0015  # a data cube: one more point in the index
_LOOK_MS = 0.5  # the client's look at the filters
_NO_COVER = Cover(NOTHING, NOTHING, 0)


@dataclass(frozen=True)
class Group:
    """A part of the curve, ``[lo, hi)`` as geohashes, and the surviving data cubes in it."""

    lo: str
    hi: str
    cubes: list[int]


@dataclass(frozen=True)
class Pruned:
    """What is left of a query."""

    groups: tuple[Group, ...]
    window: Window
    survivors: int
    known_bins: int  # from the first to the last that there are filters of
    fresh: bool  # whether there may be fresh documents
    until_s: float  # how long it stays true


@dataclass(frozen=True)
class Look:
    """What a find is made of, so that it can look again."""

    asked: Asked
    pruned: Pruned

    @property
    def is_answered(self) -> bool:
        """Whether it is known already that there is nothing, so that no server has to be asked."""
        return not self.pruned.groups and is_surely_accepted(self.asked.others)


def plan_stk(
    collection: Any, filter: Mapping[str, Any], info: CollectionInfo, cache: FilterCache
) -> Steps[Plan | str]:
    """The plan of a find whose documents the client settles; or why there is none."""
    settings = info.stk
    if settings is None:
        return "the collection is not set up for words and time"
    asked = asked_by(filter, info, settings)
    if isinstance(asked, str):
        return asked
    pruned = yield from prune(collection, asked, settings, cache, info.shut_ms)
    if isinstance(pruned, str):
        return pruned
    estimates = _estimates(pruned, info, settings)
    if estimates is not None and estimates["original"] < estimates["pruned"]:
        return f"so few points that reading all of them costs less ({estimates['original']:.1f} ms)"
    return Plan(
        filter,
        filter=sent_filter(pruned, asked, info.gh),
        hint=INDEX_NAME,
        rewritten=True,
        rules=("prune_stk",),
        reasons=(f"{pruned.survivors} of {pruned.window.size} cubes of place and time can hold an answer",),
        ranges=pruned.survivors,
        commands=2 if pruned.groups else 0,
        form="client",
        estimates_ms=estimates,
        shards=_shards(pruned, info),
        # No part of the region is called interior: the answers are few, and settled each.
        settled=Settled(asked.region, _NO_COVER, asked.others, filter, float(pruned.survivors)),
        pruned=Look(asked, pruned),
    )


def prune(
    collection: Any, asked: Asked, settings: StkSettings, cache: FilterCache, refused_ms: int | None
) -> Steps[Pruned | str]:
    """The data cubes of a query that can hold an answer; or why they cannot be told.

    Fresh documents of a time before `refused_ms` the server refuses.
    """
    known = yield from cache.refresh(collection, settings.digest)
    if known is None:
        return "there are no filters in force"
    # Refused and published, both: the validator that is known here may be a minute old.
    shut_ms = known.state.shut_ms if cache.use_shut else None
    fresh = shut_ms is None or refused_ms is None or asked.last_ms >= min(shut_ms, refused_ms)
    first, last = settings.bins_of_cubes(cache.cubes)
    low, high = settings.bins_of(np.array([asked.first_ms, asked.last_ms], dtype=np.int64)).tolist()
    # No sealed document lies outside the bins that the filters know.
    bins = np.arange(max(low, first), min(high, last) + 1)
    cells = data_cells(asked.region, settings)
    if cells is None or len(bins) * len(cells) > MOST_CUBES:
        return f"a region and a time of more than {MOST_CUBES:,} cubes"
    window = Window(bins, cells)
    if cache.use_filters:
        filters = yield from cache.filters(collection, filter_cubes_of(window, settings))
        alive = surviving(window, asked.wording, filters, settings)
    else:
        alive = np.sort(settings.data_cubes(bins[:, None], cells[None, :]).ravel())
    if len(cells) <= _SOME_CELLS and len(alive) > _FEW_CELLS:
        of_cell = alive & ((1 << settings.cell_bits) - 1)
        alive = alive[np.isin(of_cell, _met(asked.region, np.unique(of_cell), settings))]
    if not fresh:
        cells = np.unique(alive & ((1 << settings.cell_bits) - 1))
    groups = _grouped(cells, alive, settings)
    until_s = known.read_s + known.state.grace_s
    return Pruned(groups, window, len(alive), last - first + 1, fresh, until_s)


def data_cells(region: Region, settings: StkSettings) -> Ints | None:
    """The data cells that a region meets, or a few more, ascending; None if they are too many."""
    bits = settings.cell_bits
    cells = cells_over(region.bounds, bits, _MOST_CELLS)
    if cells is None:
        # Far larger than the region, its box may hold many more cells than the region does.
        return cells_of_ranges(
            cover(region, max_cells=_MOST_CELLS // 4, max_bits=bits).outer, settings, _MOST_CELLS
        )
    found = cells.astype(np.int64)
    return _met(region, found, settings) if len(cells) > _SOME_CELLS else found


def _met(region: Region, cells: Ints, settings: StkSettings) -> Ints:
    """Those of some data cells that a region meets."""
    bounds = cells_to_bounds(cells.astype(np.uint64), settings.cell_bits)
    status, _ = region.refine(np.stack(bounds, axis=1))
    met: Ints = cells[status != OUT]
    return met


def _grouped(cells: Ints, alive: Ints, settings: StkSettings) -> tuple[Group, ...]:
    """The cells in a few parts, cut where the curve leaves the region for long, each with its cubes."""
    if not len(cells):
        return ()
    gaps = np.diff(cells)
    far = np.flatnonzero(gaps > _FAR)
    cuts = np.sort(far[np.argsort(gaps[far])[::-1][: _MOST_GROUPS - 1]]) + 1
    shift = BITS - settings.cell_bits
    of_cell = alive & ((1 << settings.cell_bits) - 1)
    groups = []
    for part in np.split(cells, cuts):
        first, last = int(part[0]), int(part[-1])
        cubes = alive[(of_cell >= first) & (of_cell <= last)]
        groups.append(Group(*range_to_strings(first << shift, (last + 1) << shift), cubes.tolist()))
    return tuple(groups)


def sent_filter(pruned: Pruned, asked: Asked, gh: str) -> dict[str, Any]:
    """What is sent: for each part of the curve its cubes and the fresh, beside all conditions but the place."""
    if not pruned.groups:
        return all_of([{CUBE_FIELD: {"$in": []}}, *asked.others])
    too = [None] if pruned.fresh else []
    parts = [
        {CUBE_FIELD: {"$in": [*too, *group.cubes]}, gh: {"$gte": group.lo, "$lt": group.hi}}
        for group in pruned.groups
    ]
    return all_of([any_of(parts, gh), *asked.others])


def unpruned_filter(pruned: Pruned, asked: Asked, settings: StkSettings, gh: str) -> dict[str, Any]:
    """The same without filters: all documents of the parts of the curve that the region meets."""
    groups = _grouped(pruned.window.cells, pruned.window.cells[:0], settings)
    parts = [{gh: {"$gte": group.lo, "$lt": group.hi}} for group in groups]
    return all_of([any_of(parts, gh), *asked.others])


def _shards(pruned: Pruned, info: CollectionInfo) -> tuple[str, ...]:
    """The shards that hold any part of the curve that is asked for; empty when it is not known where the chunks lie."""
    held = {
        part.shard
        for group in pruned.groups
        for part in info.shards
        if group.lo < part.hi and part.lo < group.hi
    }
    return tuple(sorted(held))


def _estimates(pruned: Pruned, info: CollectionInfo, settings: StkSettings) -> dict[str, float] | None:
    """Milliseconds of the query by place alone, and pruned; None without statistics."""
    if info.histogram is None:
        return None
    costs = info.costs
    lo, hi = cells_to_ranges(pruned.window.cells.astype(np.uint64), settings.cell_bits)
    here = float(info.histogram.points_in(lo, hi).sum())
    read = costs.key_ms + costs.fetch_ms
    if not pruned.groups:
        return {"original": costs.command_ms + costs.shard_ms + here * read, "pruned": _LOOK_MS}
    shards = len(_shards(pruned, info)) or 1
    # How many of the points here lie in the surviving cubes: as their share of all bins, which is never too few.
    alive = here * min(1.0, pruned.survivors / max(1, pruned.known_bins * len(pruned.window.cells)))
    asked = costs.command_ms + shards * costs.shard_ms
    own = [index.keys[0][0] for index in info.indexes if not index.partial]
    native = asked + here * read
    if settings.time in own:
        # An index of the user's that begins with the time: every shard reads what lies in the interval.
        total, all_shards = float(info.histogram.total), len({part.shard for part in info.shards}) or 1
        share = len(pruned.window.bins) / max(1, pruned.known_bins)
        native = min(native, costs.command_ms + all_shards * costs.shard_ms + total * share * read)
    return {
        "original": native,
        "pruned": asked + _LOOK_MS + pruned.survivors * _SEEK_MS + alive * read,
    }
