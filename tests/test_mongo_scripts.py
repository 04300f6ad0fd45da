"""The scripts for mongosh, run by the real mongosh: what they print is what pymongo counts."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from bson import Int64, json_util
from processes import mongod, server
from pymongo import MongoClient

from spatialnosql.adopt import adopt
from spatialnosql.cluster.mongosh import find_mongosh
from spatialnosql.create import create
from spatialnosql.errors import DownloadError, MissingProgram
from spatialnosql.examined import examine_aggregate, examine_find
from spatialnosql.expression import geohash_expression
from spatialnosql.geohash import (
    BITS,
    bound_to_string,
    cells_to_bounds,
    cells_to_ranges,
    cells_to_strings,
    points_to_cells,
)
from spatialnosql.histogram import Histogram
from spatialnosql.info import true_gh
from spatialnosql.metadata import histogram_to_document, metadata_collection
from spatialnosql.sharding import chunks
from spatialnosql.verify import verify

SCRIPTS = Path(__file__).parents[1] / "mongo_scripts"
HOT_LNG, HOT_LAT, HOT = -73.9857, 40.7484, 300


@pytest.fixture(scope="session")
def mongosh():
    try:
        return find_mongosh()
    except (DownloadError, MissingProgram) as error:
        pytest.skip(f"no mongosh: {error}")


@pytest.fixture
def run(mongosh, tmp_path):
    """Run scripts with options; gives the finished process."""

    def run(uri, *scripts, **options):
        code = f"const options = EJSON.parse({json_util.dumps(json_util.dumps(options))})"
        files = [str(SCRIPTS / f"{script}.js") for script in scripts]
        command = [mongosh, uri, "--quiet", "--norc", "--eval", code, *files]
        home = {**os.environ, "HOME": str(tmp_path)}  # mongosh keeps logs and settings there
        # From another folder: the scripts must find their library wherever the shell was started.
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=home
        )

    return run


@pytest.fixture
def read(run):
    """Run scripts with `json`; gives one document for each, or the only one."""

    def read(uri, *scripts, **options):
        result = run(uri, *scripts, **options, json=True)
        assert (result.stderr, result.returncode) == ("", 0)
        documents = [json_util.loads(line) for line in result.stdout.splitlines()]
        assert len(documents) == len(scripts)
        return documents if len(documents) > 1 else documents[0]

    return read


@pytest.fixture
def read_each(mongosh, tmp_path):
    """Run one script with one set of options after the other, in one shell; gives what each printed, or its error."""

    def read_each(uri, calls):
        lines = [
            f"options = EJSON.parse({json_util.dumps(json_util.dumps({**options, 'json': True}))}); "
            f"try {{ load({json.dumps(str(SCRIPTS / f'{script}.js'))}) }} catch (error) {{ print(String(error)) }}"
            for script, options in calls
        ]
        file = tmp_path / "each.js"
        file.write_text("\n".join(["let options;", *lines]))
        command = [mongosh, uri, "--quiet", "--norc", str(file)]
        home = {**os.environ, "HOME": str(tmp_path)}
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=home)
        printed = result.stdout.splitlines()
        assert len(printed) == len(calls)
        return [json_util.loads(line) if line.startswith("{") else line for line in printed]

    return read_each


def points(count, seed):
    """Places in three clusters and all over the world, and one of them many times."""
    random = np.random.default_rng(seed)
    part = count // 4
    lng = [
        random.normal(-73.98, 0.05, 2 * part),
        random.normal(2.35, 0.1, part),
        random.uniform(-180, 180, part),
    ]
    lat = [
        random.normal(40.75, 0.04, 2 * part),
        random.normal(48.85, 0.1, part),
        random.uniform(-80, 80, part),
    ]
    lngs = np.concatenate([*lng, np.full(HOT, HOT_LNG)])
    return lngs, np.concatenate([*lat, np.full(HOT, HOT_LAT)])


def documents(lng, lat):
    pairs = zip(lng.tolist(), lat.tolist(), strict=True)
    return [{"_id": i, "loc": {"type": "Point", "coordinates": [x, y]}} for i, (x, y) in enumerate(pairs)]


@pytest.fixture(scope="module")
def trips(client):
    """An adopted collection on the cluster, with more chunks than shards and one place cut by _id."""
    database = client[f"test_{secrets.token_hex(6)}"]
    collection = database["trips"]
    try:
        collection.insert_many(documents(*points(2_000, 7)), ordered=False)
        adopt(collection, "loc")
        hot = collection.find_one({"_id": 2_100})
        inside = [{"gh": hot["gh"], "_id": identifier} for identifier in (2_100, 2_200)]
        for middle in (*inside, {"gh": "u09", "_id": Int64(2**62 + 1)}):
            client.admin.command("split", collection.full_name, middle=middle)
        yield collection
    finally:
        metadata_collection(collection).delete_many({"_id": {"$regex": f"^{database.name}"}})
        client.drop_database(database.name)


def stored(collection):
    return metadata_collection(collection).find_one({"_id": collection.full_name})


# -- the library ------------------------------------------------------------------------------------------


def test_the_javascript_is_the_python(mongosh, tmp_path):
    fields = [
        (location, form, unhashed)
        for location in ("loc", "a.b.c")
        for form in ("geojson", "legacy", "any")
        for unhashed in (False, True)
    ]
    random = np.random.default_rng(1)
    cells = [0, 1, (1 << BITS) - 1, *(int(cell) for cell in random.integers(0, 1 << BITS, 200))]
    bounds = [*cells, 1 << BITS]
    texts = ["", "0", "dr5", "dr5a", "DR5", "{", "zz~", "é", "9zzzzzzzzzzz", "9zzzzzzzzzzz0", "zzzzzzzzzzzzz"]
    ranges = [
        [*sorted(map(int, random.integers(0, 1 << bits, 2))), bits] for bits in (3, 8, 11) for _ in range(40)
    ]
    # Fine ones begin and end anywhere; these may cross the border of half the world.
    for start in (*cells[3:40], 2**59 - 7, 2**58 - 1):
        ranges.append([start, start + int(random.integers(0, 300)), BITS])
    lng, lat = points(400, 3)
    histogram = Histogram.of_points(lng, lat, 35)
    kept = histogram_to_document(histogram)
    given = {
        "fields": fields,
        "bounds": [str(bound) for bound in bounds],
        "texts": texts,
        "ranges": [[str(lo), str(hi), bits] for lo, hi, bits in ranges],
        "cells": kept["cells"].hex(),
        "counts": kept["counts"].hex(),
    }
    script = f"""
    const geohash = require({json.dumps(str(SCRIPTS / "lib/geohash.js"))});
    const histogram = require({json.dumps(str(SCRIPTS / "lib/histogram.js"))});
    const input = {json.dumps(given)};
    const binary = (hex) => ({{ buffer: Buffer.from(hex, "hex"), position: hex.length / 2 }});
    const kept = histogram.fromDocument({{ bits: 35, cells: binary(input.cells), counts: binary(input.counts) }});
    const before = histogram.pointsBefore(kept);
    const coarse = histogram.coarsened(kept, 22);
    const one = ([location, form, unhashed]) => ({{ location, form, unhashed, gh: "gh" }});
    print(JSON.stringify({{
        expressions: input.fields.map((field) => geohash.geohashExpression(field[0], field[1])),
        clauses: input.fields.map((field) => geohash.trueGh(one(field))),
        texts: input.bounds.map((bound) => geohash.boundToString(BigInt(bound))),
        bounds: input.texts.map((text) => String(geohash.stringToBound(text))),
        back: input.bounds.map((bound) => String(geohash.stringToBound(geohash.boundToString(BigInt(bound))))),
        boxes: input.ranges.map(([lo, hi, bits]) =>
            geohash.rangeToBox(geohash.cellToRange(BigInt(lo), bits)[0], geohash.cellToRange(BigInt(hi), bits)[0])),
        before: input.bounds.map((bound) => before(BigInt(bound))),
        coarse: [coarse.cells.map(String), coarse.counts],
    }}));
    """
    file = tmp_path / "check.js"
    file.write_text(script)
    command = [mongosh, "--nodb", "--quiet", "--norc", str(file)]
    home = {**os.environ, "HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=home)
    said = json.loads(result.stdout)

    # Key by key in the same order: the server's validator is compared as text.
    def same(ours, theirs):
        return json.dumps(_plain(ours)) == json.dumps(_plain(theirs))

    for (location, form, unhashed), expression, clause in zip(
        fields, said["expressions"], said["clauses"], strict=True
    ):
        assert same(expression, geohash_expression(location, form))
        assert same(clause, true_gh(location, form=form, unhashed=unhashed))
    assert said["texts"] == [bound_to_string(bound) for bound in bounds]
    assert said["back"] == [str(bound) for bound in bounds]
    for text, bound in zip(texts, map(int, said["bounds"]), strict=True):
        around = [cell for cell in (bound - 1, bound) if 0 <= cell < 1 << BITS]
        for cell, name in zip(around, cells_to_strings(np.array(around, np.uint64)), strict=True):
            assert (str(name) >= text) == (cell >= bound), (text, name)
    for (lo, hi, bits), box in zip(ranges, said["boxes"], strict=True):
        assert box == union(np.arange(lo, hi, dtype=np.uint64), bits)
    assert said["before"] == pytest.approx(histogram.points_before(np.array(bounds, np.uint64)).tolist())
    coarse = histogram.coarsened(22)
    assert said["coarse"] == [[str(cell) for cell in coarse.cells], coarse.counts.tolist()]


def _plain(value):
    """Numbers as JavaScript has them: 180.0 is 180."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def union(cells, bits):
    """The box of some cells, by looking at each; None for none."""
    if not cells.size:
        return None
    west, south, east, north = cells_to_bounds(cells, bits)
    return [west.min(), south.min(), east.max(), north.max()]


