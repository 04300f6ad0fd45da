"""Synthetic tweets: Zipf-distributed words, topics, hot spots, seconds; for machines without such data.

>>> for tweets in generate_tweets(1_000_000, seed=1):
...     tweets.text[0], tweets.lng[0], tweets.lat[0], tweets.at_ms[0]

A tweet belongs to a hot spot (a town; their sizes follow Zipf's law) or to the country between them. Its topic is one
of the few its town talks about, or any. Its words come from the topic's own and from the language's, by Zipf's law.
Equal arguments give equal tweets, and every batch can be made without those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.stop_words import ENGLISH
from spatialnosql.subscriptions.strings import Strings

FIRST_MS = 1_767_225_600_000  # 2026-01-01
BATCH = 100_000
UNITED_STATES = (-124.7, 25.1, -67.0, 49.4)
BRITAIN = (-6.4, 49.9, 1.8, 58.7)

_SPOTS, _TOPICS, _TOPIC_WORDS, _OWN_TOPICS = 300, 60, 400, 5
_IN_TOWN, _ON_OWN_TOPIC, _TOPIC_SHARE = 0.85, 0.7, 0.35
_FEWEST_WORDS, _MOST_WORDS = 4, 20
_KM_PER_DEGREE = 111.2

_COMMONEST = "the to a i and of in you is for it my on that me this at with so be just have not are was"
# What people talk about: the first words of the topics.
_THEMES = """
flood road landslide storm rain snow ice wind fire smoke police accident traffic crash delay train bus station
bridge closed power outage water school football match goal team win concert music band ticket festival food
coffee pizza lunch dinner beach sun park dog cat election vote news protest strike rent house job hospital
flight airport game movie birthday wedding love market price sale phone update earthquake tornado hurricane
evacuation shelter rescue ambulance robbery stolen missing alert warning highway bicycle marathon museum
library theatre parade fireworks sunset
"""
_ONSETS = "b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sk sl st t th tr v w y z"
_VOWELS = "a e i o u ai ea ee ia io ou"
_CODAS = ("", "", "", "n", "r", "s", "t", "l", "m", "ck", "nd", "ng", "rt", "st")


@dataclass(frozen=True, eq=False)
class World:
    """What does not change while people tweet: the language, the towns, what is talked about where."""

    seed: int
    words: Strings
    """Most frequent first: stop words and themes, then words made of syllables."""
    language: NDArray[np.float64]
    """The cumulative share of each word in what is not about the topic."""
    topics: NDArray[np.int32]
    """The words of each topic, most frequent first."""
    towns: NDArray[np.float64]
    """Longitude, latitude, spread in km, cumulative share."""
    talk: NDArray[np.int64]
    """The topics each town prefers."""
    bounds: tuple[float, float, float, float]

    @classmethod
    def of(
        cls, seed: int = 1, words: int = 100_000, bounds: tuple[float, float, float, float] = UNITED_STATES
    ) -> World:
        """The world of a seed."""
        if words < 1000:
            raise UsageError(f"a language of {words} words; give it 1,000 at least")
        lexicon = _lexicon(words)
        draw = np.random.default_rng([seed, 0])
        # A topic's words are common ones first; its two foremost are themes, which everybody knows.
        known = len(_known_words())
        topics = np.sort(draw.integers(known, len(lexicon), size=(_TOPICS, _TOPIC_WORDS)), axis=1)
        themes = draw.permutation([row for row, word in enumerate(lexicon[:known]) if word not in ENGLISH])
        topics[:, :2] = np.resize(themes, (_TOPICS, 2))
        west, south, east, north = bounds
        lng, lat = west + draw.random(_SPOTS) * (east - west), south + draw.random(_SPOTS) * (north - south)
        spread_km = 2.0 + 16.0 * draw.random(_SPOTS) ** 2
        return cls(
            seed,
            Strings.of(lexicon),
            _zipf(len(lexicon), 1.0),
            topics.astype(np.int32),
            np.stack([lng, lat, spread_km, _zipf(_SPOTS, 1.0)], axis=1),
            draw.integers(_TOPICS, size=(_SPOTS, _OWN_TOPICS)),
            bounds,
        )

    @property
    def stop_words(self) -> NDArray[np.bool_]:
        """Which of the words are stop words of the default text rules."""
        return np.array([word in ENGLISH for word in self.words])


@dataclass(frozen=True, eq=False)
class Tweets:
    """One array a column, one element a tweet, in order of time."""

    id: NDArray[np.int64]
    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    at_ms: NDArray[np.int64]
    text: Strings
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]
    """The words of tweet i are ``words[offsets[i]:offsets[i + 1]]``, rows of `World.words`, as written: stop words and
    repetitions included."""

    def __len__(self) -> int:
        return int(self.id.size)


def generate_tweets(
    count: int,
    seed: int = 1,
    *,
    batch: int = BATCH,
    per_second: float = 1000.0,
    start_ms: int = FIRST_MS,
    world: World | None = None,
) -> Iterator[Tweets]:
    """So many tweets in batches; the ids count up from 0, the times from `start_ms`, `per_second` on average."""
    if count < 0 or batch < 1 or per_second <= 0:
        raise UsageError(
            f"{count} tweets in batches of {batch}, {per_second} a second: there must be some of each"
        )
    ours = world if world is not None else World.of(seed)
    for first in range(0, count, batch):
        size = min(batch, count - first)
        draw = np.random.default_rng([seed, 1, first])
        # Times are drawn within the batch's own stretch, so that no batch must know when the one before it ended.
        stretch_ms = size / per_second * 1000.0
        times = start_ms + first / per_second * 1000.0 + np.sort(draw.random(size)) * stretch_ms
        yield _batch(ours, np.arange(first, first + size), times.astype(np.int64), draw)


def _batch(
    world: World, ids: NDArray[np.int64], times: NDArray[np.int64], draw: np.random.Generator
) -> Tweets:
    count = ids.size
    town = _pick(world.towns[:, 3], count, draw)
    lng, lat, spread_km = world.towns[town, 0], world.towns[town, 1], world.towns[town, 2]
    north, east = draw.standard_normal((2, count)) * spread_km / _KM_PER_DEGREE
    west_end, south_end, east_end, north_end = world.bounds
    at_home = draw.random(count) < _IN_TOWN
    lng = np.where(
        at_home, lng + east / np.cos(np.radians(lat)), west_end + draw.random(count) * (east_end - west_end)
    )
    lat = np.where(at_home, lat + north, south_end + draw.random(count) * (north_end - south_end))
    own = at_home & (draw.random(count) < _ON_OWN_TOPIC)
    topic = np.where(
        own, world.talk[town, draw.integers(_OWN_TOPICS, size=count)], draw.integers(_TOPICS, size=count)
    )
    lengths = _FEWEST_WORDS + draw.binomial(_MOST_WORDS - _FEWEST_WORDS, 0.4, count)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    total = int(offsets[-1])
    words = _pick(world.language, total, draw).astype(np.int32)
    on_topic = np.flatnonzero(draw.random(total) < _TOPIC_SHARE)
    of_tweet = np.repeat(topic, lengths)[on_topic]
    words[on_topic] = world.topics[of_tweet, _pick(_zipf(_TOPIC_WORDS, 0.9), on_topic.size, draw)]
    style = draw.integers(0, 256, size=total).astype(np.uint8)
    text = Strings(*_written(world.words.data, world.words.offsets, offsets, words, style))
    places: NDArray[np.float64] = np.stack([np.clip(lng, -180.0, 180.0), np.clip(lat, -90.0, 90.0)]).round(6)
    return Tweets(ids, places[0], places[1], times, text, offsets, words)


def _pick(cumulative: NDArray[np.float64], count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Rows by their shares."""
    rows = np.searchsorted(cumulative, draw.random(count) * cumulative[-1], side="right")
    return np.asarray(np.minimum(rows, cumulative.size - 1), dtype=np.int64)


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    shares = 1.0 / (np.arange(count) + 2.7) ** exponent
    return np.asarray(np.cumsum(shares / shares.sum()), dtype=np.float64)


