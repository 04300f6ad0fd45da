"""Ingest with ``--time``: documents come sealed, for queries by place, time and words.

The pass that reads and shuffles the rows also reads their words, seals them and adds their keys to the filters
(`stk_worker`); what comes out waits on the workers' disks until the keys are published, and is loaded from there. So
keys are known before any document has a seal, whenever the job is killed, and run again it adds what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import ArrayType, StringType

from spark_jobs.documents import SEAL, WORDS_FIELD, SealColumns, Shape, to_documents
from spark_jobs.ingest_shut import open_for
from spark_jobs.ingest_work import StkColumns, Work
from spark_jobs.points import find_column, quoted
from spark_jobs.screening import AT, CELL, FAULT
from spark_jobs.session import large_batches
from spark_jobs.stk_worker import Filters, with_seals
from spatialnosql.errors import UsageError
from spatialnosql.metadata import READY, load_info
from spatialnosql.steps import run
from spatialnosql.stk.filter_store import State, begin, forget, note_published, publish, read_state, writing
from spatialnosql.stk.settings import CUBE_FIELD, INDEX_NAME, STK_FIELD, StkSettings
from spatialnosql.stk.setup import guarantee, prepare, record
from spatialnosql.stk.sizes import chosen_sizes
from spatialnosql.stk.word_batches import WordReader
from spatialnosql.subscriptions.text import TextRules

SAMPLE = 50_000
"""Rows from which sizes are chosen; of one in ten of them the words are counted."""
_ADDED = "__added"


# -- before anything is written ---------------------------------------------------------------------------


def with_seal(shape: Shape, rows: DataFrame, columns: Sequence[str], given: StkColumns) -> Shape:
    """The shape of documents that are sealed; refuses columns that cannot be."""
    time_ = find_column(columns, given.time, (), "--time")
    text = find_column(columns, given.text, (), "--text") if given.text is not None else None
    words = find_column(columns, given.words, (), "--words") if given.words is not None else None
    for option, name in (("--time", time_), ("--text", text), ("--words", words)):
        if name is not None and name not in shape.fields:
            raise UsageError(
                f"{option} {name}: it is not among the columns that are stored; add it to --select"
            )
    own = {STK_FIELD} if text is None else {STK_FIELD, WORDS_FIELD}
    for old, new in shape.fields.items():
        if new in own:
            raise UsageError(
                f"the column {old} would be stored as {new}, which is kept for words and seals; give it another name "
                f"(--rename {old}=...)"
                + (", or take the words from it (--words)" if new == WORDS_FIELD else "")
            )
    clash = own & {shape.location, shape.gh, shape.mark}
    if clash:
        raise UsageError(
            f"{clash.pop()!r} is kept for words and seals; choose another field for --location, --gh, --mark"
        )
    kind = rows.schema[words].dataType if words is not None else None
    if words is not None and not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)):
        raise UsageError(
            f"--words {words} is {rows.schema[words].dataType.simpleString()}; it must be lists of words "
            "(for text that is to be read, use --text)"
        )
    return replace(shape, seal=SealColumns(time_, text, words))


def check(work: Work, shape: Shape) -> StkSettings | None:
    """Whether documents can be sealed here, with what is asked for; the settings, if there are some already."""
    given, seal = work.job.stk, shape.seal
    assert given is not None
    assert seal is not None
    stored = work.stored.get("stk")
    if stored is None:
        if work.present:
            raise UsageError(
                f"{work.job.into} has documents and is not set up for queries by place, time and words; run "
                f"`spatialnosql stk enable {work.job.into} --time {shape.fields[seal.time]} ...` first, or ingest "
                "without --time"
            )
        if work.stored.get("unhashed"):
            raise UsageError(
                f"{work.job.into} may hold documents without {work.job.gh}, which no filter knows"
            )
        return None
    settings = StkSettings.from_document(stored)
    if work.stored.get("state") == READY:
        info = run(load_info(work.collection))
        if info.stk is None:
            raise UsageError(f"{work.job.into}: {info.why_no_stk or info.why_not}")
    agree(work.job.into, settings, shape, given)
    return settings


def agree(into: str, settings: StkSettings, shape: Shape, given: StkColumns) -> None:
    """Stop if something else is asked for than what the collection is set up with."""
    seal = shape.seal
    assert seal is not None
    for what, column, kept in (
        ("time", seal.time, settings.time), ("text", seal.text, settings.text), ("words", seal.words, settings.words)
    ):  # fmt: skip
        if column is not None and shape.fields[column] != kept:
            hint = f"give --rename {column}={kept}" if kept is not None else "give --words"
            raise UsageError(
                f"{into} was set up with {what} in {kept!r}, not in {shape.fields[column]!r}; {hint}, or set it up "
                "anew: `spatialnosql stk enable`"
            )
    rules = settings.rules
    wanted = {
        "--time-bin": (given.bin_s, settings.bin_s),
        "--time-cell": (given.cell_bits, settings.cell_bits),
        "--stem": (given.stem, rules.stem or "none"),
        "--stop-words": (given.stop_words, rules.stop_words),
    }
    for option, (asked, kept_value) in wanted.items():
        if asked is not None and asked != kept_value:
            raise UsageError(
                f"{option} {asked}: {into} was set up with {kept_value}; leave the option out, or set it up anew: "
                "`spatialnosql stk enable`"
            )


def decide(work: Work, rows: DataFrame, shape: Shape, good: int) -> StkSettings:
    """The settings of a new collection: what was asked for, and sizes from a sample of the good rows."""
    given, seal = work.job.stk, shape.seal
    assert given is not None
    assert seal is not None
    rules = TextRules(given.stop_words or "english", "english" if given.stem == "english" else None)
    words = WORDS_FIELD if seal.words is None else shape.fields[seal.words]
    text = None if seal.text is None else shape.fields[seal.text]
    settings = StkSettings(shape.fields[seal.time], words, text, rules)
    if given.bin_s is not None and given.cell_bits is not None:
        return replace(settings, bin_s=given.bin_s, cell_bits=given.cell_bits)
    picked = rows.where(F.col(FAULT).isNull() & F.col(AT).isNotNull())
    if good > SAMPLE:
        picked = picked.sample(fraction=SAMPLE / good, seed=1)
    some = F.when(F.rand(1) < 0.1 if good > SAMPLE else F.lit(True), _words_column(seal))
    found = picked.select(AT, CELL, some.alias("words")).toArrow()
    column = found["words"].drop_null().combine_chunks()
    if seal.text is not None:
        counts = np.diff(WordReader(rules).read(column).offsets)
    else:
        counts = np.array([len(one) for one in column.to_pylist()])
    sizes = chosen_sizes(
        found[AT].to_numpy().astype(np.int64),
        found[CELL].to_numpy().astype(np.uint64),
        good,
        float(counts.mean()) if len(counts) else 8.0,
    )
    return replace(settings, **sizes)


def _words_column(seal: SealColumns) -> Column:
    """What words are made of."""
    if seal.text is not None:
        return F.col(quoted(seal.text)).cast("string")
    return F.col(quoted(str(seal.words)))


# -- writing -----------------------------------------------------------------------------------------------


def begin_filters(work: Work, settings: StkSettings) -> None:
    """The state of the filters of a collection that is empty. One with documents has its state, or has lost it."""
    if work.present:
        return
    collection = work.collection
    if "stk" not in work.stored:
        forget(collection)  # what an earlier collection of this name has left
    begin(collection, settings.digest, paused=False)
    if work.stored.get("state") == READY:
        prepare(collection, work.info, settings)
    else:
        record(collection, settings)


@dataclass
class Sealed:
    """What became of the documents of a batch; known when they are about to be loaded."""

    settings: StkSettings
    sealed: int = 0
    fresh: int = 0
    filter_cubes: int = 0
    added_bytes: int = 0

    def to_document(self) -> dict[str, Any]:
        """For JSON and the ledger."""
        return {
            "sealed": self.sealed,
            "fresh": self.fresh,
            "filter_cubes": self.filter_cubes,
            "filter_bytes_added": self.added_bytes,
            "settings": self.settings.to_document(),
        }


@contextmanager
def sealing(
    work: Work, rows: DataFrame, shape: Shape, batch: str, settings: StkSettings
) -> Iterator[tuple[DataFrame, Callable[[], None], Sealed]]:
    """The documents of identified rows, sealed and with their keys published: to be loaded within.

    With it what is to be called before documents are replaced, and what there is to say.
    """
    collection, seal = work.collection, shape.seal
    assert seal is not None
    outcome, writer = Sealed(settings), f"ingest of batch {batch}"
    known = run(read_state(collection))
    if known is not None and known.settings != settings.digest:
        raise UsageError(
            f"{work.job.into} has filters of other settings; set it up anew: "
            f"`spatialnosql stk enable {work.job.into}`"
        )
    with writing(collection, writer, again=True) as state, large_batches(work.spark):
        filters = Filters(
            work.uri,
            collection.database.name,
            collection.name,
            writer,
            state.filters,
            settings.to_document(),
            seal.text is not None,
        )
        sealed = with_seals(rows, _words_column(seal), filters)
        documents = to_documents(sealed, shape, batch, F.col(f"{SEAL}.added").alias(_ADDED))
        documents = documents.persist(StorageLevel.DISK_ONLY)
        try:
            with work.phase("seal", "reading words, sealing, adding to the filters"):
                cubes = _tallied(documents, settings, outcome)
                publish(collection, state.filters, cubes)
                note_published(collection, writer)
            if outcome.fresh or shape.keys:
                open_for(work, batch)
            settle = _settle(state)
            if work.stored.get("state") == READY:
                settle()  # clients go by an older tick for as long: see `filter_store`
            yield documents.drop(_ADDED), settle, outcome
        finally:
            documents.unpersist()


def _tallied(documents: DataFrame, settings: StkSettings, outcome: Sealed) -> Any:
    """Make the documents, with all that comes of it; the filter cubes that they are in."""
    cube = F.col(CUBE_FIELD)
    bins = F.shiftright(cube, settings.cell_bits + settings.cube_bin_bits)
    cells = F.shiftright(cube.bitwiseAND(F.lit((1 << settings.cell_bits) - 1)), settings.cube_cell_bits)
    filter_cube = F.shiftleft(bins, settings.cell_bits - settings.cube_cell_bits).bitwiseOR(cells)
    groups = documents.groupBy(filter_cube.alias("cube"))
    found = groups.agg(F.count(F.lit(1)).alias("n"), F.sum(_ADDED).alias("added")).toArrow()
    is_sealed = found["cube"].is_valid().to_numpy()
    counts = found["n"].to_numpy()
    cubes = np.sort(found["cube"].drop_null().to_numpy().astype(np.int64))
    outcome.sealed, outcome.fresh = int(counts[is_sealed].sum()), int(counts[~is_sealed].sum())
    outcome.filter_cubes, outcome.added_bytes = len(cubes), 4 * int(found["added"].to_numpy().sum())
    return cubes


def _settle(state: State) -> Callable[[], None]:
    """Wait for queries that may know a document by a seal that it has lost, or not know its new keys."""

    def settle() -> None:
        if not state.paused:
            print(
                f"waiting {state.grace_s:g} s for queries that began before ...", file=sys.stderr, flush=True
            )
            time.sleep(state.grace_s)

    return settle


def finish_filters(work: Work, outcome: Sealed) -> None:
    """The guarantee for a new collection; and away with the nulls that Spark wrote where there is nothing."""
    collection, gh, settings = work.collection, work.job.gh, outcome.settings
    if work.stored.get("state") != READY:
        guarantee(collection, gh, settings)
    if outcome.fresh:
        nothing = {"$cond": [{"$eq": [f"${settings.words}", None]}, "$$REMOVE", f"${settings.words}"]}
        changes: list[dict[str, Any]] = [{"$set": {settings.words: nothing}}, {"$unset": STK_FIELD}]
        fresh = {CUBE_FIELD: None, STK_FIELD: {"$type": "null"}}
        collection.update_many(fresh, changes, hint=INDEX_NAME)
