"""Matches as jobs store them: read, counted, watched, forgotten, and ``spatialnosql matches``."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from processes import mongod
from pymongo import ReplaceOne
from pymongo.collection import Collection
from pymongo.database import Database

from spatialnosql.cli import EXIT_INTERRUPTED, main
from spatialnosql.cluster import connect
from spatialnosql.errors import HistoryLost, UsageError
from spatialnosql.subscriptions import match_objects
from spatialnosql.subscriptions.match_names import matched_collection, matches_collection
from spatialnosql.subscriptions.matches import Match, Matches, Watch, merged
from spatialnosql.subscriptions.resume_file import ResumeFile, uninterrupted
from spatialnosql.subscriptions.store import Subscriptions
from spatialnosql.subscriptions.store_setup import forget

UTC = dt.timezone.utc
START = dt.datetime(2026, 11, 17, tzinfo=UTC)
STORED = dt.datetime(2026, 11, 18, 1, 2, 3, tzinfo=UTC)
LONDON = [-0.5, 51.3, 0.3, 51.7]
Documents = Collection[dict[str, Any]]
Rows = list[tuple[str, Any, int]]
"""Subscription, object, and its time in seconds after START."""


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


@pytest.fixture
def alerts(database: Database[dict[str, Any]]) -> Iterator[Documents]:
    """A collection of subscriptions without matches; what is recorded of it is forgotten afterwards."""
    yield database.alerts
    forget(database.alerts)


@pytest.fixture
def stored(alerts: Documents) -> Documents:
    """The same, with both collections of matches sharded as the jobs shard them."""
    shard(alerts)
    return alerts


def shard(alerts: Documents) -> None:
    admin = alerts.database.client.admin
    admin.command("shardCollection", matches_collection(alerts).full_name, key={"owner": "hashed"})
    admin.command("shardCollection", matched_collection(alerts).full_name, key={"_id": "hashed"})
    matches_collection(alerts).create_index([("owner", 1), ("first", 1)])


def put(alerts: Documents, task: str, owner: str, rows: Rows, *, objects: bool = True) -> None:
    """Store the matches of one owner as a task of a job does: objects first, then the bucket."""
    if objects:
        matched_collection(alerts).bulk_write(
            [ReplaceOne({"_id": thing}, matched(thing, seconds, task), True) for _, thing, seconds in rows]
        )
    matches_collection(alerts).insert_one(
        {
            "_id": f"{task}/{owner}",
            "owner": owner,
            "task": task,
            "stored": STORED,
            "first": at(rows[0][2]),
            "last": at(rows[-1][2]),
            "matches": [{"id": id_, "object": thing, "at": at(seconds)} for id_, thing, seconds in rows],
        }
    )
    hurry(alerts)


def matched(thing: Any, seconds: float, task: str) -> dict[str, Any]:
    return {
        "text": f"text of {thing}",
        "loc": {"type": "Point", "coordinates": [seconds / 1000, 51.5]},
        "at": at(seconds),
        "digest": Int64(7),
        "task": task,
    }


def hurry(alerts: Documents) -> None:
    """A change stream waits until every shard has said something later: let them."""
    alerts.database.client.admin.command("appendOplogNote", data={})


def hear(watch: Watch) -> Match:
    """The next match; a test that waits for ever tells nobody what is wrong."""
    deadline = time.monotonic() + 30
    while (match := watch.try_next()) is None:
        assert time.monotonic() < deadline
    return match


def told(watch: Watch, count: int) -> list[tuple[str, Any]]:
    """The next matches, and that they are the last ones for now."""
    found = [hear(watch) for _ in range(count)]
    assert watch.try_next() is None
    return [(one.subscription, one.object) for one in found]


# -- reading ----------------------------------------------------------------------------------------------


def test_a_match(alerts: Documents) -> None:
    put(alerts, "t", "ann", [("ann-1", "o1", 5), ("ann-2", "o1", 5)])
    first, second = Subscriptions(alerts).matches("ann")
    assert first == Match("ann", "ann-1", "o1", at(5), "text of o1", 0.005, 51.5, STORED)
    assert second.subscription == "ann-2"
    assert list(Subscriptions(alerts).matches("bob")) == []


@pytest.fixture
def random_rows(stored: Documents, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, Any]]:
    """Overlapping buckets of ann's, some of bob's; ann's matches in the order of time."""
    monkeypatch.setattr(match_objects, "LOOKED_UP_AT_ONCE", 7)
    rng = np.random.default_rng(3)
    everything: list[tuple[int, str, Any]] = []
    for task in range(12):
        low = int(rng.integers(0, 300))
        times = sorted(int(low + seconds) for seconds in rng.integers(0, 120, int(rng.integers(1, 15))))
        rows = [(f"s{task}", f"o{task}-{number}", seconds) for number, seconds in enumerate(times)]
        put(stored, f"t{task}", "ann", rows)
        everything += [(seconds, id_, thing) for id_, thing, seconds in rows]
        put(stored, f"t{task}", "bob", [("b", f"o{task}-0", times[0])])
    return sorted(everything)


