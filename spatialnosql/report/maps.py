"""Maps as figures: plain values for the plotting library, which draws, zooms and tells what is under the pointer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spatialnosql.cover import Ranges
from spatialnosql.geohash import bound_to_string
from spatialnosql.report.hotspots import HotSpot
from spatialnosql.report.model import (
    Chunk,
    CollectionFacts,
    Outline,
    PartitionFacts,
    QueryFacts,
    Ring,
    TopFacts,
)
from spatialnosql.report.shapes import boxes_to_path, path, ranges_to_area, ranges_to_boxes, simplified
from spatialnosql.report.style import (
    ACCENT,
    BOUNDARY,
    INTERIOR,
    NEUTRAL,
    OUTLINE,
    faded,
    fading,
    label,
    log_ticks,
    number,
    shard_colour,
)
from spatialnosql.report.view import WORLD, Raster, View, raster_of, view_around, view_of

Figure: TypeAlias = dict[str, Any]
"""``{"data": [...], "layout": {...}}``; ``ratio``, of a map, is the height over the width that suits it."""

MOST_CHUNKS = 60
"""More chunks than that are drawn shard by shard."""
MOST_AREAS = 600
"""More polygons than that are too many to be told apart: the fullest are drawn."""
MOST_BOXES = 4_000
CLASSES = 6
WIDE, BESIDE = (0.4, 0.6), (0.55, 0.95)
"""How flat and how steep maps may be: those over the whole width, and those beside a table."""
TOO_NEAR = 0.03
"""Marks nearer to each other than this share of a map's width cannot be read."""
_BEYOND = 0.6  # how far around a view chunks are drawn, for those who zoom out


def _layout(view: View) -> dict[str, Any]:
    return {
        "xaxis": {"range": [view.west, view.east], "ticksuffix": "°", "constrain": "domain", "nticks": 8},
        "yaxis": {
            "range": [view.south, view.north],
            "ticksuffix": "°",
            "scaleanchor": "x",
            "scaleratio": round(view.stretch, 6),
            "constrain": "domain",
            "nticks": 8,
        },
        "hovermode": "closest",
        "dragmode": "pan",
    }


def _figure(data: list[dict[str, Any]], view: View, narrow: View | None = None) -> Figure:
    figure = {"data": data, "layout": _layout(view), "ratio": round(view.ratio, 4)}
    if narrow is not None:  # what a phone shows of it at first
        x, y = [narrow.west, narrow.east], [narrow.south, narrow.north]
        figure["narrow"] = {"x": x, "y": y, "ratio": round(narrow.ratio, 4)}
    return figure


# -- what is under the rest -------------------------------------------------------------------------------


def _heat(raster: Raster, chosen: NDArray[np.bool_], colour: str, most: float, **more: Any) -> dict[str, Any]:
    """The chosen cells in one colour, the stronger the more points."""
    part, place = _cropped(chosen, raster.lng, raster.lat, raster.cell_deg)
    counts, here = raster.counts[part], chosen[part]
    logs = np.round(np.log10(np.maximum(counts, 1)), 2)
    return {
        "type": "heatmap",
        **place,
        "z": _masked(logs, here),
        "customdata": _masked(counts, here),
        "zmin": 0,
        "zmax": most,
        "colorscale": fading(colour),
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": "<b>%{customdata:,} points</b><br>around %{x:.4f}°, %{y:.4f}°",
        **more,
    }


def _cropped(
    chosen: NDArray[np.bool_], lng: NDArray[Any], lat: NDArray[Any], cell: tuple[float, float]
) -> tuple[Any, dict[str, float]]:
    """The rows and columns that chosen cells take, and where on the map those begin."""
    rows, columns = np.flatnonzero(chosen.any(axis=1)), np.flatnonzero(chosen.any(axis=0))
    place = {"x0": float(lng[columns[0]]), "dx": cell[0], "y0": float(lat[rows[0]]), "dy": cell[1]}
    return np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], place


