"""``spatialnosql demo``: a local cluster, a generated city, queries and what they cost.

The steps are the functions of `STEPS`, in order; each takes the demo so far, adds to its facts and prints
what a person should know. To extend the demo, add a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo import GEOSPHERE
from pymongo.database import Database

from spatialnosql.adopt import adopt
from spatialnosql.city import City, generate_city
from spatialnosql.cli import EXIT_ERROR, EXIT_OK, EXIT_USAGE, add_common_arguments
from spatialnosql.cluster import Deployment, LocalCluster, connect, describe
from spatialnosql.demo_alerts import tell
from spatialnosql.demo_query import compare
from spatialnosql.demo_report import write_report
from spatialnosql.errors import MissingProgram, UsageError
from spatialnosql.geohash import points_to_strings
from spatialnosql.loading import insert
from spatialnosql.placement import SHARD_KEY, even_cuts, shard_by_geohash
from spatialnosql.quality import FAULTS, coordinate_faults, count_faults
from spatialnosql.uri import redact, resolve_uri

DATABASE = "spatialnosql_demo"
SAMPLE_ROWS = 20_000  # enough to cut the city evenly
DEFAULT_POINTS, DEFAULT_SHARDS = 200_000, 3
PLACES = 10  # from which the nearest are asked


@dataclass
class Demo:
    """What the steps share."""

    city: City
    database: Database[dict[str, Any]]
    uri: str
    deployment: Deployment
    say: Callable[[str], None]
    out: Path
    facts: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.add_argument(
        "--points", type=int, default=DEFAULT_POINTS, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--shards", type=int, default=DEFAULT_SHARDS, metavar="N", help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the generated points (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the data, to look at it afterwards")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), metavar="DIR", help="for what it writes"
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="leave out what needs Spark: the subscriptions"
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if the two ways to ask gave different answers."""
    for name in ("points", "shards"):
        if getattr(args, name) < 1:
            print(
                f"spatialnosql demo: --{name} must be 1 or more, not {getattr(args, name)}", file=sys.stderr
            )
            return EXIT_USAGE
    started = time.monotonic()

    def say(line: str) -> None:
        if not args.json:
            print(line, flush=True)

    with opened_database(args, say) as (database, uri, deployment):
        demo = Demo(generate_city(args.points, args.seed), database, uri, deployment, say, args.out)
        demo.facts |= {"points": args.points, "seed": args.seed, "seconds": {}}
        demo.facts |= {"deployment": deployment.kind, "mongodb": deployment.version}
        demo.facts["seconds"]["start"] = round(time.monotonic() - started, 2)
        for step in STEPS:
            if args.no_spark and step is alert:
                continue
            before = time.monotonic()
            step(demo)
            demo.facts["seconds"][step.__name__] = round(time.monotonic() - before, 2)
    demo.facts["seconds"]["total"] = round(time.monotonic() - started, 2)
    written = write_output(demo, args.out)
    seconds = demo.facts["seconds"]
    say("\nSeconds: " + ", ".join(f"{name} {taken:.1f}" for name, taken in seconds.items()))
    say(f"Written: {written}")
    if "report" in demo.facts:
        say(f"Report: {demo.facts['report']}")
    if args.json:
        print(json.dumps(demo.facts))
    equal = demo.facts["queries"]["equal"] and demo.facts.get("alerts", {"equal": True})["equal"]
    return EXIT_OK if equal else EXIT_ERROR


@contextlib.contextmanager
def opened_database(
    args: argparse.Namespace, say: Callable[[str], None]
) -> Iterator[tuple[Database[dict[str, Any]], str, Deployment]]:
    """The demo's database, on a cluster of its own or on the deployment given; dropped unless kept."""
    uri = resolve_uri(args.uri)
    with contextlib.ExitStack() as stack:
        if uri is None:
            say(f"Starting a sharded MongoDB: one config server, {args.shards} shards, one mongos ...")
            folder = args.out / "cluster" if args.keep else None
            uri = stack.enter_context(LocalCluster(shards=args.shards, directory=folder)).uri
            local = True
        else:
            folder, local = None, False
        client = stack.enter_context(connect(uri))
        deployment = describe(client)
        where = f"{redact(uri)}: MongoDB {deployment.version}, {deployment.kind}"
        say(where + (f" ({len(deployment.shards)} shards)" if deployment.shards else ""))
        if deployment.note():
            say(str(deployment.note()))
        if local:
            client.drop_database(DATABASE)  # left by an earlier --keep; the folder is the demo's own
        elif DATABASE in client.list_database_names():
            # Not ours to drop: it may be anything.
            raise UsageError(f"the database {DATABASE} is there already; drop it if it is of an earlier demo")
        if not args.keep:
            stack.callback(client.drop_database, DATABASE)
        yield client[DATABASE], uri, deployment
        if args.keep and folder is not None:
            say(f"Kept: start it again with `spatialnosql cluster up --dir {folder}`; database {DATABASE}.")
        elif args.keep:
            say(f"Kept: database {DATABASE}.")


