"""The schema of a staging collection, asked of the server: every field of every document, not those of a sample."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SIMPLE: dict[str, DataType] = {
    "double": DoubleType(),
    "int": IntegerType(),
    "long": LongType(),
    "decimal": DecimalType(38, 18),
    "string": StringType(),
    "bool": BooleanType(),
    "date": TimestampType(),
    "binData": BinaryType(),
}
"""What a BSON type is in Spark; the connector makes a string of any other (an ObjectId, a regular expression)."""

_NUMBERS = ("int", "long", "double")  # each holds those before it, longs above 2**53 apart
Shape = dict[str, Any]


def staging_schema(collection: Collection[dict[str, Any]]) -> StructType:
    """The schema of all documents; a field of several types is a string, of several kinds of number the widest."""
    return _struct(collection, [])


def _struct(collection: Collection[dict[str, Any]], path: list[str]) -> StructType:
    fields = []
    for name, kinds in sorted(_fields(collection, path).items()):
        fields.append(StructField(name, _type(collection, [*path, name], kinds)))
    # The order of documents themselves is lost in the grouping; _id first, as people know it.
    return StructType(sorted(fields, key=lambda field: field.name != "_id"))


def _fields(collection: Collection[dict[str, Any]], path: list[str]) -> dict[str, set[str]]:
    """The names of the fields of the documents at a path, with the types that each has."""
    document: Any = "$$ROOT"
    for name in path:
        document = {"$getField": {"field": {"$literal": name}, "input": document}}
    is_object = {"$eq": [{"$type": document}, "object"]}
    entries = {"$cond": [is_object, {"$objectToArray": document}, []]}
    pipeline: list[dict[str, Any]] = [
        {"$project": {"_id": 0, "entry": entries}},
        {"$unwind": "$entry"},
        {"$group": {"_id": {"name": "$entry.k", "type": {"$type": "$entry.v"}}}},
    ]
    found: dict[str, set[str]] = {}
    for group in collection.aggregate(pipeline, allowDiskUse=True):
        found.setdefault(group["_id"]["name"], set()).add(group["_id"]["type"])
    return found


def _type(collection: Collection[dict[str, Any]], path: list[str], kinds: set[str]) -> DataType:
    kinds = kinds - {"null", "undefined"}
    if not kinds:
        return NullType()
    if kinds <= set(_NUMBERS):
        return SIMPLE[max(kinds, key=_NUMBERS.index)]
    if kinds == {"object"}:
        return _struct(collection, path)
    if kinds == {"array"}:
        return ArrayType(_element(collection, path))
    return SIMPLE.get(kinds.pop(), StringType()) if len(kinds) == 1 else StringType()


def _element(collection: Collection[dict[str, Any]], path: list[str]) -> DataType:
    """The type of the elements of an array; of arrays and documents within arrays, their JSON."""
    document: Any = "$$ROOT"
    for name in path:
        document = {"$getField": {"field": {"$literal": name}, "input": document}}
    elements = {"$cond": [{"$isArray": [document]}, document, []]}
    pipeline: list[dict[str, Any]] = [
        {"$project": {"_id": 0, "element": elements}},
        {"$unwind": "$element"},
        {"$group": {"_id": {"$type": "$element"}}},
    ]
    kinds = {group["_id"] for group in collection.aggregate(pipeline, allowDiskUse=True)} - {"null"}
    if kinds and kinds <= set(_NUMBERS):
        return SIMPLE[max(kinds, key=_NUMBERS.index)]
    return SIMPLE.get(kinds.pop(), StringType()) if len(kinds) == 1 else StringType()
