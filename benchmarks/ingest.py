"""``ingest``: files into an indexed, sharded collection, beside the script that a user would write instead.

The script reads the same Parquet file with pyarrow, builds the documents, inserts them unordered from 4 threads into
hashed shards, then builds the same 2dsphere index. The job does all that into geohash shards, and screens, geohashes,
counts, chooses the precision, cuts and places besides. Both are timed from the file to the indexed collection; only
the start of Spark is apart. That of a small file has two parts: the session, and the ``first_run`` of the job, in which
Spark's classes are loaded and compiled, some 15 s; its figures stand beside the others'. A large file is read once, and
has that in it.
"""

from __future__ import annotations

import contextlib
import io
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

import numpy as np
from pymongo import GEOSPHERE

from benchmarks.cpu import client_cpu_s, process_cpu_s
from benchmarks.data import find_columns
from benchmarks.deployment import Bench, open_deployment
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from benchmarks.spark import start_spark
from spatialnosql.analyze import quick_distribution
from spatialnosql.city import KINDS, generate_city
from spatialnosql.placement import shard_by_hash

SIZES = (1_000_000, 3_000_000, 10_000_000)
THREADS, BATCH = 4, 10_000
PIECE = 1_000_000  # rows generated at a time: the generator's own memory must not be what is measured
LARGE = 3_000_000  # from here on each variant runs once


def run(options: Options) -> dict[str, Any]:
    sizes = [options.limit] if options.limit else list(SIZES)
    with (
        tempfile.TemporaryDirectory(prefix="spatialnosql-bench-") as folder,
        open_deployment(options) as bench,
    ):
        started = time.monotonic()
        from spark_jobs.session import LOAD_MASTER

        spark, ours = start_spark("ingest", mongo_uri=bench.uri, local_master=LOAD_MASTER)
        session_s = time.monotonic() - started
        print(f"Spark started in {session_s:.1f} s", file=sys.stderr, flush=True)
        queries = {}
        for size in sizes:
            path = write_rows(options, size, Path(folder) / f"{size}.parquet")
            repeats = 1 if size >= LARGE else options.repeats
            queries[str(path.rows)] = measure(bench, spark, path, repeats)
            path.path.unlink()
        if ours:
            spark.stop()
    last = queries[list(queries)[-1]]
    return {
        "benchmark": "ingest",
        "n_points": max(part["rows"] for part in queries.values()),
        "n_shards": bench.n_shards,
        "spark_start_s": round(session_s, 2),
        "queries": queries,
        "ratio_docs_per_s": last["ratio_docs_per_s"],
        "equal": all(part["equal"] for part in queries.values()),
    }


class Rows:
    """A Parquet file of so many rows, and its coordinate columns."""

    def __init__(self, path: Path, rows: int, lng: str, lat: str) -> None:
        self.path, self.rows, self.lng, self.lat = path, rows, lng, lat


