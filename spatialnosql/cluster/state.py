"""What is written down about a cluster, so that a later process can find, judge and end it.

Each cluster has ``cluster.json`` in its folder. A cluster that belongs to a running Python (a ``with``
block) also has an entry in the registry, a folder in the cache; every start ends the clusters of the
registry whose owner is dead. A process is known by its pid *and* its start time, because pids are reused,
and by its log path on the command line, because a crash may come before the pid was written down.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from spatialnosql.cluster.folders import cache_folder, locked
from spatialnosql.errors import ClusterError

FORMAT = 1
STATE_FILE = "cluster.json"


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    started: int  # clock ticks after boot
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now, or None if there is none (a zombie is none)."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The second field is the name in parentheses and may itself hold spaces and parentheses.
        fields = text.rpartition(")")[2].split()
        # Of one that is ending, the first thread may be a zombie while others still hold its files and its port.
        ended = fields[0] in "ZX" and int(fields[17]) <= 1
        return None if ended else cls(pid, int(fields[19]), boot_id())

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Process.of(self.pid) == self


def boot_id() -> str:
    """Names this boot of this machine, and the pid namespace in which our pids mean something."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


@dataclass
class State:
    """A cluster as it is on disk."""

    directory: Path
    shards: int
    cache_gb: float
    ports: dict[str, int]
    temporary: bool = False
    owner: Process | None = None
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The servers, in the order in which they are shown."""
        return ("config", *(f"shard{index}" for index in range(self.shards)), "mongos")

    @property
    def uri(self) -> str:
        """The URI of the mongos."""
        return f"mongodb://127.0.0.1:{self.ports['mongos']}/"

    def log(self, name: str) -> Path:
        """The log file of a server; also what marks its process as ours."""
        return self.directory / "logs" / f"{name}.log"

    def alive(self, name: str) -> bool:
        """Whether a server's process runs."""
        process = self.processes.get(name)
        return process is not None and process.alive

    @property
    def owned(self) -> bool:
        """Whether a living Python has this cluster in a ``with`` block."""
        return self.owner is not None and self.owner.alive

    def save(self) -> None:
        """Write the state; a reader sees the old one or the new one, never a part."""
        values = {**asdict(self), "directory": str(self.directory), "format": FORMAT}
        write_json(self.directory / STATE_FILE, values)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Replace a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_text(json.dumps(values, indent=2) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_state(directory: Path) -> State | None:
    """The state of the cluster in a folder, or None if there is none."""
    path = directory / STATE_FILE
    try:
        values = json.loads(path.read_text())
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']} is not {FORMAT}")
        return State(
            directory=directory,
            shards=int(values["shards"]),
            cache_gb=float(values["cache_gb"]),
            ports={str(name): int(port) for name, port in values["ports"].items()},
            temporary=bool(values["temporary"]),
            owner=_process(values["owner"]),
            processes={name: Process(**process) for name, process in values["processes"].items()},
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{path} is damaged ({error}); remove the folder, or use another --dir") from error


def _process(values: dict[str, Any] | None) -> Process | None:
    return None if values is None else Process(**values)


def processes_in(directory: Path) -> dict[int, Process]:
    """Every running server whose log is in this folder, whether or not it was written down."""
    marker = os.fsencode(directory / "logs") + b"/"
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = any(flag == b"--logpath" and value.startswith(marker) for flag, value in pairwise(words))
            process = Process.of(int(entry.name)) if ours else None
            if process is not None:
                found[process.pid] = process
    return found


def end_processes(processes: Iterable[Process], *, clean: bool, patience_s: float = 20.0) -> None:
    """End processes and wait until they are gone: asked first if ``clean``, else (and at last) killed."""
    remaining = [process for process in processes if process.alive]
    for kill_signal in (signal.SIGTERM, signal.SIGKILL) if clean else (signal.SIGKILL,):
        for process in remaining:
            # Checked again right before: the narrower the gap, the less a reused pid can matter.
            if process.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, kill_signal)
        deadline = time.monotonic() + patience_s
        while remaining and time.monotonic() < deadline:
            time.sleep(0.02)
            remaining = [process for process in remaining if process.alive]
    if remaining:
        pids = ", ".join(str(process.pid) for process in remaining)
        raise ClusterError(f"these processes cannot be ended: {pids}; look at them with ps -p {pids}")


def registry() -> Path:
    """The folder with one file for each cluster that belongs to a running Python."""
    return cache_folder() / "clusters"


def register(directory: Path, *, temporary: bool) -> Path:
    """Note that this process owns the cluster in a folder, before anything is started there."""
    entry = registry() / f"{os.getpid()}-{secrets.token_hex(4)}.json"
    owner = Process.of(os.getpid())
    assert owner is not None
    values = {
        "directory": str(directory),
        "temporary": temporary,
        "host": platform.node(),
        "owner": asdict(owner),
    }
    write_json(entry, values)
    return entry


def reap() -> list[Path]:
    """End every registered cluster whose owner is dead; returns their folders."""
    if not registry().is_dir():
        return []
    return [directory for entry in sorted(registry().glob("*.json")) if (directory := reap_entry(entry))]


def reap_entry(entry: Path) -> Path | None:
    """End one registered cluster if its owner is dead; returns its folder."""
    # One at a time: a late second reaper must not meet the servers of a cluster that was started since.
    with locked(registry() / "lock"):
        return _reap_entry(entry)


def _reap_entry(entry: Path) -> Path | None:
    try:
        values = json.loads(entry.read_text())
        directory, owner = Path(values["directory"]), Process(**values["owner"])
        temporary, host = bool(values["temporary"]), str(values["host"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        entry.unlink(missing_ok=True)  # not written by us: files appear here complete
        return None
    boot, _, namespace = owner.boot.partition("/")
    here, _, our_namespace = boot_id().partition("/")
    elsewhere = (boot == here and namespace != our_namespace) or (boot != here and host != platform.node())
    if elsewhere or owner.alive:
        # Another container or machine with the same home: its pids mean nothing to us.
        return None
    end_processes(processes_in(directory).values(), clean=not temporary)
    if temporary:
        shutil.rmtree(directory, ignore_errors=True)
    entry.unlink(missing_ok=True)
    return directory
