"""SWARM's statistics of a partition (section 4.2): per row and per column, five kept and three that collect.

Of row (or column) i, cumulative from the first: `n` points, `q` queries that begin in it or before, `r` points and
queries received in the last round; and not cumulative: `span_q` queries that reach into it from the one before,
`pre_span_q` those of them received in the last round. A point changes one number of its row and one of its column, a
query one for each it reaches into; once a round `folded` adds the collected to the kept (algorithm 2).

One more is kept, which the paper does not have: `w`, the work that the points took, cumulative and fading as `n` does.

So for a cut after row i, points, queries and receipts of both sides are there without counting anything:
``q(0..i) = q[i]`` and ``q(i+1..) = q[-1] - q[i] + span_q[i + 1]`` (section 4.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.balancing.extents import Extent, Spans

DECAY = 0.5
"""What is left of the number of points each round: old ones must not count for ever (section 4.2.2)."""
Floats = NDArray[np.float64]
Cost = Literal["product", "work"]


class Totals(NamedTuple):
    """N, Q, R and the work of a partition, or of a part of it."""

    points: float
    queries: float
    received: float
    work: float

    def cost(self, kind: Cost) -> float:
        """By equation 5, but for R(S), which is the same for all: N x Q x R. Or the work.

        The first is cubic: halves of a partition cost a quarter of it together, and a worker with many small partitions
        seems idle. The second is additive; see docs/balancing.md for what either achieves.
        """
        return max(self.points * self.queries * self.received if kind == "product" else self.work, 0.0)


@dataclass(frozen=True, eq=False)
class Axis:
    """The statistics of the rows, or of the columns, of a partition."""

    n: Floats
    q: Floats
    r: Floats
    w: Floats
    span_q: Floats
    pre_span_q: Floats
    new_n: Floats
    new_q: Floats
    new_w: Floats
    new_span_q: Floats

    @classmethod
    def empty(cls, size: int) -> Axis:
        """Nothing seen yet."""
        return cls(*(np.zeros(size) for _ in range(10)))

    @property
    def size(self) -> int:
        """How many rows, or columns."""
        return int(self.n.size)

    @property
    def totals(self) -> Totals:
        """Those of the whole partition: in the last row, or column."""
        return Totals(*(float(kept[-1]) for kept in (self.n, self.q, self.r, self.w)))

    def with_points(
        self, places: NDArray[Any], weight: float = 1.0, work: NDArray[Any] | None = None
    ) -> Axis:
        """With points received, each standing for so many, and the work they took (1 each unless given)."""
        counts = np.bincount(places, minlength=self.size)
        works = counts if work is None else np.bincount(places, weights=work, minlength=self.size)
        return replace(self, new_n=self.new_n + weight * counts, new_w=self.new_w + weight * works)

    def with_queries(self, firsts: NDArray[Any], lasts: NDArray[Any]) -> Axis:
        """With queries received that reach from row to row, both included."""
        begins, spanning = _begins_and_spans(firsts, lasts, self.size)
        return replace(self, new_q=self.new_q + begins, new_span_q=self.new_span_q + spanning)

    def without_queries(self, firsts: NDArray[Any], lasts: NDArray[Any]) -> Axis:
        """Without queries that were received before, in this round or earlier; the paper does not speak of these."""
        begins, spanning = _begins_and_spans(firsts, lasts, self.size)
        return replace(self, q=self.q - np.cumsum(begins), span_q=self.span_q - spanning)

    def folded(self, decay: float = DECAY) -> Axis:
        """At the end of a round (algorithm 2): one pass, and the collectors are empty again."""
        nothing = np.zeros(self.size)
        points, queries = np.cumsum(self.new_n), np.cumsum(self.new_q)
        return Axis(
            self.n * decay + points,
            self.q + queries,
            points + queries,
            self.w * decay + np.cumsum(self.new_w),
            self.span_q + self.new_span_q,
            self.new_span_q,
            *([nothing] * 4),
        )

    def before(self, cut: int) -> Totals:
        """Those of the rows ``[0, cut)``."""
        return Totals(*(float(kept[cut - 1]) for kept in (self.n, self.q, self.r, self.w)))

    def after(self, cut: int) -> Totals:
        """Those of the rows ``[cut, size)``."""
        return Totals(
            float(self.n[-1] - self.n[cut - 1]),
            float(self.q[-1] - self.q[cut - 1] + self.span_q[cut]),
            float(self.r[-1] - self.r[cut - 1] + self.pre_span_q[cut]),
            float(self.w[-1] - self.w[cut - 1]),
        )

    def parted(self, cut: int) -> tuple[Axis, Axis]:
        """The rows before a cut, and those from it on, after a round was folded."""
        first = Axis(
            *(getattr(self, name)[:cut].copy() for name in ("n", "q", "r", "w", "span_q", "pre_span_q")),
            *(np.zeros(cut) for _ in range(4)),
        )
        spanning, recent = self.span_q[cut:].copy(), self.pre_span_q[cut:].copy()
        # Those that reach in from before begin here now.
        second = Axis(
            self.n[cut:] - self.n[cut - 1],
            self.q[cut:] - self.q[cut - 1] + spanning[0],
            self.r[cut:] - self.r[cut - 1] + recent[0],
            self.w[cut:] - self.w[cut - 1],
            spanning,
            recent,
            *(np.zeros(self.size - cut) for _ in range(4)),
        )
        spanning[0] = recent[0] = 0.0
        return first, second

    def scaled(self, totals: Totals) -> Axis:
        """With as many points and receipts and as much work in all as given, distributed as they were."""
        of_n, of_r, of_w = (
            now / before[-1] if before[-1] > 0 else 0.0
            for now, before in (
                (totals.points, self.n),
                (totals.received, self.r),
                (totals.work, self.w),
            )
        )
        return replace(
            self, n=self.n * of_n, r=self.r * of_r, w=self.w * of_w, pre_span_q=self.pre_span_q * of_r
        )

    def counted(self, firsts: NDArray[Any], lasts: NDArray[Any]) -> Axis:
        """With exactly these queries in place of those counted so far."""
        begins, spanning = _begins_and_spans(firsts, lasts, self.size)
        return replace(self, q=np.cumsum(begins), span_q=spanning)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of the rows and the columns of a partition."""

    rows: Axis
    columns: Axis

    @classmethod
    def empty(cls, extent: Extent) -> Statistics:
        """Of a partition that has seen nothing."""
        return cls(Axis.empty(extent.rows), Axis.empty(extent.columns))

    @property
    def totals(self) -> Totals:
        """Those of the partition."""
        return self.rows.totals

    def axis(self, upright: bool) -> Axis:
        """That of the columns if `upright`, else that of the rows."""
        return self.columns if upright else self.rows

    def with_points(
        self,
        extent: Extent,
        columns: NDArray[Any],
        rows: NDArray[Any],
        weight: float = 1.0,
        work: NDArray[Any] | None = None,
    ) -> Statistics:
        """With points received, at columns and rows of the whole grid."""
        return Statistics(
            self.rows.with_points(rows - extent.bottom, weight, work),
            self.columns.with_points(columns - extent.left, weight, work),
        )

    def with_queries(self, extent: Extent, spans: Spans) -> Statistics:
        """With queries received, all of which touch the extent."""
        own = extent.within(spans)
        return Statistics(
            self.rows.with_queries(own[:, 2], own[:, 3]), self.columns.with_queries(own[:, 0], own[:, 1])
        )

    def without_queries(self, extent: Extent, spans: Spans) -> Statistics:
        """Without queries that were received before."""
        own = extent.within(spans)
        return Statistics(
            self.rows.without_queries(own[:, 2], own[:, 3]),
            self.columns.without_queries(own[:, 0], own[:, 1]),
        )

    def folded(self, decay: float = DECAY) -> Statistics:
        """At the end of a round."""
        return Statistics(self.rows.folded(decay), self.columns.folded(decay))


