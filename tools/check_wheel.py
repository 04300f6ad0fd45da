"""Build the wheel and try it in an environment that holds nothing but what the wheel says it needs.

The dependencies are linked from the environment that runs this, not fetched again; but only those the wheel
declares without extras. So an undeclared import fails here, and not first at a user's.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"spatialnosql", "spark_jobs"}
NEEDED_FILES = (
    "spatialnosql/py.typed",
    "spatialnosql/__init__.py",
    "spatialnosql/report/page.css",
    "spatialnosql/report/page.js",
    "spark_jobs/__init__.py",
)
# Run in the new environment: the library must come from there, and need neither Spark nor a browser.
TRY_IMPORTS = """
import pathlib, sys
import spatialnosql, spark_jobs, spatialnosql.city, spatialnosql.cluster, spatialnosql.testing
for module in (spatialnosql, spark_jobs):
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
spatialnosql.city.generate_city(100).neighbourhoods()
assert not any(name.split(".")[0] in ("pyspark", "pyarrow", "playwright", "selenium") for name in sys.modules)
print(spatialnosql.__version__)
"""


class WheelError(Exception):
    """The wheel is not as it should be."""


def build(target: Path) -> Path:
    """Build the wheel into a folder and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    before = set(target.glob("*.whl"))
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)])
    wheels = sorted(target.glob("spatialnosql-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise WheelError(f"no wheel came of the build; there were {len(before)} before")
    return wheels[-1]


def run(command: list[str], **options: str | Path | dict[str, str]) -> str:
    """The output of a command; an error with that output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise WheelError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def check_contents(wheel: Path) -> Message:
    """Look into the wheel: the packages and no more, typed, with its licence; returns its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(metadata_name).decode())
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if tops != PACKAGES:
        raise WheelError(f"the wheel holds {sorted(tops)}, not exactly {sorted(PACKAGES)}")
    missing = [name for name in NEEDED_FILES if name not in names]
    if missing:
        raise WheelError(f"not in the wheel: {', '.join(missing)}")
    if not any("/licenses/" in name for name in names):
        raise WheelError("no licence in the wheel")
    stray = [name for name in names if re.search(r"(^|/)(tests?|benchmarks|__pycache__)/|\.pyc$", name)]
    if stray:
        raise WheelError(f"not for the wheel: {', '.join(stray[:5])}")
    return metadata


def declared(metadata: Message) -> Iterator[str]:
    """The names of the distributions that the wheel needs without extras, with what those need."""
    waiting = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.lower() not in seen:
            seen.add(requirement.name.lower())
            yield requirement.name
            waiting += [Requirement(text) for text in importlib.metadata.requires(requirement.name) or []]


def link_dependencies(metadata: Message, site_packages: Path) -> None:
    """Give the new environment the declared distributions, as links to the ones installed here."""
    for name in declared(metadata):
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or [] if ".." not in Path(file).parts}:
            link = site_packages / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(str(distribution.locate_file(top)))


def try_wheel(wheel: Path, metadata: Message, folder: Path) -> str:
    """Install the wheel into an empty environment and use it there; returns the version it reports."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)])
    link_dependencies(metadata, site_packages)
    # Nothing of the caller's may help: neither its path nor its working folder.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }
    imported = run([str(python), "-c", TRY_IMPORTS], cwd=folder, env=environment).strip()
    shown = run([str(folder / "bin" / "spatialnosql"), "--version"], cwd=folder, env=environment).strip()
    if not imported == metadata["Version"] == shown.removeprefix("spatialnosql "):
        raise WheelError(f"versions differ: wheel {metadata['Version']}, import {imported}, command {shown}")
    return imported


def main() -> int:
    """Build into dist/ (or the folder given), look into it, try it."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    folder = Path(tempfile.mkdtemp(prefix="spatialnosql-wheel-"))
    try:
        wheel = build(target)
        metadata = check_contents(wheel)
        version = try_wheel(wheel, metadata, folder)
    except WheelError as error:
        print(f"check_wheel: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{wheel.name}: version {version} installs, imports and runs with {', '.join(declared(metadata))} only"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
