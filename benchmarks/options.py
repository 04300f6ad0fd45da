"""What every benchmark is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
    out: Path | None = None
