"""``spatialnosql grid city.trips --cells 500``: points by geohash cell, as a table, JSON or GeoJSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.collection import SpatialCollection
from spatialnosql.cover_command import read_shapes
from spatialnosql.errors import UsageError
from spatialnosql.joins.arguments import add_asked, asked_of, read_document
from spatialnosql.joins.grid import CENTRES, grid
from spatialnosql.joins.grid_cells import Grid
from spatialnosql.joins.grid_precision import MOST_CELLS
from spatialnosql.joins.weights import Weight
from spatialnosql.target import add_target, opened_collection

_CELLS = 500
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql grid``."""
    add_target(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--region", metavar="FILE", help="GeoJSON of the region; - reads standard input")
    where.add_argument(
        "--within", metavar="JSON", help="the region as $geoWithin takes it: '{\"$box\": [[0, 0], [1, 1]]}'"
    )
    fine = parser.add_mutually_exclusive_group()
    fine.add_argument("--bits", type=int, metavar="N", help="the precision of the cells, 0 to 60 bits")
    fine.add_argument(
        "--cells", type=int, metavar="N", help=f"about so many cells, by the statistics (default: {_CELLS})"
    )
    parser.add_argument(
        "--centre", choices=CENTRES, default="index", help="the centres of points (default: %(default)s)"
    )
    add_asked(parser)
    parser.add_argument(
        "--most-cells",
        type=int,
        default=MOST_CELLS,
        metavar="N",
        help="an error beyond (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all cells as GeoJSON")
    parser.add_argument(
        "--points", action="store_true", help="with --out: the centres as points, not the cells as polygons"
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for the grid, write and print it."""
    if args.points and (args.out is None or args.centre == "none"):
        raise UsageError("--points are the centres in the file of --out; give --out, and no --centre none")
    region = _region(args)
    cells = _CELLS if args.bits is None and args.cells is None else args.cells
    with opened_collection(args) as collection:
        made = grid(
            SpatialCollection(collection, trust_gh=args.trust_gh),
            region,
            args.bits,
            cells=cells,
            centre=args.centre,
            most_cells=args.most_cells,
            **asked_of(args),
        )
    if args.out is not None:
        args.out.write_text(json.dumps(made.to_geojson(centres=args.points)) + "\n")
    if args.json:
        print(json.dumps(made.to_document()))
    else:
        print("\n".join(_lines(args.namespace, made, args.weight)))
        if args.out is not None:
            print(f"Written: {args.out}")
    return EXIT_OK


def _region(args: argparse.Namespace) -> Any:
    if args.within is not None:
        return read_document(args.within, "--within")
    if args.region is None:
        return None
    shapes = [shape.geometry for shape in read_shapes(args.region)]
    return shapes[0] if len(shapes) == 1 else {"type": "GeometryCollection", "geometries": shapes}


def _lines(namespace: str, made: Grid, weight: Weight | None) -> Iterator[str]:
    yield f"{namespace}: {made.total:,} points in {len(made):,} cells of {made.bits} bits, {made.how}"
    if made.as_of is not None:
        yield f"{str(made.as_of)[0].upper()}{str(made.as_of)[1:]}"
    if made.unplaced:
        yield f"In no cell, for they have no one place: {made.unplaced:,} documents"
    measure = "" if weight is None else f"{weight.measure}:{weight.field}"
    if weight is not None:
        yield f"{measure} of all: {_number(made.value)}"
    if made.centre_error is not None and len(made):
        yield f"Centres are off by at most {made.centre_error:.2g} of a cell's width and height"
    shown = made.top(_SHOWN)
    if not shown:
        return
    width = max(5, *(len(row.cell) for row in shown))
    estimated = shown[0].low is not None
    head = [f"{'cell':{width}}", f"{'count':>12}"]
    head += [f"{measure:>16}"] if weight is not None else []
    head += [f"{'at least':>12}", f"{'at most':>12}"] if estimated else []
    yield "  " + "  ".join([*head, "centre"] if shown[0].centre is not None else head)
    for row in shown:
        line = [f"{row.cell or '(all)':{width}}", f"{row.count:>12,}"]
        line += [f"{_number(row.value):>16}"] if weight is not None else []
        line += [f"{row.low:>12,}", f"{row.high:>12,}"] if estimated else []
        line += [f"{row.centre[0]:.6f}, {row.centre[1]:.6f}"] if row.centre is not None else []
        yield "  " + "  ".join(line)
    if len(made) > len(shown):
        yield f"  and {len(made) - len(shown):,} more"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
