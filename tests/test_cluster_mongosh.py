"""mongosh: pinned by the lock file, installed once, run against the cluster."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from spatialnosql.cluster import mongosh
from spatialnosql.errors import DownloadError, MissingProgram


def test_the_lock_pins_every_file_and_has_no_address():
    text = (mongosh.LOCK / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    wanted = packages.pop("")["dependencies"]
    assert wanted == json.loads((mongosh.LOCK / "package.json").read_text())["dependencies"]
    assert len(packages) > 100
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "://" not in text


def test_the_launcher_survives_odd_paths_and_follows_node(tmp_path):
    folder = tmp_path / "it's here"
    script = folder / "node_modules" / "mongosh" / "bin" / "mongosh.js"
    script.parent.mkdir(parents=True)
    script.write_text("ran: $1")
    for node in ("/bin/cat", "/bin/ls"):
        launcher = mongosh.write_launcher(folder, mongosh.Path(node))
        assert node in launcher.read_text()
    launcher = mongosh.write_launcher(folder, mongosh.Path("/bin/cat"))
    assert subprocess.run([launcher], capture_output=True, text=True, check=True).stdout == "ran: $1"
    assert sorted(path.name for path in folder.iterdir()) == ["mongosh", "node_modules"]


def test_a_failed_install_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(mongosh, "find_node", lambda: mongosh.Path("/bin/true"))
    monkeypatch.setattr(mongosh, "npm_commands", lambda: [["/bin/false"]])
    with pytest.raises(
        DownloadError, match=r"mongosh cannot be fetched with npm: it said nothing; .*on the PATH"
    ):
        mongosh.find_mongosh()
    assert [path.name for path in (tmp_path / "programs").iterdir()] == ["lock"]


def test_no_node_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingProgram, match=r"needs Node 20 or newer; .*spatialnosql\[cluster\]"):
        mongosh.find_mongosh()


def test_mongosh_talks_to_the_cluster(cluster):
    try:
        program = mongosh.find_mongosh()
    except (DownloadError, MissingProgram) as error:
        pytest.skip(f"no mongosh: {error}")
    code = "print(db.adminCommand({listShards: 1}).shards.length)"
    command = [program, cluster.uri, "--quiet", "--norc", "--eval", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert int(result.stdout) >= 1
