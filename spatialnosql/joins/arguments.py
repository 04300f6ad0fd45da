"""Options that the commands of joins share: which points, what of them, of which moment."""

from __future__ import annotations

import argparse
from typing import Any

from spatialnosql.errors import UsageError
from spatialnosql.explain_command import read_query
from spatialnosql.joins.asked import AS_OF, BORDERS
from spatialnosql.joins.weights import MEASURES, Weight


def add_asked(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    add_filter(parser)
    parser.add_argument(
        "--weight",
        type=_weight,
        metavar="MEASURE:FIELD",
        help=f"a measure of a field, not the number of points: {', '.join(MEASURES)}, as in avg:fare",
    )
    parser.add_argument(
        "--as-of", choices=(AS_OF,), help="answer from the statistics; says of which moment they are"
    )
    parser.add_argument(
        "--borders",
        choices=BORDERS,
        default="read",
        help="with --as-of: read the keys at the borders as they are now, or read nothing and estimate "
        "(default: %(default)s)",
    )
    parser.add_argument("--consistent", action="store_true", help="read all points as they are at one moment")
    parser.add_argument("--trust-gh", action="store_true", help="count without a validator's guarantee")


def add_filter(parser: Any) -> None:
    """Add ``--filter`` alone."""
    parser.add_argument(
        "--filter",
        metavar="JSON",
        help="which points: a filter, @FILE to read it from a file, or - for stdin",
    )


def asked_of(args: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, as arguments of a call."""
    given = {name: getattr(args, name) for name in ("weight", "as_of", "borders", "consistent")}
    return {"filter": read_filter(args), **given}


def read_filter(args: argparse.Namespace) -> dict[str, Any] | None:
    """The document of ``--filter``, if there is one."""
    return None if args.filter is None else read_document(args.filter, "--filter")


def read_document(text: str, option: str) -> dict[str, Any]:
    """A document of extended JSON: as it is, in a file, or from standard input."""
    try:
        query = read_query(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None
    if not isinstance(query, dict):
        raise UsageError(f"{option} takes a document ({{...}}), not a pipeline")
    return query


def _weight(text: str) -> Weight:
    measure, colon, field = text.partition(":")
    if not colon:
        measure, field = "sum", text
    if measure not in MEASURES or not field:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(MEASURES)}, a colon and a field")
    return Weight(measure, field)
