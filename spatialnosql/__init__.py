"""A spatial layer for sharded MongoDB.

The law: a rewrite may change which documents are examined, never which are returned.
"""

__version__ = "0.1.0"
