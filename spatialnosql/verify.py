"""``verify``: documents whose ``gh`` is missing or stale, found by the server and, if asked, mended there.

A document is in order if it passes the very clause that the validator has (`info.true_gh`). The geohash is computed on
the server by the update itself, from the location that the document has at that moment, so no writer can get between.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from spatialnosql.errors import UsageError
from spatialnosql.expression import Expression, geohash_expression
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import metadata_collection
from spatialnosql.progress import Progress
from spatialnosql.sharding import shard_key
from spatialnosql.validator import INVALID

Documents = Collection[dict[str, Any]]

FINE, MISSING, WRONG = "fine", "gh is missing", "gh is wrong"
NOWHERE, NO_POINT = "gh without a location", "the location is no point"
SAMPLES = 10
ROUNDS = 3  # writers that go past the library may undo a repair; they are not chased for ever
THREADS = 4
ATTEMPTS = 5
BATCH = 1_000
PATIENCE_S = 1_200.0  # longer than shards keep copies of what moved away, unless told otherwise (15 minutes)
NOT_YET = "an old copy of it is not yet deleted from the shard it belongs to; repair again later"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: how many documents, and the ``_id`` of a few."""

    count: int
    samples: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Verification:
    """What `verify` found, and what it mended."""

    namespace: str
    checked: int
    problems: dict[str, Problem]  # by reason, as found at first
    remaining: dict[str, Problem]  # as left in the end: the same without repair
    repaired: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # _id and what the server said, a few
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        """How many documents are still not in order."""
        return sum(problem.count for problem in self.remaining.values())

    @property
    def is_sound(self) -> bool:
        """Whether every document is in order now."""
        return not self.wrong

    def to_document(self) -> dict[str, Any]:
        """For JSON; identifiers as strings."""

        def shown(problems: Mapping[str, Problem]) -> dict[str, Any]:
            return {
                reason: {"count": problem.count, "samples": [str(sample) for sample in problem.samples]}
                for reason, problem in problems.items()
            }

        return {
            "namespace": self.namespace,
            "checked": self.checked,
            "sound": self.is_sound,
            "problems": shown(self.problems),
            "repaired": self.repaired,
            "remaining": shown(self.remaining),
            "failures": self.failures,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.namespace}: {self.checked:,} documents checked in {self.seconds:.1f} s"]
        lines += [
            f"  {problem.count:,}: {reason}{_some(problem)}" for reason, problem in self.problems.items()
        ]
        if self.repaired:
            lines.append(f"Repaired: {self.repaired:,}")
            lines += [f"  still {p.count:,}: {reason}{_some(p)}" for reason, p in self.remaining.items()]
        lines += [f"  _id {identifier}: {said}" for identifier, said in self.failures.items()]
        if not self.problems:
            lines.append("Every gh is right.")
        elif not self.is_sound and not self.repaired:
            lines.append(
                "Mend what can be mended with --repair." if _mendable(self.remaining) else "Nothing to mend."
            )
        return lines


def _some(problem: Problem) -> str:
    shown = ", ".join(repr(sample) for sample in problem.samples[:3])
    return f" (_id {shown}{', ...' if problem.count > 3 else ''})"


def _mendable(problems: Mapping[str, Problem]) -> bool:
    return any(reason != NO_POINT for reason in problems)


def stored_info(collection: Documents) -> CollectionInfo:
    """The fields of an adopted collection, as its metadata has them."""
    found = metadata_collection(collection).find_one({"_id": collection.full_name}, {"histogram": 0})
    if found is None:
        raise UsageError(
            f"{collection.full_name} was never adopted; run `spatialnosql adopt {collection.full_name} "
            "--location FIELD` first"
        )
    return CollectionInfo(
        collection.full_name,
        found["location"],
        found.get("gh", "gh"),
        found.get("form", "any"),
        bool(found.get("unhashed", False)),
    )


def verify(
    collection: Documents,
    *,
    repair: bool = False,
    info: CollectionInfo | None = None,
    patience_s: float = PATIENCE_S,
    progress: bool = False,
) -> Verification:
    """Find the documents of an adopted collection whose ``gh`` is not right, and mend them if `repair`.

    A location that is no point has no geohash: such documents are listed, never changed, never deleted. `patience_s`
    bounds the wait for shards that have not yet deleted what moved away from them.
    """
    started = time.monotonic()
    fields = stored_info(collection) if info is None else info
    checked, problems = survey(collection, fields)
    remaining, repaired = problems, 0
    failures: dict[str, str] = {}
    rounds = 0
    while repair and rounds < ROUNDS:
        expected = sum(p.count for reason, p in remaining.items() if reason != NO_POINT)
        if not expected:
            break
        failures.clear()
        done, waiting = mend(collection, fields, expected, failures, progress=progress)
        repaired += done
        if waiting and time.monotonic() - started < patience_s:
            time.sleep(min(0.2 * waiting, 2.0))
        else:
            rounds += 1
        _, remaining = survey(collection, fields)
        if not done and not waiting:
            break
    seconds = time.monotonic() - started
    return Verification(collection.full_name, checked, problems, remaining, repaired, failures, seconds)


