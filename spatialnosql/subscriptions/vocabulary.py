"""The terms that subscriptions ask for, numbered; and how often objects have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spatialnosql.subscriptions.strings import Strings


class Vocabulary(Mapping[str, int]):
    """Terms and their numbers, in order of first appearance. It only grows: a number, once given, stays.

    `frequencies` are numbers of objects that have each term, as far as known; they choose under which term a clause is
    filed, which makes matching fast or slow, never right or wrong.
    """

    def __init__(
        self, terms: Strings | Iterable[str] = (), frequencies: NDArray[np.int64] | None = None
    ) -> None:
        self._mapped = terms if isinstance(terms, Strings) else Strings.of(terms)
        self._added: list[str] = []
        self._frequencies = np.zeros(0, dtype=np.int64) if frequencies is None else frequencies

    @cached_property
    def _numbers(self) -> dict[str, int]:
        # Made when it is first asked, not when the index is opened.
        numbers = {term: number for number, term in enumerate(self._mapped)}
        if len(numbers) != len(self._mapped):
            raise ValueError("a vocabulary has the same term twice")
        return numbers

    def __len__(self) -> int:
        return len(self._mapped) + len(self._added)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __getitem__(self, term: str) -> int:
        return self._numbers[term]

    def numbers(self, terms: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of terms; -1 for those never subscribed."""
        get = self._numbers.get
        return np.fromiter((get(term, -1) for term in terms), dtype=np.int32)

    def add(self, terms: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of terms, new ones for those that are new."""
        numbers = self._numbers
        given = []
        for term in terms:
            number = numbers.get(term)
            if number is None:
                number = numbers[term] = len(numbers)
                self._added.append(term)
            given.append(number)
        return np.asarray(given, dtype=np.int32)

    def term(self, number: int) -> str:
        """The term of a number."""
        known = len(self._mapped)
        return self._mapped[number] if number < known else self._added[number - known]

    @property
    def terms(self) -> Strings:
        """All terms in the order of their numbers."""
        return Strings.joined([self._mapped, Strings.of(self._added)]) if self._added else self._mapped

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """How many objects have each term; 0 where that is not known."""
        known = self._frequencies[: len(self)]
        return np.concatenate([known, np.zeros(len(self) - known.size, dtype=np.int64)])

    def count(self, terms: Sequence[NDArray[np.int32]] | NDArray[np.int32]) -> None:
        """Take note of the terms of more objects, as numbers; -1 is left out."""
        seen = np.concatenate(terms) if isinstance(terms, list | tuple) else np.asarray(terms)
        self._frequencies = self.frequencies + np.bincount(seen[seen >= 0], minlength=len(self))[: len(self)]

    @property
    def nbytes(self) -> int:
        """The bytes of the flat arrays; the dictionary, made when a term is first asked for, is not among them."""
        return self._mapped.nbytes + self._frequencies.nbytes
