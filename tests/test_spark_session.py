"""Sessions: which settings win, which Java, and the connector from the cache."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_options import QUICK_START

from spark_jobs import connector, session
from spark_jobs.java import find_java, java_version
from spark_jobs.session import build_session
from spatialnosql.errors import DownloadError, MissingProgram, SpatialNoSQLError


def fake_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25)])
def test_java_versions(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(str(fake_java(tmp_path, text))) == major


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingProgram, match="is Java 11, and Spark needs 17 or newer"):
        find_java()


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingProgram, match="no bin/java in it"):
        find_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="there is none on the PATH"):
        find_java()


def test_a_java_that_only_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingProgram, match="does not say which version"):
        find_java()


@pytest.mark.parametrize(("physical", "share"), [(1000, 1024), (16_000, 4000), (512_000, 8192)])
def test_memory_fits_the_machine(physical: int, share: int) -> None:
    assert session.local_memory_mb(physical) == share


def test_settings_of_the_command_line() -> None:
    parser = argparse.ArgumentParser()
    session.add_spark_arguments(parser)
    args = parser.parse_args(
        ["--driver-memory", "3g", "--spark-conf", "spark.a=b=c", "--spark-conf", "spark.d=e"]
    )
    assert session.session_config(args) == {
        "spark.driver.memory": "3g", "spark.a": "b=c", "spark.d": "e"
    }  # fmt: skip


@pytest.mark.parametrize("text", ["spark.a", "a=b"])
def test_a_setting_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    session.add_spark_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--spark-conf", text])
    assert "not of the form spark.KEY=VALUE" in capsys.readouterr().err


def test_the_users_spark_defaults_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["# spark.no 1", "spark.master  spark://there:7077", "spark.driver.memory=2g", "spark.flag"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._spark_defaults() == {"spark.master": "spark://there:7077", "spark.driver.memory": "2g"}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.mark.spark
def test_a_local_session(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable == spark.sparkContext.pythonExec


@pytest.mark.spark
def test_errors_of_spark_are_one_line_without_credentials(spark: SparkSession) -> None:
    with (
        pytest.raises(SpatialNoSQLError, match=r"^Spark: .*mongodb://\*\*\*@") as caught,
        session.spark_errors(),
    ):
        spark.sql("SELECT raise_error('no way to mongodb://me:secret@there/')").collect()
    assert "\n" not in str(caught.value)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPATIALNOSQL_CACHE", str(tmp_path))
    return tmp_path


def small_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two little files in the place of the jars, so that nothing is fetched."""
    jars = tuple(
        connector.Jar("group", name, "1", hashlib.sha256(name.encode()).hexdigest())
        for name in ("one", "two")
    )
    monkeypatch.setattr(connector, "JARS", jars)


def client(script: str) -> list[str]:
    return ["sh", "-c", f"mkdir -p jars && {script}"]


GOOD = client("printf one > jars/one-1.jar; printf two > jars/two-1.jar")
WRONG = client("printf one > jars/one-1.jar; printf evil > jars/two-1.jar")
FAILS = client("exit 3")


def test_jars_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_jars(monkeypatch)
    monkeypatch.setattr(connector, "_commands", lambda scratch: iter([("a", FAILS), ("b", GOOD)]))
    first = connector.connector_jars()
    assert [path.read_text() for path in first] == ["one", "two"]
    monkeypatch.setattr(connector, "_commands", lambda scratch: pytest.fail("fetched twice"))
    assert connector.connector_jars() == first
    assert [path.name for path in (cache / "spark").iterdir() if path.name.startswith("tmp")] == []


def test_a_damaged_jar_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_jars(monkeypatch)
    monkeypatch.setattr(connector, "_commands", lambda scratch: iter([("a", GOOD)]))
    connector.connector_jars()[1].write_text("half")
    assert connector.connector_jars()[1].read_text() == "two"


def test_what_is_not_pinned_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_jars(monkeypatch)
    monkeypatch.setattr(connector, "_commands", lambda scratch: iter([("a", FAILS), ("b", WRONG)]))
    with pytest.raises(DownloadError, match=r"a: exit code 3; b: two-1.jar"):
        connector.connector_jars()
    assert list(cache.rglob("*.jar")) == []


@pytest.mark.spark
def test_the_real_jars_are_the_pinned_ones() -> None:
    jars = connector.connector_jars()
    assert len(jars) == 5
    assert connector.wrong_jars(jars[0].parent) == []


def test_who_has_maven_settings_uses_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connector.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert [name for name, _ in connector._commands(tmp_path)] == ["Ivy", "Maven"]
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").touch()
    assert [name for name, _ in connector._commands(tmp_path)] == ["Maven", "Ivy"]
