"""What the `partitioning` benchmark matches: objects with texts, and subscriptions of PS2Stream's and S3-TM's kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.objects import Objects
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.tweets import World, generate_tweets
from spatialnosql.subscriptions.vocabulary import Vocabulary
from spatialnosql.subscriptions.workloads import Corpus

LONGITUDES, LATITUDES = ("lng", "lon", "longitude"), ("lat", "latitude")
TEXTS = ("text", "location", "crime_type", "outcome")
TOPICS, TOPIC_WORDS = 100, 5
LENGTH_SKEW = 0.5
"""Of Zipf's law for the number of words of a topic-based subscription."""


def tweets(count: int, seed: int) -> tuple[Corpus, World]:
    """Synthetic tweets and the world they come from."""
    world = World.of(seed)
    batch = next(generate_tweets(count, seed, batch=count, world=world))
    vocabulary = Vocabulary(world.words)
    corpus = Corpus.of_words(batch.lng, batch.lat, batch.offsets, batch.words, vocabulary, world.stop_words)
    vocabulary.count(corpus.terms)
    return corpus, world


def read_texts(file: Path, count: int, seed: int) -> Corpus:
    """Objects of a Parquet file, so many of those with a place, randomly chosen; several columns make a text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = pq.read_schema(file).names
    lng = next((name for name in LONGITUDES if name in names), None)
    lat = next((name for name in LATITUDES if name in names), None)
    texts = [name for name in TEXTS if name in names]
    if lng is None or lat is None or not texts:
        raise UsageError(
            f"{file} has the columns {', '.join(names)}; one of {', '.join(LONGITUDES)}, one of "
            f"{', '.join(LATITUDES)} and one of {', '.join(TEXTS)} at least are needed"
        )
    table = pq.read_table(file, columns=[lng, lat, *texts])
    there = np.flatnonzero(
        np.isfinite(table[lng].to_numpy().astype(float)) & np.isfinite(table[lat].to_numpy().astype(float))
    )
    chosen = np.sort(np.random.default_rng(seed).permutation(there)[:count])
    rows = table.take(pa.array(chosen)).combine_chunks()
    columns: list[Any] = [pc.fill_null(rows[name].cast(pa.string()), "") for name in texts]
    joined = pc.binary_join_element_wise(*columns, " ")
    corpus = Corpus.of_texts(
        rows[lng].to_numpy().astype(np.float64),
        rows[lat].to_numpy().astype(np.float64),
        joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined,
        TextRules(),
    )
    corpus.vocabulary.count(corpus.terms)
    return corpus


def objects_of(corpus: Corpus) -> Objects:
    """The objects of a corpus as they are matched; all at one time."""
    return Objects.of(corpus.lng, corpus.lat, 0, corpus.offsets, corpus.terms)


def numbered_from(table: Table, first: int) -> Table:
    """The same subscriptions with ids that count up from the given number."""
    return replace(table, ids=Strings.of_numbers(first, first + len(table)))


def topic_subscriptions(world: World, vocabulary: Vocabulary, count: int, seed: int) -> Table:
    """S3-TM's topic-based subscriptions (section 6.1): a topic, a length by Zipf's law, so many of its words; anywhere.

    The paper finds 100 topics of 5 words by LDA. The world's own topics are known: its 60 give their five foremost
    words, and then 40 of them the next five.
    """
    words = np.concatenate([world.topics[:, :TOPIC_WORDS], world.topics[:, TOPIC_WORDS : 2 * TOPIC_WORDS]])
    words = words[:TOPICS]
    draw = np.random.default_rng([seed, 11])
    shares = 1.0 / np.arange(1, TOPIC_WORDS + 1) ** LENGTH_SKEW
    lengths = draw.choice(np.arange(1, TOPIC_WORDS + 1), size=count, p=shares / shares.sum())
    order = np.argsort(draw.random((count, TOPIC_WORDS)), axis=1)
    chosen = words[draw.integers(TOPICS, size=count)[:, None], order]
    members = [np.unique(row[:length]) for row, length in zip(chosen, lengths, strict=True)]
    return _anywhere(members, vocabulary)


def tweet_subscriptions(corpus: Corpus, count: int, seed: int) -> Table:
    """S3-TM's tweet-based subscriptions (section 6.1): all the words of a tweet, anywhere; tweets picked at random."""
    lengths = np.diff(corpus.offsets)
    some = np.flatnonzero(lengths)
    picked = np.random.default_rng([seed, 12]).choice(some, size=count, replace=count > some.size)
    bounds = corpus.offsets.tolist()
    members = [np.unique(corpus.terms[bounds[row] : bounds[row + 1]]) for row in picked.tolist()]
    return _anywhere(members, corpus.vocabulary)


def _anywhere(members: list[NDArray[Any]], vocabulary: Vocabulary) -> Table:
    """Subscriptions to all of some words each, wherever they are said."""
    ends: NDArray[np.int64] = np.cumsum([0] + [own.size for own in members])
    return Table.of_rectangles(
        np.tile([-180.0, -90.0, 180.0, 90.0], (len(members), 1)),
        np.arange(len(members) + 1),
        ends,
        np.concatenate(members),
        vocabulary,
    )
