"""Near by rings against the server: the same documents at the same distances, in the same order.

Documents at one place may come in any order, so answers are compared by the server's own distances, to the last bit;
and every document is one of the whole answer, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import bson
import numpy as np
import pytest
from bson.decimal128 import Decimal128
from places import CENTRES, Setup, coordinates, documents, get, make_collection
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from spatialnosql import deadline, nearest, reading
from spatialnosql.calm import calm_find
from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
from spatialnosql.geohash import cells_to_strings, points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.nearest import measured
from spatialnosql.rewrite import QoS, ring_near
from spatialnosql.rewrite.ring_near import ring_cover, ring_filter
from spatialnosql.sphere import ERROR_M, distances_m
from spatialnosql.steps import run
from spatialnosql.testing import points_on_sphere
from spatialnosql.testing.sphere import travel

SETUPS = {
    "geojson": Setup("loc", "geojson"),
    "legacy": Setup("place.point", "legacy"),
    "any": Setup("loc", "any"),
}
SIZE = 1200
OCEAN = (-140.0, -35.0)
HALF_EARTH_M = np.pi * 6_378_100.0
CLIENT = QoS(form="client")


@dataclass(frozen=True)
class Asked:
    """A collection, what is known of it by different statistics, and where its documents are."""

    setup: Setup
    plain: Any
    infos: dict[str, CollectionInfo]
    places: np.ndarray
    known: dict[tuple[float, ...], dict[Any, float]] = field(default_factory=dict)

    def spatial(self, statistics: str = "true") -> SpatialCollection:
        return SpatialCollection(self.plain, info=self.infos[statistics], qos=CLIENT)

    def near(self, place: Any, **limits: float) -> dict[str, Any]:
        bounds = {f"${name}": value for name, value in limits.items()}
        point = {"type": "Point", "coordinates": list(place)}
        return {self.setup.location: {"$nearSphere": {"$geometry": point, **bounds}}}

    def distances(self, place: Any) -> dict[Any, float]:
        """The server's own distance of every document."""
        if tuple(place) in self.known:
            return self.known[tuple(place)]
        stage = {
            "near": {"type": "Point", "coordinates": list(place)},
            "distanceField": "d",
            "key": self.setup.location,
        }
        answer = self.plain.aggregate([{"$geoNear": stage}, {"$project": {"d": 1}}])
        return self.known.setdefault(tuple(place), {d["_id"]: d["d"] for d in answer})


def odd_points() -> list[Any]:
    """Points that MongoDB takes and few write: decimals, whole numbers, a height, other names, a CRS."""
    crs = {"type": "name", "properties": {"name": "EPSG:4326"}}
    return [
        {"type": "Point", "coordinates": [Decimal128("2.3601"), Decimal128("48.8601")]},
        {"type": "Point", "coordinates": [2, 49]},
        {"type": "Point", "coordinates": [2.3601, 48.8602, 35.0]},
        {"type": "Point", "coordinates": [2.3602, 48.8603], "crs": crs},
        [2.3603, 48.8604, 5.0],
        [2.3604, Decimal128("48.8605")],
        {"coordinates": 2.3605, "lat": 48.8606},
        {"type": 2.3606, "coordinates": 48.8607},
    ]


def made(database: Any, name: str, setup: Setup, seed: int) -> Asked:
    content = documents(SIZE, seed, setup)
    if setup.form == "any":
        for number, point in enumerate(odd_points()):
            pair = (
                point["coordinates"]
                if isinstance(point, dict) and isinstance(point["coordinates"], list)
                else point
            )
            lng, lat = (float(str(v)) for v in list(pair.values() if isinstance(pair, dict) else pair)[:2])
            gh = str(cells_to_strings(points_to_cells([lng], [lat]))[0])
            content.append({"_id": f"odd {number}", "n": number, "kind": "cafe", "loc": point, "gh": gh})
    plain = make_collection(database, name, setup, [d for d in content if "odd" not in str(d["_id"])])
    if setup.form == "any":
        plain.insert_many(content[SIZE:])
    info = run(load_info(plain))
    true = info.histogram
    assert info.why_not is None
    assert true is not None
    histograms = {
        "true": true,
        "magnified": Histogram(true.bits, true.cells, true.counts * 300),
        "elsewhere": Histogram.of_points(*travel(20.0, 20.0, np.arange(5000), np.linspace(0, 1, 5000)), 30),
        "anywhere": Histogram.of_points(*points_on_sphere(50_000, 7), 20),
        "empty": Histogram.of_points([], [], 30),
        "one cell": Histogram(30, true.cells[:1], true.counts[:1]),
    }
    infos = {key: replace(info, histogram=one) for key, one in histograms.items()}
    places = np.array([coordinates(get(d, setup.location)) for d in content[:SIZE] if "gh" in d])
    return Asked(setup, plain, infos, places)


