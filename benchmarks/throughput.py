"""Queries a second that a cluster serves: eight client processes count the points of random polygons.

Every process has its own client, draws polygons by its own seed, and asks as fast as it is answered; plain and
rewritten take turns, in rounds of some seconds. A process is started, connected and has asked one query before the
clock runs, as a server's workers are. Each count is compared with what plain said beforehand. The polygons come again
and again, in the same bytes, as an application's areas do: so plans are remembered.

``ratio_qps`` is rewritten / plain. ``wall_s``, ``server_cpu_s``, ``client_cpu_s``, ``keys``, ``docs`` and ``shards``
are a query's share; of the last three, one query of each polygon was explained.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from pymongo import MongoClient
from pymongo.collection import Collection

from benchmarks.data import load_points, load_polygons
from benchmarks.deployment import Bench, adopted_collection, open_deployment, plain_collection
from benchmarks.frame import aligned, cell_text, ratios
from benchmarks.options import Options
from benchmarks.sent import Recording, recording
from spatialnosql import SpatialCollection
from spatialnosql.examined import Examined

ROWS, POLYGONS = 200_000, 60
PROCESSES = 8
ROUND_S, QUICK_ROUND_S = 8.0, 1.5  # the second with --limit
VARIANTS = ("plain", "rewritten")
START_S = 60.0  # for a process to be ready


@dataclass(frozen=True)
class Work:
    """What one process is to do."""

    uri: str
    database: str
    collection: str
    spatial: bool
    seed: int
    seconds: float
    geometries: list[dict[str, Any]]
    expected: list[int]


@dataclass
class Round:
    """What all processes did in one round."""

    qps: float
    latencies_s: list[float]
    server_cpu_s: float | None
    client_cpu_s: float
    wrong: int


@dataclass
class Rounds:
    """All rounds of one variant."""

    rounds: list[Round] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Medians of the rounds; latencies of all of them together."""
        latencies = np.array([one for ran in self.rounds for one in ran.latencies_s])
        server = [ran.server_cpu_s for ran in self.rounds if ran.server_cpu_s is not None]
        p50, p95, p99 = (1e3 * np.percentile(latencies, [50, 95, 99])).tolist()
        queries = len(latencies)
        qps = statistics.median(ran.qps for ran in self.rounds)
        return {
            "qps": round(qps, 2),
            "qps_rounds": [round(ran.qps, 2) for ran in self.rounds],
            "p50_ms": round(p50, 3),
            "p95_ms": round(p95, 3),
            "p99_ms": round(p99, 3),
            # A query's share: the variants did not answer equally many.
            "wall_s": round(1 / qps, 6) if qps else None,
            "server_cpu_s": round(sum(server) / queries, 6) if server else None,
            "client_cpu_s": round(sum(ran.client_cpu_s for ran in self.rounds) / queries, 6),
            "results": queries,
        }


def run(options: Options) -> dict[str, Any]:
    points, areas = load_points(options, ROWS), load_polygons(options, POLYGONS)
    geometries = [area.geometry for area in areas]
    seconds = ROUND_S if options.limit is None else QUICK_ROUND_S
    with open_deployment(options) as bench, recording(bench.uri) as recorded:
        collections = {
            "plain": plain_collection(bench, "plain", points),
            "rewritten": adopted_collection(bench, "geohash", points),
        }
        expected = [collections["plain"].count_documents(_within(geometry)) for geometry in geometries]
        done = {name: Rounds() for name in VARIANTS}
        for number in range(options.repeats):
            for name in VARIANTS if number % 2 == 0 else reversed(VARIANTS):
                works = [
                    Work(
                        bench.uri,
                        bench.database.name,
                        collections[name].name,
                        name == "rewritten",
                        options.seed * 1_000_003 + number * PROCESSES + process,
                        seconds,
                        geometries,
                        expected,
                    )
                    for process in range(PROCESSES)
                ]
                done[name].rounds.append(one_round(works, bench))
                print(f"{name}: {done[name].rounds[-1].qps:.1f} queries/s", file=sys.stderr, flush=True)
        seen = {name: _examined(name, collections[name], geometries, recorded) for name in VARIANTS}
    variants = {name: {**rounds.to_dict(), **seen[name]} for name, rounds in done.items()}
    base = variants["plain"]
    wrong = {name: sum(ran.wrong for ran in rounds.rounds) for name, rounds in done.items()}
    return {
        "benchmark": "throughput",
        "n_points": len(points),
        "n_shards": bench.n_shards,
        "load_order": options.load_order,
        "source": points.source,
        "n_processes": PROCESSES,
        "n_polygons": len(areas),
        "variants": variants,
        **ratios(variants, "plain"),
        "ratio_qps": {name: _ratio(values["qps"], base["qps"]) for name, values in variants.items()},
        "ratio_p50": {name: _ratio(base["p50_ms"], values["p50_ms"]) for name, values in variants.items()},
        "ratio_p95": {name: _ratio(base["p95_ms"], values["p95_ms"]) for name, values in variants.items()},
        "wrong": wrong,
        "equal": not any(wrong.values()),
    }


