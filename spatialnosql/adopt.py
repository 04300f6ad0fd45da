"""``adopt``: an existing collection, with its data, made spatial in place.

The steps are the functions of `STEPS`, in order. Each looks at what is there, does what is missing, and may be
repeated; what is done is recorded in the metadata. A run that was killed anywhere is taken up by the next. Until the
last step the collection's state is "adopting", and the rewriter leaves its queries alone.

Writes that arrive meanwhile: before the validator is set they pass as ever and may leave a ``gh`` missing or stale;
from then on the server refuses such writes; and what came before is mended by the last step, which runs after.
"""

from __future__ import annotations

import datetime as dt
import io
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pymongo import GEOSPHERE
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.adopt_check import Check, check
from spatialnosql.adoption import Adoption, Options, Step
from spatialnosql.analyze import Analysis, distribution, measure, server_histogram, store
from spatialnosql.cluster.deployment import Deployment, describe
from spatialnosql.errors import UsageError
from spatialnosql.expression import Form, geohash_expression
from spatialnosql.info import GH_FIELD, CollectionInfo
from spatialnosql.metadata import ADOPTING, READY, metadata_collection
from spatialnosql.progress import Progress
from spatialnosql.sharding import balance, is_wanted, key_bounds, shard, shard_key, unevenness
from spatialnosql.skew import choose_precision
from spatialnosql.validator import clause_of, digest, install
from spatialnosql.verify import Verification, mendable, set_gh, update_anyway, verify

Documents = Collection[dict[str, Any]]

BATCH = 5_000  # documents that one update gives their gh; also what is repeated after a kill
CANNOT_INDEX = 16755  # the server cannot make geo keys of some location


@dataclass
class Work:
    """What the steps share."""

    collection: Documents
    options: Options
    deployment: Deployment
    check: Check
    info: CollectionInfo
    stored: dict[str, Any]  # the metadata as found at the start
    progress: bool = False
    analysis: Analysis | None = None
    verification: Verification | None = None
    steps: list[Step] = field(default_factory=list)

    def record(self, update: dict[str, Any]) -> None:
        """Change the metadata of the collection."""
        metadata_collection(self.collection).update_one({"_id": self.collection.full_name}, update)

    def bar(self, label: str, total: int) -> Progress:
        """A progress bar, if somebody is looking."""
        stream = sys.stderr if self.progress else io.StringIO()
        return Progress(f"{label} {self.collection.full_name}", total, unit="documents", stream=stream)


def adopt(
    collection: Documents,
    location: str,
    *,
    gh: str = GH_FIELD,
    form: Form | None = None,
    allow_unhashed: bool = False,
    replace_gh: bool = False,
    shard: bool = True,
    rebalance: bool = False,
    validator: bool = True,
    precision: int | None = None,
    dry_run: bool = False,
    progress: bool = False,
) -> Adoption:
    """Make an existing collection spatial: ``gh``, indexes, statistics, shards, validator. Safe to run again.

    `allow_unhashed` takes locations that are no points; `replace_gh` overwrites a field ``gh`` of another meaning;
    `rebalance` also moves documents of a collection that is sharded by geohash already; `precision` overrides the
    choice. With `dry_run` nothing is changed.
    """
    options = Options(location, gh, form, allow_unhashed, replace_gh, shard, rebalance, validator, precision)
    work = prepare(collection, options, progress=progress)
    if dry_run:
        return plan(work)
    begin(work)
    for name, step in STEPS:
        started = time.monotonic()
        words = step(work)
        seconds = time.monotonic() - started
        work.steps.append(Step(name, words, seconds))
        done = {"words": words, "seconds": round(seconds, 3), "at": dt.datetime.now(dt.timezone.utc)}
        work.record({"$set": {f"steps.{name}": done}})
    return work_to_adoption(work)


def work_to_adoption(work: Work, *, dry_run: bool = False) -> Adoption:
    """What was done, as a value."""
    analysis = work.analysis
    return Adoption(
        work.collection.full_name,
        work.options.location,
        work.info.gh,
        work.info.form,
        work.info.unhashed,
        work.check.forms,
        tuple(work.steps),
        analysis.choice if analysis else None,
        analysis.shards if analysis else {},
        work.options.validator,
        work.verification,
        dry_run,
    )


# -- before -----------------------------------------------------------------------------------------------


