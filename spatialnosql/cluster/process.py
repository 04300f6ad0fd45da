"""One server: its command line, its start, and what its log says when it dies."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from spatialnosql.cluster.folders import INSTEAD, cache_folder
from spatialnosql.cluster.programs import Programs
from spatialnosql.cluster.state import Process, State
from spatialnosql.errors import ClusterError

HOST = "127.0.0.1"
# Below the range from which Linux takes the ports of outgoing connections, so nobody gets ours by chance.
PORTS = range(20_000, 32_000)
# Room that a server's files take as soon as it has started (journal, oplog, catalog).
START_MB_PER_SERVER = 250
# And what must be left, for servers that already have their files.
START_MB = 100

COMMON = ("--bind_ip", HOST, "--nounixsocket", "--networkMessageCompressors", "snappy,zstd")
MONGOD_PARAMETERS = (
    "diagnosticDataCollectionEnabled=false",
    # Asked to end, a primary waits 15 s for its clients to find another; here there is no other.
    "shutdownTimeoutMillisForSignaledShutdown=100",
)
MONGOS_PARAMETER = "mongosShutdownTimeoutMillisForSignaledShutdown=100"
CONFIG_PARAMETERS = (
    # Resharding would otherwise wait five minutes before it commits.
    "reshardingMinimumOperationDurationMillis=0",
)
# The second wait of resharding, half a minute; older servers do not know the parameter and would not start.
CONFIG_PARAMETERS_8_2 = ("reshardingDelayBeforeRemainingOperationTimeQueryMillis=0",)
SHARD_PARAMETERS = (
    # A range that moved away is kept 15 minutes for readers on secondaries; these sets have none.
    "orphanCleanupDelaySecs=1",
    # A change stream waits until every shard has said something later; idle ones speak every 10 s.
    "periodicNoopIntervalSecs=1",
)


# What an aborting server says after it has said why.
NOISE = (
    "Writing fatal message",
    "***aborting after fassert() failure",
    "***aborting after invariant() failure",
)


class PortTaken(ClusterError):  # noqa: N818 - reads as what it is
    """Another program listens on a port that a server needs."""


def free_port(taken: set[int]) -> int:
    """A port on loopback that nobody listens on and that is not in ``taken``."""
    for port in random.sample(PORTS, 200):
        if port not in taken and port_is_free(port):
            return port
    raise ClusterError(f"no free port between {PORTS.start} and {PORTS.stop} on {HOST}; {INSTEAD}")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        # As mongod does: connections that are only waiting to be forgotten do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError as error:
            raise ClusterError(
                f"port {port} is reserved for root; choose one above 1023 with --port"
            ) from error
        except OSError:
            return False
    return True


def listening(port: int) -> bool:
    """Whether something accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def command_line(state: State, name: str, programs: Programs) -> list[str]:
    """The command of one server, as a list; no shell sees it."""
    log = ("--logpath", str(state.log(name)), "--port", str(state.ports[name]), *COMMON)
    if name == "mongos":
        metadata = ("--configdb", f"config/{HOST}:{state.ports['config']}")
        return [str(programs.mongos), *metadata, *log, "--setParameter", MONGOS_PARAMETER]
    parameters = MONGOD_PARAMETERS + (CONFIG_PARAMETERS if name == "config" else SHARD_PARAMETERS)
    if name == "config" and programs.version >= (8, 2):
        parameters += CONFIG_PARAMETERS_8_2
    role = "--configsvr" if name == "config" else "--shardsvr"
    # The config server holds kilobytes; its cache need not be more than the smallest allowed.
    cache_gb = 0.25 if name == "config" else state.cache_gb
    storage = ("--dbpath", str(state.directory / name), "--wiredTigerCacheSizeGB", f"{cache_gb:g}")
    settings = [word for parameter in parameters for word in ("--setParameter", parameter)]
    command = [str(programs.mongod), role, "--replSet", name, *storage, "--oplogSize", "1024"]
    return [*command, *log, *settings]


