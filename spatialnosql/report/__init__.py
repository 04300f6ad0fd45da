"""A collection as a page to open: values gathered from the live cluster, and pure functions that draw them.

`gather`, `gather_queries`, `gather_polygons` and `gather_subscriptions` ask the servers and make values of `model`;
`view`, `shapes`, `maps`, `charts`, `parts` and `page` draw them and ask nobody. `write` puts both together.
"""