def prepare(collection: Documents, options: Options, *, progress: bool = False) -> Work:
    """Look at everything that could be in the way, before anything is changed."""
    stored = metadata_collection(collection).find_one({"_id": collection.full_name}, {"histogram": 0}) or {}
    for name, wanted in (("location", options.location), ("gh", options.gh)):
        if stored and stored.get(name, GH_FIELD) != wanted:
            raise UsageError(
                f"{collection.full_name} is adopted with {name} {stored.get(name)!r}, not {wanted!r}; to begin anew, "
                f"delete its document from spatialnosql.collections"
            )
    deployment = describe(collection.database.client)
    unhashed = options.allow_unhashed or bool(stored.get("unhashed"))
    found = check(
        collection,
        options.location,
        options.gh,
        deployment,
        form=options.form,
        kept_form=stored.get("form"),
        allow_unhashed=unhashed,
        # Ours already, or of a run that was interrupted: what is stale is mended.
        replace_gh=options.replace_gh or bool(stored),
        shard=options.shard,
        validator=options.validator,
    )
    info = CollectionInfo(collection.full_name, options.location, options.gh, found.form, unhashed)
    return Work(collection, options, deployment, found, info, stored, progress)


def begin(work: Work) -> None:
    """Write down what is being done. A collection that is ready stays so, if nothing of it changes."""
    info = work.info
    fields = {"location": info.location, "gh": info.gh, "form": info.form, "unhashed": info.unhashed}
    same = all(work.stored.get(name) == value for name, value in fields.items())
    state = READY if same and work.stored.get("state") == READY else ADOPTING
    update: dict[str, Any] = {"$set": {**fields, "state": state}}
    if not same:
        update["$unset"] = {"steps": ""}
        work.stored.pop("steps", None)
    update["$setOnInsert"] = {"started": dt.datetime.now(dt.timezone.utc)}
    metadata_collection(work.collection).update_one({"_id": info.namespace}, update, upsert=True)


def plan(work: Work) -> Adoption:
    """What would be done; reads everything once, changes nothing."""
    info, documents = work.info, work.check.documents
    started = time.monotonic()
    histogram = server_histogram(work.collection, geohash_expression(info.location, info.form)).histogram
    choice = choose_precision(histogram, max(len(work.deployment.shards), 1), override=work.options.precision)
    work.analysis = Analysis(
        info.namespace, histogram, choice, documents - histogram.total, seconds=time.monotonic() - started
    )
    missing = work.collection.count_documents({info.gh: None})
    key = work.check.shard_key
    words = {
        "hash": f"would give up to {missing:,} documents their {info.gh}",
        "index": f"would build {{{info.gh}: 1, _id: 1}} and a 2dsphere index, if they are missing",
        "analyze": f"would store the histogram of {len(histogram.cells):,} cells, precision {choice.bits} bits",
        "shard": f"would shard by {{{info.gh}, _id}}"
        if key is None
        else f"would reshard from {{{', '.join(key)}}}",
        "validate": "would set the validator" if work.options.validator else "no validator",
        "verify": "would mend what writers left meanwhile",
    }
    if is_wanted(key, info.gh):
        words["shard"] = "sharded by geohash already"
    if why := _no_shards(work):
        words["shard"] = why
    work.steps = [Step(name, words[name]) for name, _ in STEPS]
    return work_to_adoption(work, dry_run=True)


# -- the steps --------------------------------------------------------------------------------------------


def add_gh(work: Work) -> str:
    """Give every document its ``gh``, computed on the server, a batch of ``_id`` at a time."""
    collection, info = work.collection, work.info
    if "hash" in work.stored.get("steps", {}):
        return "done before"  # what came since then is the last step's
    key = shard_key(collection) if work.deployment.is_sharded else None
    if key is not None and info.gh in key:
        mended = verify(collection, repair=True, info=info, progress=work.progress)
        return f"{mended.repaired:,} documents, one at a time: {info.gh} is in the shard key"
    started, done = time.monotonic(), 0
    pipeline = set_gh(info)
    with work.bar("geohashing", work.check.documents) as bar:
        for identifiers in _without_gh(collection, info.gh):
            done += update_anyway(collection, {"_id": {"$in": identifiers}}, pipeline)
            bar.advance(len(identifiers))
    if work.options.replace_gh or work.stored:
        # While one update may still change all: once gh is in the shard key, it is one document at a time.
        done += update_anyway(collection, mendable(info), pipeline)
    seconds = time.monotonic() - started
    return f"{done:,} documents, {done / max(seconds, 1e-3):,.0f}/s"


