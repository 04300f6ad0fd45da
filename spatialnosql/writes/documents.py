"""The ``gh`` of a document, exactly as the server's own expression computes it.

The common point (a dict or list of floats and integers) is hashed straight away. Everything else a client can be given,
raw BSON, ordered or custom mappings, decimals, types of the user's own codec, goes through BSON once, so that
we see what the server will see.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import bson
from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, DatetimeConversion
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from spatialnosql.expression import Form
from spatialnosql.geohash import point_to_geohash
from spatialnosql.geometry import GEOJSON_TYPES, PLAIN_CRS
from spatialnosql.info import CollectionInfo
from spatialnosql.stk.settings import StkSettings
from spatialnosql.writes.unseal import fresh_document

# What is read to be sent back or compared must survive the way through Python unchanged, whatever its type.
PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)

_PLAIN_TYPES = {dict, list, float, int, str, bool, type(None)}


def gh_of(
    document: Mapping[str, Any],
    info: CollectionInfo,
    codec_options: CodecOptions[Any] = DEFAULT_CODEC_OPTIONS,
) -> str | None:
    """The ``gh`` that a document must have; None if it must have none.

    `codec_options` are those of the collection the document is meant for: they say how the user's own types are stored.
    """
    first, *rest = info.location.split(".")
    if first not in document:
        return None
    value = as_stored(document[first], codec_options)
    for name in rest:
        # Below an array a path means many values: never a single point.
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return gh_of_location(value, info.form)


def gh_of_location(value: Any, form: Form = "any") -> str | None:
    """The geohash of a location as stored (dicts, lists and numbers), or None where it is no single point."""
    pair = _pair(value, form)
    if len(pair) < 2:
        return None
    lng, lat = _number(pair[0]), _number(pair[1])
    if lng is None or lat is None or not (-180.0 <= lng <= 180.0 and -90.0 <= lat <= 90.0):
        return None
    return point_to_geohash(lng, lat)


def _pair(value: Any, form: Form) -> list[Any]:
    """The coordinates, by the same cases in the same order as in the expression."""
    if isinstance(value, list):
        several = any(isinstance(member, (list, dict)) for member in value)
        return value if form != "geojson" and not several else []
    if not isinstance(value, dict):
        return []
    if form != "legacy" and value.get("type") == "Point":
        coordinates = value.get("coordinates")
        return coordinates if isinstance(coordinates, list) and _has_plain_crs(value) else []
    return list(value.values()) if form != "geojson" and value.get("type") not in GEOJSON_TYPES else []


def _has_plain_crs(point: dict[str, Any]) -> bool:
    if "crs" not in point:
        return True
    crs = point["crs"]
    properties = crs.get("properties") if isinstance(crs, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return isinstance(crs, dict) and crs.get("type") == "name" and name in PLAIN_CRS


def _number(value: Any) -> float | None:
    """A coordinate as the server's double; booleans are numbers to Python only."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # an integer no BSON holds; pymongo will say so
            return None
    return float(value.to_decimal()) if isinstance(value, Decimal128) else None


def as_stored(value: Any, codec_options: CodecOptions[Any] = DEFAULT_CODEC_OPTIONS) -> Any:
    """A value as it will be in the database: dicts, lists and BSON's own types.

    What cannot be encoded comes back as it is: the write that follows raises pymongo's own error.
    """
    if _is_plain(value):
        return value
    try:
        encoded = bson.encode({"v": value}, codec_options=codec_options)
        return bson.decode(encoded, codec_options=PLAIN)["v"]
    except (BSONError, TypeError, ValueError, OverflowError):
        return value


def _is_plain(value: Any) -> bool:
    """Whether Python's own types are what BSON stores, so that nothing needs converting."""
    if type(value) not in _PLAIN_TYPES:
        return False
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return not isinstance(value, list) or all(_is_plain(item) for item in value)


def with_gh(
    document: Any, info: CollectionInfo, codec_options: CodecOptions[Any] = DEFAULT_CODEC_OPTIONS
) -> Any:
    """A shallow copy of a document to insert or to replace with, its ``gh`` right, or gone where there is no point.

    What is no document comes back unchanged, for pymongo to refuse.
    """
    if not isinstance(document, Mapping):
        return document
    gh = gh_of(document, info, codec_options)
    if isinstance(document, RawBSONDocument):
        if info.stk is not None:
            document = _raw_fresh(document, info.stk)
        return _raw_with_gh(document, info.gh, gh)
    copy = dict(document)
    if info.stk is not None:
        fresh_document(copy, info.stk)
    if gh is None:
        copy.pop(info.gh, None)
    else:
        copy[info.gh] = gh
    return copy


def _raw_with_gh(document: RawBSONDocument, field: str, gh: str | None) -> RawBSONDocument:
    """Stay raw: pymongo sends raw documents byte by byte, so they must not pass through Python's types."""
    if document.get(field) == gh and (gh is not None or field not in document):
        return document
    if field in document:
        # Its elements, each raw in turn, without the wrong one.
        kept = {name: value for name, value in document.items() if name != field}
        document = RawBSONDocument(bson.encode(kept))
    body = bytes(document.raw)[4:-1] + (bson.encode({field: gh})[4:-1] if gh is not None else b"")
    return RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")


def _raw_fresh(document: RawBSONDocument, settings: StkSettings) -> RawBSONDocument:
    """A raw document without a seal, its words read from its text where it brings none."""
    fresh = fresh_document(dict(document), settings)
    return document if fresh.keys() == document.keys() else RawBSONDocument(bson.encode(fresh))


def to_insert(
    document: Any, info: CollectionInfo, codec_options: CodecOptions[Any] = DEFAULT_CODEC_OPTIONS
) -> Any:
    """A copy to insert with its right ``gh``; the caller's own document gets an ``_id`` if it has none.

    pymongo promises that: who inserts a document finds its ``_id`` in it. Raw documents cannot get one, as in pymongo.
    """
    if isinstance(document, RawBSONDocument):
        return with_gh(document, info, codec_options)
    if not isinstance(document, MutableMapping):
        return document  # pymongo refuses to insert it, and so it shall
    if "_id" not in document:
        document["_id"] = ObjectId()
    return with_gh(document, info, codec_options)
