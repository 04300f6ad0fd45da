"""Points with the polygons they lie in: ``spatialnosql join ...`` or ``spark-submit spark_jobs/join.py ...``.

One pass over the points, however many polygons; equal to MongoDB's own $geoWithin.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

# spark-submit is given this file alone: then the packages are beside it, wherever that is.
if importlib.util.find_spec("spatialnosql") is None or importlib.util.find_spec("spark_jobs") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark_jobs.join_job import join
from spark_jobs.join_work import AUTO, BROADCAST_MB, INNER, LEFT, STRATEGIES, Job, Joined
from spark_jobs.session import add_spark_arguments, spark_errors
from spark_jobs.sources import FORMATS
from spark_jobs.submitting import names, opened, required_uri, submitted
from spatialnosql.joins.arguments import add_filter, read_filter
from spatialnosql.uri import URI_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    points = parser.add_argument_group("points")
    points.add_argument(
        "--points",
        nargs="+",
        required=True,
        metavar="SOURCE",
        help="files, globs or folders of one format; or DB.COLLECTION, adopted: only candidates are read of it",
    )
    points.add_argument("--format", choices=FORMATS, help="of the files (default: by their names)")
    points.add_argument("--lon", metavar="COLUMN", help="longitudes (default: lng, lon, long, longitude, x)")
    points.add_argument("--lat", metavar="COLUMN", help="latitudes (default: lat, latitude, y)")
    points.add_argument(
        "--point", metavar="COLUMN", help="GeoJSON points or pairs, instead of --lon and --lat"
    )
    add_filter(points)
    points.add_argument(
        "--select",
        type=names,
        default=(),
        metavar="A,B",
        help="columns kept beside the polygon (default: all of files; of a collection _id, lng and lat)",
    )
    polygons = parser.add_argument_group("polygons")
    polygons.add_argument(
        "--polygons",
        required=True,
        metavar="SOURCE",
        help="a GeoJSON file, gzipped or not; or DB.COLLECTION of `spatialnosql polygons load`",
    )
    polygons.add_argument(
        "--polygon-id",
        metavar="PROPERTY",
        help="of features, their id (default: id, else name, else a number)",
    )
    result = parser.add_argument_group("result (replaced when the join is run again)")
    result.add_argument("--out", metavar="TARGET", help="FILE.parquet or DB.COLLECTION")
    result.add_argument(
        "--how",
        choices=(INNER, LEFT),
        default=INNER,
        help="left keeps points in no polygon, with null (default: %(default)s)",
    )
    result.add_argument(
        "--counts",
        action="store_true",
        help="only the number of points of each polygon; printed without --out",
    )
    result.add_argument(
        "--as",
        dest="name",
        default="polygon",
        metavar="NAME",
        help="of the polygons' column (default: %(default)s)",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=AUTO,
        help="broadcast: every worker gets all polygons; partitioned: each part of the curve gets its own "
        "(default: broadcast, if the polygons are small enough)",
    )
    parser.add_argument(
        "--broadcast-limit",
        type=_megabytes,
        default=BROADCAST_MB,
        metavar="MB",
        help="what is small enough; about 300 bytes a vertex (default: %(default)s)",
    )
    parser.add_argument(
        "--uri",
        metavar="URI",
        help=f"MongoDB deployment (default: ${URI_VARIABLE}); given for files too, it decides about points within 3 cm "
        "of a border",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_spark_arguments(parser)


def job_of(args: argparse.Namespace) -> Job:
    """What the arguments ask for; refuses what cannot be meant, before Spark is started."""
    return Job(
        tuple(args.points),
        args.polygons,
        args.out,
        args.how,
        args.counts,
        args.strategy,
        args.broadcast_limit,
        args.format,
        args.lon,
        args.lat,
        args.point,
        read_filter(args),
        args.select,
        args.polygon_id,
        args.name,
    )


def run(args: argparse.Namespace) -> int:
    """Run the job and print its summary."""
    job = job_of(args)
    uri = required_uri(args) if job.needs_server or args.uri else None
    with spark_errors(debug=args.debug):
        joined = run_job(job, uri, args)
    print(json.dumps(joined.to_document()) if args.json else "\n".join(joined.lines()))
    return 0


def run_job(job: Job, uri: str | None, args: argparse.Namespace) -> Joined:
    """Start Spark, or use the one that is there, and join."""
    with opened("spatialnosql join", uri, args) as (client, spark, start_s):
        return join(spark, job, uri=uri, client=client, spark_start_s=start_s)


def main() -> int:
    """The job under spark-submit."""
    return submitted("join.py", __doc__, add_arguments, run)


def _megabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not size >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of megabytes")
    return size


if __name__ == "__main__":
    sys.exit(main())
