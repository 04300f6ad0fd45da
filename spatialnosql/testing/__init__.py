"""Helpers for tests of spatial queries: yours as well as ours.

Seeded shapes of every kind MongoDB takes (`random_shapes`), points where mistakes hide (`points_for` and
its parts), a brute-force oracle to decide who is inside (`BruteForce`, `ServerOracle`), and
`assert_same_documents`, which says how two answers differ. Nothing here needs a test runner.
"""

from spatialnosql.testing.oracle import IN, OUT, UNSURE, BruteForce, Oracle, ServerOracle, disagreements
from spatialnosql.testing.points import (
    points_at_cell_borders,
    points_clustered,
    points_for,
    points_near,
    points_near_edges,
    points_on_sphere,
    points_to_documents,
)
from spatialnosql.testing.same import assert_same_documents
from spatialnosql.testing.shapes import KINDS, Shape, random_shape, random_shapes

__all__ = [
    "IN",
    "KINDS",
    "OUT",
    "UNSURE",
    "BruteForce",
    "Oracle",
    "ServerOracle",
    "Shape",
    "assert_same_documents",
    "disagreements",
    "points_at_cell_borders",
    "points_clustered",
    "points_for",
    "points_near",
    "points_near_edges",
    "points_on_sphere",
    "points_to_documents",
    "random_shape",
    "random_shapes",
]
