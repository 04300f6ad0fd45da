"""The command line: exit codes, one line an error, nothing secret, JSON where asked."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from spatialnosql import __version__, cli
from spatialnosql.errors import ClusterError, MissingProgram, UsageError

# Stands for a command whose run is given by the test.
FAKE = cli.Command("fake", "does what the test says", "tests_fake_command")


@pytest.fixture
def run_fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def call(run: Callable, *arguments: str) -> int:
        module = type(sys)(FAKE.module)
        module.add_arguments = cli.add_common_arguments
        module.run = run
        monkeypatch.setitem(sys.modules, FAKE.module, module)
        monkeypatch.setattr(cli, "COMMANDS", (FAKE,))
        return cli.main(["fake", *arguments])

    return call


def raising(error: BaseException) -> Callable:
    def run(_: object) -> int:
        raise error

    return run


def spatialnosql(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spatialnosql", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_shows_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"\n    {command.name} " in text
    assert "Exit codes" in text
    assert "SPATIALNOSQL_URI" in text


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert f"usage: spatialnosql {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"spatialnosql {__version__}\n"


def test_the_module_is_the_command() -> None:
    assert spatialnosql("--version").stdout == f"spatialnosql {__version__}\n"


def test_nothing_at_all_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: spatialnosql" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["demo", "--nonsense"], ["demo", "--points", "many"]])
def test_wrong_usage_is_2_and_says_why(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_the_commands_own(run_fake: Callable[..., int], code: int) -> None:
    assert run_fake(lambda _: code) == code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UsageError("7 is too many;\n use 6"), "7 is too many; use 6"),
        (ClusterError("no port"), "no port"),
        (MissingProgram("java is not there"), "java is not there"),
        (ServerSelectionTimeoutError("nobody there"), "ServerSelectionTimeoutError: nobody there"),
        (OperationFailure("x", 2, {"errmsg": "bad value"}), "OperationFailure: bad value"),
        (
            FileNotFoundError(2, "No such file", "a.json"),
            "FileNotFoundError: [Errno 2] No such file: 'a.json'",
        ),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"),
            "pyspark.sql is not installed; install it with: pip install 'spatialnosql[spark]'",
        ),
        (ModuleNotFoundError("No module named 'x'", name="x"), "ModuleNotFoundError: No module named 'x'"),
        (OSError(), "OSError: OSError"),
    ],
)
def test_errors_are_one_line(
    run_fake: Callable[..., int], capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    assert run_fake(raising(error)) == 1
    captured = capsys.readouterr()
    assert captured.err == f"spatialnosql: {line}\n"
    assert captured.out == ""


def test_an_error_that_quotes_a_whole_query_is_cut(
    run_fake: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_fake(raising(OperationFailure("x", 2, {"errmsg": "no: " + "1, " * 5000}))) == 1
    assert len(capsys.readouterr().err) < 1000


def test_debug_shows_the_traceback(run_fake: Callable[..., int]) -> None:
    with pytest.raises(UsageError, match="too many"):
        run_fake(raising(UsageError("too many")), "--debug")


def test_a_fault_of_ours_is_never_hidden(run_fake: Callable[..., int]) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_fake(raising(ZeroDivisionError("a bug")))


def test_interruption_is_130(run_fake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_fake(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("password", ["secret", "se@cret", "sec:ret", "sec/ret", "s%40cret", "my secret"])
def test_credentials_never_show_in_errors(
    run_fake: Callable[..., int], capsys: pytest.CaptureFixture[str], password: str
) -> None:
    uri = f"mongodb://ann:{password}@db.example/"
    assert run_fake(raising(ClusterError(f"cannot reach {uri}: timed out"))) == 1
    assert capsys.readouterr().err == "spatialnosql: cannot reach mongodb://***@db.example/: timed out\n"


@pytest.mark.parametrize(
    "password", ["hush", "hu@sh", "hu:sh", "hu/sh", "hu%sh", "hu%zzsh", "hu sh", "hu?sh#"]
)
def test_a_whole_run_shows_no_credentials(password: str) -> None:
    # Nobody listens on port 1; some of these URIs PyMongo cannot even read.
    uri = f"mongodb://ann:{password}@127.0.0.1:1/?serverSelectionTimeoutMS=200"
    done = spatialnosql("demo", "--points", "10", "--uri", uri)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("spatialnosql: ")
    shown = done.stdout + done.stderr
    assert password not in shown
    assert "ann" not in shown.replace("cannot", "")
    assert "Traceback" not in shown


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "spatialnosql", "--help"]
        done = subprocess.run(
            command,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(write)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == 0


def test_json_is_an_option_of_every_command_that_reports(
    run_fake: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def report(args: object) -> int:
        print(json.dumps({"answer": 42}) if args.json else "the answer is 42")
        return 0

    assert run_fake(report, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"answer": 42}
    assert run_fake(report) == 0
    assert capsys.readouterr().out == "the answer is 42\n"


def test_only_the_chosen_command_is_imported() -> None:
    code = (
        "import sys; from spatialnosql import cli; cli.build_parser('cluster');"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'shapely', 'spark_jobs')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