def _masked(values: NDArray[Any], here: NDArray[np.bool_]) -> list[list[Any]]:
    return [
        [value if there else None for value, there in zip(row, mask, strict=True)]
        for row, mask in zip(values.tolist(), here.tolist(), strict=True)
    ]


def _density_bar(raster: Raster, most: float) -> dict[str, Any]:
    """The scale of all colours at once: how strong stands for how many."""
    places, texts = log_ticks(raster.counts.max(initial=1))
    width, height = raster.cell_deg
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {
            "color": [0],
            "cmin": 0,
            "cmax": most,
            "colorscale": fading(NEUTRAL),
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "title": {"text": f"points a cell ({_span(width)} by {_span(height)})", "side": "top"},
                "tickvals": places,
                "ticktext": texts,
                "thickness": 8,
                "len": 0.42,
                "x": 0,
                "xanchor": "left",
                "y": -0.07,
                "yanchor": "top",
                "outlinewidth": 0,
            },
        },
    }


def _span(degrees: float) -> str:
    return f"{degrees:.3g}°"


# -- the collection ---------------------------------------------------------------------------------------


def collection_map(facts: CollectionFacts, spots: Sequence[HotSpot] = ()) -> tuple[Figure, Raster]:
    """Cells coloured by shard, the stronger the more points; chunks and hot spots over them."""
    narrow = view_of(facts.histogram)
    view = narrow.fitted(*WIDE)
    raster = raster_of(facts.histogram, view, facts.chunks, facts.shard_names)
    most = max(math.log10(max(int(raster.counts.max(initial=1)), 1)), 0.5)
    data = []
    for owner in sorted({*raster.owner[raster.counts > 0].tolist()}):
        name = facts.shard_names[owner] if owner >= 0 else "points"
        colour = shard_colour(owner) if owner >= 0 else ACCENT
        chosen = (raster.owner == owner) & (raster.counts > 0)
        data.append(_heat(raster, chosen, colour, most, name=label(name), legendgroup=label(name)))
    data += _territories(facts, view)
    if facts.chunks:
        data += [_swatch(name, shard_colour(place)) for place, name in enumerate(facts.shard_names)]
    if spots:
        data.append(_spots(_apart(spots, narrow)))
    data.append(_density_bar(raster, most))
    return _figure(data, view, narrow), raster


