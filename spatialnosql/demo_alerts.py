"""The demo's subscriptions: people ask for words in a region, reports come in, a Spark job tells them of theirs."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pymongo.database import Database

from spatialnosql.city import City
from spatialnosql.subscriptions.store import Subscriptions

Say = Callable[[str], None]
SUBSCRIPTIONS, OWNERS = 1_000, 50
CHECKED = 20
"""Reports that are also asked for one by one."""
_THEMES = (
    "flood", "road", "fire", "police", "accident", "traffic", "train", "delay", "bridge", "power", "water", "market",
)  # fmt: skip


def tell(database: Database[dict[str, Any]], uri: str, city: City, reports: int, say: Say) -> dict[str, Any]:
    """Subscribe, write reports to a file, match them, and read what one owner was told."""
    alerts = Subscriptions(database.alerts)
    added = alerts.add_many(_wanted(city)).stored
    say(f"\n{added:,} subscriptions of {OWNERS} owners, for words in neighbourhoods, circles and rectangles:")
    with tempfile.TemporaryDirectory(prefix="spatialnosql-demo-") as folder:
        path = Path(folder) / "reports.parquet"
        rows = write_reports(path, city, reports)
        started = time.perf_counter()
        matched = _match(database, uri, path)
        seconds = time.perf_counter() - started
    say(
        f"  {matched['rows']:,} reports matched in {matched['phases']['match']:.1f} s ({seconds:.1f} s with Spark's "
        f"start): {matched['pairs']:,} matches of {matched['matched']:,} reports, in {matched['buckets']:,} buckets"
    )
    owner = "owner 7"
    told = list(alerts.matches(owner, limit=3, newest_first=True))
    for match in told:
        say(f"  {owner}, {match.at:%H:%M:%S}, {match.subscription}: {str(match.text)[:70]}")
    stored = stored_pairs(database)
    wanted = [row for row in rows if row["id"] in stored]
    some = [*wanted[: CHECKED // 2], *rows[: CHECKED // 2]]
    same = all(
        {one.id for one in alerts.match_one(row["text"], row["lng"], row["lat"], row["at"])}
        == stored.get(row["id"], set())
        for row in some
    )
    say(
        f"  {len(some)} of them asked one by one: "
        + ("the same." if same else "NOT THE SAME: this is a bug.")
    )
    return {
        "subscriptions": added,
        "reports": matched["rows"],
        "matches": matched["pairs"],
        "match_s": round(matched["phases"]["match"], 2),
        "equal": same,
    }


def stored_pairs(database: Database[dict[str, Any]]) -> dict[Any, set[str]]:
    """The subscriptions that each object was told to, from the buckets themselves."""
    found: dict[Any, set[str]] = {}
    for bucket in database.alerts_matches.find({}, {"matches": 1}):
        for match in bucket["matches"]:
            found.setdefault(match["object"], set()).add(match["id"])
    return found


def _wanted(city: City) -> Iterator[dict[str, Any]]:
    draw = np.random.default_rng(1)
    areas = [feature["geometry"] for feature in city.neighbourhoods()["features"]]
    good = np.flatnonzero(city.good)
    for number in range(SUBSCRIPTIONS):
        row = int(good[draw.integers(good.size)])
        lng, lat = float(city.lng[row]), float(city.lat[row])
        regions: tuple[Any, ...] = (
            areas[int(draw.integers(len(areas)))],
            [lng, lat, float(draw.integers(500, 3_000))],
            [lng - 0.02, lat - 0.01, lng + 0.02, lat + 0.01],
        )
        words = draw.choice(_THEMES, size=3, replace=False).tolist()
        keywords = (f"({words[0]} AND {words[1]}) OR {words[2]}", words[0], f"{words[0]} OR {words[1]}")
        yield {
            "id": f"alert-{number}",
            "owner": f"owner {number % OWNERS}",
            "keywords": keywords[number % 3],
            "region": regions[int(draw.integers(3))],
        }


def write_reports(path: Path, city: City, count: int) -> list[dict[str, Any]]:
    """Reports as tweets of the city, in a Parquet file; the rows, too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from spatialnosql.subscriptions.tweets import World, generate_tweets

    batches = [
        pa.table(
            {
                "id": one.id,
                "text": one.text.to_arrow().cast(pa.string()),
                "lng": one.lng,
                "lat": one.lat,
                "at": pa.array(one.at_ms, pa.timestamp("ms", "UTC")),
            }
        )
        for one in generate_tweets(count, world=World.of(bounds=city.bounds), per_second=10.0)
    ]
    table = pa.concat_tables(batches)
    pq.write_table(table, path)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _match(database: Database[dict[str, Any]], uri: str, path: Path) -> dict[str, Any]:
    """The Spark job; its own words are for those who run it alone."""
    from spark_jobs.match_job import match
    from spark_jobs.match_work import Job, Objects
    from spark_jobs.session import LOAD_MASTER, build_session, spark_errors

    objects = Objects((str(path),), ("text",), time="at", id="id")
    with spark_errors(), contextlib.redirect_stderr(io.StringIO()):
        spark = build_session("spatialnosql demo", mongo_uri=uri, local_master=LOAD_MASTER)
        job = Job(database.alerts.full_name, objects)
        return match(spark, uri, database.client, job).to_document()
