"""By text, words weighed by how frequent they are: PS2Stream's frequency-based baseline (section VI.B)."""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.partitioning.assigning import lightest_first
from spatialnosql.subscriptions.partitioning.plan import Plan, text_plan
from spatialnosql.subscriptions.partitioning.sample import Sample


def plan_frequency(sample: Sample, partitions: int) -> Plan:
    """Words in order of frequency, each to the partition whose words are rarest so far.

    Only words under which something is filed bring objects to a worker; the others weigh nothing.
    """
    filed = np.bincount(sample.filed, minlength=sample.frequencies.size) > 0
    homes = lightest_first(np.where(filed, sample.frequencies, 0).astype(np.float64), partitions)
    return text_plan("frequency", homes, partitions, sample.frequencies)