@pytest.fixture(scope="module")
def collections(client: MongoClient[dict[str, Any]]) -> Iterator[dict[str, Asked]]:
    database = client["test_nearest_server"]
    client.drop_database(database.name)
    yield {name: made(database, name, setup, 31 + i) for i, (name, setup) in enumerate(SETUPS.items())}
    client.drop_database(database.name)
    metadata_collection(database["any"]).delete_many({"_id": {"$regex": f"^{database.name}[.]"}})


def same(
    one: Asked,
    asked: Any,
    place: Any,
    spatial: Any = None,
    *,
    at_least: int = 1,
    ringed: bool = True,
    **options: Any,
) -> None:
    """Assert that a find by rings is the server's."""
    spatial = one.spatial() if spatial is None else spatial
    if ringed:
        assert spatial.plan(asked, **options).rings is not None, spatial.plan(asked, **options)
    cut = {name: value for name, value in options.items() if name in ("limit", "skip")}
    expected = list(one.plain.find(asked, **cut))
    found = list(spatial.find(asked, **options))
    distance = one.distances(place)
    assert len(expected) >= at_least
    assert [distance[d["_id"]] for d in found] == [distance[d["_id"]] for d in expected], asked
    names = [d["_id"] for d in found]
    assert len(set(names)) == len(names), "a document came twice"
    # Of those at the last distance the server may have chosen others, and so may we; all meet the other conditions.
    tied = {name for name in names if name not in {d["_id"] for d in expected}}
    if tied:
        asked = {"$and": [asked, {"_id": {"$in": sorted(tied, key=str)}}]}
    whole = {d["_id"]: d for d in [*expected, *(one.plain.find(asked) if tied else ())]}
    assert [bson.encode(whole[d["_id"]]) for d in found] == [bson.encode(d) for d in found]


@pytest.mark.parametrize("name", SETUPS)
def test_distances_are_the_servers_to_the_last_bit(name: str, collections: dict[str, Asked]) -> None:
    one = collections[name]
    for place in (*CENTRES, OCEAN, (-180.0, -17.0), (12.345678, -33.3)):
        servers = one.distances(place)
        found = list(one.plain.find({"_id": {"$in": list(servers)}}))
        assert len(servers) > 0.9 * SIZE
        assert measured_by_id(found, place, one.setup.location) == servers
        # Few are measured in another way.
        few = [measured_by_id(found[at : at + 10], place, one.setup.location) for at in range(0, 300, 10)]
        assert [servers[name] for part in few for name in part] == [d for part in few for d in part.values()]
        assert [list(part.values()) for part in few] == [sorted(part.values()) for part in few]


def measured_by_id(documents: list[Any], place: tuple[float, float], location: str) -> dict[Any, float]:
    mine = nearest.measured(documents, *place, location)
    assert sorted(mine.distances) == mine.distances
    return {document["_id"]: m for document, m in zip(mine.documents, mine.distances, strict=True)}


@pytest.mark.parametrize("statistics", ["true", "magnified", "elsewhere", "anywhere", "empty", "one cell"])
@pytest.mark.parametrize("name", SETUPS)
def test_the_nearest_whatever_the_statistics(
    name: str, statistics: str, collections: dict[str, Asked]
) -> None:
    one = collections[name]
    spatial = one.spatial(statistics)
    for number, place in enumerate((*CENTRES, OCEAN, (-180.0, -17.0))):
        for limit, skip in ((1, 0), (10, 0), (40, 7), (-5, 3), (3, SIZE)):
            if (limit + number) % 2 or limit == 10:
                asked = one.near(place)
                same(one, asked, place, spatial, at_least=0 if skip == SIZE else 1, limit=limit, skip=skip)


@pytest.mark.parametrize("statistics", ["true", "magnified", "elsewhere", "empty"])
def test_all_documents_in_order(statistics: str, collections: dict[str, Asked]) -> None:
    for name, place in (("geojson", CENTRES[0]), ("legacy", CENTRES[2]), ("any", CENTRES[3]), ("any", OCEAN)):
        one = collections[name]
        same(one, one.near(place), place, one.spatial(statistics), at_least=1000)
        same(one, one.near(place), place, one.spatial(statistics), at_least=900, skip=100, batch_size=7)


