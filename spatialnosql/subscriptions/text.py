"""What the words of a text are: one definition, for subscriptions and for objects.

1. Case and accents are folded: Unicode's compatibility caseless form (D146: NFD, casefold, NFKD, casefold, NFKD), then
   accents and vowel points are dropped and the rest composed, so that "Ärger", "ARGER" and "a" with a combining mark
   are one. Accents may be kept.
2. Tokens are runs of letters and digits, with the vowel signs that some scripts write as marks. Everything else parts
   them, but what is invisible (a soft hyphen, a joiner, the selector of an emoji's look) is left out: it stands inside
   words.
3. Stop words are left out.
4. What remains is stemmed, if the rules say so: "floods", "flooded" and "flooding" are one term, "flood".

A script without spaces gives one token for a whole run of letters.
"""

from __future__ import annotations

import functools
import importlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.stop_words import ENGLISH

StopWords = Literal["english", "none"] | tuple[str, ...]

_ZERO_WIDTH_SPACE = "\u200b"  # a format character by its category, but it does part words
_NO_SIGN = re.compile(
    "VARIATION SELECTOR|GRAPHEME JOINER|HANGUL.* FILLER"
)  # a mark or a letter, but not to be seen
_LAST_SIGN = 9
"""Marks of combining classes up to this one (nukta, kana voicing, virama) make another letter, and are no accents."""
_REMEMBERED = 1 << 16  # words whose stems are kept


@dataclass(frozen=True)
class TextRules:
    """How texts become terms. Subscriptions and objects must be read by the same rules to match."""

    stop_words: StopWords = "english"
    stem: Literal["english"] | None = None
    fold_accents: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.stop_words, str):
            if self.stop_words not in ("english", "none"):
                raise UsageError(
                    f"stop words {self.stop_words!r}: they are 'english', 'none' or a tuple of words"
                )
        else:
            words = tuple(self.stop_words)
            if not all(isinstance(word, str) for word in words):
                raise UsageError(f"stop words must be text, not {self.stop_words!r}")
            object.__setattr__(self, "stop_words", tuple(sorted(set(words))))
        if self.stem not in (None, "english"):
            raise UsageError(f"stem {self.stem!r}: it is None or 'english'")
        if not isinstance(self.fold_accents, bool):
            raise UsageError(f"fold_accents {self.fold_accents!r}: it is True or False")

    def fold(self, text: str) -> str:
        """The tokens of a text, in order and as often as they stand there, with white space between them."""
        return _folded(text, self.fold_accents)

    def terms(self, text: str) -> tuple[str, ...]:
        """The distinct terms of a text, in the order of their first appearance."""
        found = map(self.token_function, self.fold(text).split())
        return tuple(dict.fromkeys(term for term in found if term is not None))

    def term(self, word: str) -> str | None:
        """What one word becomes; None if it is a stop word."""
        tokens = self.fold(word).split()
        if len(tokens) != 1:
            raise UsageError(f"{word!r} has {len(tokens)} words; `term` takes one, `terms` a text")
        return self.token_function(tokens[0])

    def to_document(self) -> dict[str, Any]:
        """The rules as they are stored."""
        words = self.stop_words if isinstance(self.stop_words, str) else list(self.stop_words)
        return {"stop_words": words, "stem": self.stem, "fold_accents": self.fold_accents}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TextRules:
        """Rules as they were stored."""
        words: Any = document["stop_words"]
        words = words if isinstance(words, str) else tuple(words)
        return cls(words, document["stem"], document["fold_accents"])

    @property
    def token_function(self) -> Callable[[str], str | None]:
        """What one folded token becomes: `term` for tokens that come from `fold`, without folding them again."""
        return _term_function(self)


@functools.lru_cache(maxsize=64)
def _term_function(rules: TextRules) -> Callable[[str], str | None]:
    """What becomes of one folded token: kept outside of the rules, which stay a plain value that travels to workers."""
    stopped = _folded_words(rules)
    stem = _stemmer() if rules.stem == "english" else str

    def term(token: str) -> str | None:
        return None if token in stopped else stem(token)

    return term


def _folded_words(rules: TextRules) -> frozenset[str]:
    """The stop words in the form in which tokens come; one with an apostrophe is parted as it is in a text."""
    words: Iterable[str] = rules.stop_words if isinstance(rules.stop_words, tuple) else ()
    if rules.stop_words == "english":
        return ENGLISH
    return frozenset(token for word in words for token in _folded(word, rules.fold_accents).split())


def _stemmer() -> Callable[[str], str]:
    try:
        snowballstemmer: Any = importlib.import_module("snowballstemmer")
    except ModuleNotFoundError as error:
        raise UsageError(
            "stemming needs snowballstemmer; install it with: pip install 'spatialnosql[matching]', or use stem=None"
        ) from error
    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return functools.lru_cache(maxsize=_REMEMBERED)(stem)


def _folded(text: str, fold_accents: bool) -> str:
    if text.isascii():
        return text.lower().translate(_TOKENS)
    for form in ("NFD", "NFKD"):
        text = unicodedata.normalize(form, text).casefold()
    characters = _TOKENS_WITHOUT_ACCENTS if fold_accents else _TOKENS
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text).translate(characters))


class _Characters(dict[int, int | None]):
    """What becomes of each character, found out when it is first met: itself, nothing, or a space."""

    def __init__(self, *, drop_accents: bool) -> None:
        super().__init__()
        self._drop_accents = drop_accents

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        kind = unicodedata.category(character)
        what: int | None = ord(" ")
        if self._drop_accents and unicodedata.combining(character) > _LAST_SIGN:
            what = None
        elif kind in ("Cf", "Me") or _NO_SIGN.search(unicodedata.name(character, "")):
            what = ord(" ") if character == _ZERO_WIDTH_SPACE else None
        elif character.isalnum() or kind.startswith("M"):
            what = code
        self[code] = what
        return what


_TOKENS = _Characters(drop_accents=False)
_TOKENS_WITHOUT_ACCENTS = _Characters(drop_accents=True)
