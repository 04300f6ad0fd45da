"""Subscriptions from a file: one JSON object a line, gzip too."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from spatialnosql.errors import UsageError

_GZIP = b"\x1f\x8b"
_BYTES_AT_ONCE = 1 << 20


class BadLineError(UsageError):
    """A line that is no JSON."""


def count_lines(file: str) -> int | None:
    """How many lines a file has; None for standard input, which can be read but once."""
    if file == "-":
        return None
    with opened(file) as stream:
        count, last = 0, b"\n"
        while block := stream.read(_BYTES_AT_ONCE):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def read_rows(file: str) -> Iterator[tuple[str, Any]]:
    """For each line that is not empty its place, as in "line 3", and what stands there: a value, or a BadLineError."""
    with opened(file) as stream:
        for number, line in enumerate(stream, 1):
            text = line.strip().removeprefix(b"\xef\xbb\xbf") if number == 1 else line.strip()
            if text:
                yield f"line {number}", _value(text)


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        # UnicodeDecodeError is a ValueError too.
        return BadLineError(f"no JSON: {error}")


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, or of standard input if it is ``-``, without gzip."""
    with ExitStack() as stack:
        try:
            plain: Any = sys.stdin.buffer if file == "-" else stack.enter_context(Path(file).open("rb"))
        except FileNotFoundError as error:
            raise UsageError(f"no such file: {file}") from error
        if plain.peek(2)[:2] == _GZIP:
            plain = stack.enter_context(gzip.GzipFile(fileobj=plain))
        try:
            yield plain
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{file} cannot be unpacked: {error}") from error
