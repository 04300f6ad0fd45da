"""A step in real Spark: `match-stream` with four partitions, its load at one place from one micro-batch on.

Every variant matches the same files, one a micro-batch, into Parquet; the matches must be the same. What counts is the
CPU time that each partition's matching takes: on a cluster with a machine for each partition the slowest sets the pace.
The initial plan is made from the first micro-batch, as the job does it; SWARM begins evenly.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.deployment import Bench, open_deployment
from benchmarks.options import Options
from benchmarks.spark import start_spark
from spark_jobs.match_stream_job import MatchStream
from spark_jobs.match_stream_work import StreamJob
from spark_jobs.match_work import Objects
from spatialnosql.subscriptions.store import Subscriptions

PARTITIONS = 4
BATCHES, STEP = 11, 3
OBJECTS, SUBSCRIPTIONS = 20_000, 6_000
WORDS = ("flood", "road", "fire", "storm", "police", "train", "music", "market")
WEST, SOUTH, WIDE = -8.0, 50.0, 8.0
HOT_SIDE, HOT_SHARE = 0.15, 0.8
VARIANTS = ("none", "swarm", "local")


def run(options: Options) -> dict[str, Any]:
    """The CPU of the busiest partition by micro-batch, for every variant."""
    variants: dict[str, Any] = {}
    answers = []
    with (
        open_deployment(options) as bench,
        tempfile.TemporaryDirectory(prefix="spatialnosql-adaptive-") as folder,
    ):
        spark, ours = start_spark("adaptive", master="local[2]", mongo_uri=bench.uri)
        alerts = Subscriptions(bench.database.alerts)
        alerts.add_many(_subscriptions(options.seed))
        try:
            for name in VARIANTS:
                print(f"  Spark: {name}", file=sys.stderr, flush=True)
                out = Path(folder) / name
                variants[name] = _streamed(spark, bench, name, out, options.seed)
                answers.append(_pairs(out / "matches.parquet"))
                shutil.rmtree(out)
        finally:
            alerts.drop()
            if ours:
                spark.stop()
    for one in variants.values():
        one["equal"] = all(np.array_equal(answers[0], other) for other in answers)
        one["objects_per_s"] = _rate(one["busy_s"])
    ratios = {
        name: one["objects_per_s"] / variants["none"]["objects_per_s"] for name, one in variants.items()
    }
    return {
        "partitions": PARTITIONS,
        "batches": BATCHES,
        "step": STEP,
        "objects_a_batch": OBJECTS,
        "n_subscriptions": SUBSCRIPTIONS,
        "matches": int(answers[0].size),
        "variants": variants,
        "vs_none": ratios,
    }


def _rate(busy: list[list[float]]) -> float:
    """Objects a second of CPU of the busiest partition, in the last half of the micro-batches after the step."""
    last = [max(one) for one in busy[(STEP + BATCHES) // 2 :]]
    return OBJECTS * len(last) / sum(last)


def _streamed(spark: Any, bench: Bench, balance: str, folder: Path, seed: int) -> dict[str, Any]:
    inbox = folder / "inbox"
    inbox.mkdir(parents=True)
    job = StreamJob(
        bench.database.alerts.full_name,
        Objects((str(inbox),), ("text",), "parquet", id="id"),
        out=str(folder / "matches.parquet"),
        checkpoint=str(folder / "checkpoint"),
        schema="id long, text string, lng double, lat double",
        trigger_ms=20,
        balance=balance,
        partitions=PARTITIONS,
        partitioner="kdtree",
    )
    busy: list[list[float]] = []
    with MatchStream(spark, bench.uri, bench.database.client, job) as stream:
        query = stream.start()
        assert query is not None
        assert stream.balance is not None
        for number in range(BATCHES):
            hidden = inbox / f".{number}"
            pq.write_table(_objects(seed, number), hidden)
            hidden.rename(inbox / f"{number}.parquet")
            query.processAllAvailable()
            busy.append([round(float(one), 4) for one in stream.balance.busy_s])
    done = stream.balance.done
    return {"busy_s": busy, "moves": done.moves, "moved": done.moved, "moved_bytes": done.moved_bytes}


def _subscriptions(seed: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng([seed, 31])
    corners = np.array([WEST, SOUTH]) + draw.random((SUBSCRIPTIONS, 2)) * WIDE
    hot = draw.random(SUBSCRIPTIONS) < 0.5
    corners[hot] = np.array([WEST, SOUTH]) + draw.random((int(hot.sum()), 2)) * WIDE * HOT_SIDE
    words = draw.choice(WORDS, SUBSCRIPTIONS)
    return [
        {"id": f"s{number}", "owner": "ann", "keywords": str(word), "region": [x, y, x + 0.15, y + 0.15]}
        for number, ((x, y), word) in enumerate(zip(corners.tolist(), words, strict=True))
    ]


def _objects(seed: int, number: int) -> pa.Table:
    draw = np.random.default_rng([seed, 32, number])
    places = np.array([WEST, SOUTH]) + draw.random((OBJECTS, 2)) * WIDE
    if number >= STEP:
        hot = draw.random(OBJECTS) < HOT_SHARE
        places[hot] = np.array([WEST, SOUTH]) + draw.random((int(hot.sum()), 2)) * WIDE * HOT_SIDE
    words = draw.choice(WORDS, (OBJECTS, 3))
    texts = [" ".join(row) for row in words.tolist()]
    ids = np.arange(number * OBJECTS, (number + 1) * OBJECTS)
    return pa.table({"id": ids, "text": texts, "lng": places[:, 0], "lat": places[:, 1]})


def _pairs(path: Path) -> NDArray[np.int64]:
    """All pairs of object and subscription as one number each, sorted: strings of millions would not fit."""
    table = ds.dataset(path, partitioning="hive").to_table(columns=["object", "subscriptions"])
    counts = pc.list_value_length(table["subscriptions"]).to_numpy().astype(np.int64)
    objects = np.repeat(table["object"].to_numpy().astype(np.int64), counts)
    numbers = pc.utf8_slice_codeunits(pc.list_flatten(table["subscriptions"]), 1).cast(pa.int64())
    return np.sort(objects * SUBSCRIPTIONS + numbers.to_numpy())
