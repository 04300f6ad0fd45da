"""``matching``: objects against a million subscriptions of PS2Stream's Q1, Q2 and Q3, in Spark, end to end.

Objects are synthetic tweets, or the rows of ``--data``, whose columns of text are their text. From Parquet to Parquet:
reading, text normalisation, matching, and writing every match with its owner. Beside it, each alone on one core: the
text and the kernel. Then, for Q2, from MongoDB to MongoDB, beside the connector's copying the same objects.

Texts of few words, as of `--data` often, have thousands of matches an object where keywords may be joined by OR; they
are matched as they are (on fewer objects), and with AND only.

`equal` compares what the job wrote with what the index gives in one process, and that with brute force on some objects.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import find_columns
from benchmarks.deployment import Bench, open_deployment
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from benchmarks.spark import start_spark
from spatialnosql.errors import UsageError
from spatialnosql.placement import shard_by_hash
from spatialnosql.subscriptions.index import Index, warm_up
from spatialnosql.subscriptions.index_keeper import Version, base_path
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.text_batches import TermReader
from spatialnosql.subscriptions.workloads import KINDS, Corpus, Kind, Operators, subscriptions

OBJECTS, SUBSCRIPTIONS, OWNERS = 1_000_000, 1_000_000, 1_000
BATCH = 16_384
MOST_PAIRS = 40_000_000
"""Matches of a run; where objects have thousands, fewer objects are taken."""
CHECKED = 50
"""Objects that brute force is asked about, too."""
COPIED = 300_000
"""Objects of the part in MongoDB."""


@dataclass(frozen=True, eq=False)
class World:
    """Objects, in memory and as a Parquet file of ``id, text, lng, lat, at``."""

    name: str
    table: Any
    path: Path

    @property
    def lng(self) -> NDArray[np.float64]:
        """Longitudes."""
        found: NDArray[np.float64] = self.table["lng"].to_numpy()
        return found

    @property
    def lat(self) -> NDArray[np.float64]:
        """Latitudes."""
        found: NDArray[np.float64] = self.table["lat"].to_numpy()
        return found

    @property
    def at(self) -> NDArray[np.int64]:
        """Times."""
        found: NDArray[np.int64] = self.table["at"].to_numpy()
        return found

    def first(self, count: int) -> World:
        """The first so many of them, in a file of their own."""
        if count >= self.table.num_rows:
            return self
        return write(self.name, self.table.slice(0, count), self.path.with_name(f"{count}.parquet"))


def run(options: Options) -> dict[str, Any]:
    from spark_jobs.session import LOAD_MASTER

    warm_up()
    rules = TextRules()
    with (
        tempfile.TemporaryDirectory(prefix="spatialnosql-bench-") as folder,
        open_deployment(options) as bench,
    ):
        started = time.monotonic()
        spark, ours = start_spark("matching", mongo_uri=bench.uri, local_master=LOAD_MASTER)
        session_s = time.monotonic() - started
        print(f"Spark started in {session_s:.1f} s", file=sys.stderr, flush=True)
        world = given(options, Path(folder)) if options.data else generated(options, Path(folder))
        corpus = Corpus.of_texts(world.lng, world.lat, world.table["text"].combine_chunks(), rules)
        count = SUBSCRIPTIONS if options.limit is None or options.limit >= 200_000 else 5 * options.limit
        queries: dict[str, Any] = {}
        mongodb: dict[str, Any] = {}
        wanted: list[tuple[Kind, Operators]] = [(kind, "both") for kind in KINDS]
        if options.data:
            wanted += [(kind, "and") for kind in KINDS]
        for kind, operators in wanted:
            name = kind if operators == "both" else f"{kind}_and"
            print(f"{name}: {count:,} subscriptions ...", file=sys.stderr, flush=True)
            made = _Workload(corpus, kind, operators, count, options.seed, Path(folder) / name, rules)
            queries[name] = measure(spark, made, world, options.repeats)
            if kind == "Q2" and not (options.data and operators == "both"):
                mongodb = from_mongodb(bench, spark, made, world.first(COPIED), options.repeats)
        if ours:
            spark.stop()
    return {
        "benchmark": "matching",
        "n_points": world.table.num_rows,
        "n_shards": bench.n_shards,
        "data": world.name,
        "n_subscriptions": count,
        "spark_start_s": round(session_s, 2),
        "queries": queries,
        "kernel_objects_per_s": queries["Q2"]["kernel_objects_per_s"],
        "mongodb": mongodb,
        "equal": all(part["equal"] for part in (*queries.values(), mongodb)),
    }


# -- objects -----------------------------------------------------------------------------------------------


def write(name: str, table: Any, path: Path) -> World:
    import pyarrow.parquet as pq

    pq.write_table(table, path, row_group_size=50_000)
    return World(name, table, path)


def generated(options: Options, folder: Path) -> World:
    """Synthetic tweets."""
    import pyarrow as pa

    from spatialnosql.subscriptions.tweets import generate_tweets

    pieces = []
    for tweets in generate_tweets(options.limit or OBJECTS, options.seed):
        columns = {"id": tweets.id, "text": tweets.text.to_arrow().cast(pa.string())}
        pieces.append(pa.table({**columns, "lng": tweets.lng, "lat": tweets.lat, "at": tweets.at_ms}))
    return write("tweets", pa.concat_tables(pieces), folder / "objects.parquet")


def given(options: Options, folder: Path) -> World:
    """The rows of a Parquet file that have a place; their columns of text joined."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if options.data is None or options.data.suffix != ".parquet":
        raise UsageError(f"--data {options.data}: this benchmark reads .parquet")
    table = pq.read_table(options.data)
    lng, lat = find_columns(table.schema.names)
    texts = [
        name
        for name in table.schema.names
        if pa.types.is_string(table.schema.field(name).type)
        or pa.types.is_large_string(table.schema.field(name).type)
        or pa.types.is_dictionary(table.schema.field(name).type)
    ]
    if not texts:
        raise UsageError(f"{options.data} has no column of text")
    table = table.filter(pc.and_(pc.is_finite(table[lng]), pc.is_finite(table[lat])))
    table = table.slice(0, options.limit or OBJECTS)
    columns = [pc.fill_null(table[name].cast(pa.string()), "") for name in texts]
    text = pc.binary_join_element_wise(*columns, " ")
    rows = np.arange(table.num_rows)
    places = {"lng": table[lng].cast("float64"), "lat": table[lat].cast("float64")}
    made = pa.table({"id": rows, "text": text, **places, "at": rows})
    return write(options.data.stem, made, folder / "objects.parquet")


