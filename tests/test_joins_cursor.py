"""Each point with its polygons, and points in several regions at once: the same as one ``$geoWithin`` each."""

from __future__ import annotations

import secrets
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from differential import KINDS, points_for
from join_cases import content, expected, make_points, odd_polygons, polygon, polygons, square
from places import Documents, Setup, make_collection
from pymongo import MongoClient
from pymongo.errors import ExecutionTimeout, OperationFailure

import spatialnosql
from spatialnosql.collection import SpatialCollection
from spatialnosql.cover import Ranges
from spatialnosql.errors import GeometryError, UsageError
from spatialnosql.found import Found
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.joins import membership
from spatialnosql.joins.count_by_polygon import count_by_polygon
from spatialnosql.joins.intersection import count_in_all, in_all
from spatialnosql.joins.join import Joined, join
from spatialnosql.joins.polygon_collection import polygons_of
from spatialnosql.joins.polygons import Polygons, sorted_out
from spatialnosql.joins.scan import needed_of, ranges_to_read
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.steps import run

SETUPS = {
    "geojson": Setup(),
    "legacy": Setup("place.point", "legacy"),
    "unhashed": Setup("loc", "any", unhashed=True),
}


@dataclass(frozen=True)
class Case:
    """A collection of points, and the polygons of each by the server."""

    points: Documents
    setup: Setup
    truth: dict[Any, tuple[Any, ...]]

    @property
    def spatial(self) -> SpatialCollection:
        return SpatialCollection(self.points)


@pytest.fixture(scope="module")
def cases(client: MongoClient[dict[str, Any]]) -> Iterator[dict[str, Case]]:
    database = client[f"test_{secrets.token_hex(6)}"]
    made = {}
    for name, setup in SETUPS.items():
        points = make_points(database, name, setup)
        made[name] = Case(points, setup, expected(points, setup.location, everything()))
    yield made
    client.drop_database(database.name)
    metadata_collection(database["x"]).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def everything() -> dict[Any, Any]:
    """All polygons, those that only the server understands among the others."""
    ordinary, odd = polygons(), odd_polygons()
    return {"at zero": odd["at zero"], **ordinary, **odd}


def as_dict(joined: Any) -> dict[Any, tuple[Any, ...]]:
    rows = list(joined)
    found = {row.document["_id"]: row.polygons for row in rows}
    assert len(found) == len(rows), "a document came twice"
    return found


