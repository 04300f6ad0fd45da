"""The curves of the `partitioning` benchmark: PS2Stream's figure 11 and S3-TM's figures 5 to 12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spatialnosql.errors import UsageError

FORMATS = ("png", "svg")
RELATIVE = "relative"
COLOURS = {
    "hybrid": "#2a7f62", "kdtree": "#e0a458", "metric": "#9aa5b1", "salb": "#2a7f62", "hash": "#9aa5b1",
    "anycast": "#5d6673", "gc": "#c9ced6", "gfc": "#b08bbb", "gfcl": "#e0a458", "gnfcl": "#4f7cac",
}  # fmt: skip


def draw_curves(result: dict[str, Any], folder: Path) -> list[str]:
    """Draw all curves; the names of the files."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("the curves need matplotlib: pip install 'spatialnosql[plots]'") from error
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    curves = {
        "scaling_q3": ("scaling", "throughput", "Q3: tuples/s (simulated)"),
    }
    for part, title in (("topics", "Topic-based"), ("tweets", "Tweet-based")):
        curves |= {
            f"{part}_relative": (part, RELATIVE, f"{title}: throughput relative to SALB (simulated)"),
            f"{part}_throughput": (part, "throughput", f"{title}: objects/s (simulated)"),
            f"{part}_spread": (part, "spread", f"{title}: partitions an object goes to"),
            f"{part}_imbalance": (part, "busy_imbalance", f"{title}: busiest worker over the mean"),
        }
    return [
        name
        for stem, (part, key, title) in curves.items()
        if part in result
        for name in _draw(folder / stem, result[part], key, title)
    ]


def _value(part: dict[str, Any], name: str, key: str) -> float:
    if key == RELATIVE:
        return float(part[name]["throughput"] / part["salb"]["throughput"])
    return float(part[name][key])


def _draw(stem: Path, by_workers: dict[str, Any], key: str, title: str) -> list[str]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    workers = [int(number) for number in by_workers]
    for name in next(iter(by_workers.values())):
        values = [_value(part, name, key) for part in by_workers.values()]
        axes.plot(workers, values, marker="o", label=name, color=COLOURS[name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(number) for number in workers])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_title(title)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the curves, not over them
    files = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for file in files:
        figure.savefig(file)
    return [file.name for file in files]
