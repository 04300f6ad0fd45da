"""Who holds which subscriptions: all planners of partitions on PS2Stream's Q1, Q2, Q3, and S3-TM's on topics.

Without ``--data`` on synthetic tweets; a Parquet file gives its own texts for Q1 to Q3 (the topics need tweets). A
part of the objects makes the plan, others are matched. What is measured is measured on one core, partition after
partition; what so many workers would do is computed from it: see `spatialnosql.subscriptions.partitioning.simulator`.

- ``queries.Q1`` to ``Q3``: every planner with 8 workers and 4 dispatchers
- ``scaling``: kd-tree, metric and hybrid on Q3 by number of workers (PS2Stream's figure 11)
- ``topics``, ``tweets``: S3-TM's planners by number of workers, of topic-based subscriptions (its figures 9 to 12) and
  of tweet-based ones (5 to 8). Its own default is ``anycast``: words hashed,
  subscriptions at the home of any of their words; ``hash`` files them under the rarest, as all others but SALB do

Plans take turns ``--repeats`` times, and the least time of every batch counts. ``--only Q3,topics`` runs these parts.
Every plan's matches of some of the objects are compared with those of one index of all. ``--out DIR`` draws the curves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options, chosen_parts
from benchmarks.partitioning_data import (
    numbered_from,
    objects_of,
    read_texts,
    topic_subscriptions,
    tweet_subscriptions,
    tweets,
)
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.load import report
from spatialnosql.subscriptions.partitioning.partitioned_index import PartitionedIndex
from spatialnosql.subscriptions.partitioning.planners import make_plan
from spatialnosql.subscriptions.partitioning.routes import merge_matches, take_objects
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.partitioning.simulator import measure_by_turns, simulate
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.workloads import KINDS, Corpus, Kind, subscriptions

VARIANTS = (
    "hash", "frequency", "hypergraph", "metric", "grid", "kdtree", "rtree", "hybrid", "gfcl", "gnfcl", "salb",
)  # fmt: skip
BASELINES = ("metric", "kdtree")
TOPIC_VARIANTS = ("hash", "anycast", "gc", "gfc", "gfcl", "gnfcl", "salb")
WORKERS = 8
PARTS = (*KINDS, "scaling", "topics", "tweets")
SCALES = (8, 16, 32, 64)
TOPIC_SCALES = (8, 16, 32, 64, 128, 256)
SUBSCRIPTIONS, TRAINING, OBJECTS = 1_000_000, 100_000, 400_000
TOPIC_SUBSCRIPTIONS = 100_000
OF_A_FILE = 50_000
"""The `--limit` of a file: its texts may have few words, so that an object meets a good part of all subscriptions."""
COMPARED = 2_000
"""So many objects' matches are compared with those of one index."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What plans are made from, and what they are measured with."""

    table: Table
    training: Objects
    objects: Objects
    added: Table | None
    repeats: int

    def run(self, names: tuple[str, ...], workers: int) -> dict[str, dict[str, Any]]:
        """Every planner's figures; latencies are compared at one rate, half of what the slowest can take."""
        few = take_objects(self.objects, np.arange(min(COMPARED, len(self.objects))))
        rows, numbers = Index.build(self.table).match_objects(few)
        expected = merge_matches([(rows, numbers.astype(np.int64))])
        dispatchers = workers // 2  # as PS2Stream's four for eight workers
        figures: dict[str, dict[str, Any]] = {}
        indexes: dict[str, PartitionedIndex] = {}
        for name in names:
            print(f"  {name}, {workers} workers", file=sys.stderr, flush=True)
            begin = time.process_time()
            plan = make_plan(name, Sample.of(self.training, self.table), workers)
            planning_s = time.process_time() - begin
            indexes[name] = PartitionedIndex(plan, self.table)
            found = indexes[name].match_objects(few)
            figures[name] = {
                **report(plan, self.objects, self.table, planning_s).to_document(),
                "equal": all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)),
            }
        measured = measure_by_turns(indexes, self.objects, self.added, self.repeats)
        rates = [
            simulate(one, dispatchers=dispatchers).throughput * one.objects / (one.objects + 2 * one.changes)
            for one in measured.values()
        ]
        for name, one in measured.items():
            simulated = simulate(one, min(rates) / 2, dispatchers)
            figures[name] |= {
                "throughput": simulated.throughput,
                "limited_by": simulated.limited_by,
                "busy_s": float(one.busy_s.sum()),
                "busy_imbalance": simulated.imbalance,
                "latency_us": simulated.latency_us,
                "latency_p95_us": simulated.latency_p95_us,
                "dispatched_per_s": one.objects / one.dispatch_s,
                "dispatcher_mb": one.dispatcher_bytes / 1e6,
                "worker_mb_mean": float(one.worker_bytes.mean()) / 1e6,
                "worker_mb_most": float(one.worker_bytes.max()) / 1e6,
                "received": int(one.received.sum()),
                "matches": one.matches,
            }
        return figures


