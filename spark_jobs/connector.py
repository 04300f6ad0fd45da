"""The MongoDB Spark Connector: pinned, fetched once, checked by SHA-256, then used from the cache, offline.

Spark's ``spark.jars.packages`` would ask its repositories at every start and take any driver of the range
that the connector's own description allows. So the five jars are named here one by one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from spark_jobs.java import find_java
from spatialnosql.errors import DownloadError

TIMEOUT_S = 600
PROVIDER_CLASS = "com.mongodb.spark.sql.connector.MongoTableProvider"


@dataclass(frozen=True)
class Jar:
    """One pinned jar, by its Maven coordinates."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """What repositories and the cache call it."""
        return f"{self.name}-{self.version}.jar"


CONNECTOR = Jar(
    "org.mongodb.spark",
    "mongo-spark-connector_2.13",
    "10.5.0",
    "6617a1fa42fdb93a0a921b7822f458492bf8d695d57f34a321d8a1b7976c0627",
)
JARS = (
    CONNECTOR,
    Jar(
        "org.mongodb",
        "mongodb-driver-sync",
        "5.1.4",
        "341880078296edd762756440e9d6b1d6d2bf4d6b91975c2638e3da611f28b1c2",
    ),
    Jar(
        "org.mongodb",
        "mongodb-driver-core",
        "5.1.4",
        "ae3dbfd439d5afe9e0d6abbd61ef27d858ca2d38083bb7361f69e243aff31dec",
    ),
    Jar("org.mongodb", "bson", "5.1.4", "bba556a8acd4e87545c1b9a1cb25c12ce9587ed5bf01685f236c5d92abf1e676"),
    Jar(
        "org.mongodb",
        "bson-record-codec",
        "5.1.4",
        "698b2b9a10fdd49a3ed99ad2b7bcc8e797639c8c4a5c974de7f6fc8654bda655",
    ),
)


def connector_jars() -> list[Path]:
    """The connector's jars in the cache, hashes checked; fetched first if they are not there."""
    # Here and not above: the package imports pymongo, which a Spark that brings its own jars may not have.
    from spatialnosql.cluster.folders import cache_folder, locked

    folder = cache_folder() / "spark" / f"connector-{CONNECTOR.version}"
    with locked(folder.with_name(f"{folder.name}.lock")):
        if wrong_jars(folder):
            _fetch(folder)
    return [folder / jar.file_name for jar in JARS]


def wrong_jars(folder: Path) -> list[str]:
    """What is missing from a folder or is not what was pinned."""
    return [jar.file_name for jar in JARS if _sha256(folder / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _fetch(folder: Path) -> None:
    """Fill the folder with the pinned jars, by the first client that brings them."""
    print(f"fetching the MongoDB Spark Connector {CONNECTOR.version} (3 MB), once ...", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        for client, command in _commands(Path(scratch)):
            fetched = Path(scratch) / "jars"
            shutil.rmtree(fetched, ignore_errors=True)
            failure = _run(command, Path(scratch)) or ", ".join(wrong_jars(fetched))
            if not failure:
                # One rename a jar: whoever is killed here leaves whole jars, and the rest is fetched again.
                for jar in JARS:
                    (fetched / jar.file_name).replace(folder / jar.file_name)
                return
            failures.append(f"{client}: {failure}")
    raise DownloadError(
        f"the MongoDB Spark Connector could not be fetched ({'; '.join(failures)}); connect this machine to "
        f"a Maven repository once (mirrors: settings.xml, proxies: JAVA_TOOL_OPTIONS), copy {folder} from "
        "one that has it, or name your own jars with --spark-conf spark.jars=..."
    )


def _run(command: list[str], scratch: Path) -> str:
    """Run a client and say in a few words how it failed, or nothing; its own output is pages long."""
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    except OSError as error:
        return str(error)
    return f"exit code {done.returncode}" if done.returncode else ""


def _commands(scratch: Path) -> Iterator[tuple[str, list[str]]]:
    """The clients that may bring the jars, best first; each knows its repositories itself."""
    maven = shutil.which("mvn")
    configured = (Path.home() / ".m2" / "settings.xml").is_file()
    # Who has Maven settings has mirrors in them, and no other way out.
    if maven and configured:
        yield "Maven", _maven_command(maven, scratch)
    yield "Ivy", _ivy_command(scratch)
    if maven and not configured:
        yield "Maven", _maven_command(maven, scratch)


def _ivy_command(scratch: Path) -> list[str]:
    """Spark's own Ivy, without Spark: the five jars and nothing they depend on."""
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" conf="default->master"/>'
        for jar in JARS
    )
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="spatialnosql" module="connector"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    ivy = next(Path(_find_spark_home()).glob("jars/ivy-*.jar"), Path("ivy.jar"))
    pattern = f"jars{os.sep}[artifact]-[revision].[ext]"
    return [
        *(find_java(), "-jar", str(ivy), "-ivy", "ivy.xml", "-cache", "ivy-cache"),
        *("-retrieve", pattern, "-confs", "default"),
    ]


def _maven_command(maven: str, scratch: Path) -> list[str]:
    """The same with Maven, for machines whose mirrors only Maven knows."""
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version></dependency>"
        for jar in JARS
    )
    (scratch / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>spatialnosql</groupId>"
        "<artifactId>connector</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    return [
        *(maven, "--batch-mode", "--quiet", "dependency:copy-dependencies"),
        *("-DexcludeTransitive=true", "-DoutputDirectory=jars"),
    ]
