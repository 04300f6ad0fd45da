"""docker-compose.yml by its key lines, and its init step on real servers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pymongo import MongoClient

from spatialnosql.cluster.mongosh import find_mongosh
from spatialnosql.cluster.process import free_port
from spatialnosql.cluster.programs import Programs

ROOT = Path(__file__).resolve().parents[1]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
INIT = ROOT / "docker" / "init-cluster.js"


def services() -> dict[str, str]:
    """The text of each service: what is indented below its name."""
    body = COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    parts = re.split(r"^  ([a-z0-9-]+):\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_service_is_there() -> None:
    assert set(services()) == {
        "config", "shard1", "shard2", "shard3", "mongos", "init", "spark-master", "spark-worker"
    }  # fmt: skip


def test_images_are_pinned_and_safe() -> None:
    images = set(re.findall(r"image: (\S+)", COMPOSE))
    assert len(images) == 2
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in images)
    mongo = next(image for image in images if image.startswith("mongo:"))
    # 8.2.3 is the first of 8.2 without CVE-2025-14847.
    assert tuple(int(part) for part in mongo.removeprefix("mongo:").split(".")) >= (8, 2, 3)


def test_every_server_leaves_out_zlib() -> None:
    servers = [
        text for text in services().values() if re.search(r"^ +(mongod|mongos) --", text, re.MULTILINE)
    ]
    assert len(servers) == 5
    assert all("--networkMessageCompressors snappy,zstd" in text for text in servers)


def test_ports_are_published_on_loopback_only() -> None:
    published = [
        line.strip()
        for text in services().values()
        for block in re.findall(r"^    ports:\n((?:      - .*\n)+)", text, re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(published) == 2
    assert all(line.startswith('- "127.0.0.1:') for line in published)


def test_every_lasting_service_is_checked_and_restarted() -> None:
    shared = COMPOSE.partition("\nservices:\n")[0]
    assert shared.count("restart: unless-stopped") == 2
    assert "healthcheck: &mongo-health" in shared
    for name, text in services().items():
        if name == "init":
            assert "restart: on-failure" in text
        elif "<<: *spark" in text:
            assert "healthcheck:" in text, name
        else:
            assert "<<: *mongo" in text, name


def test_volumes_are_declared() -> None:
    used = set(re.findall(r"- ([a-z0-9-]+):/data/db", COMPOSE))
    assert used == set(re.findall(r"^  ([a-z0-9-]+):$", COMPOSE.partition("\nvolumes:\n")[2], re.MULTILINE))
    assert len(used) == 4


def test_mounted_files_exist() -> None:
    mounted = re.findall(r"- \./(\S+?):/", COMPOSE)
    assert len(mounted) == 3
    assert all((ROOT / path).exists() for path in mounted)


def test_dependencies_name_services_and_conditions() -> None:
    pairs = re.findall(r"^      ([a-z0-9-]+):\n        condition: (\w+)$", COMPOSE, re.MULTILINE)
    assert {name for name, _ in pairs} <= set(services())
    assert {condition for _, condition in pairs} <= {
        "service_healthy", "service_started", "service_completed_successfully"
    }  # fmt: skip
    # Without one that waits for its end, `up --wait` takes the finished init step for a failure.
    assert ("init", "service_completed_successfully") in pairs


def test_the_init_step_knows_the_servers_by_their_names() -> None:
    script = INIT.read_text()
    for name in ("config", "shard1", "shard2", "shard3"):
        replica_set = re.search(r"--replSet (\S+)", services()[name])
        assert replica_set
        assert f"{replica_set[1]}/{name}:27017" in script


@contextmanager
def server(command: list[str], programs: Programs, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **programs.environment}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def initialise(config: int, shards: list[int], mongos: int) -> str:
    hosts = {
        "CONFIG": f"configRepl/127.0.0.1:{config}",
        "SHARDS": ",".join(f"shard{n}/127.0.0.1:{port}" for n, port in enumerate(shards, 1)),
        "MONGOS": f"127.0.0.1:{mongos}",
    }
    done = subprocess.run(
        [str(find_mongosh()), "--nodb", "--quiet", "--file", str(INIT)],
        env={**os.environ, **hosts},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.mongo
def test_the_init_step_makes_a_cluster_and_may_run_again(programs: Programs, tmp_path: Path) -> None:
    config, mongos, *shards = (free_port(set()) for _ in range(4))
    common = ["--bind_ip", "127.0.0.1", "--networkMessageCompressors", "snappy,zstd"]
    members = {"configRepl": (config, "--configsvr")}
    members |= {f"shard{n}": (port, "--shardsvr") for n, port in enumerate(shards, 1)}
    with ExitStack() as running:
        for name, (port, role) in members.items():
            (tmp_path / name).mkdir()
            command = [str(programs.mongod), role, "--replSet", name, "--port", str(port), *common]
            command += ["--dbpath", str(tmp_path / name), "--wiredTigerCacheSizeGB", "0.25"]
            running.enter_context(server(command, programs, tmp_path / f"{name}.log"))
        command = [str(programs.mongos), "--configdb", f"configRepl/127.0.0.1:{config}"]
        command += ["--port", str(mongos), *common]
        running.enter_context(server(command, programs, tmp_path / "mongos.log"))
        first = initialise(config, shards, mongos)
        assert "shard1: initiated" in first
        assert "shard2: added" in first
        assert "ready: 2 shards" in first
        assert initialise(config, shards, mongos).split() == ["ready:", "2", "shards"]
        with MongoClient[dict[str, object]](f"mongodb://127.0.0.1:{mongos}") as client:
            client.trial.points.insert_one({"_id": 1})
            assert client.trial.points.count_documents({}) == 1
