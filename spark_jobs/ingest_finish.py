"""The end of an ingest: the index, the validator, and what the rewriter must know."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from pymongo import GEOSPHERE

from spark_jobs.cell_counts import Counts, merged
from spark_jobs.ingest_place import is_spread
from spark_jobs.ingest_shut import shut_at_last
from spark_jobs.ingest_stk import Sealed, finish_filters
from spark_jobs.ingest_work import Work
from spark_jobs.loading import Loaded
from spatialnosql.analyze import Analysis, at_most, distribution, measure, quick_distribution, store
from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.histogram import Histogram
from spatialnosql.ledger import Ledger
from spatialnosql.metadata import READY, metadata_collection
from spatialnosql.sharding import unevenness
from spatialnosql.skew import Choice
from spatialnosql.spreading import redistribute
from spatialnosql.stk.setup import build_index as build_cube_index
from spatialnosql.validator import clause_of, digest, install


def build_index(work: Work, *, sealed: bool = False) -> None:
    """A 2dsphere index, unless the location has a geo index of its own; one of data cubes, if documents are sealed."""
    location = work.job.location
    kinds = ((location, "2dsphere"), (location, "2d"))
    if not any(next(iter(index["key"].items())) in kinds for index in work.collection.list_indexes()):
        work.collection.create_index([(location, GEOSPHERE)])
    if work.mark is not None:
        work.collection.create_index([(work.mark, 1), (work.job.gh, 1)])
    if sealed:
        build_cube_index(work.collection, work.job.gh)


def finish(
    work: Work,
    ledger: Ledger,
    counts: Counts,
    loaded: Loaded,
    present: Histogram,
    choice: Choice,
    sealed: Sealed | None = None,
) -> tuple[Analysis, str]:
    """Validator, histogram, distribution: what the rewriter must know; and in words what had to be moved at last."""
    job, collection = work.job, work.collection
    clean = not (loaded.already_there or loaded.replaced or loaded.superseded or ledger.taken_up)
    held = quick_distribution(collection)
    if clean and sum(held.values()) == work.present + loaded.written and (present.total or not work.present):
        histogram = merged(present, counts.histogram) if present.total else counts.histogram
        analysis = Analysis(collection.full_name, at_most(histogram), choice, 0, held)
    else:
        analysis = measure(collection, job.gh, precision=job.precision)
    if not work.present and analysis.documents + analysis.without_gh < loaded.written:
        raise SpatialNoSQLError(
            f"{loaded.written:,} documents were written, but {analysis.documents:,} are there; run the batch again"
        )
    # One that was there before, and without, is left as its owner wants it.
    if job.validator and work.stored.get("state") != READY:
        record = metadata_collection(collection).update_one
        record({"_id": collection.full_name}, {"$addToSet": {"clauses": digest(clause_of(work.info))}})
        install(collection, work.info, work.stored.get("clauses", ()))
        record({"_id": collection.full_name}, {"$set": {"validator": True}})
    words = ""
    shards = work.deployment.shards
    if is_spread(work) and len(shards) > 1 and unevenness(analysis.shards) > job.drift:
        # A place that outweighs a shard can be cut between its documents only once they are there.
        words = redistribute(collection, job.gh, shards, analysis.histogram, analysis.histogram, choice.bits)
        analysis = replace(analysis, shards=distribution(collection, job.gh))
    if sealed is not None:
        finish_filters(work, sealed)
    if "stk" in work.stored:
        shut_at_last(work)
    store(collection, analysis)
    now = dt.datetime.now(dt.timezone.utc)
    known = {"state": READY, "adopted": now, "batch": ledger.batch, "mark": work.mark}
    metadata_collection(collection).update_one({"_id": collection.full_name}, {"$set": known})
    return analysis, words
