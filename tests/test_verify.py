"""Finding and mending geohashes that are not right, and the validator that keeps them so."""

import json

import numpy as np
import pytest
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

from spatialnosql.adopt import adopt
from spatialnosql.cli import main
from spatialnosql.create import create
from spatialnosql.errors import UsageError
from spatialnosql.geohash import point_to_geohash, points_to_strings
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, true_gh
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.steps import run
from spatialnosql.testing import points_to_documents
from spatialnosql.validator import with_clause
from spatialnosql.verify import MISSING, NO_POINT, NOWHERE, WRONG, verify

LNG = np.random.default_rng(6).uniform(-170, 170, 300)
LAT = np.random.default_rng(7).uniform(-80, 80, 300)
POLYGON = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}


def point(lng: float, lat: float) -> dict[str, object]:
    return {"type": "Point", "coordinates": [lng, lat]}


@pytest.fixture
def forgotten(client):
    """Metadata of test databases does not outlive them."""
    yield
    client["spatialnosql"]["collections"].delete_many({"_id": {"$regex": "^test_"}})


def damage(points) -> None:
    """Past the validator, as a careless bulk load might."""
    careless = {"bypass_document_validation": True}
    for number in range(20):
        # Not by an update: one that changes the shard is validated, whatever it asks for.
        document = points.find_one_and_delete({"_id": number})
        del document["gh"]
        points.insert_one(document, **careless)
    points.update_many({"_id": {"$gte": 20, "$lt": 50}}, {"$set": {"loc": point(1, 2)}}, **careless)
    points.update_many({"_id": {"$gte": 50, "$lt": 55}}, {"$unset": {"loc": ""}}, **careless)
    points.update_many({"_id": {"$gte": 55, "$lt": 57}}, {"$set": {"loc": POLYGON}}, **careless)


def assert_right(points) -> None:
    for document in points.find({"loc.type": {"$in": ["Point", None]}}):
        where = document.get("loc")
        assert document.get("gh") == (where and point_to_geohash(*where["coordinates"])), document


@pytest.mark.parametrize("sharded", [False, True])
def test_found_by_reason_and_mended_on_the_server(database, forgotten, sharded: bool) -> None:
    points = database.points
    if sharded:
        points = create(database, "points", histogram=Histogram.of_points(LNG, LAT, 30))
        documents = points_to_documents(LNG, LAT)
        for document, gh in zip(documents, points_to_strings(LNG, LAT).tolist(), strict=True):
            document["gh"] = gh
        points.insert_many(documents)
        # With gh in the shard key, only a single document may change it.
        with pytest.raises(OperationFailure):
            points.update_many({}, {"$set": {"gh": "s00000000000"}}, bypass_document_validation=True)
    else:
        points.insert_many(points_to_documents(LNG, LAT))
        adopt(points, "loc", shard=False)
    assert verify(points).is_sound
    damage(points)

    found = verify(points)
    counts = {reason: problem.count for reason, problem in found.problems.items()}
    assert counts == {MISSING: 20, WRONG: 30, NOWHERE: 5, NO_POINT: 2}
    assert set(found.problems[NO_POINT].samples) == {55, 56}
    assert set(found.problems[MISSING].samples) <= set(range(20))
    assert (found.checked, found.repaired, found.wrong, found.is_sound) == (300, 0, 57, False)

    mended = verify(points, repair=True)
    assert (mended.repaired, mended.wrong, mended.failures) == (55, 2, {})
    assert list(mended.remaining) == [NO_POINT]
    assert points.count_documents({}) == 300
    assert points.count_documents({"loc": POLYGON}) == 2
    assert_right(points)
    points.delete_many({"loc": POLYGON})
    assert verify(points).is_sound


def test_documents_wait_for_the_old_copies_that_a_shard_still_has(database, client, forgotten) -> None:
    points = database.points
    points.insert_many(points_to_documents(LNG, LAT))
    adopt(points, "loc")
    # Every document goes to the other end of the curve: many to the shard where all of them once were.
    points.update_many({}, {"$mul": {"loc.coordinates.0": -1}}, bypass_document_validation=True)
    mended = verify(points, repair=True)
    assert (mended.is_sound, mended.failures, points.count_documents({})) == (True, {}, 300)
    assert mended.repaired == mended.problems[WRONG].count
    assert_right(points)


def test_without_retryable_writes_documents_change_their_shard_in_transactions(
    database, cluster, forgotten
) -> None:
    points = create(database, "points", histogram=Histogram.of_points(LNG, LAT, 30))
    documents = [{**d, "gh": "wrong"} for d in points_to_documents(LNG[:10], LAT[:10])]
    points.insert_many(documents, bypass_document_validation=True)
    with MongoClient(cluster.uri, retryWrites=False) as client:
        mended = verify(client[database.name].points, repair=True)
    assert (mended.repaired, mended.is_sound, mended.failures) == (10, True, {})
    assert_right(points)


def test_with_unhashed_a_location_that_is_no_point_is_in_order(database, forgotten) -> None:
    points = database.points
    points.insert_many([*points_to_documents(LNG[:20], LAT[:20]), {"_id": "area", "loc": POLYGON}])
    adopt(points, "loc", shard=False, allow_unhashed=True)
    assert verify(points).is_sound
    points.update_one({"_id": "area"}, {"$set": {"gh": "u00000000000"}}, bypass_document_validation=True)
    assert {r: p.count for r, p in verify(points).problems.items()} == {WRONG: 1}
    assert verify(points, repair=True).is_sound
    assert points.find_one({"_id": "area"}) == {"_id": "area", "loc": POLYGON}