@pytest.mark.parametrize(
    ("name", "statistics", "times"), [("geojson", "true", 3), ("legacy", "true", 2), ("any", "magnified", 1)]
)
def test_distances_exactly_at_a_document(
    name: str, statistics: str, times: int, collections: dict[str, Asked]
) -> None:
    """The ends count, and rings that begin or end there bring nothing twice."""
    one, rng = collections[name], np.random.default_rng(5)
    spatial = one.spatial(statistics)
    for _ in range(times):
        place = one.places[int(rng.integers(len(one.places)))].tolist()
        known = sorted(one.distances(place).values())
        low, high = (known[int(at)] for at in sorted(rng.integers(1, len(known), 2)))
        for limits in (
            {"minDistance": low},
            {"maxDistance": high},
            {"minDistance": low, "maxDistance": high},
        ):
            same(one, one.near(place, **limits), place, spatial)
            for beside in (np.nextafter(low, np.inf), np.nextafter(low, 0), low - 5e-7, low + 5e-7):
                if "minDistance" in limits:
                    asked = one.near(place, **{**limits, "minDistance": max(float(beside), 0.0)})
                    same(one, asked, place, spatial, at_least=0, limit=20)
        for beside in (np.nextafter(high, 0), np.nextafter(high, np.inf)):
            same(one, one.near(place, maxDistance=float(beside)), place, spatial, at_least=0)
        same(one, one.near(place, minDistance=low, maxDistance=low), place, spatial)


def test_legacy_points_count_in_radians(collections: dict[str, Asked]) -> None:
    one = collections["legacy"]
    place = one.places[3].tolist()
    known = sorted(one.distances(place).values())
    for low, high in ((0, known[50]), (known[20], known[300]), (known[20], known[20])):
        for point in (place, {"x": place[0], "y": place[1]}):
            radians = {"$minDistance": low / 6_378_100.0, "$maxDistance": high / 6_378_100.0}
            same(one, {"place.point": {"$nearSphere": point, **radians}}, place, at_least=0)
        same(one, {"place.point": {"$nearSphere": place, "$minDistance": low / 6_378_100.0}}, place, limit=30)


@pytest.mark.parametrize(
    "limits",
    [
        {"minDistance": 3e7},
        {"maxDistance": 3e7},
        {"minDistance": HALF_EARTH_M},
        {"maxDistance": HALF_EARTH_M},
        {"minDistance": 1.99e7},
        {"maxDistance": 0},
        {"minDistance": 0, "maxDistance": 0},
        {"minDistance": 500, "maxDistance": 100},
        {"maxDistance": 1e-7},
        {"minDistance": 1e-7},
    ],
    ids=str,
)
def test_strange_distances(limits: dict[str, float], collections: dict[str, Asked]) -> None:
    one = collections["geojson"]
    for place in (CENTRES[0], CENTRES[2], CENTRES[3], OCEAN):
        same(one, one.near(place, **limits), place, at_least=0)
        same(one, one.near(place, **limits), place, at_least=0, limit=3)


@pytest.mark.parametrize(
    "bounds",
    [
        {"$maxDistance": np.inf},
        {"$minDistance": np.inf},
        {"$maxDistance": np.nan},
        {"$maxDistance": -1},
        {"$minDistance": "far"},
        {"$maxDistance": True},
    ],
    ids=str,
)
def test_what_the_server_refuses(bounds: dict[str, Any], collections: dict[str, Asked]) -> None:
    one = collections["geojson"]
    point = {"type": "Point", "coordinates": [2.35, 48.86]}
    for asked in (
        {"loc": {"$nearSphere": {"$geometry": point, **bounds}}},
        {"loc": {"$nearSphere": [2, 48], **bounds}},
    ):
        codes = []
        for collection in (one.plain, one.spatial()):
            try:
                codes.append(len(list(collection.find(asked).limit(5))))
            except OperationFailure as error:
                codes.append(-(error.code or 0))
        assert codes[0] == codes[1], asked


