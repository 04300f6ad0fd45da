"""Words of a query: expressions to trees, trees to filters, filters to trees; and keys against brute force."""

from __future__ import annotations

import datetime as dt
import operator
import random
import re
from typing import Any

import numpy as np
import pytest
from bson.errors import InvalidDocument
from stk_world import WORDS, random_wording

from spatialnosql.stk.keys import (
    EXISTS,
    cubes_of_words,
    keys_by_cube,
    keys_of,
    union,
    unique_keys,
    word_hash,
    word_hashes,
)
from spatialnosql.stk.pruning import Window, filter_cubes_of, surviving
from spatialnosql.stk.reading import is_surely_accepted
from spatialnosql.stk.settings import StkSettings
from spatialnosql.stk.sizes import chosen_sizes
from spatialnosql.stk.wording import (
    ANY,
    All,
    Either,
    Not,
    Word,
    of_filter,
    parse_words,
    possible,
    terms_of,
    to_filter,
)
from spatialnosql.subscriptions.keywords import KeywordError
from spatialnosql.subscriptions.text import TextRules

RULES = TextRules()


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("flood", Word("flood")),
        ("Flood road", All((Word("flood"), Word("road")))),
        ("flood AND road OR landslide", Either((All((Word("flood"), Word("road"))), Word("landslide")))),
        ("flood & (road | rail)", All((Word("flood"), Either((Word("road"), Word("rail")))))),
        ("flood -road", All((Word("flood"), Not(Word("road"))))),
        ("NOT (flood OR road)", Not(Either((Word("flood"), Word("road"))))),
        ("not not flood", Not(Not(Word("flood")))),
        ("the flood", Word("flood")),
        ('"and" storm', Word("storm")),
        ("road-side", All((Word("road"), Word("side")))),
        (["Flood", "road"], All((Word("flood"), Word("road")))),
    ],
)
def test_an_expression_is_read(expression: str | list[str], tree: object) -> None:
    assert parse_words(expression, RULES) == tree


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "is empty"),
        ([], "list of words is empty"),
        ("the of", "stop words only"),
        ("flood OR the", "an alternative of OR is stop words only"),
        ("flood NOT the", "NOT of stop words only"),
        ("(flood", "an opening parenthesis without a closing one (at character 1)"),
        ("flood)", "a closing parenthesis without an opening one (at character 6)"),
        ("flood AND", "a word is missing at the end"),
        ("flood AND OR road", "a word is missing here (at character 11)"),
        ("flo*d", "wildcards are not supported"),
        ('"flood', "a quotation mark without a second one"),
        ("---", "no letter or digit"),
        ("(" * 200 + "a" + ")" * 200, "nested more than"),
        ("x" * 60_000, "60,000 characters"),
    ],
)
def test_what_cannot_be_meant_is_said(expression: str | list[str], message: str) -> None:
    with pytest.raises(KeywordError, match=re.escape(message)):
        parse_words(expression, RULES)


@pytest.mark.parametrize(
    ("expression", "filter"),
    [
        ("flood", {"words": "flood"}),
        ("flood road", {"words": {"$all": ["flood", "road"]}}),
        ("flood OR road", {"words": {"$in": ["flood", "road"]}}),
        ("NOT flood", {"$nor": [{"words": "flood"}]}),
        (
            "flood (road OR NOT rail)",
            {"$and": [{"words": "flood"}, {"$or": [{"words": "road"}, {"$nor": [{"words": "rail"}]}]}]},
        ),
    ],
)
def test_a_tree_becomes_a_filter(expression: str, filter: object) -> None:
    tree = parse_words(expression, RULES)
    assert to_filter(tree, "words") == filter
    # NOT prunes nothing; all else comes back as it was.
    assert terms_of(of_filter(to_filter(tree, "words"), "words")) == terms_of(tree)


def test_what_is_not_understood_demands_nothing() -> None:
    conditions: list[dict[str, object]] = [
        {"words": re.compile("x")},
        {"words": ["a", "b"]},
        {"words": {"$elemMatch": {"$eq": "a"}}},
        {"words": None},
        {"other": "x"},
        {"words": {"$exists": True}},
        {"words": {"$nin": ["a"]}},
        {"$nor": [{"words": "a"}]},
    ]
    assert [of_filter(condition, "words") for condition in conditions] == [ANY] * len(conditions)
    assert of_filter({"words": {"$in": ["a", re.compile("b")]}}, "words") == Either((Word("a"), ANY))
    assert of_filter({"words": {"$in": []}}, "words") == Either(())


def _meets(condition: dict[str, object], words: set[str]) -> bool:
    """Brute force, as MongoDB means it."""
    for key, value in condition.items():
        if key in ("$and", "$or", "$nor"):
            parts = [_meets(part, words) for part in value]  # type: ignore[attr-defined]
            met = {"$and": all(parts), "$or": any(parts), "$nor": not any(parts)}[key]
        elif isinstance(value, str):
            met = value in words
        else:
            ((name, operand),) = value.items()  # type: ignore[attr-defined]
            met = {
                "$all": lambda o=operand: set(o) <= words,
                "$in": lambda o=operand: bool(set(o) & words),
                "$nin": lambda o=operand: not set(o) & words,
                "$ne": lambda o=operand: o not in words,
                "$not": lambda o=operand: not set(o["$in"]) & words,
            }[name]()
        if not met:
            return False
    return True


def test_what_a_filter_demands_is_never_more_than_it_does() -> None:
    rng = random.Random(1)
    pruned = 0
    for _ in range(3000):
        condition = random_wording(rng)
        words = set(rng.sample(WORDS[:8], rng.randint(0, 5)))
        may = possible(
            of_filter(condition, "words"), words.__contains__, operator.and_, operator.or_, True, False
        )
        assert may or not _meets(condition, words)
        pruned += not may
    assert pruned > 500