def write_rows(options: Options, count: int, path: Path) -> Rows:
    """The first rows of ``--data``, over and over if it has too few, or of a generated city; without bad ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    written = 0
    lng, lat = "lon", "lat"
    for table in _given(options) if options.data else _generated(options, count):
        if options.data:
            lng, lat = find_columns(table.schema.names)
        x, y = (table[name].cast("float64").to_numpy() for name in (lng, lat))
        good = (np.abs(x) <= 180) & (np.abs(y) <= 90)  # NaN is neither
        part = table.filter(pa.array(good)).slice(0, count - written)
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
        written += part.num_rows
        if written >= count:
            break
    writer.close()
    return Rows(path, written, lng, lat)


def _given(options: Options) -> Iterator[Any]:
    import pyarrow.parquet as pq

    if options.data is None or options.data.suffix != ".parquet":
        from spatialnosql.errors import UsageError

        raise UsageError(f"--data {options.data}: this benchmark reads .parquet")
    while True:
        yield pq.read_table(options.data)


def _generated(options: Options, count: int) -> Iterator[Any]:
    import pyarrow as pa

    for piece in range(2 * count // PIECE + 2):
        city = generate_city(min(PIECE, int(count * 1.1) + 100), options.seed + piece)
        kinds = pa.DictionaryArray.from_arrays(pa.array(city.kind), pa.array(KINDS)).cast(pa.string())
        yield (
            pa.table(
                {
                    "at": pa.array(city.at.astype("datetime64[us]")),
                    "lon": city.lng,
                    "lat": city.lat,
                    "kind": kinds,
                    "amount": city.amount,
                    "good": pa.array(city.good),
                }
            )
            .filter(pa.array(city.good))
            .drop_columns(["good"])
        )


def measure(bench: Bench, spark: Any, path: Rows, repeats: int) -> dict[str, Any]:
    """Both variants in turn on one file; medians."""
    taken: dict[str, list[dict[str, Any]]] = {"first_run": [], "script": [], "ingest": []}
    orders: list[tuple[str, ...]] = [
        ("script", "ingest") if number % 2 == 0 else ("ingest", "script") for number in range(repeats)
    ]
    for order in [("first_run",), *orders] if repeats > 1 else orders:
        for name in order:
            server, client = bench.cpu.seconds(), client_cpu_s() + jvm_cpu_s(spark)
            one = scripted(bench, path) if name == "script" else ingested(bench, spark, path)
            after = bench.cpu.seconds()
            one["server_cpu_s"] = None if server is None or after is None else after - server
            one["client_cpu_s"] = client_cpu_s() + jvm_cpu_s(spark) - client
            taken[name].append(one)
            rate = one["docs"] / one["wall_s"]
            print(
                f"{name}: {one['docs']:,} rows in {one['wall_s']:.1f} s, {rate:,.0f}/s",
                file=sys.stderr,
                flush=True,
            )
    first = taken.pop("first_run")
    variants = {name: _median(runs) for name, runs in taken.items()}
    rates = {name: variant["docs_per_s"] for name, variant in variants.items()}
    return {
        "rows": path.rows,
        "n_queries": 1,
        "variants": variants,
        "first_run": _median(first) if first else None,
        "ratio_docs_per_s": {"ingest": round(rates["ingest"] / rates["script"], 3)},
        "equal": variants["script"]["results"] == variants["ingest"]["results"] == path.rows,
    }


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    wall = statistics.median(run["wall_s"] for run in runs)
    server = [run["server_cpu_s"] for run in runs if run["server_cpu_s"] is not None]
    phases = {
        name: round(statistics.median(run["phases"][name] for run in runs), 2) for name in runs[0]["phases"]
    }
    return {
        "wall_s": round(wall, 3),
        "docs_per_s": round(runs[0]["docs"] / wall, 1),
        "server_cpu_s": round(statistics.median(server), 2) if server else None,
        "client_cpu_s": round(statistics.median(run["client_cpu_s"] for run in runs), 2),
        "results": runs[0]["docs"],
        "runs": [round(run["docs"] / run["wall_s"], 1) for run in runs],
        "memory_mb": {name: max(run["memory_mb"][name] for run in runs) for name in runs[0]["memory_mb"]},
        "phases": phases,
        "shards": runs[0]["shards"],
    }


def scripted(bench: Bench, path: Rows) -> dict[str, Any]:
    """The script that a user would write."""
    import pyarrow.parquet as pq

    collection = bench.database["script"]
    started = time.monotonic()
    if bench.kind.is_sharded:
        shard_by_hash(collection)
    sharded = time.monotonic()
    free = Semaphore(2 * THREADS)  # so that the file is not in memory as a whole

    def store(batch: Any) -> None:
        try:
            documents = []
            for row in batch.to_pylist():
                row["loc"] = {"type": "Point", "coordinates": [row.pop(path.lng), row.pop(path.lat)]}
                documents.append(row)
            collection.insert_many(documents, ordered=False)
        finally:
            free.release()

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = []
        for batch in pq.ParquetFile(path.path).iter_batches(BATCH):
            free.acquire()
            waiting.append(pool.submit(store, batch))
        for future in waiting:
            future.result()
    loaded = time.monotonic()
    collection.create_index([("loc", GEOSPHERE)])
    ended = time.monotonic()
    held = quick_distribution(collection)
    collection.drop()
    phases = {"place": sharded - started, "load": loaded - sharded, "index": ended - loaded}
    docs = sum(held.values())
    return {"wall_s": ended - started, "phases": phases, "docs": docs, "shards": held, "memory_mb": {}}


def ingested(bench: Bench, spark: Any, path: Rows) -> dict[str, Any]:
    """The job, in the Spark that runs already."""
    from spark_jobs.ingest_job import ingest
    from spark_jobs.ingest_work import Job

    into = f"{bench.database.name}.ingest"
    job = Job(into, (str(path.path),), lon=path.lng, lat=path.lat, batch="benchmark")
    started = time.monotonic()
    with contextlib.redirect_stderr(io.StringIO()), Growth() as python:
        outcome = ingest(spark, bench.uri, bench.database.client, job)
    wall = time.monotonic() - started
    memory = {"python_growth": python.mb, "jvm_kept": jvm_kept_mb(spark)}
    bench.database["ingest"].drop()
    client = bench.database.client["spatialnosql"]
    client["batches"].delete_many({"namespace": job.into})
    client["collections"].delete_many({"_id": job.into})
    return {
        "wall_s": wall,
        "phases": outcome.phases,
        "docs": outcome.documents,
        "shards": outcome.shards,
        "memory_mb": memory,
    }


class Growth:
    """By how much this process, the driver's Python, grew at most, in MiB; looked at five times a second."""

    def __enter__(self) -> Growth:
        self._before = self._most = resident_mb()
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self._most = max(self._most, resident_mb())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mb(self) -> int:
        """The growth."""
        return round(self._most - self._before)


