"""The law of covers on the real server: what MongoDB returns lies in the outer ranges, what lies in interior ranges is
returned, and what was settled as certain is what MongoDB says. For thousands of seeded random shapes; see
`differential` for what they are, and ``--examples N`` for more of them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from differential import KINDS, Question, points_for
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from spatialnosql.cover import cover
from spatialnosql.errors import GeometryError, UnsupportedShape
from spatialnosql.geohash import points_to_cells
from spatialnosql.histogram import Histogram
from spatialnosql.region import Region
from spatialnosql.settle import IN, OUT, settle_cells, settle_closely, settle_points

BATCH = 100  # shapes whose points are inserted together
BUDGETS: tuple[dict[str, int], ...] = (
    {"max_cells": 8},
    {"max_cells": 256},
    {"max_cells": 64, "max_ranges": 6},
)


@dataclass
class Try:
    """One question with its points; `number` tags its documents."""

    number: int
    question: Question
    lng: np.ndarray
    lat: np.ndarray

    def documents(self) -> list[dict[str, Any]]:
        pairs = zip(self.lng.tolist(), self.lat.tolist(), strict=True)
        return [
            {"n": i, "s": self.number, "p": {"type": "Point", "coordinates": [x, y]}, "l": [x, y]}
            for i, (x, y) in enumerate(pairs)
        ]

    def ask(self, collection: Collection[dict[str, Any]], name: str) -> np.ndarray:
        """Which of the points the server returns."""
        if self.question.stage:
            options = {**self.question.stage, "key": name, "query": {"s": self.number}}
            found = collection.aggregate([{"$geoNear": options}, {"$project": {"n": 1}}])
        else:
            found = collection.find({"s": self.number, name: self.question.condition}, {"n": 1, "_id": 0})
        inside = np.zeros(len(self.lng), dtype=bool)
        inside[[document["n"] for document in found]] = True
        return inside


@pytest.fixture(scope="module")
def collections(client: MongoClient[dict[str, Any]]) -> Iterator[dict[str, Collection[dict[str, Any]]]]:
    """Two sharded collections, without and with geographic indexes on the GeoJSON points and on the legacy pairs."""
    database = client["test_cover_server"]
    client.drop_database(database.name)
    for name in ("plain", "indexed"):
        client.admin.command("shardCollection", f"{database.name}.{name}", key={"s": "hashed"})
    for field in ("p", "l"):
        database.indexed.create_index({"s": 1, field: "2dsphere"})
    yield {"plain": database.plain, "indexed": database.indexed}
    client.drop_database(database.name)


@pytest.mark.parametrize("kind", KINDS)
def test_covers_and_settling_never_contradict_the_server(
    kind: str, collections: dict[str, Collection[dict[str, Any]]], examples: int, tally: Counter[str]
) -> None:
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    count = max(3, round(examples / len(KINDS)))
    tried: Counter[str] = Counter()
    for start in range(0, count, BATCH):
        tries = []
        for number in range(start, min(start + BATCH, count)):
            question = KINDS[kind](rng)
            tries.append(Try(number, question, *points_for(question, rng)))
        documents = [document for one in tries for document in one.documents()]
        for collection in collections.values():
            collection.delete_many({})
            collection.insert_many(documents, ordered=False)
        for one in tries:
            tried += _compare(kind, one, collections, rng)
    tally["shapes compared with the server"] += tried["shapes"]
    tally["points around them, as GeoJSON and as legacy pairs"] += tried["points"]
    tally["answers of the server, with and without a 2dsphere index, that none contradicted"] += tried[
        "answers"
    ]
    tally["shapes rejected by both"] += tried["rejected"]
    tally["shapes left to the server"] += tried["unsupported"]
    # A test of nothing is worse than none: shapes were taken, some points were inside and some were not.
    assert tried["shapes"] >= count // 2
    assert tried["in"] > 0
    assert tried["out"] > 0


def _compare(
    kind: str, one: Try, collections: dict[str, Collection[dict[str, Any]]], rng: np.random.Generator
) -> Counter[str]:
    near = kind in ("near", "geo_near")
    ways = (
        [("indexed", "p"), ("indexed", "l")] if near else [("plain", "p"), ("plain", "l"), ("indexed", "p")]
    )
    if not near and rng.random() < 0.3:
        ways.append(("indexed", "l"))
    answers = []
    rejected: list[str] = []
    for collection, field in ways:
        try:
            answers.append(one.ask(collections[collection], field))
        except OperationFailure as error:
            rejected.append(str(error))
    try:
        region = one.question.to_region()
    except GeometryError as error:
        refusal = f"we reject ({error}) what the server takes: {one.question.condition}"
    except UnsupportedShape:
        return Counter(unsupported=1)
    else:
        refusal = ""
    if refusal:
        assert not answers, refusal
        return Counter(rejected=1)
    assert not rejected, f"the server rejects ({rejected[0]}) what we take: {one.question.condition}"
    for answer, way in zip(answers, ways, strict=True):
        _check(region, one, answer, way)
    inside = int(sum(answer.sum() for answer in answers))
    total = len(one.lng) * len(answers)
    return Counter(shapes=1, points=len(one.lng), answers=total, **{"in": inside, "out": total - inside})


def _check(region: Region, one: Try, inside: np.ndarray, way: tuple[str, str]) -> None:
    cells = points_to_cells(one.lng, one.lat)

    def wrong(what: str, points: np.ndarray) -> str | None:
        if not points.any():
            return None
        at = int(np.flatnonzero(points)[0])
        place = [float(one.lng[at]), float(one.lat[at])]
        question = one.question.condition or one.question.stage
        return f"{what}: {place} ({points.sum()} such points, {way}) of {question}"

    weights = Histogram.of_cells(cells, 40)
    problems = []
    for budget in (*BUDGETS, {"max_cells": 64, "weights": weights}):
        made = cover(region, **budget)
        problems.append(wrong("returned but not in the outer ranges", inside & ~made.outer.contains(cells)))
        problems.append(wrong("in interior ranges but not returned", ~inside & made.interior.contains(cells)))
    for name, status in (
        ("cell", settle_cells(region, cells)),
        ("coordinates", settle_points(region, one.lng, one.lat)),
        ("coordinates, closely,", settle_closely(region, one.lng, one.lat)),
    ):
        problems.append(wrong(f"settled as in by its {name} but not returned", (status == IN) & ~inside))
        problems.append(wrong(f"settled as out by its {name} but returned", (status == OUT) & inside))
    assert not any(problems), "\n".join(filter(None, problems))
