"""Many subscriptions as flat arrays: what the index is built from, and what its numbers stand for.

Row i is subscription number i. Its clauses are ``[clauses[i], clauses[i + 1])``, the terms of clause c are
``members[clause_terms[c]:clause_terms[c + 1]]``, as numbers of the vocabulary.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.areas import Area, Circle, Polygon, Rectangle
from spatialnosql.subscriptions.boxes import box_around
from spatialnosql.subscriptions.cells import FINEST
from spatialnosql.subscriptions.kernel import curve, place
from spatialnosql.subscriptions.model import NEVER_MS, Subscription
from spatialnosql.subscriptions.rasters import SIDE, raster_of
from spatialnosql.subscriptions.strings import Strings, ragged_rows
from spatialnosql.subscriptions.vocabulary import Vocabulary

RECTANGLE, CIRCLE, POLYGON = 0, 1, 2
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, eq=False)
class Table:
    """Subscriptions, one a row. Arrays are never changed; `joined` makes a longer table."""

    ids: Strings
    owners: Strings
    """The distinct owners."""
    owner: NDArray[np.int32]
    """Rows of `owners`."""
    kind: NDArray[np.uint8]
    """RECTANGLE, CIRCLE or POLYGON."""
    bounds: NDArray[np.float64]
    """West, south, east, north: the rectangle itself, or a box around the shape. West > east, which no rectangle has,
    is a box across the antimeridian."""
    expires: NDArray[np.int64]
    """Milliseconds since 1970; NEVER_MS for never."""
    clauses: NDArray[np.int64]
    clause_terms: NDArray[np.int64]
    members: NDArray[np.int32]
    circle_numbers: NDArray[np.int32]
    """The numbers of the circles, ascending."""
    circles: NDArray[np.float64]
    """Their longitudes, latitudes and radii in metres: what they were made from, so that they come back the same."""
    polygon_numbers: NDArray[np.int32]
    """The numbers of the polygons, ascending."""
    polygon_rows: NDArray[np.int32]
    """Their rows of `polygons` and `rasters`: many may share one shape."""
    polygons: Strings
    """The distinct GeoJSON geometries."""
    rasters: NDArray[np.uint8]
    """And what they look like: see `rasters`."""
    vocabulary: Vocabulary

    @classmethod
    def of(cls, subscriptions: Iterable[Subscription], vocabulary: Vocabulary | None = None) -> Table:
        """The table of some subscriptions; their terms are added to the vocabulary."""
        rows = list(subscriptions)
        vocabulary = vocabulary if vocabulary is not None else Vocabulary()
        owners: dict[str, int] = {}
        owner = [owners.setdefault(row.owner, len(owners)) for row in rows]
        clauses = [clause for row in rows for clause in row.clauses]
        circles = [(i, row.area) for i, row in enumerate(rows) if isinstance(row.area, Circle)]
        polygons = [i for i, row in enumerate(rows) if isinstance(row.area, Polygon)]
        shapes: dict[bytes, tuple[int, Polygon]] = {}
        shape_rows = []
        for i in polygons:
            area = rows[i].area
            assert isinstance(area, Polygon)
            shape_rows.append(shapes.setdefault(area.region.key, (len(shapes), area))[0])
        pictures = [raster_of(area.region, box_around(area)) for _, area in shapes.values()]
        return cls(
            Strings.of(row.id for row in rows),
            Strings.of(owners),
            np.array(owner, dtype=np.int32),
            np.array([row.area.kind for row in rows], dtype=np.uint8),
            np.array([box_around(row.area) for row in rows], dtype=np.float64).reshape(-1, 4),
            np.array([row.expires_ms for row in rows], dtype=np.int64),
            _offsets([len(row.clauses) for row in rows]),
            _offsets([len(clause) for clause in clauses]),
            vocabulary.add(term for clause in clauses for term in clause),
            np.array([i for i, _ in circles], dtype=np.int32),
            np.array([(c.lng, c.lat, c.radius_m) for _, c in circles], dtype=np.float64).reshape(-1, 3),
            np.array(polygons, dtype=np.int32),
            np.array(shape_rows, dtype=np.int32),
            Strings.of(json.dumps(area.to_document()) for _, area in shapes.values()),
            np.array(pictures, dtype=np.uint8).reshape(-1, SIDE * SIDE),
            vocabulary,
        )

    @classmethod
    def of_rectangles(
        cls,
        bounds: ArrayLike,
        clauses: ArrayLike,
        clause_terms: ArrayLike,
        members: ArrayLike,
        vocabulary: Vocabulary,
        expires: ArrayLike | None = None,
        ids: Strings | None = None,
        owner: ArrayLike | None = None,
        owners: Strings | None = None,
    ) -> Table:
        """The table of rectangles given as arrays: no Python object for any of them.

        Without ids they are "0", "1", ...; without owners all belong to "nobody".
        """
        boxes = np.ascontiguousarray(bounds, dtype=np.float64).reshape(-1, 4)
        count = len(boxes)
        table = cls(
            ids if ids is not None else Strings.of_numbers(0, count),
            owners if owners is not None else Strings.of(["nobody"]),
            np.zeros(count, dtype=np.int32) if owner is None else np.array(owner, dtype=np.int32),
            np.zeros(count, dtype=np.uint8),
            boxes,
            np.full(count, NEVER_MS) if expires is None else np.array(expires, dtype=np.int64),
            np.ascontiguousarray(clauses, dtype=np.int64),
            np.ascontiguousarray(clause_terms, dtype=np.int64),
            np.ascontiguousarray(members, dtype=np.int32),
            np.zeros(0, dtype=np.int32),
            np.zeros((0, 3)),
            np.zeros(0, dtype=np.int32),
            np.zeros(0, dtype=np.int32),
            Strings.of([]),
            np.zeros((0, SIDE * SIDE), dtype=np.uint8),
            vocabulary,
        )
        table._check()
        return table

    @classmethod
    def joined(cls, tables: Sequence[Table]) -> Table:
        """The rows of several tables of one vocabulary, one table after the other."""
        starts = np.cumsum([0] + [len(table) for table in tables])
        owners, own_owners = distinct([table.owners for table in tables])
        shapes, own_shapes = distinct([table.polygons for table in tables])
        first_seen = np.unique(np.concatenate(own_shapes), return_index=True)[1]
        pairs = list(zip(tables, starts[:-1], strict=True))
        return cls(
            Strings.joined([table.ids for table in tables]),
            Strings.of(owners),
            np.concatenate([own[table.owner] for own, table in zip(own_owners, tables, strict=True)]),
            np.concatenate([table.kind for table in tables]),
            np.concatenate([table.bounds for table in tables]),
            np.concatenate([table.expires for table in tables]),
            _joined_offsets([table.clauses for table in tables]),
            _joined_offsets([table.clause_terms for table in tables]),
            np.concatenate([table.members for table in tables]),
            np.concatenate([table.circle_numbers + start for table, start in pairs]).astype(np.int32),
            np.concatenate([table.circles for table in tables]),
            np.concatenate([table.polygon_numbers + start for table, start in pairs]).astype(np.int32),
            np.concatenate([own[table.polygon_rows] for own, table in zip(own_shapes, tables, strict=True)]),
            Strings.of(shapes),
            np.concatenate([table.rasters for table in tables])[first_seen],
            tables[0].vocabulary,
        )

    def take(self, rows: NDArray[Any]) -> Table:
        """The given rows, each at most once, in the given order."""
        clauses, old_clauses = ragged_rows(self.clauses, rows)
        clause_terms, old_members = ragged_rows(self.clause_terms, old_clauses)
        now = np.full(len(self), -1, dtype=np.int64)
        now[rows] = np.arange(len(rows))
        circles, polygons = now[self.circle_numbers], now[self.polygon_numbers]
        circle_order = np.argsort(circles)[np.count_nonzero(circles < 0) :]
        polygon_order = np.argsort(polygons)[np.count_nonzero(polygons < 0) :]
        return Table(
            self.ids.pick(rows),
            self.owners,
            self.owner[rows],
            self.kind[rows],
            self.bounds[rows],
            self.expires[rows],
            clauses,
            clause_terms,
            self.members[old_members],
            circles[circle_order].astype(np.int32),
            self.circles[circle_order],
            polygons[polygon_order].astype(np.int32),
            self.polygon_rows[polygon_order],
            self.polygons,
            self.rasters,
            self.vocabulary,
        )

    def by_place(self) -> Table:
        """The same subscriptions, neighbours next to each other: matching a million is a fifth faster so."""
        west, south, east, north = self.bounds.T
        east = np.where(west > east, west, east)  # across the antimeridian: anywhere will do
        x, y, keys = (np.empty(len(self), dtype=np.int64) for _ in range(3))
        place((west + east) / 2, (south + north) / 2, x, y)
        curve(x, y, FINEST, keys)
        return self.take(np.argsort(keys, kind="stable"))

    def __len__(self) -> int:
        return len(self.bounds)

    def area(self, number: int) -> Area:
        """The area of a subscription."""
        if self.kind[number] == CIRCLE:
            lng, lat, radius_m = self.circles[np.searchsorted(self.circle_numbers, number)].tolist()
            return Circle(lng, lat, radius_m)
        if self.kind[number] == POLYGON:
            return self.polygon(int(self.polygon_row(np.array([number]))[0]))
        return Rectangle(*self.bounds[number].tolist())

    def polygon_row(self, numbers: NDArray[Any]) -> NDArray[np.int32]:
        """The rows of `polygons` of subscriptions that are polygons."""
        return np.asarray(self.polygon_rows[np.searchsorted(self.polygon_numbers, numbers)], dtype=np.int32)

    def polygon(self, row: int) -> Polygon:
        """One of the distinct polygons."""
        return Polygon(json.loads(self.polygons[row]))

    def subscription(self, number: int) -> Subscription:
        """A row as the subscription that it is; the expression as it was typed is not kept here."""
        clauses = []
        for clause in range(int(self.clauses[number]), int(self.clauses[number + 1])):
            terms = self.members[self.clause_terms[clause] : self.clause_terms[clause + 1]].tolist()
            clauses.append(tuple(self.vocabulary.term(term) for term in terms))
        ms = int(self.expires[number])
        return Subscription(
            self.ids[number],
            self.owners[int(self.owner[number])],
            tuple(clauses),
            self.area(number),
            None if ms == NEVER_MS else _EPOCH + dt.timedelta(milliseconds=ms),
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        arrays: list[Any] = [value for name, value in vars(self).items() if name != "vocabulary"]
        return sum(int(array.nbytes) for array in arrays) + self.vocabulary.nbytes

    def _check(self) -> None:
        count = len(self)
        if not (self.clauses.size == count + 1 == self.expires.size + 1 == self.owner.size + 1):
            raise UsageError(
                f"{count:,} rectangles, but {self.clauses.size:,} offsets of clauses (one more is due), "
                f"{self.expires.size:,} expiries and {self.owner.size:,} owners (as many are due)"
            )
        inverted = np.flatnonzero(
            ~(
                (self.bounds[:, 0] >= -180.0)
                & (self.bounds[:, 0] <= self.bounds[:, 2])
                & (self.bounds[:, 2] <= 180.0)
                & (self.bounds[:, 1] >= -90.0)
                & (self.bounds[:, 1] <= self.bounds[:, 3])
                & (self.bounds[:, 3] <= 90.0)
            )
        )
        if inverted.size:
            row = int(inverted[0])
            raise UsageError(
                f"rectangle {row:,} is {self.bounds[row].tolist()}; it must be west, south, east, north within the "
                "world, west not east of east"
            )
        if (np.diff(self.clauses) < 1).any() or (np.diff(self.clause_terms) < 1).any():
            raise UsageError("a subscription needs a clause, and a clause a term")
        if self.members.size and not 0 <= self.members.min() <= self.members.max() < len(self.vocabulary):
            raise UsageError(
                f"terms run from {self.members.min()} to {self.members.max()}, but the vocabulary has "
                f"{len(self.vocabulary):,}"
            )


def distinct(parts: Sequence[Strings]) -> tuple[dict[str, int], list[NDArray[np.int32]]]:
    """The distinct strings of all parts, and for each part the rows where its own are among them."""
    rows: dict[str, int] = {}
    own = [
        np.array([rows.setdefault(string, len(rows)) for string in part], dtype=np.int32) for part in parts
    ]
    return rows, own


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _joined_offsets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    shifts = np.cumsum([0] + [int(part[-1]) for part in parts])
    shifted = [part[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
    return np.concatenate([np.zeros(1, dtype=np.int64), *shifted])
