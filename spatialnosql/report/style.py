"""Colours and words that all figures share. Colours are seen on light and on dark paper alike."""

from __future__ import annotations

import html
import math
from typing import Any

SHARDS = ("#3f7fd6", "#e0792f", "#2e9e78", "#b25fb8", "#d24d5e", "#8f8527", "#17a2b4", "#8a6f5c")
"""Of shards and partitions, in order; distinct also to those who see red and green alike. Then again from the first."""
ACCENT, NEUTRAL, WARNING = "#2e9e78", "#8f9bab", "#d2553f"
INTERIOR, BOUNDARY, OUTLINE = "#2e9e78", "#e0792f", "#d24d5e"
LONGEST = 60


def shard_colour(number: int) -> str:
    """The colour of a shard by its place in the list."""
    return SHARDS[number % len(SHARDS)]


def faded(colour: str, opacity: float) -> str:
    """A colour of six hexadecimal digits with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def fading(colour: str, least: float = 0.22) -> list[list[Any]]:
    """A scale from little of a colour to all of it."""
    return [[0, faded(colour, least)], [1, faded(colour, 1)]]


def label(value: Any) -> str:
    """Any value as the text of a figure: short, and without marks that the library would take for its own."""
    text = str(value)
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return html.escape(shown, quote=False)


def number(value: float) -> str:
    """A count, with separators."""
    return f"{round(value):,}"


def share(part: float, whole: float) -> str:
    """A part in percent."""
    return f"{part / whole:.1%}" if whole else "-"


def size(count: float) -> str:
    """Bytes in a unit that suits them."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"


def short(value: float) -> str:
    """A count in few characters, for the side of a figure."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if scaled >= 10 or scaled == round(scaled) else f"{scaled:.1f}{unit}"
    return f"{value:.0f}"


def log_ticks(most: float) -> tuple[list[float], list[str]]:
    """Where to put 1, 10, 100, ... on a scale of logarithms, and what to write there."""
    powers = range(math.floor(math.log10(max(most, 1))) + 1)
    return [float(power) for power in powers], [short(10**power) for power in powers]
