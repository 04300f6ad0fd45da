"""Where documents are: the coordinates in them, whatever form their points have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialnosql.errors import SpatialNoSQLError
from spatialnosql.geometry import geojson_point, legacy_point
from spatialnosql.sphere import Floats


def places(documents: list[Any], location: str) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of documents, whatever form their points have."""
    path = location.split(".")
    try:
        if len(path) == 1:
            pairs = np.array([document[location]["coordinates"] for document in documents], dtype=np.float64)
        else:
            pairs = np.array(
                [value_at(document, path)["coordinates"] for document in documents], dtype=np.float64
            )
        if pairs.shape == (len(documents), 2):
            return pairs[:, 0], pairs[:, 1]
    except (TypeError, KeyError, ValueError, IndexError):
        pass  # not all of them are plain GeoJSON points
    points = [_point(value_at(document, path)) for document in documents]
    return np.array([lng for lng, _ in points]), np.array([lat for _, lat in points])


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
