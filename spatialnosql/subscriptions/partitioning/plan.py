"""A partition plan: which partition holds which subscriptions, and where an object must go, as a plain value.

It is PS2Stream's kd-t-tree (section IV.B, figure 3) flattened as its grid-t is (section IV.C, figure 4): a grid of
cells, each cell in one leaf; a leaf belongs to one partition as a whole, or has a map from terms to partitions. A plan
by text has one cell and one leaf, a plan by space has no map, and a hybrid has both. Every planner makes one of these,
so that there is one way to place, one dispatcher and one proof that nothing is missed:

- a clause is *filed* under one of its terms (see `Filing`); an object that meets it has that term;
- the subscription is held by the partitions of that term in every leaf that its box touches; an object inside is in
  one of those leaves, and is sent to the partitions of all its filed terms there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.partitioning.grid_cells import Grid

FORMAT = 1
Filing = Literal["rarest", "any", "lasp"]
"""Under which of its terms a clause is filed: its rarest (PS2Stream), any (S3-TM's default) or the one of LASP."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Leaves, their partitions and maps of terms; a term unknown to the plan is hashed among the map's partitions."""

    name: str
    """Of the planner that made it."""
    partitions: int
    grid: Grid
    leaf_of_cell: NDArray[np.int32]
    leaf_home: NDArray[np.int32]
    """The partition of each leaf that belongs to one as a whole; -1 for one that is parted by text."""
    leaf_map: NDArray[np.int32]
    """The row of `homes` of each leaf that is parted by text; -1 for the others."""
    homes: NDArray[np.int32]
    """For each map and term known to the plan its partition, or ``~row`` of `versions` for a hot word."""
    new_offsets: NDArray[np.int64]
    new_homes: NDArray[np.int32]
    """The partitions among which a map's new terms are hashed: ``new_homes[new_offsets[map]:new_offsets[map + 1]]``."""
    version_offsets: NDArray[np.int64]
    versions: NDArray[np.int32]
    """The partitions of the versions of hot words (S3-TM, section 5.1)."""
    frequencies: NDArray[np.int64]
    """How many objects had each term when the plan was made: the rarest term of a clause must stay the same."""
    filing: Filing = "rarest"

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise UsageError(f"a plan of {self.partitions} partitions; there must be one at least")
        if self.filing == "lasp" and self.leaf_home.size != 1:
            raise UsageError(
                f"LASP chooses between the partitions of one map, but the plan {self.name!r} has "
                f"{self.leaf_home.size} leaves; use the rarest term"
            )
        if self.versions.size and int(self.versions.min()) < 0:
            raise UsageError(f"a version of a hot word has no partition in the plan {self.name!r}")
        for homes in (self.leaf_home, self.new_homes, self.versions, self.homes):
            if homes.size and int(homes.max()) >= self.partitions:
                raise UsageError(
                    f"the plan {self.name!r} names partition {int(homes.max())} of {self.partitions}; they count from 0"
                )

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return int(self.leaf_home.size)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def save(self, file: str | Path) -> None:
        """Write the plan as one file of plain arrays."""
        meta = {
            "format": FORMAT,
            "name": self.name,
            "partitions": self.partitions,
            "filing": self.filing,
            "grid": self.grid.to_document(),
        }
        with Path(file).open("wb") as stream:
            np.savez_compressed(stream, meta=np.array(json.dumps(meta)), **_arrays(self))

    @classmethod
    def open(cls, file: str | Path) -> Plan:
        """Read what `save` wrote."""
        with np.load(Path(file), allow_pickle=False) as stored:
            meta = json.loads(str(stored["meta"]))
            if meta["format"] != FORMAT:
                raise UsageError(f"the plan in {file} has format {meta['format']}; this reads {FORMAT}")
            arrays = {name: stored[name] for name in stored.files if name != "meta"}
        return cls(
            name=meta["name"],
            partitions=meta["partitions"],
            grid=Grid.from_document(meta["grid"]),
            filing=meta["filing"],
            **arrays,
        )


def text_plan(
    name: str,
    homes: NDArray[np.int32],
    partitions: int,
    frequencies: NDArray[np.int64],
    versions: list[NDArray[np.int32]] | None = None,
    filing: Filing = "rarest",
) -> Plan:
    """A plan by text only: one leaf with one map; `versions` are the partitions of hot words (home ``~row``)."""
    parts = versions or []
    return Plan(
        name,
        partitions,
        Grid.whole(),
        np.zeros(1, dtype=np.int32),
        np.full(1, -1, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        homes.astype(np.int32).reshape(1, -1),
        np.array([0, partitions], dtype=np.int64),
        np.arange(partitions, dtype=np.int32),
        np.cumsum([0] + [len(part) for part in parts], dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=np.int32), *parts]).astype(np.int32),
        frequencies,
        filing,
    )


def space_plan(
    name: str, grid: Grid, home_of_cell: NDArray[np.int32], partitions: int, frequencies: NDArray[np.int64]
) -> Plan:
    """A plan by space only: the cells of one partition make one leaf."""
    used, leaf_of_cell = np.unique(home_of_cell, return_inverse=True)
    return Plan(
        name,
        partitions,
        grid,
        leaf_of_cell.astype(np.int32).reshape(-1),
        used.astype(np.int32),
        np.full(used.size, -1, dtype=np.int32),
        np.zeros((0, frequencies.size), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        frequencies,
    )


def _arrays(plan: Plan) -> dict[str, Any]:
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
