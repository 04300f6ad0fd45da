"""Existing collections made spatial in place: every shape of them, interrupted anywhere, under writes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, WriteError

from spatialnosql.adopt import STEPS, adopt
from spatialnosql.analyze import analyze
from spatialnosql.cli import main
from spatialnosql.cluster.process import free_port
from spatialnosql.errors import UsageError
from spatialnosql.geohash import point_to_geohash
from spatialnosql.metadata import load_info
from spatialnosql.sharding import assign, shard_key
from spatialnosql.steps import run
from spatialnosql.testing import points_to_documents
from spatialnosql.verify import verify

RNG = np.random.default_rng(11)
LNG = np.concatenate([RNG.normal(9.9, 0.05, 2_500), RNG.uniform(-170, 170, 500)])
LAT = np.concatenate([RNG.normal(53.5, 0.05, 2_500), RNG.uniform(-80, 80, 500)])
POLYGON = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
KEY = {"gh": 1, "_id": 1}


@pytest.fixture
def points(database, client):
    database.points.insert_many(points_to_documents(LNG, LAT))
    yield database.points
    client["spatialnosql"]["collections"].delete_many({"_id": {"$regex": f"^{database.name}"}})


def stored(points) -> dict:
    return points.database.client["spatialnosql"]["collections"].find_one({"_id": points.full_name})


def assert_adopted(points, documents: int = len(LNG), *, sharded: bool = True) -> None:
    found = points.find().to_list()
    assert len({document["_id"] for document in found}) == len(found) == documents
    for document in found:
        assert document["gh"] == point_to_geohash(*document["loc"]["coordinates"])
    info = run(load_info(points))
    assert info.why_not is None
    assert info.gh_index
    assert info.nears_on_sphere
    assert info.histogram.total == documents
    assert "balancing" not in stored(points)
    if sharded:
        assert shard_key(points) == KEY
        assert len(info.shards) == 3
        loads = [points.count_documents({"gh": {"$gte": r.lo, "$lt": r.hi}}) for r in info.shards]
        assert sum(loads) == documents
        assert max(loads) <= 1.15 * documents / 3


def test_an_unsharded_collection(points) -> None:
    adoption = adopt(points, "loc")
    assert_adopted(points)
    assert [step.name for step in adoption.steps] == [name for name, _ in STEPS]
    assert adoption.form == "geojson"
    assert adoption.forms["GeoJSON point"] == 3_000
    assert sum(adoption.shards.values()) == 3_000
    assert max(adoption.shards.values()) <= 1_150
    entry = stored(points)
    assert (entry["state"], entry["validator"], entry["unhashed"]) == ("ready", True, False)
    assert entry["precision"]["bits"] == adoption.choice.bits
    with pytest.raises(WriteError) as refusal:
        points.insert_one({"loc": {"type": "Point", "coordinates": [1, 2]}})
    assert refusal.value.code == 121
    # Again: nothing to do, and ready all the while.
    again = adopt(points, "loc")
    words = {step.name: step.words for step in again.steps}
    assert (words["hash"], words["validate"]) == ("done before", "there already")
    assert "left as it is" in words["shard"]
    assert_adopted(points)


@pytest.mark.parametrize("key", [{"_id": "hashed"}, {"gh": 1}])
def test_a_collection_sharded_otherwise(database, client, key) -> None:
    points = database.points
    client.admin.command("shardCollection", points.full_name, key=key)
    points.insert_many(points_to_documents(LNG[:400], LAT[:400]))
    adoption = adopt(points, "loc")
    how = "resharded from {_id}" if "_id" in key else "refined"
    assert how in next(step.words for step in adoption.steps if step.name == "shard")
    assert_adopted(points, 400)
    client["spatialnosql"]["collections"].delete_one({"_id": points.full_name})


def test_one_place_with_most_documents_is_parted_by_id_when_asked(database, client) -> None:
    points = database.points
    points.insert_many(points_to_documents([9.9] * 900 + [1.0] * 50, [53.5] * 900 + [2.0] * 50))
    adopt(points, "loc", shard=False)
    # Sharded by geohash already: somebody's own placement, left alone.
    client.admin.command("shardCollection", points.full_name, key=KEY)
    assert sorted(adopt(points, "loc").shards.values()) == [0, 0, 950]
    adoption = adopt(points, "loc", rebalance=True)
    assert len(adoption.shards) == 3
    assert max(adoption.shards.values()) <= 350
    assert points.count_documents({}) == 950
    client["spatialnosql"]["collections"].delete_one({"_id": points.full_name})


def test_a_dry_run_changes_nothing(points, cluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = points.find().sort("_id").to_list()
    assert main(["adopt", points.full_name, "--location", "loc", "--dry-run", "--uri", cluster.uri]) == 0
    text = capsys.readouterr().out
    assert "would give up to 3,000 documents their gh" in text
    assert "would shard by {gh, _id}" in text
    assert "Precision: " in text
    assert "Nothing was changed." in text
    assert points.find().sort("_id").to_list() == before
    assert stored(points) is None
    assert [index["name"] for index in points.list_indexes()] == ["_id_"]
    assert shard_key(points) is None
    assert points.options() == {}


def test_the_command(points, cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["adopt", points.full_name, "--location", "loc", "--no-shard", "--json", "--uri", cluster.uri])
        == 0
    )
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert [step["name"] for step in facts["steps"]] == [name for name, _ in STEPS]
    assert facts["verification"]["sound"] is True
    assert "geohashing" in told.err
    assert_adopted(points, sharded=False)
    assert main(["adopt", points.full_name, "--location", "place", "--uri", cluster.uri]) == 1
    assert "adopted with location 'loc'" in capsys.readouterr().err


def test_without_validator_shards_or_the_name_gh(points) -> None:
    points.create_index("name", unique=True, sparse=True)
    points.update_many({}, {"$set": {"gh": 7}})
    with pytest.raises(UsageError, match="unique index name_1"):
        adopt(points, "loc")
    with pytest.raises(UsageError, match=r"--gh NAME"):
        adopt(points, "loc", shard=False)
    assert stored(points) is None
    adopt(points, "loc", gh="hash", shard=False, validator=False)
    assert points.count_documents({"gh": 7}) == 3_000
    assert points.options() == {}
    assert shard_key(points) is None
    assert "validator" in run(load_info(points)).why_not
    info = run(load_info(points, trust_gh=True))
    assert (info.why_not, info.gh) == (None, "hash")
    points.insert_one({"loc": {"type": "Point", "coordinates": [1, 2]}})
    # The validator later: what was written without it is mended first.
    adopt(points, "loc", gh="hash", shard=False)
    assert run(load_info(points)).why_not is None
    assert points.count_documents({"hash": None}) == 0


def test_a_field_of_another_meaning_may_be_replaced(points) -> None:
    points.update_many({}, {"$set": {"gh": "u00000000000"}})
    with pytest.raises(UsageError, match=r"--replace-gh"):
        adopt(points, "loc")
    adopt(points, "loc", replace_gh=True, shard=False)
    assert_adopted(points, sharded=False)


@pytest.mark.parametrize(
    ("locations", "form"),
    [
        ([[1.5, 2.5], {"lng": 3, "lat": 4}], "legacy"),
        ([[1.5, 2.5], {"type": "Point", "coordinates": [3, 4]}, None], "any"),
        ([{"type": "Point", "coordinates": [3, 4]}, None], "geojson"),
    ],
)
def test_how_points_are_written(database, client, locations: list, form: str) -> None:
    points = database.points
    points.insert_many([{"a": {"loc": location}} for location in locations for _ in range(3)])
    adoption = adopt(points, "a.loc", shard=False)
    assert adoption.form == form
    assert points.count_documents({"gh": {"$type": "string"}}) == 3 * sum(
        place is not None for place in locations
    )
    # A form that the validator does not take yet replaces it, and does not pile up.
    points.insert_one({"a": {"loc": [9, 9]}}, bypass_document_validation=True)
    points.insert_one(
        {"a": {"loc": {"type": "Point", "coordinates": [3, 4]}}}, bypass_document_validation=True
    )
    assert adopt(points, "a.loc", shard=False).form == "any"
    assert run(load_info(points)).why_not is None
    assert "$and" not in points.options()["validator"]
    client["spatialnosql"]["collections"].delete_one({"_id": points.full_name})


def test_locations_that_are_no_points(points) -> None:
    points.insert_many([{"_id": "area", "loc": POLYGON}, {"_id": "two", "loc": [[1, 2], [3, 4]]}])
    with pytest.raises(UsageError, match=r"2 of 3,002 documents .*'area', 'two'.*--allow-unhashed"):
        adopt(points, "loc")
    assert stored(points) is None
    assert points.count_documents({"gh": {"$exists": True}}) == 0
    assert adopt(points, "loc", allow_unhashed=True, shard=False).unhashed
    info = run(load_info(points))
    assert (info.unhashed, info.why_not, info.histogram.total) == (True, None, 3_000)
    assert points.count_documents({"gh": None}) == 2
    points.insert_one({"_id": "later", "loc": POLYGON})


def test_what_cannot_be_adopted(database, client) -> None:
    with pytest.raises(UsageError, match="there is no collection"):
        adopt(database.nothing, "loc")
    database.plain.insert_one({"place": [1, 2]})
    with pytest.raises(UsageError, match=r"no document .* has a field 'loc'"):
        adopt(database.plain, "loc")
    database.command("create", "view", viewOn="plain", pipeline=[])
    database.create_collection("capped", capped=True, size=4096)
    database.create_collection("series", timeseries={"timeField": "t"})
    database.create_collection("german", collation={"locale": "de"})
    database.create_collection("warned", validator={"a": 1}, validationAction="warn")
    for name, words in [
        ("view", "is a view"),
        ("capped", "is a capped collection"),
        ("series", "is a timeseries"),
        ("german", "collation 'de'"),
        ("warned", "--no-validator"),
    ]:
        with pytest.raises(UsageError, match=words):
            adopt(database[name], "loc")
    assert (
        client["spatialnosql"]["collections"].count_documents({"_id": {"$regex": f"^{database.name}"}}) == 0
    )


def test_the_users_own_validator_stays(points) -> None:
    theirs = {"name": {"$ne": "forbidden"}}
    points.database.command("collMod", "points", validator=theirs)
    adopt(points, "loc", shard=False)
    adopt(points, "loc", shard=False)
    parts = points.options()["validator"]["$and"]
    assert parts[0] == theirs
    assert len(parts) == 2
    assert run(load_info(points)).why_not is None
    right = {"loc": {"type": "Point", "coordinates": [1, 2]}, "gh": point_to_geohash(1, 2)}
    points.insert_one({**right, "name": "allowed"})
    for wrong in ({**right, "name": "forbidden"}, {**right, "gh": "0"}):
        with pytest.raises(WriteError):
            points.insert_one(wrong)


@pytest.mark.parametrize("kind", ["standalone", "replica set"])
def test_a_deployment_without_shards(programs, tmp_path, kind: str) -> None:
    port = free_port(set())
    command = [str(programs.mongod), "--port", str(port), "--bind_ip", "127.0.0.1", "--dbpath", str(tmp_path)]
    command += ["--replSet", "one"] if kind == "replica set" else []
    environment = {**os.environ, "LC_ALL": "C", **programs.environment}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*command, "--wiredTigerCacheSizeGB", "0.25"], env=environment, **quiet)
    try:
        with MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=60_000) as client:
            if kind == "replica set":
                members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
                client.admin.command("replSetInitiate", {"_id": "one", "members": members})
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.05)
            points = client.city.trips
            points.insert_many(points_to_documents(LNG, LAT))
            adoption = adopt(points, "loc")
            assert f"a {kind}, not sharded" in next(s.words for s in adoption.steps if s.name == "shard")
            assert adoption.shards == {"all": 3_000}
            assert_adopted(points, sharded=False)
            points.update_many({}, {"$inc": {"loc.coordinates.0": 1}}, bypass_document_validation=True)
            assert verify(points, repair=True).is_sound
            assert analyze(points).documents == 3_000
            assert_adopted(points, sharded=False)
    finally:
        server.kill()
        server.wait()


# -- interrupted ------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pymongo import MongoClient
from spatialnosql import adopt as module, sharding
uri, database, where = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
kind, _, name = where.partition(" ")
if kind == "after":
    done = dict(module.STEPS)[name]
    module.STEPS = tuple((s, f if s != name else lambda work: (done(work), die())) for s, f in module.STEPS)
elif kind == "batch":
    module.BATCH = 500
    update, left = module.update_anyway, [3]
    def counted(*arguments):
        left[0] -= 1
        return update(*arguments) if left[0] else die()
    module.update_anyway = counted
elif kind == "move":
    move, left = sharding.move_range, [2]
    def moved(*arguments):
        left[0] -= 1
        return move(*arguments) if left[0] else die()
    sharding.move_range = moved
module.adopt(MongoClient(uri)[database].points, "loc")
"""


