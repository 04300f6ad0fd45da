"""``DB.COLLECTION`` on the command line."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo.collection import Collection

from spatialnosql.errors import UsageError
from spatialnosql.uri import URI_VARIABLE, resolve_uri


def split_namespace(namespace: str) -> tuple[str, str]:
    """Database and collection of ``city.trips``; a collection's name may hold further dots."""
    database, dot, collection = namespace.partition(".")
    if not (database and dot and collection):
        raise UsageError(f"{namespace!r} is no DB.COLLECTION, such as city.trips")
    return database, collection


def namespace_collection(client: MongoClient[Any], namespace: str) -> Collection[dict[str, Any]]:
    """The collection of a namespace."""
    database, collection = split_namespace(namespace)
    return client[database][collection]


def required_uri(given: str | None) -> str:
    """The URI given or that of the environment; without one, say how to give it."""
    uri = resolve_uri(given)
    if uri is None:
        raise UsageError(
            f"no deployment given: pass --uri or set {URI_VARIABLE} "
            "(a local one: `spatialnosql cluster up`, then `spatialnosql cluster uri`)"
        )
    return uri
