"""The nearest few, and all within a radius, in order of distance; from dense places and from empty ones.

- ``plain``: hashed shards and a 2dsphere index, what people have today
- ``unrewritten``: the same query on geohash shards; it can take seconds, so only a few places are asked, and its ratios
  are against plain from these same places
- ``rewritten``: `SpatialCollection`

Kinds: ``k10`` is ``$nearSphere`` with limit 10, ``k10_max_1km`` the same with ``$maxDistance``, ``within_2km`` all with
``$maxDistance`` and no limit, ``geonear_k10`` the aggregation's ``$geoNear``. Each from dense places (points of the
data, moved by a few hundred metres); with ``_empty`` from places where nothing is: holes in the city, the sea, far
away, the pole, the antimeridian; as many as fit a budget of time, for from some of them plain takes seconds. Places are
moved by less than a millimetre with every run, so that no plan or cover is known. How dense the points are around a
place is remembered for some ten metres, so of three runs the last two spare finding that out.

Equally near documents may come in any order, so distances are compared, in order, and which documents are among the
nearest but for those that are as far as the last. ``worst`` is the lowest ratio of wall
times of any single query (`worst`).
"""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from pymongo.collection import Collection

from benchmarks import frame
from benchmarks.data import Points, load_points
from benchmarks.deployment import Bench, adopted_collection, open_deployment, plain_collection
from benchmarks.frame import Variant, compare
from benchmarks.options import Options, chosen_parts
from benchmarks.sent import Recording, recording
from benchmarks.worst import Measured, measure_worst, worst_keys, worst_lines
from spatialnosql import SpatialCollection
from spatialnosql.testing.sphere import to_vectors, travel

ROWS = 200_000
EARTH_RADIUS_M = 6_378_100.0
METRE_DEG = 360.0 / (2 * np.pi * EARTH_RADIUS_M)
UNREWRITTEN_PLACES = 3
DENSE_SPREAD_M = 300.0
AWAY_KM = (20, 200, 4_000)
BUDGET_S, FEWEST_PLACES = 8.0, 3  # of plain, for one run of a kind
QUICK = 4  # with --limit: so many times fewer places, and so much less time
SAME_M = 1e-5  # distances as near as this are the same


@dataclass(frozen=True)
class Kind:
    """What is asked: how many at most (0: all), how far at most, from how many places."""

    name: str
    limit: int
    max_distance_m: float | None
    places: int
    aggregate: bool = False


KINDS = (
    Kind("k1", 1, None, 80),
    Kind("k10", 10, None, 80),
    Kind("k100", 100, None, 80),
    Kind("k1000", 1_000, None, 24),
    Kind("k10000", 10_000, None, 8),
    *(
        Kind(f"k{k}_max_{name}", k, metres, 40)
        for k in (1, 10, 100)
        for name, metres in (("200m", 200.0), ("1km", 1_000.0), ("5km", 5_000.0))
    ),
    Kind("within_500m", 0, 500.0, 24),
    Kind("within_2km", 0, 2_000.0, 8),
    Kind("geonear_k10", 10, None, 40, aggregate=True),
)


@dataclass(frozen=True)
class Asked:
    """A place and what is asked from there."""

    label: str
    lng: float
    lat: float
    kind: Kind

    @property
    def point(self) -> dict[str, Any]:
        """The place as GeoJSON."""
        return {"type": "Point", "coordinates": [self.lng, self.lat]}

    @property
    def filter(self) -> dict[str, Any]:
        """The query as an application writes it."""
        near: dict[str, Any] = {"$geometry": self.point}
        if self.kind.max_distance_m is not None:
            near["$maxDistance"] = self.kind.max_distance_m
        return {"loc": {"$nearSphere": near}}

    @property
    def pipeline(self) -> list[dict[str, Any]]:
        """The same as an aggregation."""
        near = {"near": self.point, "distanceField": "distance_m", "key": "loc"}
        return [{"$geoNear": near}, {"$limit": self.kind.limit}]


