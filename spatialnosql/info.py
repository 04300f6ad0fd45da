"""What the rewriter must know of a collection, as a value."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spatialnosql.costs import Costs
from spatialnosql.cover import Cover
from spatialnosql.experience import Experience
from spatialnosql.expression import Form, geohash_expression
from spatialnosql.geohash import BITS
from spatialnosql.histogram import Histogram
from spatialnosql.stk.settings import StkSettings

GH_FIELD = "gh"
_FEWEST_CELLS = 4


@dataclass(frozen=True)
class Index:
    """One index: its name and its fields in order with their directions or kinds."""

    name: str
    keys: tuple[tuple[str, Any], ...]
    partial: bool = False  # partial or sparse: it does not hold every document


@dataclass(frozen=True)
class ShardRange:
    """The half-open range ``[lo, hi)`` of ``gh`` that a shard holds; "" and "{" are the ends of all strings."""

    lo: str
    hi: str
    shard: str


@dataclass(frozen=True)
class CollectionInfo:
    """A collection of points, as far as rewriting goes.

    `why_not` says why queries of this collection must pass unchanged: a view, a collection never adopted, no guarantee
    that ``gh`` is true, another collation. None means that they may be rewritten.
    """

    namespace: str
    location: str = "loc"
    gh: str = GH_FIELD
    form: Form = "any"
    unhashed: bool = False  # documents with a location but without gh may exist: always candidates
    histogram: Histogram | None = None
    indexes: tuple[Index, ...] = ()
    shards: tuple[ShardRange, ...] = ()
    why_not: str | None = None
    adopted: bool = True  # whether there is metadata: if not, location and gh are only defaults
    passing: bool = False  # it could not be read just now, and had better be with the next query
    costs: Costs = field(default_factory=Costs)
    analyzed: dt.datetime | None = None  # when the histogram was counted
    stk: StkSettings | None = None  # set up for queries by place, time and words
    why_no_stk: str | None = None
    shut_ms: int | None = None  # the server refuses fresh documents of a time before this
    experience: Experience = field(default_factory=Experience, compare=False, repr=False)
    plans: OrderedDict[Any, Any] = field(default_factory=OrderedDict, compare=False, repr=False)
    """Plans made with this, by query: see `spatialnosql.rewrite.planning`."""

    def learn(self, cover: Cover, seen: float, least: float, most: float | None = None) -> None:
        """Take note of how many points a query saw in a cover where no fewer and no more were expected (`Experience`).

        Nothing is learnt of places smaller than a few of the histogram's cells, of which it had nothing to say.
        """
        # Not even of a clump of thousands in one of them: what is learnt corrects all predictions within 39 km. Those
        # of the whole city would be thousands of times too large, until one proves wrong and voids every plan again.
        if self.histogram is None or cover.outer.size >> (BITS - self.histogram.bits) < _FEWEST_CELLS:
            return
        if seen > (least if most is None else most):
            self.experience.learn(cover, least if most is None else most, seen)
        elif seen < least:
            self.experience.learn(cover, least, seen)

    def same_as(self, other: CollectionInfo) -> bool:
        """Whether both say the same: plans made with one are as good as plans made with the other."""
        return self.same_points(other) and replace(self, histogram=None) == replace(other, histogram=None)

    def same_points(self, other: CollectionInfo) -> bool:
        """Whether both have the same statistics: what was learnt beside one holds beside the other."""
        mine, theirs = self.histogram, other.histogram
        return mine is theirs if mine is None or theirs is None else mine.key == theirs.key

    @cached_property
    def gh_index(self) -> str | None:
        """The name of the index that begins with ``gh`` and goes on with ``_id``, if there is one."""
        for index in self.indexes:
            if index.keys[:2] == ((self.gh, 1), ("_id", 1)) and not index.partial:
                return index.name
        return None

    @cached_property
    def has_sphere_index(self) -> bool:
        """Whether the location has a 2dsphere index."""
        return any((self.location, "2dsphere") in index.keys for index in self.indexes)

    @cached_property
    def nears_on_sphere(self) -> bool:
        """Whether the server answers near queries by a 2dsphere index that holds every document.

        Without an index it has an error for them, and by a 2d index it finds nothing across the antimeridian.
        """
        indexes = [index for index in self.indexes if index.keys[0][0] == self.location]
        flat = any(index.keys[0][1] == "2d" for index in indexes)
        return not flat and any(index.keys[0][1] == "2dsphere" and not index.partial for index in indexes)


def true_gh(
    location: str, gh: str = GH_FIELD, form: Form = "any", *, unhashed: bool = False
) -> dict[str, Any]:
    """The filter that documents with a true ``gh`` pass: the validator of a collection.

    ``gh`` must be the geohash of the location. Without a location (missing or null) there is none, and with `unhashed`
    likewise where the location is no single point; otherwise such a document is refused.
    """
    computed = geohash_expression(location, form)
    given = {"$ifNull": [f"${gh}", None]}
    if unhashed:
        return {"$expr": {"$eq": [given, computed]}}
    nowhere = {"$eq": [{"$ifNull": [f"${location}", None]}, None]}
    return {
        "$expr": {
            "$let": {
                "vars": {"hash": computed},
                "in": {
                    "$and": [
                        {"$eq": [given, "$$hash"]},
                        {"$or": [{"$ne": ["$$hash", None]}, nowhere]},
                    ]
                },
            }
        }
    }
