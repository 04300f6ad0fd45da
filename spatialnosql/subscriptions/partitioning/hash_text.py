"""By text, without looking: every word to the partition of its hash. S3-TM's default (section 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.partitioning.homes import mixed
from spatialnosql.subscriptions.partitioning.plan import Plan, text_plan
from spatialnosql.subscriptions.partitioning.sample import Sample


def plan_hash(sample: Sample, partitions: int) -> Plan:
    """Words hashed to partitions; the sample is not looked at."""
    known = len(sample.table.vocabulary)
    return text_plan("hash", hashed_homes(known, partitions), partitions, sample.frequencies)


def plan_anycast(sample: Sample, partitions: int) -> Plan:
    """The same with S3-TM's default placement: a subscription goes to the home of any of its words, not its rarest."""
    known = len(sample.table.vocabulary)
    homes = hashed_homes(known, partitions)
    return text_plan("anycast", homes, partitions, sample.frequencies, filing="any")


@compiled
def hashed_homes(known: int, partitions: int) -> NDArray[np.int32]:
    """The partitions of words 0 to `known` - 1 by hash, as a plan gives them to words it does not know."""
    homes = np.empty(known, np.int32)
    for term in range(known):
        homes[term] = mixed(term) % partitions
    return homes
