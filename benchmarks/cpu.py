"""CPU seconds: of the cluster's processes, and of this one.

Wall time on a shared machine is noise; CPU is what a query costs and so what a cluster can serve.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from spatialnosql.errors import ClusterError

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_cpu_s(pid: int) -> float:
    """User and system seconds of a process so far, all its threads, those that have ended included."""
    with contextlib.suppress(OSError, OverflowError):
        # The CPU clock of another process on Linux, as clock_getcpuclockid names it: /proc has ticks of 10 ms only.
        return time.clock_gettime((~pid << 3) | 2)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        raise ClusterError(f"process {pid} of the cluster is gone; its CPU time went with it") from error
    # The second field is the program's name in parentheses and may hold spaces: count from behind it.
    fields = stat.rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / _TICKS_PER_S


class ServerCpu:
    """The CPU of a cluster's processes; unknown for a deployment that is not on this machine."""

    def __init__(self, pids: Mapping[str, int] | None) -> None:
        self._pids = dict(pids or {})

    @property
    def known(self) -> bool:
        """Whether there is anything to read."""
        return bool(self._pids)

    def seconds(self) -> float | None:
        """The sum over all processes so far; None if unknown."""
        return sum(process_cpu_s(pid) for pid in self._pids.values()) if self.known else None


def client_cpu_s() -> float:
    """Seconds of this process so far: all threads, and the children that were waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system
