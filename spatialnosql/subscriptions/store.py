"""Subscriptions in a MongoDB collection: added, removed, listed, matched one by one, followed.

A document is ``{_id, owner, keywords, clauses, area, expires?, changed, removed?, purge_at?}``: the keywords as typed
and as clauses of terms, the server's time of the last change. Removing only marks a document, so that whoever follows
the collection by `changes_since` hears of it; the server deletes it a week later. The collection is sharded by the hash
of ``_id`` where there are shards.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pymongo.collection import Collection

from spatialnosql.errors import SpatialNoSQLError, UsageError
from spatialnosql.subscriptions.match_watch import MAX_AWAIT_MS
from spatialnosql.subscriptions.matched_batches import forget_batches
from spatialnosql.subscriptions.matches import Forgotten, Match, Matches, Watch
from spatialnosql.subscriptions.model import Subscription, moment_of, name_of
from spatialnosql.subscriptions.store_setup import agreed_rules, forget, prepare, record_rules
from spatialnosql.subscriptions.store_writing import UTC, Added, server_time, write_subscriptions
from spatialnosql.subscriptions.text import TextRules

KEPT_REMOVED = dt.timedelta(days=7)
"""How long a removed subscription is kept for those who follow."""
OVERLAP = dt.timedelta(seconds=60)
"""How far `changes_since` looks back: servers' clocks differ, and a write takes effect after its time was taken."""
FIELDS = ("id", "owner", "keywords", "region", "expires")
_REMOVED_AT_ONCE = 1_000
_LIVE = {"removed": {"$ne": True}}
_CONTENT = {"changed": 0}


@dataclass(frozen=True)
class Changes:
    """What has happened since a moment; applying it twice is the same as once."""

    until: dt.datetime
    """Give this to the next `changes_since`."""
    added: tuple[Subscription, ...]
    """New or changed; those with an id known before take its place."""
    removed: tuple[str, ...]
    """Ids, some of them perhaps never heard of."""


