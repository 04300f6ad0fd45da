"""What the indexes and the filters of the benchmark `stk` cost: bytes, inserts, and speed under limits of memory."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.deployment import Bench
from benchmarks.frame import Timing, summary, timed
from benchmarks.stk_data import World
from benchmarks.stk_load import (
    NATIVE_INDEXES,
    Documents,
    insert_sealed,
    make_ready,
    native_collection,
    sealed_collection,
    shut_all,
    spatial_variant,
)
from benchmarks.stk_queries import Asked
from spatialnosql import SpatialCollection
from spatialnosql.cluster import connect
from spatialnosql.geohash import points_to_strings
from spatialnosql.loading import insert
from spatialnosql.metadata import load_info
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.filter_store import forget, read_directories, read_filters, read_state
from spatialnosql.stk.finding import filters_of
from spatialnosql.stk.sealing import seal
from spatialnosql.stk.settings import INDEX_NAME, StkSettings

INSERTED, REPEATS = 40_000, 3
"""Documents whose insertion is measured; and how often whatever is measured."""
_FALSE = 0.004  # the share of wrong answers at which filters are compared
_FILTERS = 2_000  # that are looked at


def limited(
    bench: Bench, ours: Documents, asked: list[Asked], share: float, all_bytes: int
) -> dict[str, Any]:
    """The queries under a limit of memory: asked once, and then measured; medians."""
    with connect(bench.uri) as client:
        collection = client[ours.database.name][ours.name]
        limit_mb = share * (all_bytes * 1.2) / 1e6
        variant = spatial_variant("filtered", collection)
        SpatialCollection(collection, filter_memory_mb=limit_mb)
        cache = filters_of(collection)
        first = [sorted(variant.ask(one)) for one in asked]
        loads, commands = cache.counters.loads, cache.counters.commands
        timing, same = Timing(), True
        for _ in range(REPEATS):
            answers = timed(variant, asked, timing, bench.cpu)
            same = same and [sorted(answer) for answer in answers] == first
        spent = summary(timing)
        return {
            "limit_mb": round(limit_mb, 2),
            "used_mb": round(cache.used_bytes / 1e6, 2),
            **{name: spent[name] for name in ("wall_s", "client_cpu_s", "server_cpu_s")},
            "loads": round((cache.counters.loads - loads) / REPEATS),
            "load_commands": round((cache.counters.commands - commands) / REPEATS),
            "n_queries": len(asked),
            "equal": same,
        }


def index_bytes(plain: Documents, ours: Documents) -> dict[str, int]:
    """Bytes on disk of each index."""
    native = plain.database.command("collStats", plain.name)["indexSizes"]
    sealed = ours.database.command("collStats", ours.name)["indexSizes"]
    return {
        "place_time": native["place_time"],
        "words_time": native["words_time"],
        "stk_cube": sealed[INDEX_NAME],
    }


def write_costs(bench: Bench, world: World, settings: StkSettings) -> dict[str, Any]:
    """Server CPU of a document, in microseconds: of an insert with each index and with none but the shard key's.

    ``fresh`` is an insert by a client that knows nothing of filters, ``stk_cube`` one that comes sealed, both with
    index and validators, the latter with its keys; ``seal`` is what sealing the fresh ones costs afterwards.
    """
    some = world.part(np.arange(min(INSERTED, len(world))))
    costs: dict[str, list[float]] = {
        name: [] for name in ("none", *NATIVE_INDEXES, "stk_cube", "fresh", "seal")
    }

    @contextmanager
    def counted(name: str) -> Iterator[None]:
        before = bench.cpu.seconds()
        yield
        after = bench.cpu.seconds()
        if before is not None and after is not None:
            costs[name].append((after - before) / len(some) * 1e6)

    hashes = points_to_strings(some.lng, some.lat)
    for repeat in range(REPEATS):
        for name in ("none", *NATIVE_INDEXES):
            native = native_collection(bench, f"insert_{name}_{repeat}")
            if name in NATIVE_INDEXES:
                native.create_index(NATIVE_INDEXES[name])
            with counted(name):
                insert(native, some.documents(), len(some))
            native.drop()
        for name in ("stk_cube", "fresh"):
            ours = sealed_collection(bench, f"insert_{name}_{repeat}", some)
            make_ready(ours, settings, grace_s=0.0)
            if name == "stk_cube":
                shut_all(ours, some)
                with counted(name):
                    insert_sealed(ours, some, settings)
            else:
                with counted(name):
                    insert(ours, some.documents(gh=hashes), len(some))
                with counted("seal"):
                    seal(ours, run_steps(load_info(ours)), settings)
            forget(ours)
            ours.drop()
    medians = {name: round(statistics.median(each), 1) if each else None for name, each in costs.items()}
    return {"insert_us": medians}


def filter_sizes(ours: Documents, settings: StkSettings) -> dict[str, Any]:
    """Bytes a key of what we keep, and of what else could hold the same keys.

    Measured on some of the filters: ours (32 bits a key), the same compressed (differences, zlib), fingerprints of 16
    bits by data cube, and exact bitmaps by word (a hash, and a bit for each data cube or a list, whichever is less).
    Computed for one wrong answer in 250: a Bloom filter has 1.44 log2(1 / false) bits a key; an InfiniFilter has a
    fingerprint of log2(1 / false) bits and three more, in a table that is between 0.4 and 0.8 full as it grows.
    """
    bits, size = settings.position_bits, 1 << settings.position_bits
    state = run_steps(read_state(ours))
    assert state is not None
    directories = run_steps(read_directories(ours, state.filters))
    cubes_there = np.unique(np.concatenate(list(directories.values())))
    some = cubes_there[:: max(1, len(cubes_there) // _FILTERS)].tolist()
    kept = list(run_steps(read_filters(ours, state.filters, some)).values())
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
