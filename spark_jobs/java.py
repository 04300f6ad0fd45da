"""The Java that Spark will run on, checked before Spark is started: its own message is thirty lines long."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from spatialnosql.errors import MissingProgram

OLDEST = 17
TIMEOUT_S = 30
_HINT = f"install Java {OLDEST} or newer (a JRE is enough) and put it on the PATH, or set JAVA_HOME to it"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java() -> str:
    """The ``java`` that Spark will use, at least version 17: JAVA_HOME's if that is set, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise MissingProgram(f"JAVA_HOME is {home}, but there is no bin/java in it; {_HINT}")
    else:
        java = shutil.which("java") or ""
        if not java:
            raise MissingProgram(f"Spark needs Java, and there is none on the PATH; {_HINT}")
    version = java_version(java)
    if version < OLDEST:
        raise MissingProgram(f"{java} is Java {version}, and Spark needs {OLDEST} or newer; {_HINT}")
    return java


def java_version(java: str) -> int:
    """The major version a ``java`` says it is (8 for the old ``1.8``)."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingProgram(f"{java} cannot be run ({error}); {_HINT}") from error
    found = _VERSION.search(done.stderr + done.stdout)
    # macOS has a stub on the PATH that only says where Java could be had.
    if done.returncode != 0 or found is None:
        raise MissingProgram(f"{java} does not say which version it is; {_HINT}")
    major, minor = found.groups()
    return int(minor) if major == "1" and minor else int(major)
