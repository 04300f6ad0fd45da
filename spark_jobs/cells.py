"""Count points by geohash cell: ``spatialnosql cells ...`` or ``spark-submit spark_jobs/cells.py ...``.

One pass over the points; rows without a valid point are counted, not dropped in silence.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# spark-submit is given this file alone: then the packages are beside it, wherever that is.
if importlib.util.find_spec("spatialnosql") is None or importlib.util.find_spec("spark_jobs") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.geohash_column import BITS, GEOHASH_DIGITS, cell_at, cell_column
from spark_jobs.points import FORMATS, LAT, LNG, read_collection, read_files, select_points
from spark_jobs.session import add_spark_arguments, build_session, session_config, spark_errors
from spark_jobs.submitting import submitted
from spatialnosql.errors import UsageError
from spatialnosql.uri import URI_VARIABLE, resolve_uri

DEFAULT_BITS = 30


@dataclass(frozen=True)
class CellCount:
    """A cell, its name, its bounds in degrees and the number of points in it."""

    cell: int
    name: str
    west: float
    south: float
    east: float
    north: float
    count: int


@dataclass(frozen=True)
class Summary:
    """What the job found."""

    bits: int
    rows: int
    rows_without_point: int
    cells: int
    seconds: float
    top: list[CellCount]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="files, globs or folders of one format")
    parser.add_argument("--format", choices=FORMATS, help="format of the inputs (default: by their names)")
    parser.add_argument("--from", dest="source", metavar="DB.COLLECTION", help="read a collection instead")
    parser.add_argument("--location", metavar="FIELD", help="field or column of GeoJSON points or pairs")
    parser.add_argument("--lon", metavar="COLUMN", help="column of longitudes (default: lng, lon, ..., x)")
    parser.add_argument("--lat", metavar="COLUMN", help="column of latitudes (default: lat, latitude, y)")
    parser.add_argument(
        "--precision", type=_bits, default=DEFAULT_BITS, metavar="BITS", help="1 to 60 (default: %(default)s)"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="heaviest cells shown (default: 10)")
    parser.add_argument("--out", metavar="FILE.parquet", help="write cell and count of every cell; replaced")
    parser.add_argument("--uri", metavar="URI", help=f"MongoDB deployment (default: ${URI_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_spark_arguments(parser)


def transform(points: DataFrame, bits: int) -> DataFrame:
    """``cell`` and ``count`` of every cell of a precision; the row whose cell is null counts the invalid."""
    cell = cell_at(cell_column(F.col(LNG), F.col(LAT)), bits)
    return points.groupBy(cell.alias("cell")).count()


def run(args: argparse.Namespace) -> int:
    """Run the job and print its summary."""
    check(args)
    with spark_errors(debug=args.debug):
        summary = count_cells(args)
    print(json.dumps(asdict(summary)) if args.json else describe(summary))
    return 0


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be meant, before Spark is started."""
    if bool(args.inputs) == bool(args.source):
        raise UsageError("give either INPUT files or --from DB.COLLECTION")
    if args.source and resolve_uri(args.uri) is None:
        raise UsageError(f"--from needs a MongoDB: give --uri or set {URI_VARIABLE}")
    if args.source and (args.lon or args.lat):
        raise UsageError("a collection has a --location FIELD, not --lon and --lat")
    if args.out and Path(args.out).suffix != ".parquet":
        raise UsageError(f"--out {args.out}: it is replaced if it exists, so its name must end in .parquet")
    if args.out and Path(args.out).resolve() in {Path(path).resolve() for path in args.inputs}:
        raise UsageError(f"--out {args.out} is also an input")


def count_cells(args: argparse.Namespace) -> Summary:
    """Read, count, write."""
    uri = resolve_uri(args.uri) if args.source else None
    spark = build_session(
        "spatialnosql cells", master=args.master, mongo_uri=uri, config=session_config(args)
    )
    started = time.monotonic()
    if args.source:
        points = read_collection(spark, args.source, args.location or "location")
    else:
        rows = read_files(spark, args.inputs, args.format)
        points = select_points(rows, lng=args.lon, lat=args.lat, location=args.location)
    counts = transform(points, args.precision).persist()
    try:
        rows_read, without_point = counts.select(
            F.coalesce(F.sum("count"), F.lit(0)),
            F.coalesce(F.sum(F.when(F.col("cell").isNull(), F.col("count"))), F.lit(0)),
        ).collect()[0]
        cells = counts.where("cell IS NOT NULL")
        if args.out:
            cells.orderBy("cell").write.mode("overwrite").parquet(args.out)
        heaviest = cells.orderBy(F.desc("count"), "cell").limit(max(args.top, 0)).collect()
        top = [cell_count(row["cell"], args.precision, row["count"]) for row in heaviest]
        seconds = round(time.monotonic() - started, 3)
        return Summary(args.precision, rows_read, without_point, cells.count(), seconds, top)
    finally:
        counts.unpersist()


def cell_count(cell: int, bits: int, count: int) -> CellCount:
    """A cell with what people want to know of it; its even bits are longitude, its odd ones latitude."""
    digits = format(cell, f"0{bits}b")
    west, east = _interval(digits[0::2], 360.0)
    south, north = _interval(digits[1::2], 180.0)
    return CellCount(cell, cell_name(digits), west, south, east, north, count)


def _interval(digits: str, degrees: float) -> tuple[float, float]:
    size = degrees / 2 ** len(digits)
    low = int(digits or "0", 2) * size - degrees / 2
    return low, low + size


def cell_name(digits: str) -> str:
    """The geohash of a cell given in binary; bits that make no whole character follow a colon."""
    whole = len(digits) // 5 * 5
    name = "".join(GEOHASH_DIGITS[int(digits[at : at + 5], 2)] for at in range(0, whole, 5))
    return f"{name}:{digits[whole:]}" if digits[whole:] else name


def describe(summary: Summary) -> str:
    """The summary for people."""
    lines = [
        f"rows read              {summary.rows:>14,}",
        f"without a valid point  {summary.rows_without_point:>14,}",
        f"cells of {summary.bits:2d} bits       {summary.cells:>14,}",
        f"seconds                {summary.seconds:>14.1f}",
    ]
    if summary.top:
        lines += [
            "",
            f"{'heaviest cell':<16}{'west':>13}{'south':>13}{'east':>13}{'north':>13}{'points':>14}",
        ]
    for cell in summary.top:
        bounds = "".join(f"{value:13.6f}" for value in (cell.west, cell.south, cell.east, cell.north))
        lines.append(f"{cell.name:<16}{bounds}{cell.count:>14,}")
    return "\n".join(lines)


def main() -> int:
    """The job under spark-submit."""
    return submitted("cells.py", __doc__, add_arguments, run)


def _bits(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= BITS:
        raise argparse.ArgumentTypeError(f"{text} is not a number of bits from 1 to {BITS}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
