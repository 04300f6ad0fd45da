"""Subscriptions as PS2Stream's experiments have them (section VI.A), made from any objects with a place and terms.

- Q1: squares with sides of 1 to 50 km; keywords distributed as the terms of the objects are.
- Q2: squares with sides of 1 to 100 km; at least one keyword is not among the 1 % most frequent terms.
- Q3: the objects' extent is cut into 10 x 10 equal regions, and each of them has Q1 or Q2.

All are centred on a randomly chosen object and have 1 to 3 keywords joined by AND or OR. A stream (`stream_of`) has
five objects for every insertion or deletion, as many deletions as insertions, and a subscription lives until
N(mu, 0.2 mu) newer ones have come, so that about mu are there at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.geometry import EARTH_RADIUS_M
from spatialnosql.subscriptions.compiled import compiled
from spatialnosql.subscriptions.kernel import Array
from spatialnosql.subscriptions.strings import Strings
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.vocabulary import Vocabulary

Kind = Literal["Q1", "Q2", "Q3"]
Operators = Literal["both", "and", "or"]
KINDS: tuple[Kind, ...] = ("Q1", "Q2", "Q3")
MOST_KEYWORDS = 3
SIDES_KM = {"Q1": (1.0, 50.0), "Q2": (1.0, 100.0)}
FREQUENT = 0.01
"""The share of the terms that count as frequent: Q2 has a keyword that is none of them."""
REGIONS = 10
"""Q3 cuts longitudes and latitudes into so many equal parts each."""
OBJECTS_PER_CHANGE = 5
SPREAD = 0.2
"""The standard deviation of a subscription's lifetime, in lifetimes."""
OBJECT, INSERT, DELETE = 0, 1, 2

_OR_SHARES = {"both": 0.5, "and": 0.0, "or": 1.0}
_KM_PER_DEGREE = np.pi * EARTH_RADIUS_M / 180.0 / 1000.0


@dataclass(frozen=True, eq=False)
class Corpus:
    """Objects to make subscriptions from: object i has the terms ``terms[offsets[i]:offsets[i + 1]]``, distinct."""

    lng: NDArray[np.float64]
    lat: NDArray[np.float64]
    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        if not self.terms.size or not self.lng.size:
            raise UsageError("there is no object with a term to make subscriptions from")
        if not (np.isfinite(self.lng).all() and np.isfinite(self.lat).all()):
            raise UsageError("an object to make subscriptions from has no place; leave those out")

    @classmethod
    def of_words(
        cls,
        lng: NDArray[np.float64],
        lat: NDArray[np.float64],
        offsets: NDArray[np.int64],
        words: NDArray[np.int32],
        vocabulary: Vocabulary,
        left_out: NDArray[np.bool_] | None = None,
    ) -> Corpus:
        """Objects from words as they stand in texts, repetitions included; `left_out` marks those that are no terms."""
        return cls(lng, lat, *distinct_terms(offsets, words, left_out), vocabulary)

    @classmethod
    def of_texts(
        cls, lng: NDArray[np.float64], lat: NDArray[np.float64], texts: Any, rules: TextRules
    ) -> Corpus:
        """Objects from an Arrow array of texts, read by the given rules; all their terms make the vocabulary."""
        from spatialnosql.subscriptions.text_batches import TermReader

        terms = _Collected()
        offsets, numbers = TermReader(rules, terms).read(texts)
        return cls(lng, lat, offsets, numbers, Vocabulary(terms))

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """How many objects have each term."""
        return np.bincount(self.terms, minlength=len(self.vocabulary)).astype(np.int64)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """West, south, east, north of the objects."""
        return float(self.lng.min()), float(self.lat.min()), float(self.lng.max()), float(self.lat.max())


class _Collected(dict[str, int]):
    """Terms and their numbers; whoever asks for one that is not there adds it."""

    def get(self, term: str, default: Any = None) -> int:
        """The number of a term, a new one if it is new."""
        del default
        return self.setdefault(term, len(self))