def test_a_filter_knows_the_cubes_of_its_words() -> None:
    rng = np.random.default_rng(2)
    hashes, positions = word_hashes(WORDS), np.arange(64)
    pairs = {(int(rng.integers(40)), int(rng.integers(64))) for _ in range(500)} | {(3, 63), (3, 0)}
    chosen = np.array(sorted(pairs))
    keys = unique_keys(keys_of(hashes[chosen[:, 0]], chosen[:, 1], 6))
    table = cubes_of_words(keys, hashes, 6)
    assert {(int(word), int(at)) for word, at in zip(*np.nonzero(table), strict=True)} == pairs
    parts = [keys[::2], keys[1::2], keys[:50]]
    assert np.array_equal(union(parts), keys)
    assert positions.size == table.shape[1]
    assert word_hash("flood") == word_hash("flood") != word_hash("road")


def test_survivors_are_all_cubes_that_hold_an_answer() -> None:
    settings = StkSettings(cell_bits=24, cube_bin_bits=2, cube_cell_bits=2)
    rng = random.Random(3)
    for _ in range(50):
        count = rng.randint(1, 60)
        bins = np.array([rng.randint(-6, 6) for _ in range(count)], dtype=np.int64)
        cells = np.array([rng.randint(0, 30) for _ in range(count)], dtype=np.int64)
        words = [rng.sample(WORDS[:10], rng.randint(0, 3)) for _ in range(count)]
        offsets = np.cumsum([0, *map(len, words)])
        names, keys = keys_by_cube(
            settings, bins, cells, offsets, word_hashes(w for some in words for w in some)
        )
        filters = dict(zip(names.tolist(), keys, strict=True))
        unknown = rng.choice([*filters, None])
        if unknown is not None and rng.random() < 0.3:
            filters[unknown] = None  # type: ignore[assignment]
        window = Window(np.arange(-4, 5), np.arange(5, 25))
        assert set(filter_cubes_of(window, settings).tolist()) >= {
            cube for b, c, cube in zip(bins, cells, settings.filter_cubes(bins, cells), strict=True)
            if -4 <= b <= 4 and 5 <= c < 25
        }  # fmt: skip
        condition = random_wording(rng)
        alive = set(surviving(window, of_filter(condition, "words"), filters, settings).tolist())
        for b, c, some in zip(bins.tolist(), cells.tolist(), words, strict=True):
            if -4 <= b <= 4 and 5 <= c < 25 and _meets(condition, set(some)):
                assert (b << 24) | c in alive
        if all(keys is not None for keys in filters.values()):
            there = {(b << 24) | c for b, c in zip(bins.tolist(), cells.tolist(), strict=True)}
            assert alive <= there  # where there is nothing, nothing survives
        assert EXISTS == ""


def test_sizes_follow_the_data() -> None:
    rng = np.random.default_rng(4)
    cells = rng.integers(0, 1 << 60, 2000, dtype=np.uint64)
    one_place = np.full(2000, cells[0])
    hours = rng.integers(0, 1000 * 3600_000, 2000)
    months = rng.integers(0, 24, 2000) * 30 * 24 * 3600_000
    assert chosen_sizes(hours, one_place, 2_000_000, 8)["cell_bits"] == 32
    assert chosen_sizes(hours, cells, 2000, 8)["cell_bits"] == 24
    assert chosen_sizes(months, one_place, 2000, 8)["bin_s"] == 28 * 24 * 3600
    assert chosen_sizes(hours, one_place, 2000, 8)["bin_s"] == 3600
    assert chosen_sizes(hours[:0], cells[:0], 0, 8) == {
        "bin_s": 3600,
        "cell_bits": 28,
        "cube_bin_bits": 2,
        "cube_cell_bits": 4,
    }
    sparse = chosen_sizes(hours, cells, 2000, 8)
    assert sparse["cube_bin_bits"] + sparse["cube_cell_bits"] == 12


def test_what_a_server_surely_accepts() -> None:
    """Conditions that it might refuse it must see, also where it is known that nothing is there."""
    now = dt.datetime.now(dt.timezone.utc)
    nested: dict[str, Any] = {"n": 1}
    for _ in range(5):
        nested = {"$and": [nested, {"$nor": [{"words": {"$in": ["a", None]}}]}]}
    fine = [{"at": {"$gte": now, "$lt": now}}, {"words": {"$all": ["a"]}, "n": None}, {"a.b": 1.5}, nested]
    assert is_surely_accepted([])
    assert is_surely_accepted(fine)
    for _ in range(10):
        nested = {"$or": [nested]}
    doubtful: list[dict[str, Any]] = [
        {"n": {"$unknown": 1}}, {"$expr": {"$eq": [1, 1]}}, {"$or": []}, {"$or": {"n": 1}}, {"$and": [1]},
        {"n": {"$in": "a"}}, {"n": {"$in": [{"$gt": 1}]}}, {"n": {"$eq": [1]}}, {"n": {"m": 1}}, {"n": [1]},
        {"n": re.compile("a")}, {"n": {"$in": [re.compile("a")]}}, {"n.$": 1}, nested,
    ]  # fmt: skip
    for one in doubtful:
        assert not is_surely_accepted([*fine, one]), one
    with pytest.raises(InvalidDocument, match="cannot encode object"):
        is_surely_accepted([{"n": object()}])
    with pytest.raises(OverflowError, match="8-byte ints"):
        is_surely_accepted([{"n": 1 << 70}])
