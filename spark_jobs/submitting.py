"""What the jobs' files share under spark-submit: the same arguments as the command, errors in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from pymongo.errors import PyMongoError

from spatialnosql.cli import explain
from spatialnosql.errors import SpatialNoSQLError


def submitted(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
) -> int:
    """Run a job by the arguments of this process, and return its exit code."""
    parser = argparse.ArgumentParser(prog=name, description=(description or "").partition("\n")[0])
    add_arguments(parser)
    args = parser.parse_args()
    try:
        return run(args)
    except (SpatialNoSQLError, PyMongoError, OSError) as error:
        if args.debug:
            raise
        print(f"{name}: {explain(error)}", file=sys.stderr)
        return 1


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
