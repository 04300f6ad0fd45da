"""``spatialnosql polygons`` and ``spatialnosql top``: what they print, their exit codes, wrong usage."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

import spatialnosql
from spatialnosql.adopt import adopt
from spatialnosql.analyze import analyze
from spatialnosql.city import generate_city
from spatialnosql.cli import main
from spatialnosql.collection import SpatialCollection
from spatialnosql.metadata import metadata_collection
from spatialnosql.neighbourhoods import neighbourhoods

Documents = Collection[dict[str, Any]]
Command = Callable[..., str]
BOW_TIE = {"type": "Polygon", "coordinates": [[[1, 1], [2, 2], [2, 1], [1, 2], [1, 1]]]}
TRIANGLE = {"type": "Polygon", "coordinates": [[[1, 1], [2, 1], [2, 2], [1, 1]]]}


def named(name: str, geometry: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


@pytest.fixture(scope="module")
def trips(client: MongoClient[dict[str, Any]]) -> Iterator[Documents]:
    """Points of the generated city, adopted, some without an amount."""
    name = f"test_{secrets.token_hex(6)}"
    points = client[name].trips
    for batch in generate_city(4_000, seed=3).to_documents():
        points.insert_many(batch)
    points.update_many({"_id": {"$mod": [7, 0]}}, {"$unset": {"amount": 1}})
    adopt(points, "loc")
    yield points
    client.drop_database(name)
    metadata_collection(points).delete_one({"_id": points.full_name})


@pytest.fixture(scope="module")
def zones(trips: Documents, tmp_path_factory: pytest.TempPathFactory, cluster: Any) -> Documents:
    """The collection of polygons, loaded by the command."""
    file = tmp_path_factory.mktemp("zones") / "zones.geojson"
    file.write_text(json.dumps(neighbourhoods(15)))
    into = f"{trips.database.name}.zones"
    loaded = ["load", str(file), "--into", into, "--points", trips.full_name, "--uri", cluster.uri]
    assert main(["polygons", *loaded]) == 0
    return trips.database.zones


@pytest.fixture
def ask(cluster: Any, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command; what it printed, or its one line of error."""

    def run(*arguments: str, code: int = 0, error: bool = False) -> str:
        assert main([*arguments, "--uri", cluster.uri]) == code
        captured = capsys.readouterr()
        if error:
            assert captured.out == ""
            assert len(captured.err.splitlines()) == 1
        return captured.err if error else captured.out

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """A file with these features."""

    def written(*features: Any, name: str = "zones.geojson") -> str:
        content = json.dumps({"type": "FeatureCollection", "features": list(features)}).encode()
        file = tmp_path / name
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(file)

    return written


# -- polygons ---------------------------------------------------------------------------------------------


def test_load_lists_what_is_bad_and_loads_the_rest(
    ask: Command, write: Callable[..., str], database: Database[dict[str, Any]]
) -> None:
    file = write(
        named("Tie", BOW_TIE),
        named("Good", TRIANGLE),
        named("Good", TRIANGLE),
        named("Nowhere", None),
        name="zones.geojson.gz",
    )
    into = f"{database.name}.zones"
    lines = ask("polygons", "load", file, "--into", into).splitlines()
    assert lines == [
        f"{into}: 1 polygon loaded (1 new, 0 changed, 0 as before)",
        "bad, and not loaded: 3",
        "  feature 0 ('Tie'): edges of ring 0 cross: from [1, 1] to [2, 2] and from [2, 1] to [1, 2]",
        "  feature 2 ('Good'): feature 1 has the same id; ids must be different",
        "  feature 3 ('Nowhere'): it has no geometry",
    ]
    document = json.loads(ask("polygons", "load", file, "--into", into, "--json"))
    assert (document["loaded"], document["unchanged"], document["added"]) == (1, 1, 0)
    assert document["bad"][2] == {"id": "Nowhere", "feature": 3, "reason": "it has no geometry"}
    # The exit code is 1 if nothing could be loaded, or not everything that had to be.
    before = list(database.zones.find())
    assert "0 polygons loaded" in ask("polygons", "load", file, "--into", into, "--strict", code=1)
    assert "bad, and not loaded: 1" in ask(
        "polygons", "load", write(named("Tie", BOW_TIE)), "--into", into, "--replace", code=1
    )
    assert list(database.zones.find()) == before
    moved = write(named("Other", TRIANGLE))
    assert "not given, but still in the collection: 1 (--replace" in ask(
        "polygons", "load", moved, "--into", into
    )
    assert "removed, since they were not given: 1" in ask(
        "polygons", "load", moved, "--into", into, "--replace"
    )
    assert [one["_id"] for one in database.zones.find()] == ["Other"]


