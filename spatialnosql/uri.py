"""MongoDB connection strings: where they come from, and how they are shown."""

from __future__ import annotations

import os
import re

from spatialnosql.errors import UsageError

URI_VARIABLE = "SPATIALNOSQL_URI"

# Greedy up to the last "@" before the path: a careless password may itself hold an "@" or ":".
_CREDENTIALS = re.compile(r"(mongodb(?:\+srv)?://)[^/\s]*@")
_SECRET_OPTIONS = re.compile(
    r"((?:authMechanismProperties|tlsCertificateKeyFilePassword|proxyPassword)=)[^&\s]*", re.IGNORECASE
)


def redact(text: str) -> str:
    """Any text with the credentials of the MongoDB URIs in it replaced by ``***``."""
    return _SECRET_OPTIONS.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def resolve_uri(given: str | None = None) -> str | None:
    """The URI to use: the one given, else that of ``SPATIALNOSQL_URI``, else None (a local cluster)."""
    uri = given or os.environ.get(URI_VARIABLE)
    if uri is None:
        return None
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise UsageError(
            f"not a MongoDB URI: {redact(uri)!r}; it must start with mongodb:// or mongodb+srv://"
        )
    return uri
