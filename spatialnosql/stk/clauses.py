"""Our clauses in a collection's validator: one about seals, one about what is shut. What else is in it stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import bson

from spatialnosql.stk.filter_store import namespace_of
from spatialnosql.stk.settings import CUBE_FIELD
from spatialnosql.validator import check_validator

Clause = Mapping[str, Any]


def is_about_seals(clause: Clause) -> bool:
    """Whether a clause is one about seals, of any settings."""
    return f"${CUBE_FIELD}" in str(clause) and "$toHashedIndexKey" in str(clause)


def is_about_shut(clause: Clause) -> bool:
    """Whether a clause is one about what is shut, of any settings."""
    return f"${CUBE_FIELD}" in str(clause) and not is_about_seals(clause)


def is_either(clause: Clause) -> bool:
    """Whether a clause is ours."""
    return f"${CUBE_FIELD}" in str(clause)


def clauses_of(collection: Any) -> list[Clause]:
    """What the validator of a collection is made of now, as far as we could have put it together."""
    (found,) = collection.database.list_collections(filter={"name": collection.name})
    options = found.get("options", {})
    check_validator(namespace_of(collection), options)
    validator: Clause = options.get("validator", {})
    return list(validator["$and"]) if list(validator) == ["$and"] else [validator] if validator else []


def set_clause(collection: Any, replaced: Callable[[Clause], bool], clause: Clause | None) -> None:
    """Put a clause, or none, in the place of those that it replaces.

    When this returns, no write that an older validator let through is still under way: the server lets all that have
    begun end first.
    """
    there = clauses_of(collection)
    wanted = [part for part in there if not replaced(part)]
    if clause is not None:
        wanted.append(clause)
    if bson.encode({"": wanted}) != bson.encode({"": there}):
        made = {"$and": wanted} if len(wanted) > 1 else wanted[0] if wanted else {}
        collection.database.command(
            "collMod", collection.name, validator=made, writeConcern={"w": "majority"}
        )
