"""Points in polygons: the number of them, and all of the documents, for every polygon.

- ``plain``: hashed shards and a 2dsphere index, what people have today
- ``unrewritten``: the same query on geohash shards
- ``paper``: the paper's rewrite to the letter (`mbr`), 30 bits
- ``rewritten``: `SpatialCollection`

Each run begins every ring at another vertex: the same area in other bytes, so that nothing is answered from a cache of
an earlier run. ``again`` asks what was just asked, so that caches may serve: for applications whose areas recur.
``worst`` is the lowest ratio of wall times of any single query (`worst`); ``cold`` is the first query of a process.
Documents are decoded in every variant; of each its ``_id`` is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymongo.collection import Collection

from benchmarks import frame
from benchmarks.cold import cold_queries
from benchmarks.data import Area, load_points, load_polygons
from benchmarks.deployment import Bench, adopted_collection, open_deployment, plain_collection
from benchmarks.frame import Variant, compare
from benchmarks.mbr import DEFAULT_PRECISION, geometry_rectangle, paper_collection, rectangle_hashes
from benchmarks.options import Options
from benchmarks.sent import Recording, recording
from benchmarks.worst import measure_worst, worst_keys, worst_lines
from spatialnosql import SpatialCollection

ROWS, POLYGONS = 200_000, 60
VARIANTS = ("plain", "unrewritten", "paper", "rewritten")
KINDS = ("count", "find")
FIRST_RUN = {
    "count": 1,
    "find": 50,
}  # so that no kind asks what another has asked, and what is explained is as new
CHECKED = 20  # one polygon in so many has its documents compared whole, and not by _id alone


@dataclass(frozen=True)
class Asked:
    """A polygon as it is asked for, and the paper's list for it, which was computed beforehand."""

    area: Area
    hashes: list[str]

    @property
    def filter(self) -> dict[str, Any]:
        """The query as an application writes it."""
        return {"loc": {"$geoWithin": {"$geometry": self.area.geometry}}}

    @property
    def paper_filter(self) -> dict[str, Any]:
        """The query as the paper rewrites it."""
        return {"gh": {"$in": self.hashes}, **self.filter}


def run(options: Options) -> dict[str, Any]:
    points, areas = load_points(options, ROWS), load_polygons(options, POLYGONS)
    asked = [
        Asked(area, rectangle_hashes(geometry_rectangle(area.geometry), DEFAULT_PRECISION)) for area in areas
    ]
    with open_deployment(options) as bench, recording(bench.uri) as recorded:
        collections = {
            "plain": plain_collection(bench, "plain", points),
            "paper": paper_collection(bench, "paper", points),
            "rewritten": adopted_collection(bench, "geohash", points),
        }
        collections["unrewritten"] = collections["rewritten"]
        queries = {kind: _measured(kind, asked, collections, bench, recorded, options) for kind in KINDS}
        whole = documents_equal(asked[::CHECKED], collections)
    queries["find"]["equal"] = queries["find"]["equal"] and whole
    parts = queries.values()
    return {
        "benchmark": "containment",
        "n_points": len(points),
        "n_shards": bench.n_shards,
        "load_order": options.load_order,
        "source": points.source,
        "queries": queries,
        "worst": min((part["worst"] for part in parts if part["worst"] is not None), default=None),
        "equal": all(part["equal"] for part in parts),
    }


def rotated(asked: Asked, run: int) -> Asked:
    """The same area, every ring of which begins at another vertex."""
    return dataclasses.replace(asked, area=asked.area.rotated(run))


def asking(kind: str, collection: Any, *, paper: bool = False) -> Callable[[Asked], Any]:
    """How a kind of query is asked of a collection, plain or spatial."""

    def count(asked: Asked) -> int:
        return int(collection.count_documents(asked.paper_filter if paper else asked.filter))

    def find(asked: Asked) -> list[Any]:
        return [
            document["_id"] for document in collection.find(asked.paper_filter if paper else asked.filter)
        ]

    return count if kind == "count" else find


def ids(answer: Any) -> Any:
    """An answer in a form that is equal for equal sets, and small."""
    return answer if isinstance(answer, int) else np.sort(np.array(answer, dtype=np.int64)).tobytes()


