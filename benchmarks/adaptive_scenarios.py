"""What the `adaptive` benchmark simulates: SWARM's hot spots (its section 6.2), PS2Stream's Q3 and days (VI.D).

SWARM's: range queries without words over the United States, centred on objects, fewer than the paper's million and as
much larger each. A hot spot is a square of 15 % of each side; up to 40 % of the objects go there, and within a minute
as many queries come there as there were before. The towns are wider than those of the synthetic tweets, as metropolitan
areas are.

PS2Stream's: subscriptions of its kinds on synthetic tweets. Q3, of which a tenth of the regions changes its kind every
lifetime of a subscription (mu of them inserted); and Q1 while days pass, with which it compares what migrations cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.partitioning_data import objects_of, tweets
from spatialnosql.subscriptions.balancing.timeline import Scenario
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.routes import take_objects
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.tweets import UNITED_STATES, World
from spatialnosql.subscriptions.vocabulary import Vocabulary
from spatialnosql.subscriptions.workloads import (
    OBJECTS_PER_CHANGE,
    Corpus,
    mixed_regions,
    subscriptions,
    switched_regions,
)

SWARM_WORKERS, PS2STREAM_WORKERS = 22, 8
ROUNDS = 240
"""Of 15 seconds: an hour."""
HOT = (40, 200)
"""The rounds of a hot spot: from the tenth to the fiftieth minute."""
QUERIES, SAMPLE = 20_000, 10_000
OVERLAP = 1_000_000 * 0.0016**2
"""The area of the paper's queries together, in areas of the country."""
HOT_SIDE, MOST = 0.15, 0.4
RAMP = 4
"""A hot spot's queries come within so many rounds: a minute."""
WIDER = 4.0
SUBSCRIPTIONS, ROUNDS_PLANNED = 60_000, 100
EXCHANGED = 10
"""In so many rounds all subscriptions are exchanged."""
HOURS_A_ROUND, BUSIEST_HOUR, QUIETEST = 4, 20, 0.2
"""PS2Stream reads four hours of tweets at a time. How many come by local time is chosen: a fifth at eight in the
morning of what comes at eight in the evening."""


