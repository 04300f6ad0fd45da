"""Near by rings: documents around a place, nearest first, read by ranges of ``gh`` and measured in the client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.density import HALF_EARTH_M, learn_radius, radius_m
from spatialnosql.geohash import strings_to_cells
from spatialnosql.places import places, value_at
from spatialnosql.reading import Reader
from spatialnosql.rewrite.plan import Rings
from spatialnosql.rewrite.ring_geo_near import GeoNearFields
from spatialnosql.rewrite.ring_near import RING_POINTS, enough, ring_cover, ring_filter
from spatialnosql.settle import OUT, UNSURE, settle_closely
from spatialnosql.sphere import ERROR_M, Floats, distances_m
from spatialnosql.steps import Steps, call

_MANY = 150.0  # points that are read without a second thought
_FAR_MORE = 4.0  # times as many read as expected: the histogram is wrong about this place
_MARGIN_M = 2.0  # added to a radius that was learnt, for places a few steps away
_WIDER = 2.0  # a ring reaches at least so many times as far as the last
_MOST_POINTS = 50 * RING_POINTS  # in a ring, by the histogram, where only a small share of them is wanted


_NONE: Floats = np.zeros(0)


class RingSource:
    """The documents of rings, nearest first, one ring a batch; a `Source` of `Found`."""

    cursor_id: int | None = 0
    address: tuple[str, int] | None = None

    def __init__(self, reader: Reader, rings: Rings, fields: GeoNearFields | None = None) -> None:
        self._reader, self._rings, self._fields = reader, rings, fields
        self._reach = rings.first_m
        self._known = NOTHING  # what was read so far
        self._held: list[Any] = []  # of that, what lies beyond the last ring
        self._held_m = _NONE
        self._found = 0  # documents so far
        self._read = 0  # documents in the ranges asked so far
        self._rounds = 0
        self._done = False

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """The documents of the next ring."""
        if self._done:
            return None
        rings = self._rings
        if everything and not rings.needed and math.isfinite(rings.max_m):
            self._reach = rings.max_m
        ranges, surely = ring_cover(rings, self._reach, self._reader.info, self._known)
        last = surely >= min(rings.max_m, HALF_EARTH_M)
        documents, distances = yield from self._new(ranges, last=last)
        if self._held:
            documents, distances = self._held + documents, np.concatenate([self._held_m, distances])
        if not last and documents:
            near = distances < surely
            self._held = list(compress(documents, (~near).tolist()))
            documents, self._held_m = list(compress(documents, near.tolist())), distances[~near]
            distances = distances[near]
        self._found += len(documents)
        self._done = last or 0 < rings.needed <= self._found
        self._rounds += 1
        if self._done:
            self._learn(distances)
        else:
            self._widen(surely)
        if not documents:
            return documents
        order = np.argsort(distances, kind="stable").tolist()
        found = [documents[at] for at in order]
        if self._fields is not None:
            path = self._reader.info.location.split(".")
            for document, distance in zip(found, distances[order].tolist(), strict=True):
                self._fields.added(document, distance, value_at(document, path))
        return self._reader.widened.strip(found)

    def explained(self) -> Steps[Any]:
        """What the server says of the next ring."""
        ranges, surely = ring_cover(self._rings, self._reach, self._reader.info, self._known)
        cursor = self._cursor(ranges.without(self._known), last=surely >= self._rings.max_m)
        return (yield from call(cursor.explain))

    def _cursor(self, ranges: Ranges, *, last: bool) -> Any:
        sent = ring_filter(ranges, self._rings, self._reader.info, last=last)
        # One batch as a rule: the server sends no more than 16 MB at once.
        return self._reader.find(sent, self._rings.hint, batch_size=10 * RING_POINTS)

    def _new(self, ranges: Ranges, *, last: bool) -> Steps[tuple[list[Any], Floats]]:
        """The documents in ranges that were not read before, and their distances; of those that the query asks for."""
        info = self._reader.info
        new = ranges.without(self._known)
        again = self._rings.max_ranges is not None and len(new) > self._rings.max_ranges
        asked = ranges if again else new
        documents: list[Any] = []
        if len(asked):
            documents = yield from call(self._cursor(asked, last=last).to_list)
        if again:  # a few more documents, that there be no more ranges than the caller wants
            cells = strings_to_cells([document[info.gh] for document in documents])
            documents = list(compress(documents, (~self._known.contains(cells)).tolist()))
        self._known = ranges.joined(self._known) if len(self._known) else ranges
        self._read += len(documents)
        if not documents:
            return documents, _NONE
        distances = measured(documents, self._rings, info.location)
        keep = yield from self._kept(documents, distances)
        return (documents, distances) if keep.all() else (list(compress(documents, keep)), distances[keep])

    def _kept(self, documents: list[Any], distances: Floats) -> Steps[NDArray[np.bool_]]:
        """Which documents the query asks for; the server is asked of those at a border."""
        rings = self._rings
        low, high, at_end = distances >= rings.min_m, distances <= rings.max_m, np.zeros(len(distances), bool)
        if rings.min_m:
            at_end |= np.abs(distances - rings.min_m) <= ERROR_M
            low |= at_end
        if math.isfinite(rings.max_m):
            at_max = np.abs(distances - rings.max_m) <= ERROR_M
            high, at_end = high | at_max, at_end | at_max
        keep: NDArray[np.bool_] = low & high
        if rings.regions and len(documents):
            lng, lat = places(documents, self._reader.info.location)
            for region in rings.regions:
                status = settle_closely(region, lng, lat)
                keep &= status != OUT
                yield from self._ask(documents, keep, status == UNSURE, rings.region_tests, rings.hint)
        yield from self._ask(documents, keep, at_end, rings.end_tests, None)
        return keep

    def _ask(
        self,
        documents: list[Any],
        keep: NDArray[np.bool_],
        unsure: NDArray[np.bool_],
        tests: Mapping[str, Any],
        hint: str | None,
    ) -> Steps[None]:
        """Let the server decide of the documents still in question."""
        asked = np.flatnonzero(keep & unsure)
        if asked.size:
            part = [documents[at] for at in asked.tolist()]
            keep[asked] = yield from self._reader.confirmed(part, tests, hint)

    def _widen(self, surely: float) -> None:
        """The next ring: as wide as the rest should need, by what is known, or by the histogram."""
        rings, info = self._rings, self._reader.info
        histogram = info.histogram
        assert histogram is not None
        missing = rings.needed - self._found
        if 0 < missing <= len(self._held):
            # Whatever else there is, the farthest of those wanted is no farther than this.
            farthest = float(np.partition(self._held_m, missing - 1)[missing - 1])
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
        wider = surely * _WIDER if rings.needed else surely * 1.01
        self._reach = min(max(reach, wider, surely + 1.0), rings.max_m, HALF_EARTH_M)

    @property
    def _share(self) -> float:
        """The share of the points in the ranges that were documents to consider: other conditions thin them out."""
        histogram = self._reader.info.histogram
        assert histogram is not None
        predicted = self._known.held(histogram)
        return min((self._read + 0.5) / (predicted + 1.0), 1.0)

    def _learn(self, distances: Floats) -> None:
        """Remember what the next query of this kind had better know; `distances` are those of the last ring."""
        rings, info = self._rings, self._reader.info
        if rings.thinned_by:
            info.experience.learn_thinning(rings.thinned_by, self._share)
        elif 0 < rings.needed <= self._found and not rings.min_m and not rings.regions:
            expected = enough(rings.needed)
            if self._rounds > 1 or self._read > _FAR_MORE * expected:
                assert info.histogram is not None
                last = rings.needed - (self._found - len(distances)) - 1
                radius = float(np.partition(distances, last)[last]) + _MARGIN_M
                learn_radius(rings.lng, rings.lat, expected, info.histogram, radius)

    def close(self) -> Steps[None]:
        """Nothing is open between rings."""
        self._done = True
        return
        yield


def measured(documents: list[Any], rings: Rings, location: str) -> Floats:
    """The distance of each document from the place."""
    return distances_m(rings.lng, rings.lat, *places(documents, location))