def _swatch(name: str, colour: str) -> dict[str, Any]:
    """An entry of the legend: a click on it hides all that is of this shard."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "name": label(name),
        "legendgroup": label(name),
        "marker": {"symbol": "square", "size": 12, "color": colour},
    }


def _apart(spots: Sequence[HotSpot], view: View) -> list[HotSpot]:
    """Those that can be told apart on the map: of near ones the heaviest."""
    shown: list[HotSpot] = []
    for spot in spots:
        across = [abs(spot.lng - other.lng) / view.width for other in shown]
        along = [abs(spot.lat - other.lat) * view.stretch / view.width for other in shown]
        if all(math.hypot(x, y) > TOO_NEAR for x, y in zip(across, along, strict=True)):
            shown.append(spot)
    return shown


def _territories(facts: CollectionFacts, view: View) -> list[dict[str, Any]]:
    """What lies in each chunk within the view, or on each shard where there are very many chunks."""
    clip = view.grown(_BEYOND)
    traces: list[dict[str, Any]] = []
    by_chunk = len(facts.chunks) <= MOST_CHUNKS
    groups: Iterable[tuple[Chunk, ...]]
    if by_chunk:
        groups = [(chunk,) for chunk in facts.chunks]
    else:
        ordered = sorted(facts.chunks, key=lambda chunk: (chunk.shard, chunk.lo))
        groups = [tuple(group) for _, group in groupby(ordered, key=lambda chunk: chunk.shard)]
    for group in groups:
        ranges = Ranges(
            np.array([chunk.lo for chunk in group], dtype=np.uint64),
            np.array([chunk.hi for chunk in group], dtype=np.uint64),
        )
        rings = ranges_to_area(ranges, clip, view.width / 1500)
        if not rings:
            continue
        shard = group[0].shard
        colour = shard_colour(facts.shard_names.index(shard)) if shard in facts.shard_names else NEUTRAL
        documents = sum(chunk.documents for chunk in group)
        ends = f"{bound_to_string(group[0].lo) or 'first'} … {_end(group[0].hi)}" if by_chunk else ""
        what = f"chunk {ends}" if by_chunk else f"{len(group)} chunks"
        traces.append(
            {
                **_area(rings, colour, 0.07, 1.2),
                "name": label(shard),
                "legendgroup": label(shard),
                "showlegend": False,
                "text": f"<b>{label(shard)}</b><br>{what}<br>about {number(documents)} documents",
            }
        )
    return traces


def _end(hi: int) -> str:
    text = bound_to_string(hi)
    return "last" if text == "{" else text


def _area(rings: Sequence[Ring], colour: str, opacity: float, width: float) -> dict[str, Any]:
    xs, ys = path(rings)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": xs,
        "y": ys,
        "fill": "toself",
        "fillcolor": faded(colour, opacity),
        "line": {"color": colour, "width": width},
        "hoveron": "fills",
        "hoverinfo": "text",
    }


def _spots(spots: Sequence[HotSpot]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "hot spots",
        "x": [round(spot.lng, 6) for spot in spots],
        "y": [round(spot.lat, 6) for spot in spots],
        "text": [str(spot.rank) for spot in spots],
        "textposition": "middle center",
        "textfont": {"size": 10, "color": "#ffffff"},
        "customdata": [[number(spot.documents), f"{spot.share:.1%}", spot.name] for spot in spots],
        "hovertemplate": "<b>hot spot %{text}</b><br>%{customdata[0]} points, %{customdata[1]} of all"
        "<br>cell %{customdata[2]}<extra></extra>",
        "marker": {"size": 17, "color": faded("#1d2733", 0.85), "line": {"color": "#ffffff", "width": 1}},
    }


# -- queries ----------------------------------------------------------------------------------------------


def query_map(query: QueryFacts, facts: CollectionFacts) -> Figure | None:
    """The shape, the cells that are asked for, and the points below; None where there is no shape."""
    inner, outer = ranges_to_boxes(query.interior), ranges_to_boxes(query.boundary)
    rings = [ring for outline in query.outlines for ring in outline.rings]
    areas = [ring for outline in query.outlines if outline.kind != "place" for ring in outline.rings]
    boxes = [View(*box) for box in [*inner.tolist(), *outer.tolist()]]
    view = view_around(areas or rings, () if areas else boxes)
    if view is None:
        return None
    view = view.grown(0.12).fitted(*BESIDE)
    raster = raster_of(facts.histogram, view, most_cells=8_000)
    data: list[dict[str, Any]] = []
    if raster.occupied:
        most = max(math.log10(max(int(raster.counts.max()), 1)), 0.5)
        data += [
            _heat(raster, raster.counts > 0, NEUTRAL, most, name="points", showlegend=False),
            _density_bar(raster, most),
        ]
    for name, boxes_of, colour, said in (
        ("interior", inner, INTERIOR, "all of it inside: nothing tested"),
        ("boundary", outer, BOUNDARY, "may be inside: tested"),
    ):
        if len(boxes_of):
            data.append(_cells(name, boxes_of, colour, said))
    data += _outlines(query.outlines)
    return _figure(data, view)


def _cells(name: str, boxes: NDArray[np.float64], colour: str, said: str) -> dict[str, Any]:
    shown = boxes
    if len(boxes) > MOST_BOXES:  # the smallest cannot be seen
        shown = boxes[np.argsort(boxes[:, 0] - boxes[:, 2])[:MOST_BOXES]]
    xs, ys = boxes_to_path(shown)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": xs,
        "y": ys,
        "fill": "toself",
        "fillcolor": faded(colour, 0.22),
        "line": {"color": faded(colour, 0.9), "width": 0.8},
        "hoveron": "fills",
        "hoverinfo": "text",
        "text": f"<b>{name}</b>, {len(boxes):,} cells<br>{said}",
    }


def _outlines(outlines: Sequence[Outline]) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    for outline in outlines:
        xs, ys = path(outline.rings)
        markers = outline.kind == "place"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers" if markers else "lines",
                "name": outline.name,
                "showlegend": all(trace["name"] != outline.name for trace in traces),
                "legendgroup": outline.name,
                "x": xs,
                "y": ys,
                "hoverinfo": "skip" if not markers else "x+y",
                "line": {"color": OUTLINE, "width": 2.4},
                "marker": {"color": OUTLINE, "size": 11, "symbol": "cross"},
            }
        )
    return traces


# -- polygons ---------------------------------------------------------------------------------------------


def choropleth(top: TopFacts) -> Figure:
    """Polygons, the stronger the colour the more points; in classes of about as many polygons each."""
    areas = sorted(top.areas, key=lambda area: -area.points)[:MOST_AREAS]
    view = (view_around([ring for area in areas for ring in area.rings]) or WORLD).fitted(*BESIDE)
    breaks = class_breaks([area.points for area in areas])
    texts = class_texts(breaks)
    shown: set[int] = set()
    data = []
    for area in areas:
        number_of = int(np.searchsorted(breaks, area.points, side="right"))
        opacity = 0.06 + 0.86 * number_of / max(len(breaks), 1)
        trace = _area(simplified(area.rings, view.width / 1200), ACCENT, round(opacity, 3), 0.8)
        trace |= {
            "line": {"color": faded(NEUTRAL, 0.8), "width": 0.7},
            "text": f"<b>{label(area.name)}</b><br>{number(area.points)} points",
            "name": texts[number_of],
            "legendgroup": texts[number_of],
            "legendrank": number_of,
            "showlegend": number_of not in shown,
        }
        shown.add(number_of)
        data.append(trace)
    return _figure(data, view)


def class_breaks(points: Sequence[int]) -> list[int]:
    """Where classes begin, ascending: 1, then quantiles of those that are not empty, in two digits."""
    filled = np.array(sorted(count for count in points if count > 0))
    if not filled.size:
        return [1]
    cuts = np.quantile(filled, np.arange(1, CLASSES) / CLASSES)
    return sorted({1, *(_two_digits(cut) for cut in cuts.tolist())})


def _two_digits(value: float) -> int:
    size: int = 10 ** max(math.floor(math.log10(max(value, 1))) - 1, 0)
    return max(round(value / size) * size, 1)


def class_texts(breaks: Sequence[int]) -> list[str]:
    """What each class is called, the empty one first."""
    texts = ["0" if breaks[0] == 1 else f"under {breaks[0]:,}"]
    for low, high in pairwise(breaks):
        texts.append(f"{low:,}" if high - low == 1 else f"{low:,} to {high - 1:,}")
    return [*texts, f"{breaks[-1]:,} and more"]


# -- partitions -------------------------------------------------------------------------------------------


def partition_map(facts: PartitionFacts) -> Figure | None:
    """The cells of a plan by the partition that holds them; None for a plan that does not go by place."""
    if facts.grid is None or facts.homes is None or facts.homes.size < 2:
        return None
    west, south, east, north, columns, rows = facts.grid
    homes = facts.homes.reshape(rows, columns)
    cell = ((east - west) / columns, (north - south) / rows)
    lng = west + (np.arange(columns) + 0.5) * cell[0]
    lat = south + (np.arange(rows) + 0.5) * cell[1]
    data = []
    for home in sorted({*homes.ravel().tolist()}):
        colour = shard_colour(home) if home >= 0 else NEUTRAL
        part, place = _cropped(homes == home, lng, lat, cell)
        data.append(
            {
                "type": "heatmap",
                **place,
                "z": _masked(np.ones_like(homes[part]), homes[part] == home),
                "colorscale": [[0, faded(colour, 0.75)], [1, faded(colour, 0.75)]],
                "showscale": False,
                "showlegend": True,
                "hoverongaps": False,
                "name": f"partition {home}" if home >= 0 else "by words",
                "hovertemplate": "around %{x:.4f}°, %{y:.4f}°",
            }
        )
    return _figure(data, View(west, south, east, north).grown(0.04).fitted(*BESIDE))
