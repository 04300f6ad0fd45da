"""Where, when, and which words: the queries of KV-STK's table 3, asked in five ways.

- ``st_index_then_filter``: hashed shards, an index of place and time (``{loc: "2dsphere", at: 1}``), words filtered:
  the paper's JUST
- ``keyword_index``: hashed shards, a multikey index of words and time (``{words: 1, at: 1}``)
- ``filtered``: `SpatialCollection`, on geohash shards, by filters of words in memory
- ``no_global``: the same without the global filter; ``no_filters``: without any, every cube of place and time read

Beside the queries: what each index takes on disk and an insert costs with it (``storage``), the filters against Bloom
filters and InfiniFilter by size (``filter_sizes``), and speed under several limits of memory (``memory``). ``--limit``
says how many documents: 2 million tweets by default.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
import zlib
from typing import Any

import numpy as np
from pymongo import GEOSPHERE
from pymongo.collection import Collection

from benchmarks.cpu import client_cpu_s
from benchmarks.deployment import Bench, open_deployment
from benchmarks.frame import Variant, aligned, cell_text, compare, ratios
from benchmarks.frame import table as frame_table
from benchmarks.options import Options
from benchmarks.stk_data import KINDS, Asked, Kind, World, load_world, make_queries
from spatialnosql import SpatialCollection
from spatialnosql.adopt import adopt
from spatialnosql.cluster import connect
from spatialnosql.geohash import points_to_strings
from spatialnosql.info import CollectionInfo
from spatialnosql.loading import insert
from spatialnosql.metadata import load_info
from spatialnosql.placement import even_cuts, shard_by_geohash, shard_by_hash
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.filter_cache import FilterCache
from spatialnosql.stk.finding import filters_of
from spatialnosql.stk.settings import INDEX_NAME
from spatialnosql.stk.setup import enable
from spatialnosql.stk.status import status

Documents = Collection[dict[str, Any]]

REFERENCE = "st_index_then_filter"
NATIVE = (REFERENCE, "keyword_index")
QUERIES = 100
INSERTED = 40_000
"""Documents whose insertion is measured."""
LIMITS = (0.01, 0.1, 0.5, 1.0)
"""Of memory, as shares of what all filters take."""
_FALSE = 0.004  # the share of wrong answers at which filters are compared


def run(options: Options) -> dict[str, Any]:
    world = load_world(options)
    count = min(QUERIES, max(10, len(world) // 1000))
    asked = {kind.name: make_queries(world, kind, count, options.seed) for kind in KINDS}
    with open_deployment(options) as bench, contextlib.ExitStack() as stack:
        plain = native_collection(bench, "plain", world)
        ours, setup = filtered_collection(bench, "sealed", world)
        clients = {
            name: stack.enter_context(connect(bench.uri)) for name in ("filtered", "no_global", "no_filters")
        }
        twins = {name: client[ours.database.name][ours.name] for name, client in clients.items()}
        filters_of(twins["no_global"]).use_global = False
        filters_of(twins["no_filters"]).use_filters = False
        variants = [_native(REFERENCE, plain, "place_time"), _native("keyword_index", plain, "words_time")]
        variants += [_spatial(name, twin) for name, twin in twins.items()]
        queries = {kind.name: _measured(kind, asked[kind.name], variants, bench, options) for kind in KINDS}
        cache = filters_of(twins["filtered"])
        info = run_steps(load_info(ours))
        found = status(ours, info)
        storage = {"indexes": _index_bytes(plain, ours), **insert_costs(bench, world)}
        memory = [
            _limited(bench, ours, asked["or"] + asked["and"], share, found.filter_bytes) for share in LIMITS
        ]
        parts = list(queries.values())
    summed = _summed(parts)
    return {
        "benchmark": "stk",
        "n_points": len(world),
        "n_shards": bench.n_shards,
        "data": world.name,
        "settings": setup["settings"],
        "enable_s": setup["enable_s"],
        "queries": queries,
        **summed,
        "worst_kind": min(part["against_better_native"] for part in parts),
        "storage": storage,
        "filters": found.to_document(),
        "filter_sizes": filter_sizes(info, cache),
        "memory": memory,
        "equal": all(part["equal"] for part in parts) and all(part["equal"] for part in memory),
    }


# -- collections -------------------------------------------------------------------------------------------


def native_collection(bench: Bench, name: str, world: World) -> Documents:
    """What people have today: hashed shards, and both indexes, of which each variant names its own."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        shard_by_hash(collection)
    insert(collection, world.documents(gh=False), len(world))
    collection.create_index([("loc", GEOSPHERE), ("at", 1)], name="place_time")
    collection.create_index([("words", 1), ("at", 1)], name="words_time")
    return collection


