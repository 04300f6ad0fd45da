"""Keyword expressions: their clauses, against a brute-force evaluation, and what is wrong with the others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.keywords import (
    MOST_CHARACTERS,
    MOST_CLAUSES,
    MOST_NESTED,
    MOST_TERMS,
    Clauses,
    KeywordError,
    normal_form,
    parse,
    to_expression,
)
from spatialnosql.subscriptions.text import TextRules

RULES = TextRules()


def any_of(letter: str, count: int) -> str:
    """So many different words, one of which is enough."""
    return " OR ".join(f"{letter}{number}" for number in range(count))


STEMMED = TextRules(stem="english")


@pytest.mark.parametrize(
    ("expression", "clauses"),
    [
        ("flood", (("flood",),)),
        ("Flood AND Road", (("flood", "road"),)),
        ("flood road", (("flood", "road"),)),
        ("(flood AND road) OR landslide", (("flood", "road"), ("landslide",))),
        ("a1 b1 OR c1 d1", (("a1", "b1"), ("c1", "d1"))),
        ("a1 (b1 OR c1) d1", (("a1", "b1", "d1"), ("a1", "c1", "d1"))),
        ("(a1 OR b1)(c1 OR d1)", (("a1", "c1"), ("a1", "d1"), ("b1", "c1"), ("b1", "d1"))),
        ("a1 & b1 | c1 && d1 || e1", (("a1", "b1"), ("c1", "d1"), ("e1",))),
        ("a1 and b1 or c1", (("a1", "b1"), ("c1",))),
        ("a1 OR a1 b1", (("a1",),)),
        ("(a1 OR b1) AND (a1 OR b1)", (("a1",), ("b1",))),
        ("flood flood FLOOD", (("flood",),)),
        ("((((flood))))", (("flood",),)),
        ("the flood AND of", (("flood",),)),
        ("(the) flood", (("flood",),)),
        ("road-side, closed!", (("closed", "road", "side"),)),
        ("Zürich OR ZURICH", (("zurich",),)),
        ("#flood", (("flood",),)),
        ("flooded?", (("flooded",),)),
        ('"flood"', (("flood",),)),
        ("  flood\n\tOR road ", (("flood",), ("road",))),
    ],
)
def test_clauses(expression: str, clauses: Clauses) -> None:
    assert parse(expression, RULES) == clauses


def test_words_with_the_same_stem_are_one() -> None:
    assert parse("floods OR flooding", STEMMED) == (("flood",),)
    assert parse("floods flooding road", STEMMED) == (("flood", "road"),)


def test_a_quoted_operator_is_a_word() -> None:
    assert parse('"or" "AND" "not"', TextRules(stop_words="none")) == (("and", "not", "or"),)


@pytest.mark.parametrize(
    ("expression", "message", "position"),
    [
        ("", "is empty", None),
        (" \n ", "is empty", None),
        ("(flood", "opening parenthesis without a closing", 1),
        ("flood ((road)", "opening parenthesis without a closing", 7),
        ("flood)", "closing parenthesis without an opening", 6),
        (")flood(", "closing parenthesis without an opening", 1),
        ("()", "nothing between these parentheses", 1),
        ("flood ( )", "nothing between these parentheses", 7),
        ("flood AND", "AND has nothing on its right", 7),
        ("flood or", "or has nothing on its right", 7),
        ("(flood OR) road", "OR has nothing on its right", 8),
        ("OR flood", "OR has nothing on its left", 1),
        ("flood (AND road)", "AND has nothing on its left", 8),
        ("flood AND OR road", "OR has nothing on its left", 11),
        ("flood OR OR road", "OR has nothing on its left", 10),
        ("flood NOT road", "NOT is not supported", 7),
        ("not flood", "NOT is not supported", 1),
        ("flood -road", "NOT is not supported", 7),
        ("flood !road", "NOT is not supported", 7),
        ("flood*", "wildcards are not supported", 1),
        ("fl?od", "wildcards are not supported", 1),
        ('road "closed by flood"', "phrases are not supported: write closed AND by AND flood", 6),
        ('road "flood', "quotation mark without a second", 6),
        ('flood ""', "no letter or digit", 7),
        ("flood 🌊", "no letter or digit", 7),
        ("flood - road", "no letter or digit", 7),
        ("the", "only stop words", None),
        ("the AND (of)", "only stop words", None),
        ("flood OR the", "alternative of OR has only stop words", 10),
        ("road AND (flood OR of the)", "alternative of OR has only stop words", 20),
        (
            "(" * (MOST_NESTED + 1) + "a1" + ")" * (MOST_NESTED + 1),
            "nested more than 100 deep",
            MOST_NESTED + 1,
        ),
        ("(" * 40_000, "nested more than 100 deep", MOST_NESTED + 1),
        ("x" * (MOST_CHARACTERS + 1), "at most 50,000", None),
    ],
)
def test_errors(expression: str, message: str, position: int | None) -> None:
    with pytest.raises(KeywordError, match=message) as caught:
        parse(expression, RULES)
    assert caught.value.position == position
    assert isinstance(caught.value, UsageError)
    if position is not None:
        assert f"(at character {position})" in str(caught.value)


def test_keywords_must_be_text() -> None:
    with pytest.raises(KeywordError, match="must be text"):
        parse(["flood"], RULES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bomb",
    [
        " AND ".join(f"(x{number} OR y{number})" for number in range(20)),  # a million clauses
        " AND ".join(f"(x{number} OR y{number})" for number in range(2000)),
        any_of("x", MOST_CLAUSES + 1),
        f"({any_of('x', 600)}) OR ({any_of('y', 600)})",
        "(" * 90 + "x OR y" + ") (x OR y)" * 90,
        f"({' '.join(f'x{number}' for number in range(MOST_TERMS // 900))}) ({any_of('y', 1000)})",
        "x " * (MOST_TERMS + 1),
    ],
)
def test_bombs_are_counted_not_expanded(bomb: str) -> None:
    # Expanding 2 to the power of 2000 would never end.
    with pytest.raises(KeywordError, match=r"more than (1,000 clauses|20,000 words); make several"):
        parse(bomb[:MOST_CHARACTERS], TextRules(stop_words="none"))


def test_as_large_as_allowed() -> None:
    most = parse(" OR ".join(f"x{number} y{number}" for number in range(MOST_CLAUSES)), RULES)
    assert len(most) == MOST_CLAUSES
    deep = "(" * MOST_NESTED + "flood" + ")" * MOST_NESTED
    assert parse(deep, RULES) == (("flood",),)
    assert len(parse(" ".join(f"x{number}" for number in range(7_000)), RULES)[0]) == 7_000


def test_random_expressions_mean_what_they_say() -> None:
    """For every set of words: some clause is in it if and only if the expression is true of it."""
    rng = np.random.default_rng(11)
    words = ["u", "v", "w", "x", "y"]
    plain = TextRules(stop_words="none")

    def expression(depth: int) -> tuple[str, str]:
        """An expression, and the same for Python."""
        if depth == 0 or rng.random() < 0.3:
            word = str(rng.choice(words))
            return word, f"({word!r} in s)"
        parts = [expression(depth - 1) for _ in range(int(rng.integers(1, 4)))]
        operator = str(rng.choice([" AND ", " OR ", " and ", "|", " "]))
        python = " or " if operator in (" OR ", "|") else " and "
        return f"({operator.join(a for a, _ in parts)})", f"({python.join(b for _, b in parts)})"

    sets = [set(chosen) for size in range(6) for chosen in itertools.combinations(words, size)]
    for _ in range(400):
        written, python = expression(4)
        if written.count("|") + written.count("OR") > 9:
            continue  # might be too many clauses
        clauses = parse(written, plain)
        truth = [eval(python, {"s": s}) for s in sets]
        assert [any(s.issuperset(clause) for clause in clauses) for s in sets] == truth, written
        assert clauses == tuple(sorted(clauses))
        assert all(clause == tuple(sorted(set(clause))) for clause in clauses)
        assert not any(set(a) <= set(b) for a, b in itertools.permutations(clauses, 2)), written
        assert parse(to_expression(clauses), plain) == clauses


def test_normal_form() -> None:
    assert normal_form([("b", "a"), ("a", "b"), ("c", "a", "b"), ("c",)]) == (("a", "b"), ("c",))
