"""Near where the histogram misleads: the second query of a place knows what the first has found out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from places import Setup, make_collection, register
from pymongo.database import Database
from spies import answers_of

from spatialnosql import nearest
from spatialnosql.collection import SpatialCollection
from spatialnosql.density import learn_radius, radius_m
from spatialnosql.experience import Experience
from spatialnosql.geohash import points_to_cells, points_to_strings
from spatialnosql.histogram import Histogram
from spatialnosql.metadata import load_info
from spatialnosql.steps import run

PLACE = [2.35, 48.86]


def documents(lng: Any, lat: Any) -> list[dict[str, Any]]:
    hashes = points_to_strings(lng, lat).tolist()
    pairs = zip(lng.tolist(), lat.tolist(), hashes, strict=True)
    return [
        {"_id": number, "loc": {"type": "Point", "coordinates": [x, y]}, "gh": gh}
        for number, (x, y, gh) in enumerate(pairs)
    ]


def test_a_radius_is_learnt_for_its_place_and_number_alone() -> None:
    rng = np.random.default_rng(1)
    histogram = Histogram.of_points(2.35 + rng.normal(0, 0.01, 5_000), 48.86 + rng.normal(0, 0.01, 5_000), 40)
    before = radius_m(*PLACE, 20.0, histogram)
    learn_radius(*PLACE, 10.0, histogram, 123.0)
    assert radius_m(*PLACE, 10.0, histogram) == 123.0
    assert radius_m(*PLACE, 20.0, histogram) == before
    assert radius_m(2.36, 48.86, 10.0, histogram) != 123.0


@pytest.mark.parametrize("hidden", ["fewer", "more"])
def test_the_second_query_of_a_place_reads_less(
    database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    rng = np.random.default_rng(2)
    lng, lat = 2.35 + rng.uniform(-0.05, 0.05, 4_000), 48.86 + rng.uniform(-0.05, 0.05, 4_000)
    if hidden == "more":  # a clump around the place that the statistics do not know
        lng = np.concatenate([lng, 2.35 + rng.normal(0, 0.0002, 1_500)])
        lat = np.concatenate([lat, 48.86 + rng.normal(0, 0.0002, 1_500)])
    collection = make_collection(database, "points", Setup(), documents(lng, lat))
    told = points_to_cells(lng[:4_000], lat[:4_000])
    if hidden == "fewer":  # statistics of a clump that is gone
        gone = points_to_cells(2.35 + rng.normal(0, 0.0002, 3_000), 48.86 + rng.normal(0, 0.0002, 3_000))
        told = np.concatenate([told, gone])
    register(collection, Setup(), Histogram.of_cells(told, 40))
    points = SpatialCollection(collection)
    near = {"loc": {"$nearSphere": {"$geometry": {"type": "Point", "coordinates": PLACE}}}}
    expected = [d["_id"] for d in collection.find(near).limit(10)]
    rings = answers_of(monkeypatch, nearest, "ring_cover")
    measured = answers_of(monkeypatch, nearest, "measured")
    assert [d["_id"] for d in points.find(near).limit(10)] == expected
    first = (len(rings), sum(map(len, measured)))
    rings.clear()
    measured.clear()
    assert [d["_id"] for d in points.find(near).limit(10)] == expected
    again = (len(rings), sum(map(len, measured)))
    assert again[0] == 1
    assert again < first
    # And with another number, of which nothing was learnt, the answer is the server's too.
    assert [d["_id"] for d in points.find(near).limit(3)] == expected[:3]


def test_a_condition_that_thins_out_is_learnt_while_looking_farther(
    database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    lng, lat = 2.35 + rng.uniform(-0.05, 0.05, 20_000), 48.86 + rng.uniform(-0.05, 0.05, 20_000)
    content = documents(lng, lat)
    for document in content:
        document["rare"] = document["_id"] % 200 == 0
    collection = make_collection(database, "points", Setup(), content)
    info = run(load_info(collection))
    asked = {"loc": {"$nearSphere": {"$geometry": {"type": "Point", "coordinates": PLACE}}}, "rare": True}
    expected = [d["_id"] for d in collection.find(asked).limit(10)]
    rings = answers_of(monkeypatch, nearest, "ring_cover")

    def asked_anew() -> int:
        rings.clear()
        fresh = replace(info, experience=Experience())
        assert [d["_id"] for d in SpatialCollection(collection, info=fresh).find(asked).limit(10)] == expected
        return len(rings)

    learning = asked_anew()
    monkeypatch.setattr(nearest.RingSource, "_share", 1.0)
    assert learning < asked_anew()
