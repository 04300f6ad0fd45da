"""Generated subscriptions are what PS2Stream's section VI.A says, and generated tweets are texts."""

from __future__ import annotations

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import workloads
from spatialnosql.subscriptions.index import Index
from spatialnosql.subscriptions.table import Table
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.tweets import BRITAIN, World, generate_tweets
from spatialnosql.subscriptions.vocabulary import Vocabulary
from spatialnosql.subscriptions.workloads import Corpus, distinct_terms, stream_of

WORLD = World.of(1, words=5000, bounds=BRITAIN)
TWEETS = next(generate_tweets(20_000, 1, world=WORLD))
CORPUS = Corpus.of_words(
    TWEETS.lng, TWEETS.lat, TWEETS.offsets, TWEETS.words, Vocabulary(WORLD.words), WORLD.stop_words
)
KM_PER_DEGREE = np.pi * 6378.1 / 180


def sides_km(table: Table) -> tuple[np.ndarray, np.ndarray]:
    west, south, east, north = table.bounds.T
    return (east - west) * np.cos(np.radians((south + north) / 2)) * KM_PER_DEGREE, (
        north - south
    ) * KM_PER_DEGREE


def frequent_terms() -> np.ndarray:
    frequencies = CORPUS.frequencies
    used = np.flatnonzero(frequencies)
    threshold = np.sort(frequencies[used])[::-1][round(0.01 * used.size) - 1]
    return frequencies > threshold  # those at the threshold itself may count as either


@pytest.mark.parametrize(("kind", "most_km"), [("Q1", 50.0), ("Q2", 100.0)])
def test_squares_around_objects(kind: workloads.Kind, most_km: float) -> None:
    table = workloads.subscriptions(CORPUS, kind, 5000)
    wide, high = sides_km(table)
    np.testing.assert_allclose(wide, high, rtol=1e-6)
    assert 1.0 - 1e-6 <= wide.min() < 2.0
    assert most_km - 1.0 < wide.max() <= most_km + 1e-6
    assert abs(np.median(wide) - most_km / 2) < most_km / 20
    centres = np.round((table.bounds[:, :2] + table.bounds[:, 2:]) / 2, 6)
    places = {*zip(CORPUS.lng.tolist(), CORPUS.lat.tolist(), strict=True)}
    assert all((lng, lat) in places for lng, lat in centres.tolist())


def test_one_to_three_keywords_joined_by_and_or_or() -> None:
    table = workloads.subscriptions(CORPUS, "Q2", 6000)
    starts = table.clause_terms[table.clauses]
    keywords = np.diff(starts)
    assert set(keywords.tolist()) == {1, 2, 3}
    assert np.bincount(keywords)[1:].min() > 1500
    clauses = np.diff(table.clauses)
    assert 0.4 < (clauses[keywords == 2] == 2).mean() < 0.6
    assert set(clauses[keywords == 3].tolist()) == {1, 2, 3}
    members = np.split(table.members, starts[1:-1])
    assert all(len(set(row.tolist())) == row.size for row in members)


def test_one_operator_only() -> None:
    only_and = workloads.subscriptions(CORPUS, "Q1", 500, operators="and")
    assert set(np.diff(only_and.clauses).tolist()) == {1}
    only_or = workloads.subscriptions(CORPUS, "Q1", 500, operators="or")
    assert set(np.diff(only_or.clause_terms).tolist()) == {1}
    assert set(np.diff(only_or.clauses).tolist()) == {1, 2, 3}


def test_first_kind_draws_keywords_as_objects_have_terms() -> None:
    table = workloads.subscriptions(CORPUS, "Q1", 20_000)
    drawn = np.bincount(table.members, minlength=len(CORPUS.vocabulary)) / table.members.size
    there = CORPUS.frequencies / CORPUS.terms.size
    assert np.abs(drawn - there).sum() < 0.35
    assert np.corrcoef(drawn, there)[0, 1] > 0.95


