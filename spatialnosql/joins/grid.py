"""How many points lie in each geohash cell of a region, or how much of a field: for heat maps and clusters on a map.

What lies inside the region is grouped by the servers, from the index alone if neither a filter, a weight nor an exact
centre is asked for; at its border the keys come to the client and are settled there, so that a cell on the border
counts only the points of the region. The commands are sent side by side and each sees its own moment: while points
change, one that moves may be counted twice or not at all. With `consistent` all of them read at one moment, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialnosql.cover import Cover
from spatialnosql.errors import UsageError
from spatialnosql.geohash import BITS
from spatialnosql.histogram import Histogram
from spatialnosql.joins.asked import Asked
from spatialnosql.joins.grid_cells import Grid, GridCell
from spatialnosql.joins.grid_pieces import Pieces, too_many
from spatialnosql.joins.grid_precision import (
    MOST_CELLS,
    centre_error,
    check_bits,
    choose_bits,
    expected_cells,
    finer_characters,
    statistics_inside,
    statistics_of,
    whole_characters,
)
from spatialnosql.joins.grid_reading import Reader
from spatialnosql.joins.grid_region import Area, read_region
from spatialnosql.joins.grid_stored import check_stored, check_stored_bits, estimated_rows
from spatialnosql.joins.points import JoinPoints
from spatialnosql.joins.tallies import AsOf
from spatialnosql.steps import Steps, run

__all__ = ["CENTRES", "Grid", "GridCell", "grid"]

CENTRES = ("index", "exact", "none")


def grid(
    points: Any,
    region: Any = None,
    precision: int | None = None,
    *,
    cells: int | None = None,
    filter: Mapping[str, Any] | None = None,
    weight: Any = None,
    centre: str = "index",
    as_of: str | None = None,
    borders: str = "read",
    consistent: bool = False,
    most_cells: int = MOST_CELLS,
    **options: Any,
) -> Grid:
    """The cells of a region that hold points, each with its box, its count and its centre; exactly.

    `points` is a `SpatialCollection` or an adopted collection. `region` is None for everywhere, a GeoJSON geometry, or
    what ``$geoWithin`` takes: ``{"$centerSphere": ...}``, ``{"$box": ...}``. A region of which only the server can tell
    who is inside is answered from documents; `Grid.how` says so.

    `precision` is in bits, 0 to 60: 30 are the cells of six characters. ``cells=500`` chooses it by the statistics, so
    that about so many cells hold points (whatever the filter, which statistics know nothing of). A grid of more than
    `most_cells` is an error.

    `filter` is what else points must meet. `weight` asks for a measure of a field beside the number: ``{"$avg":
    "$fare"}``; ``"fare"`` is its sum. Documents of several points or areas are in no cell: `Grid.unplaced`.

    A cell's centre is the mean of its points' longitudes and latitudes. ``centre="index"`` takes it from the index, by
    grouping up to two characters finer: off by no more than `Grid.centre_error` of the cell's width and height, which
    is 1/64 or less, or more where that would make too many groups. ``"exact"`` lets the servers average the
    coordinates, for which they read documents. ``"none"`` does without.

    ``as_of="last_analyze"`` takes what lies inside from the statistics, and says of which moment and how many points
    the answer is. It still reads the keys at the border, as they are now; with ``borders="estimated"`` it reads
    nothing, and each cell has bounds. Other options are ``session``, ``comment``, ``maxTimeMS`` (of each command) and
    ``let``.

    >>> heat = grid(trips, {"$centerSphere": [[-73.98, 40.75], 0.001]}, cells=500)
    >>> heat[0].cell, heat[0].count, heat[0].centre
    """
    _check(precision, cells, centre, most_cells)
    asked = Asked.of(filter, weight, as_of, borders, consistent, options)
    return run(_made(points, read_region(region), asked, precision, cells, centre, most_cells))


def _made(
    points: Any,
    area: Area,
    asked: Asked,
    precision: int | None,
    cells: int | None,
    centre: str,
    most_cells: int,
) -> Steps[Grid]:
    opened = yield from asked.opened(points)
    if asked.stored:
        check_stored(area, centre)
    cover = area.cover(opened.info)
    known = None
    if opened.info.histogram is not None and cover is not None:
        known = statistics_of(opened.info.histogram, area, cover)
    bits = _bits(precision, cells, known, opened, area, stored=asked.stored)
    _check_size(bits, cover, opened, most_cells)
    if asked.estimated:
        assert cover is not None  # what only the server knows was refused
        pieces = Pieces(bits, asked.weight, most_cells, centres=centre != "none")
        return _estimated(opened, area, cover, pieces)

    def work(options: dict[str, Any]) -> Steps[Grid]:
        pieces = Pieces(bits, asked.weight, most_cells, centres=centre != "none")
        reader = Reader(opened, area, pieces, options, exact=centre == "exact")
        if asked.stored:
            assert cover is not None
            return (yield from _stored(opened, cover, pieces, reader))
        return (yield from _read(opened, area, cover, pieces, reader, known, centre))

    return (yield from asked.in_session(opened, work))


def _read(
    points: JoinPoints,
    area: Area,
    cover: Cover | None,
    pieces: Pieces,
    reader: Reader,
    known: Histogram | None,
    centre: str,
) -> Steps[Grid]:
    """A grid of now."""
    characters = whole_characters(pieces.bits)
    if centre == "index":
        documents = 0
        if known is None:
            documents = yield from points.estimated_count()
        characters = finer_characters(pieces.bits, known, documents)
    if area.only_the_server_knows:
        unplaced = yield from reader.ask(characters)
    else:
        assert cover is not None
        yield from reader.read(cover, characters)
        unplaced = yield from reader.unplaced()
    return Grid(
        pieces.rows(),
        pieces.bits,
        pieces.value(),
        _how(points, area, pieces, reader, centre),
        centre_error(pieces.bits, 5 * characters) if centre == "index" else None,
        unplaced,
    )


def _how(points: JoinPoints, area: Area, pieces: Pieces, reader: Reader, centre: str) -> str:
    reasons = [
        reason
        for asked, reason in (
            (area.only_the_server_knows, f"of this region only the server can tell: {area.why_not}"),
            (bool(points.filter), "a filter"),
            (pieces.weight is not None, "a weight"),
            (centre == "exact", "exact centres"),
        )
        if asked
    ]
    if reasons:
        return f"documents read: {'; '.join(reasons)}"
    near = f", and {reader.documents:,} documents very near to the border" if reader.documents else ""
    return f"from the index alone{near}"


# -- from the statistics ----------------------------------------------------------------------------------


def _stored(points: JoinPoints, cover: Cover, pieces: Pieces, reader: Reader) -> Steps[Grid]:
    """A grid of the last analysis, with the border of now."""
    histogram, moment = points.info.histogram, points.info.analyzed
    assert histogram is not None
    assert moment is not None
    inside = statistics_inside(histogram, cover)
    pieces.add(inside.cells, inside.bits, inside.counts)
    yield from reader.read(cover, whole_characters(pieces.bits), inside=False)
    return Grid(
        pieces.rows(),
        pieces.bits,
        pieces.value(),
        "from the statistics, and keys at the border of now" if reader.keys else "from the statistics alone",
        centre_error(pieces.bits, histogram.bits) if pieces.centres else None,
        as_of=AsOf(moment, histogram.total, reader.keys),
    )


def _estimated(points: JoinPoints, area: Area, cover: Cover, pieces: Pieces) -> Grid:
    """A grid of the last analysis, nothing read."""
    histogram, moment = points.info.histogram, points.info.analyzed
    assert histogram is not None
    assert moment is not None
    rows = estimated_rows(histogram, area, cover, pieces.bits, centres=pieces.centres)
    pieces.check(len(rows))
    return Grid(
        rows,
        pieces.bits,
        sum(row.count for row in rows),
        "from the statistics alone, the border estimated",
        centre_error(pieces.bits, histogram.bits) if pieces.centres else None,
        as_of=AsOf(moment, histogram.total, None),
    )


# -- what was asked ---------------------------------------------------------------------------------------


def _check(precision: Any, cells: Any, centre: Any, most_cells: Any) -> None:
    if (precision is None) == (cells is None):
        raise UsageError("how fine? Give either precision in bits, such as 30, or cells, such as cells=500")
    for name, number in (("cells", cells), ("most_cells", most_cells)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UsageError(f"{name} is {number!r}; it must be a number of cells, 1 or more")
    if precision is not None:
        check_bits(precision)
    if centre not in CENTRES:
        raise UsageError(f"centre is {centre!r}; it must be one of {', '.join(map(repr, CENTRES))}")


def _bits(
    precision: int | None,
    cells: int | None,
    known: Histogram | None,
    points: JoinPoints,
    area: Area,
    *,
    stored: bool,
) -> int:
    """The precision: as given, or by the statistics."""
    info = points.info
    if precision is not None:
        if stored:
            check_stored_bits(precision, info)
        return precision
    assert cells is not None
    if known is None:
        why = f"run `spatialnosql analyze {info.namespace}` for statistics"
        if info.histogram is not None:
            why = f"nobody but the server can tell what lies in this region ({area.why_not})"
        raise UsageError(f"which precision gives about {cells} cells is not known: {why}, or give it in bits")
    return choose_bits(known, cells, known.bits if stored else BITS)


def _check_size(bits: int, cover: Cover | None, points: JoinPoints, most_cells: int) -> None:
    """Refuse what would be too much before it is read, as far as it was counted: no guess, and no filter."""
    histogram = points.info.histogram
    if histogram is None or cover is None or points.filter:
        return
    counted = expected_cells(statistics_inside(histogram, cover), min(bits, histogram.bits))
    if counted > most_cells:
        raise too_many(f"by the statistics at least {counted:,.0f}", bits, most_cells)
