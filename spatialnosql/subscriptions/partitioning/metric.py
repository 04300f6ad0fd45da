"""By text, S3-TM's metric of spread and imbalance: PS2Stream's metric-based baseline (section VI.B).

As PS2Stream has it: the mapping of S3-TM's algorithm 1 for the words under which clauses are filed, the rarest of each;
neither LASP nor the splitting of hot words, which are S3-TM's own (see `salb`).
"""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.partitioning.hash_text import hashed_homes
from spatialnosql.subscriptions.partitioning.plan import Plan, text_plan
from spatialnosql.subscriptions.partitioning.salb import balanced_homes
from spatialnosql.subscriptions.partitioning.sample import Sample


def plan_metric(sample: Sample, partitions: int) -> Plan:
    """Frequent words first, each where spread times imbalance grows least."""
    known = len(sample.table.vocabulary)
    filed = np.bincount(sample.filed, minlength=known) > 0
    learned = balanced_homes(
        sample,
        filed,
        partitions,
        np.ones(known, dtype=np.int64),
        np.arange(known + 1, dtype=np.int64),
        np.zeros(known),
    )
    homes = np.where(learned >= 0, learned, hashed_homes(known, partitions)).astype(np.int32)
    return text_plan("metric", homes, partitions, sample.frequencies)
