"""``spatialnosql top city.trips city.neighborhoods -n 10``: the polygons with most points, or most of a field."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bson import json_util
from pymongo.collection import Collection

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.joins.arguments import add_asked, asked_of
from spatialnosql.joins.polygon_file import read_features
from spatialnosql.joins.polygons import sorted_out
from spatialnosql.joins.tallies import Tallies, Tally
from spatialnosql.joins.top_n import top_n
from spatialnosql.joins.weights import Weight
from spatialnosql.target import add_target, opened_collection, split_namespace

_WIDEST_ID = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql top``."""
    add_target(parser)
    parser.add_argument(
        "polygons",
        metavar="POLYGONS",
        help="the collection of polygons, as in city.neighborhoods; or @FILE, a GeoJSON file",
    )
    parser.add_argument(
        "-n", type=_number, default=10, metavar="N", help="how many (default: %(default)s; 0: all)"
    )
    parser.add_argument("--all", dest="n", action="store_const", const=0, help="every polygon, ranked")
    parser.add_argument("--least", action="store_true", help="those with the fewest, or least")
    add_asked(parser)
    add_common_arguments(parser)


def _number(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below zero")
    return value


def run(args: argparse.Namespace) -> int:
    """Rank, and print."""
    with opened_collection(args) as plain:
        found = top_n(
            SpatialCollection(plain, trust_gh=args.trust_gh),
            _polygons(args.polygons, plain),
            args.n or sys.maxsize,
            least=args.least,
            **asked_of(args),
        )
    if args.json:
        document = to_document(args.namespace, args.polygons, found)
        print(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    else:
        print("\n".join(_lines(found, args.weight)))
    return EXIT_OK


def _polygons(name: str, points: Collection[dict[str, Any]]) -> Any:
    """The collection, or the polygons of a file; what is bad in it is said on stderr."""
    if not name.startswith("@"):
        database, collection = split_namespace(name)
        return points.database.client[database][collection]
    good, bad = sorted_out(read_features(name[1:]))
    for one in bad:
        print(f"left out: {one.name}: {one.reason}", file=sys.stderr)
    if not good:
        raise UsageError(f"{name[1:]} has no polygon that MongoDB would take")
    return good


def to_document(points: str, polygons: str, tallies: Tallies) -> dict[str, Any]:
    """For JSON."""
    as_of: Mapping[str, Any] | None = None
    if tallies.as_of is not None:
        known = tallies.as_of
        as_of = {"moment": known.moment.isoformat(), "points": known.points, "keys_read": known.keys_read}
    rows = [{"rank": rank, **tally.to_document()} for rank, tally in enumerate(tallies, 1)]
    return {"points": points, "polygons": polygons, "rows": rows, "as_of": as_of}


def _lines(tallies: Tallies, weight: Weight | None) -> Iterator[str]:
    columns = ["id", "points"]
    if weight is not None:
        columns.insert(1, f"{weight.measure} of {weight.field}")
    estimated = any(tally.low is not None for tally in tallies)
    if estimated:
        columns += ["at least", "at most"]
    rows = [_cells(tally, weight, estimated) for tally in tallies]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for rank, row in enumerate([columns, *rows]):
        numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"{rank or 'rank':>4}  {row[0]:{widths[0]}}  {numbers}"
    if tallies.as_of is not None:
        yield str(tallies.as_of)


def _cells(tally: Tally, weight: Weight | None, estimated: bool) -> list[str]:
    named = str(tally.id)
    cells = [named if len(named) <= _WIDEST_ID else f"{named[: _WIDEST_ID - 3]}..."]
    if weight is not None:
        cells.append(_value(tally.value))
    cells.append(f"{tally.count:,}")
    return [*cells, f"{tally.low:,}", f"{tally.high:,}"] if estimated else cells


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 or value == 0 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
