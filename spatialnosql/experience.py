"""What running queries taught: where the histogram is wrong, and how much other conditions thin out the points.

A histogram grows old. When a query finds many times the candidates that were predicted, or a fraction of them, the
next query of that place is planned with what was seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from spatialnosql.cover import Cover
from spatialnosql.geohash import BITS

PLACE_BITS = 20  # predictions are corrected by cells of this size, 39 km wide
TOLERATED = 2.0  # predictions wrong by less are as good as any
_FEW = 50.0  # below so many points nothing is learnt: chance rules there, and little is at stake
_MOST_KEPT = 4096


class Experience:
    """Factors by which predictions were wrong. Shared by threads; forgets what was not used for long."""

    def __init__(self) -> None:
        self._factors: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()
        self.version = 0
        """Rises when a prediction proves badly wrong: plans made before are not to be used again."""

    def factor(self, cover: Cover) -> float:
        """By how much to multiply what the histogram says of a cover."""
        return self._factors.get(_place(cover), 1.0) if self._factors else 1.0

    def learn(self, cover: Cover, predicted: float, seen: float) -> None:
        """Take note of the points seen in all of a cover; `predicted` was corrected by the factor known then."""
        if max(predicted, seen) < _FEW:
            return
        ratio = (seen + 1.0) / (predicted + 1.0)
        if 1 / TOLERATED <= ratio <= TOLERATED:
            return
        self._put(_place(cover), self.factor(cover) * ratio)
        self.version += 1

    def thinning(self, conditions: Hashable) -> float:
        """The share of points that met other conditions of a near query the last time; 1 if never seen."""
        return self._factors.get(conditions, 1.0)

    def knows(self, conditions: Hashable) -> bool:
        """Whether it was ever seen what share of points meets some conditions."""
        return conditions in self._factors

    def learn_share(self, conditions: Hashable, share: float) -> None:
        """The same as `learn_thinning` by a query whose plan goes by it: if that is news, plans are void."""
        known = self._factors.get(conditions)
        if known is None or not 1 / TOLERATED <= share / known <= TOLERATED:
            self._put(conditions, share)
            self.version += 1

    def learn_thinning(self, conditions: Hashable, share: float) -> None:
        """Take note of the share of points that met the conditions."""
        self._put(conditions, share)

    def _put(self, key: Hashable, factor: float) -> None:
        with self._lock:
            self._factors[key] = factor
            self._factors.move_to_end(key)
            while len(self._factors) > _MOST_KEPT:
                self._factors.popitem(last=False)


def _place(cover: Cover) -> int:
    return int(cover.outer.lo[0]) >> (BITS - PLACE_BITS) if len(cover.outer) else -1
