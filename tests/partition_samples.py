"""Small samples to plan partitions by."""

from __future__ import annotations

import numpy as np

from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.partitioning.sample import Sample
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.vocabulary import Vocabulary


def sample_of(seed: int, objects: int = 600, count: int = 300, words: int = 60, side: int = 16) -> Sample:
    """Objects and rectangles around a few towns; words by Zipf's law."""
    draw = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, words + 1)
    shares /= shares.sum()
    towns = draw.uniform([-10, 40], [10, 60], size=(4, 2))
    lng, lat = (
        towns[draw.choice(4, size=objects, p=[0.6, 0.2, 0.1, 0.1])] + draw.normal(0, 0.7, (objects, 2))
    ).T
    terms = [np.unique(draw.choice(words, size=draw.integers(1, 8), p=shares)) for _ in range(objects)]
    offsets = np.cumsum([0] + [own.size for own in terms])
    corners = towns[draw.integers(4, size=count)] + draw.normal(0, 0.7, (count, 2))
    sizes = draw.exponential(0.5, (count, 2))
    clauses = [np.unique(draw.choice(words, size=draw.integers(1, 4), p=shares)) for _ in range(count)]
    table = Table.of_rectangles(
        np.concatenate([corners, corners + sizes], axis=1),
        np.arange(count + 1),
        np.cumsum([0] + [own.size for own in clauses]),
        np.concatenate(clauses),
        Vocabulary(f"w{i}" for i in range(words)),
    )
    return Sample.of(Objects.of(lng, lat, 0, offsets, np.concatenate(terms)), table, side=side)
