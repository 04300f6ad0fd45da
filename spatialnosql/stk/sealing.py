"""Documents into the filters: their keys are published, and then they get their seals.

What cannot be sealed stays fresh, and is looked at by every query of its place: a time that is no date, words that are
no list of strings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from spatialnosql.geohash import strings_to_cells
from spatialnosql.info import CollectionInfo
from spatialnosql.progress import Progress
from spatialnosql.stk.filter_store import State, add_pieces, publish, rebuilding, writing
from spatialnosql.stk.keys import keys_by_cube, word_hashes
from spatialnosql.stk.seals import cube_expression, seal_expression, seal_of
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME, STK_FIELD, Ints, StkSettings
from spatialnosql.validator import INVALID

BATCH = 20_000
ROUND = 100_000
"""Documents whose keys are published together, and for which it waits once."""
_CHANGES = 1_000  # in one command
_MANY = 0.1  # of all documents
SEALED: dict[str, Any] = {CUBE_FIELD: {"$type": "number"}}
"""What sealed documents meet."""
# A date may be of any year: as a number of milliseconds.
_AS_STORED: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


@dataclass(frozen=True)
class Change:
    """Seals for so many documents: one update of many, or one each."""

    count: int
    together: tuple[dict[str, Any], list[dict[str, Any]]] | None = None
    alone: list[UpdateOne] = field(default_factory=list)


@dataclass(frozen=True)
class Batch:
    """Documents that can be sealed: as arrays, and their words."""

    documents: list[dict[str, Any]]
    at_ms: Ints
    bins: Ints
    cells: Ints
    words: list[list[str]]

    @classmethod
    def of(cls, documents: list[dict[str, Any]], info: CollectionInfo, settings: StkSettings) -> Batch:
        """Those of some documents that can be sealed."""
        readable = [
            (one, words) for one in documents if (words := _words_of(one, info, settings)) is not None
        ]
        at_ms = np.array([int(one[settings.time]) for one, _ in readable], dtype=np.int64)
        keep = np.flatnonzero(settings.has_bins(settings.bins_of(at_ms)))
        chosen = [readable[at] for at in keep.tolist()]
        cells = settings.cells_of(strings_to_cells([one[info.gh] for one, _ in chosen]))
        at_ms = at_ms[keep]
        return cls(
            [one for one, _ in chosen], at_ms, settings.bins_of(at_ms), cells, [words for _, words in chosen]
        )

    def seals(self, info: CollectionInfo, settings: StkSettings) -> Iterator[Change]:
        """What gives the documents their seals, as long as each is fresh and as it was read.

        Those that have their words are changed together: the server computes the seal of each and looks whether it is
        one of those expected. Through a router that costs a fifth of one update each, which the others need.
        """
        cubes = settings.data_cubes(self.bins, self.cells).tolist()
        expected: list[tuple[dict[str, Any], int]] = []
        alone: list[UpdateOne] = []
        for one, cube, at_ms, words in zip(
            self.documents, cubes, self.at_ms.tolist(), self.words, strict=True
        ):
            seal = seal_of(cube, at_ms, one[info.gh], words)
            if settings.words in one:
                expected.append((one, seal))
                continue
            same = {"_id": {"$eq": one["_id"]}, info.gh: one[info.gh], CUBE_FIELD: None}
            same[str(settings.text)] = {"$eq": one[str(settings.text)]}
            change = {STK_FIELD: {"c": cube, "s": seal}, settings.words: words}
            # Named, lest the server tries all indexes for each of them.
            alone.append(UpdateOne(same, {"$set": change}, hint=info.gh_index))
        cube_now = cube_expression(settings, info.gh)
        seal_now = seal_expression(settings, info.gh, cube_now)
        for start in range(0, len(expected), _CHANGES):
            some = expected[start : start + _CHANGES]
            same = {
                "_id": {"$in": [one["_id"] for one, _ in some]},
                info.gh: {"$in": sorted({one[info.gh] for one, _ in some})},
                CUBE_FIELD: None,
                "$expr": {"$in": [seal_now, [seal for _, seal in some]]},
            }
            yield Change(len(some), together=(same, [{"$set": {STK_FIELD: {"c": cube_now, "s": seal_now}}}]))
        for start in range(0, len(alone), _CHANGES):
            yield Change(len(alone[start : start + _CHANGES]), alone=alone[start : start + _CHANGES])


def _words_of(document: dict[str, Any], info: CollectionInfo, settings: StkSettings) -> list[str] | None:
    """The words of a document, read from its text if it has none yet; None if it cannot be sealed."""
    if not isinstance(document.get(settings.time), DatetimeMS) or not isinstance(document.get(info.gh), str):
        return None
    words = document.get(settings.words)
    if settings.words not in document and settings.text is not None:
        text = document.get(settings.text)
        return list(settings.rules.terms(text)) if isinstance(text, str) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return words


def seal(collection: Any, info: CollectionInfo, settings: StkSettings, *, progress: bool = False) -> int:
    """Seal the fresh documents there are now; how many got a seal.

    Their keys are published, then it waits for queries that began before, then come the seals. Killed at any moment,
    nothing is lost: what has no seal is fresh, and is sealed next time.
    """
    sealed = 0
    with writing(collection, "seal") as state:
        total = collection.count_documents({CUBE_FIELD: None}, hint=INDEX_NAME)
        with _shown("sealing", total if progress else 0) as bar:
            waiting: list[Batch] = []
            for documents in _batches(collection, info, settings, {CUBE_FIELD: None}, total):
                waiting.append(Batch.of(documents, info, settings))
                if sum(len(batch.documents) for batch in waiting) >= ROUND:
                    sealed += _sealed(collection, waiting, info, settings, state, bar)
                    waiting = []
            sealed += _sealed(collection, waiting, info, settings, state, bar)
    return sealed


def rebuild(
    collection: Any,
    info: CollectionInfo,
    settings: StkSettings,
    *,
    force: bool = False,
    progress: bool = False,
) -> int:
    """Make the filters anew from the sealed documents, without keys of those that are gone; how many documents."""
    with rebuilding(collection, settings.digest, force=force) as filters:
        wanted = SEALED
        total, count = collection.count_documents(wanted, hint=INDEX_NAME), 0
        touched: list[Ints] = []
        with _shown("reading sealed documents", total if progress else 0) as bar:
            for some in _rounds(_batches(collection, info, settings, wanted, total)):
                batches = [Batch.of(documents, info, settings) for documents in some]
                touched.append(_added(collection, filters, batches, settings))
                read = sum(map(len, some))
                count += read
                if bar is not None:
                    bar.advance(read)
        publish(collection, filters, np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *touched])))
    return count


def _shown(what: str, total: int) -> AbstractContextManager[Progress | None]:
    return Progress(what, total, unit="documents") if total else nullcontext()


def _rounds(batches: Iterator[list[dict[str, Any]]]) -> Iterator[list[list[dict[str, Any]]]]:
    while some := list(islice(batches, ROUND // BATCH)):
        yield some


def _batches(
    collection: Any, info: CollectionInfo, settings: StkSettings, wanted: dict[str, Any], total: int
) -> Iterator[list[dict[str, Any]]]:
    """The `total` documents of a part of the index, with what is sealed of them, from the primaries.

    Few are read by the index. Of many it would jump about in the collection, for reading and again for the seals: they
    are read in the order in which they lie there.
    """
    many = total > _MANY * collection.estimated_document_count()
    hint: Any = {"$natural": 1} if many else INDEX_NAME
    reader = collection.with_options(
        codec_options=_AS_STORED, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
    )
    fields = ["_id", info.gh, settings.time, settings.words, *([settings.text] if settings.text else [])]
    with reader.find(wanted, dict.fromkeys(fields, 1), hint=hint, batch_size=BATCH) as cursor:
        while documents := list(islice(cursor, BATCH)):
            yield documents


def _added(collection: Any, filters: Any, batches: list[Batch], settings: StkSettings) -> Ints:
    """Add the keys of batches; the filter cubes that they touch."""
    words = [one for batch in batches for one in batch.words]
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
    bins, cells = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("bins", "cells"))
    cubes, keys = keys_by_cube(settings, bins, cells, offsets, word_hashes(chain.from_iterable(words)))
    add_pieces(collection, filters, cubes.tolist(), keys)
    return cubes


def _sealed(
    collection: Any,
    batches: list[Batch],
    info: CollectionInfo,
    settings: StkSettings,
    state: State,
    bar: Progress | None,
) -> int:
    """Publish the keys of batches, wait, and give their documents seals; how many got one."""
    if not any(batch.documents for batch in batches):
        return 0
    publish(collection, state.filters, _added(collection, state.filters, batches, settings))
    if not state.paused:
        time.sleep(state.grace_s)
    sealed = 0
    for batch in batches:
        for change in batch.seals(info, settings):
            sealed += _changed(collection, change, info)
            if bar is not None:
                bar.advance(change.count)
    return sealed


def _changed(collection: Any, change: Change, info: CollectionInfo) -> int:
    """Give seals; documents that others changed since they were read get none, and stay fresh."""
    try:
        if change.together is not None:
            return int(collection.update_many(*change.together, hint=info.gh_index).modified_count)
        return int(collection.bulk_write(change.alone, ordered=False).modified_count)
    except BulkWriteError as error:
        if any(one["code"] != INVALID for one in error.details["writeErrors"]):
            raise
        return int(error.details["nModified"])
