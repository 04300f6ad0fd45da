"""Where, when, and which words, as the data grow: the usual queries of `stk`, asked again at every size.

The same day over the same country, with ever more documents: a tenth of ``--limit`` (10 million tweets by default), a
fifth, half, all. Bins, cells and filter cubes are those that the first of them suggest, as they would be in a
collection that grows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.deployment import open_deployment
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from benchmarks.stk import QUERIES, better_than_native, measured, summed, variants_of
from benchmarks.stk_costs import index_bytes
from benchmarks.stk_data import load_world
from benchmarks.stk_load import (
    NATIVE_INDEXES,
    add_native,
    cache_gb,
    insert_sealed,
    make_ready,
    native_collection,
    sealed_collection,
    shut_all,
)
from benchmarks.stk_queries import KINDS, make_queries
from spatialnosql.analyze import analyze
from spatialnosql.metadata import load_info
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.settings import INDEX_NAME, StkSettings
from spatialnosql.stk.setup import build_index
from spatialnosql.stk.status import status

ROWS = 10_000_000
SHARES = (0.1, 0.2, 0.5, 1.0)
ASKED = KINDS[:2]


def run(options: Options) -> dict[str, Any]:
    world = load_world(replace(options, limit=options.limit or ROWS))
    # Which documents come first is drawn, so that every part spans the same time and the same places.
    order = np.random.default_rng(options.seed).permutation(len(world))
    ends = [round(share * len(world)) for share in SHARES]
    parts = [world.part(np.sort(order[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    settings = StkSettings(**parts[0].sizes)
    count = min(QUERIES, max(10, len(parts[0]) // 1000))
    asked = {kind.name: make_queries(parts[0], kind, count, options.seed) for kind in ASKED}
    room = {"cache_gb": cache_gb(len(world), options.shards)}
    steps: list[dict[str, Any]] = []
    with open_deployment(options, **room) as bench:
        plain, ours = native_collection(bench, "plain"), sealed_collection(bench, "sealed", parts[0])
        make_ready(ours, settings)
        for part, end in zip(parts, ends, strict=True):
            # Nobody asks meanwhile: no need to wait between keys and documents; indexes are built when they are there.
            for index in NATIVE_INDEXES if steps else ():
                plain.drop_index(index)
            add_native(plain, part, first=end - len(part))
            ours.drop_index(INDEX_NAME)
            insert_sealed(ours, part, settings, first=end - len(part))
            build_index(ours, "gh")
            analyze(ours)
            shut_all(ours, world)
            with ExitStack() as stack:
                variants = variants_of(bench, plain, ours, stack)
                queries = {
                    name: measured(f"{end:,} documents, {name}", some, variants, bench, options.repeats)
                    for name, some in asked.items()
                }
            filters = status(ours, run_steps(load_info(ours)))
            steps.append(
                {
                    "n_points": end,
                    "queries": queries,
                    **summed(list(queries.values())),
                    "worst_kind": better_than_native(queries),
                    "indexes": index_bytes(plain, ours),
                    "filter_bytes": filters.filter_bytes,
                }
            )
    return {
        "benchmark": "stk_growth",
        "n_points": len(world),
        "n_shards": bench.n_shards,
        "data": world.name,
        "settings": settings.to_document(),
        "steps": steps,
        "equal": all(one["equal"] for step in steps for one in step["queries"].values()),
    }


def table(result: dict[str, Any]) -> str:
    """One line a size: milliseconds of server CPU a query, and what is kept."""
    names = list(result["steps"][0]["variants"])
    rows = [
        [
            "documents",
            *names,
            "filtered against place_time",
            "place_time MB",
            "words_time MB",
            "cubes MB",
            "filters MB",
        ]
    ]
    for step in result["steps"]:
        count = sum(part["n_queries"] for part in step["queries"].values())
        costs = [step["variants"][name]["server_cpu_s"] for name in names]
        rows.append(
            [
                f"{step['n_points']:,}",
                *(cell_text(None if cost is None else cost / count * 1e3) for cost in costs),
                cell_text(step["ratio"]["filtered"], "x"),
                *(cell_text(size / 1e6) for size in (*step["indexes"].values(), step["filter_bytes"])),
            ]
        )
    return "\n".join(
        [
            f"stk_growth: {result['data']}, {result['n_shards']} shards; server CPU of a query in milliseconds",
            *aligned(rows),
            "every variant gave the same answers" if result["equal"] else "THE ANSWERS DIFFER",
            "",
        ]
    )
