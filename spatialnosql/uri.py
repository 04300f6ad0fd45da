"""MongoDB connection strings: where they come from, and how they are shown."""

from __future__ import annotations

import os
import re

from spatialnosql.errors import UsageError

URI_VARIABLE = "SPATIALNOSQL_URI"

# Of any scheme, for a mistyped one is shown in an error; greedy up to the last "@" of the line, for a careless
# password may itself hold "@", ":", "/" or a space. Better to hide too much than too little.
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://).*@")
_SECRET_OPTIONS = re.compile(
    r"((?:authMechanismProperties|tlsCertificateKeyFilePassword|proxyPassword)=)[^&\s]*", re.IGNORECASE
)


def redact(text: str) -> str:
    """Any text with the credentials of the URIs in it replaced by ``***``."""
    return _SECRET_OPTIONS.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def resolve_uri(given: str | None = None) -> str | None:
    """The URI to use: the one given, else that of ``SPATIALNOSQL_URI``, else None (a local cluster)."""
    uri = given or os.environ.get(URI_VARIABLE)
    if not uri:
        return None
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        # Without a scheme there is no telling where credentials begin: show only what follows them.
        shown = redact(uri) if "://" in uri else "***@" * ("@" in uri) + uri.rpartition("@")[2]
        raise UsageError(f"not a MongoDB URI: {shown!r}; it must start with mongodb:// or mongodb+srv://")
    # PyMongo would take what follows the "?" for options and warn about them, quoting half a password.
    if re.match(r"[^/?#]*//[^/@]*[?#][^/]*@", uri):
        raise UsageError(
            f"not a usable MongoDB URI: {redact(uri)}: user name, password and values of options "
            "must be percent-encoded (urllib.parse.quote_plus)"
        )
    return uri
