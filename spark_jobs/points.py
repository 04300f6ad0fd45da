"""Points for jobs: from Parquet, CSV and JSON lines files, or from a MongoDB collection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import ArrayType, StructType

from spark_jobs.session import mongo_reader
from spatialnosql.errors import UsageError

LNG, LAT = "lng", "lat"
LNG_NAMES = ("lng", "lon", "long", "longitude", "x")
LAT_NAMES = ("lat", "latitude", "y")
SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".geojson": "geojson",
    ".geojsonl": "geojson",
}
FORMATS = ("parquet", "csv", "json")
COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".xz"})


def read_files(spark: SparkSession, paths: Sequence[str], file_format: str | None = None) -> DataFrame:
    """The rows of files, globs or folders of one format; text stays text, so that no row can fail here."""
    file_format = file_format or format_of(paths)
    reader = spark.read.format(file_format)
    if file_format == "csv":
        reader = reader.option("header", True)
    elif file_format == "json":
        # A column that is a number here and text there must not turn into nulls.
        reader = reader.option("primitivesAsString", True)
    return reader.load(list(paths))


def format_of(paths: Sequence[str], formats_known: Sequence[str] = FORMATS) -> str:
    """The one format of all inputs, by their names, or by the names in a local folder."""
    found = {path: _format_of_one(path) for path in paths}
    found = {path: name if name in formats_known else None for path, name in found.items()}
    formats = set(found.values())
    if len(formats) == 1 and None not in formats:
        return str(formats.pop())
    described = ", ".join(f"{path}: {name or 'unknown'}" for path, name in found.items())
    raise UsageError(
        f"inputs must be of one known format ({described}); say which with --format {formats_known}"
    )


def _format_of_one(path: str) -> str | None:
    folder = Path(path)
    # What Spark wrote is a folder called like a file, so the name comes first.
    by_name = _format_of_name(folder)
    if by_name or not folder.is_dir():
        return by_name
    inside = {_format_of_name(file) for file in folder.iterdir() if not file.name.startswith((".", "_"))}
    return inside.pop() if len(inside) == 1 else None


def _format_of_name(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSED]
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def select_points(
    rows: DataFrame, *, lng: str | None = None, lat: str | None = None, location: str | None = None
) -> DataFrame:
    """Two doubles a row, ``lng`` and ``lat``; what is no number becomes null, and no row is lost.

    They come from two columns (found by their usual names unless given) or from a location column: a GeoJSON
    point or a pair.
    """
    if location is not None:
        x, y = location_columns(rows, location)
    else:
        x = F.col(quoted(find_column(rows.columns, lng, LNG_NAMES, "--lon")))
        y = F.col(quoted(find_column(rows.columns, lat, LAT_NAMES, "--lat")))
    return rows.select(x.try_cast("double").alias(LNG), y.try_cast("double").alias(LAT))


def find_column(columns: Sequence[str], given: str | None, usual: Sequence[str], option: str) -> str:
    """The column that is meant: the one given, whatever its case, else the first that has a usual name."""
    by_lower = {column.lower().strip(): column for column in columns}
    for name in [given] if given is not None else usual:
        if name in columns:
            return name
        if name.lower() in by_lower:
            return by_lower[name.lower()]
    wanted = (
        f"no column {given!r}" if given is not None else f"none of the columns is called {', '.join(usual)}"
    )
    raise UsageError(f"{wanted}; name it with {option}; the columns are: {', '.join(columns)}")


def location_columns(rows: DataFrame, location: str, option: str = "--location") -> tuple[Column, Column]:
    """Longitude and latitude of a column of GeoJSON points or pairs; null where it holds anything else."""
    name = find_column(rows.columns, location, (), option)
    column, kind = F.col(quoted(name)), rows.schema[name].dataType
    if isinstance(kind, StructType) and "coordinates" in kind.names:
        # A line's coordinates are pairs themselves, which no cast makes a number of; its type tells, too.
        point = column["type"] == "Point" if "type" in kind.names else F.lit(True)
        column, kind = F.when(point, column["coordinates"]), kind["coordinates"].dataType
    if not isinstance(kind, ArrayType) or isinstance(kind.elementType, (ArrayType, StructType)):
        raise UsageError(f"{location} is {kind.simpleString()}, neither a GeoJSON point nor a pair")
    return F.get(column, 0), F.get(column, 1)


def quoted(name: str) -> str:
    """A column name as Spark reads it, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def read_collection(spark: SparkSession, namespace: str, location: str) -> DataFrame:
    """The points of ``DATABASE.COLLECTION``, as `select_points` gives them.

    The session must have been built with a URI. The server makes the two numbers, so only they travel, and a
    schema need not be guessed from a sample: one collection may hold GeoJSON points, pairs and nonsense.
    """
    database, dot, collection = namespace.partition(".")
    if not (database and dot and collection):
        raise UsageError(f"{namespace!r} is not of the form DATABASE.COLLECTION")
    return (
        mongo_reader(spark, database, collection)
        .schema(f"{LNG} double, {LAT} double")
        .option("aggregation.pipeline", json.dumps(point_pipeline(location)))
        .load()
    )


def point_pipeline(location: str) -> list[dict[str, Any]]:
    """Stages that leave ``lng`` and ``lat`` of a GeoJSON point, a legacy pair or a legacy document."""
    field = f"${location}"
    pair = {
        "$switch": {
            "branches": [
                {"case": {"$isArray": [field]}, "then": field},
                {"case": {"$eq": [f"{field}.type", "Point"]}, "then": f"{field}.coordinates"},
                {
                    # {lng: 1, lat: 2}, whatever the names: MongoDB itself goes by the order.
                    "case": {
                        "$and": [
                            {"$eq": [{"$type": field}, "object"]},
                            {"$eq": [{"$type": f"{field}.type"}, "missing"]},
                        ]
                    },
                    "then": {"$map": {"input": {"$objectToArray": field}, "as": "entry", "in": "$$entry.v"}},
                },
            ],
            "default": None,
        }
    }
    return [{"$project": {"_id": 0, "pair": pair}}, {"$project": {LNG: _number(0), LAT: _number(1)}}]


def _number(position: int) -> dict[str, Any]:
    """An element of ``pair`` as a double, or null."""
    element = {
        "$cond": [{"$isArray": ["$pair"]}, {"$arrayElemAt": ["$pair", position]}, None],
    }
    return {
        "$let": {
            "vars": {"value": element},
            "in": {"$cond": [{"$isNumber": "$$value"}, {"$toDouble": "$$value"}, None]},
        }
    }
