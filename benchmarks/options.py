"""What every benchmark is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spatialnosql.errors import UsageError

LOAD_ORDERS = ("ingest", "file", "curve")
"""In which order collections are filled: plain ones as the file is and ours along the curve, as `spatialnosql ingest`
fills them; all as the file is, as a collection adopted in place was; or all along the curve."""


@dataclass(frozen=True)
class Options:
    """The command line's options; None means the benchmark's own choice."""

    data: Path | None = None
    polygons: Path | None = None
    shards: int = 3
    seed: int = 1
    limit: int | None = None
    repeats: int = 3
    uri: str | None = None
    load_order: str = "ingest"
    out: Path | None = None
    only: tuple[str, ...] | None = None
    """Parts of a benchmark that has several."""


def chosen_parts(options: Options, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a benchmark's parts that are to be run: all, unless some were asked for."""
    unknown = set(options.only or ()) - set(parts)
    if unknown:
        raise UsageError(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    return options.only or parts
