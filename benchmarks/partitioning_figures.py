"""The curves of the `partitioning` benchmark: PS2Stream's figure 11 and S3-TM's figures 10 to 12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spatialnosql.errors import UsageError

FORMATS = ("png", "svg")
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
        "topics_throughput": ("topics", "throughput", "Topics: objects/s (simulated)"),
        "topics_spread": ("topics", "spread", "Topics: partitions an object goes to"),
        "topics_imbalance": ("topics", "busy_imbalance", "Topics: busiest worker over the mean"),
    }
    return [
        name
        for stem, (part, key, title) in curves.items()
        for name in _draw(folder / stem, result[part], key, title)
    ]


def _draw(stem: Path, by_workers: dict[str, Any], key: str, title: str) -> list[str]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    workers = [int(number) for number in by_workers]
    for name in next(iter(by_workers.values())):
        values = [part[name][key] for part in by_workers.values()]
        axes.plot(workers, values, marker="o", label=name, color=COLOURS[name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(number) for number in workers])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_title(title)
    axes.legend()
    files = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for file in files:
        figure.savefig(file)
    return [file.name for file in files]