# -- the scripts ------------------------------------------------------------------------------------------


def test_status(trips, cluster, read, run):
    found = read(cluster.uri, "status", ns=trips.full_name, exact=True)
    [one] = found["collections"]
    kept = stored(trips)
    del kept["histogram"]["cells"], kept["histogram"]["counts"]
    assert found["deployment"]["kind"] == "sharded"
    assert (one["precision"], one["histogram"]) == (kept["precision"], kept["histogram"])
    assert (one["state"], one["guaranteed"], one["sharded"], one["notes"]) == ("ready", True, True, [])
    assert one["documents"] == trips.count_documents({}) == 2_000 + HOT
    per_shard = {row["shard"]: row["documents"] for row in one["shards"]}
    owned = dict.fromkeys(per_shard, 0)
    everything = list(trips.find({}, {"gh": 1}))
    for chunk in chunks(trips):
        owned[chunk["shard"]] += sum(is_within(document, chunk) for document in everything)
    assert per_shard == owned
    assert sorted(per_shard) == found["deployment"]["shards"]
    assert one["imbalance"] == pytest.approx(max(per_shard.values()) * len(per_shard) / one["documents"])
    expected = Counter(chunk["shard"] for chunk in chunks(trips))
    assert {row["shard"]: row["chunks"] for row in one["shards"]} == expected

    # Every adopted collection, for people. By the server's counters, which lag behind what was moved.
    shown = run(cluster.uri, "status")
    assert (shown.stderr, shown.returncode) == ("", 0)
    assert re.search(rf"{trips.full_name}  +ready  +\d", shown.stdout)
    assert kept["precision"]["reason"] in shown.stdout


