"""Subscriptions: boolean keywords and a region, and the objects that match them.

Arrows point one way: text <- keywords, areas <- model <- table <- index; store, matches and the jobs stand at the edge.
"""
