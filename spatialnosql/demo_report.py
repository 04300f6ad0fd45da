"""The demo's report: the generated city on its shards, three queries, its neighbourhoods and its subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pymongo.database import Database

from spatialnosql.city import City
from spatialnosql.collection import SpatialCollection
from spatialnosql.joins.polygons import Polygons
from spatialnosql.report.gather import gather
from spatialnosql.report.gather_polygons import count_polygons
from spatialnosql.report.gather_queries import Asked, explain_query
from spatialnosql.report.gather_subscriptions import Planned, gather_subscriptions
from spatialnosql.report.model import Report
from spatialnosql.report.write import check_out, report_page, write_page

CIRCLE = {"$centerSphere": [[11.25, 56.25], 0.0002]}
PLACE = {"type": "Point", "coordinates": [11.27, 56.26]}


def write_report(database: Database[dict[str, Any]], city: City, path: Path, *, with_alerts: bool) -> None:
    """Gather it from the demo's database and write the page."""
    check_out(path)
    points, neighbourhoods = database.points, city.neighbourhoods()
    asked = (
        Asked(
            {"loc": {"$geoWithin": {"$geometry": _largest(neighbourhoods)}}},
            "Points of a neighbourhood",
            True,
        ),
        Asked({"loc": {"$geoWithin": CIRCLE}}, "All points within 1.3 km"),
        Asked({"loc": {"$nearSphere": {"$geometry": PLACE}}}, "The nearest ten", limit=10),
    )
    report = Report(
        gather(points),
        [explain_query(points, one, place) for place, one in enumerate(asked, 1)],
        count_polygons(SpatialCollection(points), Polygons.of(neighbourhoods), "the city's neighbourhoods"),
        gather_subscriptions(database.alerts, Planned()) if with_alerts else None,
        "A generated city on its shards",
    )
    write_page(report_page(report), path)


def _largest(neighbourhoods: dict[str, Any]) -> dict[str, Any]:
    """The neighbourhood with most vertices."""
    shapes = [feature["geometry"] for feature in neighbourhoods["features"]]
    whole = [shape for shape in shapes if shape["type"] == "Polygon"]
    found: dict[str, Any] = max(whole, key=lambda shape: sum(map(len, shape["coordinates"])))
    return found