@dataclass(frozen=True)
class HotSpot:
    """Where and when: the share of the objects that go there in each round."""

    west: float
    south: float
    first: int
    last: int
    most: float
    step: bool = False
    normal: bool = False

    def share(self, turn: int) -> float:
        """A normal curve over the time, or all at once."""
        if not self.first <= turn < self.last:
            return 0.0
        if self.step:
            return self.most
        middle, width = (self.first + self.last) / 2, (self.last - self.first) / 4
        return float(self.most * np.exp(-0.5 * ((turn - middle) / width) ** 2))

    def places(self, draw: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Longitudes and latitudes inside, even or around the centre (a fifth of the side as deviation)."""
        west, south, east, north = UNITED_STATES
        side = np.array([HOT_SIDE * (east - west), HOT_SIDE * (north - south)])
        spread = draw.random((count, 2))
        if self.normal:
            spread = np.clip(draw.normal(0.5, 0.2, (count, 2)), 0.0, 1.0)
        return np.asarray(np.array([self.west, self.south]) + spread * side, dtype=np.float64)


def _corner(upper_right: bool) -> tuple[float, float]:
    west, south, east, north = UNITED_STATES
    if upper_right:
        return east - HOT_SIDE * (east - west), north - HOT_SIDE * (north - south)
    return west, south


def hot_spots(rounds: int) -> dict[str, list[HotSpot]]:
    """The paper's figures 12 to 16, by name."""
    scale = rounds / ROUNDS
    first, last = round(HOT[0] * scale), round(HOT[1] * scale)
    middle = (first + last) // 2
    low, high = _corner(False), _corner(True)
    return {
        "one": [HotSpot(*low, first, last, MOST)],
        "normal": [HotSpot(*low, first, last, MOST, normal=True)],
        "step": [HotSpot(*low, first, last, MOST, step=True)],
        "overlapping": [
            HotSpot(*low, first, last, MOST / 2),
            HotSpot(*high, first + (last - first) // 4, last, MOST / 2),
        ],
        "consecutive": [HotSpot(*low, first, middle, MOST / 2), HotSpot(*high, middle, last, MOST / 2)],
    }


@cache
def _towns(seed: int) -> NDArray[np.float64]:
    """The towns of the synthetic tweets; making their world takes a second, for its words."""
    return World.of(seed).towns


class Country:
    """Objects of the country as it usually is."""

    def __init__(self, seed: int) -> None:
        self._towns = _towns(seed)

    def places(self, draw: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Longitudes and latitudes: 85 % in towns, the rest anywhere."""
        west, south, east, north = UNITED_STATES
        town = np.searchsorted(self._towns[:, 3], draw.random(count) * self._towns[-1, 3])
        lng, lat, spread_km = self._towns[town, :3].T
        degrees = WIDER * spread_km / 111.2
        x = lng + draw.normal(size=count) * degrees / np.cos(np.radians(lat))
        y = lat + draw.normal(size=count) * degrees
        anywhere = draw.random(count) > 0.85
        x = np.where(anywhere, draw.uniform(west, east, count), x)
        y = np.where(anywhere, draw.uniform(south, north, count), y)
        return np.stack([np.clip(x, west, east), np.clip(y, south, north)], axis=1)


def swarm_scenario(
    name: str, seed: int, rounds: int = ROUNDS, queries: int = QUERIES, sample: int = SAMPLE
) -> Scenario:
    """One of `hot_spots`."""
    spots, country = hot_spots(rounds)[name], Country(seed)
    draw = np.random.default_rng([seed, 21])
    centres = [country.places(draw, queries)]
    born, dies = [np.zeros(queries, dtype=np.int64)], [np.full(queries, rounds, dtype=np.int64)]
    for spot in spots:
        own = round(queries / len(spots))
        centres.append(spot.places(draw, own))
        born.append(spot.first + np.arange(own) * RAMP // own)
        dies.append(np.full(own, spot.last))
    places, begins = np.concatenate(centres), np.concatenate(born)
    order = np.argsort(begins, kind="stable")
    return Scenario(
        name,
        rounds,
        _squares(places[order], queries),
        begins[order],
        np.concatenate(dies)[order],
        lambda turn: _wordless(_mixed(country, spots, turn, sample, seed)),
        SWARM_WORKERS,
        (min(spot.first for spot in spots), max(spot.last for spot in spots)),
    )


def history(seed: int, count: int) -> Objects:
    """Objects of the country before anything happens: what a static plan is made from."""
    return _wordless(Country(seed).places(np.random.default_rng([seed, 22]), count))


def _mixed(country: Country, spots: list[HotSpot], turn: int, count: int, seed: int) -> NDArray[np.float64]:
    draw = np.random.default_rng([seed, 23, turn])
    chosen = draw.random(count)
    places = country.places(draw, count)
    low = 0.0
    for spot in spots:
        share = spot.share(turn)
        inside = (chosen >= low) & (chosen < low + share)
        places[inside] = spot.places(draw, int(inside.sum()))
        low += share
    return places


def _wordless(places: NDArray[np.float64]) -> Objects:
    """Objects with one word that every query asks for: only places matter."""
    count = len(places)
    return Objects.of(places[:, 0], places[:, 1], 0, np.arange(count + 1), np.zeros(count, dtype=np.int32))


def _squares(centres: NDArray[np.float64], queries: int) -> Table:
    west, south, east, north = UNITED_STATES
    half = np.array([east - west, north - south]) * np.sqrt(OVERLAP / queries) / 2
    count = len(centres)
    vocabulary = Vocabulary(["any"])
    vocabulary.count(np.zeros(1, dtype=np.int32))
    return Table.of_rectangles(
        np.concatenate([centres - half, centres + half], axis=1),
        np.arange(count + 1),
        np.arange(count + 1),
        np.zeros(count, dtype=np.int32),
        vocabulary,
    )


def q3_scenario(seed: int, rounds: int = ROUNDS_PLANNED, mu: int = SUBSCRIPTIONS) -> Scenario:
    """Q3 in which a tenth of the regions switches while all subscriptions are exchanged once."""
    corpus, _ = tweets(4 * mu, seed)
    regions = [mixed_regions(seed)]
    for step in range(-(-rounds // EXCHANGED)):
        regions.append(switched_regions(regions[-1], 0.1, seed + step))
    tables = [
        subscriptions(corpus, "Q3", mu, seed + 100 * step, regions=own) for step, own in enumerate(regions)
    ]

    def chosen(draw: np.random.Generator, turn: int, count: int) -> NDArray[np.int64]:
        del turn
        return draw.integers(corpus.lng.size, size=count)

    return _exchanged("q3", corpus, tables, rounds, mu, chosen, seed)


def days_scenario(seed: int, rounds: int = ROUNDS_PLANNED, mu: int = SUBSCRIPTIONS) -> Scenario:
    """Q1 while days pass, four hours a round: people are up in the east before they are in the west."""
    corpus, _ = tweets(4 * mu, seed)
    steps = -(-rounds // EXCHANGED) + 1
    tables = [subscriptions(corpus, "Q1", mu, seed + 100 * step) for step in range(steps)]

    def chosen(draw: np.random.Generator, turn: int, count: int) -> NDArray[np.int64]:
        local_hours = HOURS_A_ROUND * turn + corpus.lng / 15.0
        level = (1 + QUIETEST) / 2 + (1 - QUIETEST) / 2 * np.cos((local_hours - BUSIEST_HOUR) * np.pi / 12)
        return np.asarray(draw.choice(corpus.lng.size, size=count, p=level / level.sum()), dtype=np.int64)

    return _exchanged("days", corpus, tables, rounds, mu, chosen, seed)


def _exchanged(
    name: str,
    corpus: Corpus,
    tables: list[Table],
    rounds: int,
    mu: int,
    chosen: Callable[[np.random.Generator, int, int], NDArray[np.int64]],
    seed: int,
) -> Scenario:
    """Subscriptions of one table make room for those of the next, one after the other, within `EXCHANGED` rounds.

    Five objects come for each subscription that comes or goes, as in PS2Stream's section VI.A.
    """
    objects = objects_of(corpus)
    comes = 1 + np.arange(mu) * EXCHANGED // mu
    born = [np.zeros(mu, dtype=np.int64), *(comes + EXCHANGED * step for step in range(len(tables) - 1))]
    dies = [comes, *(own + EXCHANGED for own in born[1:])]
    joined = Table.joined(tables)
    table = replace(joined, ids=Strings.of_numbers(0, len(joined)))
    each = OBJECTS_PER_CHANGE * 2 * mu // EXCHANGED

    def of_round(turn: int) -> Objects:
        return take_objects(objects, np.sort(chosen(np.random.default_rng([seed, 24, turn]), turn, each)))

    return Scenario(
        name,
        rounds,
        table,
        np.concatenate(born),
        np.concatenate(dies),
        of_round,
        PS2STREAM_WORKERS,
        (1, rounds),
        True,
    )
