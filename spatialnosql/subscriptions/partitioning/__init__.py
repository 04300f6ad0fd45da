"""Subscriptions in partitions: who holds which, and where an object goes.

Planners make a `Plan` from a `Sample`; a `Dispatcher` follows it. Nothing here knows Spark or a network.
"""