def run(options: Options) -> dict[str, Any]:
    parts = chosen_parts(options, PARTS)
    sizes = _sizes(options)
    total = sizes["training"] + sizes["objects"]
    corpus, world = tweets(total, options.seed)
    texts = corpus if options.data is None else read_texts(options.data, total, options.seed)
    result: dict[str, Any] = {
        "benchmark": "partitioning",
        "n_points": sizes["objects"],
        "n_subscriptions": sizes["subscriptions"],
        "source": "tweets" if options.data is None else options.data.name,
        "workers": WORKERS,
        "queries": {
            kind: {"variants": setting(texts, kind, sizes, options).run(VARIANTS, WORKERS)}
            for kind in KINDS
            if kind in parts
        },
    }
    if "scaling" in parts:
        third = setting(texts, "Q3", sizes, options)
        result["scaling"] = {str(workers): third.run((*BASELINES, "hybrid"), workers) for workers in SCALES}
    training, objects = _halves(corpus, sizes)
    tables: dict[str, Callable[[], Table]] = {
        "topics": lambda: topic_subscriptions(world, corpus.vocabulary, sizes["topics"], options.seed),
        "tweets": lambda: tweet_subscriptions(corpus, sizes["topics"], options.seed),
    }
    for name, table in tables.items():
        if name in parts:
            anywhere = Setting(table(), training, objects, None, options.repeats)
            result[name] = {str(workers): anywhere.run(TOPIC_VARIANTS, workers) for workers in TOPIC_SCALES}
    result |= ratios(result)
    result["plots"] = _plots(result, options)
    return result


def setting(corpus: Corpus, kind: Kind, sizes: dict[str, int], options: Options) -> Setting:
    """PS2Stream's workload (section VI.A): five objects for every insertion or deletion."""
    table = subscriptions(corpus, kind, sizes["subscriptions"], options.seed).by_place()
    training, objects = _halves(corpus, sizes)
    added = subscriptions(corpus, kind, max(len(objects) // 10, 1), options.seed + 1)
    return Setting(table, training, objects, numbered_from(added, len(table)), options.repeats)


def ratios(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Hybrid beside the better of kd-tree and metric, and the best of all others; SALB beside hash."""
    queries = result["queries"]

    def best(kind: str, names: tuple[str, ...]) -> float:
        figures = queries[kind]["variants"]
        return float(figures["hybrid"]["throughput"] / max(figures[name]["throughput"] for name in names))

    others = tuple(name for name in VARIANTS if name != "hybrid")
    found = {}
    if queries:
        found["hybrid_vs_best_baseline"] = {kind: best(kind, BASELINES) for kind in queries}
        found["hybrid_vs_best_other"] = {kind: best(kind, others) for kind in queries}
    for part, suffix in (("topics", ""), ("tweets", "_tweets")):
        for name in ("hash", "anycast") if part in result else ():
            found[f"salb_vs_{name}{suffix}"] = {
                workers: figures["salb"]["throughput"] / figures[name]["throughput"]
                for workers, figures in result[part].items()
            }
    return found


def _sizes(options: Options) -> dict[str, int]:
    limit = options.limit if options.limit is not None or options.data is None else OF_A_FILE
    if limit is None:
        return {
            "training": TRAINING,
            "objects": OBJECTS,
            "subscriptions": SUBSCRIPTIONS,
            "topics": TOPIC_SUBSCRIPTIONS,
        }
    return {"training": limit, "objects": limit, "subscriptions": 2 * limit, "topics": limit}


def _halves(corpus: Corpus, sizes: dict[str, int]) -> tuple[Objects, Objects]:
    """Objects to plan with and objects to match, by turns, so that both are of all times."""
    objects = objects_of(corpus)
    every = max(len(objects) // max(min(sizes["training"], len(objects) // 2), 1), 1)
    chosen = np.arange(len(objects)) % every == 0
    return take_objects(objects, np.flatnonzero(chosen)), take_objects(objects, np.flatnonzero(~chosen))


def _plots(result: dict[str, Any], options: Options) -> list[str]:
    if options.out is None:
        return []
    from benchmarks.partitioning_figures import draw_curves

    return draw_curves(result, options.out)


COLUMNS = (
    "throughput", "busy_imbalance", "total_load_s", "imbalance", "spread", "replication", "dropped", "latency_us",
    "worker_mb_most", "dispatcher_mb", "planning_s", "equal",
)  # fmt: skip


def table(result: dict[str, Any]) -> str:
    lines = []
    for kind, part in result["queries"].items():
        rows = [[kind, *COLUMNS]]
        rows += [[name, *(_cell(one[key]) for key in COLUMNS)] for name, one in part["variants"].items()]
        lines += [*aligned(rows), ""]
    for title, key in (("Q3", "scaling"), ("topics", "topics"), ("tweets", "tweets")):
        if key not in result:
            continue
        by_workers = result[key]
        names = list(next(iter(by_workers.values())))
        rows = [[f"{title}: tuples/s by workers", *by_workers]]
        rows += [[name, *(_cell(part[name]["throughput"]) for part in by_workers.values())] for name in names]
        lines += [*aligned(rows), ""]
    for name in (key for key in result if "_vs_" in key):
        lines.append(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in result[name].items()))
    lines += [f"drawn: {plot}" for plot in result["plots"] or ["nothing; --out DIR draws the curves"]]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float) and value >= 1000:
        return f"{value:,.0f}"
    return cell_text(value)