def filtered_collection(bench: Bench, name: str, world: World) -> tuple[Documents, dict[str, Any]]:
    """Geohash shards, with seals and filters."""
    collection = bench.database[name]
    if bench.kind.is_sharded:
        cuts = even_cuts(points_to_strings(world.lng, world.lat), bench.n_shards)
        shard_by_geohash(collection, bench.kind.shards, cuts)
    else:
        collection.create_index({"gh": 1, "_id": 1})
    insert(collection, world.documents(gh=True), len(world))
    adopt(collection, "loc")
    started = time.monotonic()
    done = enable(collection, progress=True)
    return collection, {
        "settings": done.settings.to_document(),
        "enable_s": round(time.monotonic() - started, 1),
    }


def _native(name: str, collection: Documents, hint: str) -> Variant:
    def ask(asked: Asked) -> list[Any]:
        return [document["_id"] for document in collection.find(asked.filter, hint=hint)]

    return Variant(name, ask, canonical=sorted)


def _spatial(name: str, collection: Documents) -> Variant:
    spatial = SpatialCollection(collection)

    def ask(asked: Asked) -> list[Any]:
        return [document["_id"] for document in spatial.find(asked.filter)]

    return Variant(name, ask, canonical=sorted)


# -- measuring ---------------------------------------------------------------------------------------------


def _measured(
    kind: Kind, asked: list[Asked], variants: list[Variant], bench: Bench, options: Options
) -> dict[str, Any]:
    compare(
        asked[:10], variants, cpu=bench.cpu, repeats=1, reference=REFERENCE, label=f"{kind.name}, warming up"
    )
    comparison = compare(
        asked, variants, cpu=bench.cpu, repeats=options.repeats, reference=REFERENCE, label=kind.name
    )
    result = comparison.result()
    costs = {name: values["server_cpu_s"] for name, values in result["variants"].items()}
    known = None not in costs.values() and costs["filtered"]
    better = min(costs[name] for name in NATIVE) / costs["filtered"] if known else math.nan
    empty = sum(not answer for answer in (variants[0].ask(one) for one in asked)) / len(asked)
    return {**result, "against_better_native": round(better, 3), "share_empty": round(empty, 2)}


def _summed(parts: list[dict[str, Any]]) -> dict[str, Any]:
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


def _limited(
    bench: Bench, ours: Documents, asked: list[Asked], share: float, all_bytes: int
) -> dict[str, Any]:
    """The queries under a limit of memory, twice: the second time is measured."""
    with connect(bench.uri) as client:
        collection = client[ours.database.name][ours.name]
        limit_mb = share * (all_bytes * 1.2) / 1e6
        variant = _spatial("filtered", collection)
        SpatialCollection(collection, filter_memory_mb=limit_mb)
        cache = filters_of(collection)
        first = [sorted(variant.ask(one)) for one in asked]
        loads, commands = cache.counters.loads, cache.counters.commands
        server, client_s, started = bench.cpu.seconds(), client_cpu_s(), time.perf_counter()
        second = [sorted(variant.ask(one)) for one in asked]
        wall_s, used_s, now = time.perf_counter() - started, client_cpu_s() - client_s, bench.cpu.seconds()
        return {
            "limit_mb": round(limit_mb, 2),
            "used_mb": round(cache.used_bytes / 1e6, 2),
            "wall_s": round(wall_s, 3),
            "client_cpu_s": round(used_s, 3),
            "server_cpu_s": None if server is None or now is None else round(now - server, 3),
            "loads": cache.counters.loads - loads,
            "load_commands": cache.counters.commands - commands,
            "n_queries": len(asked),
            "equal": first == second,
        }


