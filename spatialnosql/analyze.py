"""``analyze``: what is where, counted by the server from the ``gh`` index alone, and stored for the rewriter.

The server groups the index by the first characters of ``gh``; no document is read. What comes back is a histogram of
cells; from it follow the precision and, on a sharded cluster, where chunks are cut.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.cluster.deployment import describe
from spatialnosql.errors import UsageError
from spatialnosql.expression import Expression
from spatialnosql.geohash import ALPHABET, BITS, Cells, strings_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import GH_FIELD
from spatialnosql.metadata import histogram_to_document, metadata_collection
from spatialnosql.sharding import shard_key
from spatialnosql.skew import BOUND, Choice, choose_precision

Documents = Collection[dict[str, Any]]

CHARACTERS = 8
"""The precision that is asked for: 40 bits, cells of 38 m at most. So near knows clumps of points."""

MANY_DOCUMENTS, FEWER_CHARACTERS = 5_000_000, 7
"""Where there are more documents than that, fewer characters are asked for: millions of groups would come."""

MOST_CELLS = 150_000
"""More cells than that are made coarser ones: 2.4 MB in the metadata, and as much in every client."""

BATCH = 20_000


@dataclass(frozen=True)
class Counted:
    """A histogram as the server counted it, and what it could not put into a cell."""

    histogram: Histogram
    malformed: int = 0  # documents with strings in gh that are no geohashes


@dataclass(frozen=True)
class Analysis:
    """What `analyze` found and stored."""

    namespace: str
    histogram: Histogram
    choice: Choice
    without_gh: int  # no gh, or one that is no geohash
    shards: dict[str, int] = field(default_factory=dict)  # documents on each; one entry "all" without shards
    at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc))
    seconds: float = 0.0

    @property
    def documents(self) -> int:
        """How many documents are in the histogram."""
        return self.histogram.total

    def to_document(self) -> dict[str, Any]:
        """For JSON: everything but the cells themselves."""
        return {
            "namespace": self.namespace,
            "documents": self.documents,
            "without_gh": self.without_gh,
            "cells": len(self.histogram.cells),
            "cell_bits": self.histogram.bits,
            "precision": self.choice.to_document(),
            "shards": self.shards,
            "at": self.at.isoformat(),
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"{self.namespace}: {self.documents:,} documents in {len(self.histogram.cells):,} cells of "
            f"{self.histogram.bits} bits, counted in {self.seconds:.1f} s"
        ]
        if self.without_gh:
            lines.append(f"Not counted, without a geohash: {self.without_gh:,}; see `spatialnosql verify`")
        if self.shards:
            lines.append(
                "On the shards: " + ", ".join(f"{name} {n:,}" for name, n in sorted(self.shards.items()))
            )
        return [*lines, *self.choice.lines()]


def analyze(
    collection: Documents,
    *,
    precision: int | None = None,
    shards: int | None = None,
    bound: float = BOUND,
) -> Analysis:
    """Count an adopted collection anew, choose its precision, store both in the metadata.

    `shards` asks for a choice as if there were so many; `precision` overrides the choice.
    """
    stored = metadata_collection(collection).find_one({"_id": collection.full_name}, {"gh": 1})
    if stored is None:
        raise UsageError(
            f"{collection.full_name} was never adopted; run `spatialnosql adopt {collection.full_name} "
            "--location FIELD` first"
        )
    analysis = measure(
        collection, stored.get("gh", GH_FIELD), precision=precision, shards=shards, bound=bound
    )
    store(collection, analysis)
    return analysis


def measure(
    collection: Documents,
    gh: str,
    *,
    precision: int | None = None,
    shards: int | None = None,
    bound: float = BOUND,
) -> Analysis:
    """The analysis of a collection that has its ``gh``; nothing is stored."""
    started = time.monotonic()
    hint = gh_index(collection, gh)
    counted = server_histogram(collection, f"${gh}", gh=gh, hint=hint)
    options: dict[str, Any] = {"hint": hint} if hint else {}
    without = collection.count_documents({gh: {"$not": {"$gte": ""}}}, **options)
    number = shards if shards is not None else max(len(describe(collection.database.client).shards), 1)
    return Analysis(
        collection.full_name,
        counted.histogram,
        choose_precision(counted.histogram, number, override=precision, bound=bound),
        without + counted.malformed,
        distribution(collection, gh),
        seconds=time.monotonic() - started,
    )


def store(collection: Documents, analysis: Analysis) -> None:
    """Write an analysis into the metadata of its collection."""
    fields = {
        "histogram": histogram_to_document(analysis.histogram),
        "precision": analysis.choice.to_document(),
        "documents": analysis.documents,
        "without_gh": analysis.without_gh,
        "shards": [{"shard": name, "documents": count} for name, count in sorted(analysis.shards.items())],
        "analyzed": analysis.at,
    }
    metadata_collection(collection).update_one({"_id": analysis.namespace}, {"$set": fields})


def gh_index(collection: Documents, gh: str) -> str | None:
    """The name of an index that holds every document and begins with ``gh``, if there is one."""
    for index in collection.list_indexes():
        whole = not (index.get("sparse") or index.get("hidden") or "partialFilterExpression" in index)
        if whole and next(iter(index["key"].items())) == (gh, 1) and "collation" not in index:
            return str(index["name"])
    return None


def histogram_pipeline(
    source: str | Expression, gh: str | None = None, characters: int = CHARACTERS
) -> list[dict[str, Any]]:
    """Count documents by the first characters of a geohash: of the field `gh`, or of an expression."""
    match = [{"$match": {gh: {"$gte": ""}}}] if gh else []  # the strings: also what makes the index usable
    value = source if gh else {"$ifNull": [source, ""]}
    # Code points, not bytes: as fast, and no error on a string that is no geohash.
    return [*match, {"$group": {"_id": {"$substrCP": [value, 0, characters]}, "n": {"$sum": 1}}}]


def server_histogram(
    collection: Documents,
    source: str | Expression,
    *,
    gh: str | None = None,
    hint: str | None = None,
    most_cells: int = MOST_CELLS,
) -> Counted:
    """The histogram of a collection, at most so many cells, as fine as that allows (40 bits at most)."""
    options: dict[str, Any] = {"hint": hint} if hint else {}
    many = collection.estimated_document_count() > MANY_DOCUMENTS
    characters = FEWER_CHARACTERS if many else CHARACTERS
    pipeline = histogram_pipeline(source, gh, characters)
    cursor = collection.aggregate(pipeline, allowDiskUse=True, batchSize=BATCH, **options)
    histogram = Histogram(characters * 5, np.zeros(0, np.uint64), np.zeros(0, np.int64))
    malformed = 0
    prefixes: list[str] = []
    counts: list[int] = []

    def put() -> None:
        nonlocal histogram
        histogram = _added(histogram, prefixes, counts)
        if len(histogram.cells) > 4 * most_cells:
            histogram = at_most(histogram, most_cells)
        prefixes.clear()
        counts.clear()

    for group in cursor:
        prefix = group["_id"]
        if len(prefix) == characters and not prefix.strip(ALPHABET):
            prefixes.append(prefix)
            counts.append(int(group["n"]))
            if len(prefixes) >= BATCH:
                put()
        elif prefix or gh:
            malformed += int(group["n"])
    put()
    return Counted(at_most(histogram, most_cells), malformed)


def _added(histogram: Histogram, prefixes: list[str], counts: list[int]) -> Histogram:
    if not prefixes:
        return histogram
    cells: Cells = strings_to_cells(prefixes) >> np.uint64(BITS - histogram.bits)
    everything = np.concatenate([histogram.cells, cells])
    numbers = np.concatenate([histogram.counts, np.asarray(counts, dtype=np.int64)])
    unique, place = np.unique(everything, return_inverse=True)
    summed = np.zeros(unique.size, dtype=np.int64)
    np.add.at(summed, place.ravel(), numbers)
    return Histogram(histogram.bits, unique, summed)


def at_most(histogram: Histogram, most_cells: int = MOST_CELLS) -> Histogram:
    """The histogram, made as coarse as it takes to have so few cells."""
    while len(histogram.cells) > most_cells and histogram.bits > 1:
        histogram = histogram.coarsened(histogram.bits - 1)
    return histogram


def distribution(collection: Documents, gh: str) -> dict[str, int]:
    """How many documents each shard owns; ``{"all": n}`` where there are no shards, nothing where nobody may know.

    By the index again, through `explain`, which says what each shard found: exact, while all other counts of a shard
    take in documents that have moved away and are not yet deleted.
    """
    hint = gh_index(collection, gh)
    command = {"find": collection.name, "filter": {}, "projection": {"_id": 0, gh: 1}}
    if hint:
        command["hint"] = hint
    try:
        told = collection.database.command("explain", command, verbosity="executionStats")["executionStats"]
    except OperationFailure:
        return {}
    shards = told["executionStages"].get("shards")
    if shards is None:
        return {"all": int(told["nReturned"])}
    names = describe(collection.database.client).shards
    held = dict.fromkeys(names if shard_key(collection) else (), 0)
    return held | {str(shard["shardName"]): int(shard["executionStages"]["nReturned"]) for shard in shards}


def quick_distribution(collection: Documents) -> dict[str, int]:
    """The same from the counts that each shard keeps: at once, and exact unless a server has crashed."""
    held: dict[str, int] = {}
    if shard_key(collection):
        held = dict.fromkeys(describe(collection.database.client).shards, 0)
    for one in collection.aggregate([{"$collStats": {"storageStats": {}}}]):
        stats = one["storageStats"]
        owned = int(stats.get("count", 0)) - int(stats.get("numOrphanDocs", 0))
        held[str(one.get("shard", "all")) if held else "all"] = owned
    return held
