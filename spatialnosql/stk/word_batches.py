"""The words of many documents at once, as arrays: read from texts, or given as lists.

What `TextRules.terms` says of one text, `WordReader` says of an Arrow array of them, and in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spatialnosql.stk.keys import word_hashes
from spatialnosql.stk.settings import Ints
from spatialnosql.subscriptions.text import TextRules
from spatialnosql.subscriptions.text_batches import MOST_REMEMBERED, TermReader


@dataclass(frozen=True, eq=False)
class Words:
    """The words of document i are those of `distinct` that ``codes[offsets[i]:offsets[i + 1]]`` names."""

    distinct: list[str]
    codes: Ints
    offsets: Ints
    usable: NDArray[np.bool_]
    """Whether a document has words at all: not if there is no text, or if not every word of its list is one."""

    def hashes(self) -> NDArray[np.uint32]:
        """The hash of every word, in order."""
        return word_hashes(self.distinct)[self.codes]

    def taken(self, rows: NDArray[np.int64]) -> Words:
        """Those of some documents, ascending."""
        counts = np.diff(self.offsets)
        chosen = np.zeros(len(counts), dtype=np.bool_)
        chosen[rows] = True
        offsets = np.concatenate([[0], np.cumsum(counts[rows])])
        return Words(self.distinct, self.codes[np.repeat(chosen, counts)], offsets, self.usable[rows])

    def lists(self) -> Any:
        """An Arrow array of lists of strings, null where there are no usable words."""
        if not len(self.usable):
            return pa.array([], pa.list_(pa.string()))
        values = pa.array(self.distinct, pa.string()).take(pa.array(self.codes))
        # A null among the offsets makes the list that begins there null.
        offsets = pa.array(self.offsets.astype(np.int32), mask=np.append(~self.usable, False))
        return pa.ListArray.from_arrays(offsets, values)


class WordReader:
    """Reads texts into words; remembers the words from batch to batch."""

    def __init__(self, rules: TextRules) -> None:
        self._rules = rules
        self._words, self._reader = self._anew()

    def _anew(self) -> tuple[_Numbered, TermReader]:
        words = _Numbered()
        return words, TermReader(self._rules, words)

    def read(self, texts: Any) -> Words:
        """The words of an Arrow array of strings."""
        if len(self._words) > MOST_REMEMBERED:
            self._words, self._reader = self._anew()
        offsets, ids = self._reader.read_in_order(texts)
        met = np.zeros(len(self._words), dtype=np.bool_)
        met[ids] = True
        codes = (np.cumsum(met) - 1)[ids]
        distinct = [self._words.names[at] for at in np.flatnonzero(met).tolist()]
        return Words(distinct, codes, offsets, texts.is_valid().to_numpy(zero_copy_only=False))


class _Numbered(dict[str, int]):
    """Numbers words as they come: a vocabulary that knows every word."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def get(self, word: str, _: Any = None) -> int:
        number = self.setdefault(word, len(self))
        if number == len(self.names):
            self.names.append(word)
        return number


def words_of_lists(lists: Any) -> Words:
    """The words of an Arrow array of lists of strings."""
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    values = lists.flatten()
    usable = lists.is_valid().to_numpy(zero_copy_only=False)
    if values.null_count:
        usable = usable.copy()
        none = values.is_null().to_numpy(zero_copy_only=False)
        usable[np.repeat(np.arange(len(counts)), counts)[none]] = False
        values = values.fill_null("")
    encoded = values.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Words(encoded.dictionary.to_pylist(), codes, offsets, usable)
