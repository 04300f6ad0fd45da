"""Processes that are really killed, servers of their own, and waiting for what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from spatialnosql.cluster.process import free_port


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


@contextlib.contextmanager
def server(programs: Any, program: Any, *options: Any) -> Iterator[int]:
    """One real server on its own; yields the port."""
    port = free_port(set())
    command = [program, "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket", *options]
    environment = {**os.environ, **programs.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            with MongoClient[Any](
                "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=60_000
            ) as client:
                client.admin.command("hello")
            yield port
        finally:
            process.kill()


def mongod(programs: Any, folder: Path, *options: Any) -> contextlib.AbstractContextManager[int]:
    """The same of a mongod, with its data in a folder that is made."""
    folder.mkdir()
    return server(programs, programs.mongod, "--dbpath", folder, "--wiredTigerCacheSizeGB", "0.25", *options)