def _without_gh(collection: Documents, gh: str) -> Iterator[list[Any]]:
    # One cursor for all: to ask again for the next ones would read those already done each time.
    found = collection.find({gh: None}, {"_id": 1}, batch_size=BATCH)
    while batch := [document["_id"] for document in islice(found, BATCH)]:
        yield batch


def build_indexes(work: Work) -> str:
    """Build ``{gh: 1, _id: 1}``, and a geo index on the location if it has none."""
    collection, info = work.collection, work.info
    built = [collection.create_index([(info.gh, 1), ("_id", 1)])]
    if any(
        next(iter(index["key"].items())) in ((info.location, "2dsphere"), (info.location, "2d"))
        for index in collection.list_indexes()
    ):
        return f"{built[0]}; the location has its own"
    try:
        built.append(collection.create_index([(info.location, GEOSPHERE)]))
    except OperationFailure as error:
        if error.code != CANNOT_INDEX or not info.unhashed:
            raise
        return f"{built[0]}; no 2dsphere index, for some locations cannot be indexed: near queries need one"
    return ", ".join(built)


def count_cells(work: Work) -> str:
    """Count the cells from the index and choose the precision."""
    work.analysis = measure(work.collection, work.info.gh, precision=work.options.precision)
    store(work.collection, work.analysis)
    return f"{len(work.analysis.histogram.cells):,} cells, precision {work.analysis.choice.bits} bits"


def _no_shards(work: Work) -> str | None:
    """Why there is nothing to shard, if so."""
    if not work.deployment.is_sharded:
        return f"skipped: the deployment is a {work.deployment.kind}, not sharded"
    return None if work.options.shard else "not wanted"


def spread(work: Work) -> str:
    """Shard or reshard by ``{gh: 1, _id: 1}``, and move documents until the shards are even."""
    if why := _no_shards(work):
        return why
    collection, gh, shards = work.collection, work.info.gh, work.deployment.shards
    ours = is_wanted(shard_key(collection), gh)
    # Written down before: a run killed between sharding and moving must not take the placement for the user's own.
    if ours and not work.options.rebalance and not work.stored.get("balancing"):
        return "sharded by geohash already, left as it is (--rebalance to even it out)"
    work.record({"$set": {"balancing": True}})
    words = shard(collection, gh, shards)
    assert work.analysis is not None
    histogram = work.analysis.histogram
    moved = 0
    if len(shards) > 1:
        bounds = key_bounds(collection, gh, histogram, work.analysis.choice.bits, len(shards))
        with work.bar("moving", histogram.total) as bar:
            moved = balance(collection, gh, shards, bounds, histogram, bar.advance)
    work.record({"$unset": {"balancing": ""}})
    work.analysis = replace(work.analysis, shards=distribution(collection, gh))
    store(collection, work.analysis)
    return f"{words}; moved {moved:,} documents, max/mean load {unevenness(work.analysis.shards):.2f}"


def guarantee(work: Work) -> str:
    """Set the validator, beside the user's own."""
    if not work.options.validator:
        work.record({"$set": {"validator": False}})
        return "not wanted: queries are rewritten only with trust_gh=True"
    # Written down first: a clause of ours must be known as ours, whatever happens next.
    work.record({"$addToSet": {"clauses": digest(clause_of(work.info))}})
    changed = install(work.collection, work.info, work.stored.get("clauses", ()))
    work.record({"$set": {"validator": True}})
    return "set" if changed else "there already"


def finish(work: Work) -> str:
    """Mend what writers left before the validator; then, and only then, the collection is ready."""
    work.verification = found = verify(work.collection, repair=True, info=work.info, progress=work.progress)
    if work.options.validator and not found.is_sound:
        left = ", ".join(f"{problem.count:,}: {reason}" for reason, problem in found.remaining.items())
        raise UsageError(
            f"{work.info.namespace} is not ready: {left}; see `spatialnosql verify {work.info.namespace}`, mend or "
            "remove these documents, or take them as they are (--allow-unhashed), and run adopt again"
        )
    # Counted anew only if there is something new to count.
    if (
        found.repaired
        or work.analysis is None
        or found.checked != work.analysis.documents + work.analysis.without_gh
    ):
        count_cells(work)
    work.record({"$set": {"state": READY, "adopted": dt.datetime.now(dt.timezone.utc)}})
    return f"{found.checked:,} documents checked, {found.repaired:,} mended"


STEPS: tuple[tuple[str, Callable[[Work], str]], ...] = (
    ("hash", add_gh),
    ("index", build_indexes),
    ("analyze", count_cells),
    ("shard", spread),
    ("validate", guarantee),
    ("verify", finish),
)
