"""Subscriptions in a sharded collection, and ``spatialnosql subscribe``."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymongo.collection import Collection
from pymongo.database import Database

from spatialnosql.cli import main
from spatialnosql.errors import UsageError
from spatialnosql.sharding import shard_key
from spatialnosql.subscriptions import store, store_writing
from spatialnosql.subscriptions.areas import Circle, Polygon, Rectangle
from spatialnosql.subscriptions.model import Object, Subscription
from spatialnosql.subscriptions.store import Changes, Subscriptions
from spatialnosql.subscriptions.store_setup import COLLECTION, forget
from spatialnosql.subscriptions.text import TextRules

UTC = dt.timezone.utc
LONDON = [-0.5, 51.3, 0.3, 51.7]
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
Documents = Collection[dict[str, Any]]


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Iterator[Documents]:
    """An empty collection; what is recorded of it is forgotten afterwards."""
    yield database.alerts
    forget(database.alerts)


def rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Random subscriptions with ids, of all kinds of regions, some expiring."""
    rng = np.random.default_rng(seed)
    words = ["flood", "road", "closed", "fire", "landslide", "storm"]
    made = []
    for number in range(count):
        a, b, c = (str(word) for word in rng.choice(words, 3, replace=False))
        lng, lat = (float(at) for at in rng.uniform(0, 10, 2))
        width = float(rng.uniform(0.5, 5))
        regions: list[Any] = [
            [lng, lat, lng + width, lat + width],
            [lng, lat, width * 50_000],
            {
                "type": "Polygon",
                "coordinates": [[[lng, lat], [lng + width, lat], [lng, lat + width], [lng, lat]]],
            },
        ]
        row: dict[str, Any] = {
            "id": f"s{number:04}",
            "owner": f"u{number % 7}",
            "keywords": str(rng.choice([a, f"{a} AND {b}", f"({a} AND {b}) OR {c}"])),
            "region": regions[number % 3],
        }
        if rng.random() < 0.3:
            row["expires"] = f"2026-11-{int(rng.integers(1, 30)):02}T00:00:00Z"
        made.append(row)
    return made


