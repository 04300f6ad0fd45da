"""Where documents are: the coordinates in them, whatever form their points have; and what a region says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.geometry import geojson_point, legacy_point
from spatialnosql.region import Region, Status
from spatialnosql.settle import UNSURE, settle_closely
from spatialnosql.sphere import Floats


def places(documents: list[Any], location: str) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of documents, whatever form their points have."""
    path = location.split(".")
    try:
        if len(path) == 1:
            pairs = [document[location]["coordinates"] for document in documents]
        else:
            pairs = [value_at(document, path)["coordinates"] for document in documents]
        # Two lists of numbers: numpy takes twice as long for a list of pairs.
        lngs, lats = [lng for lng, _ in pairs], [lat for _, lat in pairs]
        return np.array(lngs, dtype=np.float64), np.array(lats, dtype=np.float64)
    except (TypeError, KeyError, ValueError, IndexError):
        pass  # not all of them are plain GeoJSON points
    points = [_point(value_at(document, path)) for document in documents]
    return np.array([lng for lng, _ in points]), np.array([lat for _, lat in points])


def settled_by_place(region: Region, documents: list[Any], location: str) -> Status:
    """The status of documents by their coordinates; UNSURE, all of them, if any comes without."""
    try:
        lng, lat = places(documents, location)
    except (KeyError, TypeError, SpatialNoSQLError):
        return np.full(len(documents), UNSURE, dtype=np.int8)
    return settle_closely(region, lng, lat)


def value_at(document: Any, path: list[str]) -> Any:
    """What a document has at a path of names."""
    for name in path:
        document = document[name]
    return document


def _point(value: Any) -> tuple[float, float]:
    if isinstance(value, Mapping) and "coordinates" in value:
        try:
            return geojson_point(value)
        except SpatialNoSQLError:
            pass  # a legacy pair may call its numbers as it likes
    return legacy_point(value)
