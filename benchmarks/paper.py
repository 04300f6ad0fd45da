"""The paper's own experiments (figures 2 to 4 of Al Jawarneh et al., 2021), for its rewrite, plain MongoDB and ours.

- ``containment`` (figure 2): the points of a neighbourhood are counted, by geohash precision
- ``topn`` (figure 3): the ten neighbourhoods with the most points, one count each, by geohash precision
- ``proximity`` (figure 4): all within a radius of the centre, nearest first (``$nearSphere`` with ``$maxDistance``), by
  radius, and here by precision too

Of each: the time, and the documents and keys that explain says were examined. Only the paper's rewrite has a precision:
``paper_25``, ``paper`` (30 bits) and ``paper_35``, each on a collection sharded by that precision (`mbr`). Its lists of
cells are computed beforehand; ours are computed when asked, and no run asks in the bytes of an earlier one, so that
none comes from a cache. ``--out DIR`` draws the figures.

What differs from the paper: MongoDB 8 on one machine where it had 4.0 on a cluster; all shards have equal shares; a
sample of neighbourhoods where it had one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pymongo.collection import Collection

from benchmarks.data import Area, Points, load_points, load_polygons
from benchmarks.deployment import Bench, adopted_collection, open_deployment, plain_collection
from benchmarks.frame import Variant, aligned, cell_text, compare
from benchmarks.mbr import (
    PRECISIONS,
    circle_rectangle,
    geometry_rectangle,
    paper_collection,
    rectangle_hashes,
)
from benchmarks.mbr import VARIANTS as PAPER
from benchmarks.near import Answer, Kind, distances, moved
from benchmarks.near import Asked as Place
from benchmarks.options import Options
from benchmarks.sent import Recording, recording
from spatialnosql import SpatialCollection
from spatialnosql.examined import Examined

ROWS, POLYGONS = 200_000, 60
SAMPLE = 20  # neighbourhoods of the containment experiment
TOP = 10
RADII_KM = (1, 2, 5, 10, 15)
MOVED_M = 0.001  # a place is moved by less, that it be a new one
MOST_REPEATS = {"proximity": 2}
"""All of 800,000 documents, sorted, from five variants: what takes this long is measured well by two."""
VARIANTS = ("plain", *PAPER, "rewritten")

Filter = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A query, and the paper's lists of cells for it, by precision."""

    label: str
    hashes: dict[int, list[str]]

    @property
    def filter(self) -> Filter:
        """The query as an application writes it."""
        raise NotImplementedError

    def fresh(self, run: int) -> Asked:
        """As much of a query, in bytes of its own."""
        raise NotImplementedError

    def filter_of(self, variant: str) -> Filter:
        """What a variant is given to send."""
        if variant not in PAPER:
            return self.filter
        return {"gh": {"$in": self.hashes[PAPER[variant]]}, **self.filter}


@dataclass(frozen=True)
class Within(Asked):
    """The points of a polygon."""

    area: Area

    @property
    def filter(self) -> Filter:
        """A ``$geoWithin``."""
        return {"loc": {"$geoWithin": {"$geometry": self.area.geometry}}}

    def fresh(self, run: int) -> Within:
        """Its rings begin at another vertex."""
        return replace(self, area=self.area.rotated(run))


@dataclass(frozen=True)
class Radius(Asked):
    """All within a radius, and the place they are measured from."""

    place: Place

    @property
    def filter(self) -> Filter:
        """A ``$nearSphere``."""
        return self.place.filter

    def fresh(self, run: int) -> Radius:
        """From less than a millimetre beside, and within the paper's rectangle."""
        return replace(self, place=moved(self.place, run))


def run(options: Options) -> dict[str, Any]:
    points, areas = load_points(options, ROWS), load_polygons(options, POLYGONS)
    counts = [containment(area) for area in areas]
    chosen = sorted(np.random.default_rng(options.seed).permutation(len(counts))[:SAMPLE].tolist())
    with open_deployment(options) as bench, recording(bench.uri) as recorded:
        collections = {
            "plain": plain_collection(bench, "plain", points),
            "rewritten": adopted_collection(bench, "geohash", points),
        }
        for name, bits in PAPER.items():
            collections[name] = paper_collection(bench, name, points, bits)

        def measured(name: str, queries: list[Any], make: Maker, **how: Any) -> dict[str, Any]:
            return _measured(name, queries, make, collections, bench, recorded, options, **how)

        queries = {
            "containment": measured(
                "containment", [counts[number] for number in chosen], counting, fresh=fresh
            ),
            # None of its polygons was asked for by the one before.
            "topn": measured(
                "topn", [counts], top, fresh=lambda areas, run: [fresh(one, 50 + run) for one in areas]
            ),
        }
        for radius in radii(points):
            queries[f"proximity_{radius.label}"] = measured(
                "proximity", [radius], finding, canonical=distances, fresh=fresh
            )
    return {
        "benchmark": "paper",
        "n_points": len(points),
        "n_shards": bench.n_shards,
        "load_order": options.load_order,
        "source": points.source,
        "precisions": list(PRECISIONS),
        "radii_km": list(RADII_KM),
        "queries": queries,
        "plots": draw(queries, options),
        "equal": all(part["equal"] for part in queries.values()),
    }


