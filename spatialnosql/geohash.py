"""Geohash cells as integers, vectorised; strings only at the edge.

A *cell* of precision ``bits`` (0 to 60) is an unsigned integer below ``2**bits``: the bits of the
longitude and the latitude interleaved, longitude first, so that cells sort along the Z-order curve. Cells of
60 bits are the finest (at most 4 cm x 2 cm) and are what documents carry, as the 12-character string ``gh``.

A cell of any precision is one half-open range ``[lo, hi)`` of 60-bit cells, and because fixed-length geohash
strings sort like the integers, one half-open range of strings too.

The longitude index is ``floor((lng + 180) / 360 * 2**30)`` **of the real number**, not of its rounded double:
the borders of cells are exact doubles, so the rounded quotient is corrected by comparing with them. That makes the
cells equal to what bisection gives (pygeohash, the MongoDB expression, Spark), to the last bit.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pygeohash
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import CoordinateError, UsageError

Cells: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]
Strings: TypeAlias = NDArray[np.str_]

BITS = 60
LENGTH = 12
ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
END_OF_STRINGS = "{"  # sorts after every geohash: the open end of the last cell's range

_AXIS_BITS = 30
_LNG_STEP = 360.0 / 2**_AXIS_BITS  # 45 * 2**-27: exact, and so is every multiple of it up to 2**30
_LAT_STEP = 180.0 / 2**_AXIS_BITS
_LAST = 2**_AXIS_BITS - 1
_CHUNK = 1 << 13  # temporaries of 64 kB stay in the processor's cache


def _codes_of_pairs() -> NDArray[np.uint64]:
    """Two characters for each of 1,024 ten-bit groups, as one word: two UCS-4 code units in memory order."""
    codes = np.array([ord(c) for c in ALPHABET], dtype=np.uint32)
    pairs = np.empty((32, 32, 2), dtype=np.uint32)
    pairs[..., 0] = codes[:, None]
    pairs[..., 1] = codes[None, :]
    return pairs.reshape(1024, 2).copy().view(np.uint64).ravel()


def _values_of_codes() -> NDArray[np.int8]:
    values = np.full(128, -1, dtype=np.int8)
    for value, character in enumerate(ALPHABET):
        values[ord(character)] = value
    return values


def _values_of_pairs() -> NDArray[np.int16]:
    """For each two characters, as 16 bits from memory, their ten bits of a cell; -1 if one is no character of ours."""
    pairs = np.full(1 << 16, -1, dtype=np.int16)
    codes = np.array([ord(c) for c in ALPHABET])
    pairs[codes[:, None] | codes[None, :] << 8] = np.arange(1024, dtype=np.int16).reshape(32, 32)
    return pairs


def _spread_table() -> NDArray[np.uint32]:
    """Each 15-bit number with a zero put before every bit: two look-ups interleave 30 bits."""
    numbers = np.arange(1 << 15, dtype=np.uint32)
    spread = np.zeros_like(numbers)
    for bit in range(15):
        spread |= ((numbers >> np.uint32(bit)) & np.uint32(1)) << np.uint32(2 * bit)
    return spread


_PAIR_CODES = _codes_of_pairs()
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_FEW = 64  # fewer are sooner done one by one
_VALUES = _values_of_codes()
_VALUES_OF_PAIRS = _values_of_pairs()
_PAIR_SHIFTS = np.arange(BITS - 10, -1, -10)
_SPREAD = _spread_table()


# -- points -----------------------------------------------------------------------------------------------


def points_to_cells(lng: ArrayLike, lat: ArrayLike, bits: int = BITS) -> Cells:
    """The cells of points; a CoordinateError names the first value that is no place, and its position."""
    cells, valid = points_to_cells_masked(lng, lat, bits)
    if not valid.all():
        raise _coordinate_error(np.asarray(lng, float).ravel(), np.asarray(lat, float).ravel(), valid.ravel())
    return cells


def points_to_cells_masked(
    lng: ArrayLike, lat: ArrayLike, bits: int = BITS
) -> tuple[Cells, NDArray[np.bool_]]:
    """The cells of points and which of them are places; the cells of the others are 0 and mean nothing."""
    _check_bits(bits)
    lngs, lats = np.asarray(lng, dtype=np.float64), np.asarray(lat, dtype=np.float64)
    if lngs.shape != lats.shape:
        raise UsageError(
            f"{lngs.size} longitudes but {lats.size} latitudes; give one of each for every point"
        )
    # NaN compares false with everything, so it is invalid without being asked for.
    valid = (lngs >= -180.0) & (lngs <= 180.0) & (lats >= -90.0) & (lats <= 90.0)
    if not valid.all():
        lngs, lats = np.where(valid, lngs, -180.0), np.where(valid, lats, -90.0)
    cells = np.empty(lngs.shape, dtype=np.uint64)
    flat_lng, flat_lat, flat = lngs.reshape(-1), lats.reshape(-1), cells.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        x = _axis_index(flat_lng[part], -180.0, _LNG_STEP)
        y = _axis_index(flat_lat[part], -90.0, _LAT_STEP)
        flat[part] = _interleave(x, y)
    if bits < BITS:
        cells >>= np.uint64(BITS - bits)
    return cells, valid


def _axis_index(values: Floats, origin: float, step: float) -> NDArray[np.uint32]:
    """The index of each value's interval ``[origin + k*step, origin + (k+1)*step)``; the last one is closed."""
    index: Floats = np.floor((values - origin) * (1.0 / step))
    border = index * step
    border += origin
    index -= values < border  # the sum above was rounded up across a border
    border += step
    index += values >= border  # or down
    np.minimum(index, _LAST, out=index)
    return index.astype(np.uint32)


