"""One time limit over several commands."""

from __future__ import annotations

import time


class Deadline:
    """When the time that a caller gave is up; it begins when this is made."""

    def __init__(self, max_time_ms: int | None) -> None:
        # 0 is no limit, as for the server.
        self._end = time.monotonic() + max_time_ms / 1000 if max_time_ms else None

    def remaining_ms(self) -> int | None:
        """What is left, at least 1: the server itself says that time is up. None without a limit."""
        return None if self._end is None else max(1, int((self._end - time.monotonic()) * 1000))
