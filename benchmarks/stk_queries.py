"""Queries for the benchmarks `stk` and `stk_growth`: those of KV-STK's table 3.

1 to 5 hours, squares of 1 to 5 km, 1 to 5 words, AND and OR, around a document each. As in the paper (section 7.1)
half of them ask for words of documents that are there, the others for words from the set of all, and mostly find
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.stk_data import World, moment

_KM_PER_DEGREE = 111.2

Semantics = Literal["or", "and"]


@dataclass(frozen=True)
class Kind:
    """A kind of query: the paper's defaults but for what its name says."""

    name: str
    hours: int = 3
    side_km: int = 3
    words: int = 3
    semantics: Semantics = "or"


KINDS: tuple[Kind, ...] = (
    Kind("or"),
    Kind("and", semantics="and"),
    *(Kind(f"hours_{n}", hours=n) for n in (1, 5)),
    *(Kind(f"km2_{n * n}", side_km=n) for n in (1, 5)),
    *(Kind(f"or_{n}_words", words=n) for n in (1, 2, 5)),
    *(Kind(f"and_{n}_words", words=n, semantics="and") for n in (1, 2, 5)),
)


@dataclass(frozen=True)
class Asked:
    """A query as an application writes it."""

    filter: dict[str, Any]


def make_queries(world: World, kind: Kind, count: int, seed: int) -> list[Asked]:
    """So many queries of a kind; every second one has words of documents that are there."""
    draw = np.random.default_rng([seed, 7, kind.hours, kind.side_km, kind.words, kind.semantics == "and"])
    rows = draw.integers(len(world), size=count)
    unit_ms = world.unit_s * 1000
    return [
        _query(
            world, kind, int(row), float(draw.random()) * unit_ms, unit_ms, related=number % 2 == 0, draw=draw
        )
        for number, row in enumerate(rows)
    ]


def _query(
    world: World,
    kind: Kind,
    row: int,
    shift_ms: float,
    unit_ms: int,
    *,
    related: bool,
    draw: np.random.Generator,
) -> Asked:
    lng, lat = float(world.lng[row]), float(world.lat[row])
    high = kind.side_km / _KM_PER_DEGREE
    wide = high / max(0.1, math.cos(math.radians(lat)))
    west, south = lng - float(draw.random()) * wide, lat - float(draw.random()) * high
    ring = [
        [west, south],
        [west + wide, south],
        [west + wide, south + high],
        [west, south + high],
        [west, south],
    ]
    start_ms = int(world.at_ms[row] - shift_ms * kind.hours)
    if related and kind.semantics == "and":
        pool = world.words_of(row)  # that all are there one document must have them
    elif related:
        first, last = world.at_ms.searchsorted([start_ms, start_ms + kind.hours * unit_ms]).tolist()
        lngs, lats = world.lng[first:last], world.lat[first:last]
        inside = (lngs >= west) & (lngs <= west + wide) & (lats >= south) & (lats <= south + high)
        near = (first + np.flatnonzero(inside))[:200].tolist()
        pool = sorted({word for one in near for word in world.words_of(one)}) or world.words_of(row)
    else:
        pool = world.vocabulary
    picks = draw.choice(len(pool), size=min(kind.words, len(pool)), replace=False)
    chosen = [pool[at] for at in picks.tolist()]
    wanted: dict[str, Any] = {"$in": chosen} if kind.semantics == "or" else {"$all": chosen}
    return Asked(
        {
            "loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}},
            "at": {"$gte": moment(start_ms), "$lt": moment(start_ms + kind.hours * unit_ms)},
            "words": wanted if len(chosen) != 1 else chosen[0],
        }
    )
