"""How a collection of subscriptions is set up: its text rules, its shards and its indexes.

The rules are recorded once, in ``spatialnosql.subscriptions``, one document a collection: clauses are stored as terms,
and terms of other rules would never match.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.cluster.deployment import UNAUTHORIZED
from spatialnosql.errors import UsageError
from spatialnosql.metadata import DATABASE
from spatialnosql.sharding import patiently, shard_key
from spatialnosql.subscriptions.text import TextRules

Documents = Collection[dict[str, Any]]

COLLECTION = "subscriptions"
TOKENS = 1
"""How tokens are made: a greater number when their definition changes, so that old terms are not taken for new ones."""


def stored_rules(collection: Documents) -> TextRules | None:
    """The rules that a collection's subscriptions were read by; None if nothing has been recorded."""
    record = _records(collection).find_one({"_id": collection.full_name})
    if record is None:
        return None
    if record.get("tokens") != TOKENS:
        raise UsageError(
            f"{collection.full_name} was made by another version, which parted words otherwise "
            f"({record.get('tokens')!r}, not {TOKENS}); load its subscriptions into a new collection"
        )
    return TextRules.from_document(record["text"])


def agreed_rules(collection: Documents, wanted: TextRules | None) -> TextRules:
    """The rules to use: those recorded, else those wanted. An error if subscriptions were read by others."""
    stored = stored_rules(collection)
    if stored is None or wanted is None or stored == wanted:
        return wanted or stored or TextRules()
    if collection.find_one({}, {"_id": 1}) is None:
        return wanted  # what was recorded is of a collection that is gone
    raise UsageError(
        f"the subscriptions of {collection.full_name} were read by the rules {_said(stored)}, not {_said(wanted)}; "
        "open it without rules, or load the subscriptions into another collection"
    )


def record_rules(collection: Documents, rules: TextRules) -> None:
    """Record the rules unless they are; an error if somebody else has recorded others meanwhile."""
    before = stored_rules(collection)
    if before == rules:
        return
    agreed_rules(collection, rules)
    record = {"text": rules.to_document(), "tokens": TOKENS, "created": dt.datetime.now(dt.timezone.utc)}
    records = _records(collection)
    if before is None:
        records.update_one({"_id": collection.full_name}, {"$setOnInsert": record}, upsert=True)
    else:
        records.replace_one({"_id": collection.full_name, "text": before.to_document()}, record)
    if stored_rules(collection) != rules:
        agreed_rules(collection, rules)
        raise UsageError(f"the rules of {collection.full_name} have just been changed; open it again")


def prepare(collection: Documents) -> None:
    """Shard a collection by its ids, hashed, where there are shards, and index it; may be repeated."""
    shard_hashed(collection, "_id")
    collection.create_index([("owner", 1), ("_id", 1)])
    collection.create_index([("changed", 1)])
    collection.create_index([("purge_at", 1)], expireAfterSeconds=0, sparse=True)


def shard_hashed(collection: Documents, key: str) -> None:
    """Shard a collection by the hash of a field where there are shards, unless it is sharded already."""
    if not collection.database.client.is_mongos or shard_key(collection) is not None:
        return
    collection.create_index([(key, "hashed")])
    try:
        patiently(
            lambda: collection.database.client.admin.command(
                "shardCollection", collection.full_name, key={key: "hashed"}
            )
        )
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:  # who may not shard may still subscribe
            raise


def forget(collection: Documents) -> None:
    """Forget the rules of a collection that is dropped."""
    _records(collection).delete_one({"_id": collection.full_name})


def _records(collection: Documents) -> Documents:
    return collection.database.client[DATABASE][COLLECTION]


def _said(rules: TextRules) -> str:
    words = rules.stop_words if isinstance(rules.stop_words, str) else f"{len(rules.stop_words)} of their own"
    accents = "folded" if rules.fold_accents else "kept"
    return f"(stop words: {words}, stem: {rules.stem or 'none'}, accents: {accents})"