def _coordinate_error(lng: Floats, lat: Floats, valid: NDArray[np.bool_]) -> CoordinateError:
    position = int(np.flatnonzero(~valid)[0])
    x, y = float(lng[position]), float(lat[position])
    name, value, limit = ("latitude", y, 90) if -180.0 <= x <= 180.0 else ("longitude", x, 180)
    return CoordinateError(
        f"{name} {value} at position {position} is no place on Earth; it must be between -{limit} and {limit}"
    )


def point_to_geohash(lng: float, lat: float, length: int = LENGTH) -> str:
    """The geohash of one point as a string of 1 to 12 characters; the scalar twin of `points_to_strings`."""
    _check_length(length)
    if not (-180.0 <= lng <= 180.0 and -90.0 <= lat <= 90.0):
        raise _coordinate_error(np.array([lng], float), np.array([lat], float), np.array([False]))
    return str(pygeohash.encode(lat, lng, length))


def points_to_strings(lng: ArrayLike, lat: ArrayLike, length: int = LENGTH) -> Strings:
    """The geohashes of points as strings."""
    return cells_to_strings(points_to_cells(lng, lat), length=length)


def cells_to_points(cells: ArrayLike, bits: int = BITS) -> tuple[Floats, Floats]:
    """The centres of cells: longitudes and latitudes."""
    west, south, east, north = cells_to_bounds(cells, bits)
    return (west + east) / 2, (south + north) / 2


# -- cells ------------------------------------------------------------------------------------------------


