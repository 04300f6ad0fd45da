"""``enable``: make a spatial collection ready for queries by place, time and words; ``disable`` undoes it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS

from spatialnosql.errors import UsageError
from spatialnosql.geohash import strings_to_cells
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.steps import run
from spatialnosql.stk.clauses import is_about_seals, is_either, set_clause
from spatialnosql.stk.filter_store import GRACE_S, begin, forget, namespace_of, pause, rebuilding, resume
from spatialnosql.stk.sealing import SEALED, rebuild, seal
from spatialnosql.stk.seals import true_seal
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME, STK_FIELD, StkSettings
from spatialnosql.stk.sizes import chosen_sizes

_SAMPLE = 50_000
_AS_STORED: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


@dataclass(frozen=True)
class Enabled:
    """What was set up."""

    namespace: str
    settings: StkSettings
    sealed: int
    fresh: int  # documents that could not be sealed: every query of their place looks at them

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "namespace": self.namespace,
            "settings": self.settings.to_document(),
            "sealed": self.sealed,
            "fresh": self.fresh,
        }


def enable(
    collection: Any,
    settings: StkSettings | None = None,
    *,
    sized: bool = False,
    grace_s: float = GRACE_S,
    progress: bool = False,
) -> Enabled:
    """Index, validator, filters and seals. Run again after it was killed, it goes on; with other settings, anew.

    Unless the settings are `sized` already, bins, cells and filter cubes are chosen from a sample of the documents.
    """
    info = _spatial(collection)
    settings = settings or StkSettings()
    earlier = info.stk or _stored(collection)
    if not sized:
        same_fields = earlier is not None and _fields(earlier) == _fields(settings)
        settings = earlier if same_fields and earlier is not None else _sized(collection, info, settings)
    prepare(collection, info, settings, grace_s=grace_s)
    sealed = seal(collection, info, settings, progress=progress)
    resume(collection)
    fresh = collection.count_documents({CUBE_FIELD: None}, hint=INDEX_NAME)
    return Enabled(info.namespace, settings, sealed, fresh)


def prepare(
    collection: Any, info: CollectionInfo, settings: StkSettings, *, grace_s: float = GRACE_S
) -> None:
    """All but the seals: index, state, validator, metadata. What was sealed by other settings is fresh again."""
    build_index(collection, info.gh)
    state, is_new = begin(collection, settings.digest, grace_s=grace_s)
    if is_new and collection.find_one(SEALED, {"_id": 1}) is not None:
        if _stored(collection) == settings:
            rebuild(collection, info, settings)  # the filters were lost
        else:
            if info.shut_ms is not None:
                time.sleep(grace_s)  # for those who know it as shut still
            set_clause(collection, is_either, None)
            collection.update_many(SEALED, {"$unset": {STK_FIELD: ""}})
    if state.settings != settings.digest:
        pause(collection)
        with rebuilding(collection, settings.digest):
            set_clause(collection, is_either, None)  # until it is done seals of neither kind are checked
            collection.update_many(SEALED, {"$unset": {STK_FIELD: ""}})
    guarantee(collection, info.gh, settings)


def build_index(collection: Any, gh: str) -> None:
    """The index of data cubes."""
    collection.create_index([(CUBE_FIELD, 1), (gh, 1)], name=INDEX_NAME)


def guarantee(collection: Any, gh: str, settings: StkSettings) -> None:
    """Let the server see to it that seals are true, and everyone know by which settings."""
    set_clause(collection, is_about_seals, true_seal(settings, gh))
    record(collection, settings)


def record(collection: Any, settings: StkSettings) -> None:
    """Note the settings in the metadata; they count once the server guarantees them."""
    metadata_collection(collection).update_one(
        {"_id": namespace_of(collection)}, {"$set": {"stk": settings.to_document()}}
    )


def disable(collection: Any) -> None:
    """Take it all away again: filters, seals, validator, index. The words stay."""
    info = _spatial(collection)
    if _stored(collection) is None:
        raise UsageError(f"{info.namespace} is not set up for queries by place, time and words")
    pause(collection)
    metadata_collection(collection).update_one({"_id": info.namespace}, {"$unset": {"stk": ""}})
    set_clause(collection, is_either, None)
    forget(collection)
    collection.update_many({STK_FIELD: {"$exists": True}}, {"$unset": {STK_FIELD: ""}})
    if INDEX_NAME in collection.index_information():
        collection.drop_index(INDEX_NAME)


def _spatial(collection: Any) -> CollectionInfo:
    info = run(load_info(collection))
    if info.why_not is not None:
        raise UsageError(f"{info.namespace}: {info.why_not}; make it spatial first (adopt or ingest)")
    if info.unhashed:
        raise UsageError(
            f"{info.namespace} may hold documents without {info.gh}, which no filter knows; adopt it without "
            "--allow-unhashed first"
        )
    return info


def _stored(collection: Any) -> StkSettings | None:
    found = metadata_collection(collection).find_one({"_id": namespace_of(collection)}, {"stk": 1}) or {}
    return StkSettings.from_document(found["stk"]) if "stk" in found else None


def _fields(settings: StkSettings) -> tuple[Any, ...]:
    return settings.time, settings.words, settings.text, settings.rules


def _sized(collection: Any, info: CollectionInfo, settings: StkSettings) -> StkSettings:
    reader = collection.with_options(codec_options=_AS_STORED)
    fields = {settings.time: 1, info.gh: 1, settings.words: 1, "_id": 0}
    found = list(reader.aggregate([{"$sample": {"size": _SAMPLE}}, {"$project": fields}]))
    usable = [one for one in found if isinstance(one.get(settings.time), DatetimeMS) and info.gh in one]
    at_ms = np.array([int(one[settings.time]) for one in usable], dtype=np.int64)
    cells = strings_to_cells([one[info.gh] for one in usable])
    words = [len(one[settings.words]) for one in usable if isinstance(one.get(settings.words), list)]
    total = collection.estimated_document_count()
    sizes = chosen_sizes(at_ms, cells, total, float(np.mean(words)) if words else 8.0)
    return replace(settings, **sizes)
