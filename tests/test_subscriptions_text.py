"""One definition of words: what `TextRules` says of texts, and that a million at once are read the same."""

# ruff: noqa: RUF001 - characters that look alike are what this is about

from __future__ import annotations

import pickle
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions import text_batches
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.text_batches import TermReader

PLAIN = TextRules(stop_words="none")
RULES = [
    PLAIN,
    TextRules(),
    TextRules(stem="english"),
    TextRules(fold_accents=False),
    TextRules(stop_words=("Straße", "isn't"), stem="english", fold_accents=False),
]

# Characters on which Unicode's algorithms, Arrow's and Python's are known to differ, and those that make pieces of
# several tokens: sharp s, dotted and dotless i, final sigma, ligatures, digits of other scripts, fractions, composed or
# decomposed accents, overlays that compose with ASCII symbols, joiners, selectors, voicing marks, Hangul, surrogates'
# neighbours.
WILD = [
    *"aZ09 _-'’.,;#@&|()\t\n\0\x7f=<>",
    *"ßẞİıΣσςﬁﬃŉǅ²½٣１éÉe\u0301\u0327\u0338\u0345\u034f\u200b\u200c\u200d\u00ad\u2028\u3000\ufe0f\u20e3",
    *"❤🌊👩🏽がか\u3099ｶﾞ한한ह\u093f\u094dไท\u0e49ש\u05b8\u05c1ﷺ℡№Ⅷ𝒜𝟗\ud7ff\ue000\ufeff\uffff\U0010ffff\u3164ºª",
]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        (" \t\n.,;:!", ()),
        ("Flood FLOOD flood", ("flood",)),
        ("road: flooded, closed", ("road", "flooded", "closed")),
        ("Ärger ARGER a\u0308rger", ("arger",)),
        ("STRASSE straße ﬁre", ("strasse", "fire")),
        ("ΣΊΣΥΦΟΣ σίσυφος", ("σισυφοσ",)),
        ("İstanbul ISTANBUL", ("istanbul",)),
        ("so\u00adft zero\u200bwidth jo\u200dined", ("soft", "zero", "width", "joined")),
        ("❤️flood #Flood 🌊flood🌊", ("flood",)),
        ("A14 a-14 ½ １２", ("a14", "a", "14", "1", "2", "12")),
        ("snake_case", ("snake", "case")),
        ("がぎ かき", ("がぎ", "かき")),
        ("한국어 \u1112\u1161\u11ab국어", ("한국어",)),
        ("हिन्दी", ("हिन्दी",)),
        ("שָׁלוֹם", ("שלום",)),
    ],
)
def test_terms(text: str, terms: tuple[str, ...]) -> None:
    assert PLAIN.terms(text) == terms


def test_accents_may_be_kept() -> None:
    rules = TextRules(stop_words="none", fold_accents=False)
    assert rules.terms("Ärger a\u0308rger arger") == ("ärger", "arger")


def test_stop_words() -> None:
    assert TextRules().terms("The road isn't under THE water, they'll say") == ("road", "water", "say")
    assert TextRules(stop_words=("WÄSSER", "isn't")).terms("wasser isn t the") == ("the",)
    assert TextRules().term("The") is None
    assert PLAIN.term("The") == "the"


def test_stems_are_one_term() -> None:
    rules = TextRules(stem="english")
    assert rules.terms("flood floods Flooded FLOODING") == ("flood",)
    assert rules.term("floods") == rules.term("flooding") == "flood"
    # A stop word is recognised before it is stemmed.
    assert rules.terms("having") == ()


def test_stemming_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    rules = TextRules(stem="english", stop_words=("nowhere", "else"))
    with pytest.raises(UsageError, match=r"spatialnosql\[matching\]"):
        rules.terms("flood")


