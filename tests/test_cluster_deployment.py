"""Any deployment by its URI: its kind, and no credentials in what people see."""

from __future__ import annotations

import time
from urllib.parse import quote_plus

import pytest
from processes import mongod
from pymongo import MongoClient

from spatialnosql.cluster import Deployment, connect, describe
from spatialnosql.cluster.deployment import hide
from spatialnosql.cluster.process import free_port
from spatialnosql.errors import ClusterError, UsageError

USER, PASSWORD = "ann@example", "p@ss:w/rd?#%ü&="


def test_sharded(cluster, client):
    found = describe(client)
    assert found.kind == "sharded"
    assert found.is_sharded
    assert found.note() is None
    if cluster.pids:
        assert found.shards == ("shard0", "shard1", "shard2")
        assert found.version == "8.2.0" or found.version.split(".")[0] >= "7"


def test_standalone(programs, tmp_path):
    with mongod(programs, tmp_path / "data") as port, connect(f"mongodb://127.0.0.1:{port}/") as client:
        found = describe(client)
    assert (found.kind, found.shards) == ("standalone", ())
    assert found.note() == (
        "This MongoDB is a standalone, not sharded: prefilters still help, placement does not apply."
    )


def test_replica_set_with_a_difficult_password(programs, tmp_path):
    key = tmp_path / "key"
    key.write_text("c3BhdGlhbG5vc3Fs" * 4)
    key.chmod(0o400)
    with mongod(programs, tmp_path / "data", "--replSet", "rs", "--auth", "--keyFile", key) as port:
        with MongoClient("127.0.0.1", port, directConnection=True) as client:
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            client.admin.command("replSetInitiate", {"_id": "rs", "members": members})
            deadline = time.monotonic() + 20
            while not client.admin.command("hello")["isWritablePrimary"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            client.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
        uri = f"mongodb://{quote_plus(USER)}:{quote_plus(PASSWORD)}@127.0.0.1:{port}/?replicaSet=rs"
        with connect(uri) as client:
            assert describe(client).kind == "replica set"
            client.some.points.insert_one({"_id": 1})
        with (
            connect(uri.replace(quote_plus(PASSWORD), "wrong-secret")) as client,
            pytest.raises(ClusterError, match="refuses the user or password") as caught,
        ):
            describe(client)
        assert "secret" not in str(caught.value)


def test_nobody_answers():
    uri = f"mongodb://ann:secret@127.0.0.1:{free_port(set())}/?serverSelectionTimeoutMS=100"
    with (
        connect(uri) as client,
        pytest.raises(ClusterError, match=r"no MongoDB answers: 127.0.0.1:.*refused") as caught,
    ):
        describe(client)
    assert "secret" not in str(caught.value)
    assert "Topology" not in str(caught.value)


def test_the_uri_has_the_last_word():
    with connect("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=77&appName=mine") as client:
        assert client.options.server_selection_timeout == 0.077
        assert client.options.pool_options.appname == "mine"
    with connect("mongodb://127.0.0.1:1/") as client:
        assert client.options.server_selection_timeout == 10
        assert client.options.pool_options.appname == "spatialnosql"
    with connect("mongodb://127.0.0.1:1/?tls=true&replicaSet=rs") as client:
        assert client.options.replica_set_name == "rs"


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://ann:se@cret@host:99999/",
        "mongodb://ann:secret@host:port/",
        "mongodb://ann:sec:ret@host/",
        "mongodb://ann:sec/ret@host/",
        "mongodb://ann:sec%ret@host/",
        "mongodb://ann:secret@/",
        "mongodb+srv://ann:secret@a.b.example:27017/",
    ],
)
def test_no_part_of_a_password_is_shown(uri):
    with pytest.raises(UsageError, match="not a usable MongoDB URI") as caught:
        connect(uri)
    assert caught.value.__suppress_context__
    for part in ("secret", "cret", "sec", "ret@", "ann"):
        assert part not in str(caught.value)


def test_hide():
    assert hide("mongodb://ann:a/b@c@host:1/db?x=1") == "mongodb://***@host:1/db?x=1"
    assert hide("mongodb://host/db") == "mongodb://host/db"


def test_deployment_is_a_value():
    assert Deployment("sharded", "8.2.0", ("a",)) == Deployment("sharded", "8.2.0", ("a",))
    assert "replica set, not sharded" in str(Deployment("replica set", "8.0.1").note())