def inner(truth: dict[Any, tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    return {key: ids for key, ids in truth.items() if ids}


def only(truth: dict[Any, tuple[Any, ...]], chosen: Any) -> dict[Any, tuple[Any, ...]]:
    return {key: tuple(one for one in ids if one in chosen) for key, ids in truth.items()}


# -- pure -------------------------------------------------------------------------------------------------


def test_ranges_are_joined_over_the_cheapest_gaps() -> None:
    lo = np.arange(0, 1000, 10, dtype=np.uint64) << np.uint64(40)
    hi = lo + (np.arange(100, dtype=np.uint64) % np.uint64(9) + np.uint64(1) << np.uint64(40))
    info = CollectionInfo("a.b")
    for most in (1, 2, 7, 99):
        fewer = ranges_to_read(Ranges(lo, hi), info, most)
        assert len(fewer) == most
        assert fewer.contains(lo).all()
        assert fewer.contains(hi - np.uint64(1)).all()
    # The widest gaps, of nine, stay.
    assert (ranges_to_read(Ranges(lo, hi), info, 12).lo[1:] % np.uint64(90 << 40) == 10 << 40).all()


def test_ranges_are_joined_where_nothing_lies_between() -> None:
    cells = np.array([5, 6, 50, 51], dtype=np.uint64)
    histogram = Histogram(30, cells, np.array([100, 100, 100_000, 100], dtype=np.int64))
    info = CollectionInfo("a.b", histogram=histogram)
    unit = np.uint64(1 << 30)
    lo = np.array([5, 10, 30, 51], dtype=np.uint64) * unit
    found = ranges_to_read(Ranges(lo, lo + unit), info)
    assert (found.lo // unit).tolist() == [5, 10, 51]
    assert (found.hi // unit).tolist() == [6, 31, 52]


@pytest.mark.parametrize(
    ("projection", "location", "sent", "added"),
    [
        (None, "loc", None, ()),
        ([], "loc", None, ()),
        ({}, "loc", None, ()),
        (["n"], "loc", {"n": 1, "gh": 1, "loc": 1}, ("gh", "loc")),
        ({"n": 1, "_id": 0}, "loc", {"n": 1, "gh": 1, "loc": 1}, ("_id", "gh", "loc")),
        ({"_id": 0}, "loc", None, ("_id",)),
        ({"gh": 0, "n": 0}, "loc", {"n": 0}, ("gh",)),
        ({"n": 1}, "a.b", {"n": 1, "gh": 1, "a": 1}, ("gh", "a")),
        # Without the location the server is asked a little more often.
        ({"loc.coordinates": 1}, "loc", {"loc.coordinates": 1, "gh": 1}, ("gh",)),
    ],
)
def test_what_is_read_beside_a_projection(projection: Any, location: str, sent: Any, added: Any) -> None:
    widened = needed_of(projection, CollectionInfo("a.b", location=location), place=False)
    assert (widened.projection, widened.added) == (sent, added)


@pytest.mark.parametrize("projection", [{"tags": {"$slice": 1}}, "n", {"n": "$m"}, 5, {"n": 1, "m": 0}])
def test_projections_that_are_too_clever(projection: Any) -> None:
    with pytest.raises(UsageError, match="projection"):
        needed_of(projection, CollectionInfo("a.b"), place=False)


def test_a_place_that_cannot_be_had_is_said_so() -> None:
    with pytest.raises(UsageError, match="'loc' as a whole"):
        needed_of({"loc.coordinates": 1}, CollectionInfo("a.b"), place=True)


# -- the same as the server -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETUPS)
def test_each_point_has_the_polygons_that_the_server_says(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert as_dict(join(case.spatial, everything())) == inner(case.truth)
    assert as_dict(join(case.points, everything(), how="left")) == case.truth
    # There is something to be seen: several polygons, one and none.
    assert {0, 1, 2, 5} <= {len(ids) for ids in case.truth.values()}
    assert {one for ids in case.truth.values() for one in ids} == set(everything()) - {"nobody"}


@pytest.mark.parametrize("name", SETUPS)
def test_without_polygons_of_the_servers_own(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert as_dict(join(case.spatial, polygons())) == inner(only(case.truth, polygons()))


@pytest.mark.parametrize("key", list(odd_polygons()))
def test_a_polygon_of_the_servers_own_alone(cases: dict[str, Case], key: Any) -> None:
    case = cases["geojson"]
    wanted = only(case.truth, {key})
    assert as_dict(join(case.spatial, {key: odd_polygons()[key]})) == inner(wanted)
    assert as_dict(join(case.spatial, {key: odd_polygons()[key]}, how="left")) == wanted


def test_where_the_servers_answer_depends_on_its_index_it_is_that_of_the_sphere(
    cases: dict[str, Case],
) -> None:
    case = cases["geojson"]
    for name in ("west of zero", "south of it"):
        within = {"loc": {"$geoWithin": {"$geometry": odd_polygons()[name]}}}
        by_gh = case.points.count_documents(within, hint="gh_1__id_1")
        assert by_gh > sum(name in ids for ids in case.truth.values())


def test_counts_after_a_join_are_the_servers(cases: dict[str, Case]) -> None:
    # What a join remembers of polygons that only the server understands is its own.
    case = cases["geojson"]
    assert as_dict(join(case.spatial, everything())) == inner(case.truth)
    counts = Counter(one for ids in case.truth.values() for one in ids)
    tallies = count_by_polygon(case.spatial, everything())
    assert {tally.id: tally.count for tally in tallies} == {key: counts[key] for key in everything()}


def test_the_server_is_asked_only_where_it_must(
    cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, asked = cases["geojson"], Counter[str]()
    real = membership.Membership._confirmed

    def noted(self: Any, documents: Any, which: Any, number: int) -> Any:
        asked[self.polygons[number].id] += len(which)
        return real(self, documents, which, number)

    monkeypatch.setattr(membership.Membership, "_confirmed", noted)
    assert as_dict(join(case.spatial, everything())) == inner(case.truth)
    assert asked["touching"] > 900  # all that were read
    assert 0 < asked["at zero"] < 50
    assert 0 < asked["over all"] < 100


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_batches_make_no_difference(cases: dict[str, Case], batch_size: int, how: str) -> None:
    case = cases["geojson"]
    few = {"n": {"$lt": 60}}
    truth = {key: case.truth[key] for key in case.points.distinct("_id", few)}
    found = as_dict(join(case.spatial, everything(), how=how, filter=few, batch_size=batch_size))
    assert found == (truth if how == "left" else inner(truth))
    assert len(inner(truth)) > 30


@pytest.mark.parametrize(
    "filter",
    [
        {"kind": {"$in": ["cafe", "border"]}},
        {"$or": [{"size": 3}, {"tags": "a"}]},
        {"_id": {"$in": [1, 2, 3, "on 5", "on 6"]}},
        {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.002]}}},
        {"loc": None},
        {"kind": "nothing"},
    ],
    ids=str,
)
def test_filters(cases: dict[str, Case], filter: dict[str, Any]) -> None:
    case = cases["geojson"]
    truth = expected(case.points, "loc", everything(), filter)
    assert as_dict(join(case.spatial, everything(), filter=filter)) == inner(truth)
    assert as_dict(join(case.spatial, everything(), filter=filter, how="left")) == truth


@pytest.mark.parametrize(
    "projection",
    [
        ["n"],
        {"n": 1, "_id": 0},
        {"_id": 1},
        {"_id": 0},
        {"tags": 0, "gh": 0},
        {"loc": 0, "_id": 0, "items": 0},
        {"loc.coordinates": 1},
        {"loc.type": 0},
        {"gh": 1, "items.a": 1},
        [],
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["geojson", "unhashed"])
def test_projections_are_those_of_a_find(cases: dict[str, Case], name: str, projection: Any) -> None:
    case = cases[name]
    sort = [("n", 1), ("_id", 1)]
    few = {"n": {"$lt": 5000}}
    plain = case.points.find(few, projection, sort=sort).to_list()
    ids = [one["_id"] for one in case.points.find(few, {"_id": 1}, sort=sort)]
    rows = join(case.spatial, everything(), how="left", filter=few, projection=projection, sort=sort)
    found = rows.to_list()
    assert [row.document for row in found] == plain
    assert [list(row.document) for row in found] == [list(one) for one in plain]
    assert [row.polygons for row in found] == [case.truth[key] for key in ids]


def test_what_a_projection_leaves_of_a_location_is_not_taken_for_another(cases: dict[str, Case]) -> None:
    """Two numbers beside the coordinates would pass for a legacy point, if they came alone."""
    points = cases["geojson"].points.database["with_more"]
    points = make_points(points.database, points.name, Setup(), 60)
    lng, lat = 10.0, 10.0
    area = polygon(square(lng, lat, 11.0, 11.0))
    at_corner = {"type": "Point", "coordinates": [lng, lat], "accuracy": 5.0, "altitude": 30.0}
    gh = str(cells_to_strings(points_to_cells([lng], [lat]))[0])
    points.insert_one({"_id": "corner", "loc": at_corner, "gh": gh})
    assert points.count_documents({"_id": "corner", "loc": {"$geoWithin": {"$geometry": area}}}) == 1
    for projection in (None, {"n": 1}, {"loc.accuracy": 1, "loc.altitude": 1}, {"loc.type": 0}):
        found = as_dict(join(SpatialCollection(points), {"area": area}, projection=projection))
        assert found["corner"] == ("area",), projection


def test_polygons_of_a_collection_and_of_other_sources(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    stored = case.points.database["areas"]
    stored.insert_many([{"_id": str(key), "geometry": one} for key, one in polygons().items()])
    stored.create_index([("geometry", "2dsphere")])
    info = run(load_info(case.points))
    in_order = [one.id for one in run(polygons_of(stored, info))]
    truth = {
        key: tuple(sorted(map(str, ids), key=in_order.index))
        for key, ids in inner(only(case.truth, polygons())).items()
    }
    assert as_dict(join(case.spatial, stored)) == truth
    assert as_dict(join(case.spatial, stored)) == truth  # by covers that were stored
    features = [
        {"type": "Feature", "id": key, "geometry": one, "properties": {}} for key, one in polygons().items()
    ]
    collection = {"type": "FeatureCollection", "features": features}
    assert as_dict(join(case.spatial, collection)) == inner(only(case.truth, polygons()))
    assert as_dict(join(case.spatial, Polygons.of(collection))) == inner(only(case.truth, polygons()))


def test_random_polygons_of_every_kind(
    client: MongoClient[dict[str, Any]], database: Any, examples: int
) -> None:
    rng = np.random.default_rng(21)
    asked = [KINDS[kind](rng) for kind in sorted(KINDS) for _ in range(max(2, examples // 1000))]
    areas: dict[Any, Any] = {}
    places: list[list[float]] = []
    for number, question in enumerate(asked):
        geometry = question.condition.get("$geoWithin", {}).get("$geometry", {})
        if geometry.get("type") in ("Polygon", "MultiPolygon"):
            areas[number] = geometry
            places += np.stack(points_for(question, rng, 40), axis=1).tolist()
    points = make_collection(database, "points", Setup(), content(100, 22, Setup(), places))
    good, bad = sorted_out(areas)
    found = as_dict(join(points, good))
    left = as_dict(join(points, good, how="left"))
    metadata_collection(points).delete_one({"_id": points.full_name})
    truth = expected(points, "loc", {one.id: one.geometry for one in good})
    assert found == inner(truth)
    assert left == truth
    assert len(good) > 20
    assert any(one.region is None for one in good)
    for one in bad:
        with pytest.raises(OperationFailure):
            points.find_one({"loc": {"$geoWithin": {"$geometry": areas[one.id]}}})


@pytest.mark.parametrize("statistics", ["none", "empty", "elsewhere", "magnified"])
def test_statistics_make_no_difference(cases: dict[str, Case], statistics: str) -> None:
    case = cases["geojson"]
    info = run(load_info(case.points))
    assert info.histogram is not None
    histograms = {
        "none": None,
        "empty": Histogram.of_points([], [], 30),
        "elsewhere": Histogram.of_points(np.full(9, 20.0), np.full(9, 20.0), 30),
        "magnified": Histogram(30, info.histogram.cells, info.histogram.counts * 1000),
    }
    spatial = SpatialCollection(case.points, info=replace(info, histogram=histograms[statistics]))
    assert as_dict(join(spatial, everything())) == inner(case.truth)


def test_nothing_comes_of_nothing(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    assert join(case.spatial, {}).to_list() == []
    assert join(case.spatial, {"nobody": polygons()["nobody"]}).to_list() == []
    rows = join(case.spatial, {}, how="left", filter={"n": {"$lt": 100}}).to_list()
    assert len(rows) == case.points.count_documents({"n": {"$lt": 100}})
    assert {row.polygons for row in rows} == {()}


# -- a cursor ---------------------------------------------------------------------------------------------


def open_cursors(collection: Documents) -> int:
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleCursors": True, "localOps": True}},
        {"$match": {"type": "idleCursor", "ns": collection.full_name}},
    ]
    return len(list(collection.database.client.admin.aggregate(stages)))


def test_it_is_a_cursor(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    wanted = inner(case.truth)
    with join(case.spatial, everything(), batch_size=7) as joined:
        assert isinstance(joined, Found)
        document, ids = next(joined)
        assert wanted[document["_id"]] == ids
        assert len(joined.to_list(11)) == 11
        assert open_cursors(case.points) == 1
        assert joined.alive
        assert joined.cursor_id
    assert open_cursors(case.points) == 0
    assert len(joined.to_list()) <= 7  # what was left of a batch
    assert not joined.alive
    rest = join(case.spatial, everything(), batch_size=70)
    assert len(list(rest)) == len(wanted)
    assert next(rest, None) is None
    assert open_cursors(case.points) == 0


def test_closing_early_leaves_no_cursor_open(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    for how in ("inner", "left"):
        unread = join(case.spatial, polygons(), how=how, batch_size=2)
        unread.close()
        assert list(unread) == []
        joined = join(case.spatial, polygons(), how=how, batch_size=2)
        next(joined)
        assert open_cursors(case.points) == 1
        joined.close()
        assert open_cursors(case.points) == 0


def test_one_find_by_the_index_of_gh(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    source = join(case.spatial, polygons())._source
    explained = str(run(source.explained()))
    assert "gh_1__id_1" in explained
    assert "COLLSCAN" not in explained
    by_kind = join(case.spatial, polygons(), filter={"_id": 5})._source
    assert "_id_" in str(run(by_kind.explained()))


def test_points_that_change_while_the_cursor_is_read(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    moving = [f"moving {number}" for number in range(100)]
    leaving = [f"leaving {number}" for number in range(50)]
    home = [2.35, 48.86]
    gh = str(cells_to_strings(points_to_cells([home[0]], [home[1]]))[0])
    point = {"type": "Point", "coordinates": home}
    case.points.insert_many([{"_id": key, "loc": point, "gh": gh} for key in moving + leaving])
    rng = np.random.default_rng(3)
    seen: Counter[Any] = Counter()
    try:
        for number, (document, ids) in enumerate(join(case.spatial, everything(), batch_size=20)):
            seen[document["_id"]] += 1
            if document["_id"] in case.truth:
                assert ids == case.truth[document["_id"]]
            else:
                assert "over all" in ids  # as it was when it was read: never anywhere else
            if number > 80:
                continue  # those that are new are read too, and would bring others
            key = moving[number % len(moving)]
            place = {"type": "Point", "coordinates": (home + rng.normal(0, 0.1, 2)).tolist()}
            case.spatial.update_one({"_id": key}, {"$set": {"loc": place}})
            case.spatial.delete_one({"_id": leaving[number % len(leaving)]})
            case.spatial.insert_one({"_id": f"new {number}", "loc": place})
    finally:
        case.points.delete_many({"_id": {"$regex": "^(moving|leaving|new) "}})
    untouched = {key: count for key, count in seen.items() if key in case.truth}
    assert untouched == dict.fromkeys(inner(case.truth), 1)


def test_in_a_snapshot_nothing_changes(cases: dict[str, Case]) -> None:
    case = cases["unhashed"]
    wanted = inner(case.truth)
    with case.points.database.client.start_session(snapshot=True) as session:
        joined = join(case.spatial, everything(), batch_size=50, session=session)
        first = next(joined)
        chosen = [key for key in wanted if key != first.document["_id"]][::3]
        gone = case.points.find({"_id": {"$in": chosen}}).to_list()
        case.points.delete_many({"_id": {"$in": chosen}})
        try:
            found = as_dict([first, *joined])
        finally:
            case.points.insert_many(gone)
    assert found == wanted


class Kind:
    """A type of the caller's own."""

    def __init__(self, name: str) -> None:
        self.name = name


class KindDecoder(TypeDecoder):
    bson_type = str

    def transform_bson(self, value: Any) -> Any:
        return Kind(value)


@pytest.mark.parametrize("document_class", [dict, SON, RawBSONDocument])
def test_documents_of_the_callers_own_class(cases: dict[str, Case], document_class: Any) -> None:
    case = cases["geojson"]
    codec: CodecOptions[Any] = CodecOptions(document_class=document_class)
    rows = join(case.points.with_options(codec_options=codec), everything(), projection={"gh": 0}).to_list()
    assert {row.document["_id"]: row.polygons for row in rows} == inner(case.truth)
    assert {type(row.document) for row in rows} == {document_class}
    assert not any("gh" in row.document for row in rows)


def test_types_of_the_callers_own(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    codec: CodecOptions[Any] = CodecOptions(type_registry=TypeRegistry([KindDecoder()]))
    rows = join(case.spatial.with_options(codec_options=codec), polygons(), filter={"kind": "cafe"}).to_list()
    assert rows
    assert all(row.document["kind"].name == "cafe" for row in rows)
    assert {row.document["_id"]: row.polygons for row in rows} == inner(
        only({row.document["_id"]: case.truth[row.document["_id"]] for row in rows}, polygons())
    )


@pytest.mark.parametrize("representation", [UuidRepresentation.STANDARD, UuidRepresentation.JAVA_LEGACY])
def test_ids_that_only_the_callers_codec_can_write(
    client: MongoClient[dict[str, Any]], database: Any, representation: int
) -> None:
    areas = polygons()
    borders = np.array(areas["nested"]["coordinates"][0][:-1])
    hashes = cells_to_strings(points_to_cells(*borders.T)).tolist()
    made = [
        {"n": n, "gh": gh, "loc": {"type": "Point", "coordinates": pair}}
        for n, (gh, pair) in enumerate(zip(hashes, borders.tolist(), strict=True))
    ]
    points = make_collection(database, "points", Setup(), made)
    codec: CodecOptions[Any] = CodecOptions(uuid_representation=representation, tz_aware=True)
    own = points.with_options(codec_options=codec)
    SpatialCollection(own).insert_many([{**one, "_id": uuid.uuid4()} for one in made])
    found = join(own, areas).to_list()
    metadata_collection(points).delete_one({"_id": points.full_name})
    truth = expected(own, "loc", areas)
    assert {row.document["_id"]: row.polygons for row in found} == truth
    assert sum(isinstance(row.document["_id"], uuid.UUID) for row in found) == 4


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"how": "outer"}, "how is 'outer'"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": True}, "batch_size is True"),
        ({"limit": 5}, "no option 'limit'"),
        ({"filter": {"loc": {"$near": [1, 2]}}}, "near"),
        ({"filter": 5}, "a filter is a document"),
        ({"projection": {"n": {"$slice": 1}}}, "projection"),
    ],
)
def test_what_cannot_be_meant(cases: dict[str, Case], given: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        join(cases["geojson"].spatial, polygons(), **given)


def test_what_cannot_be_joined(cases: dict[str, Case]) -> None:
    never = cases["geojson"].points.database["never"]
    never.insert_one({"loc": {"type": "Point", "coordinates": [1, 2]}})
    with pytest.raises(UsageError, match="cannot be joined"):
        join(never, polygons())
    with pytest.raises(UsageError, match="SpatialCollection"):
        join([1, 2], polygons())
    with pytest.raises(GeometryError, match="unclosed"):
        join(cases["geojson"].spatial, {"unclosed": polygon(square(1, 1, 2, 2)[:-1])})


def test_a_time_limit_goes_with_all_commands(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    slow = {
        "$expr": {"$function": {"body": "function() { sleep(20); return true }", "args": [], "lang": "js"}}
    }
    limited = join(case.spatial, polygons(), filter=slow, max_time_ms=100)
    with pytest.raises((ExecutionTimeout, OperationFailure)):
        list(limited)
    with pytest.raises((ExecutionTimeout, OperationFailure)):
        list(join(case.spatial, polygons(), filter=slow, maxTimeMS=100))
    assert open_cursors(case.points) == 0


# -- in all of several regions ----------------------------------------------------------------------------


def test_points_in_an_intersection(cases: dict[str, Case]) -> None:
    case = cases["geojson"]
    areas = polygons()
    circle = {"$centerSphere": [[2.35, 48.86], 0.001]}
    for regions, ids in [
        (["over all", "holed"], {"over all", "holed"}),
        (["over all", 7, "tile 0 0"], {"over all", 7, "tile 0 0"}),
        ([areas["holed"], "nested"], {"holed", "nested"}),
        ([{"type": "Feature", "geometry": areas["holed"], "properties": {}}, 7], {"holed", 7}),
        (["nobody", "nested"], {"nobody", "nested"}),
    ]:
        wanted = {key for key, own in case.truth.items() if ids <= set(own)}
        found = in_all(case.spatial, regions, polygons=areas)
        assert {one["_id"] for one in found} == wanted
        assert count_in_all(case.points, regions, polygons=areas) == len(wanted)
    both = {
        "$and": [{"loc": {"$geoWithin": circle}}, {"loc": {"$geoWithin": {"$geometry": areas["nested"]}}}]
    }
    truth = case.points.find({**both, "kind": "border"}, {"n": 1}, sort=[("n", 1)]).to_list()
    stored = case.points.database["named"]
    stored.insert_one({"_id": "nested", "geometry": areas["nested"]})
    for regions, known in [
        ([circle, areas["nested"]], None),
        ([{"$geoWithin": circle}, Polygons.of(areas).by_id("nested")], None),
        ([circle, "nested"], stored),
    ]:
        found = in_all(
            case.spatial, regions, {"kind": "border"}, polygons=known, projection={"n": 1}, sort=[("n", 1)]
        )
        assert found.to_list() == truth
        assert count_in_all(case.spatial, regions, {"kind": "border"}, polygons=known) == len(truth)
    assert truth


@pytest.mark.parametrize(
    ("regions", "known", "match"),
    [
        ([], None, "no regions"),
        (["nested"], None, "give the polygons too"),
        (["nowhere"], polygons(), "no polygon has the id 'nowhere'"),
        ({"$centerSphere": [[1, 2], 0.1]}, None, "as a list"),
        ("nested", polygons(), "as a list"),
    ],
)
def test_regions_that_cannot_be_meant(cases: dict[str, Case], regions: Any, known: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        in_all(cases["geojson"].spatial, regions, polygons=known)


def test_regions_of_a_collection_without_them(cases: dict[str, Case]) -> None:
    empty = cases["geojson"].points.database["empty"]
    with pytest.raises(UsageError, match=r"no polygon of .*empty has the id 'x'"):
        in_all(cases["geojson"].spatial, ["x"], polygons=empty)
    with pytest.raises(UsageError, match="never adopted"):
        in_all(empty, ["x"])


def test_names_of_the_package() -> None:
    assert spatialnosql.join is join
    assert spatialnosql.in_all is in_all
    assert spatialnosql.count_in_all is count_in_all
    assert Joined({}, ()) == ({}, ())
