"""Where, when, and which words: the queries of KV-STK's table 3, asked in six ways.

- ``st_index_then_filter``: hashed shards, an index of place and time (``{loc: "2dsphere", at: 1}``), words filtered:
  the paper's JUST
- ``keyword_index``: hashed shards, a multikey index of words and time (``{words: 1, at: 1}``)
- ``filtered``: `SpatialCollection`, on geohash shards, by filters of words in memory
- ``open``: the same, with a look for fresh documents, as if the collection were not shut
- ``no_global``: without the global filter; ``no_filters``: without any, every cube of place and time read

All variants take turns, in caches with room for everything, after every query was asked once.
Beside the queries: what each index takes on disk and an insert costs with it (``storage``), the filters against Bloom
filters and InfiniFilter by size (``filter_sizes``), and speed under several limits of memory (``memory``). ``--limit``
says how many documents: 2 million tweets by default.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks.deployment import Bench, open_deployment
from benchmarks.frame import Variant, aligned, cell_text, compare, ratios
from benchmarks.frame import table as frame_table
from benchmarks.options import Options
from benchmarks.stk_costs import filter_sizes, index_bytes, limited, write_costs
from benchmarks.stk_data import load_world
from benchmarks.stk_load import (
    Documents,
    add_native,
    add_sealed,
    cache_gb,
    native_collection,
    sealed_collection,
    shut_all,
    spatial_variant,
)
from benchmarks.stk_queries import KINDS, Asked, make_queries
from spatialnosql.cluster import connect
from spatialnosql.metadata import load_info
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.finding import filters_of
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.status import status

REFERENCE = "st_index_then_filter"
NATIVE = (REFERENCE, "keyword_index")
SWITCHES = {"filtered": None, "open": "use_shut", "no_global": "use_global", "no_filters": "use_filters"}
"""Variants by filters, and what each does without."""
QUERIES, TURN = 100, 10
"""Of a kind; and of a variant, before the next has its turn."""
LIMITS = (0.01, 0.1, 0.5, 1.0)
"""Of memory, as shares of what all filters take."""


def run(options: Options) -> dict[str, Any]:
    world = load_world(options)
    count = min(QUERIES, max(10, len(world) // 1000))
    asked = {kind.name: make_queries(world, kind, count, options.seed) for kind in KINDS}
    settings = StkSettings(**world.sizes)
    room = {"cache_gb": cache_gb(len(world), options.shards)}
    with open_deployment(options, **room) as bench, ExitStack() as stack:
        plain, ours = native_collection(bench, "plain"), sealed_collection(bench, "sealed", world)
        add_native(plain, world)
        add_sealed(ours, world, settings)
        shut_all(ours, world)
        variants = variants_of(bench, plain, ours, stack)
        queries = {
            kind.name: measured(kind.name, asked[kind.name], variants, bench, options.repeats)
            for kind in KINDS
        }
        info = run_steps(load_info(ours))
        found = status(ours, info)
        storage = {"indexes": index_bytes(plain, ours), **write_costs(bench, world, settings)}
        both = [one for kind in KINDS[:2] for one in asked[kind.name]]
        memory = [limited(bench, ours, both, share, found.filter_bytes) for share in LIMITS]
        sizes = filter_sizes(ours, settings)
    parts = list(queries.values())
    return {
        "benchmark": "stk",
        "n_points": len(world),
        "n_shards": bench.n_shards,
        "data": world.name,
        "settings": settings.to_document(),
        "queries": queries,
        **summed(parts),
        "worst_kind": better_than_native(queries),
        "storage": storage,
        "filters": found.to_document(),
        "filter_sizes": sizes,
        "memory": memory,
        "equal": all(part["equal"] for part in [*parts, *memory]),
    }


# -- variants ----------------------------------------------------------------------------------------------


def variants_of(bench: Bench, plain: Documents, ours: Documents, stack: ExitStack) -> list[Variant]:
    """All ways to ask; those by filters each with a client, and so a memory, of its own."""
    found = [_native(REFERENCE, plain, "place_time"), _native("keyword_index", plain, "words_time")]
    for name, switch in SWITCHES.items():
        client = stack.enter_context(connect(bench.uri))
        twin = client[ours.database.name][ours.name]
        if switch is not None:
            setattr(filters_of(twin), switch, False)
        found.append(spatial_variant(name, twin))
    return found


def _native(name: str, collection: Documents, hint: str) -> Variant:
    def ask(asked: Asked) -> list[Any]:
        return [document["_id"] for document in collection.find(asked.filter, hint=hint)]

    return Variant(name, ask, canonical=sorted)


# -- measuring ---------------------------------------------------------------------------------------------


def measured(
    name: str, asked: list[Asked], variants: list[Variant], bench: Bench, repeats: int
) -> dict[str, Any]:
    """One kind of queries, asked by all variants in turns; after all of them were asked once, so that all is warm."""
    for number, turns in (("warming up", 1), ("", repeats)):
        label = f"{name}, {number}" if number else name
        comparison = compare(
            asked, variants, cpu=bench.cpu, repeats=turns, reference=REFERENCE, label=label, block=TURN
        )
    result = comparison.result()
    costs = {name: values["server_cpu_s"] for name, values in result["variants"].items()}
    known = None not in costs.values() and costs["filtered"]
    better = round(min(costs[name] for name in NATIVE) / costs["filtered"], 3) if known else None
    empty = sum(not answer for answer in (variants[0].ask(one) for one in asked)) / len(asked)
    return {**result, "against_better_native": better, "share_empty": round(empty, 2)}


def better_than_native(queries: dict[str, dict[str, Any]]) -> float | None:
    """The least of what is won against the better native plan, of all kinds; None if it is unknown."""
    each = [part["against_better_native"] for part in queries.values()]
    return None if None in each else min(each)


def summed(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All kinds of queries together: the common keys of every benchmark."""
    names = parts[0]["variants"]
    added = ("wall_s", "server_cpu_s", "client_cpu_s", "results")
    variants: dict[str, dict[str, Any]] = {}
    for name in names:
        values: dict[str, Any] = {"keys": None, "docs": None, "shards": None}
        for key in added:
            each = [part["variants"][name][key] for part in parts]
            values[key] = None if None in each else round(sum(each), 4)
        variants[name] = values
    return {"variants": variants, **ratios(variants, REFERENCE)}