def resident_mb() -> float:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def jvm_kept_mb(spark: Any) -> int:
    """What Spark's process still holds after a batch, its garbage collected."""
    spark._jvm.java.lang.System.gc()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def jvm_cpu_s(spark: Any) -> float:
    """What Spark's own process has used so far; its CPU is the client's too."""
    return process_cpu_s(int(spark._jvm.java.lang.ProcessHandle.current().pid()))


def table(result: dict[str, Any]) -> str:
    """The result as text: one line a size and variant."""
    lines = [
        f"ingest: {result['n_shards']} shards; Spark's start, {result['spark_start_s']:.1f} s, apart",
        "",
    ]
    rows = [["rows", "variant", "docs/s", "seconds", "server CPU", "client CPU", "phases"]]
    for part in result["queries"].values():
        first = {"ingest, first run": part["first_run"]} if part["first_run"] else {}
        for name, values in (first | part["variants"]).items():
            phases = ", ".join(
                f"{phase} {seconds:.1f}" for phase, seconds in values["phases"].items() if seconds >= 0.05
            )
            numbers = [values[key] for key in ("docs_per_s", "wall_s", "server_cpu_s", "client_cpu_s")]
            rows.append([f"{part['rows']:,}", name, *(cell_text(number) for number in numbers), phases])
    lines += aligned(rows)
    for part in result["queries"].values():
        ratio = part["ratio_docs_per_s"]["ingest"]
        job = part["variants"]["ingest"]
        memory = ", ".join(f"{name.replace('_', ' ')} {mb:,} MiB" for name, mb in job["memory_mb"].items())
        each = 1e6 * job["wall_s"] / max(part["rows"], 1)
        lines.append(
            f"{part['rows']:,} rows: ingest / script = {ratio:.2f} documents/s; {each:.1f} us a row; {memory}"
        )
    lines.append("both wrote every row" if result["equal"] else "ROWS ARE MISSING")
    return "\n".join([*lines, ""])
