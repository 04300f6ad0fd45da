"""A file that keeps how far a watch has come, so that the next run of a command goes on from there."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IDLE_S = 10.0
"""How often it is written while nothing is told: the server forgets old tokens."""


class ResumeFile:
    """A file with a resume token; without a path, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._kept_s = float("-inf")

    def read(self) -> str | None:
        """The token that was kept last; None if there is none."""
        if self.path is None:
            return None
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None

    def keep(self, token: str) -> None:
        """Write the token; whoever is killed meanwhile leaves the one before."""
        if self.path is None:
            return
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(token + "\n", encoding="utf-8")
        new.replace(self.path)
        self._kept_s = time.monotonic()

    def keep_now_and_then(self, token: str) -> None:
        """Write the token unless one was written a short while ago."""
        if time.monotonic() - self._kept_s >= IDLE_S:
            self.keep(token)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C takes effect after the block, unless it comes twice; in the main thread only."""
    came = False

    def note(*_: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
