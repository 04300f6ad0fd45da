"""The choice of a precision as a picture: skewness and imbalance of every candidate, the chosen one marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spatialnosql.errors import UsageError
from spatialnosql.skew import Choice

FORMATS = (".png", ".svg", ".pdf")
_CHOSEN, _OTHERS, _BOUND = "#2a7f62", "#9aa5b1", "#c8553d"


def check_plot(path: Path | None) -> None:
    """Say what stands in the way of a picture before hours of work are done for it."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end with {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")
    _matplotlib()


def draw_precisions(choice: Choice, path: Path, title: str) -> None:
    """Draw the table of a choice; the file's name says in which format."""
    check_plot(path)
    mpl = _matplotlib()
    bits = [str(row.bits) for row in choice.table]
    colours = [_CHOSEN if row.bits == choice.bits else _OTHERS for row in choice.table]
    figure = mpl.figure.Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    panels = (
        (left, "skewness of points by cell", [row.skewness for row in choice.table], "{:.1f}", "edge"),
        (right, "fullest shard / mean", [row.imbalance for row in choice.table], "{:.2f}", "center"),
    )
    for axes, name, values, shown, where in panels:
        # Where there are fewer than three cells there is no skewness.
        bars = axes.bar(bits, [value or 0.0 for value in values], color=colours)
        texts = ["-" if value is None else shown.format(value) for value in values]
        axes.bar_label(bars, texts, label_type=where, fontsize=8)
        axes.set_xlabel("geohash precision (bits)")
        axes.set_ylabel(name)
        axes.spines[["top", "right"]].set_visible(False)
    right.axhline(choice.bound, color=_BOUND, linewidth=1, linestyle="--")
    right.annotate(
        f"no more than {choice.bound:g}", (0.99, choice.bound), (0, 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", color=_BOUND, fontsize=8,
    )  # fmt: skip
    figure.suptitle(f"{title}: {choice.bits} bits chosen for {choice.shards} shards")
    figure.savefig(path, dpi=150)


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ModuleNotFoundError as error:
        raise UsageError("a picture needs matplotlib: pip install 'spatialnosql[plots]'") from error
    return mpl
