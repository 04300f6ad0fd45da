"""A spatial layer for sharded MongoDB.

The law: a rewrite may change which documents are examined, never which are returned.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialnosql.city import generate_city
    from spatialnosql.cluster import LocalCluster, connect
    from spatialnosql.collection import AsyncSpatialCollection, SpatialCollection
    from spatialnosql.errors import SpatialNoSQLError
    from spatialnosql.joins.count_by_polygon import count_by_polygon
    from spatialnosql.joins.grid import grid
    from spatialnosql.joins.intersection import count_in_all, in_all
    from spatialnosql.joins.join import join
    from spatialnosql.joins.nearest import nearest_polygon
    from spatialnosql.joins.nearest_point import nearest_point
    from spatialnosql.joins.polygons import Polygons
    from spatialnosql.joins.top_n import top_n
    from spatialnosql.rewrite import Plan, QoS
    from spatialnosql.subscriptions.store import Subscriptions
    from spatialnosql.subscriptions.text import TextRules

__version__ = "0.1.0"

__all__ = [
    "AsyncSpatialCollection",
    "LocalCluster",
    "Plan",
    "Polygons",
    "QoS",
    "SpatialCollection",
    "SpatialNoSQLError",
    "Subscriptions",
    "TextRules",
    "connect",
    "count_by_polygon",
    "count_in_all",
    "generate_city",
    "grid",
    "in_all",
    "join",
    "nearest_point",
    "nearest_polygon",
    "top_n",
]

_HOMES = {
    "AsyncSpatialCollection": "collection",
    "LocalCluster": "cluster",
    "Plan": "rewrite",
    "Polygons": "joins.polygons",
    "QoS": "rewrite",
    "SpatialCollection": "collection",
    "SpatialNoSQLError": "errors",
    "Subscriptions": "subscriptions.store",
    "TextRules": "subscriptions.text",
    "connect": "cluster",
    "count_by_polygon": "joins.count_by_polygon",
    "count_in_all": "joins.intersection",
    "generate_city": "city",
    "grid": "joins.grid",
    "in_all": "joins.intersection",
    "join": "joins.join",
    "nearest_point": "joins.nearest_point",
    "nearest_polygon": "joins.nearest",
    "top_n": "joins.top_n",
}


def __getattr__(name: str) -> Any:
    # Loaded when asked for: `spatialnosql --help` need not wait for numpy.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"spatialnosql.{_HOMES[name]}"), name)
