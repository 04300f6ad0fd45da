"""What running queries taught: where the histogram is wrong, and what share of the points meets other conditions.

A histogram grows old. When a query finds many times the candidates that were predicted, or a fraction of them, the
next query of that place is planned with what was seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spatialnosql.cover import Cover
from spatialnosql.geohash import BITS

T = TypeVar("T")

PLACE_BITS = 20  # predictions are corrected by cells of this size, 39 km wide
TOLERATED = 2.0  # predictions wrong by less are as good as any
_FEW = 50.0  # below so many points nothing is learnt: chance rules there, and little is at stake
_FEWEST_POINTS = 20.0  # of fewer it cannot be told what share of them meets a condition
_MOST_KEPT = 4096


class Experience:
    """What was seen where, and of which conditions. Shared by threads; forgets what was not used for long."""

    def __init__(self) -> None:
        self._factors: OrderedDict[Hashable, float] = OrderedDict()
        self._shares: OrderedDict[Hashable, Share] = OrderedDict()
        self._lock = threading.Lock()
        self.version = 0
        """Rises when what plans were made by proves badly wrong: those made before are not to be used again."""

    def factor(self, cover: Cover) -> float:
        """By how much to multiply what the histogram says of a cover."""
        return self._found(self._factors, _place(cover), 1.0) if self._factors else 1.0

    def learn(self, cover: Cover, predicted: float, seen: float) -> None:
        """Take note of the points seen in all of a cover; `predicted` was corrected by the factor known then."""
        if max(predicted, seen) < _FEW:
            return
        ratio = (seen + 1.0) / (predicted + 1.0)
        if 1 / TOLERATED <= ratio <= TOLERATED:
            return
        self._put(self._factors, _place(cover), self.factor(cover) * ratio)
        self.version += 1

    def share(self, names: Sequence[Hashable]) -> float | None:
        """The share of the points seen so far that met some conditions; None if too few were seen.

        `names` are those of the conditions, the most telling one first: where that says nothing, the next does.
        """
        for name in names:
            known = self._found(self._shares, name, _NOTHING_SEEN)
            if known.points >= _FEWEST_POINTS:
                return known.ratio
        return None

    def most_found(self, names: Sequence[Hashable]) -> int:
        """The most documents that met some conditions in one query: there are no fewer of them."""
        return self._found(self._shares, names[0], _NOTHING_SEEN).most_found if names else 0

    def learn_share(self, names: Sequence[Hashable], found: int, points: float) -> None:
        """Take note that of so many points, as predicted, so many documents met the conditions of these names.

        What was seen is added up, so that a large area says more than a small one, in which such documents may be
        rarer or more common than elsewhere.
        """
        for name in names:
            before = self._found(self._shares, name, _NOTHING_SEEN)
            after = before.and_seen(found, max(points, float(found)))
            self._put(self._shares, name, after)
            news = before.points >= _FEWEST_POINTS and not (
                1 / TOLERATED <= after.ratio / before.ratio <= TOLERATED
            )
            if news and name == names[0]:
                self.version += 1

    def _found(self, kept: OrderedDict[Hashable, T], key: Hashable, otherwise: T) -> T:
        if key not in kept:
            return otherwise
        with self._lock:
            if key not in kept:
                return otherwise  # another thread has let it go
            kept.move_to_end(key)
            return kept[key]

    def _put(self, kept: OrderedDict[Hashable, T], key: Hashable, value: T) -> None:
        with self._lock:
            kept[key] = value
            kept.move_to_end(key)
            while len(kept) > _MOST_KEPT:
                kept.popitem(last=False)


@dataclass(frozen=True)
class Share:
    """Documents that met some conditions, of so many points."""

    found: int = 0
    points: float = 0.0
    most_found: int = 0  # in one query

    def and_seen(self, found: int, points: float) -> Share:
        """With those of another query."""
        return Share(self.found + found, self.points + points, max(self.most_found, found))

    @property
    def ratio(self) -> float:
        """Their share, 0 to 1; never 0, for none of many points may be one of more."""
        return min((self.found + 0.5) / (self.points + 0.5), 1.0)


_NOTHING_SEEN = Share()


def _place(cover: Cover) -> int:
    return int(cover.outer.lo[0]) >> (BITS - PLACE_BITS) if len(cover.outer) else -1
