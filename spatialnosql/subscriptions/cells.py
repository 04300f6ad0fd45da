"""The grid of the subscription index: places as two 32-bit numbers, cells as their leading bits.

A longitude becomes ``floor((lng + 180) / 360 * 2**32)``, a latitude ``floor((lat + 90) / 180 * 2**32)``, clipped to 32
bits. Every step of that keeps order, so that of two numbers the smaller belongs to the smaller coordinate; only where
they are equal must the coordinates themselves be compared. A cell of level L has L bits of each, as a geohash of 2 L
bits does, and the 16 bits after those say where in the cell a place is: to 1/65536 of its width.
"""

from __future__ import annotations

from spatialnosql.subscriptions.compiled import compiled

FINEST = 16
"""The level of the smallest cells, about 600 by 300 m; 16 bits remain to say where in it."""

FULL = 4294967296.0


@compiled
def scaled(value: float, least: float, width: float) -> int:
    """A coordinate, which must be within its range, as a 32-bit number."""
    return min(int((value - least) / width * FULL), 4294967295)


@compiled
def cell_key(level: int, x: int, y: int) -> int:
    """The cell of a level in which a place is, as a number that no other cell of any level has."""
    return (level << 32) | ((x >> (32 - level)) << 16) | (y >> (32 - level))


@compiled
def level_of(west: int, south: int, east: int, north: int, finest: int, step: int, most: int) -> int:
    """The finest of the levels finest, finest - step, ... at which a box touches at most `most` cells, or 0."""
    level = finest
    while level > 0:
        shift = 32 - level
        columns = (east >> shift) - (west >> shift) + 1
        rows = (north >> shift) - (south >> shift) + 1
        if columns * rows <= most:
            return level
        level -= step
    return 0


@compiled
def spread(key: int) -> int:
    """Where in a power of two of places the search for a cell begins: its number, well mixed."""
    mixed = (key ^ (key >> 15)) * 2246822519 & 0xFFFFFFFF
    return (mixed ^ (mixed >> 13)) * 3266489917 >> 7