def test_a_document_that_fails_the_users_own_validator_is_mended_all_the_same(database, forgotten) -> None:
    points = database.points
    points.insert_many(points_to_documents(LNG[:50], LAT[:50]))
    database.command("collMod", "points", validator={"name": {"$type": "string"}})
    adopt(points, "loc", shard=False)
    assert_right(points)
    assert points.count_documents({"gh": None}) == 0


def test_the_command(database, cluster, forgotten, capsys: pytest.CaptureFixture[str]) -> None:
    points = database.points
    points.insert_many(points_to_documents(LNG, LAT))
    adopt(points, "loc", shard=False)
    arguments = ["verify", points.full_name, "--uri", cluster.uri]
    assert main(arguments) == 0
    assert "300 documents checked" in capsys.readouterr().out
    damage(points)
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "20: gh is missing (_id " in text
    assert "--repair" in text
    assert main([*arguments, "--repair", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["repaired"], told["sound"]) == (55, False)
    assert told["remaining"] == {NO_POINT: {"count": 2, "samples": ["55", "56"]}}
    points.delete_many({"loc": POLYGON})
    assert main(arguments) == 0


def test_of_a_collection_never_adopted(database) -> None:
    with pytest.raises(UsageError, match="never adopted"):
        verify(database.points)


# -- the validator ----------------------------------------------------------------------------------------


def test_writes_that_go_past_the_library(database, forgotten) -> None:
    points = create(database, "points", histogram=Histogram.of_points(LNG, LAT, 30))
    assert run(load_info(points)).why_not is None
    right = point_to_geohash(9.5, 53.5)
    points.insert_one({"_id": 1, "loc": point(9.5, 53.5), "gh": right})
    points.insert_many([{"_id": 2}, {"_id": 3, "loc": None, "name": "nowhere"}])
    refused = [
        {"_id": 4, "loc": point(9.5, 53.5)},
        {"_id": 5, "loc": point(9.5, 53.5), "gh": right[:-1] + "0"},
        {"_id": 6, "loc": point(9.5, 53.5), "gh": right[:6]},
        {"_id": 7, "gh": right},
        {"_id": 8, "loc": POLYGON},
        {"_id": 9, "loc": "here", "gh": "here"},
    ]
    for document in refused:
        with pytest.raises(WriteError) as refusal:
            points.insert_one(document)
        assert refusal.value.code == 121, document
    with pytest.raises(BulkWriteError) as refusals:
        points.insert_many(refused, ordered=False)
    assert {error["code"] for error in refusals.value.details["writeErrors"]} == {121}

    moves = [
        {"$set": {"loc": point(-70, 40)}},
        {"$set": {"loc.coordinates.0": -70}},
        {"$inc": {"loc.coordinates.1": 1}},
        {"$unset": {"loc": ""}},
        {"$unset": {"gh": ""}},
        [{"$set": {"loc": point(-70, 40)}}],
    ]
    for update in moves:
        with pytest.raises(WriteError) as refusal:
            points.update_one({"_id": 1, "gh": right}, update)
        assert refusal.value.code == 121, update
    elsewhere = {"loc": point(-70, 40), "gh": point_to_geohash(-70, 40)}
    assert points.update_one({"_id": 1, "gh": right}, {"$set": elsewhere}).modified_count == 1
    assert points.update_one({"_id": 1, **elsewhere}, {"$set": {"name": "moved"}}).modified_count == 1
    assert points.find().sort("_id").distinct("_id") == [1, 2, 3]


def test_a_clause_is_added_once_and_replaces_our_own_only() -> None:
    info = CollectionInfo("a.b", "loc", "gh", "geojson")
    clause = true_gh("loc", "gh", "geojson")
    theirs = {"name": {"$type": "string"}}
    assert with_clause({}, info) == clause
    assert with_clause(theirs, info) == {"$and": [theirs, clause]}
    assert with_clause({"$and": [theirs, clause]}, info) == {"$and": [theirs, clause]}
    older = true_gh("loc", "gh", "any", unhashed=True)
    assert with_clause({"$and": [older, theirs]}, info) == {"$and": [theirs, clause]}
    assert with_clause(older, info) == clause
    other_field = true_gh("place", "gh", "geojson")
    assert with_clause(other_field, info) == {"$and": [other_field, clause]}


def test_creating(database, client, forgotten) -> None:
    data = Histogram.of_points(LNG, LAT, 30)
    points = create(database, "points", "where.at", gh="hash", form="legacy", histogram=data)
    entry = client["config"]["collections"].find_one({"_id": points.full_name})
    assert entry["key"] == {"hash": 1, "_id": 1}
    homes = client["config"]["chunks"].distinct("shard", {"uuid": entry["uuid"]})
    assert len(homes) == 3
    info = run(load_info(points))
    assert (info.location, info.gh, info.form, info.why_not) == ("where.at", "hash", "legacy", None)
    assert info.nears_on_sphere
    assert info.gh_index
    assert info.histogram.key == data.key
    assert metadata_collection(points).find_one({"_id": points.full_name})["validator"] is True
    points.insert_one({"where": {"at": [3.0, 4.0]}, "hash": point_to_geohash(3.0, 4.0)})
    with pytest.raises(WriteError):
        points.insert_one({"where": {"at": point(3.0, 4.0)}, "hash": point_to_geohash(3.0, 4.0)})
    with pytest.raises(UsageError, match="there already"):
        create(database, "points")
    for location, gh in (
        ("", "gh"),
        ("$loc", "gh"),
        ("loc", "loc.gh"),
        ("a.b", "a"),
        ("loc", "_id"),
        ("a..b", "gh"),
    ):
        with pytest.raises(UsageError):
            create(database, "never", location, gh=gh)
    assert "never" not in database.list_collection_names()
