"""The report of a live cluster, opened in a real headless Chromium: wide and narrow, light and dark, on paper."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pymongo import MongoClient

from spatialnosql import generate_city
from spatialnosql.adopt import adopt
from spatialnosql.cli import main
from spatialnosql.ledger import DONE, open_batch
from spatialnosql.metadata import metadata_collection
from spatialnosql.subscriptions.store import Subscriptions

DATABASE = "test_report"
NASTY = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
CIRCLE = {"loc": {"$geoWithin": {"$centerSphere": [[11.25, 56.25], 0.0003]}}}
POINTS = 20_000

_spec = importlib.util.spec_from_file_location(
    "browser", Path(__file__).parent.parent / "tools" / "browser.py"
)
assert _spec is not None
assert _spec.loader is not None
driver = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("browser", driver)
_spec.loader.exec_module(driver)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        program = driver.find_browser()
    except driver.NoBrowserError as error:
        pytest.skip(str(error))
    opened = driver.Browser(program)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def filled(client: MongoClient[dict[str, Any]]) -> Iterator[Any]:
    """A city with everything that a report shows, and a world with little."""
    client.drop_database(DATABASE)
    database = client[DATABASE]
    city = generate_city(POINTS, bad_share=0)
    for batch in city.to_documents():
        database.trips.insert_many(batch)
    adopt(database.trips, "loc")
    open_batch(database.trips, NASTY, ["file"]).enter(
        DONE, outcome={"rows": 77, "written": 77, "seconds": 1.0}
    )
    features = city.neighbourhoods(12)["features"]
    database.areas.insert_many(
        [{"_id": NASTY if not number else one["properties"]["name"], "geometry": one["geometry"]}
         for number, one in enumerate(features)]
    )  # fmt: skip
    Subscriptions(database.alerts).add_many(
        {
            "id": str(n),
            "owner": f"o{n % 4}",
            "keywords": f"word{n % 5}",
            "region": [11.1, 56.1, 11.3, 56.3 + n / 1e4],
        }
        for n in range(60)
    )
    database.alerts_matched.insert_many(
        {"_id": row, "text": f"a word{row % 5}", "loc": {"type": "Point", "coordinates": [x, y]}}
        for row, (x, y) in enumerate(zip(city.lng[:300].tolist(), city.lat[:300].tolist(), strict=True))
    )
    draw = np.random.default_rng(5)
    places = zip(draw.uniform(-180, 180, 3000).tolist(), draw.uniform(-80, 80, 3000).tolist(), strict=True)
    database.places.insert_many({"loc": {"type": "Point", "coordinates": [x, y]}} for x, y in places)
    adopt(database.places, "loc")
    yield database
    client.drop_database(DATABASE)
    for name in ("trips", "places"):
        metadata_collection(database.trips).delete_one({"_id": f"{DATABASE}.{name}"})
    client["spatialnosql"]["batches"].delete_many({"namespace": f"{DATABASE}.trips"})


@pytest.fixture(scope="module")
def made(cluster: Any, filled: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The city's report, made by the command."""
    folder = tmp_path_factory.mktemp("report")
    queries = folder / "queries.json"
    entries = [
        {"name": "the middle", "query": CIRCLE, "count": True},
        {
            "name": NASTY,
            "query": {"loc": {"$nearSphere": [11.26, 56.26]}, "kind": {"$ne": NASTY}},
            "limit": 10,
        },
    ]
    queries.write_text(json.dumps(entries))
    out = folder / "report.html"
    arguments = [
        "report", f"{DATABASE}.trips", "--uri", cluster.uri, "--out", str(out), "--query", str(queries),
        "--query", json.dumps([{"$match": CIRCLE}, {"$count": "n"}]), "--polygons", f"{DATABASE}.areas", "--top", "5",
        "--subscriptions", f"{DATABASE}.alerts", "--partitions", "3", "--json",
    ]  # fmt: skip
    before = {name: filled[name].count_documents({}) for name in filled.list_collection_names()}
    capture = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", capture)
        assert main(arguments) == 0
    assert {name: filled[name].count_documents({}) for name in filled.list_collection_names()} == before
    return {**json.loads(capture.getvalue()), "path": out}


def test_the_command_says_what_it_found(made: dict[str, Any]) -> None:
    assert made["documents"] == POINTS == sum(made["shards"].values())
    assert len(made["shards"]) == 3
    assert made["chunks"] >= 3
    assert [query["equal"] for query in made["queries"]] == [True, True, True]
    assert made["queries"][2]["title"] == "Query 3: aggregate by $geoWithin"
    assert (made["polygons"], made["subscriptions"]) == (12, 60)
    assert made["bytes"] == made["path"].stat().st_size < 3_000_000


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["wide", "narrow"])
def test_it_opens_without_trouble_and_shows_the_numbers(
    browser: Any, made: dict[str, Any], filled: Any, width: int, height: int, dark: bool
) -> None:
    with browser.open(made["path"], width, height, dark=dark) as tab:
        assert tab.evaluate("document.documentElement.dataset.ready") == "yes"
        assert tab.troubles == []
        assert tab.requests == []
        words = tab.evaluate("document.body.innerText")
        inside = filled.trips.count_documents(CIRCLE)
        for wanted in (
            f"{POINTS:,}",
            f"{inside:,}",
            "the middle",
            "Top 5",
            "60 subscriptions of 4 owners",
            *made["shards"],
        ):
            assert wanted in words
        assert NASTY in words
        assert tab.evaluate("typeof window.pwned") == "undefined"
        # Nothing is wider than the screen, and every figure is drawn.
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate("document.querySelectorAll('figure.plot').length") == 16
        marks = ".bars path, .scatterlayer .fills path, .scatterlayer .js-line, .heatmaplayer image"
        empty = f"[...document.querySelectorAll('figure.plot')].filter((f) => !f.querySelector('{marks}'))"
        assert tab.evaluate(f"{empty}.map((f) => f.id)") == []
        shot = Image.open(io.BytesIO(tab.screenshot(whole=True))).convert("RGB")
        assert shot.size[0] == width
        colours = shot.getcolors(1 << 24)
        assert colours is not None
        assert len(colours) > 200
        paper = max(colours)[1]
        assert (sum(paper) < 200) is dark
        # The colours of the shards are on the map.
        assert min(sum(abs(a - b) for a, b in zip(c, (63, 127, 214), strict=True)) for _, c in colours) < 30


