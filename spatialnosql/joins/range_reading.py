"""Ranges of ``gh`` read by the servers and added up there: by the first characters of their keys, or key by key.

Keys alone come in one document a command, which is as good as free for a server that reads the index anyway. Commands
are sent a few at a time, and each brings no more keys than the client has room for, as far as the statistics know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymongo.errors import OperationFailure

from spatialnosql.cover import Ranges
from spatialnosql.geohash import LENGTH, Cells, strings_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.joins.passes import split
from spatialnosql.joins.points import JoinPoints
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.steps import Call, Steps, together

KEYS_AT_ONCE = 100_000  # that one command brings: 2.5 MB
_SIDE_BY_SIDE = 4  # commands
_TOO_LARGE = (10334, 17419, 17420, 146)  # what a server says of documents over 16 MB or lists over 100 MB


@dataclass(frozen=True)
class Request:
    """Some ranges, and by how many characters their keys are grouped; all of them: key by key."""

    ranges: Ranges
    characters: int
    border: bool = False  # whether the client settles what comes
    most_groups: int | None = None

    def parts(self, histogram: Histogram | None) -> list[Request]:
        """The same in commands of a bearable size."""
        most = KEYS_AT_ONCE if self.characters == LENGTH else np.inf
        return [
            Request(part, self.characters, self.border, self.most_groups)
            for part in split(self.ranges, histogram, most)
        ]


@dataclass(frozen=True)
class Groups:
    """What has come: cells, how many documents each has, and the groups with their sums unless there are none."""

    cells: Cells
    counts: NDArray[np.int64]
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, answer: Sequence[Mapping[str, Any]]) -> Groups:
        """Of the answer to one command."""
        if answer and "keys" in answer[0]:
            cells, counts = np.unique(strings_to_cells(answer[0]["keys"]), return_counts=True)
            return cls(cells, counts.astype(np.int64), [])
        cells = strings_to_cells([group["_id"] for group in answer])
        return cls(cells, np.array([int(group["n"]) for group in answer], dtype=np.int64), answer)

    def chosen(self, which: NDArray[np.bool_]) -> Groups:
        """Some of them."""
        rows = [self.rows[i] for i in np.flatnonzero(which).tolist()] if self.rows else []
        return Groups(self.cells[which], self.counts[which], rows)


def read_ranges(
    points: JoinPoints,
    requests: Iterable[Request],
    histogram: Histogram | None,
    sums: Mapping[str, Any],
    options: Mapping[str, Any],
    add: Callable[[Request, Groups], None],
) -> Steps[None]:
    """Read all requests and `add` what comes, command by command; `sums` are accumulators beside the number.

    `histogram` tells how much a command would bring; without one, nobody knows.
    """
    parts = [part for request in requests for part in request.parts(histogram)]
    in_turn = options.get("session") is not None
    for start in range(0, len(parts), _SIDE_BY_SIDE):
        some = parts[start : start + _SIDE_BY_SIDE]
        try:
            calls = [command(points, part, sums, options) for part in some]
            answers = yield from together(calls, in_turn=in_turn)
        except OperationFailure as error:
            if error.code not in _TOO_LARGE:
                raise
            calls = [command(points, part, sums, options, whole=False) for part in some]
            answers = yield from together(calls, in_turn=in_turn)
        for part, answer in zip(some, answers, strict=True):
            add(part, Groups.of(answer))


def command(
    points: JoinPoints,
    request: Request,
    sums: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    whole: bool = True,
) -> Call:
    """The command for some ranges; with `whole` all keys come in one document, if nothing else is wanted."""
    gh = points.info.gh
    stages: list[dict[str, Any]] = [{"$match": points.matching(any_of(conditions(request.ranges, gh), gh))}]
    if whole and request.characters == LENGTH and not sums:
        stages.append({"$group": {"_id": None, "keys": {"$push": f"${gh}"}}})
    else:
        stages += grouped(gh, request.characters, sums, request.most_groups)
    given = {"allowDiskUse": True, **points.hint, **options}
    return Call(points.collection.aggregate, (stages,), given, listed=True)


def grouped(
    gh: str, characters: int, sums: Mapping[str, Any], most_groups: int | None
) -> list[dict[str, Any]]:
    """The stages that add up documents by their first characters; no more groups than are told."""
    place = f"${gh}" if characters == LENGTH else {"$substrBytes": [f"${gh}", 0, characters]}
    stages: list[dict[str, Any]] = [{"$group": {"_id": place, "n": {"$sum": 1}, **sums}}]
    return [*stages, {"$limit": most_groups}] if most_groups is not None else stages
