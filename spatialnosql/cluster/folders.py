"""Where things are kept: the cache, the data of kept clusters, locks and the room on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from spatialnosql.errors import ClusterError, SpatialNoSQLError

CACHE_VARIABLE = "SPATIALNOSQL_CACHE"

INSTEAD = "instead, use Docker (docker-compose.yml) or a running MongoDB (--uri or SPATIALNOSQL_URI)"


def cache_folder() -> Path:
    """Where fetched programs are: ``SPATIALNOSQL_CACHE``, else a folder in the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "spatialnosql"


def default_directory() -> Path:
    """Where ``spatialnosql cluster up`` keeps its data: the user's data folder, which nobody cleans."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "spatialnosql" / "cluster"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it even when the holder is killed."""
    import fcntl  # not on Windows, where this module must still be importable: connect() works there

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def check_space(
    folder: Path, needed_mb: int, purpose: str, error: type[SpatialNoSQLError] = ClusterError
) -> None:
    """Raise unless the disk that holds (or will hold) the folder has this much room."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free_mb = shutil.disk_usage(existing).free // 2**20
    if free_mb < needed_mb:
        raise error(
            f"the disk of {folder} is full: {free_mb} MB free, {needed_mb} MB needed {purpose}; make room, "
            f"set TMPDIR, {CACHE_VARIABLE} or --dir to another disk; {INSTEAD}"
        )


@contextlib.contextmanager
def full_disk_explained(folder: Path, error: type[SpatialNoSQLError] = ClusterError) -> Iterator[None]:
    """Turn "no space left on device" into an error that says where, and what to do."""
    try:
        yield
    except OSError as cause:
        if cause.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise error(
            f"the disk of {folder} is full ({cause.strerror}); make room, or set TMPDIR, {CACHE_VARIABLE} "
            f"or --dir to another disk; {INSTEAD}"
        ) from cause
