"""Where the matches of a collection of subscriptions are: beside it."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection

Documents = Collection[dict[str, Any]]


def matches_collection(subscriptions: Documents) -> Documents:
    """The buckets: the matches of one owner in one task of a job."""
    return subscriptions.database[f"{subscriptions.name}_matches"]


def matched_collection(subscriptions: Documents) -> Documents:
    """Every matched object, once."""
    return subscriptions.database[f"{subscriptions.name}_matched"]
