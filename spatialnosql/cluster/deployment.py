"""Any MongoDB by its URI: connect to it, and say what kind of deployment it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidURI, OperationFailure

from spatialnosql.errors import ClusterError, UsageError
from spatialnosql.uri import redact

APP_NAME = "spatialnosql"
SELECTION_TIMEOUT_MS = 10_000

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18


@dataclass(frozen=True)
class Deployment:
    """What a URI leads to."""

    kind: str  # "sharded", "replica set" or "standalone"
    version: str
    shards: tuple[str, ...] = ()

    @property
    def is_sharded(self) -> bool:
        """Whether the placement of documents on shards means something here."""
        return self.kind == "sharded"

    def note(self) -> str | None:
        """One sentence for people whose deployment is not sharded, else None."""
        if self.is_sharded:
            return None
        return f"This MongoDB is a {self.kind}, not sharded: prefilters still help, placement does not apply."


def connect(uri: str) -> MongoClient[dict[str, Any]]:
    """A client for a URI (SRV, credentials, TLS: whatever PyMongo takes); the first command connects."""
    # What the URI says is the user's; PyMongo would let our arguments override it.
    given = {option.partition("=")[0].lower() for option in re.split("[?&;]", uri)[1:]}
    options: dict[str, Any] = {}
    if "appname" not in given:
        options["appname"] = APP_NAME
    if "serverselectiontimeoutms" not in given:
        options["serverSelectionTimeoutMS"] = SELECTION_TIMEOUT_MS
    try:
        return MongoClient(uri, **options)
    except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
        # `from None`: the original may quote parts of the password, and --debug prints the whole chain.
        raise UsageError(
            f"not a usable MongoDB URI: {hide(uri)}: {without_secrets(str(error), uri)}"
        ) from None


def hide(uri: str) -> str:
    """A URI with everything before its last ``@`` hidden: a password not encoded may hold any character."""
    scheme, separator, rest = uri.partition("://")
    _, at, tail = rest.rpartition("@")
    return redact(f"{scheme}{separator}***@{tail}" if at else uri)


def without_secrets(message: str, uri: str) -> str:
    """An error message on one line, unless it quotes a part of the URI's credentials."""
    credentials = uri.partition("://")[2].rpartition("@")[0]
    words = set(re.findall(r"[^\s'\"]+", message))
    for part in filter(None, re.split("[:@/?#%]", credentials)):
        # A short part may be in any message by chance; then it must stand alone, or before the "@".
        if (len(part) > 2 and part in message) or part in words or f"{part}@" in message:
            return "user name and password must be percent-encoded (urllib.parse.quote_plus)"
    return " ".join(message.split())


def describe(client: MongoClient[dict[str, Any]]) -> Deployment:
    """Ask a deployment what it is."""
    try:
        hello = client.admin.command("hello")
        version = str(client.server_info()["version"])
        if hello.get("msg") == "isdbgrid":
            return Deployment("sharded", version, shard_names(client))
    except OperationFailure as error:
        if error.code == AUTHENTICATION_FAILED:
            raise ClusterError(
                "MongoDB refuses the user or password of the URI (percent-encode special characters; "
                "authSource names the database that holds the user)"
            ) from error
        raise
    except ConnectionFailure as error:
        # PyMongo appends the state of every server; the first part says what happened.
        reason = redact(str(error).partition(", Timeout:")[0].partition(" (configured timeouts:")[0])
        raise ClusterError(f"no MongoDB answers: {reason}; is it running, and is the URI right?") from error
    return Deployment("replica set" if hello.get("setName") else "standalone", version)


def shard_names(client: MongoClient[dict[str, Any]]) -> tuple[str, ...]:
    """The names of the shards, or none if the user may not see them."""
    try:
        listed = client.admin.command("listShards")["shards"]
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return ()
    return tuple(sorted(str(shard["_id"]) for shard in listed))
