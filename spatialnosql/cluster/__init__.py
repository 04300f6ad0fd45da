"""A sharded MongoDB on this machine, and the description of any other deployment."""

from spatialnosql.cluster.deployment import Deployment, connect, describe
from spatialnosql.cluster.local import LocalCluster

__all__ = ["Deployment", "LocalCluster", "connect", "describe"]
