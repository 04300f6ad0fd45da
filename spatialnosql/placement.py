"""Put an empty collection on its shards: by a hash, or by geohash in contiguous ranges of even weight."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from numpy.typing import NDArray
from pymongo.collection import Collection

SHARD_KEY = {"gh": 1, "_id": 1}
MIN_BOUND = {"gh": MinKey(), "_id": MinKey()}
MAX_BOUND = {"gh": MaxKey(), "_id": MaxKey()}


def even_cuts(sample: NDArray[np.str_], parts: int) -> list[str]:
    """The ``parts - 1`` geohashes that cut a sample into parts of even weight, ascending and distinct.

    Fewer come back when one place outweighs a part: a cut must lie between different geohashes.
    """
    ordered = np.sort(sample)
    if not ordered.size:
        return []
    positions = (np.arange(1, parts) * ordered.size) // parts
    cuts = sorted({str(ordered[position]) for position in positions})
    return [cut for cut in cuts if cut > str(ordered[0])]


def shard_by_hash(collection: Collection[Any]) -> None:
    """Shard an empty collection on the hash of ``_id``: the ordinary way, and the one to compare with."""
    collection.database.client.admin.command("shardCollection", collection.full_name, key={"_id": "hashed"})


def shard_by_geohash(collection: Collection[Any], shards: tuple[str, ...], cuts: list[str]) -> None:
    """Shard an empty collection on ``{gh: 1, _id: 1}``, one contiguous range of geohashes a shard.

    Moving while it is empty costs next to nothing; moving documents later costs as much as inserting
    them. Only one range a shard: the server would merge adjacent chunks of one shard anyway.
    """
    admin = collection.database.client.admin
    admin.command("shardCollection", collection.full_name, key=SHARD_KEY)
    bounds = [MIN_BOUND, *({"gh": cut, "_id": MinKey()} for cut in cuts), MAX_BOUND]
    for bound in bounds[1:-1]:
        admin.command("split", collection.full_name, middle=bound)
    # The first range as well: everything starts on the database's primary shard, which may be any.
    for shard, (low, high) in zip(shards, pairwise(bounds), strict=False):
        admin.command("moveRange", collection.full_name, min=low, max=high, toShard=shard)
