"""The smallest pieces of a page: text that is only text, tables, figures with their values."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spatialnosql.report.maps import Figure


@dataclass(frozen=True)
class Section:
    """One part of a page: where to jump to, its title, and what is in it, as HTML."""

    id: str
    title: str
    body: str


def text(value: Any) -> str:
    """Any value as text of a page, whatever is in it."""
    return html.escape(str(value))


def script_json(value: Any) -> str:
    """Values for a script element: no ``<`` is left that could end it."""
    packed = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for character, escape in escapes.items():
        packed = packed.replace(character, escape)
    return packed


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of text."""
    return f"<p{_class(kind)}>{text(words)}</p>"


def figure(name: str, drawn: Figure, caption: str, kind: str = "") -> str:
    """A figure with its values beside it, which the page's script hands to the library."""
    values = script_json(drawn)
    return (
        f'<figure{_class(("plot " + kind).strip())} id="{text(name)}">'
        f'<div class="drawing" role="img" aria-label="{text(caption)}"></div>'
        f"<figcaption>{text(caption)}</figcaption>"
        f'<script type="application/json">{values}</script></figure>'
    )


def pair(*parts: str) -> str:
    """Parts side by side where there is room."""
    return f'<div class="pair">{"".join(parts)}</div>'


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, words: int = 1, marked: int | None = None
) -> str:
    """A table; the first `words` columns are words, the others numbers. One row may be marked."""
    head = "".join(
        f'<th scope="col"{_class("" if place < words else "number")}>{text(name)}</th>'
        for place, name in enumerate(columns)
    )
    body = []
    for number, row in enumerate(rows):
        cells = "".join(
            f"<td{_class('' if place < words else 'number')}>{text(value)}</td>"
            for place, value in enumerate(row)
        )
        body.append(f"<tr{_class('marked' if number == marked else '')}>{cells}</tr>")
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def details(summary: str, inner: str) -> str:
    """Something to be opened."""
    return f"<details><summary>{text(summary)}</summary>{inner}</details>"


def tiles(pairs: Sequence[tuple[str, str, str]]) -> str:
    """Figures at a glance: what, how much, and a word on it."""
    shown = "".join(
        f'<div class="tile"><dt>{text(name)}</dt><dd>{text(value)}</dd><dd class="note">{text(note)}</dd></div>'
        for name, value, note in pairs
    )
    return f'<dl class="tiles">{shown}</dl>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