class Subscriptions:
    """The subscriptions of a collection.

    The text rules are those of the first subscription that was added; give them only then, or to be sure.

    >>> alerts = Subscriptions(client.city.alerts)
    >>> alerts.add("ann", "(flood AND road) OR landslide", [-0.5, 51.3, 0.3, 51.7]).id
    """

    def __init__(self, collection: Collection[Any], rules: TextRules | None = None) -> None:
        self.collection: Collection[dict[str, Any]] = collection.with_options(codec_options=UTC)
        self.rules = agreed_rules(self.collection, rules)
        self._prepared = False

    def add(
        self,
        owner: str,
        keywords: str,
        region: Any,
        expires: dt.datetime | str | None = None,
        id: str | None = None,
    ) -> Subscription:
        """Add a subscription, or put it in the place of the one with the same id; `region` as `area_of` takes it."""
        made = Subscription.of(owner, keywords, region, self.rules, expires, id)
        self._prepare()
        write_subscriptions(self.collection, [made], Added(), lambda _: None)
        return made

    def add_many(
        self,
        given: Iterable[Any],
        *,
        skip_bad: bool = False,
        placed: bool = False,
        written: Callable[[int], None] = lambda _: None,
    ) -> Added:
        """Add subscriptions, or documents with ``owner, keywords, region`` and perhaps ``expires, id``.

        Adding the same again changes nothing. Of a `Subscription` the clauses are taken as they are: make them by the
        rules of this collection. A bad one is an error, before which others may have been added, unless `skip_bad`:
        then they are listed, and the rest is added. An id that comes twice is bad. With `placed` each comes in a pair
        with the name of the place where it stands, and may be an error. `written` hears how many more are done.
        """
        self._prepare()
        done = Added()
        places = given if placed else ((f"number {number}", one) for number, one in enumerate(given, 1))
        write_subscriptions(self.collection, self._good(places, done, skip_bad), done, written)
        return done

    def _good(self, given: Iterable[tuple[str, Any]], done: Added, skip_bad: bool) -> Iterator[Subscription]:
        """Those of many that can be added; the bad ones are noted."""
        seen: set[str] = set()
        for place, one in given:
            try:
                made = one if isinstance(one, Subscription) else self._of(one)
                if made.id in seen:
                    raise UsageError(f"the id {made.id!r} was given before")
            except SpatialNoSQLError as error:
                if not skip_bad:
                    raise UsageError(f"{place}: {error}") from error
                done.note_bad(place, str(error))
                continue
            seen.add(made.id)
            yield made

    def remove(self, ids: str | Iterable[str]) -> int:
        """Remove one or many by id; how many of them were there."""
        given = iter([ids] if isinstance(ids, str | int) else ids)
        removed = 0
        while batch := [name_of(one, "id") for one in islice(given, _REMOVED_AT_ONCE)]:
            removed += self._remove({"_id": {"$in": batch}})
        return removed

    def remove_of(self, owner: str) -> int:
        """Remove all of one owner; how many there were."""
        return self._remove({"owner": name_of(owner, "owner")})

    def remove_expired(self, before: dt.datetime | str | None = None) -> int:
        """Remove those that expired until a moment, or until now; how many there were.

        They match nothing that happens later, but they do match what happened earlier: this is for collections that
        are not matched with old objects any more.
        """
        moment = self.now() if before is None else moment_of(before, "before")
        return self._remove({"expires": {"$lte": moment}})

    def drop(self) -> None:
        """Drop the collection and its matches, and forget its rules."""
        Matches(self.collection).drop()
        forget_batches(self.collection)
        self.collection.drop()
        forget(self.collection)
        self._prepared = False

    def get(self, id: str) -> Subscription | None:
        """The subscription with an id, or None."""
        found = self.collection.find_one({"_id": name_of(id, "id"), **_LIVE})
        return None if found is None else Subscription.from_document(found)

    def list(self, owner: str | None = None) -> Iterator[Subscription]:
        """All subscriptions, or those of one owner in the order of their ids; expired ones too."""
        if owner is None:
            found = self.collection.find(_LIVE, _CONTENT)
        else:
            found = self.collection.find({"owner": name_of(owner, "owner"), **_LIVE}, _CONTENT).sort("_id", 1)
        return map(Subscription.from_document, found)

    def count(self, owner: str | None = None) -> int:
        """How many there are, or how many of one owner; expired ones too."""
        return self.collection.count_documents(_LIVE if owner is None else {"owner": owner, **_LIVE})

    def match_one(
        self, text: str, lng: float, lat: float, at: dt.datetime | str | None = None
    ) -> tuple[Subscription, ...]:
        """The subscriptions that an object matches, in the order of their ids; `at` is now unless given.

        The server looks at the clauses of every subscription: for tests and small use. An index matches many objects.
        """
        moment = self.now() if at is None else moment_of(at, "at")
        terms = [*self.rules.terms(text)]
        if not terms:
            return ()
        has_clause = {"$map": {"input": "$clauses", "in": {"$setIsSubset": ["$$this", {"$literal": terms}]}}}
        condition = {
            **_LIVE,
            "$expr": {"$anyElementTrue": [has_clause]},
            "$or": [{"expires": {"$exists": False}}, {"expires": {"$gt": moment}}],
        }
        candidates = map(Subscription.from_document, self.collection.find(condition))
        inside = [one for one in candidates if one.area.inside(lng, lat)[0]]
        return tuple(sorted(inside, key=lambda one: one.id))

    def changes_since(self, moment: dt.datetime | None = None) -> Changes:
        """What was added, changed and removed since a moment (the `until` of the last changes), or everything.

        It looks back a minute further, so that some changes are told more than once, and none never.
        """
        until = self.now()
        if moment is None:
            return Changes(until, tuple(self.list()), ())
        since = moment_of(moment)
        if since < until - KEPT_REMOVED + 2 * OVERLAP:
            raise UsageError(
                f"changes since {since:%Y-%m-%d %H:%M:%S} UTC cannot be told: removed subscriptions are kept "
                f"{KEPT_REMOVED.days} days; begin anew, with changes_since(None)"
            )
        added, removed = [], []
        for document in self.collection.find({"changed": {"$gte": since - OVERLAP}}):
            if document.get("removed"):
                removed.append(str(document["_id"]))
            else:
                added.append(Subscription.from_document(document))
        return Changes(until, tuple(added), tuple(removed))

    def matches(
        self,
        owner: str,
        since: dt.datetime | str | None = None,
        until: dt.datetime | str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Match]:
        """What the matching jobs have found for an owner, in the order of time; of the times ``[since, until)``."""
        return Matches(self.collection).of(owner, since, until, limit, newest_first)

    def watch(self, owner: str, resume_after: str | None = None, max_await_ms: int = MAX_AWAIT_MS) -> Watch:
        """Follow the matches of an owner that are stored from now on, or after a watch's `resume_token`."""
        return Matches(self.collection).watch(owner, resume_after, max_await_ms)

    def forget_matches(self, before: dt.datetime | str) -> Forgotten:
        """Delete what matched before a moment, of all owners: whole buckets of matches, and objects."""
        return Matches(self.collection).forget(before)

    def now(self) -> dt.datetime:
        """The time on the server."""
        return moment_of(server_time(self.collection))

    def _remove(self, which: Mapping[str, Any]) -> int:
        kept_ms = int(KEPT_REMOVED.total_seconds() * 1000)
        marks = {"removed": True, "changed": "$$NOW", "purge_at": {"$add": ["$$NOW", kept_ms]}}
        return self.collection.update_many({**which, **_LIVE}, [{"$set": marks}]).modified_count

    def _of(self, row: Any) -> Subscription:
        if isinstance(row, SpatialNoSQLError):
            raise row
        if not isinstance(row, Mapping):
            raise UsageError(f"a subscription is a document with {', '.join(FIELDS)}, not {row!r:.80}")
        unknown = [str(name) for name in row if name not in FIELDS]
        if unknown:
            raise UsageError(f"a subscription has no field {unknown[0]!r:.80}; it has {', '.join(FIELDS)}")
        missing = [name for name in ("owner", "keywords", "region") if row.get(name) is None]
        if missing:
            raise UsageError(f"the subscription has no {missing[0]}")
        return Subscription.of(
            row["owner"], row["keywords"], row["region"], self.rules, row.get("expires"), row.get("id")
        )

    def _prepare(self) -> None:
        """Before the first write: record the rules, shard and index."""
        if not self._prepared:
            record_rules(self.collection, self.rules)
            prepare(self.collection)
            self._prepared = True
