"""The shards of an ingest: an empty collection created and placed, a grown one cut anew where it has drifted."""

from __future__ import annotations

import datetime as dt

from spark_jobs.cell_counts import FINEST_BITS
from spark_jobs.ingest_work import Work
from spatialnosql.analyze import measure
from spatialnosql.histogram import Histogram
from spatialnosql.metadata import ADOPTING, READY, histogram_from_document, metadata_collection
from spatialnosql.sharding import is_wanted, shard, shard_key, unevenness
from spatialnosql.skew import Choice
from spatialnosql.spreading import layout, place_empty, predicted, redistribute

SKEW_DRIFT = 1.5
"""Cut anew when the cells that chunks are cut at have become that much more skewed than the best."""


def stored_histogram(work: Work) -> Histogram:
    """What was in the collection before this batch, as far as the metadata knows."""
    if work.present and work.stored.get("histogram"):
        return histogram_from_document(work.stored["histogram"])
    if work.present and work.stored.get("state") == READY:
        return measure(work.collection, work.job.gh).histogram
    return Histogram.of_cells([], FINEST_BITS)


def is_spread(work: Work) -> bool:
    """Whether the collection lies on shards by geohash."""
    return work.deployment.is_sharded and is_wanted(shard_key(work.collection), work.job.gh)


def drifted(work: Work, everything: Histogram, choice: Choice) -> str | None:
    """Why the chunks should be cut anew before old and new lie together, or None."""
    held = predicted(work.collection, work.job.gh, work.deployment.shards, everything)
    uneven = unevenness(held)
    if uneven > work.job.drift:
        return f"the fullest shard would hold {uneven:.2f} times the mean, more than {work.job.drift:g}"
    before = (work.stored.get("precision") or {}).get("bits")
    skews = {row.bits: row.skewness for row in choice.table}
    old, new = skews.get(before) if before else None, skews.get(choice.bits)
    if old is not None and new is not None and old > SKEW_DRIFT * max(new, 1.0):
        return f"cells of {before} bits have become more skewed ({old:.1f}) than those of {choice.bits} ({new:.1f})"
    return None


def foreseen(work: Work, everything: Histogram, choice: Choice) -> str:
    """What `place` would do, in words."""
    shards = work.shard_count
    if not work.deployment.is_sharded:
        return f"the deployment is a {work.deployment.kind}, not sharded"
    if work.present and not is_spread(work):
        return "the collection is not sharded by geohash, and stays as it is"
    if work.present:
        why = drifted(work, everything, choice)
        return f"would be cut anew: {why}" if why else "would stay as it is"
    plan = layout(everything, choice.bits, shards)
    return f"would be cut into {len(plan.bounds) + 1} chunks on {shards} shards"


def place(work: Work, present: Histogram, everything: Histogram, fine: Histogram, choice: Choice) -> str:
    """Create and spread the collection while it is empty, or cut it anew if it has drifted; says what it did."""
    job, collection, shards = work.job, work.collection, work.deployment.shards
    if not work.present:
        _create(work)
        if not work.deployment.is_sharded:
            collection.create_index([(job.gh, 1), ("_id", 1)])
            return f"the deployment is a {work.deployment.kind}, not sharded"
        words = shard(collection, job.gh, shards)
        plan = layout(fine, choice.bits, len(shards))
        place_empty(collection, job.gh, shards, plan)
        return f"{words}, cut into {len(plan.bounds) + 1} chunks at cells of {choice.bits} bits while it was empty"
    if not is_spread(work):
        return "left as it is: not sharded by geohash"
    why = "asked for" if job.reshard else drifted(work, everything, choice)
    if why is None:
        return "left as it is: what came fits the chunks"
    did = redistribute(collection, job.gh, shards, present, everything, choice.bits, reshard=job.reshard)
    return f"{did} ({why})"


def _create(work: Work) -> None:
    """The collection and its metadata, not ready yet; both may be there from an attempt that was cut off."""
    collection, info = work.collection, work.info
    if work.stored.get("state") == READY:
        return  # made empty by `create`: it is as it should be
    if not collection.database.list_collections(filter={"name": collection.name}).to_list():
        collection.database.create_collection(collection.name)
    fields = {"location": info.location, "gh": info.gh, "form": info.form, "unhashed": info.unhashed}
    now = dt.datetime.now(dt.timezone.utc)
    entry = {**fields, "state": ADOPTING, "validator": False, "started": now}
    metadata_collection(collection).replace_one({"_id": info.namespace}, entry, upsert=True)
