"""pymongo's cursors, with Python's collector of cycles kept quiet while a batch is decoded, and batches of any size.

The collector runs whenever some hundred containers were made, walks over them, and now and then over everything the
process holds: for documents of points that takes as long as decoding them. There are no cycles in what is decoded, so
it can wait those milliseconds. A server's own batches after the first have 16 MB, which is more than fits a processor's
caches: in smaller ones documents are decoded in two thirds of the time. Both go by names that pymongo does not
document; should these change one day, they are ordinary cursors again.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.cursor import Cursor


class CalmCursor(Cursor[Any]):
    """As pymongo's `Cursor`."""

    def set_batches(self, size: int) -> None:
        """From now on, ask for so many documents at a time."""
        self._batch_size = size

    def _unpack_response(self, *arguments: Any, **options: Any) -> Any:
        with collector_paused():
            return super()._unpack_response(*arguments, **options)


class AsyncCalmCursor(AsyncCursor[Any]):
    """As pymongo's `AsyncCursor`."""

    def set_batches(self, size: int) -> None:
        """From now on, ask for so many documents at a time."""
        self._batch_size = size

    def _unpack_response(self, *arguments: Any, **options: Any) -> Any:
        with collector_paused():
            return super()._unpack_response(*arguments, **options)


def calm_find(collection: Any, filter: Any, **options: Any) -> Any:
    """As the collection's ``find``."""
    kind: Any = AsyncCalmCursor if isinstance(collection, AsyncCollection) else CalmCursor
    return kind(collection, filter, **options)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection of cycles within; if there are threads, none of theirs either, so let it be short."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