def test_chunks(trips, cluster, read, run):
    [one] = read(cluster.uri, "chunks", ns=trips.full_name)["collections"]
    expected = chunks(trips)
    assert [(c["min"], c["max"], c["shard"]) for c in one["chunks"]] == [
        (c["min"], c["max"], c["shard"]) for c in expected
    ]
    assert one["total"] == len(expected) >= 5
    everything = list(trips.find())
    for chunk in one["chunks"]:
        inside = [document for document in everything if is_within(document, chunk)]
        assert chunk["documents"] == len(inside)
        west, south, east, north = chunk["box"]
        for document in inside:
            lng, lat = document["loc"]["coordinates"]
            assert west <= lng <= east
            assert south <= lat <= north
    cut = [chunk for chunk in one["chunks"] if chunk["max"].get("_id") == 2_100]
    assert cut[0]["to"].endswith("_id 2100")
    # All of this one is a single place.
    [place] = [chunk for chunk in one["chunks"] if chunk["min"].get("_id") == 2_100]
    assert place["documents"] == 100
    assert place["box"] == union(points_to_cells([HOT_LNG], [HOT_LAT]), BITS)

    result = run(cluster.uri, "chunks", ns=[trips.full_name], rows=2)
    assert result.returncode == 0
    assert f"the first 2 of {len(expected)} chunks" in result.stdout
    [few] = read(cluster.uri, "chunks", ns=trips.full_name, rows=0, fast=True)["collections"]
    assert len(few["chunks"]) == len(expected)
    # The histogram knows nothing of a cut within a place: only those of whole cells can be compared.
    for guess, exact in zip(few["chunks"], one["chunks"], strict=True):
        if not {guess["min"]["_id"], guess["max"]["_id"]} & {2_100, 2_200}:
            assert guess["documents"] == pytest.approx(exact["documents"], abs=HOT // 10)


def is_within(document, chunk):
    def key(bound):
        return [_ordered(bound["gh"]), _ordered(bound["_id"])]

    return key(chunk["min"]) <= [_ordered(document["gh"]), _ordered(document["_id"])] < key(chunk["max"])


def _ordered(value):
    rank = {"MinKey": 0, "MaxKey": 2}.get(type(value).__name__, 1)
    return (rank, value if rank == 1 else 0)


def test_hotspots(trips, cluster, read_each):
    cases = [(None, False), (30, True), (23, False), (23, True), (41, False)]
    options = [{"ns": trips.full_name, "top": 7, "bits": bits, "exact": exact} for bits, exact in cases]
    found = read_each(cluster.uri, [("hotspots", one) for one in options])
    for (bits, exact), report in zip(cases, found, strict=True):
        [one] = report["collections"]
        check_hotspots(trips, one, bits, exact)


def check_hotspots(trips, one, bits, exact):
    kept = stored(trips)
    bits = bits or kept["precision"]["bits"]
    is_stored = not exact and bits <= kept["histogram"]["bits"]
    assert one["source"] == ("statistics" if is_stored else "counted")
    pairs = np.array([document["loc"]["coordinates"] for document in trips.find()])
    cells, counts = np.unique(points_to_cells(pairs[:, 0], pairs[:, 1], bits), return_counts=True)
    order = np.lexsort((cells, -counts))[:7]
    assert [cell["documents"] for cell in one["cells"]] == counts[order].tolist()
    assert [cell["box"] for cell in one["cells"]] == [union(cells[[place]], bits) for place in order]
    lows, highs = cells_to_ranges(cells[order], bits)
    assert [cell["from"].rstrip("0") for cell in one["cells"]] == [bound_to_string(int(low)) for low in lows]
    assert [cell["to"].rstrip("0") for cell in one["cells"]] == [bound_to_string(int(high)) for high in highs]
    assert (one["documents"], one["occupied"]) == (len(pairs), cells.size)
    for cell in one["cells"]:
        plan = trips.find({"gh": {"$gte": cell["from"], "$lt": cell["to"]}}, hint="gh_1__id_1").explain()
        holding = [
            s["shardName"] for s in plan["executionStats"]["executionStages"]["shards"] if s["nReturned"]
        ]
        assert set(holding) <= set(cell["shards"])


CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.85], 0.001]}}}