# -- subscriptions -----------------------------------------------------------------------------------------


class _Workload:
    """Subscriptions of one kind, indexed and saved, as the job has them."""

    def __init__(
        self,
        corpus: Corpus,
        kind: Kind,
        operators: Operators,
        count: int,
        seed: int,
        folder: Path,
        rules: TextRules,
    ) -> None:
        self.rules = rules
        made = subscriptions(corpus, kind, count, seed, operators=operators, owners=OWNERS)
        started = time.perf_counter()
        self.table: Table = made.by_place()
        index = Index.build(self.table)
        self.build_s = time.perf_counter() - started
        self.version = Version(str(folder), 1, 0)
        folder.mkdir()
        index.save(base_path(self.version))
        self.index = Index.open(base_path(self.version))

    def in_process(self, world: World) -> tuple[int, int, float, float]:
        """Pairs, a digest of them, and the CPU seconds of text and kernel."""
        reader = TermReader(self.rules, self.index.vocabulary)
        texts = world.table["text"].combine_chunks()
        pairs = digest = 0
        text_s = kernel_s = 0.0
        for start in range(0, world.table.num_rows, BATCH):
            end = min(start + BATCH, world.table.num_rows)
            began = time.process_time()
            offsets, terms = reader.read(texts.slice(start, end - start))
            read = time.process_time()
            rows, numbers = self.index.match(
                world.lng[start:end], world.lat[start:end], world.at[start:end], offsets, terms
            )
            kernel_s += time.process_time() - read
            text_s += read - began
            pairs += rows.size
            digest ^= pairs_digest(rows + start, numbers)
        return pairs, digest, text_s, kernel_s

    def agrees_with_brute_force(self, world: World, seed: int = 1) -> bool:
        """Whether the index gives for some objects what looking at every subscription gives."""
        draw = np.random.default_rng(seed)
        reader = TermReader(self.rules, self.index.vocabulary)
        texts = world.table["text"].combine_chunks()
        table = self.table
        for row in draw.integers(world.table.num_rows, size=CHECKED).tolist():
            offsets, terms = reader.read(texts.slice(row, 1))
            lng, lat = world.lng[row], world.lat[row]
            west, south, east, north = table.bounds.T
            inside = (west <= lng) & (lng <= east) & (south <= lat) & (lat <= north)
            has = np.isin(table.members, terms)
            lacking = np.concatenate([[0], np.cumsum(~has)])
            whole = lacking[table.clause_terms[1:]] == lacking[table.clause_terms[:-1]]
            met = np.concatenate([[0], np.cumsum(whole)])
            any_clause = met[table.clauses[1:]] > met[table.clauses[:-1]]
            expected = np.flatnonzero(inside & any_clause)
            _, found = self.index.match([lng], [lat], world.at[row], offsets, terms)
            if not np.array_equal(np.sort(found), expected):
                return False
        return True