def test_in_the_order_of_time_and_in_ranges(
    stored: Documents, random_rows: list[tuple[int, str, Any]]
) -> None:
    """Against brute force: every range, both orders, some limits."""
    matches = Matches(stored)
    rng = np.random.default_rng(5)
    edges = [seconds for seconds, _, _ in random_rows]
    ranges: list[tuple[int | None, int | None]] = [(None, None), (edges[0], edges[-1]), (None, edges[0])]
    for _ in range(15):
        low, high = sorted(int(one) for one in rng.choice(edges, 2))
        ranges += [(low, high), (low, None), (None, high)]
    seen = 0
    for low, high in ranges:
        since, until = None if low is None else at(low), None if high is None else at(high)
        wanted = [
            row for row in random_rows if (low is None or low <= row[0]) and (high is None or row[0] < high)
        ]
        times = [at(row[0]) for row in wanted]
        found = list(matches.of("ann", since, until))
        assert [one.at for one in found] == times
        assert {one.key for one in found} == {(id_, f'"{thing}"') for _, id_, thing in wanted}
        assert all(one.text == f"text of {one.object}" for one in found)
        newest = list(matches.of("ann", since, until, newest_first=True))
        assert [one.at for one in newest] == times[::-1]
        assert {one.key for one in newest} == {one.key for one in found}
        limit = int(rng.integers(1, 12))
        assert list(matches.of("ann", since, until, limit)) == found[:limit]
        assert [one.at for one in matches.of("ann", since, until, limit, True)] == times[::-1][:limit]
        assert matches.count("ann", since, until) == len(wanted)
        seen += len(wanted)
    assert seen > 500
    assert list(matches.of("ann", limit=0)) == []
    assert matches.count("eve") == 0


def test_times_may_be_text_and_odd_ones_are_errors(alerts: Documents) -> None:
    put(alerts, "t", "ann", [("a", 1, 0), ("a", 2, 10)])
    of = Subscriptions(alerts)
    assert [one.object for one in of.matches("ann", since="2026-11-17T00:00:05Z")] == [2]
    assert [one.object for one in of.matches("ann", until="2026-11-17T00:00:10Z")] == [1]
    with pytest.raises(UsageError, match="since is 'yesterday'"):
        of.matches("ann", since="yesterday")
    with pytest.raises(UsageError, match="limit is -1"):
        of.matches("ann", limit=-1)
    with pytest.raises(UsageError, match="owner of a subscription"):
        of.matches("")


