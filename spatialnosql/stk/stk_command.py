"""``spatialnosql stk ACTION``: queries by place, time and words; how a collection is set up for them and kept so."""

from __future__ import annotations

import argparse
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bson import json_util

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info
from spatialnosql.steps import run as run_steps
from spatialnosql.stk.sealing import rebuild, seal
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.setup import disable, enable
from spatialnosql.stk.shutting import reopen, shut
from spatialnosql.stk.status import status
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.target import add_target, opened_collection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    _add_enable(actions.add_parser("enable", help="index, validator, filters and seals, in place"))
    helps = {
        "status": "what is sealed and what is fresh, how large the filters are, who writes to them",
        "seal": "put documents that came one by one into the filters; nightly, say",
        "shut": "accept no unsealed documents of a time before a moment: queries of that time need not look for any",
        "open": "accept unsealed documents of any time again",
        "rebuild": "make the filters anew from the documents, after deletions, a loss or a restore",
        "disable": "take index, validator, filters and seals away again",
    }
    for name, help_ in helps.items():
        add_target(actions.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}."))
    actions.choices["rebuild"].add_argument(
        "--force", action="store_true", help="though writers are listed: they must be known to be dead"
    )
    for name in ("shut", "open"):
        actions.choices[name].add_argument(
            "--force", action="store_true", help="though another is at it: it must be known to be dead"
        )
    actions.choices["shut"].add_argument(
        "--before", type=_moment, required=True, metavar="TIME", help="as in 2026-03-01T20:00:00Z"
    )
    _add_find(actions.add_parser("find", help="documents of a region and an interval with such words"))
    for action in actions.choices.values():
        add_common_arguments(action)


