"""``spatialnosql cover``: the geohash ranges that cover the shapes of a GeoJSON file."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spatialnosql.cli import EXIT_OK, add_common_arguments
from spatialnosql.cover import DEFAULT_MAX_CELLS, Cover, Ranges, cover
from spatialnosql.errors import GeometryError, UnsupportedShape, UsageError
from spatialnosql.geohash import BITS, cell_to_string_range, cells_to_bounds, range_to_strings
from spatialnosql.geometry import geometry_to_region


@dataclass(frozen=True)
class Named:
    """A geometry and what to call it."""

    name: str
    geometry: Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``spatialnosql cover``."""
    parser.add_argument(
        "file", metavar="FILE", help="GeoJSON (.gz too, or one feature a line); - reads standard input"
    )
    parser.add_argument(
        "--max-cells",
        type=_positive,
        default=DEFAULT_MAX_CELLS,
        metavar="N",
        help="cells a shape is divided into, at most (default: %(default)s)",
    )
    parser.add_argument("--max-ranges", type=_positive, metavar="N", help="ranges of a shape, at most")
    parser.add_argument(
        "--geojson", action="store_true", help="print the cells as GeoJSON, to look at on a map"
    )
    add_common_arguments(parser, uri=False)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above zero")
    return value


def run(args: argparse.Namespace) -> int:
    """Cover every shape of the file and print the ranges of ``gh``."""
    if args.json and args.geojson:
        raise UsageError("--json and --geojson are two answers; ask for one")
    shapes = read_shapes(args.file)
    covers = [_cover_of(shape, args.max_cells, args.max_ranges) for shape in shapes]
    if args.geojson:
        features = [
            feature
            for shape, made in zip(shapes, covers, strict=True)
            for feature in to_features(shape.name, made)
        ]
        print(json.dumps({"type": "FeatureCollection", "features": features}))
    elif args.json:
        print(
            json.dumps({"shapes": [_summary(s.name, made) for s, made in zip(shapes, covers, strict=True)]})
        )
    else:
        for shape, made in zip(shapes, covers, strict=True):
            print("\n".join(_lines(shape.name, made)))
    return EXIT_OK


def _cover_of(shape: Named, max_cells: int, max_ranges: int | None) -> Cover:
    try:
        region = geometry_to_region(shape.geometry)
    except (GeometryError, UnsupportedShape) as error:
        raise type(error)(f"{shape.name}: {error}") from error
    return cover(region, max_cells=max_cells, max_ranges=max_ranges)


def read_shapes(file: str) -> list[Named]:
    """The shapes of a file: a geometry, a Feature, a FeatureCollection, or several of them, one a line."""
    source = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        try:
            documents = [json.loads(text)]
        except json.JSONDecodeError:
            documents = [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {file}") from error
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise UsageError(f"{source} is no GeoJSON: {error}") from error
    shapes = list(_shapes(documents, source))
    if not shapes:
        raise UsageError(f"there is no shape in {source}")
    return shapes


def _shapes(documents: list[Any], source: str) -> Iterator[Named]:
    features: list[Any] = []
    for document in documents:
        if not isinstance(document, dict):
            raise UsageError(f"{source} is no GeoJSON: it holds a {type(document).__name__}, not an object")
        features += (
            document.get("features") or [] if document.get("type") == "FeatureCollection" else [document]
        )
    for number, feature in enumerate(features):
        if not isinstance(feature, dict):
            raise UsageError(f"feature {number} of {source} is a {type(feature).__name__}, not an object")
        name = _name(feature, number)
        if feature.get("type") != "Feature":
            yield Named(name, feature)
        elif feature.get("geometry") is not None:  # a Feature may have none: it is nowhere
            yield Named(name, feature["geometry"])


def _name(feature: Mapping[str, Any], number: int) -> str:
    """The number of a feature, and the property that looks most like a name."""
    properties = feature.get("properties")
    found = properties if isinstance(properties, dict) else {}
    names = sorted((len(key), str(value)) for key, value in found.items() if "name" in key.lower() and value)
    return f"feature {number} ({names[0][1]})" if names else f"feature {number}"


# -- output -----------------------------------------------------------------------------------------------


def _lines(name: str, made: Cover) -> Iterator[str]:
    yield f"{name}: {len(made.interior)} interior and {len(made.boundary)} boundary ranges, {made.cells} cells"
    kinds = [("interior", made.interior), ("boundary", made.boundary)]
    ranges = sorted((int(lo), int(hi), kind) for kind, r in kinds for lo, hi in zip(r.lo, r.hi, strict=True))
    for lo, hi, kind in ranges:
        first, last = range_to_strings(lo, hi)
        yield f"  {kind}  {first or '(first)':12}  {last if hi < 1 << BITS else '(last)'}"


def _summary(name: str, made: Cover) -> dict[str, Any]:
    return {
        "name": name,
        "interior": made.interior.to_strings(),
        "boundary": made.boundary.to_strings(),
        "cells": made.cells,
    }


def to_features(name: str, made: Cover) -> Iterator[dict[str, Any]]:
    """One GeoJSON box for each cell of the ranges."""
    for kind, ranges in (("interior", made.interior), ("boundary", made.boundary)):
        for cell, bits in ranges_to_cells(ranges):
            west, south, east, north = (float(side) for side in cells_to_bounds(cell, bits))
            first, last = cell_to_string_range(cell, bits)
            ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
            yield {
                "type": "Feature",
                "properties": {"shape": name, "kind": kind, "bits": bits, "from": first, "to": last},
                "geometry": {"type": "Polygon", "coordinates": [ring]},
            }


def ranges_to_cells(ranges: Ranges) -> Iterator[tuple[int, int]]:
    """The fewest cells (cell, bits) that make up ranges."""
    for lo, hi in zip(ranges.lo.tolist(), ranges.hi.tolist(), strict=True):
        at = lo
        while at < hi:
            # The largest power of two that `at` is a multiple of and that does not reach beyond the end.
            size = min((at & -at) or 1 << BITS, 1 << ((hi - at).bit_length() - 1))
            bits = BITS - (size.bit_length() - 1)
            yield at >> (BITS - bits), bits
            at += size
