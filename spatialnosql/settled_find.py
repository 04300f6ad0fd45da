"""Finds settled in the client: documents of ranges, of which those outside the shape are dropped as batches arrive.

Constant memory: one batch at a time. The order is the server's, so a sort stays one.
"""

from __future__ import annotations

import math
from itertools import chain, compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.geohash import strings_to_cells
from spatialnosql.places import settled_by_place
from spatialnosql.reading import LATER_BATCHES, Reader, next_documents
from spatialnosql.rewrite import Plan
from spatialnosql.settle import IN, UNSURE, settle_cells
from spatialnosql.steps import Steps, call

_FIRST_BATCH = 2_000  # when no more candidates than this are expected, they come in one batch


class SettledFind:
    """The documents of a plan, batch by batch; a `Source` of `Found`."""

    def __init__(self, reader: Reader, plan: Plan, options: dict[str, Any], *, stripped: bool = True) -> None:
        assert plan.settled is not None
        self._reader, self._plan, self._settled, self._stripped = reader, plan, plan.settled, stripped
        # A session takes one command at a time, and parts have no common order; a batch is as large as the caller says.
        whole = any(options.get(name) for name in ("session", "sort", "batch_size", "limit"))
        parts = (plan.filter,) if whole or not plan.settled.parts else plan.settled.parts
        self._wanted, self._own_size = _wanted(options), bool(options.get("batch_size"))
        self._batch_size = _batch_size(plan.settled.expected / len(parts), options)
        self._given: dict[str, Any] = {"batch_size": self._batch_size}
        if options.get("sort"):
            self._given["sort"] = options["sort"]
        self._cursors = [self._cursor(part) for part in parts]
        self.seen = 0  # candidates
        self._kept = 0

    def _cursor(self, part: Any) -> Any:
        return self._reader.find(part, self._plan.hint, **self._given)

    @property
    def cursor_id(self) -> int | None:
        """Of a server's cursor that is still open."""
        ids: list[int | None] = [cursor.cursor_id for cursor in self._cursors]
        return next((known for known in ids if known), ids[0])

    @property
    def address(self) -> tuple[str, int] | None:
        """Of the server."""
        return self._cursors[0].address  # type: ignore[no-any-return]

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """The documents of the next batch that lie in the shape."""
        del everything  # a batch at a time, whoever asks: the processor's caches hold no more
        batches = yield from next_documents(self._cursors, self._batch_size, self._settled.reading())
        documents = batches[0] if len(batches) == 1 else list(chain.from_iterable(batches))
        if not documents:
            self._settled.learn(self._reader.info, self.seen)
            return None
        self.seen += len(documents)
        kept = yield from self._inside(documents)
        self._kept += len(kept)
        self._batch_size = self._later_size()
        return self._reader.widened.strip(kept) if self._stripped else kept

    def _later_size(self) -> int:
        """Of the next batch: the first was as large as was predicted, and if that was right there is no next one."""
        if self._own_size:
            return self._batch_size
        if not self._wanted:
            return 0
        missing = max(self._wanted - self._kept, 1)
        likely = math.ceil(1.5 * missing * (self.seen + 1) / (self._kept + 1)) + 20
        return min(max(likely, 2 * self._batch_size), LATER_BATCHES)

    def _inside(self, documents: list[Any]) -> Steps[list[Any]]:
        location = self._reader.info.location
        if len(self._settled.cover.interior):
            keep, unsure = self._by_cells(documents)
            if unsure.size:
                # Their coordinates say more than their cells do, unless the caller wants the documents without.
                asked = [documents[at] for at in unsure.tolist()]
                closely = settled_by_place(self._settled.region, asked, location)
                keep[unsure[closely == IN]] = True
                unsure = unsure[closely == UNSURE]
        else:
            # Nothing can be told by cells alone, so ask the coordinates at once.
            status = settled_by_place(self._settled.region, documents, location)
            keep, unsure = status == IN, np.flatnonzero(status == UNSURE)
            if unsure.size == len(documents):
                keep, unsure = self._by_cells(documents)
        if unsure.size:
            asked = [documents[at] for at in unsure.tolist()]
            keep[unsure] = yield from self._reader.confirmed(
                asked, self._settled.tests, self._reader.info.gh_index
            )
        return documents if keep.all() else list(compress(documents, keep.tolist()))

    def _by_cells(self, documents: list[Any]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Which documents lie inside as far as their geohashes tell, and the numbers of those that they do not."""
        gh = self._reader.info.gh
        cells = strings_to_cells([document[gh] for document in documents])
        keep = self._settled.cover.interior.contains(cells)
        border = np.flatnonzero(~keep)
        status = settle_cells(self._settled.region, cells[border])
        keep[border[status == IN]] = True
        return keep, border[status == UNSURE]

    def explained(self) -> Steps[Any]:
        """What the server says of the ranges."""
        return (yield from call(self._cursor(self._plan.filter).explain))

    def close(self) -> Steps[None]:
        """Let the servers forget the cursors."""
        for cursor in self._cursors:
            yield from call(cursor.close)


def _wanted(options: dict[str, Any]) -> int:
    """How many documents are read until a limit is filled; 0 = all."""
    limit = abs(int(options.get("limit", 0)))
    return limit + int(options.get("skip", 0)) if limit and not options.get("sort") else 0


def _batch_size(expected: float, options: dict[str, Any]) -> int:
    """Of the first batch: as the caller wants it, or all if they are few, or so many that a limit is surely filled."""
    size = int(options.get("batch_size", 0))
    if size:
        return size
    wanted = _wanted(options)
    if wanted:
        # Of a boundary cell about half lies outside.
        return min(math.ceil(1.5 * wanted) + 20, math.ceil(expected) + 100)
    return math.ceil(1.3 * expected) + 100 if expected <= _FIRST_BATCH else 0
