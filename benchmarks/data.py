"""The data of a benchmark: points and polygons from files, or a generated city where none are given."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.options import Options
from spatialnosql.city import generate_city
from spatialnosql.errors import UsageError
from spatialnosql.geohash import points_to_cells
from spatialnosql.quality import coordinate_faults, count_faults

Floats = NDArray[np.float64]
_LNG = re.compile(r"(?i)^(?P<before>.*?)(longitude|lon|lng|long)(?P<after>.*)$")
_LAT_NAMES = ("latitude", "lat")


@dataclass(frozen=True)
class Points:
    """Valid points, and how many rows were dropped for which fault."""

    lng: Floats
    lat: Floats
    source: str
    dropped: dict[str, int]

    def __len__(self) -> int:
        return int(self.lng.size)

    def to_documents(
        self,
        batch_size: int = 10_000,
        *,
        extra: Mapping[str, NDArray[Any]] | None = None,
        along_curve: bool = False,
    ) -> Iterator[list[dict[str, Any]]]:
        """Batches of ``{"_id": number, "loc": GeoJSON Point}`` and the extra columns; numbers are those of the rows."""
        order = np.argsort(points_to_cells(self.lng, self.lat)) if along_curve else np.arange(len(self))
        for start in range(0, len(self), batch_size):
            part = order[start : start + batch_size]
            rows = zip(part.tolist(), self.lng[part].tolist(), self.lat[part].tolist(), strict=True)
            documents: list[dict[str, Any]] = [
                {"_id": number, "loc": {"type": "Point", "coordinates": [lng, lat]}}
                for number, lng, lat in rows
            ]
            for name, column in (extra or {}).items():
                for document, value in zip(documents, column[part].tolist(), strict=True):
                    document[name] = value
            yield documents


@dataclass(frozen=True)
class Area:
    """A named polygon."""

    name: str
    geometry: dict[str, Any]

    def rotated(self, steps: int) -> Area:
        """The same area in other bytes: every ring begins so many vertices later."""
        single = self.geometry["type"] == "Polygon"
        parts = [self.geometry["coordinates"]] if single else self.geometry["coordinates"]
        turned = [[_rotated(ring, steps) for ring in part] for part in parts]
        return Area(self.name, {**self.geometry, "coordinates": turned[0] if single else turned})


def _rotated(ring: list[Any], steps: int) -> list[Any]:
    start = steps % (len(ring) - 1)
    return [*ring[start:-1], *ring[:start], ring[start]]


def load_points(options: Options, default_rows: int = 200_000) -> Points:
    """The points of ``--data``, else of a generated city; the first ``--limit`` rows, bad ones dropped."""
    bounds = None
    if options.data is None:
        city = generate_city(options.limit or default_rows, options.seed)
        lng, lat, bounds, source = city.lng, city.lat, city.bounds, "generated city"
    else:
        lng, lat = read_columns(options.data, options.limit)
        source = options.data.name
    faults = coordinate_faults(lng, lat, bounds)
    points = Points(lng[faults == 0], lat[faults == 0], source, count_faults(faults))
    dropped = ", ".join(f"{count:,} {name}" for name, count in points.dropped.items()) or "none"
    print(f"{len(points):,} points of {source}; rows dropped: {dropped}", file=sys.stderr, flush=True)
    if not len(points):
        raise UsageError(f"no valid point in {source}")
    return points


def load_polygons(options: Options, default_count: int = 60) -> list[Area]:
    """The polygons of ``--polygons``, else the neighbourhoods of the generated city."""
    if options.polygons is not None:
        return read_polygons(options.polygons)
    if options.data is not None:
        raise UsageError("--data without --polygons: the generated areas would lie elsewhere; give both")
    return _areas(generate_city(0).neighbourhoods(default_count)["features"])


def read_columns(path: Path, limit: int | None = None) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of the first rows of a Parquet or CSV file; NaN where there is none."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    lng_parts, lat_parts, rows = [], [], 0
    try:
        if path.suffix == ".parquet":
            parquet = pa.parquet.ParquetFile(path)
            names = find_columns(parquet.schema_arrow.names)
            batches = parquet.iter_batches(columns=list(names))
        elif path.name.endswith((".csv", ".csv.gz")):
            batches = pa.csv.open_csv(path)
            names = find_columns(batches.schema.names)
        else:
            raise UsageError(f"cannot read {path.name}: --data takes .parquet, .csv or .csv.gz")
        for batch in batches:
            lng, lat = (batch.column(batch.schema.get_field_index(name)).cast("float64") for name in names)
            lng_parts.append(lng.to_numpy(zero_copy_only=False))
            lat_parts.append(lat.to_numpy(zero_copy_only=False))
            rows += len(batch)
            if limit is not None and rows >= limit:
                break
    except pa.ArrowException as error:
        raise UsageError(f"cannot read {path.name}: {error}") from error
    lng_all, lat_all = np.concatenate([*lng_parts, np.empty(0)]), np.concatenate([*lat_parts, np.empty(0)])
    return lng_all[:limit], lat_all[:limit]


def find_columns(names: list[str]) -> tuple[str, str]:
    """The first two columns named alike but for longitude and latitude: lon/lat, pickup_lng/pickup_lat."""
    lower = {name.lower(): name for name in names}
    for name in names:
        match = _LNG.match(name)
        if match is None:
            continue
        for lat in _LAT_NAMES:
            other = f"{match['before']}{lat}{match['after']}".lower()
            if other in lower:
                return name, lower[other]
    raise UsageError(f"no pair of columns like lon/lat or longitude/latitude among {', '.join(names)}")


def read_polygons(path: Path) -> list[Area]:
    """The Polygon and MultiPolygon features of a GeoJSON file, gzipped or not, or of one feature a line."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
            text = stream.read()
        try:
            read = json.loads(text)
            features = read["features"] if read.get("type") == "FeatureCollection" else [read]
        except json.JSONDecodeError:
            features = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, KeyError, AttributeError, gzip.BadGzipFile) as error:
        raise UsageError(f"{path.name} is no GeoJSON: {error}") from error
    areas = _areas(features)
    if not areas:
        raise UsageError(f"no Polygon or MultiPolygon in {path.name}")
    return areas


def _areas(features: list[dict[str, Any]]) -> list[Area]:
    areas = []
    for number, feature in enumerate(features):
        geometry = feature.get("geometry", feature) or {}
        if geometry.get("type") in ("Polygon", "MultiPolygon"):
            properties = feature.get("properties") or {}
            texts = (value for key, value in properties.items() if "name" in key.lower())
            areas.append(Area(str(next(texts, number)), geometry))
    return areas
