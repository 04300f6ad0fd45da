"""``spatialnosql verify city.trips [--repair]``: is every ``gh`` right? Exit code 1 if not, and not mended."""

from __future__ import annotations

import argparse
import json

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, add_common_arguments
from spatialnosql.target import add_target, opened_collection
from spatialnosql.verify import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target(parser)
    parser.add_argument("--repair", action="store_true", help="mend what can be mended, on the server")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Verify, and say what is wrong."""
    with opened_collection(args) as collection:
        found = verify(collection, repair=args.repair, progress=True)
    print(json.dumps(found.to_document()) if args.json else "\n".join(found.lines()))
    return EXIT_OK if found.is_sound else EXIT_ERROR