def pairs_digest(rows: NDArray[np.int64], numbers: NDArray[Any]) -> int:
    """The same for the same pairs in whatever order."""
    mixed = (rows.astype(np.uint64) << np.uint64(32)) | numbers.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return int(np.bitwise_xor.reduce(mixed)) if mixed.size else 0


# -- measuring ---------------------------------------------------------------------------------------------


def measure(spark: Any, made: _Workload, world: World, repeats: int) -> dict[str, Any]:
    """From Parquet to Parquet in Spark, and text and kernel alone."""
    sample = world.first(min(10_000, world.table.num_rows))
    an_object = max(made.in_process(sample)[0] / sample.table.num_rows, 0.01)
    world = world.first(int(MOST_PAIRS / an_object))
    pairs, digest, text_s, kernel_s = made.in_process(world)
    count = world.table.num_rows
    runs = [_to_parquet(spark, made, world) for _ in range(repeats + 1)][1:]  # the first one warms Spark up
    read_s = statistics.median(_read_only(spark, world) for _ in range(repeats))
    walls = [one["wall_s"] for one in runs]
    wall = statistics.median(walls)
    middle = runs[walls.index(sorted(walls)[len(walls) // 2])]
    equal = all((one["pairs"], one["digest"]) == (pairs, digest) for one in runs)
    return {
        "n_objects": count,
        "matches_per_object": round(pairs / count, 2),
        "objects_per_s": round(count / wall, 1),
        "pairs_per_s": round(pairs / wall, 1),
        "wall_s": round(wall, 3),
        "read_wall_s": round(read_s, 3),
        "shares": middle["shares"],
        "text_objects_per_s": round(count / text_s, 1),
        "kernel_objects_per_s": round(count / kernel_s, 1),
        "index_mb": round(made.index.nbytes / 2**20, 1),
        "build_s": round(made.build_s, 2),
        "equal": equal and made.agrees_with_brute_force(world),
    }


def _read_only(spark: Any, world: World) -> float:
    """Seconds in which Spark reads the objects and hands them to the workers, who do nothing."""
    from spark_jobs.join_worker import map_in_arrow
    from spark_jobs.match_job import many_tasks
    from spark_jobs.match_objects import file_objects
    from spark_jobs.match_work import Job, Objects
    from spark_jobs.match_worker import TALLY_SCHEMA
    from spark_jobs.session import large_batches

    job = Job("bench.subscriptions", Objects((str(world.path),), ("text",), time="at", id="id"), "console")
    started = time.perf_counter()
    with large_batches(spark), many_tasks(spark):
        map_in_arrow(file_objects(spark, job).frame, _drained, TALLY_SCHEMA).collect()
    return time.perf_counter() - started


def _drained(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        batch.num_rows  # noqa: B018 - it has come
    yield from ()


def _to_parquet(spark: Any, made: _Workload, world: World) -> dict[str, Any]:
    """One run of the job; what it wrote is read again outside the timed part."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from spark_jobs.match_job import many_tasks, match_rows
    from spark_jobs.match_objects import file_objects
    from spark_jobs.match_sinks import ParquetFolder, ParquetSink
    from spark_jobs.match_work import Job, Matched, Objects
    from spark_jobs.match_worker import Matcher
    from spark_jobs.session import large_batches

    out = world.path.with_name("matches.parquet")
    objects = Objects((str(world.path),), ("text",), time="at", id="id")
    job = Job("bench.subscriptions", objects, str(out))
    matcher = Matcher(made.version, made.rules.to_document(), 0)
    matched = Matched("bench.subscriptions", str(world.path), str(out), subscriptions_count=len(made.table))
    started = time.perf_counter()
    with (
        contextlib.redirect_stderr(io.StringIO()),
        large_batches(spark),
        many_tasks(spark),
        ParquetFolder(str(out)) as folder,
    ):
        rows = file_objects(spark, job)
        files = match_rows(matcher, ParquetSink(str(folder.beside)), rows, matched)
        folder.commit(files, matched.to_document())
    wall = time.perf_counter() - started
    found = pq.read_table(out, columns=["object", "subscriptions"])
    lists = found["subscriptions"].combine_chunks()
    rows_of = np.repeat(found["object"].to_numpy(), pc.list_value_length(lists).to_numpy())
    # Identifiers are the numbers that subscriptions had before they were sorted by place.
    by_id = np.empty(len(made.table), dtype=np.int64)
    by_id[made.table.ids.to_arrow().cast("int64").to_numpy()] = np.arange(len(made.table))
    numbers = by_id[lists.flatten().cast("int64").to_numpy()]
    work = {name: round(seconds, 3) for name, seconds in matched.shares.items()}
    return {
        "wall_s": wall,
        "pairs": int(numbers.size),
        "digest": pairs_digest(rows_of, numbers),
        "shares": work,
    }


def from_mongodb(bench: Bench, spark: Any, made: _Workload, world: World, repeats: int) -> dict[str, Any]:
    """From an ingested collection into the matches beside the subscriptions, and the connector's copying it."""
    from spark_jobs.ingest_job import ingest
    from spark_jobs.ingest_work import Job as Ingest

    client, database = bench.database.client, bench.database
    source = f"{database.name}.objects"
    with contextlib.redirect_stderr(io.StringIO()):
        ingest(spark, bench.uri, client, Ingest(source, (str(world.path),), lon="lng", lat="lat"))
    runs: dict[str, list[dict[str, Any]]] = {"copy": [], "match": []}
    for turn in range(repeats + 1):  # the first one warms up
        for name in ("copy", "match") if turn % 2 else ("match", "copy"):
            server, started = bench.cpu.seconds(), time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()):
                found = _copy(bench, spark) if name == "copy" else _match(bench, spark, made)
            wall, now = time.perf_counter() - started, bench.cpu.seconds()
            used = None if server is None or now is None else now - server
            if turn:
                runs[name].append({"wall_s": wall, "server_cpu_s": used, **found})
            for written in ("copied", "subscriptions_matches", "subscriptions_matched"):
                database.drop_collection(written)
    count, pairs = world.table.num_rows, made.in_process(world)[0]
    variants = {}
    for name, done in runs.items():
        wall = statistics.median(one["wall_s"] for one in done)
        server_s = [one["server_cpu_s"] for one in done if one["server_cpu_s"] is not None]
        variants[name] = {
            "wall_s": round(wall, 3),
            "server_cpu_s": round(statistics.median(server_s), 3) if server_s else None,
            "objects_per_s": round(count / wall, 1),
            **{key: value for key, value in done[-1].items() if not key.endswith("_s")},
        }
    return {
        "n_objects": count,
        "matches_per_object": round(pairs / count, 2),
        "variants": variants,
        "ratio_objects_per_s": round(
            variants["match"]["objects_per_s"] / variants["copy"]["objects_per_s"], 3
        ),
        "equal": all(one["pairs"] == pairs for one in runs["match"])
        and all(one["documents"] == count for one in runs["copy"]),
    }


def _copy(bench: Bench, spark: Any) -> dict[str, Any]:
    """The connector alone: the same objects, whole, into a collection sharded by the hash of ``_id``."""
    from spark_jobs.loading import writer_for
    from spark_jobs.session import mongo_reader
    from spark_jobs.staging import staging_schema

    database = bench.database
    target = database.copied
    if bench.kind.is_sharded:
        shard_by_hash(target)
    schema = staging_schema_once(database.objects, staging_schema)
    rows = mongo_reader(spark, database.name, "objects").schema(schema).load()
    writer_for(rows, target, None).option("operationType", "insert").save()
    return {"documents": target.count_documents({})}


_schemas: dict[str, Any] = {}


def staging_schema_once(collection: Any, ask: Any) -> Any:
    """The schema of a collection, asked for once: to find it out takes longer than to copy."""
    if collection.full_name not in _schemas:
        _schemas[collection.full_name] = ask(collection)
    return _schemas[collection.full_name]


def _match(bench: Bench, spark: Any, made: _Workload) -> dict[str, Any]:
    """The job's own reading, matching and storing."""
    from spark_jobs.match_job import match_rows
    from spark_jobs.match_objects import collection_objects
    from spark_jobs.match_sinks import MongoSink
    from spark_jobs.match_work import Job, Matched, Objects
    from spark_jobs.match_worker import Matcher
    from spark_jobs.session import large_batches
    from spatialnosql.subscriptions.match_store import MatchStore

    database = bench.database
    objects, target = f"{database.name}.objects", f"{database.name}.subscriptions"
    job = Job(target, Objects((objects,), ("text",)), everything=True)
    matched = Matched(target, objects, "", subscriptions_count=len(made.table))
    store = MatchStore(database.subscriptions)
    store.prepare()
    with large_batches(spark), store.run("bench") as run:
        rows = collection_objects(spark, database.client, job, {}, lambda _: (None, ""))
        matcher = Matcher(made.version, made.rules.to_document(), 0)
        match_rows(matcher, MongoSink(bench.uri, target, run, rows.id_type), rows, matched)
    return {"pairs": matched.pairs, "buckets": matched.buckets, "shares": matched.shares}


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"matching: {result['n_points']:,} objects ({result['data']}), {result['n_subscriptions']:,} subscriptions",
        "",
        "from Parquet to Parquet in Spark; text and kernel also alone, on one core",
    ]
    names = (
        "objects_per_s",
        "pairs_per_s",
        "matches_per_object",
        "kernel_objects_per_s",
        "text_objects_per_s",
    )
    more = ("index_mb", "build_s")
    rows = [["", *names, *more]]
    for kind, part in result["queries"].items():
        rows.append([kind, *(cell_text(part[name]) for name in (*names, *more))])
    lines += aligned(rows)
    lines += [
        "",
        "seconds of it: of the clock for all and for reading alone; of the workers' CPU for the rest",
    ]
    rows = [["", "wall_s", "read_wall_s", "text", "kernel", "write"]]
    for kind, part in result["queries"].items():
        shares = [cell_text(part["shares"][name]) for name in ("text", "kernel", "write")]
        rows.append([kind, cell_text(part["wall_s"]), cell_text(part["read_wall_s"]), *shares])
    lines += aligned(rows)
    mongodb = result["mongodb"]
    lines += ["", f"from MongoDB to MongoDB, {mongodb['n_objects']:,} objects, Q2"]
    rows = [["", "objects_per_s", "wall_s", "server_cpu_s"]]
    for name, part in mongodb["variants"].items():
        rows.append([name, *(cell_text(part[key]) for key in rows[0][1:])])
    lines += aligned(rows)
    lines.append(f"matching runs at {mongodb['ratio_objects_per_s']:.0%} of the speed of copying")
    lines.append("every match was found" if result["equal"] else "THE MATCHES DIFFER")
    return "\n".join([*lines, ""])
