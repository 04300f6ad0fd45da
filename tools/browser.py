"""A headless Chromium for tests, driven by its DevTools protocol over a pipe: no driver, no further package.

Protocol: JSON messages that end with a zero byte, written to the browser's file descriptor 3, read from its 4
(``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "SPATIALNOSQL_TEST_BROWSER"
HOW = f"no Chromium: install one (Debian: apt-get install chromium), or name it in {VARIABLE}"
INSTALL = ("apt-get", "install", "--yes", "--no-install-recommends", "chromium")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--mute-audio",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
TIMEOUT_S = 60.0


class NoBrowserError(Exception):
    """There is none, and none could be had; the message is one line."""


def find_browser() -> str:
    """The browser of this machine; on a clean CI machine, where we are root, the distribution's is installed."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        found = _installed()
    if found is None:
        raise NoBrowserError(HOW)
    return found


def _installed() -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (Path(tempfile.gettempdir()) / "spatialnosql-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time: dpkg has a lock of its own, and gives up
        for command in (INSTALL, ("apt-get", "update"), INSTALL):
            if shutil.which("chromium") is None:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = shutil.which("chromium")
    if found is None:
        raise NoBrowserError(f"{HOW}; apt-get says: {' '.join(done.stderr.split())[-300:]}")
    return found


class Browser:
    """One browser process; `open` gives a fresh tab."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spatialnosql-browser-", ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Out of the way of 3 and 4 first: one of them might be taken for the other.
        ends = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (to_browser, from_browser)]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, ends[0], 3), (os.POSIX_SPAWN_DUP2, ends[1], 4)]
        actions += [(os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_WRONLY, 0) for one in (1, 2)]
        arguments = [program, *FLAGS, f"--user-data-dir={self._folder.name}"]
        self._pid = os.posix_spawn(program, arguments, os.environ, file_actions=actions)
        for one in (to_browser, from_browser, *ends):
            os.close(one)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError):
            os.write(self._out, b'{"id":0,"method":"Browser.close"}\0')
        end = time.monotonic() + 10
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            time.sleep(0.02)
            if time.monotonic() > end:
                os.kill(self._pid, signal.SIGKILL)
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """A command, and its answer; what happens meanwhile goes to `events`."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        end = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found

    @contextlib.contextmanager
    def open(self, file: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Tab]:
        """A page in a tab of its own, drawn to the end."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.send(f"{domain}.enable")
        tab.resize(width, height)
        tab.prefer(dark=dark)
        tab.send("Page.navigate", url=file.resolve().as_uri())
        tab.wait("document.documentElement?.dataset.ready !== undefined")
        try:
            yield tab
        finally:
            self.send("Target.closeTarget", targetId=target)


class Tab:
    """A page that is open."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command about this page."""
        return self._browser.send(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Make the screen so large; a narrow one is a phone's."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, *, dark: bool) -> None:
        """What the system is set to."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or what its promise comes to."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = TIMEOUT_S) -> None:
        """Until a condition is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} does not come true")
            time.sleep(0.05)

    def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        options: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", **options)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def _events(self, method: str) -> Iterator[dict[str, Any]]:
        for event in self._browser.events:
            if event["method"] == method and event.get("sessionId") == self._session:
                yield event["params"]

    @property
    def troubles(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the page's policy refused."""
        thrown = [str(one["exceptionDetails"]) for one in self._events("Runtime.exceptionThrown")]
        logged = [str(one["entry"]) for one in self._events("Log.entryAdded")]
        said = [
            str(one["args"])
            for one in self._events("Runtime.consoleAPICalled")
            if one["type"] in ("error", "warning", "assert")
        ]
        return thrown + logged + said

    @property
    def requests(self) -> list[str]:
        """Whatever was asked for, but the file itself and what is within it."""
        asked = [one["request"]["url"] for one in self._events("Network.requestWillBeSent")]
        return [url for url in asked[1:] if not url.startswith(("data:", "blob:"))]
