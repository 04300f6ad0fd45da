"""Bars as figures: precisions, shards, batches, queries, polygons, partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spatialnosql.report.maps import Figure
from spatialnosql.report.model import Batch, CollectionFacts, PartitionFacts, QueryFacts, TopFacts
from spatialnosql.report.style import ACCENT, NEUTRAL, SHARDS, WARNING, label, number, shard_colour, size
from spatialnosql.skew import Choice

_FIXED = {"fixedrange": True}
MOST_BATCHES = 60
DARK_NEUTRAL = "#6b7787"
INSIDE, MOST_PERCENT = 45.0, 250.0
"""Bars of at least so many percent have room for their figures; longer ones than the most are cut off."""
OUTCOMES = (
    ("written", SHARDS[2]),
    ("replaced", SHARDS[0]),
    ("already there", NEUTRAL),
    ("superseded", SHARDS[5]),
    ("quarantined", SHARDS[4]),
)


def _bars(
    names: Sequence[str], values: Sequence[Any], texts: Sequence[str], colour: Any, **more: Any
) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": list(names),
        "y": list(values),
        "text": list(texts),
        "textposition": "outside",
        "cliponaxis": False,
        "insidetextfont": {"color": "#ffffff"},
        "marker": {"color": colour},
        "hovertemplate": "%{x}: %{text}<extra></extra>",
        **more,
    }


def _layout(x: str, y: str, **more: Any) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x}, "type": "category", **_FIXED},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", **_FIXED},
        "bargap": 0.35,
        **more,
    }


def _line(at: float, text: str, colour: str) -> dict[str, Any]:
    """A level over the whole width, named in the legend."""
    shape = {
        "type": "line",
        "name": text,
        "showlegend": True,
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": at,
        "y1": at,
        "line": {"color": colour, "width": 1.2, "dash": "dash"},
    }
    return {"shapes": [shape]}


# -- precision --------------------------------------------------------------------------------------------


def skewness_chart(choice: Choice) -> Figure:
    """Skewness by precision, the chosen one marked."""
    return _precisions(
        choice,
        [row.skewness for row in choice.table],
        "{:.1f}",
        _layout("geohash precision (bits)", "skewness of points by cell"),
    )


def imbalance_chart(choice: Choice) -> Figure:
    """What the fullest shard would hold over the mean, by precision, with the bound."""
    layout = _layout("geohash precision (bits)", "fullest shard / mean")
    layout |= _line(choice.bound, f"no more than {choice.bound:g}", WARNING)
    return _precisions(choice, [row.imbalance for row in choice.table], "{:.2f}", layout)


def _precisions(choice: Choice, values: Sequence[float | None], shown: str, layout: dict[str, Any]) -> Figure:
    data = []
    for name, colour, is_chosen in (("chosen", ACCENT, True), ("other precisions", NEUTRAL, False)):
        rows = [
            (row.bits, value)
            for row, value in zip(choice.table, values, strict=True)
            if (row.bits == choice.bits) == is_chosen
        ]
        if rows:
            texts = ["none" if value is None else shown.format(value) for _, value in rows]
            bars = _bars([str(bits) for bits, _ in rows], [value or 0.0 for _, value in rows], texts, colour)
            bars["hovertemplate"] = "%{x} bits: %{text}<extra></extra>"
            data.append({**bars, "name": name})
    order = [str(row.bits) for row in choice.table]
    layout["xaxis"] |= {"categoryorder": "array", "categoryarray": order}
    return {"data": data, "layout": {**layout, "barmode": "overlay"}}


# -- shards and batches -----------------------------------------------------------------------------------


def documents_chart(facts: CollectionFacts) -> Figure:
    """Documents by shard, with the mean."""
    names = [label(shard.name) for shard in facts.shards]
    counts = [shard.documents for shard in facts.shards]
    colours = [shard_colour(place) for place in range(len(names))]
    mean = facts.documents / max(len(names), 1)
    layout = _layout("shard", "documents")
    if len(names) > 1:
        layout |= _line(mean, f"mean {number(mean)}", NEUTRAL)
    bars = _bars(names, counts, [number(n) for n in counts], colours)
    return {"data": [{**bars, "showlegend": False, "textposition": "auto"}], "layout": layout}


def bytes_chart(facts: CollectionFacts) -> Figure:
    """Bytes by shard: documents as they are, on disk, and indexes."""
    names = [label(shard.name) for shard in facts.shards]
    data = []
    for name, colour, values in (
        ("documents", SHARDS[0], [shard.data_bytes for shard in facts.shards]),
        ("documents on disk", SHARDS[6], [shard.stored_bytes for shard in facts.shards]),
        ("indexes on disk", SHARDS[5], [shard.index_bytes for shard in facts.shards]),
    ):
        bars = _bars(names, [round(v / 2**20, 3) for v in values], [size(v) for v in values], colour)
        data.append({**bars, "name": name, "textposition": "none"})
    return {"data": data, "layout": _layout("shard", "MiB", barmode="group", bargroupgap=0.08)}


def batches_chart(batches: Sequence[Batch]) -> Figure:
    """Rows of the last batches by what became of them."""
    last = batches[-MOST_BATCHES:]
    # Names may be equal once they are shortened: the axis goes by place.
    places = [str(place) for place in range(len(last))]
    names = [
        [label(batch.name), f"{batch.started:%Y-%m-%d %H:%M}" if batch.started else ""] for batch in last
    ]
    data = []
    for outcome, colour in OUTCOMES:
        values = [getattr(batch, outcome.replace(" ", "_")) for batch in last]
        if any(values) or outcome == "written":
            bars = _bars(places, values, [number(value) for value in values], colour)
            said = f"%{{customdata[0]}}, %{{customdata[1]}}<br>{outcome}: %{{text}} rows<extra></extra>"
            bars |= {"customdata": names, "hovertemplate": said, "textposition": "none"}
            data.append({**bars, "name": outcome, "width": min(0.65, 0.1 * len(last) + 0.1)})
    layout = _layout("batch", "rows", barmode="stack")
    layout["xaxis"] |= {"tickvals": places, "ticktext": [label(batch.name)[:12] for batch in last]}
    return {"data": data, "layout": layout, "height": 280}


# -- queries ----------------------------------------------------------------------------------------------


def query_chart(query: QueryFacts) -> Figure | None:
    """What the rewritten query takes, in percent of what the original takes."""
    if query.sent is None:
        return None
    before, after = query.original, query.sent
    rows = [
        ("shards asked", before.shards, after.shards),
        ("keys examined", before.keys, after.keys),
        ("documents examined", before.docs, after.docs),
        ("documents sent", before.returned, after.returned),
    ]
    rows = [row for row in rows if row[1]][::-1]
    names = [row[0] for row in rows]
    shares = [100.0 * row[2] / row[1] for row in rows]
    texts = [f"{number(row[2])} ({_percent(row[2], row[1])})" for row in rows]
    common: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "textangle": 0,
        "constraintext": "none",
        "cliponaxis": True,
        "insidetextanchor": "start",
        "insidetextfont": {"color": "#ffffff"},
    }
    original = {
        **common,
        "name": "original",
        "x": [100.0] * len(rows),
        "text": [number(row[1]) for row in rows],
        "textposition": "inside",
        "marker": {"color": DARK_NEUTRAL},
        "hovertemplate": "original, %{y}: %{text}<extra></extra>",
    }
    rewritten = {
        **common,
        "name": "rewritten",
        "x": [round(share, 2) for share in shares],
        "text": texts,
        "textposition": ["inside" if share > INSIDE else "outside" for share in shares],
        "marker": {"color": ACCENT},
        "hovertemplate": "rewritten, %{y}: %{text}<extra></extra>",
    }
    longest = 1.04 * max([100.0, *shares])
    layout = {
        "xaxis": {"title": {"text": "% of the original"}, "range": [0, min(longest, MOST_PERCENT)], **_FIXED},
        "yaxis": {"automargin": True, **_FIXED},
        "barmode": "group",
        "bargap": 0.3,
        # Bars are drawn from below: the last is on top.
        "legend": {"traceorder": "reversed"},
    }
    return {"data": [rewritten, original], "layout": layout, "height": 300}


def _percent(part: float, whole: float) -> str:
    value = 100.0 * part / whole
    return f"{value:.0f} %" if value >= 1 or not part else "under 1 %"


# -- polygons and partitions ------------------------------------------------------------------------------


def top_chart(top: TopFacts) -> Figure:
    """The polygons with most points."""
    best = sorted(top.areas, key=lambda area: -area.points)[: top.shown][::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        # Names may be equal once they are shortened: the axis goes by place.
        "y": list(range(len(best))),
        "x": [area.points for area in best],
        "text": [number(area.points) for area in best],
        "textposition": "auto",
        "marker": {"color": ACCENT},
        "customdata": [label(area.name) for area in best],
        "hovertemplate": "%{customdata}: %{text} points<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "points"}, "rangemode": "tozero", **_FIXED},
        "yaxis": {
            "automargin": True,
            "tickvals": list(range(len(best))),
            "ticktext": [label(area.name)[:28] for area in best],
            **_FIXED,
        },
        "bargap": 0.3,
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout, "height": 110 + 30 * len(best)}


def load_chart(facts: PartitionFacts) -> Figure:
    """The load of every partition, with the mean."""
    names = [str(place) for place in range(facts.loads_s.size)]
    loads = [round(1000.0 * load, 4) for load in facts.loads_s.tolist()]
    mean = sum(loads) / max(len(loads), 1)
    colours = [shard_colour(place) for place in range(len(names))]
    bars = _bars(names, loads, [f"{load:,.3g}" for load in loads], colours)
    bars["customdata"] = [
        [number(held), number(sent)]
        for held, sent in zip(facts.subscriptions.tolist(), facts.objects.tolist(), strict=True)
    ]
    bars["hovertemplate"] = (
        "partition %{x}: %{text} ms<br>%{customdata[0]} subscriptions, %{customdata[1]} objects<extra></extra>"
    )
    bars |= {"showlegend": False, "textposition": "auto"}
    layout = _layout("partition", "load (ms for the sample)")
    return {"data": [bars], "layout": layout | _line(mean, f"mean {mean:,.3g} ms", NEUTRAL)}
