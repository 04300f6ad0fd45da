"""Progress for people: a bar on a terminal, a line now and then elsewhere; on stderr only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

BAR_WIDTH = 30
REDRAW_S = 0.1
LINE_EVERY_S = 10.0  # into a log: only what takes long enough to worry about


class Progress:
    """Counts up to a total inside a ``with`` block, and says how long it took.

    >>> with Progress("inserting", 200_000, unit="documents") as progress:
    ...     for batch in batches:
    ...         progress.advance(len(batch))
    """

    def __init__(self, label: str, total: int, *, unit: str = "", stream: TextIO | None = None) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self.unit = f" {unit}" if unit else ""
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Progress:
        self._started = self._shown = time.monotonic()
        if self._terminal:
            self._draw()
        return self

    def advance(self, count: int = 1) -> None:
        """Say that so many more are done."""
        self.done += count
        now = time.monotonic()
        if now - self._shown >= (REDRAW_S if self._terminal else LINE_EVERY_S):
            self._shown = now
            self._draw()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the block was entered."""
        return time.monotonic() - self._started

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
        if kind is None:
            self._stream.write(f"{self.label}: {self.done:,}{self.unit} in {self.elapsed_s:.1f} s\n")
        self._stream.flush()

    def _draw(self) -> None:
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        counts = f"{share:4.0%} {self.done:,} of {self.total:,}{self.unit}"
        if self._terminal:
            filled = int(share * BAR_WIDTH)
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            self._stream.write(f"\r{self.label} [{bar}] {counts}\x1b[K")
        else:
            self._stream.write(f"{self.label}: {counts}, {self.elapsed_s:.0f} s\n")
        self._stream.flush()