def _examined(
    name: str, collection: Collection[dict[str, Any]], geometries: list[dict[str, Any]], recorded: Recording
) -> dict[str, float]:
    """What a count makes the servers look at, in the mean over all polygons."""
    twin: Any = recorded.twin(collection)
    asked = SpatialCollection(twin) if name == "rewritten" else twin
    whole = Examined.total(
        recorded.examine(collection, partial(asked.count_documents, _within(geometry)))
        for geometry in geometries
    )
    return {key: round(getattr(whole, key) / len(geometries), 2) for key in ("keys", "docs", "shards")}


def _within(geometry: dict[str, Any]) -> dict[str, Any]:
    return {"loc": {"$geoWithin": {"$geometry": geometry}}}


def _ratio(over: float, under: float) -> float | None:
    return round(over / under, 3) if under else None


def one_round(works: Sequence[Work], bench: Bench) -> Round:
    """Start the processes, let them go at once, and gather what they did."""
    # Not forked: a client must not be taken into another process.
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(len(works) + 1), context.Barrier(len(works) + 1)
    results: Any = context.Queue()
    processes = [
        context.Process(target=_client, args=(work, ready, go, results), daemon=True) for work in works
    ]
    for process in processes:
        process.start()
    try:
        ready.wait(START_S)
        server = bench.cpu.seconds()
        go.wait(START_S)
        # By when all have stopped; the answers are gathered first, or a full queue would block its writers.
        answers = [results.get(timeout=START_S + works[0].seconds) for _ in works]
        ended = bench.cpu.seconds()
    finally:
        for process in processes:
            process.join(START_S)
    latencies = [one for answer in answers for one in answer["latencies_s"]]
    return Round(
        # Each process's own pace: the last to stop is not alone in the count.
        sum(len(answer["latencies_s"]) / answer["wall_s"] for answer in answers),
        latencies,
        None if server is None or ended is None else ended - server,
        sum(answer["cpu_s"] for answer in answers),
        sum(answer["wrong"] for answer in answers),
    )


def _client(work: Work, ready: Any, go: Any, results: Any) -> None:
    """One process: ask random polygons until the time is over."""
    rng = np.random.default_rng(work.seed)
    with MongoClient[dict[str, Any]](work.uri) as client:
        collection: Any = client[work.database][work.collection]
        if work.spatial:
            collection = SpatialCollection(collection)

        def ask() -> bool:
            number = int(rng.integers(len(work.geometries)))
            found = collection.count_documents(_within(work.geometries[number]))
            return bool(found == work.expected[number])

        wrong = int(not ask())
        ready.wait(START_S)
        go.wait(START_S)
        latencies: list[float] = []
        cpu, started = time.process_time(), time.perf_counter()
        while time.perf_counter() - started < work.seconds:
            before = time.perf_counter()
            wrong += not ask()
            latencies.append(time.perf_counter() - before)
        wall = time.perf_counter() - started
        results.put(
            {"latencies_s": latencies, "wall_s": wall, "cpu_s": time.process_time() - cpu, "wrong": wrong}
        )


def table(result: dict[str, Any]) -> str:
    rows = [
        [
            "variant",
            "queries/s",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "queries",
            "server CPU ms",
            "client CPU ms",
            "ratio",
        ]
    ]
    for name, values in result["variants"].items():
        shown = [values[column] for column in ("qps", "p50_ms", "p95_ms", "p99_ms", "results")]
        each = [values[column] and 1e3 * values[column] for column in ("server_cpu_s", "client_cpu_s")]
        cells = [cell_text(value) for value in (*shown, *each)]
        rows.append([name, *cells, cell_text(result["ratio_qps"][name], "x")])
    lines = [
        f"throughput: {result['n_points']:,} points, {result['n_shards']} shards, {result['n_processes']} client "
        f"processes counting the points of {result['n_polygons']} polygons at random",
        *aligned(rows),
        "every variant gave the same answers" if result["equal"] else "THE ANSWERS DIFFER",
    ]
    return "\n".join([*lines, ""])
