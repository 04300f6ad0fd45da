"""Prepare the virtual environment from the lock file, or say in one line what is missing.

Runs on whatever `python3` the machine has, with the standard library only. `make` calls it before
everything else; when nothing has changed it returns at once.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / ".ready"
PYTHON_MINIMUM = (3, 10)
JAVA_MINIMUM = 17


def stop(message: str) -> None:
    """End with one clear line."""
    sys.exit("spatialnosql: " + message)


def check_python() -> None:
    """Python must be new enough and able to make virtual environments."""
    if sys.version_info < PYTHON_MINIMUM:
        stop(
            "Python {}.{} or newer is needed, this is {}.{}; name another with `make PYTHON=python3.11 ...`".format(
                *PYTHON_MINIMUM, *sys.version_info[:2]
            )
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop("this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv")


def check_java() -> None:
    """Spark needs Java 17 or newer."""
    hint = "Java {} or newer is needed for Spark; on Debian and Ubuntu: apt install openjdk-17-jre-headless"
    java = shutil.which("java")
    if java is None:
        stop("java is not on the PATH. " + hint.format(JAVA_MINIMUM))
    out = subprocess.run([str(java), "-version"], capture_output=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', out.stderr.decode(errors="replace"))
    if found is None or int(found.group(1)) < JAVA_MINIMUM:
        stop(
            "java is {}. ".format(found.group(1) if found else "of unknown version")
            + hint.format(JAVA_MINIMUM)
        )


def fingerprint() -> str:
    """What the environment was made from: the lock, the project file and the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (LOCK, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def install() -> None:
    """Make the environment anew if it was made from something else."""
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    print("preparing .venv from requirements.lock (once; a few minutes on a slow network)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for arguments in (
        ["--require-hashes", "-r", str(LOCK)],
        ["--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    ):
        if subprocess.run(pip + arguments, check=False).returncode != 0:
            stop(
                "pip could not install what requirements.lock pins; its own message is above. Is the network up?"
            )
    STAMP.write_text(wanted)


if __name__ == "__main__":
    check_python()
    if "--without-java" not in sys.argv:
        check_java()
    install()
