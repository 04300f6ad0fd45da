"""`python -m benchmarks NAME`: run one benchmark, or all, and print a table or JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pymongo.errors import PyMongoError

from benchmarks import frame
from benchmarks.options import LOAD_ORDERS, Options
from spatialnosql.cli import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, explain
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.uri import resolve_uri


class Benchmark(NamedTuple):
    """One benchmark: its module has ``run(options) -> dict`` and may have ``table(result) -> str``."""

    name: str
    module: str
    help: str


REGISTRY: tuple[Benchmark, ...] = (
    Benchmark("frame", "benchmarks.frame_check", "proves the frame: counts with and without an index"),
    Benchmark("geohash", "benchmarks.geohash", "points to cells and strings, candidates settled, per second"),
    Benchmark("cover", "benchmarks.cover", "shapes to ranges, beside polygon-geohasher"),
    Benchmark(
        "containment", "benchmarks.containment", "points in polygons, counted and found: four ways to ask"
    ),
    Benchmark(
        "near", "benchmarks.near", "the nearest few and all within a radius, from dense and empty places"
    ),
    Benchmark("topn", "benchmarks.topn", "points of every polygon, one by one and in one pass"),
    Benchmark("throughput", "benchmarks.throughput", "queries a second, eight clients on random polygons"),
    Benchmark("paper", "benchmarks.paper", "the paper's own experiments: its figures 2 to 4"),
    Benchmark(
        "ingest", "benchmarks.ingest", "files to an indexed collection, beside pyarrow and insert_many"
    ),
    Benchmark("matching", "benchmarks.matching", "objects against a million subscriptions, in Spark"),
    Benchmark("match_layouts", "benchmarks.match_layouts", "matches stored in three ways, written and read"),
    Benchmark(
        "spark_join",
        "benchmarks.spark_join",
        "points counted by polygon: the Spark job beside SedonaDB and shapely",
    ),
    Benchmark("stk", "benchmarks.stk", "place, time and words: filters beside the native indexes"),
    Benchmark("stk_growth", "benchmarks.stk_growth", "the same as the data grow to 10 million documents"),
    Benchmark(
        "partitioning", "benchmarks.partitioning", "who holds which subscriptions: all planners of partitions"
    ),
    Benchmark("adaptive", "benchmarks.adaptive", "load that moves: SWARM and PS2Stream beside static plans"),
)


def positive(text: str) -> int:
    """A whole number above zero."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above zero")
    return value


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Each benchmark runs every variant on the same data, alternating, and reports medians.",
        epilog="\n".join(f"  {b.name:14} {b.help}" for b in REGISTRY)
        + "\n\nExit codes: 0 done and all variants agree, 1 an error or variants that differ, 2 wrong usage.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of the list below, or `all`")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--data", type=Path, help="points: .parquet or .csv (default: a generated city)")
    parser.add_argument("--polygons", type=Path, help="areas: .geojson or .geojson.gz (default: generated)")
    parser.add_argument(
        "--shards", type=positive, default=3, help="of the cluster that is started (default: 3)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default: 1)")
    parser.add_argument(
        "--limit",
        "--rows",
        type=positive,
        metavar="N",
        help="take only the first N rows, or generate so many",
    )
    parser.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="runs per variant (default: 3)"
    )
    parser.add_argument(
        "--load-order",
        choices=LOAD_ORDERS,
        default="ingest",
        help="how collections are filled: plain ones as the file is and ours along the curve, as ingest does it "
        "(default); all as the file is (a collection adopted in place); all along the curve",
    )
    parser.add_argument("--uri", help="use this MongoDB and start no cluster; server CPU is then unknown")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the figures of those that draw some")
    parser.add_argument(
        "--only",
        type=lambda text: tuple(text.split(",")),
        metavar="PART,...",
        help="run only these parts, of those that have several (near, partitioning, adaptive)",
    )
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def run_one(benchmark: Benchmark, options: Options) -> tuple[dict[str, Any], str]:
    """The result of a benchmark and its table."""
    module = importlib.import_module(benchmark.module)
    result: dict[str, Any] = module.run(options)
    table = getattr(module, "table", frame.table)
    return result, str(table(result))


def all_equal(result: Any) -> bool:
    """Whether no ``equal`` anywhere in a result is false."""
    if isinstance(result, dict):
        return result.get("equal") is not False and all(all_equal(value) for value in result.values())
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.list:
        for benchmark in REGISTRY:
            print(f"{benchmark.name:14} {benchmark.help}")
        return EXIT_OK
    chosen = [benchmark for benchmark in REGISTRY if args.name in (benchmark.name, "all")]
    if not chosen:
        names = ", ".join([*(benchmark.name for benchmark in REGISTRY), "all"])
        print(f"benchmarks: no benchmark {args.name!r}; there are {names}", file=sys.stderr)
        return EXIT_USAGE
    results: dict[str, dict[str, Any]] = {}
    try:
        options = Options(
            data=args.data,
            polygons=args.polygons,
            shards=args.shards,
            seed=args.seed,
            limit=args.limit,
            repeats=args.repeats,
            uri=resolve_uri(args.uri),
            out=args.out,
            load_order=args.load_order,
            only=args.only,
        )
        for benchmark in chosen:
            print(f"benchmark {benchmark.name}: {benchmark.help}", file=sys.stderr, flush=True)
            results[benchmark.name], table = run_one(benchmark, options)
            if not args.json:
                print(table, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (SpatialNoSQLError, PyMongoError, OSError, ModuleNotFoundError) as error:
        if args.debug:
            raise
        print(f"benchmarks: {explain(error)}", file=sys.stderr)
        return EXIT_ERROR
    whole = results[chosen[0].name] if args.name != "all" else {"benchmark": "all", "benchmarks": results}
    if args.json:
        # NaN is no JSON: a benchmark that has nothing to say says null.
        print(json.dumps(whole, allow_nan=False), flush=True)
    if not all_equal(whole):
        print("benchmarks: variants gave different answers; the numbers mean nothing", file=sys.stderr)
        return EXIT_ERROR
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
