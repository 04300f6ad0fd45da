"""Rows to ingest, from files or a staging collection: types inferred, dates as dates, and where each row came from."""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo.collection import Collection
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    YearMonthIntervalType,
)

from spark_jobs.geojson import write_lines
from spark_jobs.points import format_of, quoted
from spark_jobs.session import mongo_reader
from spark_jobs.staging import staging_schema
from spatialnosql.errors import UsageError

FORMATS = ("parquet", "csv", "json", "geojson")
SOURCE = "__source"
"""The file or collection that a row came from."""
POSITION = "__position"
"""Where in its source a row stood, for telling the earlier of two from the later."""
CORRUPT = "_corrupt_record"
"""The text of a line that is no row at all."""
GEOMETRY = "geometry"

FORMAT_OPTIONS: dict[str, dict[str, str]] = {
    # Nights may differ in columns; without this those of one file would stand for all.
    "parquet": {"mergeSchema": "true"},
    "csv": {
        # Columns go by name: files whose headers differ are an error, not silently mixed up.
        "header": "true",
        "enforceSchema": "false",
        # All columns are parsed, also for a count: a line with too many is malformed in every pass, or in none.
        "columnPruning": "false",
        "columnNameOfCorruptRecord": CORRUPT,
    },
    "json": {"inferTimestamp": "true", "columnNameOfCorruptRecord": CORRUPT},
}
"""How Spark reads each format."""

MOST_FILES_LOOKED_AT = 1_000


@dataclass
class Source:
    """What is to be read."""

    rows: DataFrame
    traced: DataFrame
    """The same rows with `SOURCE` and `POSITION`: apart, for where a row came from costs more than reading it."""
    kind: str
    names: tuple[str, ...]
    fingerprint: str
    """Equal for equal inputs: names, sizes and times of files."""
    scratch: Path | None = None
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = tuple(name for name in self.rows.columns if name != CORRUPT)

    def close(self) -> None:
        """Remove what was written to read from."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def open_files(
    spark: SparkSession,
    paths: Sequence[str],
    file_format: str | None = None,
    options: Mapping[str, str] | None = None,
    scratch: str | None = None,
) -> Source:
    """The rows of files, globs or folders of one format. `options` go to Spark's reader as they are."""
    kind = file_format or format_of(paths, FORMATS)
    given = dict(options or {})
    folder = None
    if kind == "geojson":
        files = _local_files(paths)
        folder = Path(tempfile.mkdtemp(prefix="spatialnosql-geojson-", dir=scratch))
        try:
            traced = _read_geojson(spark, files, folder)
            rows = traced.drop(SOURCE, POSITION)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        names = [path.resolve().as_uri() for path in files]
    else:
        rows = read_rows(spark.read.options(**given), paths, kind)
        names = sorted(rows.inputFiles())
        traced = rows.select("*", F.col("_metadata.file_path").alias(SOURCE), _position().alias(POSITION))
    if not names:
        raise UsageError(f"no files in {', '.join(paths)}")
    return Source(_storable(rows), _storable(traced), kind, tuple(names), _fingerprint(spark, names), folder)


def open_collection(spark: SparkSession, staging: Collection[dict[str, Any]]) -> Source:
    """The rows of a staging collection; what fields it has, and of which types, is asked of the server."""
    schema = staging_schema(staging)
    database, name = staging.database.name, staging.name
    if not schema.fields:
        raise UsageError(f"{staging.full_name} has no documents to ingest")
    read = mongo_reader(spark, database, name).schema(schema).load()
    traced = read.select(
        "*", F.lit(staging.full_name).alias(SOURCE), F.monotonically_increasing_id().alias(POSITION)
    )
    count = staging.estimated_document_count()
    fingerprint = hashlib.blake2b(f"{staging.full_name} {count}".encode(), digest_size=6).hexdigest()
    return Source(_storable(read), _storable(traced), "collection", (staging.full_name,), fingerprint)


