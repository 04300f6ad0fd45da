"""``match_layouts``: the same matches stored in three ways, written and read.

- `pairs`: a document for every match, indexed by owner;
- `objects`: one for every object, with its owners and subscriptions, and a multikey index of the owners;
- `buckets`: one for the matches of an owner in a task, and every object once: what the jobs do.

Matches are those of tweets with a million subscriptions of PS2Stream's Q2. How many owners share them decides how many
are in a bucket, so there is a run for few and one for many. Documents are made before the clock starts: what is
measured is what MongoDB takes to store them, and to tell owners of theirs, with the texts.
"""

from __future__ import annotations

import datetime as dt
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray

from benchmarks.deployment import Bench, open_deployment
from benchmarks.frame import aligned, cell_text
from benchmarks.options import Options
from spatialnosql.subscriptions.index import Index, Names, warm_up
from spatialnosql.subscriptions.match_documents import Things, bucket_documents, object_documents
from spatialnosql.subscriptions.object_ids import ObjectIds
from spatialnosql.subscriptions.store_setup import shard_hashed
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.text_batches import TermReader
from spatialnosql.subscriptions.tweets import generate_tweets
from spatialnosql.subscriptions.workloads import Corpus, subscriptions

OBJECTS, SUBSCRIPTIONS, OWNERS = 60_000, 1_000_000, (2_000, 100_000)
A_TASK = 15_000
"""Objects of a task, hence of a bucket."""
ASKED = 100
BATCH, WRITERS = 2_000, 2

Rows = Iterator[RawBSONDocument]
Part = tuple[str, Callable[["Matches"], Rows], str, list[tuple[str, int]]]


@dataclass(frozen=True, eq=False)
class Matches:
    """Objects, and the pairs of row and number that match, sorted by row."""

    things: Things
    rows: NDArray[np.int64]
    numbers: NDArray[np.int32]
    names: Names

    def owner(self, pair: int) -> str:
        """The owner of the subscription of a pair."""
        return self.names.owners[int(self.names.owner[self.numbers[pair]])]

    def at(self, row: int) -> dt.datetime:
        """When an object happened."""
        return dt.datetime.fromtimestamp(int(self.things.at[row]) / 1000, dt.timezone.utc)

    def tasks(self) -> Iterator[tuple[int, int, int, int]]:
        """Objects ``[first, end)`` and pairs ``[from, to)`` of each task."""
        for first in range(0, len(self.things), A_TASK):
            end = min(first + A_TASK, len(self.things))
            start, stop = np.searchsorted(self.rows, [first, end]).tolist()
            yield first, end, start, stop


def run(options: Options) -> dict[str, Any]:
    warm_up()
    count = options.limit or OBJECTS
    queries = {}
    with open_deployment(options) as bench:
        for owners in OWNERS:
            queries[f"owners_{owners}"] = measure(bench, make(count, owners, options.seed), options.seed)
    return {
        "benchmark": "match_layouts",
        "n_points": count,
        "n_shards": bench.n_shards,
        "queries": queries,
        "equal": all(part["equal"] for part in queries.values()),
    }


def make(count: int, owners: int, seed: int) -> Matches:
    """The matches of tweets."""
    import pyarrow as pa

    batches = list(generate_tweets(count, seed))
    texts = pa.concat_arrays([one.text.to_arrow() for one in batches])
    lng, lat = (np.concatenate([getattr(one, name) for one in batches]) for name in ("lng", "lat"))
    at = np.concatenate([one.at_ms for one in batches])
    rules = TextRules()
    corpus = Corpus.of_texts(lng, lat, texts, rules)
    wanted = SUBSCRIPTIONS if count >= OBJECTS else 20 * count
    index = Index.build(subscriptions(corpus, "Q2", wanted, seed, owners=owners).by_place())
    offsets, terms = TermReader(rules, index.vocabulary).read(texts)
    rows, numbers = index.match(lng, lat, at, offsets, terms)
    ids = ObjectIds.of(pa.array(np.arange(count)))
    return Matches(Things(ids, Strings.from_arrow(texts), lng, lat, at), rows, numbers, index.names())


# -- the layouts -------------------------------------------------------------------------------------------


def pair_documents(matches: Matches) -> Rows:
    ids = matches.names.ids.take(matches.numbers)
    for pair, row in enumerate(matches.rows.tolist()):
        document = {
            "_id": f"{row}/{ids[pair]}", "owner": matches.owner(pair), "id": ids[pair], "object": row,
            "at": matches.at(row),
        }  # fmt: skip
        yield RawBSONDocument(bson.encode(document))


def multikey_documents(matches: Matches) -> Rows:
    things, ids = matches.things, matches.names.ids.take(matches.numbers)
    bounds = np.searchsorted(matches.rows, np.arange(len(things) + 1)).tolist()
    for row in range(len(things)):
        own = range(bounds[row], bounds[row + 1])
        if own:
            document = {
                "_id": row,
                "text": things.text[row],
                "loc": {"type": "Point", "coordinates": [float(things.lng[row]), float(things.lat[row])]},
                "at": matches.at(row),
                "matches": [{"owner": matches.owner(pair), "id": ids[pair]} for pair in own],
            }
            yield RawBSONDocument(bson.encode(document))


def buckets(matches: Matches) -> Rows:
    for number, (_, _, start, stop) in enumerate(matches.tasks()):
        part = slice(start, stop)
        yield from bucket_documents(
            matches.things, matches.rows[part], matches.numbers[part], matches.names, f"task-{number}", 0
        )