def _index_bytes(plain: Documents, ours: Documents) -> dict[str, int]:
    """Bytes on disk of each index."""
    native = plain.database.command("collStats", plain.name)["indexSizes"]
    sealed = ours.database.command("collStats", ours.name)["indexSizes"]
    return {
        "place_time": native["place_time"],
        "words_time": native["words_time"],
        "stk_cube": sealed[INDEX_NAME],
    }


def insert_costs(bench: Bench, world: World) -> dict[str, Any]:
    """Server CPU of an insert, in microseconds, with each index and with none but the shard key's."""
    some = World(
        world.name, world.lng[:INSERTED], world.lat[:INSERTED], world.at_ms[:INSERTED], world.words[:INSERTED]
    )
    indexes: dict[str, list[tuple[str, Any]]] = {
        "none": [],
        "place_time": [("loc", GEOSPHERE), ("at", 1)],
        "words_time": [("words", 1), ("at", 1)],
        "stk_cube": [("stk.c", 1), ("gh", 1)],
    }
    costs: dict[str, list[float]] = {name: [] for name in indexes}
    for repeat in range(3):
        for name, keys in indexes.items():
            collection = bench.database[f"insert_{name}_{repeat}"]
            if bench.kind.is_sharded:
                shard_by_hash(collection)
            if keys:
                collection.create_index(keys)
            before = bench.cpu.seconds()
            insert(collection, some.documents(gh=name == "stk_cube"), len(some))
            after = bench.cpu.seconds()
            if before is not None and after is not None:
                costs[name].append((after - before) / len(some) * 1e6)
            collection.drop()
    medians = {name: round(statistics.median(each), 1) if each else None for name, each in costs.items()}
    return {"insert_us": medians}


def filter_sizes(info: CollectionInfo, cache: FilterCache) -> dict[str, Any]:
    """Bytes a key of what we keep, and of what else could hold the same keys.

    Measured on the filters in memory: ours (32 bits a key), the same compressed (differences, zlib), fingerprints of 16
    bits by data cube, and exact bitmaps by word (a hash, and a bit for each data cube or a list, whichever is less).
    Computed for one wrong answer in 250: a Bloom filter has 1.44 log2(1 / false) bits a key; an InfiniFilter has a
    fingerprint of log2(1 / false) bits and three more, in a table that is between 0.4 and 0.8 full as it grows.
    """
    assert info.stk is not None
    bits, size = info.stk.position_bits, 1 << info.stk.position_bits
    kept = list(cache._kept.values())
    keys = max(1, sum(len(one) for one in kept))
    packed = cubes = bitmaps = 0
    for one in kept:
        packed += len(zlib.compress(np.diff(one, prepend=np.uint32(0)).astype("<u4").tobytes()))
        cubes += len(np.unique(one & np.uint32(size - 1)))
        _, of_word = np.unique(one >> np.uint32(bits), return_counts=True)
        bitmaps += int((4 + np.minimum(size / 8, 2 * of_word)).sum())
    false = math.log2(1 / _FALSE)
    return {
        "keys": keys,
        "keys_a_filter": round(keys / max(1, len(kept)), 1),
        "ours": 4.0,
        "ours_false": float(f"{keys / max(1, cubes) / 2 ** (32 - bits):.2g}"),
        "ours_compressed": round(packed / keys, 2),
        "fingerprints_16": round(2 + 4 * cubes / keys, 2),
        "fingerprints_16_false": float(f"{keys / max(1, cubes) / 2**16:.2g}"),
        "bitmaps": round(bitmaps / keys, 2),
        "bloom": round(1.44 * false / 8, 2),
        "infini": round((false + 3) / 0.6 / 8, 2),
        "bloom_and_infini_false": _FALSE,
    }


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
    parts.append(f"worst kind against the better native plan: {result['worst_kind']:.2f}x")
    indexes, inserts = result["storage"]["indexes"], result["storage"]["insert_us"]
    rows = [["index", "MB", "an insert, us"]]
    rows += [[name, cell_text(size / 1e6), cell_text(inserts[name])] for name, size in indexes.items()]
    rows.append(["none", "0.00", cell_text(inserts["none"])])
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
