"""Where the matches of a collection of subscriptions are stored: two collections beside it.

Of ``city.alerts`` these are ``city.alerts_matches``, buckets of the matches of one owner, and ``city.alerts_matched``,
every object that matched, once.
"""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection

MATCHES_SUFFIX = "_matches"
MATCHED_SUFFIX = "_matched"

Documents = Collection[dict[str, Any]]


def matches_collection(subscriptions: Documents) -> Documents:
    """The buckets of matches, with the options of the collection of subscriptions."""
    return _beside(subscriptions, MATCHES_SUFFIX)


def matched_collection(subscriptions: Documents) -> Documents:
    """The objects that matched, with the options of the collection of subscriptions."""
    return _beside(subscriptions, MATCHED_SUFFIX)


def _beside(subscriptions: Documents, suffix: str) -> Documents:
    return subscriptions.database.get_collection(
        subscriptions.name + suffix,
        subscriptions.codec_options,
        subscriptions.read_preference,
        subscriptions.write_concern,
        subscriptions.read_concern,
    )
