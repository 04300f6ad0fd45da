"""What a live cluster says of a collection: metadata, counters of the shards, chunks, the ledger. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.analyze import distribution, measure
from spatialnosql.cluster.deployment import describe
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.ledger import batches as ledger_entries
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.report.model import Batch, Chunk, CollectionFacts, ShardLoad
from spatialnosql.sharding import bound_to_cell, chunks, shard_key, weight_of
from spatialnosql.skew import BOUND, Choice, Row
from spatialnosql.steps import run

Documents = Collection[dict[str, Any]]

MOST_SCANNED = 5_000_000
"""Up to so many documents those of each shard are counted along the index; of more, the shards' counters are taken."""


def gather(collection: Documents, *, fresh: bool = False, trust_gh: bool = False) -> CollectionFacts:
    """All there is to know of an adopted collection; with `fresh` its points are counted now, and nothing is stored."""
    info = run(load_info(collection, trust_gh=trust_gh))
    if not info.adopted:
        raise UsageError(
            f"{info.namespace} cannot be reported on: {info.why_not}; "
            f"`spatialnosql adopt {info.namespace} --location FIELD` makes it spatial"
        )
    deployment = describe(collection.database.client)
    stored = metadata_collection(collection).find_one({"_id": info.namespace}, {"histogram": 0}) or {}
    histogram, choice, analyzed = info.histogram, choice_of(stored.get("precision")), info.analyzed
    without = int(stored.get("without_gh") or 0)
    if fresh or histogram is None:
        analysis = measure(collection, info.gh)
        histogram, choice, analyzed = analysis.histogram, analysis.choice, analysis.at
        without = analysis.without_gh
    key = tuple(shard_key(collection) or ())
    held = chunks_of(collection, info, histogram) if key[:1] == (info.gh,) else ()
    return CollectionFacts(
        info.namespace,
        deployment.kind,
        deployment.version,
        info.location,
        info.gh,
        histogram,
        choice,
        loads_of(collection, info.gh, held, deployment.shards if key else ()),
        held,
        key,
        tuple(batch_of(entry) for entry in ledger_entries(collection)),
        info.why_not,
        analyzed,
        without,
    )


def choice_of(document: Mapping[str, Any] | None) -> Choice | None:
    """A choice as it was stored."""
    if not document or "bits" not in document:
        return None
    rows = tuple(
        Row(
            int(row["bits"]),
            int(row["cells"]),
            None if row["skewness"] is None else float(row["skewness"]),
            float(row["largest"]),
            float(row["imbalance"]),
        )
        for row in document.get("table", ())
    )
    return Choice(
        int(document["bits"]),
        str(document.get("reason", "")),
        rows,
        int(document.get("shards", 1)),
        float(document.get("bound", BOUND)),
    )


def chunks_of(collection: Documents, info: CollectionInfo, histogram: Histogram) -> tuple[Chunk, ...]:
    """The chunks in order, with the points that the histogram expects in them; none where nobody may look."""
    try:
        found = chunks(collection)
    except OperationFailure:
        return ()
    return tuple(
        Chunk(
            str(chunk["shard"]),
            bound_to_cell(chunk["min"][info.gh]),
            bound_to_cell(chunk["max"][info.gh]),
            weight_of(chunk["min"], chunk["max"], info.gh, histogram),
        )
        for chunk in found
    )


def loads_of(
    collection: Documents, gh: str, held: tuple[Chunk, ...], shards: tuple[str, ...]
) -> tuple[ShardLoad, ...]:
    """What each shard holds. Its counters may be off while what has moved away is deleted; its index is not."""
    few = collection.estimated_document_count() <= MOST_SCANNED
    owned = distribution(collection, gh) if few else {}
    found = {name: ShardLoad(name, 0, 0, 0, 0, 0) for name in shards}
    for one in collection.aggregate([{"$collStats": {"storageStats": {}}}]):
        stats, name = one["storageStats"], str(one.get("shard", "all"))
        found[name] = ShardLoad(
            name,
            owned.get(name, max(int(stats.get("count", 0)) - int(stats.get("numOrphanDocs", 0)), 0)),
            int(stats.get("size", 0)),
            int(stats.get("storageSize", 0)),
            int(stats.get("totalIndexSize", 0)),
            sum(chunk.shard == name for chunk in held),
        )
    return tuple(found[name] for name in sorted(found))


def batch_of(entry: Mapping[str, Any]) -> Batch:
    """An entry of the ledger, finished or not."""
    outcome = entry.get("outcome") or {}
    counted = {
        name: int(outcome.get(name) or 0)
        for name in ("written", "replaced", "already_there", "superseded", "quarantined")
    }
    if not outcome:
        counted["quarantined"] = int(entry.get("quarantined") or 0)
    started = entry.get("started")
    return Batch(
        str(entry.get("batch", entry.get("_id"))),
        str(entry.get("state", "unknown")),
        started if isinstance(started, dt.datetime) else None,
        int(outcome.get("rows", entry.get("rows") or 0) or 0),
        **counted,
        seconds=float(outcome["seconds"]) if outcome.get("seconds") is not None else None,
        attempts=int(entry.get("attempts", 1)),
        error=str(entry["error"]) if entry.get("error") else None,
    )