def test_ids_from_a_property_or_from_numbers(
    ask: Command, write: Callable[..., str], database: Database[dict[str, Any]]
) -> None:
    zone = {"type": "Feature", "geometry": TRIANGLE}
    file = write({**zone, "properties": {"code": 7}}, {**zone, "properties": {"code": "x"}}, zone)
    text = ask("polygons", "load", file, "--into", f"{database.name}.zones")
    assert "their ids are their numbers; --id PROPERTY takes a property instead: code" in text
    text = ask("polygons", "load", file, "--into", f"{database.name}.codes", "--id", "code")
    assert "feature 2: no property 'code'; it has: none" in text
    assert [one["_id"] for one in database.codes.find()] == [7, "x"]
    # If none has it, nothing is written, and it is said once.
    into = f"{database.name}.none"
    error = ask("polygons", "load", file, "--into", into, "--id", "cod", code=1, error=True)
    assert "feature 0: no property 'cod'; it has: code; nor is there one that has it" in error
    assert "none" not in database.list_collection_names()


def test_list_and_refresh(ask: Command, trips: Documents, zones: Documents) -> None:
    zones.aggregate([{"$out": "listed"}])
    zones = zones.database.listed
    rows = json.loads(ask("polygons", "list", zones.full_name, "--json"))["polygons"]
    assert len(rows) == 15
    assert {cover["state"] for row in rows for cover in row["covers"]} == {"fresh"}
    assert sum(row["holes"] for row in rows) >= 2
    assert max(row["parts"] for row in rows) >= 2
    lines = ask("polygons", "list", zones.full_name).splitlines()
    assert len(lines) == 16
    first = rows[0]
    cover = first["covers"][0]
    ranges = f"{trips.full_name} {cover['interior']} + {cover['boundary']} ranges, fresh"
    assert lines[1].split(None, 2)[:2] == first["id"].split()
    assert lines[1].endswith(ranges)
    # Everything that can happen to them.
    names = [row["id"] for row in rows]
    zones.update_one({"_id": names[0]}, {"$set": {"geometry": TRIANGLE}})
    zones.update_one({"_id": names[1]}, {"$unset": {"covers": 1}})
    zones.update_one({"_id": names[2]}, {"$set": {"covers.0.histogram": b"old"}})
    zones.update_one({"_id": names[3]}, {"$set": {"covers.0.made": 0}})
    zones.insert_one({"_id": "touching", "geometry": _touching()})
    zones.insert_one({"_id": "none"})
    found = {
        row["id"]: row for row in json.loads(ask("polygons", "list", zones.full_name, "--json"))["polygons"]
    }
    states = [found[name]["covers"][0]["state"] for name in names[:5]]
    assert [state.partition(":")[0] for state in states] == ["stale", "missing", "stale", "stale", "fresh"]
    assert len(set(states)) == 5
    assert found["touching"]["note"].startswith("counted by the server itself: ring 0 touches")
    assert found["none"]["note"] == "bad: it has no geometry"
    assert "none" in ask("polygons", "list", zones.full_name)
    assert "polygon 'none': it has no geometry" in ask(
        "polygons", "refresh", zones.full_name, code=1, error=True
    )
    zones.delete_one({"_id": "none"})
    text = ask("polygons", "refresh", zones.full_name)
    assert text == f"covers for {trips.full_name}: 4 made, 11 as before\n"
    document = json.loads(ask("polygons", "refresh", zones.full_name, "--points", trips.full_name, "--json"))
    assert document["covers"] == [{"points": trips.full_name, "made": 0, "fresh": 15, "failed": []}]
    analyze(trips)  # nothing new
    assert "0 made, 15 as before" in ask("polygons", "refresh", zones.full_name)


