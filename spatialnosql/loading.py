"""Insert many documents quickly: unordered, from a few threads, few batches in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pymongo.collection import Collection

from spatialnosql.progress import Progress

THREADS = 2


def insert(
    collection: Collection[dict[str, Any]], batches: Iterable[list[dict[str, Any]]], total: int
) -> int:
    """Insert the batches, showing progress, and return how many documents there were."""
    with (
        Progress(f"inserting into {collection.name}", total, unit="documents") as progress,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        waiting: deque[Future[int]] = deque()

        def store(batch: list[dict[str, Any]]) -> int:
            return len(collection.insert_many(batch, ordered=False).inserted_ids)

        for batch in batches:
            waiting.append(pool.submit(store, batch))
            if len(waiting) > THREADS:
                progress.advance(waiting.popleft().result())
        for future in waiting:
            progress.advance(future.result())
    return progress.done
