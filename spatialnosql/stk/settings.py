"""What a collection keeps for spatio-temporal keyword queries, as a value; and the arithmetic of cubes.

Time is cut into bins, the curve into cells. A *data cube* is one bin of one cell: its number, ``bin << cell_bits |
cell``, stands in every sealed document. A *filter cube* is ``2 ** cube_bin_bits`` bins of ``4 ** k`` cells together: so
many data cubes share one filter, in which a data cube is known by its *position*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS, Cells
from spatialnosql.subscriptions.text import TextRules

Ints = NDArray[np.int64]

STK_FIELD = "stk"
"""The field that a sealed document has: ``{c: number of its data cube, s: its seal}``."""
CUBE_FIELD, SEAL_FIELD = f"{STK_FIELD}.c", f"{STK_FIELD}.s"
INDEX_NAME = "stk_cube"
MOST_POSITION_BITS = 12
_MOST_BIN = (
    1 << 26
)  # a bin number of more bits would not fit beside the cell; with bins of an hour, year 9,600
_CELL_BITS = range(10, 37)


@dataclass(frozen=True)
class StkSettings:
    """The fields that are queried, and how fine bins, cells and filters are."""

    time: str = "at"
    words: str = "words"
    text: str | None = None  # the field that the words are read from, if they are
    rules: TextRules = field(default_factory=TextRules)
    bin_s: int = 3600
    cell_bits: int = 28
    cube_bin_bits: int = 2
    cube_cell_bits: int = 4

    def __post_init__(self) -> None:
        for name in ("time", "words", "text"):
            value = getattr(self, name)
            if value is not None and (not value or "." in value or value.startswith("$")):
                raise UsageError(
                    f"{name} is {value!r}; it must be the name of a field at the top, without a dot"
                )
        if len({self.time, self.words, self.text}) < 3:
            raise UsageError(f"time, words and text must be three fields, not {self.time!r} twice")
        if self.bin_s < 1:
            raise UsageError(f"bin_s is {self.bin_s}; a time bin has 1 second or more")
        if self.cell_bits not in _CELL_BITS:
            raise UsageError(f"cell_bits is {self.cell_bits}; it must be {_CELL_BITS[0]} to {_CELL_BITS[-1]}")
        if min(self.cube_bin_bits, self.cube_cell_bits) < 0 or self.position_bits > MOST_POSITION_BITS:
            raise UsageError(
                f"a filter cube of {self.cube_bin_bits} + {self.cube_cell_bits} bits; it has 0 to {MOST_POSITION_BITS}"
            )

    @property
    def bin_ms(self) -> int:
        """The length of a time bin in milliseconds."""
        return self.bin_s * 1000

    @property
    def position_bits(self) -> int:
        """How many bits tell the data cubes of a filter cube apart."""
        return self.cube_bin_bits + self.cube_cell_bits

    def bins_of(self, at_ms: Ints) -> Ints:
        """The time bins of moments, in milliseconds since 1970."""
        return np.floor_divide(at_ms, self.bin_ms)

    def has_bins(self, bins: Ints) -> NDArray[np.bool_]:
        """Which bins can be numbered: a moment millions of years away cannot."""
        return np.abs(bins) < _MOST_BIN

    def cells_of(self, cells: Cells) -> Ints:
        """The data cells of 60-bit cells."""
        return (cells >> np.uint64(BITS - self.cell_bits)).astype(np.int64)

    def data_cubes(self, bins: Ints, cells: Ints) -> Ints:
        """The numbers of data cubes."""
        return (bins << self.cell_bits) | cells

    def filter_cubes(self, bins: Ints, cells: Ints) -> Ints:
        """The numbers of the filter cubes that data cubes belong to."""
        return ((bins >> self.cube_bin_bits) << (self.cell_bits - self.cube_cell_bits)) | (
            cells >> self.cube_cell_bits
        )

    def positions(self, bins: Ints, cells: Ints) -> Ints:
        """Where data cubes are in their filter cubes."""
        low_bins, low_cells = (1 << self.cube_bin_bits) - 1, (1 << self.cube_cell_bits) - 1
        return ((bins & low_bins) << self.cube_cell_bits) | (cells & low_cells)

    def bins_of_cubes(self, filter_cubes: Ints) -> tuple[int, int]:
        """The first and the last time bin of ascending filter cubes; the last below the first if there are none."""
        if not len(filter_cubes):
            return 0, -1
        shift = self.cell_bits - self.cube_cell_bits
        first, last = int(filter_cubes[0]) >> shift, int(filter_cubes[-1]) >> shift
        return first << self.cube_bin_bits, ((last + 1) << self.cube_bin_bits) - 1

    def to_document(self) -> dict[str, Any]:
        """The settings as they are stored."""
        return {
            "time": self.time,
            "words": self.words,
            "text": self.text,
            "rules": self.rules.to_document(),
            "bin_s": self.bin_s,
            "cell_bits": self.cell_bits,
            "cube_bin_bits": self.cube_bin_bits,
            "cube_cell_bits": self.cube_cell_bits,
        }

    @property
    def digest(self) -> str:
        """Equal for equal settings: by it a client knows that filters are of the settings it has."""
        return hashlib.blake2b(repr(sorted(self.to_document().items())).encode(), digest_size=8).hexdigest()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StkSettings:
        """Settings as they were stored."""
        given = {**document, "rules": TextRules.from_document(document["rules"])}
        return cls(**{name: given[name] for name in cls.__dataclass_fields__})
