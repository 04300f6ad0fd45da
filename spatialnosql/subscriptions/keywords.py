"""Keyword expressions: ``(flood AND road) OR landslide``, to disjunctive normal form.

AND binds more strongly than OR, and words side by side mean AND. ``&`` and ``|`` are operators too, and those in
letters may be in lower case; the words themselves go through the same `TextRules` as the texts. A quoted word is a word
even if it reads like an operator. What search boxes elsewhere understand otherwise (NOT, ``-word``, ``word*``, "a
phrase") is an error and not silently something else.

Stop words vanish from an AND, since they vanish from every text; an alternative of an OR must have another word.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.text import TextRules

Clauses: TypeAlias = tuple[tuple[str, ...], ...]
"""A disjunction of conjunctions of terms, each sorted; no clause holds another."""

MOST_CLAUSES = 1_000
MOST_TERMS = 20_000
"""Of all clauses together."""
MOST_CHARACTERS = 50_000
MOST_NESTED = 100
LONGEST_WORD = 200

_Alternatives: TypeAlias = list[frozenset[str]]
_PIECES = re.compile(r"""(?P<space>\s+)|(?P<open>\()|(?P<close>\))|(?P<and>&+)|(?P<or>\|+)
    |"(?P<quoted>[^"]*)"|(?P<quote>")|(?P<word>[^\s()&|"]+)""", re.VERBOSE)  # fmt: skip
_OPERATORS = {"and": "and", "or": "or", "not": "not"}


class KeywordError(UsageError):
    """A keyword expression that cannot be understood; `position` counts its characters from 1."""

    def __init__(self, message: str, position: int | None = None) -> None:
        self.position = position
        super().__init__(message if position is None else f"{message} (at character {position})")


class _Piece(NamedTuple):
    kind: str  # open, close, and, or, word
    position: int
    text: str = ""


@dataclass
class _Group:
    """What has been read of an expression, or of a part in parentheses: alternatives, the last of them unfinished."""

    position: int
    alternatives: _Alternatives = field(default_factory=list)
    factors: list[_Alternatives] = field(default_factory=list)
    clauses: int = 1  # that the factors will make
    terms: int = 0  # in those clauses
    finished_terms: int = 0
    operands: int = 0  # of the unfinished alternative, with those that are stop words only
    pending: _Piece | None = None  # an operator that waits for its right side
    started: int | None = None  # where the unfinished alternative began
    stopped: list[int] = field(default_factory=list)  # alternatives of stop words only
    parts: int = 0


def parse(expression: str, rules: TextRules) -> Clauses:
    """The clauses of an expression, terms and clauses sorted; a clause that another makes superfluous is left out."""
    if not isinstance(expression, str):
        raise KeywordError(f"keywords must be text, not {expression!r}")
    if not expression.strip():
        raise KeywordError("the keyword expression is empty; give at least one word")
    if len(expression) > MOST_CHARACTERS:
        raise KeywordError(
            f"the keyword expression has {len(expression):,} characters; at most {MOST_CHARACTERS:,} are allowed"
        )
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        message = "half a character (a lone surrogate), which cannot be stored"
        raise KeywordError(message, error.start + 1) from None
    groups = [_Group(1)]
    for piece in _pieces(expression):
        if piece.kind == "open":
            if len(groups) > MOST_NESTED:
                raise KeywordError(f"parentheses are nested more than {MOST_NESTED} deep", piece.position)
            groups.append(_Group(piece.position))
        elif piece.kind == "close":
            if len(groups) == 1:
                raise KeywordError("a closing parenthesis without an opening one", piece.position)
            closed = groups.pop()
            _operand(groups[-1], _finished(closed), closed.position)
        elif piece.kind == "word":
            _operand(groups[-1], _terms(piece, rules), piece.position)
        else:
            _operator(groups[-1], piece)
    if len(groups) > 1:
        raise KeywordError("an opening parenthesis without a closing one", groups[-1].position)
    found = _finished(groups[0])
    if found is None:
        raise KeywordError("the keyword expression has only stop words, which no text keeps; add another")
    return normal_form(found)


def normal_form(clauses: Iterable[Iterable[str]]) -> Clauses:
    """Clauses sorted, each once, without those that hold another one (whoever matches them matches that one)."""
    shortest_first = sorted({frozenset(clause) for clause in clauses}, key=len)
    kept: _Alternatives = []
    for clause in shortest_first:
        if not any(other <= clause for other in kept):
            kept.append(clause)
    return tuple(sorted(tuple(sorted(clause)) for clause in kept))


def to_expression(clauses: Sequence[Sequence[str]]) -> str:
    """Clauses written as an expression, for people."""
    several = len(clauses) > 1
    return " OR ".join(
        f"({' AND '.join(clause)})" if several and len(clause) > 1 else " AND ".join(clause)
        for clause in clauses
    )


def _pieces(expression: str) -> Iterator[_Piece]:
    for match in _PIECES.finditer(expression):
        kind, text, position = str(match.lastgroup), match[0], match.start() + 1
        if kind == "space":
            continue
        if kind == "quote":
            raise KeywordError("a quotation mark without a second one", position)
        if kind == "quoted":
            yield _quoted(match["quoted"], position)
        elif kind == "word":
            yield _word(text, position)
        else:
            yield _Piece(kind, position, text)


def _quoted(text: str, position: int) -> _Piece:
    if len(text.split()) > 1:
        raise KeywordError(
            f'"{_brief(text)}" is a phrase; phrases are not supported: write {" AND ".join(text.split())[:80]}',
            position,
        )
    return _Piece("word", position, text)


def _word(text: str, position: int) -> _Piece:
    operator = _OPERATORS.get(text.lower())
    if operator == "not" or (text[0] in "-!" and len(text) > 1):
        raise KeywordError(
            f"{_brief(text)!r}: NOT is not supported; a subscription says which words must be there (AND, OR)",
            position,
        )
    if operator:
        return _Piece(operator, position, text)
    if "*" in text or "?" in text[:-1]:
        raise KeywordError(f"{_brief(text)!r}: wildcards are not supported; write the words out", position)
    return _Piece("word", position, text)


def _terms(piece: _Piece, rules: TextRules) -> _Alternatives | None:
    """One clause of the terms of a word ("road-side" has two); None if they are stop words."""
    tokens, terms = _read(piece.text, rules)
    if not tokens:
        raise KeywordError(f"{_brief(piece.text)!r} has no letter or digit", piece.position)
    longest = max(map(len, terms), default=0)
    if longest > LONGEST_WORD:
        raise KeywordError(
            f"a word of {longest:,} letters; at most {LONGEST_WORD} are allowed", piece.position
        )
    return [terms] if terms else None


@functools.lru_cache(maxsize=1 << 14)
def _read(word: str, rules: TextRules) -> tuple[int, frozenset[str]]:
    """How many tokens a word has, and its terms; remembered, since of a million subscriptions most use the same."""
    return len(rules.fold(word).split()), frozenset(rules.terms(word))


def _operand(group: _Group, alternatives: _Alternatives | None, position: int) -> None:
    """Add one factor to the unfinished alternative; None for stop words."""
    group.pending = None
    group.operands += 1
    group.started = position if group.started is None else group.started
    if alternatives is None:
        return
    # Each clause so far goes together with each alternative: counted before it is tried.
    own = sum(map(len, alternatives))
    group.terms = group.terms * len(alternatives) + own * group.clauses
    group.clauses *= len(alternatives)
    group.factors.append(alternatives)
    _check_size(group, position)


def _operator(group: _Group, piece: _Piece) -> None:
    if group.pending is not None or not group.operands:
        raise KeywordError(f"{piece.text} has nothing on its left to join", piece.position)
    group.pending = piece
    if piece.kind == "or":
        _end_alternative(group)


def _end_alternative(group: _Group) -> None:
    assert group.started is not None
    if group.factors:
        group.alternatives += [frozenset().union(*chosen) for chosen in itertools.product(*group.factors)]
    else:
        group.stopped.append(group.started)
    group.parts += 1
    group.finished_terms += group.terms
    group.factors, group.clauses, group.terms = [], 1, 0
    group.operands, group.started = 0, None


def _finished(group: _Group) -> _Alternatives | None:
    """The alternatives of a whole group; None if it has only stop words."""
    if group.pending is not None:
        raise KeywordError(f"{group.pending.text} has nothing on its right to join", group.pending.position)
    if not group.operands:
        raise KeywordError("there is nothing between these parentheses", group.position)
    _end_alternative(group)
    if group.stopped and group.parts > 1:
        raise KeywordError(
            "an alternative of OR has only stop words, which no text keeps; leave it out or add another word",
            group.stopped[0],
        )
    return group.alternatives or None


def _check_size(group: _Group, position: int) -> None:
    for count, most, what in (
        (group.clauses + len(group.alternatives), MOST_CLAUSES, "clauses"),
        (group.terms + group.finished_terms, MOST_TERMS, "words"),
    ):
        if count > most:
            raise KeywordError(
                f"multiplied out, the expression has more than {most:,} {what}; make several subscriptions of it",
                position,
            )


def _brief(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
