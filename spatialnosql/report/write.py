"""A report as a file: the sections put together, the page written whole or not at all."""

from __future__ import annotations

import datetime as dt
import secrets
from pathlib import Path

from spatialnosql.errors import UsageError
from spatialnosql.report import parts
from spatialnosql.report.library import plotly_script
from spatialnosql.report.model import Report
from spatialnosql.report.page import page


def check_out(path: Path, option: str = "--out") -> None:
    """Say what stands in the way of a page before anything is asked of the servers."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{option} {path}: the name must end with .html")
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    plotly_script()


def report_page(report: Report) -> str:
    """The page of a report. Pure."""
    facts = report.facts
    made = (
        f"{_moment(facts.made)}, from MongoDB {facts.version} ({facts.deployment}); "
        f"locations in {facts.location}, geohash in {facts.gh}"
    )
    return page(
        report.title or f"{facts.namespace} on its shards",
        parts.summary(report),
        parts.glance(facts),
        parts.sections(report),
        [*parts.notes(facts), *report.notes],
        made,
    )


def explain_page(report: Report) -> str:
    """A page of queries alone. Pure."""
    facts = report.facts
    found = [parts.query_section(query, facts, place) for place, query in enumerate(report.queries, 1)]
    made = f"{_moment(facts.made)}, from MongoDB {facts.version} ({facts.deployment})"
    title = report.title or f"A query of {facts.namespace}"
    return page(title, parts.summary(report), "", found, report.notes, made)


def write_page(text: str, path: Path) -> int:
    """Write a page; its size in bytes. A file of that name is replaced only by a whole one."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    data = text.encode("utf-8")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return len(data)


def _moment(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M} UTC"