def _known_words() -> list[str]:
    """Words that are real: the commonest, then the other stop words and the themes by turns."""
    commonest = _COMMONEST.split()
    others = sorted(ENGLISH.difference(commonest))
    themes = [word for word in _THEMES.split() if word not in ENGLISH]
    by_turns = [word for pair in zip(themes, others, strict=False) for word in pair]
    return list(dict.fromkeys([*commonest, *by_turns, *themes, *others]))


def _lexicon(count: int) -> list[str]:
    """So many distinct words, the same for every seed."""
    words = dict.fromkeys(_known_words())
    onsets, vowels = _ONSETS.split(), _VOWELS.split()
    draw = np.random.default_rng(0)
    while len(words) < count:
        syllables = draw.integers(1, 4, size=count)
        picks = draw.integers(1 << 30, size=(count, 9)).tolist()
        for number, pick in zip(syllables.tolist(), picks, strict=True):
            word = "".join(
                onsets[pick[k] % len(onsets)] + vowels[pick[k + 1] % len(vowels)] for k in range(number)
            )
            words.setdefault(word + _CODAS[pick[8] % len(_CODAS)])
            if len(words) >= count:
                break
    return list(words)


@compiled
def _written(
    data: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
    offsets: NDArray[np.int64],
    words: NDArray[np.int32],
    style: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Words as people write them: a capital at the beginning, commas, hashtags, an end. All ASCII."""
    size = 0
    for k in range(words.size):
        size += word_offsets[words[k] + 1] - word_offsets[words[k]] + 3
    text, ends = np.empty(size, np.uint8), np.zeros(offsets.size, np.int64)
    at = 0
    for i in range(offsets.size - 1):
        for k in range(offsets[i], offsets[i + 1]):
            begin, end = word_offsets[words[k]], word_offsets[words[k] + 1]
            first, last = k == offsets[i], k == offsets[i + 1] - 1
            if not first:
                text[at] = 32
                at += 1
            if style[k] < 8 and not first:
                text[at] = 35  # a hashtag
                at += 1
            for p in range(begin, end):
                letter = data[p]
                if p == begin and (first or style[k] >= 250) and 97 <= letter <= 122:
                    letter -= 32
                text[at] = letter
                at += 1
            if last and style[k] & 3:
                text[at] = 46 if style[k] & 3 == 1 else (33 if style[k] & 3 == 2 else 63)
                at += 1
            elif not last and 200 <= style[k] < 210:
                text[at] = 44
                at += 1
        ends[i + 1] = at
    return text[:at].copy(), ends
