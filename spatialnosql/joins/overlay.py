"""The covers of many polygons laid over each other: disjoint segments of the curve, each with its polygons.

Of each segment it is known which polygons hold all of it (*inside*) and through which a border may pass (*border*). So
a point is looked up once, however many polygons there are, and tested only against those whose border is near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Cover, Ranges
from spatialnosql.edges import Ints, ragged
from spatialnosql.geohash import Cells, cells_to_points, merge_ranges
from spatialnosql.region import IN, UNSURE, Region


@dataclass(frozen=True)
class Lists:
    """A list of numbers for each of many things, as two flat arrays."""

    starts: Ints  # one more than there are lists
    members: Ints

    @classmethod
    def of(cls, owner: Ints, member: Ints, owners: int) -> Lists:
        """From pairs in any order; members of a list come sorted."""
        order = np.lexsort((member, owner))
        counts = np.bincount(owner, minlength=owners)
        return cls(np.concatenate(([0], np.cumsum(counts))), member[order])

    @property
    def counts(self) -> Ints:
        """The length of each list."""
        return np.diff(self.starts)

    def expanded(self, which: Ints) -> tuple[Ints, Ints]:
        """For the lists `which`, one after the other: the position in `which`, and the member."""
        counts = self.counts[which]
        return np.repeat(np.arange(which.size), counts), self.members[ragged(self.starts[which], counts)]

    def taken(self, which: Ints) -> Lists:
        """The lists `which`, one after the other."""
        counts = self.counts[which]
        return Lists(
            np.concatenate(([0], np.cumsum(counts))), self.members[ragged(self.starts[which], counts)]
        )


@dataclass(frozen=True)
class Pairs:
    """Points and polygons that belong together: point ``point[i]`` lies in polygon ``polygon[i]``."""

    point: Ints
    polygon: Ints


@dataclass(frozen=True)
class Overlay:
    """Segment i is ``[lo[i], hi[i])``; segments are sorted and disjoint, and lie in some polygon's cover."""

    lo: Cells
    hi: Cells
    inside: Lists
    border: Lists

    @classmethod
    def of(cls, covers: Sequence[Cover | None]) -> Overlay:
        """Of covers in the order of their polygons; None where there is none."""
        parts = [
            (number, kind, ranges)
            for number, cover in enumerate(covers)
            if cover is not None
            for kind, ranges in ((IN, cover.interior), (UNSURE, cover.boundary))
        ]
        nothing = np.zeros(0, dtype=np.uint64)
        lo = np.concatenate([nothing, *(ranges.lo for _, _, ranges in parts)])
        hi = np.concatenate([nothing, *(ranges.hi for _, _, ranges in parts)])
        sizes = [len(ranges) for _, _, ranges in parts]
        polygon = np.repeat(np.array([number for number, _, _ in parts], dtype=np.intp), sizes)
        kind = np.repeat(np.array([kind for _, kind, _ in parts], dtype=np.int8), sizes)
        breaks = np.unique(np.concatenate([lo, hi]))
        first, last = np.searchsorted(breaks, lo), np.searchsorted(breaks, hi)
        segment, owner = ragged(first, last - first), np.repeat(polygon, last - first)
        inside = np.repeat(kind == IN, last - first)
        # Between breaks there are gaps that no cover reaches: they are no segments.
        used, number = np.unique(segment, return_inverse=True)
        return cls(
            breaks[used],
            breaks[used + 1] if used.size else breaks[:0],
            Lists.of(number[inside], owner[inside], used.size),
            Lists.of(number[~inside], owner[~inside], used.size),
        )

    def __len__(self) -> int:
        return len(self.lo)

    def segments_of(self, cells: Cells) -> Ints:
        """The segment of each 60-bit cell; -1 for those in none."""
        at = np.searchsorted(self.lo, cells, side="right") - 1
        if not len(self.lo):
            return at
        return np.where((at >= 0) & (cells < self.hi[np.maximum(at, 0)]), at, -1)

    @cached_property
    def has_border(self) -> NDArray[np.bool_]:
        """Which segments a border may pass through."""
        return self.border.counts > 0

    def ranges(self, chosen: NDArray[np.bool_] | None = None) -> Ranges:
        """The chosen segments, or all of them, as few ranges."""
        lo, hi = (self.lo, self.hi) if chosen is None else (self.lo[chosen], self.hi[chosen])
        return Ranges(*merge_ranges(lo, hi))

    def cut(self, places: Cells) -> Overlay:
        """The same with its segments cut at some places, which must be sorted and different."""
        first = np.searchsorted(places, self.lo, side="right")
        count = np.searchsorted(places, self.hi, side="left") - first
        whose = np.repeat(np.arange(len(self)), count)
        cuts = places[ragged(first, count)]
        order = np.argsort(np.concatenate([self.lo, cuts]), kind="stable")
        lo = np.concatenate([self.lo, cuts])[order]
        hi = np.sort(np.concatenate([self.hi, cuts]))
        own = np.concatenate([np.arange(len(self)), whose])[order]
        return Overlay(lo, hi, self.inside.taken(own), self.border.taken(own))

    def slices(self, cells: Cells, most: int) -> list[slice]:
        """Points in parts, each with no more pairs of a point and a polygon than so many, or of a single point."""
        segment = self.segments_of(cells)
        # One more, of no segment at all: that of number -1.
        counts = np.append(self.inside.counts + self.border.counts, 0)
        held = counts[segment]
        part = np.cumsum(held) // most
        starts = np.flatnonzero(np.diff(part, prepend=-1)).tolist()
        return [slice(start, end) for start, end in pairwise([*starts, len(cells)])]

    def pairs(self, cells: Cells, regions: Sequence[Region | None]) -> tuple[Pairs, Pairs]:
        """Which points lie in which polygons, certainly; and of which pairs only the server may say.

        Points are given by their 60-bit cells. Pairs come in no particular order.
        """
        segment = self.segments_of(cells)
        known = np.flatnonzero(segment >= 0)
        at, polygon = self.inside.expanded(segment[known])
        inside = Pairs(known[at], polygon)
        at, polygon = self.border.expanded(segment[known])
        certain, unsure = _settled(cells, Pairs(known[at], polygon), regions)
        return (
            Pairs(
                np.concatenate([inside.point, certain.point]),
                np.concatenate([inside.polygon, certain.polygon]),
            ),
            unsure,
        )


def _settled(cells: Cells, near: Pairs, regions: Sequence[Region | None]) -> tuple[Pairs, Pairs]:
    """Pairs of a point and a polygon whose border is near, tested: certainly inside, and undecided."""
    order = np.argsort(near.polygon, kind="stable")
    point, polygon = near.point[order], near.polygon[order]
    lng, lat = cells_to_points(cells[point])
    status = np.zeros(point.size, dtype=np.int8)
    starts = np.flatnonzero(np.diff(polygon, prepend=-1)).tolist()
    for start, end in pairwise([*starts, point.size]):
        region = regions[int(polygon[start])]
        assert region is not None  # it has a cover
        status[start:end] = region.settle(lng[start:end], lat[start:end])
    certain, unsure = status == IN, status == UNSURE
    return Pairs(point[certain], polygon[certain]), Pairs(point[unsure], polygon[unsure])
