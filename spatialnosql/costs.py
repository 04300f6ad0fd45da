"""The coefficients of the cost model: milliseconds for one of each.

All who work on a query count alike, servers and client, one after the other. The defaults were measured on MongoDB 8.2
(documents of 150 bytes, in memory); `spatialnosql analyze --calibrate` measures them on the deployment at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Costs:
    """Milliseconds for one of each."""

    command_ms: float = 0.9
    """A command, before it does anything."""
    shard_ms: float = 0.4
    """A shard that is asked."""
    range_ms: float = 0.018
    """A range: to parse, plan and seek."""
    key_ms: float = 0.0011
    """An index key."""
    fetch_ms: float = 0.003
    """A document read."""
    test_ms: float = 0.012
    """A point tested by a server against a polygon of great circles."""
    flat_test_ms: float = 0.0006
    """A point tested by a server against a box, a circle, or a flat polygon."""
    vertex_ms: float = 0.000006
    """What each vertex adds to a test."""
    shape_ms: float = 1.1
    """A polygon of great circles read and covered by a server, before any point is tested."""
    shape_vertex_ms: float = 0.012
    """What each of its vertices adds to that."""
    return_ms: float = 0.004
    """A document sent, received and decoded."""
    settle_ms: float = 0.0012
    """A key sent, received and settled in the client."""
    read_ms: float = 1.0
    """A shape, to be read and covered by the client for the first time."""
    read_vertex_ms: float = 0.0025
    """What each of its vertices adds to that."""

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Costs:
        """As they were stored; what is missing or no cost is the default. Nothing costs nothing."""
        known = {field.name for field in fields(cls)}
        return cls(
            **{
                name: float(value)
                for name, value in document.items()
                if name in known and isinstance(value, int | float) and value > 0
            }
        )

    def to_document(self) -> dict[str, float]:
        """To be stored."""
        return asdict(self)