def part_statistics(
    statistics: Statistics, extent: Extent, upright: bool, cut: int, spans: Spans
) -> tuple[Statistics, Statistics]:
    """The statistics of both sides of a cut; `spans` are the partition's queries, which its worker has.

    Across the cut they are exact. Along the other side points and receipts of a half are not known, so each half gets
    its share of them, distributed as in the whole; queries are counted anew. The paper does not say.
    """
    along, other = statistics.axis(upright), statistics.axis(not upright)
    sides = []
    for own, half in zip(along.parted(cut), extent.parted(upright, cut), strict=True):
        held = half.within(spans[half.touched_by(spans)])
        firsts, lasts = (held[:, 2], held[:, 3]) if upright else (held[:, 0], held[:, 1])
        across = other.scaled(own.totals).counted(firsts, lasts)
        sides.append(Statistics(across, own) if upright else Statistics(own, across))
    return sides[0], sides[1]


def join_statistics(
    first: tuple[Extent, Statistics], second: tuple[Extent, Statistics], spans: Spans
) -> Statistics:
    """The statistics of two partitions that make one rectangle; `spans` are the queries of both.

    Queries are counted anew. One received last round that touches both counts in `r` twice, for one round.
    """
    if (second[0].left, second[0].bottom) < (first[0].left, first[0].bottom):
        first, second = second, first
    upright = first[0].bottom == second[0].bottom and first[0].top == second[0].top
    whole = first[0].joined(second[0])
    assert whole is not None
    near, far = first[1].axis(upright), second[1].axis(upright)
    nothing = np.zeros(near.size + far.size)
    along = Axis(
        np.concatenate([near.n, near.n[-1] + far.n]),
        nothing,
        np.concatenate([near.r, near.r[-1] + far.r]),
        np.concatenate([near.w, near.w[-1] + far.w]),
        nothing,
        np.concatenate([near.pre_span_q, far.pre_span_q]),
        *(np.zeros(nothing.size) for _ in range(4)),
    )
    ours, theirs = first[1].axis(not upright), second[1].axis(not upright)
    across = replace(
        ours,
        n=ours.n + theirs.n,
        r=ours.r + theirs.r,
        w=ours.w + theirs.w,
        pre_span_q=ours.pre_span_q + theirs.pre_span_q,
    )
    held = whole.within(spans)
    of_columns, of_rows = (held[:, 0], held[:, 1]), (held[:, 2], held[:, 3])
    if upright:
        return Statistics(across.counted(*of_rows), along.counted(*of_columns))
    return Statistics(along.counted(*of_rows), across.counted(*of_columns))


def _begins_and_spans(firsts: NDArray[Any], lasts: NDArray[Any], size: int) -> tuple[Floats, Floats]:
    """How many queries begin in each row, and how many reach into it from the one before."""
    begins = np.bincount(firsts, minlength=size).astype(np.float64)
    ends = np.bincount(lasts, minlength=size).astype(np.float64)
    spanning = np.zeros(size)
    spanning[1:] = np.cumsum(begins - ends)[:-1]
    return begins, spanning
