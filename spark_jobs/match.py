"""Objects against subscriptions: ``spatialnosql match ...`` or ``spark-submit spark_jobs/match.py ...``.

Every object that has all words of a clause of a subscription, in its region, before it expires, is told to its owner.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

# spark-submit is given this file alone: then the packages are beside it, wherever that is.
if importlib.util.find_spec("spatialnosql") is None or importlib.util.find_spec("spark_jobs") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark_jobs.match_job import match
from spark_jobs.match_work import AUTO, CONSOLE, Job, Matched, Objects
from spark_jobs.session import LOAD_MASTER, add_spark_arguments, spark_errors
from spark_jobs.sources import FORMATS
from spark_jobs.submitting import names, opened, required_uri, submitted
from spatialnosql.joins.arguments import add_filter, read_filter
from spatialnosql.subscriptions.model import moment_of
from spatialnosql.subscriptions.partitioning.planners import PLANNERS
from spatialnosql.uri import URI_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument(
        "subscriptions", metavar="SUBSCRIPTIONS", help="DB.COLLECTION of `spatialnosql subscribe`"
    )
    objects = parser.add_argument_group("objects")
    add_object_arguments(objects, "files, globs or folders of one format; or DB.COLLECTION")
    which = parser.add_argument_group(
        "which of them (default: all of files; of a collection what was ingested, with --mark, since the last run)"
    )
    which.add_argument("--since", metavar="TIME", help="from this time on, as in 2026-11-30T18:00:00Z")
    which.add_argument("--until", metavar="TIME", help="before this time")
    which.add_argument("--all", action="store_true", help="all objects of a collection")
    add_filter(which)
    parser.add_argument(
        "--out",
        metavar="TARGET",
        help=f"FOLDER.parquet, replaced when run again, or {CONSOLE} (default: MongoDB, in SUBSCRIPTIONS_matches, "
        "where an object that was matched before is not told of again)",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=20,
        metavar="N",
        help="matches on the console (default: %(default)s)",
    )
    add_index_argument(parser)
    parts = parser.add_argument_group("subscriptions that do not fit a worker")
    parts.add_argument(
        "--partitioner",
        choices=(AUTO, *PLANNERS),
        default=AUTO,
        help="part them by this planner (default: share the index if it fits, else hybrid); see docs/partitioning.md",
    )
    parts.add_argument(
        "--partitions", type=positive, metavar="N", help="so many (default: as many as are needed)"
    )
    parts.add_argument(
        "--worker-memory",
        type=positive,
        metavar="MB",
        help="what the index may take in a worker (default: half of the memory of this machine)",
    )
    add_common_arguments(parser)


def add_object_arguments(group: Any, sources: str) -> None:
    """Add what says where objects are, and in which columns what of them is."""
    group.add_argument("sources", nargs="+", metavar="OBJECTS", help=sources)
    group.add_argument("--format", choices=FORMATS, help="of the files (default: by their names)")
    group.add_argument(
        "--text", type=names, required=True, metavar="A,B", help="columns or fields whose words count"
    )
    group.add_argument(
        "--time",
        metavar="NAME",
        help="column or field of the time, which subscriptions expire by (default: everything happens now)",
    )
    group.add_argument("--lon", metavar="COLUMN", help="longitudes (default: lng, lon, long, longitude, x)")
    group.add_argument("--lat", metavar="COLUMN", help="latitudes (default: lat, latitude, y)")
    group.add_argument(
        "--point",
        metavar="NAME",
        help="GeoJSON points or pairs, instead of --lon and --lat (default, of a collection: as adopted, else loc)",
    )
    group.add_argument(
        "--id",
        metavar="COLUMN",
        help="identifiers, of files (default: made of text, place and time, so that equal rows are one object)",
    )


def add_index_argument(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the index."""
    parser.add_argument(
        "--index",
        metavar="FOLDER",
        help="keep the index of the subscriptions there, and next time take in only what has changed; all workers must "
        "see it (default: a temporary folder)",
    )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every job has."""
    parser.add_argument("--uri", metavar="URI", help=f"MongoDB deployment (default: ${URI_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_spark_arguments(parser)


def objects_of(args: argparse.Namespace) -> Objects:
    """What the arguments say of the objects."""
    return Objects(
        tuple(args.sources), args.text, args.format, args.lon, args.lat, args.point, args.time, args.id
    )


def job_of(args: argparse.Namespace) -> Job:
    """What the arguments ask for; refuses what cannot be meant, before Spark is started."""
    return Job(
        args.subscriptions,
        objects_of(args),
        args.out,
        moment_of(args.since, "--since") if args.since else None,
        moment_of(args.until, "--until") if args.until else None,
        args.all,
        read_filter(args),
        args.index,
        args.limit,
        args.partitioner,
        args.partitions,
        args.worker_memory,
    )


def run(args: argparse.Namespace) -> int:
    """Run the job and print its summary."""
    job = job_of(args)
    uri = required_uri(args)
    with spark_errors(debug=args.debug):
        matched = run_job(job, uri, args)
    if args.json:
        print(json.dumps(matched.to_document()))
        return 0
    for one in matched.found or ():
        print(shown(one))
    print("\n".join(matched.lines()))
    return 0


def shown(one: dict[str, Any]) -> str:
    """A match on the console."""
    return f"{one['owner']}  {one['subscription']}  {one['lng']:.5f},{one['lat']:.5f}  {one['text']}"


def run_job(job: Job, uri: str, args: argparse.Namespace) -> Matched:
    """Start Spark, or use the one that is there, and match."""
    with opened("spatialnosql match", uri, args, LOAD_MASTER) as (client, spark, start_s):
        return match(spark, uri, client, job, spark_start_s=start_s)


def main() -> int:
    """The job under spark-submit."""
    return submitted("match.py", __doc__, add_arguments, run)


def positive(text: str) -> int:
    """A number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