REGIONS = (
    {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.03]}},
    {"$geoWithin": {"$box": [[-10, 40], [2.35, 60]]}},
    {
        "$geoIntersects": {
            "$geometry": {"type": "Polygon", "coordinates": [[[2, 48], [3, 48], [2.4, 49.5], [2, 48]]]}
        }
    },
    {"$geoWithin": {"$box": [[20, 8], [30, 9]]}},
)
OTHERS = (
    {"kind": "cafe"},
    {"n": {"$lt": 300}},
    {"n": -1},
    {"kind": "park", "score": {"$gt": 60}},
    {"_id": {"$lt": 400}},
    {"$or": [{"kind": "cafe"}, {"n": 5}]},
    {"gh": {"$gte": "u"}},
)


def test_regions_and_other_conditions_beside_it(collections: dict[str, Asked]) -> None:
    for name, statistics in (("geojson", "true"), ("any", "magnified"), ("any", "elsewhere")):
        one = collections[name]
        location, spatial = one.setup.location, one.spatial(statistics)
        for number, place in enumerate((CENTRES[0], (2.35, 48.5), OCEAN)[: 2 + (statistics != "magnified")]):
            near = one.near(place, **({"maxDistance": 4e6} if number == 1 else {}))
            corners = [[place[0], place[1]], *one.places[number : number + 2].tolist()]
            triangle = {"type": "Polygon", "coordinates": [[*corners, corners[0]]]}
            for region in (*REGIONS, {"$geoIntersects": {"$geometry": triangle}}):
                both = {"$and": [near, {location: region}]}
                same(one, both, place, spatial, at_least=0, ringed=False)
                same(one, {**both, "kind": "cafe"}, place, spatial, at_least=0, ringed=False, limit=4)
            for other in OTHERS:
                # Once more: by then it is known how few there are.
                for limit in (5, 5, 0):
                    same(one, {**near, **other}, place, spatial, at_least=0, ringed=False, limit=limit)


def test_points_on_the_border_of_a_region(collections: dict[str, Asked]) -> None:
    """Documents at the corners of the region beside a near: the server says whether they are inside."""
    one, rng = collections["geojson"], np.random.default_rng(8)
    ringed = 0
    for _ in range(12):
        a, b, c = one.places[rng.integers(0, len(one.places), 3)].tolist()
        for region in ({"$box": [a, b]}, {"$geometry": {"type": "Polygon", "coordinates": [[a, b, c, a]]}}):
            asked = {"$and": [{"loc": {"$geoWithin": region}}, one.near(c)]}
            try:
                list(one.plain.find(asked).limit(1))
            except OperationFailure:
                continue  # no triangle
            ringed += one.spatial().plan(asked, limit=30).rings is not None
            same(one, asked, c, at_least=0, ringed=False, limit=30)
    assert ringed > 10


def test_a_flat_index_has_its_own_idea_of_near(
    client: MongoClient[dict[str, Any]], collections: dict[str, Asked]
) -> None:
    """By a 2d index the server finds nothing across the antimeridian, so neither may we."""
    database = client["test_nearest_server"]
    one = made(database, "flat", Setup("loc", "legacy", geo_index="2d"), 41)
    assert collections
    for place in (CENTRES[0], CENTRES[2], (-179.9, -17.0)):
        for bound in ({}, {"$maxDistance": 0.02}):
            asked = {"loc": {"$nearSphere": list(place), **bound}}
            expected, found = list(one.plain.find(asked)), list(one.spatial().find(asked))
            assert len(expected) > 20
            assert sorted(d["_id"] for d in found) == sorted(d["_id"] for d in expected)


def test_without_a_whole_index_the_server_refuses(client: MongoClient[dict[str, Any]]) -> None:
    database = client["test_nearest_server"]
    one = made(database, "partial", Setup("loc", "geojson"), 42)
    one.plain.drop_index("loc_2dsphere")
    one.plain.create_index([("loc", "2dsphere")], partialFilterExpression={"n": {"$gt": 50}})
    spatial = SpatialCollection(one.plain, info=run(load_info(one.plain)), qos=CLIENT)
    for collection in (one.plain, spatial):
        with pytest.raises(OperationFailure, match="unable to find index"):
            list(collection.find(one.near(CENTRES[0])).limit(3))