def spawn(state: State, name: str, programs: Programs) -> subprocess.Popen[bytes]:
    """Start one server in a session of its own, so that Ctrl-C in the terminal does not reach it."""
    port = state.ports[name]
    if not port_is_free(port):
        other = "with --port" if name == "mongos" else "folder with --dir"
        raise PortTaken(
            f"port {port} for {name} is taken by another program; end that, or choose another {other}; "
            f"{INSTEAD}"
        )
    log = state.log(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        # One older log is kept, apart: what this start says must not be mixed with what an earlier one said.
        log.replace(log.with_suffix(".log.old"))
    if name != "mongos":
        (state.directory / name).mkdir(exist_ok=True)
    with log.with_suffix(".out").open("wb") as output:
        child = subprocess.Popen(
            command_line(state, name, programs),
            # LC_ALL: a locale that the machine does not have would keep the servers from starting.
            env={**os.environ, "LC_ALL": "C", **programs.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=state.directory,
            start_new_session=True,
        )
    process = Process.of(child.pid)
    if process is not None:
        state.processes[name] = process
    state.save()
    return child


class Patience:
    """How long to wait for servers: until a time, and not once one of them has failed."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._lost = threading.Event()

    def lose(self) -> None:
        """End the waiting of all threads."""
        self._lost.set()

    @property
    def lost(self) -> bool:
        """Whether there is no use in waiting any longer."""
        return self._lost.is_set() or time.monotonic() > self._deadline


def wait_listening(state: State, name: str, patience: Patience) -> None:
    """Wait until a server accepts connections; raise with its last words if it dies or is too slow."""
    while not listening(state.ports[name]):
        check_alive(state, name)
        if patience.lost:
            raise ClusterError(
                f"{name} does not answer on port {state.ports[name]}; {last_words(state, name)}"
            )
        time.sleep(0.03)
    check_alive(state, name)


def check_alive(state: State, name: str) -> None:
    """Raise with a server's last words if it is dead."""
    if not state.alive(name):
        words = last_words(state, name)
        kind = PortTaken if "the port is taken" in words else ClusterError
        raise kind(f"{name} died at its start; {words}")


def last_words(state: State, name: str) -> str:
    """What a server said last, on one line, the path of its log, and what to do if we know."""
    log = state.log(name)
    lines = tail_of(log) + tail_of(log.with_suffix(".out"))
    # Without repetitions, in order; an aborting server says its last words several times.
    said = list(dict.fromkeys(message for line in lines if (message := readable(line))))
    text = " | ".join(said[-3:]) or "nothing about an error"
    everything = " ".join(lines).lower()
    if state.temporary and log.exists():
        # The folder goes away with the cluster; what explains its end must not.
        kept = cache_folder() / "logs" / log.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        log = Path(shutil.copyfile(log, kept))
    hint = ""
    if "no space left" in everything:
        hint = "; the disk is full: make room, or use a --dir on another disk"
    elif "address already in use" in everything:
        hint = "; the port is taken: end that program, or choose another with --port"
    return f"it said: {text} (log: {log}){hint}; {INSTEAD}"


def tail_of(path: Path, size: int = 65_536) -> list[str]:
    """The last lines of a file that may be large or missing."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - size))
            return handle.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def readable(line: str) -> str | None:
    """The message of a log line that tells of trouble (severity E or F, or not of the log at all), else None."""
    try:
        entry = json.loads(line)
    except ValueError:
        # What the loader or the shell says; a line of the log that was cut off is not it.
        return None if '"ctx":' in line or not line.strip() else " ".join(line.split())[:300]
    try:
        if entry["s"] not in ("E", "F") or entry["msg"] in NOISE:
            return None
        attributes = entry.get("attr") or {}
        error = attributes.get("error") or attributes.get("reason") or attributes.get("message") or ""
        message = f"{entry['msg']} {error if isinstance(error, str) else json.dumps(error)}"
    except (KeyError, TypeError, AttributeError):
        return None
    return " ".join(message.split())[:300]
