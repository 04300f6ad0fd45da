"""``LocalCluster``: a real sharded MongoDB on loopback, for as long as a ``with`` block lasts."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from spatialnosql.cluster.folders import INSTEAD, check_space, full_disk_explained, locked
from spatialnosql.cluster.guard import Guard
from spatialnosql.cluster.process import (
    START_MB,
    START_MB_PER_SERVER,
    PortTaken,
    free_port,
    port_is_free,
    spawn,
)
from spatialnosql.cluster.programs import Programs, find_programs
from spatialnosql.cluster.state import (
    Process,
    State,
    end_processes,
    load_state,
    processes_in,
    reap,
    register,
)
from spatialnosql.cluster.topology import assemble
from spatialnosql.errors import ClusterError, UsageError

START_TIMEOUT_S = 120.0
START_ATTEMPTS = 3
MAXIMUM_SHARDS = 32

# The servers that this Python started and that may outlive it: kept, so that none becomes a zombie unseen.
_children: list[subprocess.Popen[bytes]] = []


def prepare(directory: Path, shards: int | None, port: int | None, cache_gb: float | None) -> State:
    """The state to start from: what the folder holds, else a new cluster with ports of its own."""
    if shards is not None and not 1 <= shards <= MAXIMUM_SHARDS:
        raise UsageError(f"shards must be 1 to {MAXIMUM_SHARDS}, not {shards}")
    if port is not None and not 1 <= port <= 65_535:
        raise UsageError(f"port must be 1 to 65535, not {port}")
    if cache_gb is not None and not 0.25 <= cache_gb <= 10_000:
        raise UsageError(f"cache_gb must be 0.25 (the least that MongoDB takes) to 10000, not {cache_gb}")
    state = load_state(directory)
    if state is None:
        state = State(directory, shards or 3, cache_gb or 0.25, {})
        for name in state.names:
            state.ports[name] = free_port(set(state.ports.values()) | {port or 0})
    if shards is not None and shards != state.shards:
        raise ClusterError(
            f"the cluster in {directory} has {state.shards} shards, not {shards}; use another --dir"
        )
    if not state.alive("mongos"):
        # Only the mongos may move: the addresses of the others are written in the cluster's own metadata.
        if port is not None:
            state.ports["mongos"] = port
        elif not port_is_free(state.ports["mongos"]):
            state.ports["mongos"] = free_port(set(state.ports.values()))
    elif port is not None and port != state.ports["mongos"]:
        raise ClusterError(
            f"the cluster in {directory} is up on port {state.ports['mongos']}, not {port}; "
            "take it down first, or leave out --port"
        )
    if cache_gb is not None:
        state.cache_gb = cache_gb
    return state


def bring_up(state: State, programs: Programs) -> list[str]:
    """Start what does not run, make it a cluster, and return the names of what was started."""
    known = {process.pid for process in state.processes.values()}
    # A crash between a start and its note leaves a server that holds our files and our port.
    strays = [process for pid, process in processes_in(state.directory).items() if pid not in known]
    end_processes(strays, clean=True)
    missing = [name for name in state.names if not state.alive(name)]
    if missing:
        new = [name for name in missing if name != "mongos" and not (state.directory / name).exists()]
        needed_mb = START_MB_PER_SERVER * len(new) + START_MB
        check_space(state.directory, needed_mb, f"to start {len(missing)} servers")
    with full_disk_explained(state.directory):
        state.directory.mkdir(parents=True, exist_ok=True)
        state.save()
        try:
            for name in missing:
                _children.append(spawn(state, name, programs))
            assemble(state, START_TIMEOUT_S)
        except BaseException:
            # KeyboardInterrupt too: what was not whole is not left running.
            started = [state.processes.pop(name) for name in missing if name in state.processes]
            end_processes(started, clean=not state.temporary)
            state.save()
            raise
    return missing


def forget_children() -> None:
    """Let the servers outlive this Python without a warning about unfinished children."""
    for child in _children:
        child.poll()
        if child.returncode is None:
            child.returncode = 0
    _children.clear()


def take_down(state: State, *, clean: bool = True) -> list[str]:
    """End every server of a cluster, the mongos first, and return the names of those that ran."""
    running = [name for name in state.names if state.alive(name)]
    others = processes_in(state.directory)
    mongos = state.processes.get("mongos")
    if clean and mongos is not None:
        end_processes([mongos], clean=True)
    end_processes({**others, **{p.pid: p for p in state.processes.values()}}.values(), clean=clean)
    for child in _children[:]:
        if child.poll() is not None:
            _children.remove(child)
    state.processes.clear()
    return running


class LocalCluster:
    """A config server, shards (single-node replica sets) and a mongos on 127.0.0.1.

    With ``directory`` the data is kept there; without, everything is in a temporary folder that is removed
    by ``stop``. If this Python dies in whatever way, the servers are ended: by a small guard process, else
    by the next start of any local cluster.
    """

    def __init__(
        self,
        *,
        shards: int = 3,
        directory: str | os.PathLike[str] | None = None,
        port: int | None = None,
        cache_gb: float = 0.25,
    ) -> None:
        self._shards = shards
        self._given = None if directory is None else Path(directory).expanduser().resolve()
        self._port = port
        self._cache_gb = cache_gb
        self._state: State | None = None
        self._entry: Path | None = None
        self._guard: Guard | None = None
        self._owner_pid = os.getpid()

    def start(self) -> LocalCluster:
        """Start the cluster and return it, ready; on one that is already started nothing happens."""
        if self._state is not None:
            return self
        programs = find_programs()
        reap()
        for _ in range(START_ATTEMPTS - 1):
            try:
                return self._start_once(programs)
            except PortTaken:
                # Somebody took a port between our look and our start: others are as good, unless asked for.
                if self._given is not None or (self._port is not None and not port_is_free(self._port)):
                    raise
        return self._start_once(programs)

    def _start_once(self, programs: Programs) -> LocalCluster:
        if self._given is None:
            directory = Path(tempfile.mkdtemp(prefix="spatialnosql-"))
            temporary = True
        else:
            directory, temporary = self._given, False
        self._owner_pid = os.getpid()
        try:
            with full_disk_explained(directory), locked(directory / ".lock"):
                self._start_in(directory, temporary=temporary, programs=programs)
        except BaseException:
            if self._state is not None:
                self.stop()
            elif temporary:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        return self

    def _start_in(self, directory: Path, *, temporary: bool, programs: Programs) -> None:
        state = prepare(directory, self._shards, self._port, self._cache_gb)
        if state.owned or any(state.alive(name) for name in state.names):
            raise ClusterError(
                f"a cluster is already up in {directory}; use it (--uri {state.uri}), end it with "
                f"`spatialnosql cluster down --dir {directory}`, or choose another directory; {INSTEAD}"
            )
        # Written down before anything is started: from here on, a crash can be cleaned up by others.
        self._entry = register(directory, temporary=temporary)
        self._guard = Guard(self._entry)
        state.temporary = temporary
        state.owner = Process.of(os.getpid())
        self._state = state
        atexit.register(self._stop_at_exit)
        bring_up(state, programs)

    def _stop_at_exit(self) -> None:
        # A forked child inherits the exit handlers, but not the cluster.
        if os.getpid() == self._owner_pid:
            self.stop()

    def stop(self) -> None:
        """End the cluster and wait until it is gone; on one that is not started nothing happens."""
        state = self._state
        if state is None:
            return
        # What is thrown away need not be closed neatly.
        take_down(state, clean=not state.temporary)
        self._state = None
        if state.temporary:
            shutil.rmtree(state.directory, ignore_errors=True)
        else:
            state.owner = None
            with contextlib.suppress(OSError):
                state.save()
        if self._entry is not None:
            self._entry.unlink(missing_ok=True)
        if self._guard is not None:
            self._guard.release()
        atexit.unregister(self._stop_at_exit)

    @property
    def state(self) -> State:
        """Everything known about the running cluster."""
        if self._state is None:
            raise ClusterError("the cluster is not started; use `with LocalCluster() as cluster:` or start()")
        return self._state

    @property
    def uri(self) -> str:
        """The URI of the mongos, ``mongodb://127.0.0.1:PORT/``."""
        return self.state.uri

    @property
    def pids(self) -> dict[str, int]:
        """The process of each server: ``config``, ``shard0``, ..., ``mongos``."""
        return {name: self.state.processes[name].pid for name in self.state.names}

    @property
    def ports(self) -> dict[str, int]:
        """The port of each server on 127.0.0.1."""
        return dict(self.state.ports)

    @property
    def directory(self) -> Path:
        """The folder with the data and logs."""
        return self.state.directory

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<LocalCluster {self._state.uri if self._state else 'not started'}>"
