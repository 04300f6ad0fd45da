"""What there is to know of a collection's filters: for operators."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

from spatialnosql.info import CollectionInfo
from spatialnosql.stk.filter_store import namespace_of, pieces, states
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME


@dataclass(frozen=True)
class Status:
    """Documents, filters, and who is at work on them."""

    namespace: str
    documents: int
    fresh: int
    filter_cubes: int
    pieces: int
    filter_bytes: int
    index_bytes: int
    publications: int
    paused: bool
    rebuilding: bool
    shut_before: str | None
    writers: list[str]

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        state = "paused" if self.paused else "being rebuilt" if self.rebuilding else "in force"
        lines = [
            f"{self.namespace}: {self.documents:,} documents, of which {self.fresh:,} are fresh",
            f"filters {state}: {self.filter_cubes:,} cubes in {self.pieces:,} pieces, "
            f"{self.filter_bytes / 1e6:,.1f} MB; index {self.index_bytes / 1e6:,.1f} MB",
        ]
        if self.shut_before is not None:
            lines.append(f"shut: no fresh documents before {self.shut_before}")
        return [*lines, *(f"writing: {writer}" for writer in self.writers)]


def status(collection: Any, info: CollectionInfo) -> Status:
    """The state of a collection's filters now."""
    state = states(collection).find_one({"_id": namespace_of(collection)}) or {}
    wanted = {"f": state.get("filters"), "q": {"$ne": None}}
    stages: list[dict[str, Any]] = [
        {"$match": wanted},
        {"$group": {"_id": "$q", "pieces": {"$sum": 1}, "bytes": {"$sum": {"$binarySize": "$k"}}}},
        {
            "$group": {
                "_id": None,
                "cubes": {"$sum": 1},
                "pieces": {"$sum": "$pieces"},
                "bytes": {"$sum": "$bytes"},
            }
        },
    ]
    found = next(iter(pieces(collection).aggregate(stages)), {"cubes": 0, "pieces": 0, "bytes": 0})
    sizes = collection.database.command("collStats", collection.name).get("indexSizes", {})
    return Status(
        info.namespace,
        collection.estimated_document_count(),
        collection.count_documents({CUBE_FIELD: None}, hint=INDEX_NAME),
        int(found["cubes"]),
        int(found["pieces"]),
        int(found["bytes"]),
        int(sizes.get(INDEX_NAME, 0)),
        int(state.get("tick", 0)),
        bool(state.get("paused", False)),
        state.get("rebuilding") is not None,
        _moment(state.get("shut_ms")),
        [f"{one['what']} since {one['at']:%Y-%m-%d %H:%M} UTC" for one in state.get("writers", {}).values()],
    )


def _moment(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.timezone.utc).isoformat()
