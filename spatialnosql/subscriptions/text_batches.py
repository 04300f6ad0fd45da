"""The terms of a million texts at once: what `TextRules.terms` says, as arrays of the ids of subscribed terms.

Bytes go through a table of 256 entries that writes letters small and makes a space of all that is ASCII but no letter
or digit. What stands between the spaces is packed and encoded by a dictionary, and each distinct piece goes through
`TextRules` once and is remembered. A piece of ASCII only is a token already. Other pieces may hold several, or none:
folding never looks over an ASCII separator (neither casefolding nor normal forms join or reorder characters across
one), so the terms of a text are those of its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spatialnosql.errors import UsageError
from spatialnosql.subscriptions.text import TextRules

Offsets: TypeAlias = NDArray[np.int64]
Terms: TypeAlias = NDArray[np.int32]

BYTES_AT_ONCE = 8 << 20
"""Texts are taken in parts of about this size, so that the arrays between stay small."""
MOST_REMEMBERED = 2_000_000
"""Distinct pieces kept from batch to batch, some 200 MB; then begun anew."""

LONGEST_REMEMBERED = 64
"""Longer pieces, as scripts without spaces have them, hardly come again."""

_SPACE = ord(" ")
_NONE, _FIRST_SEVERAL = -1, -2


def _table() -> NDArray[np.uint8]:
    """What becomes of each byte: a small letter, a digit, part of a character beyond ASCII, or a space."""
    codes = np.arange(256, dtype=np.uint8)
    letters = np.array([code >= 128 or chr(code).isalnum() for code in range(256)])
    small = np.array([ord(chr(code).lower()) if code < 128 else code for code in range(256)], dtype=np.uint8)
    return np.where(letters, small, np.full_like(codes, _SPACE))


_BYTES = _table()


class TermReader:
    """Reads texts into ids of the terms that somebody has subscribed to; other terms are left out.

    The vocabulary says the id of a term. It is asked once for each word, so a reader belongs to a vocabulary as it is
    now: make another one when terms were added.
    """

    def __init__(self, rules: TextRules, vocabulary: Mapping[str, int]) -> None:
        self.rules = rules
        self._vocabulary = vocabulary
        self._ids: dict[
            str, int
        ] = {}  # of a piece: an id, or _NONE, or where its several ids are, from -2 downwards
        self._several: list[tuple[int, ...]] = []

    def read(self, texts: Any) -> tuple[Offsets, Terms]:
        """For each text of an Arrow array of strings the ids of its distinct subscribed terms, ascending.

        Those of text i are ``terms[offsets[i]:offsets[i + 1]]``. A null is a text without words.
        """
        return self._read(texts, self._read_part)

    def read_in_order(self, texts: Any) -> tuple[Offsets, Terms]:
        """The same, but in the order in which they first appear in their text, as `TextRules.terms` has them."""
        return self._read(texts, self._read_part_in_order)

    def _read(
        self, texts: Any, read_part: Callable[[Any], tuple[NDArray[np.int64], Terms]]
    ) -> tuple[Offsets, Terms]:
        strings = _strings(texts)
        bounds = _offsets(strings)
        counts, terms = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int32)]
        for start, stop in _parts(bounds):
            part_counts, part_terms = read_part(strings.slice(start, stop - start))
            counts.append(part_counts)
            terms.append(part_terms)
        offsets = np.zeros(len(strings) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(counts), out=offsets[1:])
        return offsets, np.concatenate(terms)

    def _coded(self, strings: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each piece the text that it is of, and what `_ids_of` says of it."""
        pieces, pieces_of_text = _pieces(strings)
        encoded = pieces.dictionary_encode()
        ids = self._ids_of(encoded.dictionary.to_pylist())[encoded.indices.to_numpy(zero_copy_only=False)]
        return np.repeat(np.arange(len(strings)), pieces_of_text), ids

    def _read_part(self, strings: Any) -> tuple[NDArray[np.int64], Terms]:
        """How many terms each text has, and all of them."""
        text, ids = self._coded(strings)
        known = np.flatnonzero(ids >= 0)
        pairs = self._with_several((text[known] << 32) | ids[known], text, ids)
        # Sorted by hand: np.unique hashes since NumPy 2.3, which takes fifty times as long here.
        pairs.sort()
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        return np.bincount(pairs >> 32, minlength=len(strings)), (pairs & 0xFFFFFFFF).astype(np.int32)

    def _read_part_in_order(self, strings: Any) -> tuple[NDArray[np.int64], Terms]:
        """The same, each term where it first appears."""
        text, ids = self._coded(strings)
        counts = (ids >= 0).astype(np.int64)
        rare = np.flatnonzero(ids <= _FIRST_SEVERAL).tolist()
        for at in rare:
            counts[at] = len(self._several[_FIRST_SEVERAL - int(ids[at])])
        starts = np.cumsum(counts) - counts
        all_ids = np.repeat(ids, counts)
        for at in rare:
            all_ids[starts[at] : starts[at] + counts[at]] = self._several[_FIRST_SEVERAL - int(ids[at])]
        text = np.repeat(text, counts)
        kept = _first_ones(text, all_ids)
        return np.bincount(text[kept], minlength=len(strings)), all_ids[kept].astype(np.int32)

    def _with_several(
        self, pairs: NDArray[np.int64], text: NDArray[np.int64], ids: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The pairs of text and id, with those of the few pieces that have several ids."""
        rare = np.flatnonzero(ids <= _FIRST_SEVERAL)
        if not rare.size:
            return pairs
        lists = [self._several[_FIRST_SEVERAL - code] for code in ids[rare].tolist()]
        texts = np.repeat(text[rare], [len(several) for several in lists])
        return np.concatenate(
            [pairs, (texts << 32) | np.fromiter(chain.from_iterable(lists), dtype=np.int64)]
        )

    def _ids_of(self, pieces: list[str]) -> NDArray[np.int64]:
        """For each piece its id, _NONE if nobody has subscribed to any of its terms, or where its several ids are."""
        if len(self._ids) + len(self._several) > MOST_REMEMBERED:
            self._ids, self._several = {}, []
        known = self._ids
        for piece in pieces:
            if piece not in known:
                known[piece] = self._code(piece)
        codes = np.fromiter(map(known.__getitem__, pieces), dtype=np.int64, count=len(pieces))
        for piece in pieces:
            if len(piece) > LONGEST_REMEMBERED:
                del known[piece]
        return codes

    def _code(self, piece: str) -> int:
        if piece.isascii():
            term = self.rules.token_function(piece)
            return _NONE if term is None else self._vocabulary.get(term, _NONE)
        found = [self._vocabulary.get(term, _NONE) for term in self.rules.terms(piece)]
        ids = tuple(id_ for id_ in found if id_ != _NONE)
        if len(ids) < 2:
            return ids[0] if ids else _NONE
        self._several.append(ids)
        return _FIRST_SEVERAL - (len(self._several) - 1)


def _first_ones(text: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each pair of text and id stands first, ascending. The texts must be ascending already."""
    if not len(ids):
        return np.zeros(0, dtype=np.int64)
    place_bits = len(ids).bit_length()
    id_bits = int(ids.max()).bit_length()
    if int(text[-1]).bit_length() + id_bits + place_bits > 63:
        _, first = np.unique((text << id_bits) | ids, return_index=True)
        return np.sort(first)
    # Text, id and place in one number: sorting numbers is many times as fast as sorting where they stand.
    packed = (((text << id_bits) | ids) << place_bits) | np.arange(len(ids))
    packed.sort()
    is_first = np.diff(packed >> place_bits, prepend=-1) != 0
    places: NDArray[np.int64] = np.sort(packed[is_first] & ((1 << place_bits) - 1))
    return places


def _strings(texts: Any) -> Any:
    """One Arrow array of large strings, without nulls."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    kind = getattr(texts, "type", None)
    kind = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if kind not in (pa.string(), pa.large_string(), pa.string_view(), pa.null()):
        raise UsageError(f"texts must be an Arrow array of strings, not {kind or type(texts).__name__}")
    return pc.fill_null(texts.cast(pa.large_string()), "")


def _offsets(strings: Any) -> NDArray[np.int64]:
    """Where each text begins in the bytes of an array, and where the last one ends."""
    if not len(strings):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(strings.buffers()[1], dtype=np.int64)[
        strings.offset : strings.offset + len(strings) + 1
    ]


def _parts(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of texts, half-open, each of about as many bytes as are taken at once, but of one text at least."""
    start, last = 0, len(offsets) - 1
    while start < last:
        end = int(np.searchsorted(offsets, offsets[start] + BYTES_AT_ONCE, side="right")) - 1
        stop = min(max(end, start + 1), last)
        yield start, stop
        start = stop


def _pieces(strings: Any) -> tuple[Any, NDArray[np.int64]]:
    """All runs of letters, digits and bytes beyond ASCII in order, and how many each text has."""
    offsets = _offsets(strings)
    first, last = int(offsets[0]), int(offsets[-1])
    content = strings.buffers()[2]
    if first == last or content is None:
        return pa.array([], type=pa.string()), np.zeros(len(strings), dtype=np.int64)
    data = _BYTES[np.frombuffer(content, dtype=np.uint8)[first:last]]
    inside = data != _SPACE
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    # Texts follow each other without anything between.
    heads = (offsets[:-1] - first)[offsets[:-1] < last]
    begins[heads] = inside[heads]
    starts = np.flatnonzero(begins[inside])
    packed = data[inside]
    bounds = np.append(starts, len(packed)).astype(np.int32)
    pieces = pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(packed))
    return pieces, np.diff(np.searchsorted(np.flatnonzero(begins), offsets - first))