@pytest.mark.parametrize("newest_first", [False, True])
def test_buckets_are_taken_when_their_time_has_come(newest_first: bool) -> None:
    """Two a day for a hundred days: never more than the next day's has been read."""
    buckets = [
        {"first": at(day * 100 + half), "last": at(day * 100 + half + 50), "matches": matches}
        for day in range(100)
        for half in (0, 20)
        for matches in [[{"at": at(day * 100 + half + step)} for step in (0, 10, 50)]]
    ]
    taken = 0

    def read() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for bucket in reversed(buckets) if newest_first else buckets:
            taken += 1
            yield bucket

    times = []
    for number, (_, match) in enumerate(merged(read(), newest_first)):
        times.append(match["at"])
        assert taken <= number // 6 * 2 + 3
    assert len(times) == 600
    assert all((one >= other) if newest_first else (one <= other) for one, other in pairwise(times))


ODD_IDS: list[Any] = [
    ObjectId("6560f0f0f0f0f0f0f0f0f0f0"),
    7,
    Int64(1 << 40),
    -2.5,
    True,
    1,
    "7",
    'with "quotes" and \u2028',
    b"\x00\xff",
    Binary(b"0123456789abcdef", 4),
    {"feed": "x", "n": {"deep": [1, "two"]}},
    {"n": 1, "feed": "x"},
    {"feed": "x", "n": 1},
    dt.datetime(2026, 1, 1, tzinfo=UTC),
    Decimal128("1.5"),
]


def test_odd_ids_of_objects(stored: Documents) -> None:
    put(stored, "t", "ann", [("a", one, number) for number, one in enumerate(ODD_IDS)])
    found = list(Matches(stored).of("ann"))
    assert [one.object for one in found] == ODD_IDS
    assert [one.text for one in found] == [f"text of {one}" for one in ODD_IDS]
    assert len({one.key for one in found}) == len(ODD_IDS)


def test_numbers_that_the_server_takes_for_equal(alerts: Documents) -> None:
    put(alerts, "t", "ann", [("a", 7, 1)])
    put(alerts, "u", "ann", [("a", 7.0, 2), ("a", Int64(7), 3)], objects=False)
    found = list(Matches(alerts).of("ann"))
    assert [one.text for one in found] == ["text of 7"] * 3
    assert len({one.key for one in found}) == 1


def test_objects_that_are_gone(alerts: Documents) -> None:
    put(alerts, "t", "ann", [("a", "o1", 1), ("a", "o2", 2), ("a", "o3", 3)])
    matched_collection(alerts).delete_one({"_id": "o2"})
    found = list(Matches(alerts).of("ann"))
    assert [(one.object, one.text, one.lng, one.lat) for one in found] == [
        ("o1", "text of o1", 0.001, 51.5),
        ("o2", None, None, None),
        ("o3", "text of o3", 0.003, 51.5),
    ]


def test_forget_and_drop(stored: Documents) -> None:
    of = Subscriptions(stored)
    of.add("ann", "flood", LONDON)
    put(stored, "t", "ann", [("a", "o1", 1), ("a", "o2", 2)])
    put(stored, "u", "ann", [("a", "o3", 3), ("a", "o5", 5)])
    put(stored, "u", "bob", [("b", "o4", 4)])
    forgotten = of.forget_matches(at(2))
    assert (forgotten.buckets, forgotten.objects) == (0, 1)
    forgotten = of.forget_matches(at(5))
    assert (forgotten.buckets, forgotten.objects) == (2, 3)
    assert [(one.object, one.text) for one in of.matches("ann")] == [("o3", None), ("o5", "text of o5")]
    assert list(of.matches("bob")) == []
    of.drop()
    assert stored.database.list_collection_names() == []


# -- watching ---------------------------------------------------------------------------------------------


