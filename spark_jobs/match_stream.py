"""Objects as they come against subscriptions: ``spatialnosql match-stream`` or ``spark-submit match_stream.py``.

Objects are files that appear in a folder, or documents that are inserted or changed in a collection. Subscriptions that
are added or removed meanwhile count from the next micro-batch on. Ended by SIGTERM, or by Ctrl-C with the code 130.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# spark-submit is given this file alone: then the packages are beside it, wherever that is.
if importlib.util.find_spec("spatialnosql") is None or importlib.util.find_spec("spark_jobs") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark_jobs.match import (
    add_common_arguments,
    add_index_argument,
    add_object_arguments,
    objects_of,
    positive,
)
from spark_jobs.match_stream_job import MatchStream
from spark_jobs.match_stream_work import NO_BALANCE, Streamed, StreamJob, milliseconds_of
from spark_jobs.match_work import CONSOLE
from spark_jobs.session import LOAD_MASTER, spark_errors
from spark_jobs.submitting import opened, required_uri, submitted
from spatialnosql.cli import EXIT_INTERRUPTED, EXIT_OK
from spatialnosql.subscriptions.balancing.policies import BALANCES
from spatialnosql.subscriptions.balancing.shedding import UTILITIES
from spatialnosql.subscriptions.partitioning.planners import PLANNERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument(
        "subscriptions", metavar="SUBSCRIPTIONS", help="DB.COLLECTION of `spatialnosql subscribe`"
    )
    objects = parser.add_argument_group("objects")
    add_object_arguments(
        objects, "a folder of Parquet, CSV or JSON lines that grows; or DB.COLLECTION, by its change stream"
    )
    objects.add_argument(
        "--schema",
        metavar="DDL",
        help="columns of the files, as in 'text string, lng double, lat double' (default: by those that are there)",
    )
    objects.add_argument(
        "--all-first",
        action="store_true",
        help="first match what a collection holds already (default: only what is written from now on)",
    )
    objects.add_argument(
        "--readers",
        type=positive,
        default=1,
        metavar="N",
        help="read a change stream in up to N parts, one a second of it; an object that changes twice in one "
        "micro-batch may then be kept as it was first (default: %(default)s)",
    )
    stream = parser.add_argument_group("stream")
    stream.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="notes how far the stream has come, and is where it is taken up again; needed but for the console",
    )
    stream.add_argument(
        "--trigger", default="2s", metavar="TIME", help="between micro-batches (default: %(default)s)"
    )
    stream.add_argument("--once", action="store_true", help="match what is there now, then end")
    parser.add_argument(
        "--out",
        metavar="TARGET",
        help=f"FOLDER.parquet, a folder in it for each micro-batch, or {CONSOLE} (default: MongoDB, in "
        "SUBSCRIPTIONS_matches)",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=20,
        metavar="N",
        help="matches of a micro-batch on the console (default: %(default)s)",
    )
    parts = parser.add_argument_group("subscriptions in partitions; see docs/balancing.md")
    parts.add_argument(
        "--balance",
        choices=tuple(BALANCES),
        default=NO_BALANCE,
        help="let the partitions follow the load, as SWARM does, or by PS2Stream's local or global adjustment "
        "(default: %(default)s)",
    )
    parts.add_argument(
        "--partitions",
        type=positive,
        metavar="N",
        help="hold the subscriptions in so many (default: one index that all workers share; with --balance as many "
        "partitions as cores)",
    )
    parts.add_argument(
        "--partitioner",
        choices=tuple(PLANNERS),
        default="hybrid",
        help="makes the first plan, from the first micro-batch (default: %(default)s; SWARM begins evenly)",
    )
    parts.add_argument(
        "--shed",
        choices=UTILITIES,
        help="LOSES MATCHES: when more objects wait than --shed-buffer, send them to fewer partitions, to those with "
        "most of their words or most subscriptions for these; what is left out is counted (default: never)",
    )
    parts.add_argument(
        "--shed-buffer",
        type=positive,
        default=100_000,
        metavar="N",
        help="objects in a micro-batch that are no overload yet (default: %(default)s)",
    )
    add_index_argument(parser)
    add_common_arguments(parser)


def job_of(args: argparse.Namespace) -> StreamJob:
    """What the arguments ask for; refuses what cannot be meant, before Spark is started."""
    return StreamJob(
        args.subscriptions,
        objects_of(args),
        args.out,
        args.checkpoint,
        args.schema,
        milliseconds_of(args.trigger),
        args.once,
        args.all_first,
        args.readers,
        args.index,
        args.limit,
        args.balance,
        args.partitions,
        args.partitioner,
        args.shed,
        args.shed_buffer,
    )


def run(args: argparse.Namespace) -> int:
    """Run the stream until it is ended, and print its summary."""
    job = job_of(args)
    uri = required_uri(args)
    with spark_errors(debug=args.debug):
        streamed = run_job(job, uri, args)
    print(json.dumps(streamed.to_document()) if args.json else "\n".join(streamed.lines()))
    return EXIT_INTERRUPTED if streamed.interrupted else EXIT_OK


def run_job(job: StreamJob, uri: str, args: argparse.Namespace) -> Streamed:
    """Start Spark, or use the one that is there, and match until the end."""
    with (
        opened("spatialnosql match-stream", uri, args, LOAD_MASTER) as (client, spark, start_s),
        MatchStream(spark, uri, client, job) as stream,
        ended_by_signals() as ended,
    ):
        stream.streamed.spark_start_s = start_s
        if not job.once:
            print(f"waiting for objects in {job.source}; Ctrl-C ends it", file=sys.stderr, flush=True)
        stream.run(ended)
        stream.streamed.interrupted = ended.interrupted
        return stream.streamed


class Ended(threading.Event):
    """Set when the stream is to end; by Ctrl-C, which the exit code tells, or by SIGTERM."""

    interrupted = False


@contextmanager
def ended_by_signals() -> Iterator[Ended]:
    """An event that is set by Ctrl-C or SIGTERM; a second one interrupts at once."""
    ended = Ended()

    def end(number: int, frame: Any) -> None:
        del frame
        if ended.is_set():
            raise KeyboardInterrupt
        ended.interrupted = number == signal.SIGINT
        ended.set()
        print("ending when this micro-batch is stored; once more: now", file=sys.stderr, flush=True)

    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """The job under spark-submit."""
    return submitted("match_stream.py", __doc__, add_arguments, run)


if __name__ == "__main__":
    sys.exit(main())