def subscriptions(
    corpus: Corpus,
    kind: Kind,
    count: int,
    seed: int = 1,
    *,
    together: bool = False,
    operators: Operators = "both",
    regions: NDArray[np.bool_] | None = None,
    owners: int = 1000,
) -> Table:
    """So many subscriptions of one kind; equal arguments give equal tables.

    `together` takes the keywords of a subscription from the one object at its centre, so that more ANDs are met.
    `operators` joins them by both, or by one only. `regions` says which of Q3's are Q2 (see `mixed_regions`); so many
    `owners` share the subscriptions.
    """
    if kind not in KINDS:
        raise UsageError(f"the workload is {kind!r}; there are {', '.join(KINDS)}")
    if count < 0 or owners < 1:
        raise UsageError(f"{count} subscriptions of {owners} owners; there must be some")
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    centres = draw.integers(corpus.lng.size, size=count)
    second = _is_second(corpus, kind, centres, mixed_regions(seed) if regions is None else regions)
    keywords = _keywords(corpus, centres, second, together, draw)
    clauses, clause_terms, members = _joined(keywords, _OR_SHARES[operators], draw)
    return Table.of_rectangles(
        _squares(corpus, centres, second, draw),
        clauses,
        clause_terms,
        members,
        corpus.vocabulary,
        owner=draw.integers(owners, size=count),
        owners=Strings.of(f"user{i}" for i in range(owners)),
    )


