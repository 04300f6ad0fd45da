"""Rows that are not fit to be stored, kept with the reason: ``<collection>_quarantine``."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from spark_jobs.loading import insert
from spark_jobs.points import quoted
from spark_jobs.screening import FAULT
from spark_jobs.sources import CORRUPT, SOURCE


def quarantine_of(collection: Collection[dict[str, Any]]) -> Collection[dict[str, Any]]:
    """The collection of the rows that were not fit for a collection."""
    return collection.database[f"{collection.name}_quarantine"]


def set_aside(
    rows: DataFrame,
    columns: tuple[str, ...],
    collection: Collection[dict[str, Any]],
    batch: str,
    expected: int,
) -> int:
    """Write the bad rows of a batch, in the place of those that an earlier attempt wrote; how many there are."""
    aside = quarantine_of(collection)
    aside.delete_many({"batch": batch})
    if not expected:
        return 0
    aside.create_index("batch")
    kept = [F.col(quoted(name)) for name in columns]
    if CORRUPT in rows.columns:
        kept.append(F.col(CORRUPT).alias("line"))
    bad = rows.where(F.col(FAULT).isNotNull()).select(
        F.col(FAULT).alias("reason"),
        F.lit(batch).alias("batch"),
        F.col(SOURCE).alias("source"),
        F.struct(*kept).alias("row"),
    )
    return insert(bad, aside, None)
