"""The documents of a pruned find: each once, and none lost to those who seal and change documents meanwhile.

A document moves in the index when it gets its seal (from null, where the fresh are, to its cube) and when it loses it.
One scan of a few documents sees one moment, and nothing of that. In a longer one:

- Sealed meanwhile, a document is met fresh or in its cube, which lies behind in the scan, or twice. Its keys were
  published a grace before, and so are known to a find that is not older than that.
- Unsealed meanwhile, it may be met nowhere: so the fresh are looked at once more at the end. It is fresh still, for
  seals come a grace after.

A find that takes longer than the grace (its reader is slow, most likely) ends with all documents of the region, as if
there were no filters. What was given already is known by its name and is not given again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from typing import Any, TypeAlias

import bson
import numpy as np
from numpy.typing import NDArray

from spatialnosql.reading import Reader
from spatialnosql.rewrite.plan import Plan
from spatialnosql.settled_find import SettledFind
from spatialnosql.steps import Steps
from spatialnosql.stk.filter_cache import now_s
from spatialnosql.stk.planning import Look, sent_filter, unpruned_filter
from spatialnosql.stk.settings import STK_FIELD

_ONE_MOMENT = 500  # candidates that a server surely reads without letting others in between,
_ONE_MOMENT_S = 0.010  # in so short a time


Name: TypeAlias = tuple[Any, str]  # an _id and a geohash
Names: TypeAlias = NDArray[np.uint64]


class PrunedFind:
    """The documents of a plan, batch by batch; a `Source` of `Found`."""

    def __init__(self, reader: Reader, plan: Plan, options: dict[str, Any]) -> None:
        assert isinstance(plan.pruned, Look)
        self._reader, self._plan, self._look, self._options = reader, plan, plan.pruned, options
        self._part: SettledFind | _Nothing = (
            _Nothing() if self._look.is_answered else SettledFind(reader, plan, options, stripped=False)
        )
        self._given: list[list[Name] | Names] = []  # of each batch its names, or their hashes
        self._fresh: set[int] = set()  # hashes of the fresh ones given
        self._looks = 0
        self._started_s = now_s()
        self._complete = False

    @property
    def cursor_id(self) -> int | None:
        """Of the server's cursor."""
        return self._part.cursor_id

    @property
    def address(self) -> tuple[str, int] | None:
        """Of the server."""
        return self._part.address

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """The next documents, each once."""
        documents = yield from self._part.next_batch(everything=everything)
        while documents is None:
            if not self._look_again():
                return None
            documents = yield from self._part.next_batch(everything=everything)
        kept = self._not_given(documents) if self._looks else self._sealed_once(documents)
        if len(self._given) == 1 and isinstance(self._given[0], list):
            self._given[0] = self._names(self._given[0])  # most finds have one batch, and never get here
        self._given.append(self._named(kept))
        if len(self._given) > 1:
            self._given[-1] = self._names(self._given[-1])
        return self._reader.widened.strip(kept)

    def _sealed_once(self, documents: list[Any]) -> list[Any]:
        """Without those that came fresh before, and come again now that they are sealed."""
        if not self._fresh and not any(map(_is_fresh, documents)):
            return documents
        kept = []
        for document, name in zip(documents, self._names(self._named(documents)).tolist(), strict=True):
            if name not in self._fresh:
                kept.append(document)
            if _is_fresh(document):
                self._fresh.add(name)
        return kept

    def _not_given(self, documents: list[Any]) -> list[Any]:
        given = [self._names(some) for some in self._given]
        names = self._names(self._named(documents))
        new = ~np.isin(names, np.concatenate([names[:0], *given]))
        return list(compress(documents, new.tolist()))

    def _named(self, documents: list[Any]) -> list[Name]:
        """What tells documents apart: an ``_id`` alone is unique within a shard only."""
        gh = self._reader.info.gh
        return [(document["_id"], document[gh]) for document in documents]

    def _names(self, names: list[Name] | Names) -> Names:
        """64 bits of each name, whatever the type of the ``_id``."""
        if not isinstance(names, list):
            return names
        codec = self._reader.collection.codec_options
        digests = [
            hashlib.blake2b(bson.encode({"": one, "gh": gh}, codec_options=codec), digest_size=8).digest()
            for one, gh in names
        ]
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def _look_again(self) -> bool:
        """Whether there is more to read: the fresh ones once more; or, if it took too long, all of the region."""
        if self._complete:
            return False
        pruned, gh = self._look.pruned, self._reader.info.gh
        elapsed_s = now_s() - self._started_s
        if now_s() >= pruned.until_s:
            self._complete = True
            settings = self._reader.info.stk
            assert settings is not None
            sent = unpruned_filter(pruned, self._look.asked, settings, gh)
            hint = self._reader.info.gh_index
        elif (
            self._looks
            or not pruned.fresh
            or (len(self._given) <= 1 and self._part.seen <= _ONE_MOMENT and elapsed_s <= _ONE_MOMENT_S)
        ):
            return False
        else:
            empty = tuple(replace(group, cubes=[]) for group in pruned.groups)
            sent, hint = sent_filter(replace(pruned, groups=empty), self._look.asked, gh), self._plan.hint
        self._looks += 1
        plan = replace(self._plan, filter=sent, hint=hint)
        self._part = SettledFind(self._reader, plan, self._options, stripped=False)
        return True

    def explained(self) -> Steps[Any]:
        """What the server says of the scan."""
        if isinstance(self._part, _Nothing):  # it is asked after all, for what it would have said
            self._part = SettledFind(self._reader, self._plan, self._options, stripped=False)
        return (yield from self._part.explained())

    def close(self) -> Steps[None]:
        """Let the server forget the cursor."""
        yield from self._part.close()


class _Nothing:
    """In the place of a scan: there are no documents, and no server is asked."""

    cursor_id: int | None = 0
    address: tuple[str, int] | None = None
    seen = 0

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:  # noqa: ARG002 - as in `Source`
        return None
        yield

    def close(self) -> Steps[None]:
        return
        yield


def _is_fresh(document: Mapping[str, Any]) -> bool:
    stk = document.get(STK_FIELD)
    return not isinstance(stk, Mapping) or stk.get("c") is None
