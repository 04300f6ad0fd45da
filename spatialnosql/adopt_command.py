"""``spatialnosql adopt city.trips --location loc``: make an existing collection spatial in place."""

from __future__ import annotations

import argparse
import json

from spatialnosql.adopt import adopt
from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.info import GH_FIELD
from spatialnosql.target import add_target, opened_collection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target(parser)
    parser.add_argument("--location", required=True, metavar="FIELD", help="the field with the points")
    parser.add_argument(
        "--gh", default=GH_FIELD, metavar="NAME", help="the field to keep geohashes in (default: %(default)s)"
    )
    parser.add_argument(
        "--form", choices=("geojson", "legacy", "any"), help="how points are written (default: as found)"
    )
    parser.add_argument(
        "--allow-unhashed",
        action="store_true",
        help="take documents whose location is no single point, now and later; they get no geohash",
    )
    parser.add_argument(
        "--replace-gh", action="store_true", help="overwrite the field if it is used for something else"
    )
    parser.add_argument("--no-shard", action="store_true", help="leave the collection on the shards it is on")
    parser.add_argument(
        "--rebalance", action="store_true", help="move documents even if it is sharded by geohash already"
    )
    parser.add_argument(
        "--no-validator",
        action="store_true",
        help="do not let the server refuse a wrong geohash; queries are then rewritten with trust_gh=True only",
    )
    parser.add_argument(
        "--precision", type=int, metavar="BITS", help="of the cells that chunks are cut at (default: chosen)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Adopt, and say what was done."""
    with opened_collection(args) as collection:
        adoption = adopt(
            collection,
            args.location,
            gh=args.gh,
            form=args.form,
            allow_unhashed=args.allow_unhashed,
            replace_gh=args.replace_gh,
            shard=not args.no_shard,
            rebalance=args.rebalance,
            validator=not args.no_validator,
            precision=args.precision,
            dry_run=args.dry_run,
            progress=True,
        )
    print(json.dumps(adoption.to_document()) if args.json else "\n".join(adoption.lines()))
    return EXIT_OK
