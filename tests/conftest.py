"""One sharded MongoDB for the whole run, one fresh database for each test."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from spatialnosql.cluster import LocalCluster
from spatialnosql.cluster.programs import Programs, find_programs
from spatialnosql.errors import DownloadError, MissingProgram

TEST_URI_VARIABLE = "SPATIALNOSQL_TEST_URI"
MONGO_FIXTURES = {"cluster", "client", "database", "programs"}
TALLY = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option, for long runs of the tests that compare with the server."""
    parser.addoption(
        "--examples",
        type=int,
        default=2000,
        metavar="N",
        help="random shapes that are compared with the server (default: 2000)",
    )


@pytest.fixture(scope="session")
def examples(pytestconfig: pytest.Config) -> int:
    """How many random shapes to compare with the server."""
    return int(pytestconfig.getoption("--examples"))


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Counter[str]:
    """Counts of what was tried, printed at the end of the run."""
    return pytestconfig.stash.setdefault(TALLY, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was tried: a proof by examples is worth as much as its examples."""
    tried = config.stash.get(TALLY, None)
    if tried:
        terminalreporter.section("tried")
        for name, count in tried.items():
            terminalreporter.write_line(f"{count:>12,}  {name}")


class GivenCluster:
    """A deployment that somebody else runs, in the place of a LocalCluster."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.pids: dict[str, int] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the cluster, so that ``-m 'not mongo'`` leaves out all of them."""
    for item in items:
        if MONGO_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.mongo)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI a skip is a failure: what was not run was not tested."""
    report: pytest.TestReport = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"in CI a skip is a failure: {item.nodeid}: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a module that skips itself while it is imported (``pytest.importorskip``)."""
    report: pytest.CollectReport = yield
    if os.environ.get("CI") and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"in CI a skip is a failure: {collector.nodeid}: {reason}"
    return report


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The servers themselves, for tests that start their own."""
    try:
        return find_programs()
    except (DownloadError, MissingProgram) as error:
        # Only "cannot be had" is a reason to skip; a cluster that does not start is a failure.
        pytest.skip(f"no MongoDB: {error}")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster | GivenCluster]:
    """The sharded MongoDB of this run: started for it, or the one of SPATIALNOSQL_TEST_URI.

    When the run is interrupted the fixture ends it; when the run is killed, the cluster's own guard does.
    """
    given = os.environ.get(TEST_URI_VARIABLE)
    if given:
        yield GivenCluster(given)
        return
    request.getfixturevalue("programs")
    with LocalCluster(shards=3) as local:
        yield local


@pytest.fixture(scope="session")
def client(cluster: LocalCluster | GivenCluster) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of the run's cluster."""
    with MongoClient[dict[str, Any]](cluster.uri, serverSelectionTimeoutMS=10_000) as connected:
        yield connected


@pytest.fixture
def database(client: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """A database of this test alone, dropped afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    try:
        yield client[name]
    finally:
        client.drop_database(name)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """An empty folder for files that a stream reads."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder
