"""The worst single query: the lowest ratio of wall times, measured again until it means something.

The lowest of 195 ratios of medians of three is mostly noise. So the candidates of a comparison, its lowest ratios, are
asked again, the two variants in turn, many times over; only that second measurement is reported. Every answer is
compared there too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.frame import Comparison, Query, Variant

CANDIDATES, REPEATS, MOST_REPEATS = 12, 15, 200
# For one candidate: medians of sixty times two milliseconds still differ by a tenth from run to run.
LEAST_S = 0.75
MOST_S = 3.0  # for one candidate: what takes long is measured well by fewer repeats
LONG_S = 1.0  # and what takes this long by those it had


@dataclass(frozen=True)
class Measured:
    """One query, by medians of repeats in turn."""

    kind: str
    query: str
    plain_ms: float
    ms: float
    repeats: int
    first_ratio: float
    equal: bool = True  # whether the answers were, every time

    @property
    def ratio_wall(self) -> float:
        """How many times faster than plain."""
        return self.plain_ms / max(self.ms, 1e-6)

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return {
            "kind": self.kind,
            "query": self.query,
            "ratio_wall": round(self.ratio_wall, 3),
            "plain_ms": round(self.plain_ms, 3),
            "ms": round(self.ms, 3),
            "repeats": self.repeats,
            "first_ratio": round(self.first_ratio, 3),
        }


def measure_worst(
    kind: str,
    comparison: Comparison,
    queries: Sequence[Query],
    plain: Variant,
    other: Variant,
    *,
    name: Callable[[Query], str] = str,
    fresh: Callable[[Query, int], Query] | None = None,
    candidates: int | None = None,
    repeats: int | None = None,
) -> list[Measured]:
    """The candidates measured again, the lowest ratio first."""
    ratios = comparison.query_ratios_wall(other.name)
    known = comparison.query_walls(plain.name), comparison.query_walls(other.name)
    chosen = sorted(range(len(queries)), key=ratios.__getitem__)[: candidates or CANDIDATES]
    found = []
    for number in chosen:
        label, first = name(queries[number]), ratios[number]
        if known[0][number] + known[1][number] > LONG_S:
            plain_ms, ms = (1e3 * walls[number] for walls in known)
            found.append(
                Measured(kind, label, plain_ms, ms, len(comparison.timings[other.name].wall_s), first)
            )
            continue
        walls: dict[str, list[float]] = {plain.name: [], other.name: []}
        started, equal = time.perf_counter(), True
        for run in range(repeats or MOST_REPEATS):
            # Runs that the comparison had are not fresh any more.
            query = queries[number] if fresh is None else fresh(queries[number], 1000 + run)
            answers = []
            for variant in (plain, other) if run % 2 == 0 else (other, plain):
                before = time.perf_counter()
                answer = variant.ask(query)
                walls[variant.name].append(time.perf_counter() - before)
                answers.append(variant.canonical(answer))
            equal = equal and answers[0] == answers[1]
            elapsed = time.perf_counter() - started
            if (run >= 2 and elapsed > MOST_S) or (run + 1 >= REPEATS and elapsed > LEAST_S):
                break
        medians = {which: 1e3 * statistics.median(times) for which, times in walls.items()}
        asked = len(walls[other.name])
        found.append(Measured(kind, label, medians[plain.name], medians[other.name], asked, first, equal))
    return sorted(found, key=lambda one: one.ratio_wall)


def worst_keys(measured: Sequence[Measured], shown: int = 5) -> dict[str, Any]:
    """``worst`` (the lowest ratio) and ``worst_queries`` (the lowest few) for a result."""
    lowest = sorted(measured, key=lambda one: one.ratio_wall)[:shown]
    return {
        "worst": round(lowest[0].ratio_wall, 3) if lowest else None,
        "worst_queries": [one.to_dict() for one in lowest],
    }


def worst_lines(part: dict[str, Any]) -> list[str]:
    """The worst queries for people."""
    return [
        f"  {one['ratio_wall']:6.2f}x  {one['plain_ms']:9.2f} ms plain, {one['ms']:9.2f} ms rewritten  {one['kind']} "
        f"{one['query']}"
        for one in part.get("worst_queries", [])
    ]
