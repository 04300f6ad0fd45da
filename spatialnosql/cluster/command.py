"""``spatialnosql cluster up | down | status | uri``: a local cluster that stays until it is taken down."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spatialnosql.cli import EXIT_ERROR, EXIT_OK, add_common_arguments
from spatialnosql.cluster.folders import default_directory, locked
from spatialnosql.cluster.local import bring_up, forget_children, prepare, take_down
from spatialnosql.cluster.programs import check_linux, find_programs
from spatialnosql.cluster.state import STATE_FILE, State, end_processes, load_state, processes_in, reap
from spatialnosql.errors import ClusterError

LOCK_FILE = ".lock"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    up_parser = actions.add_parser("up", help="start the cluster, or only what died of it; data is kept")
    up_parser.add_argument("--shards", type=int, metavar="N", help="number of shards (default: 3)")
    up_parser.add_argument(
        "--port", type=int, metavar="PORT", help="port of the mongos (default: a free one)"
    )
    up_parser.add_argument("--cache-gb", type=float, metavar="GB", help="cache of each shard (default: 0.25)")
    down_parser = actions.add_parser("down", help="end every process of the cluster; data is kept")
    down_parser.add_argument("--purge", action="store_true", help="remove the data and logs too")
    status_parser = actions.add_parser("status", help="show every process; exit code 1 unless all are alive")
    uri_parser = actions.add_parser(
        "uri", help="print the URI, for SPATIALNOSQL_URI=$(spatialnosql cluster uri)"
    )
    for action in (up_parser, down_parser, status_parser, uri_parser):
        action.add_argument(
            "--dir",
            type=Path,
            default=default_directory(),
            metavar="DIR",
            help="folder with the cluster's data (default: %(default)s)",
        )
        add_common_arguments(action, uri=False)


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    check_linux()
    args.dir = args.dir.expanduser().resolve()
    return ACTIONS[args.action](args)


def up(args: argparse.Namespace) -> int:
    """Start what is not running."""
    started_at = time.monotonic()
    programs = find_programs()
    reaped = reap()
    with locked(args.dir / LOCK_FILE):
        state = prepare(args.dir, args.shards, args.port, args.cache_gb)
        if state.owned and state.owner is not None:
            raise ClusterError(
                f"the cluster in {args.dir} belongs to the running process {state.owner.pid}; "
                f"use its URI {state.uri}, or another --dir"
            )
        state.owner = None
        started = bring_up(state, programs)
    forget_children()
    seconds = time.monotonic() - started_at
    outcome = "already up" if not started else "up" if len(started) == len(state.names) else "repaired"
    if args.json:
        return show_json(state, outcome=outcome, started=started, seconds=round(seconds, 2))
    for directory in reaped:
        print(f"ended the cluster that a dead process left in {directory}")
    if not started:
        print(f"already up: {state.uri}")
    else:
        what = f" (restarted {', '.join(started)})" if outcome == "repaired" else ""
        print(f"{outcome}{what}: {state.shards} shards in {seconds:.1f} s, data in {args.dir}")
        print(state.uri)
    return EXIT_OK


def down(args: argparse.Namespace) -> int:
    """End every process and say which."""
    report = Report(str(args.dir), reaped=[str(directory) for directory in reap()])
    if (args.dir / STATE_FILE).exists():
        with locked(args.dir / LOCK_FILE):
            end_cluster(args.dir, report, purge=args.purge)
    else:
        # Somebody removed the folder under its servers. (And a mistyped --dir is not made only to be locked.)
        strays = processes_in(args.dir)
        end_processes(strays.values(), clean=False)
        report.strays = sorted(strays)
    return show(json.dumps(asdict(report)) if args.json else report.text())


@dataclass
class Report:
    """What ``down`` did."""

    directory: str
    reaped: list[str]
    ended: list[dict[str, str | int]] = field(default_factory=list)
    strays: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    size_mb: int | None = None

    def text(self) -> str:
        """The report for people."""
        lines = [f"ended the cluster that a dead process left in {directory}" for directory in self.reaped]
        lines += ["ended {name} (pid {pid}, port {port})".format(**server) for server in self.ended]
        lines += [f"ended a leftover server (pid {pid})" for pid in self.strays]
        if self.size_mb is None:
            if not self.strays:
                lines.append(f"nothing to take down in {self.directory}")
            return "\n".join(lines)
        if not self.ended and not self.strays:
            lines.append("no process was running")
        if self.removed:
            lines.append(f"removed {', '.join(self.removed)} from {self.directory} ({self.size_mb} MB)")
        else:
            lines.append(f"data kept in {self.directory} ({self.size_mb} MB; down --purge removes it)")
        return "\n".join(lines)


def end_cluster(directory: Path, report: Report, *, purge: bool) -> None:
    """End the servers of the cluster in a folder and note it in the report."""
    state = load_state(directory)
    if state is None:
        return
    if state.owned and state.owner is not None:
        raise ClusterError(
            f"the cluster in {directory} belongs to the running process {state.owner.pid}; end that process"
        )
    pids = {name: process.pid for name, process in state.processes.items()}
    report.strays = sorted(set(processes_in(directory)) - set(pids.values()))
    ended = take_down(state)
    report.ended = [{"name": name, "pid": pids[name], "port": state.ports[name]} for name in ended]
    state.owner = None
    state.save()
    report.size_mb = folder_mb(directory)
    if purge:
        report.removed = remove_data(state)


def status(args: argparse.Namespace) -> int:
    """Show every process."""
    state = load_state(args.dir)
    if state is None:
        if args.json:
            print(json.dumps({"up": False, "directory": str(args.dir), "processes": {}}))
        else:
            print(f"no cluster in {args.dir}; start one with: spatialnosql cluster up")
        return EXIT_ERROR
    is_up = all(state.alive(name) for name in state.names)
    if args.json:
        show_json(state)
    else:
        print(f"{'up' if is_up else 'not up'}: {state.uri} (data in {args.dir})")
        print(f"{'process':<10}{'port':>6}{'pid':>9}  alive")
        for name in state.names:
            process = state.processes.get(name)
            alive = "yes" if state.alive(name) else "no"
            print(f"{name:<10}{state.ports[name]:>6}{process.pid if process else '-':>9}  {alive}")
    return EXIT_OK if is_up else EXIT_ERROR


def uri(args: argparse.Namespace) -> int:
    """Print the URI of a cluster that is up."""
    state = load_state(args.dir)
    if state is None or not state.alive("mongos"):
        raise ClusterError(f"no cluster is up in {args.dir}; start it with: spatialnosql cluster up")
    return show(json.dumps({"uri": state.uri}) if args.json else state.uri)


def show(text: str) -> int:
    """Print a last line and be done."""
    print(text)
    return EXIT_OK


def show_json(state: State, **more: Any) -> int:
    """Print the whole state as one JSON object."""
    processes = {
        name: {
            "port": state.ports[name],
            "pid": state.processes[name].pid if name in state.processes else None,
            "alive": state.alive(name),
            "log": str(state.log(name)),
        }
        for name in state.names
    }
    is_up = all(process["alive"] for process in processes.values())
    values = {"up": is_up, "uri": state.uri, "directory": str(state.directory), "shards": state.shards}
    json.dump({**values, **more, "processes": processes}, sys.stdout)
    print()
    return EXIT_OK


def folder_mb(folder: Path) -> int:
    """Megabytes that a folder takes on the disk (not the sizes of its files, which have holes)."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) // 2**20


def remove_data(state: State) -> list[str]:
    """Remove what a cluster made in its folder, and the folder if nothing else is in it."""
    removed = []
    for name in (*state.names, "logs"):
        if (state.directory / name).is_dir():
            shutil.rmtree(state.directory / name)
            removed.append(name)
    for name in (STATE_FILE, LOCK_FILE):
        (state.directory / name).unlink(missing_ok=True)
    if not any(state.directory.iterdir()):
        state.directory.rmdir()
    return removed


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": up,
    "down": down,
    "status": status,
    "uri": uri,
}
