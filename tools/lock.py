"""Make requirements.lock anew: the newest versions that pyproject.toml allows, pinned with hashes.

The lock names no address, so that everybody's own pip configuration decides where packages come from. uv
does the resolving, for every platform at once; it is fetched into a temporary folder for this alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
OLDEST_PYTHON = "3.10"
COMPILE = (
    "pip", "compile", "--universal", "--generate-hashes", "--python-version", OLDEST_PYTHON,
    "--extra", "dev", "--no-header", "--no-annotate", "--no-emit-index-url", "--upgrade",
)  # fmt: skip

_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<marker> ; [^\\]+)?(?: \\)?$"
)
_HASH = re.compile(r"^ +--hash=sha256:[0-9a-f]{64}(?: \\)?$")


def problems(text: str) -> list[str]:
    """What is wrong with a lock file: anything but pins, each followed by at least one hash."""
    found = []
    open_pin: str | None = None  # the pin that has no hash yet
    for number, line in enumerate(text.splitlines(), 1):
        pin = _PIN.match(line)
        if "://" in line or line.lstrip().startswith(("-i", "--index", "--extra-index", "--find-links")):
            found.append(f"line {number} holds an address or an index: {line.strip()}")
        elif pin:
            if open_pin:
                found.append(f"{open_pin} has no hash")
            open_pin = pin["name"]
        elif _HASH.match(line):
            open_pin = None
        elif line.strip() and not line.startswith("#"):
            found.append(f"line {number} is neither a pin nor a hash: {line.strip()}")
    if open_pin:
        found.append(f"{open_pin} has no hash")
    return found


def pinned(text: str) -> dict[str, str]:
    """Normalised names and versions of all pins; of a name pinned twice (by markers), the last."""
    pins = (_PIN.match(line) for line in text.splitlines())
    return {re.sub(r"[-_.]+", "-", pin["name"]).lower(): pin["version"] for pin in pins if pin}


def main() -> int:
    """Resolve, check, and only then replace the lock."""
    with tempfile.TemporaryDirectory(prefix="spatialnosql-lock-") as folder:
        fresh = Path(folder) / "requirements.lock"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        uv = Path(folder) / "uv" / "bin" / "uv"
        try:
            subprocess.run([*pip, "--target", str(uv.parent.parent), "uv"], check=True)
            command = [str(uv), *COMPILE, "--quiet", "pyproject.toml", "-o", str(fresh)]
            subprocess.run(command, cwd=ROOT, check=True)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"lock: not made, requirements.lock is as it was: {error}", file=sys.stderr)
            return 1
        text = fresh.read_text()
    wrong = problems(text)
    if wrong:
        print("lock: not replaced:\n  " + "\n  ".join(wrong[:20]), file=sys.stderr)
        return 1
    before, after = pinned(LOCK.read_text()) if LOCK.exists() else {}, pinned(text)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            print(f"{name}: {before.get(name, 'not there')} -> {after.get(name, 'gone')}")
    LOCK.write_text(text)
    print(f"requirements.lock: {len(after)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