def killed(cluster, points, where: str) -> None:
    arguments = [sys.executable, "-c", KILLED, cluster.uri, points.database.name, where]
    done = subprocess.run(arguments, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_killed_again_and_again_and_finished_by_the_last_run(points, cluster) -> None:
    progress = []
    for where in (
        "batch",
        "after hash",
        "after index",
        "after analyze",
        "move",
        "after shard",
        "after validate",
    ):
        killed(cluster, points, where)
        assert stored(points)["state"] == "adopting"
        assert "adopted" in run(load_info(points)).why_not
        progress.append(points.count_documents({"gh": {"$exists": True}}))
        if where == "move":
            assert shard_key(points) == KEY
            assert stored(points)["balancing"] is True
        elif where == "after shard":
            assert "balancing" not in stored(points)
    assert progress == [1_000, *[3_000] * 6]  # two batches of 500, and nothing lost after that
    killed(cluster, points, "after verify")  # ready, but not yet noted as a step
    adopt(points, "loc")
    assert_adopted(points)


def test_killed_while_the_servers_reshard(database, client, cluster) -> None:
    points = database.points
    client.admin.command("shardCollection", points.full_name, key={"_id": "hashed"})
    points.insert_many(points_to_documents(LNG, LAT))
    arguments = [sys.executable, "-c", KILLED, cluster.uri, database.name, "nowhere"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    operations = client["config"]["reshardingOperations"]
    end = time.monotonic() + 60
    while not operations.count_documents({"ns": points.full_name}):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    adopt(points, "loc")
    assert_adopted(points)
    client["spatialnosql"]["collections"].delete_one({"_id": points.full_name})


# -- under writes -----------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Inserts and moves points with plain pymongo, and remembers what the server took."""

    def __init__(self, points) -> None:
        super().__init__()
        self.points, self.over = points, threading.Event()
        self.expected: dict[int, list[float]] = {}
        self.refused, self.trouble = 0, []

    def run(self) -> None:
        rng, number = np.random.default_rng(2), 100_000
        while not self.over.is_set():
            number += 1
            time.sleep(0.01)
            place = [float(rng.uniform(-170, 170)), float(rng.uniform(-80, 80))]
            location = {"type": "Point", "coordinates": place}
            try:
                if number % 2:
                    self.points.insert_one({"_id": number, "loc": location})
                    self.expected[number] = place
                else:
                    moved = int(rng.integers(0, 3_000))
                    if self.points.update_one({"_id": moved}, {"$set": {"loc": location}}).matched_count:
                        self.expected[moved] = place
                    else:
                        self.trouble.append(f"{moved} was not there")
            except WriteError as error:
                self.refused += error.code == 121
                if error.code != 121:
                    self.trouble.append(str(error)[:300])
            except OperationFailure as error:
                self.trouble.append(str(error)[:300])


def test_writes_meanwhile_are_not_lost_and_end_with_a_right_geohash(points) -> None:
    writer = Writer(points)
    writer.start()
    try:
        adoption = adopt(points, "loc")
        refused_before_the_end = writer.refused
        end = time.monotonic() + 30
        while writer.refused == refused_before_the_end and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        writer.over.set()
        writer.join()
    assert writer.trouble == []
    assert writer.refused > refused_before_the_end  # from the validator on, the writer is told
    inserted = sum(number >= 100_000 for number in writer.expected)
    assert inserted > 0
    assert adoption.verification.repaired > 0  # it did write in between
    where = {document["_id"]: document["loc"]["coordinates"] for document in points.find()}
    assert {number: where.get(number) for number in writer.expected} == writer.expected
    found = points.find().to_list()
    assert len(found) == 3_000 + inserted
    for document in found:
        assert document["gh"] == point_to_geohash(*document["loc"]["coordinates"])
    assert run(load_info(points)).why_not is None


def test_parts_go_where_most_of_them_is() -> None:
    held = [{"a": 1.0, "b": 9.0, "c": 0.0}, {"a": 5.0, "b": 8.0, "c": 0.0}, {"a": 7.0, "b": 0.0, "c": 1.0}]
    assert assign(held) == ["b", "c", "a"]
    assert assign([{"a": 0.0, "b": 3.0}]) == ["b"]
