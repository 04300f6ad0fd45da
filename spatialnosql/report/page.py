"""One file that is the whole page: nothing is fetched when it is opened, and its own policy forbids it to.

The library comes as text, compressed; the page's script unpacks it. The content security policy names the two scripts
by their digests, so that nothing else in the page can run, and allows no connection to any host.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
from collections.abc import Sequence
from importlib import resources

from spatialnosql import __version__
from spatialnosql.report.html import Section, text
from spatialnosql.report.library import plotly_script


def page(
    title: str, lead: str, glance: str, sections: Sequence[Section], notes: Sequence[str], made: str
) -> str:
    """The page, from parts that are HTML already; title, lead and notes are text."""
    script, style = _asset("page.js"), _asset("page.css")
    links = "".join(f'<a href="#{text(one.id)}">{text(one.title)}</a>' for one in sections)
    body = "".join(
        f'<section id="{text(one.id)}"><h2>{text(one.title)}</h2>{one.body}</section>' for one in sections
    )
    remarks = "".join(f'<p class="remark">{text(note)}</p>' for note in notes)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}' '{_digest(plotly_script())}'",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="spatialnosql {__version__}">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<div class="bar"><span class="brand">SpatialNoSQL</span><button id="theme" type="button">Dark</button></div>
<h1>{text(title)}</h1>
<p class="made">{text(made)}</p>
</header>
<main>
<p class="lead">{text(lead)}</p>
{remarks}{glance}
<nav aria-label="Sections">{links}</nav>
<noscript><p class="remark">The figures need JavaScript; the tables do without.</p></noscript>
<p id="trouble" class="remark" hidden></p>
{body}
</main>
<footer>Made by spatialnosql {__version__}. Drawn with plotly.js, which is part of this file: opening it asks no host
for anything.</footer>
<script type="text/plain" id="library">{_packed_library()}</script>
<script>{script}</script>
</body>
</html>
"""


@functools.cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


@functools.cache
def _packed_library() -> str:
    # Without a time in it: equal reports are equal files.
    return base64.b64encode(gzip.compress(plotly_script().encode(), compresslevel=9, mtime=0)).decode()


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
