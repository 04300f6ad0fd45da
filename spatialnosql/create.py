"""``create``: a new, empty spatial collection: indexed, sharded, with its validator, known to the rewriter."""

from __future__ import annotations

import datetime as dt
from typing import Any

from bson.min_key import MinKey
from pymongo import GEOSPHERE
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import CollectionInvalid

from spatialnosql.adopt_check import check_names
from spatialnosql.cluster.deployment import describe
from spatialnosql.errors import UsageError
from spatialnosql.expression import Form
from spatialnosql.geohash import bound_to_string
from spatialnosql.histogram import Histogram
from spatialnosql.info import GH_FIELD, CollectionInfo
from spatialnosql.metadata import READY, histogram_to_document, metadata_collection
from spatialnosql.sharding import balance
from spatialnosql.sharding import shard as shard_by_gh
from spatialnosql.skew import choose_precision, split_points
from spatialnosql.validator import clause_of


def create(
    database: Database[dict[str, Any]],
    name: str,
    location: str = "loc",
    *,
    gh: str = GH_FIELD,
    form: Form = "any",
    unhashed: bool = False,
    shard: bool = True,
    validator: bool = True,
    histogram: Histogram | None = None,
    precision: int | None = None,
) -> Collection[dict[str, Any]]:
    """Make a new spatial collection. With the histogram of what will come, it is cut and spread while it is empty.

    Without one all of it begins on one shard; `adopt` with `rebalance` evens it out later.
    """
    check_names(location, gh)
    info = CollectionInfo(f"{database.name}.{name}", location, gh, form, unhashed)
    options: dict[str, Any] = {"validator": clause_of(info)} if validator else {}
    try:
        collection: Collection[dict[str, Any]] = database.create_collection(name, **options)
    except CollectionInvalid as error:
        raise UsageError(f"{info.namespace} is there already; use adopt") from error
    collection.create_index([(gh, 1), ("_id", 1)])
    collection.create_index([(location, GEOSPHERE)])
    deployment = describe(database.client)
    fields: dict[str, Any] = {
        "location": location,
        "gh": gh,
        "form": form,
        "unhashed": unhashed,
        "validator": validator,
        "state": READY,
        "adopted": dt.datetime.now(dt.timezone.utc),
    }
    parts = max(len(deployment.shards), 1)
    if histogram is not None:
        choice = choose_precision(histogram, parts, override=precision)
        fields["precision"], fields["histogram"] = choice.to_document(), histogram_to_document(histogram)
    if deployment.is_sharded and shard:
        shard_by_gh(collection, gh, deployment.shards)
        if histogram is not None and parts > 1:
            cuts = split_points(histogram, choice.bits, parts)
            bounds = [{gh: bound_to_string(cut), "_id": MinKey()} for cut in cuts]
            balance(collection, gh, deployment.shards, bounds, histogram)
    # Replaced, not merged: what an earlier collection of this name left there is not true of this one.
    metadata_collection(collection).replace_one({"_id": info.namespace}, fields, upsert=True)
    return collection
