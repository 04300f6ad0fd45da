"""``spatialnosql subscribe add | load | remove | list | show``: the subscriptions of a collection."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from bson import json_util

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, add_common_arguments
from spatialnosql.errors import UsageError
from spatialnosql.progress import Progress
from spatialnosql.subscriptions.keywords import to_expression
from spatialnosql.subscriptions.model import Subscription
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.store_writing import Added
from spatialnosql.subscriptions.subscription_file import count_lines, read_rows
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.target import add_target, opened_collection

LOAD = """\
One JSON object a line: {"owner": "ann", "keywords": "(flood AND road) OR landslide", "region": [-0.5, 51.3, 0.3, 51.7],
"expires": "2026-12-31T00:00:00Z", "id": "ann-1"}. A region is [west, south, east, north], [lng, lat, radius in metres]
or a GeoJSON Polygon or MultiPolygon; expires and id may be missing. Lines that cannot be loaded are listed with the
reason, the rest is loaded. Loading a file whose lines have ids again changes nothing; those without an id get a new one
each time. The exit code is 0 if any subscription is in the collection as the file has it, else 1.
"""
BAD_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    _add_add(actions.add_parser("add", help="add one subscription, or change the one with the same id"))
    load_parser = actions.add_parser(
        "load", help="load subscriptions from a file, one JSON object a line", description=LOAD
    )
    load_parser.add_argument("file", metavar="FILE", help="JSON lines (.gz too); - reads standard input")
    load_parser.add_argument(
        "--into",
        dest="namespace",
        required=True,
        metavar="DATABASE.COLLECTION",
        help="where to, as in city.alerts",
    )
    _add_rules(load_parser)
    _add_remove(
        actions.add_parser("remove", help="remove subscriptions by id, by owner, or those that expired")
    )
    list_parser = actions.add_parser("list", help="list subscriptions")
    add_target(list_parser)
    list_parser.add_argument("--owner", metavar="NAME", help="those of one owner only")
    list_parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many (default: 100; 0: all)"
    )
    show_parser = actions.add_parser("show", help="show one subscription, its clauses and its region")
    add_target(show_parser)
    show_parser.add_argument("id", metavar="ID")
    for action in actions.choices.values():
        add_common_arguments(action)


def _add_add(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--owner", required=True, metavar="NAME", help="who is to be told")
    parser.add_argument(
        "--keywords",
        required=True,
        metavar="EXPRESSION",
        help="as in '(flood AND road) OR landslide'; words side by side mean AND",
    )
    region = parser.add_mutually_exclusive_group(required=True)
    region.add_argument(
        "--rectangle", nargs=4, type=float, metavar=("WEST", "SOUTH", "EAST", "NORTH"), help="in degrees"
    )
    region.add_argument(
        "--circle", nargs=3, type=float, metavar=("LNG", "LAT", "RADIUS"), help="degrees and metres"
    )
    region.add_argument(
        "--polygon", metavar="FILE", help="a file with a GeoJSON Polygon, MultiPolygon or feature"
    )
    parser.add_argument("--expires", metavar="TIME", help="as in 2026-12-31T00:00:00Z (default: never)")
    parser.add_argument("--id", metavar="ID", help="an id of your own (default: a new one)")
    _add_rules(parser)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_argument_group(
        "text rules", "for a new collection; those of one that has subscriptions cannot be changed"
    )
    rules.add_argument(
        "--stop-words", choices=["english", "none"], help="words to leave out (default: english)"
    )
    rules.add_argument("--stem", choices=["english", "none"], help="take floods for flood (default: none)")
    rules.add_argument("--accents", choices=["fold", "keep"], help="take é for e, or not (default: fold)")


def _add_remove(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--owner", metavar="NAME", help="all subscriptions of one owner")
    parser.add_argument("--expired", action="store_true", help="all that have expired by now")


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    return ACTIONS[args.action](args)


def add(args: argparse.Namespace) -> int:
    """Add one subscription."""
    region = args.rectangle or args.circle or _polygon(args.polygon)
    with opened_collection(args) as collection:
        made = Subscriptions(collection, _rules(args)).add(
            args.owner, args.keywords, region, args.expires, args.id
        )
    _print(args, _document(made), [f"added {made.id}", *_lines(made)])
    return EXIT_OK


def load(args: argparse.Namespace) -> int:
    """Load a file, and say what was bad in it."""
    total = count_lines(args.file)
    with opened_collection(args) as collection:
        into = Subscriptions(collection, _rules(args))
        label = f"loading {args.namespace}"
        with Progress(label, total, unit="subscriptions") if total is not None else nullcontext() as shown:
            done = into.add_many(
                read_rows(args.file), skip_bad=True, placed=True, written=shown.advance if shown else _quietly
            )
        count = into.count()
    document = {"namespace": args.namespace, "count": count, **done.to_document()}
    _print(args, document, _summary(args.namespace, done, count))
    return EXIT_OK if done.stored else EXIT_ERROR


def remove(args: argparse.Namespace) -> int:
    """Remove subscriptions."""
    given = [bool(args.ids), args.owner is not None, args.expired]
    if sum(given) != 1:
        raise UsageError("which ones? Give ids, --owner NAME or --expired: one of the three")
    with opened_collection(args) as collection:
        of = Subscriptions(collection)
        if args.ids:
            removed = of.remove(args.ids)
        elif args.expired:
            removed = of.remove_expired()
        else:
            removed = of.remove_of(args.owner)
        count = of.count()
    _print(
        args,
        {"namespace": args.namespace, "removed": removed, "count": count},
        [f"removed {removed:,} of {args.namespace}; {count:,} left"],
    )
    if args.ids and removed < len(set(args.ids)):
        raise UsageError(f"{len(set(args.ids)) - removed:,} of the ids given are not in {args.namespace}")
    return EXIT_OK


def list_(args: argparse.Namespace) -> int:
    """List subscriptions."""
    if args.limit < 0:
        raise UsageError(f"--limit is {args.limit}; it must be 0 (all) or more")
    with opened_collection(args) as collection:
        of = Subscriptions(collection)
        found = list(islice(of.list(args.owner), args.limit or None))
        count = of.count(args.owner)
    document = {
        "namespace": args.namespace,
        "count": count,
        "subscriptions": [_document(one) for one in found],
    }
    _print(args, document, _table(found, count))
    return EXIT_OK


def show(args: argparse.Namespace) -> int:
    """Show one subscription."""
    with opened_collection(args) as collection:
        of = Subscriptions(collection)
        found = of.get(args.id)
    if found is None:
        raise UsageError(f"{args.namespace} has no subscription with the id {args.id!r}")
    rules = of.rules.to_document()
    _print(args, {**_document(found), "rules": rules}, [f"id         {found.id}", *_lines(found)])
    return EXIT_OK


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "add": add,
    "load": load,
    "remove": remove,
    "list": list_,
    "show": show,
}


def _rules(args: argparse.Namespace) -> TextRules | None:
    """The rules asked for; None if nothing was said, so that those of the collection are taken."""
    if args.stop_words is None and args.stem is None and args.accents is None:
        return None
    stem = None if args.stem in (None, "none") else args.stem
    return TextRules(args.stop_words or "english", stem, args.accents != "keep")


def _polygon(file: str) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {file}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no GeoJSON: {error}") from error


def _quietly(_: int) -> None:
    """Say nothing."""


def _document(one: Subscription) -> dict[str, Any]:
    """A subscription as a file to load has it, with its clauses."""
    document = one.to_document()
    return {"id": document.pop("_id"), "region": document.pop("area"), **document}


def _lines(one: Subscription) -> Iterator[str]:
    yield f"owner      {one.owner}"
    yield f"keywords   {one.expression}"
    yield f"clauses    {to_expression(one.clauses)}"
    yield f"region     {_region(one)}"
    yield f"expires    {_expiry(one)}"


def _region(one: Subscription) -> str:
    document = one.area.to_document()
    if document["type"] == "Rectangle":
        west, south, east, north = document["bounds"]
        return f"rectangle from {west:.10g}, {south:.10g} to {east:.10g}, {north:.10g}"
    if document["type"] == "Circle":
        lng, lat = document["center"]
        return f"circle of {document['radius_m']:,.10g} m around {lng:.10g}, {lat:.10g}"
    boxes = "; ".join(f"{w:.6g}, {s:.6g} to {e:.6g}, {n:.6g}" for w, s, e, n in one.area.bounds)
    return f"{document['type']} within {boxes}"


def _expiry(one: Subscription) -> str:
    return "never" if one.expires is None else f"{one.expires:%Y-%m-%d %H:%M:%S} UTC"


def _table(found: list[Subscription], count: int) -> Iterator[str]:
    rows = [("id", "owner", "expires", "region", "keywords")]
    rows += [
        (one.id, one.owner, _expiry(one), _region(one), " ".join(one.expression.split())) for one in found
    ]
    widths = [min(max(len(row[column]) for row in rows), 48) for column in range(4)]
    for row in rows:
        cells = [f"{value:{width}}" for value, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[4] if len(row[4]) <= 80 else f"{row[4][:77]}..."])
    yield f"{len(found):,} of {count:,}" if len(found) < count else f"{count:,} in all"


def _summary(namespace: str, done: Added, count: int) -> Iterator[str]:
    for one in done.bad[:BAD_SHOWN]:
        yield f"bad: {one.place}: {one.reason}"
    if done.bad_count > BAD_SHOWN:
        yield f"and {done.bad_count - BAD_SHOWN:,} more that are bad (--json lists up to {len(done.bad):,} of them)"
    yield (
        f"{namespace}: {done.added:,} added, {done.changed:,} changed, {done.unchanged:,} unchanged, "
        f"{done.bad_count:,} bad; {count:,} in all"
    )


def _print(args: argparse.Namespace, document: dict[str, Any], lines: Iterable[str]) -> None:
    if args.json:
        print(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    else:
        print("\n".join(lines))