# -- what is asked ----------------------------------------------------------------------------------------


def fresh(asked: Asked, run: int) -> Asked:
    """What was never asked: what is explained after the measuring is the query itself."""
    return asked.fresh(1 + run)


def containment(area: Area) -> Within:
    """The points of a polygon."""
    rectangle = geometry_rectangle(area.geometry)
    hashes = {bits: rectangle_hashes(rectangle, bits) for bits in PRECISIONS}
    return Within(area.name, hashes, area)


def radii(points: Points) -> list[Radius]:
    """Circles around the centre of the data."""
    lng, lat = float(np.median(points.lng)), float(np.median(points.lat))
    asked = []
    for km in RADII_KM:
        place = Place(f"{km} km", lng, lat, Kind(f"{km} km", 0, 1000.0 * km, 1))
        rectangle = circle_rectangle(lng, lat, 1000.0 * km + MOVED_M)
        hashes = {bits: rectangle_hashes(rectangle, bits) for bits in PRECISIONS}
        asked.append(Radius(f"{km}km", hashes, place))
    return asked


Maker = Callable[[Any, str], Callable[[Any], Any]]
"""From a collection and the name of a variant to what asks it."""


def counting(collection: Any, variant: str) -> Callable[[Asked], int]:
    """One count."""
    return lambda asked: int(collection.count_documents(asked.filter_of(variant)))


def top(collection: Any, variant: str) -> Callable[[list[Asked]], list[tuple[int, str]]]:
    """A count of every polygon; those with the most points, and of equals the first by name."""
    count = counting(collection, variant)

    def ask(areas: list[Asked]) -> list[tuple[int, str]]:
        return sorted((-count(area), area.label) for area in areas)[:TOP]

    return ask


def finding(collection: Any, variant: str) -> Callable[[Radius], Answer]:
    """All documents, in the order in which they come."""
    return lambda asked: Answer.of(asked.place, collection.find(asked.filter_of(variant)))


# -- measuring --------------------------------------------------------------------------------------------


def _measured(
    name: str,
    queries: list[Any],
    make: Maker,
    collections: dict[str, Collection[dict[str, Any]]],
    bench: Bench,
    recorded: Recording,
    options: Options,
    *,
    fresh: Callable[[Any, int], Any],
    canonical: Callable[[Any], Any] = lambda answer: answer,
) -> dict[str, Any]:
    variants = []
    for variant in VARIANTS:
        collection = collections[variant]
        twin: Any = recorded.twin(collection)
        asked: Any = collection
        if variant == "rewritten":
            asked, twin = SpatialCollection(collection), SpatialCollection(twin)
        # Wherever many queries are one (a Top-N), all of their commands are explained.
        examine = _examining(recorded, collection, make(twin, variant))
        variants.append(Variant(variant, make(asked, variant), examine, canonical))
    repeats = min(options.repeats, MOST_REPEATS.get(name, options.repeats))
    return compare(queries, variants, cpu=bench.cpu, repeats=repeats, label=name, fresh=fresh).result()


def _examining(
    recorded: Recording, collection: Collection[dict[str, Any]], ask: Callable[[Any], Any]
) -> Callable[[Any], Examined]:
    return lambda query: recorded.examine(collection, lambda: ask(query))


# -- the table and the figures ----------------------------------------------------------------------------


def draw(queries: dict[str, Any], options: Options) -> list[str]:
    """Figures 2 to 4 in the folder of ``--out``; their names."""
    if options.out is None:
        return []
    from benchmarks.paper_figures import draw_figures

    return draw_figures(queries, options.out)


def table(result: dict[str, Any]) -> str:
    titles = {"containment": "figure 2, containment", "topn": "figure 3, Top-N"}
    lines = [f"paper: {result['n_points']:,} points, {result['n_shards']} shards"]
    columns = ("wall_s", "server_cpu_s", "client_cpu_s", "docs", "keys", "shards")
    for name, part in result["queries"].items():
        title = titles.get(name, f"figure 4, proximity, {name.removeprefix('proximity_')}")
        rows = [
            ["variant", "wall s", "server CPU s", "client CPU s", "ExDocs", "ExKeys", "shards", "CPU", "wall"]
        ]
        for variant, values in part["variants"].items():
            cells = [cell_text(values[column]) for column in columns]
            ratios = [cell_text(part[key][variant], "x") for key in ("ratio", "ratio_wall")]
            rows.append([variant, *cells, *ratios])
        lines += ["", f"{title}: {part['n_queries']} queries", *aligned(rows)]
        lines.append("every variant gave the same answers" if part["equal"] else "THE ANSWERS DIFFER")
    lines += ["", *(f"drawn: {plot}" for plot in result["plots"] or ["nothing; --out DIR draws the figures"])]
    return "\n".join([*lines, ""])