QUERIES = [
    {"filter": {"gh": {"$gte": "u09", "$lt": "u0b"}}},
    {"filter": CIRCLE, "projection": {"_id": 1}, "limit": 5},
    {"filter": {}, "hint": {"gh": 1, "_id": 1}},
    {"pipeline": [{"$match": CIRCLE}, {"$group": {"_id": 1, "n": {"$sum": 1}}}]},
    {
        "pipeline": [
            {"$geoNear": {"near": [2.35, 48.85], "distanceField": "d", "spherical": True}},
            {"$limit": 3},
        ]
    },
    {"pipeline": [{"$match": {"gh": {"$gte": "u09", "$lt": "u09t"}}}], "hint": "gh_1__id_1"},
]


def test_explain(trips, cluster, read_each):
    found = read_each(cluster.uri, [("explain", {"ns": trips.full_name, **query}) for query in QUERIES])
    for query, one in zip(QUERIES, found, strict=True):
        check_explained(trips, query, one)


def check_explained(trips, query, found):
    if "pipeline" in query:
        options = {"hint": query["hint"]} if "hint" in query else {}
        expected = examine_aggregate(trips, query["pipeline"], **options)
    else:
        options = {name: value for name, value in query.items() if name != "filter"}
        expected = examine_find(trips, query["filter"], **options)
    assert (found["asked"], found["keys"], found["examined"]) == (
        expected.shards,
        expected.keys,
        expected.docs,
    )
    assert found["documents"] == trips.count_documents({})
    assert len({part["shard"] for part in found["parts"]}) == found["asked"]
    assert all(part["plan"] for part in found["parts"])


def test_explain_for_people(trips, cluster, run):
    result = run(cluster.uri, "explain", ns=trips.full_name, filter={"gh": {"$gte": "u09", "$lt": "u09w"}})
    assert result.returncode == 0
    assert "shards asked" in result.stdout
    assert "IXSCAN gh_1__id_1" in result.stdout