def test_a_term_is_of_one_word() -> None:
    with pytest.raises(UsageError, match="has 2 words"):
        PLAIN.term("road-side")
    with pytest.raises(UsageError, match="has 0 words"):
        PLAIN.term("...")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_words": "german"}, "'english', 'none' or a tuple"),
        ({"stop_words": (1,)}, "must be text"),
        ({"stem": "porter"}, "None or 'english'"),
        ({"fold_accents": "yes"}, "True or False"),
    ],
)
def test_wrong_rules(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TextRules(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_stored_and_travel(rules: TextRules) -> None:
    assert TextRules.from_document(rules.to_document()) == rules
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert hash(TextRules(stop_words=("b", "a", "a"))) == hash(TextRules(stop_words=("a", "b")))


@pytest.mark.parametrize("fold_accents", [True, False])
def test_folding_again_changes_nothing(fold_accents: bool) -> None:
    """Of every character there is: what is stored as a term is found in a text that is that term."""
    rules = TextRules("none", None, fold_accents)
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    once = rules.fold("".join(f"x{character}y " for character in characters))
    assert rules.fold(once) == once


# -- many at once -----------------------------------------------------------------------------------------


def assert_same(rules: TextRules, texts: Sequence[str | None], array: pa.Array | None = None) -> None:
    """The reader says of every text what the rules say, with every other term subscribed to."""
    found = [set(rules.terms(text or "")) for text in texts]
    every = sorted(set().union(*found)) if found else []
    vocabulary = {term: 2 * number + 1 for number, term in enumerate(every[::2])}
    reader = TermReader(rules, vocabulary)
    array = pa.array(texts, type=pa.string()) if array is None else array
    for _ in range(2):  # as met first, and as remembered
        offsets, terms = reader.read(array)
        assert offsets.dtype == np.int64
        assert terms.dtype == np.int32
        assert len(offsets) == len(texts) + 1
        for number, wanted in enumerate(found):
            ids = sorted(vocabulary[term] for term in wanted if term in vocabulary)
            assert terms[offsets[number] : offsets[number + 1]].tolist() == ids, texts[number]


@pytest.mark.parametrize("rules", RULES)
def test_random_texts(rules: TextRules) -> None:
    rng = np.random.default_rng(5)
    words = [
        "flood",
        "Flooded",
        "ROAD",
        "the",
        "café",
        "isn't",
        "Straße",
        "x" * 70,
        "水没した道路" * 12,
        "14",
        "ŽĎÁR",
    ]
    texts: list[str | None] = []
    for _ in range(1500):
        parts = [
            str(rng.choice(words)) if rng.random() < 0.4 else WILD[int(rng.integers(len(WILD)))]
            for _ in range(int(rng.integers(0, 30)))
        ]
        texts.append(None if rng.random() < 0.02 else "".join(parts))
    assert_same(rules, texts)


@pytest.mark.parametrize("fold_accents", [True, False])
def test_every_character(fold_accents: bool) -> None:
    """Beside letters, beside symbols that marks compose with, and beside itself; no text can hold a surrogate."""
    every = map(chr, range(sys.maxunicode + 1))
    rules = TextRules("none", None, fold_accents)
    kept = [c for c in every if unicodedata.category(c) not in ("Cs", "Cn", "Co") and rules.fold(c) != c]
    assert len(kept) > 10_000
    assert_same(rules, [f"a{c}B ={c}{c} {c}\u0301" for c in kept])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text(st.one_of(st.sampled_from(WILD), st.characters(exclude_categories=["Cs"]))), max_size=6)
)
def test_any_texts(texts: list[str]) -> None:
    assert_same(RULES[1], texts)
    assert_same(RULES[4], texts)


@pytest.mark.parametrize("texts", [[], [""], [None], ["", None, ""], ["..."], ["a"], ["a", "", "b", "c"]])
def test_hardly_any_text(texts: list[str | None]) -> None:
    assert_same(PLAIN, texts)


def test_slices_chunks_and_other_kinds_of_strings() -> None:
    texts = [f"Road {number} is flööded {'x' * (number % 5)}" for number in range(50)]
    whole = pa.array(texts)
    assert_same(PLAIN, texts[7:31], whole.slice(7, 24))
    assert_same(PLAIN, texts, pa.chunked_array([texts[:20], [], texts[20:]]))
    assert_same(PLAIN, texts, pa.array(texts, type=pa.large_string()))
    assert_same(PLAIN, texts, whole.dictionary_encode())
    assert_same(PLAIN, texts, whole.cast(pa.string_view()))


def test_many_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_batches, "BYTES_AT_ONCE", 20)
    monkeypatch.setattr(text_batches, "MOST_REMEMBERED", 5)
    assert_same(
        RULES[2], ["", "short", "a text of more than twenty bytes", "", "ünd nöch", None, "ein➜zwei➜drei", ""]
    )


def test_what_is_no_text() -> None:
    reader = TermReader(PLAIN, {})
    with pytest.raises(UsageError, match="not list"):
        reader.read(["a"])
    with pytest.raises(UsageError, match="not int64"):
        reader.read(pa.array([1]))
