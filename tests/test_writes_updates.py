"""What becomes of an update, as a table: before, after, and why. No server."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from spatialnosql.errors import UsageError
from spatialnosql.expression import geohash_expression
from spatialnosql.geohash import point_to_geohash
from spatialnosql.info import CollectionInfo
from spatialnosql.writes import plan_update
from spatialnosql.writes.simulate import NotViable, Operation, apply
from spatialnosql.writes.updates import gh_after

INFO = CollectionInfo("test.points")
NESTED = CollectionInfo("test.points", location="place.point")
POINT = {"type": "Point", "coordinates": [10.5, 20.25]}
OTHER = {"type": "Point", "coordinates": [-70.0, 5.0]}
GH, OTHER_GH = point_to_geohash(10.5, 20.25), point_to_geohash(-70.0, 5.0)
LAST_STAGE = {"$set": {"gh": {"$ifNull": [geohash_expression("loc"), "$$REMOVE"]}}}


@dataclass
class Case:
    why: str
    before: Any
    kind: str
    after: Any = None  # None: the same
    filter: dict[str, Any] = field(default_factory=dict)
    upsert: bool = False
    many: bool = False
    info: CollectionInfo = INFO


CASES = [
    # -- nothing to do
    Case("another field", {"$set": {"n": 1}}, "as it is"),
    Case("another field of many documents", {"$inc": {"n": 1}}, "as it is", many=True),
    Case("a name that only begins alike", {"$set": {"location": POINT, "lo": 1}}, "as it is"),
    Case("a sibling of the location", {"$set": {"place.name": "x"}}, "as it is", info=NESTED),
    Case(
        "an array of places holds no single point before or after",
        {"$push": {"place": 1}},
        "as it is",
        info=NESTED,
    ),
    Case("under a number there is no point", {"$inc": {"place": 1}}, "as it is", info=NESTED),
    Case("an element of an array of places", {"$set": {"place.0.point": POINT}}, "as it is", info=NESTED),
    Case("the user sets gh: the validator judges", {"$set": {"loc": POINT, "gh": "x"}}, "as it is"),
    Case("the user takes gh away himself", {"$unset": {"loc": "", "gh": ""}}, "as it is"),
    Case("$setOnInsert does nothing without upsert", {"$setOnInsert": {"loc": POINT}}, "as it is"),
    Case("an unknown operator is the server's to refuse", {"$foo": {"loc": 1}}, "as it is"),
    Case("no operators: pymongo refuses it", {"loc": POINT}, "as it is"),
    Case("nothing: pymongo refuses it", {}, "as it is", filter={"loc": POINT}, upsert=True),
    Case("operators of nothing", {"$set": 5}, "as it is"),
    Case("no update at all", "text", "as it is"),
    Case("a tuple is no pipeline to pymongo", ({"$set": {"loc": POINT}},), "as it is"),
    Case(
        "paths that contradict each other", {"$set": {"place": 5, "place.point": 1}}, "as it is", info=NESTED
    ),
    Case("an upsert without a place", {"$set": {"n": 1}}, "as it is", filter={"_id": 5}, upsert=True),
    Case("equality with null is no place", {"$set": {"n": 1}}, "as it is", filter={"loc": None}, upsert=True),
    Case("$ne gives no value", {"$set": {"n": 1}}, "as it is", filter={"loc": {"$ne": POINT}}, upsert=True),
    Case(
        "a choice of two gives no value",
        {"$set": {"n": 1}},
        "as it is",
        filter={"$or": [{"loc": POINT}, {"loc": OTHER}]},
        upsert=True,
    ),
    Case("a matching document keeps its place", {"$set": {"n": 1}}, "as it is", filter={"loc": POINT}),
    # -- gh beside the location
    Case("the whole location", {"$set": {"loc": POINT}}, "send", {"$set": {"loc": POINT, "gh": GH}}),
    Case(
        "other operators stay",
        {"$inc": {"n": 1}, "$set": {"loc": POINT, "a": 2}},
        "send",
        {"$inc": {"n": 1}, "$set": {"loc": POINT, "a": 2, "gh": GH}},
    ),
    Case(
        "no point, no gh",
        {"$set": {"loc": "somewhere"}},
        "send",
        {"$set": {"loc": "somewhere"}, "$unset": {"gh": ""}},
    ),
    Case("the location removed", {"$unset": {"loc": ""}}, "send", {"$unset": {"loc": "", "gh": ""}}),
    Case(
        "a date is no place",
        {"$currentDate": {"loc": True}},
        "send",
        {"$currentDate": {"loc": True}, "$unset": {"gh": ""}},
    ),
    Case(
        "renamed away, there is no location left",
        {"$rename": {"loc": "old"}},
        "send",
        {"$rename": {"loc": "old"}, "$unset": {"gh": ""}},
    ),
    Case(
        "a parent says the whole location",
        {"$set": {"place": {"name": "x", "point": POINT}}},
        "send",
        {"$set": {"place": {"name": "x", "point": POINT}, "gh": GH}},
        info=NESTED,
    ),
    Case(
        "a parent without a location",
        {"$set": {"place": {"name": "x"}}},
        "send",
        {"$set": {"place": {"name": "x"}}, "$unset": {"gh": ""}},
        info=NESTED,
    ),
    Case(
        "a parent removed", {"$unset": {"place": 1}}, "send", {"$unset": {"place": 1, "gh": ""}}, info=NESTED
    ),
    Case("legacy pair", {"$set": {"loc": (10.5, 20.25)}}, "send", {"$set": {"loc": (10.5, 20.25), "gh": GH}}),
    # -- gh of what an upsert inserts
    Case(
        "inserted only",
        {"$setOnInsert": {"loc": POINT}},
        "send",
        {"$setOnInsert": {"loc": POINT, "gh": GH}},
        upsert=True,
    ),
    Case(
        "inserted only, in parts",
        {"$setOnInsert": {"loc.type": "Point", "loc.coordinates": [10.5, 20.25]}},
        "send",
        {"$setOnInsert": {"loc.type": "Point", "loc.coordinates": [10.5, 20.25], "gh": GH}},
        upsert=True,
    ),
    *(
        Case(
            f"the filter gives the new document its place: {form}",
            {"$set": {"n": 1}},
            "send",
            {"$set": {"n": 1}, "$setOnInsert": {"gh": GH}},
            filter=form,
            upsert=True,
        )
        for form in (
            {"loc": POINT},
            {"loc": {"$eq": POINT}},
            {"loc": {"$in": [POINT]}},
            {"loc": {"$all": [POINT]}},
            {"$and": [{"a": 1}, {"loc": POINT}]},
            {"$or": [{"$and": [{"loc": POINT}]}]},
            {"loc.type": "Point", "loc.coordinates": [10.5, 20.25]},
            {"loc": [10.5, 20.25]},
        )
    ),
    Case(
        "the update overrides the filter",
        {"$set": {"loc": OTHER}},
        "send",
        {"$set": {"loc": OTHER, "gh": OTHER_GH}},
        filter={"loc": POINT},
        upsert=True,
    ),
    # -- one by one
    Case("a coordinate", {"$set": {"loc.coordinates.0": 5}}, "one by one"),
    Case("both coordinates, but is it a Point?", {"$set": {"loc.coordinates": [1, 2]}}, "one by one"),
    Case("$inc", {"$inc": {"loc.coordinates.1": 5}}, "one by one"),
    Case("$mul", {"$mul": {"loc.0": 5}}, "one by one"),
    Case("$min", {"$min": {"loc.lng": 5}}, "one by one"),
    Case("$max", {"$max": {"place.point.lat": 5}}, "one by one", info=NESTED),
    Case("a part removed", {"$unset": {"loc.type": ""}}, "one by one"),
    Case("renamed to the location", {"$rename": {"old": "loc"}}, "one by one"),
    Case("renamed within", {"$rename": {"loc.x": "loc.a"}}, "one by one"),
    Case("a parent renamed to", {"$rename": {"old": "place"}}, "one by one", info=NESTED),
    Case("a note beside the coordinates", {"$push": {"loc.notes": 1}}, "one by one"),
    Case(
        "the whole location of many: shard keys change one by one",
        {"$set": {"loc": POINT}},
        "one by one",
        {"$set": {"loc": POINT, "gh": GH}},
        many=True,
    ),
    Case(
        "the location of many removed",
        {"$unset": {"loc": ""}},
        "one by one",
        {"$unset": {"loc": "", "gh": ""}},
        many=True,
    ),
    # -- pipelines
    Case("a pipeline of other fields", [{"$set": {"n": "$loc"}}, {"$unset": ["a", "b"]}], "as it is"),
    Case("$unset of one", [{"$unset": "n"}], "as it is"),
    Case("the user's own gh", [{"$set": {"loc": POINT, "gh": "x"}}], "as it is"),
    Case("an empty pipeline", [], "as it is"),
    *(
        Case(f"a pipeline with {stage}", [stage], "send", [stage, LAST_STAGE])
        for stage in (
            {"$set": {"loc": "$old"}},
            {"$addFields": {"loc.coordinates": [1, 2]}},
            {"$unset": "loc"},
            {"$unset": ["n", "loc.type"]},
            {"$project": {"n": 1}},
            {"$replaceWith": {"loc": "$old"}},
            {"$replaceRoot": {"newRoot": "$a"}},
        )
    ),
    Case(
        "a pipeline of many",
        [{"$set": {"loc": "$old"}}],
        "one by one",
        [{"$set": {"loc": "$old"}}, LAST_STAGE],
        many=True,
    ),
    Case(
        "a pipeline that inserts what the filter says",
        [{"$set": {"n": 1}}],
        "send",
        [{"$set": {"n": 1}}, LAST_STAGE],
        filter={"loc": POINT},
        upsert=True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_plan(case: Case) -> None:
    before = copy.deepcopy(case.before)
    plan = plan_update(case.before, case.filter, case.info, upsert=case.upsert, many=case.many)
    assert plan.kind == case.kind
    assert plan.update == (case.before if case.after is None else case.after)
    assert plan.why
    assert case.before == before  # the user's own update is never changed
    if case.after is None:
        assert plan.update is case.before


@pytest.mark.parametrize(
    "update",
    [
        {"$push": {"loc": 5}},
        {"$push": {"loc.coordinates": {"$each": [1, 2]}}},
        {"$addToSet": {"loc.coordinates": 1}},
        {"$pull": {"loc": 5}},
        {"$pullAll": {"loc.coordinates": [5]}},
        {"$pop": {"loc.coordinates": 1}},
        {"$bit": {"loc.coordinates.0": {"and": 1}}},
        {"$set": {"loc.$": 5}},
        {"$inc": {"loc.coordinates.$[]": 5}},
        {"$set": {"loc.coordinates.$[x]": 5}},
    ],
    ids=str,
)
@pytest.mark.parametrize("many", [False, True])
def test_what_cannot_be_kept_true_is_refused_with_advice(update: Any, many: bool) -> None:
    with pytest.raises(UsageError, match=r"set the whole location with \{'\$set': \{'loc'"):
        plan_update(update, {}, INFO, many=many)


def test_an_order_that_nobody_knows_is_refused() -> None:
    equal = {"loc.lng": 10, "loc.lat": 20}
    with pytest.raises(UsageError, match="as one value"):
        plan_update({"$set": {"n": 1}}, equal, INFO, upsert=True)
    assert plan_update({"$set": {"n": 1}}, equal, INFO).kind == "as it is"  # nothing is inserted


def test_only_what_may_move_must_be_alone() -> None:
    assert not plan_update({"$set": {"n": 1}}, {}, INFO).may_move
    assert not plan_update({"$setOnInsert": {"loc": POINT}}, {}, INFO, upsert=True).may_move
    assert plan_update({"$set": {"loc": POINT}}, {}, INFO).may_move
    assert plan_update([{"$set": {"loc": POINT}}], {}, INFO).may_move
    assert plan_update({"$inc": {"loc.0": 1}}, {}, INFO).may_move


# -- operators on the client ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "operator", "path", "argument", "after"),
    [
        ([1, 2], "$set", "loc.1", 5, [1, 5]),
        ([1, 2], "$set", "loc.4", 5, [1, 2, None, None, 5]),
        ({}, "$set", "loc.0.1", 5, {"0": {"1": 5}}),
        ([1, 2], "$unset", "loc.0", "", [None, 2]),
        ([1, 2], "$unset", "loc.a", "", [1, 2]),
        (None, "$unset", "loc.a", "", None),
        ({"a": 1}, "$inc", "loc.b", 2, {"a": 1, "b": 2}),
        ({"a": 1}, "$mul", "loc.b", 2, {"a": 1, "b": 0}),
        ([1, 2], "$inc", "loc.0", 0.5, [1.5, 2]),
        ([1, 2], "$mul", "loc.0", Int64(3), [3, 2]),
        ([0.1, 2], "$inc", "loc.0", Decimal128("0.2"), [Decimal128("0.300000000000000"), 2]),
        ([1 / 3, 2], "$mul", "loc.0", Decimal128("0.2"), [Decimal128("0.0666666666666666"), 2]),
        ([1, 2], "$min", "loc.0", -1, [-1, 2]),
        ([1, 2], "$max", "loc.0", -1, [1, 2]),
        ([1, 2], "$max", "loc.0", "text", ["text", 2]),
        ([1, 2], "$min", "loc.0", None, [None, 2]),
        ([1, 2], "$min", "loc.0", float("nan"), ["nan", 2]),
        ([1, 2], "$max", "loc.5", 3, [1, 2, None, None, None, 3]),
        ({"b": 1, "a": 2}, "$rename", "loc.z", "loc.b", {"a": 2, "z": 1}),
        ({"b": 1, "a": 2}, "$rename", "loc.b", "loc.none", {"b": 1, "a": 2}),
    ],
)
def test_operators_as_the_server_applies_them(
    before: Any, operator: str, path: str, argument: Any, after: Any
) -> None:
    document = {"loc": before}
    changed = apply(document, [Operation(operator, path, argument)])["loc"]
    assert (
        [str(v) if v != v else v for v in changed] == after if isinstance(changed, list) else changed == after
    )
    assert document == {"loc": before}


@pytest.mark.parametrize(
    ("before", "operator", "path", "argument"),
    [
        ([1, 2], "$set", "loc.x", 5),
        ([1, 2], "$set", "loc.99999999999", 5),
        ([None, 2], "$set", "loc.0.a", 5),
        (None, "$set", "loc.a", 5),
        ("text", "$inc", "loc", 5),
        ([True, 2], "$inc", "loc.0", 5),
        ([1, 2], "$inc", "loc.0", "text"),
        ([2**62, 2], "$inc", "loc.0", 2**62),
        ([1, 2], "$rename", "loc.0", "n"),
        ([1, 2], "$rename", "n", "loc.0"),
        ({"a": 1}, "$push", "loc.a", 1),
    ],
)
def test_what_the_server_will_refuse_is_left_to_it(
    before: Any, operator: str, path: str, argument: Any
) -> None:
    with pytest.raises(NotViable):
        apply({"loc": before, "n": 1}, [Operation(operator, path, argument)])


def test_new_fields_come_in_the_servers_order() -> None:
    sets = [Operation("$set", f"loc.{name}", name) for name in ("lng", "10", "lat", "9")]
    assert list(apply({}, sets)["loc"]) == ["9", "10", "lat", "lng"]


def test_comparing_documents_in_a_location_is_refused() -> None:
    with pytest.raises(UsageError, match="pipeline"):
        apply({"loc": POINT}, [Operation("$min", "loc", OTHER)])


def test_bit_of_a_legacy_coordinate_is_refused_and_of_a_note_is_not() -> None:
    with pytest.raises(UsageError, match=r"\$bit"):
        gh_after({"loc": {"lng": 1, "lat": 2}}, [Operation("$bit", "loc.lng", {"and": 1})], INFO)
    assert gh_after({"loc": POINT}, [Operation("$bit", "loc.flags", {"and": 1})], INFO) == GH
    assert gh_after({"loc": POINT}, [Operation("$push", "loc.notes", 1)], INFO) == GH
    assert gh_after({"loc": POINT}, [Operation("$pull", "loc.notes", 1)], INFO) == GH