def matched(matches: Matches) -> Rows:
    yield from object_documents(matches.things.take(np.unique(matches.rows)), "task")


# -- reading -----------------------------------------------------------------------------------------------


def read_pairs(bench: Bench, owner: str) -> set[tuple[str, int, str]]:
    found = list(bench.database.pairs.find({"owner": owner}).sort("at", 1))
    texts = _texts(bench, [one["object"] for one in found])
    return {(one["id"], one["object"], texts[one["object"]]) for one in found}


def read_objects(bench: Bench, owner: str) -> set[tuple[str, int, str]]:
    own = {"$filter": {"input": "$matches", "cond": {"$eq": ["$$this.owner", owner]}}}
    found = bench.database.objects.find({"matches.owner": owner}, {"text": 1, "matches": own}).sort("at", 1)
    return {(match["id"], one["_id"], one["text"]) for one in found for match in one["matches"]}


def read_buckets(bench: Bench, owner: str) -> set[tuple[str, int, str]]:
    found = [
        match
        for bucket in bench.database.buckets.find({"owner": owner}).sort("first", 1)
        for match in bucket["matches"]
    ]
    texts = _texts(bench, [one["object"] for one in found])
    return {(one["id"], one["object"], texts[one["object"]]) for one in found}


def _texts(bench: Bench, ids: list[int]) -> dict[int, str]:
    found = bench.database.matched.find({"_id": {"$in": ids}}, {"text": 1})
    return {one["_id"]: one["text"] for one in found}


@dataclass(frozen=True)
class Layout:
    """One way to store matches: its collections, and how an owner's are read."""

    parts: tuple[Part, ...]
    """Each with its documents, the field it is sharded by, and its index."""
    read: Callable[[Bench, str], set[tuple[str, int, str]]]


MATCHED: Part = ("matched", matched, "_id", [])
LAYOUTS = {
    "pairs": Layout((("pairs", pair_documents, "owner", [("owner", 1), ("at", 1)]), MATCHED), read_pairs),
    "objects": Layout(
        (("objects", multikey_documents, "_id", [("matches.owner", 1), ("at", 1)]),), read_objects
    ),
    "buckets": Layout((("buckets", buckets, "owner", [("owner", 1), ("first", 1)]), MATCHED), read_buckets),
}  # fmt: skip


def measure(bench: Bench, matches: Matches, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    asked = [matches.owner(pair) for pair in draw.integers(matches.rows.size, size=ASKED).tolist()]
    variants: dict[str, Any] = {}
    answers: dict[str, list[set[tuple[str, int, str]]]] = {}
    for name, layout in LAYOUTS.items():
        written = _write(bench, layout, matches)
        server, walls = bench.cpu.seconds(), []
        answers[name] = []
        for owner in asked:
            before = time.perf_counter()
            answers[name].append(layout.read(bench, owner))
            walls.append(time.perf_counter() - before)
        now = bench.cpu.seconds()
        variants[name] = {
            **written,
            "us_per_object": round(written["server_cpu_s"] / len(matches.things) * 1e6, 1)
            if written["server_cpu_s"] is not None
            else None,
            "read_ms": round(statistics.median(walls) * 1000, 3),
            "read_server_ms": None
            if server is None or now is None
            else round((now - server) / ASKED * 1000, 3),
        }
        for collection, *_ in layout.parts:
            bench.database.drop_collection(collection)
    return {
        "pairs": int(matches.rows.size),
        "variants": variants,
        "equal": all(found == answers["pairs"] for found in answers.values()),
    }


def _write(bench: Bench, layout: Layout, matches: Matches) -> dict[str, Any]:
    documents = 0
    wall = 0.0
    server_s: float | None = 0.0
    megabytes = 0.0
    for name, make_documents, key, index in layout.parts:
        collection = bench.database[name]
        shard_hashed(collection, key)
        if index:
            collection.create_index(index)
        made = list(make_documents(matches))
        documents += len(made)
        pieces = [made[start : start + BATCH] for start in range(0, len(made), BATCH)]
        before, started = bench.cpu.seconds(), time.perf_counter()
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(lambda piece: collection.insert_many(piece, ordered=False), pieces))  # noqa: B023
        wall += time.perf_counter() - started
        now = bench.cpu.seconds()
        server_s = None if before is None or now is None or server_s is None else server_s + now - before
        sizes = collection.aggregate([{"$collStats": {"storageStats": {}}}])
        megabytes += (
            sum(one["storageStats"]["size"] + one["storageStats"]["totalIndexSize"] for one in sizes) / 1e6
        )
    return {
        "documents": documents,
        "wall_s": round(wall, 3),
        "server_cpu_s": None if server_s is None else round(server_s, 3),
        "mb": round(megabytes, 1),
    }


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = [f"match_layouts: {result['n_points']:,} objects, {result['n_shards']} shards"]
    names = ("documents", "wall_s", "server_cpu_s", "us_per_object", "mb", "read_ms", "read_server_ms")
    for kind, part in result["queries"].items():
        rows = [["", *names]]
        for name, values in part["variants"].items():
            rows.append([name, *(cell_text(values[key]) for key in names)])
        lines += [
            "",
            f"{kind}: {part['pairs']:,} matches; reading is of one owner's, with texts",
            *aligned(rows),
        ]
    lines.append("every layout told the same" if result["equal"] else "THE LAYOUTS DIFFER")
    return "\n".join([*lines, ""])