def distinct_terms(
    offsets: NDArray[np.int64], words: NDArray[np.int32], left_out: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The words of each object sorted and without repetitions, as offsets and terms: what matching asks for."""
    skipped = np.zeros(int(words.max(initial=0)) + 1, dtype=np.bool_) if left_out is None else left_out
    ends, terms = np.zeros(offsets.size, dtype=np.int64), np.empty(words.size, dtype=np.int32)
    _sort_rows(offsets, words, skipped, ends, terms)
    return ends, terms[: ends[-1]].copy()


@compiled
def _sort_rows(offsets: Array, words: Array, skipped: Array, ends: Array, terms: Array) -> None:
    """Insert each word where it belongs among its object's, unless it is there; texts are short."""
    end = 0
    for i in range(offsets.size - 1):
        first = end
        for k in range(offsets[i], offsets[i + 1]):
            word = words[k]
            if skipped[word]:
                continue
            at = end
            while at > first and terms[at - 1] > word:
                at -= 1
            if at > first and terms[at - 1] == word:
                continue
            for later in range(end, at, -1):
                terms[later] = terms[later - 1]
            terms[at] = word
            end += 1
        ends[i + 1] = end


def mixed_regions(seed: int = 1) -> NDArray[np.bool_]:
    """Which of Q3's 100 regions have Q2: a coin is thrown for each."""
    return np.random.default_rng([seed, 3]).random(REGIONS * REGIONS) < 0.5


def switched_regions(regions: NDArray[np.bool_], share: float = 0.1, seed: int = 1) -> NDArray[np.bool_]:
    """The regions after tastes have changed: a share of them, randomly chosen, has the other kind."""
    changed = regions.copy()
    chosen = np.random.default_rng([seed, 4]).permutation(regions.size)[: round(share * regions.size)]
    changed[chosen] ^= True
    return changed


@dataclass(frozen=True, eq=False)
class Stream:
    """Objects, insertions and deletions in their order.

    Subscriptions 0 to `initial` - 1 are there when it begins; the others are inserted in the order of their numbers.
    """

    initial: int
    subscriptions: int
    """How many there are in all."""
    what: NDArray[np.uint8]
    """OBJECT, INSERT or DELETE."""
    row: NDArray[np.int64]
    """The object, or the subscription's number."""


def stream_of(objects: int, mu: int, seed: int = 1) -> Stream:
    """What arrives with so many objects while about mu subscriptions are there."""
    if objects < 0 or mu < 1:
        raise UsageError(f"a stream of {objects} objects over {mu} subscriptions; mu must be at least 1")
    draw = np.random.default_rng([seed, 5])
    # An insertion and a deletion go with twice as many objects as one of them.
    inserted = objects // (2 * OBJECTS_PER_CHANGE)
    # Those that came before the beginning, at times -3 mu .. -1, and still live; hardly one lives three times as long.
    born = np.arange(-3 * mu, inserted, dtype=np.int64)
    ends = born + np.maximum(np.rint(draw.normal(mu, SPREAD * mu, born.size)), 1).astype(np.int64)
    stays = ends >= 0
    born, ends = born[stays], ends[stays]
    initial = int((born < 0).sum())
    dying = np.flatnonzero(ends < inserted)
    time = np.concatenate(
        [
            np.arange(objects) / (2 * OBJECTS_PER_CHANGE),
            born[initial:].astype(np.float64),
            ends[dying] + 0.5,
        ]
    )
    what = np.repeat(
        np.array([OBJECT, INSERT, DELETE], dtype=np.uint8), [objects, born.size - initial, dying.size]
    )
    row = np.concatenate([np.arange(objects), np.arange(initial, born.size), dying])
    order = np.argsort(time, kind="stable")
    return Stream(initial, int(born.size), what[order], row[order].astype(np.int64))


def _is_second(
    corpus: Corpus, kind: Kind, centres: NDArray[np.int64], regions: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which subscriptions are made as Q2 has them."""
    if kind != "Q3":
        return np.full(centres.size, kind == "Q2")
    west, south, east, north = corpus.extent
    column = _part(corpus.lng[centres], west, east)
    row = _part(corpus.lat[centres], south, north)
    chosen: NDArray[np.bool_] = regions[row * REGIONS + column]
    return chosen


def _part(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    share = (values - low) / max(high - low, 1e-12)
    return np.minimum((share * REGIONS).astype(np.int64), REGIONS - 1)


def _squares(
    corpus: Corpus, centres: NDArray[np.int64], second: NDArray[np.bool_], draw: np.random.Generator
) -> NDArray[np.float64]:
    """Squares around the centres, as wide in kilometres as high; cut off at the ends of the world."""
    (least, most_first), (_, most_second) = SIDES_KM["Q1"], SIDES_KM["Q2"]
    sides = least + draw.random(centres.size) * (np.where(second, most_second, most_first) - least)
    lng, lat = corpus.lng[centres], corpus.lat[centres]
    high = sides / 2 / _KM_PER_DEGREE
    wide = high / np.maximum(np.cos(np.radians(lat)), 1e-3)
    boxes = np.stack([lng - wide, lat - high, lng + wide, lat + high], axis=1)
    return np.clip(boxes, [-180.0, -90.0, -180.0, -90.0], [180.0, 90.0, 180.0, 90.0])


def _keywords(
    corpus: Corpus,
    centres: NDArray[np.int64],
    second: NDArray[np.bool_],
    together: bool,
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    """One to three distinct terms of each subscription; -1 where it has fewer."""
    shape = (centres.size, MOST_KEYWORDS)
    if together:
        starts, lengths = corpus.offsets[centres], np.diff(corpus.offsets)[centres]
        has = np.minimum(draw.integers(1, MOST_KEYWORDS + 1, size=centres.size), np.maximum(lengths, 1))
        at = starts[:, None] + (draw.random(shape) * lengths[:, None]).astype(np.int64)
        # An object without terms lends a place only.
        at = np.where(lengths[:, None] > 0, at, draw.integers(corpus.terms.size, size=shape))
    else:
        has = draw.integers(1, MOST_KEYWORDS + 1, size=centres.size)
        at = draw.integers(corpus.terms.size, size=shape)
    keywords = corpus.terms[at].astype(np.int64)
    frequencies = corpus.frequencies
    used = np.flatnonzero(frequencies)
    frequent = np.zeros(frequencies.size, dtype=np.bool_)
    frequent[used[np.argsort(-frequencies[used], kind="stable")][: round(FREQUENT * used.size)]] = True
    keywords[np.arange(MOST_KEYWORDS) >= has[:, None]] = -1
    lacking = np.flatnonzero(second & (frequent[keywords] | (keywords < 0)).all(axis=1))
    rare = corpus.terms[~frequent[corpus.terms]]
    if rare.size:
        keywords[lacking, (draw.random(lacking.size) * has[lacking]).astype(np.int64)] = rare[
            draw.integers(rare.size, size=lacking.size)
        ]
    for later in range(1, MOST_KEYWORDS):  # a term drawn twice counts once
        for earlier in range(later):
            keywords[keywords[:, later] == keywords[:, earlier], later] = -1
    return keywords


def _joined(
    keywords: NDArray[np.int64], or_share: float, draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Clauses: before each keyword but the first stands AND or OR, as a coin says; AND binds tighter."""
    there = keywords >= 0
    opens = draw.random(keywords.shape) < or_share
    opens[:, 0] = True
    opens &= there  # the keywords that begin a clause
    terms = keywords[there]
    begins = np.flatnonzero(opens[there])
    clause_terms = np.concatenate([begins, [terms.size]]).astype(np.int64)
    clauses = np.concatenate([[0], np.cumsum(opens.sum(axis=1))]).astype(np.int64)
    # Terms of a clause in ascending order, as parsed expressions have them.
    clause = np.repeat(np.arange(begins.size), np.diff(clause_terms))
    return clauses, clause_terms, terms[np.lexsort([terms, clause])].astype(np.int32)