def read_rows(reader: DataFrameReader, paths: Sequence[str], kind: str) -> DataFrame:
    """The rows of files that Spark can read itself, in the types that it finds in them."""
    reader = reader.options(**FORMAT_OPTIONS[kind])
    if kind == "csv":
        inferred = reader.option("inferSchema", True).csv(list(paths)).schema
        reader = reader.schema(inferred.add(CORRUPT, StringType()))
    return reader.format(kind).load(list(paths))


def _read_geojson(spark: SparkSession, files: Sequence[Path], folder: Path) -> DataFrame:
    lines = [str(path) for path in write_lines(files, folder)]
    read = spark.read.option("inferTimestamp", True).json(lines)
    feature = read.schema["feature"].dataType if "feature" in read.columns else None
    if not isinstance(feature, StructType) or GEOMETRY not in feature.names:
        raise UsageError(f"no features with a geometry in {', '.join(str(path) for path in files)}")
    columns = []
    properties = feature["properties"].dataType if "properties" in feature.names else None
    if isinstance(properties, StructType):
        columns = [F.col(f"feature.properties.{quoted(name)}").alias(name) for name in properties.names]
        if GEOMETRY in properties.names:
            raise UsageError(f"the features have a property called {GEOMETRY!r}, which is also their place")
    if "id" in feature.names and not (isinstance(properties, StructType) and "id" in properties.names):
        columns.append(F.col("feature.id").alias("id"))
    return read.select(
        *columns,
        F.col(f"feature.{GEOMETRY}").alias(GEOMETRY),
        F.col("source").alias(SOURCE),
        _position().alias(POSITION),
    )


def _position() -> Column:
    """A block of a file and a number that grows within a task: together, the order of the source."""
    return F.struct("_metadata.file_path", "_metadata.file_block_start", F.monotonically_increasing_id())


def _local_files(paths: Sequence[str]) -> list[Path]:
    """The files of names, globs and folders, as Spark finds them: without hidden ones."""
    files: list[Path] = []
    for path in paths:
        found = [Path(name) for name in sorted(glob.glob(path.removeprefix("file://")))]  # noqa: PTH207
        for one in found:
            files += sorted(p for p in one.iterdir() if p.is_file()) if one.is_dir() else [one]
        if not found:
            raise UsageError(f"no such file: {path} (GeoJSON is read from this machine's own files)")
    return [file for file in files if not file.name.startswith((".", "_"))]


def _fingerprint(spark: SparkSession, names: Sequence[str]) -> str:
    """A digest of names, sizes and times of files, wherever they are."""
    digest = hashlib.blake2b(digest_size=6)
    jvm: Any = spark._jvm
    configuration = spark._jsc.hadoopConfiguration()
    for number, name in enumerate(names):
        state: list[Any] = [name]
        if number < MOST_FILES_LOOKED_AT:
            path = jvm.org.apache.hadoop.fs.Path(name)
            status = path.getFileSystem(configuration).getFileStatus(path)
            state += [status.getLen(), status.getModificationTime()]
        digest.update(json.dumps(state).encode())
    return digest.hexdigest()


# -- types ------------------------------------------------------------------------------------------------


def _storable(rows: DataFrame) -> DataFrame:
    """The same rows in types that the connector can write: a time without a zone is UTC."""
    columns = []
    for kind in rows.schema.fields:
        wanted = storable_type(kind.dataType)
        column = F.col(quoted(kind.name))
        columns.append(column if wanted == kind.dataType else column.cast(wanted).alias(kind.name))
    return rows.select(*columns)


def storable_type(kind: DataType) -> DataType:
    """The type that a type is stored as."""
    if isinstance(kind, TimestampNTZType):
        from pyspark.sql.types import TimestampType

        return TimestampType()
    if isinstance(kind, (ByteType, ShortType)):
        from pyspark.sql.types import IntegerType

        return IntegerType()
    if isinstance(kind, (NullType, DayTimeIntervalType, YearMonthIntervalType)):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(storable_type(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(StringType(), storable_type(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, storable_type(f.dataType), f.nullable) for f in kind.fields])
    return kind