def _touching() -> dict[str, Any]:
    shell = [[10.1, 56.1], [11.1, 56.1], [11.1, 57.1], [10.1, 57.1], [10.1, 56.1]]
    hole = [[10.1, 56.1], [10.6, 56.3], [10.4, 56.5], [10.1, 56.1]]
    return {"type": "Polygon", "coordinates": [shell, hole]}


def test_wrong_usage_of_polygons(
    ask: Command, write: Callable[..., str], trips: Documents, database: Database[dict[str, Any]]
) -> None:
    into = f"{database.name}.zones"
    file = write(named("a", TRIANGLE))
    assert "no such file: none.geojson" in ask(
        "polygons", "load", "none.geojson", "--into", into, code=1, error=True
    )
    assert "is no collection" in ask("polygons", "load", file, "--into", "zones", code=1, error=True)
    assert "is a collection of points" in ask(
        "polygons", "load", file, "--into", trips.full_name, code=1, error=True
    )
    assert "it does not exist" in ask(
        "polygons", "load", file, "--into", into, "--points", f"{database.name}.x", code=1, error=True
    )
    assert "has no polygons" in ask("polygons", "list", into, code=1, error=True)
    assert "--points names the points" in ask("polygons", "refresh", into, code=1, error=True)
    assert "has no polygons; `spatialnosql polygons load FILE --into" in ask(
        "polygons", "refresh", into, "--points", trips.full_name, code=1, error=True
    )
    assert database.list_collection_names() == []
    with pytest.raises(SystemExit, match="2"):
        main(["polygons"])
    with pytest.raises(SystemExit, match="2"):
        main(["polygons", "load", file])


# -- top --------------------------------------------------------------------------------------------------


def by_server(trips: Documents, zones: Documents, **condition: Any) -> dict[Any, list[dict[str, Any]]]:
    """The documents in each polygon."""
    return {
        one["_id"]: list(trips.find({"loc": {"$geoWithin": {"$geometry": one["geometry"]}}, **condition}))
        for one in zones.find()
    }


