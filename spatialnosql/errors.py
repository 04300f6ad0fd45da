"""Every error this library raises, in one tree.

SpatialNoSQLError
├── UsageError            an argument or option that cannot be meant so (also ValueError)
├── GeometryError         a shape MongoDB would reject (also ValueError)
├── UnsupportedShape      a shape MongoDB takes but we cannot cover safely (also ValueError)
├── CoordinateError       a longitude or latitude that is no place on Earth (also ValueError)
├── HistoryLost           what happened since a resume token is no longer known to the server
├── MissingProgram        Java, mongod, npm, ... is not there
├── DownloadError         a program could not be fetched, or its hash is wrong
└── ClusterError          the local cluster could not be started or reached

Each message names the value, the limit and what to do.
"""

from __future__ import annotations


class SpatialNoSQLError(Exception):
    """Base of every error of this library."""


class UsageError(SpatialNoSQLError, ValueError):
    """An argument or option that cannot be meant so."""


class GeometryError(SpatialNoSQLError, ValueError):
    """A shape that MongoDB would reject; the message says where it is wrong."""


class UnsupportedShape(SpatialNoSQLError, ValueError):  # noqa: N818 - not a fault of the caller
    """A shape that MongoDB may take but that cannot be covered safely; send the query unchanged."""


class CoordinateError(SpatialNoSQLError, ValueError):
    """A coordinate that is NaN, infinite or off the globe."""


class HistoryLost(SpatialNoSQLError):  # noqa: N818 - reads as what it is
    """A change stream cannot go on where it was: the servers have forgotten what happened since."""


class MissingProgram(SpatialNoSQLError):  # noqa: N818 - reads as what it is
    """A program that must be on the machine is not; the message says how to get it."""


class DownloadError(SpatialNoSQLError):
    """A program could not be fetched, or what came was not what was pinned."""


class ClusterError(SpatialNoSQLError):
    """The local cluster could not be started, reached or stopped."""