def test_watch_before_there_is_a_collection_and_after_a_drop(alerts: Documents) -> None:
    with Subscriptions(alerts).watch("ann", max_await_ms=100) as watch:
        assert watch.try_next() is None
        shard(alerts)
        put(alerts, "t", "ann", [("a", "o1", 1), ("a", "o2", 2)])
        assert told(watch, 2) == [("a", "o1"), ("a", "o2")]
        before_drop = watch.resume_token
        put(alerts, "u", "ann", [("a", "o3", 3)])
        Subscriptions(alerts).drop()
        shard(alerts)
        put(alerts, "v", "ann", [("a", "o4", 4)])
        assert told(watch, 2) == [("a", "o3"), ("a", "o4")]
    assert watch.try_next() is None
    assert list(watch) == []
    with Subscriptions(alerts).watch("ann", before_drop, max_await_ms=100) as watch:
        assert told(watch, 2) == [("a", "o3"), ("a", "o4")]


def test_owners_do_not_hear_of_each_other(stored: Documents) -> None:
    put(stored, "old", "ann", [("a", "before", 0)])
    of = Subscriptions(stored)
    with of.watch("ann", max_await_ms=100) as ann, of.watch("bob", max_await_ms=100) as bob:
        put(stored, "t", "ann", [("a", "o1", 1)])
        put(stored, "t", "bob", [("b", "o1", 1), ("b", "o2", 2)])
        put(stored, "u", "ann", [("a", "o3", 3)])
        matches_collection(stored).update_one({"_id": "t/ann"}, {"$set": {"stored": START}})
        matches_collection(stored).delete_one({"_id": "t/bob"})
        hurry(stored)
        assert told(ann, 2) == [("a", "o1"), ("a", "o3")]
        assert told(bob, 2) == [("b", "o1"), ("b", "o2")]


