"""Ingest with --time and --text: documents come sealed, with filters; and killed anywhere, nothing is ever hidden."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ingest_helpers import Ingest
from processes import kill_all
from pymongo.database import Database
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows
from pyspark.sql.types import DoubleType, LongType, StringType
from spark_options import QUICK_JAVA, QUICK_START
from stk_world import HOURS, SIDE, SOUTH, START, WEST, random_document, random_query

from spark_jobs import ingest_stk, stk_worker
from spark_jobs.documents import SealColumns, Shape
from spark_jobs.ingest_stk import agree
from spark_jobs.ingest_work import StkColumns
from spark_jobs.moments import moment_ms
from spark_jobs.session import build_session
from spark_jobs.stk_worker import Filters
from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.geohash import cells_to_strings
from spatialnosql.metadata import load_info
from spatialnosql.steps import run
from spatialnosql.stk import planning
from spatialnosql.stk.filter_store import (
    GRACE_S,
    Busy,
    begin,
    forget,
    note_published,
    pieces,
    publish,
    states,
    writing,
)
from spatialnosql.stk.finding import filters_of
from spatialnosql.stk.seal_batches import seals_of
from spatialnosql.stk.sealing import rebuild, seal
from spatialnosql.stk.seals import seal_expression, seal_of
from spatialnosql.stk.settings import INDEX_NAME, StkSettings
from spatialnosql.stk.shutting import shut
from spatialnosql.stk.word_batches import WordReader, words_of_lists
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.verify import verify

ROOT = Path(__file__).resolve().parents[1]
STK = ("--time", "at", "--text", "report")
END = START + dt.timedelta(hours=HOURS)
REGION = {"$box": [[WEST, SOUTH], [WEST + SIDE, SOUTH + SIDE]]}


# -- arrays ------------------------------------------------------------------------------------------------


def test_words_and_seals_of_many_are_those_of_each() -> None:
    rules = TextRules()
    rng = random.Random(1)
    alphabet = [
        "flood",
        "Flood",
        "the",
        "Ärger",
        "Straße-Café",
        "雨",
        "½ﬁsh",
        "\u00ad",
        "a1",
        "x\ny",
        "?",
        "dog's",
    ]
    texts = [" ".join(rng.choices(alphabet, k=rng.randrange(30))) for _ in range(500)] + [
        None,
        "",
        "w " * 3000,
    ]
    reader = WordReader(rules)
    for _ in range(2):  # with nothing remembered, and with all
        words = reader.read(pa.array(texts))
        lists = words.lists().to_pylist()
        assert lists == [None if one is None else list(rules.terms(one)) for one in texts]
    many = [[f"word{n}" for n in range(number)] for number in (0, 1, 11, 120)]
    given = words_of_lists(pa.array([*lists, *many, ["a", None], ["b", "b"]]))
    assert given.usable.tolist() == [one is not None for one in lists] + [True] * 4 + [False, True]
    rows = np.flatnonzero(given.usable)
    chosen = given.taken(rows)
    kept = chosen.lists().to_pylist()
    draw = np.random.default_rng(1)
    cells = draw.integers(0, 1 << 60, len(rows)).astype(np.uint64)
    cubes = draw.integers(-(1 << 60), 1 << 60, len(rows))
    at_ms = draw.integers(-(1 << 40), 1 << 42, len(rows))
    each = [
        seal_of(cube, at, gh, some)
        for cube, at, gh, some in zip(
            cubes.tolist(), at_ms.tolist(), cells_to_strings(cells).tolist(), kept, strict=True
        )
    ]
    assert seals_of(cubes, at_ms, cells, chosen).tolist() == each


def test_other_settings_are_refused() -> None:
    kept = StkSettings("at", "words", "report")
    shape = Shape({"at": "at", "report": "report", "tags": "words"}, seal=SealColumns("at", "report"))
    fits = StkColumns("at", "report")
    agree("a.b", kept, shape, fits)
    agree("a.b", kept, replace(shape, seal=SealColumns("at", words="tags")), StkColumns("at", words="tags"))
    with pytest.raises(UsageError, match=r"--stem english: .* was set up with none"):
        agree("a.b", kept, shape, replace(fits, stem="english"))
    renamed = Shape({"when": "when", "report": "body"}, seal=SealColumns("when", "report"))
    with pytest.raises(UsageError, match="--rename when=at"):
        agree("a.b", kept, renamed, fits)
    with pytest.raises(UsageError, match="--rename report=report"):
        agree("a.b", replace(kept, time="when"), renamed, fits)
    with pytest.raises(UsageError, match="give --words"):
        agree("a.b", replace(kept, text=None), shape, fits)
    with pytest.raises(UsageError, match="both --time-bin and --time-cell"):
        StkColumns("at", "report", bin_s=60)


# -- with Spark and a server -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return build_session("tests", master="local[2]", config=QUICK_START)


@pytest.fixture
def ingest(
    spark: SparkSession,
    cluster: Any,
    database: Database[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ingest]:
    # Of so few documents it would rather read all: without estimates it goes by the filters.
    monkeypatch.setattr(planning, "_estimates", lambda *_: None)
    yield Ingest(cluster.uri, database.reports, capsys)
    forget(database.reports)


def hurry(target: Any) -> None:
    """Let jobs wait a moment only for clients that go by an older tick, and let these look as often."""
    assert state_of(target)["grace_s"] == GRACE_S
    states(target).update_one({"_id": target.full_name}, {"$set": {"grace_s": 0.25}, "$inc": {"tick": 1}})
    filters_of(target)._read_s = -math.inf


def made(count: int, seed: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows of the random city; the text holds the words."""
    rng = random.Random(seed)
    rows = []
    for number in range(first, first + count):
        one = random_document(rng, number)
        lng, lat = one["loc"]["coordinates"]
        text = ", ".join(["the", *one["words"], *one["words"][:1]])
        at = one["at"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        rows.append({"n": number, "lng": lng, "lat": lat, "at": at, "report": text})
    return rows


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def queries(target: Any, seed: int = 1, count: int = 20) -> tuple[int, int]:
    """Random queries give what the server gives for them; how many documents there were, and how many were pruned."""
    spatial = SpatialCollection(target)
    spatial.forget()
    rng = random.Random(seed)
    found = pruned = 0
    for _ in range(count):
        query = random_query(rng)
        plain = sorted(one["n"] for one in target.find(query))
        assert sorted(one["n"] for one in spatial.find(query)) == plain
        pruned += "prune_stk" in spatial.plan(query).rules
        found += len(plain)
    for word in ("w1", "w2 AND w3", "w1 OR NOT w4"):
        start = START + dt.timedelta(hours=rng.randrange(70))
        end = start + dt.timedelta(hours=3)
        got = sorted(one["n"] for one in spatial.find_stk(REGION, start, end, word))
        plainly = {"loc": {"$geoWithin": REGION}, "at": {"$gte": start, "$lt": end}}
        conditions = {
            "w1": {"words": "w1"},
            "w2 AND w3": {"words": {"$all": ["w2", "w3"]}},
            "w1 OR NOT w4": {"$or": [{"words": "w1"}, {"words": {"$ne": "w4"}}]},
        }
        assert got == sorted(one["n"] for one in target.find({"$and": [plainly, conditions[word]]}))
        found += len(got)
    return found, pruned


def sealed(target: Any) -> int:
    """How many documents have a seal; every one a true one."""
    info = run(load_info(target))
    assert info.stk is not None, info.why_no_stk
    has = {"stk.c": {"$type": "number"}}
    wrong = {"$expr": {"$ne": ["$stk.s", seal_expression(info.stk, "gh")]}}
    assert target.count_documents({"$and": [has, wrong]}) == 0
    return int(target.count_documents(has))


def _settings(target: Any) -> StkSettings:
    settings = run(load_info(target)).stk
    assert settings is not None
    return settings


def state_of(target: Any) -> dict[str, Any]:
    return dict(states(target).find_one({"_id": target.full_name}) or {})


def keys_held(target: Any) -> int:
    found = pieces(target).find({"f": state_of(target)["filters"], "q": {"$ne": None}})
    return sum(len(one["k"]) for one in found)


def test_two_nights(ingest: Ingest, tmp_path: Path) -> None:
    first = made(2500, 1)
    first[7]["report"] = None
    first[8]["at"] = None
    bad = [{**row, "at": when} for row, when in zip(made(3, 9), ("yesterday", "3/1/2026", "12"), strict=True)]
    path = write(tmp_path / "1.json", [*first, *bad])
    outcome = ingest(path, *STK, "--batch", "one")
    target = ingest.target
    assert (outcome["written"], outcome["reasons"]) == (2500, {"bad_time": 3})
    assert (outcome["stk"]["sealed"], outcome["stk"]["fresh"]) == (2498, 2)
    assert target.database.reports_quarantine.count_documents({"reason": "bad_time"}) == 3
    assert sealed(target) == 2498
    assert INDEX_NAME in target.index_information()
    assert keys_held(target) == outcome["stk"]["filter_bytes_added"] > 4 * 2498
    settings = StkSettings.from_document(outcome["stk"]["settings"])
    assert (settings.time, settings.words, settings.text) == ("at", "words", "report")
    for one in target.find({"n": {"$in": [7, 8]}}):
        assert "stk" not in one
        assert ("words" in one) == (one["n"] == 8)
    for one in target.find({"n": {"$lt": 7}}):
        row = first[one["n"]]
        assert one["words"] == list(settings.rules.terms(row["report"]))
        when = dt.datetime.fromisoformat(row["at"].replace("Z", "+00:00"))
        assert one["at"] == when.replace(tzinfo=None)
        assert one["report"] == row["report"]
    assert not state_of(target)["paused"]
    assert state_of(target)["writers"] == {}
    found, pruned = queries(target)
    assert found > 100
    assert pruned > 10

    # The next night goes by what the collection has; the server itself sees to it that the seals are true.
    hurry(target)
    second = made(800, 2, first=2500)
    outcome = ingest(write(tmp_path / "2.json", second), *STK, "--batch", "two")
    assert (outcome["written"], outcome["stk"]["sealed"]) == (800, 800)
    assert StkSettings.from_document(outcome["stk"]["settings"]) == settings
    assert queries(target)[0] > found
    assert sealed(target) == 3298

    # Run again, nothing changes, and the filters do not grow.
    held = keys_held(target)
    said = ingest.text(str(tmp_path / "2.json"), *STK, "--batch", "two")
    assert "800 sealed" in said
    assert "0.0 MB added" in said
    assert (keys_held(target), sealed(target)) == (held, 3298)
    assert verify(target).is_sound

    bins = ("--time-bin", "60", "--time-cell", "28")
    ingest(str(tmp_path / "2.json"), *STK, *bins, fails=True)
    assert "--time-bin 60: " in ingest.error
    assert "was set up with 3600" in ingest.error


def test_what_is_replaced_is_unsealed_first(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By key, with other times, words and places."""
    first = made(1500, 4)
    target = ingest.target
    ingest(write(tmp_path / "1.json", first), *STK, "--key", "n", "--batch", "one")
    hurry(target)
    shut(target, run(load_info(target)), _settings(target), END)  # it is opened for the work, and shut again
    other = made(1500, 5)
    night = [*other[:200], *first[200:400], *made(10, 6, first=1500)]
    waited: list[float] = []
    fresh: list[int] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        fresh.append(target.count_documents({"stk": {"$exists": False}}))

    path = write(tmp_path / "2.json", night)
    with monkeypatch.context() as patched:
        patched.setattr(ingest_stk, "time", SimpleNamespace(sleep=sleep))
        outcome = ingest(path, *STK, "--key", "n", "--batch", "two")
    assert (outcome["replaced"], outcome["already_there"], outcome["written"]) == (200, 200, 10)
    # Once after the publication, and once for those that lost their seals.
    assert (waited, fresh) == ([0.25, 0.25], [0, 200])
    assert outcome["moved"] > 100
    assert sealed(target) == 1510
    assert run(load_info(target)).shut_ms == state_of(target)["shut_ms"] == round(END.timestamp() * 1000)
    assert {one["n"]: one["report"] for one in target.find({"n": {"$lt": 200}})} == {
        row["n"]: row["report"] for row in other[:200]
    }
    assert queries(target)[0] > 60
    # Without the options documents come fresh, also those that move, and are found all the same.
    ingest(write(tmp_path / "3.json", other[200:300]), "--key", "n", "--batch", "three")
    assert sealed(target) == 1410
    assert "shut_ms" not in state_of(target)
    assert queries(target)[0] > 50
    assert seal(target, run(load_info(target)), _settings(target)) == 100
    ingest(write(tmp_path / "4.json", made(10, 8, first=1600)), *STK, "--key", "n", "--batch", "four")
    assert state_of(target)["shut_ms"] == round(END.timestamp() * 1000)
    assert queries(target)[0] > 50


def test_lists_of_words_and_numbers_for_times(ingest: Ingest, tmp_path: Path) -> None:
    rows = []
    for row in made(600, 7):
        at = dt.datetime.fromisoformat(row["at"].replace("Z", "+00:00"))
        terms = row.pop("report").split(", ")[1:]
        rows.append({**row, "at": round(at.timestamp() * 1000), "tags": terms})
    rows[3]["tags"] = None
    path = write(tmp_path / "1.json", rows)
    words = ("--time", "at", "--words", "tags", "--time-bin", "7200", "--time-cell", "26")
    ingest(path, "--time", "at", fails=True)
    assert "give either --text COLUMN or --words COLUMN" in ingest.error
    ingest(path, "--time", "at", "--words", "n", fails=True)
    assert "lists of words" in ingest.error
    outcome = ingest(path, *words, "--rename", "tags=words")
    assert (outcome["stk"]["sealed"], outcome["stk"]["fresh"]) == (599, 1)
    settings = run(load_info(ingest.target)).stk
    assert settings is not None
    assert (settings.words, settings.text, settings.bin_s, settings.cell_bits) == ("words", None, 7200, 26)
    assert sealed(ingest.target) == 599
    assert queries(ingest.target)[0] > 20
    # What came one by one is sealed beside it.
    extra = SpatialCollection(ingest.target)
    extra.insert_one({**random_document(random.Random(8), 10_000), "_id": "x", "n": 10_000})
    states(ingest.target).update_one({"_id": ingest.target.full_name}, {"$set": {"grace_s": 0.1}})
    assert seal(ingest.target, run(load_info(ingest.target)), settings) == 1
    assert queries(ingest.target)[0] > 20


def test_a_collection_that_was_never_set_up(ingest: Ingest, tmp_path: Path) -> None:
    path = write(tmp_path / "1.json", made(300, 9))
    assert "Place, time and words: bins of 3,600 s" in ingest.text(path, *STK, "--dry-run")
    ingest(path, "--batch", "one")
    ingest(path, *STK, "--batch", "two", fails=True)
    assert "spatialnosql stk enable" in ingest.error
    ingest(path, "--text", "report", fails=True)
    assert "--text goes with --time" in ingest.error


def test_what_is_a_time(spark: SparkSession) -> None:
    texts = {
        "2026-03-01T20:00:00Z": 1772395200000,
        "2026-03-01 20:00:00.123": 1772395200123,
        " 2026-03-01 ": 1772323200000,
        "2026-03-01T20:00:00+02:00": 1772388000000,
        "1772395200": 1772395200000,
        "1772395200123": 1772395200123,
        "20260301": None,
        "2026": None,
        "12": None,
        "1/3/2026": None,
        "": None,
    }
    frame = spark.createDataFrame([Row(t=text) for text in texts])
    found = frame.select("t", moment_ms(F.col("t"), StringType(), "t").alias("ms")).collect()
    assert {row["t"]: row["ms"] for row in found} == texts
    numbers = {1772395200: 1772395200000, 1772395200123: 1772395200123, 20260301: None, -5: None}
    frame = spark.createDataFrame([Row(t=number) for number in numbers])
    found = frame.select("t", moment_ms(F.col("t"), LongType(), "t").alias("ms")).collect()
    assert {row["t"]: row["ms"] for row in found} == numbers
    frame = spark.createDataFrame([Row(t=1772395200.25), Row(t=float("nan"))])
    found = frame.select(moment_ms(F.col("t"), DoubleType(), "t").alias("ms")).collect()
    assert [row["ms"] for row in found] == [1772395200250, None]


# -- killed ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What nobody catches."""


def driver(ingest: Ingest, path: str, *options: str) -> subprocess.Popen[bytes]:
    """The job in a process of its own, with small batches."""
    code = "import sys; from spark_jobs import loading; loading.BATCH = 50\n"
    code += "from spatialnosql.cli import main; sys.exit(main())"
    arguments = ["ingest", path, "--into", ingest.target.full_name, "--uri", ingest.uri, "--json", *options]
    java = f"spark.driver.extraJavaOptions={QUICK_JAVA}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--master", "local[2]", "--spark-conf", java],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_task_that_finds_other_rows_when_it_is_done_again(
    cluster: Any, database: Database[dict[str, Any]]
) -> None:
    """The source has changed after the publication: then the task publishes what the driver does not know of."""
    target, settings = database.reports, StkSettings("at", "words", "report")
    begin(target, settings.digest, paused=False)
    hurry(target)

    def task(*texts: str) -> Any:
        times = pa.array([1_772_395_200_000] * len(texts), pa.int64())
        cells = pa.array([1 << 58] * len(texts), pa.int64())
        rows = [(times, cells, pa.array(texts)), (times, cells, pa.array(texts))]
        answers = list(stk_worker._sealed(iter(rows), filters))
        return [one["added"] for answer in answers for one in answer.to_pylist()]

    with writing(target, "ingest of x", again=True) as state:
        place = (cluster.uri, database.name, "reports")
        filters = Filters(*place, "ingest of x", state.filters, settings.to_document(), True)
        assert task("flood", "fire") == [0, 0, 0, 3]
        publish(target, state.filters, np.array([1]))
        note_published(target, "ingest of x")
        assert task("flood", "fire") == [0, 0, 0, 0]
        assert state_of(target)["tick"] == 2
        assert task("storm", "fire") == [0, 0, 0, 1]
        assert state_of(target)["tick"] == 3
    assert state_of(target)["writers"] == {}
    forget(target)


def test_cut_off_between_publishing_and_loading_and_killed_half_way(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ingest.target
    first, second = made(1000, 11), made(4000, 12, first=1000)

    def publish_and_die(*arguments: Any) -> None:
        publish(*arguments)
        raise Killed

    # A new collection, whose first batch is cut off before any document is there.
    path = write(tmp_path / "1.json", first)
    with monkeypatch.context() as patched:
        patched.setattr(ingest_stk, "publish", publish_and_die)
        with pytest.raises(Killed):
            ingest(path, *STK, "--batch", "one")
    assert target.count_documents({}) == 0
    assert [one["what"] for one in state_of(target)["writers"].values()] == ["ingest of batch one"]
    with pytest.raises(UsageError, match="first batch is not whole"):
        SpatialCollection(target).find_stk(REGION, START, None, "w1").to_list()
    held = keys_held(target)
    outcome = ingest(path, *STK, "--batch", "one")
    assert (outcome["attempts"], outcome["written"], outcome["stk"]["sealed"]) == (2, 1000, 1000)
    hurry(target)
    assert keys_held(target) == held  # they were there
    assert state_of(target)["writers"] == {}
    assert sealed(target) == 1000
    found, pruned = queries(target)
    assert pruned > 10

    # The next night is cut off half way.
    path = write(tmp_path / "2.json", second)
    process = driver(ingest, path, *STK, "--batch", "two")
    end = time.monotonic() + 120
    while target.estimated_document_count() < 1300 and time.monotonic() < end:
        time.sleep(0.005)
    kill_all(process.pid)
    process.wait()
    there = target.count_documents({})
    assert 1000 < there < 5000
    assert sealed(target) == there
    assert [one["what"] for one in state_of(target)["writers"].values()] == ["ingest of batch two"]
    info = run(load_info(target))
    assert info.stk is not None
    with pytest.raises(Busy, match="ingest of batch two"):
        rebuild(target, info, info.stk)
    some, pruned = queries(target)
    assert some > found
    assert pruned > 10
    outcome = ingest(path, *STK, "--batch", "two")
    assert (outcome["attempts"], outcome["written"], outcome["stk"]["sealed"]) == (2, 4000, 4000)
    assert sealed(target) == 5000
    assert queries(target)[0] > some
    # Nobody is listed any more: no need for --force.
    assert rebuild(target, info, info.stk) == 5000
    assert queries(target)[0] > some
    numbers = sorted(one["n"] for one in target.find({}, {"n": 1}))
    assert numbers == list(range(5000))