# -- for people --------------------------------------------------------------------------------------------


def table(result: dict[str, Any]) -> str:
    parts = [frame_table({**result, "queries": result["queries"]})]
    rows = [["kind", "empty", *(name for name in result["variants"]), "against the better native"]]
    for name, part in result["queries"].items():
        each = [cell_text(part["ratio"][variant], "x") for variant in result["variants"]]
        rows.append(
            [name, f"{part['share_empty']:.0%}", *each, cell_text(part["against_better_native"], "x")]
        )
    parts += ["server CPU against the index of place and time, then filter:", *aligned(rows), ""]
    parts.append(f"worst kind against the better native plan: {cell_text(result['worst_kind'], 'x')}")
    indexes, inserts = result["storage"]["indexes"], result["storage"]["insert_us"]
    rows = [["index", "MB", "a document, us"]]
    rows += [
        [name, cell_text(indexes[name] / 1e6) if name in indexes else "-", cell_text(cost)]
        for name, cost in inserts.items()
    ]
    filters = result["filters"]
    parts += ["", *aligned(rows)]
    parts.append(f"filters: {filters['filter_bytes'] / 1e6:,.1f} MB in {filters['filter_cubes']:,} cubes")
    sizes = ", ".join(f"{name} {size}" for name, size in result["filter_sizes"].items())
    parts.append(f"bytes a key, and wrong answers: {sizes}")
    rows = [["memory, MB", "wall s", "server CPU s", "client CPU s", "filters loaded"]]
    rows += [
        [
            cell_text(m["limit_mb"]),
            *(cell_text(m[k]) for k in ("wall_s", "server_cpu_s", "client_cpu_s", "loads")),
        ]
        for m in result["memory"]
    ]
    return "\n".join([*parts, "", *aligned(rows), ""])