def test_second_kind_has_a_keyword_that_is_not_frequent() -> None:
    frequent = frequent_terms()
    for together in (False, True):
        table = workloads.subscriptions(CORPUS, "Q2", 5000, together=together)
        rows = np.split(table.members, table.clause_terms[table.clauses][1:-1])
        assert all((~frequent[row]).any() for row in rows)
    table = workloads.subscriptions(CORPUS, "Q1", 5000)
    rows = np.split(table.members, table.clause_terms[table.clauses][1:-1])
    assert not all((~frequent[row]).any() for row in rows)


def test_keywords_together_stand_in_one_object() -> None:
    table = workloads.subscriptions(CORPUS, "Q1", 500, together=True)
    lists = {
        tuple(CORPUS.terms[a:b].tolist())
        for a, b in zip(CORPUS.offsets[:-1], CORPUS.offsets[1:], strict=True)
    }
    rows = np.split(table.members, table.clause_terms[table.clauses][1:-1])
    assert all(any(set(row.tolist()) <= set(terms) for terms in lists) for row in rows[:30])


def test_third_kind_mixes_by_region() -> None:
    regions = workloads.mixed_regions(1)
    assert regions.size == 100
    assert 30 < regions.sum() < 70
    table = workloads.subscriptions(CORPUS, "Q3", 20_000, regions=regions)
    wide, _ = sides_km(table)
    centres = (table.bounds[:, :2] + table.bounds[:, 2:]) / 2
    west, south, east, north = CORPUS.extent
    column = np.minimum((centres[:, 0] - west) / (east - west) * 10, 9).astype(int)
    row = np.minimum((centres[:, 1] - south) / (north - south) * 10, 9).astype(int)
    second = regions[row * 10 + column]
    assert wide[~second].max() <= 50.001
    assert wide[second].max() > 90
    switched = workloads.switched_regions(regions)
    assert (switched != regions).sum() == 10


