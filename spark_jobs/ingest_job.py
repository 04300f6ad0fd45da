"""One batch from its source to the indexed, sharded collection: the phases in their order.

Each phase looks at what is there and does what is missing, so a batch that was killed anywhere is simply run again.
Until the first batch is whole the collection's state is not "ready", and the rewriter leaves its queries alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pymongo.collection import Collection
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.cell_counts import Counts, count, merged, refined
from spark_jobs.documents import DIGEST, Shape, identified, shape_of, to_documents
from spark_jobs.ingest_finish import build_index, finish
from spark_jobs.ingest_place import foreseen, place, stored_histogram
from spark_jobs.ingest_shut import open_for
from spark_jobs.ingest_stk import Sealed, begin_filters, check, decide, sealing, with_seal
from spark_jobs.ingest_work import Job, Work
from spark_jobs.loading import Loaded, load
from spark_jobs.lookup import Target
from spark_jobs.parts import part_column
from spark_jobs.points import find_column
from spark_jobs.quarantine import set_aside
from spark_jobs.screening import SWAPPED, Rules, coordinate_columns, home_of, points_inside, screened
from spark_jobs.sources import POSITION, SOURCE, Source, open_collection, open_files
from spatialnosql.cluster.deployment import describe
from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import GH_FIELD
from spatialnosql.ingestion import Ingestion
from spatialnosql.ledger import DONE, FAILED, FINISHING, LOADING, PLACING, REFUSED, Ledger, open_batch
from spatialnosql.metadata import metadata_collection
from spatialnosql.sharding import chunks
from spatialnosql.skew import choose_precision
from spatialnosql.stk.settings import STK_FIELD, StkSettings
from spatialnosql.target import split_namespace

Documents = Collection[dict[str, Any]]


def ingest(spark: SparkSession, uri: str, client: Any, job: Job, *, spark_start_s: float = 0.0) -> Ingestion:
    """Run one batch."""
    work = prepare(spark, uri, client, job)
    with work.phase("read", "looking at the source"):
        source = open_source(work)
    ledger: Ledger | None = None
    try:
        batch = job.batch or source.fingerprint
        if not job.dry_run:
            ledger = open_batch(work.collection, batch, list(source.names))
        outcome = _run(work, source, batch, ledger)
        return replace(outcome, spark_start_s=spark_start_s)
    except BaseException as error:
        if ledger is not None and not isinstance(error, Refused):
            with contextlib.suppress(Exception):
                ledger.enter(FAILED, error=f"{type(error).__name__}: {error}"[:500])
        raise
    finally:
        source.close()


class Refused(SpatialNoSQLError):  # noqa: N818 - says what happened to the batch
    """Too many rows of a batch are bad; nothing of it was written."""


def _run(work: Work, source: Source, batch: str, ledger: Ledger | None) -> Ingestion:
    job = work.job
    rules, counts = count_rows(work, source)
    rows, traced = (
        screened(frame, rules, lng=job.lon, lat=job.lat, point=job.point)
        for frame in (source.rows, source.traced)
    )
    present = stored_histogram(work)
    everything = merged(present, counts.histogram) if present.total else counts.histogram
    choice = choose_precision(everything, work.shard_count, override=job.precision)
    outcome = Ingestion(
        work.collection.full_name,
        batch,
        counts.rows,
        quarantined=counts.bad,
        reasons=counts.faults,
        choice=choice,
        dry_run=job.dry_run,
    )
    too_many = counts.rows and counts.bad / counts.rows > job.max_bad
    if too_many:
        words = f"{counts.bad:,} of {counts.rows:,} rows are bad ({_shown(counts.faults)})"
        refusal = f"{words}, more than --max-bad {job.max_bad:g}; nothing was written"
        if ledger is not None:
            ledger.enter(
                REFUSED, rows=counts.rows, quarantined=counts.bad, reasons=counts.faults, error=refusal
            )
        if not job.dry_run:
            raise Refused(f"batch {batch}: {refusal}")
    shape = make_shape(work, source)
    settings = check(work, shape) if shape.seal is not None else None
    if shape.seal is not None and settings is None:
        with work.phase("sizes", "choosing time bins and cells"):
            settings = decide(work, rows, shape, counts.good)
    if ledger is None:
        if settings is not None:
            outcome = replace(outcome, stk=Sealed(settings).to_document())
        words = foreseen(work, everything, choice)
        if too_many:
            words = f"none: the batch would be refused, for more than {job.max_bad:g} of its rows are bad"
        return replace(outcome, written=counts.good, placement=words, phases=work.phases)
    with work.phase("quarantine", f"setting aside {counts.bad:,} rows"):
        set_aside(traced, source.columns, work.collection, batch, counts.bad)
    ledger.enter(PLACING, rows=counts.rows, quarantined=counts.bad, reasons=counts.faults)
    with work.phase("place", f"placing {counts.good:,} documents on {work.shard_count} shards"):
        fine = refined(rows, counts.histogram, work.shard_count) if not work.present else counts.histogram
        words = place(work, present, everything, fine, choice)
        if settings is not None:
            begin_filters(work, settings)
    ledger.enter(LOADING)
    loaded, sealed = load_rows(work, traced if shape.keys else rows, shape, counts, fine, ledger, settings)
    ledger.enter(FINISHING)
    with work.phase("index", "indexing"):
        build_index(work, sealed=sealed is not None)
    with work.phase("finish", "finishing"):
        analysis, more = finish(work, ledger, counts, loaded, present, choice, sealed)
    outcome = replace(
        outcome,
        written=loaded.written,
        replaced=loaded.replaced,
        moved=loaded.moved,
        already_there=loaded.already_there,
        superseded=loaded.superseded,
        choice=analysis.choice,
        chunks=len(chunks(work.collection)) or 1,
        shards=analysis.shards,
        documents=analysis.documents + analysis.without_gh,
        placement="; then ".join(part for part in (words, more) if part),
        phases=work.phases,
        attempts=ledger.attempts,
        stk=sealed.to_document() if sealed is not None else None,
    )
    if outcome.accounted != outcome.rows:
        raise SpatialNoSQLError(
            f"batch {batch}: {outcome.rows:,} rows came in, but only {outcome.accounted:,} are accounted for"
        )
    ledger.enter(DONE, finished=dt.datetime.now(dt.timezone.utc), outcome=outcome.to_document())
    return outcome


def _shown(faults: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in faults.items())


# -- before anything is written ---------------------------------------------------------------------------


def prepare(spark: SparkSession, uri: str, client: Any, job: Job) -> Work:
    """Look at the collection, and refuse what cannot be appended to."""
    database, name = split_namespace(job.into)
    collection: Documents = client[database][name]
    deployment = describe(client)
    stored = metadata_collection(collection).find_one({"_id": collection.full_name}) or {}
    found = collection.database.list_collections(filter={"name": name}).to_list()
    if found and found[0]["type"] != "collection":
        raise UsageError(
            f"{job.into} is a {found[0]['type']}; documents can be ingested into a collection only"
        )
    if stored and not found:
        stored = {}  # what an earlier collection of this name left there is not true of this one
    present = collection.count_documents({}, limit=1) if found else 0
    if present and not stored:
        raise UsageError(
            f"{job.into} has documents and was never adopted; run `spatialnosql adopt {job.into} --location FIELD` "
            "first, or choose another collection"
        )
    if stored:
        for field_name, wanted in (("location", job.location), ("gh", job.gh)):
            if stored.get(field_name, GH_FIELD) != wanted:
                raise UsageError(
                    f"{job.into} keeps its {field_name} in {stored.get(field_name)!r}, not {wanted!r}; "
                    f"give --{field_name} {stored.get(field_name)}"
                )
        if stored.get("form", "any") == "legacy":
            raise UsageError(f"{job.into} has legacy points; the ingest writes GeoJSON")
    if present:
        present = collection.estimated_document_count()
    return Work(spark, uri, collection, job, deployment, stored, present)


def open_source(work: Work) -> Source:
    """The rows of the files or the staging collection; the first so many of them, if so asked."""
    job = work.job
    if job.source is not None:
        database, name = split_namespace(job.source)
        source = open_collection(work.spark, work.collection.database.client[database][name])
    else:
        source = open_files(work.spark, job.inputs, job.file_format, job.read_options, job.scratch)
    if job.limit is not None:
        # Kept: which rows are the first is not the same in every pass.
        source.traced = source.traced.limit(job.limit).persist(StorageLevel.MEMORY_AND_DISK)
        source.rows = source.traced.drop(SOURCE, POSITION)
    return source


def make_shape(work: Work, source: Source) -> Shape:
    """How the documents will look."""
    job = work.job
    if job.point:
        coordinates = [find_column(source.columns, job.point, (), "--point")]
    else:
        coordinates = list(coordinate_columns(source.columns, job.lon, job.lat))
    keys = job.key
    if source.kind == "collection" and not (keys or job.select):
        keys = ("_id",)  # what identifies a document there identifies it here
    shape = shape_of(
        source.columns,
        select=job.select,
        rename=job.rename,
        keys=keys,
        coordinates=coordinates,
        location=job.location,
        gh=job.gh,
        mark=work.mark,
    )
    return shape if job.stk is None else with_seal(shape, source.rows, source.columns, job.stk)


def count_rows(work: Work, source: Source) -> tuple[Rules, Counts]:
    """What makes a row bad, and the counts of all: one pass, a second only if some seem to be swapped."""
    job = work.job
    shape = make_shape(work, source)
    time = None
    if shape.seal is not None:
        check(work, shape)  # before anything is read
        time = shape.seal.time
    rules = Rules(job.bounds, job.reject_zero, job.find_swapped, shape.keys, time=time)
    with work.phase("count", "counting cells"):
        counts = count(screened(source.rows, rules, lng=job.lon, lat=job.lat, point=job.point))
        home = home_of(counts.histogram) if job.find_swapped and job.bounds is None else None
        suspects = home is not None and points_inside(counts.histogram, home.mirrored)
        if home is not None and (suspects or SWAPPED in counts.faults):
            rules = replace(rules, home=home)
            counts = count(screened(source.rows, rules, lng=job.lon, lat=job.lat, point=job.point))
    return rules, counts


# -- loading -----------------------------------------------------------------------------------------------


def load_rows(
    work: Work,
    rows: DataFrame,
    shape: Shape,
    counts: Counts,
    fine: Histogram,
    ledger: Ledger,
    settings: StkSettings | None,
) -> tuple[Loaded, Sealed | None]:
    """Load the good rows; sealed, if there are settings for it."""
    if not counts.good:
        return Loaded(0), Sealed(settings) if settings is not None else None
    part, parts = part_column(fine, work.shard_count, work.spark.sparkContext.defaultParallelism)
    ready = identified(rows, shape, part, parts)
    if settings is None:
        if "stk" in work.stored:
            open_for(work, ledger.batch)
        return _load(work, to_documents(ready, shape, ledger.batch), shape, counts, ledger), None
    with sealing(work, ready, shape, ledger.batch, settings) as (documents, settle, sealed):
        return _load(work, documents, shape, counts, ledger, settle), sealed


def _load(
    work: Work,
    documents: DataFrame,
    shape: Shape,
    counts: Counts,
    ledger: Ledger,
    settle: Callable[[], None] | None = None,
) -> Loaded:
    target = Target(
        work.uri,
        work.collection.database.name,
        work.collection.name,
        work.job.gh,
        work.job.location,
        DIGEST if shape.keys else None,
        STK_FIELD if settle is not None or "stk" in work.stored else None,
    )
    with work.phase("load", f"loading {counts.good:,} documents"):
        return load(
            documents,
            work.collection,
            target,
            rows=counts.good,
            fresh=not work.present,
            keyed=bool(shape.keys),
            plan=ledger.plan,
            write_concern=work.job.write_concern,
            settle=settle,
        )