def test_nothing_is_read_twice_or_before_it_is_wanted(
    collections: dict[str, Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = collections["geojson"]
    ends, asked = [0.0], []

    def covered(*given: Any) -> Any:
        ring = ring_cover(*given)
        ends.append(ring.surely_m)
        return ring

    def sent(ranges: Any, *given: Any, **options: Any) -> Any:
        asked.append(ranges)
        return ring_filter(ranges, *given, **options)

    monkeypatch.setattr(nearest, "ring_cover", covered)
    monkeypatch.setattr(nearest, "ring_filter", sent)
    cursor = one.spatial("magnified").find(one.near(CENTRES[0]))
    assert ends == [0.0]
    next(cursor)
    # A ring in which there is nothing is followed by the next, and no further than the first document.
    first = len(ends)
    cursor.to_list()
    assert len(ends) > first >= 2
    assert ends == sorted(ends)
    assert ends[-1] >= HALF_EARTH_M - 1
    lo, hi = (np.concatenate([getattr(ranges, end) for ranges in asked]) for end in ("lo", "hi"))
    order = np.argsort(lo)
    assert bool((hi[order][:-1] <= lo[order][1:]).all())


def test_the_second_ring_is_as_wide_as_it_must_be(
    collections: dict[str, Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, ends = collections["geojson"], []

    def covered(*given: Any) -> Any:
        ring = ring_cover(*given)
        ends.append(ring.surely_m)
        return ring

    monkeypatch.setattr(nearest, "ring_cover", covered)
    monkeypatch.setattr(ring_near, "enough", lambda needed: needed / 50)
    seconds = 0
    for place in CENTRES:
        distances = one.distances(place)
        for limit in (3, 10, 30):
            ends.clear()
            found = [distances[d["_id"]] for d in one.spatial("true").find(one.near(place)).limit(limit)]
            assert found == sorted(distances.values())[:limit]
            if len(set(ends)) == 2:
                seconds += 1
                assert ends[-1] >= found[-1]
    assert seconds >= 3


def test_where_there_is_next_to_nothing_rings_find_it_too(collections: dict[str, Asked]) -> None:
    one = collections["geojson"]
    spatial = SpatialCollection(one.plain, info=one.infos["true"])
    for place, reach in ((OCEAN, 1e5), (CENTRES[0], 1e5), (OCEAN, 1.9e7)):
        asked = one.near(place, maxDistance=reach)
        cursor = spatial.find(asked).limit(50)
        found = [document["_id"] for document in cursor]
        assert cursor.plan is not None
        assert cursor.plan.rewritten
        near = sorted(d for d in one.distances(place).values() if d <= reach)
        assert [one.distances(place)[name] for name in found] == near[:50]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_ranges_than_the_caller_wants(
    most: int, collections: dict[str, Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, counts = collections["geojson"], []

    def sent(ranges: Any, *given: Any, **options: Any) -> Any:
        counts.append(len(ranges))
        return ring_filter(ranges, *given, **options)

    monkeypatch.setattr(nearest, "ring_filter", sent)
    qos = QoS(form="client", max_ranges=most)
    for statistics in ("true", "magnified"):
        spatial = SpatialCollection(one.plain, info=one.infos[statistics], qos=qos)
        for place in (CENTRES[0], CENTRES[2], CENTRES[5]):
            same(one, one.near(place), place, spatial, limit=30)
            same(one, one.near(place), place, spatial)
    assert 1 <= max(counts) <= most


def test_a_pause_of_the_reader_is_not_the_servers_time(
    collections: dict[str, Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, now, limits = collections["geojson"], [0.0], []

    def noted(*given: Any, **options: Any) -> Any:
        limits.append(options.pop("max_time_ms"))
        return calm_find(*given, **options)

    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(reading, "calm_find", noted)
    cursor = one.spatial("magnified").find(one.near(CENTRES[0])).max_time_ms(2000)
    next(cursor)
    now[0] += 100.0
    cursor.to_list()
    assert len(limits) >= 2  # and one of them behind the pause
    assert set(limits) == {2000}


def test_a_filter_changed_while_it_is_read(collections: dict[str, Asked]) -> None:
    one = collections["geojson"]
    asked: dict[str, Any] = {**one.near(CENTRES[0]), "n": {"$gte": 0}}
    expected = one.plain.count_documents({"n": {"$gte": 0}, "gh": {"$exists": True}})
    cursor = one.spatial("magnified").find(asked)
    next(cursor)
    asked["n"]["$gte"] = 10**9
    asked["loc"]["$nearSphere"]["$geometry"]["coordinates"][0] = 100.0
    assert 1 + len(cursor.to_list()) == expected


def test_a_near_changed_while_it_is_read(collections: dict[str, Asked]) -> None:
    """The server is asked about a document at the greatest distance by the near as it was."""
    one, place = collections["geojson"], CENTRES[0]
    ordered = sorted(one.distances(place).values())
    asked = one.near(place, maxDistance=ordered[300])
    cursor = one.spatial("magnified").find(asked)
    next(cursor)
    asked["loc"]["$nearSphere"]["$geometry"]["coordinates"][0] = 100.0
    found = [one.distances(place)[document["_id"]] for document in cursor.to_list()]
    assert found == [distance for distance in ordered if distance <= ordered[300]][1:]


def test_in_a_transaction_and_at_one_moment(
    collections: dict[str, Asked], client: MongoClient[dict[str, Any]]
) -> None:
    one, place = collections["geojson"], CENTRES[0]
    asked = one.near(place, minDistance=sorted(one.distances(place).values())[30])
    expected = [d["_id"] for d in one.plain.find(asked)]
    with client.start_session() as session, session.start_transaction():
        found = list(one.spatial().find(asked, session=session))
    with client.start_session(snapshot=True) as session:
        again = list(one.spatial().find(asked, session=session))
    snapshot = one.plain.with_options(read_concern=ReadConcern("snapshot"))
    spatial = SpatialCollection(snapshot, info=one.infos["true"], qos=CLIENT)
    assert spatial.plan(asked).rings is None
    for answer in (found, again, list(spatial.find(asked))):
        assert sorted(d["_id"] for d in answer) == sorted(expected)


def test_the_asynchronous_twin(collections: dict[str, Asked], cluster: Any) -> None:
    one, place = collections["any"], CENTRES[2]

    async def ask() -> list[Any]:
        async with AsyncMongoClient(cluster.uri) as client:
            plain = client["test_nearest_server"]["any"]
            spatial = AsyncSpatialCollection(plain, info=one.infos["magnified"], qos=CLIENT)
            listed = await spatial.find(one.near(place)).limit(50).skip(3).to_list()
            one_by_one = [d async for d in spatial.find(one.near(place)).limit(50).skip(3).batch_size(4)]
            assert [d["_id"] for d in listed] == [d["_id"] for d in one_by_one]
            assert (await spatial.find_one(one.near(place)))["_id"] is not None
            return listed

    distance = one.distances(place)
    expected = [distance[d["_id"]] for d in one.plain.find(one.near(place)).limit(50).skip(3)]
    assert [distance[d["_id"]] for d in asyncio.run(ask())] == expected


def test_the_margin_is_wider_than_rounding() -> None:
    """Distances of the same pair from both ends differ in their last bits; the margin is far above that."""
    lng, lat = points_on_sphere(500, 9)
    for x, y in zip(lng[:50], lat[:50], strict=True):
        there = distances_m(x, y, lng, lat)
        back = np.array([distances_m(a, b, [x], [y])[0] for a, b in zip(lng, lat, strict=True)])
        assert np.abs(there - back).max() < ERROR_M / 10


def test_the_caller_may_change_the_filter_while_the_cursor_is_read(collections: dict[str, Asked]) -> None:
    one = collections["geojson"]
    place = CENTRES[0]
    reach = sorted(one.distances(place).values())[200] + 0.1
    asked = {**one.near(place, maxDistance=reach), "kind": {"$in": ["cafe", "hotel", "park"]}}
    expected = [document["_id"] for document in one.plain.find(asked)]
    cursor = one.spatial("magnified").find(asked)
    found = [next(cursor)["_id"]]
    asked["kind"]["$in"].clear()
    asked[one.setup.location]["$nearSphere"]["$maxDistance"] = 1.0
    asked[one.setup.location]["$nearSphere"]["$geometry"]["coordinates"][0] = 77.0
    found += [document["_id"] for document in cursor]
    assert len(found) > 50
    distances = one.distances(place)
    assert [distances[name] for name in found] == [distances[name] for name in expected]


def test_a_clump_beside_a_circle_is_not_sent(
    collections: dict[str, Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who are read lie within the distance, or as near to it as rounding could matter, but for a few."""
    one = collections["geojson"]
    read: list[Any] = []

    def noted(*given: Any) -> Any:
        found = measured(*given)
        read.append(found)
        return found

    monkeypatch.setattr(nearest, "measured", noted)
    for place in CENTRES:
        ordered = sorted(one.distances(place).values())
        for reach in (ordered[20] + 0.5, ordered[60], 300.0):
            read.clear()
            cursor = one.spatial("true").find(one.near(place, maxDistance=reach)).limit(1000)
            found = [one.distances(place)[document["_id"]] for document in cursor]
            assert found == [distance for distance in ordered if distance <= reach]
            if len(read) == 1:
                assert read[0].distances[-1] <= reach + 1.1 or len(read[0]) < 50
