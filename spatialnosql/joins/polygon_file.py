"""The features of a GeoJSON file: a FeatureCollection, or one feature a line; gzip too.

Lines as ``mongoexport`` writes them (``{_id, geometry, name, ...}`` without a type) are features as well: what is not
the geometry are properties.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bson.objectid import ObjectId

from spatialnosql.errors import UsageError
from spatialnosql.geometry import GEOJSON_TYPES, PLAIN_CRS

_GZIP = b"\x1f\x8b"
_RECORD_SEPARATOR = "\x1e"  # before each text of a GeoJSON text sequence
# Longitude and latitude under other names. By the letter of EPSG:4326 latitude comes first, but in no GeoJSON file.
_DEGREES = (*PLAIN_CRS, "urn:ogc:def:crs:EPSG::4326", "OGC:CRS84", "CRS84")


def read_features(file: str) -> list[Any]:
    """The features of a file, or of standard input if it is ``-``, as they stand there, good or bad."""
    source = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = (gzip.decompress(data) if data[:2] == _GZIP else data).decode("utf-8-sig")
        documents = _documents(text)
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {file}") from error
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error, RecursionError) as error:
        raise UsageError(f"{source} is no GeoJSON: {error}") from error
    features = [feature for document in documents for feature in _features(document, source)]
    if not features:
        raise UsageError(f"there is no feature in {source}")
    return features


def _documents(text: str) -> list[Any]:
    """The JSON text, or texts, one a line."""
    lines = [line.strip().strip(_RECORD_SEPARATOR) for line in text.split("\n")]
    filled = [(number, line) for number, line in enumerate(lines, 1) if line]
    if len(filled) < 2 or not _is_whole(filled[0][1]):
        return [json.loads(text.strip().strip(_RECORD_SEPARATOR))]
    documents = []
    for number, line in filled:
        try:
            documents.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return documents


def _is_whole(line: str) -> bool:
    """Whether a line is JSON by itself."""
    if not line.endswith(("}", "]")):
        return False  # most files that are one JSON text over many lines
    try:
        return isinstance(json.loads(line), dict | list)
    except ValueError:
        return False


def _features(document: Any, source: str) -> Iterator[Any]:
    if isinstance(document, list):
        yield from map(_feature, document)
        return
    if not isinstance(document, Mapping):
        raise UsageError(f"{source} is no GeoJSON: it holds {document!r:.60}, not an object")
    kind = document.get("type")
    if kind == "FeatureCollection":
        _check_crs(document, source)
        features = document.get("features")
        if not isinstance(features, list):
            raise UsageError(f"{source} is no GeoJSON: its features are {features!r:.60}, not a list")
        yield from map(_feature, features)
    elif kind in ("Feature", *GEOJSON_TYPES) or "geometry" in document:
        _check_crs(document if kind == "Feature" else {}, source)
        yield _feature(document)
    else:
        raise UsageError(f"{source} is no GeoJSON: it holds an object of type {kind!r:.60}")


def _check_crs(document: Mapping[str, Any], source: str) -> None:
    """Metres or feet are no degrees: said once, rather than of every feature that it is off the globe."""
    crs = document.get("crs")
    properties = crs.get("properties") if isinstance(crs, Mapping) else None
    name = properties.get("name") if isinstance(properties, Mapping) else None
    if name is not None and name not in _DEGREES:
        raise UsageError(
            f"the coordinates of {source} are in {name}; MongoDB takes longitude and latitude (EPSG:4326), "
            "so convert them first, as with ogr2ogr -t_srs EPSG:4326"
        )


def _feature(value: Any) -> Any:
    """A feature as it stands there; a plain document with a geometry made one, an exported ObjectId made one again."""
    if not isinstance(value, Mapping):
        return value
    feature = dict(value)
    own = feature.get("_id")
    if isinstance(own, Mapping) and list(own) == ["$oid"] and ObjectId.is_valid(own["$oid"]):
        feature["_id"] = ObjectId(own["$oid"])
    if "type" not in feature and "geometry" in feature and "properties" not in feature:
        feature["properties"] = {name: feature[name] for name in feature if name not in ("_id", "geometry")}
    return feature
