"""The frame of a benchmark: variants asked the same queries in turn, answers compared, medians reported.

A benchmark is a module that builds its collections, describes each variant by functions and lets `compare`
do the rest:

    def run(options):
        points, polygons = load_points(options, 200_000), load_polygons(options)
        with open_deployment(options) as deployment:
            ...
            comparison = compare(polygons, [Variant("plain", ask), ...], cpu=deployment.cpu, ...)
        return {"benchmark": "name", "n_points": ..., "n_shards": ..., **comparison.result()}
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cpu import ServerCpu, client_cpu_s
from spatialnosql.examined import Examined
from spatialnosql.progress import Progress

Query = Any
Answer = Any


def size_of(answer: Answer) -> int:
    """How many results an answer is: a count is itself."""
    return answer if isinstance(answer, int) else len(answer)


@dataclass(frozen=True)
class Variant:
    """One way to answer the queries. Only ``ask`` is timed."""

    name: str
    ask: Callable[[Query], Answer]
    examine: Callable[[Query], Examined] | None = None
    """What the query makes the server look at (`examined.examine_find` and its like)."""
    canonical: Callable[[Answer], Any] = lambda answer: answer
    """What of an answer must be equal among variants, e.g. a sorted list."""
    size: Callable[[Answer], int] = size_of


@dataclass
class Timing:
    """What one variant took, run by run."""

    wall_s: list[float] = field(default_factory=list)
    server_cpu_s: list[float | None] = field(default_factory=list)
    client_cpu_s: list[float] = field(default_factory=list)
    query_wall_s: list[list[float]] = field(default_factory=list)
    results: int = 0
    examined: Examined | None = None

    def add_run(self, turns: Timing) -> None:
        """One run more, of the turns that it was made of."""
        server = [seconds for seconds in turns.server_cpu_s if seconds is not None]
        self.wall_s.append(sum(turns.wall_s))
        self.client_cpu_s.append(sum(turns.client_cpu_s))
        self.server_cpu_s.append(sum(server) if len(server) == len(turns.server_cpu_s) else None)
        self.query_wall_s.append([wall for turn in turns.query_wall_s for wall in turn])
        self.results = turns.results


@dataclass
class Comparison:
    """The outcome for one set of queries."""

    reference: str
    n_queries: int
    timings: dict[str, Timing]
    unequal: list[tuple[str, int]]
    """Variant and number of each query that was answered unlike the reference."""

    def result(self) -> dict[str, Any]:
        """The common keys of the contract: ``variants``, the ratios and ``equal``."""
        variants = {name: summary(timing) for name, timing in self.timings.items()}
        return {
            "n_queries": self.n_queries,
            "variants": variants,
            **ratios(variants, self.reference),
            "equal": not self.unequal,
        }

    def query_walls(self, name: str) -> list[float]:
        """The median wall times of a variant, query by query."""
        return _medians(self.timings[name].query_wall_s)

    def query_ratios_wall(self, name: str) -> list[float]:
        """Reference / variant of the median wall times, query by query."""
        plain, other = self.query_walls(self.reference), self.query_walls(name)
        return [a / max(b, 1e-9) for a, b in zip(plain, other, strict=True)]

    def worst_query_ratio_wall(self, name: str) -> float | None:
        """The lowest of (reference / variant) of the median wall times of any single query."""
        return min(self.query_ratios_wall(name), default=None)


def ratios(variants: dict[str, dict[str, Any]], reference: str) -> dict[str, dict[str, float | None]]:
    """Reference / variant of server CPU (``ratio``), of all CPU (``ratio_total``) and of wall time."""
    kinds = {
        "ratio": ("server_cpu_s",),
        "ratio_total": ("server_cpu_s", "client_cpu_s"),
        "ratio_wall": ("wall_s",),
    }
    return {kind: _ratios(variants, reference, keys) for kind, keys in kinds.items()}


def _ratios(
    variants: dict[str, dict[str, Any]], reference: str, keys: Sequence[str]
) -> dict[str, float | None]:
    base = _sum(variants[reference], keys)
    found: dict[str, float | None] = {}
    for name, values in variants.items():
        cost = _sum(values, keys)
        # Below a clock tick nothing was measured, so there is nothing to divide by.
        found[name] = None if base is None or not cost else round(base / cost, 3)
    return found


def compare(
    queries: Iterable[Query],
    variants: Sequence[Variant],
    *,
    cpu: ServerCpu,
    repeats: int = 3,
    reference: str = "plain",
    label: str = "queries",
    fresh: Callable[[Query, int], Query] | None = None,
    block: int | None = None,
) -> Comparison:
    """Ask every variant every query, ``repeats`` times over, the variants' order reversed each time.

    The variants take turns after every ``block`` queries, or after all of them: short turns are fairer where what one
    variant reads is in the way of what another has in its caches.

    Every answer of every run is compared with the reference's first, outside the timed part. ``fresh`` gives
    for a query and the number of a run one that asks as much but was never asked, so that no cache knows it; the
    answers of each run are then compared with the reference's of that run.
    """
    asked = list(queries)
    by_name = {variant.name: variant for variant in variants}
    expected: list[Any] | None = None
    unequal: dict[tuple[str, int], None] = {}
    timings = {name: Timing() for name in by_name}
    # The reference first: its answers are what the others are compared with.
    order = sorted(by_name, key=lambda name: name != reference)
    with Progress(label, len(asked) * len(order) * repeats, unit="queries") as progress:
        for run in range(repeats):
            queries_now = asked if fresh is None else [fresh(query, run) for query in asked]
            canonical: dict[str, list[Any]] = {name: [] for name in order}
            spent = {name: Timing() for name in order}
            size = block or max(1, len(asked))
            for turn, start in enumerate(range(0, len(asked), size)):
                for name in order if (run + turn) % 2 == 0 else reversed(order):
                    some = queries_now[start : start + size]
                    answers = timed(by_name[name], some, spent[name], cpu, progress)
                    canonical[name] += [by_name[name].canonical(answer) for answer in answers]
            for name in order:
                timings[name].add_run(spent[name])
            expected = canonical[reference] if expected is None or fresh is not None else expected
            for name, found in canonical.items():
                pairs = enumerate(zip(found, expected, strict=True))
                unequal.update({(name, i): None for i, (ours, theirs) in pairs if ours != theirs})
    for name, variant in by_name.items():
        if variant.examine is not None:
            timings[name].examined = Examined.total(variant.examine(query) for query in asked)
    return Comparison(reference, len(asked), timings, list(unequal))


def timed(
    variant: Variant,
    queries: Sequence[Query],
    timing: Timing,
    cpu: ServerCpu,
    progress: Progress | None = None,
) -> list[Answer]:
    """The answers of one turn; what it took is added to the timing."""
    answers, walls = [], []
    server, client, started = cpu.seconds(), client_cpu_s(), time.perf_counter()
    for query in queries:
        before = time.perf_counter()
        answers.append(variant.ask(query))
        walls.append(time.perf_counter() - before)
        if progress is not None:
            progress.advance()
    wall, client_used, server_now = time.perf_counter() - started, client_cpu_s() - client, cpu.seconds()
    timing.wall_s.append(wall)
    timing.client_cpu_s.append(client_used)
    timing.server_cpu_s.append(None if server is None or server_now is None else server_now - server)
    timing.query_wall_s.append(walls)
    timing.results += sum(variant.size(answer) for answer in answers)
    return answers


def summary(timing: Timing) -> dict[str, Any]:
    """The medians of what a variant took, by the names of the contract."""
    server = [seconds for seconds in timing.server_cpu_s if seconds is not None]
    examined = timing.examined
    return {
        "wall_s": round(statistics.median(timing.wall_s), 4),
        "server_cpu_s": round(statistics.median(server), 4) if server else None,
        "client_cpu_s": round(statistics.median(timing.client_cpu_s), 4),
        "keys": examined.keys if examined else None,
        "docs": examined.docs if examined else None,
        "shards": round(examined.shards / examined.queries, 2) if examined and examined.queries else None,
        "results": timing.results,
    }


def _sum(values: dict[str, Any], keys: Sequence[str]) -> float | None:
    found = [values[key] for key in keys]
    return None if None in found else float(sum(found))


def _medians(runs: list[list[float]]) -> list[float]:
    return [statistics.median(walls) for walls in zip(*runs, strict=True)]


# --- the table for people ---------------------------------------------------------------------------------

COLUMNS = ("wall_s", "server_cpu_s", "client_cpu_s", "keys", "docs", "shards", "results")


def table(result: dict[str, Any]) -> str:
    """The result as text: one line a variant, for every kind of query."""
    lines = [f"{result['benchmark']}: {result.get('n_points', 0):,} points, {result.get('n_shards')} shards"]
    for kind, part in result.get("queries", {"": result}).items():
        title = f"{kind + ': ' if kind else ''}{part.get('n_queries', '?')} queries, sums over all of them"
        rows = [["variant", *COLUMNS, "ratio", "total", "wall"]]
        for name, values in part["variants"].items():
            ratios = [part.get(key, {}).get(name) for key in ("ratio", "ratio_total", "ratio_wall")]
            cells = [cell_text(values.get(column)) for column in COLUMNS]
            rows.append([name, *cells, *(cell_text(ratio, suffix="x") for ratio in ratios)])
        lines += ["", title, *aligned(rows)]
        lines.append("every variant gave the same answers" if part["equal"] else "THE ANSWERS DIFFER")
        if all(values.get("server_cpu_s") is None for values in part["variants"].values()):
            lines.append("server CPU is unknown: the processes of a given --uri cannot be read")
    return "\n".join([*lines, ""])


def cell_text(value: Any, suffix: str = "") -> str:
    if value is None:
        return "-"
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.2f}") + suffix


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