def _measured(
    kind: str,
    asked: list[Asked],
    collections: dict[str, Collection[dict[str, Any]]],
    bench: Bench,
    recorded: Recording,
    options: Options,
) -> dict[str, Any]:
    variants = {name: _variant(name, kind, collections[name], recorded) for name in VARIANTS}

    def fresh(one: Asked, run: int) -> Asked:
        return rotated(one, FIRST_RUN[kind] + run)

    comparison = compare(
        asked,
        list(variants.values()),
        cpu=bench.cpu,
        repeats=options.repeats,
        label=kind,
        fresh=fresh,
    )
    plain, ours = variants["plain"], variants["rewritten"]
    measured = measure_worst(
        kind, comparison, asked, plain, ours, name=lambda one: one.area.name, fresh=fresh
    )
    cold = cold_queries(
        bench.uri, {name: _cold(kind, name, collections, asked) for name in ("plain", "rewritten")}
    )
    result = comparison.result()
    again = _again(asked, plain, ours, bench, options)
    equal = (
        result.pop("equal") and cold["equal"] and again.pop("equal") and all(one.equal for one in measured)
    )
    return {**result, "equal": equal, **worst_keys(measured), "again": again, "cold": cold}


def _variant(name: str, kind: str, collection: Collection[dict[str, Any]], recorded: Recording) -> Variant:
    def wrapped(collection: Collection[dict[str, Any]]) -> Any:
        return SpatialCollection(collection) if name == "rewritten" else collection

    twin = asking(kind, wrapped(recorded.twin(collection)), paper=name == "paper")
    return Variant(
        name,
        asking(kind, wrapped(collection), paper=name == "paper"),
        lambda asked: recorded.examine(collection, lambda: twin(asked)),
        canonical=ids,
    )


def _again(
    asked: list[Asked], plain: Variant, ours: Variant, bench: Bench, options: Options
) -> dict[str, Any]:
    """The rewritten queries, each asked before in these very bytes, against plain's."""
    plain, ours = (dataclasses.replace(variant, examine=None) for variant in (plain, ours))
    compare(asked, [ours], cpu=bench.cpu, repeats=1, reference=ours.name, label="warming up")
    served = compare(asked, [plain, ours], cpu=bench.cpu, repeats=options.repeats, label="again").result()
    return {
        **{key: served["variants"][ours.name][key] for key in ("wall_s", "server_cpu_s", "client_cpu_s")},
        **{key: served[key][ours.name] for key in ("ratio", "ratio_total", "ratio_wall")},
        "equal": served["equal"],
    }


def _cold(
    kind: str, name: str, collections: dict[str, Collection[dict[str, Any]]], asked: list[Asked]
) -> dict[str, Any]:
    collection = collections[name]
    # Polygons of middling size: neither an empty one nor the whole city.
    ordered = sorted(asked, key=lambda one: len(one.hashes))
    chosen = [ordered[len(ordered) // 2], ordered[len(ordered) // 3]]
    return {
        "database": collection.database.name,
        "collection": collection.name,
        "spatial": name == "rewritten",
        "kind": kind,
        "filters": [one.filter for one in chosen],
    }


def documents_equal(asked: list[Asked], collections: dict[str, Collection[dict[str, Any]]]) -> bool:
    """Whether whole documents, but for the geohash that only some have, are the same through every variant."""

    def found(name: str, one: Asked) -> list[dict[str, Any]]:
        collection: Any = collections[name]
        if name == "rewritten":
            collection = SpatialCollection(collection)
        documents = collection.find(one.paper_filter if name == "paper" else one.filter)
        without = [{key: value for key, value in d.items() if key != "gh"} for d in documents]
        return sorted(without, key=lambda document: document["_id"])

    return all(found(name, one) == found("plain", one) for one in asked for name in VARIANTS)


def table(result: dict[str, Any]) -> str:
    lines = [frame.table(result)]
    for kind, part in result["queries"].items():
        again, cold = part["again"], part["cold"]
        lines += [
            f"{kind}, asked again, from caches: wall {frame.cell_text(again['wall_s'])} s, "
            f"{frame.cell_text(again['ratio'], 'x')} server CPU, {frame.cell_text(again['ratio_total'], 'x')} total, "
            f"{frame.cell_text(again['ratio_wall'], 'x')} wall",
            f"{kind}, first query of a process: "
            + ", ".join(
                f"{name} {1e3 * values['first_s']:.0f} ms (then {1e3 * values['second_s']:.0f} ms; imports "
                f"{1e3 * values['import_s']:.0f} ms)"
                for name, values in cold["variants"].items()
            ),
            f"{kind}, worst single queries by medians of repeats:",
            *worst_lines(part),
            "",
        ]
    return "\n".join(lines)
