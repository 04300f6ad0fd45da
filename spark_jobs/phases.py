"""The phases of a job: what is being done, said as it begins, and how long it took."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Phased:
    """Something that is done in phases."""

    phases: dict[str, float] = field(default_factory=dict)  # seconds

    @contextlib.contextmanager
    def phase(self, name: str, words: str) -> Iterator[None]:
        """Say what is being done, and add how long it took."""
        print(f"{words} ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - started