def test_top_counts(ask: Command, trips: Documents, zones: Documents) -> None:
    inside = {name: len(found) for name, found in by_server(trips, zones).items()}
    document = json.loads(ask("top", trips.full_name, zones.full_name, "-n", "5", "--json"))
    rows = document["rows"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["count"] for row in rows] == sorted(inside.values(), reverse=True)[:5]
    assert all(row["count"] == row["value"] == inside[row["id"]] > 0 for row in rows)
    assert document["as_of"] is None
    lines = ask("top", trips.full_name, zones.full_name, "-n", "5").splitlines()
    assert lines[0].split() == ["rank", "id", "points"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3", "4", "5"]
    assert lines[1].endswith(f"{rows[0]['count']:,}")
    for every in (("--all",), ("-n", "0"), ("--all", "--least"), ("--all", "--consistent")):
        found = json.loads(ask("top", trips.full_name, zones.full_name, *every, "--json"))["rows"]
        assert {row["id"]: row["count"] for row in found} == inside
        counts = [row["count"] for row in found]
        assert counts == sorted(counts, reverse="--least" not in every)


@pytest.mark.parametrize("measure", ["sum", "avg", "min", "max"])
def test_top_by_a_field_of_some_points(
    ask: Command, trips: Documents, zones: Documents, measure: str
) -> None:
    wanted = {"kind": "ride", "at": {"$gte": trips.find_one()["at"]}}
    amounts = {
        name: [one["amount"] for one in found if "amount" in one]
        for name, found in by_server(trips, zones, **wanted).items()
    }
    computed: dict[str, Callable[[list[float]], float | None]] = {
        "sum": sum,
        "avg": lambda values: sum(values) / len(values) if values else None,
        "min": lambda values: min(values, default=None),
        "max": lambda values: max(values, default=None),
    }
    given = '{"kind": "ride", "at": {"$gte": {"$date": "' + wanted["at"]["$gte"].isoformat() + 'Z"}}}'
    options = ("--filter", given, "--weight", f"{measure}:amount", "--all")
    rows = json.loads(ask("top", trips.full_name, zones.full_name, *options, "--json"))["rows"]
    assert len(rows) == 15
    for row in rows:
        expected = computed[measure](amounts[row["id"]])
        assert row["value"] == (expected if expected is None else pytest.approx(expected, rel=1e-12))
    values = [row["value"] for row in rows if row["value"] is not None]
    assert values == sorted(values, reverse=True)
    lines = ask("top", trips.full_name, zones.full_name, *options).splitlines()
    assert f"{measure} of amount" in lines[0]
    assert lines[1].split()[-2] == f"{rows[0]['value']:,.2f}"


def test_top_as_of_the_last_analysis(ask: Command, trips: Documents, zones: Documents) -> None:
    analysis = analyze(trips)
    SpatialCollection(trips).forget()  # other commands of this process knew the one before
    inside = {name: len(found) for name, found in by_server(trips, zones).items()}
    asked = ("top", trips.full_name, zones.full_name, "--all", "--as-of", "last_analyze")
    document = json.loads(ask(*asked, "--json"))
    assert {row["id"]: row["count"] for row in document["rows"]} == inside
    assert document["as_of"]["points"] == analysis.documents
    assert 0 < document["as_of"]["keys_read"] < analysis.documents
    assert document["as_of"]["moment"][:19] == analysis.at.isoformat()[:19]
    assert ask(*asked).splitlines()[-1].startswith(f"as of {analysis.at:%Y-%m-%d %H:%M:%S} UTC, of ")
    estimated = json.loads(ask(*asked, "--borders", "estimated", "--json"))
    assert estimated["as_of"]["keys_read"] is None
    for row in estimated["rows"]:
        assert row["low"] <= inside[row["id"]] <= row["high"]
        assert row["low"] <= row["count"] <= row["high"]
    lines = ask(*asked, "--borders", "estimated").splitlines()
    assert lines[0].split() == ["rank", "id", "points", "at", "least", "at", "most"]
    assert lines[-1].endswith("nothing read now")


def test_top_with_a_file(
    trips: Documents, write: Callable[..., str], cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(named("Tie", BOW_TIE), *neighbourhoods(8)["features"])
    assert main(["top", trips.full_name, f"@{file}", "--json", "--uri", cluster.uri]) == 0
    captured = capsys.readouterr()
    assert "left out: feature 0 ('Tie'): edges of ring 0 cross" in captured.err
    assert sum(row["count"] for row in json.loads(captured.out)["rows"]) == trips.count_documents({})
    file = write(named("Tie", BOW_TIE))
    assert main(["top", trips.full_name, f"@{file}", "--uri", cluster.uri]) == 1
    assert f"{file} has no polygon that MongoDB would take" in capsys.readouterr().err


def test_wrong_usage_of_top(ask: Command, trips: Documents, zones: Documents) -> None:
    asked = ("top", trips.full_name, zones.full_name)
    as_of = ("--as-of", "last_analyze")
    assert "not a pipeline" in ask(*asked, "--filter", "[]", code=1, error=True)
    assert "no JSON" in ask(*asked, "--filter", "{kind: 1}", code=1, error=True)
    assert "no filter, no weight" in ask(*asked, *as_of, "--weight", "amount", code=1, error=True)
    assert "no filter, no weight" in ask(*asked, *as_of, "--filter", '{"a": 1}', code=1, error=True)
    assert "goes with as_of" in ask(*asked, "--borders", "estimated", code=1, error=True)
    assert "has no polygons" in ask("top", trips.full_name, f"{zones.full_name}x", code=1, error=True)
    assert "cannot be joined" in ask("top", zones.full_name, zones.full_name, code=1, error=True)
    assert "is no collection" in ask("top", trips.full_name, "zones", code=1, error=True)
    for wrong in (["-n", "-1"], ["--weight", "median:fare"], ["--weight", "avg:"], ["--as-of", "yesterday"]):
        with pytest.raises(SystemExit, match="2"):
            main([*asked, *wrong])


def test_the_names_are_exported(trips: Documents, zones: Documents) -> None:
    assert {"Polygons", "count_by_polygon", "top_n"} <= set(spatialnosql.__all__)
    spatial = SpatialCollection(trips)
    first = spatialnosql.top_n(spatial, zones, 1)[0]
    assert spatialnosql.count_by_polygon(spatial, zones).to_dict()[first.id] == first.value
    polygons = spatialnosql.Polygons.of(neighbourhoods(8))
    assert sum(spatialnosql.count_by_polygon(trips, polygons).to_dict().values()) == trips.count_documents({})
