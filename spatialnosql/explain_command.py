"""``spatialnosql explain``: what a query touches, as it is and rewritten."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo.collection import Collection

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.explain import Explanation
from spatialnosql.metadata import load_info
from spatialnosql.rewrite import QoS
from spatialnosql.steps import run as run_steps
from spatialnosql.target import add_target, opened_collection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql explain``."""
    add_target(parser)
    parser.add_argument(
        "query",
        metavar="QUERY",
        help="a filter or a pipeline as JSON, @FILE to read it from a file, or - for stdin",
    )
    parser.add_argument("--limit", type=int, default=0, help="of the find (for near: how many are wanted)")
    parser.add_argument("--count", action="store_true", help="explain a count of the filter, not a find")
    parser.add_argument(
        "--form",
        choices=("cheapest", "server", "client"),
        default="cheapest",
        help="who tests the boundary of a shape (default: whoever does it cheaper)",
    )
    parser.add_argument("--prefer", choices=("latency", "throughput"), default="latency")
    parser.add_argument(
        "--precision", choices=("cost", "selectivity"), default="cost", help="see QoS in the README"
    )
    parser.add_argument("--max-ranges", type=int, metavar="N", help="cap the ranges of a cover")
    parser.add_argument("--trust-gh", action="store_true", help="rewrite without a validator's guarantee")
    parser.add_argument("--show-query", action="store_true", help="print the rewritten query too")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with the shape and its cover, too"
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Explain one query."""
    query = read_query(args.query)
    if args.count and not isinstance(query, dict):
        raise UsageError("--count is for a filter; a pipeline counts by its own stages")
    if args.html is not None:
        from spatialnosql.report.write import check_out

        check_out(args.html, "--html")
    qos = QoS(prefer=args.prefer, precision=args.precision, max_ranges=args.max_ranges, form=args.form)
    with opened_collection(args) as plain:
        spatial = SpatialCollection(plain, qos=qos, trust_gh=args.trust_gh)
        limited = {"limit": args.limit} if args.limit else {}
        explanation = spatial.explain(query, **({"count": True} if args.count else limited))
        if args.html is not None:
            write_html(args, plain, query, explanation, qos)
    sent = explanation.plan.filter if explanation.plan.filter is not None else explanation.plan.pipeline
    if args.json:
        document = explanation.to_dict()
        if args.show_query:
            document["sent"] = json.loads(json_util.dumps(sent))
        print(json.dumps(document))
        return EXIT_OK
    print(explanation)
    if args.show_query:
        print("\n" + json_util.dumps(sent, indent=2))
    return EXIT_OK


def write_html(
    args: argparse.Namespace,
    plain: Collection[dict[str, Any]],
    query: Any,
    explanation: Explanation,
    qos: QoS,
) -> None:
    """The explanation as a page, of the same parts as a report."""
    from spatialnosql.report.gather import gather
    from spatialnosql.report.gather_queries import Asked, query_facts
    from spatialnosql.report.model import Report
    from spatialnosql.report.write import explain_page, write_page

    facts = gather(plain, trust_gh=args.trust_gh)
    info = run_steps(load_info(plain, trust_gh=args.trust_gh))
    shown = query_facts(explanation, Asked(query, None, args.count, max(args.limit, 0)), info, qos)
    write_page(explain_page(Report(facts, [shown])), args.html)
    print(f"{args.html}: written", file=sys.stderr)


def read_query(text: str) -> Any:
    """A filter or a pipeline from the command line, a file or standard input, as extended JSON."""
    source = sys.stdin.read() if text == "-" else Path(text[1:]).read_text() if text.startswith("@") else text
    try:
        query = json_util.loads(source)
    except ValueError as error:
        raise UsageError(f"the query is no JSON: {error}") from error
    if not isinstance(query, dict | list):
        raise UsageError("the query must be a filter ({...}) or a pipeline ([...])")
    return query
