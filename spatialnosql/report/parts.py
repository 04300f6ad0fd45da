"""From gathered values to the sections of a page. Pure: what the servers said comes in, HTML goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spatialnosql.report import charts, maps
from spatialnosql.report.hotspots import HotSpot, hot_spots
from spatialnosql.report.html import Section, details, figure, pair, paragraph, table, text, tiles
from spatialnosql.report.model import CollectionFacts, QueryFacts, Report, SubscriptionFacts, TopFacts
from spatialnosql.report.style import number, share, size

SPOTS = 10
BATCHES_LISTED = 20
LONGEST_OPEN = 400  # characters of a query that are shown without opening it


def sections(report: Report) -> list[Section]:
    """All sections that there is something to say in."""
    facts = report.facts
    spots = spots_of(facts)
    found = [map_section(facts, spots), shards_section(facts)]
    if facts.choice is not None:
        found.append(precision_section(facts))
    if spots:
        found.append(hot_spots_section(facts, spots))
    found += [query_section(query, facts, place) for place, query in enumerate(report.queries, 1)]
    if report.top is not None:
        found.append(top_section(report.top, facts))
    if report.subscriptions is not None:
        found.append(subscriptions_section(report.subscriptions))
    found.append(batches_section(facts))
    return found


def spots_of(facts: CollectionFacts) -> list[HotSpot]:
    """The heaviest cells of the chosen precision."""
    bits = facts.choice.bits if facts.choice is not None else facts.histogram.bits
    return hot_spots(facts.histogram, bits, facts.chunks, SPOTS)


# -- the beginning ----------------------------------------------------------------------------------------


def summary(report: Report) -> str:
    """The whole in one paragraph."""
    facts = report.facts
    where = f"a {facts.deployment} MongoDB {facts.version}"
    count = len(facts.shards)
    said = [f"{facts.namespace} holds {number(facts.documents)} documents on {where}"]
    if facts.chunks:
        said[0] += f", in {_many(len(facts.chunks), 'chunk')} by geohash on {_many(count, 'shard')}"
        said.append(f"The fullest shard holds {facts.imbalance:.2f} times the mean")
    elif facts.key:
        said[0] += f", sharded by {', '.join(facts.key)} and not by geohash: every query asks every shard"
    if facts.choice is not None:
        said.append(f"Cells of {facts.choice.bits} bits were chosen: {facts.choice.reason}")
    if facts.why_not is not None:
        said.append(f"Queries pass unchanged, because {facts.why_not}")
    if report.queries:
        rewritten = [query for query in report.queries if query.sent is not None]
        said.append(
            f"Of {_many(len(report.queries), 'query', 'queries')} explained here, {len(rewritten)} "
            f"{'is' if len(rewritten) == 1 else 'are'} rewritten"
        )
        before = sum(query.original.docs for query in rewritten)
        after = sum(query.sent.docs for query in rewritten if query.sent is not None)
        if rewritten:
            said[-1] += f"; those examine {number(after)} documents instead of {number(before)}"
    if report.top is not None and report.top.areas:
        best = max(report.top.areas, key=lambda area: area.points)
        said.append(
            f"Of {_many(report.top.total, 'polygon')}, {best.name} holds most points, {number(best.points)}"
        )
    return ". ".join(said) + "."


def glance(facts: CollectionFacts) -> str:
    """The figures that are looked for first."""
    shown = [("documents", number(facts.documents), "on all shards, now")]
    if facts.chunks:
        shown += [
            ("shards", str(len(facts.shards)), _many(len(facts.chunks), "chunk")),
            ("fullest shard / mean", f"{facts.imbalance:.2f}", "1 is even"),
        ]
    if facts.choice is not None:
        shown.append(("precision", f"{facts.choice.bits} bits", _cell_size(facts.choice.bits)))
    bytes_in_all = sum(shard.stored_bytes + shard.index_bytes for shard in facts.shards)
    shown.append(("on disk", size(bytes_in_all), "documents and indexes"))
    if facts.analyzed is not None:
        shown.append(("statistics of", f"{facts.analyzed:%Y-%m-%d}", f"{facts.analyzed:%H:%M} UTC"))
    return tiles(shown)


def notes(facts: CollectionFacts) -> list[str]:
    """What a reader should know of how current and how whole this is."""
    found = []
    counted = facts.histogram.total + facts.without_gh
    if facts.documents and abs(counted - facts.documents) > 0.02 * facts.documents:
        found.append(
            f"The maps show the {number(counted)} documents of the last analysis; there are "
            f"{number(facts.documents)} now. `spatialnosql analyze {facts.namespace}` counts anew."
        )
    if facts.without_gh:
        found.append(f"{number(facts.without_gh)} documents have no geohash and are on no map.")
    return found


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _cell_size(bits: int) -> str:
    width, height = 360.0 / 2 ** ((bits + 1) // 2), 180.0 / 2 ** (bits // 2)
    return f"cells of {width:.2g}° by {height:.2g}°"


# -- the collection ---------------------------------------------------------------------------------------


def map_section(facts: CollectionFacts, spots: Sequence[HotSpot]) -> Section:
    """The map of shards, chunks and points."""
    drawn, raster = maps.collection_map(facts, spots)
    caption = "Every cell has the colour of the shard that holds it, the stronger the more points lie in it."
    if facts.chunks:
        caption += (
            " Lines are the borders of chunks."
            if len(facts.chunks) <= maps.MOST_CHUNKS
            else (f" There are {len(facts.chunks):,} chunks; the lines are the borders of shards.")
        )
    else:
        caption = "The stronger the colour, the more points lie in a cell. There are no geohash shards to tell apart."
    if raster.outside:
        caption += f" {number(raster.outside)} points lie outside this map."
    caption += " Longitude and latitude in degrees."
    return Section("map", "Where the points are", figure("fig-map", drawn, caption, "map wide"))


def shards_section(facts: CollectionFacts) -> Section:
    """What every shard holds."""
    rows = [
        [
            shard.name,
            number(shard.documents),
            share(shard.documents, facts.documents),
            number(shard.chunks) if facts.chunks else "-",
            size(shard.data_bytes),
            size(shard.stored_bytes),
            size(shard.index_bytes),
        ]
        for shard in facts.shards
    ]
    columns = ["shard", "documents", "share", "chunks", "documents' size", "on disk", "indexes on disk"]
    body = pair(
        figure("fig-documents", charts.documents_chart(facts), "Documents on each shard."),
        figure(
            "fig-bytes",
            charts.bytes_chart(facts),
            "Space that each shard takes; what has moved away and is not yet deleted counts too.",
        ),
    )
    return Section("shards", "What each shard holds", body + table(columns, rows))


def precision_section(facts: CollectionFacts) -> Section:
    """The choice of a precision."""
    choice = facts.choice
    assert choice is not None
    rows = [
        [
            row.bits,
            number(row.cells),
            "-" if row.skewness is None else f"{row.skewness:.1f}",
            f"{row.largest:.1%}",
            f"{row.imbalance:.2f}",
        ]
        for row in choice.table
    ]
    marked = next((place for place, row in enumerate(choice.table) if row.bits == choice.bits), None)
    body = paragraph(f"{choice.bits} bits: {choice.reason}.")
    body += pair(
        figure(
            "fig-skewness",
            charts.skewness_chart(choice),
            "Skewness of the points by cell: the least is wanted.",
        ),
        figure(
            "fig-imbalance",
            charts.imbalance_chart(choice),
            "What the fullest shard would hold, over the mean, if whole cells are spread as evenly as can be.",
        ),
    )
    columns = ["bits", "cells with points", "skewness", "largest cell", "fullest shard / mean"]
    return Section(
        "precision", "Choice of the precision", body + table(columns, rows, words=0, marked=marked)
    )


def hot_spots_section(facts: CollectionFacts, spots: Sequence[HotSpot]) -> Section:
    """The heaviest cells."""
    together = 0.0
    rows = []
    for spot in spots:
        together += spot.share
        shards = ", ".join(spot.shards[:3]) + (" …" if len(spot.shards) > 3 else "")
        rows.append(
            [
                spot.rank,
                spot.name,
                shards or "-",
                f"{spot.lng:.4f}, {spot.lat:.4f}",
                number(spot.documents),
                f"{spot.share:.2%}",
                f"{together:.1%}",
            ]
        )
    columns = ["", "cell begins with", "shard", "mean place (lng, lat)", "points", "share", "together"]
    words = (
        f"The cells of {spots[0].bits} bits with most points, numbered as on the map, where there is room."
    )
    if len(facts.shards) > 1 and facts.chunks:
        words += f" A shard's even share is {1 / len(facts.shards):.1%}."
    return Section("hotspots", "Hot spots", paragraph(words) + table(columns, rows, words=4))


def batches_section(facts: CollectionFacts) -> Section:
    """The ledger of ingests."""
    batches = facts.batches
    if not batches:
        words = (
            "No batch of `spatialnosql ingest` is in the ledger: the collection was filled in another way."
        )
        return Section("batches", "Ingested batches", paragraph(words, "quiet"))
    rows: list[list[Any]] = [
        [
            batch.name,
            batch.state + (f", attempt {batch.attempts}" if batch.attempts > 1 else ""),
            f"{batch.started:%Y-%m-%d %H:%M}" if batch.started else "-",
            number(batch.rows),
            number(batch.written),
            number(batch.replaced),
            number(batch.already_there),
            number(batch.superseded),
            number(batch.quarantined),
            "-" if batch.seconds is None else f"{batch.seconds:,.1f}",
        ]
        for batch in batches[::-1][:BATCHES_LISTED]
    ]
    columns = [
        "batch", "state", "begun (UTC)", "rows", "written", "replaced", "already there", "superseded", "quarantined",
        "seconds",
    ]  # fmt: skip
    body = figure(
        "fig-batches", charts.batches_chart(batches), "What became of the rows of each batch.", "wide"
    )
    body += table(columns, rows, words=3)
    failed = [batch for batch in batches if batch.error]
    body += "".join(paragraph(f"{batch.name}: {batch.error}", "quiet") for batch in failed[-3:])
    if len(batches) > BATCHES_LISTED:
        body += paragraph(f"The last {BATCHES_LISTED} of {len(batches):,} batches.", "quiet")
    return Section("batches", "Ingested batches", body)


# -- queries ----------------------------------------------------------------------------------------------


def query_section(query: QueryFacts, facts: CollectionFacts, place: int) -> Section:
    """One query both ways."""
    body = [paragraph(query.verdict)]
    asked = f"<pre>{text(query.text)}</pre>"
    body.append(asked if len(query.text) <= LONGEST_OPEN else details("The query", asked))
    drawn = maps.query_map(query, facts)
    numbers = _numbers(query)
    chart = charts.query_chart(query)
    beside = numbers
    if chart is not None:
        beside += figure(f"fig-query-{place}-bars", chart, "Rewritten beside original.")
    if drawn is not None:
        caption = "The shape" if query.outlines else "The cells"
        if len(query.interior) or len(query.boundary):
            cells = "and the cells that are asked for" if query.outlines else "that are asked for"
            caption += f" {cells}: "
            if query.whole_border:
                caption += f"{len(query.interior)} interior and {len(query.boundary)} boundary ranges of gh."
            else:
                count = _many(len(query.interior) + len(query.boundary), "range")
                caption += f"{count} of gh for the first ring; wider ones follow if it holds too few."
        else:
            caption += ". The query is sent as it is: no cells are asked for."
        map_part = figure(f"fig-query-{place}", drawn, caption, "map")
        body.append(pair(map_part, f"<div>{beside}</div>"))
    else:
        body.append(beside)
    return Section(f"query-{place}", query.title, "".join(body))


def _numbers(query: QueryFacts) -> str:
    before, after = query.original, query.sent
    rows: list[list[Any]] = []
    for name, field in (
        ("shards asked", "shards"),
        ("keys examined", "keys"),
        ("documents examined", "docs"),
        ("documents sent", "returned"),
        ("server's time, ms", "ms"),
    ):
        rows.append(
            [
                name,
                number(getattr(before, field)),
                number(getattr(after, field)) if after is not None else "-",
            ]
        )
    answers = query.answers
    if answers is not None:
        rows.append(
            ["until the client had it, ms", f"{answers.original_ms:,.1f}", f"{answers.rewritten_ms:,.1f}"]
        )
        rows.append(["in the answer", number(answers.original), number(answers.rewritten)])
    found = table([query.kind, "original", "rewritten"], rows)
    if answers is not None and not answers.equal:
        found += paragraph(
            "THE ANSWERS DIFFER: this is a bug, or documents changed between the two.", "warning"
        )
    return found


# -- polygons and subscriptions ---------------------------------------------------------------------------


def top_section(top: TopFacts, facts: CollectionFacts) -> Section:
    """Points by polygon."""
    shown = min(top.shown, len(top.areas))
    caption = f"Points in each of {_many(top.total, 'polygon')}; classes hold about as many polygons each."
    if top.total > maps.MOST_AREAS:
        caption += f" The {maps.MOST_AREAS} with most points are drawn."
    inside = sum(area.points for area in top.areas)
    words = (
        f"The points of {_many(top.total, 'polygon')} of {top.source}, counted in {top.seconds:.2f} s by one pass: "
        f"{number(inside)} in all, of {number(facts.documents)}."
    )
    body = paragraph(words) + pair(
        figure("fig-choropleth", maps.choropleth(top), caption, "map"),
        figure("fig-top", charts.top_chart(top), f"The {shown} with most points."),
    )
    return Section("top", f"Top {shown}", body)


def subscriptions_section(facts: SubscriptionFacts) -> Section:
    """Subscriptions, and the load of their partitions."""
    words = (
        f"{facts.namespace}: {_many(facts.count, 'subscription')} of {_many(facts.owners, 'owner')}; "
        f"{number(facts.matches)} matches of {_many(facts.matched_objects, 'object')} are stored."
    )
    body = paragraph(words)
    plan = facts.partitions
    if plan is None:
        body += paragraph(facts.note or "", "quiet")
        return Section("subscriptions", "Subscriptions", body)
    body += paragraph(
        f"In {plan.loads_s.size} partitions by {plan.planner}, for {plan.sample}: the fullest has {plan.imbalance:.2f} "
        f"times the mean load; a subscription is held by {plan.replication:.2f} of them, an object goes to "
        f"{plan.spread:.2f}, and {plan.dropped:.0%} of the objects go to none."
    )
    load = figure(
        "fig-load",
        charts.load_chart(plan),
        "Load of each partition: what a worker would take for the sample, by PS2Stream's definition 1, as estimated.",
    )
    drawn = maps.partition_map(plan)
    if drawn is not None:
        caption = "Which partition holds the subscriptions of a place; where several do, their words decide."
        body += pair(load, figure("fig-partitions", drawn, caption, "map"))
    else:
        body += load
    rows = [
        [place, f"{1000 * one:,.3g}", number(held), number(sent)]
        for place, (one, held, sent) in enumerate(
            zip(plan.loads_s.tolist(), plan.subscriptions.tolist(), plan.objects.tolist(), strict=True)
        )
    ]
    body += details(
        "The partitions as a table",
        table(["partition", "load, ms", "subscriptions", "objects"], rows, words=0),
    )
    return Section("subscriptions", "Subscriptions", body)
