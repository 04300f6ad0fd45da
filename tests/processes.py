"""Processes that are really killed, and waiting for what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                new = [int(word) for word in task.read_text().split()]
                found += new
                waiting += new
    return found


def kill_all(pid: int) -> None:
    """Kill a process and all its descendants, at once."""
    for one in [pid, *children(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