def test_equal_seeds_give_equal_tables() -> None:
    one, same, other = (workloads.subscriptions(CORPUS, "Q3", 1000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.bounds, same.bounds)
    np.testing.assert_array_equal(one.members, same.members)
    assert not np.array_equal(one.bounds, other.bounds)
    assert one.owners[int(one.owner[0])].startswith("user")


def test_a_generated_table_matches_as_brute_force_does() -> None:
    table = workloads.subscriptions(CORPUS, "Q3", 10_000, together=True)
    index = Index.build(table, CORPUS.frequencies)
    some = slice(0, 300)
    offsets = CORPUS.offsets[:301]
    rows, numbers = index.match(CORPUS.lng[some], CORPUS.lat[some], TWEETS.at_ms[some], offsets, CORPUS.terms)
    expected = set()
    for row in range(300):
        terms = set(CORPUS.terms[offsets[row] : offsets[row + 1]].tolist())
        west, south, east, north = table.bounds.T
        lng, lat = CORPUS.lng[row], CORPUS.lat[row]
        for number in np.flatnonzero(
            (west <= lng) & (lng <= east) & (south <= lat) & (lat <= north)
        ).tolist():
            clauses = range(table.clauses[number], table.clauses[number + 1])
            if any(
                terms.issuperset(table.members[table.clause_terms[c] : table.clause_terms[c + 1]].tolist())
                for c in clauses
            ):
                expected.add((row, number))
    assert len(expected) > 300
    assert set(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
    assert rows.size == len(expected)


def test_streams_are_stable() -> None:
    stream = stream_of(200_000, mu=2000, seed=1)
    objects, inserts, deletes = np.bincount(stream.what, minlength=3)
    assert objects == 200_000
    assert 4.8 < objects / (inserts + deletes) < 5.2
    assert abs(inserts - deletes) < 0.05 * inserts
    assert abs(stream.initial - 2000) < 100
    assert stream.subscriptions == stream.initial + inserts
    alive = stream.initial + np.cumsum(
        (stream.what == workloads.INSERT).astype(int) - (stream.what == workloads.DELETE)
    )
    assert 1850 < alive.min() <= alive.max() < 2150
    # Everything is deleted once at most, and after it came.
    inserted = dict.fromkeys(range(stream.initial), -1)
    place = np.flatnonzero(stream.what == workloads.INSERT)
    inserted.update(zip(stream.row[place].tolist(), place.tolist(), strict=True))
    gone = np.flatnonzero(stream.what == workloads.DELETE)
    assert len(set(stream.row[gone].tolist())) == gone.size
    assert all(
        inserted[number] < at for number, at in zip(stream.row[gone].tolist(), gone.tolist(), strict=True)
    )
    # Lifetimes, counted in newer subscriptions, are N(mu, 0.2 mu).
    births = stream.row[gone] - stream.initial
    came = np.cumsum(stream.what == workloads.INSERT)[gone]
    born_here = (births >= 0) & (births < inserts - 4000)
    lives = came[born_here] - births[born_here]
    assert abs(lives.mean() - 2000) < 30
    assert abs(lives.std() - 400) < 30


def test_tweets_read_back_as_their_words() -> None:
    rules = TextRules()
    vocabulary = Vocabulary(WORLD.words)
    offsets, terms = distinct_terms(TWEETS.offsets, TWEETS.words, WORLD.stop_words)
    texts = TWEETS.text.take(np.arange(500))
    for i, text in enumerate(texts):
        read = sorted(vocabulary[term] for term in rules.terms(text))
        assert read == terms[offsets[i] : offsets[i + 1]].tolist()
        assert text.isascii()
        assert 4 <= len(text.split()) <= 20
    assert sum(text[0].isupper() for text in texts) > 450
    assert any("#" in text for text in texts)
    assert len(set(texts)) == 500


def test_texts_read_in_batches_are_the_same_corpus() -> None:
    pytest.importorskip("pyarrow")
    corpus = Corpus.of_texts(TWEETS.lng, TWEETS.lat, TWEETS.text.to_arrow(), TextRules())
    np.testing.assert_array_equal(corpus.offsets, CORPUS.offsets)
    to_word = CORPUS.vocabulary.numbers(corpus.vocabulary.terms)
    for i in range(200):
        part = slice(corpus.offsets[i], corpus.offsets[i + 1])
        assert sorted(to_word[corpus.terms[part]].tolist()) == CORPUS.terms[part].tolist()
    np.testing.assert_array_equal(CORPUS.frequencies[to_word], corpus.frequencies)


def test_tweets_are_skewed_in_words_and_places() -> None:
    frequencies = np.sort(CORPUS.frequencies)[::-1]
    assert frequencies[:50].sum() > 0.1 * frequencies.sum()
    cells = np.unique(np.floor(np.stack([TWEETS.lng, TWEETS.lat]) * 10), axis=1, return_counts=True)[1]
    assert np.sort(cells)[::-1][:100].sum() > 0.25 * len(TWEETS)
    assert (np.diff(TWEETS.at_ms) >= 0).all()
    assert 15_000 < TWEETS.at_ms[-1] - TWEETS.at_ms[0] <= 20_000


def test_batches_do_not_depend_on_those_before_them() -> None:
    whole = list(generate_tweets(2500, 7, batch=1000, world=WORLD))
    assert [len(batch) for batch in whole] == [1000, 1000, 500]
    again = list(generate_tweets(3000, 7, batch=1000, world=WORLD))
    assert list(whole[1].text) == list(again[1].text)
    assert whole[1].id.tolist() == list(range(1000, 2000))
    assert whole[0].at_ms[-1] <= whole[1].at_ms[0]
    assert list(next(generate_tweets(1000, 8, world=WORLD)).text) != list(whole[0].text)


def test_clear_errors() -> None:
    with pytest.raises(UsageError, match="Q4"):
        workloads.subscriptions(CORPUS, "Q4", 10)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="-1 subscriptions"):
        workloads.subscriptions(CORPUS, "Q1", -1)
    with pytest.raises(UsageError, match="mu must be"):
        stream_of(10, 0)
    with pytest.raises(UsageError, match="there must be some"):
        next(generate_tweets(1, batch=0))
    nothing = np.zeros(0)
    with pytest.raises(UsageError, match="no object with a term"):
        Corpus(nothing, nothing, np.zeros(1, np.int64), np.zeros(0, np.int32), Vocabulary())
