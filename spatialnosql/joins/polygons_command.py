"""``spatialnosql polygons load | refresh | list``: collections of polygons that points are joined with."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from bson import json_util
from pymongo.collection import Collection

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, add_common_arguments
from spatialnosql.errors import UsageError
from spatialnosql.joins.cover_refreshing import infos_of, points_info, refresh_covers
from spatialnosql.joins.polygon_file import read_features
from spatialnosql.joins.polygon_listing import ListedPolygon, list_polygons
from spatialnosql.joins.polygon_loading import load_polygons
from spatialnosql.target import add_target, opened_collection, split_namespace

LOAD = """\
Polygons that MongoDB would refuse (crossing edges, not closed, empty, off the globe, ...) or that have the id of
another are listed with the reason; the rest is loaded. The exit code is 0 if any polygon is in the collection as the
file has it, and 1 if none is, or with --strict if any is bad: then nothing is changed. Loading a file again changes
nothing; a polygon that has changed is replaced; one that is not in the file stays, unless --replace is given.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    load_parser = actions.add_parser(
        "load",
        help="load a GeoJSON file, with covers for the points it will be joined with",
        description=LOAD,
    )
    load_parser.add_argument(
        "file", metavar="FILE", help="GeoJSON (.gz too, or one feature a line); - reads standard input"
    )
    load_parser.add_argument(
        "--into",
        dest="namespace",
        required=True,
        metavar="DATABASE.COLLECTION",
        help="where to, as in city.neighborhoods",
    )
    load_parser.add_argument(
        "--id",
        metavar="PROPERTY",
        help="the property that is the id (default: the feature's id, its property name, or its number)",
    )
    load_parser.add_argument(
        "--replace", action="store_true", help="remove the polygons that are not in the file"
    )
    load_parser.add_argument("--strict", action="store_true", help="change nothing if any polygon is bad")
    refresh_parser = actions.add_parser(
        "refresh", help="make covers anew where the points' statistics or the shapes have changed"
    )
    list_parser = actions.add_parser("list", help="show every polygon, and whether its covers are fresh")
    for action in (refresh_parser, list_parser):
        add_target(action)
    for action in (load_parser, refresh_parser):
        action.add_argument(
            "--points",
            action="append",
            default=[],
            metavar="DATABASE.COLLECTION",
            help="points to make covers for, as in city.trips; may be given several times "
            "(those that there are covers for already are refreshed anyway)",
        )
    for action in (load_parser, refresh_parser, list_parser):
        add_common_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    return ACTIONS[args.action](args)


def load(args: argparse.Namespace) -> int:
    """Load a file, and say what was bad in it."""
    features = read_features(args.file)
    with opened_collection(args) as collection:
        loaded = load_polygons(
            collection,
            features,
            id=args.id,
            points=_points(collection, args),
            replace=args.replace,
            strict=args.strict,
            progress=True,
        )
    _print(args, loaded.to_document(), loaded.lines())
    return EXIT_OK if loaded.loaded else EXIT_ERROR


def refresh(args: argparse.Namespace) -> int:
    """Make covers anew."""
    with opened_collection(args) as collection:
        points = _points(collection, args)
        infos = [points_info(one) for one in points] if points else infos_of(collection, ())
        if not infos:
            raise UsageError(
                f"{args.namespace} has no covers yet, or none for points that can be joined; --points names the points"
            )
        done = [refresh_covers(collection, info, progress=True) for info in infos]
    document = {"namespace": args.namespace, "covers": [one.to_document() for one in done]}
    _print(args, document, (line for one in done for line in one.lines()))
    return EXIT_OK


def list_(args: argparse.Namespace) -> int:
    """Show what there is."""
    with opened_collection(args) as collection:
        rows = list(list_polygons(collection))
    if not rows:
        raise UsageError(f"{args.namespace} has no polygons")
    document = {"namespace": args.namespace, "polygons": [row.to_document() for row in rows]}
    _print(args, document, _table(rows))
    return EXIT_OK


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"load": load, "refresh": refresh, "list": list_}


def _points(collection: Collection[Any], args: argparse.Namespace) -> list[Collection[dict[str, Any]]]:
    client = collection.database.client
    names = dict.fromkeys(args.points)  # each once
    return [client[database][name] for database, name in map(split_namespace, names)]


def _print(args: argparse.Namespace, document: dict[str, Any], lines: Iterable[str]) -> None:
    if args.json:
        # An id may be of any type that MongoDB has.
        print(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    else:
        print("\n".join(lines))


def _table(rows: list[ListedPolygon]) -> Iterable[str]:
    width = min(max(2, *(len(str(row.id)) for row in rows)), 40)
    yield f"{'id':{width}}  vertices  parts  holes  covers (interior + boundary ranges)"
    for row in rows:
        said = [str(cover) for cover in row.covers] + ([row.note] if row.note else [])
        yield (
            f"{row.id!s:{width}}  {row.vertices:>8,}  {row.parts:>5,}  {row.holes:>5,}  {'; '.join(said) or 'none'}"
        ).rstrip()
