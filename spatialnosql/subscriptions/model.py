"""A subscription, an object, and when the one matches the other: the definition that every index must agree with."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson import ObjectId

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.areas import Area, area_of
from spatialnosql.subscriptions.keywords import Clauses, parse
from spatialnosql.subscriptions.text import TextRules

LONGEST_NAME = 500
NEVER_MS = (1 << 63) - 1
"""When a subscription without expiry expires, in milliseconds since 1970."""
_UNSTORED = re.compile("[\0\ud800-\udfff]")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class Object:
    """Something that happens: a text at a place and a time."""

    id: Any
    text: str
    lng: float
    lat: float
    at: dt.datetime

    @property
    def at_ms(self) -> int:
        """The time in whole milliseconds since 1970, as MongoDB keeps it."""
        return moment_to_ms(self.at)


@dataclass(frozen=True)
class Subscription:
    """Whoever it is wants to know of every object in the area that has all terms of a clause, before it expires."""

    id: str
    owner: str
    clauses: Clauses
    area: Area
    expires: dt.datetime | None = None
    expression: str = ""

    @classmethod
    def of(
        cls,
        owner: str,
        keywords: str,
        region: Any,
        rules: TextRules,
        expires: dt.datetime | str | None = None,
        id: str | None = None,
    ) -> Subscription:
        """A subscription from what a person gives; an id is made if none is given."""
        return cls(
            name_of(id, "id") if id is not None else str(ObjectId()),
            name_of(owner, "owner"),
            parse(keywords, rules),
            area_of(region),
            None if expires is None else moment_of(expires, "expires"),
            keywords,
        )

    @property
    def expires_ms(self) -> int:
        """When it expires in milliseconds since 1970; NEVER_MS if never."""
        return NEVER_MS if self.expires is None else moment_to_ms(self.expires)

    def matches(self, thing: Object, rules: TextRules) -> bool:
        """Whether an object matches: in the area, all terms of one clause in its text, earlier than the expiry."""
        if thing.at_ms >= self.expires_ms or not self.area.inside(thing.lng, thing.lat)[0]:
            return False
        terms = set(rules.terms(thing.text))
        return any(terms.issuperset(clause) for clause in self.clauses)

    def to_document(self) -> dict[str, Any]:
        """The subscription as it is stored."""
        document: dict[str, Any] = {
            "_id": self.id,
            "owner": self.owner,
            "keywords": self.expression,
            "clauses": [list(clause) for clause in self.clauses],
            "area": self.area.to_document(),
        }
        if self.expires is not None:
            document["expires"] = self.expires
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Subscription:
        """A subscription as it was stored."""
        expires = document.get("expires")
        return cls(
            document["_id"],
            document["owner"],
            tuple(tuple(clause) for clause in document["clauses"]),
            area_of(document["area"]),
            None if expires is None else moment_of(expires, "expires"),
            document.get("keywords", ""),
        )


def moment_of(value: dt.datetime | str, name: str = "moment") -> dt.datetime:
    """A moment in UTC, cut to the millisecond as MongoDB keeps it; without a zone it is UTC already.

    Text must be ISO 8601, as in 2026-11-30T18:00:00Z.
    """
    if isinstance(value, str):
        try:
            # Python 3.10 reads no Z.
            value = dt.datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value)
        except ValueError:
            raise UsageError(f"{name} is {value!r}; write it as in 2026-11-30T18:00:00Z") from None
    if not isinstance(value, dt.datetime):
        raise UsageError(f"{name} is {value!r}; it must be a datetime, or text as in 2026-11-30T18:00:00Z")
    try:
        moment = value.replace(tzinfo=value.tzinfo or dt.timezone.utc).astimezone(dt.timezone.utc)
    except OverflowError:
        raise UsageError(f"{name} is {value!r}, which is no year from 1 to 9999 in UTC") from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def moment_to_ms(value: dt.datetime) -> int:
    """A moment in whole milliseconds since 1970, rounded down."""
    return (moment_of(value) - _EPOCH) // dt.timedelta(milliseconds=1)


def name_of(value: Any, what: str) -> str:
    """The name of an owner or of a subscription: text; a whole number is written as text."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"the {what} of a subscription is {value!r}; it must be text that is not empty")
    if len(text) > LONGEST_NAME:
        raise UsageError(
            f"the {what} of a subscription has {len(text):,} characters; at most {LONGEST_NAME} are allowed"
        )
    if _UNSTORED.search(text):
        raise UsageError(f"the {what} of a subscription is {text!r}, with a character that cannot be stored")
    return text
