"""One time limit over several commands."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Deadline:
    """When the time that a caller gave is up; it begins when this is made."""

    def __init__(self, max_time_ms: int | None) -> None:
        # 0 is no limit, as for the server.
        self._end = time.monotonic() + max_time_ms / 1000 if max_time_ms else None
        self._stopped_at: float | None = None

    def remaining_ms(self) -> int | None:
        """What is left, at least 1: the server itself says that time is up. None without a limit."""
        return None if self._end is None else max(1, int((self._end - time.monotonic()) * 1000))

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Time within counts, time until the next of these does not: a server counts no caller's thinking either."""
        if self._end is not None and self._stopped_at is not None:
            self._end += time.monotonic() - self._stopped_at
        try:
            yield
        finally:
            self._stopped_at = time.monotonic()