def test_verify(database, cluster, read, run):
    collection = create(database, "places")
    lng, lat = points(400, 11)
    try:
        adopted = [{**one, "gh": "s00000000000"} for one in documents(lng[:20], lat[:20])]
        adopted += [{"_id": f"none {n}", **{"loc": adopted[n]["loc"]}} for n in range(3)]
        adopted += [{"_id": "line", "loc": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}]
        adopted += [{"_id": "nowhere", "gh": "u09"}, {"_id": "empty"}]
        assert read(cluster.uri, "verify", ns=collection.full_name)["collections"][0]["sound"]
        collection.insert_many(adopted, bypass_document_validation=True)
        result = run(cluster.uri, "verify", ns=collection.full_name, json=True, samples=2)
        [one] = json_util.loads(result.stdout)["collections"]
        expected = verify(collection)
        assert one["checked"] == expected.checked == 26
        assert {p["reason"]: p["documents"] for p in one["problems"]} == {
            reason: problem.count for reason, problem in expected.problems.items()
        }
        assert len(expected.problems) == 4
        assert all(len(problem["samples"]) == min(2, problem["documents"]) for problem in one["problems"])
        assert result.returncode == 1
        assert result.stderr == (
            f"spatialnosql: 25 of 26 documents of {collection.full_name} have no true gh\n"
        )
    finally:
        metadata_collection(collection).delete_one({"_id": collection.full_name})


ERRORS = [
    ("status", {"ns": "nowhere.at_all"}, "nowhere.at_all does not exist"),
    ("chunks", {"ns": "trips"}, '"trips" is no namespace; write it as DATABASE.COLLECTION'),
    (
        "hotspots",
        {"ns": "{plain}"},
        "{plain} was never adopted; run `spatialnosql adopt {plain} --location FIELD`",
    ),
    ("verify", {"sample": 3}, "there is no option sample; this script takes ns, samples, json"),
    ("hotspots", {"bits": 61}, "option bits is 61; it must be a whole number from 1 to 60"),
    ("explain", {"ns": "nowhere.at_all", "filter": {}}, "nowhere.at_all does not exist"),
    ("explain", {"ns": "{plain}"}, "explain.js needs either filter: {{...}} or pipeline: [...]"),
    (
        "explain",
        {"ns": "{plain}", "pipeline": [{"$match": {}}, {"$out": "elsewhere"}]},
        "a pipeline with $out writes, and these scripts never do; leave that stage out",
    ),
]


def test_errors_say_what_is_wrong(database, cluster, read_each):
    plain = f"{database.name}.plain"
    database["plain"].insert_one({"_id": 1})
    calls = [
        (script, {**options, **({"ns": options["ns"].format(plain=plain)} if "ns" in options else {})})
        for script, options, _ in ERRORS
    ]
    expected = [f"spatialnosql: {words.format(plain=plain)}" for _, _, words in ERRORS]
    assert read_each(cluster.uri, calls) == expected


def test_an_error_is_one_line_and_an_exit_code(cluster, run):
    result = run(cluster.uri, "status", ns="nowhere.at_all")
    assert (result.stderr, result.stdout) == ("spatialnosql: nowhere.at_all does not exist\n", "")
    assert result.returncode == 1


# -- other deployments ------------------------------------------------------------------------------------


EVERY = ("status", "chunks", "hotspots", "verify")


def test_without_shards_and_without_statistics(programs, tmp_path, read, run):
    with mongod(programs, tmp_path / "data") as port, MongoClient("127.0.0.1", port) as client:
        uri = f"mongodb://127.0.0.1:{port}/"
        for found in read(uri, *EVERY):
            assert found["collections"] == []
            assert "No collection is adopted here" in found["notes"][0]
        collection = create(client["city"], "trips")
        lng, lat = points(40, 5)
        hashes = cells_to_strings(points_to_cells(lng, lat)).tolist()
        collection.insert_many(
            [{**one, "gh": gh} for one, gh in zip(documents(lng, lat), hashes, strict=True)]
        )
        status, its_chunks, hotspots, verified, explained = read(
            uri, *EVERY, "explain", ns="city.trips", filter={"gh": {"$gte": ""}}
        )
        assert all("is a standalone, not sharded" in one["notes"][0] for one in (status, explained))
        assert status["collections"][0]["documents"] == 40 + HOT
        assert "No statistics" in status["collections"][0]["notes"][0]
        assert its_chunks["collections"][0]["notes"] == ["It is not sharded: it has no chunks."]
        assert hotspots["collections"][0]["source"] == "counted"
        assert hotspots["collections"][0]["cells"][0]["documents"] >= HOT
        assert verified["collections"][0]["checked"] == 40 + HOT
        assert (explained["asked"], explained["keys"]) == (1, 40 + HOT)

        collection.drop()
        result = run(uri, *EVERY)  # what is gone is said, and nothing else fails
        assert result.returncode == 0
        assert result.stdout.count("does not exist any more") == len(EVERY)


