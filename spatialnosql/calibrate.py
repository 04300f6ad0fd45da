"""``analyze --calibrate``: the coefficients of the cost model, measured on the deployment and the data at hand.

Each is the difference of two queries that differ in one thing only, over some thousand documents of the densest part of
the collection: keys read or not, documents fetched or not, points tested or not. The fastest of several runs, in turn:
other load only ever adds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from pymongo.collection import Collection

from spatialnosql.calm import calm_find
from spatialnosql.costs import Costs
from spatialnosql.cover import Cover, Ranges, clear_cache, cover
from spatialnosql.errors import UsageError
from spatialnosql.geohash import cells_to_points, cells_to_ranges, strings_to_cells
from spatialnosql.geometry import within_to_region
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info, metadata_collection
from spatialnosql.progress import Progress
from spatialnosql.rewrite.fragments import any_of, conditions
from spatialnosql.settle import settle_cells
from spatialnosql.steps import run

Documents = Collection[dict[str, Any]]

SAMPLE = 5_000
"""So many documents are read by each query, if there are so many."""

REPEATS = 7
_LIMITS = 30.0  # a coefficient further from the default than this factor was not measured but disturbed
_RANGES = 64


def calibrate(collection: Documents) -> Costs:
    """Measure the costs, and store them with the collection's metadata."""
    info = run(load_info(collection))
    if info.histogram is None or not info.histogram.total or info.gh_index is None:
        raise UsageError(
            f"{collection.full_name} cannot be calibrated: it has no documents, no index on {info.gh} or was never "
            "analyzed"
        )
    costs = measure_costs(collection, info)
    metadata_collection(collection).update_one(
        {"_id": info.namespace}, {"$set": {"costs": costs.to_document()}}
    )
    return costs


def measure_costs(collection: Documents, info: CollectionInfo) -> Costs:
    """The costs as measured; what could not be told from noise is the default."""
    assert info.histogram is not None
    sample = _sample(info.histogram)
    queries = _Queries(collection, info, sample)
    read = queries.measured()
    count = max(queries.documents, 1)
    each = {name: (read[name] - read[base]) / number for name, base, number in queries.differences(count)}
    shard_ms = each.get("everywhere", Costs.shard_ms)
    found = Costs(
        # What asks for nothing asks one shard for one range of it.
        command_ms=read["nothing"] - shard_ms - each["ranges"],
        shard_ms=shard_ms,
        range_ms=each["ranges"],
        key_ms=each["keys"],
        fetch_ms=each["fetched"],
        test_ms=each["tested"],
        flat_test_ms=each["flat"],
        vertex_ms=each["vertices"],
        shape_ms=each.get("small area", Costs.shape_ms),
        shape_vertex_ms=each.get("large area", Costs.shape_vertex_ms),
        return_ms=each["returned"],
        settle_ms=each["settled"],
        read_ms=read["small shape"],
        read_vertex_ms=each["large shape"],
    )
    return _plausible(found)


def lines(costs: Costs) -> list[str]:
    """For people: each coefficient beside the default."""
    defaults = asdict(Costs())
    rows = [
        f"  {name:15} {value * 1000:10.3f} us   (default {defaults[name] * 1000:.3f})"
        for name, value in asdict(costs).items()
    ]
    return ["Costs measured here, each for one:", *rows]


def _plausible(costs: Costs) -> Costs:
    """Differences of noisy times may come out as nothing, less than nothing or far too much: not those."""
    defaults = asdict(Costs())
    kept = {
        name: value
        for name, value in asdict(costs).items()
        if math.isfinite(value) and defaults[name] / _LIMITS <= value <= defaults[name] * _LIMITS
    }
    return replace(Costs(), **kept)


def _sample(histogram: Histogram) -> Ranges:
    """The fullest run of neighbouring cells on the curve that hold about as many points as are wanted."""
    fullest = int(np.argmax(histogram.counts))
    first = last = fullest
    total = int(histogram.counts[fullest])
    while total < SAMPLE and (first > 0 or last + 1 < len(histogram.cells)):
        before = int(histogram.counts[first - 1]) if first > 0 else -1
        behind = int(histogram.counts[last + 1]) if last + 1 < len(histogram.cells) else -1
        if before >= behind:
            first, total = first - 1, total + before
        else:
            last, total = last + 1, total + behind
    lo, hi = cells_to_ranges(histogram.cells[[first, last]], histogram.bits)
    return Ranges(lo[:1], hi[1:])


