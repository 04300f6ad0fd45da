"""``spatialnosql report city.trips --out report.html``: a collection on its shards, as a page to open."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo.collection import Collection

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, add_common_arguments
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.report.gather import gather
from spatialnosql.report.gather_polygons import count_polygons, open_polygons
from spatialnosql.report.gather_queries import Asked, explain_query, read_asked
from spatialnosql.report.gather_subscriptions import Planned, gather_subscriptions
from spatialnosql.report.model import Report
from spatialnosql.report.style import size
from spatialnosql.report.write import check_out, report_page, write_page
from spatialnosql.target import add_target, opened_collection, split_namespace

EPILOG = """\
A file of queries holds one, or a list of them:
  [{"name": "the old town", "query": {"loc": {"$geoWithin": ...}}, "count": true},
   {"name": "nearest ten", "query": {"loc": {"$nearSphere": ...}}, "limit": 10}]

The page is one file of about 2 MB. Opening it asks no host for anything, so it can be mailed or archived.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql report``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_target(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page (default: %(default)s)",
    )
    parser.add_argument("--title", metavar="TEXT", help="of the page (default: the collection's name)")
    parser.add_argument(
        "--fresh", action="store_true", help="count the points now, instead of showing the last analysis"
    )
    parser.add_argument("--trust-gh", action="store_true", help="rewrite without a validator's guarantee")
    queries = parser.add_argument_group("queries")
    queries.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="JSON|FILE",
        help="explain it, as it is and rewritten; may be given many times",
    )
    queries.add_argument(
        "--no-answers", action="store_true", help="explain queries only; do not also ask them both ways"
    )
    polygons = parser.add_argument_group("polygons")
    polygons.add_argument(
        "--polygons", metavar="DB.COLL|@FILE", help="count the points of each: a collection or a GeoJSON file"
    )
    polygons.add_argument(
        "--top", type=int, default=10, metavar="N", help="how many to rank (default: %(default)s)"
    )
    alerts = parser.add_argument_group("subscriptions")
    alerts.add_argument("--subscriptions", metavar="DB.COLL", help="show the load of their partitions")
    alerts.add_argument("--partitioner", default="hybrid", metavar="NAME", help="default: %(default)s")
    alerts.add_argument("--partitions", type=int, default=8, metavar="N", help="default: %(default)s")
    alerts.add_argument("--plan", type=Path, metavar="FILE.npz", help="a saved plan, instead of a new one")
    alerts.add_argument(
        "--objects", metavar="DB.COLL", help="whose objects to plan for (default: those that matched before)"
    )
    alerts.add_argument(
        "--text", default="text", metavar="FIELD", help="of the objects (default: %(default)s)"
    )
    alerts.add_argument(
        "--objects-location", default="loc", metavar="FIELD", help="of the objects (default: %(default)s)"
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Gather, draw, write. Exit code 1 if two ways to ask gave different answers."""
    check_out(args.out)
    if args.plan is not None and not args.plan.is_file():
        raise UsageError(f"--plan {args.plan}: there is no such file")
    asked = [one for text in args.query for one in read_asked(text)]
    with opened_collection(args) as collection:
        report = gather_report(collection, args, asked)
    with _step("drawing"):
        written = write_page(report_page(report), args.out)
    if args.json:
        print(json.dumps(to_document(report, args.out, written)))
    else:
        print(f"{args.out}: {size(written)}")
    equal = all(query.answers is None or query.answers.equal for query in report.queries)
    return EXIT_OK if equal else EXIT_ERROR


def gather_report(
    collection: Collection[dict[str, Any]], args: argparse.Namespace, asked: list[Asked]
) -> Report:
    """Everything that was asked for, from the live cluster."""
    notes: list[str] = []
    with _step("reading the collection"):
        facts = gather(collection, fresh=args.fresh, trust_gh=args.trust_gh)
    queries = []
    for place, one in enumerate(asked, 1):
        with _step(f"query {place} of {len(asked)}"):
            queries.append(
                explain_query(collection, one, place, trust_gh=args.trust_gh, answer=not args.no_answers)
            )
    top = None
    if args.polygons is not None:
        with _step("counting by polygon"):
            polygons, bad = open_polygons(args.polygons, collection)
            spatial = SpatialCollection(collection, trust_gh=args.trust_gh)
            top = count_polygons(spatial, polygons, args.polygons.removeprefix("@"), args.top)
        if bad:
            notes.append(
                f"{bad:,} shapes of {args.polygons.removeprefix('@')} are no polygons that MongoDB takes."
            )
    alerts = None
    if args.subscriptions is not None:
        with _step("planning partitions"):
            alerts = gather_subscriptions(_named(collection, args.subscriptions), _planned(collection, args))
    return Report(facts, queries, top, alerts, args.title, notes)


def _planned(collection: Collection[dict[str, Any]], args: argparse.Namespace) -> Planned:
    objects = _named(collection, args.objects) if args.objects is not None else None
    return Planned(args.partitioner, args.partitions, args.plan, objects, args.text, args.objects_location)


def _named(beside: Collection[dict[str, Any]], namespace: str) -> Collection[dict[str, Any]]:
    database, name = split_namespace(namespace)
    return beside.database.client[database][name]


@contextmanager
def _step(words: str) -> Iterator[None]:
    """What is being done now, and how long it took; on stderr."""
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    if terminal:
        print(f"{words} ...", end="", file=sys.stderr, flush=True)
    yield
    end = "\r\x1b[K" if terminal else ""
    print(f"{end}{words}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def to_document(report: Report, path: Path, written: int) -> dict[str, Any]:
    """For programs: where the page is, and the figures that it begins with."""
    facts = report.facts
    return {
        "out": str(path),
        "bytes": written,
        "namespace": facts.namespace,
        "documents": facts.documents,
        "shards": {shard.name: shard.documents for shard in facts.shards},
        "chunks": len(facts.chunks),
        "imbalance": round(facts.imbalance, 4),
        "precision": facts.choice.bits if facts.choice is not None else None,
        "queries": [
            {
                "title": query.title,
                "rewritten": query.rewritten,
                "equal": query.answers.equal if query.answers is not None else None,
            }
            for query in report.queries
        ],
        "polygons": report.top.total if report.top is not None else None,
        "subscriptions": report.subscriptions.count if report.subscriptions is not None else None,
    }
