"""One box around an area, which may reach across the antimeridian."""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.areas import Area, Bounds


def box_around(area: Area) -> Bounds:
    """West, south, east, north of an area; west > east if the box reaches across the antimeridian.

    180 and -180 degrees are one meridian to circles and polygons, and all longitudes one place at a pole: the bounds of
    what touches either are on both sides of it already. To rectangles they are just numbers.
    """
    boxes = area.bounds
    if not boxes:
        return (0.0, 0.0, 0.0, 0.0)
    south, north = min(box[1] for box in boxes), max(box[3] for box in boxes)
    spans = sorted((west, east) for west, _, east, _ in boxes)
    reach = np.maximum.accumulate([east for _, east in spans]).tolist()
    gaps = [west - east for (west, _), east in zip(spans[1:], reach, strict=False)]
    # The widest gap is left out: one between two spans, or the one around the antimeridian.
    if gaps and max(gaps) > spans[0][0] - reach[-1] + 360.0:
        at = int(np.argmax(gaps))
        return (spans[at + 1][0], south, reach[at], north)
    return (spans[0][0], south, reach[-1], north)