def survey(collection: Documents, info: CollectionInfo) -> tuple[int, dict[str, Problem]]:
    """How many documents there are, and how many of them are not in order, by reason."""
    group = {
        "_id": _reason(info),
        "count": {"$sum": 1},
        "samples": {"$firstN": {"input": "$_id", "n": SAMPLES}},
    }
    found = {str(row["_id"]): row for row in collection.aggregate([{"$group": group}])}
    checked = sum(int(row["count"]) for row in found.values())
    found.pop(FINE, None)
    return checked, {
        reason: Problem(int(row["count"]), tuple(row["samples"])) for reason, row in sorted(found.items())
    }


def _reason(info: CollectionInfo) -> Expression:
    """What is the matter with a document; follows the clause of `true_gh` to the letter."""
    given, place = {"$ifNull": [f"${info.gh}", None]}, {"$ifNull": [f"${info.location}", None]}
    is_point, is_nowhere = {"$ne": ["$$hash", None]}, {"$eq": [place, None]}
    allowed: Expression = {"$literal": True} if info.unhashed else {"$or": [is_point, is_nowhere]}
    branches = [
        {"case": {"$and": [{"$eq": [given, "$$hash"]}, allowed]}, "then": FINE},
        {"case": is_nowhere, "then": NOWHERE},
        # With unhashed only a gh is wrong there, and it can be taken away.
        {"case": {"$not": [is_point]}, "then": WRONG if info.unhashed else NO_POINT},
        {"case": {"$eq": [given, None]}, "then": MISSING},
    ]
    return {
        "$let": {
            "vars": {"hash": geohash_expression(info.location, info.form)},
            "in": {"$switch": {"branches": branches, "default": WRONG}},
        }
    }


def set_gh(info: CollectionInfo) -> list[dict[str, Any]]:
    """The update that gives a document its ``gh``, or takes away what has no place."""
    computed = geohash_expression(info.location, info.form)
    return [{"$set": {info.gh: {"$ifNull": [computed, "$$REMOVE"]}}}]


def mendable(info: CollectionInfo) -> dict[str, Any]:
    """The filter of documents that are not in order and will be after `set_gh`."""
    # What would still be refused afterwards, a location that is no point, is left alone.
    return {"$expr": {"$not": [{"$in": [_reason(info), [FINE, NO_POINT]]}]}}


def mend(
    collection: Documents,
    info: CollectionInfo,
    expected: int,
    failures: dict[str, str],
    *,
    progress: bool = False,
) -> tuple[int, int]:
    """Set right what can be set right; how many documents that were, and how many must wait."""
    stream = sys.stderr if progress else io.StringIO()
    with Progress(f"repairing {collection.name}", expected, unit="documents", stream=stream) as bar:
        key = shard_key(collection)
        if key is None or info.gh not in key:
            return update_anyway(collection, mendable(info), set_gh(info)), 0
        # A multi-update may not change the shard key; one document at a time may, from shard to shard.
        done = waiting = 0
        with ThreadPoolExecutor(THREADS) as pool:
            for batch in _batches(collection, info, key):
                results = pool.map(lambda document: _mend_one(collection, info, document), batch)
                for document, (mended, said) in zip(batch, results, strict=True):
                    done += mended
                    waiting += said == NOT_YET
                    if said and len(failures) < SAMPLES:
                        failures[str(document["_id"])] = said
                bar.advance(len(batch))
        return done, waiting


def _batches(
    collection: Documents, info: CollectionInfo, key: Mapping[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """The filters of single documents to mend: ``_id`` and the value of the shard key that they have now."""
    fields = {f"k{number}": {"$ifNull": [f"${name}", None]} for number, name in enumerate(key)}
    pipeline = [{"$match": mendable(info)}, {"$project": fields}]
    found = collection.aggregate(pipeline, batchSize=BATCH)
    while batch := list(islice(found, BATCH)):
        yield [
            {
                "_id": one["_id"],
                **{name: one.get(f"k{number}") for number, name in enumerate(key) if name != "_id"},
            }
            for one in batch
        ]


def _mend_one(
    collection: Documents, info: CollectionInfo, document: dict[str, Any]
) -> tuple[int, str | None]:
    """Mend one document: 1 if that changed it, and what the server said if it could not."""
    client = collection.database.client
    pipeline = set_gh(info)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if client.options.retry_writes:
                return update_anyway(collection, document, pipeline, one=True), None
            # Without retryable writes, a document changes its shard in a transaction only.
            with client.start_session() as session:
                result = session.with_transaction(
                    lambda own: collection.update_one(document, pipeline, session=own)
                )
                return int(result.modified_count), None
        except DuplicateKeyError:
            # A shard keeps copies of what moved away for a while, and their _id with them.
            several = collection.count_documents({"_id": document["_id"]}, limit=2) > 1
            return 0, "the same _id is on another shard too" if several else NOT_YET
        except OperationFailure as error:
            if attempt == ATTEMPTS or not error.has_error_label("TransientTransactionError"):
                said = error.details.get("errmsg") if error.details else None
                return 0, " ".join(str(said or error).split())[:300]
            time.sleep(0.05 * attempt)
    raise AssertionError("the last attempt returns")


def update_anyway(
    collection: Documents, filter_: Mapping[str, Any], pipeline: list[dict[str, Any]], *, one: bool = False
) -> int:
    """Update documents, also such as fail a validator of the user's: the server changes ``gh`` only, and knows how."""
    update = collection.update_one if one else collection.update_many
    try:
        return int(update(filter_, pipeline).modified_count)
    except PyMongoError as error:
        if getattr(error, "code", None) != INVALID:
            raise
        return int(update(filter_, pipeline, bypass_document_validation=True).modified_count)
