"""Geohash as native Spark column arithmetic: no Python runs per row, so nothing leaves the JVM.

A cell is the 60-bit Z-order integer of a point, longitude bit first; its 12-character geohash sorts the same
way, and a coarser cell is the same number shifted right. Null, NaN, text and coordinates off the globe give
null: a point without a place has no cell.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

BITS = 60
LENGTH = 12
AXIS_BITS = BITS // 2
GEOHASH_DIGITS = "0123456789bcdefghjkmnpqrstuvwxyz"

_PAIRS = " ".join(first + second for first in GEOHASH_DIGITS for second in GEOHASH_DIGITS)

# Ten bits with a zero put before each: the binary digits read in base four.
_SPREAD = " ".join(str(int(format(number, "b"), 4)) for number in range(1024))


def cell_column(lng: Column, lat: Column) -> Column:
    """The 60-bit cell of a point, or null if the point is no place on Earth."""
    x, y = lng.try_cast("double"), lat.try_cast("double")
    # Spark orders NaN above every number, so the comparison with the upper limit rejects it.
    valid = (x >= -180.0) & (x <= 180.0) & (y >= -90.0) & (y <= 90.0)
    column = _axis_index(F.when(valid, x), 27)
    row = _axis_index(F.when(valid, y), 28)
    return F.shiftleft(_spread(column), 1).bitwiseOR(_spread(row))


def geohash_column(lng: Column, lat: Column, length: int = LENGTH) -> Column:
    """The geohash of a point as a string of 1 to 12 characters, or null if it is no place on Earth."""
    return cell_string(cell_at(cell_column(lng, lat), 5 * length), length)


def cell_at(cell: Column, bits: int) -> Column:
    """The cell of a coarser precision (1 to 60 bits) that holds a 60-bit cell."""
    if not 1 <= bits <= BITS:
        raise ValueError(f"precision of {bits} bits; it must be 1 to {BITS}")
    return F.shiftright(cell, BITS - bits) if bits < BITS else cell


def cell_string(cell: Column, length: int) -> Column:
    """The geohash of a cell of ``5 * length`` bits."""
    if not 1 <= length <= LENGTH:
        raise ValueError(f"geohash of {length} characters; it must be 1 to {LENGTH}")
    groups = range((length - 1) // 2, -1, -1)
    text = F.concat(*(_look_up(_PAIRS, "string", cell, group) for group in groups))
    return F.substring(text, 2, length) if length % 2 else text


def _axis_index(degrees: Column, power: int) -> Column:
    """Which of the 2**30 intervals of its axis a coordinate is in; the last one is closed.

    The intervals are 45 / 2**power degrees (27 for longitude, 28 for latitude), so the index is
    ``floor(degrees * 2**power / 45) + 2**29``. The product is exact, and the quotient, though rounded, never
    reaches a border from below: a double below a border is at least one unit u in its last place away, its
    quotient u/45 away, and quotients are at most u/32 apart there, so the border is not the nearest one.
    Adding 180 first, as the formula is usually written, would move -1e-17 across the meridian.
    """
    index = F.floor(degrees * F.lit(2.0**power) / F.lit(45.0)) + F.lit(2 ** (AXIS_BITS - 1))
    # The far border, 2**30, belongs to the last interval. Not least(): that would make a number of null.
    return index - F.shiftright(index, AXIS_BITS)


def _spread(index: Column) -> Column:
    """A zero put before every bit of a 30-bit number.

    Three look-ups name the index three times; the usual five steps of shift, or and mask would name it 32
    times, and where Spark does not share common subexpressions (in a GROUP BY) compute it as often.
    """
    low, middle, high = (_look_up(_SPREAD, "bigint", index, group) for group in range(3))
    return F.shiftleft(high, 40).bitwiseOR(F.shiftleft(middle, 20)).bitwiseOR(low)


def _look_up(words: str, kind: str, number: Column, group: int) -> Column:
    """The word that ten bits of a number stand for, groups counted from the right; null for null."""
    # One short literal that the optimizer folds into an array, not an expression of 1,024 literals.
    table = F.split(F.lit(words), " ").cast(f"array<{kind}>")
    return F.get(table, F.shiftright(number, 10 * group).bitwiseAND(F.lit(1023)).cast("int"))