def _add_enable(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--time", default="at", metavar="FIELD", help="with dates (default: %(default)s)")
    parser.add_argument(
        "--words", default="words", metavar="FIELD", help="with lists of words (default: %(default)s)"
    )
    parser.add_argument(
        "--text", metavar="FIELD", help="read the words from this text where they are missing"
    )
    parser.add_argument("--stem", choices=["english", "none"], default="none", help="take floods for flood")
    parser.add_argument(
        "--stop-words", choices=["english", "none"], default="english", help="words to leave out of texts"
    )
    sizes = parser.add_argument_group("sizes", "chosen from the data unless --bin and --cell are given")
    sizes.add_argument("--bin", type=int, metavar="SECONDS", help="length of a time bin")
    sizes.add_argument("--cell", type=int, metavar="BITS", help="of the geohash of a cell")


def _add_find(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    region = parser.add_mutually_exclusive_group()
    region.add_argument(
        "--rectangle", nargs=4, type=float, metavar=("WEST", "SOUTH", "EAST", "NORTH"), help="in degrees"
    )
    region.add_argument(
        "--circle", nargs=3, type=float, metavar=("LNG", "LAT", "RADIUS"), help="degrees and metres"
    )
    region.add_argument("--polygon", metavar="FILE", help="a file with a GeoJSON geometry or feature")
    parser.add_argument("--start", type=_moment, metavar="TIME", help="as in 2026-03-01T20:00:00Z")
    parser.add_argument("--end", type=_moment, metavar="TIME", help="the first moment that is too late")
    parser.add_argument("--words", metavar="EXPRESSION", help="as in 'vaccine AND (clinic OR NOT covid)'")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="at most so many (default: 20; 0: all)"
    )
    parser.add_argument("--count", action="store_true", help="say how many there are, and no more")
    parser.add_argument("--explain", action="store_true", help="say what the servers examine for it")


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    with opened_collection(args) as collection:
        return ACTIONS[args.action](collection, args)


def _enable(collection: Any, args: argparse.Namespace) -> int:
    stem = None if args.stem == "none" else args.stem
    settings = StkSettings(args.time, args.words, args.text, TextRules(args.stop_words, stem))
    if (args.bin is None) != (args.cell is None):
        raise UsageError("give both --bin and --cell, or neither")
    if args.bin is not None:
        settings = StkSettings(args.time, args.words, args.text, settings.rules, args.bin, args.cell)
    done = enable(collection, settings, sized=args.bin is not None, progress=True)
    if args.json:
        print(json.dumps(done.to_document()))
        return EXIT_OK
    sizes = done.settings
    print(
        f"{done.namespace}: {done.sealed:,} documents sealed, {done.fresh:,} stay fresh (no date, or no words)"
    )
    print(
        f"bins of {sizes.bin_s:,} s, cells of {sizes.cell_bits} bits, {1 << sizes.position_bits:,} of them a filter"
    )
    return EXIT_OK


def _status(collection: Any, args: argparse.Namespace) -> int:
    found = status(collection, _info(collection))
    return _said(args, found.to_document(), "\n".join(found.lines()))


def _seal(collection: Any, args: argparse.Namespace) -> int:
    info = _info(collection)
    assert info.stk is not None
    sealed = seal(collection, info, info.stk, progress=True)
    return _said(args, {"sealed": sealed}, f"{info.namespace}: {sealed:,} documents sealed")


def _shut(collection: Any, args: argparse.Namespace) -> int:
    info, before = _info(collection), args.before.isoformat()
    assert info.stk is not None
    shut(collection, info, info.stk, args.before, force=args.force)
    words = f"{info.namespace}: before {before} only sealed documents are accepted"
    return _said(args, {"shut_before": before}, words)


def _open(collection: Any, args: argparse.Namespace) -> int:
    reopen(collection, force=args.force)
    return _said(args, {"shut_before": None}, f"{args.namespace}: documents of any time are accepted")


def _rebuild(collection: Any, args: argparse.Namespace) -> int:
    info = _info(collection)
    assert info.stk is not None
    count = rebuild(collection, info, info.stk, force=args.force, progress=True)
    return _said(args, {"documents": count}, f"{info.namespace}: filters of {count:,} documents")


def _disable(collection: Any, args: argparse.Namespace) -> int:
    disable(collection)
    return _said(args, {"disabled": args.namespace}, f"{args.namespace}: filters and seals are gone")


def _said(args: argparse.Namespace, document: dict[str, Any], words: str) -> int:
    """What was done, for programs or for people."""
    print(json.dumps(document) if args.json else words)
    return EXIT_OK


def _find(collection: Any, args: argparse.Namespace) -> int:
    _info(collection)
    spatial = SpatialCollection(collection)
    given = {"region": _region(args), "start": args.start, "end": args.end, "words": args.words}
    query = {"$stk": {name: value for name, value in given.items() if value is not None}}
    if args.explain:
        explained = spatial.explain(query)
        print(json.dumps(explained.to_dict()) if args.json else explained)
    elif args.count:
        count = spatial.count_documents(query)
        print(json.dumps({"count": count}) if args.json else f"{count:,}")
    else:
        for document in spatial.find(query, limit=args.limit):
            print(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    return EXIT_OK


ACTIONS: dict[str, Callable[[Any, argparse.Namespace], int]] = {
    "enable": _enable,
    "status": _status,
    "seal": _seal,
    "shut": _shut,
    "open": _open,
    "rebuild": _rebuild,
    "disable": _disable,
    "find": _find,
}


def _info(collection: Any) -> CollectionInfo:
    info = run_steps(load_info(collection))
    if info.stk is None:
        why = info.why_not or info.why_no_stk or "run `spatialnosql stk enable` first"
        raise UsageError(f"{info.namespace} is not set up for queries by place, time and words: {why}")
    return info


def _region(args: argparse.Namespace) -> dict[str, Any] | None:
    if args.rectangle:
        west, south, east, north = args.rectangle
        return {"$box": [[west, south], [east, north]]}
    if args.circle:
        lng, lat, radius_m = args.circle
        return {"$centerSphere": [[lng, lat], radius_m / EARTH_RADIUS_M]}
    if not args.polygon:
        return None
    found = json.loads(Path(args.polygon).read_text("utf-8"))
    geometry: dict[str, Any] = found.get("geometry", found)
    return geometry


def _moment(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-03-01T20:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)