def test_add_get_list_count_remove(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    one = of.add("ann", "(Floods AND road) OR landslide", LONDON, "2026-12-31T00:00:00Z", "ann-1")
    two = of.add("ann", "fire", Circle(0, 51, 500))
    three = of.add("bob", "fire", SQUARE)
    assert one == Subscription(
        "ann-1",
        "ann",
        (("floods", "road"), ("landslide",)),
        Rectangle(*LONDON),
        dt.datetime(2026, 12, 31, tzinfo=UTC),
        "(Floods AND road) OR landslide",
    )
    assert three.area == Polygon(SQUARE)
    again = Subscriptions(alerts)
    assert again.get("ann-1") == one
    assert again.get("nobody") is None
    assert list(again.list("ann")) == sorted([one, two], key=lambda s: s.id)
    assert {s.id for s in again.list()} == {one.id, two.id, three.id}
    assert (again.count(), again.count("ann"), again.count("eve")) == (3, 2, 0)
    assert again.remove("ann-1") == 1
    assert again.remove("ann-1") == 0
    assert again.remove([two.id, "nobody"]) == 1
    assert again.get("ann-1") is None
    assert list(again.list()) == [three]
    assert again.remove_of("bob") == 1
    assert again.count() == 0


def test_sharded_by_the_hash_of_the_id(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    of.add_many(rows(300))
    assert shard_key(alerts) == {"_id": "hashed"}
    shards = alerts.database.command("collStats", alerts.name)["shards"]
    assert len(shards) > 1
    assert all(shard["count"] > 30 for shard in shards.values())
    indexes = {tuple(index["key"].items()): index for index in alerts.list_indexes()}
    assert indexes[("purge_at", 1),]["expireAfterSeconds"] == 0
    assert (("changed", 1),) in indexes


def test_a_collection_with_documents_is_sharded_too(alerts: Documents) -> None:
    stray = Subscription.of("ann", "flood", LONDON, TextRules(), id="old").to_document()
    alerts.insert_one(stray)
    of = Subscriptions(alerts)
    of.add("bob", "fire", LONDON)
    assert shard_key(alerts) == {"_id": "hashed"}
    assert of.count() == 2


def test_stored_documents(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    before = of.now()
    of.add("ann", "Floods OR fire", LONDON, id="a")
    (document,) = alerts.find()
    changed = document.pop("changed").replace(tzinfo=UTC)
    assert before - dt.timedelta(seconds=5) <= changed <= of.now() + dt.timedelta(seconds=5)
    assert document == {
        "_id": "a",
        "owner": "ann",
        "keywords": "Floods OR fire",
        "clauses": [["fire"], ["floods"]],
        "area": {"type": "Rectangle", "bounds": LONDON},
    }
    of.remove("a")
    (document,) = alerts.find()
    assert document["removed"] is True
    assert document["purge_at"] - document["changed"] == store.KEPT_REMOVED
    of.add("ann", "Floods OR fire", LONDON, id="a")
    (document,) = alerts.find()
    assert "removed" not in document
    assert "purge_at" not in document


def test_adding_again_changes_nothing(alerts: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writing, "WRITTEN_AT_ONCE", 50)
    of = Subscriptions(alerts)
    given = rows(330)
    heard: list[int] = []
    first = of.add_many(given, written=heard.append)
    assert (first.added, first.changed, first.unchanged, first.bad_count) == (330, 0, 0, 0)
    assert sum(heard) == 330
    assert len(heard) == 7
    stored = sorted(alerts.find(), key=lambda d: d["_id"])
    second = of.add_many(iter(given))
    assert (second.added, second.changed, second.unchanged) == (0, 0, 330)
    assert sorted(alerts.find(), key=lambda d: d["_id"]) == stored
    of.remove("s0003")
    third = of.add_many([*given[:9], given[9] | {"keywords": "eruption"}, rows(331)[330]])
    assert (third.added, third.changed, third.unchanged) == (1, 2, 8)
    assert of.count() == 331
    # A Subscription is taken as it is.
    as_they_are = of.add_many(list(of.list()))
    assert as_they_are.unchanged == 331


def test_a_slow_batch_is_given_a_later_time(alerts: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those inserted, and not those that were there before and stay as they are."""
    of = Subscriptions(alerts)
    of.add_many(rows(2))
    early = {one["_id"]: one["changed"] for one in alerts.find()}
    monkeypatch.setattr(store_writing, "server_time", lambda _: dt.datetime(2020, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(store_writing, "SLOW_S", -1.0)
    of.add_many(rows(5))
    changed = {one["_id"]: one["changed"] for one in alerts.find()}
    assert {id_: changed[id_] for id_ in early} == early
    assert len(changed) == 5
    assert all(at > dt.datetime(2026, 1, 1) for at in changed.values())


def test_two_add_the_same_at_once(alerts: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writing, "WRITTEN_AT_ONCE", 20)
    given = rows(400)
    Subscriptions(alerts).add("ann", "flood", LONDON, id="first")
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda seed: Subscriptions(alerts).add_many(given[seed:]), range(4)))
    assert sum(one.added for one in done) == 400
    assert sum(one.changed for one in done) == 0
    assert Subscriptions(alerts).count() == 401


def test_bad_ones_are_listed_and_the_rest_added(alerts: Documents) -> None:
    good = rows(3)
    bad: list[tuple[Any, str]] = [
        (good[0] | {"id": "b1", "keywords": "flood AND"}, "nothing on its right"),
        (good[0] | {"id": "b2", "region": [5, 0, 1, 1]}, "inverted"),
        (good[0] | {"id": "b3", "keywords": "the"}, "only stop words"),
        (good[0] | {"id": "b4", "expires": "soon"}, "expires is 'soon'"),
        (good[0] | {"id": "b5", "owner": ""}, "owner of a subscription"),
        (good[0] | {"id": "s0002"}, "'s0002' was given before"),
        (good[0] | {"colour": 1}, "no field 'colour'"),
        ({"owner": "ann", "keywords": "flood"}, "has no region"),
        (17, "a subscription is a document"),
        (
            good[0] | {"id": "b6", "keywords": " AND ".join(f"(a{n} OR b{n})" for n in range(20))},
            "1,000 clauses",
        ),
        (good[0] | {"id": "b7", "keywords": "\ud800"}, "surrogate"),
    ]
    of = Subscriptions(alerts)
    done = of.add_many([*good, *(row for row, _ in bad)], skip_bad=True)
    assert (done.added, done.bad_count) == (3, len(bad))
    assert [one.place for one in done.bad] == [f"number {number}" for number in range(4, 4 + len(bad))]
    for one, (_, message) in zip(done.bad, bad, strict=True):
        assert message in one.reason
    with pytest.raises(UsageError, match=r"number 2: .*inverted"):
        of.add_many([good[0], bad[1][0]])


def test_many_bad_ones_are_counted(alerts: Documents) -> None:
    done = Subscriptions(alerts).add_many(({} for _ in range(1_500)), skip_bad=True)
    assert (done.bad_count, len(done.bad)) == (1_500, store_writing.MOST_LISTED)


def test_match_one_is_brute_force(alerts: Documents) -> None:
    rules = TextRules(stem="english")
    of = Subscriptions(alerts, rules)
    of.add_many(rows(200))
    everything = list(of.list())
    rng = np.random.default_rng(4)
    matched = 0
    for number in range(40):
        text = " ".join(rng.choice(["Floods", "roads", "closed", "fires!", "the", "STORMS", "x"], 4))
        lng, lat = (float(at) for at in rng.uniform(0, 12, 2))
        at = dt.datetime(2026, 11, int(rng.integers(1, 30)), tzinfo=UTC)
        thing = Object(number, text, lng, lat, at)
        wanted = sorted(one.id for one in everything if one.matches(thing, rules))
        found = [one.id for one in of.match_one(text, lng, lat, at)]
        assert found == wanted
        matched += len(found)
    assert matched > 50
    assert of.match_one("", 1, 1) == ()
    assert of.match_one("the", 1, 1) == ()
    assert all(
        one.expires is None for one in of.match_one("fire flood road storm", 5, 5, "2030-01-01T00:00:00Z")
    )


def test_removed_ones_match_nothing(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    one = of.add("ann", "flood", LONDON)
    assert of.match_one("Flood!", 0, 51.5) == (one,)
    of.remove(one.id)
    assert of.match_one("Flood!", 0, 51.5) == ()


def test_remove_expired(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    of.add("ann", "flood", LONDON, "2020-01-01T00:00:00Z", "old")
    of.add("ann", "flood", LONDON, "2999-01-01T00:00:00Z", "new")
    of.add("ann", "flood", LONDON, None, "ever")
    assert of.remove_expired("2019-12-31T23:59:59Z") == 0
    assert of.remove_expired() == 1
    assert {one.id for one in of.list()} == {"new", "ever"}


def test_following_changes(alerts: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever applies all changes, some of them twice, has what is in the collection."""
    of = Subscriptions(alerts)
    rng = np.random.default_rng(8)
    given = rows(120)
    known: dict[str, Subscription] = {}

    def apply(changes: Changes) -> None:
        for id_ in changes.removed:
            known.pop(id_, None)
        known.update((one.id, one) for one in changes.added)

    of.add_many(given[:60])
    changes = of.changes_since()
    apply(changes)
    assert len(known) == 60
    for _ in range(8):
        chosen = [given[int(number)] for number in rng.choice(len(given), 10, replace=False)]
        of.add_many([row | {"keywords": str(rng.choice(["fire", "storm AND sea"]))} for row in chosen])
        of.remove([given[int(number)]["id"] for number in rng.choice(len(given), 8)])
        changes = of.changes_since(changes.until)
        apply(changes)
        apply(changes)
        assert known == {one.id: one for one in of.list()}
    monkeypatch.setattr(store, "OVERLAP", dt.timedelta(0))
    assert of.changes_since(changes.until + dt.timedelta(hours=1)).added == ()
    with pytest.raises(UsageError, match="kept 7 days; begin anew"):
        of.changes_since(of.now() - dt.timedelta(days=7, hours=1))


def test_the_rules_are_those_of_the_first(alerts: Documents) -> None:
    stemmed = TextRules(stem="english")
    Subscriptions(alerts, stemmed).add("ann", "floods", LONDON)
    assert Subscriptions(alerts).rules == stemmed
    assert Subscriptions(alerts, stemmed).rules == stemmed
    with pytest.raises(UsageError, match=r"stem: english.*not .*stem: none.*open it without rules"):
        Subscriptions(alerts, TextRules())


def test_rules_of_a_collection_that_is_gone(alerts: Documents) -> None:
    Subscriptions(alerts, TextRules(stem="english")).add("ann", "floods", LONDON)
    alerts.drop()
    of = Subscriptions(alerts, TextRules())
    of.add("ann", "floods", LONDON)
    assert Subscriptions(alerts).rules == TextRules()
    assert of.match_one("floods", 0, 51.5)


def test_drop(alerts: Documents) -> None:
    of = Subscriptions(alerts, TextRules(stem="english"))
    of.add("ann", "floods", LONDON)
    of.drop()
    assert Subscriptions(alerts).rules == TextRules()
    of.add("ann", "floods", LONDON)
    assert (of.count(), Subscriptions(alerts).rules.stem) == (1, "english")
    assert shard_key(alerts) == {"_id": "hashed"}


def test_two_who_begin_with_different_rules(alerts: Documents) -> None:
    one, other = Subscriptions(alerts), Subscriptions(alerts, TextRules(stem="english"))
    one.add("ann", "floods", LONDON)
    with pytest.raises(UsageError, match="were read by the rules"):
        other.add("bob", "floods", LONDON)


def test_rules_of_another_version(alerts: Documents) -> None:
    Subscriptions(alerts).add("ann", "floods", LONDON)
    records = alerts.database.client["spatialnosql"][COLLECTION]
    records.update_one({"_id": alerts.full_name}, {"$set": {"tokens": 0}})
    with pytest.raises(UsageError, match="another version"):
        Subscriptions(alerts)


# -- the command ------------------------------------------------------------------------------------------


Command = Callable[..., str]


@pytest.fixture
def subscribe(alerts: Documents, cluster: Any, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``spatialnosql subscribe``; what it printed, or with a code that is not 0, its error."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["subscribe", *arguments, "--uri", cluster.uri]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


def test_command_add_list_show_remove(subscribe: Command, alerts: Documents, tmp_path: Path) -> None:
    name = alerts.full_name
    keywords = "(flood AND road) OR landslide"
    said = subscribe(
        "add",
        name,
        "--owner",
        "ann",
        "--keywords",
        keywords,
        "--rectangle",
        "-0.5",
        "51.3",
        "0.3",
        "51.7",
        "--id",
        "a",
    )
    assert "added a" in said
    assert "rectangle from -0.5, 51.3 to 0.3, 51.7" in said
    subscribe(
        "add", name, "--owner", "bob", "--keywords", "fire", "--circle", "-0.1", "51.5", "2500", "--id", "b"
    )
    shape = tmp_path / "shape.geojson"
    shape.write_text(json.dumps({"type": "Feature", "properties": {}, "geometry": SQUARE}))
    expires = ["--expires", "2026-12-31T12:00:00Z"]
    subscribe(
        "add", name, "--owner", "bob", "--keywords", "sea", "--polygon", str(shape), "--id", "c", *expires
    )
    listed = subscribe("list", name)
    assert "3 in all" in listed
    assert "circle of 2,500 m around -0.1, 51.5" in listed
    assert "1 of 2" in subscribe("list", name, "--owner", "bob", "--limit", "1")
    found = json.loads(subscribe("list", name, "--owner", "bob", "--json"))
    assert [one["id"] for one in found["subscriptions"]] == ["b", "c"]
    shown = subscribe("show", name, "c")
    assert "2026-12-31 12:00:00 UTC" in shown
    assert "Polygon within" in shown
    document = json.loads(subscribe("show", name, "a", "--json"))
    assert document["clauses"] == [["flood", "road"], ["landslide"]]
    assert document["rules"]["stop_words"] == "english"
    assert "removed 1" in subscribe("remove", name, "a")
    assert "no subscription with the id 'a'" in subscribe("show", name, "a", code=1)
    assert "1 of the ids given are not in" in subscribe("remove", name, "a", "b", code=1)
    assert "removed 1" in subscribe("remove", name, "--owner", "bob")
    assert "removed 0" in subscribe("remove", name, "--expired")


def test_command_load(subscribe: Command, alerts: Documents, tmp_path: Path) -> None:
    file = tmp_path / "subscriptions.jsonl"
    lines = [json.dumps(row) for row in rows(20)]
    lines[3:3] = ["", "{not json", json.dumps({"owner": "ann", "keywords": "(", "region": LONDON}), "[]"]
    file.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    said = subscribe("load", str(file), "--into", alerts.full_name, "--stem", "english")
    assert "bad: line 5: no JSON" in said
    assert "bad: line 6: an opening parenthesis without a closing one (at character 1)" in said
    assert "bad: line 7: a subscription is a document" in said
    assert "20 added, 0 changed, 0 unchanged, 3 bad; 20 in all" in said
    packed = tmp_path / "again.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    document = json.loads(subscribe("load", str(packed), "--into", alerts.full_name, "--json"))
    assert (document["added"], document["unchanged"], document["bad_count"]) == (0, 20, 3)
    assert len(document["bad"]) == 3
    assert Subscriptions(alerts).rules == TextRules(stem="english")
    assert "were read by the rules" in subscribe(
        "load", str(file), "--into", alerts.full_name, "--accents", "keep", code=1
    )


def test_command_load_of_nothing_good(subscribe: Command, alerts: Documents, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("{}\n" * 30)
    subscribe("load", str(file), "--into", alerts.full_name, code=1)
    assert "no such file" in subscribe("load", str(tmp_path / "none"), "--into", alerts.full_name, code=1)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}\n" * 500)[:-20])
    assert "cannot be unpacked" in subscribe(
        "load", str(tmp_path / "cut.gz"), "--into", alerts.full_name, code=1
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "--owner", "a", "--keywords", "flood", "--rectangle", "1", "0", "-1", "1"], "inverted"),
        (
            ["add", "--owner", "a", "--keywords", "flood NOT road", "--circle", "0", "0", "5"],
            "NOT is not supported",
        ),
        (["add", "--owner", "a", "--keywords", "x", "--polygon", "/nowhere.json"], "no such file"),
        (["remove"], "which ones"),
        (["remove", "a", "--expired"], "one of the three"),
        (["list", "--limit", "-1"], "--limit is -1"),
    ],
)
def test_command_errors(subscribe: Command, alerts: Documents, arguments: list[str], message: str) -> None:
    assert message in subscribe(arguments[0], alerts.full_name, *arguments[1:], code=1)


def test_subscribing_needs_nothing_of_matching() -> None:
    code = (
        "import sys, spatialnosql.subscriptions.subscribe_command;"
        "print([name for name in ('pyspark', 'pyarrow', 'numba', 'snowballstemmer') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
