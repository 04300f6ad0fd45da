"""Near by rings: documents around a place, nearest first, read by ranges of ``gh`` and measured in the client."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.density import HALF_EARTH_M, enough, learn_radius, radius_m
from spatialnosql.geohash import strings_to_cells
from spatialnosql.places import places, value_at
from spatialnosql.reading import Reader
from spatialnosql.rewrite.own_indexes import fewer_in_all
from spatialnosql.rewrite.plan import Rings
from spatialnosql.rewrite.ring_geo_near import GeoNearFields
from spatialnosql.rewrite.ring_near import RING_POINTS, Ring, ring_cover, ring_filter
from spatialnosql.settle import OUT, UNSURE, settle_closely
from spatialnosql.sphere import ERROR_M, distances_m
from spatialnosql.steps import Steps, call

_MANY = 150.0  # points that are read without a second thought
_FAR_MORE = 4.0  # times as many read as expected: the histogram is wrong about this place
_MARGIN_M = 2.0  # added to a radius that was learnt, for places a few steps away
_WIDER = 2.0  # a ring reaches at least so many times as far as the last
_SURELY_MANY = 1_000  # of so many points chance hides no great share
_FEW = 32  # so few are sooner sorted by Python than numpy is called
_MOST_POINTS = 50 * RING_POINTS  # in a ring, by the histogram, where only a small share of them is wanted


class RingSource:
    """The documents of rings, nearest first, one ring a batch; a `Source` of `Found`."""

    cursor_id: int | None = 0
    address: tuple[str, int] | None = None

    def __init__(self, reader: Reader, rings: Rings, fields: GeoNearFields | None = None) -> None:
        self._reader, self._rings, self._fields = reader, rings, fields
        self._reach = rings.first_m
        self._known = NOTHING  # what was read so far
        self._held = _NOBODY  # of that, what lies beyond the last ring
        self._found = 0  # documents so far
        self._read = 0  # documents in the ranges asked so far
        self._rounds = 0
        self._done = False
        self._surely = 0.0  # all documents nearer than this were given
        self._whole: Mapping[str, Any] | None = None  # once rings take longer than the query as it came

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """The documents of the next ring."""
        if self._done:
            return None
        if self._whole is not None:
            return (yield from self._rest_as_it_came(self._whole))
        rings = self._rings
        if everything and not rings.needed and math.isfinite(rings.max_m):
            self._reach = rings.max_m
        ring = ring_cover(rings, self._reach, self._reader.info, self._known)
        surely, last = ring.surely_m, ring.surely_m >= min(rings.max_m, HALF_EARTH_M)
        found = yield from self._new(ring, last=last)
        if len(self._held):
            found = found.merged(self._held)
        if not last:
            found, self._held = found.parted(bisect_left(found.distances, surely))
        self._found += len(found)
        self._done = last or 0 < rings.needed <= self._found
        self._rounds += 1
        if self._done:
            self._learn(found.distances)
        else:
            self._widen(surely)
        return self._given(found)

    def _given(self, found: Measured) -> list[Any]:
        """Documents as the caller wants them."""
        if self._fields is not None:
            path = self._reader.info.location.split(".")
            for document, distance in zip(found.documents, found.distances, strict=True):
                self._fields.added(document, distance, value_at(document, path))
        return self._reader.widened.strip(found.documents)

    def _rest_as_it_came(self, whole: Mapping[str, Any]) -> Steps[list[Any]]:
        """The documents beyond the last ring, by the query as it came."""
        rings, info = self._rings, self._reader.info
        # Its limit counts those that were found already, too.
        documents = yield from call(self._reader.find(whole, None, limit=rings.needed).to_list)
        found = measured(documents, rings.lng, rings.lat, info.location)
        self._done = True
        if found.distances:
            assert info.histogram is not None
            far = found.distances[-1] if len(found) == rings.needed else rings.max_m
            reached = min(far + _MARGIN_M, HALF_EARTH_M)
            points = ring_cover(rings, reached, info, NOTHING).held
            info.experience.learn_share(rings.names, len(found), points)
        else:
            self._learn([])
        return self._given(found.parted(bisect_left(found.distances, self._surely))[1])

    def explained(self) -> Steps[Any]:
        """What the server says of the next ring."""
        ring = ring_cover(self._rings, self._reach, self._reader.info, self._known)
        new = ring.ranges.without(self._known)
        cursor = self._cursor(new, ring.held, last=ring.surely_m >= self._rings.max_m)
        return (yield from call(cursor.explain))

    def _cursor(self, ranges: Ranges, held: float, *, last: bool) -> Any:
        sent = ring_filter(ranges, held, self._rings, self._reader.info, last=last)
        # One batch as a rule: the server sends no more than 16 MB at once.
        return self._reader.find(sent, self._rings.hint_for(held), batch_size=10 * RING_POINTS)

    def _new(self, ring: Ring, *, last: bool) -> Steps[Measured]:
        """The documents of a ring that were not read before; of those that the query asks for."""
        info, rings, ranges = self._reader.info, self._rings, ring.ranges
        new = ranges.without(self._known)
        again = rings.max_ranges is not None and len(new) > rings.max_ranges
        asked = ranges if again else new
        documents: list[Any] = []
        if len(asked):
            documents = yield from call(self._cursor(asked, ring.held, last=last).to_list)
        if again:  # a few more documents, that there be no more ranges than the caller wants
            cells = strings_to_cells([document[info.gh] for document in documents])
            documents = list(compress(documents, (~self._known.contains(cells)).tolist()))
        self._known = ranges.joined(self._known) if len(self._known) else ranges
        self._read += len(documents)
        if not documents:
            return _NOBODY
        found = measured(documents, rings.lng, rings.lat, info.location)
        found = found.between(rings.min_m - ERROR_M if rings.min_m else 0.0, rings.max_m + ERROR_M)
        if rings.regions and len(found):
            found = yield from self._in_regions(found)
        return (yield from self._within_ends(found))

    def _in_regions(self, found: Measured) -> Steps[Measured]:
        """Those that lie in all regions."""
        lng, lat = places(found.documents, self._reader.info.location)
        keep = np.ones(len(found), dtype=np.bool_)
        for region in self._rings.regions:
            status = settle_closely(region, lng, lat)
            keep &= status != OUT
            unsure = np.flatnonzero(keep & (status == UNSURE)).tolist()
            if unsure:
                keep[unsure] = yield from self._asked(
                    found, unsure, self._rings.region_tests, self._rings.hint
                )
        return found if keep.all() else found.compressed(keep.tolist())

    def _within_ends(self, found: Measured) -> Steps[Measured]:
        """Those that the server takes to be within the least and the greatest distance, where rounding could matter."""
        rings, distances = self._rings, found.distances
        first = bisect_right(distances, rings.min_m + ERROR_M) if rings.min_m else 0
        last = bisect_left(distances, rings.max_m - ERROR_M)
        at_end = [*range(min(first, last)), *range(last, len(found))]
        if not at_end:
            return found
        keep = [True] * len(found)
        answers = yield from self._asked(found, at_end, rings.end_tests, None)
        for at, answer in zip(at_end, answers, strict=True):
            keep[at] = answer
        return found.compressed(keep)

    def _asked(
        self, found: Measured, which: list[int], tests: Mapping[str, Any], hint: str | None
    ) -> Steps[list[bool]]:
        """What the server says of some documents."""
        part = [found.documents[at] for at in which]
        return (yield from self._reader.confirmed(part, tests, hint))

    def _widen(self, surely: float) -> None:
        """The next ring: as wide as the rest should need, by what is known, or by the histogram."""
        rings, info = self._rings, self._reader.info
        histogram = info.histogram
        assert histogram is not None
        missing = rings.needed - self._found
        self._surely = surely
        if rings.whole is not None and fewer_in_all(self._share, missing, histogram):
            self._whole = rings.whole
            return
        if 0 < missing <= len(self._held):
            # Whatever else there is, the farthest of those wanted is no farther than this.
            farthest = self._held.distances[missing - 1]
            self._reach = min(farthest + 2 * ERROR_M, rings.max_m, HALF_EARTH_M)
            new = ring_cover(rings, self._reach, info, self._known)[0].without(self._known)
            if new.held(histogram) > _MANY + 2 * missing:
                # A clump on the way: it may lie beyond those that are wanted.
                nearer = radius_m(rings.lng, rings.lat, enough(missing), histogram, beyond_m=surely)
                self._reach = min(self._reach, max(nearer, surely + 1.0))
            return
        wanted = min(enough(missing), RING_POINTS) if rings.needed else RING_POINTS
        # Where fewer are found than there should be, whatever the reason, look farther.
        points = min(wanted / self._share, _MOST_POINTS)
        reach = radius_m(rings.lng, rings.lat, points, histogram, beyond_m=surely)
        # Where many are still missing, and the histogram was right so far, it is right about them too.
        trusted = not rings.needed or (missing > _SURELY_MANY and self._share > 0.5)
        wider = surely * (1.01 if trusted else _WIDER)
        self._reach = min(max(reach, wider, surely + 1.0), rings.max_m, HALF_EARTH_M)

    @property
    def _share(self) -> float:
        """The share of the points in the ranges that were documents to consider: other conditions thin them out."""
        histogram = self._reader.info.histogram
        assert histogram is not None
        predicted = self._known.held(histogram)
        return min((self._read + 0.5) / (predicted + 1.0), 1.0)

    def _learn(self, distances: list[float]) -> None:
        """Remember what the next query of this kind had better know; `distances` are those of the last ring."""
        rings, info = self._rings, self._reader.info
        if rings.names:
            assert info.histogram is not None
            info.experience.learn_share(rings.names, self._read, self._known.held(info.histogram))
        elif 0 < rings.needed <= self._found and not rings.min_m and not rings.regions:
            expected = min(enough(rings.needed), RING_POINTS)
            if self._rounds > 1 or self._read > _FAR_MORE * expected:
                assert info.histogram is not None
                last = rings.needed - (self._found - len(distances)) - 1
                radius = distances[last] + _MARGIN_M
                learn_radius(rings.lng, rings.lat, expected, info.histogram, radius)

    def close(self) -> Steps[None]:
        """Nothing is open between rings."""
        self._done = True
        return
        yield


@dataclass(frozen=True)
class Measured:
    """Documents and their distances from a place, nearest first."""

    documents: list[Any]
    distances: list[float]

    def __len__(self) -> int:
        return len(self.documents)

    def between(self, low_m: float, high_m: float) -> Measured:
        """Those from one distance to another."""
        first, end = bisect_left(self.distances, low_m), bisect_right(self.distances, high_m)
        return self if end - first == len(self) else self._slice(first, end)

    def parted(self, at: int) -> tuple[Measured, Measured]:
        """The first so many, and the rest."""
        return (self, _NOBODY) if at == len(self) else (self._slice(0, at), self._slice(at, len(self)))

    def compressed(self, keep: Sequence[bool]) -> Measured:
        """Those that are kept."""
        return Measured(list(compress(self.documents, keep)), list(compress(self.distances, keep)))

    def merged(self, other: Measured) -> Measured:
        """These and others; of equal distances the others first."""
        return _nearest_first(other.documents + self.documents, other.distances + self.distances)

    def _slice(self, first: int, end: int) -> Measured:
        return Measured(self.documents[first:end], self.distances[first:end])


_NOBODY = Measured([], [])


def measured(documents: list[Any], lng: float, lat: float, location: str) -> Measured:
    """Documents in the order of their distance from a place."""
    return _nearest_first(documents, distances_m(lng, lat, *places(documents, location)).tolist())


def _nearest_first(documents: list[Any], distances: list[float]) -> Measured:
    if len(distances) < _FEW:
        order = sorted(range(len(distances)), key=distances.__getitem__)
    else:
        order = np.argsort(distances, kind="stable").tolist()
    return Measured([documents[at] for at in order], [distances[at] for at in order])
