"""``spatialnosql matches city.alerts --owner ann``: what matched, listed, counted, followed or forgotten."""

from __future__ import annotations

import argparse
import shutil
import sys
import unicodedata
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

from bson import json_util

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.errors import HistoryLost, UsageError
from spatialnosql.subscriptions.match_names import Documents
from spatialnosql.subscriptions.matches import Match, Matches, Watch
from spatialnosql.subscriptions.resume_file import ResumeFile, uninterrupted
from spatialnosql.subscriptions.store_setup import stored_rules
from spatialnosql.target import add_target, opened_collection

DESCRIPTION = """\
What matched the subscriptions of an owner, in the order of the objects' times; with --json an object a line.

  spatialnosql matches city.alerts --owner ann --since 2026-11-17T00:00:00Z
  spatialnosql matches city.alerts --owner ann --newest --limit 20
  spatialnosql matches city.alerts --owner ann --count
  spatialnosql matches city.alerts --owner ann --follow --resume-file ann.token
  spatialnosql matches city.alerts --forget-before 2026-01-01T00:00:00Z
"""
LISTED = 100
GONE = "(no longer stored)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql matches``."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_target(parser)
    parser.add_argument("--owner", metavar="NAME", help="whose matches")
    parser.add_argument(
        "--since", metavar="TIME", help="objects of this time or later, as 2026-11-17T00:00:00Z"
    )
    parser.add_argument("--until", metavar="TIME", help="objects earlier than this")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help=f"at most so many (default: {LISTED}, all with --json or --follow; 0: all)",
    )
    parser.add_argument("--newest", action="store_true", help="newest first")
    parser.add_argument("--count", action="store_true", help="only how many there are")
    parser.add_argument(
        "--follow", action="store_true", help="print those stored from now on, until interrupted"
    )
    parser.add_argument(
        "--resume-file",
        type=Path,
        metavar="FILE",
        help="with --follow: keep there how far it came, and go on from there the next time",
    )
    parser.add_argument(
        "--forget-before",
        metavar="TIME",
        help="delete what happened before this, of all owners: whole buckets of matches, and objects",
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """List, count, follow or forget."""
    action = _action(args)
    with opened_collection(args) as collection:
        _check_known(collection)
        matches = Matches(collection)
        if action == "forget":
            _forget(args, matches)
        elif action == "count":
            _count(args, matches)
        elif action == "follow":
            _follow(args, matches)
        else:
            _list(args, matches)
    return EXIT_OK


def _action(args: argparse.Namespace) -> str:
    """What is to be done; an error if options do not go together."""
    names = {"--follow": "follow", "--count": "count", "--forget-before": "forget"}
    asked = [option for option in names if _given(args, option)]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} do not go together")
    action = names[asked[0]] if asked else "list"
    if (action == "forget") == (args.owner is not None):
        raise UsageError(
            "--forget-before deletes matches of all owners; leave out --owner"
            if args.owner is not None
            else "whose matches? Give --owner NAME"
        )
    useless = {
        "list": ["--resume-file"],
        "count": ["--limit", "--newest", "--resume-file"],
        "follow": ["--since", "--until", "--newest"],
        "forget": ["--since", "--until", "--limit", "--newest", "--resume-file"],
    }
    for option in useless[action]:
        if _given(args, option):
            said = asked[0] if asked else "a list of matches (only with --follow)"
            raise UsageError(f"{option} does not go together with {said}")
    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit is {args.limit}; it must be 0 (all) or more")
    return action


def _given(args: argparse.Namespace, option: str) -> bool:
    return getattr(args, option[2:].replace("-", "_")) not in (None, False)


def _check_known(collection: Documents) -> None:
    """A name mistyped would otherwise be a collection that nothing ever matches."""
    if stored_rules(collection) is None and collection.find_one({}, {"_id": 1}) is None:
        raise UsageError(
            f"{collection.full_name} has no subscriptions; add some with: spatialnosql subscribe add "
            f"{collection.full_name} --owner NAME ..."
        )


def _list(args: argparse.Namespace, matches: Matches) -> None:
    limit = args.limit if args.limit is not None or args.json else LISTED
    shown = 0
    for match in matches.of(args.owner, args.since, args.until, limit or None, args.newest):
        if not shown and not args.json:
            print(_line("at (UTC)", "subscription", "place", "text"))
        shown += 1
        _print(args, match)
    if not args.json:
        print(_summary(shown, limit, matches.count(args.owner, args.since, args.until)))


def _summary(shown: int, limit: int | None, count: int) -> str:
    if shown and shown == limit and count > shown:
        return f"{shown:,} of {count:,}; --limit 0 shows all"
    return f"{shown:,} in all" if shown else "no matches"


def _count(args: argparse.Namespace, matches: Matches) -> None:
    count = matches.count(args.owner, args.since, args.until)
    if args.json:
        print(_json({"namespace": args.namespace, "owner": args.owner, "count": count}))
    else:
        print(f"{count:,}")


def _forget(args: argparse.Namespace, matches: Matches) -> None:
    done = matches.forget(args.forget_before)
    if args.json:
        print(_json({"namespace": args.namespace, "buckets": done.buckets, "objects": done.objects}))
    else:
        print(f"deleted {done.buckets:,} buckets of matches and {done.objects:,} objects")


def _follow(args: argparse.Namespace, matches: Matches) -> None:
    file = ResumeFile(args.resume_file)
    try:
        with matches.watch(args.owner, file.read()) as watch:
            print(f"following {args.owner} in {args.namespace}; Ctrl-C ends it", file=sys.stderr, flush=True)
            _print_told(args, watch, file)
    except (HistoryLost, UsageError) as error:
        if file.path is None:
            raise
        raise type(error)(f"{file.path}: {error}") from error


def _print_told(args: argparse.Namespace, watch: Watch, file: ResumeFile) -> None:
    shown = 0
    file.keep(watch.resume_token)
    while not args.limit or shown < args.limit:
        match = watch.try_next()
        if match is None:
            file.keep_now_and_then(watch.resume_token)
            continue
        with uninterrupted():  # printed and not kept, it would be printed again
            _print(args, match)
            file.keep(watch.resume_token)
        shown += 1


# -- printing ---------------------------------------------------------------------------------------------


def _print(args: argparse.Namespace, match: Match) -> None:
    if args.json:
        print(_json(match.to_document()), flush=args.follow)
        return
    place = "-" if match.lng is None or match.lat is None else f"{match.lng:.5f}, {match.lat:.5f}"
    at = f"{match.at:%Y-%m-%d %H:%M:%S}"
    print(_line(at, match.subscription, place, GONE if match.text is None else match.text), flush=args.follow)


def _line(at: str, subscription: str, place: str, text: str) -> str:
    line = _printable(f"{at:19}  {_printable(subscription):24}  {place:21}  {' '.join(text.split())}")
    return _fitted(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else line


def _printable(text: str) -> str:
    """Text of strangers without what would move the cursor or turn lines around."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _fitted(line: str, columns: int) -> str:
    """As much of a line as a terminal shows in one row."""
    ends = [*accumulate(map(_width, line))]
    return line if ends[-1] <= columns else f"{line[: bisect_right(ends, columns - 1)]}…"


def _width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _json(document: dict[str, Any]) -> str:
    return json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS)
