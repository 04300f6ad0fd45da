"""The ledger of batches, ``spatialnosql.batches``: what each one was, how far it came, what it did.

A batch is known by its name within its collection. What was counted before anything was written stays as it is when a
batch that was cut off is taken up again, so that the end says the same whether or not there were interruptions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from spatialnosql.metadata import DATABASE

COLLECTION = "batches"

COUNTING, PLACING, LOADING, FINISHING = "counting", "placing", "loading", "finishing"
DONE, REFUSED, FAILED = "done", "refused", "failed"
STATES = (COUNTING, PLACING, LOADING, FINISHING, DONE)
"""The states of a batch in their order; besides, it may be refused (nothing was written) or failed (run it again)."""


@dataclass
class Ledger:
    """The entry of one batch."""

    collection: Collection[dict[str, Any]]
    batch: str
    earlier: Mapping[str, Any]
    """The entry as the last attempt left it; empty for a batch that was never seen."""

    @property
    def attempts(self) -> int:
        """How many attempts there have been, this one included."""
        return int(self.earlier.get("attempts", 0)) + 1

    @property
    def taken_up(self) -> bool:
        """Whether an earlier attempt began to write and did not come to its end."""
        return self.earlier.get("plan") is not None

    def enter(self, state: str, **fields: Any) -> None:
        """Note that the batch has reached a state, and what is known by then."""
        now = dt.datetime.now(dt.timezone.utc)
        self._entries.update_one(
            {"_id": self._key},
            {"$set": {"state": state, "updated": now, **fields}},
            upsert=True,
        )

    def plan(self, counted: dict[str, int]) -> dict[str, int]:
        """What the batch does to the collection, counted before the first write: once, whatever happens later."""
        if self.taken_up:
            return dict(self.earlier["plan"])
        self.enter(LOADING, plan=counted)
        return counted

    @property
    def _key(self) -> str:
        return f"{self.collection.full_name}/{self.batch}"

    @property
    def _entries(self) -> Collection[dict[str, Any]]:
        return self.collection.database.client[DATABASE][COLLECTION]


def open_batch(collection: Collection[dict[str, Any]], batch: str, sources: list[str]) -> Ledger:
    """The entry of a batch, begun or taken up again. A batch that was done begins anew: all of it is there already."""
    ledger = Ledger(collection, batch, {})
    earlier = ledger._entries.find_one({"_id": ledger._key}) or {}
    if earlier.get("state") in (DONE, REFUSED):
        earlier.pop("plan", None)
        ledger._entries.update_one({"_id": ledger._key}, {"$unset": {"plan": "", "error": ""}})
    ledger.earlier = earlier
    ledger.enter(
        COUNTING,
        namespace=collection.full_name,
        batch=batch,
        sources=sources[:100],
        attempts=ledger.attempts,
        started=dt.datetime.now(dt.timezone.utc),
    )
    return ledger


def batches(collection: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of a collection, the latest last."""
    found = collection.database.client[DATABASE][COLLECTION].find({"namespace": collection.full_name})
    return found.sort("started", 1).to_list()
