"""What a query wants of the words: AND, OR, NOT and parentheses, as a tree; from an expression, and from a filter.

Two things are made of a tree: the filter that MongoDB understands (`to_filter`), which decides, and what a document's
place and time must be able to offer (`possible`), which only prunes. A filter of existing words cannot say that a word
is *absent* from a document, so NOT prunes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from spatialnosql.subscriptions.keywords import LONGEST_WORD, MOST_CHARACTERS, MOST_NESTED, KeywordError
from spatialnosql.subscriptions.text import TextRules

T = TypeVar("T")


@dataclass(frozen=True)
class Word:
    """The document has this word."""

    term: str


@dataclass(frozen=True)
class Not:
    """It does not meet this."""

    part: Wording


@dataclass(frozen=True)
class All:
    """It meets all of these; of none of them: any document does."""

    parts: tuple[Wording, ...]


@dataclass(frozen=True)
class Either:
    """It meets one of these; of none of them: no document does."""

    parts: tuple[Wording, ...]


Wording: TypeAlias = Word | Not | All | Either

ANY = All(())
"""What every document meets: of a condition that says nothing about words, or nothing that we understand."""

_PIECES = re.compile(r"""\s+|(?P<open>\()|(?P<close>\))|(?P<and>&+)|(?P<or>\|+)|(?P<not>!|-(?=[^\s()&|"!]))
    |"(?P<quoted>[^"]*)"|(?P<quote>")|(?P<word>[^\s()&|"!]+)""", re.VERBOSE)  # fmt: skip
_SPELLED = {"and", "or", "not"}


# -- from an expression -----------------------------------------------------------------------------------


def parse_words(expression: str | Sequence[str], rules: TextRules) -> Wording:
    """The tree of an expression like ``vaccine AND (clinic OR NOT covid)``; a list of words means all of them.

    NOT binds most strongly, then AND, then OR; words side by side mean AND. Words go through the same rules as texts.
    """
    if not isinstance(expression, str):
        words = [str(word) for word in expression]
        if not words:
            raise KeywordError("the list of words is empty; give at least one, or leave the words out")
        expression = " AND ".join('"' + word.replace('"', " ") + '"' for word in words)
    if not expression.strip():
        raise KeywordError("the expression of words is empty; give at least one word, or leave the words out")
    if len(expression) > MOST_CHARACTERS:
        raise KeywordError(
            f"{len(expression):,} characters of words; at most {MOST_CHARACTERS:,} are allowed"
        )
    reader = _Reader(list(_pieces(expression)), rules)
    found = reader.either(0)
    if reader.piece is not None:
        raise KeywordError("a closing parenthesis without an opening one", reader.piece[1])
    if found is None:
        raise KeywordError("the words are stop words only, which no text keeps; add another")
    return found


Piece: TypeAlias = tuple[str, int, str]  # kind, position from 1, text


def _pieces(expression: str) -> Iterator[Piece]:
    for match in _PIECES.finditer(expression):
        kind, position = match.lastgroup, match.start() + 1
        if kind is None:
            continue
        if kind == "quote":
            raise KeywordError("a quotation mark without a second one", position)
        text = match[kind]
        if kind == "word" and text.lower() in _SPELLED:
            kind = text.lower()
        if kind == "word" and ("*" in text or "?" in text[:-1]):
            raise KeywordError(f"{text[:40]!r}: wildcards are not supported; write the words out", position)
        yield ("word" if kind == "quoted" else kind), position, text


class _Reader:
    """Recursive descent; each rule returns None for what is stop words only, since those vanish from every text."""

    def __init__(self, pieces: list[Piece], rules: TextRules) -> None:
        self._pieces, self._rules, self._at = pieces, rules, 0

    @property
    def piece(self) -> Piece | None:
        return self._pieces[self._at] if self._at < len(self._pieces) else None

    def _kind(self) -> str | None:
        return None if self.piece is None else self.piece[0]

    def either(self, depth: int) -> Wording | None:
        parts = [self._several(depth)]
        while self._kind() == "or":
            self._at += 1
            parts.append(self._several(depth))
        if len(parts) > 1 and None in parts:
            raise KeywordError("an alternative of OR is stop words only, which no text keeps; leave it out")
        known = [part for part in parts if part is not None]
        return Either(tuple(known)) if len(known) > 1 else known[0] if known else None

    def _several(self, depth: int) -> Wording | None:
        parts = [self._one(depth)]
        while self._kind() in ("and", "word", "open", "not"):
            if self._kind() == "and":
                self._at += 1
            parts.append(self._one(depth))
        known = [part for part in parts if part is not None]
        return All(tuple(known)) if len(known) > 1 else known[0] if known else None

    def _one(self, depth: int) -> Wording | None:
        piece = self.piece
        if piece is None or piece[0] not in ("word", "open", "not"):
            where = None if piece is None else piece[1]
            raise KeywordError("a word is missing here" if piece else "a word is missing at the end", where)
        if depth > MOST_NESTED:
            raise KeywordError(f"nested more than {MOST_NESTED} deep", piece[1])
        self._at += 1
        if piece[0] == "not":
            part = self._one(depth + 1)
            if part is None:
                raise KeywordError("NOT of stop words only, which no text keeps; leave it out", piece[1])
            return Not(part)
        if piece[0] == "open":
            inner = self.either(depth + 1)
            if self._kind() != "close":
                raise KeywordError("an opening parenthesis without a closing one", piece[1])
            self._at += 1
            return inner
        return self._word(piece)

    def _word(self, piece: Piece) -> Wording | None:
        _, position, text = piece
        terms = self._rules.terms(text)
        if not terms and not self._rules.fold(text).split():
            raise KeywordError(f"{text[:40]!r} has no letter or digit", position)
        if any(len(term) > LONGEST_WORD for term in terms):
            raise KeywordError(f"a word of more than {LONGEST_WORD} letters", position)
        words = tuple(Word(term) for term in terms)
        return All(words) if len(words) > 1 else words[0] if words else None


# -- to a filter, and from one ----------------------------------------------------------------------------


def to_filter(wording: Wording, field: str) -> dict[str, Any]:
    """The tree as a filter on a field that holds a list of words."""
    if isinstance(wording, Word):
        return {field: wording.term}
    if isinstance(wording, Not):
        return {"$nor": [to_filter(wording.part, field)]}
    terms = [part.term for part in wording.parts if isinstance(part, Word)]
    if len(terms) == len(wording.parts):
        if isinstance(wording, Either):
            return {field: {"$in": terms}}
        return {field: {"$all": terms}} if terms else {}
    parts = [to_filter(part, field) for part in wording.parts]
    return {"$and" if isinstance(wording, All) else "$or": parts}


def of_filter(filter: Mapping[str, Any], field: str) -> Wording:
    """What a filter demands of a field of words: never more than it does, so that pruning by it is sound."""
    parts = [part for key, value in filter.items() if (part := _of_condition(key, value, field)) != ANY]
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _of_condition(key: str, value: Any, field: str) -> Wording:
    if key == field:
        return _of_operators(value) if _is_operators(value) else _of_value(value)
    if key in ("$and", "$or") and isinstance(value, list | tuple):
        parts = tuple(of_filter(part, field) if isinstance(part, Mapping) else ANY for part in value)
        return Either(parts) if key == "$or" and parts else All(parts)
    return ANY


def _is_operators(value: Any) -> bool:
    return isinstance(value, Mapping) and any(str(name).startswith("$") for name in value)


def _of_value(value: Any) -> Wording:
    return Word(value) if isinstance(value, str) else ANY


def _of_operators(operators: Mapping[str, Any]) -> Wording:
    parts: list[Wording] = []
    for name, operand in operators.items():
        several = operand if isinstance(operand, list | tuple) else None
        if name == "$eq":
            parts.append(_of_value(operand))
        elif name == "$all" and several:
            parts.extend(_of_value(value) for value in several)
        elif name == "$in" and several is not None:
            parts.append(Either(tuple(_of_value(value) for value in several)))
    return parts[0] if len(parts) == 1 else All(tuple(parts))


# -- what it takes ----------------------------------------------------------------------------------------


def terms_of(wording: Wording) -> set[str]:
    """The words whose presence matters."""
    if isinstance(wording, Word):
        return {wording.term}
    if isinstance(wording, Not):
        return set()
    return set().union(*map(terms_of, wording.parts))


def possible(
    wording: Wording,
    has: Callable[[str], T],
    both: Callable[[T, T], T],
    one: Callable[[T, T], T],
    always: T,
    never: T,
) -> T:
    """Where a tree can be met, by where each word is: in any algebra, as arrays or as single truths."""
    if isinstance(wording, Word):
        return has(wording.term)
    if isinstance(wording, Not):
        return always
    found = always if isinstance(wording, All) else never
    for part in wording.parts:
        there = possible(part, has, both, one, always, never)
        found = both(found, there) if isinstance(wording, All) else one(found, there)
    return found
