"""A small process that outlives this Python by a moment, to end the servers of one that was killed.

It waits on a pipe whose other end only this Python holds; the kernel closes that end however Python
dies: by an exception, SIGTERM or SIGKILL. PR_SET_PDEATHSIG would not do: it fires when the *thread* that
started a server ends, which may be long before the process does.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

# Nothing of the library is loaded before it is needed, so that waiting costs little memory and no time.
WAIT = """\
import sys
if sys.stdin.buffer.read() != b"released":
    import json
    sys.path[:] = json.loads(sys.argv[2])
    from pathlib import Path
    from spatialnosql.cluster.state import reap_entry
    import time
    for _ in range(200):
        reap_entry(Path(sys.argv[1]))
        if not Path(sys.argv[1]).exists():
            break
        time.sleep(0.05)
"""


class Guard:
    """The guard of one registered cluster."""

    def __init__(self, entry: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WAIT, str(entry), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The guard's process."""
        return self._process.pid

    def release(self) -> None:
        """Tell the guard that there is nothing left to end, and wait for it to go."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate(b"released", timeout=10)
