"""The timelines of the `adaptive` benchmark: SWARM's figures 12 to 16, PS2Stream's figure 16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spatialnosql.errors import UsageError

FORMATS = ("png", "svg")
COLOURS = {
    "swarm": "#2a7f62",
    "swarm_single": "#8fc1a9",
    "static": "#9aa5b1",
    "local": "#e0a458",
    "global": "#4f7cac",
    "swarm_product": "#b08bbb",
    "static_product": "#c9ced6",
}


def draw_timelines(result: dict[str, Any], folder: Path) -> list[str]:
    """Draw a figure for each scenario; the names of the files."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("the timelines need matplotlib: pip install 'spatialnosql[plots]'") from error
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    return [
        name
        for scenario, figures in result["queries"].items()
        for name in _draw(folder / f"adaptive_{scenario}", scenario, figures, figures["round_s"])
    ]


def _draw(stem: Path, name: str, figures: dict[str, Any], round_s: float | None) -> list[str]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 8.0), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    unit_x = 1.0 if round_s is None else round_s / 60  # rounds, or minutes
    times = [unit_x * turn for turn in range(figures["rounds"])]
    panels = (
        ("units", "10⁹ units of work", 1e9),
        ("latency_us", "latency, µs", 1.0),
        ("moved_bytes", "moved in all, MB", 1e6),
    )
    for panel, (key, title, unit) in zip(axes, panels, strict=True):
        for variant, turns in figures["timelines"].items():
            values = [value / unit for value in turns[key]]
            if key == "moved_bytes":
                values = [sum(values[: turn + 1]) for turn in range(len(values))]
            panel.plot(times, values, label=variant, color=COLOURS[variant], linewidth=1.2)
        panel.axvspan(*(unit_x * turn for turn in figures["hot"]), color="#f3ead9", zorder=0)
        panel.set_ylabel(title)
        if key == "latency_us":
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
    axes[0].set_title(f"{name}: {figures['workers']} workers (simulated)")
    named = axes[0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=4, fontsize="small")  # not over the curves
    axes[-1].set_xlabel("rounds" if round_s is None else "minutes")
    files = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for file in files:
        figure.savefig(file)
    return [file.name for file in files]
