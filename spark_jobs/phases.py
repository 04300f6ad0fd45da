"""The phases of a job: what is being done, said as it begins, and how long it took."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Phased:
    """Something that is done in phases."""

    phases: dict[str, float] = field(default_factory=dict)  # seconds
    spark_start_s: float = 0.0

    @property
    def seconds(self) -> float:
        """What it took, without starting Spark."""
        return sum(self.phases.values())

    def timings(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "spark_start_s": round(self.spark_start_s, 3),
            "seconds": round(self.seconds, 3),
        }

    def timings_line(self) -> str:
        """For people."""
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.phases.items())
        return f"Seconds: {phases}; together {self.seconds:.1f}, Spark's start {self.spark_start_s:.1f}"

    @contextlib.contextmanager
    def phase(self, name: str, words: str) -> Iterator[None]:
        """Say what is being done, and add how long it took."""
        print(f"{words} ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - started
