"""What a planner sees: some objects, the subscriptions, and what can be counted of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.grid_cells import Grid
from spatialnosql.subscriptions.partitioning.load import Costs
from spatialnosql.subscriptions.partitioning.placing import filing_terms
from spatialnosql.subscriptions.partitioning.routes import take_objects
from spatialnosql.subscriptions.table import Table

SIDE = 128
"""Plans by space have so many columns and rows of cells."""
MOST_OBJECTS, MOST_SUBSCRIPTIONS = 200_000, 1_000_000


@dataclass(frozen=True, eq=False)
class Sample:
    """Objects as they come, and the subscriptions they are to be matched with."""

    objects: Objects
    table: Table
    costs: Costs = field(default_factory=Costs)
    side: int = SIDE
    scale: float = 1.0
    """How many subscriptions there are for each of the table."""

    @classmethod
    def of(
        cls,
        objects: Objects,
        table: Table,
        costs: Costs | None = None,
        side: int = SIDE,
        most_objects: int = MOST_OBJECTS,
        most_subscriptions: int = MOST_SUBSCRIPTIONS,
    ) -> Sample:
        """A sample of at most so many; more hardly change a plan, and S3-TM found the same (section 6.1)."""
        if side < 1 or most_objects < 1 or most_subscriptions < 1:
            raise UsageError(
                f"a sample of {most_objects} objects and {most_subscriptions} subscriptions on {side} x {side} cells; "
                "all must be above zero"
            )
        scale = max(len(table) / most_subscriptions, 1.0)
        return cls(
            take_objects(objects, _every(len(objects), most_objects)),
            table.take(_every(len(table), most_subscriptions)),
            costs or Costs(),
            side,
            scale,
        )

    @cached_property
    def frequencies(self) -> NDArray[np.int64]:
        """How many objects have each term of the vocabulary."""
        terms = self.objects.terms[: self.objects.offsets[-1]]
        size = len(self.table.vocabulary)
        return np.bincount(terms[(terms >= 0) & (terms < size)], minlength=size).astype(np.int64)

    @cached_property
    def filed(self) -> NDArray[np.int32]:
        """The rarest term of every clause: under which it is filed."""
        return filing_terms(self.table, self.frequencies)

    @cached_property
    def clause_rows(self) -> NDArray[np.int64]:
        """The subscription of every clause."""
        return np.repeat(np.arange(len(self.table)), np.diff(self.table.clauses))

    @cached_property
    def grid(self) -> Grid:
        """The cells over the objects."""
        return Grid.around(self.objects, self.side)

    @cached_property
    def cells(self) -> NDArray[np.int32]:
        """The cell of every object; -1 for one that has no place."""
        return self.grid.cells_of(self.objects)

    @cached_property
    def spans(self) -> NDArray[np.int64]:
        """First and last column, first and last row of every subscription; all columns across the antimeridian."""
        spans = self.grid.spans_of(self.table.bounds).astype(np.int64)
        across = spans[:, 5] >= 0
        spans[across, 0], spans[across, 1] = 0, self.grid.columns - 1
        return spans[:, :4]

    @cached_property
    def objects_of_cell(self) -> NDArray[np.int64]:
        """How many objects each cell has."""
        return np.bincount(self.cells[self.cells >= 0], minlength=self.grid.cells).astype(np.int64)

    @cached_property
    def subscriptions_of_cell(self) -> NDArray[np.int64]:
        """How many subscriptions touch each cell."""
        steps = np.zeros((self.grid.rows + 1, self.grid.columns + 1), dtype=np.int64)
        first_column, last_column, first_row, last_row = self.spans.T
        for rows, columns, sign in (
            (first_row, first_column, 1),
            (first_row, last_column + 1, -1),
            (last_row + 1, first_column, -1),
            (last_row + 1, last_column + 1, 1),
        ):
            np.add.at(steps, (rows, columns), sign)
        counts: NDArray[np.int64] = steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
        return counts.reshape(-1)

    @cached_property
    def object_of_term(self) -> NDArray[np.int64]:
        """The object of every term of the objects."""
        return np.repeat(np.arange(len(self.objects)), np.diff(self.objects.offsets))


def _every(count: int, most: int) -> NDArray[np.int64]:
    """At most so many rows, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) if count else np.arange(0)
