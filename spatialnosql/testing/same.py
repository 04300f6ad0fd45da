"""Both give the same: two answers compared as whole documents, with a message that shows the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bson import encode

Document = Mapping[str, Any]
TieKey = str | Callable[[Document], Any]
SHOWN = 5  # of each sort of difference


def assert_same_documents(
    expected: Iterable[Document],
    actual: Iterable[Document],
    *,
    ordered: bool = False,
    key: str = "_id",
    at_least: int = 1,
    tie_key: TieKey | None = None,
    cut_by_limit: bool = False,
) -> None:
    """Assert that two answers hold the same documents, equally often and, if ``ordered``, in the same order.

    Documents are the same when their BSON is: field order (but for ``_id``) and number types count.
    ``at_least`` guards against the test that compares nothing with nothing. ``tie_key`` (a field, or a
    function of a document) is what the order is by: where it is equal, any order will do. ``cut_by_limit``
    says that the answer stops at a limit, so that of those tied with the last any choice will do.
    """
    wanted, found = list(expected), list(actual)
    if len(wanted) < at_least:
        raise AssertionError(
            f"only {len(wanted)} documents expected, at least {at_least} needed to prove anything"
        )
    if cut_by_limit and tie_key is None:
        raise ValueError("cut_by_limit needs tie_key: only documents tied with the last may differ")
    if tie_key is not None:
        ordered = True
    certain = (wanted, found)
    if cut_by_limit and len(wanted) == len(found) and wanted:
        last = _tie(wanted[-1], tie_key)
        certain = (
            [d for d in wanted if _tie(d, tie_key) != last],
            [d for d in found if _tie(d, tie_key) != last],
        )
    problems = _differences(*certain, key)
    if not problems and ordered:
        problems = _order(wanted, found, key, tie_key)
    if problems:
        head = f"answers differ: {len(wanted)} documents expected, {len(found)} found"
        raise AssertionError("\n".join([head, *problems]))


def _tie(document: Document, tie_key: TieKey | None) -> Any:
    if tie_key is None:
        return encode(document)
    return tie_key(document) if callable(tie_key) else document.get(tie_key)


def _differences(wanted: Sequence[Document], found: Sequence[Document], key: str) -> list[str]:
    """Lines about documents that are missing, too many, or not quite the same; none if there are none."""
    wanted_counts, found_counts = Counter(map(encode, wanted)), Counter(map(encode, found))
    if wanted_counts == found_counts:
        return []
    missing = [d for d in _distinct(wanted) if wanted_counts[encode(d)] > found_counts[encode(d)]]
    extra = [d for d in _distinct(found) if found_counts[encode(d)] > wanted_counts[encode(d)]]
    extra_of = {_key(d, key): d for d in extra}
    changed = [(d, extra_of[_key(d, key)]) for d in missing if _key(d, key) in extra_of]
    changed_keys = {_key(d, key) for d, _ in changed}
    lines = _listed("changed", [_change(a, b, key) for a, b in changed])
    lines += _listed(
        "missing",
        [_brief(d, wanted_counts, found_counts) for d in missing if _key(d, key) not in changed_keys],
    )
    lines += _listed(
        "not expected",
        [_brief(d, wanted_counts, found_counts) for d in extra if _key(d, key) not in changed_keys],
    )
    return lines


def _order(
    wanted: Sequence[Document], found: Sequence[Document], key: str, tie_key: TieKey | None
) -> list[str]:
    """Lines about the first places where the order differs."""
    pairs = enumerate(zip(wanted, found, strict=True))
    wrong = [(i, a, b) for i, (a, b) in pairs if _tie(a, tie_key) != _tie(b, tie_key)]

    def named(document: Document) -> str:
        name = repr(document.get(key))
        return name if tie_key is None else f"{name} ({_tie(document, tie_key)!r})"

    texts = [f"at {i}: {named(a)} expected, {named(b)} found" for i, a, b in wrong]
    return _listed("in the wrong order", texts)


def _distinct(documents: Sequence[Document]) -> list[Document]:
    return list({encode(document): document for document in documents}.values())


def _key(document: Document, key: str) -> bytes:
    return encode({"key": document.get(key)})


def _change(wanted: Document, found: Document, key: str) -> str:
    names = [*wanted, *(name for name in found if name not in wanted)]
    parts = []
    for name in names:
        if name not in found:
            parts.append(f"without {name!r}")
        elif name not in wanted:
            parts.append(f"with {name!r} = {found[name]!r}")
        elif encode({"": wanted[name]}) != encode({"": found[name]}):
            parts.append(f"{name!r} {wanted[name]!r} -> {found[name]!r}")
    return f"{wanted.get(key)!r}: " + ("; ".join(parts) or f"fields in another order: {list(found)}")


def _brief(document: Document, wanted: Mapping[bytes, int], found: Mapping[bytes, int]) -> str:
    """The document, cut to a line; how often it was expected and found when that is the difference."""
    text = repr(dict(document))
    text = text if len(text) <= 160 else text[:157] + "..."
    data = encode(document)
    times = (wanted.get(data, 0), found.get(data, 0))
    return text if 0 in times and sum(times) == 1 else f"{text} (expected {times[0]} times, found {times[1]})"


def _listed(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    more = [f"    ... and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return [f"  {title}: {len(texts)}", *(f"    {text}" for text in texts[:SHOWN]), *more]
