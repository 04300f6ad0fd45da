"""Points and polygons together: which points lie in which polygons, how many, in which most, on which grid.

One pass over the points, not one query a polygon. Arrows point one way: polygons <- overlay <- passes <- the calls.
"""
