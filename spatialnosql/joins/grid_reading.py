"""A grid of now: the servers group what lies inside by the first characters of ``gh``, the border comes as keys.

Interior ranges are read as they are, never joined over a gap: so every key in them is inside and may be grouped by as
few characters as the grid needs. At the border the client settles keys, and the few that it cannot settle are decided
by their documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pymongo.errors import OperationFailure

from spatialnosql.cover import Cover, Ranges
from spatialnosql.expression import coordinate_expressions
from spatialnosql.geohash import BITS, LENGTH, Cells, cells_to_strings, strings_to_cells
from spatialnosql.joins.grid_pieces import Floats, Pieces
from spatialnosql.joins.grid_region import Area
from spatialnosql.joins.overlay import Pairs
from spatialnosql.joins.passes import split
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.polygons import Polygons
from spatialnosql.joins.undecided import ASKED_AT_ONCE, GH, decided, groups_at
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.settle import IN, UNSURE, settle_cells
from spatialnosql.steps import Call, Steps, listed, together

_KEYS_AT_ONCE = 100_000  # that one command brings: 2.5 MB
_SIDE_BY_SIDE = 4  # commands
_ASKED_AT_ONCE = 1_000
_TOO_LARGE = (10334, 17419, 17420, 146)  # what a server says of documents over 16 MB or lists over 100 MB


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
        self._only_keys = pieces.weight is None and not exact
        self._undecided: list[Cells] = []
        self.keys = 0  # at the border
        self.documents = 0  # that decided what keys did not

    def read(self, cover: Cover, characters: int, *, inside: bool = True) -> Steps[None]:
        """All of a cover: what is inside by so many characters, and its border. Without `inside`, only the latter."""
        jobs = [(part, characters, False) for part in self._parts(cover.interior, characters) if inside]
        jobs += [(part, LENGTH, True) for part in self._parts(cover.boundary, LENGTH)]
        in_turn = self._options.get("session") is not None
        for start in range(0, len(jobs), _SIDE_BY_SIDE):
            some = jobs[start : start + _SIDE_BY_SIDE]
            try:
                answers = yield from together([self._read(*job) for job in some], in_turn=in_turn)
            except OperationFailure as error:
                if error.code not in _TOO_LARGE:
                    raise
                calls = [self._read(*job, whole=False) for job in some]
                answers = yield from together(calls, in_turn=in_turn)
            for (_, length, border), answer in zip(some, answers, strict=True):
                self._add(answer, length, border=border)
        yield from self._decide()

    def ask(self, characters: int) -> Steps[int]:
        """A region that only the server knows: its own condition finds the documents, which it groups.

        Nothing stands beside that condition, lest the servers find another plan for it, which might find others.
        Returns how many of the documents have no geohash.
        """
        characters = max(characters, 1)  # so that no group but theirs is without a name
        condition = {self._points.info.location: self._area.within}
        pipeline = [{"$match": self._points.matching(condition)}, *self._grouped(characters, limited=True)]
        options = {"allowDiskUse": True, **self._options}
        answer = yield from listed(self._points.collection.aggregate, pipeline, **options)
        self._add([group for group in answer if group["_id"]], characters, border=False)
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

    # -- commands -----------------------------------------------------------------------------------------

    def _parts(self, ranges: Ranges, characters: int) -> list[Ranges]:
        most = _KEYS_AT_ONCE if characters == LENGTH else np.inf
        return split(ranges, self._points.info.histogram, most)

    def _read(self, ranges: Ranges, characters: int, border: bool, *, whole: bool = True) -> Call:
        """The command for some ranges; with `whole`, keys come in one document if only they are wanted."""
        gh = self._points.info.gh
        match = {"$match": self._points.matching(any_of(conditions(ranges, gh), gh))}
        if whole and characters == LENGTH and self._only_keys:
            stages: list[dict[str, Any]] = [{"$group": {"_id": None, "keys": {"$push": f"${gh}"}}}]
        else:
            stages = self._grouped(characters, limited=not border)
        given = {"allowDiskUse": True, **self._points.hint, **self._options}
        return Call(self._points.collection.aggregate, ([match, *stages],), given, listed=True)

    def _grouped(self, characters: int, *, limited: bool) -> list[dict[str, Any]]:
        """Documents by their first characters; with `limited`, no more groups than show that they are too many.

        A cell of the grid has at most so many of them. Two more are one too many, even if one is nowhere.
        """
        gh, weight = self._points.info.gh, self._pieces.weight
        place = f"${gh}" if characters == LENGTH else {"$substrBytes": [f"${gh}", 0, characters]}
        sums = {name: {"$sum": value} for name, value in self._sums.items()}
        more = {} if weight is None else weight.accumulators
        stages: list[dict[str, Any]] = [{"$group": {"_id": place, "n": {"$sum": 1}, **sums, **more}}]
        in_a_cell = 1 << (5 * characters - self._pieces.bits)
        return [*stages, {"$limit": self._pieces.most_cells * in_a_cell + 2}] if limited else stages

    # -- answers ------------------------------------------------------------------------------------------

    def _add(self, answer: list[Any], characters: int, *, border: bool) -> None:
        if answer and "keys" in answer[0]:
            cells, counts = np.unique(strings_to_cells(answer[0]["keys"]), return_counts=True)
            groups: list[Any] = []
        else:
            cells = strings_to_cells([group["_id"] for group in answer])
            counts = np.array([int(group["n"]) for group in answer], dtype=np.int64)
            groups = answer
        if border:
            self.keys += int(counts.sum())
            assert self._area.region is not None  # it has a border
            status = settle_cells(self._area.region, cells)
            self._undecided.append(cells[status == UNSURE])
            inside = status == IN
            cells, counts = cells[inside], counts[inside]
            groups = [groups[i] for i in np.flatnonzero(inside).tolist()] if groups else groups
        sums = _sums_of(groups, "x", "y") if self._sums else None
        bits = 5 * characters
        own = self._pieces.add(cells >> np.uint64(BITS - bits), bits, counts, sums)
        if self._pieces.weight is not None:
            self._pieces.add_groups(own, groups)

    def _decide(self) -> Steps[None]:
        """Add what has undecided geohashes and lies in the region."""
        cells = np.unique(np.concatenate(self._undecided)) if self._undecided else np.zeros(0, np.uint64)
        weight = self._pieces.weight
        sums = {name: {"$sum": value} for name, value in self._sums.items()}
        sums |= {} if weight is None else weight.accumulators
        for start in range(0, cells.size, ASKED_AT_ONCE):
            hashes = cells_to_strings(cells[start : start + ASKED_AT_ONCE]).tolist()
            groups = yield from groups_at(self._points, hashes, sums, self._options)
            pairs = Pairs(np.arange(len(groups)), np.zeros(len(groups), dtype=np.intp))
            inside = yield from decided(self._points, groups, pairs, Polygons([self._area]), self._options)
            self.documents += sum(int(group["n"]) for group in groups)
            self._add_groups([groups[i] for i in np.flatnonzero(inside).tolist()])

    def _add_groups(self, groups: list[Any]) -> None:
        if not groups:
            return
        cells = strings_to_cells([group["_id"][GH] for group in groups])
        counts = np.array([int(group["n"]) for group in groups], dtype=np.int64)
        sums = _sums_of(groups, "x", "y") if self._sums else None
        own = self._pieces.add(cells, BITS, counts, sums)
        if self._pieces.weight is not None:
            self._pieces.add_groups(own, groups)


def _sums_of(documents: list[Any], x: str, y: str) -> tuple[Floats, Floats]:
    lng, lat = (np.array([float(document[name]) for document in documents]) for name in (x, y))
    return lng, lat
