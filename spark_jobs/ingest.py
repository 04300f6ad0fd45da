"""Points into a sharded collection: ``spatialnosql ingest ...`` or ``spark-submit spark_jobs/ingest.py ...``.

Read, screened, geohashed, counted by cell, the least skewed precision chosen, placed on the shards, loaded, indexed.
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


from spark_jobs.ingest_job import ingest
from spark_jobs.ingest_work import Job, StkColumns
from spark_jobs.screening import parse_bounds
from spark_jobs.session import LOAD_MASTER, add_spark_arguments, spark_errors
from spark_jobs.sources import FORMATS
from spark_jobs.submitting import names, opened, required_uri, submitted
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS
from spatialnosql.info import GH_FIELD
from spatialnosql.ingestion import Ingestion
from spatialnosql.precision_plot import check_plot, draw_precisions
from spatialnosql.sharding import EVEN
from spatialnosql.uri import URI_VARIABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    source = parser.add_argument_group("source")
    source.add_argument("inputs", nargs="*", metavar="INPUT", help="files, globs or folders of one format")
    source.add_argument("--from", dest="source", metavar="DB.COLLECTION", help="a staging collection instead")
    source.add_argument("--format", choices=FORMATS, help="format of the inputs (default: by their names)")
    source.add_argument(
        "--read-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_pair,
        help="of Spark's reader, e.g. sep=; may be repeated",
    )
    source.add_argument(
        "--scratch", metavar="FOLDER", help="where GeoJSON is rewritten as lines (default: /tmp)"
    )
    source.add_argument("--lon", metavar="COLUMN", help="longitudes (default: lng, lon, long, longitude, x)")
    source.add_argument("--lat", metavar="COLUMN", help="latitudes (default: lat, latitude, y)")
    source.add_argument(
        "--point", metavar="COLUMN", help="GeoJSON points or pairs, instead of --lon and --lat"
    )
    source.add_argument("--limit", type=_positive, metavar="N", help="take only so many rows")
    target = parser.add_argument_group("documents")
    target.add_argument(
        "--into", required=True, metavar="DB.COLLECTION", help="the collection to fill or append to"
    )
    target.add_argument(
        "--select", type=names, default=(), metavar="A,B", help="columns to store (default: all others)"
    )
    target.add_argument(
        "--rename", metavar="OLD=NEW", action="append", default=[], type=_pair, help="may be repeated"
    )
    target.add_argument(
        "--key",
        type=names,
        default=(),
        metavar="A,B",
        help="columns that identify a row: the same key again replaces it, wherever it was "
        "(default: _id of a staging collection, else a digest of the row; equal rows of one batch are all kept)",
    )
    target.add_argument(
        "--location", default="loc", metavar="FIELD", help="of the point (default: %(default)s)"
    )
    target.add_argument(
        "--gh", default=GH_FIELD, metavar="FIELD", help="of the geohash (default: %(default)s)"
    )
    target.add_argument(
        "--mark",
        metavar="FIELD",
        help="store the name of the batch in this field, so that `spatialnosql match` finds what is new "
        "(default: as earlier batches have it)",
    )
    _add_stk(parser)
    checks = parser.add_argument_group("bad rows (kept in COLLECTION_quarantine)")
    checks.add_argument(
        "--max-bad",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="more of them, and nothing is written (default: 5%%)",
    )
    checks.add_argument("--bounds", metavar="W,S,E,N", help="rows outside are bad, swapped ones found by it")
    checks.add_argument("--reject-zero", action="store_true", help="rows at 0, 0 are bad")
    checks.add_argument("--keep-swapped", action="store_true", help="do not look for swapped coordinates")
    cluster = parser.add_argument_group("shards")
    cluster.add_argument(
        "--precision",
        type=_bits,
        metavar="BITS",
        help="of the cells that chunks are cut at (default: chosen)",
    )
    cluster.add_argument(
        "--drift",
        type=float,
        default=EVEN,
        metavar="RATIO",
        help="fullest shard over the mean at which chunks are cut anew and moved (default: %(default)s)",
    )
    cluster.add_argument(
        "--reshard", action="store_true", help="let the server rewrite the collection evenly"
    )
    cluster.add_argument("--no-validator", action="store_true", help="do not let the server guarantee gh")
    cluster.add_argument(
        "--write-concern", metavar="W", help="majority, or a number (default: the cluster's)"
    )
    parser.add_argument(
        "--batch", metavar="NAME", help="in the ledger (default: from names, sizes and times)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the precisions: .png, .svg or .pdf")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")
    parser.add_argument("--uri", metavar="URI", help=f"MongoDB deployment (default: ${URI_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_spark_arguments(parser)


def _add_stk(parser: argparse.ArgumentParser) -> None:
    stk = parser.add_argument_group("queries by place, time and words (documents come sealed, with filters)")
    stk.add_argument(
        "--time",
        metavar="COLUMN",
        help="stored as a date: times, dates, text as 2026-03-01T20:00:00Z, or seconds or milliseconds since 1970",
    )
    stk.add_argument("--text", metavar="COLUMN", help="read the words from this text, into the field words")
    stk.add_argument("--words", metavar="COLUMN", help="lists of words, instead of --text")
    stk.add_argument("--stem", choices=["english", "none"], help="take floods for flood (default: none)")
    stk.add_argument(
        "--stop-words", choices=["english", "none"], help="words to leave out of texts (default: english)"
    )
    stk.add_argument(
        "--time-bin",
        type=_positive,
        metavar="SECONDS",
        help="length of a time bin (default: chosen from the data)",
    )
    stk.add_argument(
        "--time-cell",
        type=_bits,
        metavar="BITS",
        help="of the geohash of a cell (default: chosen from the data)",
    )


def _stk_columns(args: argparse.Namespace) -> StkColumns | None:
    if args.time is not None:
        if args.no_validator:
            raise UsageError("--time rests on the validator; leave out --no-validator")
        return StkColumns(
            args.time, args.text, args.words, args.time_bin, args.time_cell, args.stem, args.stop_words
        )
    for name in ("text", "words", "stem", "stop_words", "time_bin", "time_cell"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --time COLUMN")
    return None


def job_of(args: argparse.Namespace) -> Job:
    """What the arguments ask for; refuses what cannot be meant, before Spark is started."""
    if bool(args.inputs) == bool(args.source):
        raise UsageError("give either INPUT files or --from DB.COLLECTION")
    if args.point and (args.lon or args.lat):
        raise UsageError("give either --point or --lon and --lat")
    if args.source == args.into:
        raise UsageError(f"{args.into} cannot be its own staging collection; to make it spatial, use adopt")
    if args.drift < 1:
        raise UsageError(f"--drift {args.drift:g}: the fullest shard holds at least the mean, so 1 or more")
    return Job(
        args.into,
        tuple(args.inputs),
        args.source,
        args.format,
        dict(args.read_option),
        args.scratch,
        args.lon,
        args.lat,
        args.point or ("geometry" if _is_geojson(args) and not (args.lon or args.lat) else None),
        args.select,
        dict(args.rename),
        args.key,
        args.location,
        args.gh,
        args.mark,
        args.limit,
        args.batch,
        args.max_bad,
        parse_bounds(args.bounds) if args.bounds else None,
        args.reject_zero,
        not args.keep_swapped,
        args.precision,
        args.drift,
        args.reshard,
        not args.no_validator,
        args.write_concern,
        args.dry_run,
        _stk_columns(args),
    )


def _is_geojson(args: argparse.Namespace) -> bool:
    from spark_jobs.points import format_of

    return bool(args.inputs) and (args.format or format_of(args.inputs, FORMATS)) == "geojson"


def run(args: argparse.Namespace) -> int:
    """Run the job and print its summary."""
    job = job_of(args)
    check_plot(args.plot)
    uri = required_uri(args)
    with spark_errors(debug=args.debug):
        outcome = run_job(job, uri, args)
    print(json.dumps(outcome.to_document()) if args.json else "\n".join(outcome.lines()))
    if args.plot and outcome.choice is not None:
        draw_precisions(outcome.choice, args.plot, outcome.namespace)
    return 0


def run_job(job: Job, uri: str, args: argparse.Namespace) -> Ingestion:
    """Start Spark, or use the one that is there, and ingest."""
    with opened("spatialnosql ingest", uri, args, LOAD_MASTER) as (client, spark, start_s):
        return ingest(spark, uri, client, job, spark_start_s=start_s)


def main() -> int:
    """The job under spark-submit."""
    return submitted("ingest.py", __doc__, add_arguments, run)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return key, value


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share; write 0.05 or 5%")
    return share


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return int(text)


def _bits(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= BITS:
        raise argparse.ArgumentTypeError(f"{text} is not a number of bits from 1 to {BITS}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
