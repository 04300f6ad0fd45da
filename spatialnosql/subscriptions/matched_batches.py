"""Which batches of an ingested collection have been matched: ``spatialnosql.matched_batches``.

"Everything ingested since the last run" is every batch of the ledger that is done and not noted here. Its documents are
found by the field that ``spatialnosql ingest --mark`` stores the batch's name in. A batch that is ingested again is
matched again: what of it was matched before is known by its objects.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection

from spatialnosql.errors import UsageError
from spatialnosql.ledger import DONE, batches
from spatialnosql.metadata import DATABASE, metadata_collection
from spatialnosql.target import split_namespace

COLLECTION = "matched_batches"


@dataclass(frozen=True)
class MatchedBatches:
    """Batches to match now, and where it is noted that they were."""

    subscriptions: str
    namespace: str
    field: str
    finished: dict[str, dt.datetime]
    """When each was ingested."""
    notes: Collection[dict[str, Any]]

    @property
    def condition(self) -> dict[str, Any]:
        """What their documents meet."""
        return {self.field: {"$in": sorted(self.finished)}}

    @property
    def words(self) -> str:
        """Which they are, for people."""
        shown = ", ".join(sorted(self.finished)[:3])
        return f"{len(self.finished):,} batches ({shown}{', ...' if len(self.finished) > 3 else ''})"

    def record(self) -> None:
        """Note that they were matched."""
        now = dt.datetime.now(dt.timezone.utc)
        updates = [
            UpdateOne(
                {"_id": {"subscriptions": self.subscriptions, "namespace": self.namespace, "batch": batch}},
                {"$set": {"finished": finished, "matched": now}},
                upsert=True,
            )
            for batch, finished in self.finished.items()
        ]
        if updates:
            self.notes.bulk_write(updates)


def unmatched_batches(client: Any, subscriptions: str, namespace: str) -> MatchedBatches:
    """The batches of a collection that were not yet matched with some subscriptions."""
    database, name = split_namespace(namespace)
    collection = client[database][name]
    stored = metadata_collection(collection).find_one({"_id": namespace}, {"mark": 1}) or {}
    field = stored.get("mark")
    if field is None:
        raise UsageError(
            f"what of {namespace} is new cannot be told: its documents do not say which batch they came with; give "
            "--all, or --time NAME with --since or --until, or ingest with --mark batch from now on"
        )
    notes = client[DATABASE][COLLECTION]
    known = {
        note["_id"]["batch"]: note["finished"]
        for note in notes.find({"_id.subscriptions": subscriptions, "_id.namespace": namespace})
    }
    finished = {
        entry["batch"]: entry["finished"]
        for entry in batches(collection)
        if entry["state"] == DONE and known.get(entry["batch"]) != entry["finished"]
    }
    return MatchedBatches(subscriptions, namespace, field, finished, notes)


def forget_batches(subscriptions: Collection[dict[str, Any]]) -> None:
    """Forget what was matched with subscriptions that are dropped."""
    notes = subscriptions.database.client[DATABASE][COLLECTION]
    notes.delete_many({"_id.subscriptions": subscriptions.full_name})
