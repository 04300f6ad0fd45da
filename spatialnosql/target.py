"""The collection that a command is about: ``spatialnosql COMMAND city.trips --uri ...``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from pymongo.collection import Collection

from spatialnosql.cluster.deployment import connect, describe
from spatialnosql.errors import UsageError
from spatialnosql.uri import URI_VARIABLE, resolve_uri


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the collection."""
    parser.add_argument("namespace", metavar="DATABASE.COLLECTION", help="the collection, as in city.trips")


def split_namespace(namespace: str) -> tuple[str, str]:
    """Database and collection; a collection's name may have dots, a database's may not."""
    database, dot, collection = namespace.partition(".")
    if not (database and dot and collection):
        raise UsageError(f"{namespace!r} is no collection; write DATABASE.COLLECTION, as in city.trips")
    return database, collection


@contextlib.contextmanager
def opened_collection(args: argparse.Namespace) -> Iterator[Collection[dict[str, Any]]]:
    """The collection that the arguments name, on a deployment that answers."""
    database, name = split_namespace(args.namespace)
    uri = resolve_uri(args.uri)
    if uri is None:
        raise UsageError(
            f"which MongoDB? Give --uri, or set {URI_VARIABLE} "
            "(here: `spatialnosql cluster up`, then `spatialnosql cluster uri`)"
        )
    with connect(uri) as client:
        describe(client)  # says in words when nobody answers
        yield client[database][name]