class _Queries:
    """Queries that differ in one thing only."""

    def __init__(self, collection: Documents, info: CollectionInfo, sample: Ranges) -> None:
        self._collection, self._info = collection, info
        self._hint: dict[str, Any] = {"hint": info.gh_index}
        self._inside = any_of(conditions(sample, info.gh), info.gh)
        lng, lat = cells_to_points(sample.lo)
        self._place = float(lng[0]), float(lat[0])
        self._sample = sample
        self.documents = collection.count_documents(self._inside, **self._hint)
        self._hashes = [
            one[info.gh] for one in collection.find(self._inside, {"_id": 0, info.gh: 1}, **self._hint)
        ]

    def differences(self, count: int) -> list[tuple[str, str, int]]:
        """Which query costs more than which, by how many of a thing."""
        shards = len({part.shard for part in self._info.shards})
        asked = max(shards, 1)
        parts = [
            ("ranges", "nothing", _RANGES - 1),
            ("keys", "nothing", count),
            ("fetched", "keys", count),
            ("flat", "fetched", count),
            ("tested", "fetched", count),
            ("vertices", "tested", count * (_MANY - _FEW)),
            ("returned", "fetched", count),
            ("settled", "keys", count),
            ("large shape", "small shape", _MANY - _FEW),
        ]
        if self._info.nears_on_sphere:
            # All shards work on a shape, some of them at the same time: so at least this.
            parts += [
                ("small area", "everywhere", asked),
                ("large area", "small area", asked * (_MANY - _FEW)),
            ]
        return [*parts, ("everywhere", "nothing", shards - 1)] if shards > 1 else parts

    def measured(self) -> dict[str, float]:
        """The milliseconds of each."""
        asked = self._asked()
        times: dict[str, list[float]] = {name: [] for name in asked}
        with Progress("calibrating", REPEATS * len(asked), unit="queries") as progress:
            for _ in range(REPEATS):
                for name, ask in asked.items():
                    started = time.perf_counter()
                    ask()
                    times[name].append((time.perf_counter() - started) * 1000)
                    progress.advance()
        return {name: min(values) for name, values in times.items()}

    def _asked(self) -> dict[str, Callable[[], Any]]:
        gh, location, inside = self._info.gh, self._info.location, self._inside
        start = int(self._sample.lo[0])
        one = Ranges(np.array([start], np.uint64), np.array([start], np.uint64) + np.uint64(1))
        steps = np.arange(_RANGES, dtype=np.uint64) * np.uint64(4) + np.uint64(start)
        many = Ranges(steps, steps + np.uint64(1))
        lng, lat = self._place
        circle = {location: {"$geoWithin": {"$center": [[lng, lat], 30.0]}}}
        few, lots = ({location: {"$geoWithin": {"$geometry": _ring(lng, lat, n)}}} for n in (_FEW, _MANY))
        far = lng - math.copysign(180.0, lng), -lat
        small, large = (
            {location: {"$geoWithin": {"$geometry": _ring(*far, n, 1e-4)}}} for n in (_FEW, _MANY)
        )

        def count(*parts: dict[str, Any]) -> Callable[[], int]:
            asked = {"$and": list(parts)} if len(parts) > 1 else parts[0]
            return lambda: self._collection.count_documents(asked, **self._hint)

        # Without its index the server would test every document.
        areas: dict[str, Callable[[], Any]] = {
            "small area": lambda: self._collection.count_documents(small),
            "large area": lambda: self._collection.count_documents(large),
        }
        return {
            **(areas if self._info.nears_on_sphere else {}),
            "nothing": count(any_of(conditions(one, gh), gh)),
            "ranges": count(any_of(conditions(many, gh), gh)),
            "everywhere": lambda: self._collection.count_documents({"_id": {"$in": [_NOBODY]}}),
            "keys": count(inside),
            "fetched": count(inside, {_NOWHERE: {"$exists": False}}),
            "flat": count(inside, circle),
            "tested": count(inside, few),
            "vertices": count(inside, lots),
            "returned": lambda: calm_find(self._collection, inside, **self._hint).to_list(),
            "settled": self._settle,
            "small shape": lambda: self._planned(_FEW),
            "large shape": lambda: self._planned(_MANY),
        }

    def _settle(self) -> None:
        pushed = {"$group": {"_id": None, "keys": {"$push": f"${self._info.gh}"}}}
        self._collection.aggregate([{"$match": self._inside}, pushed], **self._hint).to_list()
        settle_cells(_region(*self._place, 200), strings_to_cells(self._hashes))

    def _planned(self, vertices: int) -> Cover:
        clear_cache()
        return cover(_region(*self._place, vertices), weights=self._info.histogram)


_FEW, _MANY = 8, 1000
_NOWHERE, _NOBODY = "spatialnosql: no such field", "spatialnosql: nobody"


def _region(lng: float, lat: float, vertices: int) -> Any:
    return within_to_region({"$geometry": _ring(lng, lat, vertices)})


def _ring(lng: float, lat: float, vertices: int, away: float = 0.05) -> dict[str, Any]:
    """A round polygon around a place; unless told otherwise 300 km away, far too large to have an edge near it."""
    turns = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    height = math.radians(lat)
    north = np.arcsin(math.sin(height) * math.cos(away) + math.cos(height) * math.sin(away) * np.cos(turns))
    east = math.radians(lng) + np.arctan2(
        np.sin(turns) * math.sin(away) * math.cos(height), math.cos(away) - math.sin(height) * np.sin(north)
    )
    lngs, lats = (np.degrees(east) + 180.0) % 360.0 - 180.0, np.degrees(north)
    points = np.stack([lngs, lats], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*points, points[0]]]}