def test_a_user_who_may_only_read(programs, tmp_path, read):
    """Who may not write shows that nothing is written; who may not see config is told so."""
    key = tmp_path / "key"
    key.write_text("c2VjcmV0c2VjcmV0")
    key.chmod(0o600)
    secured = ("--keyFile", key)
    replica = ("--configsvr", "--replSet", "config", *secured)
    with mongod(programs, tmp_path / "data", *replica) as config_port:
        with MongoClient("127.0.0.1", config_port, directConnection=True) as config:
            member = {"_id": 0, "host": f"127.0.0.1:{config_port}"}
            config.admin.command("replSetInitiate", {"_id": "config", "configsvr": True, "members": [member]})
        router = ("--configdb", f"config/127.0.0.1:{config_port}", *secured)
        with server(programs, programs.mongos, *router) as port:
            with MongoClient("127.0.0.1", port) as client:
                client.admin.command("createUser", "root", pwd="root", roles=["root"])
            with MongoClient("127.0.0.1", port, username="root", password="root") as client:
                client.admin.command("transitionFromDedicatedConfigServer")
                collection = client["city"]["trips"]
                collection.insert_many(documents(*points(40, 5)))
                adopt(collection, "loc")
                create(client["other"], "hidden")
                roles = [{"role": "read", "db": name} for name in ("city", "spatialnosql")]
                client.admin.command("createUser", "ann", pwd="ann", roles=roles)
            uri = f"mongodb://ann:ann@127.0.0.1:{port}/"
            status, its_chunks, hotspots, verified = read(uri, *EVERY)
            explained = read(uri, "explain", ns="city.trips", filter={"gh": {"$gte": ""}})
            for found in (status, its_chunks, hotspots):
                assert any("may not read the database config" in note for note in found["notes"])
                assert any("may not read other.hidden" in note for note in found["notes"])
            assert status["collections"][0]["shards"] == [
                {"shard": "config", "documents": 40 + HOT, "share": 1}
            ]
            assert status["collections"][0]["sharded"] is None
            assert its_chunks["collections"][0]["chunks"] == []
            assert hotspots["collections"][0]["cells"]
            assert (verified["collections"][0]["sound"], verified["collections"][0]["checked"]) == (
                True,
                40 + HOT,
            )
            assert explained["keys"] == 40 + HOT


def test_writes_from_the_shell_are_judged_by_the_validator(mongosh, cluster, database, tmp_path) -> None:
    """The guarantee is the server's: it does not matter which client writes."""
    create(database, "judged", "loc")
    collection = database.judged
    right = str(cells_to_strings(points_to_cells([1.0], [2.0]))[0])
    writes = {
        "right": f'c.insertOne({{_id: 1, loc: [1, 2], gh: "{right}"}})',
        "without a place": "c.insertOne({_id: 2, name: 'nowhere'})",
        "missing": "c.insertOne({_id: 3, loc: [1, 2]})",
        "wrong": f'c.insertOne({{_id: 4, loc: [3, 4], gh: "{right}"}})',
        "moved": "c.updateOne({_id: 1}, {$set: {loc: [5, 6]}})",
    }
    tries = [f"try {{ {code}; print(0) }} catch (error) {{ print(error.code) }}" for code in writes.values()]
    code = "; ".join([f"const c = db.getSiblingDB({json.dumps(database.name)}).judged", *tries])
    result = subprocess.run(
        [mongosh, cluster.uri, "--quiet", "--norc", "--eval", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert dict(zip(writes, result.stdout.split(), strict=True)) == {
        "right": "0",
        "without a place": "0",
        "missing": "121",
        "wrong": "121",
        "moved": "121",
    }
    assert [found["_id"] for found in collection.find({}, sort=[("_id", 1)])] == [1, 2]