def test_resumed_after_any_match(stored: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a bucket, of one that is deleted since, and where its texts were looked up in parts."""
    monkeypatch.setattr("spatialnosql.subscriptions.match_watch.LOOKED_UP_AT_ONCE", 2)
    of = Subscriptions(stored)
    buckets = {"t": 5, "u": 1, "v": 3}
    wanted = [("a", f"{task}{number}") for task, count in buckets.items() for number in range(count)]
    with of.watch("ann", max_await_ms=50) as watch:
        tokens = [watch.resume_token]
        for task, count in buckets.items():
            put(stored, task, "bob", [("b", "o", 0)])
            put(stored, task, "ann", [("a", f"{task}{number}", number) for number in range(count)])
        for one in wanted:
            match = hear(watch)
            assert (match.subscription, match.object) == one
            assert match.text == f"text of {match.object}"
            tokens.append(watch.resume_token)
        watch.try_next()
        tokens.append(watch.resume_token)
    matches_collection(stored).delete_one({"_id": "t/ann"})
    for number, token in enumerate(tokens[:-1]):
        with of.watch("ann", token, max_await_ms=50) as again:
            assert again.resume_token == token
            assert told(again, len(wanted) - number) == wanted[number:]
    with of.watch("ann", tokens[-1], max_await_ms=50) as again:
        assert again.try_next() is None


def test_resumed_twice_in_one_bucket(stored: Documents) -> None:
    of = Subscriptions(stored)
    with of.watch("ann", max_await_ms=50) as watch:
        put(stored, "t", "ann", [("a", number, number) for number in range(6)])
        assert [hear(watch).object for _ in range(2)] == [0, 1]
    with of.watch("ann", watch.resume_token, max_await_ms=50) as second:
        assert [hear(second).object for _ in range(2)] == [2, 3]
    put(stored, "u", "ann", [("a", 6, 6)])
    with of.watch("ann", second.resume_token, max_await_ms=50) as third:
        assert told(third, 3) == [("a", 4), ("a", 5), ("a", 6)]


def test_a_cursor_that_the_server_lost(stored: Documents) -> None:
    name = matches_collection(stored).name
    with Subscriptions(stored).watch("ann", max_await_ms=50) as watch:
        assert watch.try_next() is None
        idle = stored.database.client.admin.aggregate(
            [
                {"$currentOp": {"idleCursors": True, "localOps": True}},
                {"$match": {"ns": f"{stored.database.name}.{name}", "type": "idleCursor"}},
            ]
        ).to_list()
        cursors = [one["cursor"]["cursorId"] for one in idle]
        killed = stored.database.command("killCursors", name, cursors=cursors)
        assert killed["cursorsKilled"] == cursors != []
        put(stored, "t", "ann", [("a", "o1", 1)])
        assert told(watch, 1) == [("a", "o1")]


def test_asked_again_after_an_error(stored: Documents) -> None:
    """An error that pymongo does not recover from closes its stream; so does Ctrl-C."""
    with Subscriptions(stored).watch("ann", max_await_ms=50) as watch:
        put(stored, "t", "ann", [("a", "o1", 1), ("a", "o2", 2)])
        assert hear(watch).object == "o1"
        watch._stream.close()
        put(stored, "u", "ann", [("a", "o3", 3)])
        assert told(watch, 2) == [("a", "o2"), ("a", "o3")]


def test_a_token_that_the_server_has_forgotten(stored: Documents) -> None:
    of = Subscriptions(stored)
    with of.watch("ann", max_await_ms=50) as watch:
        put(stored, "t", "ann", [("a", "o1", 1), ("a", "o2", 2)])
        put(stored, "u", "ann", [("a", "o3", 3)])
        assert [match.object for match in islice(watch, 2)] == ["o1", "o2"]
    token = json.loads(watch.resume_token)
    data = token["after"]["_data"]
    token["after"]["_data"] = f"{data[:2]}00000001{data[10:]}"  # a second after 1970
    with pytest.raises(HistoryLost, match=r"oplogs no longer reach back.*matches\('ann', since=...\)"):
        list(of.watch("ann", json.dumps(token), max_await_ms=50))


@pytest.mark.parametrize("token", ["", "{}", "[]", '"x"', "82AB", '{"after": 1, "bucket": null, "done": 0}'])
def test_what_is_no_token(alerts: Documents, token: str) -> None:
    with pytest.raises(UsageError, match="is no resume token"):
        Subscriptions(alerts).watch("ann", token)


def test_tokens_of_others(alerts: Documents) -> None:
    of = Subscriptions(alerts)
    with of.watch("bob") as watch:
        token = watch.resume_token
    with pytest.raises(UsageError, match=r"is of 'bob' in .*\.alerts_matches, not of 'ann'"):
        of.watch("ann", token)
    with pytest.raises(UsageError, match="max_await_ms is 0"):
        of.watch("ann", max_await_ms=0)


def test_a_standalone_cannot_be_watched(programs: Any, tmp_path: Path) -> None:
    with mongod(programs, tmp_path / "data") as port, connect(f"mongodb://127.0.0.1:{port}/") as client:
        of = Subscriptions(client.city.alerts)
        with pytest.raises(UsageError, match=r"standalone; read matches\('ann', since=...\)"):
            of.watch("ann")


# -- the command ------------------------------------------------------------------------------------------

Command = Callable[..., str]


@pytest.fixture
def command(alerts: Documents, cluster: Any, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``spatialnosql matches``; what it printed, or with a code that is not 0, its error."""
    alerts.insert_one({"_id": "ann-1"})

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["matches", alerts.full_name, *arguments, "--uri", cluster.uri]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


def test_command_lists(command: Command, alerts: Documents) -> None:
    put(alerts, "t", "ann", [("ann-1", "o1", 1), ("ann-2", "o2", 20)])
    put(alerts, "u", "ann", [("ann-1", {"n": 1}, 10), ("ann-1", "o4", 40)])
    matched_collection(alerts).update_one({"_id": "o2"}, {"$set": {"text": "two\nlines \x1b[31m red"}})
    matched_collection(alerts).delete_one({"_id": "o4"})
    lines = command("--owner", "ann").splitlines()
    assert lines[0].split() == ["at", "(UTC)", "subscription", "place", "text"]
    assert lines[1:] == [
        "2026-11-17 00:00:01  ann-1                     0.00100, 51.50000      text of o1",
        "2026-11-17 00:00:10  ann-1                     0.01000, 51.50000      text of {'n': 1}",
        "2026-11-17 00:00:20  ann-2                     0.02000, 51.50000      two lines  [31m red",
        "2026-11-17 00:00:40  ann-1                     -                      (no longer stored)",
        "4 in all",
    ]
    newest = command("--owner", "ann", "--newest", "--limit", "2").splitlines()
    assert newest[1:] == [lines[4], lines[3], "2 of 4; --limit 0 shows all"]
    ranged = ["--since", "2026-11-17T00:00:10Z", "--until", "2026-11-17T00:00:40Z"]
    assert command("--owner", "ann", *ranged).splitlines()[1:] == [lines[2], lines[3], "2 in all"]
    assert command("--owner", "ann", *ranged, "--count") == "2\n"
    assert command("--owner", "eve") == "no matches\n"
    assert json.loads(command("--owner", "ann", "--count", "--json"))["count"] == 4
    documents = [json.loads(line) for line in command("--owner", "ann", "--json").splitlines()]
    assert documents[1] == {
        "owner": "ann",
        "subscription": "ann-1",
        "object": {"n": 1},
        "at": {"$date": "2026-11-17T00:00:10Z"},
        "text": "text of {'n': 1}",
        "lng": 0.01,
        "lat": 51.5,
        "stored": {"$date": "2026-11-18T01:02:03Z"},
    }
    assert [one["object"] for one in documents] == ["o1", {"n": 1}, "o2", "o4"]
    assert command("--owner", "eve", "--json") == ""


def test_command_lists_a_hundred_unless_told_otherwise(command: Command, alerts: Documents) -> None:
    rows: Rows = [("a", number, number) for number in range(120)]
    put(alerts, "t", "ann", rows, objects=False)
    assert command("--owner", "ann").splitlines()[-1] == "100 of 120; --limit 0 shows all"
    assert command("--owner", "ann", "--limit", "0").splitlines()[-1] == "120 in all"
    assert len(command("--owner", "ann", "--json").splitlines()) == 120


def test_command_cuts_lines_to_the_terminal(
    command: Command, alerts: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(alerts, "t", "ann", [("a", "flood " * 40, 1), ("a", "洪水" * 40, 2), ("a", "x", 3)])
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, first, second, third, _ = command("--owner", "ann").splitlines()
    assert (len(first), first[-1]) == (90, "…")
    assert first.endswith("  text of flood flood…")
    assert second.endswith("  text of 洪水洪水洪…")  # a column is left: the next one would need two
    assert third.endswith("  text of x")


def test_command_forgets(command: Command, alerts: Documents) -> None:
    put(alerts, "t", "ann", [("a", "o1", 1)])
    put(alerts, "u", "bob", [("b", "o2", 2)])
    said = command("--forget-before", "2026-11-17T00:00:02Z")
    assert said == "deleted 1 buckets of matches and 1 objects\n"
    assert command("--owner", "ann", "--count") == "0\n"
    assert command("--owner", "bob", "--count") == "1\n"
    said = command("--forget-before", "2027-01-01T00:00:00Z", "--json")
    assert (json.loads(said)["buckets"], json.loads(said)["objects"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "whose matches? Give --owner NAME"),
        (["--owner", "ann", "--limit", "-1"], "--limit is -1"),
        (["--owner", "ann", "--follow", "--count"], "--follow and --count do not go together"),
        (
            ["--owner", "ann", "--follow", "--since", "2026-11-17"],
            "--since does not go together with --follow",
        ),
        (["--owner", "ann", "--resume-file", "x"], "only with --follow"),
        (["--owner", "ann", "--forget-before", "2026-11-17"], "leave out --owner"),
    ],
)
def test_command_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What does not go together is said before anybody is asked."""
    assert main(["matches", "city.alerts", *arguments, "--uri", "mongodb://nowhere.invalid"]) == 1
    assert message in capsys.readouterr().err


def test_command_with_bad_times(command: Command) -> None:
    assert "since is 'noon'" in command("--owner", "ann", "--since", "noon", code=1)
    assert "until is 'noon'" in command("--owner", "ann", "--until", "noon", "--count", code=1)
    assert "before is 'noon'" in command("--forget-before", "noon", code=1)


def test_command_of_no_subscriptions(
    database: Database[dict[str, Any]], cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["matches", f"{database.name}.mistyped", "--owner", "ann", "--uri", cluster.uri]
    assert main(arguments) == 1
    assert "mistyped has no subscriptions; add some with" in capsys.readouterr().err


def test_command_with_a_bad_resume_file(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "ann.token"
    file.write_text("nonsense")
    said = command("--owner", "ann", "--follow", "--resume-file", str(file), code=1)
    assert f"{file}: 'nonsense' is no resume token" in said
    assert file.read_text() == "nonsense"


def test_command_follows_until_interrupted_and_goes_on(
    command: Command, stored: Documents, cluster: Any, tmp_path: Path
) -> None:
    """One process after another, each from where the one before was: in the middle of a bucket, too."""
    file = tmp_path / "ann.token"
    put(stored, "old", "ann", [("a", "before", 0)])
    with Subscriptions(stored).watch("ann", max_await_ms=50) as watch:
        put(stored, "s", "ann", [("a", "o0", 0), ("a", "o1", 1)])
        assert hear(watch).object == "o0"
        file.write_text(watch.resume_token)
    follow = [sys.executable, "-m", "spatialnosql", "matches", stored.full_name, "--owner", "ann", "--follow"]
    follow += ["--uri", cluster.uri, "--resume-file", str(file), "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(follow, **pipes) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        assert process.stderr is not None
        assert process.stdout is not None
        assert "following ann" in process.stderr.readline()
        assert json.loads(process.stdout.readline())["object"] == "o1"
        put(stored, "t", "bob", [("b", "o1", 1)])
        put(stored, "t", "ann", [("a", "o2", 2), ("a", "o3", 3)])
        assert [json.loads(process.stdout.readline())["object"] for _ in range(2)] == ["o2", "o3"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
        watchdog.cancel()
    assert (process.returncode, rest, errors) == (EXIT_INTERRUPTED, "", "interrupted\n")
    put(stored, "u", "ann", [("a", "o4", 4), ("a", "o5", 5), ("a", "o6", 6)])
    arguments = ["--owner", "ann", "--follow", "--resume-file", str(file), "--limit", "2", "--json"]
    assert [json.loads(line)["object"] for line in command(*arguments).splitlines()] == ["o4", "o5"]
    assert json.loads(file.read_text())["done"] == 2
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_resume_file_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ResumeFile(tmp_path / "token")
    assert file.read() is None
    file.keep_now_and_then("one")
    file.keep_now_and_then("two")
    assert file.read() == "one"
    file.keep("three")
    assert file.read() == "three"
    monkeypatch.setattr("spatialnosql.subscriptions.resume_file.IDLE_S", 0.0)
    file.keep_now_and_then("four")
    assert ResumeFile(tmp_path / "token").read() == "four"
    nothing = ResumeFile(None)
    nothing.keep("one")
    assert nothing.read() is None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell has it ignored in the background, and Spark takes it over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_uninterrupted(interruptible: None) -> None:
    done: list[int] = []

    def work(interruptions: int) -> None:
        with uninterrupted():
            for _ in range(interruptions):
                signal.raise_signal(signal.SIGINT)
            done.append(interruptions)

    work(0)
    with pytest.raises(KeyboardInterrupt):
        work(1)
    with pytest.raises(KeyboardInterrupt):
        work(2)
    assert done == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