def run(options: Options) -> dict[str, Any]:
    asked_for = chosen_parts(options, tuple(kind.name for kind in KINDS))
    points = load_points(options, ROWS)
    places = {"": dense_places(points, options.seed), "_empty": empty_places(points, options.seed)}
    queries: dict[str, Any] = {}
    measured: list[Measured] = []
    with open_deployment(options) as bench, recording(bench.uri) as recorded:
        plain = plain_collection(bench, "plain", points)
        geohash = adopted_collection(bench, "geohash", points)
        variants = (
            _variant("plain", plain, recorded),
            _variant("unrewritten", geohash, recorded),
            _variant("rewritten", geohash, recorded),
        )
        for kind in KINDS:
            if kind.name not in asked_for:
                continue
            for suffix, chosen in places.items():
                count = kind.places if options.limit is None else max(FEWEST_PLACES, kind.places // QUICK)
                asked = [dataclasses.replace(place, kind=kind) for place in chosen[:count]]
                name = kind.name + suffix
                queries[name], lowest = _measured(name, asked, variants, bench, options)
                measured += lowest
    return {
        "benchmark": "near",
        "n_points": len(points),
        "n_shards": bench.n_shards,
        "load_order": options.load_order,
        "source": points.source,
        "queries": queries,
        **worst_keys(measured, 10),
        "equal": all(part["equal"] for part in queries.values()),
    }


# -- places -----------------------------------------------------------------------------------------------


def dense_places(points: Points, seed: int) -> list[Asked]:
    """Where people are: points of the data, each moved a little."""
    rng = np.random.default_rng(seed)
    count = max(kind.places for kind in KINDS)
    chosen = rng.integers(0, len(points), count)
    metres = np.abs(rng.normal(0, DENSE_SPREAD_M, count))
    lng, lat = travel(
        points.lng[chosen], points.lat[chosen], rng.uniform(0, 2 * np.pi, count), metres * METRE_DEG
    )
    return [
        Asked(f"dense {i} ({x:.5f}, {y:.5f})", x, y, KINDS[0])
        for i, (x, y) in enumerate(zip(lng.tolist(), lat.tolist(), strict=True))
    ]


def empty_places(points: Points, seed: int) -> list[Asked]:
    """Where nobody is: holes in the city, further and further away from it, the ends of the map."""
    rng = np.random.default_rng(seed)
    middle = float(np.median(points.lng)), float(np.median(points.lat))
    inside = [(f"hole {i}", *hole) for i, hole in enumerate(holes(points, rng, 4))]
    named = []
    for km in AWAY_KM:
        lng, lat = travel(*middle, rng.uniform(0, 2 * np.pi), km * 1000 * METRE_DEG)
        named.append((f"{km} km away", float(lng), float(lat)))
    named += [
        ("north pole", 0.0, 90.0),
        ("antimeridian", 180.0, -middle[1]),
        ("ocean", -30.0, 20.0),
    ]
    # By turns, so that whatever the budget cuts off, some of both are asked.
    mixed = [place for pair in zip_longest(inside, named) for place in pair if place is not None]
    return [Asked(f"{label} ({lng:.4f}, {lat:.4f})", lng, lat, KINDS[0]) for label, lng, lat in mixed]


def holes(points: Points, rng: np.random.Generator, count: int) -> list[tuple[float, float]]:
    """Places amid the points with none of them nearer than about a kilometre, if there are any."""
    west, east = np.percentile(points.lng, [2, 98])
    south, north = np.percentile(points.lat, [2, 98])
    step = 0.01
    occupied = set(
        zip(*(np.floor(axis / step).astype(int).tolist() for axis in (points.lng, points.lat)), strict=True)
    )
    found: list[tuple[float, float]] = []
    for _ in range(2000):
        lng, lat = float(rng.uniform(west, east)), float(rng.uniform(south, north))
        x, y = int(np.floor(lng / step)), int(np.floor(lat / step))
        around = {(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        if not around & occupied:
            found.append((lng, lat))
        if len(found) == count:
            break
    return found


def moved(asked: Asked, run: int) -> Asked:
    """The same place to within a millimetre; never beyond the ends of the map."""
    step = run * 1e-10
    return dataclasses.replace(
        asked, lng=asked.lng - np.copysign(step, asked.lng), lat=asked.lat - np.copysign(step, asked.lat)
    )


# -- asking -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The documents in the order in which they came: their places, what the server said of distances, their ``_id``.

    Packed numbers: a million documents, or lists, kept would be what the client's memory and CPU are spent on.
    """

    asked: Asked
    coordinates: array[float]  # longitude and latitude in turn
    said_m: array[float]
    ids: array[int]

    @staticmethod
    def of(asked: Asked, documents: Iterable[dict[str, Any]]) -> Answer:
        """Read all documents; every one is decoded whole."""
        coordinates, said, ids = array("d"), array("d"), array("q")
        for document in documents:
            coordinates.extend(document["loc"]["coordinates"])
            ids.append(document["_id"])
            if asked.kind.aggregate:
                said.append(document["distance_m"])
        return Answer(asked, coordinates, said, ids)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Distances:
    """Metres, in order, and whose they are; equal to others that differ by rounding only."""

    metres: Any
    ids: Any  # in order of their numbers; not of those as far as the last, of which a limit may take any

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Distances)
            and self.metres.shape == other.metres.shape
            and bool(np.all(np.abs(self.metres - other.metres) <= SAME_M))
            and bool(np.array_equal(self.ids, other.ids))
        )

    __hash__ = None  # type: ignore[assignment]


def distances(answer: Answer) -> Distances:
    """How far each document is from the place, computed from its location, and as the server says if it does."""
    if not answer.coordinates:
        return Distances(np.zeros(0), np.zeros(0))
    places = np.array(answer.coordinates).reshape(-1, 2)
    here, there = to_vectors(answer.asked.lng, answer.asked.lat), to_vectors(places[:, 0], places[:, 1])
    # By the chord: exact for small angles too.
    chord = np.linalg.norm(there - here, axis=1)
    metres = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(1.0, chord / 2))
    certain = (
        metres < metres[-1] - 2 * SAME_M if answer.asked.kind.limit else np.ones(len(metres), dtype=bool)
    )
    return Distances(np.concatenate([metres, answer.said_m]), np.sort(np.array(answer.ids)[certain]))


def asking(collection: Any) -> Callable[[Asked], Answer]:
    """How a collection, plain or spatial, is asked."""

    def ask(asked: Asked) -> Answer:
        if asked.kind.aggregate:
            return Answer.of(asked, collection.aggregate(asked.pipeline))
        return Answer.of(asked, collection.find(asked.filter, limit=asked.kind.limit))

    return ask


def _variant(name: str, collection: Collection[dict[str, Any]], recorded: Recording) -> Variant:
    def wrapped(collection: Collection[dict[str, Any]]) -> Any:
        return SpatialCollection(collection) if name == "rewritten" else collection

    twin = asking(wrapped(recorded.twin(collection)))
    return Variant(
        name,
        asking(wrapped(collection)),
        lambda asked: recorded.examine(collection, lambda: twin(asked)),
        canonical=distances,
    )


def _measured(
    name: str,
    asked: Sequence[Asked],
    variants: tuple[Variant, Variant, Variant],
    bench: Bench,
    options: Options,
) -> tuple[dict[str, Any], list[Measured]]:
    """The result of one kind; the few places of ``unrewritten`` are a comparison of their own."""
    plain, unrewritten, ours = variants
    repeats, few_places = options.repeats, UNREWRITTEN_PLACES
    affordable = within_budget(asked, plain, BUDGET_S if options.limit is None else BUDGET_S / QUICK)
    if len(affordable) < len(asked):
        # What takes seconds is measured well by one run.
        asked, repeats, few_places = affordable, 1, 1
    comparison = compare(asked, [plain, ours], cpu=bench.cpu, repeats=repeats, label=name, fresh=moved)
    result = comparison.result()
    few = asked[:few_places]
    capped = compare(
        few, [plain, unrewritten], cpu=bench.cpu, repeats=1, label=f"{name}, unrewritten"
    ).result()
    result["variants"]["unrewritten"] = {**capped["variants"]["unrewritten"], "n_queries": len(few)}
    for key in ("ratio", "ratio_total", "ratio_wall"):
        result[key]["unrewritten"] = capped[key]["unrewritten"]
    measured = measure_worst(
        name, comparison, asked, plain, ours, name=lambda one: one.label, fresh=moved, candidates=3
    )
    result["equal"] = result["equal"] and capped["equal"] and all(one.equal for one in measured)
    return {**result, **worst_keys(measured, 3)}, measured


def within_budget(asked: Sequence[Asked], plain: Variant, budget_s: float = BUDGET_S) -> Sequence[Asked]:
    """The first so many queries that plain answers in the time allowed; a few in any case."""
    started = time.perf_counter()
    for number, one in enumerate(asked):
        if number >= FEWEST_PLACES and time.perf_counter() - started > budget_s:
            return asked[:number]
        plain.ask(one)
    return asked


def table(result: dict[str, Any]) -> str:
    rows = [
        [
            "kind",
            "queries",
            "plain ms",
            "unrewritten ms",
            "rewritten ms",
            "server CPU",
            "total",
            "wall",
            "worst",
            "results",
        ]
    ]
    for name, part in result["queries"].items():
        variants, n = part["variants"], part["n_queries"]
        each = {
            which: 1e3 * values["wall_s"] / values.get("n_queries", n) for which, values in variants.items()
        }
        rows.append(
            [
                name,
                str(n),
                *(f"{each[which]:,.2f}" for which in ("plain", "unrewritten", "rewritten")),
                *(
                    frame.cell_text(part[key]["rewritten"], "x")
                    for key in ("ratio", "ratio_total", "ratio_wall")
                ),
                frame.cell_text(part["worst"], "x"),
                f"{variants['plain']['results']:,}",
            ]
        )
    lines = [
        f"near: {result['n_points']:,} points, {result['n_shards']} shards; wall a query, ratios of rewritten to plain",
        *frame.aligned(rows),
        f"unrewritten was asked from {UNREWRITTEN_PLACES} places of each kind only, from 1 where plain takes seconds",
        "every variant gave the same answers" if result["equal"] else "THE ANSWERS DIFFER",
        "worst single queries by medians of repeats:",
        *worst_lines(result),
    ]
    return "\n".join([*lines, ""])
