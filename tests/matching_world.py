"""A small world for tests of matching: subscriptions of every kind, objects on their borders, brute force."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spatialnosql.subscriptions.model import Object, Subscription
from spatialnosql.subscriptions.text import TextRules

RULES = TextRules(stem="english")
WORDS = [
    "flood",
    "road",
    "closed",
    "storm",
    "fire",
    "bridge",
    "train",
    "delay",
    "police",
    "accident",
    "park",
    "music",
]
FORMS = (
    "floods",
    "FLOODED",
    "roads",
    "Storms",
    "fires",
    "bridges",
    "trains",
    "delayed",
    "accidents",
    "parks",
)
"""Words that are the same as one of `WORDS` once they are normalised."""
WEST, SOUTH, SIDE = 10.0, 50.0, 2.0
FIRST = dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class World:
    """Subscriptions, objects, and which of them match."""

    subscriptions: tuple[Subscription, ...]
    objects: tuple[Object, ...]

    def expected(self, subscriptions: Iterable[Subscription] | None = None) -> set[tuple[str, Any]]:
        """By brute force: pairs of subscription and object."""
        return brute_force(self.subscriptions if subscriptions is None else subscriptions, self.objects)

    def write(self, path: Path, objects: Sequence[Object] | None = None) -> str:
        """The objects as a Parquet file of ``id, text, lng, lat, at``."""
        rows = self.objects if objects is None else objects
        columns = {
            "id": [one.id for one in rows],
            "text": [one.text for one in rows],
            "lng": [one.lng for one in rows],
            "lat": [one.lat for one in rows],
            "at": pa.array([one.at for one in rows], pa.timestamp("ms", "UTC")),
        }
        pq.write_table(pa.table(columns), path, row_group_size=max(len(rows) // 4, 1))
        return str(path)


def brute_force(subscriptions: Iterable[Subscription], objects: Sequence[Object]) -> set[tuple[str, Any]]:
    """What the definition says of every pair."""
    lng = np.array([one.lng for one in objects])
    lat = np.array([one.lat for one in objects])
    terms = [set(RULES.terms(one.text)) for one in objects]
    found = set()
    for subscription in subscriptions:
        for row in np.flatnonzero(subscription.area.inside(lng, lat)).tolist():
            early = objects[row].at_ms < subscription.expires_ms
            if early and any(terms[row].issuperset(clause) for clause in subscription.clauses):
                found.add((subscription.id, objects[row].id))
    return found


def make_world(
    seed: int, subscriptions: int, objects: int, box: tuple[float, float, float] = (WEST, SOUTH, SIDE)
) -> World:
    """Equal seeds give equal worlds; all lies in a square of so many degrees."""
    rng = np.random.default_rng(seed)
    made = tuple(_subscription(rng, number, box) for number in range(subscriptions))
    return World(made, tuple(_objects(rng, objects, made, box)))


def _subscription(rng: np.random.Generator, number: int, box: tuple[float, float, float]) -> Subscription:
    west, south, side = box
    x, y = west + rng.random() * side, south + rng.random() * side
    size = side * float(rng.choice([0.02, 0.1, 0.4]))
    kind = number % 4
    region: Any
    if kind == 0:
        region = [round(x, 5), round(y, 5), round(x + size, 5), round(y + size, 5)]
    elif kind == 1:
        region = [round(x, 5), round(y, 5), size * 50_000]
    else:
        corners = [
            [x, y],
            [x + size, y + size / 3],
            [x + size * 0.7, y + size],
            [x + size / 4, y + size * 0.6],
        ]
        corners = [[round(a, 5), round(b, 5)] for a, b in corners]
        region = {"type": "Polygon", "coordinates": [[*corners, corners[0]]]}
    words = rng.choice(WORDS, size=3, replace=False).tolist()
    joiner = [" AND ", " OR ", " AND ", " OR "][int(rng.integers(4))]
    keywords = joiner.join(words[: int(rng.integers(1, 4))])
    if number % 7 == 0:
        keywords = f"({words[0]} AND {words[1]}) OR {words[2]}"
    expires = FIRST + dt.timedelta(minutes=int(rng.integers(600))) if number % 3 == 0 else None
    return Subscription.of(f"owner {number % 9}", keywords, region, RULES, expires, f"sub-{number}")


def _objects(
    rng: np.random.Generator,
    count: int,
    subscriptions: Sequence[Subscription],
    box: tuple[float, float, float],
) -> Iterable[Object]:
    west, south, side = box
    corners = [
        (x, y) for one in subscriptions for w, s, e, n in one.area.bounds for x, y in ((w, s), (e, n), (w, n))
    ]
    for number in range(count):
        x, y = west + rng.random() * side, south + rng.random() * side
        if number % 5 == 0:  # on a corner, or beside it by less than a centimetre
            x, y = corners[int(rng.integers(len(corners)))]
            x += float(rng.choice([0.0, 0.0, 1e-8, -1e-8]))
        words = rng.choice([*WORDS, *FORMS, "the", "and", "nothing"], size=int(rng.integers(1, 7))).tolist()
        at = FIRST + dt.timedelta(seconds=int(rng.integers(36_000)))
        yield Object(number, " ".join(words) + str(rng.choice([".", "!", ""])), x, y, at)
