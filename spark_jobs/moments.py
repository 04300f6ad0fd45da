"""Times of rows, from whatever column they are in, as milliseconds since 1970: what a BSON date holds."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import DataType, DateType, NumericType, StringType, TimestampType

from spatialnosql.errors import UsageError

SECONDS = (1e8, 4.2e9)
MILLISECONDS = (1e11, 4.2e12)
"""Numbers that can be meant: from 1973 to 2103, whichever of the two they are. Others, as 20260301, are no times."""
_DATE = r"^\s*\d{4}-\d{1,2}-\d{1,2}([T ].*)?$"
_NUMBER = r"^\s*\d+(\.\d*)?\s*$"


def moment_ms(column: Column, kind: DataType, name: str) -> Column:
    """A time as milliseconds since 1970, without a zone UTC; null for what is no time."""
    if isinstance(kind, DateType | TimestampType):
        return F.unix_millis(column.cast("timestamp"))
    if isinstance(kind, NumericType):
        return _of_number(column.cast("double"))
    if isinstance(kind, StringType):
        # Spark alone would take "12" for a year, and 3/1/2026 is either of two days.
        written = F.unix_millis(F.try_to_timestamp(F.when(column.rlike(_DATE), F.trim(column))))
        number = _of_number(F.when(column.rlike(_NUMBER), F.trim(column)).try_cast("double"))
        return F.coalesce(written, number)
    raise UsageError(
        f"--time {name} is {kind.simpleString()}; it must be a time, a date, text as 2026-03-01T20:00:00Z, "
        "or a number of seconds or milliseconds since 1970"
    )


def _of_number(number: Column) -> Column:
    seconds = number.between(*SECONDS)
    milliseconds = number.between(*MILLISECONDS)
    return F.when(seconds, F.round(number * 1000)).when(milliseconds, F.floor(number)).cast("long")
