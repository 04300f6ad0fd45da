"""The rules of the rewriter, by before/after pairs in ``tests/fixtures/rewrite``: one file a rule, each with its why.

``<gh ranges>`` stands for any number of conditions on ``gh``: which ranges they are is the business of covers. A pair
has ``after``, or ``window`` (the nearest so many are wanted), or ``unchanged`` with a part of the reason.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymongo import MongoClient

from spatialnosql.collection import SpatialCollection
from spatialnosql.errors import UsageError
from spatialnosql.histogram import Histogram
from spatialnosql.info import CollectionInfo, Index, ShardRange
from spatialnosql.planned_find import near_limit, sorted_wanted, unchanged_reason
from spatialnosql.rewrite import PIPELINE_RULES, RULES, Plan, QoS, rewrite, rewrite_pipeline
from spatialnosql.rewrite.ring_near import first_ring

FIXTURES = Path(__file__).parent / "fixtures" / "rewrite"
RANGES = "<gh ranges>"
CLIENT_RULES = ("ask_outline", "settle_find", "ring_near")  # rules for finds in which the client takes part
BOX = {"loc": {"$geoWithin": {"$box": [[2, 48], [3, 49]]}}}
PAIRS = [
    pytest.param(path.stem, pair, id=f"{path.stem}: {pair['why']}")
    for path in sorted(FIXTURES.glob("*.json"))
    for pair in json.loads(path.read_text())
]


@cache
def statistics(name: str | None) -> Histogram | None:
    """A city of a million, or a hamlet of ten."""
    if name is None:
        return None
    rng = np.random.default_rng(1)
    n = {"city": 1_000_000, "hamlet": 10}[name]
    return Histogram.of_points(rng.normal(2.35, 0.1, n), rng.normal(48.86, 0.1, n), 30)


def info_of(pair: dict[str, Any]) -> CollectionInfo:
    given = dict(pair.get("info", {}))
    location = given.get("location", "loc")
    # A field, a field and its kind, or several of those.
    more = [
        [(key, 1)] if isinstance(key, str) else [key] if isinstance(key[0], str) else key
        for key in given.pop("more_indexes", [])
    ]
    indexes = (
        Index("_id_", (("_id", 1),)),
        Index("gh_1__id_1", (("gh", 1), ("_id", 1))),
        Index("geo", ((location, given.pop("geo_index", "2dsphere")),)),
        *(Index("_".join(map(str, keys)), tuple((field, kind) for field, kind in keys)) for keys in more),
    )
    one = (ShardRange("", "{", "shard0"),)
    return CollectionInfo(
        "city.places",
        indexes=indexes,
        histogram=statistics(pair.get("statistics")),
        shards=one,
        **given,
    )


def plan_of(rule: str, pair: dict[str, Any]) -> Plan:
    info, qos, options = info_of(pair), QoS(**pair.get("qos", {})), pair.get("options", {})
    if "pipeline" in pair:
        return rewrite_pipeline(pair["pipeline"], info, qos=qos, unchanged=unchanged_reason(options))
    if rule not in CLIENT_RULES and "upsert" not in options:
        limit = near_limit(options)
        skip = options.get("skip", 0)
        asked = pair.get("filter", BOX)
        given = {"limit": limit, "skip": skip, "wanted": sorted_wanted(options)}
        return rewrite(asked, info, qos=qos, unchanged=unchanged_reason(options), **given)
    with MongoClient[dict[str, Any]]("localhost:1", connect=False) as never_connected:
        spatial = SpatialCollection(never_connected["city"]["places"], qos=qos, info=info)
        return spatial.plan(pair.get("filter", BOX), **options)


def shown(value: Any) -> Any:
    """A filter or a pipeline with its conditions on ``gh`` as `RANGES`."""
    if isinstance(value, list | tuple):
        parts = [shown(part) for part in value]
        return [part for i, part in enumerate(parts) if part != RANGES or parts[i - 1 : i] != [RANGES]]
    if not isinstance(value, dict):
        return value
    if list(value) == ["gh"] and isinstance(value["gh"], dict) and list(value["gh"]) == ["$gte", "$lt"]:
        return RANGES
    made = {key: shown(part) for key, part in value.items()}
    return RANGES if made == {"$or": [RANGES]} else made


@pytest.mark.parametrize(("rule", "pair"), PAIRS)
def test_a_rule(rule: str, pair: dict[str, Any]) -> None:
    before = json.dumps(pair)
    plan = plan_of(rule, pair)
    assert json.dumps(pair) == before, "the caller's query was changed"
    if "unchanged" in pair:
        assert not plan.rewritten
        assert pair["unchanged"] in "; ".join(plan.reasons)
        # The very object that came: it is sent as the caller wrote it.
        assert (plan.pipeline if "pipeline" in pair else plan.filter) is plan.original
        assert (plan.hint, plan.near, plan.rules, plan.commands) == (None, None, (), 1)
        return
    assert plan.rewritten
    assert list(plan.rules) == pair.get("rules", [rule if rule != "rewrite_matches" else "replace_regions"])
    if "window" in pair:
        assert plan.near is not None
        assert plan.near.needed == pair["window"]
        assert plan.commands > 1
        return
    if plan.rings is not None:
        assert plan.rings.needed == pair["needed"]
        assert shown(first_ring(plan.rings, info_of(pair))) == pair["after"]
    else:
        assert shown(plan.pipeline if "pipeline" in pair else plan.filter) == pair["after"]
    if "hint" in pair:
        assert plan.hint == pair["hint"]


def test_every_rule_has_its_pairs_of_both_sorts() -> None:
    rules = {name for name, _ in RULES} | set(PIPELINE_RULES) | set(CLIENT_RULES)
    assert {path.stem for path in FIXTURES.glob("*.json")} == rules | {"unchanged"}
    for rule in rules:
        pairs = [pair for name, pair in (param.values for param in PAIRS) if name == rule]
        assert any("unchanged" in pair for pair in pairs)
        assert any("unchanged" not in pair for pair in pairs)


@pytest.mark.parametrize("empty", [{}, {"kind": "cafe"}])
def test_a_filter_without_a_place_is_sent_as_it_is(empty: dict[str, Any]) -> None:
    plan = rewrite(empty, info_of({}))
    assert plan.filter is empty
    assert plan.reasons == ("no condition on the location",)


def test_max_ranges_is_kept() -> None:
    for most in (1, 2, 3, 10, 50):
        plan = rewrite(BOX, info_of({}), qos=QoS(max_ranges=most))
        assert 1 <= plan.ranges <= most


def test_throughput_spends_fewer_ranges_than_latency() -> None:
    circle = {"loc": {"$geoWithin": {"$centerSphere": [[2.35, 48.86], 0.01]}}}
    latency, throughput = (
        rewrite(circle, info_of({}), qos=QoS(prefer=prefer)) for prefer in ("latency", "throughput")
    )
    assert 0 < throughput.ranges < latency.ranges


def test_a_plan_tells_its_decision_as_data_and_in_words() -> None:
    plan = rewrite(BOX, info_of({"statistics": "city"}))
    told = plan.describe()
    assert json.loads(json.dumps(told)) == told
    assert told["rewritten"] is True
    assert told["rules"] == ["replace_regions"]
    assert told["hint"] == "gh_1__id_1"
    assert told["predicted_shards"] == ["shard0"]
    assert told["form"] == "server"
    assert told["estimates_ms"]["server"] < told["estimates_ms"]["original"]
    assert told["ranges"] >= told["interior_ranges"] > 0
    assert str(plan).startswith("rewritten: a region covered by")
    assert "(estimated: original " in str(plan)
    kept = rewrite({"kind": "cafe"}, info_of({}))
    assert str(kept) == "sent as it is: no condition on the location"
    assert (kept.describe()["form"], kept.describe()["estimates_ms"]) == ("original", None)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"prefer": "speed"}, "prefer is 'speed'; it must be 'latency' or 'throughput'"),
        ({"precision": 5}, "precision is 5; it must be 'cost' or 'selectivity'"),
        ({"form": "fastest"}, "form is 'fastest'; it must be 'cheapest', 'server' or 'client'"),
        ({"max_ranges": 0}, "max_ranges is 0; it must be 1 or more"),
        ({"max_time_ms": -1}, "max_time_ms is -1; it must be 1 or more"),
    ],
)
def test_wishes_that_cannot_be_meant_so(wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QoS(**wishes)
