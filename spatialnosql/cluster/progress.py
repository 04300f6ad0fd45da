"""Progress of a client that reports none: watch its folder grow."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

BAR_WIDTH = 30
INTERVAL_S = 0.2


def file_sizes(folder: Path) -> list[int]:
    """The sizes in bytes of the files below a folder that others are writing to."""
    sizes = [0]
    for path in folder.rglob("*"):
        # Files vanish between listing and asking; that is ordinary here.
        with contextlib.suppress(OSError):
            sizes.append(path.lstat().st_size)
    return sizes


def bar(done: int, total: int, elapsed_s: float) -> str:
    """The line to show: a bar, megabytes and seconds."""
    share = min(done / total, 1.0)
    filled = int(share * BAR_WIDTH)
    return (
        f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%} "
        f"{min(done, total) / 1e6:.0f}/{total / 1e6:.0f} MB {elapsed_s:.0f} s"
    )


@contextlib.contextmanager
def watching(label: str, folder: Path, total: int, *, whole: bool = False) -> Iterator[None]:
    """Show progress on stderr: a bar on a terminal, else one line at the start and one at the end.

    An archive is as far as its biggest file, for clients keep copies; an installation (``whole``) as far
    as all its files together.
    """
    started = time.monotonic()
    done = threading.Event()
    terminal = sys.stderr.isatty()

    def show() -> None:
        while not done.wait(INTERVAL_S):
            sizes = file_sizes(folder)
            line = bar(sum(sizes) if whole else max(sizes), total, time.monotonic() - started)
            print(f"\r{label} {line}\x1b[K", end="", file=sys.stderr, flush=True)

    if not terminal:
        print(f"{label} ({total / 1e6:.0f} MB), once ...", file=sys.stderr, flush=True)
    thread = threading.Thread(target=show, name="progress", daemon=True)
    if terminal:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if terminal:
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr)
    print(f"{label}: done in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
