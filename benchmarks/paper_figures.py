"""Figures 2 to 4 of the paper, drawn from what the `paper` benchmark measured.

As there: bars are the time, points on the second axis (logarithmic, or ours would not be seen) the documents and keys
examined; by geohash precision in figures 2 and 3, by radius in figure 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.mbr import PRECISIONS
from benchmarks.mbr import VARIANTS as PAPER
from spatialnosql.errors import UsageError

COLOURS = {"plain": "#9aa5b1", "paper": "#e0a458", "rewritten": "#2a7f62"}
NAMES = {"plain": "plain MongoDB", "paper": "the paper's rewrite", "rewritten": "SpatialNoSQL"}
FORMATS = ("png", "svg")

Group = tuple[str, dict[str, dict[str, Any]]]
"""A label of the horizontal axis, and for plain, paper and rewritten what was measured."""


def draw_figures(queries: dict[str, Any], folder: Path) -> list[str]:
    """Draw all figures; the names of the files."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("the figures need matplotlib: pip install 'spatialnosql[plots]'") from error
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    radii = {
        name.removeprefix("proximity_"): part
        for name, part in queries.items()
        if name.startswith("proximity_")
    }
    figures = {
        "figure2_containment": (
            "Containment",
            "geohash precision (bits)",
            by_precision(queries["containment"]),
        ),
        "figure3_topn": ("Top-N", "geohash precision (bits)", by_precision(queries["topn"])),
        **{
            f"figure4_proximity_{bits}": (
                f"Proximity, the paper's rewrite at {bits} bits",
                "radius",
                [(radius, _three(part, bits)) for radius, part in radii.items()],
            )
            for bits in PRECISIONS
        },
    }
    return [
        name
        for stem, (title, axis, groups) in figures.items()
        for name in _draw(folder / stem, title, axis, groups)
    ]


def by_precision(part: dict[str, Any]) -> list[Group]:
    """One group a precision; plain and ours have none and stand in each."""
    return [(str(bits), _three(part, bits)) for bits in PRECISIONS]


def _three(part: dict[str, Any], bits: int) -> dict[str, dict[str, Any]]:
    variants = part["variants"]
    (paper,) = (name for name, precision in PAPER.items() if precision == bits)
    return {"plain": variants["plain"], "paper": variants[paper], "rewritten": variants["rewritten"]}


def _draw(stem: Path, title: str, axis_label: str, groups: Sequence[Group]) -> list[str]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    times = figure.subplots()
    counts = times.twinx()
    width = 0.26
    for number, (name, colour) in enumerate(COLOURS.items()):
        places = [group + (number - 1) * width for group in range(len(groups))]
        values = [variants[name] for _, variants in groups]
        times.bar(
            places,
            [one["wall_s"] for one in values],
            width * 0.92,
            color=colour,
            label=f"{NAMES[name]}: time",
        )
        # What examined nothing has no place on a logarithmic axis: it is drawn at one.
        for key, marker, label in (("docs", "o", "ExDocs"), ("keys", "x", "ExKeys")):
            seen = [max(1, one[key] or 0) for one in values]
            style: dict[str, Any] = {"marker": marker, "linestyle": "none", "color": "black", "markersize": 5}
            counts.plot(places, seen, **style, label=label if number == 0 else None)
    times.set_xticks(range(len(groups)), [label for label, _ in groups])
    times.set_xlabel(axis_label)
    times.set_ylabel("time (s)")
    counts.set_yscale("log")
    counts.set_ylabel("examined documents and keys")
    # Above the bars and below the markers' own axis: neither hides the other.
    times.set_ylim(top=times.get_ylim()[1] * 1.05)
    times.set_title(title)
    handles = [*times.get_legend_handles_labels()[0], *counts.get_legend_handles_labels()[0]]
    labels = [*times.get_legend_handles_labels()[1], *counts.get_legend_handles_labels()[1]]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    names = []
    for suffix in FORMATS:
        path = stem.with_suffix(f".{suffix}")
        figure.savefig(path, dpi=140)
        names.append(path.name)
    return names
