"""GeoJSON to JSON lines, feature by feature: a collection of any size, gzipped or not, in a few megabytes.

Spark reads JSON by lines, or a whole file as one value, which for a large FeatureCollection is one row in one task.
Here each file is read as a stream, and what Spark gets is a text file with one feature a line.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from spatialnosql.errors import UsageError

CHUNK = 1 << 20  # characters read at a time
SKIPPED = frozenset(" \t\r\n,\x1e\ufeff")  # between values; RFC 8142 puts a record separator before each


class _Text:
    """A window on a stream of JSON that moves on and is never longer than one feature and a chunk."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream, self._name = stream, name
        self._decode = json.JSONDecoder().raw_decode
        self._ended = False
        self.text, self.at = "", 0

    def _fill(self, keep: int) -> None:
        """Read more, and forget what lies before `keep`."""
        # As much again as there is: a long feature is not scanned over and over.
        more = self._stream.read(max(CHUNK, len(self.text) - keep))
        self._ended = not more
        self.text, self.at = self.text[keep:] + more, self.at - keep

    def peek(self) -> str:
        """The next character that is none between values; "" at the end."""
        while True:
            while self.at < len(self.text):
                if self.text[self.at] not in SKIPPED:
                    return self.text[self.at]
                self.at += 1
            if self._ended:
                return ""
            self._fill(self.at)

    def value(self) -> tuple[Any, str]:
        """The next value and its text."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self.text, self.at)
                # A number at the very end of the window may go on behind it.
                if end < len(self.text) or self._ended:
                    text, self.at = self.text[self.at : end], end
                    return value, text
            except json.JSONDecodeError as error:
                if self._ended:
                    raise self.wrong(error.msg) from error
            self._fill(self.at)

    def take(self, character: str) -> None:
        """Go past a character that must be next."""
        found = self.peek()
        if found != character:
            raise self.wrong(f"{character!r} expected, found {found or 'its end'!r}")
        self.at += 1

    def wrong(self, why: str) -> UsageError:
        """The error to raise."""
        return UsageError(f"{self._name} is no GeoJSON: {why}; it may have been cut off")


def features_of(stream: IO[str], name: str = "the file") -> Iterator[str]:
    """The text of each feature: of a FeatureCollection, or of features one after the other (one a line)."""
    text = _Text(stream, name)
    while text.peek():
        text.take("{")
        members: list[str] = []
        is_collection = False
        while text.peek() != "}":
            key, written = text.value()
            text.take(":")
            if key == "features" and text.peek() == "[":
                is_collection = True
                text.take("[")
                while text.peek() != "]":
                    yield _one_line(text.value()[1])
                text.take("]")
            else:
                members.append(f"{written}: {text.value()[1]}")
        text.take("}")
        if not is_collection:
            yield _one_line("{" + ", ".join(members) + "}")


def _one_line(text: str) -> str:
    # In JSON a string has no raw line ends: those in the text are between values.
    return text.replace("\r", " ").replace("\n", " ")


def write_lines(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Write the features of each file as lines of ``{"source", "feature"}`` into a folder; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, path in enumerate(paths):
        target = folder / f"{number:05d}.jsonl"
        source = json.dumps(path.resolve().as_uri())
        with _opened(path) as stream, target.open("w", encoding="utf-8") as lines:
            try:
                for feature in features_of(stream, path.name):
                    lines.write(f'{{"source": {source}, "feature": {feature}}}\n')
            except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
                raise UsageError(f"{path.name} cannot be read: {error}") from error
        written.append(target)
    return written


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
