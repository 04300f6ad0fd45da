"""Queries explained for a report: asked both ways, their shapes and the cover that is really sent."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
import numpy as np
from bson import json_util
from pymongo.collection import Collection

from spatialnosql.collection import SpatialCollection
from spatialnosql.cover import NOTHING, Ranges
from spatialnosql.errors import UsageError
from spatialnosql.explain import Explanation
from spatialnosql.geohash import merge_ranges
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.info import CollectionInfo
from spatialnosql.metadata import load_info
from spatialnosql.report.model import Answers, Outline, QueryFacts
from spatialnosql.report.shapes import circle, outlines_of, split_at_antimeridian
from spatialnosql.rewrite import Context, Plan, QoS
from spatialnosql.rewrite.bound_geo_near import pipeline_within_window
from spatialnosql.rewrite.bound_near import windows, within_window
from spatialnosql.rewrite.ring_near import first_ring
from spatialnosql.sharding import bound_to_cell
from spatialnosql.steps import run

MOST_ANSWERED = 20_000
"""Queries that bring more documents than that are explained, but not answered for the report."""
_GEO = {"$geoWithin", "$within", "$geoIntersects", "$near", "$nearSphere", "$geoNear"}
_WRITING = {"$out", "$merge"}
_ENTRY = {"name", "query", "count", "limit"}


@dataclass(frozen=True)
class Asked:
    """A query to explain: a filter of a find or a count, or a pipeline."""

    query: Any
    name: str | None = None
    count: bool = False
    limit: int = 0

    def __post_init__(self) -> None:
        stages = [] if isinstance(self.query, Mapping) else self.query
        if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
            raise UsageError("a query must be a filter ({...}) or a pipeline ([...])")
        if self.count and not isinstance(self.query, Mapping):
            raise UsageError("a count is of a filter; a pipeline counts by its own stages")
        if self.limit < 0:
            raise UsageError(f"the limit of a query is {self.limit}; it must be 0 (all) or more")
        if any(_WRITING & set(stage) for stage in stages):
            raise UsageError("a pipeline with $out or $merge writes; a report only reads")


# -- as given on the command line -------------------------------------------------------------------------


def read_asked(text: str) -> list[Asked]:
    """Queries as extended JSON, or in a file (``@FILE`` or its plain name), or - for standard input.

    One query is a filter, a pipeline, or ``{"query": ..., "name": ..., "count": true, "limit": 10}``; a list of the
    latter is many.
    """
    try:
        given = json_util.loads(_source(text))
    except ValueError as error:
        raise UsageError(f"the query {text[:60]!r} is no JSON: {error}") from error
    if isinstance(given, list) and given and all(_is_entry(one) for one in given):
        return [_entry(one) for one in given]
    return [_entry(given) if _is_entry(given) else Asked(given)]


def _source(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.startswith("@"):
        text = text[1:]
    elif text.lstrip()[:1] in ("{", "["):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"the query {text!r} is neither JSON ({{...}} or [...]) nor a file") from None


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, Mapping) and isinstance(value.get("query"), Mapping | list) and set(value) <= _ENTRY
    )


def _entry(value: Mapping[str, Any]) -> Asked:
    limit = value.get("limit", 0)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise UsageError(f"the limit of a query is {limit!r}; it must be a whole number")
    name = value.get("name")
    return Asked(value["query"], None if name is None else str(name), bool(value.get("count", False)), limit)


# -- asking -----------------------------------------------------------------------------------------------


def explain_query(
    plain: Collection[dict[str, Any]],
    asked: Asked,
    place: int = 1,
    *,
    qos: QoS | None = None,
    trust_gh: bool = False,
    answer: bool = True,
) -> QueryFacts:
    """Run a query both ways; what was examined, what was sent, and, with `answer`, whether the answers are the same."""
    spatial = SpatialCollection(plain, qos=qos, trust_gh=trust_gh)
    options: dict[str, Any] = {"limit": asked.limit} if asked.limit else {}
    explained = spatial.explain(asked.query, **({"count": True} if asked.count else options))
    return query_facts(
        explained,
        asked,
        run(load_info(plain, trust_gh=trust_gh)),
        qos or QoS(),
        place,
        _answers(plain, spatial, asked, explained) if answer else None,
    )


def query_facts(
    explained: Explanation,
    asked: Asked,
    info: CollectionInfo,
    qos: QoS,
    place: int = 1,
    answers: Answers | None = None,
) -> QueryFacts:
    """An explanation as it is shown. Pure."""
    plan = explained.plan
    interior, boundary = sent_cover(plan, asked.query, info, qos)
    outlines = outlines_of(asked.query)
    if plan.rings is not None:
        ring = circle(plan.rings.lng, plan.rings.lat, plan.rings.first_m / EARTH_RADIUS_M)
        outlines += (Outline("area", split_at_antimeridian([ring]), "the first ring"),)
    kind = "count" if asked.count else "find" if isinstance(asked.query, Mapping) else "aggregate"
    verdict = str(plan)
    return QueryFacts(
        asked.name or f"Query {place}: {_described(asked, kind)}",
        kind,
        json_util.dumps(asked.query, json_options=json_util.RELAXED_JSON_OPTIONS),
        verdict[:1].upper() + verdict[1:] + ".",
        plan.rewritten,
        explained.original,
        explained.rewritten,
        outlines,
        interior,
        boundary,
        answers,
        plan.rings is None and plan.near is None,
    )


def _described(asked: Asked, kind: str) -> str:
    operators = sorted({key for key in _keys(asked.query) if key in _GEO})
    words = f"{kind} by {', '.join(operators)}" if operators else kind
    return f"{words}, limit {asked.limit}" if asked.limit else words


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _keys(inner)


def _answers(
    plain: Collection[dict[str, Any]], spatial: SpatialCollection, asked: Asked, explained: Explanation
) -> Answers | None:
    """Both ways for real, unless that would bring very many documents."""
    if not asked.count and max(explained.original.returned, 0) > MOST_ANSWERED:
        return None
    ways: tuple[Callable[[], Any], Callable[[], Any]]
    if asked.count:
        ways = (lambda: plain.count_documents(asked.query), lambda: spatial.count_documents(asked.query))
    elif isinstance(asked.query, Mapping):
        ways = (
            lambda: list(plain.find(asked.query, limit=asked.limit)),
            lambda: list(spatial.find(asked.query, limit=asked.limit)),
        )
    else:
        ways = (lambda: list(plain.aggregate(asked.query)), lambda: list(spatial.aggregate(asked.query)))
    found, took = [], []
    for way in ways:
        started = time.perf_counter()
        found.append(way())
        took.append((time.perf_counter() - started) * 1000)
    if asked.count:
        return Answers(found[0], found[1], took[0], took[1], found[0] == found[1])
    counts = [len(one) for one in found]
    same = counts[0] == counts[1]
    if same and isinstance(asked.query, Mapping) and not asked.limit:
        same = _ids(found[0]) == _ids(found[1])
    return Answers(counts[0], counts[1], took[0], took[1], same)


def _ids(documents: Sequence[Mapping[str, Any]]) -> Counter[bytes]:
    return Counter(bson.encode({"_id": document.get("_id")}) for document in documents)


# -- the cover that is sent -------------------------------------------------------------------------------


def sent_cover(plan: Plan, query: Any, info: CollectionInfo, qos: QoS) -> tuple[Ranges, Ranges]:
    """Interior and boundary ranges as a plan sends them; of a near, those of its first ring. Pure."""
    if not plan.rewritten:
        return NOTHING, NOTHING
    if plan.settled is not None:
        return plan.settled.cover.interior, plan.settled.cover.boundary
    sent: Any = plan.filter if plan.filter is not None else plan.pipeline
    if plan.rings is not None:
        sent = first_ring(plan.rings, info)
    elif plan.near is not None and isinstance(query, Mapping):
        sent = within_window(query, windows(plan.near)[0], Context(info, qos))
    elif plan.near is not None:
        sent = pipeline_within_window(query, windows(plan.near)[0], Context(info, qos))
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for lo, hi, tested in ranges_in(sent, info.gh, tested=plan.rings is not None or plan.near is not None):
        found[tested].append((lo, hi))
    return _merged(found[0]), _merged(found[1])


def ranges_in(sent: Any, gh: str, *, tested: bool = False) -> Iterator[tuple[int, int, bool]]:
    """The ranges of ``gh`` in a filter or a pipeline, each with whether a geo condition stands beside it. Pure."""
    if isinstance(sent, Mapping):
        beside = tested or _has_geo(sent)
        for key, value in sent.items():
            if key == gh and isinstance(value, Mapping) and {"$gte", "$lt"} <= set(value):
                yield bound_to_cell(value["$gte"]), bound_to_cell(value["$lt"]), beside
            elif key == "$and" and isinstance(value, list | tuple):
                own = beside or any(isinstance(part, Mapping) and _has_geo(part) for part in value)
                for part in value:
                    yield from ranges_in(part, gh, tested=own)
            elif key in _GEO:
                yield from ranges_in(value, gh, tested=True)
            else:
                yield from ranges_in(value, gh, tested=beside if key == "$or" else tested)
    elif isinstance(sent, list | tuple):
        for part in sent:
            yield from ranges_in(part, gh, tested=tested)


def _has_geo(condition: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Mapping) and _GEO & set(value) for value in condition.values())


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    if not ranges:
        return NOTHING
    lo, hi = np.array(sorted(ranges), dtype=np.uint64).T
    return Ranges(*merge_ranges(lo, hi))