def place(demo: Demo) -> None:
    """Shard the empty collection by geohash, so that every shard will get an even, contiguous part."""
    collection = demo.database.points
    if not demo.deployment.is_sharded:
        collection.create_index(SHARD_KEY)
        return
    sample = generate_city(SAMPLE_ROWS, seed=0, bad_share=0)
    cuts = even_cuts(points_to_strings(sample.lng, sample.lat), len(demo.deployment.shards))
    shard_by_geohash(collection, demo.deployment.shards, cuts)
    demo.say(f"Sharded {collection.full_name} on {{gh: 1, _id: 1}}, cut at {', '.join(cuts) or 'nothing'}")


def load(demo: Demo) -> None:
    """Insert the good rows with their geohash; bad ones go to the quarantine with a reason."""
    city = demo.city
    faults = coordinate_faults(city.lng, city.lat, city.bounds)
    good = faults == 0
    geohashes = points_to_strings(city.lng[good], city.lat[good])
    column = [""] * len(city)
    for row, geohash in zip(good.nonzero()[0].tolist(), geohashes.tolist(), strict=True):
        column[row] = geohash
    inserted = insert(demo.database.points, city.to_documents(extra={"gh": column}), int(good.sum()))
    for batch in city.to_documents(rows="bad"):
        demo.database.quarantine.insert_many(
            [{"_id": row["_id"], "reason": FAULTS[faults[row["_id"]]], "row": row} for row in batch]
        )
    demo.facts["inserted"], demo.facts["quarantined"] = inserted, count_faults(faults)
    reasons = ", ".join(f"{count} {name}" for name, count in demo.facts["quarantined"].items()) or "none"
    demo.say(f"Inserted {inserted:,} points; in quarantine: {reasons}")


def index(demo: Demo) -> None:
    """Build the 2dsphere index, as any collection with places has."""
    demo.database.points.create_index([("loc", GEOSPHERE)])


def adopt_it(demo: Demo) -> None:
    """Make the collection known: precision, statistics, and the validator that keeps ``gh`` true."""
    choice = adopt(demo.database.points, "loc").choice
    if choice is not None:
        demo.facts["precision"] = choice.bits
        demo.say(f"Precision {choice.bits} bits: {choice.reason}")
    demo.say("The collection's validator now refuses every write whose geohash is wrong")


def spread(demo: Demo) -> None:
    """Count what every shard holds."""
    counts = demo.database.points.aggregate([{"$collStats": {"count": {}}}])
    demo.facts["per_shard"] = {str(c.get("shard", "all")): int(c["count"]) for c in counts}
    demo.say("On the shards: " + ", ".join(f"{s} {n:,}" for s, n in sorted(demo.facts["per_shard"].items())))


def ask(demo: Demo) -> None:
    """Ask for the points of every neighbourhood and for the nearest to some places, as it is and rewritten."""
    areas = [feature["geometry"] for feature in demo.city.neighbourhoods()["features"]]
    points = demo.database.points.find({"_id": {"$lt": PLACES * 7}}, {"loc": 1}, limit=PLACES)
    places = [[round(c, 2) for c in point["loc"]["coordinates"]] for point in points]
    demo.facts["queries"] = compare(demo.database.points, areas, places, demo.say)


def alert(demo: Demo) -> None:
    """Match reports with subscriptions by the Spark job."""
    reports = max(demo.facts["points"] // 10, 200)
    demo.facts["alerts"] = tell(demo.database, demo.uri, demo.city, reports, demo.say)


def show(demo: Demo) -> None:
    """Write the report: what all this looks like."""
    path = demo.out / "report.html"
    demo.out.mkdir(parents=True, exist_ok=True)
    try:
        write_report(demo.database, demo.city, path, with_alerts="alerts" in demo.facts)
    except MissingProgram as error:
        demo.say(f"No report: {error}")
        return
    demo.facts["report"] = str(path)


def write_output(demo: Demo, folder: Path) -> str:
    """Write the facts and the neighbourhoods, for a look at them in any map."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "demo.json").write_text(json.dumps(demo.facts, indent=2) + "\n")
    (folder / "neighbourhoods.geojson").write_text(json.dumps(demo.city.neighbourhoods()))
    return f"{folder}/demo.json, {folder}/neighbourhoods.geojson"


STEPS: tuple[Callable[[Demo], None], ...] = (place, load, index, adopt_it, spread, ask, alert, show)