def cells_to_bounds(cells: ArrayLike, bits: int = BITS) -> tuple[Floats, Floats, Floats, Floats]:
    """West, south, east and north of cells, in degrees, exact."""
    _check_bits(bits)
    x, y = cells_to_indices(cells, bits)
    width, height = 360.0 / 2 ** ((bits + 1) // 2), 180.0 / 2 ** (bits // 2)
    west, south = x * width - 180.0, y * height - 90.0
    return west, south, west + width, south + height


def cells_to_indices(cells: ArrayLike, bits: int = BITS) -> tuple[Cells, Cells]:
    """Column (from the west) and row (from the south) of cells in the grid of their precision."""
    array = np.asarray(cells, dtype=np.uint64)
    last, other = _compact(np.stack([array, array >> np.uint64(1)]))
    # The last bit is the latitude's when the number of bits is even, the longitude's when it is odd.
    return (last, other) if bits % 2 else (other, last)


def indices_to_cells(x: ArrayLike, y: ArrayLike, bits: int = BITS) -> Cells:
    """Cells of a precision from their columns and rows."""
    columns, rows = np.asarray(x, dtype=np.uint32), np.asarray(y, dtype=np.uint32)
    return _interleave(columns, rows) if bits % 2 == 0 else _interleave(rows, columns)


def _interleave(high: NDArray[np.uint32], low: NDArray[np.uint32]) -> Cells:
    """Bits of both, alternating; the last bit is `low`'s."""
    half = np.uint32(15)
    mask = np.uint32(0x7FFF)
    top = (_SPREAD[high >> half] << np.uint32(1)) | _SPREAD[low >> half]
    bottom = (_SPREAD[high & mask] << np.uint32(1)) | _SPREAD[low & mask]
    cells: Cells = (top.astype(np.uint64) << np.uint64(30)) | bottom
    return cells


def _compact(values: Cells) -> Cells:
    """Every second bit, beginning with the last."""
    out = values & np.uint64(0x5555555555555555)
    for shift, mask in (
        (1, 0x3333333333333333),
        (2, 0x0F0F0F0F0F0F0F0F),
        (4, 0x00FF00FF00FF00FF),
        (8, 0x0000FFFF0000FFFF),
        (16, 0x00000000FFFFFFFF),
    ):
        out = (out | (out >> np.uint64(shift))) & np.uint64(mask)
    return out


def cell_parents(cells: ArrayLike, bits: int, parent_bits: int) -> Cells:
    """The cells of a coarser precision that contain these."""
    _check_bits(bits)
    if not 0 <= parent_bits <= bits:
        raise UsageError(f"parent_bits is {parent_bits}; a parent of {bits} bits has between 0 and {bits}")
    return np.asarray(cells, dtype=np.uint64) >> np.uint64(bits - parent_bits)


def cell_children(cell: int, bits: int, child_bits: int | None = None) -> Cells:
    """All cells of a finer precision (one bit more unless told) inside one cell, in order."""
    finer = bits + 1 if child_bits is None else child_bits
    _check_bits(bits)
    _check_bits(finer)
    if not 0 <= finer - bits <= 24:
        raise UsageError(f"child_bits is {finer}; at most 24 bits more than the cell's {bits} (16 M cells)")
    return (np.uint64(cell) << np.uint64(finer - bits)) + np.arange(1 << (finer - bits), dtype=np.uint64)


def cell_neighbours(cells: ArrayLike, bits: int) -> Cells:
    """The eight neighbours of each cell, shape (..., 8): N, NE, E, SE, S, SW, W, NW.

    East and west wrap around the antimeridian. Beyond a pole lies the cell of the same row on the opposite
    meridian. In grids of one or two columns or rows a neighbour may be the cell itself, or come twice.
    """
    _check_bits(bits)
    x, y = (a.astype(np.int64)[..., None] for a in cells_to_indices(cells, bits))
    columns, rows = 1 << ((bits + 1) // 2), 1 << (bits // 2)
    dx = np.array([0, 1, 1, 1, 0, -1, -1, -1])
    dy = np.array([1, 1, 0, -1, -1, -1, 0, 1])
    ny = y + dy
    beyond = (ny < 0) | (ny >= rows)
    nx = (x + dx + np.where(beyond, columns // 2, 0)) % columns
    return indices_to_cells(nx, np.clip(ny, 0, rows - 1), bits)


def cells_to_ranges(cells: ArrayLike, bits: int) -> tuple[Cells, Cells]:
    """The half-open ranges ``[lo, hi)`` of 60-bit cells that cells of a precision stand for."""
    _check_bits(bits)
    shift = np.uint64(BITS - bits)
    array = np.asarray(cells, dtype=np.uint64)
    return array << shift, (array + np.uint64(1)) << shift


def merge_ranges(lo: ArrayLike, hi: ArrayLike) -> tuple[Cells, Cells]:
    """Half-open ranges in any order, sorted, with those that touch or overlap made one."""
    lows, highs = np.asarray(lo, dtype=np.uint64), np.asarray(hi, dtype=np.uint64)
    kept = lows < highs
    order = np.argsort(lows[kept], kind="stable")
    lows, highs = lows[kept][order], highs[kept][order]
    if not lows.size:
        return lows, highs
    reach = np.maximum.accumulate(highs)
    first = np.concatenate(([True], lows[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return lows[first], reach[last]


# -- strings ----------------------------------------------------------------------------------------------


def cells_to_strings(cells: ArrayLike, length: int = LENGTH) -> Strings:
    """The geohashes of 60-bit cells, 1 to 12 characters each."""
    _check_length(length)
    array = np.asarray(cells, dtype=np.uint64)
    flat = array.reshape(-1)
    pairs = (length + 1) // 2
    words = np.empty((flat.size, pairs), dtype=np.uint64)
    mask = np.uint64(1023)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        for pair in range(pairs):
            group = (part >> np.uint64(50 - 10 * pair)) & mask
            # intp indices and mode="clip" spare numpy a bounds check and a copy
            words[start : start + _CHUNK, pair] = _PAIR_CODES.take(group.view(np.int64), mode="clip")
    text: Strings = words.view(f"<U{2 * pairs}").reshape(array.shape)
    return text if length % 2 == 0 else text.astype(f"<U{length}")


def strings_to_cells(strings: ArrayLike) -> Cells:
    """The 60-bit cells of 12-character geohashes (of shorter ones: their first 60-bit cell)."""
    known = _listed_to_cells(strings) if isinstance(strings, list) else None
    if known is not None:
        return known
    array = np.asarray(strings, dtype=np.str_)
    width = array.dtype.itemsize // 4
    if width > LENGTH:
        raise UsageError(f"a geohash of {width} characters is too long; at most {LENGTH}")
    cells = np.zeros(array.size, dtype=np.uint64)
    if not width:
        return cells.reshape(array.shape)
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32).reshape(-1, width)
    values = _VALUES[np.minimum(codes, 127)]
    padding = codes == 0
    if (bad := (values < 0) & ~padding).any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise UsageError(
            f"{chr(codes[row, column])!r} in {str(array.reshape(-1)[row])!r} at position {row} is no geohash "
            f"character; they are {ALPHABET}"
        )
    for column in range(width):
        cells |= np.maximum(values[:, column], 0).astype(np.uint64) << np.uint64(BITS - 5 * (column + 1))
    return cells.reshape(array.shape)


def _listed_to_cells(strings: list[Any]) -> Cells | None:
    """The cells of a list of 12-character geohashes, two characters at a time; None if it is anything else."""
    try:
        codes = np.frombuffer("".join(strings).encode("ascii"), dtype="<u2").reshape(-1, LENGTH // 2)
    except (TypeError, ValueError):  # no strings, other characters, or another number of them
        return None
    values = _VALUES_OF_PAIRS[codes]
    if not len(values) or values.min() < 0 or set(map(len, strings)) != {LENGTH}:
        return None
    cells: Cells = (values.astype(np.int64) << _PAIR_SHIFTS).sum(axis=1).view(np.uint64)
    return cells


def spread(value: int) -> int:
    """A column or row of up to 30 bits with a zero before each: half of the bits of its cell."""
    return _SPREAD_ONE[value & 1023] | _SPREAD_ONE[value >> 10 & 1023] << 20 | _SPREAD_ONE[value >> 20] << 40


_SPREAD_ONE = [sum((number >> bit & 1) << 2 * bit for bit in range(10)) for number in range(1024)]


def bound_to_string(cell: int) -> str:
    """The shortest string that sorts among 12-character geohashes as the bound `cell` does.

    Trailing zeros are dropped: no 12-character geohash lies between ``dr5`` and ``dr5000000000``. The end of the
    world, ``2**60``, becomes a string after all geohashes.
    """
    if cell >= 1 << BITS:
        return END_OF_STRINGS
    pairs = _PAIRS
    text = (
        pairs[cell >> 50] + pairs[cell >> 40 & 1023] + pairs[cell >> 30 & 1023]
        + pairs[cell >> 20 & 1023] + pairs[cell >> 10 & 1023] + pairs[cell & 1023]
    )  # fmt: skip
    return text.rstrip("0")


def bounds_to_strings(cells: ArrayLike) -> list[str]:
    """The strings of many bounds, as `bound_to_string` makes them."""
    bounds = np.asarray(cells, dtype=np.uint64)
    if bounds.size < _FEW:
        return [bound_to_string(cell) for cell in bounds.tolist()]
    end = np.uint64(1 << BITS)
    strings = cells_to_strings(np.minimum(bounds, end - np.uint64(1))).tolist()
    ends = (bounds >= end).tolist()
    return [END_OF_STRINGS if last else text.rstrip("0") for text, last in zip(strings, ends, strict=True)]


def range_to_strings(lo: int, hi: int) -> tuple[str, str]:
    """A half-open range of 60-bit cells as a half-open range of strings: ``lo <= gh < hi``."""
    return bound_to_string(lo), bound_to_string(hi)


def cell_to_string_range(cell: int, bits: int) -> tuple[str, str]:
    """The half-open range of ``gh`` strings that one cell of a precision stands for."""
    _check_bits(bits)
    return range_to_strings(cell << (BITS - bits), (cell + 1) << (BITS - bits))


def _check_bits(bits: int) -> None:
    if not 0 <= bits <= BITS:
        raise UsageError(f"a precision of {bits} bits does not exist; it must be between 0 and {BITS}")


def _check_length(length: int) -> None:
    if not 1 <= length <= LENGTH:
        raise UsageError(f"a geohash of {length} characters does not exist; between 1 and {LENGTH}")
