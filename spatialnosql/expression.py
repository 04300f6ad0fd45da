"""Geohash as a MongoDB aggregation expression: the server computes ``gh`` itself, to the last character.

Each coordinate becomes a 30-bit integer, exactly as in `spatialnosql.geohash`: a rounded quotient, corrected by
comparing with the borders of its cell, which are exact doubles. Then five bits of each at a time pick two characters
from a table of 1,024, and six such pairs are the geohash.

With it `update_many` gives an existing collection its ``gh``, a query finds documents whose ``gh`` is stale, and a
validator rejects writes whose ``gh`` is wrong, whatever client they come from.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from spatialnosql.errors import UsageError
from spatialnosql.geohash import cells_to_strings
from spatialnosql.geometry import GEOJSON_TYPES, PLAIN_CRS

Expression: TypeAlias = dict[str, Any]
Form: TypeAlias = Literal["geojson", "legacy", "any"]

_LAST = 2**30 - 1


def geohash_expression(location_field: str, form: Form = "any") -> Expression:
    """The 12-character geohash of the point in a field, or null where there is no valid point.

    `form` says how points are written: "geojson" (``{type: "Point", coordinates: [lng, lat]}``), "legacy"
    (``[lng, lat]`` or ``{lng: ..., lat: ...}`` under any names), or "any" of them, document by document. Arrays of
    points, other geometries, strings, NaN and places off the globe all give null.
    """
    if not location_field or location_field.startswith("$") or "\0" in location_field:
        raise UsageError(f"{location_field!r} is no field name")
    if form not in ("geojson", "legacy", "any"):
        raise UsageError(f"form is {form!r}; it must be 'geojson', 'legacy' or 'any'")
    pair = _pair(f"${location_field}", form)
    point = {"lng": _coordinate("$$pair", 0), "lat": _coordinate("$$pair", 1)}
    index = {
        "x": _axis_index("$$lng", -180.0, 360.0 / 2**30),
        "y": _axis_index("$$lat", -90.0, 180.0 / 2**30),
    }
    return {
        "$let": {
            "vars": {"pair": pair},
            "in": {
                "$let": {
                    "vars": point,
                    "in": {
                        "$cond": [
                            {"$and": [_within("$$lng", 180), _within("$$lat", 90)]},
                            {"$let": {"vars": index, "in": _characters()}},
                            None,
                        ]
                    },
                }
            },
        }
    }


def coordinate_expressions(location_field: str, form: Form = "any") -> tuple[Expression, Expression]:
    """Longitude and latitude of the point in a field, as doubles, where `geohash_expression` has a geohash."""
    pair = _pair(f"${location_field}", form)
    lng, lat = (
        {"$let": {"vars": {"pair": pair}, "in": _coordinate("$$pair", position)}} for position in (0, 1)
    )
    return lng, lat


def _pair(path: str, form: Form) -> Expression:
    """The two coordinates as an array, or null."""
    crs = f"{path}.crs"
    # A point of another CRS is nowhere to the server.
    known = {"$in": [f"{crs}.properties.name", list(PLAIN_CRS)]}
    plain = {
        "$or": [{"$eq": [{"$type": crs}, "missing"]}, {"$and": [{"$eq": [f"{crs}.type", "name"]}, known]}]
    }
    geojson = {
        "case": {"$eq": [f"{path}.type", "Point"]},
        "then": {"$cond": [plain, f"{path}.coordinates", None]},
    }
    # The server looks into an array for further points, whatever its first two members are.
    kinds_inside = {"$map": {"input": path, "in": {"$type": "$$this"}}}
    single = {"$eq": [{"$setIntersection": [kinds_inside, ["array", "object"]]}, []]}
    array = {"case": {"$isArray": [path]}, "then": {"$cond": [single, path, None]}}
    # What says that it is GeoJSON is read as such, whatever else it has.
    members = {"$map": {"input": {"$objectToArray": path}, "in": "$$this.v"}}
    document = {
        "case": {"$eq": [{"$type": path}, "object"]},
        "then": {"$cond": [{"$in": [f"{path}.type", list(GEOJSON_TYPES)]}, None, members]},
    }
    # Below an array of documents a path means many values, and a pair of them would look like a point.
    parents = path.split(".")[:-1]
    several: list[Expression] = [
        {"case": {"$isArray": [".".join(parents[: n + 1])]}, "then": None} for n in range(len(parents))
    ]
    kinds: dict[Form, list[Expression]] = {
        "geojson": [geojson],
        "legacy": [array, document],
        "any": [array, geojson, document],
    }
    branches = kinds[form]
    found = {"$switch": {"branches": [*several, *branches], "default": None}}
    # `coordinates` may be anything, and $arrayElemAt takes arrays only.
    return {"$let": {"vars": {"it": found}, "in": {"$cond": [{"$isArray": ["$$it"]}, "$$it", []]}}}


def _coordinate(pair: str, position: int) -> Expression:
    """One coordinate as a double; null, which sorts below every number, if it is none."""
    value = {"$arrayElemAt": [pair, position]}
    tiny = {"$cond": [{"$lt": [{"$abs": "$$it"}, 1]}, 0.0, None]}
    conversion = {"input": "$$it", "to": "double", "onError": tiny}
    return {
        "$let": {
            "vars": {"it": value},
            # Integers and decimals too: the server's geometry reads them as doubles, and so must we. Decimals beyond a
            # double's range are an error to $convert: the tiny ones are 0, the huge ones no place.
            "in": {"$cond": [{"$isNumber": "$$it"}, {"$convert": conversion}, None]},
        }
    }


def _within(value: str, limit: int) -> Expression:
    # Null and NaN sort below every number, so the lower bound rejects them.
    return {"$and": [{"$gte": [value, -limit]}, {"$lte": [value, limit]}]}


def _axis_index(value: str, origin: float, step: float) -> Expression:
    """The index of the interval ``[origin + k*step, origin + (k+1)*step)`` that holds the value; the last is closed."""
    guess = {"$floor": {"$multiply": [{"$subtract": [value, origin]}, 1.0 / step]}}
    border = {"$add": [{"$multiply": ["$$guess", step]}, origin]}
    corrected = {
        "$add": [
            "$$guess",
            {"$cond": [{"$lt": [value, "$$border"]}, -1, 0]},
            {"$cond": [{"$gte": [value, {"$add": ["$$border", step]}]}, 1, 0]},
        ]
    }
    return {
        "$let": {
            "vars": {"guess": guess},
            "in": {
                "$let": {
                    "vars": {"border": border},
                    "in": {"$toInt": {"$min": [corrected, _LAST]}},
                }
            },
        }
    }


def _characters() -> Expression:
    """Six times two characters by the indices ``$$x`` and ``$$y``."""
    table = _pair_table()
    parts: list[Expression] = []
    for group in range(6):
        shift = 2 ** (25 - 5 * group)
        x, y = ({"$mod": [{"$trunc": {"$divide": [axis, shift]}}, 32]} for axis in ("$$x", "$$y"))
        place = {"$add": [{"$multiply": [x, 32]}, y]}
        parts.append({"$arrayElemAt": ["$$table", {"$toInt": place}]})
    return {"$let": {"vars": {"table": {"$literal": table}}, "in": {"$concat": parts}}}


def _pair_table() -> list[str]:
    """The two characters of five longitude bits and five latitude bits, longitude first."""
    x, y = np.divmod(np.arange(1024, dtype=np.uint64), np.uint64(32))
    cells = np.zeros(1024, dtype=np.uint64)
    for bit in range(5):
        one = np.uint64(1)
        cells |= ((x >> np.uint64(bit)) & one) << np.uint64(2 * bit + 1)
        cells |= ((y >> np.uint64(bit)) & one) << np.uint64(2 * bit)
    return [str(text) for text in cells_to_strings(cells << np.uint64(50), length=2)]
