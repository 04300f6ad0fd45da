"""The validator that makes the server itself keep ``gh`` true, beside whatever validator the user has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import bson
from pymongo.collection import Collection

from spatialnosql.errors import UsageError
from spatialnosql.expression import Form
from spatialnosql.info import CollectionInfo, true_gh

Documents = Collection[dict[str, Any]]
Clause = Mapping[str, Any]

INVALID = 121
"""The code of the server's error when a document fails validation."""


def clause_of(info: CollectionInfo) -> dict[str, Any]:
    """The clause that documents of a collection must pass."""
    return true_gh(info.location, info.gh, info.form, unhashed=info.unhashed)


def digest(clause: Clause) -> str:
    """Equal for equal clauses: how ours are known again, also those of an earlier version of this library."""
    return hashlib.blake2b(bson.encode(clause), digest_size=16).hexdigest()


def with_clause(validator: Clause, info: CollectionInfo, earlier: Iterable[str] = ()) -> dict[str, Any]:
    """A validator with our clause added, once, in the place of any that we had before (by their digests)."""
    forms: tuple[Form, ...] = get_args(Form)
    ours = {*earlier} | {
        digest(true_gh(info.location, info.gh, form, unhashed=unhashed))
        for form in forms
        for unhashed in (False, True)
    }
    theirs = [part for part in _parts(validator) if digest(part) not in ours]
    clause = clause_of(info)
    return {"$and": [*theirs, clause]} if theirs else clause


def _parts(validator: Clause) -> list[Clause]:
    """What a validator is made of, as far as we could have put it together."""
    if not validator:
        return []
    if list(validator) == ["$and"]:
        return list(validator["$and"])
    return [validator]


def check_validator(namespace: str, options: Mapping[str, Any]) -> None:
    """Stop if the collection has a validator of the user's that must not be made strict behind their back."""
    level, action = options.get("validationLevel", "strict"), options.get("validationAction", "error")
    if options.get("validator") and (level, action) != ("strict", "error"):
        raise UsageError(
            f"{namespace} has a validator of its own with validationLevel {level!r} and validationAction {action!r}; "
            "ours needs 'strict' and 'error', which would then hold for yours too. Change it with collMod, or go on "
            "without ours (--no-validator)"
        )


def install(collection: Documents, info: CollectionInfo, earlier: Iterable[str] = ()) -> bool:
    """Set the validator, unless it is there; the user's own stays. Whether anything had to be changed."""
    found = collection.database.list_collections(filter={"name": collection.name}).to_list()
    options = found[0].get("options", {}) if found else {}
    check_validator(collection.full_name, options)
    current = options.get("validator", {})
    wanted = with_clause(current, info, earlier)
    if bson.encode(current) == bson.encode(wanted):
        return False
    collection.database.command(
        "collMod", collection.name, validator=wanted, validationLevel="strict", validationAction="error"
    )
    return True
