"""A grid of now: the servers group what lies inside by the first characters of ``gh``, the border comes as keys.

Interior ranges are read as they are, never joined over a gap: so every key in them is inside and may be grouped by as
few characters as the grid needs. At the border the client settles keys, and the few that it cannot settle are decided
by their documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spatialnosql.cover import NOTHING, Cover
from spatialnosql.expression import coordinate_expressions
from spatialnosql.geohash import BITS, LENGTH, Cells, cells_to_strings, strings_to_cells
from spatialnosql.joins.grid_pieces import Floats, Pieces
from spatialnosql.joins.grid_region import Area
from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.range_reading import Groups, Request, grouped, read_ranges
from spatialnosql.joins.undecided import ASKED_AT_ONCE, GH, decided, groups_at
from spatialnosql.settle import IN, UNSURE, settle_cells
from spatialnosql.steps import Steps, listed


class Reader:
    """One call of `grid`: reads what is asked for into pieces."""

    def __init__(
        self, points: JoinPoints, area: Area, pieces: Pieces, options: Mapping[str, Any], *, exact: bool
    ) -> None:
        self._points, self._area, self._pieces, self._options = points, area, pieces, options
        info = points.info
        self._sums: dict[str, Any] = {}  # of coordinates, for exact centres
        if exact:
            lng, lat = coordinate_expressions(info.location, info.form)
            self._sums = {"x": lng, "y": lat}
        sums = {name: {"$sum": value} for name, value in self._sums.items()}
        self._accumulators = sums | ({} if pieces.weight is None else pieces.weight.accumulators)
        self._undecided: list[Cells] = []
        self.keys = 0  # at the border
        self.documents = 0  # that decided what keys did not

    def read(self, cover: Cover, characters: int, *, inside: bool = True) -> Steps[None]:
        """All of a cover: what is inside by so many characters, and its border. Without `inside`, only the latter."""
        requests = [Request(cover.boundary, LENGTH, border=True)]
        if inside:
            requests.insert(0, Request(cover.interior, characters, most_groups=self._most_groups(characters)))
        histogram = yield from self._points.trusted_histogram()
        yield from read_ranges(
            self._points, requests, histogram, self._accumulators, self._options, self._add
        )
        yield from self._decide()

    def ask(self, characters: int) -> Steps[int]:
        """A region that only the server knows: its own condition finds the documents, which it groups.

        Nothing stands beside that condition, lest the servers find another plan for it, which might find others.
        Returns how many of the documents have no geohash.
        """
        characters = max(characters, 1)  # so that no group but theirs is without a name
        condition = {self._points.info.location: self._area.within}
        stages = grouped(self._points.info.gh, characters, self._accumulators, self._most_groups(characters))
        pipeline = [{"$match": self._points.matching(condition)}, *stages]
        options = {"allowDiskUse": True, **self._options}
        answer = yield from listed(self._points.collection.aggregate, pipeline, **options)
        placed = Groups.of([group for group in answer if group["_id"]])
        self._add(Request(NOTHING, characters), placed)
        return sum(int(group["n"]) for group in answer if not group["_id"])

    def unplaced(self) -> Steps[int]:
        """How many documents of the region have no geohash, because their location is no single point."""
        info = self._points.info
        if not info.unhashed:
            return 0
        somewhere: dict[str, Any] = {"$type": ["object", "array"]}
        where = somewhere if self._area.is_everywhere else self._area.within
        pipeline = [
            {"$match": self._points.matching({info.gh: None, info.location: where})},
            {"$group": {"_id": None, "n": {"$sum": 1}}},
        ]
        answer = yield from listed(self._points.collection.aggregate, pipeline, **self._options)
        return sum(int(group["n"]) for group in answer)

    # -- answers ------------------------------------------------------------------------------------------

    def _most_groups(self, characters: int) -> int:
        """So many groups show that they are too many: a cell of the grid has no more than its share of them.

        Two more are one too many, even if one is nowhere.
        """
        return self._pieces.most_cells * (1 << (5 * characters - self._pieces.bits)) + 2

    def _add(self, request: Request, groups: Groups) -> None:
        if request.border:
            self.keys += int(groups.counts.sum())
            assert self._area.region is not None  # it has a border
            status = settle_cells(self._area.region, groups.cells)
            self._undecided.append(groups.cells[status == UNSURE])
            groups = groups.chosen(status == IN)
        self._put(groups, 5 * request.characters)

    def _put(self, groups: Groups, bits: int) -> None:
        sums = _sums_of(groups.rows) if self._sums else None
        own = self._pieces.add(groups.cells >> np.uint64(BITS - bits), bits, groups.counts, sums)
        if self._pieces.weight is not None:
            self._pieces.add_groups(own, groups.rows)

    def _decide(self) -> Steps[None]:
        """Add what has undecided geohashes and lies in the region."""
        cells = np.unique(np.concatenate(self._undecided)) if self._undecided else np.zeros(0, np.uint64)
        for start in range(0, cells.size, ASKED_AT_ONCE):
            hashes = cells_to_strings(cells[start : start + ASKED_AT_ONCE]).tolist()
            groups = yield from groups_at(self._points, hashes, self._accumulators, self._options)
            pairs = Pairs(np.arange(len(groups)), np.zeros(len(groups), dtype=np.intp))
            inside = yield from decided(self._points, groups, pairs, Polygons([self._area]), self._options)
            self.documents += sum(int(group["n"]) for group in groups)
            chosen = [groups[i] for i in np.flatnonzero(inside).tolist()]
            cells_of = strings_to_cells([group["_id"][GH] for group in chosen])
            counts = np.array([int(group["n"]) for group in chosen], dtype=np.int64)
            self._put(Groups(cells_of, counts, chosen), BITS)


def _sums_of(groups: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    lng, lat = (np.array([float(group[name]) for group in groups]) for name in ("x", "y"))
    return lng, lat
