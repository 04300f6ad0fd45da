"""From screened rows to documents: fields chosen and renamed, a deterministic ``_id``, location and ``gh``.

Without key columns the ``_id`` is 16 bytes: the row's cell, then a digest of the row and, from the second of several
equal rows on, of its number among them. So equal rows of a batch are all kept, and the same rows again get the same
identifiers. It sorts as the shard key does, so that inserts in that order go to the end of each index, and is unique
over all shards.

With key columns the ``_id`` is the key. Then a row may come again with another place, and two rows of a batch may have
one key: the last of them counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructType

from spark_jobs.geohash_column import LENGTH, cell_string
from spark_jobs.points import find_column, quoted
from spark_jobs.screening import AT, CELL, FAULT, X, Y
from spark_jobs.sources import POSITION
from spatialnosql.errors import UsageError
from spatialnosql.stk.settings import STK_FIELD

DIGEST = "_digest"
"""Of the row, in documents with a key: whether a row that comes again has changed is seen without reading it."""
PART, NUMBER = "__part", "__number"
SEAL = "__seal"
"""Of a row that is sealed: its words, cube and seal (`stk_worker`)."""
WORDS_FIELD = "words"
"""The field of words that were read from a text."""


@dataclass(frozen=True)
class SealColumns:
    """The columns that seals are made of: the time, and either a text or lists of words."""

    time: str
    text: str | None = None
    words: str | None = None


@dataclass(frozen=True)
class Shape:
    """How the documents look."""

    fields: Mapping[str, str]  # name in the document, by column of the source
    keys: tuple[str, ...] = ()
    location: str = "loc"
    gh: str = "gh"
    mark: str | None = None
    """The field that the name of the batch is stored in, if any."""
    seal: SealColumns | None = None
    """Where documents are sealed for queries by place, time and words."""


def shape_of(
    columns: Sequence[str],
    *,
    select: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
    coordinates: Sequence[str] = (),
    location: str = "loc",
    gh: str = "gh",
    mark: str | None = None,
) -> Shape:
    """Which columns become which fields: those selected, else all but the coordinates, which become the location."""
    chosen = [find_column(columns, name, (), "--select") for name in select]
    if not chosen:
        chosen = [name for name in columns if name not in coordinates]
    renamed = {find_column(columns, old, (), "--rename"): new for old, new in (rename or {}).items()}
    for old in renamed:
        if old not in chosen:
            raise UsageError(f"--rename {old}={renamed[old]}: {old} is not among the columns that are stored")
    fields = {name: renamed.get(name, name) for name in chosen}
    found = tuple(find_column(columns, name, (), "--key") for name in keys)
    if "_id" in fields.values() and found != tuple(old for old, new in fields.items() if new == "_id"):
        raise UsageError(
            "a column is called _id: make it the key (--key _id), or give it another name (--rename)"
        )
    if found and fields.get(found[0]) == "_id":
        del fields[found[0]]
    own = [location, gh, *([] if mark is None else [mark])]
    reserved = {*own, DIGEST}
    for name in own:
        if not name or "." in name or name.startswith("$"):
            raise UsageError(
                f"{name!r}: the location, its geohash and the mark are stored in fields of their own, without dots"
            )
    if len(set(own)) != len(own) or mark == "_id":
        raise UsageError(f"location, gh and mark must be three fields, not {', '.join(own)}")
    for old, new in fields.items():
        if new in reserved:
            raise UsageError(
                f"the column {old} would be stored as {new}, which is kept for the location, gh, the mark or the "
                f"digest; give it another name (--rename {old}=...), or choose others (--location, --gh, --mark)"
            )
        if not new or new.startswith("$") or "." in new or "\0" in new:
            raise UsageError(f"{new!r} is no name for a field; rename it: --rename '{old}=...'")
    if len(set(fields.values())) != len(fields):
        raise UsageError(f"two columns would be stored under one name: {', '.join(fields.values())}")
    return Shape(fields, found, location, gh, mark)


def row_digest(rows: DataFrame, columns: Sequence[str]) -> Column:
    """A 64-bit digest of columns; nulls count, so that (1, null) and (null, 1) differ."""
    values = []
    for name in columns:
        column = F.col(quoted(name))
        values.append(F.to_json(column) if _has_map(rows.schema[name].dataType) else column)
    return F.xxhash64(*values, *(value.isNull() for value in values))


def _has_map(kind: object) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(one.dataType) for one in kind.fields)
    return (
        isinstance(kind, MapType) or _has_map(getattr(kind, "elementType", None))
        if kind is not None
        else False
    )


def key_column(rows: DataFrame, keys: Sequence[str]) -> Column:
    """The ``_id`` of a key: one number or text as it is, several joined by ``|``, which is escaped within them."""
    if len(keys) == 1 and isinstance(rows.schema[keys[0]].dataType, (IntegerType, LongType, StringType)):
        return F.col(quoted(keys[0]))
    texts = (F.col(quoted(name)).cast("string") for name in keys)
    escaped = (
        F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|")) for text in texts
    )
    return F.concat_ws("|", *escaped)


def identified(rows: DataFrame, shape: Shape, part: Column, parts: int) -> DataFrame:
    """The good rows, each with its ``_id``, in `parts` parts by `part`, and there in geohash order.

    Without a key that is one shuffle: equal rows are in one place, hence in one part, and there side by side.
    """
    good = rows.where(F.col(FAULT).isNull())
    good = good.withColumn(DIGEST, row_digest(good, [*shape.fields, X, Y]))
    if shape.keys:
        last = last_of_each_key(good.withColumn("_id", key_column(good, shape.keys)))
        return last.withColumn(PART, part).repartitionById(parts, F.col(PART)).sortWithinPartitions(CELL)
    placed = good.withColumn(PART, part).repartitionById(parts, F.col(PART))
    # The cell first: the sort goes by the first column as a number, and compares rows only where that is equal.
    equal = Window.partitionBy(CELL, DIGEST, PART).orderBy(F.lit(1))
    numbered = placed.withColumn(NUMBER, F.row_number().over(equal))
    return numbered.withColumn("_id", digest_id(F.col(CELL), F.col(DIGEST), F.col(NUMBER)))


def digest_id(cell: Column, digest: Column, number: Column) -> Column:
    """The ``_id`` of a row without a key: 8 bytes of its cell, then 8 of its digest and its number among equal rows.

    Bytes, not text: the connector's driver writes text a byte at a time, and indexes hold half as much.
    """
    of_one = F.when(number > 1, F.xxhash64(digest, number)).otherwise(digest)
    # With their highest digit set both have 16 digits, whatever they are, and none needs to be padded.
    return F.unhex(F.concat(F.hex(cell + F.lit(1 << 60)), F.hex(of_one.bitwiseOR(F.lit(-(1 << 63))))))


def last_of_each_key(rows: DataFrame) -> DataFrame:
    """Of the rows with one ``_id``, the last in the order of the source; `NUMBER` says how many they were."""
    latest = Window.partitionBy("_id").orderBy(F.col(POSITION).desc())
    whole = Window.partitionBy("_id")
    return (
        rows.withColumn("__rank", F.row_number().over(latest))
        .withColumn(NUMBER, F.count(F.lit(1)).over(whole))
        .where(F.col("__rank") == 1)
        .drop("__rank")
    )


def to_documents(rows: DataFrame, shape: Shape, batch: str, *more: Column) -> DataFrame:
    """The documents of identified rows: ``_id``, the fields, location, ``gh``, and the digest if there is a key.

    The name of the batch, if it is stored, is no part of the digest: a row that comes again is the same row. And more
    columns, as they are given.
    """
    point = F.struct(F.lit("Point").alias("type"), F.array(X, Y).alias("coordinates"))
    fields = [F.col(quoted(old)).alias(new) for old, new in shape.fields.items()]
    if shape.seal is not None:
        fields = _with_seal(shape.fields, shape.seal)
    columns = [F.col("_id"), *fields, point.alias(shape.location)]
    columns.append(cell_string(F.col(CELL), LENGTH).alias(shape.gh))
    if shape.keys:
        columns.append(F.col(DIGEST))
    if shape.mark is not None:
        columns.append(F.lit(batch).alias(shape.mark))
    return rows.select(*columns, *more)


def _with_seal(fields: Mapping[str, str], seal: SealColumns) -> list[Column]:
    """The fields with the time as a date, and with words and seal, which is null for those that stay fresh."""
    date = F.timestamp_millis(F.col(AT))
    columns = [(date if old == seal.time else F.col(quoted(old))).alias(new) for old, new in fields.items()]
    if seal.text is not None:
        columns.append(F.col(f"{SEAL}.words").alias(WORDS_FIELD))
    cube, number = F.col(f"{SEAL}.c"), F.col(f"{SEAL}.s")
    made = F.when(cube.isNotNull(), F.struct(cube.alias("c"), number.alias("s")))
    return [*columns, made.alias(STK_FIELD)]