def test_the_button_changes_the_light_and_paper_is_white(browser: Any, made: dict[str, Any]) -> None:
    with browser.open(made["path"]) as tab:
        assert tab.evaluate("document.documentElement.dataset.theme") == "light"
        tab.evaluate("document.getElementById('theme').click()")
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        assert tab.evaluate("document.querySelector('.drawing').layout.font.color") == "#e4e9ef"
        assert tab.pdf().startswith(b"%PDF")
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        tab.resize(390, 844)
        tab.wait("document.querySelector('.drawing').layout.width < 390")
        assert tab.troubles == []


def test_the_pointer_is_told_what_is_under_it(browser: Any, made: dict[str, Any]) -> None:
    with browser.open(made["path"]) as tab:
        tab.evaluate(
            "document.getElementById('fig-documents').scrollIntoView({behavior: 'instant', block: 'center'})"
        )
        box = tab.evaluate(
            "JSON.stringify(document.querySelector('#fig-documents .bars path').getBoundingClientRect())"
        )
        place = json.loads(box)
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        tab.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        tab.wait("document.querySelector('#fig-documents .hoverlayer').textContent.includes('shard0')", 10)
        assert tab.troubles == []


def test_the_page_can_neither_run_other_scripts_nor_ask_a_host(browser: Any, made: dict[str, Any]) -> None:
    """Its own policy forbids both: so the tests above are no accident of these data."""
    with browser.open(made["path"]) as tab:
        tab.evaluate(
            "const one = document.createElement('script');"
            "one.textContent = 'window.pwned = 3'; document.body.append(one)"
        )
        assert tab.evaluate("typeof window.pwned") == "undefined"
        assert tab.evaluate("fetch('http://127.0.0.1:9/').then(() => 'asked', () => 'refused')") == "refused"
        assert any("Content Security Policy" in trouble for trouble in tab.troubles)
        # And the test of troubles can fail.
        tab.evaluate("console.error('oh'); 0")
        assert any("oh" in trouble for trouble in tab.troubles)


def test_the_world_and_a_query_across_the_antimeridian(
    browser: Any, cluster: Any, filled: Any, tmp_path: Path
) -> None:
    out = tmp_path / "world.html"
    shape = {"type": "Polygon", "coordinates": [[[160, -20], [-160, -25], [-150, 30], [170, 40], [160, -20]]]}
    query = json.dumps({"loc": {"$geoWithin": {"$geometry": shape}}})
    assert (
        main(
            [
                "report",
                f"{DATABASE}.places",
                "--uri",
                cluster.uri,
                "--out",
                str(out),
                "--query",
                query,
                "--fresh",
            ]
        )
        == 0
    )
    with browser.open(out) as tab:
        assert tab.troubles == []
        assert tab.requests == []
        words = tab.evaluate("document.body.innerText")
        assert "3,000" in words
        assert "No batch of" in words
        west, east = tab.evaluate("document.querySelector('#fig-map .drawing').layout.xaxis.range")
        assert west <= -179
        assert east >= 179


def test_explain_uses_the_same_parts(
    browser: Any, cluster: Any, filled: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "query.html"
    arguments = [
        "explain",
        f"{DATABASE}.trips",
        json.dumps(CIRCLE),
        "--count",
        "--uri",
        cluster.uri,
        "--html",
        str(out),
    ]
    assert main(arguments) == 0
    assert "keys examined" in capsys.readouterr().out
    with browser.open(out, 390, 844) as tab:
        assert tab.troubles == []
        assert tab.requests == []
        assert tab.evaluate("document.querySelectorAll('section').length") == 1
        assert f"{filled.trips.count_documents(CIRCLE):,}" in tab.evaluate("document.body.innerText")
    assert main([*arguments[:-1], str(tmp_path / "query.txt")]) == 1
    assert "--html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{DATABASE}.nothing"], "cannot be reported on: it does not exist"),
        ([f"{DATABASE}.areas"], "spatialnosql adopt"),
        ([f"{DATABASE}.trips", "--query", "{"], "is no JSON"),
        ([f"{DATABASE}.trips", "--polygons", f"{DATABASE}.nothing"], "has no polygons"),
        ([f"{DATABASE}.trips", "--polygons", "@nowhere.json"], "no such file"),
        ([f"{DATABASE}.trips", "--subscriptions", f"{DATABASE}.nothing"], "has no subscriptions"),
        ([f"{DATABASE}.trips", "--plan", "nowhere.npz"], "there is no such file"),
    ],
)
def test_one_line_says_what_is_wrong(
    cluster: Any,
    filled: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", *arguments, "--uri", cluster.uri, "--out", str(out)]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()
