"""``spatialnosql analyze city.trips``: count the cells of a collection anew, and choose the precision."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spatialnosql.analyze import analyze
from spatialnosql.calibrate import calibrate, lines
from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.precision_plot import check_plot, draw_precisions
from spatialnosql.skew import BOUND
from spatialnosql.target import add_target, opened_collection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target(parser)
    parser.add_argument("--precision", type=int, metavar="BITS", help="choose this one")
    parser.add_argument(
        "--shards", type=int, metavar="N", help="choose as for so many (default: those there are)"
    )
    parser.add_argument(
        "--bound",
        type=float,
        default=BOUND,
        metavar="RATIO",
        help="what the fullest shard may hold, times the mean (default: %(default)s)",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="also measure what keys, documents, ranges and tests cost here, by which forms of a query are chosen",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the precisions: .png, .svg or .pdf")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Analyze, and show the table."""
    check_plot(args.plot)
    with opened_collection(args) as collection:
        analysis = analyze(collection, precision=args.precision, shards=args.shards, bound=args.bound)
        costs = calibrate(collection) if args.calibrate else None
    if args.json:
        measured = {"costs": costs.to_document()} if costs is not None else {}
        print(json.dumps(analysis.to_document() | measured))
    else:
        print("\n".join([*analysis.lines(), *(lines(costs) if costs is not None else ())]))
    if args.plot:
        draw_precisions(analysis.choice, args.plot, analysis.namespace)
    return EXIT_OK
