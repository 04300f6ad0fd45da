"""Documents that come from plans instead of a server's cursor, behind the methods of one.

Some were read already, others are still to come from a *source*, batch by batch.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from pymongo.errors import PyMongoError

from spatialnosql.deadline import Deadline
from spatialnosql.steps import Steps, run, run_async


class Source(Protocol):
    """Where further documents come from, by steps."""

    @property
    def cursor_id(self) -> int | None:
        """Of the server's cursor behind it, as pymongo has it."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Of the server behind it."""

    def next_batch(self, *, everything: bool = False) -> Steps[list[Any] | None]:
        """The next documents, perhaps none; None at the end. With `everything`, all may come at once that are left."""

    def explained(self) -> Steps[Any]:
        """The server's explanation of the command that comes next."""

    def close(self) -> Steps[None]:
        """No more are wanted."""


class Found:
    """Documents behind the methods of a cursor; `skip` and `limit` are counted over what the source brings."""

    session = None

    def __init__(
        self,
        documents: Iterable[Any] = (),
        source: Source | None = None,
        *,
        skip: int = 0,
        limit: int = 0,
        batch_size: int = 0,
        deadline: Deadline | None = None,
    ) -> None:
        self._documents = deque(documents)
        self._ahead: list[Any] = []  # of the source, beyond a batch as the caller wants it
        self._batch_size = batch_size
        self._source = source
        self.deadline = deadline or Deadline(None)
        self._skip, self._left = skip, limit or None
        self.retrieved = len(self._documents)

    def fill(self, *, everything: bool = False) -> Steps[bool]:
        """See to it that there is a document to give, or everything; False if there is none any more."""
        self._take(self._ahead)
        while not self._documents and self._source is not None:
            try:
                with self.deadline.counted():
                    batch = yield from self._source.next_batch(everything=everything and self._left is None)
            except Exception:
                # As pymongo has it: after an error there is no more, and nothing is left open.
                with contextlib.suppress(PyMongoError):
                    yield from self.dropped()
                raise
            if batch is None:
                self._source = None
                break
            if self._skip:
                skipped = min(self._skip, len(batch))
                batch, self._skip = batch[skipped:], self._skip - skipped
            if self._left is not None:
                batch = batch[: self._left]
                self._left -= len(batch)
            if self._left == 0:
                yield from self._drop_source()
            self._take(batch)
        return bool(self._documents)

    def _take(self, batch: list[Any]) -> None:
        if not self._documents:
            size = self._batch_size or len(batch)
            self._documents.extend(batch[:size])
            self._ahead = batch[size:]
            self.retrieved += len(self._documents)

    def _drop_source(self) -> Steps[None]:
        source, self._source = self._source, None
        if source is not None:
            yield from source.close()

    def taken(self, length: int | None) -> Steps[list[Any]]:
        """The rest, or so many of it."""
        if isinstance(length, int) and length < 1:
            raise ValueError("to_list() length must be greater than 0")
        out: list[Any] = []
        while (yield from self.fill(everything=length is None)):
            if length is None:
                out.extend(self._documents)
                self._documents.clear()
                continue
            while self._documents and len(out) < length:
                out.append(self._documents.popleft())
            if len(out) >= length:
                break
        return out

    def explained(self) -> Steps[Any]:
        """What the server says of the first command; nothing when there was none left to send."""
        return {} if self._source is None else (yield from self._source.explained())

    def dropped(self) -> Steps[None]:
        """Read no more; what is left of a batch is still there, as in pymongo's cursors."""
        self._ahead = []
        yield from self._drop_source()

    @property
    def cursor_id(self) -> int | None:
        """As pymongo's; 0 when all was read."""
        return 0 if self._source is None else self._source.cursor_id

    @property
    def address(self) -> tuple[str, int] | None:
        """As pymongo's."""
        return None if self._source is None else self._source.address

    @property
    def alive(self) -> bool:
        """Whether there may be more."""
        return bool(self._documents) or bool(self._ahead) or self._source is not None

    def __iter__(self) -> Iterator[Any]:
        # Not self: three calls for each document would take a tenth of the time of a large find.
        documents = self._documents
        while bool(documents) or run(self.fill()):
            while documents:
                yield documents.popleft()

    def __next__(self) -> Any:
        if not self._documents and not run(self.fill()):
            raise StopIteration
        return self._documents.popleft()

    def next(self) -> Any:
        """The next document."""
        return self.__next__()

    def __enter__(self) -> Found:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def try_next(self) -> Any:
        """The next document, or None."""
        return next(self, None)

    def batch_size(self, batch_size: int) -> Found:
        """Checked as pymongo checks it; what is under way is not changed any more."""
        if not isinstance(batch_size, int):
            raise TypeError(f"batch_size must be an integer, not {type(batch_size)}")
        if batch_size < 0:
            raise ValueError("batch_size must be >= 0")
        return self

    def to_list(self, length: int | None = None) -> list[Any]:
        """The rest, or so many of it."""
        return run(self.taken(length))

    def close(self) -> None:
        """As pymongo's."""
        run(self.dropped())


class AsyncFound:
    """The same behind the methods of an asynchronous cursor."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def __aiter__(self) -> AsyncFound:
        return self

    async def __anext__(self) -> Any:
        found = self._found
        if not found._documents and not await run_async(found.fill()):
            raise StopAsyncIteration
        return found._documents.popleft()

    next = __anext__

    async def try_next(self) -> Any:
        """The next document, or None."""
        try:
            return await self.next()
        except StopAsyncIteration:
            return None

    def batch_size(self, batch_size: int) -> AsyncFound:
        """Checked as pymongo checks it; what is under way is not changed any more."""
        self._found.batch_size(batch_size)
        return self

    async def __aenter__(self) -> AsyncFound:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def to_list(self, length: int | None = None) -> list[Any]:
        """The rest, or so many of it."""
        return await run_async(self._found.taken(length))

    async def close(self) -> None:
        """As pymongo's."""
        await run_async(self._found.dropped())
